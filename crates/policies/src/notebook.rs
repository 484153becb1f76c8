//! What a policy has seen of the program: one iteration written down as a trace, and recognised when it comes again.
//!
//! Systems that profile one training step (ReDL section III-B, Sentinel section III-A) keep this notebook. While an
//! iteration is new, every kernel is written down with its operands, its layer and the time that it took; afterwards
//! there is a [`Trace`] of it, and what `tiercel-workload` knows of lifetimes and intervals applies. Objects come and
//! go with every iteration, so tensors are told apart by their names. A few different iterations are remembered
//! (training and evaluation take turns); one that is like none of them is written down the next time it comes.

use std::collections::HashMap;

use tiercel_core::{Bytes, Manager, Nanos, ObjectId, Operand, Step};
use tiercel_workload::lifetimes::visits;
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Kernel, Lifetimes, Tensor, TensorId, Trace, Use};

use crate::quick::QuickMap;

/// How many different iterations are remembered.
const REMEMBERED: usize = 4;

/// How many names are remembered before a fresh start is made: programs whose objects have no names never repeat any.
const NAMES: usize = 1 << 20;

/// One iteration as it was seen.
#[derive(Clone, Debug)]
pub struct SeenIteration {
    /// Its number; no other iteration ever has the same.
    pub id: u32,
    /// Kernels and tensors. Tensors that other iterations have are listed too, and no kernel uses them.
    pub trace: Trace,
    /// When tensors are alive.
    pub lifetimes: Lifetimes,
    /// The visit of a layer that each kernel belongs to.
    pub visits: Vec<u32>,
    /// How long each kernel took while this was written, without waiting for copies.
    pub times: Vec<Nanos>,
    /// For each kernel, what sums up all kernels up to it.
    prefixes: Vec<u64>,
}

impl SeenIteration {
    /// How many visits of layers there are.
    pub fn layers(&self) -> u32 {
        self.visits.last().map_or(0, |last| last + 1)
    }
}

/// What the iteration that has just ended was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A known one, from beginning to end.
    Known(u32),
    /// A new one, known from now on.
    Learned(u32),
    /// Something else.
    Unknown,
}

/// An iteration that is being written down.
#[derive(Clone, Debug, Default)]
struct Draft {
    kernels: Vec<Kernel>,
    times: Vec<Nanos>,
    prefixes: Vec<u64>,
    /// Tensors that came from outside before the first kernel.
    given: Vec<TensorId>,
    /// Tensors that were retired.
    retired: Vec<TensorId>,
}

/// Writes iterations down and recognises them.
#[derive(Clone, Debug)]
pub struct Notebook {
    names: HashMap<String, TensorId>,
    tensors: Vec<(String, Bytes)>,
    /// The tensor that each living object stands for, and the last object of each tensor.
    objects: QuickMap<ObjectId, TensorId>,
    living: Vec<Option<ObjectId>>,
    known: Vec<SeenIteration>,
    ids: u32,
    /// The known iteration that this one is like, so far.
    follows: Option<usize>,
    draft: Option<Draft>,
    /// Kernels begun in this iteration, and what sums them up.
    kernels: usize,
    prefix: u64,
    /// When the kernel that runs began, and how long kernels had waited until then.
    began: (Nanos, Nanos),
    op: String,
    /// Layers that have ended in this iteration.
    visit: u32,
}

impl Default for Notebook {
    fn default() -> Notebook {
        Notebook {
            names: HashMap::new(),
            tensors: Vec::new(),
            objects: QuickMap::default(),
            living: Vec::new(),
            known: Vec::new(),
            ids: 0,
            follows: None,
            draft: Some(Draft::default()),
            kernels: 0,
            prefix: 0,
            began: (Nanos::ZERO, Nanos::ZERO),
            op: String::new(),
            visit: 0,
        }
    }
}

impl Notebook {
    /// The known iteration that this one is like so far.
    pub fn page(&self) -> Option<&SeenIteration> {
        self.follows.map(|at| &self.known[at])
    }

    /// The known iteration of this number.
    pub fn known(&self, id: u32) -> Option<&SeenIteration> {
        self.known.iter().find(|known| known.id == id)
    }

    /// The step that comes next, or that runs, counted from the start of the iteration.
    pub fn step(&self) -> Step {
        Step(self.kernels as u32)
    }

    /// The tensor that an object stands for.
    pub fn tensor(&self, object: ObjectId) -> Option<TensorId> {
        self.objects.get(&object).copied()
    }

    /// The object that stands for a tensor now.
    pub fn object(&self, tensor: TensorId) -> Option<ObjectId> {
        self.living.get(tensor.0 as usize).copied().flatten()
    }

    /// A kernel of this type comes next.
    pub fn coming(&mut self, op: &str) {
        self.op.clear();
        self.op.push_str(op);
    }

    /// A layer has ended.
    pub fn layer_ended(&mut self) {
        self.visit += 1;
    }

    /// A new object is to be placed; returns the tensor that it stands for, if one of its name was seen before.
    pub fn placed(&mut self, m: &Manager, object: ObjectId) -> Option<TensorId> {
        let name = m.what(object);
        let known = self.names.get(&name).copied();
        if let Some(tensor) = known.or_else(|| self.name(m, object, name)) {
            self.objects.insert(object, tensor);
            self.living.resize(self.tensors.len(), None);
            self.living[tensor.0 as usize] = Some(object);
        }
        known
    }

    /// Gives a tensor of a new name its number, while an iteration is written down.
    fn name(&mut self, m: &Manager, object: ObjectId, name: String) -> Option<TensorId> {
        self.draft.as_ref()?;
        if self.tensors.len() >= NAMES {
            *self = Notebook { ids: self.ids, draft: None, ..Notebook::default() };
            return None;
        }
        let tensor = TensorId(self.tensors.len() as u32);
        self.tensors.push((name.clone(), m.size(object).unwrap_or_default()));
        self.names.insert(name, tensor);
        Some(tensor)
    }

    /// A kernel is about to run. Call [`Notebook::after`] when it has ended.
    pub fn before(&mut self, m: &Manager, step: Step, operands: &[Operand]) {
        if step == Step::LOAD {
            let given = operands.iter().filter_map(|operand| self.objects.get(&operand.object));
            if let Some(draft) = self.draft.as_mut().filter(|draft| draft.kernels.is_empty()) {
                draft.given.extend(given);
            }
            return;
        }
        self.prefix = mix(self.prefix, u64::from(self.visit));
        let mut unknown = false;
        for operand in operands {
            let tensor = self.objects.get(&operand.object);
            unknown |= tensor.is_none();
            let tensor = tensor.map_or(u64::MAX, |tensor| u64::from(tensor.0));
            self.prefix = mix(self.prefix, tensor << 2 | operand.access as u64);
        }
        if unknown {
            self.draft = None;
        }
        self.recognise();
        self.began = (m.now(), m.totals().stall);
        let kernel = self.draft.is_some().then(|| self.kernel(operands));
        if let Some((draft, kernel)) = self.draft.as_mut().zip(kernel) {
            draft.kernels.push(kernel);
            draft.prefixes.push(self.prefix);
        }
    }

    /// Finds the known iteration that this one is like up to this kernel.
    fn recognise(&mut self) {
        let like = |known: &SeenIteration| known.prefixes.get(self.kernels) == Some(&self.prefix);
        let followed = if self.kernels == 0 { Some(self.known.len().wrapping_sub(1)) } else { self.follows };
        let followed = followed.filter(|at| self.known.get(*at).is_some_and(like));
        self.follows = followed.or_else(|| self.known.iter().rposition(like));
    }

    fn kernel(&self, operands: &[Operand]) -> Kernel {
        let uses = |wanted: &dyn Fn(&&Operand) -> bool| {
            let operands = operands.iter().filter(wanted);
            operands.map(|o| Use { tensor: self.objects[&o.object], bytes: o.bytes }).collect()
        };
        Kernel {
            name: format!("{} at {}", self.op, self.kernels),
            op: self.op.clone(),
            reads: uses(&|operand| operand.access.reads()),
            writes: uses(&|operand| operand.access.writes()),
            flops: 0,
            layer: self.visit,
            phase: Phase::Forward,
            timings: Vec::new(),
            alternatives: Vec::new(),
            detached: false,
            factor: 1.0,
            repeat: None,
            derived: Default::default(),
        }
    }

    /// A kernel has ended.
    pub fn after(&mut self, m: &Manager, step: Step) {
        if step == Step::LOAD {
            return;
        }
        self.kernels += 1;
        if let Some(draft) = &mut self.draft {
            let (began, waited) = self.began;
            let waited = m.totals().stall.saturating_sub(waited);
            draft.times.push(m.now().saturating_sub(began).saturating_sub(waited));
        }
    }

    /// An object is gone.
    pub fn retired(&mut self, object: ObjectId) {
        let Some(tensor) = self.objects.remove(&object) else { return };
        self.living[tensor.0 as usize].take_if(|living| *living == object);
        if let Some(draft) = &mut self.draft {
            draft.retired.push(tensor);
        }
    }

    /// An iteration has ended.
    pub fn ended(&mut self) -> Ended {
        let kernels = std::mem::take(&mut self.kernels);
        let visits = std::mem::take(&mut self.visit);
        let prefix = std::mem::take(&mut self.prefix);
        let is =
            |known: &SeenIteration| known.prefixes.len() == kernels && known.prefixes.last() == Some(&prefix);
        let followed = self.known.iter().rposition(is);
        let draft = self.draft.take();
        if let Some(at) = followed {
            // The one that came last is the one that is expected.
            let known = self.known.remove(at);
            let id = known.id;
            self.known.push(known);
            self.follows = Some(self.known.len() - 1);
            return Ended::Known(id);
        }
        let complete = |draft: &Draft| kernels > 0 && draft.times.len() == draft.kernels.len();
        let Some(mut draft) = draft.filter(|draft| draft.kernels.len() == kernels).filter(complete) else {
            // Begun in the middle or never seen: the next one is written down from its start.
            self.draft = Some(Draft::default());
            return Ended::Unknown;
        };
        if visits == 0 {
            // A program that knows nothing of layers: every kernel is one.
            draft.kernels.iter_mut().zip(0..).for_each(|(kernel, layer)| kernel.layer = layer);
        }
        let known = self.fair_copy(draft);
        let id = known.id;
        if self.known.len() == REMEMBERED {
            self.known.remove(0);
        }
        self.known.push(known);
        self.follows = Some(self.known.len() - 1);
        Ended::Learned(id)
    }

    /// Makes a trace of what was written down.
    fn fair_copy(&mut self, draft: Draft) -> SeenIteration {
        let tensors = self.tensors.iter().map(|(name, bytes)| Tensor {
            name: name.clone(),
            bytes: *bytes,
            role: Role::Activation,
            persistent: false,
        });
        let mut tensors: Vec<Tensor> = tensors.collect();
        for tensor in self.objects.values() {
            // What is still there outlives the iteration.
            let tensor = &mut tensors[tensor.0 as usize];
            (tensor.role, tensor.persistent) = (Role::Weight, true);
        }
        for tensor in draft.given.iter().filter(|tensor| draft.retired.contains(tensor)) {
            tensors[tensor.0 as usize].role = Role::Input;
        }
        let layers = draft.kernels.last().map_or(0, |kernel| kernel.layer + 1);
        let trace = Trace {
            name: "what was seen".to_string(),
            tensors,
            kernels: draft.kernels,
            layers: (0..layers).map(|visit| format!("visit {visit}")).collect(),
        };
        self.ids += 1;
        SeenIteration {
            id: self.ids,
            lifetimes: Lifetimes::new(&trace),
            visits: visits(&trace),
            times: draft.times,
            prefixes: draft.prefixes,
            trace,
        }
    }
}

fn mix(state: u64, value: u64) -> u64 {
    let mixed = (state ^ value).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ mixed >> 32
}
