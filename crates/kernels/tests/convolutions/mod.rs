//! Convolutions and their gradients against plain loops in f64: random shapes, and those that are computed in each way.

use super::*;

/// A convolution, pixel by pixel.
fn convolve(
    c: &Conv,
    x: &[f64],
    xs: Shape,
    w: &[f64],
    ws: Shape,
    bias: Option<&[f32]>,
    ys: Shape,
) -> Vec<f64> {
    let d = |s: Shape, axis| s.dim(axis) as i64;
    let mut y = vec![0.0; ys.elements() as usize];
    let (gx, gy) = (d(xs, 1) / c.groups as i64, d(ys, 1) / c.groups as i64);
    let at = |s: Shape, n: i64, ch: i64, i: i64, j: i64| {
        (((n * d(s, 1) + ch) * d(s, 2) + i) * d(s, 3) + j) as usize
    };
    for n in 0..d(xs, 0) {
        for cy in 0..d(ys, 1) {
            for cx in cy / gy * gx..(cy / gy + 1) * gx {
                for a in 0..d(ws, 2) {
                    for b in 0..d(ws, 3) {
                        let (a_, b_) = (a * c.dilation[0] as i64, b * c.dilation[1] as i64);
                        // The narrow side's pixel (i, j) meets the wide side's at i · stride + a − padding.
                        let (narrow, wide) = if c.transposed { (xs, ys) } else { (ys, xs) };
                        for i in 0..d(narrow, 2) {
                            for j in 0..d(narrow, 3) {
                                let r = i * c.stride[0] as i64 + a_ - c.padding[0] as i64;
                                let s = j * c.stride[1] as i64 + b_ - c.padding[1] as i64;
                                if r < 0 || s < 0 || r >= d(wide, 2) || s >= d(wide, 3) {
                                    continue;
                                }
                                if c.transposed {
                                    let f = w[at(ws, cx, cy % gy, a, b)];
                                    y[at(ys, n, cy, r, s)] += f * x[at(xs, n, cx, i, j)];
                                } else {
                                    let f = w[at(ws, cy, cx % gx, a, b)];
                                    y[at(ys, n, cy, i, j)] += f * x[at(xs, n, cx, r, s)];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    if let Some(bias) = bias {
        let plane = (d(ys, 2) * d(ys, 3)) as usize;
        y.iter_mut().enumerate().for_each(|(i, y)| *y += f64::from(bias[i / plane % bias.len()]));
    }
    y
}

#[test]
fn convolutions() {
    let mut random = fastrand::Rng::with_seed(5);
    for seed in 0..80 {
        let transposed = seed % 3 == 2;
        let groups = [1, 1, 2, 3][random.usize(..4)];
        let depthwise = random.u8(..4) == 0;
        let (mut from, mut to) = (groups * random.u64(1..10), groups * random.u64(1..20));
        let groups = if depthwise { from } else { groups };
        to = if depthwise { from } else { to };
        if seed % 11 == 0 && !depthwise {
            (from, to) = (groups * 40, groups * 33);
        }
        let window = [random.u64(1..5), random.u64(1..5)];
        let stride = [random.u64(1..4), random.u64(1..4)];
        let dilation = [random.u64(1..3), random.u64(1..3)];
        let padding = [0; 4].map(|_: u64| random.u64(..4));
        let reach = |axis: usize| (window[axis] - 1) * dilation[axis] + 1;
        let side = |axis: usize, random: &mut fastrand::Rng| {
            let free = reach(axis).saturating_sub(padding[axis] + padding[axis + 2]).max(1);
            let first =
                if transposed { (padding[axis] + padding[axis + 2]) / stride[axis] + 2 } else { free };
            first + random.u64(..12)
        };
        let x = [random.u64(1..5), from, side(0, &mut random), side(1, &mut random)];
        let output_padding =
            if transposed { [random.u64(..stride[0]), random.u64(..stride[1])] } else { [0; 2] };
        let conv = Conv { stride, padding, dilation, groups, transposed, output_padding };
        let weight = if transposed {
            [from, to / groups, window[0], window[1]]
        } else {
            [to, from / groups, window[0], window[1]]
        };
        let mut operands = vec![w(&x), w(&weight)];
        if random.bool() {
            operands.push(w(&[to]));
        }
        let (single, numbers) = play(Op::Conv(conv), &operands, seed);
        let ys = single.program.graph.value(single.program.graph.nodes[0].outputs[0]).shape;
        let bias = (operands.len() > 2).then(|| single.operand(2));
        let (xs, ws) = (Shape::from(x), Shape::from(weight));
        let expected = convolve(&conv, &f64s(single.operand(0)), xs, &f64s(single.operand(1)), ws, bias, ys);
        close(&format!("{conv:?} of {xs} with {ws}"), results(&single, &numbers, 0), &expected, 2e-4);
    }
}

/// Windows that are the whole image, with something that is added to every channel.
#[test]
fn whole_images_have_a_bias() {
    for (seed, (transposed, from, to, side)) in
        [(false, 20, 3, 4), (false, 9, 12, 5), (true, 30, 4, 4), (true, 6, 3, 3)].into_iter().enumerate()
    {
        let conv = Conv { transposed, ..Conv::default() };
        let x = if transposed { [3, from, 1, 1] } else { [3, from, side, side] };
        let weight = if transposed { [from, to, side, side] } else { [to, from, side, side] };
        let (single, numbers) = play(Op::Conv(conv), &[w(&x), w(&weight), w(&[to])], seed as u64);
        let ys = single.program.graph.value(single.program.graph.nodes[0].outputs[0]).shape;
        let (xs, ws, bias) = (Shape::from(x), Shape::from(weight), Some(single.operand(2)));
        let expected = convolve(&conv, &f64s(single.operand(0)), xs, &f64s(single.operand(1)), ws, bias, ys);
        close(&format!("{conv:?} of {xs} with {ws}"), results(&single, &numbers, 0), &expected, 2e-4);
    }
}

/// The gradient of a convolution by its weights, pixel by pixel.
fn weigh(c: &Conv, x: &[f64], xs: Shape, dy: &[f64], ys: Shape, ws: Shape) -> Vec<f64> {
    let d = |s: Shape, axis| s.dim(axis) as i64;
    let at = |s: Shape, n: i64, ch: i64, i: i64, j: i64| {
        (((n * d(s, 1) + ch) * d(s, 2) + i) * d(s, 3) + j) as usize
    };
    let (narrow, wide) = if c.transposed { (xs, ys) } else { (ys, xs) };
    let (small, large) = if c.transposed { (x, dy) } else { (dy, x) };
    let (gn, gw) = (d(narrow, 1) / c.groups as i64, d(wide, 1) / c.groups as i64);
    let mut dw = vec![0.0; ws.elements() as usize];
    for k in 0..d(narrow, 1) {
        for ch in 0..gw {
            for a in 0..d(ws, 2) {
                for b in 0..d(ws, 3) {
                    let mut sum = 0.0;
                    for (n, i) in (0..d(xs, 0)).flat_map(|n| (0..d(narrow, 2)).map(move |i| (n, i))) {
                        for j in 0..d(narrow, 3) {
                            let r = i * c.stride[0] as i64 + a * c.dilation[0] as i64 - c.padding[0] as i64;
                            let s = j * c.stride[1] as i64 + b * c.dilation[1] as i64 - c.padding[1] as i64;
                            if (0..d(wide, 2)).contains(&r) && (0..d(wide, 3)).contains(&s) {
                                let other = large[at(wide, n, k / gn * gw + ch, r, s)];
                                sum += small[at(narrow, n, k, i, j)] * other;
                            }
                        }
                    }
                    dw[at(ws, k, ch, a, b)] = sum;
                }
            }
        }
    }
    dw
}

/// Shapes that are computed in every way there is: in panels, in planes of whole images, of several and of parts of
/// them, with all phases of a stride; forward, and both gradients.
#[test]
fn large_convolutions() {
    let plain = Conv::default();
    let same = |k: u64| Conv { padding: [k / 2; 4], ..plain };
    let up = |stride| Conv { transposed: true, stride: [stride; 2], padding: [1; 4], ..plain };
    let whole = Conv { transposed: true, ..plain };
    let cases: [(Conv, [u64; 4], u64, [u64; 2]); 52] = [
        (same(3), [2, 3, 40, 37], 20, [3, 3]),
        (Conv { stride: [2; 2], ..same(7) }, [2, 3, 45, 50], 18, [7, 7]),
        (same(3), [1, 66, 60, 61], 3, [3, 3]),
        (Conv { stride: [2; 2], ..same(5) }, [1, 3, 96, 100], 64, [5, 5]),
        (Conv { groups: 8, ..same(3) }, [9, 32, 9, 8], 24, [3, 3]),
        (Conv { groups: 4, stride: [2, 3], ..same(5) }, [5, 16, 12, 19], 16, [5, 5]),
        (Conv { groups: 24, ..same(3) }, [17, 24, 7, 7], 24, [3, 3]),
        (Conv { groups: 24, stride: [2; 2], ..same(5) }, [3, 24, 33, 34], 48, [5, 5]),
        (Conv { groups: 8, padding: [0, 2, 2, 1], ..plain }, [2, 8, 5, 3], 8, [3, 3]),
        (Conv { groups: 3, ..same(5) }, [2, 3, 20, 37], 3, [5, 5]),
        (Conv { groups: 4, padding: [4, 0, 3, 3], ..plain }, [3, 4, 2, 9], 4, [5, 5]),
        (Conv { groups: 8, ..same(5) }, [3, 8, 4, 4], 8, [5, 5]),
        (Conv { groups: 2, ..same(3) }, [2, 2, 71, 67], 2, [3, 3]),
        (Conv { groups: 2, padding: [2, 0, 1, 2], ..plain }, [2, 2, 62, 90], 4, [3, 3]),
        (Conv { groups: 1, ..same(3) }, [2, 1, 450, 15], 1, [3, 3]),
        (Conv { groups: 4, ..up(1) }, [3, 4, 6, 18], 4, [3, 3]),
        (Conv { groups: 3, stride: [2; 2], ..same(3) }, [2, 3, 17, 41], 3, [3, 3]),
        (Conv { groups: 8, stride: [2; 2], ..same(3) }, [2, 8, 6, 7], 8, [3, 3]),
        (Conv { groups: 3, stride: [2; 2], ..same(5) }, [2, 3, 20, 70], 3, [5, 5]),
        (Conv { groups: 4, stride: [2; 2], padding: [0, 1, 2, 2], ..plain }, [2, 4, 10, 16], 4, [5, 5]),
        (Conv { groups: 8, stride: [2; 2], padding: [3, 4, 1, 0], ..plain }, [2, 8, 7, 5], 8, [5, 5]),
        (Conv { groups: 4, output_padding: [1; 2], ..up(2) }, [2, 4, 5, 4], 4, [5, 5]),
        (Conv { dilation: [3, 2], padding: [4, 3, 4, 3], ..plain }, [2, 20, 30, 31], 24, [3, 3]),
        (same(3), [2, 30, 33, 20], 17, [3, 3]),
        (Conv { stride: [4; 2], padding: [2; 4], ..plain }, [1, 3, 67, 66], 17, [11, 11]),
        (up(2), [2, 20, 17, 18], 3, [4, 4]),
        (up(3), [2, 18, 9, 20], 20, [5, 4]),
        (Conv { groups: 12, ..up(2) }, [5, 12, 8, 8], 12, [3, 3]),
        (Conv { groups: 5, ..same(3) }, [3, 5, 9, 20], 15, [3, 3]),
        (Conv { groups: 4, stride: [2; 2], ..same(3) }, [9, 32, 16, 16], 32, [3, 3]),
        (Conv { groups: 2, padding: [2, 1, 0, 2], ..plain }, [5, 8, 7, 9], 6, [3, 3]),
        // So many channels that the weights' gradient takes some of them at a time.
        (same(3), [2, 50, 19, 21], 70, [3, 3]),
        (same(5), [3, 30, 12, 11], 20, [5, 5]),
        (Conv { stride: [2; 2], ..same(3) }, [2, 27, 40, 41], 50, [3, 3]),
        (Conv { groups: 2, ..same(3) }, [3, 90, 16, 16], 60, [3, 3]),
        // Windows that are the whole image.
        (plain, [5, 20, 4, 4], 1, [4, 4]),
        (Conv { stride: [2; 2], padding: [0, 0, 1, 1], ..plain }, [3, 40, 3, 5], 30, [3, 5]),
        (plain, [6, 17, 1, 1], 8, [1, 1]),
        (whole, [4, 30, 1, 1], 7, [4, 3]),
        (Conv { stride: [3; 2], ..whole }, [20, 9, 1, 1], 40, [2, 2]),
        // Every pixel a window, of few channels and more.
        (plain, [3, 12, 41, 39], 30, [1, 1]),
        (plain, [2, 70, 37, 33], 20, [1, 1]),
        (whole, [3, 20, 7, 9], 5, [1, 1]),
        (plain, [2, 300, 10, 11], 80, [1, 1]),
        (plain, [1, 5, 33, 31], 7, [1, 1]),
        (plain, [3, 20, 8, 12], 6, [1, 1]),
        (plain, [2, 30, 64, 50], 40, [1, 1]),
        // Strides whose phases are products, for all images at once and for some, with phases that no tap meets.
        (Conv { stride: [2; 2], ..plain }, [8, 200, 40, 39], 60, [1, 1]),
        (Conv { stride: [2; 2], ..same(3) }, [3, 80, 9, 12], 40, [3, 3]),
        (Conv { stride: [2; 2], groups: 2, ..same(3) }, [3, 80, 13, 11], 60, [3, 3]),
        (Conv { stride: [3, 2], ..same(5) }, [2, 30, 16, 15], 40, [5, 5]),
        (up(2), [3, 60, 5, 7], 40, [4, 4]),
    ];
    for (seed, (conv, x, to, window)) in cases.into_iter().enumerate() {
        let weight = match conv.transposed {
            true => [x[1], to / conv.groups, window[0], window[1]],
            false => [to, x[1] / conv.groups, window[0], window[1]],
        };
        let (single, numbers) = play(Op::Conv(conv), &[w(&x), w(&weight), w(&[to])], seed as u64);
        let ys = single.program.graph.value(single.program.graph.nodes[0].outputs[0]).shape;
        let (xs, ws) = (Shape::from(x), Shape::from(weight));
        let (x, f) = (f64s(single.operand(0)), f64s(single.operand(1)));
        let what = format!("{conv:?} of {xs} with {ws}");
        let y = convolve(&conv, &x, xs, &f, ws, Some(single.operand(2)), ys);
        close(&what, results(&single, &numbers, 0), &y, 1e-3);
        let (dy, gradient) = (slopes(&single, &y), |at| gradient(&single, &numbers, at, y.len()));
        let back = Conv { transposed: !conv.transposed, ..conv };
        close(&format!("dx of {what}"), &gradient(0), &convolve(&back, &dy, ys, &f, ws, None, xs), 1e-3);
        close(&format!("dw of {what}"), &gradient(1), &weigh(&conv, &x, xs, &dy, ys, ws), 1e-3);
        let mut db = vec![0.0; to as usize];
        let plane = (ys.dim(2) * ys.dim(3)) as usize;
        dy.chunks(plane).enumerate().for_each(|(at, dy)| db[at % to as usize] += dy.iter().sum::<f64>());
        close(&format!("db of {what}"), &gradient(2), &db, 1e-3);
    }
}
