//! The gradient of every operation against central differences of its forward pass.

mod harness;

use std::sync::Arc;

use harness::Operand_::{Ids, State, Weight};
use harness::{Operand_, Single, normal, run};
use tiercel_workload::graph::{Activation, Attention, Conv, Op, Pool, PoolKind, ResponseNorm, Shape};

/// Compares the derivative along random directions, and by single elements, with the gradient.
fn check(what: &str, op: Op, operands: &[Operand_], losses: usize) {
    check_with(what, op, operands, losses, 4e-3);
}

fn check_with(what: &str, op: Op, operands: &[Operand_], losses: usize, step: f32) {
    for (seed, threads) in [(1, 1), (2, 2)] {
        let single = Single::new(op.clone(), operands, losses, seed == 1, seed, threads);
        let numbers = run(&single.program, &single.given, threads, 1);
        let wanted = operands.iter().filter(|o| matches!(o, Weight(_))).count();
        assert_eq!(single.gradients.len(), wanted, "{what}: every operand has its gradient");
        let mut random = fastrand::Rng::with_seed(seed);
        for (weight, gradient) in &single.gradients {
            let (x, g) = (&single.given[weight], &numbers[gradient]);
            for trial in 0..5 {
                let mut direction = normal(&mut random, x.len());
                if trial >= 2 {
                    let one = random.usize(..x.len());
                    direction.iter_mut().enumerate().for_each(|(i, d)| *d = f32::from(i == one));
                }
                let length = direction.iter().map(|d| d * d).sum::<f32>().sqrt();
                direction.iter_mut().for_each(|d| *d /= length);
                let at = |step: f32| {
                    let mut given = (*single.given).clone();
                    let moved = given.get_mut(weight).expect("it is given");
                    moved.iter_mut().zip(&direction).for_each(|(x, d)| *x += step * d);
                    let moved = moved.clone();
                    (single.loss(&run(&single.program, &Arc::new(given), threads, 1)), moved)
                };
                let ((high, up), (low, down)) = (at(step), at(-step));
                // The step that rounding has left of the one that was meant.
                let along: f64 = g
                    .iter()
                    .zip(up.iter().zip(&down))
                    .map(|(g, (u, d))| f64::from(*g) * (f64::from(*u) - f64::from(*d)))
                    .sum();
                let (expected, found) =
                    ((high - low) / (2.0 * f64::from(step)), along / (2.0 * f64::from(step)));
                let size = g.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
                let tolerance = 2e-3 * expected.abs().max(size) + 2e-5;
                assert!(
                    (expected - found).abs() <= tolerance,
                    "{what}, {weight}, trial {trial}, seed {seed}: {found} instead of {expected} (gradient of size {size})"
                );
            }
        }
    }
}

fn w<const N: usize>(dims: [u64; N]) -> Operand_ {
    Weight(Shape::from(dims))
}

/// A convolution with weights that fit `x`.
fn conv(what: &str, x: [u64; 4], out: u64, window: [u64; 2], bias: bool, conv: Conv) {
    let weight = if conv.transposed {
        [x[1], out / conv.groups, window[0], window[1]]
    } else {
        [out, x[1] / conv.groups, window[0], window[1]]
    };
    let mut operands = vec![w(x), w(weight)];
    if bias {
        operands.push(w([out]));
    }
    check(what, Op::Conv(conv), &operands, 1);
}

#[test]
fn convolutions() {
    let plain = Conv::default();
    conv("1x1", [2, 3, 4, 5], 4, [1, 1], true, plain);
    conv("3x3 same", [2, 3, 5, 6], 4, [3, 3], true, Conv { padding: [1; 4], ..plain });
    conv("3x3 stride 2", [2, 3, 7, 6], 4, [3, 3], false, Conv { padding: [1; 4], stride: [2, 2], ..plain });
    conv("1x1 stride 2", [2, 3, 6, 5], 4, [1, 1], false, Conv { stride: [2, 2], ..plain });
    conv("dilated", [1, 2, 9, 8], 3, [3, 2], true, Conv { padding: [2, 1, 2, 1], dilation: [2, 3], ..plain });
    conv(
        "dilated and strided",
        [1, 2, 9, 11],
        3,
        [3, 3],
        true,
        Conv { padding: [2; 4], dilation: [2, 3], stride: [2, 3], ..plain },
    );
    conv("uneven padding", [2, 2, 5, 4], 3, [4, 2], false, Conv { padding: [3, 0, 1, 2], ..plain });
    let several = Conv { padding: [1; 4], groups: 2, transposed: true, ..plain };
    conv("several windows a channel, the other way", [1, 4, 3, 17], 2, [3, 3], true, several);
    conv("several windows a channel", [1, 2, 4, 17], 4, [5, 5], true, Conv { transposed: false, ..several });
    conv("groups", [2, 6, 5, 5], 4, [3, 3], true, Conv { padding: [1; 4], groups: 2, ..plain });
    conv("depthwise, small", [2, 4, 5, 4], 4, [3, 3], true, Conv { padding: [1; 4], groups: 4, ..plain });
    conv("depthwise", [2, 5, 6, 7], 5, [3, 3], true, Conv { padding: [1; 4], groups: 5, ..plain });
    conv(
        "depthwise strided",
        [2, 5, 7, 6],
        5,
        [3, 3],
        false,
        Conv { padding: [1; 4], groups: 5, stride: [2, 2], ..plain },
    );
    conv(
        "depthwise dilated",
        [1, 3, 9, 9],
        3,
        [3, 3],
        false,
        Conv { padding: [2; 4], groups: 3, dilation: [2, 2], ..plain },
    );
    conv("depthwise doubled", [2, 4, 5, 5], 8, [3, 3], true, Conv { padding: [1; 4], groups: 4, ..plain });
    conv("window of the image", [3, 2, 4, 4], 5, [4, 4], true, plain);
    conv("many small images", [9, 17, 2, 2], 15, [3, 3], true, Conv { padding: [1; 4], ..plain });
}

#[test]
fn transposed_convolutions() {
    let plain = Conv { transposed: true, ..Conv::default() };
    conv("plain", [2, 3, 4, 5], 4, [3, 3], true, plain);
    conv("dcgan", [2, 3, 4, 4], 2, [4, 4], false, Conv { stride: [2, 2], padding: [1; 4], ..plain });
    conv("first of dcgan", [3, 4, 1, 1], 2, [4, 4], true, plain);
    conv(
        "with output padding",
        [2, 3, 3, 4],
        2,
        [3, 3],
        true,
        Conv { stride: [2, 3], padding: [1; 4], output_padding: [1, 2], ..plain },
    );
    conv(
        "gaps between windows",
        [1, 2, 3, 3],
        2,
        [2, 1],
        true,
        Conv { stride: [3, 2], output_padding: [2, 1], ..plain },
    );
    conv("groups", [2, 4, 3, 3], 6, [3, 3], true, Conv { stride: [2, 2], groups: 2, ..plain });
    conv(
        "depthwise",
        [2, 4, 3, 3],
        4,
        [3, 3],
        true,
        Conv { stride: [2, 2], groups: 4, padding: [1; 4], ..plain },
    );
    conv("dilated", [1, 2, 4, 4], 3, [2, 3], true, Conv { dilation: [3, 2], stride: [2, 2], ..plain });
}

#[test]
fn products() {
    check("linear", Op::Linear, &[w([3, 5]), w([4, 5]), w([4])], 1);
    check("linear without bias", Op::Linear, &[w([2, 3, 7]), w([2, 7])], 1);
    check("linear to one", Op::Linear, &[w([5, 3]), w([1, 3]), w([1])], 1);
    for transpose_a in [false, true] {
        for transpose_b in [false, true] {
            let a = if transpose_a { [2, 5, 3] } else { [2, 3, 5] };
            let b = if transpose_b { [2, 4, 5] } else { [2, 5, 4] };
            let op = Op::MatMul { transpose_a, transpose_b };
            check("matmul", op.clone(), &[w(a), w(b)], 1);
            let (a, b) = ([a[1], a[2]], [b[1], b[2]]);
            check("matmul of two axes", op, &[w(a), w(b)], 1);
        }
    }
}

#[test]
fn norms() {
    let op = Op::BatchNorm { epsilon: 1e-3, momentum: 0.1 };
    let of = |x: Operand_, channels: u64| {
        let [one, state] = [Weight, State].map(|value| value(Shape::from([channels])));
        check("batch norm", op.clone(), &[x, one.clone(), one, state.clone(), state], 1);
    };
    // Beside small ones: more samples than are added up at once, and large planes.
    for x in [w([4, 3, 5, 2]), w([6, 3]), w([2, 3, 19]), w([35, 3, 2]), w([2, 3, 400]), w([2, 3, 1100])] {
        of(x, 3);
    }
    // Channels in groups, of planes that are shorter and longer than a vector.
    for x in [w([2, 35, 5]), w([2, 35, 17])] {
        of(x, 35);
    }
    for x in [w([3, 20]), w([2, 3, 7]), w([2, 33])] {
        let Weight(shape) = x else { continue };
        let scale = w([shape.last()]);
        check("layer norm", Op::LayerNorm { epsilon: 1e-3 }, &[x, scale.clone(), scale], 1);
    }
    for (size, beta) in [(1, 0.75), (2, 0.75), (3, 0.75), (5, 0.75), (3, 0.6), (5, 0.6)] {
        let norm = ResponseNorm { size, alpha: 0.5, beta, bias: 1.5 };
        check("response norm", Op::ResponseNorm(norm), &[w([2, 6, 3, 2])], 1);
    }
    // More pixels than are computed at once.
    let norm = ResponseNorm { size: 5, alpha: 0.5, beta: 0.75, bias: 1.5 };
    check("response norm", Op::ResponseNorm(norm), &[w([1, 6, 7, 41])], 1);
}

#[test]
fn activations() {
    use Activation::*;
    for kind in [
        Relu,
        Relu6,
        LeakyRelu { slope: 0.2 },
        Sigmoid,
        Tanh,
        Gelu,
        GeluTanh,
        Power { exponent: 3.0 },
        Erf,
        Exp,
    ] {
        check_with(kind.name(), Op::Activate(kind), &[w([3, 41])], 1, 1e-3);
    }
    check("softmax", Op::Softmax, &[w([3, 5])], 1);
    check("softmax of a long row", Op::Softmax, &[w([2, 37])], 1);
}

#[test]
fn pooling() {
    let average = |count_padding| PoolKind::Average { count_padding };
    for kind in [PoolKind::Max, average(false), average(true)] {
        for (window, stride, padding, ceil) in [
            ([2, 2], [2, 2], [0; 4], false),
            ([3, 3], [2, 2], [1; 4], false),
            ([3, 3], [2, 2], [0; 4], true),
            ([3, 2], [1, 3], [1, 1, 0, 0], true),
            ([3, 3], [1, 1], [1; 4], false),
            ([2, 3], [3, 2], [0, 2, 1, 1], false),
        ] {
            let pool = Pool { kind, window, stride, padding, ceil };
            check_with("pool", Op::Pool(pool), &[w([2, 2, 7, 6])], 1, 5e-4);
        }
    }
    check("global pool", Op::GlobalPool, &[w([2, 3, 4, 5])], 1);
}

#[test]
fn elements() {
    for other in [w([2, 3, 4]), w([4]), w([3, 1]), w([2, 1, 4]), w([1, 3, 1]), w([1]), w([2, 1, 1])] {
        check("add", Op::Add, &[w([2, 3, 4]), other.clone()], 1);
        check("mul", Op::Mul, &[w([2, 3, 4]), other], 1);
    }
    check("scale", Op::Scale { factor: -1.5 }, &[w([7, 3])], 1);
    check("dropout", Op::Dropout { rate: 0.4, seed: 3 }, &[w([5, 11])], 1);
}

#[test]
fn arrangement() {
    for axis in 0..3 {
        let mut second = [2, 3, 4];
        second[axis] = 5;
        check("concat", Op::Concat { axis }, &[w([2, 3, 4]), w(second), w([2, 3, 4])], 1);
        check("slice", Op::Slice { axis, start: 1, length: 2 }, &[w([3, 4, 5])], 1);
        check("split", Op::Split { axis, sizes: vec![1, 3] }, &[w([4, 4, 4])], 2);
        check("split, one used", Op::Split { axis, sizes: vec![1, 3] }, &[w([4, 4, 4])], 1);
        check("pad", Op::Pad { axis, before: 2, after: 1 }, &[w([2, 3, 4])], 1);
    }
    for order in [vec![0, 2, 1], vec![2, 1, 0], vec![1, 2, 0], vec![1, 0, 2], vec![0, 1, 2]] {
        check("transpose", Op::Transpose { order }, &[w([2, 3, 4])], 1);
    }
    check("transpose of four", Op::Transpose { order: vec![0, 2, 1, 3] }, &[w([2, 3, 4, 5])], 1);
}

#[test]
fn losses() {
    let ids = |shape: Shape, below| Ids(shape, below);
    check("cross-entropy", Op::CrossEntropy, &[w([6, 5]), ids(Shape::from([6]), 5)], 1);
    check("mean-square", Op::MeanSquare, &[w([4, 5]), State(Shape::from([4, 5]))], 1);
    check("cross-entropy of sequences", Op::CrossEntropy, &[w([2, 3, 20]), ids(Shape::from([2, 3]), 20)], 1);
}

#[test]
fn attention() {
    for (causal, dropout) in [(false, 0.0), (true, 0.0), (false, 0.3), (true, 0.3)] {
        let op = Op::Attention(Attention { heads: 2, causal, dropout, seed: 4 });
        check("attention", op, &[w([2, 5, 6]), w([2, 5, 6]), w([2, 5, 6])], 1);
    }
    let op = Op::Attention(Attention { heads: 1, causal: true, dropout: 0.0, seed: 4 });
    check("attention of one head", op, &[w([1, 19, 3]), w([1, 19, 3]), w([1, 19, 3])], 1);
    for (causal, dropout) in [(true, 0.0), (false, 0.0), (true, 0.3)] {
        let op = Op::Attention(Attention { heads: 1, causal, dropout, seed: 4 });
        check("attention of whole strips", op, &[w([1, 32, 2]), w([1, 32, 2]), w([1, 32, 2])], 1);
    }
}

#[test]
fn cells() {
    let (b, input, n) = (3, 4, 5);
    let operands = [w([b, input]), w([b, n]), w([b, n]), w([4 * n, input]), w([4 * n, n]), w([4 * n])];
    check("lstm cell", Op::LstmCell, &operands, 2);
    check("lstm cell, state unused", Op::LstmCell, &operands, 1);
}

#[test]
fn tables() {
    for (ids, bag) in [([7, 1], false), ([4, 3], true), ([20, 2], true)] {
        let operands = [w([6, 5]), Ids(Shape::from(ids), 6)];
        check("embedding", Op::Embedding { bag }, &operands, 1);
    }
    check("embedding of one axis", Op::Embedding { bag: false }, &[w([9, 17]), Ids(Shape::from([12]), 9)], 1);
}

#[test]
fn interactions() {
    for n in [1, 2, 4, 7, 11] {
        check("interaction", Op::DotInteraction, &vec![w([3, 5]); n], 1);
    }
}
