//! Sentinel: what the paper says it does, it does; and whatever happens, it computes the same.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::{Expect, expect};
use tiercel_core::{Bytes, Error, Event, Hint, Machine, Manager, ObjectId, Operand, Policy, Step, TierId};
use tiercel_policies::sentinel::schedule::Leaving;
use tiercel_policies::sentinel::{enough, lower_bound};
use tiercel_policies::{Fixed, Sentinel};
use tiercel_run::{Executor, Host, Stage};
use tiercel_sim::{Sim, World};
use tiercel_testbed::{Scramble, for_seeds, machine, random_trace};
use tiercel_workload::lifetimes::{self, Class};
use tiercel_workload::{Lifetimes, TensorId, Trace, intervals, nets, text};

const FAST: TierId = TierId(0);

fn network(name: &str, batch: u64) -> Trace {
    let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
    nets::find(name).expect("a network").build(&options).expect("it fits").trace
}

/// A machine whose fast memory is a share of a trace's peak.
fn share(trace: &Trace, fraction: f64) -> Machine {
    let peak = Lifetimes::new(trace).peak().1;
    let toml = include_str!("../../../machines/dram-throttled.toml");
    let machine = Machine::parse(toml).expect("it ships with the project");
    let fast = Bytes((peak.0 as f64 * fraction) as u64);
    machine.with_capacity(FAST, fast).with_capacity(TierId(1), Bytes(peak.0 * 6))
}

/// Iterations until the policy has settled.
fn settle<W: World + 'static>(
    executor: &mut Executor<'_>,
    manager: &mut Manager<W>,
    policy: &mut Sentinel,
) -> usize {
    for iteration in 1..100 {
        executor.iterate(manager, policy).expect("it runs");
        if policy.settled() {
            return iteration;
        }
    }
    panic!("it never settles");
}

/// Calls `look` after every kernel.
struct Watched<'p, F> {
    policy: &'p mut Sentinel,
    look: F,
}

impl<F: FnMut(&mut Manager, &[Operand]) + Send> Policy for Watched<'_, F> {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn place(&mut self, manager: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.policy.place(manager, object)
    }

    fn hint(&mut self, manager: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        self.policy.hint(manager, object, hint)
    }

    fn before(&mut self, manager: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.policy.before(manager, step, operands)?;
        if step != Step::LOAD {
            (self.look)(manager, operands);
        }
        Ok(())
    }

    fn after(&mut self, manager: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.policy.after(manager, step, operands)
    }

    fn layer_ended(&mut self, manager: &mut Manager) -> Result<(), Error> {
        self.policy.layer_ended(manager)
    }

    fn iteration_ended(&mut self, manager: &mut Manager) -> Result<(), Error> {
        self.policy.iteration_ended(manager)
    }
}

/// The moves of one settled iteration, kernel by kernel.
fn moves(trace: &str, fast: u64, layers: u32, expected: Expect) {
    let trace = text::parse(trace).expect("a sound trace");
    let machine = machine(&[fast, 1 << 20], 2);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    let (mut policy, mut executor) = (Sentinel::new().interval(layers), Executor::new(&trace));
    settle(&mut executor, &mut manager, &mut policy);
    manager.record();
    executor.iterate(&mut manager, &mut policy).expect("it runs");
    let (mut names, mut lines, mut now) = (BTreeMap::new(), Vec::new(), Vec::new());
    for tensor in (0..trace.tensors.len()).filter(|at| trace.tensors[*at].persistent) {
        names.insert(
            executor.object(TensorId(tensor as u32)).expect("it persists"),
            &*trace.tensors[tensor].name,
        );
    }
    let events = manager.take_events();
    for stamped in &events {
        match &stamped.event {
            Event::Created { object, name: Some(name), .. } => _ = names.insert(*object, name),
            Event::CopyStarted { object, from, to, .. } => {
                now.push(format!(
                    "{} {}",
                    if to.tier < from.tier { "fetch" } else { "evict" },
                    names[object]
                ));
            }
            Event::KernelEnded { step } if *step != Step::LOAD => {
                lines
                    .push(format!("{}: {}", trace.kernel(*step).name, now.join(", ")).trim_end().to_string());
                now.clear();
            }
            _ => {}
        }
    }
    if !now.is_empty() {
        lines.push(format!("end: {}", now.join(", ")));
    }
    assert_eq!(policy.deviations(), 0);
    expected.assert_eq(&(lines.join("\n") + "\n"));
}

/// Three layers forward and back; each backward kernel reads what the forward one made, and passes over it three times
/// in the second layer.
const THREE_LAYERS: &str = "tiercel-trace 1
name three
layer a
layer b
layer c
tensor x input 640
tensor wa weight 640 persistent
tensor wb weight 640 persistent
tensor wc weight 640 persistent
tensor ma activation 640
tensor ya activation 1280
tensor yb activation 1280
tensor yc activation 1280
tensor sa activation 640
tensor dc activation 640
tensor db activation 640
kernel fa k forward a flops 100000
  read x
  read wa
  write sa
  write ma
kernel ga k forward a flops 100000
  read sa
  write ya
kernel fb k forward b flops 100000
  read ya
  read wb
  write yb
kernel fc k forward c flops 100000
  read yb
  read wc
  write yc
kernel bc k backward c flops 100000
  read yc
  read yb
  write dc
kernel bb k backward b flops 100000
  read dc
  read yb
  read ya 3840
  read ma
  write db
kernel ba k backward a flops 100000
  read db
  read ya
  read wa
  write wa
";

#[test]
fn what_the_next_interval_needs_comes_while_this_one_runs() {
    moves(
        THREE_LAYERS,
        5 << 10,
        1,
        expect![[r#"
            fa: fetch wb
            ga: evict wa, evict ma
            fb: fetch wc
            fc: evict ya
            bc: fetch ma
            bb: fetch wa
            ba:
        "#]],
    );
}

#[test]
fn short_lived_objects_never_move_and_nothing_unlike_shares_a_page() {
    const PAGE: u64 = 4096;
    for (name, batch, fraction) in [("resnet32", 16, 0.3), ("lstm", 4, 1.2), ("dcgan", 4, 0.5)] {
        let trace = network(name, batch);
        let machine = share(&trace, fraction);
        enough(&trace, &machine).expect("a sensible share");
        let (all, visits) = (Lifetimes::new(&trace), lifetimes::visits(&trace));
        let life = |at: usize| {
            let life = all.of(TensorId(at as u32)).expect("it is used");
            let given = life.class == Class::Persistent
                || trace.tensors[at].role == tiercel_workload::trace::Role::Input;
            // Nobody shares with what was there before the first kernel.
            if given {
                (at as u32, u32::MAX)
            } else {
                (visits[life.birth.0 as usize], visits[life.last.0 as usize])
            }
        };
        let lives: BTreeMap<&str, (u32, u32)> =
            trace.tensors.iter().enumerate().map(|(at, t)| (t.name.as_str(), life(at))).collect();
        let short: BTreeSet<&str> =
            lives.iter().filter(|(_, (birth, last))| birth == last).map(|(name, _)| *name).collect();
        let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
        let (mut policy, mut executor) = (Sentinel::new(), Executor::new(&trace));
        settle(&mut executor, &mut manager, &mut policy);
        manager.record();
        let mut kernels = 0;
        let look = |m: &mut Manager, _: &[Operand]| {
            kernels += 1;
            let mut pages: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
            for object in m.objects_on(FAST) {
                let (name, region) = (m.what(object), m.region_on(object, FAST).expect("it is there"));
                let start = m.place_of(region).offset.0;
                for page in start / PAGE..=(start + m.size_of(region).0.max(1) - 1) / PAGE {
                    let life = lives[name.as_str()];
                    let other = *pages.entry(page).or_insert(life);
                    assert_eq!(other, life, "{name} shares page {page}");
                }
            }
        };
        executor.iterate(&mut manager, &mut Watched { policy: &mut policy, look }).expect("it runs");
        assert_eq!(kernels, trace.kernels.len());
        assert_eq!(policy.deviations(), 0, "{name}");
        let mut names = BTreeMap::new();
        let mut copies = 0;
        for stamped in manager.take_events() {
            match stamped.event {
                Event::Created { object, name: Some(name), .. } => _ = names.insert(object, name),
                Event::CopyStarted { object, .. } => {
                    copies += 1;
                    assert!(names.get(&object).is_none_or(|name| !short.contains(&**name)));
                }
                _ => {}
            }
        }
        assert!(!short.is_empty() && (copies > 0 || fraction > 1.0), "{name}: {copies} copies");
    }
}

#[test]
fn the_equations_are_those_of_the_paper() {
    for_seeds(40, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let layers = random.u32(2..12);
        let trace = random_trace(&mut random, layers, 4000);
        let lifetimes = Lifetimes::new(&trace);
        let machine = machine(&[random.u64(2..60) << 10, 1 << 20], 2);
        let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
        let mut policy = Sentinel::new();
        Executor::new(&trace).iterate(&mut manager, &mut policy).expect("it runs");
        let found = policy.terms().expect("it was profiled");
        let fast = machine.tier(FAST).capacity;
        // Tensor of an interval, as the paper has it: its long-lived tensors.
        let long = |id: &TensorId| lifetimes.of(*id).is_some_and(|life| life.class != Class::Short);
        let tensor = |length: u32| {
            let sums = intervals::by_layers(&trace, length).into_iter().map(|interval| {
                interval
                    .tensors(&trace)
                    .iter()
                    .filter(|id| long(id))
                    .map(|id| trace.tensor(*id).bytes.0)
                    .sum::<u64>()
            });
            sums.max().expect("it has kernels")
        };
        assert_eq!(found.tensor.0, tensor(found.length));
        let visits = lifetimes::visits(&trace).last().expect("it has kernels") + 1;
        let fits = |length: u32| tensor(length) < fast.0 - found.reserved.0;
        if found.length < visits && found.excess == Bytes::ZERO {
            assert!(fits(found.length));
            // Reserved space differs little, so the longest that fits is the best.
            let longest = (1..visits).rev().find(|length| fits(*length)).expect("one fits");
            assert!(found.length <= longest + 1, "{} of {longest}", found.length);
        }
    });
}

#[test]
fn below_the_lower_bound_it_says_so_and_still_runs() {
    let trace = network("mlp", 64);
    let bound = lower_bound(&trace);
    let machine = share(&trace, 2.0).with_capacity(FAST, Bytes(bound.0 / 2));
    let error = enough(&trace, &machine).expect_err("it is half of it");
    assert_eq!((error.wanted, error.there), (bound, Bytes(bound.0 / 2)));
    let text = error.to_string();
    assert!(text.contains("mlp") && text.contains(&bound.to_string()), "{text}");
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    let mut policy = Sentinel::new();
    settle(&mut Executor::new(&trace), &mut manager, &mut policy);
    assert!(policy.lower_bound().expect("it was profiled") >= bound && policy.deviations() > 0);
}

#[test]
fn everything_fast_needs_no_moves() {
    for name in ["mlp", "resnet32", "lstm"] {
        let trace = network(name, 8);
        let machine = share(&trace, 1.5);
        let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
        let (mut policy, mut executor) = (Sentinel::new(), Executor::new(&trace));
        settle(&mut executor, &mut manager, &mut policy);
        let iteration = executor.iterate(&mut manager, &mut policy).expect("it runs");
        assert_eq!((iteration.fetched, iteration.evicted), (Bytes::ZERO, Bytes::ZERO), "{name}");
    }
}

#[test]
fn a_simulation_repeats_itself_to_the_nanosecond() {
    let trace = network("dcgan", 8);
    let machine = share(&trace, 0.3);
    let run = || {
        let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
        let mut policy = Sentinel::new();
        let iterations = settle(&mut Executor::new(&trace), &mut manager, &mut policy);
        (iterations, policy.steps(), policy.left(), manager.now(), manager.totals().clone())
    };
    let first = run();
    assert!(first.1.profiled == 1 && first.1.tried > 0, "{first:?}");
    assert_eq!(first, run());
}

#[test]
fn input_sizes_and_dataflows_are_profiled_once_each() {
    let (small, large, larger) = (network("mlp", 16), network("mlp", 64), network("mlp", 68));
    let machine = share(&large, 0.7);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    let mut policy = Sentinel::new();
    let mut executors: Vec<Executor<'_>> = [&small, &large, &larger].map(Executor::new).into();
    executors[0].prepare(&mut manager, &mut policy).expect("there is room");
    let (first, rest) = executors.split_at_mut(1);
    rest.iter_mut().for_each(|executor| executor.adopt(&first[0]));
    let mut profiled = Vec::new();
    for turn in [0, 0, 1, 1, 0, 1, 2, 2, 0] {
        executors[turn].iterate(&mut manager, &mut policy).expect("it runs");
        profiled.push(policy.steps().profiled);
    }
    // The third size is so near to the second that it is taken for it.
    assert_eq!(profiled, [1, 1, 2, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn where_kernels_cannot_reach_slow_memory_nothing_is_tried() {
    for (name, batch, fraction) in [("resnet32", 8, 0.3), ("resnet32", 8, 0.6), ("dcgan", 2, 0.5)] {
        let trace = network(name, batch);
        let mut machine = share(&trace, fraction);
        machine.tiers[1].computable = false;
        let mut manager = Manager::new(machine.clone(), Sim::new(machine));
        let (mut policy, mut executor) = (Sentinel::new(), Executor::new(&trace));
        settle(&mut executor, &mut manager, &mut policy);
        let (before, mut outside) = (policy.deviations(), 0);
        let look = |m: &mut Manager, operands: &[Operand]| {
            outside += operands.iter().filter(|operand| m.home(operand.object) != Some(FAST)).count();
        };
        executor.iterate(&mut manager, &mut Watched { policy: &mut policy, look }).expect("it runs");
        assert_eq!((outside, policy.steps().tried, policy.left()), (0, 0, 0), "{name}");
        println!("{name} {fraction}: {:?}, {} deviations", policy.cases(), policy.deviations() - before);
        assert!(policy.deviations() - before < 8 && policy.cases().late > 0, "{name} {fraction}");
    }
}

fn decisions<W: World + 'static>(
    trace: &Trace,
    machine: &Machine,
    world: W,
    policy: &mut Sentinel,
) -> (Vec<Event>, Manager<W>) {
    let mut manager = Manager::new(machine.clone(), world);
    manager.record();
    let mut executor = Executor::new(trace);
    for _ in 0..4 {
        executor.iterate(&mut manager, policy).expect("it runs");
    }
    manager.drain().expect("no copy fails");
    let events = manager.take_events().into_iter().map(|stamped| stamped.event);
    let decided = events.filter(|e| !matches!(e, Event::Stalled { .. } | Event::CopyEnded { .. }));
    (decided.collect(), manager)
}

/// The smallest fast memory that any policy needs for this trace, up to three times that.
fn tight_machine(trace: &Trace, random: &mut fastrand::Rng) -> Machine {
    let kernel = |k: &tiercel_workload::Kernel| -> u64 {
        k.reads.iter().chain(&k.writes).map(|u| trace.tensor(u.tensor).bytes.0.next_multiple_of(64)).sum()
    };
    let working_set = trace.kernels.iter().map(kernel).max().expect("it has kernels");
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let tiers = random.usize(2..=4);
    let mut capacities = vec![working_set * random.u64(4..12) / 4];
    capacities.resize(tiers - 1, working_set);
    capacities.push(all * 2);
    machine(&capacities, random.usize(1..=tiers))
}

fn stage(machine: &Machine) -> Stage<Scramble> {
    Stage::new(Host::open(machine).expect("a little memory"), Scramble::default())
}

#[test]
fn what_was_learned_in_a_simulation_is_played_on_real_memory() {
    for_seeds(12, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let layers = random.u32(2..14);
        let trace = random_trace(&mut random, layers, 4000);
        let machine = tight_machine(&trace, &mut random);
        let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
        let mut learner = Sentinel::new();
        settle(&mut Executor::new(&trace), &mut manager, &mut learner);
        let (simulated, _) = decisions(&trace, &machine, Sim::new(machine.clone()), &mut learner.follower());
        let (real, _) = decisions(&trace, &machine, stage(&machine), &mut learner.follower());
        assert_eq!(simulated, real);
    });
}

#[test]
fn programs_that_change_compute_the_same_as_in_fast_memory() {
    for_seeds(20, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let traces: Vec<Trace> = (0..3)
            .map(|_| {
                let layers = random.u32(2..10);
                random_trace(&mut random, layers, 3000)
            })
            .collect();
        let most = traces
            .iter()
            .map(|trace| tight_machine(trace, &mut random.clone()))
            .max_by_key(|m| m.tiers[0].capacity);
        let all: u64 = traces.iter().flat_map(|t| &t.tensors).map(|t| t.bytes.0.next_multiple_of(64)).sum();
        let tight = most.expect("there are traces");
        let tight = tight.clone().with_capacity(tight.slowest(), Bytes(all * 4));
        let roomy = tight.clone().with_capacity(FAST, Bytes(all * 2));
        let turns: Vec<usize> = (0..14).map(|_| random.usize(0..traces.len())).collect();
        let play = |machine: &Machine, policy: &mut dyn Policy| {
            let mut manager = Manager::new(machine.clone(), stage(machine));
            let mut executors: Vec<Executor<'_>> = traces.iter().map(Executor::new).collect();
            for turn in &turns {
                executors[*turn].iterate(&mut manager, policy).unwrap_or_else(|e| panic!("{e}"));
                manager.check().expect("the state is sound");
            }
            manager.drain().expect("no copy fails");
            manager.backend().kernels().digest
        };
        let expected = play(&roomy, &mut Fixed::new(tiercel_policies::Birthplace::FastOnly));
        assert_eq!(play(&tight, &mut Sentinel::new()), expected);
    });
}

/// What leaves and comes back although nobody had its room in between, was moved for nothing.
#[test]
fn objects_may_stay_while_nobody_wants_their_room() {
    for (name, batch) in [("resnet32", 8), ("mobilenet", 2)] {
        let trace = network(name, batch);
        let mut machine = share(&trace, 0.7);
        machine.tiers[1].computable = false;
        let moved = |leaving| {
            let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
            let (mut policy, mut executor) = (Sentinel::new().leaving(leaving), Executor::new(&trace));
            settle(&mut executor, &mut manager, &mut policy);
            let iteration = executor.iterate(&mut manager, &mut policy).expect("it runs");
            (iteration.fetched + iteration.evicted, policy.deviations())
        };
        let (all, few) = (moved(Leaving::AtOnce), moved(Leaving::ForOthers));
        let peak = Lifetimes::new(&trace).peak().1;
        assert!(all.0 > peak, "{name}: at once {} of a peak of {peak} move", all.0);
        assert!(few.0.0 * 3 < all.0.0 * 2, "{name}: {} where {} moved at once", few.0, all.0);
        assert!(few.1 <= all.1, "{name}: {} deviations where there were {}", few.1, all.1);
    }
}
