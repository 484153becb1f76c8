//! HiGHS, a solver for mixed-integer programs, loaded at run time from its shared library.
//!
//! Building it takes cmake and minutes, so it is no part of the default build: `scripts/fetch-highs` fetches the
//! library, and where it is not there the default solver does the work. Only the few functions of its C interface
//! that are needed are looked up. The only `unsafe` of this crate is here.

use std::ffi::{CStr, CString, c_char, c_double, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

/// Why HiGHS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HighsError {
    /// The library is not there, or is no library.
    #[error(
        "HiGHS cannot be loaded from {path}: {why}; `scripts/fetch-highs` fetches it, TIERCEL_HIGHS says where it is"
    )]
    Absent {
        /// Where it was sought.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A call failed.
    #[error("HiGHS failed in {call} with status {status}")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        status: i32,
    },
    /// It gave up.
    #[error("HiGHS ended without a plan (model status {status})")]
    NoSolution {
        /// Its model status.
        status: i32,
    },
}

/// A program to minimise: variables between nothing and one, and rows of sums of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// What one of each variable costs.
    pub(crate) costs: Vec<f64>,
    /// Whether a variable is all or nothing.
    pub(crate) whole: Vec<bool>,
    /// What is paid in any case.
    pub(crate) offset: f64,
    /// The least and the most that each row may be.
    pub(crate) least: Vec<f64>,
    pub(crate) most: Vec<f64>,
    /// Where each row's entries begin, and the entries.
    starts: Vec<c_int>,
    columns: Vec<c_int>,
    values: Vec<f64>,
}

impl Model {
    /// Adds a variable.
    pub(crate) fn variable(&mut self, cost: f64, whole: bool) -> usize {
        self.costs.push(cost);
        self.whole.push(whole);
        self.costs.len() - 1
    }

    /// Adds a row: a sum of variables that must lie between two figures.
    pub(crate) fn row(&mut self, least: f64, most: f64, entries: impl IntoIterator<Item = (usize, f64)>) {
        self.starts.push(self.columns.len() as c_int);
        self.least.push(least);
        self.most.push(most);
        for (column, value) in entries {
            self.columns.push(column as c_int);
            self.values.push(value);
        }
    }
}

/// When HiGHS should stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) gap: f64,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

/// What HiGHS found.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) values: Vec<f64>,
    pub(crate) bound: f64,
}

type Handle = *mut c_void;

/// The functions of the C interface that are used here; the library stays loaded as long as they are.
#[derive(Debug)]
pub(crate) struct Highs {
    create: unsafe extern "C" fn() -> Handle,
    destroy: unsafe extern "C" fn(Handle),
    size_of_int: unsafe extern "C" fn(*const c_void) -> c_int,
    version: unsafe extern "C" fn() -> *const c_char,
    set_bool: unsafe extern "C" fn(Handle, *const c_char, c_int) -> c_int,
    set_int: unsafe extern "C" fn(Handle, *const c_char, c_int) -> c_int,
    set_double: unsafe extern "C" fn(Handle, *const c_char, c_double) -> c_int,
    pass: PassMip,
    run: unsafe extern "C" fn(Handle) -> c_int,
    status: unsafe extern "C" fn(*const c_void) -> c_int,
    info: unsafe extern "C" fn(*const c_void, *const c_char, *mut c_double) -> c_int,
    infinity: unsafe extern "C" fn(*const c_void) -> c_double,
    solution: unsafe extern "C" fn(
        *const c_void,
        *mut c_double,
        *mut c_double,
        *mut c_double,
        *mut c_double,
    ) -> c_int,
    _library: Library,
}

type PassMip = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_double,
    *const c_double,
    *const c_double,
    *const c_double,
    *const c_double,
    *const c_double,
    *const c_int,
    *const c_int,
    *const c_double,
    *const c_int,
) -> c_int;

/// One instance of HiGHS; it is given back when this goes.
struct Instance<'a> {
    highs: &'a Highs,
    handle: Handle,
}

impl Drop for Instance<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `Highs_create` and nobody uses it after this.
        unsafe { (self.highs.destroy)(self.handle) }
    }
}

/// What an option is set to.
enum Setting {
    Off,
    Whole(c_int),
    Figure(f64),
}

const ROWWISE: c_int = 2;
const MINIMIZE: c_int = 1;
const OPTIMAL: c_int = 7;
const TIME_LIMIT: c_int = 13;
/// Bytes are counted exactly elsewhere: the solver must not round them away.
const TOLERANCE: f64 = 1e-9;

impl Highs {
    /// Loads the library from a file, or by name from where the system looks for libraries.
    pub(crate) fn load(path: &Path) -> Result<Highs, HighsError> {
        let absent = |why: String| HighsError::Absent { path: path.to_path_buf(), why };
        // SAFETY: HiGHS's initialisers set up its own tables and threads, nothing of ours; the user chose the file.
        let library = unsafe { Library::new(path) }.map_err(|error| absent(error.to_string()))?;
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: the declared types are those of HiGHS's public header `highs_c_api.h`, with 32-bit integers,
                // which is verified below.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }.map_err(|e| absent(e.to_string()))?
            };
        }
        let highs = Highs {
            create: find!("Highs_create"),
            destroy: find!("Highs_destroy"),
            size_of_int: find!("Highs_getSizeofHighsInt"),
            version: find!("Highs_version"),
            set_bool: find!("Highs_setBoolOptionValue"),
            set_int: find!("Highs_setIntOptionValue"),
            set_double: find!("Highs_setDoubleOptionValue"),
            pass: find!("Highs_passMip"),
            run: find!("Highs_run"),
            status: find!("Highs_getModelStatus"),
            info: find!("Highs_getDoubleInfoValue"),
            infinity: find!("Highs_getInfinity"),
            solution: find!("Highs_getSolution"),
            _library: library,
        };
        let instance = highs.instance();
        // SAFETY: the handle is alive.
        let size = unsafe { (highs.size_of_int)(instance.handle) };
        drop(instance);
        if size as usize == size_of::<c_int>() {
            Ok(highs)
        } else {
            Err(absent(format!("it counts with {size}-byte integers")))
        }
    }

    /// The library's version.
    pub(crate) fn version(&self) -> String {
        // SAFETY: HiGHS returns a string constant that ends with a zero.
        unsafe { CStr::from_ptr((self.version)()) }.to_string_lossy().into_owned()
    }

    fn instance(&self) -> Instance<'_> {
        // SAFETY: `Highs_create` has no preconditions.
        Instance { highs: self, handle: unsafe { (self.create)() } }
    }

    /// Solves a program as far as the limits allow.
    pub(crate) fn solve(&self, model: &Model, limits: &Limits) -> Result<Answer, HighsError> {
        let instance = self.instance();
        for (name, setting) in [
            ("output_flag", Setting::Off),
            ("threads", Setting::Whole(1)),
            ("random_seed", Setting::Whole((limits.seed % (1 << 30)) as c_int)),
            ("time_limit", Setting::Figure(limits.seconds)),
            ("mip_rel_gap", Setting::Figure(limits.gap)),
            ("mip_feasibility_tolerance", Setting::Figure(TOLERANCE)),
            ("primal_feasibility_tolerance", Setting::Figure(TOLERANCE)),
        ] {
            instance.set(name, setting)?;
        }
        instance.pass(model)?;
        // SAFETY: the handle is alive and holds a model.
        let run = unsafe { (self.run)(instance.handle) };
        // SAFETY: the handle is alive.
        let status = unsafe { (self.status)(instance.handle) };
        if run < 0 {
            return Err(HighsError::Call { call: "Highs_run", status: run });
        }
        if status != OPTIMAL && status != TIME_LIMIT {
            return Err(HighsError::NoSolution { status });
        }
        let cost = instance.info("objective_function_value")?;
        // SAFETY: the handle is alive.
        if cost.abs() >= unsafe { (self.infinity)(instance.handle) } {
            return Err(HighsError::NoSolution { status });
        }
        let mut values = vec![0.0; model.costs.len()];
        let none = std::ptr::null_mut();
        // SAFETY: `values` has an entry for every column; the other arrays are not asked for.
        let got = unsafe { (self.solution)(instance.handle, values.as_mut_ptr(), none, none, none) };
        if got < 0 {
            return Err(HighsError::Call { call: "Highs_getSolution", status: got });
        }
        Ok(Answer { values, bound: instance.info("mip_dual_bound")? })
    }
}

impl Instance<'_> {
    fn set(&self, name: &'static str, setting: Setting) -> Result<(), HighsError> {
        let text = CString::new(name).expect("option names have no zeros");
        let (handle, option) = (self.handle, text.as_ptr());
        // SAFETY: the handle and the name are alive, and each function gets a value of its type.
        let status = unsafe {
            match setting {
                Setting::Off => (self.highs.set_bool)(handle, option, 0),
                Setting::Whole(value) => (self.highs.set_int)(handle, option, value),
                Setting::Figure(value) => (self.highs.set_double)(handle, option, value),
            }
        };
        if status < 0 { Err(HighsError::Call { call: name, status }) } else { Ok(()) }
    }

    fn info(&self, name: &'static str) -> Result<f64, HighsError> {
        let text = CString::new(name).expect("names have no zeros");
        let mut value = 0.0;
        // SAFETY: the handle, the name and the place for the value are alive.
        match unsafe { (self.highs.info)(self.handle, text.as_ptr(), &mut value) } {
            status if status < 0 => Err(HighsError::Call { call: name, status }),
            _ => Ok(value),
        }
    }

    fn pass(&self, model: &Model) -> Result<(), HighsError> {
        let (columns, rows) = (model.costs.len(), model.least.len());
        let (zeros, ones) = (vec![0.0; columns], vec![1.0; columns]);
        let whole: Vec<c_int> = model.whole.iter().map(|whole| c_int::from(*whole)).collect();
        // SAFETY: every array has as many entries as the counts before it say, and HiGHS copies them all.
        let status = unsafe {
            (self.highs.pass)(
                self.handle,
                columns as c_int,
                rows as c_int,
                model.values.len() as c_int,
                ROWWISE,
                MINIMIZE,
                model.offset,
                model.costs.as_ptr(),
                zeros.as_ptr(),
                ones.as_ptr(),
                model.least.as_ptr(),
                model.most.as_ptr(),
                model.starts.as_ptr(),
                model.columns.as_ptr(),
                model.values.as_ptr(),
                whole.as_ptr(),
            )
        };
        if status < 0 { Err(HighsError::Call { call: "Highs_passMip", status }) } else { Ok(()) }
    }
}
