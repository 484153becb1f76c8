//! PyTorch's allocator for a GPU, replaced: all of a limit is one stretch of memory, handed out where plans say.
//!
//! PyTorch takes an allocator as two functions ([`take`], [`give`]) behind its `CUDAPluggableAllocator`. Books are `tiercel_torch::arena`;
//! here is the memory: addresses for the whole device are reserved once, and as much of them is backed as the limit allows, through the
//! driver's functions, whose addresses Python hands over. Nothing is linked. Where there is no room an exception of PyTorch's own is thrown
//! through its own function, because the wrapper does not look at what it is given.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use tiercel_core::Bytes;
use tiercel_torch::arena::{Arena as Places, Expected};

/// What messages of shortage begin with, so that Python knows them.
const SHORT: &str = "tiercel: no room for";
/// Memory is backed in pieces of this size.
const CHUNK: u64 = 256 << 20;

/// The driver's functions, by address.
#[repr(C)]
struct Driver {
    granularity: unsafe extern "C" fn(*mut usize, *const Properties, u32) -> c_int,
    reserve: unsafe extern "C" fn(*mut u64, usize, usize, u64, u64) -> c_int,
    create: unsafe extern "C" fn(*mut u64, usize, *const Properties, u64) -> c_int,
    map: unsafe extern "C" fn(u64, usize, usize, u64, u64) -> c_int,
    open: unsafe extern "C" fn(u64, usize, *const Access, usize) -> c_int,
    unmap: unsafe extern "C" fn(u64, usize) -> c_int,
    release: unsafe extern "C" fn(u64) -> c_int,
    settle: unsafe extern "C" fn(*mut c_void) -> c_int,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> c_int,
    free: unsafe extern "C" fn(u64) -> c_int,
    /// PyTorch's own: function, file, line, message. It throws.
    fail: unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char),
}

/// `CUmemAllocationProp`.
#[repr(C)]
struct Properties {
    kind: c_int,
    handles: c_int,
    location: [c_int; 2],
    windows: *mut c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: [c_int; 2],
    flags: c_int,
}

impl Properties {
    /// Plain memory of a device.
    fn of(device: i32) -> Properties {
        Properties {
            kind: 1,
            handles: 0,
            location: [1, device],
            windows: std::ptr::null_mut(),
            flags: [0; 8],
        }
    }
}

/// The memory of one device.
struct Memory {
    device: i32,
    address: u64,
    /// Addresses that are reserved, and the memory behind them: handles and sizes in order.
    reserved: u64,
    chunks: Vec<(u64, u64)>,
    places: Places,
    /// What there was no room for.
    wanted: u64,
    /// No limit is in force: more memory is taken where there is none.
    elastic: bool,
    /// The stream that the program computes on, and what other streams use, by offset.
    stream: usize,
    others: HashMap<u64, Vec<usize>>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

fn memory() -> MutexGuard<'static, Option<Memory>> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn backed(&self) -> u64 {
        self.chunks.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Backs so many bytes in all.
    fn back(&mut self, driver: &Driver, bytes: u64) -> Result<(), String> {
        let properties = Properties::of(self.device);
        while self.backed() < bytes {
            let (at, size) = (self.backed(), (bytes - self.backed()).min(CHUNK));
            let mut handle = 0;
            let access = Access { location: [1, self.device], flags: 3 };
            // SAFETY: a new piece of memory behind addresses that are reserved for it and that nobody uses yet; sizes are whole pages.
            let code = unsafe {
                match (driver.create)(&mut handle, size as usize, &properties, 0) {
                    0 => {
                        let place = self.address + at;
                        let mapped = (driver.map)(place, size as usize, 0, handle, 0);
                        if mapped == 0 { (driver.open)(place, size as usize, &access, 1) } else { mapped }
                    }
                    code => code,
                }
            };
            if code != 0 {
                return Err(format!("the device gives no {} more (CUDA error {code})", Bytes(size)));
            }
            self.chunks.push((handle, size));
        }
        Ok(())
    }

    /// Gives pieces at the end back, down to so many bytes.
    fn shed(&mut self, driver: &Driver, bytes: u64) {
        while let Some(&(handle, size)) = self.chunks.last() {
            if self.backed() - size < bytes {
                break;
            }
            // SAFETY: nothing is handed out there, as the books have been made shorter before; kernels that used it have ended.
            unsafe {
                (driver.settle)(std::ptr::null_mut());
                (driver.unmap)(self.address + self.backed() - size, size as usize);
                (driver.release)(handle);
            }
            self.chunks.pop();
        }
    }

    fn take(&mut self, driver: &Driver, bytes: u64, stream: usize) -> Option<u64> {
        let mut found = self.places.take(bytes);
        if found.is_none() && self.elastic {
            let more = self.backed() + bytes.next_multiple_of(2 << 20).max(CHUNK);
            if more <= self.reserved && self.back(driver, more).is_ok() && self.places.resize(Bytes(more)) {
                found = self.places.take(bytes);
            }
        }
        let offset = found?;
        if stream != self.stream {
            self.others.entry(offset).or_default().push(stream);
        }
        Some(self.address + offset)
    }
}

/// Takes memory for PyTorch.
extern "C-unwind" fn take(bytes: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let Some(driver) = DRIVER.get().filter(|_| bytes > 0) else { return std::ptr::null_mut() };
    let (found, free, largest) = {
        let mut held = memory();
        match held.as_mut().filter(|memory| memory.device == device) {
            Some(memory) => {
                let found = memory.take(driver, bytes as u64, stream as usize);
                memory.wanted = if found.is_none() { bytes as u64 } else { memory.wanted };
                (found, memory.places.capacity() - memory.places.used(), memory.places.largest_free())
            }
            None => {
                let mut address = 0;
                // SAFETY: the calling thread has the device's context, as it is about to use the memory.
                let code = unsafe { (driver.allocate)(&mut address, bytes) };
                ((code == 0).then_some(address), 0, 0)
            }
        }
    };
    if let Some(address) = found {
        return address as *mut c_void;
    }
    let why =
        format!("{SHORT} {}: {} are free, {} in one piece", Bytes(bytes as u64), Bytes(free), Bytes(largest));
    fail(driver, why);
    std::ptr::null_mut()
}

/// Throws an exception of PyTorch's.
fn fail(driver: &Driver, why: String) {
    let why = CString::new(why).unwrap_or_default();
    // SAFETY: PyTorch's function copies what it is given and throws; it unwinds through this frame and into PyTorch's.
    unsafe { (driver.fail)(c"tiercel".as_ptr(), c"arena".as_ptr(), 0, why.as_ptr()) }
}

/// Gives memory back.
extern "C-unwind" fn give(address: *mut c_void, _bytes: usize, device: c_int, _stream: *mut c_void) {
    let Some(driver) = DRIVER.get().filter(|_| !address.is_null()) else { return };
    let mut held = memory();
    if let Some(memory) = held.as_mut().filter(|memory| memory.device == device)
        && (memory.address..memory.address + memory.reserved).contains(&(address as u64))
    {
        let offset = address as u64 - memory.address;
        for stream in memory.others.remove(&offset).unwrap_or_default() {
            // SAFETY: a stream that PyTorch named when it took this memory or used it there.
            unsafe { (driver.settle)(stream as *mut c_void) };
        }
        memory.places.give(offset);
        return;
    }
    drop(held);
    // SAFETY: it was taken from the driver by `take`, as no memory of this device was there then.
    unsafe { (driver.free)(address as u64) };
}

/// A piece of memory is used on another stream, too.
extern "C-unwind" fn used_on(address: *mut c_void, stream: *mut c_void) {
    if let Some(memory) = memory().as_mut() {
        let offset = (address as u64).wrapping_sub(memory.address);
        if offset < memory.reserved && stream as usize != memory.stream {
            let streams = memory.others.entry(offset).or_default();
            if !streams.contains(&(stream as usize)) {
                streams.push(stream as usize);
            }
        }
    }
}

/// The longest piece that is free, for libraries that ask before they choose an algorithm.
extern "C" fn largest(_allocator: *mut c_void, _device: i8, largest: *mut usize) {
    let free = memory().as_ref().map_or(0, |memory| memory.places.largest_free());
    // SAFETY: PyTorch hands a variable of its own in and looks at it afterwards.
    unsafe { *largest = (*largest).max(free as usize) };
}

/// The addresses of the functions that PyTorch is given: take, give, and used on another stream.
#[pyfunction]
fn arena_functions() -> (usize, usize, usize) {
    (take as *const () as usize, give as *const () as usize, used_on as *const () as usize)
}

/// Hands over the driver's functions and PyTorch's that throws, in the order of [`Driver`].
#[pyfunction]
fn arena_driver(addresses: [usize; 11]) -> PyResult<()> {
    if addresses.contains(&0) {
        return Err(PyRuntimeError::new_err("a function of the driver is missing"));
    }
    // SAFETY: the fields are functions in this order, and the caller looked them up by the names of functions of these types.
    let driver = unsafe { std::mem::transmute::<[usize; 11], Driver>(addresses) };
    let _ = DRIVER.set(driver);
    Ok(())
}

/// How many words of an allocator's table of functions are looked at.
const TABLE: usize = 64;

/// Teaches an allocator object to say how much is free in one piece: in a copy of its table of functions the entry that is at `asked` is
/// replaced. `false`, and nothing changes, where there is no such entry.
#[pyfunction]
fn arena_teach(allocator: usize, asked: usize) -> bool {
    if allocator == 0 || asked == 0 {
        return false;
    }
    // SAFETY: the address of an object with a table of functions, whose first word points two words into the table. The table and what
    // follows it are constant data of a large library, so that the words that are read are there. The copy is never freed.
    unsafe {
        let object = allocator as *mut *const usize;
        let table = (*object).sub(2);
        let mut copy: Vec<usize> = (0..TABLE).map(|at| *table.add(at)).collect();
        let Some(entry) = copy.iter_mut().skip(2).find(|entry| **entry == asked) else { return false };
        *entry = largest as *const () as usize;
        let copy: &'static mut [usize] = Box::leak(copy.into_boxed_slice());
        *object = copy.as_ptr().add(2);
    }
    true
}

/// Takes a limit's memory, `small` of it for pieces of less than `least`; what is in force already is made longer or shorter.
#[pyfunction]
fn arena_open(device: i32, total: u64, limit: u64, small: u64, least: u64, stream: usize) -> PyResult<()> {
    let driver =
        DRIVER.get().ok_or_else(|| PyRuntimeError::new_err("the driver's functions are not known"))?;
    let mut held = memory();
    if held.is_none() {
        let (mut page, mut address) = (0, 0);
        // SAFETY: plain calls of the driver with variables of our own.
        let code = unsafe {
            match (driver.granularity)(&mut page, &Properties::of(device), 0) {
                0 => (driver.reserve)(&mut address, (total as usize).next_multiple_of(page.max(1)), 0, 0, 0),
                code => code,
            }
        };
        if code != 0 {
            return Err(PyRuntimeError::new_err(format!(
                "no addresses for a device's memory (CUDA error {code})"
            )));
        }
        let places = Places::new(Bytes(0), Bytes(0), Bytes(least));
        let (reserved, chunks, others) = (total, Vec::new(), HashMap::new());
        *held = Some(Memory {
            device,
            address,
            reserved,
            chunks,
            places,
            wanted: 0,
            elastic: false,
            stream,
            others,
        });
    }
    let Some(memory) = held.as_mut() else { return Ok(()) };
    let limit = limit / (2 << 20) * (2 << 20);
    let used = memory.places.used();
    if memory.backed() > limit {
        if !memory.places.resize(Bytes(limit)) {
            let why = format!("{} are in use where memory would have to be given back", Bytes(used));
            return Err(PyMemoryError::new_err(why));
        }
        memory.shed(driver, limit);
    }
    memory.back(driver, limit).map_err(PyMemoryError::new_err)?;
    if memory.places.capacity() == 0 {
        memory.places = Places::new(Bytes(limit), Bytes(small), Bytes(least));
    } else {
        memory.places.resize(Bytes(limit));
    }
    memory.elastic = false;
    Ok(())
}

/// No limit is in force any more.
#[pyfunction]
fn arena_loosen() {
    if let Some(memory) = memory().as_mut() {
        memory.elastic = true;
    }
}

/// What comes next lies at these places; see `tiercel_torch::arena`.
#[pyfunction]
fn arena_expect(results: Vec<Wanted>, beside: (u64, u64)) {
    if let Some(memory) = memory().as_mut() {
        memory.places.expect(results.into_iter().map(expected), beside);
    }
}

/// A result for [`arena_expect`]: its size, its place, and how many pieces of its size come before.
type Wanted = (u64, u64, u32);

fn expected((bytes, place, later): Wanted) -> Expected {
    Expected { bytes, place, later }
}

/// An operation begins of which nothing is known.
#[pyfunction]
fn arena_watch() {
    if let Some(memory) = memory().as_mut() {
        memory.places.watch();
    }
}

/// What was taken since then: addresses and sizes in order.
#[pyfunction]
fn arena_taken() -> Vec<(u64, u64)> {
    let held = memory();
    let taken = |memory: &Memory| {
        memory.places.taken().iter().map(|(offset, bytes)| (memory.address + offset, *bytes)).collect()
    };
    held.as_ref().map_or_else(Vec::new, taken)
}

/// Begins to clear a stretch of so many bytes: the addresses of what has to move, or nothing where that is not possible. Only what is at
/// `movable` may, and nothing larger than a share of the longest free piece.
#[pyfunction]
fn arena_clear(bytes: u64, share: u64, movable: Vec<u64>) -> Option<Vec<u64>> {
    let mut held = memory();
    let memory = held.as_mut()?;
    // What another stream uses stays, because what is copied here is ordered by the program's own stream.
    let offsets = movable.into_iter().map(|address| address.wrapping_sub(memory.address));
    let movable = offsets.filter(|offset| !memory.others.contains_key(offset)).collect();
    let most = memory.places.largest_free() / share.max(1);
    let found = memory.places.clear(bytes, most, &movable)?;
    Some(found.into_iter().map(|offset| memory.address + offset).collect())
}

/// What there was no room for when there was none.
#[pyfunction]
fn arena_wanted() -> u64 {
    memory().as_ref().map_or(0, |memory| memory.wanted)
}

/// What was cleared is anybody's.
#[pyfunction]
fn arena_cleared() {
    if let Some(memory) = memory().as_mut() {
        memory.places.open();
    }
}

/// Nothing is expected any more.
#[pyfunction]
fn arena_settle() {
    if let Some(memory) = memory().as_mut() {
        memory.places.settle();
    }
}

/// Whether the memory at an address is a place of a plan's.
#[pyfunction]
fn arena_lies_at(address: u64, place: u64) -> bool {
    memory().as_ref().is_some_and(|memory| memory.places.lies_at(address.wrapping_sub(memory.address), place))
}

/// How much there is for plans: all but the part for small pieces.
#[pyfunction]
fn arena_plannable() -> u64 {
    memory().as_ref().map_or(0, |memory| memory.places.plannable())
}

/// The most bytes that were handed out since this was last asked with `true`.
#[pyfunction]
fn arena_peak(anew: bool) -> u64 {
    memory().as_mut().map_or(0, |memory| memory.places.peak(anew))
}

/// Bytes that are there, that are handed out, that lie in one free piece; pieces at their places, elsewhere, and refused; where the last that
/// lies elsewhere should be, what was in the way: address and size; the most bytes of small pieces.
#[pyfunction]
fn arena_state() -> [u64; 9] {
    memory().as_ref().map_or([0; 9], |memory| {
        let (places, seen) = (&memory.places, memory.places.seen());
        let (blocked, by) = seen.blocked_by;
        let [there, used, free] = [places.capacity(), places.used(), places.largest_free()];
        [
            there,
            used,
            free,
            seen.placed,
            seen.displaced,
            seen.refused,
            memory.address + blocked,
            by,
            seen.small,
        ]
    })
}

/// The books of an arena without memory, to see what they would do.
#[pyclass]
struct Arena(Places);

#[pymethods]
impl Arena {
    #[new]
    fn new(capacity: u64, small: u64, least: u64) -> Arena {
        Arena(Places::new(Bytes(capacity), Bytes(small), Bytes(least)))
    }

    /// What comes next lies at these places.
    fn expect(&mut self, results: Vec<Wanted>, beside: (u64, u64)) {
        self.0.expect(results.into_iter().map(expected), beside);
    }

    /// Nothing is expected any more.
    fn settle(&mut self) {
        self.0.settle();
    }

    /// Takes memory.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        self.0.take(bytes)
    }

    /// Gives it back.
    fn give(&mut self, offset: u64) -> bool {
        self.0.give(offset)
    }

    /// Pieces at their places, elsewhere, and refused.
    fn seen(&self) -> (u64, u64, u64) {
        let seen = self.0.seen();
        (seen.placed, seen.displaced, seen.refused)
    }
}

/// Adds all of this to the module.
pub fn add(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Arena>()?;
    m.add("SHORT", SHORT)?;
    m.add_function(wrap_pyfunction!(arena_functions, m)?)?;
    m.add_function(wrap_pyfunction!(arena_driver, m)?)?;
    m.add_function(wrap_pyfunction!(arena_teach, m)?)?;
    m.add_function(wrap_pyfunction!(arena_open, m)?)?;
    m.add_function(wrap_pyfunction!(arena_loosen, m)?)?;
    m.add_function(wrap_pyfunction!(arena_expect, m)?)?;
    m.add_function(wrap_pyfunction!(arena_watch, m)?)?;
    m.add_function(wrap_pyfunction!(arena_taken, m)?)?;
    m.add_function(wrap_pyfunction!(arena_clear, m)?)?;
    m.add_function(wrap_pyfunction!(arena_cleared, m)?)?;
    m.add_function(wrap_pyfunction!(arena_wanted, m)?)?;
    m.add_function(wrap_pyfunction!(arena_settle, m)?)?;
    m.add_function(wrap_pyfunction!(arena_lies_at, m)?)?;
    m.add_function(wrap_pyfunction!(arena_plannable, m)?)?;
    m.add_function(wrap_pyfunction!(arena_peak, m)?)?;
    m.add_function(wrap_pyfunction!(arena_state, m)?)
}
