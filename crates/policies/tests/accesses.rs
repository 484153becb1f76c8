//! Accesses that are counted on real memory are those that kernels make.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tiercel_core::{Bytes, Machine, Manager, Policy};
use tiercel_kernels::{Library, prepare};
use tiercel_policies::{Sentinel, by_name};
use tiercel_profile::Accesses;
use tiercel_profile::accesses::{Counting, OPEN_PAGES, PAGE};
use tiercel_run::{Executor, Failure, Host, Kernels, Stage, View};
use tiercel_sim::Work;
use tiercel_testbed::for_seeds;
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Kernel, Tensor, TensorId, Trace, Use, nets};

/// Passes over each operand as often as the trace says, by so many threads, with one access to each page.
struct Sweep {
    threads: usize,
}

fn pass(view: &mut View<'_>, threads: usize) {
    let page = PAGE.0 as usize;
    match view {
        View::Read(bytes) => std::thread::scope(|scope| {
            for part in bytes.chunks(bytes.len().div_ceil(page).div_ceil(threads).max(1) * page) {
                scope.spawn(move || part.iter().step_by(page).for_each(|byte| _ = black_box(*byte)));
            }
        }),
        View::Write(bytes) => bytes.iter_mut().step_by(page).for_each(|byte| *byte = black_box(7)),
    }
}

impl Kernels for Sweep {
    fn load(&mut self, _: &Tensor, bytes: &mut [u8]) -> Result<(), Failure> {
        bytes.fill(1);
        Ok(())
    }

    fn run(&mut self, work: &Work<'_>, views: &mut [View<'_>]) -> Result<(), Failure> {
        let uses: Vec<&Use> = work.kernel.reads.iter().chain(&work.kernel.writes).collect();
        for (slot, view) in views.iter_mut().enumerate() {
            let at = work.slots.iter().position(|s| *s == slot).expect("every operand is used");
            for _ in 0..uses[at].bytes.0.div_ceil(work.places[slot].1.0) {
                pass(view, self.threads);
            }
        }
        if work.kernel.name == "panics" { panic!("as it was told") } else { Ok(()) }
    }
}

fn machine(bytes: u64) -> Machine {
    tiercel_testbed::machine(&[2 << 20, bytes.max(2 << 20)], 2)
}

fn stage(machine: &Machine, threads: usize) -> Manager<Stage<Counting<Sweep>>> {
    let kernels = Counting::new(Sweep { threads });
    Manager::new(machine.clone(), Stage::new(Host::open(machine).expect("a little memory"), kernels))
}

/// A kernel: its name, the tensors that it reads and those that it writes, and how often it passes over them.
type Sketch<'n> = (&'n str, Vec<(usize, u64)>, Vec<(usize, u64)>);

/// A trace of these kernels on tensors of so many pages.
fn trace(pages: &[u64], kernels: &[Sketch<'_>]) -> Trace {
    let tensor = |(at, pages): (usize, &u64)| Tensor {
        name: format!("t{at}"),
        bytes: Bytes(pages * PAGE.0 - 5),
        role: Role::Weight,
        persistent: true,
    };
    let tensors: Vec<Tensor> = pages.iter().enumerate().map(tensor).collect();
    let used = |(at, passes): &(usize, u64)| Use {
        tensor: TensorId(*at as u32),
        bytes: Bytes(tensors[*at].bytes.0 * passes),
    };
    let kernel = |(name, reads, writes): &Sketch<'_>| Kernel {
        name: (*name).to_string(),
        op: "sweep".to_string(),
        reads: reads.iter().map(used).collect(),
        writes: writes.iter().map(used).collect(),
        flops: 0,
        layer: 0,
        phase: Phase::Forward,
        timings: Vec::new(),
        alternatives: Vec::new(),
        detached: false,
        factor: 1.0,
        repeat: None,
        derived: Default::default(),
    };
    let kernels = kernels.iter().map(kernel).collect();
    Trace { name: "sweeps".to_string(), tensors, kernels, layers: vec!["all".to_string()] }
}

fn count(trace: &Trace, policy: &mut dyn Policy, threads: usize) -> Result<Accesses, tiercel_core::Error> {
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(PAGE.0)).sum();
    let machine = machine(all * 2);
    let mut manager = stage(&machine, threads);
    Stage::kernels_of(&mut manager).start(trace);
    let counted = Executor::new(trace).iterate(&mut manager, policy);
    let accesses = Stage::kernels_of(&mut manager).stop().expect("it counted");
    counted.map(|_| accesses)
}

#[test]
fn as_many_as_kernels_make_passes() {
    for_seeds(25, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let pages: Vec<u64> = (0..random.usize(1..6)).map(|_| random.u64(1..200)).collect();
        let (mut expected, mut once) = (vec![0; pages.len()], vec![0; pages.len()]);
        let mut kernels = Vec::new();
        for _ in 0..random.usize(1..6) {
            let mut used: Vec<(usize, u64)> = (0..pages.len()).map(|at| (at, random.u64(1..5))).collect();
            random.shuffle(&mut used);
            used.truncate(random.usize(1..=pages.len()));
            for (at, passes) in &used {
                // What fits in a cache comes from memory once.
                let seen = if pages[*at] > OPEN_PAGES as u64 { *passes } else { 1 };
                expected[*at] += pages[*at] * seen;
                once[*at] += pages[*at] + (seen - 1) * (pages[*at].saturating_sub(OPEN_PAGES as u64));
            }
            let reads = used.split_off(random.usize(0..=used.len()));
            kernels.push(("sweep", reads, used));
        }
        let trace = trace(&pages, &kernels);
        let found = |threads: usize| -> Vec<u64> {
            let counted = count(&trace, &mut Sentinel::new(), threads).expect("it runs");
            counted.iter().map(|count| count.accesses).collect()
        };
        assert_eq!(found(1), expected);
        // Threads begin a pass anywhere, perhaps where the last one ended: as many pages may still be open. And one that is
        // put to sleep in the middle of a page may find it closed when it wakes.
        for ((found, most), least) in found(3).into_iter().zip(&expected).zip(&once) {
            let most = most + most / 50 + 8;
            assert!(*least <= found && found <= most, "{found} is not between {least} and {most}");
        }
        let stated = Accesses::of_trace(&trace);
        let large = pages.iter().all(|pages| *pages > OPEN_PAGES as u64);
        assert!(!large || stated == count(&trace, &mut Sentinel::new(), 1).expect("it runs"));
    });
}

#[test]
fn two_objects_on_a_page_cannot_be_told_apart() {
    let mut trace = trace(&[1, 1], &[("both", vec![(0, 1)], vec![(1, 1)])]);
    trace.tensors.iter_mut().for_each(|tensor| tensor.bytes = Bytes(100));
    let error =
        count(&trace, &mut *by_name("fast-only").expect("it is listed"), 1).expect_err("they share it");
    assert!(error.to_string().contains("share a page"), "{error}");
}

#[test]
fn a_kernel_that_panics_leaves_its_memory_open() {
    let trace = trace(&[80, 3], &[("panics", vec![(0, 1)], vec![(1, 2)])]);
    let machine = machine(1 << 20);
    let mut manager = stage(&machine, 1);
    Stage::kernels_of(&mut manager).start(&trace);
    let mut executor = Executor::new(&trace);
    let played = catch_unwind(AssertUnwindSafe(|| executor.iterate(&mut manager, &mut Sentinel::new())));
    assert!(played.is_err());
    for (at, tensor) in trace.tensors.iter().enumerate() {
        let object = executor.object(TensorId(at as u32)).expect("it was made");
        let place = manager.place(object).expect("it has a place");
        let mut bytes = vec![0; tensor.bytes.0 as usize];
        let slice = manager.backend().host().slice(place, tensor.bytes).expect("plain memory");
        // SAFETY: nothing runs and nothing is copied.
        bytes.copy_from_slice(unsafe { slice.as_ref() });
        assert!(bytes.iter().all(|byte| *byte != 0));
    }
}

#[test]
fn counting_changes_no_result_and_misses_no_tensor() {
    let options =
        nets::NetOptions { batch: Some(8), image: Some(8), width: Some(8), ..nets::NetOptions::default() };
    let program = nets::find("cnn").expect("a network").build(&options).expect("it fits");
    let program = prepare(program, 2);
    let all: u64 = program.trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(PAGE.0)).sum();
    let machine = machine(all * 2);
    let run = |counts: bool| {
        let kernels = Counting::new(Library::new(&program, 2).expect("a prepared program").seed(3));
        let host = Host::open(&machine).expect("a little memory");
        let mut manager = Manager::new(machine.clone(), Stage::new(host, kernels));
        let (mut policy, mut executor) = (Sentinel::new(), Executor::new(&program.trace));
        if counts {
            Stage::kernels_of(&mut manager).start(&program.trace);
        }
        executor.iterate(&mut manager, &mut policy).expect("it trains");
        let counted = Stage::kernels_of(&mut manager).stop();
        if let Some(counted) = &counted {
            policy.count(&mut manager, counted).expect("it decides anew");
        }
        for _ in 0..4 {
            executor.iterate(&mut manager, &mut policy).expect("it trains");
        }
        manager.drain().expect("no copy fails");
        let kept = program.trace.tensors.iter().enumerate().filter(|(_, tensor)| tensor.persistent);
        let bytes = kept.map(|(at, tensor)| {
            let object = executor.object(TensorId(at as u32)).expect("it persists");
            let place = manager.place(object).expect("it has a place");
            let slice = manager.backend().host().slice(place, tensor.bytes).expect("plain memory");
            // SAFETY: nothing runs and nothing is copied.
            unsafe { slice.as_ref() }.to_vec()
        });
        (bytes.collect::<Vec<_>>(), counted)
    };
    let ((plain, _), (watched, counted)) = (run(false), run(true));
    assert!(plain == watched, "weights differ");
    let counted = counted.expect("it counted");
    let stated = Accesses::of_trace(&program.trace);
    for (counted, stated) in counted.iter().zip(stated.iter()) {
        assert_eq!(counted.accesses > 0, stated.accesses > 0, "{counted:?}, {stated:?}");
    }
}
