//! The file of events: what is written is read back, mistakes are named with their line, and nothing makes it panic.

mod scene;

use expect_test::{Expect, expect};
use tiercel_core::{
    Bytes, Cause, Event, Machine, Manager, Nanos, Place, Span, Stamped, Step, Ticket, TierId,
};
use tiercel_policies::names;
use tiercel_report::events::{Log, is_events, write_events};
use tiercel_report::{Entry, Header, Report, Run, csv, perfetto};
use tiercel_run::{Host, Stage};
use tiercel_sim::Sim;
use tiercel_testbed::{Scramble, for_seeds, machine, random_trace};

fn bytes_of(header: &Header, events: &[Stamped]) -> Vec<u8> {
    let mut out = Vec::new();
    write_events(&mut out, header, events).expect("writes to memory");
    out
}

fn read(text: &str) -> Result<Log, String> {
    Log::read(text.as_bytes()).map_err(|error| error.to_string())
}

/// A machine in which every policy can live, and a random trace.
fn small(seed: u64) -> (tiercel_workload::Trace, Machine) {
    let mut random = fastrand::Rng::with_seed(seed);
    let layers = random.u32(2..10);
    let trace = random_trace(&mut random, layers, 4000);
    let kernel = |k: &tiercel_workload::Kernel| -> u64 {
        k.reads.iter().chain(&k.writes).map(|u| trace.tensor(u.tensor).bytes.0.next_multiple_of(64)).sum()
    };
    let working_set = trace.kernels.iter().map(kernel).max().expect("it has kernels");
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let machine = machine(&[working_set * random.u64(1..3), all * 2], 2);
    (trace, machine)
}

#[test]
fn what_is_written_is_read_back() {
    for_seeds(6, |seed| {
        let (trace, tight) = small(seed);
        let roomy = tight.clone().with_capacity(TierId(0), Bytes::mib(1));
        for name in names() {
            let machine = if name == "fast-only" { &roomy } else { &tight };
            let lookahead = (seed % 3) as usize;
            let played = scene::play(&trace, machine, Sim::new(machine.clone()), name, lookahead, 2);
            let text = bytes_of(&played.header, &played.events);
            assert!(is_events(&text));
            let log = Log::read(&text[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(log, played.log(), "{name}");
            assert!(log.notes.is_empty());
        }
    });
}

#[test]
fn real_memory_writes_the_same_form() {
    let (trace, tight) = small(3);
    let host = Host::open(&tight).expect("a little memory");
    let played = scene::play(&trace, &tight, Stage::new(host, Scramble::default()), "cachedarrays-lm", 1, 2);
    let text = bytes_of(&played.header, &played.events);
    let log = Log::read(&text[..]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(log, played.log());
    assert!(log.header.measured && log.header.on == "host");
}

#[test]
fn every_kind_of_event_survives() {
    let machine = machine(&[4096, 65536], 2);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
    manager.record();
    let zone = manager.carve(TierId(0), "short-lived", Bytes(1024)).expect("there is room");
    assert!(manager.resize_zone(TierId(0), zone, Bytes(512)));
    assert!(manager.dissolve_zone(TierId(0), zone));
    manager.count_cached(Bytes(5), Bytes(7));
    manager.count_cached(Bytes::ZERO, Bytes::ZERO);
    let object = manager.create(None, Bytes(100)).expect("it fits");
    let named = manager.create(Some("a \"name\"\n\u{2028}</script>"), Bytes(100)).expect("it fits");
    let region = manager.allocate(TierId(1), Bytes(100)).expect("there is room");
    manager.set_primary(object, region).expect("it may live there");
    let loose = manager.allocate(TierId(0), Bytes(100)).expect("there is room");
    manager.link(region, loose).expect("it is loose");
    manager.unlink(loose).expect("it is linked");
    manager.free(loose).expect("it is loose");
    manager.retire(named).expect("nobody uses it");
    let mut events = manager.take_events();
    let at = Nanos(9);
    let place = Place { tier: TierId(1), offset: Bytes(64) };
    let (ticket, bytes) = (Ticket(1 << 60), Bytes(64));
    for event in [
        Event::CopyStarted { ticket, object, from: place, to: Place { tier: TierId(0), ..place }, bytes },
        Event::CopyEnded { ticket, object, outcome: tiercel_core::Outcome::Failed, span: None },
        Event::CopyEnded {
            ticket,
            object,
            outcome: tiercel_core::Outcome::Cancelled,
            span: Some(Span { began: Nanos(1), ended: Nanos(2) }),
        },
        Event::KernelBegan { step: Step::LOAD },
        Event::KernelEnded { step: Step(0) },
        Event::KernelLeft { step: Step(0), ticket },
        Event::KernelReturned {
            step: Step(0),
            ticket,
            span: Some(Span { began: Nanos(1), ended: Nanos(2) }),
        },
        Event::Stalled { step: Step::LOAD, object, ticket, cause: Cause::Departure, time: Nanos(3) },
        Event::Hinted { object, hint: tiercel_core::Hint::Archive },
        Event::IterationBegan { iteration: 0 },
        Event::IterationEnded { iteration: u32::MAX },
    ] {
        events.push(Stamped { at, event });
    }
    let header = Header::simulated(&tiercel_workload::Trace::default(), &machine, "none");
    let text = String::from_utf8(bytes_of(&header, &events)).expect("text");
    let log = read(&text).expect("reads");
    assert_eq!(log, Log::new(header, &events));
    let kinds: std::collections::BTreeSet<_> = log
        .entries
        .iter()
        .map(|entry| std::mem::discriminant(&entry.what))
        .map(|d| format!("{d:?}"))
        .collect();
    assert_eq!(kinds.len(), 19, "every kind is here");
    let zones = text.lines().filter(|line| line.contains("\"zoned\"")).collect::<Vec<_>>().join("\n");
    expect![[r#"
        {"at":0,"event":"zoned","name":"short-lived","place":{"tier":0,"offset":0},"zone":1,"bytes":1024}
        {"at":0,"event":"zoned","name":"short-lived","place":{"tier":0,"offset":0},"zone":1,"bytes":512}
        {"at":0,"event":"zoned","name":"short-lived","place":{"tier":0,"offset":0},"zone":1,"bytes":0}"#]]
    .assert_eq(&zones);
    assert_eq!(text.matches("\"cached\"").count(), 1, "nothing moved is no event");
}

const HEADER: &str = r#"{"tiercel_events":1,"net":"n","machine":"m","tiers":[{"name":"dram","capacity":4096},{"name":"cxl","capacity":8192}],"system":"s","on":"sim","measured":false,"fast_bytes":4096,"kernels":[{"name":"k0"}]}"#;

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&read(text).expect_err("it is wrong"));
}

#[test]
fn mistakes_are_named_with_their_line() {
    refused("", expect!["the file is empty; a file of events begins with a line that says what the run was"]);
    let foreign = r#"line 1: this is no file of events: it does not begin with {"tiercel_events":1,…"#;
    for text in ["hello\n", "{}\n", "[1]\n", "{\"tiercel_events\":\"1\"}\n", "\u{0}\n"] {
        assert_eq!(read(text).expect_err("it is foreign"), foreign, "{text:?}");
    }
    refused("{\"tiercel_events\":2}\n", expect!["line 1: the file is of version 2; version 1 can be read"]);
    refused("{\"tiercel_events\":1}\n", expect!["line 1: the header: missing field `net`"]);
    let no_tiers =
        HEADER.replace(r#"[{"name":"dram","capacity":4096},{"name":"cxl","capacity":8192}]"#, "[]");
    refused(&no_tiers, expect!["line 1: the header has 0 tiers; a machine has 1 to 64"]);
    let role = HEADER
        .replace("\"kernels\"", "\"objects\":[{\"name\":\"x\",\"role\":\"wait\",\"bytes\":1}],\"kernels\"");
    refused(
        &role,
        expect![
            "line 1: the header: there is no role `wait`; the roles are weight, gradient, state, input, activation, workspace"
        ],
    );
    let second = |line: &str| format!("{HEADER}\n\n{line}\n");
    refused(&second("{\"at\":1}"), expect!["line 3: missing field `event` (column 8)"]);
    refused(
        &second("{\"at\":-1,\"event\":\"retired\"}"),
        expect!["line 3: invalid value: integer `-1`, expected u64 (column 8)"],
    );
    refused(
        &second("{\"at\":1,\"event\":\"created\",\"object\":1}"),
        expect!["line 3: `created` lacks `bytes`"],
    );
    refused(
        &second("{\"at\":1,\"event\":\"retired\""),
        expect!["line 3: EOF while parsing an object (column 25)"],
    );
    refused(
        &second(r#"{"at":1,"event":"primary","object":1,"region":1,"tier":2}"#),
        expect!["line 3: there is no tier 2; the machine has 2"],
    );
    refused(
        &second(r#"{"at":1,"event":"allocated","region":1,"place":{"tier":0,"offset":4000},"bytes":100}"#),
        expect!["line 3: 100 B at 4000 of tier `dram` are beyond its 4 KiB"],
    );
    refused(
        &second(r#"{"at":1,"event":"kernel_began","step":1}"#),
        expect!["line 3: there is no step 1; the header has 1 kernels"],
    );
    refused(
        &format!(
            "{HEADER}\n{{\"at\":5,\"event\":\"kernel_began\"}}\n{{\"at\":4,\"event\":\"kernel_ended\"}}\n"
        ),
        expect!["line 3: time runs backwards, from 5 ns to 4 ns"],
    );
}

#[test]
fn what_is_new_is_passed_over_and_what_is_cut_off_is_noted() {
    let text = format!(
        "{HEADER}\n{{\"at\":1,\"event\":\"sang\",\"song\":3}}\n{{\"at\":2,\"event\":\"retired\",\"object\":1,\"new\":{{}}}}\n{{\"at\":3,\"ev"
    );
    let log = read(&text).expect("reads");
    assert_eq!(log.entries.len(), 1);
    assert_eq!(
        log.notes,
        [
            "line 4 is cut off: the run did not end as it should",
            "1 events of kinds that this version does not know were passed over"
        ]
    );
}

/// Everything that can be made of a log.
fn make_all(log: Log) {
    let runs = vec![Run::new(log)];
    perfetto::write(&mut Vec::new(), &runs).expect("writes to memory");
    csv::runs(&mut Vec::new(), &runs).expect("writes to memory");
    let report = Report::of_runs("fuzz", runs);
    assert!(report.html().ends_with("</html>\n"));
    report.text();
    report.document();
}

#[test]
fn no_file_makes_it_panic() {
    let (trace, tight) = small(1);
    let played = scene::play(&trace, &tight, Sim::new(tight.clone()), "cachedarrays-lmp", 1, 2);
    let good = bytes_of(&played.header, &played.events);
    for_seeds(300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut text = good.clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(0..text.len());
            match random.u8(0..6) {
                0 => text[at] = random.u8(..),
                1 => text.truncate(at.max(1)),
                2 => text.insert(at, b"0123456789-{}[]\",:n\n"[random.usize(0..20)]),
                3 => {
                    text.remove(at);
                }
                4 => {
                    // A digit, so that the file stays one and the figures are wild.
                    let digits: Vec<usize> = (0..text.len()).filter(|i| text[*i].is_ascii_digit()).collect();
                    for _ in 0..20.min(digits.len()) {
                        text[digits[random.usize(0..digits.len())]] = random.u8(b'0'..=b'9');
                    }
                }
                _ => {
                    // Lines in another order.
                    let mut lines: Vec<&[u8]> = text.split_inclusive(|b| *b == b'\n').collect();
                    let (a, b) = (random.usize(0..lines.len()), random.usize(0..lines.len()));
                    lines.swap(a, b);
                    text = lines.concat();
                }
            }
        }
        if let Ok(log) = Log::read(&text[..]) {
            make_all(log);
        }
    });
}

/// A random event, with no regard for sense.
fn random_entry(random: &mut fastrand::Rng, at: &mut u64) -> Entry {
    use tiercel_report::What;
    let most = 1 << random.u32(0..63);
    *at = at.saturating_add(random.u64(0..=most));
    let small = |random: &mut fastrand::Rng| random.u32(0..4);
    let bytes = Bytes(random.u64(0..2000));
    let place = Place { tier: TierId(random.u8(0..2)), offset: Bytes(random.u64(0..2000)) };
    let step = if random.u8(0..5) == 0 { Step::LOAD } else { Step(0) };
    let ticket = Ticket(u64::from(small(random)));
    let what = match random.u8(0..14) {
        0 => What::Created { object: small(random), name: None, bytes },
        1 => What::Retired { object: small(random) },
        2 => What::Allocated { region: small(random), place, bytes },
        3 => What::Freed { region: small(random), place, bytes },
        4 => What::Linked { object: small(random), region: small(random) },
        5 => What::CopyStarted { ticket, object: small(random), from: place, to: place, bytes },
        6 => {
            let span = Span { began: Nanos(random.u64(..)), ended: Nanos(random.u64(..)) };
            let outcome = tiercel_core::Outcome::Done;
            What::CopyEnded { ticket, object: small(random), outcome, span: random.bool().then_some(span) }
        }
        7 => What::KernelBegan { step },
        8 => What::KernelEnded { step },
        9 => {
            let (cause, time) = (Cause::Space, Nanos(random.u64(..)));
            What::Stalled { step, object: small(random), ticket, cause, time }
        }
        12 => What::KernelLeft { step, ticket },
        13 => {
            let span = Span { began: Nanos(random.u64(..)), ended: Nanos(random.u64(..)) };
            What::KernelReturned { step, ticket, span: random.bool().then_some(span) }
        }
        10 => What::IterationBegan { iteration: random.u32(..) },
        _ => What::IterationEnded { iteration: random.u32(..) },
    };
    Entry { at: Nanos(*at), what }
}

#[test]
fn no_order_of_events_makes_it_panic() {
    for_seeds(300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut log = read(HEADER).expect("reads");
        let mut at = 0;
        for _ in 0..random.usize(0..200) {
            let entry = random_entry(&mut random, &mut at);
            log.entries.push(entry);
        }
        make_all(log);
    });
}
