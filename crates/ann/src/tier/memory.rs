//! Vectors in a memory of the machine: of a node, of a DAX device, or plain memory slowed down to stand for one.
//!
//! The pages lie in a tier of [`Host`], which maps, binds and faults it in. Where the tier is throttled, a read of a page
//! takes as long as the tier's bandwidth says on top of its latency: an emulation, and whoever reports it says so.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tiercel_core::{Backing, Bytes, Machine, Place, TierId};
use tiercel_run::Host;

use super::reader::{PageFile, PageMemory};
use crate::error::AnnError;
use crate::file::{Opened, PAGE};

/// What a throttled memory takes on top of fast memory before the first byte of a vector: what HM-ANN measured of persistent
/// memory, 421 ns for a distance against 183 ns (section 3.4.3).
const LATENCY: Duration = Duration::from_nanos(421 - 183);

/// What a throttled memory reads a second.
const BANDWIDTH: f64 = 6.0;

/// The tier that pages lie in.
struct Pages {
    /// Where they begin, as an address that lives as long as the host.
    base: usize,
    bytes: usize,
    throttled: bool,
    _host: Mutex<Host>,
}

/// A tier with the pages of an index.
pub(super) fn open(backing: &Backing, opened: &Opened) -> Result<PageFile, AnnError> {
    let section = opened.pages()?;
    let bytes = section.len.max(PAGE as u64);
    let host = Host::open(&machine(backing, bytes)?)?;
    let place = Place { tier: TierId(1), offset: Bytes(0) };
    let slice = host
        .slice(place, Bytes(bytes))
        .ok_or(AnnError::Unsupported("this slow tier cannot be read as memory"))?;
    let base = slice.cast::<u8>().as_ptr();
    for start in (0..section.len).step_by(1 << 20) {
        let len = (section.len - start).min(1 << 20) as usize;
        // SAFETY: within the slice, which nobody else knows of yet and no copy uses.
        let part = unsafe { std::slice::from_raw_parts_mut(base.add(start as usize), len) };
        std::os::unix::fs::FileExt::read_exact_at(&opened.file, part, section.start + start)
            .map_err(AnnError::file(&opened.path))?;
    }
    let throttled = *backing == Backing::Throttled;
    let memory = Pages { base: base as usize, bytes: bytes as usize, throttled, _host: Mutex::new(host) };
    let mut file = PageFile::open(&opened.path, section.start).map_err(AnnError::file(&opened.path))?;
    file.memory = Some(Box::new(memory));
    Ok(file)
}

/// Two tiers, of which the first is not used.
fn machine(backing: &Backing, bytes: u64) -> Result<Machine, AnnError> {
    let tier = |name: &str, capacity: u64| {
        format!(
            "[[tier]]\nname = \"{name}\"\ncapacity = \"{capacity}\"\nread = \"{BANDWIDTH} GB/s\"\n\
             write = \"{BANDWIDTH} GB/s\"\nlatency = \"0 ns\"\n"
        )
    };
    let link = |from: &str, to: &str| {
        format!(
            "[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nthreads = 1\nbandwidth = {{ 1 = \"{BANDWIDTH} GB/s\" }}\n"
        )
    };
    let text = [
        "name = \"vectors\"\n".to_string(),
        tier("fast", PAGE as u64),
        tier("slow", bytes),
        link("fast", "slow"),
        link("slow", "fast"),
    ]
    .concat();
    let mut machine = Machine::parse(&text).map_err(tiercel_run::HostError::from)?;
    machine.tiers[1].backing = backing.clone();
    Ok(machine)
}

impl PageMemory for Pages {
    fn read(&self, pages: &[u64], group: usize, into: &mut [u8]) -> io::Result<()> {
        let begun = Instant::now();
        let bytes = group * PAGE;
        for (page, into) in pages.iter().zip(into.chunks_exact_mut(bytes)) {
            let start = *page as usize * PAGE;
            if start + bytes > self.bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: within the tier's memory, which is only read from now on and lives as long as the host beside it.
            into.copy_from_slice(unsafe {
                std::slice::from_raw_parts((self.base + start) as *const u8, bytes)
            });
        }
        if self.throttled {
            let moved = Duration::from_secs_f64((pages.len() * bytes) as f64 / (BANDWIDTH * 1e9));
            while begun.elapsed() < moved + LATENCY * pages.len() as u32 {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }
}
