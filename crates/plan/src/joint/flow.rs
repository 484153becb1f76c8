//! When what leaves has left and when what comes back sets out, and how long an iteration takes with that.
//!
//! Copies out begin with the last use and hold their memory until somebody wants it; one that nobody presses never leaves.
//! Copies back set out as late as the link allows. Kernels wait for either where they must. A link moves one copy at a
//! time, in order, as the simulator has it.

use std::collections::VecDeque;

use super::base::{Base, NONE};
use super::unroll::Sequence;

/// A move with its boundaries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) life: u32,
    /// It may leave from `out` on and must have left by `gone`; `NONE` where it begins away.
    pub(crate) out: u32,
    pub(crate) gone: u32,
    /// It sets out for the fast tier at `comes` and must be there at `back`; `NONE` where it ends away.
    pub(crate) comes: u32,
    pub(crate) back: u32,
    /// Whether it leaves at all.
    pub(crate) on: bool,
}

/// How an iteration goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) moves: Vec<Moved>,
    /// Nanoseconds, waits included.
    pub(crate) time: f64,
    /// The most bytes above the limit, and bytes times nanoseconds above it.
    pub(crate) excess: u64,
    pub(crate) area: f64,
    /// The bytes on the fast tier at each place of the sequence.
    pub(crate) memory: Vec<u64>,
    /// Nanoseconds that each link is busy.
    pub(crate) busy: [f64; 2],
    began: Vec<f64>,
    delta: Vec<i64>,
    leaving: Vec<Vec<u32>>,
    coming: Vec<Vec<u32>>,
    order: Vec<u32>,
    pending: VecDeque<u32>,
    flying: Vec<u32>,
}

/// How much of its own time a copy back sets out before it must.
const SLACK: f64 = 0.15;
const START: f64 = 30_000.0;
/// Waits that change this part of the time or less end the rounds.
const SETTLED: f64 = 1e-3;
const ROUNDS: usize = 4;

impl Flow {
    /// What it costs: the time, and much more where memory is short.
    pub(crate) fn cost(&self, base: &Base) -> f64 {
        let short = self.excess as f64 / base.limit as f64;
        self.time
            + if self.excess > 0 {
                base.floor * (0.5 + 4.0 * short) + 2.0 * self.area / base.limit as f64
            } else {
                0.0
            }
    }

    /// Plays a sequence.
    pub(crate) fn play(&mut self, base: &Base, sequence: &Sequence) {
        let steps = sequence.kernels.len();
        self.began.clear();
        let mut clock = 0.0;
        for (kernel, _) in &sequence.kernels {
            self.began.push(clock);
            clock += base.calls[*kernel as usize].time;
        }
        self.began.push(clock);
        self.delta.clear();
        self.delta.resize(steps + 1, 0);
        for life in sequence.lives() {
            let item = &base.items[life.tensor as usize];
            let (Some(first), Some(last)) = (life.uses.first(), life.uses.last()) else {
                if item.persistent {
                    self.delta[0] += item.bytes as i64;
                }
                continue;
            };
            let (from, to) = (
                if item.given { 0 } else { *first as usize },
                if item.persistent { steps } else { *last as usize + 1 },
            );
            self.delta[from] += item.bytes as i64;
            self.delta[to] -= item.bytes as i64;
        }
        let grow = |rows: &mut Vec<Vec<u32>>| {
            rows.iter_mut().for_each(Vec::clear);
            rows.resize_with((steps + 1).max(rows.len()), Vec::new);
        };
        grow(&mut self.leaving);
        self.moves.clear();
        for leave in &sequence.leaves {
            self.leaving[if leave.out == NONE { 0 } else { leave.out as usize }]
                .push(self.moves.len() as u32);
            let (life, out, back) = (leave.life, leave.out, leave.back);
            self.moves.push(Moved { life, out, gone: out, comes: back, back, on: true });
        }
        self.order.clear();
        self.order.extend((0..self.moves.len() as u32).filter(|at| self.moves[*at as usize].back != NONE));
        let moves = &self.moves;
        self.order.sort_by_key(|at| std::cmp::Reverse(moves[*at as usize].back));
        let mut last = clock;
        for round in 0..ROUNDS {
            grow(&mut self.coming);
            self.set_out(base, sequence);
            self.hold(base, sequence);
            self.run(base, sequence);
            if self.time - last <= SETTLED * last && round > 0 || self.moves.iter().all(|m| !m.on) {
                break;
            }
            last = self.time;
        }
    }

    fn bytes(base: &Base, sequence: &Sequence, moved: &Moved) -> u64 {
        base.items[sequence.lives()[moved.life as usize].tensor as usize].bytes
    }

    /// Copies back, as late as their link allows.
    fn set_out(&mut self, base: &Base, sequence: &Sequence) {
        let mut free = f64::INFINITY;
        for at in &self.order {
            let moved = &mut self.moves[*at as usize];
            let copy = base.copying(Self::bytes(base, sequence, moved), 1) / base.both.max(0.9);
            free = free.min(self.began[moved.back as usize]) - copy;
            let wanted = free - SLACK * copy - START;
            let earliest = if moved.out == NONE { 0 } else { moved.out + 1 };
            let comes = (self.began.partition_point(|b| *b <= wanted) as u32).saturating_sub(1);
            moved.comes = comes.max(earliest).min(moved.back);
            self.coming[moved.comes as usize].push(*at);
        }
    }

    /// Who has to have left when, so that everybody fits.
    fn hold(&mut self, base: &Base, sequence: &Sequence) {
        let steps = sequence.kernels.len();
        self.memory.clear();
        (self.excess, self.area) = (0, 0.0);
        self.pending.clear();
        self.flying.clear();
        let mut now: i64 = 0;
        for moved in &mut self.moves {
            moved.on = true;
            moved.gone = NONE;
            if moved.out == NONE {
                now -= Self::bytes(base, sequence, moved) as i64;
            }
        }
        let limit = base.limit as i64;
        for place in 0..steps {
            now += self.delta[place];
            for index in 0..self.leaving[place].len() {
                let at = self.leaving[place][index];
                if self.moves[at as usize].out != NONE {
                    self.pending.push_back(at);
                }
            }
            for index in 0..self.coming[place].len() {
                let at = self.coming[place][index];
                let moved = &mut self.moves[at as usize];
                if moved.out != NONE && moved.gone == NONE {
                    // Nobody wanted its memory.
                    moved.on = false;
                    continue;
                }
                now += Self::bytes(base, sequence, moved) as i64;
                self.flying.push(at);
            }
            while now > limit {
                let Some(at) = self.pending.pop_front() else { break };
                let moved = &mut self.moves[at as usize];
                if moved.on {
                    moved.gone = place as u32;
                    now -= Self::bytes(base, sequence, moved) as i64;
                }
            }
            self.flying.retain(|at| self.moves[*at as usize].back > place as u32);
            while now > limit {
                // Who is wanted last sets out later.
                let last = (0..self.flying.len()).max_by_key(|at| self.moves[self.flying[*at] as usize].back);
                let Some(at) = last.map(|last| self.flying.swap_remove(last)) else { break };
                let moved = &mut self.moves[at as usize];
                moved.comes = place as u32 + 1;
                now -= Self::bytes(base, sequence, moved) as i64;
                self.coming[place + 1].push(at);
            }
            self.memory.push(now.max(0) as u64);
            if now > limit {
                let above = (now - limit) as u64;
                self.excess = self.excess.max(above);
                self.area += above as f64 * base.calls[sequence.kernels[place].0 as usize].time.max(1000.0);
            }
        }
        // What is used by the last kernel leaves behind it.
        self.pending.extend(&self.leaving[steps]);
        for at in &self.pending {
            let moved = &mut self.moves[*at as usize];
            match moved.back {
                NONE => moved.gone = steps as u32,
                _ => moved.on = false,
            }
        }
    }

    /// Plays kernels and links.
    fn run(&mut self, base: &Base, sequence: &Sequence) {
        let steps = sequence.kernels.len();
        let mut wait: Vec<f64> = vec![0.0; steps + 1];
        let mut left: Vec<f64> = vec![0.0; self.moves.len()];
        let (mut clock, mut lanes) = (0.0_f64, [0.0_f64; 2]);
        self.busy = [0.0; 2];
        for place in 0..=steps {
            for at in &self.leaving[place] {
                let moved = &self.moves[*at as usize];
                if !moved.on || moved.out == NONE {
                    continue;
                }
                let copy = base.copying(Self::bytes(base, sequence, moved), 0);
                let begins = lanes[0].max(clock);
                lanes[0] = begins + if lanes[1] > begins { copy / base.both } else { copy };
                self.busy[0] += copy;
                left[*at as usize] = lanes[0];
                let by = &mut wait[moved.gone as usize];
                *by = by.max(lanes[0]);
            }
            // What has not left by now holds up who wants its memory.
            let now = clock.max(wait[place]);
            for index in 0..self.coming[place].len() {
                let at = self.coming[place][index];
                let moved = &self.moves[at as usize];
                if !moved.on || moved.comes != place as u32 {
                    continue;
                }
                let copy = base.copying(Self::bytes(base, sequence, moved), 1);
                let begins = lanes[1].max(now).max(left[at as usize]);
                lanes[1] = begins + if lanes[0] > begins { copy / base.both } else { copy };
                self.busy[1] += copy;
                let by = &mut wait[moved.back as usize];
                *by = by.max(lanes[1]);
            }
            clock = clock.max(wait[place]);
            self.began[place] = clock;
            clock += sequence.kernels.get(place).map_or(0.0, |(kernel, _)| base.calls[*kernel as usize].time);
        }
        self.time = clock;
    }
}
