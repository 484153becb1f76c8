//! Counts page accesses by taking the pages away: the next access faults, is counted, and gets its page back.
//!
//! Sentinel (section III-A) poisons page-table entries in the kernel of the operating system, counts in the fault handler
//! and poisons again. A process can do the same to itself: `mprotect` takes the pages of a kernel's operands away, and a
//! handler of the signal that the access raises counts it and opens the page. The pages opened last stay open, the one
//! opened first of all is closed again when there are too many. So a second pass over an operand is seen as a
//! second access to each of its pages, unless it is so small that a cache would have kept it, and every kernel begins with
//! all pages closed. Nothing is sampled and nothing is missed; it is slow, and meant for one iteration.
//!
//! One kernel of the process is watched at a time. Faults elsewhere go to whoever handled them before. The one thing that
//! a closed page breaks is a system call that reads or writes it (it fails with EFAULT), so copies to and from files
//! must have ended.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tiercel_run::View;

/// Fewer open pages than this and one instruction of several threads could not finish: each needs all the pages that
/// it touches open at once, up to sixteen where it gathers.
pub const LEAST_OPEN: usize = 64;

const CLOSED: u8 = 0;
const OPEN: u8 = 1;

/// The pages of one operand.
struct Span {
    /// The address of its first page.
    start: usize,
    /// For each page, whether it is open.
    pages: Vec<AtomicU8>,
    accesses: AtomicU64,
}

/// All that the signal handler needs; nothing in it is allocated or freed while kernels run.
struct Watch {
    page: usize,
    spans: Vec<Span>,
    /// Open pages in the order in which they were opened, a ring; 0 is none.
    ring: Vec<AtomicUsize>,
    next: AtomicUsize,
    /// Held while a page is opened or closed.
    busy: AtomicBool,
}

static WATCH: AtomicPtr<Watch> = AtomicPtr::new(ptr::null_mut());
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Runs something on these operands and says how many page accesses each of them had meanwhile.
pub fn count<T>(
    views: &mut [View<'_>],
    open: usize,
    run: impl FnOnce(&mut [View<'_>]) -> T,
) -> Result<(T, Vec<u64>), String> {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let watch = Box::new(Watch::new(views, open)?);
    handle_faults().map_err(|e| format!("no handler for faults: {e}"))?;
    let armed = Armed::new(watch).map_err(|e| format!("pages cannot be closed: {e}"))?;
    let result = run(views);
    let watch = armed.disarm().map_err(|e| format!("pages cannot be opened: {e}"))?;
    Ok((result, watch.spans.iter().map(|span| span.accesses.load(Ordering::Relaxed)).collect()))
}

impl Watch {
    fn new(views: &[View<'_>], open: usize) -> Result<Watch, String> {
        // SAFETY: asks the system for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| "the size of a page is not known")?;
        let span = |view: &View<'_>| {
            let (address, len) = match view {
                View::Read(bytes) => (bytes.as_ptr() as usize, bytes.len()),
                View::Write(bytes) => (bytes.as_ptr() as usize, bytes.len()),
            };
            let start = address / page * page;
            let pages = if len == 0 { 0 } else { (address + len).div_ceil(page) - start / page };
            let pages = (0..pages).map(|_| AtomicU8::new(CLOSED)).collect();
            Span { start, pages, accesses: AtomicU64::new(0) }
        };
        let spans: Vec<Span> = views.iter().map(span).collect();
        for (at, a) in spans.iter().enumerate() {
            let meets = |b: &Span| {
                a.start < b.start + b.pages.len() * page && b.start < a.start + a.pages.len() * page
            };
            if let Some(other) = spans[at + 1..].iter().position(meets) {
                return Err(format!("operands {at} and {} share a page", at + 1 + other));
            }
        }
        let ring = (0..open.max(LEAST_OPEN)).map(|_| AtomicUsize::new(0)).collect();
        Ok(Watch { page, spans, ring, next: AtomicUsize::new(0), busy: AtomicBool::new(false) })
    }

    /// The span and the page in it that an address belongs to.
    fn find(&self, address: usize) -> Option<(&Span, usize)> {
        let span = self
            .spans
            .iter()
            .find(|s| s.start <= address && address < s.start + s.pages.len() * self.page)?;
        Some((span, (address - span.start) / self.page))
    }

    /// Opens or closes pages; the caller keeps to pages of the operands.
    fn protect(&self, address: usize, pages: usize, access: libc::c_int) -> bool {
        // SAFETY: these are pages of operands that the caller of `count` has borrowed. Closing them destroys nothing, and
        // whoever touches one meanwhile waits for the handler to open it.
        pages == 0 || unsafe { libc::mprotect(address as *mut c_void, pages * self.page, access) } == 0
    }

    /// A fault at this address: counts it and opens the page. `false` where the address is none of the operands'.
    /// Called from the signal handler: takes no lock of the library, allocates nothing.
    fn touched(&self, address: usize) -> bool {
        let Some((span, page)) = self.find(address) else { return false };
        while self.busy.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::hint::spin_loop();
        }
        let mut fine = true;
        // Another thread may have opened it since the fault.
        if span.pages[page].load(Ordering::Relaxed) == CLOSED {
            span.accesses.fetch_add(1, Ordering::Relaxed);
            span.pages[page].store(OPEN, Ordering::Relaxed);
            let start = span.start + page * self.page;
            fine = self.protect(start, 1, libc::PROT_READ | libc::PROT_WRITE) && self.close_oldest(start);
        }
        self.busy.store(false, Ordering::Release);
        fine
    }

    /// Puts a page just opened into the ring and closes the one whose place it takes.
    fn close_oldest(&self, opened: usize) -> bool {
        let at = self.next.load(Ordering::Relaxed);
        self.next.store((at + 1) % self.ring.len(), Ordering::Relaxed);
        let oldest = self.ring[at].swap(opened, Ordering::Relaxed);
        let Some((span, page)) = self.find(oldest) else { return true };
        span.pages[page].store(CLOSED, Ordering::Relaxed);
        self.protect(oldest, 1, libc::PROT_NONE)
    }

    fn open_all(&self) -> io::Result<()> {
        let open = |s: &Span| self.protect(s.start, s.pages.len(), libc::PROT_READ | libc::PROT_WRITE);
        // Every one of them, whatever becomes of the others.
        let failed = self.spans.iter().filter(|span| !open(span)).count();
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// A watch in force; pages are open again when it is gone, however that comes about.
struct Armed {
    watch: *mut Watch,
}

impl Armed {
    fn new(watch: Box<Watch>) -> io::Result<Armed> {
        let closed = watch.spans.iter().all(|s| watch.protect(s.start, s.pages.len(), libc::PROT_NONE));
        let error = io::Error::last_os_error();
        let armed = Armed { watch: Box::into_raw(watch) };
        WATCH.store(armed.watch, Ordering::Release);
        if closed { Ok(armed) } else { Err(error) }
    }

    fn disarm(self) -> io::Result<Box<Watch>> {
        let (watch, opened) = std::mem::ManuallyDrop::new(self).stop();
        opened.map(|()| watch)
    }

    /// To be called once.
    fn stop(&self) -> (Box<Watch>, io::Result<()>) {
        // SAFETY: made from a box in `new`, and not yet taken back.
        let watch = unsafe { &*self.watch };
        // Pages open before the handler forgets them, so that no fault finds nobody.
        let opened = watch.open_all();
        WATCH.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: as above. What ran on the operands has ended, so no handler of ours still runs.
        (unsafe { Box::from_raw(self.watch) }, opened)
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

/// Puts our handler in front of whoever handles faults, once.
fn handle_faults() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `before` is a place for what the system writes there, and all zeros are a valid value of it. The handler is
    // of the type that SA_SIGINFO asks for.
    let installed = unsafe {
        libc::sigaction(libc::SIGSEGV, ptr::null(), before.as_mut_ptr());
        let _ = BEFORE.set(before.assume_init());
        let mut ours: libc::sigaction = MaybeUninit::zeroed().assume_init();
        ours.sa_sigaction = on_fault as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut ours.sa_mask);
        libc::sigaction(libc::SIGSEGV, &ours, ptr::null_mut())
    };
    if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The signal handler.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system hands a valid `info` to a handler with SA_SIGINFO, and errno is this thread's own. A watch that is
    // stored outlives every access to its pages, so it is there while this handler, which such an access called, runs.
    unsafe {
        let errno = *libc::__errno_location();
        let watch = WATCH.load(Ordering::Acquire);
        let ours = !watch.is_null() && (*watch).touched((*info).si_addr() as usize);
        *libc::__errno_location() = errno;
        if !ours {
            pass_on(signal, info, context);
        }
    }
}

/// Hands a fault that is not ours to the handler that was there before; without one the default action is restored, which
/// the fault meets when it comes again.
///
/// # Safety
/// Called from a handler of this signal with what the system gave it.
unsafe fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let handler = BEFORE.get().filter(|b| b.sa_sigaction != libc::SIG_DFL && b.sa_sigaction != libc::SIG_IGN);
    // SAFETY: a handler that the system took has the type that its flags tell, and the default action is always valid.
    unsafe {
        match handler {
            Some(before) if before.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void);
                std::mem::transmute::<usize, Handler>(before.sa_sigaction)(signal, info, context);
            }
            Some(before) => {
                std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(before.sa_sigaction)(signal);
            }
            None => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}
