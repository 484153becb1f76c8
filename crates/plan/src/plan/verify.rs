//! Replays a plan against its trace and machine, and refuses it with the step, the tensor, the tier and the bytes.
//!
//! Written from the plan alone: it knows nothing of how the plan was found.

use std::collections::HashMap;

use tiercel_core::{Bytes, Machine, TierId};
use tiercel_workload::repeated::RepeatError;
use tiercel_workload::rewriting::RewriteError;
use tiercel_workload::trace::Role;
use tiercel_workload::{Lifetimes, TensorId, Trace};

use crate::model::outline::Mismatch;
use crate::plan::{Action, Move, Plan};

/// Why a plan must not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It is for another trace.
    #[error("the plan is for `{plan}`, the trace is `{trace}`")]
    OtherTrace {
        /// What the plan is for.
        plan: String,
        /// What the trace is.
        trace: String,
    },
    /// It is for another version of the trace.
    #[error(transparent)]
    Other(#[from] Mismatch),
    /// It is for a program that was rewritten in a way in which this one cannot be.
    #[error("the plan is for another network: {0}")]
    Rewriting(RewriteError),
    /// It is for a program that was rewritten, and there is a trace alone.
    #[error(
        "the plan is for a network that is rewritten: weights are updated early, tensors computed again or worked on in parts; a trace cannot be"
    )]
    NoProgram,
    /// It runs kernels once more that cannot be.
    #[error("the plan is for another trace: {0}")]
    Repeat(RepeatError),
    /// It names something that does not exist.
    #[error("the plan names the {kind} `{name}`, which does not exist")]
    Unknown {
        /// What it should be.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A move makes no sense where it stands.
    #[error("boundary {boundary}: {tensor} cannot {action:?} from {from} to {to}: {why}")]
    Illegal {
        /// When.
        boundary: u32,
        /// The tensor.
        tensor: String,
        /// What was to happen.
        action: Action,
        /// From where.
        from: String,
        /// To where.
        to: String,
        /// Why it cannot.
        why: &'static str,
    },
    /// A tier is too small.
    #[error("step {step}: {tier} holds {wanted} for {what} and others; it has {there}")]
    Full {
        /// When.
        step: u32,
        /// The tier.
        tier: String,
        /// The tensor that came last.
        what: String,
        /// What it would hold.
        wanted: Bytes,
        /// What it has.
        there: Bytes,
    },
    /// A kernel would work where it cannot.
    #[error("step {step}: {tensor} is on {tier}, where kernels cannot work")]
    NotComputable {
        /// When.
        step: u32,
        /// The tensor.
        tensor: String,
        /// The tier.
        tier: String,
    },
    /// A kernel would use a tensor that is being moved.
    #[error(
        "step {step}: {tensor} is used while it is being moved; that must be done at boundary {done} only"
    )]
    InFlight {
        /// When.
        step: u32,
        /// The tensor.
        tensor: String,
        /// The boundary at which the move must be done.
        done: u32,
    },
    /// Two tensors would be at the same place.
    #[error("step {step}: {tensor} and {other} both take byte {offset} of {tier}")]
    Overlap {
        /// When.
        step: u32,
        /// One tensor.
        tensor: String,
        /// The other.
        other: String,
        /// The tier.
        tier: String,
        /// The first byte that both take.
        offset: Bytes,
    },
    /// A tensor's place lies beyond the end of its tier.
    #[error("{tensor} would end at byte {end} of {tier}, which has {there}")]
    Beyond {
        /// The tensor.
        tensor: String,
        /// The tier.
        tier: String,
        /// Where it would end.
        end: Bytes,
        /// What the tier has.
        there: Bytes,
    },
    /// A tensor that outlives the iteration ends elsewhere than it began.
    #[error("{tensor} begins the iteration on {begins} and ends it on {ends}")]
    NoReturn {
        /// The tensor.
        tensor: String,
        /// Where it begins.
        begins: String,
        /// Where it ends.
        ends: String,
    },
}

/// Where one tensor's bytes are.
#[derive(Clone, Debug)]
struct Whereabouts {
    home: Option<TierId>,
    copies: Vec<TierId>,
    begins: TierId,
}

/// A stretch of time in which a tensor has bytes on a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    /// The tensor, by its position in the trace.
    pub(crate) tensor: usize,
    pub(crate) tier: TierId,
    /// The boundaries between which it is there.
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// The move that brought it, by its position in the plan; `None` where it was born there.
    pub(crate) brought: Option<usize>,
}

struct Replay<'a> {
    trace: &'a Trace,
    machine: &'a Machine,
    tensors: Vec<Whereabouts>,
    used: Vec<u64>,
    /// The tensor that came to each tier last.
    latest: Vec<usize>,
    /// Moves that have started and are not done.
    flying: Vec<Flying>,
    /// The boundary that it is at.
    now: u32,
    stays: Vec<Stay>,
    /// For each tensor, its stays that have not ended.
    open: Vec<Vec<usize>>,
}

/// A move under way: the bytes are on both tiers.
struct Flying {
    at: usize,
    done: u32,
    to: TierId,
    keeps: bool,
}

/// Makes sure that a plan can run: capacity at every step, data where kernels need it, every move legal, no two tensors
/// at the same place.
pub fn verify(plan: &Plan, trace: &Trace, machine: &Machine) -> Result<(), Flaw> {
    let stays = replay(plan, trace, machine)?;
    crate::plan::offsets::disjoint(plan, trace, machine, &stays)
}

/// Plays a plan through, and tells what is where when.
pub(crate) fn replay(plan: &Plan, trace: &Trace, machine: &Machine) -> Result<Vec<Stay>, Flaw> {
    plan.meant_for(&trace.name, None)?;
    plan.outline.as_ref().map_or(Ok(()), |outline| outline.check(trace))?;
    let ids: HashMap<&str, usize> =
        trace.tensors.iter().enumerate().map(|(at, t)| (t.name.as_str(), at)).collect();
    let tensor = |name: &str| {
        let unknown = || Flaw::Unknown { kind: "tensor", name: name.to_string() };
        ids.get(name).copied().ok_or_else(unknown)
    };
    let mut begins = vec![TierId(0); trace.tensors.len()];
    for birth in &plan.births {
        begins[tensor(&birth.tensor)?] = tier(machine, &birth.tier)?;
    }
    let mut replay = Replay {
        trace,
        machine,
        tensors: begins
            .into_iter()
            .map(|begins| Whereabouts { home: None, copies: Vec::new(), begins })
            .collect(),
        used: vec![0; machine.tiers.len()],
        latest: vec![0; machine.tiers.len()],
        flying: Vec::new(),
        now: 0,
        stays: Vec::new(),
        open: vec![Vec::new(); trace.tensors.len()],
    };
    let lifetimes = Lifetimes::new(trace);
    let (given, born, dying) = calendar(trace, &lifetimes);
    let mut moves = plan.moves.iter().enumerate().peekable();
    for boundary in 0..=trace.kernels.len() as u32 {
        replay.now = boundary;
        // What leaves makes room for what comes.
        let mut now: Vec<(usize, &Move)> = Vec::new();
        while let Some(m) = moves.next_if(|(_, m)| m.start <= boundary) {
            now.push(m);
        }
        let slower = |(_, m): &(usize, &Move)| tier(machine, &m.to).ok() > tier(machine, &m.from).ok();
        let (leaving, coming): (Vec<_>, Vec<_>) = now.into_iter().partition(slower);
        if boundary == 0 {
            replay.birth(&given);
        }
        replay.land(boundary);
        for (index, m) in leaving {
            replay.apply(index, tensor(&m.tensor)?, m)?;
        }
        let Some(kernel) = trace.kernels.get(boundary as usize) else { break };
        replay.birth(&born[boundary as usize]);
        for (index, m) in coming {
            replay.apply(index, tensor(&m.tensor)?, m)?;
        }
        replay.kernel(boundary, kernel)?;
        replay.now = boundary + 1;
        for at in &dying[boundary as usize] {
            replay.death(*at);
        }
    }
    replay.end()?;
    Ok(replay.stays)
}

fn tier(machine: &Machine, name: &str) -> Result<TierId, Flaw> {
    machine.tier_named(name).ok_or_else(|| Flaw::Unknown { kind: "tier", name: name.to_string() })
}

/// The tensors that are there before the first kernel, that come to be at each step, and that die at each.
fn calendar(trace: &Trace, lifetimes: &Lifetimes) -> (Vec<usize>, Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let mut given = Vec::new();
    let mut born = vec![Vec::new(); trace.kernels.len().max(1)];
    let mut dying = vec![Vec::new(); trace.kernels.len().max(1)];
    for (at, tensor) in trace.tensors.iter().enumerate() {
        let Some(life) = lifetimes.of(TensorId(at as u32)) else { continue };
        if tensor.persistent || tensor.role == Role::Input {
            given.push(at);
        } else {
            born[life.birth.0 as usize].push(at);
        }
        if !tensor.persistent {
            dying[life.last.0 as usize].push(at);
        }
    }
    (given, born, dying)
}

impl Replay<'_> {
    fn size(&self, at: usize) -> u64 {
        let bytes = Bytes(self.trace.tensors[at].bytes.0.max(1));
        bytes.round_up(self.machine.grain()).unwrap_or(bytes).0
    }

    fn name(&self, tier: TierId) -> String {
        self.machine.tier(tier).name.clone()
    }

    fn occupy(&mut self, at: usize, tier: TierId, brought: Option<usize>) {
        self.used[tier.index()] += self.size(at);
        self.latest[tier.index()] = at;
        self.open[at].push(self.stays.len());
        let end = self.trace.kernels.len() as u32;
        self.stays.push(Stay { tensor: at, tier, from: self.now, to: end, brought });
    }

    /// Between kernels tensors may change places; while one runs, everything must fit.
    fn capacity(&self, step: u32) -> Result<(), Flaw> {
        for (tier, used) in self.machine.tier_ids().zip(&self.used) {
            let there = self.machine.tier(tier).capacity;
            if Bytes(*used) > there {
                let what = self.trace.tensors[self.latest[tier.index()]].name.clone();
                return Err(Flaw::Full { step, tier: self.name(tier), what, wanted: Bytes(*used), there });
            }
        }
        Ok(())
    }

    fn vacate(&mut self, at: usize, tier: TierId) {
        self.used[tier.index()] -= self.size(at);
        if let Some(open) = self.open[at].iter().position(|stay| self.stays[*stay].tier == tier) {
            let stay = self.open[at].swap_remove(open);
            self.stays[stay].to = self.now;
        }
    }

    fn birth(&mut self, born: &[usize]) {
        for &at in born {
            let tier = self.tensors[at].begins;
            self.occupy(at, tier, None);
            self.tensors[at].home = Some(tier);
        }
    }

    fn death(&mut self, at: usize) {
        if let Some(flying) = self.flying.iter().position(|flying| flying.at == at) {
            let to = self.flying.swap_remove(flying).to;
            self.vacate(at, to);
        }
        if let Some(home) = self.tensors[at].home.take() {
            self.vacate(at, home);
        }
        for copy in std::mem::take(&mut self.tensors[at].copies) {
            self.vacate(at, copy);
        }
    }

    fn apply(&mut self, index: usize, at: usize, m: &Move) -> Result<(), Flaw> {
        let boundary = self.now;
        let (from, to) = (tier(self.machine, &m.from)?, tier(self.machine, &m.to)?);
        let illegal = |why| Flaw::Illegal {
            boundary,
            tensor: m.tensor.clone(),
            action: m.action,
            from: m.from.clone(),
            to: m.to.clone(),
            why,
        };
        let here = &self.tensors[at];
        if here.home != Some(from) {
            return Err(illegal("it is not there"));
        }
        if m.done < m.start {
            return Err(illegal("it must be done before it may start"));
        }
        let copied = here.copies.iter().position(|copy| *copy == to);
        if m.done > m.start && matches!(m.action, Action::Move | Action::Fetch) && copied.is_none() {
            if self.flying.iter().any(|flying| flying.at == at) {
                return Err(illegal("it is being moved already"));
            }
            self.occupy(at, to, Some(index));
            self.flying.push(Flying { at, done: m.done, to, keeps: m.action == Action::Fetch });
            return Ok(());
        }
        match (m.action, copied) {
            (Action::Drop | Action::Forget, None) => return Err(illegal("there is no copy of it")),
            (Action::Move | Action::Fetch, Some(_)) => return Err(illegal("it is there already")),
            (Action::Move | Action::Fetch, None) => self.occupy(at, to, Some(index)),
            (Action::Drop, Some(copy)) => {
                self.tensors[at].copies.remove(copy);
            }
            (Action::Forget, Some(copy)) => {
                self.tensors[at].copies.remove(copy);
                self.vacate(at, to);
                return Ok(());
            }
        }
        self.tensors[at].home = Some(to);
        match m.action {
            Action::Fetch => self.tensors[at].copies.push(from),
            _ => self.vacate(at, from),
        }
        Ok(())
    }

    /// Ends the moves that must be done at a boundary.
    fn land(&mut self, boundary: u32) {
        for flying in self.flying.extract_if(.., |flying| flying.done <= boundary).collect::<Vec<_>>() {
            let here = &mut self.tensors[flying.at];
            let Some(from) = here.home.replace(flying.to) else { continue };
            match flying.keeps {
                true => here.copies.push(from),
                false => self.vacate(flying.at, from),
            }
        }
    }

    fn kernel(&mut self, step: u32, kernel: &tiercel_workload::Kernel) -> Result<(), Flaw> {
        self.capacity(step)?;
        for u in kernel.reads.iter().chain(&kernel.writes) {
            let at = u.tensor.0 as usize;
            if let Some(flying) = self.flying.iter().find(|flying| flying.at == at) {
                let tensor = self.trace.tensors[at].name.clone();
                return Err(Flaw::InFlight { step, tensor, done: flying.done });
            }
            let home = self.tensors[at].home.expect("a sound trace uses what is alive");
            if !self.machine.tier(home).serves(u.bytes, self.trace.tensors[at].bytes) {
                let tensor = self.trace.tensors[at].name.clone();
                return Err(Flaw::NotComputable { step, tensor, tier: self.name(home) });
            }
        }
        // What a kernel writes makes copies stale; they are given up.
        for u in &kernel.writes {
            let at = u.tensor.0 as usize;
            for copy in std::mem::take(&mut self.tensors[at].copies) {
                self.vacate(at, copy);
            }
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Flaw> {
        for (tensor, whereabouts) in self.trace.tensors.iter().zip(&self.tensors) {
            if let Some(ends) =
                whereabouts.home.filter(|ends| tensor.persistent && *ends != whereabouts.begins)
            {
                let (tensor, begins) = (tensor.name.clone(), self.name(whereabouts.begins));
                return Err(Flaw::NoReturn { tensor, begins, ends: self.name(ends) });
            }
        }
        Ok(())
    }
}
