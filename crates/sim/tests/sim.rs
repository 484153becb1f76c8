//! The simulated world keeps the time that the machine's figures say.

use tiercel_core::{
    Access, Backend, Bandwidth, Bytes, Cause, CopyOrder, Detached, Event, Machine, Manager, Nanos, Operand,
    Place, Span, Step, TierId, Traffic,
};
use tiercel_sim::{Sim, Work};
use tiercel_workload::Kernel;
use tiercel_workload::trace::Phase;

const FAST: TierId = TierId(0);
const SLOW: TierId = TierId(1);

fn machine(contention: f64) -> Machine {
    let toml = r#"
        name = "test"
        [compute]
        threads = 1
        gflops = 1.0
        [[tier]]
        name = "fast"
        capacity = "1 GiB"
        read = "100 GB/s"
        write = "100 GB/s"
        [[tier]]
        name = "slow"
        capacity = "8 GiB"
        read = "10 GB/s"
        write = "5 GB/s"
        [[link]]
        from = "fast"
        to = "slow"
        latency = "100 ns"
        threads = 2
        busy = 0.0
        bandwidth = { 1 = "2 GB/s", 2 = "4 GB/s" }
        [[link]]
        from = "slow"
        to = "fast"
        latency = "200 ns"
        threads = 1
        busy = 0.0
        bandwidth = { 1 = "10 GB/s" }
    "#;
    let mut machine = Machine::parse(toml).unwrap();
    machine.contention = contention;
    machine
}

fn order(from: TierId, to: TierId, bytes: u64) -> CopyOrder<'static> {
    let place = |tier| Place { tier, offset: Bytes::ZERO };
    CopyOrder { from: place(from), to: place(to), bytes: Bytes(bytes), after: &[] }
}

fn kernel(flops: u64) -> Kernel {
    Kernel {
        name: "k".to_string(),
        op: "test".to_string(),
        reads: Vec::new(),
        writes: Vec::new(),
        flops,
        layer: 0,
        phase: Phase::Forward,
        timings: Vec::new(),
        alternatives: Vec::new(),
        detached: false,
        factor: 1.0,
        repeat: None,
        derived: Default::default(),
    }
}

fn compute(sim: &mut Sim, flops: u64, traffic: &[Traffic]) {
    sim.compute(&work(&kernel(flops), traffic));
}

fn work<'a>(kernel: &'a Kernel, traffic: &'a [Traffic]) -> Work<'a> {
    Work { step: Step(0), kernel, operands: &[], places: &[], slots: &[], traffic, cached: true }
}

#[test]
fn a_kernel_beside_others_takes_none_of_their_time() {
    let mut machine = machine(0.0);
    machine.detached = Some(Detached { bandwidth: Bandwidth::gb(1.0), threads: 0 });
    let mut sim = Sim::new(machine);
    let kernel = kernel(1_000);
    let traffic = [Traffic { tier: FAST, read: Bytes(3_000), write: Bytes(1_000) }];
    let work = work(&kernel, &traffic);
    // A microsecond of arithmetic each, and four of bytes.
    let first = sim.launch(&work).expect("there is something to run it");
    let second = sim.launch(&work).expect("there is something to run it");
    assert_eq!(sim.now(), Nanos::ZERO);
    compute(&mut sim, 2_000, &[]);
    assert_eq!((sim.now(), sim.done(first)), (Nanos(2_000), Ok(false)));
    // A copy that has to wait for the first of them.
    let late = sim.copy(CopyOrder { after: &[first], ..order(SLOW, FAST, 10_000) });
    sim.wait(late).unwrap();
    assert_eq!(sim.now(), Nanos(5_000 + 200 + 1_000));
    assert_eq!((sim.done(first), sim.done(second)), (Ok(true), Ok(false)));
    sim.wait(second).unwrap();
    assert_eq!(sim.now(), Nanos(10_000));
    assert_eq!(sim.span(second), Some(Span { began: Nanos(5_000), ended: Nanos(10_000) }));
}

#[test]
fn a_copy_on_demand_takes_the_latency_for_every_page() {
    let mut sim = Sim::new(machine(1.0));
    let ticket = sim.copy_paged(order(SLOW, FAST, 10_000), 3);
    sim.wait(ticket).unwrap();
    assert_eq!(sim.now(), Nanos(3 * 200 + 1_000));
}

#[test]
fn a_copy_takes_latency_and_bytes_over_bandwidth() {
    let mut sim = Sim::new(machine(1.0));
    let out = sim.copy(order(FAST, SLOW, 4_000_000));
    sim.wait(out).unwrap();
    assert_eq!(sim.now(), Nanos(1_000_100));
}

#[test]
fn latencies_pass_in_line_where_a_link_has_a_spacing() {
    let mut machine = machine(1.0);
    machine.links[0].spacing = Some(Nanos(30));
    let mut sim = Sim::new(machine);
    let first = sim.copy(order(FAST, SLOW, 4_000));
    let second = sim.copy(order(FAST, SLOW, 4_000));
    // A third that stands in line only from when the first has ended.
    let after = CopyOrder { after: &[first], ..order(FAST, SLOW, 4_000) };
    let third = sim.copy(after);
    sim.wait(first).unwrap();
    assert_eq!(sim.now(), Nanos(100 + 1_000));
    sim.wait(second).unwrap();
    assert_eq!(sim.now(), Nanos(1_100 + 30 + 1_000));
    sim.wait(third).unwrap();
    assert_eq!(sim.now(), Nanos(2_130 + 30 + 1_000), "its latency has passed meanwhile");
    let alone = sim.copy(order(FAST, SLOW, 4_000));
    sim.wait(alone).unwrap();
    assert_eq!(sim.now(), Nanos(3_160 + 100 + 1_000));
}

#[test]
fn copies_on_one_link_queue_and_directions_run_side_by_side() {
    let mut sim = Sim::new(machine(1.0));
    let first = sim.copy(order(FAST, SLOW, 4_000_000));
    let second = sim.copy(order(FAST, SLOW, 4_000_000));
    let back = sim.copy(order(SLOW, FAST, 5_000_000));
    sim.wait(back).unwrap();
    assert_eq!(sim.now(), Nanos(500_200), "the way back is not slowed down");
    sim.wait(first).unwrap();
    assert_eq!(sim.now(), Nanos(1_000_100));
    assert_eq!(sim.done(second), Ok(false));
    sim.wait(second).unwrap();
    assert_eq!(sim.now(), Nanos(2_000_200));
}

#[test]
fn a_copy_waits_for_those_it_comes_after_and_others_pass_it() {
    let mut sim = Sim::new(machine(1.0));
    let back = sim.copy(order(SLOW, FAST, 10_000_000));
    let after = [back];
    let later = sim.copy(CopyOrder { after: &after, ..order(FAST, SLOW, 400_000) });
    let free = sim.copy(order(FAST, SLOW, 400_000));
    sim.wait(free).unwrap();
    assert_eq!(sim.now(), Nanos(100_100));
    sim.wait(later).unwrap();
    assert_eq!(sim.now(), Nanos(1_000_200 + 100_100));
}

#[test]
fn a_cancelled_copy_leaves_its_link_to_the_next() {
    let mut sim = Sim::new(machine(1.0));
    let first = sim.copy(order(FAST, SLOW, 4_000_000_000));
    let second = sim.copy(order(FAST, SLOW, 400_000));
    compute(&mut sim, 1000, &[]);
    sim.cancel(first);
    assert_eq!(sim.done(first), Ok(true));
    sim.wait(second).unwrap();
    assert_eq!(sim.now(), Nanos(1000 + 100_100));
}

#[test]
fn a_kernel_and_the_copies_beside_it_share_the_slow_tier() {
    // Alone, the kernel reads 10 MB at 10 GB/s for a millisecond, and the copy of 5 MB takes half of one.
    let reads = [Traffic { tier: SLOW, read: Bytes(10_000_000), write: Bytes::ZERO }];
    for (contention, kernel_ends, copy_done) in [(0.0, 1_000_000, true), (1.0, 1_500_000, true)] {
        let mut sim = Sim::new(machine(contention));
        let copy = sim.copy(order(SLOW, FAST, 5_000_000));
        compute(&mut sim, 0, &reads);
        let late = sim.now().0.abs_diff(kernel_ends);
        assert!(late <= 2, "{} at contention {contention}", sim.now());
        assert_eq!(sim.done(copy), Ok(copy_done));
    }
}

#[test]
fn cores_that_copy_do_not_compute() {
    // Eight cores compute for a millisecond; two of them are wanted for a copy that takes half of one.
    let mut machine = machine(0.0);
    machine.compute = tiercel_core::Compute::new(8, 1.0);
    let time = |machine: &Machine| {
        let mut sim = Sim::new(machine.clone());
        sim.copy(order(FAST, SLOW, 2_000_000));
        compute(&mut sim, 1_000_000, &[]);
        sim.now().0
    };
    assert_eq!(time(&machine), 1_000_000, "an engine copies");
    machine.links[0].busy = 1.0;
    // Together they want ten: for 625 µs the kernel is at four fifths, so that an eighth of a millisecond is missing.
    assert!(time(&machine).abs_diff(1_125_000) <= 200, "{}", time(&machine));
    // A copy alone has its threads for itself, even where it has more of them than there are cores.
    machine.compute.threads = 1;
    let mut sim = Sim::new(machine);
    let copy = sim.copy(order(FAST, SLOW, 2_000_000));
    sim.wait(copy).unwrap();
    assert!(sim.now().0.abs_diff(500_100) <= 2, "{}", sim.now());
}

#[test]
fn a_stall_is_charged_to_the_kernel_and_the_object() {
    let machine = machine(1.0);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    manager.record();
    let size = Bytes(1_000_000);
    let object = manager.create(Some("x"), size).unwrap();
    let slow = manager.allocate(SLOW, size).unwrap();
    manager.set_primary(object, slow).unwrap();
    let write = [Operand { object, access: Access::Write, bytes: size }];
    manager.begin(Step(0), &write).unwrap();
    manager.end(Step(0), &write);
    let fast = manager.allocate(FAST, size).unwrap();
    let ticket = manager.copy(slow, fast).unwrap();
    manager.set_primary(object, fast).unwrap();
    manager.free(slow).unwrap();
    let read = [Operand { object, access: Access::Read, bytes: size }];
    manager.begin(Step(1), &read).unwrap();
    manager.end(Step(1), &read);
    let time = Nanos(100_200);
    let stalled = Event::Stalled { step: Step(1), object, ticket, cause: Cause::Arrival, time };
    assert!(manager.take_events().iter().any(|stamped| stamped.event == stalled));
    assert_eq!(manager.totals().stall, time);
}
