//! vDNN (Rhu and others, MICRO 2016, as Sentinel section VII-C describes it): the inputs of convolutions leave for
//! slow memory in the forward pass and come back in the backward pass, all else stays in fast memory.
//!
//! What a network knows of itself, vDNN reads off the graph; here one iteration is written down first. A
//! convolution's input is copied out while the last forward kernel that uses it runs, and its layer waits for the
//! copy before the next begins. In the backward pass, each layer brings in what the next layer with such an input
//! needs, and waits for it at its end. So it is always a layer ahead, whatever the layers' times are. Networks
//! without convolutions have nothing to move.
//!
//! vDNN stops where the rest does not fit. Here what does not fit is born in slow memory, or, where kernels cannot
//! work there, room is made by recency; [`Vdnn::overflows`] counts how often, and any number but 0 means that vDNN
//! could not have run this network.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tiercel_core::{Error, Hint, Manager, ObjectId, Operand, Policy, RegionId, Step, TierId};
use tiercel_workload::TensorId;

use crate::gather::gather;
use crate::notebook::{Ended, Notebook, SeenIteration};
use crate::recency::Recency;

const FAST: TierId = TierId(0);

/// The inputs of convolutions of one known iteration.
#[derive(Clone, Debug, Default)]
struct Inputs {
    /// For each step, those that it uses last in the forward pass.
    leave: Vec<Vec<TensorId>>,
    /// For each step that begins a layer of the backward pass, those to bring in.
    come: Vec<Vec<TensorId>>,
}

fn is_backward(op: &str) -> bool {
    op.contains(".backward")
}

impl Inputs {
    fn new(known: &SeenIteration) -> Inputs {
        let kernels = &known.trace.kernels;
        let mut inputs =
            Inputs { leave: vec![Vec::new(); kernels.len()], come: vec![Vec::new(); kernels.len()] };
        let mut returns: Vec<(u32, TensorId)> = Vec::new();
        for (step, kernel) in kernels.iter().enumerate() {
            if !kernel.op.starts_with("conv") || is_backward(&kernel.op) {
                continue;
            }
            // The image is what a convolution reads first.
            let Some(image) = kernel.reads.first().map(|u| u.tensor) else { continue };
            let later = known.lifetimes.uses(image).iter().map(|used| used.0 as usize).filter(|u| *u >= step);
            let forward: Vec<usize> =
                later.clone().take_while(|used| !is_backward(&kernels[*used].op)).collect();
            let back = later.clone().nth(forward.len());
            let (Some(&last), Some(back)) = (forward.last(), back) else { continue };
            if !known.trace.tensor(image).persistent && !inputs.leave[last].contains(&image) {
                inputs.leave[last].push(image);
                returns.push((back as u32, image));
            }
        }
        returns.sort_unstable();
        inputs.bring(known, &returns);
        inputs
    }

    /// Decides which layer of the backward pass brings in what: all that its own kernels use, if nobody has yet, and
    /// what the next layer with such an input uses.
    fn bring(&mut self, known: &SeenIteration, returns: &[(u32, TensorId)]) {
        let mut returns = returns.iter().peekable();
        let visit = |step: u32| known.visits[step as usize];
        for (step, kernel) in known.trace.kernels.iter().enumerate() {
            let begins = step == 0 || visit(step as u32) != visit(step as u32 - 1);
            if !begins || !is_backward(&kernel.op) {
                continue;
            }
            let mut ahead = None;
            while let Some((back, image)) = returns.next_if(|(back, _)| {
                visit(*back) <= visit(step as u32) || ahead.is_none_or(|ahead| ahead == visit(*back))
            }) {
                ahead = Some(visit(*back)).filter(|next| *next > visit(step as u32)).or(ahead);
                self.come[step].push(*image);
            }
        }
    }
}

/// The policy of vDNN.
#[derive(Clone, Debug, Default)]
pub struct Vdnn {
    notebook: Notebook,
    inputs: BTreeMap<u32, Inputs>,
    recency: RefCell<Recency>,
    /// Copied out by this layer, and where to.
    leaving: Vec<(ObjectId, RegionId)>,
    /// Brought in by this layer.
    coming: Vec<ObjectId>,
    overflows: u64,
}

impl Vdnn {
    /// The policy before its first iteration.
    pub fn new() -> Vdnn {
        Vdnn::default()
    }

    /// How often something did not fit in fast memory; vDNN itself would have stopped.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// The objects that leave after, or come before, the step that is next.
    fn listed(&self, which: impl Fn(&Inputs) -> &Vec<Vec<TensorId>>) -> Vec<ObjectId> {
        let inputs = self.notebook.page().and_then(|known| self.inputs.get(&known.id));
        let tensors = inputs.and_then(|inputs| which(inputs).get(self.notebook.step().0 as usize));
        let object = |tensor: &TensorId| self.notebook.object(*tensor);
        tensors.map_or(Vec::new(), |tensors| tensors.iter().filter_map(object).collect())
    }

    /// Begins to copy out what the coming kernel uses last.
    fn offload(&mut self, m: &mut Manager, operands: &[Operand]) -> Result<(), Error> {
        for object in self.listed(|inputs| &inputs.leave) {
            let written = operands.iter().any(|o| o.object == object && o.access.writes());
            let Some(x) = m.primary(object).filter(|x| m.tier(*x) == FAST && !written) else { continue };
            let slower = m.machine().tier_ids().skip(1);
            let region = m.regions_of(object).find(|region| *region != x);
            let region =
                region.or_else(|| slower.into_iter().find_map(|tier| m.allocate(tier, m.size_of(x)).ok()));
            let Some(y) = region else { continue };
            if m.parent(y).is_none() {
                m.link(x, y)?;
            }
            if m.is_written(object) && !m.is_current(y) {
                m.copy(x, y)?;
            }
            self.leaving.push((object, y));
        }
        Ok(())
    }

    /// Begins to bring in what the layer that begins here is to bring in.
    fn prefetch(&mut self, m: &mut Manager) -> Result<(), Error> {
        for object in self.listed(|inputs| &inputs.come) {
            let Some(x) = m.primary(object).filter(|x| m.tier(*x) != FAST) else { continue };
            let Ok(y) = m.allocate(FAST, m.size_of(x)) else {
                self.overflows += 1;
                continue;
            };
            if m.is_written(object) {
                m.copy(x, y)?;
            }
            m.link(x, y)?;
            m.set_primary(object, y)?;
            self.recency.get_mut().moved(object, FAST);
            self.coming.push(object);
        }
        Ok(())
    }

    /// The layer ends: waits for what it moves, and gives back the fast memory of what has left.
    fn synchronise(&mut self, m: &mut Manager, step: Step) -> Result<(), Error> {
        for (object, y) in std::mem::take(&mut self.leaving) {
            let x = m.primary(object).filter(|x| *x != y && m.parent(y) == Some(object) && m.is_current(y));
            let Some(x) = x else { continue };
            m.set_primary(object, y)?;
            self.recency.get_mut().moved(object, m.tier(y));
            m.free(x)?;
            m.wait_for(step, object)?;
        }
        for object in std::mem::take(&mut self.coming) {
            m.wait_for(step, object)?;
        }
        Ok(())
    }
}

impl Policy for Vdnn {
    fn name(&self) -> &str {
        "vdnn"
    }

    fn coming(&mut self, _: &mut Manager, _: Step, op: &str) -> Result<(), Error> {
        self.notebook.coming(op);
        Ok(())
    }

    fn layer_ended(&mut self, _: &mut Manager) -> Result<(), Error> {
        self.notebook.layer_ended();
        Ok(())
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let size = m.size(object)?;
        let tiers: Vec<TierId> = m.machine().tier_ids().collect();
        let found = tiers.into_iter().find_map(|tier| m.allocate(tier, size).ok());
        let Some(region) = found else { return Err(m.no_room(object, m.machine().slowest())) };
        m.set_primary(object, region)?;
        self.overflows += u64::from(m.tier(region) != FAST);
        self.recency.get_mut().touch(object, m.tier(region));
        self.notebook.placed(m, object);
        Ok(())
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) {
            self.leaving.retain(|(leaving, _)| *leaving != object);
            self.coming.retain(|coming| *coming != object);
            self.notebook.retired(object);
            self.recency.get_mut().remove(object);
            m.retire(object)?;
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        if step != Step::LOAD {
            self.prefetch(m)?;
        }
        self.notebook.before(m, step, operands);
        for operand in operands {
            if let Some(home) = m.home(operand.object) {
                self.recency.get_mut().touch(operand.object, home);
            }
        }
        gather(m, &self.recency, step, operands)?;
        if step != Step::LOAD { self.offload(m, operands) } else { Ok(()) }
    }

    fn after(&mut self, m: &mut Manager, step: Step, _: &[Operand]) -> Result<(), Error> {
        let at = self.notebook.step().0 as usize;
        let visits = self.notebook.page().map(|known| &known.visits);
        let ends = visits.is_none_or(|visits| visits.get(at) != visits.get(at + 1));
        self.notebook.after(m, step);
        if ends && step != Step::LOAD { self.synchronise(m, step) } else { Ok(()) }
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        self.synchronise(m, Step::LOAD)?;
        if let Ended::Learned(id) = self.notebook.ended() {
            self.inputs.retain(|id, _| self.notebook.known(*id).is_some());
            if let Some(known) = self.notebook.known(id) {
                self.inputs.insert(id, Inputs::new(known));
            }
        }
        Ok(())
    }

    fn settled(&self) -> bool {
        self.notebook.page().is_some()
    }
}
