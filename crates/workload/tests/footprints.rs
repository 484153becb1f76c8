//! Peak memory of one training iteration against the footprints that AutoTM (Table 1) and CachedArrays (Table III)
//! publish; `docs/networks.md` shows the same table and says what the modelling is.

use tiercel_workload::graph::Optimizer;
use tiercel_workload::nets::{self, NetOptions};
use tiercel_workload::{Lifetimes, TensorId, Trace};

/// Paper, network as its authors wrote it, network as published elsewhere, batch, published footprint in 10⁹ bytes.
const PUBLISHED: [(&str, &str, &str, u64, f64); 10] = [
    ("AutoTM", "inception-v4-autotm", "inception-v4", 1024, 111.0),
    ("AutoTM", "resnet200-autotm", "resnet200", 512, 132.0),
    ("AutoTM", "vgg19", "vgg19", 2048, 143.0),
    ("AutoTM", "densenet264-autotm", "densenet264", 512, 115.0),
    ("AutoTM", "inception-v4-autotm", "inception-v4", 6144, 659.0),
    ("AutoTM", "resnet200-autotm", "resnet200", 2560, 651.0),
    ("AutoTM", "densenet264-autotm", "densenet264", 3072, 688.0),
    ("AutoTM", "vgg416-autotm", "vgg416", 320, 658.0),
    ("CachedArrays", "resnet200", "resnet200", 2048, 529.0),
    ("CachedArrays", "vgg416", "vgg416", 256, 520.0),
];

/// AutoTM's code trains without momentum, in f32; CachedArrays does not say, and is taken to do the same.
fn trace(name: &str, batch: u64) -> Trace {
    let options = NetOptions { batch: Some(batch), optimizer: Some(Optimizer::SGD), ..NetOptions::default() };
    nets::find(name).expect("a network").build(&options).expect("fits").trace
}

fn giga(name: &str, batch: u64) -> f64 {
    Lifetimes::new(&trace(name, batch)).peak().1.0 as f64 / 1e9
}

/// The difference of `ours` to `published` in percent, to a tenth, never minus zero.
fn percent(ours: f64, published: f64) -> f64 {
    ((ours / published - 1.0) * 1000.0).round() / 10.0 + 0.0
}

/// What the tensors alive at the peak amount to, by the kind of kernel that made them.
fn at_peak(name: &str, batch: u64, kind: &str) -> f64 {
    let trace = trace(name, batch);
    let lifetimes = Lifetimes::new(&trace);
    let (step, _) = lifetimes.peak();
    let alive = |id: u32| {
        lifetimes.of(TensorId(id)).is_some_and(|life| life.birth <= step && step <= life.last)
            && trace.tensors[id as usize].name.ends_with(kind)
    };
    let bytes: u64 = (0..trace.tensors.len() as u32)
        .filter(|id| alive(*id))
        .map(|id| trace.tensors[id as usize].bytes.0)
        .sum();
    bytes as f64 / 1e9
}

#[test]
fn peaks_are_those_of_the_papers() {
    let document = include_str!("../../../docs/networks.md");
    let mut table = String::new();
    for (paper, network, original, batch, published) in PUBLISHED {
        let ours = giga(network, batch);
        let difference = percent(ours, published);
        assert!(difference.abs() < 10.0, "{network} at {batch}: {ours} GB against {published}");
        table +=
            &format!("| {paper} | `{network}` | {batch} | {published} | {ours:.1} | {difference:+.1} % |");
        let plain = giga(original, batch);
        let plain_difference = percent(plain, published);
        table += &format!(" {plain:.1} | {plain_difference:+.1} % |\n");
    }
    assert!(document.contains(&table), "docs/networks.md should hold this table:\n{table}");
}

/// The published Inception-v4 and DenseNet-264 need more than AutoTM's versions of them, and it is these tensors.
#[test]
fn the_differences_have_names() {
    let document = include_str!("../../../docs/networks.md");
    let mut table = String::new();
    for (name, kind) in [
        ("inception-v4-autotm", ".conv"),
        ("inception-v4-autotm", ".batch-norm"),
        ("inception-v4", ".conv"),
        ("inception-v4", ".batch-norm"),
        ("densenet264-autotm", ".concat"),
        ("densenet264-autotm", ".batch-norm"),
        ("densenet264", ".concat"),
        ("densenet264", ".batch-norm"),
    ] {
        let batch = if name.starts_with("inception") { 1024 } else { 512 };
        table += &format!("| `{name}` | {batch} | `*{kind}` | {:.1} |\n", at_peak(name, batch, kind));
    }
    assert!(document.contains(&table), "docs/networks.md should hold this table:\n{table}");
}
