//! From choices to the sequence of kernels that runs: what is dropped is made again just before its next use, from what is
//! there, and from what has to be made again for it.

use super::base::{Base, Choice, NONE};

/// One life of a tensor: from its birth to its last use, or from when it is made again.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) tensor: u32,
    /// Where in the sequence it is used.
    pub(crate) uses: Vec<u32>,
}

/// A stretch of time that a life spends on the slow tier, as far as it is known before links are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leave {
    pub(crate) life: u32,
    /// The boundary from which it may leave; `NONE` where it begins away.
    pub(crate) out: u32,
    /// The boundary at which it must be back; `NONE` where it ends away.
    pub(crate) back: u32,
    /// Whether it goes on to the tier behind the slow one.
    pub(crate) deep: bool,
}

/// The kernels that run, in order, and what lives when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    /// The kernel of the trace, and the step before which it runs again, or that it is.
    pub(crate) kernels: Vec<(u32, u32)>,
    pub(crate) lives: Vec<Life>,
    pub(crate) leaves: Vec<Leave>,
    /// For each step of the trace, where it is in the sequence.
    pub(crate) places: Vec<u32>,
    /// For each gap of a tensor that is dropped, the step before which it was made again.
    pub(crate) made: Vec<u32>,
    /// The nanoseconds of kernels that run again.
    pub(crate) again: f64,
    count: usize,
}

/// What has been made again and is wanted only later than this share of the iteration is dropped once more.
const SOON: f64 = 0.12;

/// Memory for unrolling, to be used again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unroller {
    /// The life that each tensor is in, and how often that was written; `NONE` where its bytes are not there.
    life: Vec<u32>,
    version: Vec<u32>,
    /// How many of its uses have been.
    at: Vec<u32>,
    /// The use in its life at which its last gap began, for gaps that are moves.
    since: Vec<(u32, u32)>,
    marks: Vec<u32>,
    chosen: Vec<u32>,
    mark: u32,
    set: Vec<u32>,
    began: Vec<f64>,
}

impl Sequence {
    fn clear(&mut self, base: &Base) {
        self.kernels.clear();
        self.leaves.clear();
        self.places.clear();
        self.made.clear();
        self.made.resize(base.gaps.len(), NONE);
        (self.again, self.count) = (0.0, 0);
    }

    fn live(&mut self, tensor: u32) -> u32 {
        if self.count == self.lives.len() {
            self.lives.push(Life { tensor, uses: Vec::new() });
        }
        let life = &mut self.lives[self.count];
        life.tensor = tensor;
        life.uses.clear();
        self.count += 1;
        self.count as u32 - 1
    }

    /// The lives.
    pub(crate) fn lives(&self) -> &[Life] {
        &self.lives[..self.count]
    }
}

impl Unroller {
    /// Unrolls; false where something could not be made again.
    pub(crate) fn unroll(&mut self, base: &Base, choices: &[Choice], sequence: &mut Sequence) -> bool {
        sequence.clear(base);
        let tensors = base.items.len();
        self.life.clear();
        self.life.resize(tensors, NONE);
        self.version.clear();
        self.version.resize(tensors, 0);
        self.at.clear();
        self.at.resize(tensors, 0);
        self.since.clear();
        self.since.resize(tensors, (NONE, 0));
        self.marks.resize(tensors, 0);
        self.chosen.resize(base.calls.len(), 0);
        if self.began.len() != base.calls.len() {
            self.began = base
                .calls
                .iter()
                .scan(0.0, |sum, call| {
                    *sum += call.time;
                    Some(*sum - call.time)
                })
                .collect();
        }
        for (at, item) in base.items.iter().enumerate().filter(|(_, item)| item.given) {
            self.life[at] = sequence.live(at as u32);
            let gap = *item.gaps.last().expect("one more than uses");
            if gap == NONE || item.uses.is_empty() {
                continue;
            }
            let choice = choices[gap as usize];
            let out = match choice {
                Choice::Keep | Choice::Again => continue,
                Choice::Move | Choice::Deep => 0,
                Choice::Away | Choice::DeepAway => NONE,
            };
            let (life, back, deep) = (self.life[at], item.uses[0], choice.is_deep());
            sequence.leaves.push(Leave { life, out, back, deep });
        }
        let given = sequence.leaves.len();
        for step in 0..base.calls.len() as u32 {
            if !self.step(base, choices, sequence, step) {
                return false;
            }
        }
        // The first leaves were written down by steps of the trace.
        for at in 0..given {
            let leave = sequence.leaves[at];
            let life = &sequence.lives[leave.life as usize];
            let (first, last) = (life.uses[0], life.uses[life.uses.len() - 1]);
            sequence.leaves[at].back = first;
            if leave.out == NONE {
                sequence.leaves.push(Leave { out: last + 1, back: NONE, ..leave });
            }
        }
        sequence.leaves.retain(|leave| leave.out != leave.back);
        true
    }

    fn step(&mut self, base: &Base, choices: &[Choice], sequence: &mut Sequence, step: u32) -> bool {
        let call = &base.calls[step as usize];
        let gone =
            |this: &Unroller, tensor: u32, version: u32| this.life[tensor as usize] == NONE && version > 0;
        if call.reads.iter().chain(&call.writes).any(|(t, v)| gone(self, *t, *v))
            && !self.remake(base, choices, sequence, step)
        {
            return false;
        }
        let place = sequence.kernels.len() as u32;
        sequence.places.push(place);
        sequence.kernels.push((step, step));
        for tensor in &call.touches {
            let at = *tensor as usize;
            let (item, used) = (&base.items[at], self.at[at] as usize);
            if self.life[at] == NONE {
                self.life[at] = sequence.live(*tensor);
            }
            let life = self.life[at];
            let uses = &mut sequence.lives[life as usize].uses;
            uses.push(place);
            let here = uses.len() as u32 - 1;
            let before = if used > 0 { item.gaps[used - 1] } else { NONE };
            if before != NONE && choices[before as usize].is_move() && self.since[at].0 == life {
                // Kernels that run again may have used it meanwhile: it leaves for the longest time in between.
                let stretch = &uses[self.since[at].1 as usize..];
                let longest = stretch.windows(2).max_by_key(|pair| pair[1] - pair[0]);
                if let Some(pair) = longest {
                    let deep = choices[before as usize].is_deep();
                    sequence.leaves.push(Leave { life, out: pair[0] + 1, back: pair[1], deep });
                }
            }
            self.since[at] = (life, here);
            self.at[at] += 1;
            let last = self.at[at] as usize == item.uses.len();
            let dropped =
                !last && item.gaps[used] != NONE && choices[item.gaps[used] as usize] == Choice::Again;
            if dropped || last && !item.persistent {
                self.life[at] = NONE;
            }
        }
        for (tensor, version) in &call.writes {
            self.version[*tensor as usize] = version + 1;
        }
        true
    }

    /// Runs again whatever it takes for a step.
    fn remake(&mut self, base: &Base, choices: &[Choice], sequence: &mut Sequence, step: u32) -> bool {
        self.mark += 1;
        self.set.clear();
        let call = &base.calls[step as usize];
        let mut stack: Vec<u32> = Vec::new();
        for (tensor, version) in call.reads.iter().chain(&call.writes) {
            if self.life[*tensor as usize] == NONE && *version > 0 {
                stack.push(*tensor);
            }
        }
        if !self.close(base, step, &mut stack) {
            return false;
        }
        self.set.sort_unstable();
        let set = std::mem::take(&mut self.set);
        for &kernel in &set {
            let call = &base.calls[kernel as usize];
            let place = sequence.kernels.len() as u32;
            sequence.kernels.push((kernel, step));
            sequence.again += call.time;
            for (tensor, version) in &call.reads {
                let at = *tensor as usize;
                if self.life[at] == NONE || !base.items[at].given && self.version[at] != *version {
                    return false;
                }
                sequence.lives[self.life[at] as usize].uses.push(place);
            }
            for (tensor, version) in &call.writes {
                let at = *tensor as usize;
                if *version == 0 {
                    self.life[at] = sequence.live(*tensor);
                    self.version[at] = 0;
                    let gap =
                        (self.at[at] as usize).checked_sub(1).map_or(NONE, |used| base.items[at].gaps[used]);
                    if gap != NONE {
                        sequence.made[gap as usize] = step;
                    }
                } else if self.life[at] == NONE || self.version[at] != *version {
                    return false;
                }
                self.version[at] += 1;
                sequence.lives[self.life[at] as usize].uses.push(place);
            }
        }
        // What nobody wants any more, or not soon, is not kept; everything else must be as it was.
        let total = base.floor * SOON;
        for &kernel in &set {
            for (tensor, _) in &base.calls[kernel as usize].writes {
                let at = *tensor as usize;
                let (item, used) = (&base.items[at], self.at[at] as usize);
                let Some(next) = item.uses.get(used).copied() else {
                    self.life[at] = NONE;
                    continue;
                };
                let gap = item.gaps[used - 1];
                let dropped = gap != NONE && choices[gap as usize] == Choice::Again;
                if dropped && next != step && self.began[next as usize] - self.began[step as usize] > total {
                    self.life[at] = NONE;
                    sequence.made[gap as usize] = NONE;
                    continue;
                }
                if self.life[at] != NONE && self.version[at] != base.version(*tensor, step) {
                    return false;
                }
            }
        }
        self.set = set;
        true
    }

    /// The kernels that have to run again so that some tensors are there.
    fn close(&mut self, base: &Base, step: u32, stack: &mut Vec<u32>) -> bool {
        let mark = self.mark;
        stack.iter().for_each(|t| self.marks[*t as usize] = mark);
        while let Some(tensor) = stack.pop() {
            for &writer in base.items[tensor as usize].writers.iter().take_while(|w| **w < step) {
                if std::mem::replace(&mut self.chosen[writer as usize], mark) == mark {
                    continue;
                }
                let call = &base.calls[writer as usize];
                if !call.again {
                    return false;
                }
                self.set.push(writer);
                for (operand, version) in &call.reads {
                    let at = *operand as usize;
                    if self.marks[at] == mark {
                        continue;
                    }
                    let there = self.life[at] != NONE;
                    if there && (base.items[at].given || base.version(*operand, step) == *version) {
                        // State that changes is what it was only before it changes.
                        if base.version(*operand, step) != *version {
                            return false;
                        }
                        continue;
                    }
                    if there || base.items[at].given {
                        return false;
                    }
                    self.marks[at] = mark;
                    stack.push(*operand);
                }
                for (other, version) in &call.writes {
                    let at = *other as usize;
                    if self.marks[at] == mark {
                        continue;
                    }
                    let alone = *version == 0 && base.version(*other, step) == 1;
                    if *version > 0 || self.life[at] != NONE && !alone {
                        if self.life[at] != NONE {
                            return false;
                        }
                        self.marks[at] = mark;
                        stack.push(*other);
                    }
                }
            }
        }
        true
    }

    /// What it takes to make a tensor again before a step, with choices as they are in a sequence that was unrolled from them:
    /// nanoseconds, or nothing where it cannot be.
    pub(crate) fn price(
        &mut self,
        base: &Base,
        choices: &[Choice],
        sequence: &Sequence,
        tensor: u32,
        step: u32,
    ) -> Option<f64> {
        self.mark += 1;
        let mark = self.mark;
        let mut stack = vec![tensor];
        self.marks[tensor as usize] = mark;
        let mut price = 0.0;
        while let Some(tensor) = stack.pop() {
            for &writer in base.items[tensor as usize].writers.iter().take_while(|w| **w < step) {
                if std::mem::replace(&mut self.chosen[writer as usize], mark) == mark {
                    continue;
                }
                let call = &base.calls[writer as usize];
                if !call.again {
                    return None;
                }
                price += call.time;
                for (operand, version) in &call.reads {
                    let (at, item) = (*operand as usize, &base.items[*operand as usize]);
                    if self.marks[at] == mark {
                        continue;
                    }
                    let used = item.uses.partition_point(|use_| *use_ < step);
                    let gap = used.checked_sub(1).map_or(NONE, |used| item.gaps[used]);
                    let dropped = gap != NONE
                        && choices[gap as usize] == Choice::Again
                        && sequence.made[gap as usize] > step;
                    let there = item.given || used < item.uses.len() && !dropped;
                    if there {
                        if base.version(*operand, step) != *version {
                            return None;
                        }
                        continue;
                    }
                    self.marks[at] = mark;
                    stack.push(*operand);
                }
                for (other, version) in call.writes.iter().filter(|(_, version)| *version > 0) {
                    let _ = version;
                    if std::mem::replace(&mut self.marks[*other as usize], mark) != mark {
                        stack.push(*other);
                    }
                }
            }
        }
        Some(price)
    }
}
