//! How particles are first put into a tile: where, how many, how fast.
//!
//! What a cell gets follows from the seed, the species and the cell's own number, so it does not depend on tiles, threads
//! or memory. A quiet start takes places and speeds from sequences that fill space evenly, so that a plasma has next to
//! no noise of its own: what tests of waves need.

use crate::batch::Single;
use crate::simd::Real;

/// A density over space.
#[derive(Clone, Debug, PartialEq)]
pub enum Profile {
    /// The same everywhere between two places.
    Box {
        /// The density.
        density: f64,
        /// Where it begins and ends along each axis.
        from: [f64; 3],
        /// Where it ends.
        to: [f64; 3],
        /// The length over which it rises from zero at its beginning along z.
        ramp: f64,
    },
    /// A bunch: a Gaussian along all axes.
    Gaussian {
        /// The density in the middle.
        density: f64,
        /// The middle.
        centre: [f64; 3],
        /// The standard deviations.
        size: [f64; 3],
    },
}

impl Profile {
    /// The density at a place.
    pub fn at(&self, place: [f64; 3]) -> f64 {
        match self {
            Profile::Box { density, from, to, ramp } => {
                let inside = (0..3).all(|axis| place[axis] >= from[axis] && place[axis] < to[axis]);
                let rise = if *ramp > 0.0 { ((place[2] - from[2]) / ramp).clamp(0.0, 1.0) } else { 1.0 };
                if inside { density * rise } else { 0.0 }
            }
            Profile::Gaussian { density, centre, size } => {
                let far = |axis: usize| {
                    if size[axis].is_finite() { (place[axis] - centre[axis]) / size[axis] } else { 0.0 }
                };
                let squared: f64 = (0..3).map(|axis| far(axis) * far(axis)).sum();
                // Beyond four deviations there is nothing.
                if squared < 16.0 { density * (-0.5 * squared).exp() } else { 0.0 }
            }
        }
    }
}

impl Profile {
    /// Whether there are particles everywhere between two places, or nowhere; nothing where it takes a look at each place.
    fn decided(&self, low: [f64; 3], high: [f64; 3]) -> Option<bool> {
        let Profile::Box { density, from, to, .. } = self else { return None };
        let outside = (0..3).any(|axis| high[axis] < from[axis] || low[axis] > to[axis]);
        let inside = (0..3).all(|axis| low[axis] > from[axis] && high[axis] < to[axis]);
        if *density <= 0.0 || outside { Some(false) } else { inside.then_some(true) }
    }
}

/// A wave that speeds are first disturbed with: `amplitude · Π cos(k·place)`, a sine along the axis of the speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wave {
    /// The largest change of momentum.
    pub amplitude: f64,
    /// The axis along which momenta change.
    pub axis: usize,
    /// The wave numbers.
    pub k: [f64; 3],
}

impl Wave {
    /// The change at a place.
    pub fn at(&self, place: [f64; 3]) -> f64 {
        let factor = |axis: usize| {
            let phase = self.k[axis] * place[axis];
            if axis == self.axis { phase.sin() } else { phase.cos() }
        };
        self.amplitude * factor(0) * factor(1) * factor(2)
    }
}

/// How places and speeds are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// By chance.
    #[default]
    Random,
    /// Evenly, each particle for as many others as the next.
    Quiet,
    /// Evenly, with speeds at equal distances up to five deviations and weights by how likely they are: many particles where a
    /// wave finds few, so that it is damped as it should be.
    Graded,
}

/// How far graded speeds go, in standard deviations.
const GRADES: f64 = 5.0;

/// How particles of a species are distributed at first.
#[derive(Clone, Debug, PartialEq)]
pub struct Loading {
    /// Particles a cell, along each axis for a quiet or regular start; otherwise as many as their product.
    pub per_cell: [usize; 3],
    /// Where they are.
    pub profile: Profile,
    /// The mean momentum.
    pub drift: [f64; 3],
    /// The standard deviation of momenta.
    pub thermal: [f64; 3],
    /// Disturbances.
    pub waves: Vec<Wave>,
    /// How places and speeds are chosen.
    pub start: Start,
}

/// Where a cell is: what loading it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    /// The cell's number along each axis, from the first of the whole run: a window goes on counting.
    pub cell: [i64; 3],
    /// The spacing.
    pub spacing: [f64; 3],
    /// Where in a cell the node of its number is.
    pub centre: f64,
    /// What distinguishes runs and species.
    pub seed: u64,
}

/// Random numbers that follow from where they are used.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Between zero and one, neither included.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The number with its digits behind the point in reverse order: van der Corput's sequence.
fn reversed(mut n: usize, base: usize) -> f64 {
    let (mut value, mut share) = (0.0, 1.0 / base as f64);
    while n > 0 {
        value += (n % base) as f64 * share;
        n /= base;
        share /= base as f64;
    }
    value
}

/// The value below which a normal variable lies with this probability (Acklam's approximation, a step of Newton's after it).
fn quantile(p: f64) -> f64 {
    let tail = |q: f64| {
        let c = [
            -7.784894002430293e-3,
            -0.3223964580411365,
            -2.400758277161838,
            -2.549732539343734,
            4.374664141464968,
            2.938163982698783,
        ];
        let d = [7.784695709041462e-3, 0.3224671290700398, 2.445134137142996, 3.754408661907416];
        let above = c.iter().fold(0.0, |sum, c| sum * q + c);
        above / (d.iter().fold(0.0, |sum, d| sum * q + d) * q + 1.0)
    };
    if p < 0.02425 {
        return tail((-2.0 * p.ln()).sqrt());
    }
    if p > 1.0 - 0.02425 {
        return -tail((-2.0 * (1.0 - p).ln()).sqrt());
    }
    let (q, a) = (
        p - 0.5,
        [
            -39.69683028665376,
            220.9460984245205,
            -275.9285104469687,
            138.357_751_867_269,
            -30.66479806614716,
            2.506628277459239,
        ],
    );
    let b =
        [-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572];
    let r = q * q;
    a.iter().fold(0.0, |sum, a| sum * r + a) * q / (b.iter().fold(0.0, |sum, b| sum * r + b) * r + 1.0)
}

impl Loading {
    /// How many particles a cell begins with.
    pub fn count(&self, spot: &Spot, volume: f64) -> u64 {
        let edge = |more: f64| -> [f64; 3] {
            std::array::from_fn(|axis| (spot.cell[axis] as f64 + more - spot.centre) * spot.spacing[axis])
        };
        match self.profile.decided(edge(0.0), edge(1.0)) {
            Some(true) => self.per_cell.iter().map(|count| *count as u64).product(),
            Some(false) => 0,
            None => {
                let mut out = Vec::<Single<f32>>::new();
                self.cell(spot, volume, &mut out);
                out.len() as u64
            }
        }
    }

    /// The particles that a cell begins with. Weights are densities times the share of the cell's volume.
    pub fn cell<R: Real>(&self, spot: &Spot, volume: f64, out: &mut Vec<Single<R>>) {
        let count: usize = self.per_cell.iter().product();
        let place = |s: [f64; 3]| -> [f64; 3] {
            std::array::from_fn(|axis| (spot.cell[axis] as f64 + s[axis] - spot.centre) * spot.spacing[axis])
        };
        let mut chance = Chance(spot.seed);
        for number in spot.cell {
            chance.0 = chance.next() ^ (number as u64);
        }
        let half = 0.5 / count as f64;
        for index in 0..count {
            let mut share = 1.0;
            let (s, speeds): ([f64; 3], [f64; 3]) = if self.start != Start::Random {
                let [nx, ny, nz] = self.per_cell;
                let at = [index % nx, index / nx % ny, index / (nx * ny)];
                let s = std::array::from_fn(|axis| (at[axis] as f64 + 0.5) / [nx, ny, nz][axis] as f64);
                let even = [2, 3, 5].map(|base| (reversed(index, base) + half).min(1.0 - half));
                if self.start == Start::Quiet {
                    (s, even.map(quantile))
                } else {
                    let speeds = even.map(|part| GRADES * (2.0 * part - 1.0));
                    for axis in (0..3).filter(|axis| self.thermal[*axis] > 0.0) {
                        let likely =
                            (-0.5 * speeds[axis] * speeds[axis]).exp() / std::f64::consts::TAU.sqrt();
                        share *= 2.0 * GRADES * likely;
                    }
                    (s, speeds)
                }
            } else {
                let s = std::array::from_fn(|_| chance.unit());
                (s, std::array::from_fn(|_| chance.normal()))
            };
            let place = place(s);
            let density = self.profile.at(place);
            if density <= 0.0 {
                continue;
            }
            let mut u: [f64; 3] =
                std::array::from_fn(|axis| self.drift[axis] + self.thermal[axis] * speeds[axis]);
            for wave in &self.waves {
                u[wave.axis] += wave.at(place);
            }
            let offset = |s: f64| {
                let s = R::of(s);
                if s < R::ONE { s } else { R::BELOW_ONE }
            };
            out.push([
                offset(s[0]),
                offset(s[1]),
                offset(s[2]),
                R::of(u[0]),
                R::of(u[1]),
                R::of(u[2]),
                R::of(share * density * volume / count as f64),
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_invert_the_normal_distribution() {
        for (p, x) in
            [(0.5, 0.0), (0.841344746, 1.0), (0.022750132, -2.0), (0.998650102, 3.0), (0.001349898, -3.0)]
        {
            assert!((quantile(p) - x).abs() < 1e-6, "{p}: {} for {x}", quantile(p));
        }
    }

    /// Counting is as loading, at the ends of boxes and in bunches, too.
    #[test]
    fn cells_are_counted_as_they_are_loaded() {
        let (bunch, all) = ([2.5, 2.5, 2.5], [f64::MIN; 3]);
        for profile in [
            Profile::Box { density: 2.0, from: all, to: [f64::MAX; 3], ramp: 0.0 },
            Profile::Box { density: 0.0, from: all, to: [f64::MAX; 3], ramp: 0.0 },
            Profile::Box { density: 1.0, from: [1.3, 0.0, 2.0], to: [3.0, 4.0, 3.7], ramp: 1.5 },
            Profile::Gaussian { density: 1.0, centre: bunch, size: [0.4; 3] },
        ] {
            for start in [Start::Random, Start::Quiet] {
                let loading = Loading {
                    per_cell: [3, 2, 4],
                    profile: profile.clone(),
                    drift: [0.0; 3],
                    thermal: [0.1; 3],
                    waves: Vec::new(),
                    start,
                };
                for at in 0..125 {
                    let cell = [at % 5, at / 5 % 5, at / 25];
                    let spot = Spot { cell, spacing: [1.0; 3], centre: 0.5, seed: 3 };
                    let mut out = Vec::<Single<f32>>::new();
                    loading.cell(&spot, 1.0, &mut out);
                    assert_eq!(loading.count(&spot, 1.0), out.len() as u64, "{profile:?} {cell:?}");
                }
            }
        }
    }

    #[test]
    fn a_cell_gets_the_same_whatever_else_is_loaded() {
        let loading = Loading {
            per_cell: [4, 4, 4],
            profile: Profile::Box { density: 2.0, from: [f64::MIN; 3], to: [f64::MAX; 3], ramp: 0.0 },
            drift: [1.0, 0.0, 0.0],
            thermal: [0.1; 3],
            waves: Vec::new(),
            start: Start::Random,
        };
        let spot = |x| Spot { cell: [x, 0, 0], spacing: [1.0; 3], centre: 0.0, seed: 3 };
        let load = |x| {
            let mut out = Vec::<Single<f64>>::new();
            loading.cell(&spot(x), 0.5, &mut out);
            out
        };
        assert_eq!(load(1), load(1));
        assert_ne!(load(1), load(2));
        assert!((load(1).iter().map(|one| one[6]).sum::<f64>() - 1.0).abs() < 1e-12);
        let mean = load(5).iter().map(|one| one[3]).sum::<f64>() / 64.0;
        assert!((mean - 1.0).abs() < 0.05);
    }
}
