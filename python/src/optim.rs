//! Optimizers on the processor for `tiercel.optim`: the pass of `tiercel-optim` over memory that Python owns.
//!
//! Raw addresses come from Python, which keeps the tensors alive and lets nobody else touch them while a call runs; other
//! Python threads run meanwhile.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tiercel_optim::{
    Adam, Bf16, Decay, F16, Gradient, Output, Part, Pool, Queue, Rates, Rule, Sgd, level, split,
    sum_of_squares, update,
};

/// Numbers at an address: 0 for 32 bits, 1 for bf16, 2 for half precision; no address for none.
type Numbers = (usize, u8);

/// An optimizer's numbers of a parameter group.
#[pyclass(frozen)]
struct Numbering(Rule);

#[pymethods]
impl Numbering {
    /// AdamW, or Adam where weight decay is coupled with the gradient.
    #[staticmethod]
    fn adam(
        rate: f64,
        betas: (f64, f64),
        epsilon: f64,
        decay: f64,
        decoupled: bool,
        maximize: bool,
    ) -> Numbering {
        let kind = if decoupled { Decay::Decoupled } else { Decay::Coupled };
        Numbering(Rule::Adam(Adam { rate, betas: [betas.0, betas.1], epsilon, decay, kind, maximize }))
    }

    /// Gradient descent.
    #[staticmethod]
    fn sgd(
        rate: f64,
        momentum: f64,
        dampening: f64,
        decay: f64,
        nesterov: bool,
        maximize: bool,
    ) -> Numbering {
        Numbering(Rule::Sgd(Sgd { rate, momentum, dampening, decay, nesterov, maximize }))
    }

    /// How many moments are kept of every parameter.
    fn moments(&self) -> usize {
        self.0.moments()
    }
}

/// Arrays of a bucket of parameters, and what is to be done with them.
struct Task {
    rule: Rule,
    runs: Vec<(usize, usize, u64)>,
    factors: (f32, f32),
    parameter: usize,
    moments: (usize, usize),
    gradient: Numbers,
    output: Numbers,
}

impl Task {
    fn check(&self, len: usize) -> PyResult<()> {
        let wanted = self.rule.moments();
        let missing = wanted > 0 && self.moments.0 == 0 || wanted > 1 && self.moments.1 == 0;
        if self.parameter == 0 || self.gradient.0 == 0 || missing {
            return Err(PyValueError::new_err("an array has no address"));
        }
        let beyond =
            |(start, count, _): &(usize, usize, u64)| start.checked_add(*count).is_none_or(|end| end > len);
        if self.runs.iter().any(beyond) {
            return Err(PyValueError::new_err(format!("a run goes beyond {len} parameters")));
        }
        if self.gradient.1 > 2 || self.output.1 > 2 {
            return Err(PyValueError::new_err("numbers are 0, 1 or 2"));
        }
        Ok(())
    }

    fn run(self, pool: &mut Pool) {
        let wanted = self.rule.moments();
        for (start, count, step) in self.runs {
            let moment = |address: usize, there: bool| {
                if there { count_from(address, start, count) } else { &mut [] }
            };
            let part = Part {
                parameter: count_from(self.parameter, start, count),
                first: moment(self.moments.0, wanted > 0),
                second: moment(self.moments.1, wanted > 1),
                gradient: gradient_at(self.gradient, start, count),
                output: match self.output {
                    (0, _) => Output::None,
                    (address, 0) => Output::F32(count_from(address, start, count)),
                    (address, 1) => Output::Bf16(count_from(address, start, count)),
                    (address, _) => Output::F16(count_from(address, start, count)),
                },
            };
            update(pool, self.rule, step, [self.factors.0, self.factors.1], part, &|_| ());
        }
    }
}

/// Threads that update parameters, at once or in the background.
#[pyclass(frozen)]
struct Updater(Queue);

#[pymethods]
impl Updater {
    /// Starts so many threads, or one a core.
    #[new]
    #[pyo3(signature = (threads=None))]
    fn new(threads: Option<usize>) -> PyResult<Updater> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let queue = Queue::new(threads.filter(|threads| *threads > 0).unwrap_or_else(cores));
        Ok(Updater(queue.map_err(|e| PyRuntimeError::new_err(format!("no thread for updates: {e}")))?))
    }

    /// How many threads there are.
    #[getter]
    fn threads(&self) -> usize {
        self.0.threads()
    }

    /// Takes a step on runs of parameters: each the first one, how many, and the number of its step, counted from 1.
    /// Arrays have `len` numbers each; those that the optimizer does not need may have no address.
    #[allow(clippy::too_many_arguments)]
    fn update(
        &self,
        py: Python<'_>,
        rule: &Numbering,
        runs: Vec<(usize, usize, u64)>,
        factors: (f32, f32),
        parameter: usize,
        moments: (usize, usize),
        gradient: Numbers,
        output: Numbers,
        len: usize,
    ) -> PyResult<()> {
        let task = Task { rule: rule.0, runs, factors, parameter, moments, gradient, output };
        task.check(len)?;
        let done = py.detach(|| self.0.now(|pool| task.run(pool)));
        done.ok_or_else(|| PyRuntimeError::new_err("an update did not end"))
    }

    /// The same in the background, under a name by which `ended` tells its end; lesser orders come first. The arrays are to
    /// stay until then.
    #[allow(clippy::too_many_arguments)]
    fn begin(
        &self,
        name: u64,
        order: u64,
        rule: &Numbering,
        runs: Vec<(usize, usize, u64)>,
        factors: (f32, f32),
        parameter: usize,
        moments: (usize, usize),
        gradient: Numbers,
        output: Numbers,
        len: usize,
    ) -> PyResult<()> {
        let task = Task { rule: rule.0, runs, factors, parameter, moments, gradient, output };
        task.check(len)?;
        self.0.begin(name, order, Box::new(|pool| task.run(pool)));
        Ok(())
    }

    /// Waits for the next update in the background to end, and says its name; nothing where none is left.
    fn ended(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        match py.detach(|| self.0.ended()) {
            Some((name, false)) => Err(PyRuntimeError::new_err(format!("update {name} did not end"))),
            other => Ok(other.map(|(name, _)| name)),
        }
    }

    /// The seconds that updates in the background took since this was last asked.
    fn taken(&self) -> f64 {
        self.0.taken().as_secs_f64()
    }

    /// The sum of the squares of numbers; finite exactly where they all are.
    fn sum_of_squares(&self, py: Python<'_>, numbers: Numbers, len: usize) -> PyResult<f64> {
        if numbers.0 == 0 || numbers.1 > 2 {
            return Err(PyValueError::new_err("no numbers there"));
        }
        let sum = py.detach(|| self.0.now(move |pool| sum_of_squares(pool, gradient_at(numbers, 0, len))));
        sum.ok_or_else(|| PyRuntimeError::new_err("a sum did not end"))
    }
}

/// Numbers from the `start`th on at an address.
fn count_from<'a, T>(address: usize, start: usize, count: usize) -> &'a mut [T] {
    // SAFETY: the caller of `update` owns as many numbers there as it says, and nobody else uses them until it returns.
    unsafe { std::slice::from_raw_parts_mut((address as *mut T).add(start), count) }
}

fn gradient_at<'a>((address, kind): Numbers, start: usize, count: usize) -> Gradient<'a> {
    match kind {
        0 => Gradient::F32(count_from(address, start, count)),
        1 => Gradient::Bf16(count_from::<Bf16>(address, start, count)),
        _ => Gradient::F16(count_from::<F16>(address, start, count)),
    }
}

/// The vectors that updates use: `avx512`, `avx2` or `portable`.
#[pyfunction]
fn vectors() -> PyResult<&'static str> {
    let name = tiercel_optim::Level::ALL.iter().find(|(_, known)| *known == level()).map(|(name, _)| *name);
    name.ok_or_else(|| PyRuntimeError::new_err("vectors without a name"))
}

/// Shares of the parameters whose states stay on the GPU, are streamed to it and are updated by the processor, and the seconds of the
/// update: for so many parameters of so many bytes each, `room` bytes on the GPU, and rates in bytes a second of host memory and
/// the link inward and outward.
#[pyfunction]
fn split_states(parameters: f64, bytes: f64, room: f64, rates: (f64, f64, f64)) -> (f64, f64, f64, f64) {
    let found = split(parameters, bytes, room, Rates { host: rates.0, inward: rates.1, outward: rates.2 });
    (found.gpu, found.streamed, found.host, found.seconds)
}

/// Adds what is here to the module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Numbering>()?;
    m.add_class::<Updater>()?;
    m.add_function(wrap_pyfunction!(split_states, m)?)?;
    m.add_function(wrap_pyfunction!(vectors, m)?)
}
