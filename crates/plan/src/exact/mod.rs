//! The exact solver: the problem as one mixed-integer program, in a form whose relaxation is tight, solved by HiGHS.
//!
//! AutoTM (section 3) ties tensors to kernels by rows that say "this configuration if and only if all of these
//! places", which a relaxation satisfies with halves of everything. Here every tensor is a flow of one unit through
//! its states (`paths.rs`: on a tier, perhaps with a copy on a slower one), and a kernel's placements are weights that
//! sum to one and give every operand just the share of each tier that the operand's flow has there. What the kernel
//! pays is then the convex hull of its table, additive or not.
//!
//! It decides about the same tensors as the default solver, with the same room; its bound is over plans that keep the
//! tensors too small to matter on the fastest tier.

pub(crate) mod highs;

use std::path::{Path as FilePath, PathBuf};
use std::time::Instant;

use crate::bound::paths::{Path, States};
use crate::exact::highs::{Highs, HighsError, Limits, Model};
use crate::model::problem::{Formulation, Item, Problem};
use crate::search::primal::Primal;
use crate::search::scope::{Scope, moves_before, stretch};
use crate::search::solve::{Effort, Solution};
use crate::search::solver::{SolveError, Solver};

/// Hands the whole problem to HiGHS.
#[derive(Debug)]
pub struct Exact {
    highs: Highs,
}

impl Exact {
    /// Loads HiGHS from the file that `TIERCEL_HIGHS` names, or from where `scripts/fetch-highs` puts it, or from
    /// where the system keeps libraries.
    pub fn load() -> Result<Exact, HighsError> {
        if let Some(path) = std::env::var_os("TIERCEL_HIGHS") {
            return Exact::open(FilePath::new(&path));
        }
        match fetched().filter(|path| path.exists()) {
            Some(path) => Exact::open(&path),
            None => Exact::open(FilePath::new("libhighs.so")),
        }
    }

    /// Loads HiGHS from a file.
    pub fn open(path: &FilePath) -> Result<Exact, HighsError> {
        Ok(Exact { highs: Highs::load(path)? })
    }

    /// The version of HiGHS.
    pub fn version(&self) -> String {
        self.highs.version()
    }
}

/// Where `scripts/fetch-highs` puts the library.
fn fetched() -> Option<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache"),
    };
    Some(cache.join("tiercel/highs/libhighs.so"))
}

impl Solver for Exact {
    fn name(&self) -> &'static str {
        "exact"
    }

    fn solve(&self, problem: &Problem, effort: &Effort) -> Result<Solution, SolveError> {
        let started = Instant::now();
        let states = States::new(problem);
        let mut room = problem.room.clone();
        let mut bound = f64::NEG_INFINITY;
        for _ in 0..ATTEMPTS {
            let program = Program::new(problem, &states, &room);
            let left = effort.time.saturating_sub(started.elapsed());
            let limits = Limits { gap: effort.gap, seconds: left.as_secs_f64(), seed: effort.seed };
            let answer = self.highs.solve(&program.model, &limits)?;
            // Room that was taken away since is not the problem's: the first bound is the one that holds.
            if bound == f64::NEG_INFINITY {
                bound = answer.bound * program.unit;
            }
            match Primal::of(problem, &states, program.paths(problem, &answer.values)) {
                Ok(plan) => return Ok(Solution::new(problem, &states, plan, bound, effort, started)),
                Err(overflows) => {
                    for overflow in overflows {
                        if let Some(room) = &mut room[overflow.tier] {
                            room[overflow.step] -= overflow.bytes;
                        }
                    }
                }
            }
        }
        Err(SolveError::NoPlan(started.elapsed().as_secs_f64()))
    }
}

/// How often a plan that is some bytes too large, because the solver counts in fractions, is sent back.
const ATTEMPTS: usize = 5;

/// The mixed-integer program of a problem.
struct Program {
    model: Model,
    /// Nanoseconds of one unit of cost.
    unit: f64,
    /// For each tensor and slot, the variable of each state that is open there.
    flows: Vec<Vec<Vec<(u8, usize)>>>,
}

/// What the whole should cost at the least, so that the solver's tolerances suit it.
const WHOLE: f64 = 1e5;

impl Program {
    fn new(problem: &Problem, states: &States, room: &[Option<Vec<f64>>]) -> Program {
        let mut scope = Scope::root(problem, states);
        // What this rules out no plan can have; where it finds that there is none, the solver will too.
        scope.tighten(problem);
        let least: f64 = problem.calls.iter().map(|call| call.times[call.fastest()]).sum();
        let unit = (least / WHOLE).max(1e-9);
        let mut program = Program { model: Model::default(), unit, flows: Vec::new() };
        for (at, item) in problem.items.iter().enumerate() {
            let slots = program.flow(problem, states, item, scope.slots(at));
            program.flows.push(slots);
        }
        for step in 0..problem.calls.len() {
            program.kernel(problem, states, &scope, step);
        }
        program.capacity(problem, states, room);
        program
    }

    /// A tensor's flow: one unit through an open state of every slot.
    fn flow(
        &mut self,
        problem: &Problem,
        states: &States,
        item: &Item,
        open: &[u64],
    ) -> Vec<Vec<(u8, usize)>> {
        let mut slots: Vec<Vec<(u8, usize)>> = Vec::with_capacity(open.len());
        for (slot, open) in open.iter().enumerate() {
            let stays = problem.formulation == Formulation::Static || !moves_before(item, slot);
            // What cannot change is the same variable, and what stays ends where it began.
            let same = match slot {
                0 => None,
                _ if stays => Some(slot - 1),
                slot if item.persistent && slot == 2 * item.visits.len() => Some(0),
                _ => None,
            };
            let there = (0..states.all.len() as u8).filter(|s| open & 1 << s != 0);
            let variables = match same {
                Some(other) => {
                    let closed = slots[other].iter().filter(|(s, _)| open & 1 << s == 0);
                    closed.for_each(|(_, x)| self.model.row(0.0, 0.0, [(*x, 1.0)]));
                    slots[other].clone()
                }
                None => there.map(|s| (s, self.model.variable(0.0, true))).collect(),
            };
            slots.push(variables);
            if slot == 0 {
                self.model.row(1.0, 1.0, slots[0].iter().map(|(_, x)| (*x, 1.0)));
            } else if !stays {
                self.moves(states, item, &slots[slot - 1], &slots[slot]);
            }
        }
        for (visit, uses) in item.visits.iter().zip(slots.iter().skip(1).step_by(2)) {
            for (state, x) in uses {
                if let Some(alone) = problem.other(visit, states.tier(*state)) {
                    self.model.costs[*x] += alone / self.unit;
                }
            }
        }
        slots
    }

    /// The moves between two slots: as much leaves a state as was there, and as much comes to one as is there.
    fn moves(&mut self, states: &States, item: &Item, before: &[(u8, usize)], after: &[(u8, usize)]) {
        let mut moves: Vec<(u8, u8, usize)> = Vec::new();
        for (from, _) in before {
            for (to, _) in after {
                let cost = states.cost(usize::from(*from), usize::from(*to), item.bytes as f64);
                if cost.is_finite() {
                    moves.push((*from, *to, self.model.variable(cost / self.unit, false)));
                }
            }
        }
        for (state, x) in before {
            let leaving = moves.iter().filter(|(from, _, _)| from == state).map(|(_, _, m)| (*m, 1.0));
            self.model.row(0.0, 0.0, leaving.chain([(*x, -1.0)]));
        }
        for (state, x) in after {
            let coming = moves.iter().filter(|(_, to, _)| to == state).map(|(_, _, m)| (*m, 1.0));
            self.model.row(0.0, 0.0, coming.chain([(*x, -1.0)]));
        }
    }

    /// A kernel: weights for its placements that give every operand the share of each tier that its flow has.
    fn kernel(&mut self, problem: &Problem, states: &States, scope: &Scope, step: usize) {
        let call = &problem.calls[step];
        let times = scope.times[step].iter().enumerate().filter(|(_, time)| time.is_finite());
        let weights: Vec<(usize, usize)> =
            times.map(|(p, time)| (p, self.model.variable(time / self.unit, false))).collect();
        self.model.row(1.0, 1.0, weights.iter().map(|(_, weight)| (*weight, 1.0)));
        for (operand, item) in call.items.iter().enumerate() {
            let slot = scope.slot_at(problem, *item as usize, step);
            let uses = &self.flows[*item as usize][slot];
            for tier in 1..problem.tiers {
                let here = |placement: usize| problem.digit(placement, operand) == tier;
                let weights = weights.iter().filter(|(p, _)| here(*p)).map(|(_, weight)| (*weight, 1.0));
                let flows = uses.iter().filter(|(s, _)| states.tier(*s) == tier).map(|(_, x)| (*x, -1.0));
                let entries: Vec<(usize, f64)> = weights.chain(flows).collect();
                self.model.row(0.0, 0.0, entries);
            }
        }
    }

    /// Room on every tier at every step.
    fn capacity(&mut self, problem: &Problem, states: &States, room: &[Option<Vec<f64>>]) {
        let steps = problem.calls.len();
        for (tier, room) in room.iter().enumerate() {
            let Some(room) = room else { continue };
            let mut rows: Vec<Vec<(usize, f64)>> = vec![Vec::new(); steps];
            for (item, slots) in problem.items.iter().zip(&self.flows) {
                for (slot, variables) in slots.iter().enumerate() {
                    let (from, to) = stretch(item, slot, steps);
                    for (state, x) in variables {
                        if states.holds(*state, tier) {
                            for row in &mut rows[from..to.max(from)] {
                                row.push((*x, item.bytes as f64));
                            }
                        }
                    }
                }
            }
            for (row, room) in rows.into_iter().zip(room) {
                // In parts of the room, so that tolerances mean the same for all.
                let scale = room.max(1.0);
                self.model.row(f64::NEG_INFINITY, room / scale, row.into_iter().map(|(x, b)| (x, b / scale)));
            }
        }
    }

    /// Reads the tensors' paths off the values of the variables.
    fn paths(&self, problem: &Problem, values: &[f64]) -> Vec<Path> {
        let chosen = |variables: &[(u8, usize)]| {
            let most = variables.iter().max_by(|a, b| values[a.1].total_cmp(&values[b.1]));
            most.map_or(0, |(state, _)| *state)
        };
        let path = |(item, slots): (&Item, &Vec<Vec<(u8, usize)>>)| Path {
            uses: (0..item.visits.len()).map(|i| chosen(&slots[2 * i + 1])).collect(),
            rests: (0..=item.visits.len()).map(|i| chosen(&slots[2 * i])).collect(),
            flights: Vec::new(),
        };
        problem.items.iter().zip(&self.flows).map(path).collect()
    }
}
