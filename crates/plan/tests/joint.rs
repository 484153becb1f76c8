//! Joint plans: whatever is chosen, the plan verifies, and an eager runtime that goes by the schedule finds at every kernel
//! the bytes that it found without it, within the memory that there is.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_plan::joint::Act;
use tiercel_plan::{Joint, Request, joint, verify};
use tiercel_sim::Roofline;
use tiercel_testbed::{for_seeds, machine, random_trace};
use tiercel_workload::repeat::Repeat;
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Lifetimes, Trace, text};

fn mix(state: u64, value: u64) -> u64 {
    let mixed = (state ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed ^ mixed >> 29
}

/// A runtime that has contents as numbers, and goes by a schedule or by none.
struct Eager<'a> {
    trace: &'a Trace,
    fast: HashMap<u32, u64>,
    slow: HashMap<u32, u64>,
    /// Copies under way: whether they go out.
    flying: HashMap<u32, bool>,
    limit: u64,
}

impl<'a> Eager<'a> {
    fn new(trace: &'a Trace, away: &[u32], limit: u64) -> Eager<'a> {
        let given = (0..trace.tensors.len() as u32).filter(|t| {
            let tensor = &trace.tensors[*t as usize];
            tensor.persistent || tensor.role == Role::Input
        });
        let (slow, fast): (Vec<u32>, Vec<u32>) = given.partition(|t| away.contains(t));
        let filled = |all: Vec<u32>| all.into_iter().map(|t| (t, mix(3, u64::from(t)))).collect();
        Eager { trace, fast: filled(fast), slow: filled(slow), flying: HashMap::new(), limit }
    }

    fn bytes(&self) -> u64 {
        self.fast.keys().map(|t| self.trace.tensors[*t as usize].bytes.0.next_multiple_of(64)).sum()
    }

    /// Runs a kernel; tells what it found.
    fn run(&mut self, at: u32) -> u64 {
        let kernel = &self.trace.kernels[at as usize];
        let mut found = u64::from(at);
        for used in &kernel.reads {
            assert!(!self.flying.contains_key(&used.tensor.0), "kernel {at} reads what is being copied");
            let bytes = self.fast.get(&used.tensor.0);
            found = mix(found, *bytes.unwrap_or_else(|| panic!("kernel {at} misses {:?}", used.tensor)));
        }
        for (result, used) in kernel.writes.iter().enumerate() {
            assert!(!self.flying.contains_key(&used.tensor.0), "kernel {at} writes what is being copied");
            self.fast.insert(used.tensor.0, mix(found, result as u64));
        }
        assert!(self.bytes() <= self.limit, "kernel {at}: {} of {}", self.bytes(), self.limit);
        found
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Evict(t) => {
                self.slow.insert(t, self.fast[&t]);
                self.flying.insert(t, true);
            }
            Act::Fetch(t) => {
                assert!(!self.fast.contains_key(&t) && !self.flying.contains_key(&t), "{t} is there already");
                self.fast.insert(t, self.slow[&t]);
                self.flying.insert(t, false);
            }
            Act::Wait(t) => {
                if self.flying.remove(&t).expect("it is being copied") {
                    self.fast.remove(&t);
                }
            }
            Act::Recompute(kernel) => _ = self.run(kernel),
            Act::Drop(t) => _ = self.fast.remove(&t).expect("it was there"),
        }
    }
}

/// What every kernel finds.
fn play(trace: &Trace, joint: Option<&Joint>, limit: u64) -> Vec<u64> {
    let away = joint.map_or(&[][..], |joint| &joint.schedule.away);
    let mut eager = Eager::new(trace, away, limit);
    let lifetimes = Lifetimes::new(trace);
    let mut found = Vec::new();
    for step in 0..trace.kernels.len() {
        if let Some(joint) = joint {
            joint.schedule.steps[step].before.iter().for_each(|act| eager.act(*act));
        }
        found.push(eager.run(step as u32));
        if let Some(joint) = joint {
            joint.schedule.steps[step].after.iter().for_each(|act| eager.act(*act));
        }
        // What nobody wants any more is given up, as frameworks do.
        for used in trace.kernels[step].reads.iter().chain(&trace.kernels[step].writes) {
            let t = used.tensor;
            let last = lifetimes.of(t).is_some_and(|life| life.last.0 as usize == step);
            if last && !trace.tensor(t).persistent {
                eager.fast.remove(&t.0);
            }
        }
    }
    for (t, tensor) in trace.tensors.iter().enumerate().filter(|(_, tensor)| tensor.persistent) {
        let there = eager.fast.contains_key(&(t as u32));
        assert_eq!(there, !away.contains(&(t as u32)), "{} ends where it began", tensor.name);
    }
    found
}

fn small(seed: u64) -> (Trace, Machine) {
    let mut random = fastrand::Rng::with_seed(seed);
    let layers = random.u32(3..9);
    let mut trace = random_trace(&mut random, layers, 20_000);
    for kernel in trace.kernels.iter_mut().filter(|kernel| kernel.phase != Phase::Update) {
        kernel.repeat = Some(if random.u8(..6) == 0 { Repeat::Once } else { Repeat::Pure });
    }
    let peak = Lifetimes::new(&trace).peak().1.0;
    let fast = (peak as f64 * (0.35 + 0.6 * random.f64())) as u64;
    let machine = machine(&[fast.next_multiple_of(64), 8 * peak + 6400], 1);
    (trace, machine)
}

#[test]
fn whatever_is_chosen_kernels_find_their_bytes_within_the_memory() {
    let sums = Cell::new((0, 0, 0));
    for_seeds(120, |seed| {
        let (trace, machine) = small(seed);
        let limit = machine.tier(TierId(0)).capacity.0;
        let before = play(&trace, None, u64::MAX);
        for (moves, again_too) in [(true, true), (true, false), (false, true)] {
            let request = Request {
                moves,
                again: again_too,
                rounds: 60,
                time: Duration::from_secs(60),
                seed,
                places: seed % 4 == 0,
                ..Request::default()
            };
            let Ok(found) = joint(&trace, &machine, &Roofline, &request) else { continue };
            let (planned, again, moved) = sums.get();
            sums.set((planned + 1, again + found.repeated.reruns.len(), moved + found.plan.moves.len()));
            verify(&found.plan, &found.repeated.trace, &machine).unwrap_or_else(|flaw| panic!("{flaw}"));
            assert!(
                found.plan.bound_ns <= found.plan.iteration_ns,
                "{} {}",
                found.plan.bound_ns,
                found.plan.iteration_ns
            );
            assert!(moves || found.plan.moves.is_empty(), "nothing was to move");
            assert!(again_too || found.repeated.reruns.is_empty(), "nothing was to run again");
            assert_eq!(play(&trace, Some(&found), limit), before, "seed {seed}");
        }
    });
    let (planned, again, moved) = sums.get();
    assert!(planned > 120 && again > 40 && moved > 40, "{planned} plans, {again} again, {moved} moves");
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let (trace, machine) = small(5);
    let request = Request { rounds: 40, time: Duration::from_secs(60), ..Request::default() };
    let plan = || joint(&trace, &machine, &Roofline, &request).expect("it fits").schedule;
    assert_eq!(plan(), plan());
}

#[test]
fn a_kernel_that_cannot_fit_is_named_with_what_it_takes() {
    let (trace, machine) = small(2);
    let machine = machine.with_capacity(TierId(0), Bytes(128));
    let error =
        joint(&trace, &machine, &Roofline, &Request::default()).expect_err("nothing fits").to_string();
    assert!(error.contains("cannot work with 128 B"), "{error}");
}

/// Layers that all keep a result for the way back.
fn layers(count: usize) -> Trace {
    let mut lines = vec!["tiercel-trace 1".to_string(), "name layers".to_string(), "layer l".to_string()];
    let mut add = |line: String| lines.push(line);
    add("tensor x input 1MiB".to_string());
    for i in 0..count {
        add(format!("tensor a{i} activation 1MiB"));
        add(format!("tensor g{i} gradient 256KiB"));
    }
    for i in 0..count {
        let before = if i == 0 { "x".to_string() } else { format!("a{}", i - 1) };
        add(format!("kernel f{i} gelu forward l flops 3000000 once\n  read {before}\n  write a{i}"));
    }
    for i in (0..count).rev() {
        let after = if i + 1 == count { "x".to_string() } else { format!("g{}", i + 1) };
        add(format!(
            "kernel b{i} gelu.backward backward l flops 3000000 once\n  read a{i}\n  read {after}\n  write g{i}"
        ));
    }
    text::parse(&(lines.join("\n") + "\n")).expect("a sound trace")
}

#[test]
fn what_the_slow_tier_cannot_hold_sinks_to_the_one_behind_it() {
    let trace = layers(24);
    let peak = Lifetimes::new(&trace).peak().1.0;
    let before = play(&trace, None, u64::MAX);
    for (fast, near) in [(8 << 20, 10 << 20), (12 << 20, 6 << 20), (6 << 20, 4 << 20)] {
        for places in [false, true] {
            let machine = machine(&[fast, near, 8 * peak], 1);
            let time = Duration::from_secs(60);
            let request = Request { rounds: 200, time, places, ..Request::default() };
            let found = joint(&trace, &machine, &Roofline, &request).expect("it fits");
            verify(&found.plan, &found.repeated.trace, &machine).unwrap_or_else(|flaw| panic!("{flaw}"));
            let sinks = found.plan.moves.iter().filter(|m| m.from == "t1" && m.to == "t2").count();
            let rises = found.plan.moves.iter().filter(|m| m.from == "t2" && m.to == "t1").count();
            let least = (peak - fast - near) >> 20;
            assert!(sinks as u64 >= least && rises == sinks, "{sinks} of {least} sink, {rises} rise");
            assert_eq!(play(&trace, Some(&found), fast), before);
        }
    }
}
