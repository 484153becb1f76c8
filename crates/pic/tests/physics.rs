//! Analytic answers: what a plasma and a vacuum are known to do.
//!
//! Every tolerance says where it comes from: the grid's own dispersion, relativity at the speeds that keep tests short, or
//! rounding.

use std::f64::consts::TAU;

use tiercel_core::{Backing, Bandwidth, Bytes};
use tiercel_pic::load::{Loading, Profile, Start, Wave};
use tiercel_pic::system::{Needs, System, machine};
use tiercel_pic::{Boundary, Grid, Push, Real, Setup, Simulation, Species, Ways};

fn grid(cells: [usize; 3], length: [f64; 3], courant: f64) -> Grid {
    let spacing: [f64; 3] = std::array::from_fn(|axis| length[axis] / cells[axis] as f64);
    let tile = cells.map(|cells| cells.min(8));
    let mut grid = Grid { cells, spacing, tile, step: 0.0, boundaries: [Boundary::Periodic; 3], absorber: 8 };
    grid.step = courant * spacing.iter().fold(grid.courant(), |limit, spacing| limit.min(*spacing));
    grid
}

fn everywhere(density: f64) -> Profile {
    Profile::Box { density, from: [f64::MIN; 3], to: [f64::MAX; 3], ramp: 0.0 }
}

fn loading(density: f64, per_cell: [usize; 3]) -> Loading {
    let profile = everywhere(density);
    Loading { per_cell, profile, drift: [0.0; 3], thermal: [0.0; 3], waves: Vec::new(), start: Start::Quiet }
}

fn species(name: &str, charge: f64, loading: Loading) -> Species {
    Species { name: name.to_string(), charge, mass: 1.0, loading }
}

fn open<R: Real>(setup: Setup) -> Simulation<R> {
    let all = Bytes::mib(64);
    let needs = Needs { particles: all, ..Needs::default() };
    let quick = (Bandwidth(1e9), Bandwidth(1e9));
    let machine = machine(&needs, all, Backing::Dram, quick, 1);
    let wired = System::AllFast.wire(&needs, &machine).expect("a machine of memory");
    Simulation::new(setup, Ways::default(), &machine, wired.placement).expect("room for everything")
}

/// One component of a field at all places of the grid, x first.
fn component<R: Real>(simulation: &mut Simulation<R>, component: usize) -> Vec<f64> {
    let mut values = Vec::new();
    let keep = |_: usize, all: &[R]| {
        let each = all.len() / 6;
        values.extend(all[component * each..(component + 1) * each].iter().map(|x| x.wide()));
    };
    simulation.layers(false, keep).expect("fields");
    values
}

/// The amplitude of `sin(k x)` in `Ex` of a grid along x.
fn mode(simulation: &mut Simulation<f64>) -> f64 {
    let values = component(simulation, 0);
    let n = values.len() as f64;
    values.iter().enumerate().map(|(i, e)| e * (TAU * (i as f64 + 0.5) / n).sin()).sum::<f64>() * 2.0 / n
}

/// Straight line through points: its slope.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let up: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    up / points.iter().map(|p| (p.0 - mx).powi(2)).sum::<f64>()
}

/// When a series of values changes sign, by straight lines between them.
fn crossings(series: &[(f64, f64)]) -> Vec<f64> {
    let cross = |pair: &[(f64, f64)]| {
        let ((t, a), (u, b)) = (pair[0], pair[1]);
        (a * b < 0.0).then(|| t + (u - t) * a / (a - b))
    };
    series.windows(2).filter_map(cross).collect()
}

fn langmuir(order: usize, courant: f64) -> Setup {
    let waves = |amplitude| (0..3).map(|axis| Wave { amplitude, axis, k: [1.0; 3] }).collect();
    let moving = |amplitude| Loading { waves: waves(amplitude), ..loading(1.0, [2; 3]) };
    let both = vec![species("electrons", -1.0, moving(0.01)), species("positrons", 1.0, moving(-0.01))];
    Setup {
        grid: grid([16; 3], [TAU; 3], courant),
        order,
        push: Push::Boris,
        species: both,
        lasers: Vec::new(),
        window: None,
        seed: 1,
    }
}

/// A longitudinal wave in all three dimensions swings with the plasma frequency of both species, the square root of two, less
/// what shapes of particles smooth away: a sinc for each order of each axis, when depositing and when gathering alike. What
/// is left are time steps: 1 %. The field is as large as the first speed says: smoothing cancels out; 3 %.
#[test]
fn plasmas_oscillate_with_their_frequency() {
    for order in 1..=3 {
        let mut simulation = open::<f64>(langmuir(order, 0.9));
        let step = simulation.setup().grid.step;
        let mut series = Vec::new();
        let mut largest: f64 = 0.0;
        while simulation.iteration() as f64 * step < 7.0 {
            simulation.iterate(false).expect("an iteration");
            // Where the sine is one and both cosines are: i + ½ = 4 would be half a cell off.
            let field = component(&mut simulation, 0)[3];
            series.push((simulation.iteration() as f64 * step, field));
            largest = largest.max(field.abs());
        }
        let crossed = crossings(&series);
        let frequency = std::f64::consts::PI
            / slope(&crossed.iter().enumerate().map(|(i, t)| (i as f64, *t)).collect::<Vec<_>>());
        let half = TAU / 32.0;
        let smoothed = (half.sin() / half).powi(3 * order as i32 + 2);
        let expected = 2f64.sqrt() * smoothed;
        assert!(
            (frequency / expected - 1.0).abs() < 0.01,
            "order {order}: frequency {frequency} for {expected}"
        );
        let field = 2.0 * 0.01 / 2f64.sqrt() * (TAU * 3.5 / 16.0).sin();
        assert!((largest / field - 1.0).abs() < 0.03, "order {order}: field {largest} for {field}");
    }
}

/// Plasma waves of warm electrons are damped by those that are as fast: frequencies and rates from the plasma dispersion
/// function. Speeds are graded, so few particles are enough: 64 speeds repeat themselves only after `2π/(k Δv)`, 80 periods of
/// `1/ωp` for the shortest wave, which is longer than the test. Shapes smooth the field by `1 − (k Δx)²/4`, which is a percent of
/// `ωp²` here, and speeds of a thirtieth of light's take half a percent of it: `ωp` and with it `k·λD` are off by half a percent, and
/// the rate at 0.3 changes with the sixth power of that. So 1 % for frequencies and 6 % for rates.
#[test]
fn warm_waves_are_damped_as_they_should_be() {
    for (k_debye, frequency, rate, time) in
        [(0.3, 1.1598, 0.0126, 26.0), (0.4, 1.2851, 0.0661, 22.0), (0.5, 1.4157, 0.1534, 18.0)]
    {
        let speed = 0.03;
        let k = k_debye / speed;
        let waves = vec![Wave { amplitude: 1e-3 * speed, axis: 0, k: [k, 0.0, 0.0] }];
        let start = Start::Graded;
        let electrons = Loading { thermal: [speed, 0.0, 0.0], waves, start, ..loading(1.0, [64, 1, 1]) };
        let grid = grid([32, 1, 1], [TAU / k, 1.0, 1.0], 0.95);
        let species = vec![species("electrons", -1.0, electrons)];
        let setup =
            Setup { grid, order: 2, push: Push::Boris, species, lasers: Vec::new(), window: None, seed: 1 };
        let mut simulation = open::<f64>(setup);
        let step = simulation.setup().grid.step;
        let mut series = Vec::new();
        while simulation.iteration() as f64 * step < time {
            simulation.iterate(false).expect("an iteration");
            series.push((simulation.iteration() as f64 * step, mode(&mut simulation)));
        }
        // Other waves of the plasma are gone after the first swings.
        let crossed = crossings(&series);
        let times: Vec<_> = crossed[2..].iter().enumerate().map(|(i, t)| (i as f64, *t)).collect();
        let found = std::f64::consts::PI / slope(&times);
        let peaks: Vec<(f64, f64)> = series
            .windows(3)
            .filter(|w| w[1].0 > crossed[2] && w[1].1.abs() > w[0].1.abs() && w[1].1.abs() >= w[2].1.abs())
            .map(|w| (w[1].0, w[1].1.abs().ln()))
            .collect();
        let damped = -slope(&peaks);
        println!("k·λD {k_debye}: frequency {found} for {frequency}, rate {damped} for {rate}");
        assert!((found / frequency - 1.0).abs() < 0.01, "k·λD {k_debye}: {found} for {frequency}");
        assert!((damped / rate - 1.0).abs() < 0.06, "k·λD {k_debye}: {damped} for {rate}");
    }
}

/// Two cold streams: the fastest growth is `ωp/√8`, at `k·v0 = √(3/8) ωp`. At a tenth of light's speed relativity takes one percent
/// of the rate away; 4 % with the fit.
#[test]
fn cold_streams_grow_at_their_rate() {
    let speed = 0.1;
    let k = 0.375f64.sqrt() / speed;
    let stream = |drift: f64, amplitude| Loading {
        drift: [drift, 0.0, 0.0],
        waves: vec![Wave { amplitude, axis: 0, k: [k, 0.0, 0.0] }],
        ..loading(0.5, [32, 1, 1])
    };
    let both = vec![species("right", -1.0, stream(speed, 1e-6)), species("left", -1.0, stream(-speed, 0.0))];
    let grid = grid([64, 1, 1], [TAU / k, 1.0, 1.0], 0.95);
    let mut simulation = open::<f64>(Setup {
        grid,
        order: 2,
        push: Push::Boris,
        species: both,
        lasers: Vec::new(),
        window: None,
        seed: 1,
    });
    let step = simulation.setup().grid.step;
    let mut points = Vec::new();
    while simulation.iteration() as f64 * step < 22.0 {
        simulation.iterate(false).expect("an iteration");
        let time = simulation.iteration() as f64 * step;
        if time > 12.0 {
            let energy = simulation.field_energies().expect("fields")[0];
            points.push((time, 0.5 * energy.ln()));
        }
    }
    let (found, expected) = (slope(&points), 0.125f64.sqrt());
    assert!((found / expected - 1.0).abs() < 0.04, "{found} for {expected}");
}

/// The weights of a shape, written down once more: node by node, as a function of the distance.
fn weight(order: usize, distance: f64) -> f64 {
    let x = distance.abs();
    match order {
        1 => (1.0 - x).max(0.0),
        2 if x < 0.5 => 0.75 - x * x,
        2 => 0.5 * (1.5 - x).max(0.0).powi(2),
        _ if x < 1.0 => 2.0 / 3.0 - x * x + 0.5 * x * x * x,
        _ => (2.0 - x).max(0.0).powi(3) / 6.0,
    }
}

/// What the divergence of the electric field differs by from the charge, at every node.
fn excess<R: Real>(simulation: &mut Simulation<R>) -> Vec<f64> {
    let (grid, order, centre) =
        (simulation.setup().grid.clone(), simulation.setup().order, simulation.setup().centre());
    let [nx, ny, nz] = grid.cells;
    let at = |x: i64, y: i64, z: i64| {
        let wrap = |at: i64, n: usize| at.rem_euclid(n as i64) as usize;
        (wrap(z, nz) * ny + wrap(y, ny)) * nx + wrap(x, nx)
    };
    let mut charge = vec![0.0; grid.volume()];
    for species in 0..simulation.setup().species.len() {
        let one = simulation.setup().species[species].charge / grid.cell_volume();
        simulation
            .visit(species, |cell, single| {
                let place: [f64; 3] =
                    std::array::from_fn(|axis| cell[axis] as f64 + single[axis].wide() - centre);
                let [x, y, z] = place.map(|p| p.floor() as i64);
                for k in z - 2..=z + 3 {
                    for j in y - 2..=y + 3 {
                        for i in x - 2..=x + 3 {
                            let share = weight(order, place[0] - i as f64)
                                * weight(order, place[1] - j as f64)
                                * weight(order, place[2] - k as f64);
                            charge[at(i, j, k)] += one * single[6].wide() * share;
                        }
                    }
                }
            })
            .expect("particles");
    }
    let [ex, ey, ez] = [0, 1, 2].map(|axis| component(simulation, axis));
    let mut excess = vec![0.0; grid.volume()];
    for z in 0..nz as i64 {
        for y in 0..ny as i64 {
            for x in 0..nx as i64 {
                let here = at(x, y, z);
                let divergence = (ex[here] - ex[at(x - 1, y, z)]) / grid.spacing[0]
                    + (ey[here] - ey[at(x, y - 1, z)]) / grid.spacing[1]
                    + (ez[here] - ez[at(x, y, z - 1)]) / grid.spacing[2];
                excess[here] = divergence - charge[here];
            }
        }
    }
    excess
}

fn hot(order: usize, cells: [usize; 3], push: Push) -> Setup {
    let some = |drift| Loading { start: Start::Random, thermal: [0.4; 3], drift, ..loading(1.0, [2, 1, 2]) };
    let both = vec![species("electrons", -1.0, some([0.5, 0.0, -0.3])), species("ions", 1.0, some([0.0; 3]))];
    let grid = grid(cells, [2.0, 1.7, 1.3], 0.9);
    Setup { grid, order, push, species: both, lasers: Vec::new(), window: None, seed: 5 }
}

/// Gauss's law stays as true as it was, although a quarter of the particles changes cells in a step: to rounding, which is
/// that of densities and of places in cells, a step each.
fn gauss<R: Real>(order: usize, cells: [usize; 3], rounding: f64) {
    let mut simulation = open::<R>(hot(order, cells, Push::HigueraCary));
    let before = excess(&mut simulation);
    let particles = simulation.particles();
    for _ in 0..12 {
        simulation.iterate(false).expect("an iteration");
    }
    assert_eq!(simulation.particles(), particles);
    let after = excess(&mut simulation);
    let worst = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < rounding, "order {order}: {worst}");
}

#[test]
fn gauss_and_continuity_hold_to_rounding() {
    for order in 1..=3 {
        gauss::<f64>(order, [12, 10, 9], 2e-13);
        gauss::<f64>(order, [12, 1, 9], 2e-13);
        gauss::<f64>(order, [16, 1, 1], 2e-13);
        gauss::<f32>(order, [12, 10, 9], 1e-4);
    }
}

/// A particle alone in a magnetic field goes around once in a period and is where it began. Its own field is nothing.
#[test]
fn orbits_close() {
    for push in [Push::Boris, Push::Vay, Push::HigueraCary] {
        let field = 1.0;
        let momentum = 0.2;
        let gamma = (1.0f64 + momentum * momentum).sqrt();
        let one = Loading {
            drift: [momentum, 0.0, 0.0],
            profile: Profile::Box { density: 1e-12, from: [0.5, 0.5, 0.0], to: [0.55, 0.55, 1.0], ramp: 0.0 },
            ..loading(1e-12, [1, 1, 1])
        };
        let mut grid = grid([20, 20, 1], [1.0, 1.0, 1.0], 0.5);
        // A step that divides the period: each turns by 2·atan(B dt / 2γ).
        let turns = (TAU / (field * grid.step / gamma)).round();
        grid.step = 2.0 * gamma / field * (TAU / turns / 2.0).tan();
        let setup = Setup {
            grid,
            order: 3,
            push,
            species: vec![species("one", 1.0, one)],
            lasers: Vec::new(),
            window: None,
            seed: 1,
        };
        let mut simulation = open::<f64>(setup);
        simulation
            .change_fields(|_, all| {
                let each = all.len() / 6;
                all[5 * each..].fill(field);
            })
            .expect("fields");
        let spacing = 0.05;
        let place = |simulation: &mut Simulation<f64>| {
            let mut at = [0.0; 2];
            simulation
                .visit(0, |cell, single| at = [0, 1].map(|axis| (cell[axis] as f64 + single[axis]) * spacing))
                .expect("one particle");
            at
        };
        assert_eq!(simulation.particles(), 1);
        let begin = place(&mut simulation);
        let mut low: f64 = begin[1];
        for _ in 0..turns as usize {
            simulation.iterate(false).expect("an iteration");
            low = low.min(place(&mut simulation)[1]);
        }
        let end = place(&mut simulation);
        let radius = momentum / field;
        // Higuera and Cary's step turns a part in a million less.
        assert!((end[0] - begin[0]).abs() < 1e-5 && (end[1] - begin[1]).abs() < 1e-5, "{begin:?} {end:?}");
        // The lowest point lies two radii below; steps and the first half of one add less than a percent.
        assert!(
            ((begin[1] - low) / (2.0 * radius) - 1.0).abs() < 0.01,
            "{} for {}",
            begin[1] - low,
            2.0 * radius
        );
    }
}

/// A standing wave in a vacuum follows the dispersion of Yee's grid exactly: to rounding.
#[test]
fn vacuum_waves_have_the_grids_dispersion() {
    let setup = Setup {
        grid: grid([16, 12, 4], [1.6, 0.9, 0.5], 0.97),
        order: 1,
        push: Push::Boris,
        species: Vec::new(),
        lasers: Vec::new(),
        window: None,
        seed: 0,
    };
    let (cells, spacing, step) = (setup.grid.cells, setup.grid.spacing, setup.grid.step);
    let modes = [2.0, 1.0];
    let wave = |x: usize, y: usize| {
        (TAU * modes[0] * x as f64 / cells[0] as f64).cos()
            * (TAU * modes[1] * y as f64 / cells[1] as f64).cos()
    };
    let mut simulation = open::<f64>(setup.clone());
    simulation
        .change_fields(|_, all| {
            let each = all.len() / 6;
            for (at, value) in all[2 * each..3 * each].iter_mut().enumerate() {
                *value = wave(at % cells[0], at / cells[0] % cells[1]);
            }
        })
        .expect("fields");
    let squared: f64 = (0..2)
        .map(|axis| {
            (step / spacing[axis] * (std::f64::consts::PI * modes[axis] / cells[axis] as f64).sin()).powi(2)
        })
        .sum();
    let frequency = 2.0 / step * squared.sqrt().asin();
    let exact = TAU * ((modes[0] / 1.6).powi(2) + (modes[1] / 0.9).powi(2)).sqrt();
    assert!((frequency / exact - 1.0).abs() < 0.03, "the grid's dispersion is close to the vacuum's");
    for _ in 0..100 {
        simulation.iterate(false).expect("an iteration");
    }
    let swing = (frequency * step * 100.0).cos();
    for (at, value) in component(&mut simulation, 2).iter().enumerate() {
        let expected = swing * wave(at % cells[0], at / cells[0] % cells[1]);
        assert!((value - expected).abs() < 1e-11, "{at}: {value} for {expected}");
    }
}

/// The energy of a plasma wave stays within some percent, because momenta are known half a step before and after fields and
/// their squares are averaged; that is an error of the second order, so half the step leaves a quarter of it.
#[test]
fn energy_drifts_less_with_shorter_steps() {
    let drift = |courant: f64| {
        let mut simulation = open::<f64>(langmuir(2, courant));
        let (mut first, mut worst): (Option<f64>, f64) = (None, 0.0);
        while (simulation.iteration() as f64) * simulation.setup().grid.step < 5.0 {
            let measured = simulation.iterate(true).expect("an iteration").expect("measured");
            let energy = measured.energy();
            let first = *first.get_or_insert(energy);
            worst = worst.max((energy / first - 1.0).abs());
        }
        worst
    };
    let (long, short) = (drift(0.9), drift(0.45));
    assert!(long < 0.05, "{long}");
    assert!(short < 0.35 * long, "{short} for {long}");
}
