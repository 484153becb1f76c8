//! What the modes of CachedArrays decide, as data: a line of what the program does, and the moves that follow.

use std::collections::BTreeMap;

use expect_test::{Expect, expect};
use tiercel_core::{Access, Bytes, Event, Hint, Manager, ObjectId, Operand, Policy, Step};
use tiercel_policies::{CachedArrays, Mode};
use tiercel_sim::Sim;
use tiercel_testbed::machine;

/// Plays a script over two tiers and compares the moves.
///
/// `2/8` gives the tiers' capacities in objects. Then `A` is a kernel that reads A, `A=` one that writes it (and makes
/// it where it does not exist), `A~` archives, `A!` retires, `|` ends the iteration.
fn check(mode: Mode, script: &str, expected: Expect) {
    let mut words = script.split_whitespace();
    let unit = 64;
    let capacities: Vec<u64> =
        words.next().unwrap().split('/').map(|n| n.parse::<u64>().unwrap() * unit).collect();
    let machine = machine(&capacities, capacities.len());
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    manager.record();
    let mut policy = CachedArrays::new(mode);
    let mut objects: BTreeMap<String, ObjectId> = BTreeMap::new();
    for (step, word) in words.enumerate() {
        let (name, act) = word.split_at(word.len().min(1));
        let object = *objects.entry(name.to_string()).or_insert_with(|| {
            let object = manager.create(Some(name), Bytes(unit)).unwrap();
            if name != "|" {
                policy.place(&mut manager, object).unwrap();
            }
            object
        });
        let (hint, access) = match act {
            "=" => (Hint::WillWrite, Some(Access::Write)),
            "~" => (Hint::Archive, None),
            "!" => (Hint::Retire, None),
            _ if name == "|" => {
                policy.iteration_ended(&mut manager).unwrap();
                continue;
            }
            _ => (Hint::WillRead, Some(Access::Read)),
        };
        manager.hinted(object, hint);
        policy.hint(&mut manager, object, hint).unwrap();
        if let Some(access) = access {
            let operands = [Operand { object, access, bytes: Bytes(unit) }];
            let step = Step(step as u32);
            policy.before(&mut manager, step, &operands).unwrap();
            manager.begin(step, &operands).unwrap();
            manager.end(step, &operands);
        }
        manager.check().unwrap();
    }
    let mut moves = Vec::new();
    let mut names: BTreeMap<ObjectId, String> = BTreeMap::new();
    for stamped in manager.take_events() {
        match stamped.event {
            Event::Created { object, name, .. } => {
                names.insert(object, name.unwrap().to_string());
            }
            Event::CopyStarted { object, from, to, .. } => {
                moves.push(format!("{} {}→{}", names[&object], from.tier.0, to.tier.0));
            }
            Event::Retired { object } => moves.push(format!("{} gone", names[&object])),
            _ => {}
        }
    }
    expected.assert_eq(&moves.join(", "));
}

#[test]
fn without_optimisation_everything_is_copied_in_before_use() {
    check(Mode::NONE, "2/8 A= B= A", expect!["A 1→0, B 1→0"]);
}

#[test]
fn local_objects_are_born_fast_and_leave_in_the_order_of_last_use() {
    check(Mode::L, "2/8 A= B= C=", expect!["A 0→1"]);
    check(Mode::L, "2/8 A= B= A C=", expect!["B 0→1"]);
}

#[test]
fn archived_objects_leave_first() {
    check(Mode::L, "3/8 A= B= C= C~ D=", expect!["C 0→1"]);
    check(Mode::L, "3/8 A= B= C= C~ B~ D= E=", expect!["C 0→1, B 0→1"]);
}

#[test]
fn retired_objects_are_freed_at_once_with_m_and_moved_without() {
    check(Mode::LM, "2/8 A= B= A! C= |", expect!["A gone"]);
    check(Mode::L, "2/8 A= B= A! C= |", expect!["A 0→1, A gone"]);
}

#[test]
fn reads_fetch_only_with_p() {
    check(Mode::LM, "2/8 A= B= C= A", expect!["A 0→1"]);
    check(Mode::LMP, "2/8 A= B= C= A", expect!["A 0→1, B 0→1, A 1→0"]);
}

#[test]
fn writes_fetch_always() {
    check(Mode::LM, "2/8 A= B= C= A=", expect!["A 0→1, B 0→1, A 1→0"]);
}

#[test]
fn what_was_fetched_and_not_changed_leaves_for_nothing() {
    check(Mode::LMP, "2/8 A= B= C= A D= E=", expect!["A 0→1, B 0→1, A 1→0, C 0→1"]);
}

#[test]
fn a_full_middle_tier_passes_its_oldest_on() {
    check(Mode::LM, "1/1/8 A= B= C=", expect!["A 0→1, A 1→2, B 0→1"]);
}
