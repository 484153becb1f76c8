//! MPI, found when it is asked for: a run on one machine needs none, and the same program uses whatever MPI a cluster has.
//!
//! The library is loaded at run time, so there is nothing to build against. What MPI leaves to its implementations are handles: Open MPI's
//! are addresses of its own objects, MPICH's (and those of all who share its interface: Intel, Cray, MVAPICH) are numbers.
//! Three functions of each are all that is used.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use super::Link;

/// Where MPI may be found: Open MPI's libraries, then those of MPICH and its kin.
const NAMES: [&str; 6] =
    ["libmpi.so.40", "libmpi.so.80", "libmpi.so", "libmpi.so.12", "libmpich.so.12", "libmpich.so"];

/// A handle, wide enough for either kind.
type Handle = usize;

type Init = unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int;
type Ask = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
type SendReceive = unsafe extern "C" fn(
    *const c_void,
    c_int,
    Handle,
    c_int,
    c_int,
    *mut c_void,
    c_int,
    Handle,
    c_int,
    c_int,
    Handle,
    *mut c_void,
) -> c_int;
type Abort = unsafe extern "C" fn(Handle, c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;

/// The most bytes of one message: counts are of 31 bits.
const MOST: usize = 1 << 30;

/// The ranks that `mpirun` has started.
pub struct Mpi {
    send_receive: SendReceive,
    ends: Ends,
    world: Handle,
    byte: Handle,
    /// Nobody, as one who is sent to or received from.
    nobody: c_int,
    /// What says that nobody wants to know how a message arrived.
    ignore: *mut c_void,
    rank: usize,
    size: usize,
}

/// How MPI ends.
#[derive(Clone, Copy)]
pub struct Ends {
    finalize: Finalize,
    abort: Abort,
    world: Handle,
}

impl Ends {
    /// After all that was to be said; waits for the others.
    pub fn finish(self) {
        // SAFETY: MPI began when this was made, and ends once: this is taken by value where a run ends.
        unsafe { (self.finalize)() };
    }

    /// At once, on all ranks: for one that cannot go on, for which the others would wait for ever.
    pub fn abort(self, code: i32) {
        // SAFETY: any rank may call it between the beginning and the end of MPI.
        unsafe { (self.abort)(self.world, code) };
    }
}

// SAFETY: MPI was not asked for threads, and so wants all calls from the thread that began it. `Mpi` is never shared, and `run` makes
// it and uses it on one thread; the only pointer in it is a constant that is never followed.
unsafe impl Send for Mpi {}

impl Mpi {
    /// Finds MPI and begins. Once in a process.
    pub fn begin() -> Result<Mpi, String> {
        // SAFETY: loading MPI runs the initializers of a library whose purpose is to be loaded; global symbols are what its own plugins
        // look for.
        let open = |name: &&str| unsafe { Library::open(Some(*name), RTLD_NOW | RTLD_GLOBAL) }.ok();
        let library = NAMES.iter().find_map(open).ok_or_else(|| {
            format!("no MPI was found: none of {}; Debian has one in libopenmpi3", NAMES.join(", "))
        })?;
        let object = |name: &str| {
            // SAFETY: what is asked for are addresses of Open MPI's objects, which are not followed here; MPICH has none of that name.
            let found = unsafe { library.get::<*const c_void>(name.as_bytes()) };
            found.ok().map(|at| at.into_raw() as usize)
        };
        let open_mpi = object("ompi_mpi_comm_world\0").zip(object("ompi_mpi_byte\0"));
        // MPICH's numbers are part of the interface that its kin share.
        let (world, byte) = open_mpi.unwrap_or((0x4400_0000, 0x4c00_010d));
        let (nobody, ignore) = if open_mpi.is_some() { (-2, 0) } else { (-1, 1) };
        // SAFETY: these are the functions of the MPI standard, with its signatures; a handle that is a number of 32 bits is passed
        // in the same register as one of 64.
        let (init, rank, size, send_receive, finalize, abort) = unsafe {
            (
                *function::<Init>(&library, "MPI_Init\0")?,
                *function::<Ask>(&library, "MPI_Comm_rank\0")?,
                *function::<Ask>(&library, "MPI_Comm_size\0")?,
                *function::<SendReceive>(&library, "MPI_Sendrecv\0")?,
                *function::<Finalize>(&library, "MPI_Finalize\0")?,
                *function::<Abort>(&library, "MPI_Abort\0")?,
            )
        };
        // SAFETY: the standard allows no arguments to be given; it is called once.
        done("MPI_Init", unsafe { init(ptr::null_mut(), ptr::null_mut()) })?;
        let ask = |name, function: Ask| {
            let mut value = 0;
            // SAFETY: `value` is there to be written while the call lasts.
            done(name, unsafe { function(world, &mut value) })?;
            usize::try_from(value).map_err(|_| format!("{name}: {value}"))
        };
        let (rank, size) = (ask("MPI_Comm_rank", rank)?, ask("MPI_Comm_size", size)?);
        // MPI stays where it is until the process ends: its own threads may be at work in it.
        std::mem::forget(library);
        let ends = Ends { finalize, abort, world };
        let ignore = ignore as *mut c_void;
        Ok(Mpi { send_receive, ends, world, byte, nobody, ignore, rank, size })
    }

    /// How MPI ends, for whoever has given the link away.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// One message each way, of at most [`MOST`] bytes.
    fn exchange(&self, to: (c_int, &[u8]), from: (c_int, &mut [u8])) -> Result<(), String> {
        // SAFETY: both stretches are there while the call lasts, and as long as is said; the standard lets them be empty.
        done("MPI_Sendrecv", unsafe {
            (self.send_receive)(
                to.1.as_ptr().cast(),
                to.1.len() as c_int,
                self.byte,
                to.0,
                0,
                from.1.as_mut_ptr().cast(),
                from.1.len() as c_int,
                self.byte,
                from.0,
                0,
                self.world,
                self.ignore,
            )
        })
    }
}

/// A function of the library.
///
/// # Safety
/// It has this signature.
unsafe fn function<F>(library: &Library, name: &str) -> Result<Symbol<F>, String> {
    // SAFETY: as the caller says.
    unsafe { library.get(name.as_bytes()) }.map_err(|error| format!("this MPI lacks a function: {error}"))
}

/// Whether a call went well.
fn done(what: &str, code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{what} failed with code {code}")) }
}

impl Link for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn swap(&mut self, to: Option<(usize, &[u8])>, from: Option<usize>) -> Result<Vec<u8>, String> {
        let number = |rank: Option<usize>| rank.map_or(self.nobody, |rank| rank as c_int);
        let (target, source) = (number(to.map(|(to, _)| to)), number(from));
        let bytes = to.map_or(&[][..], |(_, bytes)| bytes);
        // How long it is goes ahead; then parts, of which one side may have more than the other.
        let mut long = [0; 8];
        self.exchange((target, &(bytes.len() as u64).to_le_bytes()), (source, &mut long))?;
        let mut received = vec![0; u64::from_le_bytes(long) as usize];
        let parts = bytes.len().div_ceil(MOST).max(received.len().div_ceil(MOST));
        for part in 0..parts {
            let span = |len: usize| (part * MOST).min(len)..((part + 1) * MOST).min(len);
            let (out, into) = (span(bytes.len()), span(received.len()));
            let target = if out.is_empty() { self.nobody } else { target };
            let source = if into.is_empty() { self.nobody } else { source };
            self.exchange((target, &bytes[out]), (source, &mut received[into]))?;
        }
        Ok(received)
    }
}
