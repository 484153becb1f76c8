//! The one loop that plays a trace against any policy in any world.
//!
//! At every kernel boundary it says what the trace knows (which objects come, which will not be used for a while,
//! which never again), lets the policy act, waits for just what the kernel touches, and runs it. Training, planning
//! and every comparison go through here.

use std::collections::HashMap;
use std::sync::Arc;

use tiercel_core::{
    Access, Bytes, Error, Event, Hint, Manager, Nanos, ObjectId, Operand, Place, Policy, Step, Ticket,
    Totals, Traffic,
};
use tiercel_workload::trace::Role;
use tiercel_workload::{Kernel, Tensor, TensorId, Trace, lifetimes};

use tiercel_sim::world::{Work, World, traffic_of};

/// What the trace says about one kernel, worked out once.
struct Script {
    /// Its tensors, each once.
    uses: Vec<(TensorId, Access, Bytes)>,
    /// For each read, then for each write, the position in `uses`.
    slots: Vec<usize>,
    /// Tensors that come to be here.
    born: Vec<TensorId>,
    /// What to say of tensors once the kernel has ended.
    after: Vec<(TensorId, Hint)>,
    /// Whether it is the last of its layer, or the layer's last before another phase.
    ends_layer: bool,
}

/// What one iteration took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iteration {
    /// From when its inputs are wanted to the end of its last kernel, without the time in which the inputs were filled:
    /// waiting for their memory counts, making data does not.
    pub time: Nanos,
    /// Time that kernels waited for copies.
    pub stall: Nanos,
    /// Bytes moved towards faster tiers.
    pub fetched: Bytes,
    /// Bytes moved towards slower tiers.
    pub evicted: Bytes,
}

/// A trace that is lent or shared.
enum Held<'t> {
    Lent(&'t Trace),
    Shared(Arc<Trace>),
}

impl std::ops::Deref for Held<'_> {
    type Target = Trace;

    fn deref(&self) -> &Trace {
        match self {
            Held::Lent(trace) => trace,
            Held::Shared(trace) => trace,
        }
    }
}

/// Plays one trace, iteration after iteration.
pub struct Executor<'t> {
    trace: Held<'t>,
    /// The names of the tensors, shared with their objects.
    names: Vec<Arc<str>>,
    scripts: Vec<Script>,
    /// How many kernels ahead the policy hears of reads and writes.
    lookahead: usize,
    objects: Vec<Option<ObjectId>>,
    iterations: u32,
    operands: Vec<Operand>,
    places: Vec<(Place, Bytes)>,
    traffic: Vec<Traffic>,
}

impl<'t> Executor<'t> {
    /// An executor for a trace, before its first iteration. The policy hears of a kernel's reads and writes just
    /// before that kernel, as in CachedArrays (section III-E).
    pub fn new(trace: &'t Trace) -> Executor<'t> {
        Executor::holding(Held::Lent(trace))
    }

    /// The same for whoever keeps the executor longer than a borrow of the trace.
    pub fn shared(trace: Arc<Trace>) -> Executor<'static> {
        Executor::holding(Held::Shared(trace))
    }

    fn holding(trace: Held<'_>) -> Executor<'_> {
        Executor {
            names: trace.tensors.iter().map(|tensor| Arc::from(tensor.name.as_str())).collect(),
            scripts: scripts(&trace),
            lookahead: 0,
            objects: vec![None; trace.tensors.len()],
            trace,
            iterations: 0,
            operands: Vec::new(),
            places: Vec::new(),
            traffic: Vec::new(),
        }
    }

    /// Lets the policy hear of reads and writes this many kernels ahead, so that copies can run beside kernels.
    pub fn lookahead(mut self, kernels: usize) -> Executor<'t> {
        self.lookahead = kernels;
        self
    }

    /// The object that stands for a tensor right now.
    pub fn object(&self, tensor: TensorId) -> Option<ObjectId> {
        self.objects[tensor.0 as usize]
    }

    /// Takes the tensors that outlive iterations from the executor of another trace of the same network, by their
    /// names: two traces then work on one set of weights.
    pub fn adopt(&mut self, other: &Executor<'_>) {
        let known = other.trace.tensors.iter().zip(&other.objects).filter(|(tensor, _)| tensor.persistent);
        let known: HashMap<&str, ObjectId> =
            known.filter_map(|(tensor, object)| Some((tensor.name.as_str(), (*object)?))).collect();
        for (tensor, object) in self.trace.tensors.iter().zip(&mut self.objects) {
            if tensor.persistent && object.is_none() {
                *object = known.get(tensor.name.as_str()).copied();
            }
        }
    }

    /// Makes the tensors that outlive iterations and gives them their first contents, unless they are there.
    pub fn prepare<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
    ) -> Result<(), Error> {
        self.load(manager, policy, |tensor| tensor.persistent).map(drop)
    }

    /// Hands the contents of tensors that outlive iterations to the world, one after the other, between iterations: those
    /// that have a rank, in the order of their ranks.
    pub fn save<W: World + 'static, R: Ord>(
        &self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        rank: impl Fn(&Tensor) -> Option<R>,
    ) -> Result<(), Error> {
        let all = self.trace.tensors.iter().zip(&self.objects).filter(|(tensor, _)| tensor.persistent);
        let mut kept: Vec<(R, &Tensor, ObjectId)> =
            all.filter_map(|(tensor, object)| Some((rank(tensor)?, tensor, (*object)?))).collect();
        kept.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        for (_, tensor, object) in kept {
            let operands = [Operand { object, access: Access::Read, bytes: tensor.bytes }];
            policy.before(manager, Step::LOAD, &operands)?;
            manager.begin(Step::LOAD, &operands)?;
            let place = manager.place(object).expect("a kernel's operand has a place");
            // SAFETY: within a kernel that reads just this object.
            let saved = unsafe { world(manager).save(tensor, place) };
            manager.end(Step::LOAD, &operands);
            saved.map_err(|why| Error::Kernel { step: Step::LOAD, why })?;
            policy.after(manager, Step::LOAD, &operands)?;
        }
        Ok(())
    }

    /// Gives up an iteration that an error has ended: retires what does not outlive it, so that another can begin.
    pub fn abandon<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
    ) -> Result<(), Error> {
        for (tensor, object) in self.trace.tensors.iter().zip(&mut self.objects) {
            if let Some(object) = object.take_if(|_| !tensor.persistent) {
                say(manager, policy, object, Hint::Retire)?;
            }
        }
        policy.iteration_ended(manager)
    }

    /// Makes tensors that no kernel makes and gives them their first contents: those that outlive iterations, once,
    /// and each iteration's own inputs. Returns the time that filling them took.
    fn load<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        which: impl Fn(&Tensor) -> bool,
    ) -> Result<Nanos, Error> {
        let mut time = Nanos::ZERO;
        for (index, tensor) in self.trace.tensors.iter().enumerate().filter(|(_, t)| which(t)) {
            if self.objects[index].is_some() {
                continue;
            }
            let object = manager.create_named(Some(Arc::clone(&self.names[index])), tensor.bytes)?;
            self.objects[index] = Some(object);
            policy.place(manager, object)?;
            let operands = [Operand { object, access: Access::Write, bytes: tensor.bytes }];
            policy.before(manager, Step::LOAD, &operands)?;
            manager.begin(Step::LOAD, &operands)?;
            let place = manager.place(object).expect("a kernel's operand has a place");
            let began = manager.now();
            // SAFETY: within a kernel that writes just this object.
            let loaded = unsafe { world(manager).load(tensor, place) };
            time += manager.now() - began;
            manager.end(Step::LOAD, &operands);
            loaded.map_err(|why| Error::Kernel { step: Step::LOAD, why })?;
            policy.after(manager, Step::LOAD, &operands)?;
        }
        Ok(time)
    }

    /// Plays the trace once.
    pub fn iterate<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
    ) -> Result<Iteration, Error> {
        let began = manager.now();
        let Totals { stall, fetched, evicted, .. } = *manager.totals();
        let loading = self.begin_iteration(manager, policy)?;
        for step in 0..self.scripts.len() {
            self.step(manager, policy, step)?;
        }
        // An iteration has ended when all of its kernels have.
        manager.rejoin(Step(self.scripts.len().saturating_sub(1) as u32))?;
        let time = (manager.now() - began).saturating_sub(loading);
        self.end_iteration(manager, policy)?;
        let after = manager.totals();
        Ok(Iteration {
            time,
            stall: after.stall - stall,
            fetched: after.fetched - fetched,
            evicted: after.evicted - evicted,
        })
    }

    /// Begins an iteration: fills its inputs, and returns the time that took. For programs whose kernels are run by somebody
    /// else; [`iterate`](Self::iterate) does all of it.
    pub fn begin_iteration<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
    ) -> Result<Nanos, Error> {
        if self.iterations == 0 {
            self.prepare(manager, policy)?;
        }
        let iteration = self.iterations;
        manager.note(|| Event::IterationBegan { iteration });
        let loading = self.load(manager, policy, is_fed)?;
        for ahead in 0..self.lookahead.min(self.scripts.len()) {
            self.announce(manager, policy, ahead)?;
        }
        Ok(loading)
    }

    /// Ends an iteration whose kernels have all been run.
    pub fn end_iteration<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
    ) -> Result<(), Error> {
        policy.iteration_ended(manager)?;
        let iteration = self.iterations;
        manager.note(|| Event::IterationEnded { iteration });
        self.iterations += 1;
        Ok(())
    }

    fn step<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        at: usize,
    ) -> Result<(), Error> {
        self.begin_step(manager, policy, at)?;
        let step = Step(at as u32);
        match self.compute(manager, policy, at) {
            Ok(Some(ticket)) => manager.leave(step, &self.operands, ticket),
            computed => {
                manager.end(step, &self.operands);
                computed?;
            }
        }
        self.part(manager, policy, at)
    }

    /// Brings the operands of a kernel to where it can work on them, and keeps them there until [`end_step`](Self::end_step).
    /// The kernel is run by the caller.
    pub fn begin_step<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        at: usize,
    ) -> Result<(), Error> {
        let step = Step(at as u32);
        policy.coming(manager, step, &self.trace.kernel(step).op)?;
        for &tensor in &self.scripts[at].born {
            let Some(info) = self.trace.tensors.get(tensor.0 as usize) else { continue };
            let name = Arc::clone(&self.names[tensor.0 as usize]);
            let object = manager.create_named(Some(name), info.bytes)?;
            self.objects[tensor.0 as usize] = Some(object);
            policy.place(manager, object)?;
        }
        if self.lookahead == 0 {
            self.announce(manager, policy, at)?;
        }
        self.operands.clear();
        for &(tensor, access, bytes) in &self.scripts[at].uses {
            let object = self.objects[tensor.0 as usize].expect("a tensor in use has been born");
            self.operands.push(Operand { object, access, bytes });
        }
        policy.before(manager, step, &self.operands)?;
        manager.begin(step, &self.operands)
    }

    /// The kernel that [`begin_step`](Self::begin_step) made room for has been run.
    pub fn end_step<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        at: usize,
    ) -> Result<(), Error> {
        let ahead = at.saturating_add(self.lookahead);
        if self.lookahead > 0 && ahead < self.scripts.len() {
            self.announce(manager, policy, ahead)?;
        }
        manager.end(Step(at as u32), &self.operands);
        self.part(manager, policy, at)
    }

    /// Says what the trace knows of a kernel's operands once it has ended.
    fn part<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        at: usize,
    ) -> Result<(), Error> {
        policy.after(manager, Step(at as u32), &self.operands)?;
        for &(tensor, hint) in &self.scripts[at].after {
            let slot = &mut self.objects[tensor.0 as usize];
            let object = if hint == Hint::Retire { slot.take() } else { *slot };
            if let Some(object) = object {
                say(manager, policy, object, hint)?;
            }
        }
        if self.scripts[at].ends_layer { policy.layer_ended(manager) } else { Ok(()) }
    }

    /// Runs a kernel whose operands are in place, and announces one that comes later beside it. A kernel that goes on beside
    /// others has a ticket.
    fn compute<W: World + 'static>(
        &mut self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        at: usize,
    ) -> Result<Option<Ticket>, Error> {
        let ahead = at.saturating_add(self.lookahead);
        if self.lookahead > 0 && ahead < self.scripts.len() {
            self.announce(manager, policy, ahead)?;
        }
        self.places.clear();
        for operand in &self.operands {
            let place = manager.place(operand.object).expect("a kernel's operand has a place");
            self.places.push((place, manager.size(operand.object)?));
        }
        let cached = policy.traffic(manager, &self.operands);
        let is_cached = cached.is_some();
        match cached {
            Some(traffic) => self.traffic = traffic,
            None => traffic_of(manager, &self.operands, &mut self.traffic),
        }
        let step = Step(at as u32);
        let work = Work {
            step,
            kernel: self.trace.kernel(step),
            operands: &self.operands,
            places: &self.places,
            slots: &self.scripts[at].slots,
            traffic: &self.traffic,
            cached: is_cached,
        };
        let world = world(manager);
        // SAFETY: `begin_step` has begun this kernel with these operands, and `step` ends it, or leaves it to its ticket.
        let done = unsafe {
            if work.kernel.detached { world.launch(&work) } else { world.compute(&work).map(|()| None) }
        };
        done.map_err(|why| Error::Kernel { step, why })
    }

    /// Says what a kernel will read and write.
    fn announce<W: World + 'static>(
        &self,
        manager: &mut Manager<W>,
        policy: &mut dyn Policy,
        at: usize,
    ) -> Result<(), Error> {
        for &(tensor, access, _) in &self.scripts[at].uses {
            let hint = match access {
                Access::Read => Hint::WillRead,
                Access::Write => Hint::WillWrite,
                Access::ReadWrite => Hint::WillUse,
            };
            if let Some(object) = self.objects[tensor.0 as usize] {
                say(manager, policy, object, hint)?;
            }
        }
        Ok(())
    }
}

/// The world, to run kernels in.
fn world<W: World>(manager: &mut Manager<W>) -> &mut W {
    // SAFETY: the executor calls nothing but `load`, `save`, `compute` and `launch`.
    manager.backend_mut(unsafe { W::key() })
}

fn say<W: World + 'static>(
    manager: &mut Manager<W>,
    policy: &mut dyn Policy,
    object: ObjectId,
    hint: Hint,
) -> Result<(), Error> {
    manager.hinted(object, hint);
    policy.hint(manager, object, hint)
}

/// Whether a tensor comes from outside anew for every iteration.
fn is_fed(tensor: &Tensor) -> bool {
    tensor.role == Role::Input && !tensor.persistent
}

/// The tensors that a kernel uses, each once with all that it does there; and for each of its reads, then for each of its
/// writes, which of them it is.
pub fn operands(kernel: &Kernel) -> (Vec<(TensorId, Access, Bytes)>, Vec<usize>) {
    let mut uses: Vec<(TensorId, Access, Bytes)> = Vec::new();
    let mut slots = Vec::new();
    let reads = kernel.reads.iter().map(|u| (u, Access::Read));
    for (u, access) in reads.chain(kernel.writes.iter().map(|u| (u, Access::Write))) {
        let slot = match uses.iter().position(|(tensor, ..)| *tensor == u.tensor) {
            Some(slot) => {
                let (_, known, bytes) = &mut uses[slot];
                if *known != access {
                    *known = Access::ReadWrite;
                }
                *bytes = u.bytes.max(*bytes);
                slot
            }
            None => {
                uses.push((u.tensor, access, u.bytes));
                uses.len() - 1
            }
        };
        slots.push(slot);
    }
    (uses, slots)
}

/// Works out what every kernel of a trace uses and what is to be said around it.
fn scripts(trace: &Trace) -> Vec<Script> {
    let mut scripts = Vec::with_capacity(trace.kernels.len());
    let mut seen = vec![false; trace.tensors.len()];
    let visits = lifetimes::visits(trace);
    for (at, kernel) in trace.kernels.iter().enumerate() {
        let (uses, slots) = operands(kernel);
        let mut script = Script {
            uses,
            slots,
            born: Vec::new(),
            after: Vec::new(),
            ends_layer: visits.get(at + 1) != visits.get(at),
        };
        for &(id, ..) in &script.uses {
            let first = !std::mem::replace(&mut seen[id.0 as usize], true);
            let tensor = trace.tensor(id);
            if first && !tensor.persistent && !is_fed(tensor) {
                script.born.push(id);
            }
        }
        scripts.push(script);
    }
    farewells(trace, &mut scripts);
    scripts
}

/// Decides which tensors are retired and which archived after each kernel: a tensor whose next use is neither in
/// this layer nor in the next kernel's is archived, as CachedArrays does after each layer (section III-E).
fn farewells(trace: &Trace, scripts: &mut [Script]) {
    let mut next_use: Vec<Option<usize>> = vec![None; trace.tensors.len()];
    for at in (0..scripts.len()).rev() {
        let layer = |step: usize| trace.kernels[step].layer;
        let soon = [layer(at), layer((at + 1).min(scripts.len() - 1))];
        let Script { uses, after, .. } = &mut scripts[at];
        for &(tensor, ..) in uses.iter() {
            let next = next_use[tensor.0 as usize].replace(at);
            match next {
                None if !trace.tensor(tensor).persistent => after.push((tensor, Hint::Retire)),
                Some(next) if soon.contains(&layer(next)) => {}
                _ => after.push((tensor, Hint::Archive)),
            }
        }
    }
}
