//! Every system, wired up and simulated: what must hold whatever it decides.

use expect_test::{Expect, expect};
use tiercel_core::{Bytes, Machine};
use tiercel_profile::{Model, machines};
use tiercel_systems::compare::{Grid, geometric_mean};
use tiercel_systems::curve::{Price, least_fast};
use tiercel_systems::{
    ALL, Choices, Fast, Options, Recording, Run, Setting, System, Times, named, simulate, simulate_recorded,
};
use tiercel_workload::{Lifetimes, Trace, Workload, nets};

fn trace(net: &str) -> Trace {
    let options = nets::NetOptions { batch: Some(8), ..nets::NetOptions::default() };
    nets::find(net).expect("a built-in network").build(&options).expect("a small one").trace
}

fn bench(name: &str) -> (Machine, Times) {
    let machine = machines::named(name).expect("it ships");
    let times = Times::new(Model::new(&machine).expect("it has a model"));
    (machine, times)
}

/// Rounds bound the search, so that results do not depend on how busy the machine is.
fn options() -> Options {
    Options { time: std::time::Duration::MAX, rounds: 3, ..Options::default() }
}

fn play(system: &System, trace: &Trace, machine: &Machine, times: &Times) -> Run {
    let setting = Setting::new(trace, machine, times).with(options());
    simulate(system, &setting, 2).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_system_plays_on_every_kind_of_machine() {
    for (machine_name, net) in [("optane-autotm", "resnet32"), ("optane-4tier", "mlp"), ("h200", "lstm")] {
        let (machine, times) = bench(machine_name);
        let trace = trace(net);
        let fast = Fast::Share(0.5).machine(&trace, &machine);
        let goal = play(named("fast-only").expect("listed"), &trace, &fast, &times).time();
        for system in &ALL {
            // A cache below the level of objects needs a slow tier that kernels can work on, and so does a tensor that
            // never moves; plans for the others may not be found in three rounds.
            let below = tiercel_policies::kind(system.name).is_some_and(|kind| kind.is_below());
            if machine_name == "h200" && (below || system.name.starts_with("autotm")) {
                continue;
            }
            let what = format!("{} on {net} and {machine_name}", system.name);
            let run = play(system, &trace, &fast, &times);
            assert_eq!(run.iterations.len(), 2, "{what}");
            assert!(run.peak_fast() <= run.machine.tiers[0].capacity, "{what}");
            assert!(run.time() >= goal, "{what}: {} beats {goal}", run.time());
            assert!(run.events.is_empty(), "{what}");
            let again = play(system, &trace, &fast, &times);
            assert_eq!(run.iterations, again.iterations, "{what} is not the same twice");
            assert_eq!(run.traffic, again.traffic, "{what} is not the same twice");
            if system.name != "fast-only" {
                assert_eq!(run.machine.tiers[0].capacity, fast.tiers[0].capacity, "{what}");
            }
        }
    }
}

/// Tables of which a batch wants a few rows are of no use in fast memory: they stay where they are, even where one of them is
/// more than there is.
#[test]
fn tables_need_not_move() {
    let program = nets::find("dlrm").expect("built in").build(&nets::NetOptions::default()).expect("sound");
    for (name, beside) in [("optane-autotm", true), ("h200", false)] {
        let (machine, times) = bench(name);
        let little = Fast::Share(0.2).machine(&program.trace, &machine);
        let largest = program.trace.tensors.iter().map(|tensor| tensor.bytes).max().expect("it has tables");
        assert!(largest > little.tiers[0].capacity);
        let run = |system: &str, machine: &Machine| {
            let setting = Setting::of(&program, machine, &times).with(options());
            simulate(named(system).expect("listed"), &setting, 2).unwrap_or_else(|error| panic!("{error}"))
        };
        let (goal, ours) = (run("fast-only", &machine), run("tiercel", &little));
        let slowdown = ours.time().0 as f64 / goal.time().0 as f64;
        assert!(slowdown < 1.05, "{name}: {slowdown}");
        let detached = ours.trace(&program.trace).kernels.iter().filter(|kernel| kernel.detached).count();
        assert_eq!(detached > 0, beside, "{name}: {detached} kernels beside others");
    }
}

#[test]
fn names_are_unique_and_nearly_right_ones_are_recognised() {
    let names: Vec<&str> = ALL.iter().map(|system| system.name).collect();
    for (at, name) in names.iter().enumerate() {
        assert!(!names[..at].contains(name), "{name} twice");
        assert_eq!(named(name).map(|system| system.name), Ok(*name));
    }
    let check = |name: &str, expected: Expect| {
        let error = named(name).map(|system| system.name).expect_err("no such system");
        expected.assert_eq(&error.to_string());
    };
    check("autotm-sink", expect!["no system `autotm-sink`; did you mean `autotm-sync`?"]);
    let error = named("magic").map(|system| system.name).expect_err("no such system").to_string();
    assert!(error.starts_with("no system `magic`; there are fast-only, slow-only, "), "{error}");
}

#[test]
fn too_little_memory_is_an_error_with_a_reason() {
    let (machine, times) = bench("h200");
    let trace = trace("resnet32");
    let machine = Fast::Amount(Bytes::kib(64)).machine(&trace, &machine);
    let setting = Setting::new(&trace, &machine, &times).with(options());
    let check = |system: &str, expected: Expect| {
        let error = simulate(named(system).expect("listed"), &setting, 1).map(|run| run.time());
        expected.assert_eq(&error.expect_err("64 KiB are too little").to_string());
    };
    check(
        "autotm-sync",
        expect![
            "autotm-sync: conv1.conv (step 0) cannot work with 64 KiB of hbm; all kernels can with 1.5 MiB"
        ],
    );
    check(
        "cachedarrays-lm",
        expect![
            "cachedarrays-lm, kernel conv1.conv: step 0 works on 610 KiB at once; the tiers that kernels can work on hold 64 KiB"
        ],
    );
    check(
        "autotm-static",
        expect![
            "autotm-static: conv1.conv (step 0) cannot work with 64 KiB of hbm; all kernels can with 22.4 MiB"
        ],
    );
    check(
        "memory-mode",
        expect![
            "memory-mode, kernel conv1.conv: step 0 uses images, which lies on host; kernels cannot work there"
        ],
    );
    check(
        "first-touch",
        expect![
            "first-touch, kernel conv1.conv: step 0 works on 610 KiB at once; the tiers that kernels can work on hold 64 KiB"
        ],
    );
}

#[test]
fn events_are_kept_when_asked_for() {
    let (machine, times) = bench("optane-autotm");
    let trace = trace("mlp");
    let machine = Fast::Share(0.3).machine(&trace, &machine);
    let setting = Setting::new(&trace, &machine, &times).with(options());
    let system = named("cachedarrays-lm").expect("listed");
    let run = simulate_recorded(system, &setting, 2, Recording::On).expect("it runs");
    let kernels = run.events.iter().filter(|e| matches!(e.event, tiercel_core::Event::KernelEnded { .. }));
    // What is made before the first kernel counts as one each.
    assert!(kernels.count() >= trace.kernels.len() * (run.warmup as usize + 2));
    assert_eq!(run.iterations, simulate(system, &setting, 2).expect("it runs").iterations);
}

#[test]
fn comparing_gives_the_same_in_the_same_order_on_any_number_of_threads() {
    let (machine, times) = bench("optane-autotm");
    let works = ["mlp", "resnet32"].map(|name| (name.to_string(), Workload::Trace(trace(name))));
    let systems: Vec<&System> =
        ["fast-only", "first-touch", "autotm-sync"].map(|n| named(n).unwrap()).to_vec();
    let fast = [Fast::Share(0.2), Fast::Amount(Bytes::mib(4))];
    let run = |threads| {
        let grid = Grid {
            works: &works,
            machine: &machine,
            times: &times,
            systems: &systems,
            fast: &fast,
            options: options(),
            iterations: 1,
            threads,
        };
        let ticks = std::sync::atomic::AtomicUsize::new(0);
        let cells = grid.run(|| {
            ticks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(ticks.into_inner(), grid.len());
        cells.iter().map(|c| (c.work, c.fast, c.system, c.slowdown())).collect::<Vec<_>>()
    };
    let alone = run(1);
    assert_eq!(alone.len(), 12);
    assert_eq!(alone, run(3));
    let order: Vec<_> = alone.iter().map(|(trace, fast, system, _)| (*trace, *fast, *system)).collect();
    assert_eq!(order[0].2, "fast-only");
    assert_eq!((order[3].0, order[3].1, order[3].2), (0, Bytes::mib(4), "fast-only"));
    assert_eq!(order[6].0, 1);
    for (.., system, slowdown) in alone {
        let slowdown = slowdown.expect("everything could be run");
        assert!(if system == "fast-only" { slowdown == 1.0 } else { slowdown >= 1.0 }, "{system} {slowdown}");
    }
}

#[test]
fn the_least_fast_memory_is_enough_and_less_is_not() {
    let (machine, times) = bench("optane-autotm");
    let trace = trace("resnet32");
    let peak = Lifetimes::new(&trace).peak().1;
    let setting = Setting::new(&trace, &machine, &times).with(options());
    let goal = simulate(named("fast-only").unwrap(), &setting, 1).expect("it runs").time();
    let system = named("cachedarrays-lm").unwrap();
    let limit = goal.0 as f64 * 1.5;
    let run =
        least_fast(system, &setting, goal, 0.5, 1, || ()).expect("it runs").expect("there is an amount");
    let found = run.machine.tiers[0].capacity;
    assert!(run.time().0 as f64 <= limit && found < peak);
    let less = machine.clone().with_capacity(tiercel_core::TierId(0), Bytes(found.0 - peak.0 / 50));
    let less = simulate(system, &Setting { machine: &less, ..setting }, 1);
    assert!(less.is_err() || less.is_ok_and(|run| run.time().0 as f64 > limit));
    let never = least_fast(named("slow-only").unwrap(), &setting, goal, 0.5, 1, || ());
    assert_eq!(never.expect("it runs").map(|run| run.time()), None);
}

/// AutoTM's section 6.3: with four parts of PMM to one of DRAM, memory costs 58 % of DRAM alone.
#[test]
fn memory_costs_what_the_paper_says() {
    let (machine, times) = bench("optane-autotm");
    let trace = trace("resnet32");
    let mut run = play(named("first-touch").unwrap(), &trace, &machine, &times);
    run.totals.peak = vec![Bytes(20_000_000_000), Bytes(80_000_000_000)];
    let price = Price::of(&run, Bytes(100_000_000_000)).expect("the machine has prices");
    assert!((price.used - (20.0 * 16.61 + 80.0 * 7.85)).abs() < 1e-6);
    assert!((price.share() - 0.578).abs() < 1e-3, "{}", price.share());
    run.machine.tiers[1].price_per_gb = None;
    assert_eq!(Price::of(&run, Bytes(1)), None);
    run.totals.peak[1] = Bytes::ZERO;
    assert!(Price::of(&run, Bytes(1)).is_some(), "what is not used need not have a price");
}

#[test]
fn means_are_geometric() {
    assert_eq!(geometric_mean([].into_iter()), None);
    assert!((geometric_mean([1.0, 4.0].into_iter()).unwrap() - 2.0).abs() < 1e-12);
}

/// Where kernels cannot work on slow memory, computing again is worth most: then it is planned for before moving, and neither
/// alone is better than both.
#[test]
fn moving_and_computing_again_are_together_as_good_as_either() {
    let (machine, times) = bench("h200");
    let small = |net: &str| match net {
        "gpt2" => nets::NetOptions {
            batch: Some(8),
            sequence: Some(256),
            depth: Some(4),
            ..nets::NetOptions::default()
        },
        _ => nets::NetOptions { batch: Some(16), ..nets::NetOptions::default() },
    };
    for net in ["mobilenet", "gpt2"] {
        let program = nets::find(net).expect("built in").build(&small(net)).expect("sound");
        let little = Fast::Share(0.5).machine(&program.trace, &machine);
        let time = |choices| {
            let options = Options { choices, rounds: 0, ..self::options() };
            let setting = Setting::of(&program, &little, &times).with(options);
            simulate(named("tiercel").expect("listed"), &setting, 1)
                .map_or(f64::INFINITY, |run| run.time().0 as f64)
        };
        let [moved, again, both] = [Choices::Move, Choices::Recompute, Choices::Both].map(time);
        assert!(both <= moved.min(again), "{net}: {both}, moved {moved}, computed again {again}");
        assert!(both < 0.8 * moved, "{net}: {both}, moved {moved}");
    }
}
