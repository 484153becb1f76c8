//! Fields and particles for other programs: openPMD 1.1, one file an iteration, JSON for small meshes or HDF5.
//!
//! Neither needs a library, and openpmd-viewer reads both. Values are in the units of the run, with the factor to SI units beside
//! each (`unitSI`). Axes along which nothing varies are left out: a simulation of two dimensions has fields of two.

use std::path::Path;

use crate::error::PicError;
use crate::grid::Grid;
use crate::simd::Real;
use crate::simulation::Simulation;

mod hdf5;
mod json;
mod tree;

use tree::{Node, Says};

/// The names of axes.
const AXES: [&str; 3] = ["x", "y", "z"];

/// The charge of a positron, in coulombs.
const CHARGE: f64 = 1.602_176_634e-19;
/// The mass of an electron, in kilograms.
const MASS: f64 = 9.109_383_701_5e-31;
/// The speed of light, in metres a second.
const LIGHT: f64 = 299_792_458.0;
/// The permittivity of the vacuum, in farads a metre.
const VACUUM: f64 = 8.854_187_812_8e-12;

/// What one is in SI units, for a reference density in particles a cubic metre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Units {
    /// A density.
    pub density: f64,
    /// A time: `1/ωp`.
    pub time: f64,
    /// A length: `c/ωp`.
    pub length: f64,
    /// An electric field.
    pub electric: f64,
    /// A magnetic field.
    pub magnetic: f64,
    /// A current density.
    pub current: f64,
    /// A momentum.
    pub momentum: f64,
}

impl Units {
    /// For a reference density.
    pub fn new(density: f64) -> Units {
        let frequency = (density * CHARGE * CHARGE / (VACUUM * MASS)).sqrt();
        Units {
            density,
            time: 1.0 / frequency,
            length: LIGHT / frequency,
            electric: MASS * LIGHT * frequency / CHARGE,
            magnetic: MASS * frequency / CHARGE,
            current: CHARGE * density * LIGHT,
            momentum: MASS * LIGHT,
        }
    }
}

fn text(value: &str) -> Says {
    Says::Text(value.to_string())
}

fn names(values: &[&str]) -> Says {
    Says::Texts(values.iter().map(|value| value.to_string()).collect())
}

/// What files are written as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Text, for small meshes.
    #[default]
    Json,
    /// HDF5.
    Hdf5,
}

impl Format {
    /// How names of files end.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Hdf5 => "h5",
        }
    }
}

/// The axes along which something varies, as files have them: z first. One at least.
fn axes(grid: &Grid) -> Vec<usize> {
    let axes: Vec<usize> = (0..3).rev().filter(|axis| grid.cells[*axis] > 1).collect();
    if axes.is_empty() { vec![2] } else { axes }
}

/// Three components on the grid: where in a cell each is, what one of it is in SI units, and its dimension.
fn mesh(
    (grid, begins, length): (&Grid, f64, f64),
    components: [Vec<f64>; 3],
    positions: [[f64; 3]; 3],
    (unit, powers): (f64, [f64; 7]),
) -> Node {
    let axes = axes(grid);
    let of = |each: [f64; 3]| Says::Numbers(axes.iter().map(|axis| each[*axis]).collect());
    let labels: Vec<&str> = axes.iter().map(|axis| AXES[*axis]).collect();
    let shape: Vec<usize> = axes.iter().map(|axis| grid.cells[*axis]).collect();
    let mut record = Node::new(vec![
        ("axisLabels", names(&labels)),
        ("dataOrder", text("C")),
        ("geometry", text("cartesian")),
        ("gridGlobalOffset", of([0.0, 0.0, begins])),
        ("gridSpacing", of(grid.spacing)),
        ("gridUnitSI", Says::Number(length)),
        ("timeOffset", Says::Single(0.0)),
        ("unitDimension", Says::Powers(powers)),
    ]);
    for (axis, values) in components.into_iter().enumerate() {
        let node = Node::new(vec![("position", of(positions[axis])), ("unitSI", Says::Number(unit))]);
        record = record.with(AXES[axis], node.holding(shape.clone(), values));
    }
    record
}

/// Writes the fields, the currents, and the particles if they are wanted, of the present iteration.
pub fn write<R: Real>(
    simulation: &mut Simulation<R>,
    density: f64,
    (format, particles): (Format, bool),
    path: &Path,
) -> Result<(), PicError> {
    let units = Units::new(density);
    let grid = simulation.setup().grid.clone();
    // Where a window has moved to.
    let about = (&grid, simulation.shift() as f64 * grid.spacing[2], units.length);
    let mut collected: [Vec<f64>; 9] = std::array::from_fn(|_| Vec::new());
    for (currents, start, count) in [(false, 0, 6), (true, 6, 3)] {
        simulation.layers(currents, |_, all| {
            let each = all.len() / count;
            for component in 0..count {
                collected[start + component]
                    .extend(all[component * each..(component + 1) * each].iter().map(|x| x.wide()));
            }
        })?;
    }
    let mut species = Node::default();
    if particles {
        for at in 0..simulation.setup().species.len() {
            let name = simulation.setup().species[at].name.clone();
            species = species.with(&name, particle_records(simulation, at, &units)?);
        }
    }
    // All ranks have told the one that leads.
    if !simulation.leads() {
        return Ok(());
    }
    let [ex, ey, ez, bx, by, bz, jx, jy, jz] = collected;
    let edges = [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]];
    let faces = [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]];
    let electric = (units.electric, [1.0, 1.0, -3.0, -1.0, 0.0, 0.0, 0.0]);
    let magnetic = (units.magnetic, [0.0, 1.0, -2.0, -1.0, 0.0, 0.0, 0.0]);
    let current = (units.current, [-2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    let meshes = Node::default()
        .with("E", mesh(about, [ex, ey, ez], edges, electric))
        .with("B", mesh(about, [bx, by, bz], faces, magnetic))
        .with("J", mesh(about, [jx, jy, jz], edges, current));
    let iteration = simulation.iteration();
    let mut content = Node::new(vec![
        ("dt", Says::Number(grid.step)),
        ("time", Says::Number(grid.step * iteration as f64)),
        ("timeUnitSI", Says::Number(units.time)),
    ])
    .with("meshes", meshes);
    if particles {
        content = content.with("particles", species);
    }
    let root = Node::new(vec![
        ("basePath", text("/data/%T/")),
        ("iterationEncoding", text("fileBased")),
        ("iterationFormat", text("iteration_%08T")),
        ("meshesPath", text("meshes/")),
        ("openPMD", text("1.1.0")),
        ("openPMDextension", Says::Count(0)),
        ("particlesPath", text("particles/")),
        ("software", text("Tiercel")),
        ("softwareVersion", text(env!("CARGO_PKG_VERSION"))),
    ])
    .with("data", Node::default().with(&iteration.to_string(), content));
    let bytes = match format {
        Format::Json => json::text(&root).into_bytes(),
        Format::Hdf5 => hdf5::bytes(&root),
    };
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder
        .and_then(|()| tiercel_run::files::replace(path, bytes))
        .map_err(|error| PicError::File { path: path.to_path_buf(), error })
}

/// The records of a species: positions, momenta, weights, charge and mass.
fn particle_records<R: Real>(
    simulation: &mut Simulation<R>,
    at: usize,
    units: &Units,
) -> Result<Node, PicError> {
    let (grid, centre) = (simulation.setup().grid.clone(), simulation.setup().centre());
    let (charge, mass) = (simulation.setup().species[at].charge, simulation.setup().species[at].mass);
    let shift = [0, 0, simulation.shift()];
    let mut columns: [Vec<f64>; 7] = std::array::from_fn(|_| Vec::new());
    simulation.visit(at, |cell, single| {
        for axis in 0..3 {
            columns[axis].push(
                ((cell[axis] + shift[axis]) as f64 + single[axis].wide() - centre) * grid.spacing[axis],
            );
            columns[3 + axis].push(mass * single[3 + axis].wide());
        }
        columns[6].push(single[6].wide());
    })?;
    let count = columns[6].len();
    let about = |powers: [f64; 7], weighted: u32, power: f64| {
        vec![
            ("macroWeighted", Says::Count(weighted)),
            ("timeOffset", Says::Single(0.0)),
            ("unitDimension", Says::Powers(powers)),
            ("weightingPower", Says::Number(power)),
        ]
    };
    let same = |value: f64, unit: f64| {
        vec![
            ("shape", Says::Counts(vec![count as u64])),
            ("unitSI", Says::Number(unit)),
            ("value", Says::Number(value)),
        ]
    };
    let [x, y, z, px, py, pz, weights] = columns;
    let along = |about: Vec<(&'static str, Says)>, unit: f64, columns: [Vec<f64>; 3]| {
        AXES.iter().zip(columns).fold(Node::new(about), |node, (name, values)| {
            node.with(name, Node::new(vec![("unitSI", Says::Number(unit))]).holding(vec![count], values))
        })
    };
    let length = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let momentum = [1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0];
    let nowhere = AXES.iter().fold(Node::new(about(length, 0, 0.0)), |node, name| {
        node.with(name, Node::new(same(0.0, units.length)))
    });
    let real = units.density * units.length.powi(3);
    // What has one component is its record.
    let both = |mut one: Vec<_>, other: Vec<_>| {
        one.extend(other);
        Node::new(one)
    };
    let weighting = both(about([0.0; 7], 1, 1.0), vec![("unitSI", Says::Number(real))]);
    Ok(Node::default()
        .with("position", along(about(length, 0, 0.0), units.length, [x, y, z]))
        .with("positionOffset", nowhere)
        .with("momentum", along(about(momentum, 0, 1.0), units.momentum, [px, py, pz]))
        .with("weighting", weighting.holding(vec![count], weights))
        .with("charge", both(about([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0], 0, 1.0), same(charge, CHARGE)))
        .with("mass", both(about([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0, 1.0), same(mass, MASS))))
}
