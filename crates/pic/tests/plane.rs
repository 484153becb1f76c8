//! Two dimensions, x and z, as decks have them: waves of a vacuum and of a plasma do what is known of them, and charge is kept.

use std::f64::consts::{PI, TAU};

use tiercel_core::{Backing, Bandwidth, Bytes};
use tiercel_pic::deck::Deck;
use tiercel_pic::system::{Needs, System, machine};
use tiercel_pic::{Real, Simulation, Ways};

fn open<R: Real>(deck: &str) -> Simulation<R> {
    let deck = Deck::parse(deck).expect("a good deck");
    let all = Bytes::mib(64);
    let needs = Needs { particles: all, ..Needs::default() };
    let machine = machine(&needs, all, Backing::Dram, (Bandwidth(1e9), Bandwidth(1e9)), 1);
    let wired = System::AllFast.wire(&needs, &machine).expect("a machine of memory");
    Simulation::new(deck.setup, Ways::default(), &machine, wired.placement).expect("room for everything")
}

/// One component of a field at all places, x first.
fn component<R: Real>(simulation: &mut Simulation<R>, component: usize) -> Vec<f64> {
    let mut values = Vec::new();
    let keep = |_: usize, all: &[R]| {
        let each = all.len() / 6;
        values.extend(all[component * each..(component + 1) * each].iter().map(|x| x.wide()));
    };
    simulation.layers(false, keep).expect("fields");
    values
}

/// What Yee's grid turns a wave's phase by in a step: `sin²(ω Δt/2) = Σ (Δt/Δx · sin(k Δx/2))²`.
fn phase<R: Real>(simulation: &Simulation<R>, modes: [f64; 2]) -> f64 {
    let grid = &simulation.setup().grid;
    let part = |(axis, mode): (usize, f64)| {
        (grid.step / grid.spacing[axis] * (PI * mode / grid.cells[axis] as f64).sin()).powi(2)
    };
    2.0 * [(0, modes[0]), (2, modes[1])].map(part).iter().sum::<f64>().sqrt().asin()
}

/// Waves at an angle to both axes follow the dispersion of the grid exactly, to rounding: those whose electric field stands on
/// the plane, and those whose field lies in it and is free of divergence.
#[test]
fn vacuum_waves_have_the_grids_dispersion_in_a_plane() {
    let deck = "dimensions = 2\nsteps = 1\nprecision = \"f64\"\n[grid]\ncells = [16, 12]\nlength = [1.6, 0.9]\ncourant = 0.97\n";
    let modes = [2.0, 1.0];
    let (nx, nz) = (16, 12);
    let mut simulation = open::<f64>(deck);
    assert_eq!(simulation.setup().grid.cells, [nx, 1, nz]);
    let k = |axis: usize, n: usize| TAU * modes[axis] / n as f64;
    let (kx, kz) = (k(0, nx), k(1, nz));
    let across = |x: f64, z: f64| (kx * x).cos() * (kz * z).cos();
    // In the plane: the discrete curl of a wave of `By`, which has no divergence.
    let spacing = simulation.setup().grid.spacing;
    let (dx, dz) = ((kx / 2.0).sin() / spacing[0], (kz / 2.0).sin() / spacing[2]);
    let along =
        |x: f64, z: f64| [dz * (kx * x).cos() * (kz * z).sin(), -dx * (kx * x).sin() * (kz * z).cos()];
    let places = |at: usize| ((at % nx) as f64, (at / nx) as f64);
    let mut layer_first = 0;
    simulation
        .change_fields(|_, all| {
            let each = all.len() / 6;
            for at in 0..each {
                let (x, z) = places(layer_first + at);
                all[each + at] = across(x, z);
                all[at] = along(x + 0.5, z)[0];
                all[2 * each + at] = along(x, z + 0.5)[1];
            }
            layer_first += each;
        })
        .expect("fields");
    for _ in 0..100 {
        simulation.iterate(false).expect("an iteration");
    }
    let turned = phase(&simulation, modes);
    let exact = TAU * ((modes[0] / 1.6).powi(2) + (modes[1] / 0.9).powi(2)).sqrt();
    assert!((turned / simulation.setup().grid.step / exact - 1.0).abs() < 0.03, "close to the vacuum's");
    let swing = (turned * 100.0).cos();
    let [ex, ey, ez] = [0, 1, 2].map(|axis| component(&mut simulation, axis));
    for at in 0..nx * nz {
        let (x, z) = places(at);
        let expected = [along(x + 0.5, z)[0], across(x, z), along(x, z + 0.5)[1]].map(|value| swing * value);
        for (found, expected) in [ex[at], ey[at], ez[at]].into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-10, "{at}: {found} for {expected}");
        }
    }
}

/// A longitudinal wave at an angle to both axes swings with the plasma frequency of both species, the square root of two, less
/// what shapes smooth away: each of two axes a sinc for each order when depositing and when gathering, and one more across. What is
/// left are time steps: 1 %. The field is as large as the first speed says; 3 %. Nothing comes out of the plane.
#[test]
fn plasmas_oscillate_with_their_frequency_in_a_plane() {
    for order in 1..=3 {
        let species = |name: &str, charge: f64, amplitude: f64| {
            format!(
                "[[species]]\nname = \"{name}\"\ncharge = {charge:.1}\nmass = 1.0\ndensity = 1.0\nper_cell = [2, 2]\nstart = \"quiet\"\n\
                 wave = [{{ axis = \"x\", amplitude = {amplitude}, modes = [1, 1] }}, {{ axis = \"z\", amplitude = {amplitude}, modes = [1, 1] }}]\n"
            )
        };
        let deck = format!(
            "dimensions = 2\nsteps = 1\nprecision = \"f64\"\norder = {order}\n[grid]\ncells = [16, 16]\nlength = [{TAU}, {TAU}]\n\
             courant = 0.9\n{}{}",
            species("electrons", -1.0, 0.01),
            species("positrons", 1.0, -0.01)
        );
        let mut simulation = open::<f64>(&deck);
        let step = simulation.setup().grid.step;
        let (mut crossed, mut before, mut largest): (Vec<f64>, Option<f64>, f64) = (Vec::new(), None, 0.0);
        while simulation.iteration() as f64 * step < 7.0 {
            simulation.iterate(false).expect("an iteration");
            let (time, field) = (simulation.iteration() as f64 * step, component(&mut simulation, 0)[3]);
            if let Some(last) = before.filter(|last| last * field < 0.0) {
                crossed.push(time - step * field / (field - last));
            }
            (before, largest) = (Some(field), largest.max(field.abs()));
        }
        let swings = (crossed.len() - 1) as f64;
        let frequency = PI * swings / (crossed[crossed.len() - 1] - crossed[0]);
        let half = TAU / 32.0;
        let expected = 2f64.sqrt() * (half.sin() / half).powi(2 * order + 1);
        assert!((frequency / expected - 1.0).abs() < 0.01, "order {order}: {frequency} for {expected}");
        let field = 2.0 * 0.01 / 2f64.sqrt() * (TAU * 3.5 / 16.0).sin();
        assert!((largest / field - 1.0).abs() < 0.03, "order {order}: field {largest} for {field}");
        let out = component(&mut simulation, 1).iter().fold(0.0f64, |most, e| most.max(e.abs()));
        assert!(out < 1e-12, "order {order}: {out} out of the plane");
    }
}

/// Two dimensions are what three are when nothing varies along y: the same deck with eight cells along y, and particles at the
/// same places of each, has the same fields to rounding in every plane.
#[test]
fn a_plane_is_a_slab_in_which_nothing_varies() {
    let deck = |dimensions: &str, cells: &str, length: &str, per_cell: &str, modes: &str| {
        format!(
            "{dimensions}steps = 1\nprecision = \"f64\"\norder = 2\n[grid]\ncells = {cells}\nlength = {length}\nstep = 0.05\n\
             [[species]]\nname = \"electrons\"\ncharge = -1.0\nmass = 1.0\ndensity = 1.0\nper_cell = {per_cell}\nstart = \"quiet\"\n\
             drift = [0.1, 0.3, -0.2]\nwave = [{{ axis = \"z\", amplitude = 0.1, modes = {modes} }}]\n"
        )
    };
    let mut flat = open::<f64>(&deck("dimensions = 2\n", "[12, 10]", "[1.2, 1.0]", "[2, 3]", "[1, 1]"));
    let mut slab = open::<f64>(&deck("", "[12, 8, 10]", "[1.2, 0.8, 1.0]", "[2, 1, 3]", "[1, 0, 1]"));
    for _ in 0..20 {
        flat.iterate(false).expect("an iteration");
        slab.iterate(false).expect("an iteration");
    }
    for axis in 0..6 {
        let (plane, all) = (component(&mut flat, axis), component(&mut slab, axis));
        // Layer by layer: each has eight rows along y for one of the plane.
        for (at, value) in all.iter().enumerate() {
            let (x, z) = (at % 12, at / (12 * 8));
            let expected = plane[z * 12 + x];
            assert!((value - expected).abs() < 1e-12, "component {axis} at {at}: {value} for {expected}");
        }
    }
    assert_eq!(slab.particles(), 8 * flat.particles());
}
