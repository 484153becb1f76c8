//! Arrays over tiers of real memory, for programs of one's own: say what comes, and work on plain slices.
//!
//! This is how the CachedArrays of the paper look to an application (section IV): an array is an object that moves
//! under a policy, and a kernel gets slices that stay in place while it runs.

use std::marker::PhantomData;

use bytemuck::Pod;
use tiercel_core::{Access, Bytes, Error, Hint, Machine, Manager, ObjectId, Operand, Policy, Step, Totals};

use crate::host::{Host, HostError};
use crate::stage::{View, views};
use tiercel_sim::world::traffic_of;

/// Memory of several tiers, under one policy.
pub struct Memory {
    manager: Manager<Host>,
    policy: Box<dyn Policy>,
    kernels: u32,
}

/// An array that lives in a [`Memory`], wherever the policy puts it.
#[derive(Debug)]
pub struct Array<T> {
    object: ObjectId,
    element: PhantomData<T>,
}

impl<T> Array<T> {
    /// The object that holds its elements, as events name it.
    pub fn object(&self) -> ObjectId {
        self.object
    }
}

impl Memory {
    /// Takes the machine's tiers from this very machine.
    pub fn open(machine: &Machine, policy: impl Policy + 'static) -> Result<Memory, HostError> {
        let host = Host::open(machine)?;
        Ok(Memory { manager: Manager::new(machine.clone(), host), policy: Box::new(policy), kernels: 0 })
    }

    /// An array of `len` zeros.
    pub fn array<T: Pod>(&mut self, name: &str, len: usize) -> Result<Array<T>, Error> {
        let bytes = Bytes((len as u64).saturating_mul(size_of::<T>() as u64));
        let object = self.manager.create(Some(name), bytes)?;
        let mut array = Array { object, element: PhantomData };
        let placed = self.policy.place(&mut self.manager, object);
        match placed.and_then(|()| self.run([], [&mut array], |[], [all]| all.fill(T::zeroed()))) {
            Ok(()) => Ok(array),
            Err(error) => {
                self.manager.retire(object)?;
                Err(error)
            }
        }
    }

    /// Says that the array will be read or written soon.
    pub fn will_use<T>(&mut self, array: &Array<T>) -> Result<(), Error> {
        self.hint(array.object, Hint::WillUse)
    }

    /// Says that the array will be read soon.
    pub fn will_read<T>(&mut self, array: &Array<T>) -> Result<(), Error> {
        self.hint(array.object, Hint::WillRead)
    }

    /// Says that the array will be written soon.
    pub fn will_write<T>(&mut self, array: &Array<T>) -> Result<(), Error> {
        self.hint(array.object, Hint::WillWrite)
    }

    /// Says that the array will not be used for some time.
    pub fn archive<T>(&mut self, array: &Array<T>) -> Result<(), Error> {
        self.hint(array.object, Hint::Archive)
    }

    /// Gives an array up.
    pub fn retire<T>(&mut self, array: Array<T>) -> Result<(), Error> {
        self.hint(array.object, Hint::Retire)
    }

    /// Runs a kernel on slices of arrays that it reads and of arrays that it changes. It waits for just the bytes
    /// that these need, and they stay in place until it returns.
    pub fn run<T: Pod, const R: usize, const W: usize>(
        &mut self,
        reads: [&Array<T>; R],
        writes: [&mut Array<T>; W],
        kernel: impl FnOnce([&[T]; R], [&mut [T]; W]),
    ) -> Result<(), Error> {
        let step = Step(self.kernels);
        self.kernels = (self.kernels + 1) % Step::LOAD.0;
        let mut operands = Vec::with_capacity(R + W);
        for array in reads {
            operands.push(self.operand(array, Access::Read)?);
        }
        for array in writes {
            let kept = self.manager.is_written(array.object);
            operands.push(self.operand(array, if kept { Access::ReadWrite } else { Access::Write })?);
        }
        let Memory { manager, policy, .. } = self;
        policy.before(manager, step, &operands)?;
        manager.begin(step, &operands)?;
        let worked = work(manager, policy.as_mut(), &operands, kernel);
        manager.end(step, &operands);
        worked.map_err(|why| Error::Kernel { step, why })?;
        policy.after(manager, step, &operands)
    }

    /// Says that a layer, or whatever part the program has of that kind, ends here.
    pub fn layer_ended(&mut self) -> Result<(), Error> {
        self.policy.layer_ended(&mut self.manager)
    }

    /// Says that a pass over the same kernels ends here, and the next one begins.
    pub fn iteration_ended(&mut self) -> Result<(), Error> {
        self.kernels = 0;
        self.policy.iteration_ended(&mut self.manager)
    }

    /// What has moved and waited so far.
    pub fn totals(&self) -> &Totals {
        self.manager.totals()
    }

    /// The manager, for events and queries.
    pub fn manager(&mut self) -> &mut Manager<Host> {
        &mut self.manager
    }

    fn hint(&mut self, object: ObjectId, hint: Hint) -> Result<(), Error> {
        self.manager.hinted(object, hint);
        self.policy.hint(&mut self.manager, object, hint)
    }

    fn operand<T>(&self, array: &Array<T>, access: Access) -> Result<Operand, Error> {
        Ok(Operand { object: array.object, access, bytes: self.manager.size(array.object)? })
    }
}

/// Calls a kernel on its slices, and lets it pay for slow tiers that are emulated.
fn work<T: Pod, const R: usize, const W: usize>(
    manager: &mut Manager<Host>,
    policy: &mut dyn Policy,
    operands: &[Operand],
    kernel: impl FnOnce([&[T]; R], [&mut [T]; W]),
) -> Result<(), String> {
    let traffic = policy.traffic(manager, operands).unwrap_or_else(|| {
        let mut traffic = Vec::new();
        traffic_of(manager, operands, &mut traffic);
        traffic
    });
    let mut places = Vec::with_capacity(operands.len());
    for operand in operands {
        let size = manager.size(operand.object).map_err(|e| e.to_string())?;
        places.push((manager.place(operand.object).ok_or("an operand has no place")?, size));
    }
    let started = manager.now();
    let mut slices = Vec::with_capacity(operands.len());
    // SAFETY: called between `begin` and `end` of a kernel with these operands. The arrays that it writes are borrowed
    // mutably from the caller, so none of them is named twice.
    unsafe { views(manager.backend(), operands, &places, &mut slices)? };
    let mut views = slices.into_iter();
    let reads: [&[T]; R] = std::array::from_fn(|_| match views.next() {
        Some(View::Read(bytes)) => bytemuck::cast_slice(bytes),
        _ => unreachable!("arrays that are read come first"),
    });
    let writes: [&mut [T]; W] = std::array::from_fn(|_| match views.next() {
        Some(View::Write(bytes)) => bytemuck::cast_slice_mut(bytes),
        _ => unreachable!("arrays that are written come last"),
    });
    kernel(reads, writes);
    manager.backend_mut().charge(&traffic, started);
    Ok(())
}
