//! What every policy owes, whatever it decides: bytes are never wrong, no tier overflows, nothing dead is moved,
//! nothing is left loose, and running out of memory is an error that changes nothing else.
//!
//! A new policy joins by its entry in `tiercel_policies::ALL`.

use std::cell::Cell;

use tiercel_core::{Access, Bytes, Error, Hint, Machine, Manager, ObjectId, Operand, Policy, Step};
use tiercel_policies::{by_name, kind, names};
use tiercel_run::Host;
use tiercel_testbed::{Jumble, Ledger, Visible, for_seeds, machine};

struct Suite<W: Visible> {
    manager: Manager<W>,
    policy: Box<dyn Policy>,
    ledger: Ledger,
    random: fastrand::Rng,
    largest: u64,
    step: u32,
}

fn random_machine(random: &mut fastrand::Rng) -> Machine {
    let tiers = random.usize(2..=4);
    let capacities: Vec<u64> = (0..tiers).map(|tier| (random.u64(1..12) * 512) << tier).collect();
    let mut machine = machine(&capacities, random.usize(1..=tiers));
    // Kernels may be able to reach rows of what they cannot work on.
    for tier in machine.tiers.iter_mut().filter(|tier| !tier.computable) {
        tier.rows = random.bool();
    }
    machine
}

impl<W: Visible + 'static> Suite<W> {
    fn new(machine: Machine, world: W, policy: &str, seed: u64) -> Suite<W> {
        let largest = machine.tiers.iter().map(|t| t.capacity.0).max().expect("it has tiers");
        let mut manager = Manager::new(machine, world);
        manager.record();
        Suite {
            manager,
            policy: by_name(policy).expect("it is listed"),
            ledger: Ledger::default(),
            random: fastrand::Rng::with_seed(seed),
            largest,
            step: 0,
        }
    }

    fn act(&mut self) {
        let result = match self.random.u32(0..100) {
            0..12 => self.create(),
            12..45 => self.hint(),
            45..93 => self.kernel(),
            93..98 => self.policy.layer_ended(&mut self.manager),
            _ => self.policy.iteration_ended(&mut self.manager),
        };
        self.judge(result);
    }

    /// Only memory may run out, and whatever happened, the state is sound. Returns whether all went well.
    fn judge(&mut self, result: Result<(), Error>) -> bool {
        let well = result.is_ok();
        let out_of_reach = kind(self.policy.name()).is_some_and(|kind| kind.is_below())
            && matches!(result, Err(Error::NotComputable { .. }));
        match result {
            Ok(()) | Err(Error::Full { .. } | Error::WorkingSet { .. } | Error::TooLarge { .. }) => {}
            Err(_) if out_of_reach => {}
            Err(error) => panic!("{}: {error}", self.policy.name()),
        }
        self.ledger.watch(&mut self.manager);
        self.manager.check().expect("the state is sound");
        assert_eq!(self.manager.loose_regions(), 0, "{} leaves regions loose", self.policy.name());
        well
    }

    fn object(&mut self) -> Option<ObjectId> {
        let objects = self.ledger.objects();
        self.random.choice(&objects).copied()
    }

    fn create(&mut self) -> Result<(), Error> {
        let size = if self.random.u8(0..20) == 0 { self.largest } else { self.largest / 8 };
        let size = self.random.u64(1..=size);
        self.make(size).map(|_| ())
    }

    fn make(&mut self, size: u64) -> Result<ObjectId, Error> {
        let object = self.manager.create(None, Bytes(size))?;
        match self.policy.place(&mut self.manager, object) {
            Ok(()) => self.ledger.add(object),
            Err(error) => {
                self.manager.retire(object)?;
                return Err(error);
            }
        }
        Ok(object)
    }

    /// Any hint on any object, whether it is true or not; retiring is always meant.
    fn hint(&mut self) -> Result<(), Error> {
        let Some(object) = self.object() else { return Ok(()) };
        let hints = [Hint::WillUse, Hint::WillRead, Hint::WillWrite, Hint::Archive, Hint::Retire];
        let hint = hints[self.random.usize(0..hints.len())];
        self.manager.hinted(object, hint);
        if hint == Hint::Retire {
            self.ledger.remove(object);
            let twice = self.random.u8(0..10) == 0;
            self.policy.hint(&mut self.manager, object, hint)?;
            return if twice { self.policy.hint(&mut self.manager, object, hint) } else { Ok(()) };
        }
        self.policy.hint(&mut self.manager, object, hint)
    }

    fn kernel(&mut self) -> Result<(), Error> {
        let mut objects = self.ledger.objects();
        self.random.shuffle(&mut objects);
        objects.truncate(self.random.usize(1..5));
        let mut operands = Vec::new();
        for object in objects {
            let access = match (self.ledger.is_written(object), self.random.u8(0..3)) {
                (false, _) | (true, 0) => Access::Write,
                (true, 1) => Access::ReadWrite,
                (true, _) => Access::Read,
            };
            let size = self.manager.size(object)?;
            let bytes = if self.random.u8(0..3) == 0 { Bytes(size.0 / 2) } else { size };
            operands.push(Operand { object, access, bytes });
        }
        if self.random.u8(0..6) == 0 { self.run_detached(&operands) } else { self.run(&operands) }
    }

    /// A kernel that goes on while whatever comes next happens.
    fn run_detached(&mut self, operands: &[Operand]) -> Result<(), Error> {
        self.step += 1;
        let step = Step(self.step);
        self.policy.before(&mut self.manager, step, operands)?;
        self.ledger.detach(&mut self.manager, step, operands)?;
        self.policy.after(&mut self.manager, step, operands)
    }

    fn run(&mut self, operands: &[Operand]) -> Result<(), Error> {
        self.step += 1;
        let step = Step(self.step);
        self.policy.before(&mut self.manager, step, operands)?;
        let Suite { manager, policy, ledger, random, .. } = self;
        let others = ledger.objects();
        let beside = random.choice(&others).copied();
        // Hints for later kernels come while this one runs.
        ledger.kernel(manager, step, operands, |manager| {
            let result = beside.map_or(Ok(()), |object| policy.hint(manager, object, Hint::WillUse));
            assert!(matches!(result, Ok(()) | Err(Error::Full { .. })), "{result:?}");
            policy.traffic(manager, operands);
        })?;
        self.policy.after(&mut self.manager, step, operands)
    }

    fn retire(&mut self, object: ObjectId) -> Result<(), Error> {
        self.manager.hinted(object, Hint::Retire);
        self.ledger.remove(object);
        self.policy.hint(&mut self.manager, object, Hint::Retire)
    }

    /// Does one thing of a program; `slots` are its objects.
    fn follow(&mut self, act: &Act, slots: &mut [Option<ObjectId>]) -> Result<(), Error> {
        match act {
            Act::Make { slot, size } if slots[*slot].is_none() => slots[*slot] = Some(self.make(*size)?),
            Act::Hint { slot, hint } => {
                if let Some(object) = slots[*slot] {
                    self.policy.hint(&mut self.manager, object, *hint)?;
                }
            }
            Act::Retire { slot } => {
                if let Some(object) = slots[*slot].take() {
                    self.retire(object)?;
                }
            }
            Act::Kernel { uses } => {
                let mut operands = Vec::new();
                for (slot, access) in uses {
                    let Some(object) = slots[*slot] else { continue };
                    let access = if self.ledger.is_written(object) { *access } else { Access::Write };
                    operands.push(Operand { object, access, bytes: self.manager.size(object)? });
                }
                self.run(&operands)?;
            }
            Act::LayerEnded => self.policy.layer_ended(&mut self.manager)?,
            Act::Make { .. } => {}
        }
        Ok(())
    }

    /// Plays a program, with one of its acts left out if so wanted, and gives up what does not outlive it. Returns whether
    /// memory was enough.
    fn play(
        &mut self,
        program: &[Act],
        kept: usize,
        slots: &mut [Option<ObjectId>],
        left_out: Option<usize>,
    ) -> bool {
        let mut enough = true;
        for (at, act) in program.iter().enumerate() {
            let result = if left_out == Some(at) { Ok(()) } else { self.follow(act, slots) };
            enough = self.judge(result);
            if !enough {
                break;
            }
        }
        for slot in &mut slots[kept..] {
            if let Some(object) = slot.take() {
                let result = self.retire(object);
                assert!(self.judge(result), "giving up needs no memory");
            }
        }
        let ended = self.policy.iteration_ended(&mut self.manager);
        self.judge(ended) && enough
    }

    /// Every object that was written holds what was written.
    fn verify_all(&mut self) {
        for object in self.ledger.objects() {
            if self.ledger.is_written(object) {
                let bytes = self.manager.size(object).expect("it is in the ledger");
                let _ = self.run(&[Operand { object, access: Access::Read, bytes }]);
            }
        }
        self.manager.drain().expect("no copy fails here");
        self.manager.check().expect("the state is sound");
    }
}

/// One thing that a program does.
#[derive(Clone, Debug)]
enum Act {
    Make { slot: usize, size: u64 },
    Kernel { uses: Vec<(usize, Access)> },
    Hint { slot: usize, hint: Hint },
    Retire { slot: usize },
    LayerEnded,
}

/// A program of layers whose objects live for a layer or several; the first `kept` objects are never given up.
fn random_program(random: &mut fastrand::Rng, kept: usize, largest: u64) -> Vec<Act> {
    let size = |random: &mut fastrand::Rng| random.u64(1..=(largest / 10).max(1));
    let mut program: Vec<Act> = (0..kept).map(|slot| Act::Make { slot, size: size(random) }).collect();
    let mut slots = kept;
    let mut live: Vec<usize> = (0..kept).collect();
    for _ in 0..random.usize(1..7) {
        for _ in 0..random.usize(1..5) {
            if random.bool() {
                program.push(Act::Make { slot: slots, size: size(random) });
                live.push(slots);
                slots += 1;
            }
            let mut used = live.clone();
            random.shuffle(&mut used);
            used.truncate(random.usize(1..4));
            let access = |_: &usize| [Access::Read, Access::Write, Access::ReadWrite][random.usize(0..3)];
            let accesses: Vec<Access> = used.iter().map(access).collect();
            program.push(Act::Kernel { uses: used.into_iter().zip(accesses).collect() });
            if live.len() > kept && random.u8(0..3) > 0 {
                let slot = live.swap_remove(random.usize(kept..live.len()));
                program.push(Act::Retire { slot });
            } else if let Some(slot) = random.choice(&live) {
                let hints = [Hint::WillUse, Hint::WillRead, Hint::Archive];
                program.push(Act::Hint { slot: *slot, hint: hints[random.usize(0..3)] });
            }
        }
        program.push(Act::LayerEnded);
    }
    program
}

#[test]
fn every_policy_on_programs_that_repeat_themselves() {
    for name in names() {
        let (played, whole, copies) = (Cell::new(0), Cell::new(0), Cell::new(0));
        for_seeds(200, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let machine = random_machine(&mut random);
            let world = Jumble::new(&machine, seed);
            let mut suite = Suite::new(machine, world, name, seed);
            let kept = random.usize(0..6);
            let program = random_program(&mut random, kept, suite.largest);
            let mut slots = vec![None; kept + program.len()];
            for _ in 0..12 {
                let left_out = (random.u8(0..5) == 0).then(|| random.usize(0..program.len()));
                played.set(played.get() + 1);
                whole.set(whole.get() + u32::from(suite.play(&program, kept, &mut slots, left_out)));
            }
            suite.verify_all();
            copies.set(copies.get() + suite.manager.totals().copies);
        });
        println!("{name}: {} of {} iterations, {} copies", whole.get(), played.get(), copies.get());
        assert!(whole.get() * 4 > played.get(), "{name} seldom plays an iteration to its end");
    }
}

#[test]
fn every_policy_in_a_world_that_does_its_worst() {
    for name in names() {
        for_seeds(320, |seed| {
            let machine = random_machine(&mut fastrand::Rng::with_seed(seed));
            let world = Jumble::new(&machine, seed);
            let mut suite = Suite::new(machine, world, name, seed);
            for _ in 0..400 {
                suite.act();
            }
            suite.verify_all();
        });
    }
}

#[test]
fn every_policy_on_real_memory() {
    for name in names() {
        for_seeds(4, |seed| {
            let machine = random_machine(&mut fastrand::Rng::with_seed(seed));
            let world = Host::open(&machine).expect("a few KiB are there");
            let mut suite = Suite::new(machine, world, name, seed);
            for _ in 0..500 {
                suite.act();
            }
            suite.verify_all();
        });
    }
}
