//! Arrays over tiers of real memory, for programs of one's own: say what comes, and work on plain slices.
//!
//! This is how the CachedArrays of the paper look to an application (section IV): an array is an object that moves
//! under a policy, and a kernel gets slices that stay in place while it runs. What a program does between two marks can be
//! taken as a trace ([`Memory::record_pass`]), so that it can be simulated and planned, and run under its plan.

mod array;
mod operands;
mod pass;

use std::collections::HashMap;
use std::sync::Arc;

use bytemuck::Pod;
use tiercel_core::{
    Access, Backend, Bytes, Error, Hint, Machine, Manager, Nanos, ObjectId, Operand, Policy, Stamped, Step,
    Totals, Traffic,
};
use tiercel_sim::world::traffic_of;
use tiercel_workload::Trace;

use crate::host::{Host, HostError};
use crate::stage::{View, views};
pub use array::Array;
use array::Ties;
use operands::{Named, Purpose};
pub use operands::{Operands, Overwrite, Views};
use pass::Pass;

/// What a memory refuses, or what failed in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The manager or the policy could not do it.
    #[error(transparent)]
    Managed(#[from] Error),
    /// The array belongs to another memory.
    #[error("array `{name}` belongs to another memory")]
    Foreign {
        /// The array.
        name: String,
    },
    /// Two arrays of one name cannot be told apart by a plan.
    #[error("there is an array `{name}` already: names tell arrays apart in events and plans")]
    Taken {
        /// The name.
        name: String,
    },
    /// Contents of another length.
    #[error("array `{name}` has {len} elements; {given} were given")]
    Length {
        /// The array.
        name: String,
        /// How many it has.
        len: usize,
        /// How many were given.
        given: usize,
    },
    /// What was recorded could not be repeated as it is.
    #[error("a pass of the program cannot be repeated: {0}")]
    Pass(String),
}

/// Memory of several tiers, under one policy.
pub struct Memory {
    manager: Manager<Host>,
    policy: Box<dyn Policy>,
    kernels: u32,
    ties: Arc<Ties>,
    /// Every array that is there, with its size, by name.
    names: HashMap<Arc<str>, (ObjectId, Bytes)>,
    pass: Option<Pass>,
}

impl Memory {
    /// Takes the machine's tiers from this very machine.
    pub fn open(machine: &Machine, policy: impl Policy + 'static) -> Result<Memory, HostError> {
        Memory::open_boxed(machine, Box::new(policy))
    }

    /// The same with a policy that is chosen at run time.
    pub fn open_boxed(machine: &Machine, policy: Box<dyn Policy>) -> Result<Memory, HostError> {
        let host = Host::open(machine)?;
        Ok(Memory {
            manager: Manager::new(machine.clone(), host),
            policy,
            kernels: 0,
            ties: Arc::default(),
            names: HashMap::new(),
            pass: None,
        })
    }

    /// An array of `len` zeros. Its name is its own as long as it is there.
    pub fn array<T: Pod>(&mut self, name: &str, len: usize) -> Result<Array<T>, MemoryError> {
        self.reap()?;
        if self.names.contains_key(name) {
            return Err(MemoryError::Taken { name: name.to_string() });
        }
        let bytes = Bytes((len as u64).saturating_mul(size_of::<T>() as u64));
        let name: Arc<str> = Arc::from(name);
        let object = self.manager.create_named(Some(Arc::clone(&name)), bytes)?;
        if let Err(error) = self.policy.place(&mut self.manager, object) {
            self.manager.retire(object)?;
            return Err(error.into());
        }
        if let Some(pass) = &mut self.pass {
            pass.came(object, &name, bytes, false);
        }
        self.names.insert(Arc::clone(&name), (object, bytes));
        Ok(Array::new(object, name, len, Arc::clone(&self.ties)))
    }

    /// Says that the array will be read or written soon.
    pub fn will_use<T>(&mut self, array: &Array<T>) -> Result<(), MemoryError> {
        self.hint(array, Hint::WillUse)
    }

    /// Says that the array will be read soon.
    pub fn will_read<T>(&mut self, array: &Array<T>) -> Result<(), MemoryError> {
        self.hint(array, Hint::WillRead)
    }

    /// Says that the array will be written soon.
    pub fn will_write<T>(&mut self, array: &Array<T>) -> Result<(), MemoryError> {
        self.hint(array, Hint::WillWrite)
    }

    /// Says that the array will not be used for some time.
    pub fn archive<T>(&mut self, array: &Array<T>) -> Result<(), MemoryError> {
        self.hint(array, Hint::Archive)
    }

    /// Gives an array up now; dropping it does so with the next call.
    pub fn retire<T>(&mut self, array: Array<T>) -> Result<(), MemoryError> {
        self.own(&array.ties, &array.name)?;
        drop(array);
        self.reap()
    }

    /// Runs a kernel on slices of arrays: `(&a, &mut b)` for one that reads `a` and changes `b`. It waits for just the
    /// bytes that these need, and they stay in place until it returns.
    pub fn run<O: Operands, R>(
        &mut self,
        operands: O,
        kernel: impl for<'k> FnOnce(O::Slices<'k>) -> R,
    ) -> Result<R, MemoryError> {
        self.run_as("kernel", operands, kernel)
    }

    /// The same with a word for what the kernel does, for events and traces.
    pub fn run_as<O: Operands, R>(
        &mut self,
        what: &str,
        operands: O,
        kernel: impl for<'k> FnOnce(O::Slices<'k>) -> R,
    ) -> Result<R, MemoryError> {
        let step = Step(self.kernels);
        self.kernels = (self.kernels + 1) % Step::LOAD.0;
        self.run_at(step, what, operands, kernel)
    }

    fn run_at<O: Operands, R>(
        &mut self,
        step: Step,
        what: &str,
        operands: O,
        kernel: impl for<'k> FnOnce(O::Slices<'k>) -> R,
    ) -> Result<R, MemoryError> {
        self.reap()?;
        let mut names = Vec::new();
        operands.list(&mut names);
        let call = self.call(&names)?;
        let Memory { manager, policy, pass, .. } = self;
        policy.before(manager, step, &call.operands)?;
        let traffic = policy.traffic(manager, &call.operands).unwrap_or_else(|| {
            let mut traffic = Vec::new();
            traffic_of(manager, &call.operands, &mut traffic);
            traffic
        });
        manager.begin(step, &call.operands)?;
        let running = Running { manager, step, operands: &call.operands };
        let (result, took) =
            running.work(&call, &traffic, |mut views| kernel(operands.slices(&mut views)))?;
        drop(running);
        if let Some(pass) = pass {
            let tiers = call.operands.iter().map(|operand| manager.home(operand.object)).collect();
            if step == Step::LOAD {
                pass.loaded(&call.operands);
            } else {
                pass.ran(what, &call.operands, tiers, took);
            }
        }
        policy.after(manager, step, &call.operands)?;
        Ok(result)
    }

    /// Sets every element, from outside: this is no step of a pass.
    pub fn fill<T: Pod>(&mut self, array: &mut Array<T>, value: T) -> Result<(), MemoryError> {
        self.run_at(Step::LOAD, "fill", Overwrite(array), |all| all.fill(value))
    }

    /// Writes the whole array, from outside: this is no step of a pass.
    pub fn write<T: Pod>(&mut self, array: &mut Array<T>, contents: &[T]) -> Result<(), MemoryError> {
        if contents.len() != array.len() {
            let name = array.name().to_string();
            return Err(MemoryError::Length { name, len: array.len(), given: contents.len() });
        }
        self.run_at(Step::LOAD, "write", Overwrite(array), |all| all.copy_from_slice(contents))
    }

    /// Reads the whole array, from outside: this is no step of a pass.
    pub fn read<T: Pod>(&mut self, array: &Array<T>) -> Result<Vec<T>, MemoryError> {
        self.run_at(Step::LOAD, "read", array, <[T]>::to_vec)
    }

    /// Says that a layer, or whatever part the program has of that kind, ends here.
    pub fn layer_ended(&mut self) -> Result<(), MemoryError> {
        self.reap()?;
        if let Some(pass) = &mut self.pass {
            pass.layer_ended();
        }
        Ok(self.policy.layer_ended(&mut self.manager)?)
    }

    /// Says that a pass over the same kernels ends here, and the next one begins.
    pub fn iteration_ended(&mut self) -> Result<(), MemoryError> {
        self.reap()?;
        self.kernels = 0;
        Ok(self.policy.iteration_ended(&mut self.manager)?)
    }

    /// Writes down what the program does from here on, until [`take_pass`](Self::take_pass).
    pub fn record_pass(&mut self) -> Result<(), MemoryError> {
        self.reap()?;
        let mut pass = Pass::default();
        let mut there: Vec<_> = self.names.iter().collect();
        there.sort();
        for (name, (object, bytes)) in there {
            pass.came(*object, name, *bytes, true);
        }
        self.pass = Some(pass);
        Ok(())
    }

    /// What the program has done since [`record_pass`](Self::record_pass), as one iteration that can be simulated and
    /// planned. Arrays that were there before outlive the iteration; those that came within have to be gone.
    ///
    /// A plan for it is played by opening a memory with a policy that follows the plan, making and filling the arrays that
    /// outlive the iteration, and calling [`iteration_ended`](Self::iteration_ended) after each pass.
    pub fn take_pass(&mut self, name: &str) -> Result<Trace, MemoryError> {
        self.reap()?;
        let pass = self.pass.take().ok_or_else(|| MemoryError::Pass("none was recorded".to_string()))?;
        pass.trace(name, self.manager.machine()).map_err(MemoryError::Pass)
    }

    /// What has moved and waited so far.
    pub fn totals(&self) -> &Totals {
        self.manager.totals()
    }

    /// The time since the memory was opened.
    pub fn now(&self) -> Nanos {
        self.manager.now()
    }

    /// Starts to keep what happens.
    pub fn record_events(&mut self) {
        self.manager.record();
    }

    /// What has happened since this was last asked.
    pub fn take_events(&mut self) -> Vec<Stamped> {
        self.manager.take_events()
    }

    /// The manager, for queries. Nobody else can move bytes of arrays:
    ///
    /// ```compile_fail
    /// # fn race(memory: &mut tiercel_run::Memory, order: tiercel_core::CopyOrder<'_>) {
    /// use tiercel_core::Backend;
    /// memory.manager().backend_mut(()).copy(order);
    /// # }
    /// ```
    pub fn manager(&self) -> &Manager<Host> {
        &self.manager
    }

    fn own(&self, ties: &Arc<Ties>, name: &Arc<str>) -> Result<(), MemoryError> {
        match Arc::ptr_eq(ties, &self.ties) {
            true => Ok(()),
            false => Err(MemoryError::Foreign { name: name.to_string() }),
        }
    }

    /// Gives up the arrays whose handles are gone.
    fn reap(&mut self) -> Result<(), MemoryError> {
        for object in self.ties.take_dropped() {
            self.names.retain(|_, (known, _)| *known != object);
            if let Some(pass) = &mut self.pass {
                pass.went(object);
            }
            self.manager.hinted(object, Hint::Retire);
            self.policy.hint(&mut self.manager, object, Hint::Retire)?;
        }
        Ok(())
    }

    fn hint<T>(&mut self, array: &Array<T>, hint: Hint) -> Result<(), MemoryError> {
        self.reap()?;
        self.own(&array.ties, &array.name)?;
        self.manager.hinted(array.object, hint);
        Ok(self.policy.hint(&mut self.manager, array.object, hint)?)
    }

    /// What a kernel that names these arrays is to the manager.
    fn call(&self, names: &[Named<'_>]) -> Result<Call, MemoryError> {
        let mut call = Call::default();
        for named in names {
            self.own(named.ties, named.name)?;
            let known = call.operands.iter().position(|operand| operand.object == named.object);
            let slot = match known {
                Some(slot) => slot,
                None => {
                    let written = self.manager.is_written(named.object);
                    let access = match named.purpose {
                        Purpose::Read if written => Access::Read,
                        Purpose::Change if written => Access::ReadWrite,
                        _ => Access::Write,
                    };
                    let bytes = self.manager.size(named.object)?;
                    call.operands.push(Operand { object: named.object, access, bytes });
                    call.blank.push(!written);
                    call.operands.len() - 1
                }
            };
            call.slots.push((slot, named.purpose));
        }
        Ok(call)
    }
}

/// A kernel as the manager sees it.
#[derive(Default)]
struct Call {
    operands: Vec<Operand>,
    /// Whether nothing has been written to the operand yet, so that it has to be cleared.
    blank: Vec<bool>,
    /// For each array that was named, which operand it is, and what for.
    slots: Vec<(usize, Purpose)>,
}

/// How long a kernel took: its own work, and with what emulated tiers make of it.
#[derive(Clone, Copy)]
struct Took {
    worked: Nanos,
    whole: Nanos,
}

/// A kernel that has begun; it ends when this goes, on a panic too.
struct Running<'m> {
    manager: &'m mut Manager<Host>,
    step: Step,
    operands: &'m [Operand],
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.manager.end(self.step, self.operands);
    }
}

impl Running<'_> {
    /// Calls the kernel, and lets it pay for slow tiers that are emulated; tells how long it took before and after that.
    fn work<R>(
        &self,
        call: &Call,
        traffic: &[Traffic],
        kernel: impl FnOnce(Views<'_>) -> R,
    ) -> Result<(R, Took), Error> {
        let mut places = Vec::with_capacity(self.operands.len());
        for operand in self.operands {
            let place = self.manager.place(operand.object).expect("a kernel's operand has a place");
            places.push((place, self.manager.size(operand.object)?));
        }
        let host = self.manager.backend();
        let started = self.manager.now();
        let mut slices = Vec::with_capacity(self.operands.len());
        // SAFETY: a kernel with just these operands has begun, and ends when `self` goes, after the views. `begin` refuses
        // operands that are named twice.
        let listed = unsafe { views(host, self.operands, &places, &mut slices) };
        listed.map_err(|why| Error::Kernel { step: self.step, why })?;
        for (view, _) in slices.iter_mut().zip(&call.blank).filter(|(_, blank)| **blank) {
            if let View::Write(bytes) = view {
                bytes.fill(0);
            }
        }
        let result = kernel(Views(by_name(slices, &call.slots, self.step)?.into_iter()));
        let worked = host.now() - started;
        host.charge(traffic, started);
        Ok((result, Took { worked, whole: host.now() - started }))
    }
}

/// One view for each array that was named, from one for each operand: what is read may be named several times.
fn by_name<'k>(
    slices: Vec<View<'k>>,
    slots: &[(usize, Purpose)],
    step: Step,
) -> Result<Vec<View<'k>>, Error> {
    let mut left: Vec<Option<View<'k>>> = slices.into_iter().map(Some).collect();
    let twice = || Error::Kernel { step, why: "an array that is changed is named twice".to_string() };
    let mut views = Vec::with_capacity(slots.len());
    for (slot, purpose) in slots {
        let view = left[*slot].take().ok_or_else(twice)?;
        views.push(match (view, purpose) {
            (View::Write(bytes), Purpose::Read) => {
                let bytes = &*bytes;
                left[*slot] = Some(View::Read(bytes));
                View::Read(bytes)
            }
            (View::Read(bytes), Purpose::Read) => {
                left[*slot] = Some(View::Read(bytes));
                View::Read(bytes)
            }
            (View::Write(bytes), _) => View::Write(bytes),
            (View::Read(_), _) => return Err(twice()),
        });
    }
    Ok(views)
}
