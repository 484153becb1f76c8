//! Memory of several tiers for particles and fields: objects of the manager, used through plain slices.
//!
//! A kernel names what it uses; the placement brings it to where it can be used, the manager waits for just those bytes,
//! and they stay in place while the kernel runs. Throttled tiers are charged for what the kernel touches.

use bytemuck::{Pod, cast_slice, cast_slice_mut};
use tiercel_core::{
    Access, Bytes, Error, Hint, Machine, Manager, Nanos, ObjectId, Operand, Policy, Step, Totals, Traffic,
};
use tiercel_run::{Host, HostError};

/// What an object holds: what a placement goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Electric and magnetic fields, or currents, of a layer.
    Fields,
    /// The particles of a species in a tile.
    Particles,
}

/// Decides where objects live. Wrong decisions cost time alone.
pub trait Placement {
    /// What it is called.
    fn name(&self) -> &str;
    /// Gives a new object its first memory.
    fn place(&mut self, m: &mut Manager, object: ObjectId, kind: Kind) -> Result<(), Error>;
    /// The object is wanted by the next kernel or one soon after it.
    fn soon(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let _ = (m, object);
        Ok(())
    }
    /// A kernel is about to run: the last chance to bring its operands to where it can work on them.
    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        let _ = (m, step, operands);
        Ok(())
    }
    /// The object is not wanted until the next pass.
    fn passed(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let _ = (m, object);
        Ok(())
    }
    /// An object is given up.
    fn retire(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        m.retire(object)
    }
    /// An iteration has ended, with so many bytes of what is short-lived beside the objects.
    fn iteration_ended(&mut self, m: &mut Manager, temporaries: Bytes) -> Result<(), Error> {
        let _ = (m, temporaries);
        Ok(())
    }
    /// What a kernel moves on each tier, where that does not follow from where its operands are.
    fn traffic(&mut self, m: &mut Manager, operands: &[Operand]) -> Option<Vec<Traffic>> {
        let _ = (m, operands);
        None
    }
}

/// One of the house's policies as a placement.
pub struct Housed(pub Box<dyn Policy>);

impl Placement for Housed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId, _: Kind) -> Result<(), Error> {
        self.0.place(m, object)
    }

    fn soon(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.0.hint(m, object, Hint::WillUse)
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        self.0.before(m, step, operands)
    }

    fn retire(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        self.0.hint(m, object, Hint::Retire)
    }

    fn iteration_ended(&mut self, m: &mut Manager, _: Bytes) -> Result<(), Error> {
        self.0.iteration_ended(m)
    }

    fn traffic(&mut self, m: &mut Manager, operands: &[Operand]) -> Option<Vec<Traffic>> {
        self.0.traffic(m, operands)
    }
}

/// How a kernel uses an object, and how many of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// The object.
    pub object: ObjectId,
    /// Whether it changes.
    pub writes: bool,
    /// The bytes that are touched.
    pub touched: Bytes,
}

/// The numbers of an object in a kernel.
pub enum View<'a, R> {
    /// To be read.
    Read(&'a [R]),
    /// To be changed.
    Write(&'a mut [R]),
}

impl<'a, R> View<'a, R> {
    /// The numbers, which the kernel said it reads.
    ///
    /// # Panics
    /// If it said that it changes them.
    pub fn read(self) -> &'a [R] {
        match self {
            View::Read(numbers) => numbers,
            View::Write(_) => panic!("an operand that is read"),
        }
    }

    /// The numbers, which the kernel said it changes.
    ///
    /// # Panics
    /// If it said that it reads them.
    pub fn write(self) -> &'a mut [R] {
        match self {
            View::Write(numbers) => numbers,
            View::Read(_) => panic!("an operand that is changed"),
        }
    }
}

/// Objects on the tiers of a machine, under one placement.
pub struct Store {
    manager: Manager<Host>,
    placement: Box<dyn Placement>,
    kernels: u32,
    /// The time that kernels themselves took.
    busy: Nanos,
    /// The bytes that kernels moved on the slowest tier.
    behind: Bytes,
}

impl Store {
    /// Takes the machine's tiers from this very machine.
    pub fn open(machine: &Machine, placement: Box<dyn Placement>) -> Result<Store, HostError> {
        let host = Host::open(machine)?;
        let manager = Manager::new(machine.clone(), host);
        Ok(Store { manager, placement, kernels: 0, busy: Nanos::ZERO, behind: Bytes::ZERO })
    }

    /// A new object of so many numbers, all zero.
    pub fn create<R: Pod>(&mut self, name: &str, kind: Kind, len: usize) -> Result<ObjectId, Error> {
        let bytes = Bytes((len as u64).saturating_mul(size_of::<R>() as u64));
        let object = self.manager.create(Some(name), bytes)?;
        let all = Use { object, writes: true, touched: bytes };
        let placed = self.placement.place(&mut self.manager, object, kind);
        let cleared = placed.and_then(|()| {
            self.run::<R, ()>(&[all], |mut views| {
                if let Some(View::Write(numbers)) = views.pop() {
                    numbers.fill(R::zeroed());
                }
            })
        });
        match cleared.and_then(|()| self.passed(object)) {
            Ok(()) => Ok(object),
            Err(error) => {
                self.manager.retire(object)?;
                Err(error)
            }
        }
    }

    /// Gives an object up.
    pub fn retire(&mut self, object: ObjectId) -> Result<(), Error> {
        self.placement.retire(&mut self.manager, object)
    }

    /// Says that an object is wanted soon.
    pub fn soon(&mut self, object: ObjectId) -> Result<(), Error> {
        self.placement.soon(&mut self.manager, object)
    }

    /// Says that an object is not wanted until the next pass.
    pub fn passed(&mut self, object: ObjectId) -> Result<(), Error> {
        self.placement.passed(&mut self.manager, object)
    }

    /// Says that an iteration has ended.
    pub fn iteration_ended(&mut self, temporaries: Bytes) -> Result<(), Error> {
        self.kernels = 0;
        self.placement.iteration_ended(&mut self.manager, temporaries)
    }

    /// Runs a kernel on objects, each named once.
    pub fn run<R: Pod, O>(
        &mut self,
        uses: &[Use],
        kernel: impl FnOnce(Vec<View<'_, R>>) -> O,
    ) -> Result<O, Error> {
        let step = Step(self.kernels);
        self.kernels = (self.kernels + 1) % Step::LOAD.0;
        let operand = |one: &Use| {
            let access = match one.writes {
                true if self.manager.is_written(one.object) => Access::ReadWrite,
                true => Access::Write,
                false => Access::Read,
            };
            Operand { object: one.object, access, bytes: one.touched }
        };
        let operands: Vec<Operand> = uses.iter().map(operand).collect();
        let Store { manager, placement, busy, behind, .. } = self;
        placement.before(manager, step, &operands)?;
        manager.begin(step, &operands)?;
        let traffic = placement.traffic(manager, &operands).unwrap_or_else(|| traffic(manager, &operands));
        let started = manager.now();
        let done = views(manager, &operands).map(kernel);
        manager.backend().charge(&traffic, started);
        let slowest = manager.machine().slowest();
        *behind += traffic.iter().filter(|t| t.tier == slowest).map(|t| t.read + t.write).sum::<Bytes>();
        *busy += manager.now() - started;
        manager.end(step, &operands);
        done.map_err(|why| Error::Kernel { step, why })
    }

    /// What has moved and waited so far.
    pub fn totals(&self) -> &Totals {
        self.manager.totals()
    }

    /// The bytes that were fetched and evicted so far, and the time that kernels waited for them.
    pub fn totals_moved(&self) -> (Bytes, Bytes, Nanos) {
        let totals = self.manager.totals();
        (totals.fetched, totals.evicted, totals.stall)
    }

    /// Whether the slowest tier is plain memory slowed down.
    pub fn emulated(&self) -> bool {
        self.manager.backend().emulated(self.manager.machine().slowest())
    }

    /// The time that kernels themselves took so far, the pace of throttled tiers included.
    pub fn busy(&self) -> Nanos {
        self.busy
    }

    /// The bytes that kernels moved on the slowest tier so far.
    pub fn behind(&self) -> Bytes {
        self.behind
    }

    /// From now on so many threads copy in each direction, and no more than the machine said.
    pub fn copy_with(&self, threads: u32) {
        self.manager.backend().allow(threads);
    }

    /// The manager, for events and queries.
    pub fn manager(&mut self) -> &mut Manager<Host> {
        &mut self.manager
    }

    /// What decides where objects live.
    pub fn placement(&self) -> &dyn Placement {
        self.placement.as_ref()
    }
}

/// The bytes that a kernel moves on each tier when every operand is used where it is.
fn traffic(manager: &Manager<Host>, operands: &[Operand]) -> Vec<Traffic> {
    let mut all: Vec<Traffic> = Vec::new();
    for operand in operands {
        let Some(tier) = manager.home(operand.object) else { continue };
        let at = all.iter().position(|traffic| traffic.tier == tier).unwrap_or_else(|| {
            all.push(Traffic { tier, read: Bytes::ZERO, write: Bytes::ZERO });
            all.len() - 1
        });
        if operand.access.reads() {
            all[at].read += operand.bytes;
        }
        if operand.access.writes() {
            all[at].write += operand.bytes;
        }
    }
    all
}

/// The numbers of a kernel's operands, between its `begin` and its `end`.
fn views<'m, R: Pod>(
    manager: &'m mut Manager<Host>,
    operands: &[Operand],
) -> Result<Vec<View<'m, R>>, String> {
    let manager = &*manager;
    let view = |operand: &Operand| {
        let size = manager.size(operand.object).map_err(|error| error.to_string())?;
        let place = manager.place(operand.object).ok_or("an operand has no place")?;
        let slice = manager.backend().slice(place, size);
        let mut slice = slice.ok_or_else(|| format!("kernels cannot work on {}", place.tier))?;
        Ok(if operand.access.writes() {
            // SAFETY: the caller is between `begin` and `end` of a kernel with just these operands, each named once: no
            // copy uses the region, other regions do not overlap it, and the manager is borrowed while the views live.
            View::Write(cast_slice_mut(unsafe { slice.as_mut() }))
        } else {
            // SAFETY: as above; nothing writes to the region until the kernel ends.
            View::Read(cast_slice(unsafe { slice.as_ref() }))
        })
    };
    operands.iter().map(view).collect()
}
