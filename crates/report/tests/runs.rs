//! What is worked out from events is what the executor and the manager counted while it happened.

mod scene;

use tiercel_core::{Bytes, Nanos, Outcome, Step, TierId};
use tiercel_policies::names;
use tiercel_report::run::RegionSpan;
use tiercel_report::{Comparison, Curve, Price, Row, Run, Stalls};
use tiercel_run::{Host, Stage};
use tiercel_sim::Sim;
use tiercel_testbed::{Scramble, for_seeds, machine, random_trace};

fn long(span: tiercel_core::Span) -> u64 {
    span.ended.0 - span.began.0
}

/// No two regions share an address at any time.
fn check_map(regions: &[RegionSpan]) {
    for (at, a) in regions.iter().enumerate() {
        for b in &regions[at + 1..] {
            let apart = a.place.tier != b.place.tier
                || a.place.offset + a.bytes <= b.place.offset
                || b.place.offset + b.bytes <= a.place.offset;
            let meets = a.span.began < b.span.ended && b.span.began < a.span.ended;
            assert!(apart || !meets, "{a:?} and {b:?}");
        }
    }
}

fn check(played: &scene::Played, simulated: bool) -> Run {
    let run = Run::new(played.log());
    let name = &run.header.system;
    assert_eq!(run.iterations.len(), played.iterations.len());
    for (ours, theirs) in run.iterations.iter().zip(&played.iterations) {
        assert_eq!(
            (ours.fetched, ours.evicted, ours.stall),
            (theirs.fetched, theirs.evicted, theirs.stall),
            "{name}"
        );
        if simulated {
            assert_eq!(ours.time(), theirs.time, "{name}");
            assert_eq!(
                ours.compute + ours.stall,
                ours.time(),
                "{name}: simulated time is computing or waiting"
            );
        } else {
            // Kernels and what they wait for lie within the time that was taken, whatever else the machine did meanwhile.
            assert!(ours.compute + ours.stall <= theirs.time, "{name}: {ours:?} within {theirs:?}");
        }
    }
    assert_eq!(run.stall(), played.totals.stall, "{name}");
    assert_eq!(Stalls::new(&run).total, played.totals.stall, "{name}");
    assert_eq!(run.peak, played.totals.peak, "{name}");
    assert_eq!(run.copies.len() as u64, played.totals.copies, "{name}");
    assert_eq!(run.row().peak_fast_bytes, played.totals.peak[0]);
    let kernels = run.kernels.iter().filter(|k| k.step != Step::LOAD).count();
    assert_eq!(kernels, run.header.kernels.len() * played.iterations.len(), "{name}");
    assert!(run.kernels.iter().all(|k| !k.again), "nothing is computed twice");
    assert!(run.copies.iter().all(|c| c.outcome.is_some()), "{name}: every copy has ended");
    for c in &run.copies {
        assert!(c.asked <= c.span.began && c.span.began <= c.span.ended && c.span.ended <= run.end, "{c:?}");
    }
    check_map(&run.regions);
    assert!(run.regions.iter().all(|r| r.object.is_some()), "{name}: every region is some object's");
    run
}

#[test]
fn figures_are_those_that_were_counted() {
    for_seeds(8, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let layers = random.u32(2..10);
        let trace = random_trace(&mut random, layers, 4000);
        let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
        let tight = machine(&[all / 2, all * 2], 2);
        let roomy = tight.clone().with_capacity(TierId(0), Bytes::mib(1));
        for name in names() {
            let machine = if name == "fast-only" { &roomy } else { &tight };
            let lookahead = random.usize(0..3);
            let sim = scene::play(&trace, machine, Sim::new(machine.clone()), name, lookahead, 3);
            check(&sim, true);
            let host = Host::open(machine).expect("a little memory");
            let stage = Stage::new(host, Scramble::default());
            check(&scene::play(&trace, machine, stage, name, lookahead, 3), false);
        }
    });
}

#[test]
fn copies_share_a_link_one_after_the_other_in_simulation() {
    let played = scene::simulate("resnet50", 16, "optane-autotm", 0.3, "cachedarrays-lmp");
    let run = check(&played, true);
    let mut ends = [Nanos::ZERO; 2];
    let mut moved = 0;
    let mut copies: Vec<_> = run.copies.iter().filter(|c| long(c.span) > 0).collect();
    copies.sort_by_key(|copy| copy.span.began);
    for copy in copies {
        let lane = usize::from(copy.is_fetch());
        assert!(copy.span.began >= ends[lane], "{copy:?} overlaps the one before");
        ends[lane] = copy.span.ended;
        moved += u64::from(copy.outcome == Some(Outcome::Done));
        // At most as fast as the link.
        let link = if copy.is_fetch() { 29e9 } else { 12e9 };
        // Times are whole nanoseconds.
        let rate = copy.bytes.0 as f64 / ((long(copy.span) + 1) as f64 * 1e-9);
        assert!(copy.outcome != Some(Outcome::Done) || rate <= link, "{copy:?} at {rate:e}");
    }
    assert!(moved > 100, "{moved} copies moved something");
    // What a kernel waited for was moving, or about to, while it waited.
    for stall in &run.stalls {
        let copy = run.copies.iter().find(|copy| copy.ticket == stall.ticket).expect("it is there");
        assert!(copy.asked <= stall.span.began && copy.span.ended <= stall.span.ended, "{stall:?} {copy:?}");
        assert_eq!(copy.span.ended, stall.span.ended, "waiting ends with the copy");
    }
}

#[test]
fn warm_ups_do_not_count() {
    let mut played = scene::simulate("vgg16", 16, "optane-autotm", 0.3, "cachedarrays-lmp");
    let all = Run::new(played.log());
    assert_eq!(Stalls::counted(&all).total, all.iterations.iter().map(|i| i.stall).sum(), "none is left out");
    played.header.warmup_iterations = 1;
    let run = Run::new(played.log());
    assert_eq!((run.iterations.len(), run.counted().len()), (3, 2));
    assert_eq!(run.row().iteration_ns, all.row().iteration_ns[1..]);
    let stall: Nanos = played.iterations[1..].iter().map(|i| i.stall).sum();
    assert_eq!((Stalls::counted(&run).total, run.row().stall_ns), (stall, stall.0));
    assert!(run.text().contains("(median of 2 after 1 to warm up)"), "{}", run.text());
    played.header.warmup_iterations = 9;
    assert!(Run::new(played.log()).row().iteration_ns.is_empty());
}

#[test]
fn slowdowns_and_curves_follow_from_rows() {
    let row = |system: &str, share: f64, time: u64| Row {
        net: "net".to_string(),
        machine: "m".to_string(),
        system: system.to_string(),
        fast_fraction: Some(share),
        fast_bytes: Bytes((share * 1e11) as u64),
        iteration_ns: vec![time * 2, time, time - 1],
        memory_price: Some(
            Price::new(16.0, 8.0, Bytes(100_000_000_000)).at(Bytes((share * 1e11) as u64)).expect("finite"),
        ),
        ..Row::default()
    };
    let rows = vec![row("fast-only", 1.0, 100), row("a", 0.4, 110), row("a", 0.2, 150), row("b", 0.2, 130)];
    let comparison = Comparison::new(rows);
    let slowdowns: Vec<Option<f64>> = comparison.rows.iter().map(|row| row.slowdown).collect();
    assert_eq!(slowdowns, [Some(1.0), Some(1.1), Some(1.5), Some(1.3)]);
    let curves = Curve::all(&comparison);
    assert_eq!(curves.len(), 1, "one point is no curve");
    let points: Vec<(u64, u64)> = curves[0].points.iter().map(|p| (p.fast_bytes.0, p.iteration_ns)).collect();
    assert_eq!(points, [(20_000_000_000, 150), (40_000_000_000, 110)]);
    assert_eq!(curves[0].fast_only_ns, Some(100));
    let price = curves[0].price.expect("rows have prices");
    assert!((price.all_slow - 800.0).abs() < 1e-6 && (price.per_fast_gb - 8.0).abs() < 1e-9, "{price:?}");
}

#[test]
fn results_of_the_command_line_are_understood() {
    let one =
        br#"{"net":"mlp","system":"a","iteration_ns":[3,1,2],"loss":[0.5,null],"fast_bytes":5,"stall_ns":6,
        "samples_per_second":7.5,"emulated":["slow"],"measured":true,"unknown":{}}"#;
    let row = &Comparison::parse(one).expect("one run").rows[0];
    assert_eq!((row.time(), row.stall(), row.throughput()), (Some(Nanos(2)), Nanos(2), Some(7.5)));
    assert_eq!((row.loss[0], row.loss[1].is_nan(), row.kind()), (0.5, true, "measured, emulated"));
    let list = br#"[{"net":"x","system":"fast-only","iteration_ns":100},{"net":"x","system":"b","iteration_ns":[150]}]"#;
    let parsed = Comparison::parse(list).expect("a list of runs");
    assert_eq!(parsed.rows[1].slowdown, Some(1.5));
    let wrapped = format!("{{\"comparison\":{}}}", String::from_utf8_lossy(list));
    assert_eq!(Comparison::parse(wrapped.as_bytes()).expect("a document"), parsed);
    let again = serde_json::to_vec(&parsed).expect("writes");
    assert_eq!(Comparison::parse(&again).expect("reads back"), parsed);
    let failed =
        br#"[{"net":"x","system":"b","error":"too little memory","slowdown":null,"fast_only_ns":100}]"#;
    let failed = Comparison::parse(failed).expect("a run that could not be");
    assert_eq!((failed.rows[0].time(), failed.rows[0].slowdown), (None, None));
    assert!(
        failed.text().contains("too little memory") && !failed.text().contains("0 ns"),
        "{}",
        failed.text()
    );
    let wrong = |text: &str| Comparison::parse(text.as_bytes()).expect_err("it is wrong").to_string();
    assert_eq!(wrong("3"), "it holds neither a run nor a list of runs");
    assert_eq!(wrong("[{\"system\":\"a\"}]"), "run 1 has no `system` or no `iteration_ns`");
    assert_eq!(wrong("{\"system\":\"a\",\"iteration_ns\":\"x\"}"), "run 1: iteration_ns is a list of times");
    assert!(wrong("{").contains("line 1"));
}
