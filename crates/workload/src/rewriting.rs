//! Programs that were made from others and compute the same: which change it was, in names that can be written down, and
//! the same change once more.
//!
//! A plan that was made for a rewritten program is of use only to whoever can rewrite the program in the same way.

use std::collections::{HashMap, HashSet};

use tiercel_core::Bytes;

use crate::Program;
use crate::graph::{Node, Op, ValueId};
use crate::parts::{fused, split, weights};
use crate::recompute::{candidates, recompute};
use crate::schedule::Updates;
use crate::trace::Role;

/// What sets a program apart from the one that it was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewriting {
    /// Whether each weight is updated as soon as it can be.
    pub early_updates: bool,
    /// The values that are dropped after the forward pass and computed again for the backward pass, by their names.
    pub recomputed: Vec<String>,
    /// The size above which activations and weights are worked on in parts of about that size.
    pub parts: Option<Bytes>,
    /// The size above which tables have their rows updated beside what follows.
    pub detached: Option<Bytes>,
}

impl Rewriting {
    /// Whether nothing is changed.
    pub fn is_none(&self) -> bool {
        !self.early_updates && self.recomputed.is_empty() && self.parts.is_none() && self.detached.is_none()
    }
}

/// Why a program cannot be rewritten in some way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// It has nothing of this name.
    #[error("there is no tensor `{0}` to compute again")]
    Unknown(String),
    /// It has, but that is there once and for all.
    #[error("`{0}` cannot be computed again: it is not made by a forward kernel for the backward pass")]
    Fixed(String),
    /// There is nothing to work on in parts.
    #[error("no activation or weight of more than {0} can be worked on in parts")]
    Small(Bytes),
    /// There is nothing to update beside other kernels.
    #[error("no table of more than {0} has rows that are updated")]
    NoRows(Bytes),
}

impl Program {
    /// The same program with some values dropped after the forward pass and computed again for the backward pass.
    pub fn recomputing(&self, dropped: &HashSet<ValueId>) -> Program {
        let mut names: Vec<String> = dropped.iter().map(|v| self.graph.value(*v).name.clone()).collect();
        names.sort_unstable();
        let program = Program::new(recompute(&self.graph, dropped), self.options);
        let mut program = program.with_workspace_of(self);
        program.rewriting.recomputed.extend(names);
        program
    }

    /// The same program with each weight updated as soon as it can be: what is computed is the same, and gradients need
    /// not be kept until the end.
    pub fn updating_early(&self) -> Program {
        let options = crate::schedule::ScheduleOptions { updates: Updates::WhenReady, ..self.options };
        let mut program = Program::new(self.graph.clone(), options).with_workspace_of(self);
        program.rewriting.early_updates = true;
        program
    }

    /// The same program with activations and weights of more than `limit` worked on in parts of about that size; `None`
    /// where nothing can be. Whatever else is rewritten comes before.
    pub fn in_parts(&self, limit: Bytes) -> Option<Program> {
        let graph = split(&self.graph, limit)?;
        // Updates that are early already are where they should be.
        let mut program = Program::new(graph, self.options).with_workspace_of(self);
        program.rewriting.parts = Some(limit);
        Some(program)
    }

    /// The same program with its weights in the parts that they have in another program of the same network, so that both
    /// can work on one set of them.
    pub fn with_weights_like(&self, other: &Program) -> Option<Program> {
        let graph = weights::like(&self.graph, &other.graph)?;
        Some(Program::new(graph, self.options).with_workspace_of(self))
    }

    /// The same program with rows of tables of more than `limit` updated beside the kernels that follow, where the machine has
    /// something to run them; `None` where there are no such tables.
    pub fn updating_detached(&self, limit: Bytes) -> Option<Program> {
        let mut program = self.clone();
        program.rewriting.detached = Some(limit);
        program.mark_detached();
        program.trace.kernels.iter().any(|kernel| kernel.detached).then_some(program)
    }

    /// Marks the kernels that run beside others, as the rewriting says.
    fn mark_detached(&mut self) {
        let Some(limit) = self.rewriting.detached else { return };
        for (node, kernel) in self.graph.nodes.iter().zip(&mut self.trace.kernels) {
            if let (Op::UpdateRows { .. }, Some(table)) = (&node.op, node.inputs.first()) {
                let table = self.graph.value(*table);
                kernel.detached = table.shape.bytes(table.dtype) > limit;
            }
        }
    }

    /// How the program came from another, where it did.
    pub fn rewriting(&self) -> &Rewriting {
        &self.rewriting
    }

    /// The program as another of its kind was rewritten, in [`Program::updating_early`], [`Program::recomputing`],
    /// [`Program::in_parts`] and [`Program::updating_beside`].
    pub fn rewritten(&self, rewriting: &Rewriting) -> Result<Program, RewriteError> {
        let early = if rewriting.early_updates { self.updating_early() } else { self.clone() };
        let again = early.computing_again(&rewriting.recomputed)?;
        let parts = match rewriting.parts {
            Some(limit) => again.in_parts(limit).ok_or(RewriteError::Small(limit))?,
            None => again,
        };
        match rewriting.detached {
            Some(limit) => parts.updating_detached(limit).ok_or(RewriteError::NoRows(limit)),
            None => Ok(parts),
        }
    }

    /// The same program with values of these names dropped and computed again.
    fn computing_again(self, names: &[String]) -> Result<Program, RewriteError> {
        if names.is_empty() {
            return Ok(self);
        }
        let early = self;
        let name = |value: ValueId| early.graph.value(value).name.as_str();
        let able: HashMap<&str, ValueId> =
            candidates(&early.graph).iter().map(|c| (name(c.value), c.value)).collect();
        let find = |wanted: &String| match able.get(wanted.as_str()) {
            Some(value) => Ok(*value),
            None if early.graph.values.iter().any(|value| value.name == *wanted) => {
                Err(RewriteError::Fixed(wanted.clone()))
            }
            None => Err(RewriteError::Unknown(wanted.clone())),
        };
        let dropped: HashSet<ValueId> = names.iter().map(find).collect::<Result<_, _>>()?;
        Ok(early.recomputing(&dropped))
    }

    /// Gives every kernel the scratch memory that it has in the program that this one was made from: a program that can
    /// run for real still can when it has been rewritten, and plans for it count that memory. How that one came about is
    /// how this one did, so far.
    fn with_workspace_of(mut self, old: &Program) -> Program {
        self.rewriting = old.rewriting.clone();
        let mut known: HashMap<&str, Bytes> = HashMap::new();
        for kernel in &old.trace.kernels {
            let scratch = kernel.writes.iter().map(|u| old.trace.tensor(u.tensor));
            if let Some(scratch) = scratch.into_iter().find(|tensor| tensor.role == Role::Workspace) {
                known.insert(kernel.first_name(), scratch.bytes);
            }
        }
        self.mark_detached();
        let own = |name: &str| known.get(name).copied().unwrap_or_default();
        let need = |node: &Node| {
            let name = node.derived.first_name(&node.name);
            match fused::stands_for(&node.op.name(), name).filter(|_| own(name) == Bytes::ZERO) {
                None => own(name),
                Some(names) => {
                    let most = names.iter().map(|name| own(name)).max().unwrap_or_default();
                    if most > Bytes::ZERO { most + fused::PIECE } else { most }
                }
            }
        };
        self.with_workspace(|_, node| need(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nets;

    /// Every network, every value that can be computed again: the names alone lead to the same program.
    #[test]
    fn a_rewriting_can_be_done_once_more_by_its_names() {
        for net in nets::all() {
            let options = nets::NetOptions { batch: Some(2), ..nets::NetOptions::default() };
            let program = net.build(&options).expect("sound");
            assert!(program.rewriting().is_none(), "{}", net.name);
            let early = program.updating_early();
            let all: Vec<ValueId> = candidates(&early.graph).iter().map(|c| c.value).collect();
            let names: HashSet<&str> = all.iter().map(|v| early.graph.value(*v).name.as_str()).collect();
            assert_eq!(names.len(), all.len(), "{}: two values of one name", net.name);
            let some: HashSet<ValueId> = all.iter().copied().step_by(2).collect();
            let beside = early.recomputing(&some).updating_detached(Bytes(1 << 20));
            assert!(beside.is_some() || net.name != "dlrm", "its tables are large");
            for rewritten in [early.clone(), early.recomputing(&some), program.recomputing(&some)]
                .into_iter()
                .chain(beside)
            {
                let again = program.rewritten(rewritten.rewriting()).expect("the names are its own");
                assert_eq!(again, rewritten, "{}", net.name);
            }
        }
    }

    #[test]
    fn what_cannot_be_computed_again_is_named() {
        let program =
            nets::find("mlp").expect("built in").build(&nets::NetOptions::default()).expect("sound");
        let says = |name: &str| {
            let rewriting =
                Rewriting { early_updates: true, recomputed: vec![name.to_string()], ..Rewriting::default() };
            program.rewritten(&rewriting).map(|_| ()).expect_err("it cannot").to_string()
        };
        assert_eq!(says("ghost"), "there is no tensor `ghost` to compute again");
        let weight = program.graph.values.iter().find(|value| value.persistent).expect("it learns");
        let why = "cannot be computed again: it is not made by a forward kernel for the backward pass";
        assert_eq!(says(&weight.name), format!("`{}` {why}", weight.name));
    }
}
