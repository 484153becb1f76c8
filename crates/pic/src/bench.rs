//! How fast a uniform plasma runs on one core, by phase, beside what memory and arithmetic of this very core allow.
//!
//! The floor of bytes is the time in which the core reads and writes all numbers of the particles once, and that of operations the
//! time in which it does the multiply-adds that a particle takes at least, in full vectors; both are measured here. Neither
//! can be reached together with the other.

use std::time::Instant;

use tiercel_core::{Backing, Bandwidth, Bytes};

use crate::batch::NUMBERS;
use crate::error::PicError;
use crate::grid::{Boundary, Grid};
use crate::load::{Loading, Profile, Start};
use crate::setup::{Push, Setup, Species};
use crate::simd::{Level, Real, Task, Vector, dispatch, level};
use crate::simulation::{Passes, Simulation, Ways};
use crate::system::{Needs, System, machine};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Cells along each axis.
    pub cells: usize,
    /// Particles a cell along each axis.
    pub per_cell: usize,
    /// The order of shapes.
    pub order: usize,
    /// The standard deviation of momenta: how many particles change cells.
    pub thermal: f64,
    /// How often particles cross memory in an iteration.
    pub passes: Passes,
    /// Iterations that are timed.
    pub steps: u32,
}

impl Default for Case {
    fn default() -> Case {
        Case { cells: 32, per_cell: 4, order: 1, thermal: 0.01, passes: Passes::One, steps: 10 }
    }
}

/// What was measured: nanoseconds are for a particle.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Particles.
    pub particles: u64,
    /// Particle updates a second in whole iterations: of the quickest, and of all.
    pub best: f64,
    /// Of all.
    pub mean: f64,
    /// Push and deposit in one pass, or push alone.
    pub push: f64,
    /// Deposit alone.
    pub deposit: f64,
    /// Fields.
    pub fields: f64,
    /// Particles that change tiles.
    pub exchange: f64,
    /// The least that bytes take.
    pub bytes_floor: f64,
    /// The least that operations take.
    pub operations_floor: f64,
    /// The bytes of a particle, read and written.
    pub bytes: usize,
    /// The multiply-adds of a particle that stays in its cell.
    pub operations: usize,
}

impl Case {
    fn setup(&self) -> Setup {
        let mut grid = Grid {
            cells: [self.cells; 3],
            spacing: [0.1; 3],
            tile: [self.cells.min(8); 3],
            step: 0.0,
            boundaries: [Boundary::Periodic; 3],
            absorber: 8,
        };
        grid.step = 0.95 * grid.courant();
        let loading = Loading {
            per_cell: [self.per_cell; 3],
            profile: Profile::Box { density: 1.0, from: [f64::MIN; 3], to: [f64::MAX; 3], ramp: 0.0 },
            drift: [0.0; 3],
            thermal: [self.thermal; 3],
            waves: Vec::new(),
            start: Start::Random,
        };
        let species = vec![Species { name: "electrons".to_string(), charge: -1.0, mass: 1.0, loading }];
        let (order, push) = (self.order, Push::Boris);
        Setup { grid, order, push, species, lasers: Vec::new(), window: None, seed: 1 }
    }

    /// The multiply-adds of gathering, pushing and depositing one particle: sums over the places that it sees, weights apart.
    pub fn operations(&self) -> usize {
        let n = self.order + 1;
        // Each component has one place fewer along one axis or two: as sums of rows, planes and the whole.
        let sums = |nx: usize, ny: usize, nz: usize| nz * ny * nx + nz * ny + nz;
        let electric = sums(n - 1, n, n) + sums(n, n - 1, n) + sums(n, n, n - 1);
        let magnetic = sums(n, n - 1, n - 1) + sums(n - 1, n, n - 1) + sums(n - 1, n - 1, n);
        // Boris takes about 30; each axis' current two for a pair of nodes and one for each place.
        electric + magnetic + 30 + 3 * (2 * n * n + (n - 1) * n * n)
    }

    /// Measures it on this core.
    pub fn measure<R: Real>(&self) -> Result<Speed, PicError> {
        let setup = self.setup();
        let count = setup.grid.volume() * self.per_cell.pow(3);
        let all = Bytes((count * NUMBERS * size_of::<R>() * 2) as u64 + (64 << 20));
        let needs = Needs { particles: Bytes::mib(1), ..Needs::default() };
        let machine = machine(&needs, all, Backing::Dram, (Bandwidth(1e9), Bandwidth(1e9)), 1);
        let wired = System::AllFast.wire(&needs, &machine)?;
        let ways = Ways { passes: self.passes, ..Ways::default() };
        let mut simulation = Simulation::<R>::new(setup, ways, &machine, wired.placement)?;
        for _ in 0..3 {
            simulation.iterate(false)?;
        }
        let (before, particles) = (simulation.times(), simulation.particles());
        let (mut best, mut total) = (f64::INFINITY, 0.0);
        for _ in 0..self.steps.max(1) {
            let clock = Instant::now();
            simulation.iterate(false)?;
            let took = clock.elapsed().as_secs_f64();
            (best, total) = (best.min(took), total + took);
        }
        let (after, steps) = (simulation.times(), f64::from(self.steps.max(1)));
        let each = |a: f64, b: f64| (b - a) / steps / particles as f64 * 1e9;
        Ok(Speed {
            particles,
            best: particles as f64 / best,
            mean: particles as f64 * steps / total,
            push: each(before.push, after.push),
            deposit: each(before.deposit, after.deposit),
            fields: each(before.fields, after.fields),
            exchange: each(before.exchange, after.exchange),
            bytes_floor: bytes_floor::<R>(particles as usize),
            operations_floor: self.operations() as f64
                * dispatch(level(), Peak::<R>(std::marker::PhantomData)),
            bytes: 2 * NUMBERS * size_of::<R>(),
            operations: self.operations(),
        })
    }
}

/// Which vectors are used here.
pub fn vectors() -> &'static str {
    match level() {
        Level::Portable => "portable",
        Level::Avx2 => "AVX2",
    }
}

/// Nanoseconds a particle to read and write its numbers.
fn bytes_floor<R: Real>(particles: usize) -> f64 {
    let mut numbers = vec![R::ONE; particles * NUMBERS];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let clock = Instant::now();
        numbers.iter_mut().for_each(|x| *x += R::ONE);
        best = best.min(clock.elapsed().as_secs_f64());
    }
    std::hint::black_box(&numbers);
    best / particles.max(1) as f64 * 1e9
}

/// Nanoseconds of a multiply-add for one lane, in full vectors that do not wait for each other.
struct Peak<R>(std::marker::PhantomData<R>);

impl<R: Real> Task<R> for Peak<R> {
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector<Real = R>>(self) -> f64 {
        const CHAINS: usize = 10;
        const ROUNDS: usize = 20_000;
        let (mut best, factor) = (f64::INFINITY, V::splat(R::of(0.999)));
        let mut sums = [V::splat(R::ONE); CHAINS];
        for _ in 0..20 {
            let clock = Instant::now();
            for _ in 0..ROUNDS {
                for sum in &mut sums {
                    *sum = sum.fma(factor, factor);
                }
            }
            best = best.min(clock.elapsed().as_secs_f64());
            sums.iter_mut().for_each(|sum| *sum = std::hint::black_box(V::splat(sum.sum())));
        }
        best / (ROUNDS * CHAINS * V::LANES) as f64 * 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of a tiny plasma are there and add up; how large they are depends on the machine.
    #[test]
    fn every_phase_is_timed() {
        for passes in [Passes::One, Passes::Two] {
            let case = Case { cells: 8, per_cell: 2, passes, steps: 2, ..Case::default() };
            let speed = case.measure::<f32>().expect("a plasma");
            assert_eq!((speed.particles, speed.bytes), (4096, 56));
            let whole = 1e9 / speed.mean;
            let parts = speed.push + speed.deposit + speed.fields + speed.exchange;
            assert!(parts > 0.0 && parts <= whole, "{parts} of {whole}");
            assert!(speed.best >= speed.mean && speed.bytes_floor > 0.0 && speed.operations_floor > 0.0);
        }
    }

    /// Order 1, counted by hand: 10, 8 and 7 for the electric field, 4, 5 and 6 for the magnetic one, 30 for the push, and for
    /// each current 8 pairs of differences and 4 places.
    #[test]
    fn operations_are_counted() {
        assert_eq!(Case::default().operations(), 25 + 15 + 30 + 3 * (8 + 4));
    }
}
