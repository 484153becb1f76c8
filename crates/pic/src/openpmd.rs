//! Fields and particles for other programs: openPMD 1.1, one JSON file an iteration, as openPMD-api's JSON backend writes it.
//!
//! Files are for small meshes and need no library: openpmd-viewer reads them. Values are in the units of the run, with the
//! factor to SI units beside each (`unitSI`).

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::PicError;
use crate::simd::Real;
use crate::simulation::Simulation;

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

/// An attribute as the JSON backend has it.
fn attribute(datatype: &str, value: Value) -> Value {
    json!({ "datatype": datatype, "value": value })
}

fn text(value: &str) -> Value {
    attribute("STRING", json!(value))
}

fn number(value: f64) -> Value {
    attribute("DOUBLE", json!(value))
}

fn numbers(values: &[f64]) -> Value {
    attribute("VEC_DOUBLE", json!(values))
}

fn names(values: &[&str]) -> Value {
    attribute("VEC_STRING", json!(values))
}

/// The powers of length, mass, time, current, temperature, amount and luminous intensity.
fn dimension(powers: [f64; 7]) -> Value {
    attribute("ARR_DBL_7", json!(powers))
}

/// Values on the grid as nested lists: z, y, x.
fn nested(values: &[f64], [nx, ny, _]: [usize; 3]) -> Value {
    let planes = values.chunks(nx * ny);
    Value::Array(
        planes.map(|plane| plane.chunks(nx).map(|row| json!(row)).collect::<Vec<_>>().into()).collect(),
    )
}

/// Writes the fields, the currents, and the particles if they are wanted, of the present iteration.
pub fn write<R: Real>(
    simulation: &mut Simulation<R>,
    density: f64,
    particles: bool,
    path: &Path,
) -> Result<(), PicError> {
    let units = Units::new(density);
    let grid = simulation.setup().grid.clone();
    let mut meshes = Map::new();
    // Where a window has moved to.
    let begins = simulation.shift() as f64 * grid.spacing[2];
    let mesh = |components: [Vec<f64>; 3], positions: [[f64; 3]; 3], unit: f64, powers: [f64; 7]| {
        let mut record = Map::new();
        let attributes = json!({
            "axisLabels": names(&["z", "y", "x"]),
            "dataOrder": text("C"),
            "geometry": text("cartesian"),
            "gridGlobalOffset": numbers(&[begins, 0.0, 0.0]),
            "gridSpacing": numbers(&[grid.spacing[2], grid.spacing[1], grid.spacing[0]]),
            "gridUnitSI": number(units.length),
            "timeOffset": attribute("FLOAT", json!(0.0)),
            "unitDimension": dimension(powers),
        });
        record.insert("attributes".to_string(), attributes);
        for (axis, values) in components.into_iter().enumerate() {
            let [x, y, z] = positions[axis];
            let component = json!({
                "attributes": { "position": numbers(&[z, y, x]), "unitSI": number(unit) },
                "data": nested(&values, grid.cells),
                "datatype": "DOUBLE",
            });
            record.insert(["x", "y", "z"][axis].to_string(), component);
        }
        Value::Object(record)
    };
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
    let [ex, ey, ez, bx, by, bz, jx, jy, jz] = collected;
    let edges = [[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]];
    let faces = [[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]];
    let electric = [1.0, 1.0, -3.0, -1.0, 0.0, 0.0, 0.0];
    let magnetic = [0.0, 1.0, -2.0, -1.0, 0.0, 0.0, 0.0];
    let current = [-2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
    meshes.insert("E".to_string(), mesh([ex, ey, ez], edges, units.electric, electric));
    meshes.insert("B".to_string(), mesh([bx, by, bz], faces, units.magnetic, magnetic));
    meshes.insert("J".to_string(), mesh([jx, jy, jz], edges, units.current, current));
    let mut species = Map::new();
    if particles {
        for at in 0..simulation.setup().species.len() {
            let one = simulation.setup().species[at].clone();
            species.insert(one.name.clone(), particle_records(simulation, at, &units)?);
        }
    }
    let iteration = simulation.iteration();
    let mut root = json!({
        "attributes": {
            "basePath": text("/data/%T/"),
            "iterationEncoding": text("fileBased"),
            "iterationFormat": text("iteration_%08T"),
            "meshesPath": text("meshes/"),
            "openPMD": text("1.1.0"),
            "openPMDextension": attribute("UINT", json!(0)),
            "particlesPath": text("particles/"),
            "software": text("Tiercel"),
            "softwareVersion": text(env!("CARGO_PKG_VERSION")),
        },
        "data": {},
        "platform_byte_widths": { "DOUBLE": 8, "FLOAT": 4, "UINT": 4, "ULONGLONG": 8, "CHAR": 1 },
    });
    let mut content = json!({
        "attributes": {
            "dt": number(grid.step),
            "time": number(grid.step * iteration as f64),
            "timeUnitSI": number(units.time),
        },
        "meshes": meshes,
    });
    if particles {
        content["particles"] = Value::Object(species);
    }
    root["data"][iteration.to_string()] = content;
    let text = root.to_string();
    tiercel_run::files::replace(path, text)
        .map_err(|error| PicError::File { path: path.to_path_buf(), error })
}

/// The records of a species: positions, momenta, weights, charge and mass.
fn particle_records<R: Real>(
    simulation: &mut Simulation<R>,
    at: usize,
    units: &Units,
) -> Result<Value, PicError> {
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
    let data = |values: &Vec<f64>, unit: f64| json!({ "attributes": { "unitSI": number(unit) }, "data": values, "datatype": "DOUBLE" });
    let same = |value: f64, unit: f64| {
        json!({ "attributes": {
            "shape": attribute("VEC_ULONGLONG", json!([count])),
            "unitSI": number(unit),
            "value": number(value),
        } })
    };
    let about = |powers: [f64; 7], macro_weighted: u32, power: f64| {
        json!({
            "macroWeighted": attribute("UINT", json!(macro_weighted)),
            "timeOffset": attribute("FLOAT", json!(0.0)),
            "unitDimension": dimension(powers),
            "weightingPower": number(power),
        })
    };
    let with = |attributes: Value, mut one: Value| {
        for (key, value) in attributes.as_object().into_iter().flatten() {
            one["attributes"][key] = value.clone();
        }
        one
    };
    let length = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let axes = |start: usize, unit: f64, attributes: Value| {
        json!({
            "attributes": attributes,
            "x": data(&columns[start], unit),
            "y": data(&columns[start + 1], unit),
            "z": data(&columns[start + 2], unit),
        })
    };
    let nowhere = json!({
        "attributes": about(length, 0, 0.0),
        "x": same(0.0, units.length), "y": same(0.0, units.length), "z": same(0.0, units.length),
    });
    let real = units.density * units.length.powi(3);
    Ok(json!({
        "attributes": {},
        "position": axes(0, units.length, about(length, 0, 0.0)),
        "positionOffset": nowhere,
        "momentum": axes(3, units.momentum, about([1.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0], 0, 1.0)),
        "weighting": with(about([0.0; 7], 1, 1.0), data(&columns[6], real)),
        "charge": with(about([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0], 0, 1.0), same(charge, CHARGE)),
        "mass": with(about([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], 0, 1.0), same(mass, MASS)),
    }))
}
