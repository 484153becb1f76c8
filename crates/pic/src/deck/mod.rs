//! Decks: what to simulate, as a person writes it in a TOML file (`docs/pic.md`).
//!
//! Everything is in the units of a plasma of the reference density: lengths in `c/ωp`, times in `1/ωp`, momenta in `mc`.
//! What is wrong is said with its line, and an unknown key with the one that was probably meant.

use toml::Spanned;

use crate::grid::{Boundary, Grid};
use crate::laser::Laser;
use crate::load::{Loading, Profile, Start, Wave};
use crate::openpmd::Format;
use crate::setup::{Push, Setup, Species, Window};

mod file;
mod wrong;

use file::{DeckFile, Ends, GridFile, LaserFile, SpeciesFile, WindowFile};
use wrong::Source;
pub use wrong::{DeckError, Wrong};

/// A deck.
#[derive(Clone, Debug, PartialEq)]
pub struct Deck {
    /// What is simulated, and how.
    pub setup: Setup,
    /// `f32` or `f64`.
    pub precision: Precision,
    /// How many iterations.
    pub steps: u64,
    /// The density that counts as one, in particles a cubic metre.
    pub density: f64,
    /// What is written while it runs.
    pub output: Output,
}

/// How precise numbers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Double precision.
    F64,
}

/// What is written while a deck runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// After how many iterations each; none for not at all.
    pub every: Option<u64>,
    /// After how many iterations energy, momentum and charge are measured.
    pub measure: u64,
    /// Whether particles are written, too.
    pub particles: bool,
    /// What files are written as.
    pub format: Format,
}

impl Deck {
    /// Reads a deck.
    pub fn parse(text: &str) -> Result<Deck, DeckError> {
        let mut source = Source { text, dimensions: 3 };
        let file: DeckFile = toml::from_str(text).map_err(|error| wrong::unreadable(&source, &error))?;
        source.dimensions = match &file.dimensions {
            None => 3,
            Some(at) if (2..=3).contains(at.get_ref()) => *at.get_ref() as usize,
            Some(at) => return Err(source.number("dimensions", at, "2 or 3")),
        };
        let grid = grid(&source, file.grid.get_ref())?;
        let order = match &file.order {
            None => 1,
            Some(at) if (1..=3).contains(at.get_ref()) => *at.get_ref() as usize,
            Some(at) => return Err(source.number("order", at, "1, 2 or 3")),
        };
        let push =
            named(&source, "pusher", &file.pusher, "boris, vay and higuera-cary", |name| match name {
                "boris" => Some(Push::Boris),
                "vay" => Some(Push::Vay),
                "higuera-cary" => Some(Push::HigueraCary),
                _ => None,
            })?;
        let precision = named(&source, "precision", &file.precision, "f32 and f64", |name| match name {
            "f32" => Some(Precision::F32),
            "f64" => Some(Precision::F64),
            _ => None,
        })?;
        let mut all: Vec<Species> = Vec::new();
        for one in &file.species {
            let species = species(&source, one, &grid)?;
            if all.iter().any(|other| other.name == species.name) {
                return Err(source.wrong(&one.name, Wrong::Twice(species.name)));
            }
            all.push(species);
        }
        let mut setup =
            Setup { grid, order, push, species: all, lasers: Vec::new(), window: None, seed: file.seed };
        if let Some(at) = &file.window {
            setup.window = Some(window(&source, at, &setup)?);
        }
        for axis in (0..3).filter(|axis| setup.grid.absorbs(*axis)) {
            let whole = if axis == 2 && setup.window.is_some() { setup.grid.tile[2] } else { 1 };
            if setup.live(axis).is_empty() {
                let what = Wrong::NoCells {
                    axis: ['x', 'y', 'z'][axis],
                    cells: setup.grid.cells[axis],
                    absorber: setup.grid.absorber.next_multiple_of(whole),
                    whole,
                };
                return Err(source.wrong(&file.grid.get_ref().cells, what));
            }
        }
        for one in &file.laser {
            setup.lasers.push(laser(&source, one, &setup)?);
        }
        let every = file.output.every.as_ref().map(|at| source.count("every", at, 1)).transpose()?;
        let measure = file.output.measure.as_ref().map_or(Ok(10), |at| source.count("measure", at, 1))?;
        let format = named(&source, "format", &file.output.format, "json and hdf5", |name| match name {
            "json" => Some(Format::Json),
            "hdf5" => Some(Format::Hdf5),
            _ => None,
        })?;
        let density =
            file.units.density.as_ref().map_or(Ok(1e24), |at| source.positive("density", at, false))?;
        Ok(Deck {
            steps: source.count("steps", &file.steps, 0)?,
            setup,
            precision,
            density,
            output: Output { every, measure, particles: file.output.particles, format },
        })
    }
}

fn named<T: Default>(
    source: &Source<'_>,
    key: &'static str,
    at: &Option<Spanned<String>>,
    known: &'static str,
    of: impl Fn(&str) -> Option<T>,
) -> Result<T, DeckError> {
    let Some(at) = at else { return Ok(T::default()) };
    of(at.get_ref()).ok_or_else(|| source.wrong(at, Wrong::Name { key, is: at.get_ref().clone(), known }))
}

fn grid(source: &Source<'_>, file: &GridFile) -> Result<Grid, DeckError> {
    let cells = source.counts("cells", &file.cells)?;
    // What is flat has a length of one: charges and energies are for so much of it.
    let length = source.each("length", &file.length, 1.0)?;
    if !length.iter().all(|x| x.is_finite() && *x > 0.0) {
        return Err(source.number("length", &file.length, "lengths above zero"));
    }
    let tile = file.tile.as_ref().map_or(Ok([8; 3]), |at| source.counts("tile", at))?;
    let tile: [usize; 3] = std::array::from_fn(|axis| tile[axis].min(cells[axis]));
    let spacing: [f64; 3] = std::array::from_fn(|axis| length[axis] / cells[axis] as f64);
    let boundaries = ends(source, &file.boundary, cells)?;
    let absorber = file.absorber.as_ref().map_or(Ok(8), |at| source.count("absorber", at, 4))? as usize;
    let mut grid = Grid { cells, spacing, tile, step: 0.0, boundaries, absorber };
    // Where nothing varies nothing limits the step but particles, which cross one cell at most.
    let limit = if grid.axes().next().is_some() { grid.courant() } else { f64::INFINITY };
    let limit = spacing.iter().fold(limit, |limit, spacing| limit.min(*spacing));
    grid.step = match (&file.step, &file.courant) {
        (Some(step), _) => {
            let value = source.positive("step", step, false)?;
            if value >= limit {
                return Err(source.wrong(step, Wrong::Courant { step: value, limit }));
            }
            value
        }
        (None, Some(at)) => {
            let share = source.positive("courant", at, false)?;
            if share >= 1.0 {
                return Err(source.wrong(at, Wrong::Courant { step: share * limit, limit }));
            }
            share * limit
        }
        (None, None) => 0.95 * limit,
    };
    Ok(grid)
}

/// What happens at the ends of each axis; a flat one has none that could absorb.
fn ends(
    source: &Source<'_>,
    at: &Option<Spanned<Ends>>,
    cells: [usize; 3],
) -> Result<[Boundary; 3], DeckError> {
    let Some(at) = at else { return Ok([Boundary::Periodic; 3]) };
    let names = match at.get_ref() {
        Ends::All(name) => vec![name.clone(); 3],
        Ends::Each(names) if names.len() == source.dimensions => {
            let mut names = names.clone();
            if source.dimensions == 2 {
                names.insert(1, "periodic".to_string());
            }
            names
        }
        Ends::Each(names) => {
            let must = format!("one name, or {}: one for each axis", source.dimensions);
            let (is, key) = (format!("{names:?}"), "boundary");
            return Err(source.wrong(at, Wrong::Number { key, is, must }));
        }
    };
    let mut boundaries = [Boundary::Periodic; 3];
    for axis in 0..3 {
        boundaries[axis] = match names[axis].as_str() {
            "periodic" => Boundary::Periodic,
            "absorbing" if cells[axis] == 1 => Boundary::Periodic,
            "absorbing" => Boundary::Absorbing,
            other => {
                let (is, known) = (other.to_string(), "periodic and absorbing");
                return Err(source.wrong(at, Wrong::Name { key: "boundary", is, known }));
            }
        };
    }
    Ok(boundaries)
}

fn window(source: &Source<'_>, at: &Spanned<WindowFile>, setup: &Setup) -> Result<Window, DeckError> {
    let (file, grid) = (at.get_ref(), &setup.grid);
    let wrong = |why: &str| source.wrong(at, Wrong::Window(why.to_string()));
    if !grid.absorbs(2) {
        return Err(wrong("a window moves along z, whose ends must be absorbing: `boundary` in [grid]"));
    }
    let (cells, tile) = (grid.cells[2], grid.tile[2]);
    if !cells.is_multiple_of(tile) {
        let why = format!(
            "a window moves by whole tiles, and {cells} cells along z are no multiple of {tile}: `tile` in [grid]"
        );
        return Err(wrong(&why));
    }
    let from = file.from.as_ref().map_or(Ok(0.0), |at| source.positive("from", at, true))?;
    let speed = file.speed.as_ref().map_or(Ok(1.0), |at| source.positive("speed", at, false))?;
    if speed > 1.0 {
        let at = file.speed.as_ref().map_or(1.0, |at| *at.get_ref());
        return Err(wrong(&format!("`speed` is {at}, and must be at most 1, which is that of light")));
    }
    Ok(Window { from, speed })
}

fn laser(source: &Source<'_>, file: &LaserFile, setup: &Setup) -> Result<Laser, DeckError> {
    let axis = named(source, "polarization", &file.polarization, "x and y", |name| match name {
        "x" => Some(0),
        "y" => Some(1),
        _ => None,
    })?;
    let grid = &setup.grid;
    let middle = [0, 1].map(|axis| grid.cells[axis] as f64 * grid.spacing[axis] / 2.0);
    let frequency = source.positive("frequency", &file.frequency, false)?;
    // A wave must have some cells: with fewer than four it does not move as light does.
    let most = std::f64::consts::TAU / (4.0 * grid.spacing[2]);
    if frequency > most {
        let must = format!("{most:.4} at most, with four cells to a wave length");
        return Err(source.number("frequency", &file.frequency, &must));
    }
    let finite = |key, at: &Spanned<f64>| {
        if at.get_ref().is_finite() { Ok(*at.get_ref()) } else { Err(source.number(key, at, "a number")) }
    };
    let laser = Laser {
        a0: source.positive("a0", &file.a0, true)?,
        frequency,
        duration: source.positive("duration", &file.duration, false)?,
        peak: finite("peak", &file.peak)?,
        waist: file.waist.as_ref().map_or(Ok(f64::INFINITY), |at| source.positive("waist", at, false))?,
        centre: laser_centre(source, &file.centre, middle)?,
        at: finite("at", &file.at)?,
        focus: file.focus,
        axis,
    };
    let live = setup.live(2);
    if !(live.start as i64..live.end as i64).contains(&laser.plane(grid)) {
        let of = |cell: usize| cell as f64 * grid.spacing[2];
        let must =
            format!("between {:.4} and {:.4}, where waves are not absorbed", of(live.start), of(live.end));
        return Err(source.number("at", &file.at, &must));
    }
    Ok(laser)
}

/// Where a beam's axis is: along x and y, or along x alone in two dimensions.
fn laser_centre(
    source: &Source<'_>,
    at: &Option<Spanned<Vec<f64>>>,
    middle: [f64; 2],
) -> Result<[f64; 2], DeckError> {
    let Some(at) = at else { return Ok(middle) };
    match (source.dimensions, &at.get_ref()[..]) {
        (3, [x, y]) => Ok([*x, *y]),
        (2, [x]) => Ok([*x, middle[1]]),
        (2, _) => Err(source.number("centre", at, "one number, for x, in two dimensions")),
        _ => Err(source.number("centre", at, "two numbers, for x and y")),
    }
}

fn species(source: &Source<'_>, file: &SpeciesFile, grid: &Grid) -> Result<Species, DeckError> {
    if !file.charge.get_ref().is_finite() {
        return Err(source.number("charge", &file.charge, "a number"));
    }
    let density = source.positive("density", &file.density, true)?;
    let mass = source.positive("mass", &file.mass, false)?;
    let per_cell = source.counts("per_cell", &file.per_cell)?;
    let start = named(source, "start", &file.start, "random, quiet and graded", |name| match name {
        "random" => Some(Start::Random),
        "quiet" => Some(Start::Quiet),
        "graded" => Some(Start::Graded),
        _ => None,
    })?;
    let thermal = match &file.thermal {
        None => [0.0; 3],
        Some(at) => match at.get_ref()[..] {
            [all] if all >= 0.0 => [all; 3],
            [x, y, z] if x >= 0.0 && y >= 0.0 && z >= 0.0 => [x, y, z],
            _ => return Err(source.number("thermal", at, "one momentum or three, zero or more")),
        },
    };
    let place = |key, at: &Option<Spanned<Vec<f64>>>, flat: f64| match at {
        Some(at) => source.each(key, at, flat),
        None => Ok([flat; 3]),
    };
    let profile = match (&file.centre, &file.size) {
        (None, None) => Profile::Box {
            density,
            from: place("from", &file.from, f64::MIN)?,
            to: place("to", &file.to, f64::MAX)?,
            ramp: file.ramp.as_ref().map_or(Ok(0.0), |at| source.positive("ramp", at, true))?,
        },
        (_, size) => {
            if let Some(at) = size.as_ref().filter(|at| !at.get_ref().iter().all(|x| *x > 0.0)) {
                return Err(source.number("size", at, "lengths above zero"));
            }
            let centre = place("centre", &file.centre, 0.0)?;
            let size = place("size", &file.size, f64::INFINITY)?;
            Profile::Gaussian { density, centre, size }
        }
    };
    let mut waves = Vec::new();
    for wave in &file.wave {
        let axis = match wave.axis.get_ref().as_str() {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            other => {
                let is = other.to_string();
                return Err(source.wrong(&wave.axis, Wrong::Name { key: "axis", is, known: "x, y and z" }));
            }
        };
        let length = |axis: usize| grid.cells[axis] as f64 * grid.spacing[axis];
        let modes = source.each("modes", &wave.modes, 0)?;
        let k = std::array::from_fn(|axis| std::f64::consts::TAU * modes[axis] as f64 / length(axis));
        waves.push(Wave { amplitude: wave.amplitude, axis, k });
    }
    let loading = Loading { per_cell, profile, drift: file.drift.unwrap_or([0.0; 3]), thermal, waves, start };
    Ok(Species { name: file.name.get_ref().clone(), charge: *file.charge.get_ref(), mass, loading })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deck of two dimensions is one of three whose y is flat, and what it says for each axis has two numbers.
    #[test]
    fn two_dimensions_are_three_with_a_flat_one() {
        let two = "dimensions = 2\nsteps = 1\n[grid]\ncells = [32, 64]\nlength = [4.0, 8.0]\ntile = [8, 16]\nabsorber = 4\n\
                   boundary = [\"periodic\", \"absorbing\"]\n[[laser]]\na0 = 1.0\nfrequency = 6.0\nduration = 1.0\npeak = 1.0\nwaist = 2.0\n\
                   at = 2.5\ncentre = [1.5]\n[[species]]\nname = \"electrons\"\ncharge = -1.0\nmass = 1.0\ndensity = 1.0\nper_cell = [2, 3]\n\
                   from = [1.0, 2.0]\nwave = [{ axis = \"x\", amplitude = 0.1, modes = [1, 2] }]\n";
        let three = [
            ("dimensions = 2\n", ""),
            ("[32, 64]", "[32, 1, 64]"),
            ("[4.0, 8.0]", "[4.0, 1.0, 8.0]"),
            ("[8, 16]", "[8, 1, 16]"),
            ("\"periodic\", ", "\"periodic\", \"periodic\", "),
            ("[1.5]", "[1.5, 0.5]"),
            ("[2, 3]", "[2, 1, 3]"),
            ("[1.0, 2.0]", "[1.0, -1.7976931348623157e308, 2.0]"),
            ("[1, 2]", "[1, 0, 2]"),
        ];
        let three = three.into_iter().fold(two.to_string(), |text, (from, to)| text.replace(from, to));
        assert_eq!(Deck::parse(two).expect("two"), Deck::parse(&three).expect("three"));
        for (from, to, line, part) in [
            ("[32, 64]", "[32, 1, 64]", 4, "two numbers, for x and z"),
            ("[1.5]", "[1.5, 1.0]", 16, "one number, for x"),
            ("dimensions = 2", "dimensions = 1", 1, "2 or 3"),
            ("dimensions = 2", "dimensions = 3", 4, "three numbers, for x, y and z"),
            ("[2, 3]", "[2, 0]", 22, "two numbers from 1"),
            ("[\"periodic\", \"absorbing\"]", "[\"periodic\"]", 8, "one for each axis"),
        ] {
            let error = Deck::parse(&two.replace(from, to)).expect_err(to);
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    const GOOD: &str = "\
steps = 10
[grid]
cells = [8, 8, 8]
length = [1.0, 1.0, 1.0]
[[species]]
name = \"electrons\"
charge = -1.0
mass = 1.0
density = 1.0
per_cell = [2, 2, 2]
";

    #[test]
    fn a_good_deck_is_read() {
        let deck = Deck::parse(GOOD).expect("a good deck");
        assert_eq!((deck.steps, deck.setup.grid.cells, deck.setup.order), (10, [8; 3], 1));
        assert!((deck.setup.grid.step - 0.95 * 0.125 / 3f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (from, to, line, part) in [
            ("density = 1.0", "density = -1.0", 9, "`density` is -1.0, and must be zero or more"),
            ("density = 1.0", "densty = 1.0", 9, "did you mean `density`?"),
            ("length = [1.0, 1.0, 1.0]", "length = [1.0, 1.0, 1.0]\nstep = 0.1", 5, "Courant's limit"),
            ("cells = [8, 8, 8]", "cells = [8, 0, 8]", 3, "three numbers from 1"),
            ("mass = 1.0", "mass = 0.0", 8, "more than zero"),
            ("steps = 10", "steps = ten", 1, ""),
            ("steps = 10", "steps = -1", 1, "0 at least"),
            ("steps = 10", "steps = 10\norder = 4", 2, "1, 2 or 3"),
            ("steps = 10", "steps = 10\npusher = \"euler\"", 2, "boris, vay and higuera-cary"),
        ] {
            let error = Deck::parse(&GOOD.replace(from, to)).expect_err(to);
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let open = GOOD.replace("[[species]]", "boundary = \"absorbing\"\n[window]\n[[species]]");
        let laser = "[[laser]]\na0 = 1.0\nfrequency = 8.0\nduration = 1.0\npeak = 2.0\nat = 0.1\n[[species]]";
        for (from, to, line, part) in [
            ("", "", 3, "leave none of the 8 cells along x"),
            (
                "cells = [8, 8, 8]",
                "cells = [32, 32, 16]",
                3,
                "in whole tiles of 8, and leave none of the 16 cells along z",
            ),
            ("cells = [8, 8, 8]", "cells = [32, 32, 30]", 6, "30 cells along z are no multiple of 8"),
            ("\"absorbing\"", "\"periodic\"", 6, "must be absorbing"),
            ("\"absorbing\"", "\"reflecting\"", 5, "there are periodic and absorbing"),
            ("[window]", "[window]\nspeed = 2.0", 6, "at most 1"),
            ("[window]", "[window]\nspeeed = 1.0", 7, "did you mean `speed`?"),
            (
                "[8, 8, 8]\nlength = [1.0, 1.0, 1.0]",
                "[32, 1, 64]\nlength = [4.0, 1.0, 4.0]\nabsorber = 3",
                5,
                "4 at least",
            ),
        ] {
            let error = Deck::parse(&open.replace(from, to)).expect_err(to);
            assert_eq!(error.line, line, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let open =
            open.replace("[8, 8, 8]\nlength = [1.0, 1.0, 1.0]", "[32, 1, 64]\nlength = [4.0, 1.0, 4.0]");
        Deck::parse(&open).expect("a window with cells");
        let error = Deck::parse(&open.replace("[[species]]", laser)).expect_err("an antenna in what absorbs");
        assert!(
            error.line == 12 && error.to_string().contains("`at` is 0.1, and must be between 0.5"),
            "{error}"
        );
        let twice = format!("{GOOD}{}", &GOOD[GOOD.find("[[").expect("a species")..]);
        assert!(
            Deck::parse(&twice).expect_err("twice").to_string().contains("two species called `electrons`")
        );
    }
}
