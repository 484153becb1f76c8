//! Random calls of everything the manager offers, sensible or not, in a world that does its worst: the state is
//! checked after every action, and every byte that a kernel reads is verified.

use tiercel_core::{Access, Bytes, Error, Hint, Machine, Manager, ObjectId, Operand, RegionId, Step, TierId};
use tiercel_testbed::{Jumble, Ledger, for_seeds, machine};

struct Fuzz {
    manager: Manager<Jumble>,
    ledger: Ledger,
    loose: Vec<RegionId>,
    random: fastrand::Rng,
    step: u32,
    faults: bool,
}

fn random_machine(random: &mut fastrand::Rng) -> Machine {
    let tiers = random.usize(2..=4);
    let capacities: Vec<u64> = (0..tiers).map(|tier| (random.u64(1..8) * 512) << tier).collect();
    machine(&capacities, random.usize(1..=tiers))
}

impl Fuzz {
    fn new(seed: u64, faults: bool) -> Fuzz {
        let mut random = fastrand::Rng::with_seed(seed);
        let machine = random_machine(&mut random);
        let mut world = Jumble::new(&machine, seed);
        world.fail(if faults { 0.05 } else { 0.0 });
        let mut manager = Manager::new(machine, world);
        manager.record();
        Fuzz { manager, ledger: Ledger::default(), loose: Vec::new(), random, step: 0, faults }
    }

    fn object(&mut self) -> Option<ObjectId> {
        let objects = self.ledger.objects();
        (!objects.is_empty()).then(|| objects[self.random.usize(0..objects.len())])
    }

    fn tier(&mut self) -> TierId {
        TierId(self.random.u8(0..self.manager.machine().tiers.len() as u8))
    }

    fn act(&mut self) {
        let result = match self.random.u32(0..100) {
            0..8 => self.create(),
            8..28 => self.move_object(),
            28..36 => self.replicate(),
            36..44 => self.drop_replica(),
            44..70 => self.kernel(),
            70..75 => self.retire(),
            75..80 => self.loose_ends(),
            80..88 => self.clear_stretch(),
            88..92 => self.mark(),
            92..96 => {
                self.manager.settle();
                Ok(())
            }
            _ => self.object().map_or(Ok(()), |o| self.manager.wait_for(Step(0), o)),
        };
        match result {
            Err(Error::Copy { .. }) => assert!(self.faults, "{result:?}"),
            Err(Error::Unknown { .. } | Error::Lost { .. }) => panic!("{result:?}"),
            _ => {}
        }
        self.ledger.watch(&mut self.manager);
        if let Err(wrong) = self.manager.check() {
            panic!("{wrong}");
        }
    }

    fn create(&mut self) -> Result<(), Error> {
        let size = Bytes(self.random.u64(1..1500));
        let object = self.manager.create(None, size)?;
        self.ledger.add(object);
        let tier = self.tier();
        if let Ok(region) = self.manager.allocate(tier, size) {
            self.manager.set_primary(object, region)?;
        }
        Ok(())
    }

    /// Copies an object to another tier and makes that its primary, keeping or freeing the old region.
    fn move_object(&mut self) -> Result<(), Error> {
        let (tier, Some(object)) = (self.tier(), self.object()) else { return Ok(()) };
        let size = self.manager.size(object)?;
        let Some(from) = self.manager.primary(object) else {
            if let Ok(region) = self.manager.allocate(tier, size) {
                self.manager.set_primary(object, region)?;
            }
            return Ok(());
        };
        let to = match self.manager.linked(from, tier) {
            Some(to) if to == from => return Ok(()),
            Some(to) => to,
            None => match self.manager.allocate(tier, size) {
                Ok(to) => to,
                Err(_) => return Ok(()),
            },
        };
        if !self.manager.is_current(to) || self.random.bool() {
            self.manager.copy(from, to)?;
        }
        if self.manager.parent(to).is_none() && self.random.bool() {
            self.manager.link(from, to)?;
        }
        self.manager.set_primary(object, to)?;
        if self.random.bool() { self.manager.free(from) } else { Ok(()) }
    }

    /// Copies an object to another tier and leaves its primary where it is.
    fn replicate(&mut self) -> Result<(), Error> {
        let (tier, Some(object)) = (self.tier(), self.object()) else { return Ok(()) };
        let regions: Vec<RegionId> = self.manager.regions_of(object).collect();
        let Some(from) = self.random.choice(&regions).copied() else { return Ok(()) };
        let size = self.manager.size(object)?;
        let to = match self.manager.linked(from, tier) {
            Some(to) => to,
            None => match self.manager.allocate(tier, size) {
                Ok(to) => {
                    self.manager.link(from, to)?;
                    to
                }
                Err(_) => return Ok(()),
            },
        };
        self.manager.copy(from, to).map(|_| ())
    }

    fn drop_replica(&mut self) -> Result<(), Error> {
        let Some(object) = self.object() else { return Ok(()) };
        let regions: Vec<RegionId> = self.manager.regions_of(object).collect();
        let Some(region) = self.random.choice(&regions).copied() else { return Ok(()) };
        match self.random.u8(0..4) {
            0 => {
                self.manager.unlink(region)?;
                self.loose.push(region);
                Ok(())
            }
            1 => self.manager.set_primary(object, region),
            _ => self.manager.free(region),
        }
    }

    /// A kernel on some objects, with a move of another object, or an attempt to move these, beside it.
    fn kernel(&mut self) -> Result<(), Error> {
        let mut objects = self.ledger.objects();
        self.random.shuffle(&mut objects);
        let count = self.random.usize(1..4);
        let mut operands = Vec::new();
        for object in objects.into_iter().take(count) {
            let access = match (self.ledger.is_written(object), self.random.u8(0..3)) {
                (false, _) | (true, 0) => Access::Write,
                (true, 1) => Access::ReadWrite,
                (true, _) => Access::Read,
            };
            operands.push(Operand { object, access, bytes: self.manager.size(object)? });
        }
        self.step += 1;
        let step = Step(self.step);
        if self.random.u8(0..4) == 0 {
            return self.ledger.detach(&mut self.manager, step, &operands);
        }
        let mut ledger = std::mem::take(&mut self.ledger);
        let used: Vec<ObjectId> = operands.iter().map(|o| o.object).collect();
        let (seed, tiers) = (self.random.u64(..), self.manager.machine().tiers.len() as u8);
        let result = ledger.kernel(&mut self.manager, step, &operands, |manager| {
            let mut random = fastrand::Rng::with_seed(seed);
            let Some(object) = random.choice(&used).copied() else { return };
            assert!(matches!(manager.retire(object), Err(Error::InUse { .. })));
            let size = manager.size(object).expect("it is in use");
            if let Ok(to) = manager.allocate(TierId(random.u8(0..tiers)), size) {
                let from = manager.primary(object).expect("it is in use");
                let _ = manager.copy(from, to);
                assert!(manager.set_primary(object, to).is_err(), "a primary changed during a kernel");
                manager.free(to).expect("a loose region can be freed");
            }
        });
        self.ledger = ledger;
        result
    }

    fn retire(&mut self) -> Result<(), Error> {
        let Some(object) = self.object() else { return Ok(()) };
        self.manager.hinted(object, Hint::Retire);
        self.manager.retire(object)?;
        self.ledger.remove(object);
        Ok(())
    }

    fn loose_ends(&mut self) -> Result<(), Error> {
        let is_loose = |region: &RegionId| {
            self.manager.parent(*region).is_none() && self.manager.size_of(*region) > Bytes::ZERO
        };
        self.loose.pop().filter(is_loose).map_or(Ok(()), |region| self.manager.free(region))
    }

    fn clear_stretch(&mut self) -> Result<(), Error> {
        let (tier, size) = (self.tier(), Bytes(self.random.u64(1..2000)));
        let used_up = self.manager.machine().slowest();
        let cleared = self.manager.evict_from(
            tier,
            size,
            &[],
            |manager, region| {
                let object = manager.parent(region)?;
                let only = manager.primary(object) == Some(region);
                (!only || tier < used_up).then(|| region.index() as u64 % 7)
            },
            |manager, region| {
                let object = manager.parent(region).expect("priced");
                if manager.primary(object) != Some(region) {
                    return manager.free(region);
                }
                let to = match manager.linked(region, used_up) {
                    Some(to) => to,
                    None => manager
                        .allocate(used_up, manager.size(object)?)
                        .map_err(|_| manager.no_room(object, used_up))?,
                };
                if !manager.is_current(to) {
                    manager.copy(region, to)?;
                }
                manager.set_primary(object, to)?;
                manager.free(region)
            },
        );
        if cleared.is_ok() {
            let region = self.manager.allocate(tier, size).expect("the stretch is clear");
            self.manager.free(region)?;
        }
        Ok(())
    }

    fn mark(&mut self) -> Result<(), Error> {
        let Some(object) = self.object().filter(|o| self.ledger.is_written(*o)) else { return Ok(()) };
        let Some(region) = self.manager.primary(object) else { return Ok(()) };
        assert!(self.manager.is_current(region) || self.faults);
        self.manager.mark_dirty(region)?;
        assert!(self.manager.is_dirty(region));
        Ok(())
    }
}

fn run(seed: u64, faults: bool) {
    let mut fuzz = Fuzz::new(seed, faults);
    for _ in 0..400 {
        fuzz.act();
    }
}

#[test]
fn random_calls_keep_the_state_and_the_bytes() {
    for_seeds(600, |seed| run(seed, false));
}

#[test]
fn failing_copies_lose_nothing() {
    for_seeds(600, |seed| run(seed, true));
}
