//! Every family of built-in networks trains for real, and to the bit as it would with all of its memory fast.

mod training_runs;

use tiercel_train::{Settings, Synthetic, Task};
use tiercel_workload::graph::Optimizer;
use tiercel_workload::nets::{self, NetOptions};
use training_runs::{Home, net, trainer};

/// Networks that another one of the same file stands for: more layers, or convolutions of another shape.
const SIBLINGS: [&str; 9] = [
    "vgg19",
    "vgg116",
    "vgg416",
    "vgg416-autotm",
    "resnet152",
    "resnet200",
    "resnet200-autotm",
    "densenet264-autotm",
    "inception-v4-autotm",
];

/// The smallest form in which all of a network's code is used.
fn small(name: &str) -> NetOptions {
    // Of two samples much is learnt, or unlearnt, at the usual rate.
    let optimizer = Some(Optimizer::Sgd { rate: 1e-4, momentum: 0.0, decay: 1e-4 });
    let image = |side| NetOptions { batch: Some(2), image: Some(side), optimizer, ..NetOptions::default() };
    match name {
        "inception-v3" | "inception-v4" => image(75),
        "resnet32" => NetOptions { depth: Some(8), ..image(16) },
        "cnn" => NetOptions { optimizer: None, ..image(16) },
        "mlp" => NetOptions { width: Some(64), ..image(8) },
        "dcgan" => NetOptions { width: Some(8), ..image(16) },
        "dlrm" => {
            NetOptions { batch: Some(16), sequence: Some(2), words: Some(1000), ..NetOptions::default() }
        }
        "lstm" | "gpt2" | "bert-large" => NetOptions {
            batch: Some(2),
            sequence: Some(12),
            depth: Some(2),
            width: Some(64),
            words: Some(100),
            ..NetOptions::default()
        },
        _ => image(32),
    }
}

/// The bits of the losses of two iterations, and the checksum of all weights after them.
fn outcome(task: &Task, home: &Home) -> ([u32; 2], u64) {
    let mut trainer = trainer(task, home, Synthetic, Settings::default());
    let losses = [0; 2].map(|_| trainer.iterate().unwrap_or_else(|error| panic!("{error}")).loss);
    assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    (losses.map(f32::to_bits), trainer.digest().expect("weights are there"))
}

#[test]
fn every_family_trains_alike_in_a_fifth_of_its_memory() {
    for family in nets::all().iter().filter(|net| !SIBLINGS.contains(&net.name)) {
        let task = net(family.name, small(family.name));
        let fast = outcome(&task, &Home::fast());
        let tight = outcome(&task, &Home::tight("cachedarrays-lm"));
        assert_eq!(fast, tight, "{}", family.name);
        assert_ne!(fast.0[0], fast.0[1], "{}: the second iteration has new weights", family.name);
    }
}
