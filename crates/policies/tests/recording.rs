//! What a policy can write down of an iteration is what the trace says of it.

use tiercel_core::{Access, Bytes, Error, Hint, Manager, ObjectId, Operand, Policy, Step};
use tiercel_policies::recording::{Key, Recorder, Recording};
use tiercel_policies::{Birthplace, Fixed};
use tiercel_profile::accesses::accesses_of;
use tiercel_profile::sharing::Life;
use tiercel_run::Executor;
use tiercel_sim::Sim;
use tiercel_testbed::{for_seeds, machine, random_trace};
use tiercel_workload::lifetimes::{self, Class};
use tiercel_workload::trace::Role;
use tiercel_workload::{Kernel, Lifetimes, TensorId, Trace, Use, nets};

/// Writes down what happens under a policy that leaves objects where they were born.
struct Clerk {
    fixed: Fixed,
    recorder: Recorder,
    recordings: Vec<Recording>,
}

impl Policy for Clerk {
    fn name(&self) -> &str {
        "clerk"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.recorder.born(m, object);
        self.fixed.place(m, object)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        self.fixed.hint(m, object, hint)?;
        if hint == Hint::Retire {
            self.recorder.retired(object);
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        if step == Step::LOAD {
            self.recorder.loaded(operands);
        } else {
            self.recorder.before(operands);
            self.recorder.starts(m);
        }
        Ok(())
    }

    fn after(&mut self, m: &mut Manager, step: Step, _: &[Operand]) -> Result<(), Error> {
        if step != Step::LOAD {
            self.recorder.after(m);
        }
        Ok(())
    }

    fn layer_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.recorder.layer_ended();
        Ok(())
    }

    fn iteration_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.recordings.push(self.recorder.finish());
        Ok(())
    }
}

/// The accesses to a tensor where a kernel that reads and writes it names it once, with the larger of the two amounts.
fn accesses(trace: &Trace, id: TensorId) -> u64 {
    let kernel = |kernel: &Kernel| {
        let find = |uses: &[Use]| uses.iter().filter(|used| used.tensor == id).map(|used| used.bytes).max();
        match (find(&kernel.reads), find(&kernel.writes)) {
            (None, None) => 0,
            (Some(read), None) => accesses_of(Access::Read, read),
            (None, Some(write)) => accesses_of(Access::Write, write),
            (Some(read), Some(write)) => accesses_of(Access::ReadWrite, read.max(write)),
        }
    };
    trace.kernels.iter().map(kernel).sum()
}

fn agree(trace: &Trace, recording: &Recording) {
    let (all, visits) = (Lifetimes::new(trace), lifetimes::visits(trace));
    let found: Vec<u32> = recording.moments.iter().map(|moment| moment.visit).collect();
    assert_eq!(found, visits);
    assert!(recording.moments.iter().all(|moment| moment.time.0 > 0));
    let mut seen = 0;
    for (at, tensor) in trace.tensors.iter().enumerate() {
        let (id, life) = (TensorId(at as u32), all.of(TensorId(at as u32)));
        let Some(item) = recording.items.iter().find(|item| item.name == tensor.name) else {
            assert!(all.uses(id).is_empty(), "{} is missing", tensor.name);
            continue;
        };
        seen += 1;
        let (life, name) = (life.expect("it is used"), &tensor.name);
        assert_eq!(item.size, tensor.bytes, "{name}");
        assert_eq!(item.uses, all.uses(id).iter().map(|step| step.0).collect::<Vec<_>>(), "{name}");
        assert_eq!(item.accesses, accesses(trace, id), "{name}");
        let visit = |step: Step| visits[step.0 as usize];
        let fed = tensor.role == Role::Input && !tensor.persistent;
        let expected = match life.class {
            Class::Persistent => Life::Given,
            _ if fed => Life::Given,
            Class::Short => Life::Short { visit: visit(life.birth) },
            Class::Long => Life::Long { birth: visit(life.birth), last: visit(life.last) },
        };
        assert_eq!((item.life, item.fed), (expected, fed), "{name}");
        assert_eq!(matches!(item.key, Key::Given(_)), tensor.persistent, "{name}");
        let (birth, last) =
            if tensor.persistent { (None, None) } else { (Some(life.birth.0), Some(life.last.0)) };
        assert_eq!((item.birth, item.retired), (birth, last), "{name}");
    }
    assert_eq!(seen, recording.items.len());
}

fn check(trace: &Trace) {
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let machine = machine(&[all, all], 2);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine));
    let fixed = Fixed::new(Birthplace::FirstTouch);
    let mut clerk = Clerk { fixed, recorder: Recorder::default(), recordings: Vec::new() };
    let mut executor = Executor::new(trace);
    for _ in 0..3 {
        executor.iterate(&mut manager, &mut clerk).expect("it runs");
    }
    agree(trace, &clerk.recordings[0]);
    for later in &clerk.recordings[1..] {
        assert_eq!(*later, clerk.recordings[0], "an iteration is like the one before");
    }
    assert_eq!(clerk.recordings[0].fed(), fed(trace));
}

fn fed(trace: &Trace) -> Bytes {
    let inputs = trace.tensors.iter().filter(|t| t.role == Role::Input && !t.persistent);
    inputs.map(|tensor| tensor.bytes).sum()
}

#[test]
fn a_recording_says_what_the_trace_says() {
    for_seeds(40, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let layers = random.u32(2..20);
        check(&random_trace(&mut random, layers, 100_000));
    });
    for name in ["resnet32", "lstm", "dcgan", "mlp", "gpt2"] {
        let options = nets::NetOptions { batch: Some(2), ..nets::NetOptions::default() };
        check(&nets::find(name).expect("a network").build(&options).expect("it fits").trace);
    }
}
