//! What the manager says when it refuses: the thing, the amount wanted and the amount there.

use expect_test::{Expect, expect};
use tiercel_core::{Access, Bytes, Error, Manager, ObjectId, Operand, Step, TierId};
use tiercel_testbed::{Jumble, machine};

const FAST: TierId = TierId(0);
const SLOW: TierId = TierId(1);

/// A manager with 4 KiB and 16 KiB, of which kernels work on the first only, and an object of 1 KiB in each.
fn manager() -> (Manager<Jumble>, ObjectId, ObjectId) {
    let machine = machine(&[4096, 16384], 1);
    let world = Jumble::new(&machine, 1);
    let mut m = Manager::new(machine, world);
    let [near, far] = [("near", FAST), ("far", SLOW)].map(|(name, tier)| {
        let object = m.create(Some(name), Bytes::kib(1)).unwrap();
        let region = m.allocate(tier, Bytes::kib(1)).unwrap();
        m.set_primary(object, region).unwrap();
        object
    });
    (m, near, far)
}

fn kernel(object: ObjectId, access: Access) -> [Operand; 1] {
    [Operand { object, access, bytes: Bytes::kib(1) }]
}

fn says(result: Result<impl std::fmt::Debug, Error>, expected: Expect) {
    expected.assert_eq(&result.unwrap_err().to_string());
}

#[test]
fn an_object_larger_than_every_tier() {
    let (mut m, ..) = manager();
    says(
        m.create(Some("huge"), Bytes::mib(1)),
        expect!["huge needs 1 MiB; the largest tier, t1, holds 16 KiB"],
    );
}

#[test]
fn a_full_tier() {
    let (mut m, near, _) = manager();
    let all = m.allocate(FAST, Bytes(2048)).unwrap();
    m.allocate(FAST, Bytes(512)).unwrap();
    m.free(all).unwrap();
    says(
        Err::<(), _>(m.no_room(near, FAST)),
        expect!["t0: near needs 1 KiB; 2.5 KiB free, largest piece 2 KiB"],
    );
}

#[test]
fn a_kernel_that_cannot_run() {
    let (mut m, near, far) = manager();
    says(
        m.begin(Step(3), &kernel(far, Access::Write)),
        expect!["step 3 uses far, which lies on t1; kernels cannot work there"],
    );
    says(
        m.begin(Step(4), &kernel(near, Access::Read)),
        expect!["step 4 reads near, which nothing has written"],
    );
    let nowhere = m.create(None, Bytes(64)).unwrap();
    says(
        m.begin(Step(5), &kernel(nowhere, Access::Write)),
        expect!["object 2 has not been placed on any tier"],
    );
    m.retire(nowhere).unwrap();
    says(
        m.begin(Step(6), &kernel(nowhere, Access::Write)),
        expect!["object 2 does not exist; it may have been retired"],
    );
    m.check().unwrap();
}

#[test]
fn a_move_that_would_lose_data_or_pull_it_from_under_a_kernel() {
    let (mut m, near, _) = manager();
    let primary = m.primary(near).unwrap();
    let empty = m.allocate(SLOW, Bytes::kib(1)).unwrap();
    let write = kernel(near, Access::Write);
    says(
        m.begin(Step(7), &[write[0], write[0]]),
        expect!["step 7 names near twice: what it reads and writes of an object is said at once"],
    );
    m.begin(Step(0), &write).unwrap();
    says(m.copy(primary, empty), expect!["near is in use by a kernel: it cannot be copied"]);
    says(m.retire(near), expect!["near is in use by a kernel: it cannot be retired"]);
    says(m.set_primary(near, empty), expect!["near is in use by a kernel: it cannot be moved"]);
    m.end(Step(0), &write);
    says(m.set_primary(near, empty), expect!["near: the region does not hold the object's current bytes"]);
    says(m.free(primary), expect!["near: its primary cannot be freed; only retiring gives data up"]);
    says(m.unlink(primary), expect!["near: its primary cannot be unlinked"]);
    says(m.copy(empty, primary), expect!["region 2: it holds no object's bytes"]);
    m.check().unwrap();
}

#[test]
fn dirty_and_clean_follow_writes_and_copies() {
    let (mut m, near, _) = manager();
    let write = kernel(near, Access::Write);
    m.begin(Step(0), &write).unwrap();
    m.end(Step(0), &write);
    let x = m.primary(near).unwrap();
    let y = m.allocate(SLOW, Bytes::kib(1)).unwrap();
    m.link(x, y).unwrap();
    assert!(m.is_dirty(x) && !m.is_current(y), "a new region holds nothing yet");
    m.copy(x, y).unwrap();
    assert!(!m.is_dirty(x) && m.is_current(y));
    m.mark_dirty(x).unwrap();
    assert!(m.is_dirty(x) && !m.is_current(y));
    m.mark_clean(x).unwrap();
    assert!(!m.is_dirty(x) && m.is_current(y));
    assert_eq!((m.linked(x, SLOW), m.parent(y), m.tier(y)), (Some(y), Some(near), SLOW));
}
