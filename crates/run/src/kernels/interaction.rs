//! DLRM's interaction: the dot products of all pairs of features, and their gradient.

use super::args::Args;
use super::elementwise::zip_part;
use super::loss::dot;

/// Where the product of features i and j < i stands behind the first feature.
fn pair(i: usize, j: usize) -> usize {
    i * (i - 1) / 2 + j
}

pub(super) fn forward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (n, d) = (args.call.inputs.len(), args.call.dim(0, 1));
    let y = args.write(0)?;
    let row = d + n * (n - 1) / 2;
    let first = args.read(0)?;
    args.pool.rows(y, row, |start, y| {
        for (s, y) in y.chunks_exact_mut(row).enumerate() {
            y[..d].copy_from_slice(&first[(start + s) * d..][..d]);
        }
    });
    for i in 1..n {
        let a = args.read(i)?;
        for j in 0..i {
            let (b, at) = (args.read(j)?, d + pair(i, j));
            args.pool.rows(y, row, |start, y| {
                for (s, y) in y.chunks_exact_mut(row).enumerate() {
                    let range = (start + s) * d..(start + s + 1) * d;
                    y[at] = dot(&a[range.clone()], &b[range]);
                }
            });
        }
    }
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>) -> Result<(), String> {
    let (n, d) = (args.call.outputs.len(), args.call.dim(0, 1));
    let dy = args.read(n)?;
    let row = d + n * (n - 1) / 2;
    for i in 0..n {
        let dx = args.write(i)?;
        args.pool.rows(dx, d, |start, dx| {
            for (s, dx) in dx.chunks_exact_mut(d).enumerate() {
                if i == 0 {
                    dx.copy_from_slice(&dy[(start + s) * row..][..d]);
                } else {
                    dx.fill(0.0);
                }
            }
        });
        for j in (0..n).filter(|j| *j != i) {
            let (other, at) = (args.read(j)?, d + pair(i.max(j), i.min(j)));
            args.pool.rows(dx, d, |start, dx| {
                for (s, dx) in dx.chunks_exact_mut(d).enumerate() {
                    let slope = dy[(start + s) * row + at];
                    let other = &other[(start + s) * d..][..d];
                    zip_part(dx, None, Some(other), |dx, other| dx + slope * other);
                }
            });
        }
    }
    Ok(())
}
