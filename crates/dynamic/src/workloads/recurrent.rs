//! Networks of recurrent cells: Tree-LSTM, LSTMs of variable and of fixed length, and an unrolled GAN.

use super::parts::{apply, beside, combine, gates, linear, loss};
use super::{Cause, Family, Scale, Way, Workload, as_table_6_1, falling, rounds};
use crate::tape::{Parameter, Tape, Taped, Value};

/// The kinds of levels that a batch of trees may have.
const LEVELS: usize = 15;
/// Rounds of an LSTM's loop, and the steps of one.
const ROUNDS: usize = 8;
const STEPS: u64 = 6;
/// How often a GAN's discriminator is unrolled at most.
const UNROLLED: usize = 6;

/// Tree-LSTM (Tai et al.) with depth-based batching: which kinds of levels the trees of a batch have is its path.
pub(super) const TREE_LSTM: Workload = Workload {
    name: "tree-lstm",
    family: Family::Lstm,
    cause: Cause::Words,
    rows: 4096,
    varies: true,
    paper: true,
    build: tree_lstm,
    ways: || as_table_6_1(LEVELS, 61),
};

/// An LSTM over sentences of different length.
pub(super) const VAR_LSTM: Workload = Workload {
    name: "var-lstm",
    family: Family::Lstm,
    cause: Cause::Length,
    rows: 512,
    varies: false,
    paper: true,
    build: |path, rows, scale| lstm("var-lstm", path, rows, scale),
    ways: || {
        // Most news items are short: lengths fall off on both sides of the third round.
        let share = [0.10, 0.20, 0.24, 0.18, 0.12, 0.08, 0.05, 0.03];
        rounds(ROUNDS).into_iter().zip(share).map(|(path, share)| Way { path, share }).collect()
    },
};

/// The same with all sentences filled up to one length.
pub(super) const FIXED_LSTM: Workload = Workload {
    name: "fixed-lstm",
    cause: Cause::None,
    build: |path, rows, scale| lstm("fixed-lstm", path, rows, scale),
    ways: || vec![Way { path: vec![1; ROUNDS], share: 1.0 }],
    ..VAR_LSTM
};

/// A GAN whose generator looks so many steps of its discriminator ahead.
pub(super) const UGAN: Workload = Workload {
    name: "ugan",
    family: Family::Lstm,
    cause: Cause::Words,
    rows: 8192,
    varies: false,
    paper: true,
    build: ugan,
    ways: || falling(rounds(UNROLLED)),
};

fn tree_lstm(path: &[u16], rows: u64, scale: Scale) -> Taped {
    let width = scale.of(1024, 32);
    let mut tape = Tape::new("tree-lstm");
    let leaves = tape.parameter("leaves", [300, width, 1]);
    // Nodes of two, three and four children, as N-ary Tree-LSTMs have them.
    let kinds: Vec<Parameter> = (2..5)
        .map(|arity| tape.parameter(&format!("compose{arity}"), [arity * width, 5 * width, 1]))
        .collect();
    let classes = tape.parameter("classes", [width, 5, 1]);
    let words = tape.input("words", [rows, 300, 1]);
    tape.layer("leaves");
    let mut state = linear(&mut tape, words, leaves, width);
    let mut below = apply(&mut tape, "tanh", state);
    for (site, arm) in path.iter().enumerate() {
        tape.branch(site as u32, *arm);
        if *arm == 1 {
            tape.layer(&format!("level{site}"));
            let kind = site % kinds.len();
            let children = beside(&mut tape, &[below, state, below, state][..kind + 2]);
            let all = linear(&mut tape, children, kinds[kind], 5 * width);
            let cell = gates(&mut tape, "sigmoid", all, state);
            let kept = combine(&mut tape, "mul", cell, state);
            state = combine(&mut tape, "add", kept, cell);
            below = apply(&mut tape, "tanh", state);
        }
        tape.join();
    }
    tape.layer("classes");
    let scores = linear(&mut tape, below, classes, 5);
    loss(&mut tape, scores);
    tape.finish()
}

fn lstm(name: &str, path: &[u16], rows: u64, scale: Scale) -> Taped {
    let width = scale.of(1024, 32);
    let mut tape = Tape::new(name);
    let cell = tape.parameter("cell", [2 * width, 4 * width, 1]);
    let classes = tape.parameter("classes", [width, 90, 1]);
    let first = tape.input("first", [rows, width, 1]);
    let mut hidden = tape.input("hidden", [rows, width, 1]);
    let mut state = tape.input("state", [rows, width, 1]);
    for (round, arm) in path.iter().enumerate() {
        tape.branch(round as u32, *arm);
        if *arm == 0 {
            break;
        }
        for step in 0..STEPS {
            tape.layer(&format!("round{round}.{step}"));
            let both = beside(&mut tape, &[first, hidden]);
            let all = linear(&mut tape, both, cell, 4 * width);
            state = gates(&mut tape, "sigmoid", all, state);
            hidden = apply(&mut tape, "tanh", state);
        }
    }
    (0..path.len()).for_each(|_| tape.join());
    tape.layer("classes");
    let scores = linear(&mut tape, hidden, classes, 90);
    loss(&mut tape, scores);
    tape.finish()
}

/// Two products and a rectifier between them.
fn judged(tape: &mut Tape, x: Value, weights: &[Parameter; 3], width: u64) -> Value {
    let hidden = linear(tape, x, weights[0], width);
    let hidden = apply(tape, "relu", hidden);
    let hidden = linear(tape, hidden, weights[1], width);
    let hidden = apply(tape, "relu", hidden);
    linear(tape, hidden, weights[2], 2)
}

fn ugan(path: &[u16], rows: u64, scale: Scale) -> Taped {
    let width = scale.of(2048, 32);
    let mut tape = Tape::new("ugan");
    let generator: [Parameter; 3] =
        [[256, width, 1], [width, width, 1], [width, 256, 1]].map(|dims| tape.parameter("generator", dims));
    let discriminator: [Parameter; 3] =
        [[256, width, 1], [width, width, 1], [width, 2, 1]].map(|dims| tape.parameter("discriminator", dims));
    let noise = tape.input("noise", [rows, 256, 1]);
    tape.layer("generator");
    let x = linear(&mut tape, noise, generator[0], width);
    let x = apply(&mut tape, "relu", x);
    let x = linear(&mut tape, x, generator[1], width);
    let x = apply(&mut tape, "relu", x);
    let made = linear(&mut tape, x, generator[2], 256);
    let mut last = made;
    for (round, arm) in path.iter().enumerate() {
        tape.branch(round as u32, *arm);
        if *arm == 0 {
            break;
        }
        tape.layer(&format!("look{round}"));
        let seen = combine(&mut tape, "add", made, last);
        let scores = judged(&mut tape, seen, &discriminator, width);
        last = beside(&mut tape, &[scores; 128]);
    }
    (0..path.len()).for_each(|_| tape.join());
    tape.layer("loss");
    loss(&mut tape, last);
    tape.finish()
}
