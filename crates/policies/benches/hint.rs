//! What a hint, a kernel's bracket and an eviction cost in bookkeeping, with up to a million live objects.
//!
//! `cargo bench -p tiercel-policies --bench hint`

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tiercel_core::{Access, Bytes, Hint, Machine, Manager, ObjectId, Operand, Policy, Step, TierId};
use tiercel_policies::{CachedArrays, Mode};
use tiercel_sim::Sim;

const SIZE: Bytes = Bytes(4096);

fn machine() -> Machine {
    Machine::parse(include_str!("../../../machines/dram-throttled.toml")).expect("it ships with the project")
}

/// A manager with this many objects, all written, of which `fast` fit into fast memory.
fn full(live: u64, fast: u64) -> (Manager<Sim>, CachedArrays, Vec<ObjectId>) {
    let machine = machine()
        .with_capacity(TierId(0), Bytes(SIZE.0 * fast))
        .with_capacity(TierId(1), Bytes(SIZE.0 * (live + 1)));
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    let mut policy = CachedArrays::new(Mode::LMP);
    let mut objects = Vec::new();
    for step in 0..live {
        let object = manager.create(None, SIZE).expect("it is small");
        policy.place(&mut manager, object).expect("there is room");
        let write = [Operand { object, access: Access::Write, bytes: SIZE }];
        manager.begin(Step(step as u32), &write).expect("it is in place");
        manager.end(Step(step as u32), &write);
        objects.push(object);
    }
    (manager, policy, objects)
}

fn in_place(c: &mut Criterion) {
    let mut group = c.benchmark_group("object in place");
    for live in [1_000, 1_000_000] {
        let (mut manager, mut policy, objects) = full(live, live);
        let mut random = fastrand::Rng::with_seed(1);
        let mut at = 0;
        group.bench_function(BenchmarkId::new("hint, in turn", live), |b| {
            b.iter(|| {
                at = (at + 1) % objects.len();
                policy.hint(&mut manager, objects[at], Hint::WillRead)
            });
        });
        group.bench_function(BenchmarkId::new("hint, at random", live), |b| {
            b.iter(|| policy.hint(&mut manager, objects[random.usize(0..objects.len())], Hint::WillRead));
        });
        group.bench_function(BenchmarkId::new("kernel with three operands", live), |b| {
            b.iter(|| {
                at = (at + 3) % (objects.len() - 3);
                let operand = |i: usize, access| Operand { object: objects[at + i], access, bytes: SIZE };
                let operands =
                    [operand(0, Access::Read), operand(1, Access::Read), operand(2, Access::Write)];
                policy.before(&mut manager, Step(0), &operands)?;
                manager.begin(Step(0), &operands)?;
                manager.end(Step(0), &operands);
                Ok::<(), tiercel_core::Error>(())
            });
        });
    }
}

fn pressure(c: &mut Criterion) {
    let mut group = c.benchmark_group("object on the slow tier");
    group.sample_size(20);
    for live in [1_000, 100_000] {
        let (mut manager, mut policy, objects) = full(live, live / 4);
        let mut at = 0;
        group.bench_function(BenchmarkId::new("hint that fetches and evicts", live), |b| {
            b.iter(|| {
                at = (at + 1) % objects.len();
                policy.hint(&mut manager, objects[at], Hint::WillRead)?;
                manager.wait_for(Step(0), objects[at])
            });
        });
    }
}

criterion_group!(benches, in_place, pressure);
criterion_main!(benches);
