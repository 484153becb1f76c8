//! An iteration allocates nothing: not the executor, not the stage, not the kernels, not their threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use tiercel_core::{Bytes, Manager, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_policies::by_name;
use tiercel_run::{Executor, Host, Stage};
use tiercel_workload::graph::DType;
use tiercel_workload::nets::{NetOptions, find};

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
fn iterations_allocate_nothing_after_the_first() {
    let small = |batch, image, sequence, depth, width, dtype| NetOptions {
        batch: Some(batch),
        image,
        sequence,
        depth,
        width,
        dtype,
        ..NetOptions::default()
    };
    let nets = [
        ("mlp", small(8, None, None, None, Some(64), DType::F32)),
        ("mlp", small(8, None, None, None, Some(64), DType::Bf16)),
        ("resnet50", small(1, Some(32), None, None, None, DType::F32)),
        ("mobilenet", small(1, Some(32), None, None, None, DType::F32)),
        ("densenet264", small(1, Some(64), None, None, None, DType::F32)),
        ("inception-v3", small(1, Some(75), None, None, None, DType::F32)),
        ("dlrm", NetOptions { batch: Some(4), words: Some(50), ..NetOptions::default() }),
        ("dcgan", small(1, None, None, None, None, DType::F32)),
        ("gpt2", small(1, None, Some(16), Some(1), Some(64), DType::F32)),
        ("lstm", small(2, None, Some(3), None, Some(32), DType::F32)),
    ];
    for (name, options) in nets {
        for threads in [1, 2] {
            let program = find(name).expect("it is listed").build(&options).unwrap_or_else(|e| panic!("{e}"));
            let program = prepare(program, threads);
            let all: u64 = program.trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
            let machine =
                tiercel_testbed::machine(&[1 << 20, 1 << 20], 2).with_capacity(TierId(0), Bytes(all));
            let library = Library::new(&program, threads).expect("a prepared program");
            let stage = Stage::new(Host::open(&machine).expect("memory"), library);
            let mut manager = Manager::new(machine, stage);
            let mut policy = by_name("fast-only").expect("it is listed");
            let mut executor = Executor::new(&program.trace);
            let mut iterate = || {
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                executor.iterate(&mut manager, policy.as_mut()).unwrap_or_else(|e| panic!("{name}: {e}"));
                ALLOCATIONS.load(Ordering::Relaxed) - before
            };
            // The first iteration makes room for as many objects as ever live at once, and threads begin to run.
            let counts: Vec<u64> = (0..6).map(|_| iterate()).collect();
            // The whole process is counted, and the thread that reports on tests may allocate now and then.
            let quiet = counts[2..].iter().filter(|count| **count == 0).count();
            assert!(quiet >= 2, "{name}, {threads} threads: allocations {counts:?}");
        }
    }
}
