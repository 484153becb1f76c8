//! Arrays for programs: they know their memory, a panic leaves them usable, and dropping them gives them up.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tiercel_core::{Bytes, Error, Hint, Machine, Manager, ObjectId, Operand, Policy, Step, TierId};
use tiercel_run::{Memory, MemoryError, Overwrite};

/// Everything on the first tier that has room, and there it stays.
struct Stay;

impl Policy for Stay {
    fn name(&self) -> &str {
        "stay"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let size = m.size(object)?;
        let tiers: Vec<TierId> = m.machine().tier_ids().collect();
        for tier in tiers {
            if let Ok(region) = m.allocate(tier, size) {
                return m.set_primary(object, region);
            }
        }
        Err(m.no_room(object, TierId(0)))
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire { m.retire(object) } else { Ok(()) }
    }

    fn before(&mut self, _: &mut Manager, _: Step, _: &[Operand]) -> Result<(), Error> {
        Ok(())
    }
}

/// 64 KiB and 256 KiB, on both of which kernels can work.
const SMALL: &str = r#"
    name = "small"
    source = "a test"
    [compute]
    threads = 1
    gflops = 1.0
    [[tier]]
    name = "t0"
    capacity = "64 KiB"
    read = "10 GB/s"
    write = "10 GB/s"
    [[tier]]
    name = "t1"
    capacity = "256 KiB"
    read = "1 GB/s"
    write = "1 GB/s"
    [[link]]
    from = "t0"
    to = "t1"
    threads = 1
    bandwidth = { 1 = "1 GB/s" }
    [[link]]
    from = "t1"
    to = "t0"
    threads = 1
    bandwidth = { 1 = "1 GB/s" }
"#;

fn memory() -> Memory {
    Memory::open(&Machine::parse(SMALL).expect("a machine"), Stay).expect("a little memory")
}

#[test]
fn arrays_of_another_memory_are_refused() {
    let (mut one, mut other) = (memory(), memory());
    let mut mine = one.array::<u32>("mine", 100).unwrap();
    let mut theirs = other.array::<u32>("theirs", 100).unwrap();
    one.fill(&mut mine, 1).unwrap();
    other.fill(&mut theirs, 2).unwrap();
    let foreign = |result: Result<(), MemoryError>| {
        assert_eq!(result.unwrap_err().to_string(), "array `theirs` belongs to another memory");
    };
    foreign(one.run((&mut mine, &mut theirs), |(a, b)| a.swap_with_slice(b)));
    foreign(one.run(&theirs, |_| ()));
    foreign(one.will_read(&theirs));
    foreign(one.archive(&theirs));
    // Giving it up at the wrong memory gives nothing up there, and the array to its own.
    foreign(one.retire(theirs));
    assert_eq!(one.read(&mine).unwrap(), [1; 100]);
    other.iteration_ended().unwrap();
    assert_eq!(other.manager().objects(), 0);
    assert_eq!(one.manager().objects(), 1);
}

#[test]
fn a_kernel_that_panics_ends() {
    let mut memory = memory();
    let mut array = memory.array::<u32>("array", 100).unwrap();
    let torn = catch_unwind(AssertUnwindSafe(|| {
        memory.run(&mut array, |all| {
            all[..50].fill(7);
            panic!("halfway");
        })
    }));
    assert!(torn.is_err());
    assert!(!memory.manager().in_use(array.object()));
    assert_eq!(memory.read(&array).unwrap()[48..52], [7, 7, 0, 0]);
    memory.run(&mut array, |all| all.fill(9)).unwrap();
    memory.retire(array).unwrap();
    assert_eq!(memory.manager().used(TierId(0)), Bytes::ZERO);
    memory.manager().check().unwrap();
}

#[test]
fn what_is_dropped_is_given_up() {
    let mut memory = memory();
    // Together they are ten times as much as there is.
    for round in 0..100 {
        let mut array = memory.array::<u8>("again", 40 << 10).unwrap();
        memory.fill(&mut array, round).unwrap();
    }
    let kept = memory.array::<u8>("kept", 10).unwrap();
    assert_eq!(memory.manager().objects(), 1);
    drop(memory);
    drop(kept);
}

#[test]
fn types_and_numbers_of_operands_are_free() {
    let mut memory = memory();
    let mut ids = memory.array::<u32>("ids", 4).unwrap();
    let mut weights = memory.array::<f64>("weights", 4).unwrap();
    memory.write(&mut ids, &[3, 1, 2, 0]).unwrap();
    memory.write(&mut weights, &[0.5, 1.5, 2.5, 3.5]).unwrap();
    let mut picked = memory.array::<f64>("picked", 4).unwrap();
    memory
        .run((&ids, &weights, Overwrite(&mut picked)), |(ids, weights, picked)| {
            for (to, id) in picked.iter_mut().zip(ids) {
                *to = weights[*id as usize];
            }
        })
        .unwrap();
    assert_eq!(memory.read(&picked).unwrap(), [3.5, 1.5, 2.5, 0.5]);
    // An array that is read may be named twice.
    let squares = memory.run((&weights, &weights), |(a, b)| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>());
    assert_eq!(squares.unwrap(), 0.25 + 2.25 + 6.25 + 12.25);
    // As many as one likes.
    let mut blocks: Vec<_> =
        (0..20).map(|i| memory.array::<u16>(&format!("block {i}"), 8).unwrap()).collect();
    memory
        .run(blocks.iter_mut().collect::<Vec<_>>(), |blocks| {
            blocks.into_iter().enumerate().for_each(|(i, block)| block.fill(i as u16));
        })
        .unwrap();
    let sum = memory
        .run((blocks.iter().collect::<Vec<_>>(), [&ids, &ids]), |(blocks, [ids, _])| {
            blocks.into_iter().flatten().map(|x| u32::from(*x)).sum::<u32>() + ids.iter().sum::<u32>()
        })
        .unwrap();
    assert_eq!(sum, 8 * 190 + 6);
}

#[test]
fn arrays_begin_as_zeros_even_where_others_were() {
    let mut memory = memory();
    let mut old = memory.array::<u32>("old", 1000).unwrap();
    memory.fill(&mut old, u32::MAX).unwrap();
    memory.retire(old).unwrap();
    let fresh = memory.array::<u32>("fresh", 1000).unwrap();
    assert_eq!(memory.read(&fresh).unwrap(), [0; 1000]);
    let mut changed = memory.array::<u32>("changed", 1000).unwrap();
    memory.run(&mut changed, |all| all[0] += 1).unwrap();
    assert_eq!(memory.read(&changed).unwrap()[..3], [1, 0, 0]);
}

#[test]
fn wrong_lengths_and_names_are_told() {
    let mut memory = memory();
    let mut array = memory.array::<u32>("array", 4).unwrap();
    assert_eq!((array.len(), array.is_empty(), array.name()), (4, false, "array"));
    let error = memory.write(&mut array, &[1, 2, 3]).unwrap_err();
    assert_eq!(error.to_string(), "array `array` has 4 elements; 3 were given");
    let error = memory.array::<u8>("array", 1).unwrap_err();
    assert!(error.to_string().contains("there is an array `array` already"), "{error}");
    let error = memory.array::<u8>("huge", 1 << 30).unwrap_err();
    assert_eq!(error.to_string(), "huge needs 1 GiB; the largest tier, t1, holds 256 KiB");
}

#[test]
fn a_memory_and_its_arrays_go_to_other_threads() {
    let mut memory = memory();
    let mut array = memory.array::<u32>("array", 4).unwrap();
    let sum = std::thread::spawn(move || {
        memory.fill(&mut array, 5)?;
        memory.run(&array, |all| all.iter().sum::<u32>())
    });
    assert_eq!(sum.join().unwrap().unwrap(), 20);
}

#[test]
fn a_pass_that_leaves_something_behind_is_told() {
    let mut memory = memory();
    let mut kept = memory.array::<u32>("kept", 4).unwrap();
    memory.fill(&mut kept, 1).unwrap();
    memory.record_pass().unwrap();
    let mut within = memory.array::<u32>("within", 4).unwrap();
    memory.run_as("copy", (&kept, &mut within), |(from, to)| to.copy_from_slice(from)).unwrap();
    let error = memory.take_pass("program").unwrap_err().to_string();
    assert!(error.contains("array `within` was made within and is still there"), "{error}");

    memory.record_pass().unwrap();
    memory.retire(within).unwrap();
    assert!(memory.take_pass("program").unwrap_err().to_string().contains("`within` was there before it"));

    memory.record_pass().unwrap();
    let mut within = memory.array::<u32>("within", 4).unwrap();
    memory.run_as("copy", (&kept, &mut within), |(from, to)| to.copy_from_slice(from)).unwrap();
    memory.run_as("add", (&within, &mut kept), |(from, to)| to[0] += from[1]).unwrap();
    drop(within);
    let trace = memory.take_pass("program").unwrap();
    let names: Vec<&str> = trace.tensors.iter().map(|t| t.name.as_str()).collect();
    assert_eq!((names, trace.kernels.len()), (vec!["kept", "within"], 2));
    let reads = |at: usize| trace.kernels[at].reads.iter().map(|u| u.tensor.0).collect::<Vec<_>>();
    assert_eq!((reads(0), reads(1)), (vec![0], vec![1, 0]));
    assert!(memory.take_pass("program").is_err());
}
