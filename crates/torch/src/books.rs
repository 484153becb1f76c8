//! The books over storages that a program allocates itself: who is where, and what has to be done about it.
//!
//! There are two ways to keep them. Without a known sequence every operation names its storages as it comes, and a policy
//! that needs no plan serves it ([`Books::on_demand`]). With a recorded one the executor plays the trace and the program
//! runs the kernels ([`Books::following`]). Either way the answer is a list of [`Task`]s, in the order in which they are
//! to be done: the manager's copies and waits, and the moments at which memory of the fastest tier is no longer an
//! object's.

use std::collections::HashMap;
use std::sync::Arc;

use tiercel_core::{
    Access, Bytes, Error, Event, Hint, Machine, Manager, ObjectId, Operand, Place, Policy, RegionId, Step,
    TierId, Totals,
};
use tiercel_run::Executor;
use tiercel_workload::{TensorId, Trace};

use crate::ledger::{Ledger, Order};

const FAST: TierId = TierId(0);

/// The number by which the program knows a storage; the position of a tensor where a trace is followed.
pub type Storage = u64;

/// Something for the holder of the bytes to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Copy a storage's bytes between the fastest tier and a slower one, or between two slower ones.
    Copy {
        /// The copy's number.
        ticket: u64,
        /// The storage.
        storage: Storage,
        /// Where the bytes are; the offset means nothing on the fastest tier, where storages have addresses of their own.
        from: Place,
        /// Where they go.
        to: Place,
        /// How many.
        bytes: Bytes,
        /// Copies that must end first.
        after: Vec<u64>,
    },
    /// Let no kernel run before this copy has ended.
    Wait(u64),
    /// The storage's memory on the fastest tier may go, once the copies that read it have ended.
    Release(Storage),
    /// The sequence needs the storage's bytes no more, or not before they are made again.
    Retired(Storage),
}

/// Why the books cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum BooksError {
    /// The manager or the policy refused.
    #[error(transparent)]
    Core(#[from] Error),
    /// The system that decided cannot be wired up again.
    #[error(transparent)]
    System(#[from] tiercel_systems::SystemError),
    /// A storage that the books do not know.
    #[error("storage {0} is not in the books")]
    Unknown(Storage),
    /// A step of a sequence where none is followed, or of no such number.
    #[error("there is no step {0} to follow")]
    NoStep(usize),
}

/// Objects, the policy that decides, and what is to be done for it.
pub struct Books {
    manager: Manager<Ledger>,
    policy: Box<dyn Policy>,
    executor: Option<Executor<'static>>,
    steps: usize,
    objects: HashMap<Storage, ObjectId>,
    storages: HashMap<ObjectId, Storage>,
    /// The tensors of the known sequence by name.
    names: HashMap<String, Storage>,
    /// Regions of the fastest tier, and whose they are.
    regions: HashMap<RegionId, Option<ObjectId>>,
    operands: Vec<Operand>,
    reserved: Vec<ObjectId>,
    step: u32,
}

impl Books {
    /// Books for storages that come as they come, served by a policy that needs no plan.
    pub fn on_demand(machine: &Machine, policy: Box<dyn Policy>) -> Books {
        Books::new(machine, policy, None, 0)
    }

    /// Books for a sequence that is known. A storage's number is the position of its tensor in the trace.
    pub fn following(
        machine: &Machine,
        policy: Box<dyn Policy>,
        trace: Arc<Trace>,
        lookahead: usize,
    ) -> Result<Books, BooksError> {
        let (steps, tensors) = (trace.kernels.len(), trace.tensors.len());
        let names = trace.tensors.iter().zip(0..).map(|(tensor, at)| (tensor.name.clone(), at)).collect();
        let executor = Executor::shared(trace).lookahead(lookahead);
        let mut books = Books { names, ..Books::new(machine, policy, Some(executor), steps) };
        if let Some(executor) = &mut books.executor {
            executor.prepare(&mut books.manager, books.policy.as_mut())?;
        }
        books.learn(tensors);
        // What was ordered to get there concerns nobody: the program brings its storages to where they are now.
        for order in books.manager.backend_mut(()).take() {
            if let Order::Copy { ticket, .. } = order {
                books.manager.backend_mut(()).ended(ticket);
            }
        }
        books.tasks();
        Ok(books)
    }

    fn new(
        machine: &Machine,
        policy: Box<dyn Policy>,
        executor: Option<Executor<'static>>,
        steps: usize,
    ) -> Books {
        let mut manager = Manager::new(machine.clone(), Ledger::default());
        manager.record();
        Books {
            manager,
            policy,
            executor,
            steps,
            objects: HashMap::new(),
            storages: HashMap::new(),
            names: HashMap::new(),
            regions: HashMap::new(),
            operands: Vec::new(),
            reserved: Vec::new(),
            step: 0,
        }
    }

    /// Takes up a storage that is there already, on the fastest tier or at a place of a slower one.
    pub fn adopt(
        &mut self,
        storage: Storage,
        bytes: Bytes,
        home: Option<Place>,
    ) -> Result<Vec<Task>, BooksError> {
        let object = self.manager.create(None, bytes)?;
        self.enter(storage, object);
        match home.filter(|home| home.tier != FAST) {
            None => self.policy.place(&mut self.manager, object)?,
            Some(home) => {
                let region = self.manager.allocate_at(home, bytes);
                let region = region.map_err(|_| self.manager.no_room(object, home.tier))?;
                self.manager.set_primary(object, region)?;
            }
        }
        let operands = [Operand { object, access: Access::Write, bytes: Bytes::ZERO }];
        self.manager.begin(Step::LOAD, &operands)?;
        self.manager.end(Step::LOAD, &operands);
        Ok(self.tasks())
    }

    /// Makes room for an operation and brings its storages to the fastest tier: those that it reads or changes, and
    /// `born`, the sizes of what it will make and of what it needs while it runs.
    pub fn begin(&mut self, uses: &[(Storage, Access)], born: &[Bytes]) -> Result<Vec<Task>, BooksError> {
        self.operands.clear();
        for &(storage, access) in uses {
            let object = *self.objects.get(&storage).ok_or(BooksError::Unknown(storage))?;
            let bytes = self.manager.size(object)?;
            match self.operands.iter_mut().find(|operand| operand.object == object) {
                Some(known) if known.access != access => known.access = Access::ReadWrite,
                Some(_) => {}
                None => self.operands.push(Operand { object, access, bytes }),
            }
        }
        for &bytes in born {
            let object = self.manager.create(Some("what the operation makes"), bytes)?;
            self.reserved.push(object);
            let placed = self.policy.place(&mut self.manager, object);
            if placed.is_err() {
                self.give_back()?;
            }
            placed?;
            self.operands.push(Operand { object, access: Access::Write, bytes });
        }
        let step = Step(self.step);
        let ready = self.policy.before(&mut self.manager, step, &self.operands);
        if let Err(error) = ready.and_then(|()| self.manager.begin(step, &self.operands)) {
            self.operands.clear();
            self.give_back()?;
            return Err(error.into());
        }
        Ok(self.tasks())
    }

    /// The operation has been run, and has made these storages.
    pub fn end(&mut self, made: &[(Storage, Bytes)]) -> Result<Vec<Task>, BooksError> {
        let step = Step(self.step);
        self.step = self.step.wrapping_add(1) % (u32::MAX - 1);
        self.manager.end(step, &self.operands);
        self.policy.after(&mut self.manager, step, &self.operands)?;
        self.give_back()?;
        for &(storage, bytes) in made {
            self.adopt_quietly(storage, bytes)?;
        }
        Ok(self.tasks())
    }

    fn adopt_quietly(&mut self, storage: Storage, bytes: Bytes) -> Result<(), BooksError> {
        let object = self.manager.create(None, bytes)?;
        self.enter(storage, object);
        self.policy.place(&mut self.manager, object)?;
        let operands = [Operand { object, access: Access::Write, bytes: Bytes::ZERO }];
        self.manager.begin(Step::LOAD, &operands)?;
        self.manager.end(Step::LOAD, &operands);
        Ok(())
    }

    fn give_back(&mut self) -> Result<(), BooksError> {
        for object in std::mem::take(&mut self.reserved) {
            self.policy.hint(&mut self.manager, object, Hint::Retire)?;
        }
        Ok(())
    }

    /// The program has given a storage up.
    pub fn retire(&mut self, storage: Storage) -> Result<(), BooksError> {
        let Some(object) = self.objects.remove(&storage) else { return Ok(()) };
        self.storages.remove(&object);
        self.policy.hint(&mut self.manager, object, Hint::Retire)?;
        Ok(())
    }

    /// An iteration of the known sequence begins.
    pub fn begin_iteration(&mut self) -> Result<Vec<Task>, BooksError> {
        let executor = self.executor.as_mut().ok_or(BooksError::NoStep(0))?;
        executor.begin_iteration(&mut self.manager, self.policy.as_mut())?;
        Ok(self.tasks())
    }

    /// The operations of a step of the known sequence come next.
    pub fn begin_step(&mut self, at: usize) -> Result<Vec<Task>, BooksError> {
        let executor = self.executor.as_mut().filter(|_| at < self.steps).ok_or(BooksError::NoStep(at))?;
        executor.begin_step(&mut self.manager, self.policy.as_mut(), at)?;
        Ok(self.tasks())
    }

    /// They have been run.
    pub fn end_step(&mut self, at: usize) -> Result<Vec<Task>, BooksError> {
        let executor = self.executor.as_mut().filter(|_| at < self.steps).ok_or(BooksError::NoStep(at))?;
        executor.end_step(&mut self.manager, self.policy.as_mut(), at)?;
        Ok(self.tasks())
    }

    /// The iteration has ended.
    pub fn end_iteration(&mut self) -> Result<Vec<Task>, BooksError> {
        let executor = self.executor.as_mut().ok_or(BooksError::NoStep(self.steps))?;
        executor.end_iteration(&mut self.manager, self.policy.as_mut())?;
        Ok(self.tasks())
    }

    /// Hears that a copy has ended.
    pub fn ended(&mut self, ticket: u64) {
        self.manager.backend_mut(()).ended(ticket);
    }

    /// Where a storage's current bytes are.
    pub fn home(&self, storage: Storage) -> Option<Place> {
        let object = match (&self.executor, self.objects.get(&storage)) {
            (_, Some(object)) => Some(*object),
            (Some(executor), None) => executor.object(TensorId(u32::try_from(storage).ok()?)),
            (None, None) => None,
        };
        self.manager.place(object?)
    }

    /// The bytes in use on a tier.
    pub fn used(&self, tier: TierId) -> Bytes {
        self.manager.used(tier)
    }

    /// Sums since the books were opened.
    pub fn totals(&self) -> &Totals {
        self.manager.totals()
    }

    fn enter(&mut self, storage: Storage, object: ObjectId) {
        self.objects.insert(storage, object);
        self.storages.insert(object, storage);
    }

    /// Learns which objects stand for the tensors of a trace.
    fn learn(&mut self, tensors: usize) {
        let Some(executor) = &self.executor else { return };
        for at in 0..tensors {
            if let Some(object) = executor.object(TensorId(at as u32)) {
                self.storages.insert(object, at as Storage);
            }
        }
    }

    /// What has come to be done since this was last asked.
    fn tasks(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut orders = self.manager.backend_mut(()).take().into_iter();
        for stamped in self.manager.take_events() {
            match stamped.event {
                Event::Created { object, name, .. } if self.executor.is_some() => {
                    self.meet(object, name.as_deref())
                }
                Event::Allocated { region, place, .. } if place.tier == FAST => {
                    self.regions.insert(region, None);
                }
                Event::Linked { object, region } | Event::Primary { object, region, .. } => {
                    if let Some(owner) = self.regions.get_mut(&region) {
                        *owner = Some(object);
                    }
                }
                Event::CopyStarted { ticket, object, .. } => {
                    for order in orders.by_ref() {
                        let ours = matches!(order, Order::Copy { ticket: t, .. } if t == ticket.0);
                        tasks.extend(self.task(order, object));
                        if ours {
                            break;
                        }
                    }
                }
                Event::Freed { region, place, .. } if place.tier == FAST => {
                    let owner = self.regions.remove(&region).flatten();
                    tasks.extend(owner.and_then(|o| self.storages.get(&o)).map(|s| Task::Release(*s)));
                }
                Event::Retired { object } => {
                    let storage = self.storages.remove(&object).filter(|_| self.executor.is_some());
                    tasks.extend(storage.map(Task::Retired));
                }
                _ => {}
            }
        }
        tasks.extend(orders.filter_map(|order| match order {
            Order::Wait(ticket) => Some(Task::Wait(ticket)),
            Order::Copy { .. } => None,
        }));
        tasks
    }

    fn task(&self, order: Order, object: ObjectId) -> Option<Task> {
        match order {
            Order::Wait(ticket) => Some(Task::Wait(ticket)),
            Order::Copy { ticket, from, to, bytes, after } => {
                let storage = *self.storages.get(&object)?;
                Some(Task::Copy { ticket, storage, from, to, bytes, after })
            }
        }
    }

    /// A tensor of the sequence has come to be: its object bears its number.
    fn meet(&mut self, object: ObjectId, name: Option<&str>) {
        if let Some(number) = name.and_then(|name| self.names.get(name)) {
            self.storages.insert(object, *number);
        }
    }
}
