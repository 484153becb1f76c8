//! Planes whose rows are shorter than vectors, laid side by side: the windows of many are then those of one wide image.
//!
//! Between neighbours lie as many columns as windows reach into, so that none sees two planes. Windows over these columns
//! are computed like others, and nobody looks at them.

use super::Shape;
use super::rows::{LANES, Runs};
use crate::simd::{Layout, lay};

/// The numbers of the image that planes are laid into; some of these fit the first-level cache.
pub(super) const AREA: usize = 1024;

/// Planes side by side.
pub(super) struct Beside {
    /// How many there are.
    planes: usize,
    /// Columns from one to the next, and columns of windows.
    period: [usize; 2],
    /// What becomes of one of them.
    one: Shape,
    /// What becomes of all.
    pub shape: Shape,
    /// The rows of all.
    pub runs: Runs,
}

impl Beside {
    /// The planes of a shape side by side, where that is better than one by one.
    pub fn new(s: &Shape) -> Option<Beside> {
        let [stride, before, window] =
            [s.form.stride[1], s.form.padding[1], s.form.window[1]].map(|n| n as usize);
        // A window ends before the next plane begins, and begins after the one before has ended.
        let reach = ((s.to[1].max(1) - 1) * stride + window).saturating_sub(before);
        let period = (s.from[1] + before).max(reach).max(s.to[1] * stride).next_multiple_of(stride);
        let planes = AREA / (period * s.from[0].max(s.to[0])).max(1);
        if s.from[1] > LANES || planes < 2 {
            return None;
        }
        let (from, to) = ([s.from[0], planes * period], [s.to[0], planes * period / stride]);
        let shape = Shape { form: s.form, from, to };
        let period = [period, period / stride];
        Runs::new(&shape).map(|runs| Beside { planes, period, one: *s, shape, runs })
    }

    /// Columns of windows from one plane to the next.
    pub fn windows(&self) -> usize {
        self.period[1]
    }

    /// So many numbers of images, and of windows, are those of the planes that lie side by side.
    pub fn counts(&self) -> [usize; 2] {
        [self.one.from, self.one.to].map(|[rows, columns]| self.planes * rows * columns)
    }

    /// So many numbers has the wide image, and so many windows.
    pub fn areas(&self) -> [usize; 2] {
        [self.shape.from, self.shape.to].map(|[rows, columns]| rows * columns)
    }

    /// Lays images of planes side by side.
    pub fn put_images(&self, planes: &[f32], wide: &mut [f32]) {
        lay(self.layout(planes.len(), self.one.from, 0), planes, 0.0, wide);
    }

    /// Lays windows of planes side by side.
    pub fn put_windows(&self, planes: &[f32], wide: &mut [f32]) {
        lay(self.layout(planes.len(), self.one.to, 1), planes, 0.0, wide);
    }

    /// Takes images of planes apart.
    pub fn take_images(&self, wide: &[f32], planes: &mut [f32]) {
        lay(turned(self.layout(planes.len(), self.one.from, 0)), wide, 0.0, planes);
    }

    /// Takes windows of planes apart.
    pub fn take_windows(&self, wide: &[f32], planes: &mut [f32]) {
        lay(turned(self.layout(planes.len(), self.one.to, 1)), wide, 0.0, planes);
    }

    fn layout(&self, numbers: usize, [rows, columns]: [usize; 2], side: usize) -> Layout {
        let (plane, period) = (rows * columns, self.period[side]);
        let (counts, from) = ([numbers / plane, rows, columns], [plane, columns, 1]);
        Layout { counts, from, to: [period, self.planes * period] }
    }
}

/// The way back.
fn turned(layout: Layout) -> Layout {
    let Layout { counts, from: [plane, row, _], to: [apart, across] } = layout;
    Layout { counts, from: [apart, across, 1], to: [plane, row] }
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Pool, PoolKind};

    use super::super::{Shares, back, largest, mean, plain};
    use super::*;

    /// Some numbers, with many that are equal and some that are none or less than all.
    fn numbers(count: usize, random: &mut fastrand::Rng) -> Vec<f32> {
        let strange = [f32::NAN, f32::NEG_INFINITY];
        let mut one = || match random.usize(..40) {
            at @ 0..2 => strange[at],
            _ => random.u8(..5) as f32 - 2.0,
        };
        (0..count).map(|_| one()).collect()
    }

    fn same(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| a == b || (a - b).abs() < 1e-5 || (a.is_nan() && b.is_nan()))
    }

    #[test]
    fn planes_side_by_side_are_as_good_as_one_by_one() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut tried = 0;
        for _ in 0..400 {
            let (window, stride) = (random.usize(1..6), random.usize(1..4));
            let (padding, from) = (random.usize(..=window / 2), random.usize(window..17));
            let to = (from + 2 * padding - window) / stride + 1;
            let [w, t, p] = [window, stride, padding].map(|n| n as u64);
            let (kind, ceil) = (PoolKind::Max, false);
            let form = Pool { kind, window: [w; 2], stride: [t; 2], padding: [p; 4], ceil };
            let s = Shape { form, from: [from; 2], to: [to; 2] };
            let (Some(runs), Some(beside)) = (Runs::new(&s), Beside::new(&s)) else { continue };
            tried += 1;
            let planes = random.usize(1..40);
            let x = numbers(planes * from * from, &mut random);
            let dy: Vec<f32> = (0..planes * to * to).map(|_| random.f32()).collect();
            let [mut y, mut expected] = [vec![0f32; dy.len()], vec![0f32; dy.len()]];
            let better = |best: f32, x: f32| if x > best || x.is_nan() { x } else { best };
            largest(&s, &runs, Some(&beside), &x, &mut y);
            plain(&s, &x, &mut expected, f32::NEG_INFINITY, better);
            assert!(same(&y, &expected), "largest of {s:?}");
            let [mut dx, mut expected] = [vec![0f32; x.len()], vec![0f32; x.len()]];
            back::max(&s, &runs, Some(&beside), &x, &dy, &mut dx);
            back::max_plain(&s, &x, &dy, &mut expected);
            assert!(same(&dx, &expected), "gradient of the largest of {s:?}");
            for count_padding in [false, true] {
                let shares = |beside| Shares::new(&s, beside, count_padding);
                let [mut y, mut expected] = [vec![0f32; dy.len()], vec![0f32; dy.len()]];
                mean(&s, &runs, Some(&beside), &shares(Some(&beside)), &x, &mut y);
                mean(&s, &runs, None, &shares(None), &x, &mut expected);
                assert!(same(&y, &expected), "mean of {s:?}");
                back::mean(&s, &runs, Some(&beside), &shares(Some(&beside)), &dy, &mut dx);
                let mut expected = vec![0f32; x.len()];
                back::mean_plain(&s, count_padding, &dy, &mut expected);
                assert!(same(&dx, &expected), "gradient of the mean of {s:?}");
            }
        }
        assert!(tried > 100, "{tried} shapes");
    }
}
