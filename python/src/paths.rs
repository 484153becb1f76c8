//! The paths of a program whose iterations differ, for Python: [`tiercel_torch::paths`] as few calls with plain numbers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tiercel_torch::paths::{LIMITS, Paths as Known, Saved, Way};

/// The sequences of operations that a program has done, and which comes next.
#[pyclass(frozen)]
pub struct Paths(Mutex<Known>);

/// What is known of a path: its leaf, name, whether it has a plan, its operations, how often it came (on demand, by its own plan, after
/// another plan, after another plan and on demand) and the mean seconds of these.
type Facts = (u32, u64, bool, usize, [u64; 4], [Option<f64>; 4]);

impl Paths {
    fn held(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn way(number: u8) -> PyResult<Way> {
    match number {
        0 => Ok(Way::Demand),
        1 => Ok(Way::Hit),
        2 => Ok(Way::Turned),
        3 => Ok(Way::Missed),
        other => Err(PyValueError::new_err(format!("no way {other}"))),
    }
}

#[pymethods]
impl Paths {
    #[new]
    fn new() -> Paths {
        Paths(Mutex::new(Known::default()))
    }

    /// The planned path to begin the next iteration with, and its probability.
    fn begin(&self) -> Option<(u32, f64)> {
        self.held().begin()
    }

    /// The iteration is begun with this path's plan.
    fn begun(&self, leaf: u32) {
        self.held().begun(leaf);
    }

    /// The first operations have these shapes; a planned path that they point to.
    fn shape(&self, key: u64) -> Option<u32> {
        self.held().shape(key)
    }

    /// An operation while nothing is followed; a planned path that has become likely.
    fn step(&self, symbol: u64) -> Option<u32> {
        self.held().step(symbol)
    }

    /// Operations other than those of the path that was followed; a planned path that goes on so.
    fn turn(&self, leaf: u32, upto: usize, symbols: Vec<u64>) -> Option<u32> {
        self.held().turn(leaf, upto, &symbols)
    }

    /// The iteration has ended: its leaf, whether it was known, and leaves that were forgotten.
    fn end(&self, served: u8, nanos: f64) -> PyResult<(Option<u32>, bool, Vec<u32>)> {
        Ok(self.held().end(way(served)?, nanos))
    }

    /// The iteration has ended as this path's plan says.
    fn again(&self, leaf: u32, served: u8, nanos: f64) -> PyResult<bool> {
        Ok(self.held().again(leaf, way(served)?, nanos))
    }

    /// Says whether there is a plan for a path.
    fn mark(&self, leaf: u32, planned: bool) {
        self.held().mark(leaf, planned);
    }

    /// How many iterations in a row nobody had seen before.
    #[getter]
    fn new_in_a_row(&self) -> u64 {
        self.held().new_in_a_row()
    }

    /// Whether the iteration under way is as a recorded one so far.
    #[getter]
    fn is_known(&self) -> bool {
        self.held().is_known()
    }

    /// How many paths are known, and how many operations these have together.
    #[getter]
    fn size(&self) -> (usize, usize) {
        self.held().size()
    }

    /// The seconds that a wrong guess costs on average.
    #[getter]
    fn lost(&self) -> Option<f64> {
        self.held().lost()
    }

    /// All paths, the one that came last first.
    fn facts(&self) -> Vec<Facts> {
        let facts = self.held().facts();
        facts.into_iter().map(|f| (f.leaf, f.name, f.planned, f.operations, f.counts, f.seconds)).collect()
    }

    /// A path's leaf by its name.
    fn leaf(&self, name: u64) -> Option<u32> {
        self.held().leaf(name)
    }

    /// A path's name.
    fn name(&self, leaf: u32) -> Option<u64> {
        self.held().name(leaf)
    }

    /// What has been learned, as text.
    fn save(&self) -> PyResult<String> {
        serde_json::to_string(&self.held().save()).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Takes up what was saved.
    fn load(&self, text: &str) -> PyResult<()> {
        let saved: Saved =
            serde_json::from_str(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.held().load(saved);
        Ok(())
    }

    /// The most bytes that all of this takes.
    #[staticmethod]
    fn most_bytes() -> usize {
        Known::most_bytes(&LIMITS)
    }
}
