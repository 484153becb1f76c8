//! The rivals, each a few decisions on the same ground: on demand, unified memory, L2L, ZeRO-Offload, the blocks of
//! DyNN-Offload, and a joint plan for a path that is believed to come (which is ours, and the oracle).

use std::collections::VecDeque;
use std::sync::Arc;

use tiercel_core::Nanos;
use tiercel_plan::Schedule;
use tiercel_plan::joint::Act;
use tiercel_workload::trace::{Phase, Role};
use tiercel_workload::{Kernel, Lifetimes, Trace, lifetimes};

use super::{Play, Rival, Short, Victims};

/// Nothing is known: what a kernel wants comes when it wants it, what was used longest ago leaves. As unified memory, page
/// by page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// Whether bytes come by page faults.
    pub paged: bool,
}

impl Rival for Demand {
    fn begin(&mut self, play: &mut Play<'_>) -> Result<(), Short> {
        play.paged = self.paged;
        Ok(())
    }
}

/// Whether two kernels are the same operation on the same tensors, whatever their sizes.
pub fn alike(a: &Kernel, b: &Kernel) -> bool {
    let same = |a: &[tiercel_workload::Use], b: &[tiercel_workload::Use]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.tensor == b.tensor)
    };
    a.op == b.op && same(&a.reads, &b.reads) && same(&a.writes, &b.writes)
}

/// What a run of kernels of a trace uses.
fn wanted(trace: &Trace, steps: std::ops::Range<usize>) -> Vec<usize> {
    let kernels = &trace.kernels[steps.start.min(trace.kernels.len())..steps.end.min(trace.kernels.len())];
    let mut all: Vec<usize> = Vec::new();
    let mut seen = vec![false; trace.tensors.len()];
    for used in kernels.iter().flat_map(|kernel| kernel.reads.iter().chain(&kernel.writes)) {
        let at = used.tensor.0 as usize;
        if !std::mem::replace(&mut seen[at], true) {
            all.push(at);
        }
    }
    all
}

/// L2L (Pudipeddi et al.): while one layer runs, the next one comes and the last one leaves. Which layer is next it knows from
/// the step before, so a network that changes is served on demand from where it does.
#[derive(Clone, Debug, Default)]
pub struct LayerByLayer {
    believed: Option<Arc<Trace>>,
    agrees: bool,
}

impl Rival for LayerByLayer {
    fn begin(&mut self, _play: &mut Play<'_>) -> Result<(), Short> {
        self.agrees = self.believed.is_some();
        Ok(())
    }

    fn before(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        let Some(believed) = self.believed.clone() else { return Ok(()) };
        let same =
            |step: usize| believed.kernels.get(step).is_some_and(|k| alike(k, &play.trace.kernels[step]));
        self.agrees &= same(step);
        let visit = |kernel: &Kernel| (kernel.layer, kernel.phase);
        let kernels = &play.trace.kernels;
        let begins = step == 0 || visit(&kernels[step - 1]) != visit(&kernels[step]);
        if !begins || !self.agrees {
            return Ok(());
        }
        let visits = lifetimes::visits(&believed);
        let here = visits[step];
        let end = visits.partition_point(|v| *v <= here);
        let next = visits.partition_point(|v| *v <= here + 1);
        let (now, soon) = (wanted(&believed, step..end), wanted(&believed, end..next));
        for tensor in play.residents() {
            if !now.contains(&tensor) && !soon.contains(&tensor) {
                play.evict(tensor);
            }
        }
        // The step before may have had more tensors.
        for tensor in soon.into_iter().filter(|at| *at < play.trace.tensors.len()) {
            if play.bytes(tensor) <= play.free() {
                play.fetch(tensor, &[])?;
            }
        }
        Ok(())
    }

    fn after(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        if step + 1 == play.trace.kernels.len() {
            self.believed = Some(Arc::new(play.trace.clone()));
        }
        Ok(())
    }
}

/// ZeRO-Offload: what the optimizer remembers stays on the host, gradients go there as soon as they are complete, the host
/// changes the parameters, and these come back. Activations stay; where they do not fit they are served on demand.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroOffload;

/// What the host's optimizer moves for each parameter, and how fast: ZeRO-Offload's Adam is bound by memory.
const ADAM_BYTES: f64 = 28.0;
const HOST: f64 = 50e9;

impl Rival for ZeroOffload {
    fn run(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        let kernel = &play.trace.kernels[step];
        if kernel.phase != Phase::Update {
            return play.run(step, false);
        }
        let role = |used: &&tiercel_workload::Use| play.trace.tensors[used.tensor.0 as usize].role;
        let of = |wanted: Role| kernel.reads.iter().find(|used| role(used) == wanted);
        let (Some(gradient), Some(weight)) = (of(Role::Gradient), of(Role::Weight)) else {
            return play.run(step, false);
        };
        let (gradient, weight) = (gradient.tensor.0 as usize, weight.tensor.0 as usize);
        play.wait_for(gradient);
        let elements = play.bytes(weight) as f64 / 4.0;
        play.on_host(step, Nanos::from_seconds(elements * ADAM_BYTES / HOST));
        // The card's copy is out of date; the new one comes at once.
        play.drop(weight);
        play.fetch(weight, &[])
    }

    fn after(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        let kernel = &play.trace.kernels[step];
        if kernel.phase == Phase::Backward {
            for used in &kernel.writes {
                let at = used.tensor.0 as usize;
                let complete = play.writers[at].last() == Some(&(step as u32));
                if complete && play.trace.tensors[at].role == Role::Gradient {
                    play.evict(at);
                }
            }
        }
        Ok(())
    }
}

/// DyNN-Offload (section 6.4.5): two buffers of half the memory. While a block runs, what neither it nor the next one needs
/// leaves, as far as room is wanted, then what the next one needs comes; the next one begins when that is done. Where the network does something else than
/// was believed, what is missing comes on demand.
#[derive(Clone, Debug)]
pub struct Blocked {
    believed: Arc<Trace>,
    lives: Lifetimes,
    blocks: Vec<usize>,
    agrees: bool,
    coming: Vec<usize>,
}

impl Blocked {
    /// For a step that is believed to do this, cut so.
    pub fn new(believed: Arc<Trace>, blocks: Vec<usize>) -> Blocked {
        Blocked { lives: Lifetimes::new(&believed), believed, blocks, agrees: true, coming: Vec::new() }
    }

    /// Whether the step did what was believed, as far as it has gone.
    pub fn agrees(&self) -> bool {
        self.agrees
    }
}

impl Rival for Blocked {
    fn before(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        let believed = Arc::clone(&self.believed);
        self.agrees &= believed.kernels.get(step).is_some_and(|k| alike(k, &play.trace.kernels[step]));
        let Ok(block) = self.blocks.binary_search(&step) else { return Ok(()) };
        for tensor in std::mem::take(&mut self.coming) {
            play.wait_for(tensor);
        }
        if !self.agrees {
            return Ok(());
        }
        let start = |block: usize| self.blocks.get(block).copied().unwrap_or(believed.kernels.len());
        let now = wanted(&believed, step..start(block + 1));
        let soon = wanted(&believed, start(block + 1)..start(block + 2));
        let mut needed = vec![false; believed.tensors.len().max(play.trace.tensors.len())];
        now.iter().chain(&soon).for_each(|at| needed[*at] = true);
        // Room for all that the two blocks use; what is wanted last leaves first.
        let size = |at: &usize| believed.tensors[*at].bytes.0;
        let held = |at: &usize| *at < play.trace.tensors.len() && play.is_fast(*at);
        let wanted: u64 =
            (0..believed.tensors.len()).filter(|at| needed[*at] && !held(at)).map(|at| size(&at)).sum();
        let here = tiercel_core::Step(step as u32);
        let next = |at: &usize| {
            let next = self.lives.next_use(tiercel_workload::TensorId(*at as u32), here);
            next.map_or(u32::MAX, |step| step.0)
        };
        let mut unused: Vec<(u32, usize)> =
            play.residents().into_iter().filter(|at| !needed[*at]).map(|at| (next(&at), at)).collect();
        unused.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = Vec::new();
        for (_, tensor) in unused {
            if play.free_soon() >= wanted {
                break;
            }
            play.evict(tensor);
            left.push(tensor);
        }
        // What the next block needs and has already counts for its buffer.
        let there = |at: &&usize| **at < play.trace.tensors.len() && play.is_fast(**at);
        let mut buffer: u64 = soon.iter().filter(there).map(|at| play.bytes(*at)).sum();
        for tensor in soon.into_iter().filter(|at| *at < play.trace.tensors.len()) {
            let bytes = play.bytes(tensor);
            if !play.is_fast(tensor) && buffer + bytes <= play.half() && bytes <= play.free_soon() {
                play.fetch(tensor, &left)?;
                buffer += bytes;
                self.coming.push(tensor);
            }
        }
        Ok(())
    }
}

/// Says what to believe from a step on, for a trace that is not what was believed.
type Turn<'p> = dyn FnMut(&Trace, usize) -> Option<Arc<Plan>> + 'p;

/// A joint plan for the trace that is believed to come. When the step does something else, `turn` says what to believe
/// from there on.
pub struct Planned<'p> {
    believed: Option<Arc<Plan>>,
    turn: Box<Turn<'p>>,
    fetches: Vec<(usize, usize)>,
    /// What has to come because the step before left it away.
    coming: VecDeque<usize>,
    /// How often belief had to change.
    pub turns: u32,
}

/// A trace with its plan.
#[derive(Debug)]
pub struct Plan {
    /// The trace.
    pub trace: Arc<Trace>,
    /// What to do around its steps.
    pub schedule: Schedule,
    /// When its tensors are used.
    pub lives: Arc<Lifetimes>,
    /// The bytes that outlive the step and that it has on the card from the beginning.
    pub kept: u64,
    /// Whether it leaves parameters that it does not use where they are.
    pub all_stay: bool,
}

impl<'p> Planned<'p> {
    /// A rival that begins with one plan.
    pub fn new(
        believed: Option<Arc<Plan>>,
        turn: impl FnMut(&Trace, usize) -> Option<Arc<Plan>> + 'p,
    ) -> Planned<'p> {
        Planned { believed, turn: Box::new(turn), fetches: Vec::new(), coming: VecDeque::new(), turns: 0 }
    }

    /// The same that fetches tensors before steps, where memory is free, for paths that may come instead.
    pub fn hedged(mut self, fetches: Vec<(usize, usize)>) -> Planned<'p> {
        self.fetches = fetches;
        self
    }

    fn adopt(&mut self, play: &mut Play<'_>) {
        play.victims = match &self.believed {
            Some(plan) => {
                Victims::Farthest { lives: Arc::clone(&plan.lives), known: plan.trace.tensors.len() }
            }
            None => Victims::Oldest,
        };
    }

    /// Lets what is to come at the beginning of a step come, as far as there is room.
    fn pump(&mut self, play: &mut Play<'_>) -> Result<(), Short> {
        while let Some(tensor) = self.coming.front().copied() {
            if !play.is_fast(tensor) {
                if play.bytes(tensor) > play.free_now() {
                    break;
                }
                play.fetch(tensor, &[])?;
            }
            self.coming.pop_front();
        }
        Ok(())
    }

    fn act(&self, play: &mut Play<'_>, acts: &[Act]) -> Result<(), Short> {
        let tensors = play.trace.tensors.len();
        for act in acts {
            match *act {
                Act::Fetch(at) if (at as usize) < tensors => play.fetch(at as usize, &[])?,
                Act::Wait(at) if (at as usize) < tensors => play.wait_for(at as usize),
                Act::Evict(at) if (at as usize) < tensors => play.evict(at as usize),
                Act::Drop(at) if (at as usize) < tensors => play.drop_if_made_again(at as usize),
                Act::Recompute(step) => play.again(step as usize)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Rival for Planned<'_> {
    fn begin(&mut self, play: &mut Play<'_>) -> Result<(), Short> {
        self.adopt(play);
        let Some(plan) = self.believed.clone() else { return Ok(()) };
        // What the plan wants away leaves, and of what the path does not use as much as there must be room for; what the plan
        // wants there comes, the first to be used first, as room becomes free.
        plan.schedule.away.iter().for_each(|at| play.evict(*at as usize));
        let lasting = plan.trace.tensors.iter().take_while(|tensor| tensor.persistent).count();
        let first = |at: &usize| plan.lives.uses(tiercel_workload::TensorId(*at as u32)).first().map(|s| s.0);
        let mut there: Vec<(u32, usize)> = (0..lasting)
            .filter(|at| !plan.schedule.away.contains(&(*at as u32)) && !play.is_fast(*at))
            .filter_map(|at| Some((first(&at)?, at)))
            .collect();
        there.sort_unstable();
        self.coming = there.into_iter().map(|(_, at)| at).collect();
        let fed = plan.schedule.fast_bytes.min(play.limit());
        let born = fed.saturating_sub(plan.kept);
        let wanted: u64 = self.coming.iter().map(|at| play.bytes(*at)).sum::<u64>() + born;
        for at in (0..lasting).filter(|at| first(at).is_none()) {
            if plan.all_stay || play.free_soon() >= wanted {
                break;
            }
            play.evict(at);
        }
        self.pump(play)
    }

    fn before(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        let same = |plan: &Arc<Plan>| {
            plan.trace.kernels.get(step).is_some_and(|k| alike(k, &play.trace.kernels[step]))
        };
        if self.believed.as_ref().is_some_and(|plan| !same(plan)) {
            self.turns += 1;
            self.believed = (self.turn)(play.trace, step);
            self.adopt(play);
        }
        self.pump(play)?;
        if let Some(plan) = self.believed.clone() {
            self.act(play, &plan.schedule.steps[step].before)?;
        }
        let from = self.fetches.partition_point(|(at, _)| *at < step);
        for (_, tensor) in self.fetches[from..].iter().take_while(|(at, _)| *at == step) {
            if play.bytes(*tensor) <= play.free() {
                play.fetch(*tensor, &[])?;
            }
        }
        Ok(())
    }

    fn after(&mut self, play: &mut Play<'_>, step: usize) -> Result<(), Short> {
        match self.believed.clone() {
            Some(plan) => self.act(play, &plan.schedule.steps[step].after),
            None => Ok(()),
        }
    }
}
