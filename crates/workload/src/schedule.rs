//! From a graph to a trace: the order of the kernels, the memory that values share, the bytes that kernels touch.
//!
//! A graph's nodes already stand in an order that runs. The schedule may move updates forward, then decides in one
//! pass which results are written over an operand (`storage.rs`), and writes the [`Trace`] that everything else in
//! Tiercel works on. Kernel *i* of the trace is node *i* of the program's graph.

use tiercel_core::{Bytes, Step};

use crate::graph::{Graph, Node, ValueId, cost};
use crate::rewriting::Rewriting;
use crate::storage;
use crate::trace::{Kernel, Phase, Role, Tensor, TensorId, Trace, Use};

/// When weights are updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Updates {
    /// After the whole backward pass, as the frameworks do: all gradients live until then.
    #[default]
    AtEnd,
    /// As soon as a weight's gradient is complete and nothing reads the old weight any more.
    WhenReady,
}

/// Choices that a schedule leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// Whether element-wise kernels write over an operand that nobody needs afterwards. Frameworks do (ReLU in
    /// place, residual add in place), so the default is yes. Updates are always in place.
    pub in_place: bool,
    /// When weights are updated.
    pub updates: Updates,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions { in_place: true, updates: Updates::AtEnd }
    }
}

/// A graph with its schedule: what runs, and where each value's bytes are.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The kernels with their attributes; node *i* is kernel *i* of the trace.
    pub graph: Graph,
    /// The same kernels as the executor, the policies and the planners see them.
    pub trace: Trace,
    /// The tensor of the trace that holds each value's bytes; `None` for values that no kernel touches.
    storage: Vec<Option<TensorId>>,
    pub(crate) options: ScheduleOptions,
    pub(crate) rewriting: Rewriting,
}

impl Program {
    /// Schedules a graph.
    pub fn new(mut graph: Graph, options: ScheduleOptions) -> Program {
        if options.updates == Updates::WhenReady {
            graph.nodes = updates_when_ready(&graph);
        }
        let owners = storage::share(&graph, options.in_place);
        write(graph, &owners, options)
    }

    /// Gives every kernel the scratch memory that `need` says, as a tensor that this kernel alone writes, and calls
    /// its name after the kernel's. Whoever runs the arithmetic knows how much that is; a kernel that needs none gets
    /// none, and one that has some keeps it and gets no more than it lacks.
    pub fn with_workspace(mut self, need: impl Fn(&Graph, &Node) -> Bytes) -> Program {
        for (node, kernel) in self.graph.nodes.iter().zip(&mut self.trace.kernels) {
            let bytes = need(&self.graph, node);
            let tensors = &mut self.trace.tensors;
            let is_scratch = |u: &&mut Use| tensors[u.tensor.0 as usize].role == Role::Workspace;
            if let Some(scratch) = kernel.writes.iter_mut().find(is_scratch) {
                let tensor = &mut self.trace.tensors[scratch.tensor.0 as usize];
                tensor.bytes = tensor.bytes.max(bytes);
                scratch.bytes = tensor.bytes;
            } else if bytes > Bytes::ZERO {
                let tensor = TensorId(self.trace.tensors.len() as u32);
                let name = format!("{}.workspace", node.name);
                self.trace.tensors.push(Tensor { name, bytes, role: Role::Workspace, persistent: false });
                kernel.writes.push(Use { tensor, bytes });
            }
        }
        self
    }

    /// The node that runs at this step.
    pub fn node(&self, step: Step) -> &Node {
        &self.graph.nodes[step.0 as usize]
    }

    /// The tensor of the trace that holds the bytes of `value`; `None` where no kernel touches it.
    pub fn tensor(&self, value: ValueId) -> Option<TensorId> {
        self.storage[value.index()]
    }
}

/// The nodes with every update moved to right behind the last kernel that touches one of its operands.
fn updates_when_ready(graph: &Graph) -> Vec<Node> {
    let mut last = vec![0u32; graph.values.len()];
    let mut keys = Vec::with_capacity(graph.nodes.len());
    for (at, node) in graph.nodes.iter().enumerate() {
        let touched = || node.inputs.iter().chain(&node.outputs).map(|v| graph.root(*v).index());
        // An update sorts behind the kernel at its key, and before the next one; the sort is stable.
        let key = match node.phase {
            Phase::Update => touched().map(|v| last[v]).max().unwrap_or(at as u32),
            _ => at as u32,
        };
        keys.push((key, node.phase == Phase::Update));
        touched().for_each(|v| last[v] = key);
    }
    let mut order: Vec<usize> = (0..graph.nodes.len()).collect();
    order.sort_by_key(|at| keys[*at]);
    order.into_iter().map(|at| graph.nodes[at].clone()).collect()
}

/// Writes the trace of a graph whose values live with these owners.
fn write(graph: Graph, owners: &[ValueId], options: ScheduleOptions) -> Program {
    let mut trace = Trace { name: graph.name.clone(), layers: graph.layers.clone(), ..Trace::default() };
    trace.kernels.reserve(graph.nodes.len());
    let mut storage: Vec<Option<TensorId>> = vec![None; graph.values.len()];
    for node in &graph.nodes {
        // A result that is a stretch of a tensor leaves the rest of it as it is.
        let made = |owner: ValueId| storage[owner.index()].is_some();
        let kept = |v: &ValueId| graph.value(*v).view_of.is_some() && made(owners[v.index()]);
        let kept: Vec<ValueId> = node.outputs.iter().copied().filter(kept).collect();
        let mut place = |value: ValueId| {
            let owner = owners[value.index()];
            let tensor = *storage[owner.index()].get_or_insert_with(|| {
                let value = graph.value(owner);
                trace.tensors.push(Tensor {
                    name: value.name.clone(),
                    bytes: value.shape.bytes(value.dtype),
                    role: value.role,
                    persistent: value.persistent,
                });
                TensorId(trace.tensors.len() as u32 - 1)
            });
            storage[value.index()] = Some(tensor);
            tensor
        };
        let mut reads = Vec::with_capacity(node.inputs.len());
        cost::reads(&graph, node).for_each(|(v, bytes)| touch(&mut reads, place(v), bytes));
        kept.into_iter().for_each(|v| touch(&mut reads, place(v), Bytes::ZERO));
        let mut writes = Vec::with_capacity(node.outputs.len());
        cost::writes(&graph, node).for_each(|(v, bytes)| touch(&mut writes, place(v), bytes));
        trace.kernels.push(Kernel {
            name: node.name.clone(),
            op: node.op.name(),
            reads,
            writes,
            flops: cost::flops(&graph, node),
            layer: node.layer,
            phase: node.phase,
            timings: Vec::new(),
            alternatives: Vec::new(),
            detached: false,
            factor: 1.0,
            repeat: None,
            derived: node.derived.clone(),
        });
    }
    Program { graph, trace, storage, options, rewriting: Rewriting::default() }
}

/// Records a use; a tensor that is two operands of one kernel is one use.
fn touch(uses: &mut Vec<Use>, tensor: TensorId, bytes: Bytes) {
    match uses.iter_mut().find(|u| u.tensor == tensor) {
        Some(known) => known.bytes = known.bytes.max(bytes),
        None => uses.push(Use { tensor, bytes }),
    }
}
