//! Times one kernel on this machine's real memory, with its operands wherever they are wanted.
//!
//! The operands are objects of a manager on tiers of their real backing, the kernel is the one that training runs, and an
//! emulated tier charges as it does there. Before every run the caches are brought into the state in which a whole
//! iteration would have them: emptied, then filled with the operands that were in use shortly before. Otherwise a kernel
//! that is run again and again would find everything in the caches and look faster than it is. What a kernel changes in
//! place is given its first contents again, so that numbers neither grow nor vanish from one run to the next.
//!
//! A kernel that works on little is filled for by a rehearsal: the kernel itself, with other memory for what is to be cold.
//! Then every thread has its own part of the warm operands at hand and is awake, as the kernel before would leave it; a
//! thread that has slept while caches were emptied takes longer to wake than such a kernel takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tiercel_core::{
    Access, Bandwidth, Bytes, Error, Link, Machine, Manager, Nanos, ObjectId, Operand, Step, TierId,
};
use tiercel_kernels::Library;
use tiercel_kernels::random;
use tiercel_run::host::Key;
use tiercel_run::{Failure, Host, Kernels, Stage, View};
use tiercel_sim::world::traffic_of;
use tiercel_sim::{Work, World};
use tiercel_workload::graph::Init;
use tiercel_workload::{Program, Tensor};

use super::ProfileError;
use super::signature::Signature;
use crate::quiet::{self, Others};

/// How long one kernel in one placement is run again and again.
const BUDGET: Duration = Duration::from_millis(40);

/// The most and the least runs of one kernel in one placement; two are enough where they take long.
const MOST: usize = 25;
const LEAST: usize = 5;

/// How often it is measured at most where other programs are busy.
const TRIES: usize = 3;

/// Memory of the right kinds with the kernels of one program.
pub(super) struct Stopwatch<'p> {
    program: &'p Program,
    manager: Manager<Stage<Bench>>,
    /// The machine's tiers that kernels can work on; the manager's tiers in the same order.
    tiers: Vec<TierId>,
    /// Kernels that work on at most so much are rehearsed.
    little: Bytes,
    /// One in so many runs keeps within the time that is told.
    rank: usize,
}

/// What is done to the caches before a run.
#[derive(Clone, Copy, PartialEq)]
enum Caches {
    /// They stay as they are.
    Left,
    /// They are emptied.
    Emptied,
    /// They are emptied, and filled with the warm operands.
    Filled,
}

impl<'p> Stopwatch<'p> {
    /// Takes enough memory of every tier for each of these kernels.
    pub(super) fn new(
        program: &'p Program,
        machine: &Machine,
        threads: usize,
        cache: Bytes,
        kernels: &[&Signature],
    ) -> Result<Stopwatch<'p>, ProfileError> {
        let tiers: Vec<TierId> = machine.tier_ids().filter(|id| machine.tier(*id).computable).collect();
        let size = |signature: &&Signature| -> Bytes {
            let each = signature.operands.iter().map(|(id, ..)| program.trace.tensor(*id).bytes);
            each.map(|bytes| Bytes(bytes.0.next_multiple_of(4096))).sum()
        };
        // A rehearsal leaves room in the caches for the run that counts.
        let little = Bytes(cache.0 / 2);
        let twice = |size: Bytes| if size <= little { size + size } else { size };
        let most = kernels.iter().map(size).map(twice).max().unwrap_or_default();
        let bench = bench(machine, &tiers, Bytes(most.0 + (1 << 20)));
        let library = Library::new(program, threads)?;
        let host = Host::open(&bench)?;
        let stage = Stage::new(host, Bench::new(library, program, cache));
        let manager = Manager::new(bench, stage);
        // Other programs only ever make a run longer, and may do so with half of them.
        Ok(Stopwatch { program, manager, tiers, little, rank: 4 })
    }

    /// Tells what half of the runs keep within, not a quarter: how fast the processor is with whoever uses it, too.
    pub(super) fn with_others(mut self) -> Stopwatch<'p> {
        self.rank = 2;
        self
    }

    /// Times one kernel in each of these placements. Each time is told as soon as it is known, with the share of the
    /// processors that others had meanwhile; `told` says whether to go on.
    pub(super) fn time(
        &mut self,
        step: Step,
        signature: &Signature,
        placements: &[Vec<TierId>],
        mut told: impl FnMut(&[TierId], (Nanos, f64)) -> bool,
    ) -> Result<(), ProfileError> {
        let mut bodies: Vec<Vec<Option<ObjectId>>> =
            vec![vec![None; self.tiers.len()]; signature.operands.len()];
        let stand_ins = self.stand_ins(signature)?;
        for (at, placement) in placements.iter().enumerate() {
            let mut operands = Vec::with_capacity(placement.len());
            for ((body, tier), (id, access, bytes)) in
                bodies.iter_mut().zip(placement).zip(&signature.operands)
            {
                let there =
                    self.tiers.iter().position(|known| known == tier).expect("kernels can work there");
                let tensor = self.program.trace.tensor(*id);
                let object = match body[there] {
                    Some(object) => object,
                    None => *body[there].insert(self.body(tensor, TierId(there as u8))?),
                };
                operands.push(Operand { object, access: *access, bytes: *bytes });
            }
            let rehearsal = self.rehearsal(&operands, &stand_ins);
            if at == 0 {
                self.run(step, signature, &operands, None)?;
            }
            let time = self.typical(step, signature, &operands, rehearsal.as_deref())?;
            if !told(placement, time) {
                break;
            }
        }
        for object in bodies.into_iter().flatten().chain(stand_ins).flatten() {
            self.manager.retire(object)?;
        }
        Ok(())
    }

    /// Other memory for each cold operand of a kernel that is rehearsed: none of one that works on much.
    fn stand_ins(&mut self, signature: &Signature) -> Result<Vec<Option<ObjectId>>, ProfileError> {
        let trace = &self.program.trace;
        let size: Bytes = signature.operands.iter().map(|(id, ..)| trace.tensor(*id).bytes).sum();
        if size > self.little {
            return Ok(Vec::new());
        }
        let cold = signature.operands.iter().zip(&signature.warm);
        cold.map(|((id, ..), warm)| (!warm).then(|| self.body(trace.tensor(*id), TierId(0))).transpose())
            .collect()
    }

    /// The operands of a rehearsal; `None` where there is none. An emulated tier would charge for it, and threads would
    /// sleep until it has.
    fn rehearsal(&self, operands: &[Operand], stand_ins: &[Option<ObjectId>]) -> Option<Vec<Operand>> {
        let host = self.manager.backend().host();
        let emulated =
            |operand: &Operand| self.manager.place(operand.object).is_some_and(|at| host.emulated(at.tier));
        if stand_ins.len() != operands.len() || operands.iter().any(emulated) {
            return None;
        }
        let other = |(operand, stand_in): (&Operand, &Option<ObjectId>)| Operand {
            object: stand_in.unwrap_or(operand.object),
            ..*operand
        };
        Some(operands.iter().zip(stand_ins).map(other).collect())
    }

    /// A tensor's own stretch of one tier, with contents.
    fn body(&mut self, tensor: &Tensor, tier: TierId) -> Result<ObjectId, ProfileError> {
        let object = self.manager.create(Some(&tensor.name), tensor.bytes)?;
        let region = self.manager.allocate(tier, tensor.bytes);
        let region = region.map_err(|_| self.manager.no_room(object, tier))?;
        self.manager.set_primary(object, region)?;
        self.fill(object, tensor)?;
        Ok(object)
    }

    fn fill(&mut self, object: ObjectId, tensor: &Tensor) -> Result<(), ProfileError> {
        let operands = [Operand { object, access: Access::Write, bytes: tensor.bytes }];
        self.manager.begin(Step::LOAD, &operands)?;
        let place = self.manager.place(object).expect("it has just been placed");
        // SAFETY: within a kernel that writes just this object.
        let filled = unsafe { self.manager.backend_mut(Key::new()).load(tensor, place) };
        self.manager.end(Step::LOAD, &operands);
        filled.map_err(|why| Error::Kernel { step: Step::LOAD, why })?;
        Ok(())
    }

    /// How long a run takes when the processor is ours: once more, and again, while other programs are busy.
    fn typical(
        &mut self,
        step: Step,
        signature: &Signature,
        operands: &[Operand],
        rehearsal: Option<&[Operand]>,
    ) -> Result<(Nanos, f64), ProfileError> {
        let mut best = (Nanos(u64::MAX), 1.0);
        for _ in 0..TRIES {
            let others = Others::since_now();
            let time = self.ranked(step, signature, operands, rehearsal)?;
            let share = others.share();
            if share <= quiet::LITTLE {
                return Ok((time, share));
            }
            best = (best.0.min(time), share.min(best.1));
        }
        Ok(best)
    }

    /// The time that so many of several runs keep within.
    fn ranked(
        &mut self,
        step: Step,
        signature: &Signature,
        operands: &[Operand],
        rehearsal: Option<&[Operand]>,
    ) -> Result<Nanos, ProfileError> {
        let started = Instant::now();
        let mut times = Vec::new();
        loop {
            times.push(self.run(step, signature, operands, rehearsal)?);
            let spent = started.elapsed();
            let enough = times.len() >= LEAST || (times.len() >= 2 && spent > BUDGET * 5);
            if (spent > BUDGET && enough) || times.len() == MOST {
                break;
            }
        }
        times.sort_unstable();
        Ok(times[(times.len() - 1) / self.rank])
    }

    /// One run, from caches as an iteration leaves them.
    fn run(
        &mut self,
        step: Step,
        signature: &Signature,
        operands: &[Operand],
        rehearsal: Option<&[Operand]>,
    ) -> Result<Nanos, ProfileError> {
        let trace = &self.program.trace;
        for (operand, (id, ..)) in operands.iter().zip(&signature.operands) {
            if operand.access == Access::ReadWrite {
                self.fill(operand.object, trace.tensor(*id))?;
            }
        }
        let Some(rehearsal) = rehearsal else {
            return self.play(step, signature, operands, Caches::Filled);
        };
        self.play(step, signature, rehearsal, Caches::Emptied)?;
        self.play(step, signature, operands, Caches::Left)
    }

    /// The time of the kernel alone, after whatever is done to the caches.
    fn play(
        &mut self,
        step: Step,
        signature: &Signature,
        operands: &[Operand],
        caches: Caches,
    ) -> Result<Nanos, ProfileError> {
        let trace = &self.program.trace;
        self.manager.begin(step, operands)?;
        let mut places = Vec::with_capacity(operands.len());
        for operand in operands {
            let place = self.manager.place(operand.object).expect("it has been placed");
            places.push((place, self.manager.size(operand.object)?));
        }
        let mut traffic = Vec::new();
        traffic_of(&self.manager, operands, &mut traffic);
        if caches != Caches::Left {
            Stage::kernels_of(&mut self.manager).empty_caches();
        }
        // SAFETY: nothing is copied with it.
        let stage = self.manager.backend_mut(unsafe { Key::new() });
        for ((place, _), ((id, ..), warm)) in
            places.iter().zip(signature.operands.iter().zip(&signature.warm))
        {
            if *warm && caches == Caches::Filled {
                // To save is to read every byte.
                // SAFETY: within a kernel that uses this object.
                let saved = unsafe { stage.save(trace.tensor(*id), *place) };
                saved.map_err(|why| Error::Kernel { step, why })?;
            }
        }
        let work = Work {
            step,
            kernel: trace.kernel(step),
            operands,
            places: &places,
            slots: &signature.slots,
            traffic: &traffic,
            cached: false,
        };
        let began = Instant::now();
        // SAFETY: the kernel has just been begun with these operands, at these places.
        let done = unsafe { stage.compute(&work) };
        let took = began.elapsed();
        self.manager.end(step, operands);
        done.map_err(|why| Error::Kernel { step, why })?;
        Ok(Nanos(took.as_nanos() as u64))
    }
}

/// A machine of those tiers on which kernels can work, with so much of each.
fn bench(machine: &Machine, tiers: &[TierId], size: Bytes) -> Machine {
    let mut links = Vec::new();
    for at in 1..tiers.len() as u8 {
        for (from, to) in [(at - 1, at), (at, at - 1)] {
            // Nothing is copied.
            let curve = vec![(1, Bandwidth::gb(1.0))];
            let (from, to, latency) = (TierId(from), TierId(to), Nanos::ZERO);
            links.push(Link {
                from,
                to,
                latency,
                spacing: None,
                curve,
                threads: 1,
                via: None,
                bus: None,
                busy: 0.0,
            });
        }
    }
    let mut bench = machine.clone();
    bench.tiers = tiers.iter().map(|id| machine.tier(*id).clone()).collect();
    bench.tiers.iter_mut().for_each(|tier| tier.capacity = size);
    (bench.links, bench.kernels) = (links, None);
    bench
}

/// The kernels, and what it takes to run them again and again from the same state.
struct Bench {
    library: Library,
    /// What no kernel makes; everything else gets numbers of no meaning.
    given: Vec<String>,
    /// Such numbers: small, of either sign, never zero.
    numbers: Vec<f32>,
    /// As much memory as the caches hold, to sweep them with.
    broom: Vec<u64>,
}

impl Bench {
    fn new(library: Library, program: &Program, cache: Bytes) -> Bench {
        let given = program.graph.values.iter().filter(|v| v.init != Init::Computed);
        let number = |at: u64| random::normal(1, at).clamp(-4.0, 4.0) * 0.5 + 1e-3;
        Bench {
            library,
            given: given.map(|v| v.name.clone()).collect(),
            numbers: (0..16 << 10).map(number).collect(),
            broom: vec![1; cache.0 as usize / 8],
        }
    }

    fn empty_caches(&mut self) {
        // One word of every line; written, so that the lines that were there are written back.
        for line in self.broom.chunks_mut(8) {
            line[0] = line[0].wrapping_add(1);
        }
        black_box(&mut self.broom);
    }
}

impl Kernels for Bench {
    fn load(&mut self, tensor: &Tensor, bytes: &mut [u8]) -> Result<(), Failure> {
        if self.given.contains(&tensor.name) {
            return self.library.load(tensor, bytes);
        }
        let numbers: &[u8] = bytemuck::cast_slice(&self.numbers);
        for chunk in bytes.chunks_mut(numbers.len()) {
            chunk.copy_from_slice(&numbers[..chunk.len()]);
        }
        Ok(())
    }

    fn save(&mut self, _: &Tensor, bytes: &[u8]) -> Result<(), Failure> {
        let sum = bytes.chunks(64).fold(0u8, |sum, line| sum.wrapping_add(line[0]));
        black_box(sum);
        Ok(())
    }

    fn run(&mut self, work: &Work<'_>, views: &mut [View<'_>]) -> Result<(), Failure> {
        self.library.run(work, views)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines;
    use crate::measured::placements::derive;
    use crate::measured::signature::signatures;
    use tiercel_kernels::prepare;
    use tiercel_workload::nets;

    /// What is derived for an emulated tier is what is measured there, in placements that nobody measures.
    #[test]
    fn the_emulation_charges_what_is_derived() {
        let options = nets::NetOptions { batch: Some(256), ..nets::NetOptions::default() };
        let program = prepare(nets::find("mlp").expect("built in").build(&options).expect("sound"), 1);
        let machine = machines::named("dram-throttled").expect("it ships");
        let all = signatures(&program, Bytes::ZERO);
        let relu =
            program.trace.kernels.iter().position(|kernel| kernel.op == "relu.backward").expect("it has one");
        let (kernel, signature) = (&program.trace.kernels[relu], &all[relu]);
        let mut watch = Stopwatch::new(&program, &machine, 1, Bytes::mib(1), &[signature]).expect("opens");
        let count = signature.operands.len() as u32;
        let place =
            |bits: u32| -> Vec<TierId> { (0..count).map(|at| TierId((bits >> at & 1) as u8)).collect() };
        let placements: Vec<Vec<TierId>> = (0..1 << count).map(place).collect();
        let mut times = Vec::new();
        watch
            .time(Step(relu as u32), signature, &placements, |places, (time, _)| {
                times.push((signature.slots.iter().map(|slot| places[*slot]).collect::<Vec<_>>(), time));
                true
            })
            .expect("measured");
        let known = [times[0].clone()];
        for (places, time) in &times[1..] {
            let derived = derive(&machine, kernel, (&known, 1.0), places).expect("measured on plain memory");
            // Other programs may make it longer; nothing makes it shorter than the charge.
            let charge = derive(&machine, kernel, (&[(known[0].0.clone(), Nanos::ZERO)], 1.0), places)
                .expect("as above");
            assert!(*time >= charge, "{places:?}: {time} and {charge}");
            assert!(time.0 < derived.0 * 3 + 2_000_000, "{places:?}: {time} and {derived}");
        }
    }
}
