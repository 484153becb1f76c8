//! When what leaves has left and when what comes back sets out, and how long an iteration takes with that.
//!
//! Copies out begin with the last use and hold their memory until somebody wants it; one that nobody presses never leaves.
//! Copies back set out as late as the link allows. Kernels wait for either where they must. A link moves one copy at a
//! time, in order, as the simulator has it. Where the slow tier cannot hold all, some of what is there sinks to the tier behind
//! it as soon as it has come, and rises again in time for its way back.

use std::collections::VecDeque;

use super::base::{Base, Behind, NONE};
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
    /// Where it goes on to the tier behind the slow one.
    pub(crate) deep: Option<Deep>,
}

/// The part of a move behind the slow tier, which takes no longer than the move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deep {
    /// It sinks from `sinks` on and must have sunk by `sunk`; `NONE` where it begins there.
    pub(crate) sinks: u32,
    pub(crate) sunk: u32,
    /// It sets out for the slow tier at `rises`; `NONE` where it ends there.
    pub(crate) rises: u32,
    /// Whether it sinks at all.
    pub(crate) on: bool,
}

impl Deep {
    const NOWHERE: Deep = Deep { sinks: NONE, sunk: NONE, rises: NONE, on: true };
}

/// How an iteration goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) moves: Vec<Moved>,
    /// Nanoseconds, waits included.
    pub(crate) time: f64,
    /// The most bytes above the limit of the fast tier or the slow one, and bytes times nanoseconds above it.
    pub(crate) excess: u64,
    pub(crate) area: f64,
    /// The part of that which the slow tier lacks.
    pub(crate) beyond: u64,
    /// The bytes on the fast tier at each place of the sequence.
    pub(crate) memory: Vec<u64>,
    /// Nanoseconds that each link is busy: out of the fast tier and back, out of the slow one and back.
    pub(crate) busy: [f64; 4],
    began: Vec<f64>,
    /// When each move has left the fast tier.
    pub(crate) left: Vec<f64>,
    delta: Vec<i64>,
    leaving: Vec<Vec<u32>>,
    coming: Vec<Vec<u32>>,
    sinking: Vec<Vec<u32>>,
    rising: Vec<Vec<u32>>,
    back: Vec<Vec<u32>>,
    order: Vec<u32>,
    pending: VecDeque<u32>,
    flying: Vec<u32>,
    /// Who could leave and has not, and should be on the way back by now.
    late: Vec<u32>,
}

/// How much of its own time a copy back sets out before it must.
const SLACK: f64 = 0.15;
const START: f64 = 30_000.0;
/// Waits that change this part of the time or less end the rounds.
const SETTLED: f64 = 1e-3;
const ROUNDS: usize = 4;
/// What being short of memory costs, in iterations with all memory fast: more than waiting for every copy ever does.
const SHORT: f64 = 1e6;

impl Flow {
    /// What it costs: the time, and more than any time where memory is short.
    pub(crate) fn cost(&self, base: &Base) -> f64 {
        let short = self.excess as f64 / base.limit as f64;
        self.time
            + if self.excess > 0 {
                base.floor * (SHORT + 4.0 * short) + 2.0 * self.area / base.limit as f64
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
        self.births(base, sequence);
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
            let deep = (leave.deep && base.behind.is_some()).then_some(Deep::NOWHERE);
            self.moves.push(Moved { life, out, gone: out, comes: back, back, on: true, deep });
        }
        self.order.clear();
        self.order.extend((0..self.moves.len() as u32).filter(|at| self.moves[*at as usize].back != NONE));
        let moves = &self.moves;
        self.order.sort_by_key(|at| std::cmp::Reverse(moves[*at as usize].back));
        self.leave(base, sequence);
        let mut last = clock;
        for round in 0..ROUNDS {
            grow(&mut self.coming);
            if base.behind.is_some() {
                grow(&mut self.sinking);
                grow(&mut self.rising);
                grow(&mut self.back);
            }
            self.set_out(base, sequence);
            self.hold(base, sequence);
            if let Some(behind) = &base.behind {
                self.rise(behind, base, sequence);
                self.hold_behind(behind, base, sequence);
            }
            self.run(base, sequence);
            if self.time - last <= SETTLED * last && round > 0 || self.moves.iter().all(|m| !m.on) {
                break;
            }
            last = self.time;
        }
    }

    /// What comes to be and dies, place by place, as if nothing moved.
    fn births(&mut self, base: &Base, sequence: &Sequence) {
        let steps = sequence.kernels.len();
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
    }

    fn bytes(base: &Base, sequence: &Sequence, moved: &Moved) -> u64 {
        base.items[sequence.lives()[moved.life as usize].tensor as usize].bytes
    }

    /// When moves have left, if nobody waits for anybody.
    fn leave(&mut self, base: &Base, sequence: &Sequence) {
        self.left.clear();
        self.left.resize(self.moves.len(), 0.0);
        if base.behind.is_none() {
            return;
        }
        let mut lane = 0.0_f64;
        for at in self.leaving.iter().flatten() {
            let moved = &self.moves[*at as usize];
            if moved.out != NONE {
                let copy = base.link.copying(Self::bytes(base, sequence, moved), 0);
                lane = lane.max(self.began[moved.out as usize]) + copy;
                self.left[*at as usize] = lane;
            }
        }
    }

    /// Copies back, as late as their link allows.
    fn set_out(&mut self, base: &Base, sequence: &Sequence) {
        let mut free = f64::INFINITY;
        for at in &self.order {
            let moved = &mut self.moves[*at as usize];
            let copy = base.link.copying(Self::bytes(base, sequence, moved), 1) / base.link.both.max(0.9);
            free = free.min(self.began[moved.back as usize]) - copy;
            let wanted = free - SLACK * copy - START;
            let earliest = if moved.out == NONE { 0 } else { moved.out + 1 };
            let comes = (self.began.partition_point(|b| *b <= wanted) as u32).saturating_sub(1);
            moved.comes = comes.max(earliest).min(moved.back);
            self.coming[moved.comes as usize].push(*at);
        }
    }

    /// The place by which a move has left, as far as the links are concerned.
    fn landed(&self, at: u32, out: u32) -> u32 {
        let place = self.began.partition_point(|began| *began < self.left[at as usize]) as u32;
        place.max(out + 1).min(self.began.len() as u32 - 1)
    }

    /// Takes the memory of what leaves back as soon as it has left, by the clock of the last round, whether or not somebody
    /// wants it: plans are packed more easily so, and take no longer.
    pub(crate) fn hasten(&mut self) {
        for at in 0..self.moves.len() {
            let moved = self.moves[at];
            if moved.on && moved.out != NONE && moved.gone != NONE {
                let latest = if moved.back == NONE { moved.gone } else { moved.gone.min(moved.comes) };
                self.moves[at].gone = self.landed(at as u32, moved.out).min(latest);
            }
        }
    }

    /// Has copies out set out when the link is free for them instead of as soon as they may. They take no longer so, and what a program
    /// itself copies meanwhile (a loss that is printed) does not stand behind all of them in the engine's queue.
    pub(crate) fn spread(&mut self, base: &Base, sequence: &Sequence) {
        for at in 0..self.moves.len() {
            let moved = self.moves[at];
            if !moved.on || moved.out == NONE || moved.gone == NONE || moved.deep.is_some() {
                continue;
            }
            let copy = base.link.copying(Self::bytes(base, sequence, &moved), 0) / base.link.both.min(1.0);
            let begins = self.left[at] - copy;
            let place = self.began.partition_point(|began| *began <= begins).saturating_sub(1) as u32;
            self.moves[at].out = place.min(moved.gone.saturating_sub(1)).max(moved.out);
        }
    }

    /// Who has to have left when, so that everybody fits.
    fn hold(&mut self, base: &Base, sequence: &Sequence) {
        let steps = sequence.kernels.len();
        self.memory.clear();
        (self.excess, self.area, self.beyond) = (0, 0.0, 0);
        self.pending.clear();
        self.flying.clear();
        self.late.clear();
        let mut now: i64 = 0;
        for at in 0..self.moves.len() {
            let Moved { out, back, deep, .. } = self.moves[at];
            let landed = if out == NONE || deep.is_none() { NONE } else { self.landed(at as u32, out) };
            let moved = &mut self.moves[at];
            (moved.on, moved.gone) = (true, NONE);
            if out == NONE {
                now -= Self::bytes(base, sequence, moved) as i64;
            }
            // What goes on has left by the time it does.
            let sinks = if back != NONE && landed >= moved.comes { NONE } else { landed };
            moved.deep = deep.map(|_| Deep { sinks, on: out == NONE || sinks != NONE, ..Deep::NOWHERE });
            if sinks != NONE {
                self.sinking[sinks as usize].push(at as u32);
            }
        }
        for place in 0..steps {
            let limit = base.room(sequence.kernels[place].1) as i64;
            now += self.delta[place];
            for index in 0..self.leaving[place].len() {
                let at = self.leaving[place][index];
                if self.moves[at as usize].out != NONE {
                    self.pending.push_back(at);
                }
            }
            if base.behind.is_some() {
                for index in 0..self.sinking[place].len() {
                    let moved = &mut self.moves[self.sinking[place][index] as usize];
                    if moved.gone == NONE {
                        moved.gone = place as u32;
                        now -= Self::bytes(base, sequence, moved) as i64;
                    }
                }
            }
            for index in 0..self.coming[place].len() {
                let at = self.coming[place][index];
                let moved = &mut self.moves[at as usize];
                if moved.out != NONE && moved.gone == NONE {
                    // Nobody has wanted its memory so far.
                    moved.on = false;
                    self.late.push(at);
                    continue;
                }
                now += Self::bytes(base, sequence, moved) as i64;
                self.flying.push(at);
            }
            while now > limit {
                let Some(at) = self.pending.pop_front() else { break };
                let moved = &mut self.moves[at as usize];
                if moved.on && moved.gone == NONE {
                    moved.gone = place as u32;
                    now -= Self::bytes(base, sequence, moved) as i64;
                }
            }
            self.flying.retain(|at| self.moves[*at as usize].back > place as u32);
            while now > limit {
                // Who stayed because the way back is long leaves after all, and is waited for.
                self.late.retain(|at| self.moves[*at as usize].back > place as u32 + 1);
                let last = (0..self.late.len()).max_by_key(|at| self.moves[self.late[*at] as usize].back);
                let Some(at) = last.map(|last| self.late.swap_remove(last)) else { break };
                let moved = &mut self.moves[at as usize];
                (moved.on, moved.gone, moved.comes) = (true, place as u32, place as u32 + 1);
                now -= Self::bytes(base, sequence, moved) as i64;
                self.coming[place + 1].push(at);
            }
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
                _ if moved.gone != NONE => {}
                NONE => moved.gone = steps as u32,
                _ => moved.on = false,
            }
        }
    }

    /// Copies from behind the slow tier to it, as late as their link allows.
    fn rise(&mut self, behind: &Behind, base: &Base, sequence: &Sequence) {
        let mut free = f64::INFINITY;
        // Those that come last first, and of those that come together the one that is wanted last.
        let moves = &self.moves;
        let mut order: Vec<u32> = (0..moves.len() as u32)
            .filter(|at| {
                let moved = &moves[*at as usize];
                moved.on && moved.back != NONE && moved.deep.is_some_and(|deep| deep.on)
            })
            .collect();
        order.sort_by_key(|at| std::cmp::Reverse((moves[*at as usize].comes, moves[*at as usize].back)));
        for at in order {
            let moved = &mut self.moves[at as usize];
            let copy = behind.link.copying(Self::bytes(base, sequence, moved), 1) / behind.link.both.max(0.9);
            let Some(deep) = &mut moved.deep else { continue };
            free = free.min(self.began[moved.comes as usize]) - copy;
            let wanted = free - SLACK * copy - START;
            let earliest = if deep.sinks == NONE { 0 } else { deep.sinks + 1 };
            let rises = (self.began.partition_point(|b| *b <= wanted) as u32).saturating_sub(1);
            deep.rises = rises.max(earliest).min(moved.comes);
            self.rising[deep.rises as usize].push(at);
        }
    }

    /// Who has to have sunk when, so that everybody fits into the slow tier.
    fn hold_behind(&mut self, behind: &Behind, base: &Base, sequence: &Sequence) {
        let steps = sequence.kernels.len();
        self.pending.clear();
        self.flying.clear();
        let (mut now, limit) = (0_i64, behind.capacity as i64);
        for (at, moved) in self.moves.iter().enumerate().filter(|(_, moved)| moved.on) {
            if moved.out == NONE && moved.deep.is_none() {
                now += Self::bytes(base, sequence, moved) as i64;
            }
            if moved.back != NONE {
                self.back[moved.back as usize].push(at as u32);
            }
        }
        for place in 0..=steps {
            for at in &self.back[place] {
                now -= Self::bytes(base, sequence, &self.moves[*at as usize]) as i64;
            }
            for at in &self.leaving[place] {
                let moved = &self.moves[*at as usize];
                if moved.on && moved.out != NONE {
                    now += Self::bytes(base, sequence, moved) as i64;
                }
            }
            self.pending.extend(self.sinking[place].iter().filter(|at| self.moves[**at as usize].on));
            for index in 0..self.rising[place].len() {
                let at = self.rising[place][index];
                let moved = &mut self.moves[at as usize];
                let Some(deep) = moved.deep.as_mut().filter(|deep| deep.rises == place as u32) else {
                    continue;
                };
                if deep.sinks != NONE && deep.sunk == NONE {
                    // Nobody wanted its memory.
                    deep.on = false;
                    continue;
                }
                now += Self::bytes(base, sequence, moved) as i64;
                self.flying.push(at);
            }
            while now > limit {
                let Some(at) = self.pending.pop_front() else { break };
                let moved = &mut self.moves[at as usize];
                let bytes = Self::bytes(base, sequence, moved) as i64;
                if let Some(deep) = moved.deep.as_mut().filter(|deep| deep.on) {
                    deep.sunk = place as u32;
                    now -= bytes;
                }
            }
            self.flying.retain(|at| self.moves[*at as usize].comes > place as u32);
            while now > limit {
                // Who is wanted last sets out later.
                let last =
                    (0..self.flying.len()).max_by_key(|at| self.moves[self.flying[*at] as usize].comes);
                let Some(at) = last.map(|last| self.flying.swap_remove(last)) else { break };
                let moved = &mut self.moves[at as usize];
                now -= Self::bytes(base, sequence, moved) as i64;
                if let Some(deep) = &mut moved.deep {
                    deep.rises = place as u32 + 1;
                    self.rising[place + 1].push(at);
                }
            }
            if now > limit {
                let above = (now - limit) as u64;
                self.beyond = self.beyond.max(above);
                let kernel = sequence.kernels.get(place).map_or(0.0, |(k, _)| base.calls[*k as usize].time);
                self.area += above as f64 * kernel.max(1000.0);
            }
        }
        self.excess = self.excess.max(self.beyond);
        for at in std::mem::take(&mut self.pending) {
            let moved = &mut self.moves[at as usize];
            if let Some(deep) = moved.deep.as_mut().filter(|deep| deep.sunk == NONE) {
                match moved.back {
                    NONE => deep.sunk = steps as u32,
                    _ => deep.on = false,
                }
            }
        }
    }

    /// Plays kernels and links.
    fn run(&mut self, base: &Base, sequence: &Sequence) {
        let steps = sequence.kernels.len();
        let mut wait: Vec<f64> = vec![0.0; steps + 1];
        let mut sunk: Vec<f64> = vec![0.0; if base.behind.is_some() { self.moves.len() } else { 0 }];
        // When the slow tier has room for what comes at a place, and when what rises has risen.
        let mut room: Vec<f64> = vec![0.0; if base.behind.is_some() { steps + 1 } else { 0 }];
        let (mut clock, mut lanes) = (0.0_f64, [0.0_f64; 4]);
        let mut ready: f64 = 0.0;
        self.left.clear();
        self.left.resize(self.moves.len(), 0.0);
        self.busy = [0.0; 4];
        for place in 0..=steps {
            if base.behind.is_some() {
                ready = ready.max(room[place]);
            }
            for at in &self.leaving[place] {
                let moved = &self.moves[*at as usize];
                if !moved.on || moved.out == NONE {
                    continue;
                }
                let copy = base.link.copying(Self::bytes(base, sequence, moved), 0);
                let begins = lanes[0].max(clock).max(ready);
                lanes[0] = begins + if lanes[1] > begins { copy / base.link.both } else { copy };
                self.busy[0] += copy;
                self.left[*at as usize] = lanes[0];
                let by = &mut wait[moved.gone as usize];
                *by = by.max(lanes[0]);
            }
            // What has not left by now holds up who wants its memory.
            let now = clock.max(wait[place]);
            if let Some(behind) = &base.behind {
                for at in &self.sinking[place] {
                    let moved = &self.moves[*at as usize];
                    let Some(deep) = moved.deep.filter(|deep| deep.on && moved.on) else { continue };
                    let copy = behind.link.copying(Self::bytes(base, sequence, moved), 0);
                    let begins = lanes[2].max(clock).max(self.left[*at as usize]);
                    lanes[2] = begins + if lanes[3] > begins { copy / behind.link.both } else { copy };
                    self.busy[2] += copy;
                    sunk[*at as usize] = lanes[2];
                    let by = &mut room[deep.sunk as usize];
                    *by = by.max(lanes[2]);
                }
                ready = ready.max(room[place]);
                for at in &self.rising[place] {
                    let moved = &self.moves[*at as usize];
                    let risen = moved.deep.filter(|deep| deep.on && moved.on && deep.rises == place as u32);
                    if risen.is_none() {
                        continue;
                    }
                    let copy = behind.link.copying(Self::bytes(base, sequence, moved), 1);
                    let begins = lanes[3].max(now).max(ready).max(sunk[*at as usize]);
                    lanes[3] = begins + if lanes[2] > begins { copy / behind.link.both } else { copy };
                    self.busy[3] += copy;
                    // From here on it is where it comes from.
                    sunk[*at as usize] = lanes[3];
                }
            }
            for index in 0..self.coming[place].len() {
                let at = self.coming[place][index];
                let moved = &self.moves[at as usize];
                if !moved.on || moved.comes != place as u32 {
                    continue;
                }
                let copy = base.link.copying(Self::bytes(base, sequence, moved), 1);
                let there = if base.behind.is_some() { sunk[at as usize] } else { 0.0 };
                let begins = lanes[1].max(now).max(self.left[at as usize]).max(there);
                lanes[1] = begins + if lanes[0] > begins { copy / base.link.both } else { copy };
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
