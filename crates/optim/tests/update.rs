//! The pass over memory: same bits for any number of threads and on every instruction set, in the order of operations that
//! `torch.optim` has, not-a-numbers and infinities included.

use std::sync::Mutex;

use tiercel_optim::{
    Adam, Bf16, Decay, F16, Gradient, Level, Number, Output, Part, Pool, Rule, Sgd, TILE, level,
    sum_of_squares, update_at,
};

/// Numbers of many sizes, some of them extreme.
fn numbers(seed: u64, len: usize, extremes: bool) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let special = [0.0, -0.0, 1e-45, -1e-40, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    (0..len)
        .map(|_| match random.u32(0..20) {
            0 if extremes => special[random.usize(0..special.len())],
            1 => f32::from_bits(random.u32(0..0x4000_0000)),
            _ => (random.f32() - 0.5) * 2f32.powi(random.i32(-20..4)),
        })
        .collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|n| if n.is_nan() { 0x7fc0_0000 } else { n.to_bits() }).collect()
}

fn halves(numbers: &[u16], exponent: u16) -> Vec<u16> {
    let nan = |n: u16| n & 0x7fff > exponent;
    numbers.iter().map(|n| if nan(*n) { 0x7fff } else { *n }).collect()
}

fn rules() -> Vec<Rule> {
    let coupled = Adam { kind: Decay::Coupled, decay: 0.1, maximize: true, ..Adam::default() };
    let far = Adam { betas: [0.3, 0.95], decay: 0.0, epsilon: 1e-6, ..Adam::default() };
    let sgd = Sgd { decay: 1e-2, ..Sgd::default() };
    vec![
        Rule::Adam(Adam::default()),
        Rule::Adam(coupled),
        Rule::Adam(far),
        Rule::Sgd(sgd),
        Rule::Sgd(Sgd { nesterov: true, maximize: true, ..sgd }),
        Rule::Sgd(Sgd { momentum: 0.0, ..sgd }),
        Rule::Sgd(Sgd { dampening: 0.5, ..sgd }),
    ]
}

/// Three steps; the bits of all that came out.
fn run(level: Level, threads: usize, rule: Rule, len: usize, kind: usize) -> (Vec<Vec<u32>>, Vec<u16>) {
    let mut pool = Pool::new(threads);
    let mut parameter = numbers(1, len, true);
    let (mut first, mut second) = (vec![0f32; len], vec![0f32; len]);
    let mut out16 = vec![0u16; len];
    for step in 1..=3 {
        let gradient = numbers(10 + step, len, true);
        let to_bf16: Vec<Bf16> = gradient.iter().map(|g| Bf16::narrow(*g)).collect();
        let to_f16: Vec<F16> = gradient.iter().map(|g| F16::narrow(*g)).collect();
        let mut bf16 = vec![Bf16(0); len];
        let mut f16 = vec![F16(0); len];
        let part = Part {
            parameter: &mut parameter,
            first: &mut first,
            second: &mut second,
            gradient: match kind {
                0 => Gradient::F32(&gradient),
                1 => Gradient::Bf16(&to_bf16),
                _ => Gradient::F16(&to_f16),
            },
            output: match kind {
                0 => Output::None,
                1 => Output::Bf16(&mut bf16),
                _ => Output::F16(&mut f16),
            },
        };
        update_at(level, &mut pool, rule, step, [0.5, 0.75], part, &|_| ());
        if kind == 1 {
            out16 = halves(&bf16.iter().map(|n| n.0).collect::<Vec<_>>(), 0x7f80);
        } else if kind == 2 {
            out16 = halves(&f16.iter().map(|n| n.0).collect::<Vec<_>>(), 0x7c00);
        }
    }
    (vec![bits(&parameter), bits(&first), bits(&second)], out16)
}

#[test]
fn threads_and_instruction_sets_change_no_bit() {
    for rule in rules() {
        for kind in 0..3 {
            for len in [0, 1, 17, TILE - 1, 3 * TILE + 5] {
                let expected = run(Level::Portable, 1, rule, len, kind);
                for (name, level) in Level::ALL.iter().filter(|(_, known)| *known <= level()) {
                    for threads in [1, 3] {
                        let found = run(*level, threads, rule, len, kind);
                        assert!(found == expected, "{rule:?} {kind} {len} {name} {threads}");
                    }
                }
            }
        }
    }
}

/// AdamW as torch writes it, an operation at a time.
fn reference(adam: Adam, step: u64, g: f32, [p, m, v]: [f32; 3]) -> [f32; 3] {
    let [first, second] = adam.betas;
    let p = p * (1.0 - adam.rate * adam.decay) as f32;
    let m = ((1.0 - first) as f32).mul_add(g - m, m); // lerp
    let v = v * second as f32;
    let v = ((1.0 - second) as f32 * g).mul_add(g, v); // addcmul
    let (c1, c2) = (1.0 - first.powf(step as f64), 1.0 - second.powf(step as f64));
    let below = v.sqrt() / c2.sqrt() as f32 + adam.epsilon as f32;
    [p + (-(adam.rate / c1) as f32 * m) / below, m, v] // addcdiv
}

#[test]
fn adamw_is_what_torch_computes_an_operation_at_a_time() {
    let (len, adam) = (5000, Adam { rate: 3e-4, decay: 0.1, ..Adam::default() });
    let mut parameter = numbers(1, len, true);
    let (mut first, mut second) = (vec![0f32; len], vec![0f32; len]);
    let mut expected: Vec<[f32; 3]> = parameter.iter().map(|p| [*p, 0.0, 0.0]).collect();
    let mut pool = Pool::new(2);
    for step in 1..=20 {
        let gradient = numbers(100 + step, len, step % 3 == 0);
        for (numbers, g) in expected.iter_mut().zip(&gradient) {
            *numbers = reference(adam, step, *g, *numbers);
        }
        let part = Part {
            parameter: &mut parameter,
            first: &mut first,
            second: &mut second,
            gradient: Gradient::F32(&gradient),
            output: Output::None,
        };
        update_at(level(), &mut pool, Rule::Adam(adam), step, [1.0, 1.0], part, &|_| ());
    }
    for (index, found) in [&parameter, &first, &second].into_iter().enumerate() {
        let expected: Vec<f32> = expected.iter().map(|numbers| numbers[index]).collect();
        assert_eq!(bits(found), bits(&expected), "array {index}");
    }
    assert!(parameter.iter().any(|p| p.is_nan()) && parameter.iter().any(|p| p.is_finite()));
}

#[test]
fn every_tile_is_announced_once() {
    let len = 5 * TILE + 100;
    let (mut parameter, gradient) = (numbers(1, len, false), numbers(2, len, false));
    let (mut first, mut second) = (vec![0f32; len], vec![0f32; len]);
    let mut out = vec![0f32; len];
    let seen = Mutex::new(Vec::new());
    let part = Part {
        parameter: &mut parameter,
        first: &mut first,
        second: &mut second,
        gradient: Gradient::F32(&gradient),
        output: Output::F32(&mut out),
    };
    let mut pool = Pool::new(3);
    update_at(level(), &mut pool, Rule::Adam(Adam::default()), 1, [1.0; 2], part, &|range| {
        seen.lock().expect("nobody panics").push(range);
    });
    let mut seen = seen.into_inner().expect("nobody panics");
    seen.sort_by_key(|range| range.start);
    let mut ends = seen.iter().map(|range| range.end);
    assert!(seen[0].start == 0 && seen.iter().skip(1).map(|range| range.start).eq(ends.clone().take(5)));
    assert_eq!(ends.next_back(), Some(len));
    assert_eq!(parameter, out);
}

#[test]
fn sums_of_squares_are_exact_enough_the_same_and_find_what_is_not_finite() {
    let mut gradient = numbers(5, 3 * TILE + 7, false);
    let right: f64 = gradient.iter().map(|g| f64::from(*g) * f64::from(*g)).sum();
    let sums: Vec<f64> =
        [1, 2, 5].map(|t| sum_of_squares(&mut Pool::new(t), Gradient::F32(&gradient))).into();
    assert!((sums[0] / right - 1.0).abs() < 1e-12);
    assert!(sums.iter().all(|sum| sum.to_bits() == sums[0].to_bits()));
    gradient[2 * TILE] = f32::MAX;
    assert!(sum_of_squares(&mut Pool::new(2), Gradient::F32(&gradient)).is_finite());
    for wrong in [f32::NAN, f32::INFINITY] {
        gradient[TILE + 3] = wrong;
        assert!(!sum_of_squares(&mut Pool::new(2), Gradient::F32(&gradient)).is_finite());
    }
}
