//! Plans for programs that are compiled ahead: what to move and to make again, step by step, as plain numbers.

use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tiercel_torch::Allowed;

use crate::{Recording, machine};

/// Nanoseconds: of an iteration, with everything fast, and the least that any plan takes; then the most bytes alive at once.
type Figures = (f64, f64, f64, u64);

/// Acts: the step, whether behind its operation, what, and of which storage or operation.
type Acts = Vec<(u32, bool, &'static str, u32)>;

/// Plans a recorded program, and says what to do around each of its steps.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn schedule(
    py: Python<'_>,
    recording: &Recording,
    machine_file: &str,
    capacities: Vec<u64>,
    moves: bool,
    again: bool,
    rounds: u64,
    seconds: f64,
) -> PyResult<(Figures, Acts)> {
    let machine = machine(machine_file, &capacities)?;
    let trace = recording.seen.trace("compiled");
    let time = Duration::from_secs_f64(seconds.clamp(0.1, 3600.0));
    let allowed = Allowed { moves, again, rounds, time };
    let found = py.detach(|| tiercel_torch::schedule(&trace, &machine, allowed));
    let found = found.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let figures = (found.schedule.iteration_ns, found.all_fast, found.schedule.bound_ns, found.peak.0);
    Ok((figures, found.acts()))
}
