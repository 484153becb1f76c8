//! Networks of convolutions: a tree of classifiers (Tree-CNN) and one that stops early for easy images.

use super::parts::{apply, conv, linear, loss, mean, norm, pool};
use super::{Cause, Family, Scale, Workload, falling, rounds};
use crate::tape::{Parameter, Tape, Taped, Value};

/// The children of the tree's root, and of each of those.
const BRANCHES: u16 = 4;
const LEAVES: u16 = 3;
/// Where an image may leave the network.
const EXITS: usize = 6;

/// Tree-CNN (Roy et al.): the root decides which branch, the branch which leaf; each has a network of its own.
pub(super) const TREE_CNN: Workload = Workload {
    name: "tree-cnn",
    family: Family::Cnn,
    cause: Cause::Words,
    rows: 64,
    varies: false,
    paper: true,
    build: tree_cnn,
    ways: || {
        falling((0..BRANCHES).flat_map(|branch| (0..LEAVES).map(move |leaf| vec![branch, leaf])).collect())
    },
};

/// A network with a classifier after every stage: easy images go no further.
pub(super) const EARLY_EXIT: Workload = Workload {
    name: "early-exit",
    family: Family::Cnn,
    cause: Cause::Words,
    rows: 64,
    varies: false,
    paper: false,
    build: early_exit,
    ways: || falling(rounds(EXITS)),
};

/// Convolutions of one width, each normalised and rectified.
struct Stage {
    weights: Vec<Parameter>,
    channels: u64,
}

impl Stage {
    fn new(tape: &mut Tape, name: &str, inputs: u64, channels: u64, depth: u64) -> Stage {
        let dims = |at: u64| [if at == 0 { inputs } else { channels }, channels, 9];
        let weights = (0..depth).map(|at| tape.parameter(&format!("{name}.{at}"), dims(at))).collect();
        Stage { weights, channels }
    }

    fn run(&self, tape: &mut Tape, name: &str, mut x: Value) -> Value {
        let side = (x.dims[2] as f64).sqrt() as u64;
        for (at, weight) in self.weights.iter().enumerate() {
            tape.layer(&format!("{name}.{at}"));
            x = conv(tape, x, *weight, self.channels, side);
            x = norm(tape, "native_batch_norm", x);
            x = apply(tape, "relu", x);
        }
        pool(tape, x)
    }
}

fn classify(tape: &mut Tape, name: &str, x: Value, weight: Parameter, classes: u64) {
    tape.layer(name);
    let x = mean(tape, x);
    let x = linear(tape, x, weight, classes);
    loss(tape, x);
}

fn tree_cnn(path: &[u16], rows: u64, scale: Scale) -> Taped {
    let (width, side) = (scale.of(64, 4), scale.of(112, 16));
    let mut tape = Tape::new("tree-cnn");
    let root = Stage::new(&mut tape, "root", 3, width, 3);
    let branches: Vec<Stage> = (0..BRANCHES)
        .map(|branch| {
            Stage::new(&mut tape, &format!("branch{branch}"), width, 2 * width, 3 + u64::from(branch))
        })
        .collect();
    let leaves: Vec<Stage> = (0..BRANCHES * LEAVES)
        .map(|leaf| {
            let depth = 2 + u64::from(leaf % LEAVES) * 2;
            Stage::new(&mut tape, &format!("leaf{leaf}"), 2 * width, 8 * width, depth)
        })
        .collect();
    let classes = tape.parameter("classes", [8 * width, 200, 1]);
    let images = tape.input("images", [rows, 3, side * side]);
    let x = root.run(&mut tape, "root", images);
    let (branch, leaf) = (path[0], path[1]);
    tape.branch(0, branch);
    let x = branches[usize::from(branch)].run(&mut tape, "branch", x);
    tape.branch(1 + u32::from(branch), leaf);
    let x = leaves[usize::from(branch * LEAVES + leaf)].run(&mut tape, "leaf", x);
    classify(&mut tape, "classes", x, classes, 200);
    tape.join();
    tape.join();
    tape.finish()
}

fn early_exit(path: &[u16], rows: u64, scale: Scale) -> Taped {
    let (width, side) = (scale.of(64, 4), scale.of(112, 64));
    let mut tape = Tape::new("early-exit");
    let at = |stage: u64| width << stage.min(3);
    let stages: Vec<Stage> = (0..EXITS as u64)
        .map(|stage| {
            let inputs = if stage == 0 { 3 } else { at(stage - 1) };
            Stage::new(&mut tape, &format!("stage{stage}"), inputs, at(stage), 3)
        })
        .collect();
    let exits: Vec<Parameter> = (0..EXITS as u64)
        .map(|stage| tape.parameter(&format!("exit{stage}"), [at(stage), 1000, 1]))
        .collect();
    let mut x = tape.input("images", [rows, 3, side * side]);
    for (stage, arm) in path.iter().enumerate() {
        tape.branch(stage as u32, *arm);
        if *arm == 0 {
            break;
        }
        x = stages[stage].run(&mut tape, &format!("stage{stage}"), x);
    }
    (0..path.len()).for_each(|_| tape.join());
    let last = path.iter().filter(|arm| **arm == 1).count() - 1;
    classify(&mut tape, "exit", x, exits[last], 1000);
    tape.finish()
}
