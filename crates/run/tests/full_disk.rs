//! A disk that takes no more: the manager says what failed, and every object is still there.
//!
//! The limit on file sizes is lowered for this whole process, so the test stands alone in its file.

use tiercel_core::{Access, Bytes, Error, Machine, Manager, ObjectId, Operand, Place, Step, TierId};
use tiercel_run::Host;

const SIZE: Bytes = Bytes::kib(256);

fn machine() -> Machine {
    let folder = std::env::temp_dir();
    let toml = format!(
        r#"
        name = "full disk"
        [[tier]]
        name = "dram"
        capacity = "1 MiB"
        read = "10 GB/s"
        write = "10 GB/s"
        [[tier]]
        name = "disk"
        capacity = "4 MiB"
        read = "1 GB/s"
        write = "1 GB/s"
        computable = false
        backing = "file:{}"
        [[link]]
        from = "dram"
        to = "disk"
        threads = 1
        bandwidth = {{ 1 = "1 GB/s" }}
        [[link]]
        from = "disk"
        to = "dram"
        threads = 1
        bandwidth = {{ 1 = "1 GB/s" }}
        "#,
        folder.display()
    );
    Machine::parse(&toml).expect("a sound machine")
}

fn forbid_growth_beyond(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a plain system call on a structure of our own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
}

/// Runs a kernel on one object that fills it, or that verifies what fills it.
fn touch(m: &mut Manager<Host>, object: ObjectId, access: Access, value: u8) -> Result<(), Error> {
    let operands = [Operand { object, access, bytes: SIZE }];
    m.begin(Step(u32::from(value)), &operands)?;
    let place: Place = m.place(object).expect("a kernel's operand has a place");
    let mut slice = m.backend().slice(place, SIZE).expect("it is in memory");
    // SAFETY: between `begin` and `end` of a kernel on this object.
    let bytes = unsafe { slice.as_mut() };
    match access {
        Access::Read => assert!(bytes.iter().all(|b| *b == value), "object {value} has changed"),
        _ => bytes.fill(value),
    }
    m.end(Step(u32::from(value)), &operands);
    Ok(())
}

/// Moves an object to the disk and gives its memory to whoever comes next, without waiting.
fn evict(m: &mut Manager<Host>, object: ObjectId) -> Result<(), Error> {
    let x = m.primary(object).expect("it is placed");
    let y = m.allocate(TierId(1), SIZE).map_err(|_| m.no_room(object, TierId(1)))?;
    m.copy(x, y)?;
    m.set_primary(object, y)?;
    m.free(x)
}

#[test]
fn a_full_disk_loses_nothing() {
    let machine = machine();
    let host = Host::open(&machine).expect("4 MiB of disk");
    let mut m = Manager::new(machine, host);
    let mut objects = Vec::new();
    for value in 0..4 {
        let object = m.create(Some(&format!("x{value}")), SIZE).expect("it is small");
        let region = m.allocate(TierId(0), SIZE).expect("four fit");
        m.set_primary(object, region).expect("it is new");
        touch(&mut m, object, Access::Write, value).expect("it is in memory");
        objects.push(object);
    }
    // The first two fit on the disk, the third does not.
    forbid_growth_beyond(2 * SIZE.0);
    for object in &objects[..3] {
        evict(&mut m, *object).expect("copies are started, not waited for");
    }
    // A new object takes the memory that the others leave, before anyone knows that one of them cannot leave.
    let newcomer = m.create(Some("newcomer"), Bytes::kib(768)).expect("it is small");
    let region = m.allocate(TierId(0), Bytes::kib(768)).expect("three have left");
    m.set_primary(newcomer, region).expect("it is new");
    let operands = [Operand { object: newcomer, access: Access::Write, bytes: Bytes::kib(768) }];
    let error = m.begin(Step(9), &operands).expect_err("the disk is full");
    let message = error.to_string();
    let begins = "copy of x2 (256 KiB) from dram to disk failed";
    assert!(message.starts_with(begins) && message.contains("too large"), "{message}");
    m.check().expect("the state is sound");
    assert_eq!(m.home(objects[2]), Some(TierId(0)), "what could not leave is back");
    assert_eq!(m.primary(newcomer), None, "what had nothing to lose made way");
    touch(&mut m, objects[2], Access::Read, 2).expect("it is in memory");
    touch(&mut m, objects[3], Access::Read, 3).expect("it never moved");
    m.retire(newcomer).expect("nothing uses it");
    for (value, &object) in objects.iter().enumerate().take(2) {
        let region = m.allocate(TierId(0), SIZE).expect("there is room");
        let from = m.primary(object).expect("it is on the disk");
        m.copy(from, region).expect("both are there");
        m.set_primary(object, region).expect("it will hold the bytes");
        touch(&mut m, object, Access::Read, value as u8).expect("it comes back");
    }
    m.check().expect("the state is sound");
}
