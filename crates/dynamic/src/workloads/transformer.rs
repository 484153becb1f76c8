//! Transformers: BERT over segments of a variable and of a fixed number, a mixture of experts, and one that skips layers.

use super::parts::{apply, attention, combine, linear, loss, norm};
use super::{Cause, Family, Scale, Way, Workload, as_table_6_1, falling};
use crate::structure::Path;
use crate::tape::{Form, Keeps, Parameter, Tape, Taped, Value};

/// The layers of BERT here, and the segments that a text has at most.
const LAYERS: u64 = 8;
const SEGMENTS: usize = 4;
/// Words of a segment, and heads of attention.
const WORDS: u64 = 128;
const HEADS: u64 = 16;
/// Layers with experts, experts in each, and sets of them that a batch may need.
const MIXED: usize = 6;
const EXPERTS: usize = 8;
const SETS: u16 = 4;
/// Layers of the network that skips some.
const SKIPPED: usize = 12;

/// BERT with texts of different length: each segment of 128 words goes through all layers, and pairs of texts have one more
/// classifier.
pub(super) const VAR_BERT: Workload = Workload {
    name: "var-bert",
    family: Family::Transformer,
    cause: Cause::Both,
    rows: 16 * WORDS,
    varies: false,
    paper: true,
    build: |path, rows, scale| bert("var-bert", LAYERS, path, rows, scale),
    ways: bert_ways,
};

/// The same with all texts filled up.
pub(super) const FIXED_BERT: Workload = Workload {
    name: "fixed-bert",
    cause: Cause::None,
    build: |path, rows, scale| bert("fixed-bert", LAYERS, path, rows, scale),
    ways: || vec![Way { path: [vec![1; SEGMENTS], vec![1]].concat(), share: 1.0 }],
    ..VAR_BERT
};

/// A mixture of experts: in each layer the words of a batch need one set of experts.
pub(super) const MOE: Workload = Workload {
    name: "moe",
    family: Family::Transformer,
    cause: Cause::Words,
    rows: 16 * WORDS,
    varies: false,
    paper: false,
    build: moe,
    ways: || {
        let mut random = fastrand::Rng::with_seed(64);
        falling((0..12).map(|_| (0..MIXED).map(|_| random.u16(0..SETS)).collect()).collect())
    },
};

/// A transformer whose layers are skipped, each on its own (LayerSkip, SkipNet).
pub(super) const LAYER_SKIP: Workload = Workload {
    name: "layer-skip",
    family: Family::Transformer,
    cause: Cause::Words,
    rows: 16 * WORDS,
    varies: true,
    paper: false,
    build: layer_skip,
    ways: || as_table_6_1(SKIPPED, 66),
};

fn bert_ways() -> Vec<Way> {
    let share = [0.30, 0.32, 0.23, 0.15];
    let path = |segments: usize, pair: u16| -> Path {
        let mut path = vec![1; segments];
        path.extend((segments < SEGMENTS).then_some(0));
        path.push(pair);
        path
    };
    (1..=SEGMENTS)
        .flat_map(|n| [(n, 0, 0.6), (n, 1, 0.4)])
        .map(|(n, pair, part)| Way { path: path(n, pair), share: share[n - 1] * part })
        .collect()
}

/// The parameters of one layer.
struct Layer {
    qkv: [Parameter; 3],
    mixed: Parameter,
    wide: Parameter,
    narrow: Parameter,
}

fn attends(tape: &mut Tape, name: &str, width: u64) -> ([Parameter; 3], Parameter) {
    let qkv = ["q", "k", "v"].map(|part| tape.parameter(&format!("{name}.{part}"), [width, width, 1]));
    (qkv, tape.parameter(&format!("{name}.mixed"), [width, width, 1]))
}

impl Layer {
    fn new(tape: &mut Tape, name: &str, width: u64) -> Layer {
        let (qkv, mixed) = attends(tape, name, width);
        Layer {
            qkv,
            mixed,
            wide: tape.parameter(&format!("{name}.wide"), [width, 4 * width, 1]),
            narrow: tape.parameter(&format!("{name}.narrow"), [4 * width, width, 1]),
        }
    }

    fn run(&self, tape: &mut Tape, x: Value, width: u64, words: u64) -> Value {
        let x = attended(tape, x, (&self.qkv, self.mixed), width, words);
        let y = fed_forward(tape, x, self.wide, self.narrow, width);
        let y = combine(tape, "add", x, y);
        norm(tape, "native_layer_norm", y)
    }
}

fn attended(
    tape: &mut Tape,
    x: Value,
    (qkv, mixed): (&[Parameter; 3], Parameter),
    width: u64,
    words: u64,
) -> Value {
    let parts = qkv.map(|weight| linear(tape, x, weight, width));
    let y = attention(tape, parts, words, HEADS);
    let y = linear(tape, y, mixed, width);
    let y = combine(tape, "add", x, y);
    norm(tape, "native_layer_norm", y)
}

fn fed_forward(tape: &mut Tape, x: Value, wide: Parameter, narrow: Parameter, width: u64) -> Value {
    let y = linear(tape, x, wide, 4 * width);
    let y = apply(tape, "gelu", y);
    linear(tape, y, narrow, width)
}

/// BERT with so many layers.
pub(super) fn bert(name: &str, layers: u64, path: &[u16], rows: u64, scale: Scale) -> Taped {
    let (width, words) = (scale.of(1024, 32), scale.of(WORDS, 16));
    let layers = if scale == Scale::Full { layers } else { layers.min(2) };
    let mut tape = Tape::new(name);
    let embedding = tape.parameter("embedding", [30522 * width / 1024, width, 1]);
    let all: Vec<Layer> = (0..layers).map(|at| Layer::new(&mut tape, &format!("layer{at}"), width)).collect();
    let head = tape.parameter("head", [width, width, 1]);
    let pairs = tape.parameter("pairs", [width, width, 1]);
    let (pair, rest) = path.split_last().expect("a path ends with the last branch");
    let mut last = None;
    for (segment, arm) in rest.iter().enumerate() {
        tape.branch(segment as u32, *arm);
        if *arm == 0 {
            break;
        }
        let text = tape.input(&format!("text{segment}"), [rows, 1, 1]);
        tape.layer(&format!("embedding{segment}"));
        let mut x = embedded(&mut tape, text, embedding, width);
        for (at, layer) in all.iter().enumerate() {
            tape.layer(&format!("layer{at}.{segment}"));
            x = layer.run(&mut tape, x, width, words);
        }
        let joined = last.map(|before| combine(&mut tape, "add", before, x));
        last = Some(joined.unwrap_or(x));
    }
    (0..rest.len()).for_each(|_| tape.join());
    let mut x = last.expect("there is a segment");
    tape.branch(SEGMENTS as u32, *pair);
    if *pair == 1 {
        tape.layer("pairs");
        x = linear(&mut tape, x, pairs, width);
        x = apply(&mut tape, "tanh", x);
    }
    tape.join();
    tape.layer("head");
    let x = linear(&mut tape, x, head, width);
    loss(&mut tape, x);
    tape.finish()
}

fn embedded(tape: &mut Tape, text: Value, table: Parameter, width: u64) -> Value {
    let rows = text.dims[0];
    let form = Form {
        aten: "embedding",
        kernel: "embedding",
        parameter: Some(table),
        out: [rows, width, 1],
        flops: 0,
        keeps: Keeps::Inputs,
    };
    tape.run(&[text], form)
}

fn moe(path: &[u16], rows: u64, scale: Scale) -> Taped {
    let (width, words) = (scale.of(1024, 32), scale.of(WORDS, 16));
    let mut tape = Tape::new("moe");
    let mut layers = Vec::new();
    for layer in 0..MIXED {
        let attends = attends(&mut tape, &format!("layer{layer}"), width);
        let router = tape.parameter(&format!("layer{layer}.router"), [width, EXPERTS as u64, 1]);
        let experts: Vec<[Parameter; 2]> = (0..EXPERTS)
            .map(|at| {
                let name = format!("layer{layer}.expert{at}");
                [[width, 4 * width, 1], [4 * width, width, 1]].map(|dims| tape.parameter(&name, dims))
            })
            .collect();
        layers.push((attends, router, experts));
    }
    let head = tape.parameter("head", [width, width, 1]);
    let mut x = tape.input("words", [rows, width, 1]);
    for (layer, ((qkv, mixed), router, experts)) in layers.iter().enumerate() {
        tape.layer(&format!("layer{layer}"));
        x = attended(&mut tape, x, (qkv, *mixed), width, words);
        let scores = linear(&mut tape, x, *router, EXPERTS as u64);
        apply(&mut tape, "softmax", scores);
        let set = path[layer];
        tape.branch(layer as u32, set);
        for at in 0..2 {
            let expert = &experts[(usize::from(set) * 2 + at) % EXPERTS];
            tape.layer(&format!("layer{layer}.expert{at}"));
            let y = fed_forward(&mut tape, x, expert[0], expert[1], width);
            x = combine(&mut tape, "add", x, y);
        }
        tape.join();
    }
    tape.layer("head");
    let x = linear(&mut tape, x, head, width);
    loss(&mut tape, x);
    tape.finish()
}

fn layer_skip(path: &[u16], rows: u64, scale: Scale) -> Taped {
    let (width, words) = (scale.of(1024, 32), scale.of(WORDS, 16));
    let mut tape = Tape::new("layer-skip");
    let all: Vec<Layer> =
        (0..SKIPPED).map(|at| Layer::new(&mut tape, &format!("layer{at}"), width)).collect();
    let head = tape.parameter("head", [width, width, 1]);
    let text = tape.input("words", [rows, width, 1]);
    tape.layer("first");
    let mut x = norm(&mut tape, "native_layer_norm", text);
    for (at, arm) in path.iter().enumerate() {
        tape.branch(at as u32, *arm);
        if *arm == 1 {
            tape.layer(&format!("layer{at}"));
            x = all[at].run(&mut tape, x, width, words);
        }
        tape.join();
    }
    tape.layer("head");
    let x = linear(&mut tape, x, head, width);
    loss(&mut tape, x);
    tape.finish()
}
