//! What to do with each node, decided before any is lowered: which are needed, where the losses go, what belongs together.
//!
//! Exporters write some layers as several small operators. Where training frameworks have one kernel, so do we: a product
//! with a bias added is a linear layer, and GELU and layer norms that were taken apart are put together again. A pattern
//! is only taken where nothing outside of it reads what is inside; anything else is lowered operator by operator.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use super::model::{Model, Node};

/// What to do at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step<'a> {
    /// Lower the node by its rule.
    Node,
    /// Nothing: no loss needs it, or it belongs to a later step.
    Skip,
    /// A linear layer whose bias this node adds.
    Linear { x: &'a str, weight: &'a str, bias: &'a str },
    /// A GELU that this node completes.
    Gelu { x: &'a str },
    /// A layer norm over the last axis that this node completes.
    LayerNorm { x: &'a str, gamma: &'a str, beta: &'a str, epsilon: f32 },
}

/// Where a loss is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct End<'a> {
    /// The name of the graph's result.
    pub output: &'a str,
    /// The tensor that the loss reads.
    pub source: &'a str,
    /// What stood between the two.
    pub kind: EndKind,
}

/// What a graph does to its result last, which tells how it was trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndKind {
    /// Softmax or its logarithm, at this node; the cross-entropy contains it.
    Softmax(usize),
    /// A sigmoid; the binary cross-entropy contains it.
    Sigmoid,
    /// A product with a weight.
    Linear,
    /// Anything else.
    Other,
}

/// The plan of a file.
pub(super) struct Plan<'a> {
    /// What to do at each node.
    pub steps: Vec<Step<'a>>,
    /// Where the losses are taken.
    pub ends: Vec<End<'a>>,
    /// How many needed nodes and losses read a tensor.
    pub uses: HashMap<&'a str, usize>,
    /// Tensors with data in the file that are compared with something, and so are masks and no weights.
    pub masks: HashSet<&'a str>,
}

/// Operators that only rename or reshape.
const VIEWS: [&str; 6] = ["Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Cast"];

/// Operators that make truths of numbers, or read truths.
const TRUTHS: [&str; 8] = ["And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or"];

/// Operators that only move elements of their first operand.
const MOVES: [&str; 5] = ["Slice", "Gather", "Expand", "Transpose", "Trilu"];

/// Plans a file.
pub(super) fn plan<'a>(model: &Model<'a>) -> Plan<'a> {
    let mut graph = Links::new(model);
    let ends = graph.ends();
    let needed = graph.needed(&ends);
    graph.limit(&needed);
    let mut steps: Vec<Step<'a>> =
        needed.iter().map(|needed| if *needed { Step::Node } else { Step::Skip }).collect();
    for (at, node) in model.nodes.iter().enumerate() {
        if steps[at] != Step::Node {
            continue;
        }
        let found = match node.op {
            "Add" => graph.linear(at),
            "Erf" => graph.gelu(at),
            "Div" => graph.layer_norm(at),
            _ => None,
        };
        // Patterns share no node, because all but the last node of one are read only inside it.
        if let Some((last, inside, step)) = found
            && graph.is_closed(&inside, last)
            && inside.iter().chain([&last]).all(|n| steps[*n] == Step::Node)
        {
            inside.iter().for_each(|n| steps[*n] = Step::Skip);
            steps[last] = step;
        }
    }
    let mut uses: HashMap<&str, usize> =
        graph.readers.iter().map(|(name, nodes)| (*name, nodes.len())).collect();
    ends.iter().for_each(|end| *uses.entry(end.source).or_default() += 1);
    Plan { steps, ends, uses, masks: graph.masks(&needed) }
}

/// Who makes and who reads every tensor.
struct Links<'m, 'a> {
    model: &'m Model<'a>,
    makers: HashMap<&'a str, usize>,
    readers: HashMap<&'a str, Vec<usize>>,
    outputs: HashSet<&'a str>,
    /// The single numbers that were looked up already.
    numbers: RefCell<HashMap<&'a str, Option<f32>>>,
}

/// The last node of a pattern, the nodes inside it, and the step at the last one.
type Found<'a> = Option<(usize, Vec<usize>, Step<'a>)>;

impl<'m, 'a> Links<'m, 'a> {
    fn new(model: &'m Model<'a>) -> Links<'m, 'a> {
        let mut links = Links {
            model,
            makers: HashMap::new(),
            readers: HashMap::new(),
            outputs: HashSet::new(),
            numbers: RefCell::default(),
        };
        links.outputs.extend(&model.outputs);
        for (at, node) in model.nodes.iter().enumerate() {
            for name in node.outputs.iter().filter(|n| !n.is_empty()) {
                links.makers.insert(name, at);
            }
        }
        links.limit(&vec![true; model.nodes.len()]);
        links
    }

    /// Counts only these nodes as readers.
    fn limit(&mut self, nodes: &[bool]) {
        self.readers.clear();
        for (at, node) in self.model.nodes.iter().enumerate().filter(|(at, _)| nodes[*at]) {
            for name in node.inputs.iter().filter(|n| !n.is_empty()) {
                let readers = self.readers.entry(name).or_default();
                if readers.last() != Some(&at) {
                    readers.push(at);
                }
            }
        }
    }

    fn node(&self, at: usize) -> &'m Node<'a> {
        &self.model.nodes[at]
    }

    /// The node that makes a tensor, if it is this operator.
    fn made_by(&self, name: &str, op: &str) -> Option<&'m Node<'a>> {
        self.makers.get(name).map(|at| self.node(*at)).filter(|node| node.op == op)
    }

    /// The only node that reads a tensor.
    fn only_reader(&self, name: &str) -> Option<&'m Node<'a>> {
        match self.readers.get(name).map(Vec::as_slice) {
            Some([at]) => Some(self.node(*at)),
            _ => None,
        }
    }

    /// The results on which losses are taken: those that the graph does not read again itself.
    fn ends(&self) -> Vec<End<'a>> {
        let last = |name: &&&str| !self.readers.contains_key(**name);
        let outputs = self.model.outputs.iter();
        let mut ends: Vec<End<'a>> = outputs.filter(last).map(|name| self.end(name)).collect();
        if ends.is_empty() {
            let first = self.model.outputs.first();
            ends.extend(first.map(|name| End { output: name, source: name, kind: EndKind::Other }));
        }
        ends
    }

    fn end(&self, output: &'a str) -> End<'a> {
        let mut name = output;
        // A file whose nodes form a circle must not keep us here.
        for _ in 0..16 {
            let Some(maker) = self.makers.get(name).map(|at| self.node(*at)) else { break };
            let kind = match maker.op {
                "Softmax" | "LogSoftmax" => EndKind::Softmax(maker.at),
                "Sigmoid" => EndKind::Sigmoid,
                "MatMul" | "Gemm" if name == output => {
                    return End { output, source: output, kind: EndKind::Linear };
                }
                "Add"
                    if name == output && maker.inputs.iter().any(|i| self.made_by(i, "MatMul").is_some()) =>
                {
                    return End { output, source: output, kind: EndKind::Linear };
                }
                op if VIEWS.contains(&op) => {
                    name = maker.input(0);
                    continue;
                }
                _ => break,
            };
            return End { output, source: maker.input(0), kind };
        }
        End { output, source: output, kind: EndKind::Other }
    }

    /// Which nodes lead to a loss.
    fn needed(&self, ends: &[End<'a>]) -> Vec<bool> {
        let mut needed = vec![false; self.model.nodes.len()];
        let mut names: Vec<&str> = ends.iter().map(|end| end.source).collect();
        while let Some(name) = names.pop() {
            if let Some(at) = self.makers.get(name)
                && !std::mem::replace(&mut needed[*at], true)
            {
                names.extend(&self.node(*at).inputs);
            }
        }
        needed
    }

    /// The initializers that reach a comparison without any arithmetic.
    fn masks(&self, needed: &[bool]) -> HashSet<&'a str> {
        let mut names: Vec<&str> = Vec::new();
        for (node, _) in self.model.nodes.iter().zip(needed).filter(|(_, needed)| **needed) {
            match node.op {
                "Where" => names.push(node.input(0)),
                op if TRUTHS.contains(&op) => names.extend(&node.inputs),
                _ => {}
            }
        }
        let (mut seen, mut masks) = (HashSet::new(), HashSet::new());
        while let Some(name) = names.pop() {
            if !seen.insert(name) {
                continue;
            }
            if self.model.initializers.contains_key(name) {
                masks.insert(name);
            } else if let Some(maker) = self.makers.get(name).map(|at| self.node(*at))
                && (VIEWS.contains(&maker.op) || MOVES.contains(&maker.op))
            {
                names.push(maker.input(0));
            }
        }
        masks
    }

    /// Whether only the pattern reads what is made inside it.
    fn is_closed(&self, inside: &[usize], last: usize) -> bool {
        inside.iter().flat_map(|at| &self.node(*at).outputs).all(|name| {
            !self.outputs.contains(name)
                && self
                    .readers
                    .get(name)
                    .is_none_or(|r| r.iter().all(|at| *at == last || inside.contains(at)))
        })
    }

    /// A single known number.
    fn number(&self, name: &'a str) -> Option<f32> {
        if let Some(known) = self.numbers.borrow().get(name) {
            return *known;
        }
        let found = self.read_number(name);
        self.numbers.borrow_mut().insert(name, found);
        found
    }

    fn read_number(&self, name: &str) -> Option<f32> {
        let tensor = match self.model.initializers.get(name) {
            Some(tensor) => Some(*tensor),
            None => self.made_by(name, "Constant")?.tensor("value").ok()?,
        };
        tensor?.constant().ok()?.scalar()
    }

    /// Whether a tensor is this number, about.
    fn is(&self, name: &'a str, number: f32) -> bool {
        self.number(name).is_some_and(|n| (n - number).abs() <= 1e-3 * number.abs())
    }

    /// The other operand of a node with two.
    fn other(&self, node: &Node<'a>, name: &str) -> Option<&'a str> {
        match node.inputs[..] {
            [a, b] if a == name => Some(b),
            [a, b] if b == name => Some(a),
            _ => None,
        }
    }

    /// The extents of an initializer.
    fn extents(&self, name: &str) -> Option<Vec<u64>> {
        Some(self.model.initializers.get(name)?.shape?.dims().to_vec())
    }

    fn linear(&self, at: usize) -> Found<'a> {
        let node = self.node(at);
        let product = node.inputs.iter().find_map(|name| self.made_by(name, "MatMul"))?;
        let bias = self.other(node, product.output(0))?;
        let weight = product.input(1);
        match (&self.extents(weight)?[..], &self.extents(bias)?[..]) {
            ([_, out], [features]) if out == features && *out > 1 => {
                Some((at, vec![product.at], Step::Linear { x: product.input(0), weight, bias }))
            }
            _ => None,
        }
    }

    /// x · (1 + erf(x / √2)) · ½, the factors in any order.
    fn gelu(&self, at: usize) -> Found<'a> {
        let erf = self.node(at);
        let scaled = self.makers.get(erf.input(0)).map(|at| self.node(*at))?;
        let x = match scaled.op {
            "Div" if self.is(scaled.input(1), std::f32::consts::SQRT_2) => scaled.input(0),
            "Mul" => scaled
                .inputs
                .iter()
                .find(|n| self.is(n, std::f32::consts::FRAC_1_SQRT_2))
                .and_then(|factor| self.other(scaled, factor))?,
            _ => return None,
        };
        let mut last = self.only_reader(erf.output(0)).filter(|n| n.op == "Add")?;
        let one = self.other(last, erf.output(0))?;
        if !self.is(one, 1.0) {
            return None;
        }
        let mut inside = vec![scaled.at, erf.at];
        let (mut by_x, mut by_half) = (false, false);
        while !(by_x && by_half) {
            let name = last.output(0);
            inside.push(last.at);
            last = self.only_reader(name).filter(|n| n.op == "Mul" && n.at != last.at)?;
            let factor = self.other(last, name)?;
            let half_x = |n: &Node<'a>| n.inputs.contains(&x) && n.inputs.iter().any(|i| self.is(i, 0.5));
            if factor == x && !by_x {
                by_x = true;
            } else if self.is(factor, 0.5) && !by_half {
                by_half = true;
            } else if let Some(half) = self.made_by(factor, "Mul").filter(|n| half_x(n) && !by_x && !by_half)
            {
                (by_x, by_half) = (true, true);
                inside.push(half.at);
            } else {
                return None;
            }
        }
        Some((last.at, inside, Step::Gelu { x }))
    }

    /// (x − mean) / √(mean of squares + ε) · γ + β over the last axis.
    fn layer_norm(&self, at: usize) -> Found<'a> {
        let quotient = self.node(at);
        let numerator = self.made_by(quotient.input(0), "Sub")?;
        let x = numerator.input(0);
        let mean = self.mean(numerator.input(1)).filter(|mean| mean.input(0) == x)?;
        let root = self.made_by(quotient.input(1), "Sqrt")?;
        let shifted = self.made_by(root.input(0), "Add")?;
        let variance = shifted.inputs.iter().find_map(|name| self.mean(name))?;
        let epsilon = self.number(self.other(shifted, variance.output(0))?)?;
        let squares = self.makers.get(variance.input(0)).map(|at| self.node(*at))?;
        let squared = match squares.op {
            "Pow" if self.is(squares.input(1), 2.0) => squares.input(0),
            "Mul" if squares.input(0) == squares.input(1) => squares.input(0),
            _ => return None,
        };
        let mut inside =
            vec![numerator.at, mean.at, root.at, shifted.at, variance.at, squares.at, quotient.at];
        if squared != numerator.output(0) {
            let again = self.made_by(squared, "Sub").filter(|sub| sub.input(0) == x)?;
            let mean = self.mean(again.input(1)).filter(|mean| mean.input(0) == x)?;
            inside.extend([again.at, mean.at]);
        }
        let scale = self.only_reader(quotient.output(0)).filter(|n| n.op == "Mul")?;
        let gamma = self.other(scale, quotient.output(0))?;
        let shift = self.only_reader(scale.output(0)).filter(|n| n.op == "Add")?;
        let beta = self.other(shift, scale.output(0))?;
        inside.push(scale.at);
        let fits = self.extents(gamma)?.len() == 1 && self.extents(gamma) == self.extents(beta);
        fits.then_some((shift.at, inside, Step::LayerNorm { x, gamma, beta, epsilon }))
    }

    /// The node that makes a tensor, if it is a mean over the last axis.
    fn mean(&self, name: &str) -> Option<&'m Node<'a>> {
        let node = self.made_by(name, "ReduceMean")?;
        let axes = match node.ints("axes").ok()? {
            Some(axes) => axes,
            None => self.model.initializers.get(node.input(1))?.constant().ok()?.as_ints()?.to_vec(),
        };
        (axes == [-1] && node.int("keepdims", 1) == Ok(1)).then_some(node)
    }
}
