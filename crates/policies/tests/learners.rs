//! Policies that learn from one iteration or look at the clock, over many iterations: what they compute stays right,
//! what they learn is what the trace says, and they move what their papers say and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use tiercel_core::{
    Bytes, Error, Event, Hint, Machine, Manager, Nanos, ObjectId, Operand, Policy, Step, TierId,
};
use tiercel_policies::notebook::{Ended, Notebook};
use tiercel_policies::{Capuchin, Ial, Redl, UnifiedMemory, Vdnn, Watched, by_name};
use tiercel_run::{Executor, Host, Stage};
use tiercel_sim::Sim;
use tiercel_testbed::{Scramble, for_seeds, machine, random_trace};
use tiercel_workload::lifetimes::Class;
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Kernel, Lifetimes, Tensor, TensorId, Trace, Use, nets};

/// Those with something to learn, and an operating system that looks at its pages all the time.
fn learners() -> Vec<Box<dyn Policy>> {
    vec![
        Box::new(Redl::new()),
        Box::new(Vdnn::new()),
        Box::new(Ial::new(Nanos(2_000))),
        Box::new(UnifiedMemory::new()),
        Box::new(Capuchin::new()),
    ]
}

/// The same trace with kernels of types that vDNN knows.
fn convolutions(mut trace: Trace) -> Trace {
    for kernel in &mut trace.kernels {
        kernel.op = match kernel.phase {
            Phase::Forward => "conv",
            Phase::Backward => "conv.backward-data",
            Phase::Update => "sgd",
        }
        .to_string();
    }
    trace
}

/// The forward pass alone.
fn forward(trace: &Trace) -> Trace {
    let mut trace = trace.clone();
    trace.kernels.retain(|kernel| kernel.phase == Phase::Forward);
    trace
}

/// A machine whose fast memory holds `share` of the trace's peak, but at least its largest kernel.
fn tight(trace: &Trace, share: f64, computable: usize) -> Machine {
    let size = |tensor: TensorId| trace.tensor(tensor).bytes.0.next_multiple_of(64);
    let kernel = |k: &tiercel_workload::Kernel| -> u64 {
        let used: BTreeSet<TensorId> = k.reads.iter().chain(&k.writes).map(|u| u.tensor).collect();
        used.into_iter().map(size).sum()
    };
    let largest = trace.kernels.iter().map(kernel).max().expect("it has kernels");
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let fast = ((Lifetimes::new(trace).peak().1.0 as f64 * share) as u64).max(largest);
    machine(&[fast, all * 3], computable)
}

/// Trains and evaluates by turns, and returns what all bytes came to.
fn digest(trace: &Trace, machine: &Machine, policy: &mut dyn Policy) -> u64 {
    let stage = Stage::new(Host::open(machine).expect("a little memory"), Scramble::default());
    let mut manager = Manager::new(machine.clone(), stage);
    let evaluation = forward(trace);
    let mut train = Executor::new(trace);
    let mut evaluate = Executor::new(&evaluation);
    for iteration in 0..14 {
        let executor = if iteration % 5 == 4 { &mut evaluate } else { &mut train };
        let played = executor.iterate(&mut manager, policy);
        played.unwrap_or_else(|e| panic!("{}, iteration {iteration}: {e}", policy.name()));
        manager.check().expect("the state is sound");
        assert_eq!(manager.loose_regions(), 0);
        if iteration == 0 {
            evaluate.adopt(&train);
        }
    }
    manager.drain().expect("no copy fails");
    manager.backend().kernels().digest
}

#[test]
fn what_is_computed_does_not_depend_on_what_was_learned() {
    for_seeds(10, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let layers = random.u32(2..10);
        let trace = convolutions(random_trace(&mut random, layers, 3000));
        let mut fast_only = by_name("fast-only").expect("it is listed");
        let expected = digest(&trace, &tight(&trace, 3.0, 2), fast_only.as_mut());
        for computable in [1, 2] {
            let machine = tight(&trace, random.f64(), computable);
            for mut policy in learners() {
                if computable == 1 && policy.name() == "ial" {
                    continue;
                }
                let found = digest(&trace, &machine, policy.as_mut());
                assert_eq!(found, expected, "{} computes something else", policy.name());
            }
        }
    });
}

/// A policy that only watches, and writes down what it sees.
#[derive(Default)]
struct Scribe {
    notebook: Notebook,
    ended: Vec<Ended>,
}

impl Policy for Scribe {
    fn name(&self) -> &str {
        "scribe"
    }
    fn coming(&mut self, _: &mut Manager, _: Step, op: &str) -> Result<(), Error> {
        self.notebook.coming(op);
        Ok(())
    }
    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.notebook.placed(m, object);
        let region = m.allocate(TierId(0), m.size(object)?).map_err(|_| m.no_room(object, TierId(0)))?;
        m.set_primary(object, region)
    }
    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire {
            self.notebook.retired(object);
            m.retire(object)?;
        }
        Ok(())
    }
    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.notebook.before(m, step, operands);
        Ok(())
    }
    fn after(&mut self, m: &mut Manager, step: Step, _: &[Operand]) -> Result<(), Error> {
        self.notebook.after(m, step);
        Ok(())
    }
    fn layer_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.notebook.layer_ended();
        Ok(())
    }
    fn iteration_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.ended.push(self.notebook.ended());
        Ok(())
    }
}

fn small(name: &str, batch: u64) -> Trace {
    let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
    nets::find(name).expect("built in").build(&options).expect("a small network").trace
}

#[test]
fn the_notebook_holds_what_the_trace_says() {
    for trace in [small("resnet32", 2), small("lstm", 2), small("dcgan", 1)] {
        let machine = tight(&trace, 2.0, 2);
        let mut manager = Manager::new(machine.clone(), Sim::new(machine));
        let mut scribe = Scribe::default();
        let mut executor = Executor::new(&trace);
        for _ in 0..3 {
            executor.iterate(&mut manager, &mut scribe).unwrap_or_else(|e| panic!("{e}"));
        }
        assert_eq!(scribe.ended, [Ended::Learned(1), Ended::Known(1), Ended::Known(1)]);
        let known = scribe.notebook.page().expect("it is known");
        let by_name: BTreeMap<&str, TensorId> =
            known.trace.tensors.iter().zip(0..).map(|(t, at)| (t.name.as_str(), TensorId(at))).collect();
        let lifetimes = Lifetimes::new(&trace);
        for (tensor, at) in trace.tensors.iter().zip(0..) {
            let Some(expected) = lifetimes.of(TensorId(at)) else { continue };
            let seen = by_name[tensor.name.as_str()];
            assert_eq!(known.lifetimes.of(seen), Some(expected), "{}", tensor.name);
            assert_eq!(known.lifetimes.uses(seen), lifetimes.uses(TensorId(at)), "{}", tensor.name);
            assert_eq!(known.trace.tensor(seen).bytes, tensor.bytes);
        }
        assert_eq!(known.visits, tiercel_workload::lifetimes::visits(&trace));
        assert_eq!(known.times.iter().map(|time| time.0).sum::<u64>() * 3, manager.now().0);
    }
}

#[test]
fn iterations_that_differ_are_told_apart() {
    let trace = random_trace(&mut fastrand::Rng::with_seed(3), 6, 1000);
    let evaluation = forward(&trace);
    let machine = tight(&trace, 3.0, 2);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    let mut scribe = Scribe::default();
    let (mut train, mut evaluate) = (Executor::new(&trace), Executor::new(&evaluation));
    for training in [true, true, false, false, true, false, true] {
        let executor = if training { &mut train } else { &mut evaluate };
        executor.iterate(&mut manager, &mut scribe).unwrap_or_else(|e| panic!("{e}"));
        evaluate.adopt(&train);
    }
    use Ended::{Known, Learned, Unknown};
    // The first evaluation begins like training and is only seen to differ when it ends early.
    let expected = [Learned(1), Known(1), Unknown, Learned(2), Known(1), Known(2), Known(1)];
    assert_eq!(scribe.ended, expected);
}

/// The tensors that were copied in an iteration after the policy has settled, each with the tiers it went to.
fn moved(trace: &Trace, machine: &Machine, policy: &mut dyn Policy) -> BTreeMap<String, Vec<u8>> {
    let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
    let mut executor = Executor::new(trace);
    let mut iterations = 0;
    while iterations < 2 || !policy.settled() {
        executor.iterate(&mut manager, policy).unwrap_or_else(|e| panic!("{}: {e}", policy.name()));
        iterations += 1;
        assert!(iterations < 1000, "{} never settles", policy.name());
    }
    manager.record();
    executor.iterate(&mut manager, policy).unwrap_or_else(|e| panic!("{}: {e}", policy.name()));
    let mut moved: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut names: BTreeMap<ObjectId, String> = BTreeMap::new();
    for tensor in 0..trace.tensors.len() as u32 {
        if let Some(object) = executor.object(TensorId(tensor)) {
            names.insert(object, trace.tensor(TensorId(tensor)).name.clone());
        }
    }
    for stamped in manager.take_events() {
        match stamped.event {
            Event::Created { object, name: Some(name), .. } => {
                names.insert(object, name.to_string());
            }
            Event::CopyStarted { object, to, .. } => {
                moved.entry(names[&object].clone()).or_default().push(to.tier.0);
            }
            _ => {}
        }
    }
    moved
}

#[test]
fn redl_never_moves_what_is_short_lived_and_settles_in_time() {
    let trace = small("resnet32", 8);
    let machine = tight(&trace, 0.3, 2);
    let mut redl = Redl::new();
    assert_eq!(redl.warm_up(), None);
    let moved = moved(&trace, &machine, &mut redl);
    assert!(!moved.is_empty(), "a third of the memory is too little to stay still");
    let lifetimes = Lifetimes::new(&trace);
    for (tensor, at) in trace.tensors.iter().zip(0..) {
        if lifetimes.of(TensorId(at)).is_some_and(|life| life.class == Class::Short) {
            assert!(!moved.contains_key(&tensor.name), "{} is short-lived", tensor.name);
        }
    }
    let layers = tiercel_workload::lifetimes::visits(&trace).last().map_or(0, |last| last + 1);
    let warm_up = redl.warm_up().expect("it has settled");
    assert!(warm_up <= 2 + layers * 3 / 2, "{warm_up} iterations for {layers} layers");
    assert!((1..=layers).contains(&redl.period().expect("it has one")));
}

#[test]
fn vdnn_moves_the_inputs_of_convolutions_out_and_back_and_nothing_else() {
    let trace = small("resnet32", 2);
    let mut vdnn = Vdnn::new();
    let moved = moved(&trace, &tight(&trace, 1.5, 1), &mut vdnn);
    assert_eq!(vdnn.overflows(), 0, "everything fits");
    let forward = trace.kernels.iter().filter(|kernel| kernel.op == "conv");
    let inputs: BTreeSet<String> = forward.map(|k| trace.tensor(k.reads[0].tensor).name.clone()).collect();
    assert_eq!(moved.keys().cloned().collect::<BTreeSet<_>>(), inputs);
    for (name, tiers) in &moved {
        assert_eq!(*tiers, [1, 0], "{name} goes out and comes back");
    }
}

#[test]
fn vdnn_has_nothing_to_move_without_convolutions() {
    let trace = small("mlp", 4);
    assert!(moved(&trace, &tight(&trace, 1.5, 1), &mut Vdnn::new()).is_empty());
}

#[test]
fn capuchin_leaves_alone_what_fits_and_waits_less_than_one_that_moves_on_demand() {
    let trace = small("resnet32", 8);
    assert!(moved(&trace, &tight(&trace, 1.5, 1), &mut Capuchin::new()).is_empty());
    let machine = tight(&trace, 0.4, 1);
    let stall = |policy: &mut dyn Policy| {
        let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
        let mut executor = Executor::new(&trace);
        let last = (0..6).map(|_| executor.iterate(&mut manager, policy)).last().expect("six of them");
        last.unwrap_or_else(|e| panic!("{e}")).stall
    };
    let (planned, demanded) = (stall(&mut Capuchin::new()), stall(&mut UnifiedMemory::new()));
    assert!(planned < demanded, "{planned} against {demanded}");
}

#[test]
fn unified_memory_writes_back_whatever_leaves() {
    let trace = small("resnet32", 8);
    let moved = moved(&trace, &tight(&trace, 0.3, 2), &mut UnifiedMemory::new());
    let persistent: BTreeSet<&str> =
        trace.tensors.iter().filter(|t| t.persistent).map(|t| t.name.as_str()).collect();
    let mut came = 0;
    for (name, tiers) in moved.iter().filter(|(name, _)| !persistent.contains(name.as_str())) {
        // Born fast, it leaves and comes by turns.
        assert!(
            tiers.iter().enumerate().all(|(at, tier)| usize::from(*tier) == 1 - at % 2),
            "{name}: {tiers:?}"
        );
        came += tiers.iter().filter(|tier| **tier == 0).count();
    }
    assert!(came > 0, "something came on demand");
}

#[test]
fn hot_pages_of_slow_memory_take_the_place_of_cold_ones() {
    // What is used first fills fast memory and is used no more; something else is used all the time.
    let tensor = |name: &str| Tensor {
        name: name.to_string(),
        bytes: Bytes(64 << 10),
        role: Role::Weight,
        persistent: true,
    };
    let kernel = |at: u32| Kernel {
        name: at.to_string(),
        op: "scan".to_string(),
        reads: vec![Use { tensor: TensorId(u32::from(at > 0)), bytes: Bytes(64 << 10) }],
        writes: Vec::new(),
        flops: 1,
        layer: at,
        phase: Phase::Forward,
        timings: Vec::new(),
        alternatives: Vec::new(),
        detached: false,
        factor: 1.0,
        repeat: None,
        derived: Default::default(),
    };
    let trace = Trace {
        name: "two tensors".to_string(),
        tensors: vec![tensor("cold"), tensor("hot")],
        kernels: (0..21).map(kernel).collect(),
        layers: (0..21).map(|at| at.to_string()).collect(),
    };
    let machine = machine(&[64 << 10, 1 << 20], 2);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    let mut ial = Watched::new(Box::new(Ial::new(Nanos(3_000))));
    let mut executor = Executor::new(&trace);
    let mut locality = Vec::new();
    for _ in 0..30 {
        executor.iterate(&mut manager, &mut ial).unwrap_or_else(|e| panic!("{e}"));
        locality.push(ial.locality().of_bytes());
    }
    assert!(locality[0] < 0.5, "the cold one came first: {locality:?}");
    assert!(locality[25..].iter().all(|share| *share > 0.9), "the hot one is fast in the end: {locality:?}");
    assert!(manager.totals().fetched >= Bytes(64 << 10), "its pages have moved");
}

#[test]
fn pages_cost_what_the_memory_costs_that_they_lie_in() {
    let trace = small("resnet32", 2);
    let time = |policy: &mut dyn Policy, share: f64| {
        let machine = tight(&trace, share, 2);
        let machine = if share == 0.0 { machine.with_capacity(TierId(0), Bytes(64)) } else { machine };
        let mut manager = Manager::new(machine.clone(), Sim::new(machine));
        let played = Executor::new(&trace).iterate(&mut manager, policy);
        played.unwrap_or_else(|e| panic!("{}: {e}", policy.name())).time.seconds()
    };
    for (name, share) in [("fast-only", 3.0), ("slow-only", 0.0)] {
        let mut fixed = by_name(name).expect("it is listed");
        let (pages, tensors) = (time(&mut Ial::default(), share), time(fixed.as_mut(), share));
        assert!((pages / tensors - 1.0).abs() < 0.001, "{name}: {pages} s, not {tensors} s");
    }
}

#[test]
fn locality_is_one_in_fast_memory_and_nothing_in_slow_memory() {
    let trace = small("mlp", 16);
    let play = |name: &str, share: f64| {
        let machine = tight(&trace, share, 2);
        let mut manager = Manager::new(machine.clone(), Sim::new(machine));
        let mut policy = Watched::new(by_name(name).expect("it is listed"));
        let mut executor = Executor::new(&trace);
        for _ in 0..3 {
            executor.iterate(&mut manager, &mut policy).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        (policy.locality().of_objects(), policy.locality().of_bytes())
    };
    assert_eq!(play("fast-only", 2.0), (1.0, 1.0));
    assert_eq!(play("slow-only", 0.3), (0.0, 0.0));
    for name in ["first-touch", "ial", "memory-mode", "redl"] {
        let (objects, bytes) = play(name, 0.3);
        assert!(objects > 0.0 && objects < 1.0 && bytes > 0.0 && bytes < 1.0, "{name}: {objects} {bytes}");
    }
}
