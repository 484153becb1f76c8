//! The Python module `tiercel._tiercel`: the house's books, recordings, plans and slow memory, as few calls with plain numbers.
//!
//! Python sees operations and owns the storages; everything that is decided is decided here. Calls that take long let
//! other Python threads run meanwhile.

mod ann;
mod arena;
mod compiled;
mod optim;
mod paths;
mod show;
mod slab;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::{PyKeyError, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tiercel_core::{Access, Bytes, Error, Machine, Place, TierId};
use tiercel_torch::report::Measured;
use tiercel_torch::{Act, Asked, BooksError, Decided, Operation, Role, StorageInfo, Task};
use tiercel_workload::Trace;

/// A task for Python: what it is (0 copy, 1 wait, 2 release, 3 retired), then its numbers.
type Row = (u8, u64, u64, u8, u64, u8, u64, u64, Vec<u64>);

fn rows(tasks: Vec<Task>) -> Vec<Row> {
    let row = |task| match task {
        Task::Copy { ticket, storage, from, to, bytes, after } => {
            (0, ticket, storage, from.tier.0, from.offset.0, to.tier.0, to.offset.0, bytes.0, after)
        }
        Task::Wait(ticket) => (1, ticket, 0, 0, 0, 0, 0, 0, Vec::new()),
        Task::Release(storage) => (2, 0, storage, 0, 0, 0, 0, 0, Vec::new()),
        Task::Retired(storage) => (3, 0, storage, 0, 0, 0, 0, 0, Vec::new()),
    };
    tasks.into_iter().map(row).collect()
}

fn failed(error: BooksError) -> PyErr {
    match error {
        BooksError::Core(
            error @ (Error::Full { .. } | Error::TooLarge { .. } | Error::WorkingSet { .. }),
        ) => PyMemoryError::new_err(error.to_string()),
        BooksError::Unknown(_) | BooksError::NoStep(_) => PyKeyError::new_err(error.to_string()),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

fn machine(toml: &str, capacities: &[u64]) -> PyResult<Machine> {
    let machine = match tiercel_profile::machines::named(toml) {
        Ok(machine) => machine,
        Err(_) => Machine::parse(toml).map_err(|e| PyValueError::new_err(e.to_string()))?,
    };
    let capacities: Vec<Bytes> = capacities.iter().map(|bytes| Bytes(*bytes)).collect();
    Ok(tiercel_torch::with_capacities(&machine, &capacities))
}

/// Who is where, and what has to be done about it.
#[pyclass(frozen)]
struct Books(Mutex<tiercel_torch::Books>);

impl Books {
    fn new(books: tiercel_torch::Books) -> Books {
        Books(Mutex::new(books))
    }

    fn held(&self) -> std::sync::MutexGuard<'_, tiercel_torch::Books> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[pymethods]
impl Books {
    /// Books for storages that come as they come. `machine` is the name of a shipped machine or the text of a machine file.
    #[staticmethod]
    fn on_demand(machine_file: &str, capacities: Vec<u64>) -> PyResult<Books> {
        let machine = machine(machine_file, &capacities)?;
        let policy = Box::new(tiercel_torch::on_demand());
        Ok(Books::new(tiercel_torch::Books::on_demand(&machine, policy)))
    }

    /// Takes up a storage that is there already: on the fastest tier, or at a place of a slower one.
    fn adopt(&self, storage: u64, bytes: u64, home: Option<(u8, u64)>) -> PyResult<Vec<Row>> {
        let home = home.map(|(tier, offset)| Place { tier: TierId(tier), offset: Bytes(offset) });
        self.held().adopt(storage, Bytes(bytes), home).map(rows).map_err(failed)
    }

    /// Makes room for an operation: `uses` are storages with 0 for read, 1 for write, 2 for both; `born` sizes.
    fn begin(&self, uses: Vec<(u64, u8)>, born: Vec<u64>) -> PyResult<Vec<Row>> {
        let access = |kind| match kind {
            0 => Access::Read,
            1 => Access::Write,
            _ => Access::ReadWrite,
        };
        let uses: Vec<_> = uses.into_iter().map(|(storage, kind)| (storage, access(kind))).collect();
        let born: Vec<_> = born.into_iter().map(Bytes).collect();
        self.held().begin(&uses, &born).map(rows).map_err(failed)
    }

    /// The operation has run and has made these storages.
    fn end(&self, made: Vec<(u64, u64)>) -> PyResult<Vec<Row>> {
        let made: Vec<_> = made.into_iter().map(|(storage, bytes)| (storage, Bytes(bytes))).collect();
        self.held().end(&made).map(rows).map_err(failed)
    }

    /// The program has given a storage up.
    fn retire(&self, storage: u64) -> PyResult<()> {
        self.held().retire(storage).map_err(failed)
    }

    /// An iteration of the known sequence begins.
    fn begin_iteration(&self) -> PyResult<Vec<Row>> {
        self.held().begin_iteration().map(rows).map_err(failed)
    }

    /// A step of the known sequence comes next.
    fn begin_step(&self, at: usize) -> PyResult<Vec<Row>> {
        self.held().begin_step(at).map(rows).map_err(failed)
    }

    /// It has been run.
    fn end_step(&self, at: usize) -> PyResult<Vec<Row>> {
        self.held().end_step(at).map(rows).map_err(failed)
    }

    /// The iteration has ended.
    fn end_iteration(&self) -> PyResult<Vec<Row>> {
        self.held().end_iteration().map(rows).map_err(failed)
    }

    /// Copies that have ended.
    fn ended(&self, tickets: Vec<u64>) {
        let mut books = self.held();
        for ticket in tickets {
            books.ended(ticket);
        }
    }

    /// The tier and the offset of a storage's current bytes.
    fn home(&self, storage: u64) -> Option<(u8, u64)> {
        self.held().home(storage).map(|place| (place.tier.0, place.offset.0))
    }

    /// Bytes in use on a tier.
    fn used(&self, tier: u8) -> u64 {
        self.held().used(TierId(tier)).0
    }

    /// Bytes fetched and evicted since the books were opened.
    fn moved(&self) -> (u64, u64) {
        let books = self.held();
        let totals = books.totals();
        (totals.fetched.0, totals.evicted.0)
    }
}

/// An iteration as it was seen, and what was last decided of it.
#[pyclass]
#[derive(Default)]
struct Recording {
    seen: tiercel_torch::Recording,
    decided: Mutex<Option<Arc<Decided>>>,
}

impl Recording {
    /// What was last decided, where anything was.
    fn decided(&self) -> PyResult<Arc<Decided>> {
        let held = self.decided.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.clone().ok_or_else(|| PyRuntimeError::new_err("no plan has been made of this iteration yet"))
    }
}

#[pymethods]
impl Recording {
    #[new]
    fn new() -> Recording {
        Recording::default()
    }

    /// Adds a storage; roles are `weight`, `gradient`, `state` and `activation`.
    fn storage(&mut self, name: String, bytes: u64, role: &str, persistent: bool) -> PyResult<usize> {
        let role = match role {
            "weight" => Role::Weight,
            "gradient" => Role::Gradient,
            "state" => Role::State,
            "activation" => Role::Activation,
            other => return Err(PyValueError::new_err(format!("no role `{other}`"))),
        };
        self.seen.storages.push(StorageInfo { name, bytes, role, persistent });
        Ok(self.seen.storages.len() - 1)
    }

    /// Adds an operation.
    #[allow(clippy::too_many_arguments)]
    fn operation(
        &mut self,
        op: String,
        layer: String,
        phase: u8,
        reads: Vec<u32>,
        writes: Vec<u32>,
        workspace: u64,
        nanos: u64,
        once: bool,
    ) -> PyResult<()> {
        let known = self.seen.storages.len();
        let repeat = once.then_some(tiercel_workload::repeat::Repeat::Once);
        if let Some(slot) = reads.iter().chain(&writes).find(|slot| **slot as usize >= known) {
            return Err(PyValueError::new_err(format!("`{op}` names storage {slot} of {known}")));
        }
        self.seen.operations.push(Operation { op, layer, phase, reads, writes, workspace, nanos, repeat });
        Ok(())
    }

    /// The iteration in Tiercel's text form, which `tiercel plan` and `compare` read.
    fn text(&self, name: &str) -> String {
        tiercel_workload::text::write(&self.seen.trace(name))
    }

    /// Has a system decide, and says what is expected of it.
    #[allow(clippy::too_many_arguments)]
    fn plan(
        &self,
        py: Python<'_>,
        machine_file: &str,
        capacities: Vec<u64>,
        system: &str,
        again: bool,
        places: bool,
        seconds: f64,
        seed: u64,
    ) -> PyResult<Followed> {
        let machine = machine(machine_file, &capacities)?;
        let trace: Arc<Trace> = Arc::new(self.seen.trace("recorded"));
        let followed = py.detach(|| {
            tiercel_torch::decide(trace, &machine, system, Asked { again, places, seconds, seed })
        });
        let decided = followed.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let kept = Arc::new(decided.clone());
        *self.decided.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(kept);
        Ok(Followed(Some(decided)))
    }

    /// Writes what the last plan is expected to do: `events`, or `perfetto` for a trace that Perfetto shows.
    fn show(&self, py: Python<'_>, form: &str, path: PathBuf, name: &str) -> PyResult<()> {
        let decided = self.decided()?;
        py.detach(|| show::write(&decided, form, &path, name))
    }

    /// Writes the house's page of the last plan, with the step times that were measured beside it.
    #[allow(clippy::too_many_arguments)]
    fn report(
        &self,
        py: Python<'_>,
        path: PathBuf,
        title: &str,
        device: String,
        planned_ns: Vec<u64>,
        demand_ns: Vec<u64>,
        peak_bytes: u64,
        notes: Vec<String>,
    ) -> PyResult<()> {
        let decided = self.decided()?;
        let measured = Measured { device, planned_ns, demand_ns, peak_bytes, notes };
        py.detach(|| show::page(&decided, &path, title, &measured))
    }
}

/// What a system has decided.
#[pyclass]
struct Followed(Option<tiercel_torch::Decided>);

#[pymethods]
impl Followed {
    /// The simulated time of an iteration, and the same with everything fast, in nanoseconds; the bound where there is one.
    #[getter]
    fn times(&self) -> PyResult<(u64, u64, Option<u64>)> {
        let decided = self.0.as_ref().ok_or_else(taken)?;
        Ok((decided.predicted.0, decided.all_fast.0, decided.bound.map(|b| b.0)))
    }

    /// The schedule, where the system states one: the storages that begin and end an iteration away, and for each operation what
    /// is done before it and after it. Acts are pairs of a kind and a number: 0 evicts a storage, 1 fetches it, 2 waits for
    /// its copy, 3 runs an operation again, 4 drops a storage.
    #[getter]
    fn schedule(&self) -> PyResult<Option<(Vec<u32>, Vec<Around>)>> {
        let decided = self.0.as_ref().ok_or_else(taken)?;
        let acts = |acts: &[Act]| acts.iter().map(act).collect::<Vec<_>>();
        Ok(decided.schedule.as_ref().map(|schedule| {
            let steps = schedule.steps.iter().map(|step| (acts(&step.before), acts(&step.after))).collect();
            (schedule.away.clone(), steps)
        }))
    }

    /// Where everything lies, where the plan says: storages that are there when an iteration begins, those that set out before an
    /// operation, and those that an operation makes.
    #[getter]
    fn places(&self) -> PyResult<Option<Lying>> {
        let decided = self.0.as_ref().ok_or_else(taken)?;
        let places = decided.schedule.as_ref().and_then(|schedule| schedule.places.as_ref());
        Ok(places.map(|p| (p.begin.clone(), p.fetched.clone(), p.made.clone())))
    }

    /// The most bytes alive at once, and the bytes fetched and evicted in an iteration.
    #[getter]
    fn bytes(&self) -> PyResult<(u64, u64, u64)> {
        let decided = self.0.as_ref().ok_or_else(taken)?;
        Ok((decided.peak.0, decided.fetched.0, decided.evicted.0))
    }

    /// How many tensors move and how many are made again, where that is decided ahead.
    #[getter]
    fn changes(&self) -> PyResult<Option<(usize, usize)>> {
        Ok(self.0.as_ref().ok_or_else(taken)?.changes())
    }

    /// Opens the books, once.
    fn open(&mut self) -> PyResult<Books> {
        let decided = self.0.take().ok_or_else(taken)?;
        decided.open().map(Books::new).map_err(failed)
    }
}

/// What is done before an operation, and after it.
type Around = (Vec<(u8, u32)>, Vec<(u8, u32)>);

/// Places of storages: at the beginning, by operation, and by the operation at which another one runs.
type Lying = (Vec<(u32, u64)>, Vec<(u32, u32, u64)>, Vec<(u32, u32, u32, u64)>);

fn act(act: &Act) -> (u8, u32) {
    match *act {
        Act::Evict(storage) => (0, storage),
        Act::Fetch(storage) => (1, storage),
        Act::Wait(storage) => (2, storage),
        Act::Recompute(operation) => (3, operation),
        Act::Drop(storage) => (4, storage),
    }
}

fn taken() -> PyErr {
    PyRuntimeError::new_err("its books have been opened already")
}

/// A machine file that Tiercel ships, as text, with these capacities; or the same file checked.
#[pyfunction]
fn machine_text(name: &str, capacities: Vec<u64>) -> PyResult<String> {
    Ok(machine(name, &capacities)?.to_toml())
}

/// The bytes that a text such as `12GiB` stands for.
#[pyfunction]
fn parse_bytes(text: &str) -> PyResult<u64> {
    let bytes: Result<Bytes, _> = text.parse();
    bytes
        .map(|b| b.0)
        .map_err(|_| PyValueError::new_err(format!("`{text}` is no amount of memory such as 12GiB")))
}

/// Bytes as a person writes them.
#[pyfunction]
fn show_bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

#[pymodule]
fn _tiercel(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Books>()?;
    m.add_class::<Recording>()?;
    m.add_class::<Followed>()?;
    m.add_class::<slab::Slab>()?;
    m.add_class::<paths::Paths>()?;
    m.add_class::<ann::AnnIndex>()?;
    m.add("DamagedIndex", m.py().get_type::<ann::DamagedIndex>())?;
    m.add_function(wrap_pyfunction!(compiled::schedule, m)?)?;
    arena::add(m)?;
    optim::add(m)?;
    show::add(m)?;
    m.add_function(wrap_pyfunction!(machine_text, m)?)?;
    m.add_function(wrap_pyfunction!(parse_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(show_bytes, m)?)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
