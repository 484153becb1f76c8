//! The means of whole planes.
//!
//! Small planes are added up sixteen at a time: they are turned, so that vectors have a pixel of each, and every plane's sum
//! has the order that it has alone.

use super::rows::{LANES, ahead};
use crate::conv::plane_sum;
use crate::simd::{lanes, transpose};

/// The parts of the sum of a plane.
const PARTS: usize = 32;

/// The most pixels of a small plane.
const SMALL: usize = 128;

/// A pixel of sixteen planes after the other.
#[repr(align(64))]
struct Turned([f32; SMALL * LANES]);

/// The mean of every plane of so many pixels.
pub(super) fn means(pixels: usize, x: &[f32], y: &mut [f32]) {
    let turned = if pixels <= SMALL { y.len() / LANES * LANES } else { 0 };
    let (many, rest) = y.split_at_mut(turned);
    let mut room = Turned([0.0; SMALL * LANES]);
    for (x, y) in x.chunks_exact(pixels * LANES).zip(many.chunks_exact_mut(LANES)) {
        turn(pixels, x, &mut room);
        small_sums(pixels, &room.0, y);
        y.iter_mut().for_each(|y| *y /= pixels as f32);
    }
    for (x, y) in x[turned * pixels..].chunks_exact(pixels).zip(rest) {
        *y = plane_sum(x) / pixels as f32;
    }
}

/// Turns sixteen planes, while memory is asked for the next.
fn turn(pixels: usize, x: &[f32], Turned(to): &mut Turned) {
    (0..x.len()).step_by(LANES).for_each(|at| ahead(x, at));
    let mut whole = pixels / LANES * LANES;
    transpose(x, pixels, LANES, whole, LANES, to);
    // Few pixels more are taken one by one.
    if pixels - whole > 2 {
        transpose(&x[whole..], pixels, LANES, pixels - whole, LANES, &mut to[whole * LANES..]);
        whole = pixels;
    }
    for at in whole..pixels {
        let to = &mut to[at * LANES..][..LANES];
        to.iter_mut().zip(x.chunks_exact(pixels)).for_each(|(to, x)| *to = x[at]);
    }
}

lanes! {
    /// The sums of sixteen planes that were turned: of every part of the pixels first, as [`plane_sum`] has them.
    fn small_sums(l; pixels: usize, x: &[f32], y: &mut [f32]) {
        let (parts, whole) = (PARTS.min(pixels), pixels / PARTS * PARTS);
        for lane in (0..LANES).step_by(L::COUNT) {
            let [mut all, mut rest] = [l.splat(0.0); 2];
            for part in 0..parts {
                let mut sum = l.splat(0.0);
                for at in (part..whole).step_by(PARTS) {
                    sum = l.add(sum, l.load(x, at * LANES + lane));
                }
                all = l.add(all, sum);
            }
            for at in whole..pixels {
                rest = l.add(rest, l.load(x, at * LANES + lane));
            }
            l.store(l.add(all, rest), y, lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_have_the_same_means_in_company() {
        let mut random = fastrand::Rng::with_seed(29);
        for pixels in (1..140).chain([196, 1000]) {
            let planes = random.usize(1..50);
            let x: Vec<f32> = (0..planes * pixels).map(|_| random.f32() - 0.5).collect();
            let mut y = vec![f32::NAN; planes];
            means(pixels, &x, &mut y);
            let expected: Vec<f32> = x.chunks_exact(pixels).map(|x| plane_sum(x) / pixels as f32).collect();
            assert_eq!(y, expected, "{planes} planes of {pixels}");
        }
    }
}
