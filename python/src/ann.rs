//! Vector indexes for Python: `tiercel.ann` is a thin cover of this.
//!
//! Arrays of numpy are read and filled where they lie, found by the description that they give of themselves (the array
//! interface, which needs no header of numpy's). Whatever takes long lets other Python threads run meanwhile. An index is
//! in memory, where it can be changed, or in its file with so much fast memory: what is saved with a limit goes on in its file,
//! and what is changed there comes to memory whole.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};

use pyo3::create_exception;
use pyo3::exceptions::{PyKeyError, PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tiercel_ann::{
    AnnError, Ask, Dtype, FastMemory, Filter, Index, Matrix, Metric, Moved, Neighbours, SaveOptions, Slow,
    Spec, TierAsk, Tiered,
};

create_exception!(_tiercel, DamagedIndex, PyRuntimeError, "A file that is no index, or not a whole one.");

fn failed(error: AnnError) -> PyErr {
    let text = error.to_string();
    match error {
        AnnError::NoSuchLabel(_) => PyKeyError::new_err(text),
        AnnError::FastMemory { .. } => PyMemoryError::new_err(text),
        AnnError::Damaged { .. } | AnnError::Page { .. } => DamagedIndex::new_err(text),
        AnnError::File { source, .. } => match source.raw_os_error() {
            Some(number) => PyOSError::new_err((number, text)),
            None => PyOSError::new_err(text),
        },
        AnnError::Slow { .. } => PyOSError::new_err(text),
        AnnError::Host(_) | AnnError::Tiers(_) | AnnError::Unsupported(_) => PyRuntimeError::new_err(text),
        _ => PyValueError::new_err(text),
    }
}

fn parsed<T: std::str::FromStr<Err = String>>(text: &str) -> PyResult<T> {
    text.parse().map_err(PyValueError::new_err)
}

/// An array of numpy: C-contiguous numbers that the array's owner keeps.
struct Array<'py> {
    address: usize,
    shape: Vec<usize>,
    kind: String,
    writable: bool,
    /// Keeps the numbers alive.
    _owner: Bound<'py, PyAny>,
}

impl<'py> Array<'py> {
    fn of(object: &Bound<'py, PyAny>) -> PyResult<Array<'py>> {
        let described = object.getattr("__array_interface__")?;
        let described = described.cast::<PyDict>().map_err(|_| PyTypeError::new_err("this is no array"))?;
        let field = |name: &str| {
            described.get_item(name)?.ok_or_else(|| PyTypeError::new_err(format!("an array without {name}")))
        };
        if described.get_item("strides")?.is_some_and(|strides| !strides.is_none()) {
            return Err(PyValueError::new_err("the numbers of an array must lie one after the other"));
        }
        let (address, read_only): (usize, bool) = field("data")?.extract()?;
        Ok(Array {
            address,
            shape: field("shape")?.extract()?,
            kind: field("typestr")?.extract()?,
            writable: !read_only,
            _owner: object.clone(),
        })
    }

    /// An array of labels.
    fn labels(object: &Bound<'py, PyAny>) -> PyResult<Array<'py>> {
        let array = Array::of(object)?;
        match (array.kind.as_str(), array.shape.len()) {
            ("<u8", 1) if array.address.is_multiple_of(align_of::<u64>()) => Ok(array),
            (kind, _) => Err(PyTypeError::new_err(format!("labels are one row of uint64, not {kind}"))),
        }
    }

    fn len(&self) -> usize {
        self.shape.iter().product()
    }

    fn bytes(&self) -> PyResult<&[u8]> {
        let each: usize = self.kind.get(2..).and_then(|size| size.parse().ok()).unwrap_or(0);
        if self.len() * each == 0 {
            return Ok(&[]);
        }
        // SAFETY: the array says that so many bytes are there, and lives as long as `self`. As with numpy's own functions, a
        // program that writes to an array in another thread while it is read gets what it deserves.
        Ok(unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len() * each) })
    }

    fn longs(&self) -> &[u64] {
        if self.len() == 0 || self.kind != "<u8" || !self.address.is_multiple_of(align_of::<u64>()) {
            return &[];
        }
        // SAFETY: as in `bytes`; `labels` has seen to it that the address is aligned.
        unsafe { std::slice::from_raw_parts(self.address as *const u64, self.len()) }
    }

    /// Rows of vectors.
    fn matrix(&self) -> PyResult<Matrix<'_>> {
        let dtype = match self.kind.as_str() {
            "<f4" => Dtype::F32,
            "<f2" => Dtype::F16,
            // What numpy has no name for comes as the bits.
            "<u2" => Dtype::Bf16,
            "|u1" => Dtype::U8,
            "|i1" => Dtype::I8,
            other => return Err(PyTypeError::new_err(format!("vectors of type {other} cannot be kept"))),
        };
        let [_, dim] = self.shape[..] else {
            return Err(PyValueError::new_err("vectors are the rows of an array of two dimensions"));
        };
        Matrix::new(dtype, dim, self.bytes()?).map_err(failed)
    }

    /// Fills an array with numbers.
    fn fill<T: Copy>(&self, kind: &str, numbers: &[T]) -> PyResult<()> {
        if self.kind != kind || self.len() != numbers.len() || !self.writable {
            return Err(PyTypeError::new_err(format!(
                "{} numbers of {kind} need an array of as many",
                numbers.len()
            )));
        }
        let bytes = size_of_val(numbers);
        // SAFETY: the array says that it has so many bytes and may be written; bytes need no alignment.
        unsafe {
            std::ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), self.address as *mut u8, bytes)
        };
        Ok(())
    }
}

/// Which labels a search may find.
enum Chosen {
    /// What a callable of Python says of each; what it raises is raised when the search has ended.
    Called(Py<PyAny>, Mutex<Option<PyErr>>),
    /// A bit for each label.
    Bits(Vec<u64>),
}

impl Chosen {
    fn of(filter: &Bound<'_, PyAny>) -> PyResult<Chosen> {
        if filter.is_callable() {
            return Ok(Chosen::Called(filter.clone().unbind(), Mutex::new(None)));
        }
        let array = Array::of(filter)?;
        if array.kind != "|b1" || array.shape.len() != 1 {
            return Err(PyTypeError::new_err(
                "a filter is a callable or one row of bool, one for each label",
            ));
        }
        let mut bits = vec![0u64; array.len().div_ceil(64)];
        for (label, wanted) in array.bytes()?.iter().enumerate() {
            bits[label / 64] |= u64::from(*wanted != 0) << (label % 64);
        }
        Ok(Chosen::Bits(bits))
    }
}

thread_local! {
    /// Whether this thread is in a filter of Python's: an index that is asked there would wait for itself.
    static FILTERING: Cell<bool> = const { Cell::new(false) };
}

fn wants(filter: &Py<PyAny>, raised: &Mutex<Option<PyErr>>, label: u64) -> bool {
    let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
    if raised.is_some() {
        return false;
    }
    Python::attach(|py| {
        FILTERING.set(true);
        let said = filter.call1(py, (label,)).and_then(|said| said.is_truthy(py));
        FILTERING.set(false);
        said.unwrap_or_else(|error| {
            *raised = Some(error);
            false
        })
    })
}

fn free() -> PyResult<()> {
    if FILTERING.get() {
        return Err(PyRuntimeError::new_err(
            "a filter cannot ask or change an index while a search calls it",
        ));
    }
    Ok(())
}

enum State {
    Memory(Box<Index>),
    File(Box<Tiered>),
}

/// An index of vectors, in memory or in its file.
#[pyclass(frozen)]
pub struct AnnIndex {
    state: RwLock<State>,
    fast: Option<FastMemory>,
    slow: Slow,
    spec: Spec,
    /// Threads that the file is opened for: each has its buffers.
    threads: usize,
}

impl AnnIndex {
    fn open(path: PathBuf, fast: Option<FastMemory>, slow: &Slow, threads: usize) -> Result<State, AnnError> {
        Ok(match fast {
            Some(fast) => State::File(Box::new(Tiered::open_on(&path, fast, threads, slow)?)),
            None => State::Memory(Box::new(Index::load(&path)?)),
        })
    }

    fn read<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&State) -> Result<T, AnnError> + Send,
    ) -> PyResult<T> {
        free()?;
        py.detach(|| work(&self.state.read().unwrap_or_else(PoisonError::into_inner))).map_err(failed)
    }

    /// Changes the index, which comes to memory first.
    fn change<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Index) -> Result<T, AnnError> + Send,
    ) -> PyResult<T> {
        free()?;
        py.detach(|| {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            if let State::File(tiered) = &*state {
                *state = State::Memory(Box::new(tiered.load()?));
            }
            match &mut *state {
                State::Memory(index) => work(index),
                State::File(_) => Err(AnnError::Empty),
            }
        })
        .map_err(failed)
    }
}

#[pymethods]
impl AnnIndex {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        dim: usize,
        metric: &str,
        dtype: &str,
        m: usize,
        ef_construction: usize,
        seed: u64,
        fast: Option<&str>,
        slow: Option<&str>,
        threads: usize,
    ) -> PyResult<AnnIndex> {
        let spec = Spec {
            m,
            ef_construction,
            seed,
            ..Spec::new(dim, parsed::<Metric>(metric)?, parsed::<Dtype>(dtype)?)
        };
        Ok(AnnIndex {
            state: RwLock::new(State::Memory(Box::new(Index::new(spec).map_err(failed)?))),
            fast: fast.map(parsed).transpose()?,
            slow: slow.map(parsed).transpose()?.unwrap_or_default(),
            spec,
            threads,
        })
    }

    /// The index in a file: all of it in memory, or so much.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        fast: Option<&str>,
        slow: Option<&str>,
        threads: usize,
    ) -> PyResult<AnnIndex> {
        let fast = fast.map(parsed).transpose()?;
        let slow = slow.map(parsed).transpose()?.unwrap_or_default();
        let state = py.detach(|| AnnIndex::open(path, fast, &slow, threads)).map_err(failed)?;
        let spec = match &state {
            State::Memory(index) => *index.spec(),
            State::File(tiered) => *tiered.spec(),
        };
        Ok(AnnIndex { state: RwLock::new(state), fast, slow, spec, threads })
    }

    /// Adds rows of vectors, with labels or numbered on.
    fn add_items(
        &self,
        py: Python<'_>,
        vectors: &Bound<'_, PyAny>,
        labels: Option<&Bound<'_, PyAny>>,
        threads: usize,
    ) -> PyResult<()> {
        let vectors = Array::of(vectors)?;
        let matrix = vectors.matrix()?;
        let labels = labels.map(Array::labels).transpose()?;
        let labels = labels.as_ref().map(Array::longs);
        self.change(py, |index| index.add_items(&matrix, labels, threads))
    }

    /// Removes vectors by their labels.
    fn remove(&self, py: Python<'_>, labels: &Bound<'_, PyAny>, threads: usize) -> PyResult<()> {
        let labels = Array::labels(labels)?;
        let labels = labels.longs();
        self.change(py, |index| index.remove_items(labels, threads))
    }

    /// Fills two arrays with the labels and distances of each query's nearest, and says how much was read of the slow tier: reads,
    /// bytes, groups of pages that were in fast memory, distances.
    #[allow(clippy::too_many_arguments)]
    fn knn_query(
        &self,
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        k: usize,
        widths: (Option<usize>, Option<f64>, Option<usize>),
        threads: usize,
        filter: Option<&Bound<'_, PyAny>>,
        labels: &Bound<'_, PyAny>,
        distances: &Bound<'_, PyAny>,
    ) -> PyResult<(u64, u64, u64, u64)> {
        let (ef, recall, rerank) = widths;
        let queries = Array::of(queries)?;
        let matrix = queries.matrix()?;
        let (labels, distances) = (Array::of(labels)?, Array::of(distances)?);
        let chosen = filter.map(Chosen::of).transpose()?;
        let said = |label: u64| match &chosen {
            Some(Chosen::Called(filter, raised)) => wants(filter, raised, label),
            _ => true,
        };
        let filter = match &chosen {
            None => None,
            Some(Chosen::Bits(bits)) => Some(Filter::Bitmap(bits)),
            Some(Chosen::Called(..)) => Some(Filter::Predicate(&said)),
        };
        let (found, moved): (Neighbours, Moved) = self.read(py, |state| match state {
            State::Memory(index) => {
                let found = index.knn_query(&matrix, k, &Ask { ef, threads, filter })?;
                let moved = Moved { distances: found.computed, ..Moved::default() };
                Ok((found, moved))
            }
            State::File(tiered) => {
                tiered.knn_query(&matrix, k, &TierAsk { recall, ef, rerank, threads, filter })
            }
        })?;
        if let Some(Chosen::Called(_, raised)) = &chosen
            && let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            return Err(error);
        }
        labels.fill("<u8", &found.labels)?;
        distances.fill("<f4", &found.distances)?;
        Ok((moved.reads, moved.bytes, moved.kept, moved.distances))
    }

    /// Writes the index to a file, whole or not at all; with a limit of memory it goes on in that file.
    fn save(&self, py: Python<'_>, path: PathBuf, code_bits: Option<u32>, threads: usize) -> PyResult<()> {
        let (fast, slow) = (self.fast, self.slow.clone());
        self.change(py, |index| {
            let code_bits = code_bits
                .unwrap_or_else(|| index.code_bits_for(fast.unwrap_or(FastMemory::Share(0.2)), self.threads));
            index.save(&path, &SaveOptions { code_bits, threads, fast, slow })
        })?;
        if self.fast.is_none() {
            return Ok(());
        }
        py.detach(|| {
            let opened = AnnIndex::open(path, self.fast, &self.slow, self.threads)?;
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = opened;
            Ok(())
        })
        .map_err(failed)
    }

    /// Sets how wide beams are that say nothing of it.
    fn set_ef(&self, py: Python<'_>, ef: usize) -> PyResult<()> {
        free()?;
        py.detach(|| {
            if let State::Memory(index) = &mut *self.state.write().unwrap_or_else(PoisonError::into_inner) {
                index.set_ef(ef);
            }
        });
        Ok(())
    }

    /// How many vectors there are, the bytes held in memory, the limit where there is one, and whether vectors are in the file.
    fn state(&self, py: Python<'_>) -> PyResult<(usize, u64, Option<u64>, bool)> {
        self.read(py, |state| {
            Ok(match state {
                State::Memory(index) => (index.len(), index.resident().0, None, false),
                State::File(tiered) => (tiered.len(), tiered.resident().0, Some(tiered.limit().0), true),
            })
        })
    }

    /// What it was made for: dimensions, metric, type, m, width while building, seed.
    fn spec(&self) -> (usize, String, String, usize, usize, u64) {
        let Spec { dim, metric, dtype, m, ef_construction, seed } = self.spec;
        (dim, metric.to_string(), dtype.to_string(), m, ef_construction, seed)
    }

    /// Fills an array with all labels, in rising order.
    fn labels(&self, py: Python<'_>, into: &Bound<'_, PyAny>) -> PyResult<()> {
        let into = Array::labels(into)?;
        let mut labels: Vec<u64> = self.read(py, |state| match state {
            State::Memory(index) => Ok(index.labels().collect()),
            State::File(tiered) => tiered.labels(),
        })?;
        labels.sort_unstable();
        into.fill("<u8", &labels)
    }

    /// Fills an array with the vectors of these labels.
    fn vectors(&self, py: Python<'_>, labels: &Bound<'_, PyAny>, into: &Bound<'_, PyAny>) -> PyResult<()> {
        let (labels, into) = (Array::labels(labels)?, Array::of(into)?);
        let labels = labels.longs();
        let numbers: Vec<f32> = self.read(py, |state| {
            let found: Vec<Option<Vec<f32>>> = match state {
                State::Memory(index) => labels.iter().map(|label| index.vector(*label)).collect(),
                State::File(tiered) => tiered.vectors(labels)?,
            };
            let mut numbers = Vec::with_capacity(labels.len() * self.spec.dim);
            for (label, vector) in labels.iter().zip(found) {
                numbers.extend(vector.ok_or(AnnError::NoSuchLabel(*label))?);
            }
            Ok(numbers)
        })?;
        into.fill("<f4", &numbers)
    }
}
