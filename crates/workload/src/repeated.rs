//! Running kernels of a trace again: the rewriting that drops a tensor's bytes and makes them anew, for a trace from anywhere.
//!
//! [`recompute`](crate::recompute) does the same to our own graphs. Here there is only the trace, so what is given is a list: which
//! kernel runs again before which step. Everything else follows. A kernel that runs again and that was the first to write a
//! tensor writes a fresh one, which everybody who comes later uses; the old one dies with its last use before that, and so its
//! memory is free in between. One that changed a tensor in place changes the fresh one. A rewriting in which anybody would read other
//! bytes than in the original is refused. What comes out is an ordinary trace, with the origin of each of its kernels
//! and tensors, so that whoever plays it can go back to the original's operations.

use std::collections::HashSet;

use crate::repeat::Repeat;
use crate::trace::{Kernel, Role, Tensor, TensorId, Trace};

/// A kernel that runs once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rerun {
    /// The step of the original trace before which it does; those of one step run in the order of the list.
    pub before: u32,
    /// The kernel, by its position in the original trace.
    pub kernel: u32,
}

/// Where a kernel of a rewritten trace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The kernel of the original trace whose work it does.
    pub kernel: u32,
    /// The step of the original trace that it is, or before which it runs once more.
    pub step: u32,
    /// Whether it does that once more.
    pub again: bool,
}

/// A trace in which some kernels run again.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// The rewritten trace.
    pub trace: Trace,
    /// For each of its kernels, where it comes from.
    pub kernels: Vec<Origin>,
    /// For each of its tensors, the tensor of the original trace whose bytes it holds; those of the original come first.
    pub tensors: Vec<TensorId>,
    /// What was run again.
    pub reruns: Vec<Rerun>,
}

/// Why kernels cannot run again as a list says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepeatError {
    /// There is no such kernel or step.
    #[error("kernel {kernel} cannot run again before step {before}: the trace has {there} kernels")]
    Missing {
        /// The kernel.
        kernel: u32,
        /// The step.
        before: u32,
        /// How many kernels there are.
        there: u32,
    },
    /// It has not run yet.
    #[error("`{kernel}` cannot run again before step {before}, because it has not run by then")]
    Early {
        /// The kernel.
        kernel: String,
        /// The step.
        before: u32,
    },
    /// It must run once.
    #[error("`{kernel}` must not run again: it is `{}`", .repeat.name())]
    Once {
        /// The kernel.
        kernel: String,
        /// What the trace, or its type, says of it.
        repeat: Repeat,
    },
    /// It, or a kernel after it, would not find the bytes that it wants.
    #[error(
        "before step {before}, `{kernel}` would find {found} of the {wanted} changes of `{tensor}` that it wants"
    )]
    Bytes {
        /// The kernel.
        kernel: String,
        /// The step.
        before: u32,
        /// The tensor.
        tensor: String,
        /// How many kernels should have written it.
        wanted: u32,
        /// How many have.
        found: u32,
    },
}

impl Trace {
    /// The trace with some kernels run again; what is listed must be in the order of the steps.
    pub fn repeating(&self, reruns: &[Rerun]) -> Result<Repeated, RepeatError> {
        let mut rewriting = Rewriting::new(self);
        let mut due = reruns.iter().copied().peekable();
        for step in 0..self.kernels.len() as u32 {
            while let Some(rerun) = due.next_if(|rerun| rerun.before <= step) {
                rewriting.again(rerun)?;
            }
            rewriting.original(step)?;
        }
        if let Some(Rerun { before, kernel }) = due.next() {
            return Err(RepeatError::Missing { kernel, before, there: self.kernels.len() as u32 });
        }
        Ok(Repeated { reruns: reruns.to_vec(), ..rewriting.done })
    }
}

/// A rewriting under way.
struct Rewriting<'a> {
    trace: &'a Trace,
    done: Repeated,
    /// For each tensor of the original, the tensor that now stands for it, how many kernels have written that, and how many
    /// have written the original.
    stands: Vec<(TensorId, u32, u32)>,
    /// For each kernel that has run, how often each of its operands had been written before: reads, then writes.
    found: Vec<Vec<u32>>,
    names: HashSet<String>,
}

impl<'a> Rewriting<'a> {
    fn new(trace: &'a Trace) -> Rewriting<'a> {
        let ids: Vec<TensorId> = (0..trace.tensors.len() as u32).map(TensorId).collect();
        let empty = Trace { kernels: Vec::with_capacity(trace.kernels.len()), ..bare(trace) };
        let tensors = trace.tensors.iter().map(|t| t.name.clone());
        Rewriting {
            trace,
            stands: ids.iter().map(|id| (*id, 0, 0)).collect(),
            done: Repeated { trace: empty, kernels: Vec::new(), tensors: ids, reruns: Vec::new() },
            found: Vec::with_capacity(trace.kernels.len()),
            names: tensors.chain(trace.kernels.iter().map(|k| k.name.clone())).collect(),
        }
    }

    /// Puts a kernel of the original.
    fn original(&mut self, step: u32) -> Result<(), RepeatError> {
        let mut kernel = self.trace.kernels[step as usize].clone();
        let mut found = Vec::with_capacity(kernel.reads.len() + kernel.writes.len());
        for used in kernel.reads.iter_mut().chain(&mut kernel.writes) {
            let tensor = used.tensor;
            let (stands, has, wants) = self.stands[tensor.0 as usize];
            self.agree(&self.trace.kernels[step as usize], step, tensor, wants, has)?;
            used.tensor = stands;
            found.push(wants);
        }
        for used in &self.trace.kernels[step as usize].writes {
            let (_, has, wrote) = &mut self.stands[used.tensor.0 as usize];
            (*has, *wrote) = (*has + 1, *wrote + 1);
        }
        self.found.push(found);
        self.done.trace.kernels.push(kernel);
        self.done.kernels.push(Origin { kernel: step, step, again: false });
        Ok(())
    }

    /// Puts a kernel that has run to run again.
    fn again(&mut self, Rerun { before, kernel: at }: Rerun) -> Result<(), RepeatError> {
        let there = self.trace.kernels.len() as u32;
        let missing = RepeatError::Missing { kernel: at, before, there };
        let old = self.trace.kernels.get(at as usize).ok_or(missing)?;
        let Some(found) = self.found.get(at as usize).cloned() else {
            return Err(RepeatError::Early { kernel: old.name.clone(), before });
        };
        let repeat = old.repeat();
        let refused = || RepeatError::Once { kernel: old.name.clone(), repeat };
        if repeat == Repeat::Once {
            return Err(refused());
        }
        let mut kernel = old.clone();
        let user = &self.trace.kernels[before as usize];
        (kernel.layer, kernel.phase, kernel.detached) = (user.layer, user.phase, false);
        kernel.derived = old.derived.again(&old.name);
        kernel.name = self.fresh_name(&old.name);
        let writes = |tensor: TensorId| old.writes.iter().any(|used| used.tensor == tensor);
        let (wanted, wrote) = found.split_at(old.reads.len());
        for (used, wants) in kernel.reads.iter_mut().zip(wanted) {
            let tensor = self.trace.tensor(used.tensor);
            let (stands, has, _) = self.stands[used.tensor.0 as usize];
            if !(writes(used.tensor) && tensor.persistent) {
                self.agree(old, before, used.tensor, *wants, has)?;
            }
            used.tensor = stands;
        }
        for (used, wants) in kernel.writes.iter_mut().zip(wrote) {
            let (tensor, id) = (self.trace.tensor(used.tensor), used.tensor);
            if tensor.persistent || tensor.role == Role::Input {
                if repeat != Repeat::Scratch {
                    return Err(refused());
                }
                used.tensor = self.fresh(id, Role::Workspace);
                continue;
            }
            if *wants == 0 {
                let role = tensor.role;
                self.stands[id.0 as usize].0 = self.fresh(id, role);
                self.stands[id.0 as usize].1 = 0;
            } else {
                self.agree(old, before, id, *wants, self.stands[id.0 as usize].1)?;
            }
            self.stands[id.0 as usize].1 += 1;
            used.tensor = self.stands[id.0 as usize].0;
        }
        self.done.trace.kernels.push(kernel);
        self.done.kernels.push(Origin { kernel: at, step: before, again: true });
        Ok(())
    }

    /// A tensor must have been written as often as a kernel wants it.
    fn agree(
        &self,
        kernel: &Kernel,
        before: u32,
        tensor: TensorId,
        wanted: u32,
        found: u32,
    ) -> Result<(), RepeatError> {
        if wanted == found {
            return Ok(());
        }
        let (kernel, tensor) = (kernel.name.clone(), self.trace.tensor(tensor).name.clone());
        Err(RepeatError::Bytes { kernel, before, tensor, wanted, found })
    }

    /// A tensor like one of the original that is yet to be written.
    fn fresh(&mut self, like: TensorId, role: Role) -> TensorId {
        let old = self.trace.tensor(like);
        let name = self.fresh_name(&old.name);
        self.done.trace.tensors.push(Tensor { name, bytes: old.bytes, role, persistent: false });
        self.done.tensors.push(like);
        TensorId(self.done.tensors.len() as u32 - 1)
    }

    fn fresh_name(&mut self, old: &str) -> String {
        let names = (1..).map(|n| if n == 1 { format!("{old}.again") } else { format!("{old}.again{n}") });
        let mut names = names.skip_while(|name| self.names.contains(name));
        let name = names.next().expect("there are more names than tensors");
        self.names.insert(name.clone());
        name
    }
}

/// A trace without its kernels.
fn bare(trace: &Trace) -> Trace {
    Trace {
        name: trace.name.clone(),
        tensors: trace.tensors.clone(),
        kernels: Vec::new(),
        layers: trace.layers.clone(),
    }
}
