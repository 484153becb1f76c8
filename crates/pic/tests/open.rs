//! Ends that absorb, lasers that shine in, and windows that move: against what a vacuum and a plasma are known to do.

use std::f64::consts::TAU;

use tiercel_core::{Backing, Bandwidth, Bytes};
use tiercel_pic::deck::Deck;
use tiercel_pic::system::{Needs, System, machine};
use tiercel_pic::{Real, Simulation, Ways};

fn open<R: Real>(text: &str) -> Simulation<R> {
    let deck = Deck::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let all = Bytes::mib(64);
    let needs = Needs { particles: all, ..Needs::default() };
    let machine = machine(&needs, all, Backing::Dram, (Bandwidth(1e9), Bandwidth(1e9)), 1);
    let wired = System::AllFast.wire(&needs, &machine).expect("a machine of memory");
    Simulation::new(deck.setup, Ways::default(), &machine, wired.placement).expect("room for everything")
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

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}

/// A pulse from the middle of an axis leaves at both ends. What is left has less than a millionth of the energy: eight cells
/// damp by `exp(−2·0.7·8)` on the way through both layers, and reflect less than that.
#[test]
fn waves_leave_and_do_not_come_back() {
    for axis in 0..3 {
        let (mut cells, mut length) = ([1; 3], [1.0; 3]);
        (cells[axis], length[axis]) = (160, 16.0);
        let mut simulation = open::<f64>(&format!(
            "steps = 1\n[grid]\ncells = {cells:?}\nlength = {length:?}\nboundary = \"absorbing\"\n"
        ));
        let across = (axis + 1) % 3;
        let mut place = 0;
        simulation
            .change_fields(|_, all| {
                let each = all.len() / 6;
                for value in &mut all[across * each..(across + 1) * each] {
                    let far = (place as f64 - 80.0) / 6.0;
                    *value = (-far * far).exp() * (far * 3.0).cos();
                    place += 1;
                }
            })
            .expect("fields");
        let first: f64 = simulation.field_energies().expect("fields").iter().sum();
        let mut series = Vec::new();
        for _ in 0..480 {
            simulation.iterate(false).expect("an iteration");
            series.push(simulation.field_energies().expect("fields").iter().sum::<f64>() / first);
        }
        // Halfway, before it arrives, nothing is lost; after three lengths nothing is there.
        assert!((series[40] - 1.0).abs() < 0.1, "{}", series[40]);
        assert!(series[479] < 1e-6, "axis {axis}: {:e}", series[479]);
    }
}

/// Waves that come at all angles: a pulse in a small box is what it is in a large one, where no end is near. The largest
/// difference, over the largest field at the edge of the small one, is the reflection: less than 2 in 1000, for a pulse as short
/// as a few cells that comes at up to 45 degrees to both ends.
#[test]
fn waves_at_an_angle_are_absorbed() {
    let run = |cells: usize| {
        let length = cells as f64 * 0.1;
        let mut simulation = open::<f64>(&format!(
            "steps = 1\n[grid]\ncells = [{cells}, 1, {cells}]\nlength = [{length}, 1.0, {length}]\nboundary = \"absorbing\"\n"
        ));
        let middle = cells as f64 / 2.0;
        let mut z = 0;
        simulation
            .change_fields(|_, all| {
                let each = all.len() / 6;
                for (at, value) in all[each..2 * each].iter_mut().enumerate() {
                    let (x, z) = ((at % cells) as f64 - middle, (z + at / cells) as f64 - middle);
                    let far = (x * x + z * z) / 9.0;
                    *value = (1.0 - far) * (-far).exp();
                }
                z += each / cells;
            })
            .expect("fields");
        let mut seen = Vec::new();
        for step in 0..110 {
            simulation.iterate(false).expect("an iteration");
            if step % 5 == 4 {
                let all = component(&mut simulation, 1);
                // Along a line just before the absorbing cells of the small box.
                seen.extend((0..28).map(|at| {
                    let (x, z) = (cells / 2 - 14 + at, cells / 2 + 14);
                    all[z * cells + x]
                }));
            }
        }
        seen
    };
    let (small, large) = (run(48), run(160));
    let wrong: Vec<f64> = small.iter().zip(&large).map(|(a, b)| a - b).collect();
    assert!(largest(&wrong) < 2e-3 * largest(&large), "{:e}", largest(&wrong) / largest(&large));
}

/// A plane wave has the field that it is asked for, and its frequency: to the grid's own rounding of a pulse, half a percent.
#[test]
fn a_laser_has_its_field() {
    let mut simulation = open::<f64>(
        "steps = 1\n[grid]\ncells = [1, 1, 400]\nlength = [1.0, 1.0, 20.0]\nboundary = \"absorbing\"\n\
         [[laser]]\na0 = 0.5\nfrequency = 8.0\nduration = 4.0\npeak = 8.0\nat = 2.0\npolarization = \"y\"\n",
    );
    let step = simulation.setup().grid.step;
    let (mut most, mut crossed, mut before) = (0.0f64, Vec::new(), 0.0);
    while (simulation.iteration() as f64) * step < 24.0 {
        simulation.iterate(false).expect("an iteration");
        let time = simulation.iteration() as f64 * step;
        let field = component(&mut simulation, 1)[200];
        most = most.max(field.abs());
        if before * field < 0.0 && (14.0..18.0).contains(&time) {
            crossed.push(time - step * field / (field - before));
        }
        before = field;
    }
    assert!((most / 4.0 - 1.0).abs() < 0.005, "{most}");
    let period = 2.0 * (crossed[crossed.len() - 1] - crossed[0]) / (crossed.len() - 1) as f64;
    assert!((period * 8.0 / TAU - 1.0).abs() < 0.005, "{period}");
    assert!(largest(&component(&mut simulation, 0)) < 1e-12, "it swings along y alone");
}

/// A beam comes to its focus: there its field is `a0 ω` and falls to 1/e in the waist, and before it is wider by
/// `√(1 + z²/zR²)`. In two dimensions the field falls with the root of the width. A waist of two wave lengths is not
/// paraxial to better than some percent: 5 %.
#[test]
fn a_laser_comes_to_its_focus() {
    let mut simulation = open::<f64>(
        "steps = 1\n[grid]\ncells = [128, 1, 160]\nlength = [12.8, 1.0, 12.0]\nboundary = \"absorbing\"\n\
         [[laser]]\na0 = 1.0\nfrequency = 8.0\nduration = 2.5\npeak = 5.0\nwaist = 1.6\nat = 1.0\nfocus = 7.0\npolarization = \"y\"\n",
    );
    let step = simulation.setup().grid.step;
    let mut most = vec![0.0f64; 128 * 160];
    while (simulation.iteration() as f64) * step < 16.0 {
        simulation.iterate(false).expect("an iteration");
        if simulation.iteration() > 40 {
            let now = component(&mut simulation, 1);
            most.iter_mut().zip(now).for_each(|(most, now)| *most = most.max(now.abs()));
        }
    }
    // At a plane: the field on the axis, and where it has fallen to 1/e.
    let look = |z: f64| {
        let plane = (z / 0.075) as usize;
        let row = &most[plane * 128..(plane + 1) * 128];
        let edge = (64..128).find(|x| row[*x] < row[64] / std::f64::consts::E).unwrap_or(128);
        let (a, b) = (row[edge - 1], row[edge]);
        let part = (a - row[64] / std::f64::consts::E) / (a - b);
        (row[64], (edge as f64 - 65.0 + part) * 0.1)
    };
    let rayleigh: f64 = 8.0 * 1.6 * 1.6 / 2.0;
    for z in [8.0, 4.0] {
        let (field, width) = look(z);
        let wider = (1.0 + ((z - 8.0) / rayleigh).powi(2)).sqrt();
        assert!((field / (8.0 / wider.sqrt()) - 1.0).abs() < 0.05, "{z}: {field}");
        assert!((width / (1.6 * wider) - 1.0).abs() < 0.05, "{z}: {width}");
    }
}

/// A short pulse drives a wave behind it. It is as long as light of the pulse's group speed goes in a period, `2πv/ωp`: to 1 %.
/// Its field is that of the linear theory, `(a0²/4)·√(π/2)·ωp·τ·exp(−ωp²τ²/8)` for a pulse like `exp(−t²/τ²)`; shapes smooth the
/// light by a percent, and the pulse is slower than the theory's: 5 %. The window follows the pulse, and fresh plasma comes in.
#[test]
fn a_laser_drives_a_wake() {
    let (a0, duration, frequency): (f64, f64, f64) = (0.2, 2.0, 8.0);
    let (cells, spacing) = (576, 1.0 / 24.0);
    let mut simulation = open::<f64>(&format!(
        "steps = 1\nprecision = \"f64\"\norder = 2\n[grid]\ncells = [1, 1, {cells}]\nlength = [1.0, 1.0, 24.0]\ntile = [1, 1, 32]\n\
         boundary = \"absorbing\"\ncourant = 0.98\n[window]\nfrom = 17.0\n\
         [[laser]]\na0 = {a0}\nfrequency = {frequency}\nduration = {duration}\npeak = 5.0\nat = 2.0\n\
         [[species]]\nname = \"electrons\"\ncharge = -1.0\nmass = 1.0\ndensity = 1.0\nper_cell = [1, 1, 4]\nstart = \"quiet\"\n\
         from = [-1.0, -1.0, 4.0]\nto = [9.0, 9.0, 1000.0]\nramp = 1.0\n"
    ));
    let step = simulation.setup().grid.step;
    while (simulation.iteration() as f64) * step < 38.0 {
        simulation.iterate(false).expect("an iteration");
    }
    assert!((460..=504).contains(&simulation.shift()), "{}", simulation.shift());
    let all = component(&mut simulation, 2);
    // Behind the pulse, before the end that absorbs.
    let (from, to) = (36, 250);
    let crossed: Vec<f64> = (from..to)
        .filter(|at| all[*at] * all[at + 1] < 0.0)
        .map(|at| spacing * (at as f64 + all[at] / (all[at] - all[at + 1])))
        .collect();
    let length = 2.0 * (crossed[crossed.len() - 1] - crossed[0]) / (crossed.len() - 1) as f64;
    let wave = TAU * (1.0 - 1.0 / (frequency * frequency)).sqrt();
    assert!((length / wave - 1.0).abs() < 0.01, "{length} for {wave}: {crossed:?}");
    let most = largest(&all[from..to]);
    let expected = a0 * a0 / 4.0 * (TAU / 4.0).sqrt() * duration * (-duration * duration / 8.0).exp();
    assert!((most / expected - 1.0).abs() < 0.05, "{most} for {expected}");
}

/// The decks that come with the program are good, and begin.
#[test]
fn the_decks_of_the_examples_begin() {
    let decks = [
        ("laser", include_str!("../../../examples/decks/laser.toml")),
        ("laser-2d", include_str!("../../../examples/decks/laser-2d.toml")),
        ("beam", include_str!("../../../examples/decks/beam.toml")),
        ("uniform", include_str!("../../../examples/decks/uniform.toml")),
        ("langmuir", include_str!("../../../examples/decks/langmuir.toml")),
        ("two-stream", include_str!("../../../examples/decks/two-stream.toml")),
    ];
    for (name, text) in decks {
        let deck = Deck::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(deck.steps >= 50 && !deck.setup.species.is_empty(), "{name}");
        let moves = deck.setup.moved(deck.steps) > 10;
        assert_eq!(moves, name.starts_with("laser") || name == "beam", "{name}");
    }
}
