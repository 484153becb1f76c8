//! The LSTM cell and its gradients. Gates stand in the order input, forget, cell, output.

use super::args::{Args, Call};
use super::gemm::{Bias, Extent, Matrix, Rows, multiply};
use super::linear::{self, column_sums};
use super::math::{sigmoid, tanh};
use super::shallow;
use super::simd::{Lying, wide};
use crate::KernelError;

/// Scratch numbers of any of the three kernels: that of its largest product.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    let back = call.op == tiercel_workload::graph::Op::LstmCellBackwardData;
    let extents = match call.op {
        tiercel_workload::graph::Op::LstmCell => {
            let (b, input, n) = (call.dim(0, 0), call.dim(0, 1), call.dim(1, 1));
            [Extent::new(b, 4 * n, input), Extent::new(b, 4 * n, n)]
        }
        tiercel_workload::graph::Op::LstmCellBackwardData => {
            let (b, n, input) = (call.dim(0, 0), call.dim(0, 1), call.dim(2, 1));
            [Extent::new(b, input, 4 * n), Extent::new(b, n, 4 * n)]
        }
        _ => {
            let (b, input, n) = (call.dim(0, 0), call.dim(0, 1), call.dim(1, 1));
            [Extent::new(4 * n, input, b), Extent::new(4 * n, n, b)]
        }
    };
    let room = |e: &Extent| match e.depth <= linear::SOME {
        _ if back => linear::slopes_scratch(*e),
        true => e.scratch().max(shallow::scratch(*e)),
        false => e.scratch(),
    };
    extents.iter().map(room).max().unwrap_or(0) * threads
}

wide! {
    /// Applies the functions of the gates, and makes the new state of one sample.
    fn open(gates: &mut [f32], c: &[f32], new_h: &mut [f32], new_c: &mut [f32]) {
        let n = c.len();
        let (i, rest) = gates.split_at_mut(n);
        let (f, rest) = rest.split_at_mut(n);
        let (g, o) = rest.split_at_mut(n);
        let o = &mut o[..n];
        let (new_h, new_c) = (&mut new_h[..n], &mut new_c[..n]);
        for k in 0..n {
            i[k] = sigmoid(i[k]);
            f[k] = sigmoid(f[k]);
            g[k] = tanh(g[k]);
            o[k] = sigmoid(o[k]);
            new_c[k] = f[k] * c[k] + i[k] * g[k];
            new_h[k] = o[k] * tanh(new_c[k]);
        }
    }
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, h, c) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (wx, wh, bias) = (args.read(3)?, args.read(4)?, args.read(5)?);
    let (new_h, new_c, gates) = (args.write(0)?, args.write(1)?, args.write(2)?);
    let (b, input, n) = (args.call.dim(0, 0), args.call.dim(0, 1), args.call.dim(1, 1));
    let scratch = args.scratch();
    for (x, w, depth, bias) in [(x, wx, input, Bias::Columns(bias)), (h, wh, n, Bias::Add)] {
        let (a, w) = (Matrix::by_line(x, depth), Matrix::by_line(w, depth));
        let e = Extent::new(b, 4 * n, depth);
        multiply(args.pool, e, &a, &w, &Rows::new(gates, e.columns, bias), scratch);
    }
    args.pool.rows3(8 * n, (gates, 4 * n), (new_h, n), (new_c, n), |start, gates, new_h, new_c| {
        let rows =
            gates.chunks_exact_mut(4 * n).zip(new_h.chunks_exact_mut(n).zip(new_c.chunks_exact_mut(n)));
        for (i, (gates, (new_h, new_c))) in rows.enumerate() {
            open(gates, &c[(start + i) * n..][..n], new_h, new_c);
        }
    });
    Ok(())
}

wide! {
    /// The gradients of one sample by its gates before their functions, in place of these, and by its old state.
    fn close(c: &[f32], new_c: &[f32], dh: &[f32], dc: &[f32], old_dc: &mut [f32], gates: &mut [f32]) {
        let n = c.len();
        let (i, rest) = gates.split_at_mut(n);
        let (f, rest) = rest.split_at_mut(n);
        let (g, o) = rest.split_at_mut(n);
        let (new_c, dh, dc, old_dc, o) = (&new_c[..n], &dh[..n], &dc[..n], &mut old_dc[..n], &mut o[..n]);
        for k in 0..n {
            let t = tanh(new_c[k]);
            let [input, forget, cell, output] = [i[k], f[k], g[k], o[k]];
            let slope = dc[k] + dh[k] * output * (1.0 - t * t);
            i[k] = slope * cell * input * (1.0 - input);
            f[k] = slope * c[k] * forget * (1.0 - forget);
            g[k] = slope * input * (1.0 - cell * cell);
            o[k] = dh[k] * t * output * (1.0 - output);
            old_dc[k] = slope * forget;
        }
    }
}

pub(super) fn backward_data(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (c, new_c, wx, wh) = (args.read(0)?, args.read(1)?, args.read(2)?, args.read(3)?);
    let (gates, dh, dc) = (args.maybe(4)?, args.read(5)?, args.read(6)?);
    let (dx, old_dh, old_dc, dgates) = (args.write(0)?, args.write(1)?, args.write(2)?, args.write(3)?);
    let (b, n, input) = (args.call.dim(0, 0), args.call.dim(0, 1), args.call.dim(2, 1));
    let scratch = args.scratch();
    args.pool.rows2((dgates, 4 * n), (old_dc, n), |start, dgates, old_dc| {
        for (i, (dgates, old_dc)) in
            dgates.chunks_exact_mut(4 * n).zip(old_dc.chunks_exact_mut(n)).enumerate()
        {
            let one = |numbers: &'_ [f32]| -> std::ops::Range<usize> {
                let width = numbers.len() / b;
                (start + i) * width..(start + i + 1) * width
            };
            if let Some(gates) = gates {
                dgates.copy_from_slice(&gates[one(gates)]);
            }
            close(&c[one(c)], &new_c[one(c)], &dh[one(c)], &dc[one(c)], old_dc, dgates);
        }
    });
    for (w, out, width) in [(wx, dx, input), (wh, old_dh, n)] {
        let e = Extent::new(b, width, 4 * n);
        linear::slopes(args.pool, e, w, (dgates, 4 * n), (out, false), scratch);
    }
    Ok(())
}

pub(super) fn backward_weight(mut args: Args<'_, '_>) -> Result<(), KernelError> {
    let (x, h, dgates) = (args.read(0)?, args.read(1)?, args.read(2)?);
    let (dwx, dwh, dbias) = (args.write(0)?, args.write(1)?, args.write(2)?);
    let (b, input, n) = (args.call.dim(0, 0), args.call.dim(0, 1), args.call.dim(1, 1));
    let scratch = args.scratch();
    let add = args.call.inputs.len() > 3;
    for (x, dw, width) in [(x, dwx, input), (h, dwh, n)] {
        let (e, x) = (Extent::new(4 * n, width, b), Matrix::by_depth(x, width));
        let more = if add { Bias::Add } else { Bias::None };
        if b <= linear::SOME {
            let a = Lying { numbers: dgates, row: 1, along: 4 * n };
            shallow::multiply(args.pool, e, a, &x, (dw, more), scratch);
            continue;
        }
        let a = Matrix::by_depth(dgates, 4 * n);
        multiply(args.pool, e, &a, &x, &Rows::new(dw, e.columns, more), scratch);
    }
    column_sums(args.pool, dgates, dbias.len(), dbias, add);
    Ok(())
}
