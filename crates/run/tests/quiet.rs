//! Copies allocate nothing on the way: not the thread that starts them, and not those that move them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use tiercel_core::{Backend, Bytes, CopyOrder, Machine, Place, Ticket, TierId};
use tiercel_run::Host;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn copies_allocate_nothing_once_the_lanes_run() {
    let toml = "name = 'test'
        [[tier]]\nname = 'a'\ncapacity = '4 MiB'\nread = '9 GB/s'\nwrite = '9 GB/s'\nbacking = 'dram'
        [[tier]]\nname = 'b'\ncapacity = '4 MiB'\nread = '9 GB/s'\nwrite = '9 GB/s'\nbacking = 'throttled'
        [[link]]\nfrom = 'a'\nto = 'b'\nthreads = 2\nbandwidth = { 1 = '9 GB/s' }
        [[link]]\nfrom = 'b'\nto = 'a'\nthreads = 2\nbandwidth = { 1 = '9 GB/s' }";
    let mut host = Host::open(&Machine::parse(toml).unwrap()).unwrap();
    let round = |host: &mut Host| {
        let mut last = [Ticket(0); 4];
        for i in 0..40u64 {
            let ends = [TierId((i % 2) as u8), TierId((1 - i % 2) as u8)];
            let offset = Bytes((i % 4) << 20);
            let [from, to] = ends.map(|tier| Place { tier, offset });
            let last = &mut last[(i % 4) as usize];
            *last = host.copy(CopyOrder { from, to, bytes: Bytes(300 << 10), after: &[*last] });
            if i % 7 == 0 {
                host.cancel(*last);
            }
        }
        for ticket in last {
            host.wait(ticket).unwrap();
        }
        let end = last.iter().map(|t| t.0).max().unwrap();
        for ticket in end - 40..=end {
            host.wait(Ticket(ticket)).unwrap();
            host.forget(Ticket(ticket));
        }
    };
    // The first rounds start threads, which allocate when they begin to run, whenever that is, and make room for as
    // many copies as are ever outstanding. After that there is silence: a copy that allocated would never let a
    // batch pass.
    let mut batch = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..20).for_each(|_| round(&mut host));
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    let allocations: Vec<u64> = (0..50).map(|_| batch()).take_while(|count| *count > 0).collect();
    assert!(allocations.len() < 50, "allocations in batches of 800 copies: {allocations:?}");
}
