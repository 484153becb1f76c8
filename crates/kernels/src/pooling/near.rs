//! The gradient of means of windows that are neighbours: what a pixel gets is a sum over windows, of as many rows and columns
//! as a window has.
//!
//! A row of gradients is multiplied with what windows share out once, when it enters a ring. The rows of the ring that cover
//! a row of pixels are added up vector by vector, and neighbouring lanes of these sums then are, in pairs that two sums
//! share.

use super::rows::{Aligned, LANES, RING, ROW, Row, Runs, put};
use super::{Shape, Shares};
use crate::simd::Lanes;

/// A row without windows.
static NONE: Aligned<Row> = Aligned([0.0; ROW]);

/// Whether there is a loop for it: windows of three by three or five by five, all of which see some of the image, and rows
/// that have room.
pub(super) fn applies(s: &Shape) -> bool {
    let form = &s.form;
    let inside = (0..2).all(|axis| form.padding[axis] < form.window[axis]);
    let known = form.window[0] == form.window[1] && matches!(form.window[0], 3 | 5);
    let wide = s.from[1].max(s.to[1]).next_multiple_of(LANES) + 3 * LANES;
    form.stride == [1; 2] && known && inside && wide <= ROW
}

/// The sums of some columns of `W` rows, which are zero from `end` on.
#[inline(always)]
fn column<L: Lanes, const W: usize>(l: L, rows: &[&Row; W], at: usize, end: usize) -> L::Vector {
    if at >= end {
        return l.splat(0.0);
    }
    let pair = |a: usize| l.add(l.load(rows[a], at), l.load(rows[a + 1], at));
    let all = if W == 5 { l.add(pair(0), pair(2)) } else { pair(0) };
    l.add(all, l.load(rows[W - 1], at))
}

/// The gradient of one plane. The ring is zero beside what windows fill of it.
#[inline(always)]
pub(super) fn slopes<L: Lanes, const W: usize>(
    l: L,
    (s, runs, shares): (&Shape, &Runs, &Shares),
    dy: &[f32],
    dx: &mut [f32],
    ring: &mut [Row; RING],
) {
    let [above, left] = [s.form.padding[0], s.form.padding[1]].map(|n| n as usize);
    // The first pixel's first window is number 0 of a row of the ring.
    let shift = W - 1 - left;
    let (to, end, n) = (runs.to, shift + runs.to, L::COUNT);
    for t in 0..=s.from[0] + above {
        // What was just written cannot be read at once, so a row enters before those before it are added up.
        if t < s.to[0] {
            let (dy, share, row) = (&dy[t * to..][..to], l.splat(shares.rows[t]), &mut ring[t % RING]);
            for at in (0..to).step_by(n) {
                let dy = if at + n <= to { l.load(dy, at) } else { l.load_some(dy, at) };
                // Zeros beyond the last window.
                l.store(l.mul(l.mul(dy, share), l.load(&shares.columns, at)), row, shift + at);
            }
        }
        let Some(i) = t.checked_sub(above + 1) else { continue };
        // Those of windows from i + above + 1 − W on, and zeros where there are none.
        let mut rows = [&NONE.0; W];
        for (a, row) in rows.iter_mut().enumerate() {
            let window = (t + a).wrapping_sub(W);
            if window < s.to[0] {
                *row = &ring[window % RING];
            }
        }
        let (mut now, mut next) = (column(l, &rows, 0, end), column(l, &rows, n, end));
        let mut pair = l.add(now, l.slide::<1>(now, next));
        for at in (0..runs.width).step_by(n) {
            let after = column(l, &rows, at + 2 * n, end);
            let later = l.add(next, l.slide::<1>(next, after));
            let all = match W {
                3 => l.add(pair, l.slide::<2>(now, next)),
                _ => l.add(l.add(pair, l.slide::<2>(pair, later)), l.slide::<4>(now, next)),
            };
            // What is beyond the end of a row is written again with the next.
            put(l, all, dx, i * runs.width + at);
            (now, next, pair) = (next, after, later);
        }
    }
}
