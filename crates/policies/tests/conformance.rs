//! What every policy owes, whatever it decides: bytes are never wrong, no tier overflows, nothing dead is moved,
//! nothing is left loose, and running out of memory is an error that changes nothing else.
//!
//! A new policy joins by its name in `tiercel_policies::NAMES`.

use tiercel_core::{Access, Bytes, Error, Hint, Machine, Manager, ObjectId, Operand, Policy, Step};
use tiercel_policies::{BELOW, NAMES, by_name};
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
    machine(&capacities, random.usize(1..=tiers))
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
            45..98 => self.kernel(),
            _ => self.policy.iteration_ended(&mut self.manager),
        };
        let out_of_reach =
            BELOW.contains(&self.policy.name()) && matches!(result, Err(Error::NotComputable { .. }));
        match result {
            Ok(()) | Err(Error::Full { .. } | Error::WorkingSet { .. } | Error::TooLarge { .. }) => {}
            Err(_) if out_of_reach => {}
            Err(error) => panic!("{}: {error}", self.policy.name()),
        }
        self.ledger.watch(&mut self.manager);
        self.manager.check().expect("the state is sound");
        assert_eq!(self.manager.loose_regions(), 0, "{} leaves regions loose", self.policy.name());
    }

    fn object(&mut self) -> Option<ObjectId> {
        let objects = self.ledger.objects();
        self.random.choice(&objects).copied()
    }

    fn create(&mut self) -> Result<(), Error> {
        let size = if self.random.u8(0..20) == 0 { self.largest } else { self.largest / 8 };
        let object = self.manager.create(None, Bytes(self.random.u64(1..=size)))?;
        match self.policy.place(&mut self.manager, object) {
            Ok(()) => self.ledger.add(object),
            Err(error) => {
                self.manager.retire(object)?;
                return Err(error);
            }
        }
        Ok(())
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
            operands.push(Operand { object, access, bytes: self.manager.size(object)? });
        }
        self.run(&operands)
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

#[test]
fn every_policy_in_a_world_that_does_its_worst() {
    for name in NAMES {
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
    for name in NAMES {
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
