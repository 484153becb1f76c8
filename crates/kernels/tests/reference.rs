//! Forward kernels and updates against plain loops in f64, over random shapes; convolutions in a folder of their own.

mod convolutions;
mod harness;

use std::sync::Arc;

use harness::Operand_::{Ids, State, Weight};
use harness::{Numbers, Operand_, Single, normal, run};
use tiercel_kernels::prepare;
use tiercel_workload::graph::{
    Activation, Attention, Builder, Conv, DType, Init, Op, Optimizer, Pool, PoolKind, ResponseNorm, Shape,
};
use tiercel_workload::{Program, schedule};

fn w(dims: &[u64]) -> Operand_ {
    Weight(Shape::new(dims).expect("few axes"))
}

fn close(what: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let apart = (f64::from(*f) - e).abs();
        assert!(apart <= tolerance * e.abs().max(1.0), "{what}: {f} instead of {e} at {i}");
    }
}

/// Runs one operation and returns it with all that it left.
fn play(op: Op, operands: &[Operand_], seed: u64) -> (Single, Numbers) {
    let threads = 1 + (seed % 3) as usize;
    let losses = usize::from(!matches!(op, Op::CrossEntropy | Op::BinaryCrossEntropy));
    let single = Single::new(op, operands, losses, seed.is_multiple_of(2), seed, threads);
    let numbers = run(&single.program, &single.given, threads, 1);
    (single, numbers)
}

fn results<'a>(single: &Single, numbers: &'a Numbers, at: usize) -> &'a [f32] {
    &numbers[&single.results[at]]
}

/// What the loss behind an operation's results hands back, times as many as these are.
fn slopes(single: &Single, y: &[f64]) -> Vec<f64> {
    let targets = &single.given[&single.losses[0].1];
    y.iter().zip(targets).map(|(y, t)| 1.0 / (1.0 + (-y).exp()) - f64::from(*t)).collect()
}

/// The gradient of an operand, times as many as there are results.
fn gradient(single: &Single, numbers: &Numbers, at: usize, results: usize) -> Vec<f32> {
    let name = &single.operands[at];
    let (_, gradient) = single.gradients.iter().find(|(w, _)| w == name).expect("it has one");
    numbers[gradient].iter().map(|g| g * results as f32).collect()
}

fn f64s(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().map(|n| f64::from(*n)).collect()
}

fn product(
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
    [m, n, k]: [usize; 3],
) -> Vec<f64> {
    let element = |i: usize| (0..k).map(|d| a(i / n, d) * b(d, i % n)).sum();
    (0..m * n).map(element).collect()
}

#[test]
fn products() {
    let mut random = fastrand::Rng::with_seed(6);
    for seed in 0..40 {
        let large = if seed % 10 == 9 { 700 } else { 70 };
        let [m, n, k] = [random.usize(1..70), random.usize(1..70), random.usize(1..large)];
        // Many samples, few results of many, and few numbers of many.
        let (m, n, k) = match seed {
            5 | 18 | 31 => (m + 450, n, k),
            _ if seed % 5 == 2 => (m + 70, n.min(4), k),
            _ if seed % 5 == 3 => (m + 70, n, k.min(16)),
            _ => (m, n, k),
        };
        let dims = |a: usize, b: usize| [a as u64, b as u64];
        let (single, numbers) = play(Op::Linear, &[w(&dims(m, k)), w(&dims(n, k)), w(&[n as u64])], seed);
        let (x, f, bias) = (f64s(single.operand(0)), f64s(single.operand(1)), single.operand(2));
        let mut expected = product(|i, d| x[i * k + d], |d, j| f[j * k + d], [m, n, k]);
        expected.iter_mut().enumerate().for_each(|(i, y)| *y += f64::from(bias[i % n]));
        close(&format!("linear {m} {n} {k}"), results(&single, &numbers, 0), &expected, 5e-4);
        let dy = slopes(&single, &expected);
        let fits = |at: usize, what: &str, expected: &[f64]| {
            let gradient = gradient(&single, &numbers, at, m * n);
            close(&format!("{what} of linear {m} {n} {k}"), &gradient, expected, 5e-4);
        };
        fits(0, "dx", &product(|i, d| dy[i * n + d], |d, j| f[d * k + j], [m, k, n]));
        fits(1, "dw", &product(|i, d| dy[d * n + i], |d, j| x[d * k + j], [n, k, m]));
        fits(2, "db", &product(|i, d| dy[d * n + i], |_, _| 1.0, [n, 1, m]));
        let (ta, tb) = (random.bool(), random.bool());
        let (a, b) = (if ta { dims(k, m) } else { dims(m, k) }, if tb { dims(n, k) } else { dims(k, n) });
        let (single, numbers) = play(Op::MatMul { transpose_a: ta, transpose_b: tb }, &[w(&a), w(&b)], seed);
        let (a, b) = (f64s(single.operand(0)), f64s(single.operand(1)));
        let at = |numbers: &[f64], i: usize, j: usize, columns: usize| numbers[i * columns + j];
        let expected = product(
            |i, d| if ta { at(&a, d, i, m) } else { at(&a, i, d, k) },
            |d, j| if tb { at(&b, j, d, k) } else { at(&b, d, j, n) },
            [m, n, k],
        );
        close("matmul", results(&single, &numbers, 0), &expected, 5e-4);
    }
}

#[test]
fn norms() {
    let mut random = fastrand::Rng::with_seed(7);
    for seed in 0..20 {
        let (b, c, p) = match seed {
            // Many samples and groups of channels, the smallest planes, large ones, and many channels in a group.
            0 => (70, 110, 20),
            1 => (35, 300, 1),
            2 => (3, 2, 1500),
            3 => (2, 300, 49),
            _ => (random.usize(2..6), random.usize(1..6), random.usize(1..50)),
        };
        let one = [c as u64];
        let state = || State(Shape::from(one));
        let x = w(&[b as u64, c as u64, p as u64, 1]);
        let op = Op::BatchNorm { epsilon: 1e-4, momentum: 0.1 };
        let (single, numbers) = play(op, &[x, w(&one), w(&one), state(), state()], seed);
        let (x, gamma, beta) = (f64s(single.operand(0)), single.operand(1), single.operand(2));
        let count = (b * p) as f64;
        let all = |ch: usize| (0..b * p).map(move |i| (i / p * c + ch) * p + i % p);
        let mut y = vec![0.0; x.len()];
        let (mut running_mean, mut running_variance) = (Vec::new(), Vec::new());
        for ch in 0..c {
            let mean = all(ch).map(|i| x[i]).sum::<f64>() / count;
            let squares = all(ch).map(|i| (x[i] - mean).powi(2)).sum::<f64>();
            for i in all(ch) {
                let hat = (x[i] - mean) / (squares / count + 1e-4).sqrt();
                y[i] = hat * f64::from(gamma[ch]) + f64::from(beta[ch]);
            }
            running_mean.push(0.9 * 0.5 + 0.1 * mean);
            running_variance.push(0.9 * 0.5 + 0.1 * squares / (count - 1.0));
        }
        close("batch norm", results(&single, &numbers, 0), &y, 1e-4);
        close("running mean", &numbers["op.x3"], &running_mean, 1e-5);
        close("running variance", &numbers["op.x4"], &running_variance, 1e-5);
        let (rows, n) = (b, p);
        let feature = w(&[n as u64]);
        let op = Op::LayerNorm { epsilon: 1e-4 };
        let (single, numbers) = play(op, &[w(&[rows as u64, n as u64]), feature.clone(), feature], seed);
        let x = f64s(single.operand(0));
        let mut y = Vec::new();
        for row in x.chunks(n) {
            let mean = row.iter().sum::<f64>() / n as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            y.extend(row.iter().enumerate().map(|(i, x)| {
                (x - mean) / (variance + 1e-4).sqrt() * f64::from(single.operand(1)[i])
                    + f64::from(single.operand(2)[i])
            }));
        }
        close("layer norm", results(&single, &numbers, 0), &y, 1e-4);
        let beta = [0.75, 0.6][random.usize(..2)];
        let norm = ResponseNorm { size: random.u64(1..6), alpha: 0.3, beta, bias: 2.0 };
        let (single, numbers) = play(Op::ResponseNorm(norm), &[w(&[b as u64, c as u64, p as u64, 1])], seed);
        let (x, size) = (f64s(single.operand(0)), norm.size as usize);
        let y: Vec<f64> = (0..x.len())
            .map(|i| {
                let (ch, pixel, sample) = (i / p % c, i % p, i / p / c);
                let window = ch.saturating_sub(size / 2)..(ch + size.div_ceil(2)).min(c);
                let squares: f64 = window.map(|ch| x[(sample * c + ch) * p + pixel].powi(2)).sum();
                x[i] / (2.0 + f64::from(norm.alpha) / size as f64 * squares).powf(f64::from(beta))
            })
            .collect();
        close("response norm", results(&single, &numbers, 0), &y, 1e-5);
    }
}

#[test]
fn pooling() {
    let mut random = fastrand::Rng::with_seed(8);
    for seed in 0..60 {
        let window = [random.u64(1..5), random.u64(1..5)];
        let half = |w: u64, random: &mut fastrand::Rng| random.u64(..=w / 2);
        let padding = [0, 1, 0, 1].map(|axis: usize| half(window[axis], &mut random));
        let count_padding = random.bool();
        let kind = if random.bool() { PoolKind::Max } else { PoolKind::Average { count_padding } };
        let stride = [random.u64(1..4), random.u64(1..4)];
        let pool = Pool { kind, window, stride, padding, ceil: random.bool() };
        let x =
            [random.u64(1..4), random.u64(1..4), window[0] + random.u64(..20), window[1] + random.u64(..20)];
        let (single, numbers) = play(Op::Pool(pool), &[w(&x)], seed);
        let y = single.program.graph.value(single.program.graph.nodes[0].outputs[0]).shape;
        let (h, v) = (y.dim(2) as i64, y.dim(3) as i64);
        let numbers_in = f64s(single.operand(0));
        let mut expected = Vec::new();
        for plane in numbers_in.chunks((x[2] * x[3]) as usize) {
            for i in 0..h * v {
                let range = |axis: usize, i: i64| {
                    let start = i * stride[axis] as i64 - padding[axis] as i64;
                    let end = (start + window[axis] as i64).min((x[axis + 2] + padding[axis + 2]) as i64);
                    (start.max(0)..end.min(x[axis + 2] as i64), end - start)
                };
                let ((rows, high), (columns, wide)) = (range(0, i / v), range(1, i % v));
                let inside: Vec<f64> = rows
                    .flat_map(|r| columns.clone().map(move |c| (r, c)))
                    .map(|(r, c)| plane[(r * x[3] as i64 + c) as usize])
                    .collect();
                expected.push(match kind {
                    PoolKind::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    PoolKind::Average { count_padding: true } => {
                        inside.iter().sum::<f64>() / (high * wide) as f64
                    }
                    PoolKind::Average { .. } => inside.iter().sum::<f64>() / inside.len().max(1) as f64,
                });
            }
        }
        close(&format!("{pool:?}"), results(&single, &numbers, 0), &expected, 1e-5);
    }
}

#[test]
fn functions() {
    let erf = |x: f64| {
        // Maclaurin series below, continued fraction above.
        if x.abs() < 3.0 {
            let mut term = x;
            let mut sum = x;
            for n in 1..80 {
                term *= -x * x / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * 2.0 / std::f64::consts::PI.sqrt()
        } else {
            let z = x.abs();
            let tail = (1..60).rev().fold(z, |t, k| z + f64::from(k) / 2.0 / t);
            (1.0 - (-z * z).exp() / tail / std::f64::consts::PI.sqrt()).copysign(x)
        }
    };
    let functions: [(Activation, &dyn Fn(f64) -> f64); 7] = [
        (Activation::Relu, &|x| x.max(0.0)),
        (Activation::Relu6, &|x| x.clamp(0.0, 6.0)),
        (Activation::LeakyRelu { slope: 0.2 }, &|x| if x > 0.0 { x } else { 0.2 * x }),
        (Activation::Sigmoid, &|x| 1.0 / (1.0 + (-x).exp())),
        (Activation::Tanh, &f64::tanh),
        (Activation::Gelu, &|x| x * 0.5 * (1.0 + erf(x / 2f64.sqrt()))),
        (Activation::GeluTanh, &|x| {
            x * 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh())
        }),
    ];
    for (kind, function) in functions {
        let mut single = Single::new(Op::Activate(kind), &[w(&[999])], 1, false, 3, 2);
        let spread: Vec<f32> = (0..999).map(|i| (i as f32 - 499.0) / 25.0).collect();
        Arc::get_mut(&mut single.given).expect("ours").insert("op.x0".into(), spread.clone());
        let numbers = run(&single.program, &single.given, 2, 1);
        let expected: Vec<f64> = spread.iter().map(|x| function(f64::from(*x))).collect();
        close(kind.name(), results(&single, &numbers, 0), &expected, 1e-6);
    }
    for x in [-200.0f32, -87.5, -87.0, -1.0, -1e-7, 0.0, 1e-7, 1.0, 88.0, 88.2, 200.0] {
        let (found, expected) = (tiercel_kernels::math::exp(x), f64::from(x.clamp(-87.3, 88.3)).exp() as f32);
        assert!((found / expected - 1.0).abs() < 5e-7, "exp {x}: {found} instead of {expected}");
    }
    assert!(tiercel_kernels::math::exp(f32::NAN).is_nan());
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let all: Vec<f64> = row.iter().map(|x| (x - top).exp()).collect();
    let sum: f64 = all.iter().sum();
    all.iter().map(|x| x / sum).collect()
}

#[test]
fn losses_and_attention() {
    let mut random = fastrand::Rng::with_seed(9);
    for seed in 0..20 {
        let (rows, n) = (random.usize(1..9), random.usize(1..50));
        let (single, numbers) = play(Op::Softmax, &[w(&[rows as u64, n as u64])], seed);
        let expected: Vec<f64> = f64s(single.operand(0)).chunks(n).flat_map(softmax).collect();
        close("softmax", results(&single, &numbers, 0), &expected, 1e-6);
        let ids = Ids(Shape::from([rows as u64]), n as u64);
        let (single, numbers) = play(Op::CrossEntropy, &[w(&[rows as u64, n as u64]), ids], seed);
        let labels = single.operand(1);
        let p: Vec<f64> = f64s(single.operand(0)).chunks(n).flat_map(softmax).collect();
        let loss = -(0..rows).map(|r| p[r * n + labels[r] as usize].ln()).sum::<f64>() / rows as f64;
        close("cross-entropy", results(&single, &numbers, 0), &[loss], 1e-5);
        close("probabilities", results(&single, &numbers, 1), &p, 1e-6);
        // More positions than are summed at once, whole strips of them, and any.
        let t = [300, 300, 64, 32].get(seed as usize).copied().unwrap_or(random.usize(1..80));
        let (b, heads, head) = (random.usize(1..3), random.usize(1..4), random.usize(1..40));
        let (causal, width) = (seed.is_multiple_of(2), heads * head);
        let x = w(&[b as u64, t as u64, width as u64]);
        let op = Op::Attention(Attention { heads: heads as u64, causal, dropout: 0.0, seed: 1 });
        let (single, numbers) = play(op, &[x.clone(), x.clone(), x], seed);
        let [q, k, v] = [0, 1, 2].map(|i| f64s(single.operand(i)));
        let all: Vec<_> =
            (0..b).flat_map(|s| (0..heads).flat_map(move |h| (0..t).map(move |i| (s, h, i)))).collect();
        let at = |s: usize, h: usize, i: usize, d: usize| (s * t + i) * width + h * head + d;
        let dot = |a: &[f64], i: usize, b: &[f64], j: usize| -> f64 {
            (0..head).map(|d| a[i + d] * b[j + d]).sum()
        };
        let factor = 1.0 / (head as f64).sqrt();
        let row = |(s, h, i): (usize, usize, usize)| {
            let seen = if causal { i + 1 } else { t };
            let score = |j: usize| factor * dot(&q, at(s, h, i, 0), &k, at(s, h, j, 0));
            softmax(&(0..seen).map(score).collect::<Vec<_>>())
        };
        let mut y = vec![0.0; q.len()];
        for (s, h, i) in all.iter().copied() {
            for (j, p) in row((s, h, i)).into_iter().enumerate() {
                (0..head).for_each(|d| y[at(s, h, i, d)] += p * v[at(s, h, j, d)]);
            }
        }
        close("attention", results(&single, &numbers, 0), &y, 1e-5);
        let (dy, mut slopes) = (slopes(&single, &y), [0; 3].map(|_| vec![0.0; q.len()]));
        for (s, h, i) in all {
            let (p, place) = (row((s, h, i)), |j| at(s, h, j, 0));
            let dp: Vec<f64> = (0..p.len()).map(|j| dot(&dy, place(i), &v, place(j))).collect();
            let mean: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
            for j in 0..p.len() {
                let ds = factor * p[j] * (dp[j] - mean);
                for d in 0..head {
                    slopes[0][place(i) + d] += ds * k[place(j) + d];
                    slopes[1][place(j) + d] += ds * q[place(i) + d];
                    slopes[2][place(j) + d] += p[j] * dy[place(i) + d];
                }
            }
        }
        for (operand, slope) in slopes.iter().enumerate() {
            let found = gradient(&single, &numbers, operand, y.len());
            close(&format!("gradient {operand} of attention over {t}"), &found, slope, 1e-4);
        }
    }
}

#[test]
fn tables_cells_and_interactions() {
    let mut random = fastrand::Rng::with_seed(10);
    for seed in 0..20 {
        let (rows, width, n, bag) =
            (random.u64(1..30), random.u64(1..40), random.u64(1..20), random.u64(1..4));
        let operands = [w(&[rows, width]), Ids(Shape::from([n, bag]), rows)];
        let (single, numbers) = play(Op::Embedding { bag: true }, &operands, seed);
        let (table, ids, width) = (f64s(single.operand(0)), single.operand(1), width as usize);
        let one = |i: usize| {
            let bag = &ids[i / width * bag as usize..][..bag as usize];
            bag.iter().map(|id| table[*id as usize * width + i % width]).sum::<f64>()
        };
        let expected: Vec<f64> = (0..n as usize * width).map(one).collect();
        close("embedding", results(&single, &numbers, 0), &expected, 1e-6);

        let (b, d, count) = (random.usize(1..20), random.usize(1..40), random.usize(1..30));
        let (single, numbers) = play(Op::DotInteraction, &vec![w(&[b as u64, d as u64]); count], seed);
        let features: Vec<Vec<f64>> = (0..count).map(|i| f64s(single.operand(i))).collect();
        let mut expected = Vec::new();
        for s in 0..b {
            let row = |i: usize| &features[i][s * d..(s + 1) * d];
            expected.extend_from_slice(row(0));
            for i in 0..count {
                expected.extend((0..i).map(|j| row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum::<f64>()));
            }
        }
        close("interaction", results(&single, &numbers, 0), &expected, 1e-5);

        let (b, m, n) = (random.usize(1..5), random.usize(1..20), random.usize(1..20));
        let [bb, mm, nn] = [b, m, n].map(|x| x as u64);
        let operands =
            [w(&[bb, mm]), w(&[bb, nn]), w(&[bb, nn]), w(&[4 * nn, mm]), w(&[4 * nn, nn]), w(&[4 * nn])];
        let (single, numbers) = play(Op::LstmCell, &operands, seed);
        let [x, h, c, wx, wh, bias] = [0, 1, 2, 3, 4, 5].map(|i| f64s(single.operand(i)));
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let (mut new_h, mut new_c) = (Vec::new(), Vec::new());
        for s in 0..b {
            let gate = |g: usize| {
                let from =
                    |w: &[f64], x: &[f64], m: usize| (0..m).map(|d| w[g * m + d] * x[s * m + d]).sum::<f64>();
                from(&wx, &x, m) + from(&wh, &h, n) + bias[g]
            };
            for k in 0..n {
                let (i, f, g, o) = (gate(k), gate(n + k), gate(2 * n + k), gate(3 * n + k));
                new_c.push(sigmoid(f) * c[s * n + k] + sigmoid(i) * g.tanh());
                new_h.push(sigmoid(o) * new_c[s * n + k].tanh());
            }
        }
        close("lstm h", results(&single, &numbers, 0), &new_h, 1e-5);
        close("lstm c", results(&single, &numbers, 1), &new_c, 1e-5);
    }
}

#[test]
fn dropout_keeps_what_its_rate_says_and_changes_with_iterations() {
    let single = Single::new(Op::Dropout { rate: 0.3, seed: 5 }, &[w(&[200, 500])], 1, false, 1, 2);
    let mut given = (*single.given).clone();
    given.insert("op.x0".into(), vec![1.0; 100_000]);
    let given = Arc::new(given);
    let one = run(&single.program, &given, 2, 1);
    let y = results(&single, &one, 0);
    let kept = y.iter().filter(|y| **y != 0.0).count() as f64 / y.len() as f64;
    assert!((kept - 0.7).abs() < 0.01, "{kept} are kept");
    assert!(y.iter().all(|y| *y == 0.0 || *y == 1.0 / 0.7), "the rest is scaled");
    let two = run(&single.program, &given, 2, 2);
    assert!(results(&single, &two, 0) != y, "another iteration drops others");
}

/// Trains a table or a weight for some steps and returns it, and the gradients that it had: those of a loss of sums.
#[test]
fn updates() {
    let sgd = Optimizer::Sgd { rate: 0.1, momentum: 0.9, decay: 0.01 };
    let adam = Optimizer::AdamW { rate: 0.1, betas: [0.9, 0.99], epsilon: 1e-6, decay: 0.02 };
    let plain = Optimizer::Sgd { rate: 0.1, momentum: 0.0, decay: 0.01 };
    for (optimizer, rows) in [sgd, adam, plain].into_iter().flat_map(|o| [(o, false), (o, true)]) {
        let mut b = Builder::new("update", DType::F32);
        b.layer("op");
        let (shape, numbers) = if rows { ([5, 3], vec![1u64, 4, 1, 1]) } else { ([4, 3], vec![]) };
        let table = b.weight("table", shape, Init::Constant(0.0));
        let y = if rows {
            let ids = b.ids("ids", [4], 5);
            b.apply(Op::Embedding { bag: false }, &[table, ids])
        } else {
            b.apply(Op::Scale { factor: 1.0 }, &[table])
        };
        let targets = b.outside("targets", [4, 3].into(), DType::F32, Init::Constant(0.5));
        let loss = b.apply(Op::BinaryCrossEntropy, &[y, targets]);
        b.keep(loss);
        b.train(&[loss], optimizer);
        let program =
            prepare(Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default()), 2);
        let first = normal(&mut fastrand::Rng::with_seed(3), (shape[0] * shape[1]) as usize);
        let mut given = Numbers::from([("op.table".to_string(), first.clone())]);
        given.insert("ids".into(), numbers.iter().map(|n| *n as f32).collect());
        let found = run(&program, &Arc::new(given), 2, 3);
        let mut weights = f64s(&first);
        let (mut m, mut s) = (vec![0.0; weights.len()], vec![0.0; weights.len()]);
        for step in 1..=3 {
            let mut g = vec![0.0; weights.len()];
            for r in 0..4 {
                let row = if rows { numbers.get(r).map_or(0, |n| *n as usize) } else { r };
                for k in 0..3 {
                    let y = weights[row * 3 + k];
                    g[row * 3 + k] += (1.0 / (1.0 + (-y).exp()) - 0.5) / 12.0;
                }
            }
            for i in (0..weights.len()).filter(|i| !rows || numbers.contains(&(*i as u64 / 3))) {
                match optimizer {
                    Optimizer::Sgd { rate, momentum, decay } => {
                        m[i] = f64::from(momentum) * m[i] + g[i] + f64::from(decay) * weights[i];
                        weights[i] -= f64::from(rate) * m[i];
                    }
                    Optimizer::AdamW { rate, betas, epsilon, decay } => {
                        let [b1, b2] = betas.map(f64::from);
                        m[i] = b1 * m[i] + (1.0 - b1) * g[i];
                        s[i] = b2 * s[i] + (1.0 - b2) * g[i] * g[i];
                        let (mean, square) = (m[i] / (1.0 - b1.powi(step)), s[i] / (1.0 - b2.powi(step)));
                        weights[i] -= f64::from(rate)
                            * (mean / (square.sqrt() + f64::from(epsilon)) + f64::from(decay) * weights[i]);
                    }
                }
            }
        }
        close(&format!("{optimizer:?} of rows: {rows}"), &found["op.table"], &weights, 1e-5);
    }
}

#[test]
fn bf16_is_f32_rounded() {
    let net = |dtype| {
        let mut b = Builder::new("half", dtype);
        b.layer("op");
        let x = b.input("x", [16, 3, 8, 8]);
        let x = b.conv(x, tiercel_workload::graph::ConvLayer::new(8, 3).same());
        let x = b.batch_norm(x);
        let x = b.relu(x);
        let x = b.max_pool(x, 2, 2, 0);
        let x = b.flatten(x);
        b.layer("out");
        let logits = b.linear(x, 10);
        let loss = b.cross_entropy(logits, "labels");
        b.train(&[loss], Optimizer::MOMENTUM);
        prepare(Program::new(b.finish().expect("it fits"), schedule::ScheduleOptions::default()), 2)
    };
    let run = |dtype| run(&net(dtype), &Arc::new(Numbers::new()), 2, 3);
    let (narrow, wide) = (run(DType::Bf16), run(DType::F32));
    let loss = |numbers: &Numbers| numbers["out.cross-entropy"][0];
    assert!((loss(&narrow) - loss(&wide)).abs() < 0.05, "{} and {}", loss(&narrow), loss(&wide));
    let apart = |name: &str| {
        let pairs = narrow[name].iter().zip(&wide[name]);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    assert!(apart("out.weight") < 0.02 && apart("op.weight") < 0.02, "weights stay together");
    assert!(narrow["out.weight.master"] != narrow["out.weight"], "the master has more digits");
}

#[test]
fn what_cannot_be_is_an_error() {
    let single = Single::new(Op::CrossEntropy, &[w(&[2, 3]), Ids(Shape::from([2]), 3)], 1, true, 1, 1);
    let mut given = (*single.given).clone();
    given.insert("op.x1".into(), vec![1.0, 3.0]);
    let failed =
        std::panic::catch_unwind(|| run(&single.program, &Arc::new(given), 1, 1)).expect_err("a bad label");
    let text = failed.downcast_ref::<String>().expect("a message");
    assert!(text.contains("id 3 at position 1 is not below 3") && text.contains("cross-entropy"), "{text}");
    let bare = Program::new(single.program.graph.clone(), schedule::ScheduleOptions::default());
    let missing = tiercel_kernels::Library::new(&bare, 1).err().expect("there is no workspace").to_string();
    assert!(missing.contains("workspace"), "{missing}");
}
