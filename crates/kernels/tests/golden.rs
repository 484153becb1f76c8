//! Whole small networks against PyTorch: forward pass, gradients and one update.
//!
//! `golden/golden.txt` was made by `scripts/golden.py` (its first lines say how, with Debian's PyTorch 1.13). Where
//! PyTorch can be imported, the script runs again and its values are compared too.

mod harness;

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;

use harness::{Numbers, run};
use tiercel_kernels::prepare;
use tiercel_workload::autodiff::Gradient;
use tiercel_workload::graph::{
    Activation, Attention, Builder, Conv, DType, Init, Op, Optimizer, Pool, PoolKind, ValueId,
};
use tiercel_workload::{Program, schedule};

/// Numbers in -1..1 that follow from a name: the same formula stands in the script.
fn numbers(name: &str, count: usize) -> Vec<f32> {
    let key =
        name.bytes().fold(2_166_136_261u32, |key, byte| (key ^ u32::from(byte)).wrapping_mul(16_777_619));
    let one = |at: usize| {
        let x = (at as u32).wrapping_mul(2_654_435_761).wrapping_add(key);
        let x = (x ^ (x >> 15)).wrapping_mul(739_982_445);
        let x = (x ^ (x >> 12)).wrapping_mul(695_872_825);
        let x = x ^ (x >> 15);
        (f64::from(x >> 8) / f64::from(1 << 23) - 1.0) as f32
    };
    (0..count).map(one).collect()
}

/// A network in the making, with its contents.
struct Net {
    b: Builder,
    given: Numbers,
    optimizer: Optimizer,
    /// What the script calls a value, and what it is called here.
    watched: Vec<(String, ValueId)>,
}

const SGD: Optimizer = Optimizer::Sgd { rate: 0.1, momentum: 0.9, decay: 1e-3 };
const ADAMW: Optimizer = Optimizer::AdamW { rate: 0.01, betas: [0.9, 0.999], epsilon: 1e-3, decay: 0.01 };

impl Net {
    fn new(name: &str, optimizer: Optimizer) -> Net {
        Net { b: Builder::new(name, DType::F32), given: Numbers::new(), optimizer, watched: Vec::new() }
    }

    fn input<const N: usize>(&mut self, name: &str, shape: [u64; N]) -> ValueId {
        self.given.insert(name.into(), numbers(name, shape.iter().product::<u64>() as usize));
        self.b.input(name, shape)
    }

    fn give_ids(&mut self, name: &str, below: u64, count: u64) {
        let id = |n: f32| ((f64::from(n) + 1.0) / 2.0 * below as f64).floor().min(below as f64 - 1.0) as f32;
        self.given.insert(name.into(), numbers(name, count as usize).into_iter().map(id).collect());
    }

    fn ids<const N: usize>(&mut self, name: &str, below: u64, shape: [u64; N]) -> ValueId {
        self.give_ids(name, below, shape.iter().product());
        self.b.ids(name, shape, below)
    }

    /// A weight of the current layer; its full name gives its numbers.
    fn weight<const N: usize>(
        &mut self,
        layer: &str,
        name: &str,
        scale: f32,
        offset: f32,
        shape: [u64; N],
    ) -> ValueId {
        let full = format!("{layer}.{name}");
        let all = numbers(&full, shape.iter().product::<u64>() as usize);
        self.given.insert(full, all.into_iter().map(|n| n * scale + offset).collect());
        self.b.weight(name, shape, Init::Constant(0.0))
    }

    fn conv(&mut self, x: ValueId, layer: &str, out: u64, window: u64, conv: Conv) -> ValueId {
        self.b.layer(layer);
        let inputs = self.b.shape(x).dim(1);
        let shape = if conv.transposed {
            [inputs, out / conv.groups, window, window]
        } else {
            [out, inputs / conv.groups, window, window]
        };
        let w = self.weight(layer, "weight", 0.3, 0.0, shape);
        self.b.apply(Op::Conv(conv), &[x, w])
    }

    fn norm(&mut self, x: ValueId, layer: &str) -> ValueId {
        let channels = self.b.shape(x).dim(1);
        for (name, offset) in [("gamma", 1.0), ("beta", 0.0)] {
            let full = format!("{layer}.{name}");
            let all = numbers(&full, channels as usize).into_iter().map(|n| n * 0.2 + offset).collect();
            self.given.insert(full, all);
        }
        self.b.batch_norm(x)
    }

    fn conv_norm(&mut self, x: ValueId, layer: &str, out: u64, window: u64, conv: Conv) -> ValueId {
        let x = self.conv(x, layer, out, window, conv);
        self.norm(x, layer)
    }

    fn linear(&mut self, x: ValueId, layer: &str, out: u64) -> ValueId {
        self.b.layer(layer);
        let inputs = self.b.shape(x).last();
        let w = self.weight(layer, "weight", 0.3, 0.0, [out, inputs]);
        let bias = self.weight(layer, "bias", 0.1, 0.0, [out]);
        self.b.apply(Op::Linear, &[x, w, bias])
    }

    fn layer_norm(&mut self, x: ValueId, layer: &str) -> ValueId {
        self.b.layer(layer);
        let width = self.b.shape(x).last();
        let gamma = self.weight(layer, "gamma", 0.2, 1.0, [width]);
        let beta = self.weight(layer, "beta", 0.2, 0.0, [width]);
        self.b.apply(Op::LayerNorm { epsilon: 1e-5 }, &[x, gamma, beta])
    }

    fn watch(&mut self, name: &str, x: ValueId) {
        let root = self.b.graph().root(x);
        self.b.keep(root);
        self.watched.push((name.into(), root));
    }

    /// Differentiates, trains one step, and returns all values under the script's names.
    fn finish(mut self, loss: ValueId, threads: usize) -> Numbers {
        self.watch("loss", loss);
        let weights = self.b.weights();
        let gradients = self.b.backward(&[loss], &weights);
        assert_eq!(gradients.len(), weights.len(), "every weight has a gradient");
        let (dense, rows): (Vec<_>, Vec<_>) =
            gradients.into_iter().partition(|(_, gradient)| matches!(gradient, Gradient::Dense(_)));
        for (weight, gradient) in &dense {
            let name = self.b.graph().value(*weight).name.clone();
            let Gradient::Dense(gradient) = *gradient else { continue };
            self.watch(&format!("{name}.grad"), gradient);
        }
        self.b.update(&dense, self.optimizer);
        let without_decay = match self.optimizer {
            Optimizer::Sgd { rate, momentum, .. } => Optimizer::Sgd { rate, momentum, decay: 0.0 },
            other => other,
        };
        self.b.update(&rows, without_decay);
        let names: Vec<(String, String)> =
            self.watched.iter().map(|(n, v)| (n.clone(), self.b.graph().value(*v).name.clone())).collect();
        let graph = self.b.finish().unwrap_or_else(|e| panic!("{e}"));
        let program = prepare(Program::new(graph, schedule::ScheduleOptions::default()), threads);
        let found = run(&program, &Arc::new(self.given), threads, 1);
        let mut all = Numbers::new();
        for (name, ours) in names {
            all.insert(name, found[&ours].clone());
        }
        for (name, numbers) in found {
            let key = if name.contains("running") { name } else { format!("{name}.after") };
            all.entry(key).or_insert(numbers);
        }
        all
    }
}

fn pad(n: u64) -> Conv {
    Conv { padding: [n; 4], ..Conv::default() }
}

fn cnn(threads: usize) -> Numbers {
    let mut n = Net::new("cnn", SGD);
    let x = n.input("images", [4, 3, 12, 12]);
    let x = n.conv_norm(x, "conv1", 8, 3, pad(1));
    let x = n.b.relu(x);
    let x = n.b.max_pool(x, 3, 2, 1);
    let y = n.conv_norm(x, "conv2", 8, 3, pad(1));
    let y = n.b.relu(y);
    let y = n.conv_norm(y, "conv3", 8, 1, Conv::default());
    let x = n.b.add(y, x);
    let x = n.b.relu(x);
    let x = n.conv_norm(x, "conv4", 12, 3, Conv { stride: [2; 2], ..pad(1) });
    let x = n.b.relu(x);
    let kind = PoolKind::Average { count_padding: true };
    let x = n
        .b
        .apply(Op::Pool(Pool { kind, window: [2; 2], stride: [1; 2], padding: [0; 4], ceil: false }), &[x]);
    let x = n.b.flatten(x);
    let x = n.linear(x, "fc", 5);
    n.watch("logits", x);
    n.give_ids("labels", 5, 4);
    let loss = n.b.cross_entropy(x, "labels");
    n.finish(loss, threads)
}

fn depthwise(threads: usize) -> Numbers {
    let mut n = Net::new("depthwise", SGD);
    let x = n.input("images", [3, 6, 9, 9]);
    let x = n.conv_norm(x, "expand", 12, 1, Conv::default());
    let x = n.b.activate(x, Activation::Relu6);
    let x = n.conv_norm(x, "depth", 12, 3, Conv { stride: [2; 2], groups: 12, ..pad(1) });
    let x = n.b.activate(x, Activation::Relu6);
    let x = n.conv_norm(x, "grouped", 12, 3, Conv { dilation: [2; 2], groups: 3, ..pad(2) });
    let x = n.b.activate(x, Activation::Relu6);
    let x = n.conv_norm(x, "project", 8, 1, Conv::default());
    let x = n.b.global_pool(x);
    let x = n.linear(x, "fc", 4);
    n.watch("logits", x);
    n.give_ids("labels", 4, 3);
    let loss = n.b.cross_entropy(x, "labels");
    n.finish(loss, threads)
}

fn lstm(threads: usize) -> Numbers {
    let (steps, batch, width, words) = (4, 3, 10, 17);
    let mut n = Net::new("lstm", SGD);
    let ids = n.ids("words", words, [steps, batch]);
    n.b.layer("embedding");
    let table = n.weight("embedding", "table", 0.5, 0.0, [words, width]);
    let x = n.b.apply(Op::Embedding { bag: false }, &[table, ids]);
    let pieces = n.b.split(x, 0, steps);
    n.b.layer("lstm");
    let wx = n.weight("lstm", "wx", 0.5, 0.0, [4 * width, width]);
    let wh = n.weight("lstm", "wh", 0.5, 0.0, [4 * width, width]);
    let bias = n.weight("lstm", "bias", 0.2, 0.0, [4 * width]);
    let mut h = n.b.outside("h0", [batch, width].into(), DType::F32, Init::Constant(0.0));
    let mut c = n.b.outside("c0", [batch, width].into(), DType::F32, Init::Constant(0.0));
    let mut hs = Vec::new();
    for piece in pieces {
        let x = n.b.reshape(piece, [batch, width]);
        let results = n.b.apply_all(Op::LstmCell, &[x, h, c, wx, wh, bias]);
        (h, c) = (results[0], results[1]);
        hs.push(h);
    }
    let x = n.b.concat(&hs, 0);
    let x = n.linear(x, "softmax", words);
    n.watch("logits", x);
    n.give_ids("next", words, steps * batch);
    let loss = n.b.cross_entropy(x, "next");
    n.finish(loss, threads)
}

fn gpt(threads: usize) -> Numbers {
    let (batch, length, width, heads, words) = (2, 11, 24, 3, 31);
    let mut n = Net::new("gpt", ADAMW);
    let ids = n.ids("words", words, [batch, length]);
    n.b.layer("words");
    let table = n.weight("words", "table", 0.3, 0.0, [words, width]);
    let x = n.b.apply(Op::Embedding { bag: false }, &[table, ids]);
    n.b.layer("positions");
    let positions = n.weight("positions", "table", 0.3, 0.0, [length, width]);
    let mut x = n.b.add(x, positions);
    for layer in 0..2 {
        let y = n.layer_norm(x, &format!("norm{layer}a"));
        let y = n.linear(y, &format!("qkv{layer}"), 3 * width);
        let pieces = n.b.split(y, 2, 3);
        let attention = Attention { heads, causal: true, dropout: 0.0, seed: 1 };
        let y = n.b.apply(Op::Attention(attention), &pieces);
        let y = n.linear(y, &format!("project{layer}"), width);
        x = n.b.add(x, y);
        let y = n.layer_norm(x, &format!("norm{layer}b"));
        let y = n.linear(y, &format!("up{layer}"), 4 * width);
        let y = n.b.activate(y, if layer == 0 { Activation::GeluTanh } else { Activation::Gelu });
        let y = n.linear(y, &format!("down{layer}"), width);
        x = n.b.add(x, y);
    }
    n.b.layer("head");
    let x = n.b.apply(Op::Linear, &[x, table]);
    n.watch("logits", x);
    n.give_ids("next", words, batch * length);
    let loss = n.b.cross_entropy(x, "next");
    n.finish(loss, threads)
}

fn dlrm(threads: usize) -> Numbers {
    let (batch, width) = (6, 8);
    let mut n = Net::new("dlrm", SGD);
    let x = n.input("numbers", [batch, 5]);
    let x = n.linear(x, "bottom1", 12);
    let x = n.b.relu(x);
    let x = n.linear(x, "bottom2", width);
    let mut features = vec![n.b.relu(x)];
    for i in 0..3 {
        let (layer, rows) = (format!("category{i}"), 7 + i);
        n.b.layer(&layer);
        let table = n.weight(&layer, "table", 0.7, 0.0, [rows, width]);
        let ids = n.ids(&format!("ids{i}"), rows, [batch, 2]);
        features.push(n.b.apply(Op::Embedding { bag: true }, &[table, ids]));
    }
    let x = n.b.apply(Op::DotInteraction, &features);
    let x = n.linear(x, "top1", 10);
    let x = n.b.relu(x);
    let x = n.linear(x, "top2", 1);
    n.watch("score", x);
    let clicks = n.input("clicks", [batch, 1]);
    n.given.get_mut("clicks").expect("just given").iter_mut().for_each(|c| *c = (*c + 1.0) / 2.0);
    let loss = n.b.apply(Op::BinaryCrossEntropy, &[x, clicks]);
    n.finish(loss, threads)
}

fn dcgan(threads: usize) -> Numbers {
    let up = Conv { transposed: true, ..Conv::default() };
    let double = Conv { stride: [2; 2], padding: [1; 4], ..up };
    let half = Conv { transposed: false, ..double };
    let mut n = Net::new("dcgan", ADAMW);
    let x = n.input("noise", [3, 5, 1, 1]);
    let x = n.conv_norm(x, "g1", 8, 4, up);
    let x = n.b.relu(x);
    let x = n.conv_norm(x, "g2", 6, 4, double);
    let x = n.b.relu(x);
    n.b.layer("g3");
    let weight = n.weight("g3", "weight", 0.3, 0.0, [6, 2, 4, 4]);
    let bias = n.weight("g3", "bias", 0.1, 0.0, [2]);
    let x = n.b.apply(Op::Conv(double), &[x, weight, bias]);
    let x = n.b.activate(x, Activation::Tanh);
    n.watch("image", x);
    let leaky = Activation::LeakyRelu { slope: 0.2 };
    let x = n.conv(x, "d1", 6, 4, half);
    let x = n.b.activate(x, leaky);
    let x = n.conv_norm(x, "d2", 8, 4, half);
    let x = n.b.activate(x, leaky);
    let x = n.conv(x, "d3", 1, 4, Conv::default());
    let x = n.b.flatten(x);
    n.watch("score", x);
    let ones = n.b.outside("ones", [3, 1].into(), DType::F32, Init::Constant(1.0));
    let loss = n.b.apply(Op::BinaryCrossEntropy, &[x, ones]);
    n.finish(loss, threads)
}

/// Compares all values with lines of the script, and returns how many it compared.
fn compare(nets: &HashMap<&str, Numbers>, text: &str, source: &str) -> usize {
    let mut compared = 0;
    for line in text.lines() {
        let mut words = line.split(' ');
        let (net, name) = (words.next().expect("a network"), words.next().expect("a name"));
        let count: usize = words.next().expect("a size").parse().expect("a number");
        let figures: Vec<f64> = words.map(|w| w.parse().expect("a number")).collect();
        let Some(ours) = nets[net].get(name) else {
            // The gradient of a table of which only some rows change has no tensor of its own.
            assert!(name.ends_with(".table.grad"), "{net} has no {name}");
            continue;
        };
        assert_eq!(ours.len(), count, "{net} {name}");
        let (sum, squares) = (figures[0], figures[1]);
        let typical = (squares / count as f64).sqrt();
        let tolerance = |x: f64| 3e-4 * x.abs() + 3e-4 * typical + 2e-6;
        let sampled = ours.iter().step_by((count / 24).max(1)).take(24);
        for (i, (ours, theirs)) in sampled.zip(&figures[2..]).enumerate() {
            let apart = (f64::from(*ours) - theirs).abs();
            assert!(
                apart <= tolerance(*theirs),
                "{source}: {net} {name}, sample {i}: {ours} instead of {theirs}"
            );
        }
        let our_sum: f64 = ours.iter().map(|x| f64::from(*x)).sum();
        let our_squares: f64 = ours.iter().map(|x| f64::from(*x).powi(2)).sum();
        let room = tolerance(typical) * (count as f64).sqrt();
        assert!(
            (our_sum - sum).abs() <= room + 3e-4 * sum.abs(),
            "{source}: {net} {name}: sum {our_sum}, not {sum}"
        );
        assert!(
            (our_squares - squares).abs() <= 1e-3 * squares + 1e-8 * count as f64,
            "{source}: {net} {name}: squares {our_squares}, not {squares}"
        );
        compared += 1;
    }
    compared
}

#[test]
fn small_networks_are_as_pytorch_has_them() {
    type Build = fn(usize) -> Numbers;
    let builders: [(&str, Build); 6] = [
        ("cnn", cnn),
        ("depthwise", depthwise),
        ("lstm", lstm),
        ("gpt", gpt),
        ("dlrm", dlrm),
        ("dcgan", dcgan),
    ];
    let nets: HashMap<&str, Numbers> = builders.iter().map(|(name, net)| (*name, net(2))).collect();
    let compared = compare(&nets, include_str!("golden/golden.txt"), "golden values");
    assert!(compared > 180, "{compared} tensors compared");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/golden.py");
    let live = ["python3", "/usr/bin/python3"].into_iter().find_map(|python| {
        let output = Command::new(python).arg(script).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    match live {
        Some(text) => assert_eq!(compare(&nets, &text, "PyTorch, just now"), compared),
        None => tiercel_testbed::skipped(
            "kernels beside PyTorch: it cannot be imported; the golden values were compared",
        ),
    }
}
