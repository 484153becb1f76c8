//! What people look at: pages, events and traces of plans, and what machine files say, for Python.

use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tiercel_core::Bytes;
use tiercel_profile::machines;
use tiercel_torch::Decided;
use tiercel_torch::clock::{Call, times};
use tiercel_torch::report::{Estimated, Expected, Limit, Measured, ShowError, save};

use crate::{Recording, machine};

fn failed(error: ShowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn unwritten(path: &Path) -> impl FnOnce(std::io::Error) -> PyErr + '_ {
    move |error| PyOSError::new_err(format!("cannot write {}: {error}", path.display()))
}

/// Writes what a plan is expected to do.
pub fn write(decided: &Decided, form: &str, path: &Path, name: &str) -> PyResult<()> {
    let expected = Expected::new(decided, name).map_err(failed)?;
    let saved = match form {
        "events" => save(path, |out| expected.events(out)),
        "perfetto" => save(path, |out| expected.perfetto(out)),
        other => {
            return Err(PyValueError::new_err(format!("no form `{other}`; there are events and perfetto")));
        }
    };
    saved.map_err(unwritten(path))
}

/// Writes the house's page of a plan.
pub fn page(decided: &Decided, path: &Path, title: &str, measured: &Measured) -> PyResult<()> {
    let report = Expected::new(decided, title).map_err(failed)?.report(title, measured);
    put(path, &report.html())
}

fn put(path: &Path, text: &str) -> PyResult<()> {
    save(path, |out| {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    })
    .map_err(unwritten(path))
}

/// The name of a machine, where it was written down, and the bytes of its fastest tier and of the next.
#[pyfunction]
fn machine_facts(name: &str) -> PyResult<(String, String, u64, u64)> {
    let machine = machine(name, &[])?;
    let bytes = |at: usize| machine.tiers.get(at).map_or(0, |tier| tier.capacity.0);
    Ok((machine.name.clone(), machine.source.clone(), bytes(0), bytes(1)))
}

/// The names of the machines that ship.
#[pyfunction]
fn machine_names() -> Vec<&'static str> {
    machines::names().collect()
}

/// An operation for [`kernel_times`]: its type, number format, operations, bytes read and written, whether its rows are odd, and
/// whether it goes through memory with strides.
type Row = (String, String, u64, u64, u64, bool, bool);

/// How long operations take on a machine, in nanoseconds.
#[pyfunction]
fn kernel_times(machine_file: &str, calls: Vec<Row>) -> PyResult<Vec<u64>> {
    let machine = machine(machine_file, &[])?;
    let call = |(op, format, flops, read, written, odd, strided)| Call {
        op,
        format,
        flops,
        read,
        written,
        odd,
        strided,
    };
    let calls: Vec<Call> = calls.into_iter().map(call).collect();
    let times = times(&machine, &calls).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(times.into_iter().map(|time| time.0).collect())
}

/// Writes the page of an estimate; `limits` are bytes, time, and bytes fetched and evicted, and `plan` is the iteration to draw.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn estimate_page(
    path: PathBuf,
    name: String,
    machine: String,
    peak: u64,
    all_fast_ns: u64,
    limits: Vec<(u64, u64, u64, u64)>,
    notes: Vec<String>,
    plan: Option<&Recording>,
) -> PyResult<()> {
    let limit = |(bytes, iteration_ns, fetched, evicted)| Limit {
        bytes: Bytes(bytes),
        iteration_ns,
        fetched: Bytes(fetched),
        evicted: Bytes(evicted),
    };
    let limits = limits.into_iter().map(limit).collect();
    let expected = plan.map(|plan| Expected::new(&*plan.decided()?, &name).map_err(failed)).transpose()?;
    let estimated = Estimated { name, machine, peak: Bytes(peak), all_fast_ns, limits, notes };
    put(&path, &estimated.report(expected).html())
}

/// Adds the functions to the module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(machine_facts, m)?)?;
    m.add_function(wrap_pyfunction!(machine_names, m)?)?;
    m.add_function(wrap_pyfunction!(kernel_times, m)?)?;
    m.add_function(wrap_pyfunction!(estimate_page, m)?)
}
