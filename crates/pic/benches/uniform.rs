//! A uniform plasma on one core, by phase, beside what memory and arithmetic allow.
//!
//! `cargo bench -p tiercel-pic` prints particle updates a second of whole steps, with nanoseconds a particle by phase. The
//! floor is the time in which the processor could copy the particles once (each is read and written), measured here.

use std::time::Instant;

use tiercel_core::{Backing, Bandwidth, Bytes};
use tiercel_pic::load::{Loading, Profile, Start};
use tiercel_pic::system::{Needs, System, machine};
use tiercel_pic::{Boundary, Grid, Passes, Push, Real, Setup, Simulation, Species, Ways};

fn setup(order: usize, thermal: f64) -> Setup {
    let mut grid = Grid {
        cells: [32; 3],
        spacing: [0.1; 3],
        tile: [8; 3],
        step: 0.0,
        boundaries: [Boundary::Periodic; 3],
        absorber: 8,
    };
    grid.step = 0.95 * grid.courant();
    let profile = Profile::Box { density: 1.0, from: [f64::MIN; 3], to: [f64::MAX; 3], ramp: 0.0 };
    let loading = Loading {
        per_cell: [4; 3],
        profile,
        drift: [0.0; 3],
        thermal: [thermal; 3],
        waves: Vec::new(),
        start: Start::Random,
    };
    let species = vec![Species { name: "electrons".to_string(), charge: -1.0, mass: 1.0, loading }];
    Setup { grid, order, push: Push::Boris, species, lasers: Vec::new(), window: None, seed: 1 }
}

fn measure<R: Real>(order: usize, thermal: f64, passes: Passes) {
    let all = Bytes::mib(512);
    let needs = Needs { particles: Bytes::mib(1), ..Needs::default() };
    let machine = machine(&needs, all, Backing::Dram, (Bandwidth(1e9), Bandwidth(1e9)), 1);
    let wired = System::AllFast.wire(&needs, &machine).expect("a machine of memory");
    let ways = Ways { passes, ..Ways::default() };
    let mut simulation =
        Simulation::<R>::new(setup(order, thermal), ways, &machine, wired.placement).expect("room");
    for _ in 0..3 {
        simulation.iterate(false).expect("an iteration");
    }
    let (before, particles) = (simulation.times(), simulation.particles() as f64);
    let mut best = f64::INFINITY;
    let steps = 10;
    for _ in 0..steps {
        let clock = Instant::now();
        simulation.iterate(false).expect("an iteration");
        best = best.min(clock.elapsed().as_secs_f64());
    }
    let after = simulation.times();
    let each = |a: f64, b: f64| (b - a) / f64::from(steps) / particles * 1e9;
    println!(
        "{} order {order}, u_th {thermal:<5} {passes:?}: {:6.1} M updates/s (best step); ns a particle: push {:.2}, deposit {:.2}, fields {:.2}, exchange {:.2}; floor {:.2}",
        R::NAME,
        particles / best / 1e6,
        each(before.push, after.push),
        each(before.deposit, after.deposit),
        each(before.fields, after.fields),
        each(before.exchange, after.exchange),
        floor::<R>(particles as usize),
    );
}

/// Nanoseconds a particle to read and write its numbers.
fn floor<R: Real>(particles: usize) -> f64 {
    let mut numbers = vec![R::ONE; particles * 7];
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let clock = Instant::now();
        numbers.iter_mut().for_each(|x| *x += R::ONE);
        best = best.min(clock.elapsed().as_secs_f64());
    }
    std::hint::black_box(&numbers);
    best / particles as f64 * 1e9
}

fn main() {
    for thermal in [0.01, 0.1] {
        for passes in [Passes::One, Passes::Two] {
            measure::<f32>(1, thermal, passes);
            measure::<f64>(2, thermal, passes);
        }
    }
    measure::<f32>(2, 0.01, Passes::One);
    measure::<f32>(3, 0.01, Passes::One);
    measure::<f64>(1, 0.01, Passes::One);
    measure::<f64>(3, 0.01, Passes::One);
}
