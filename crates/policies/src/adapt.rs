//! What a run teaches of its plan: moves that kernels had to wait for begin earlier the next time.
//!
//! A plan is made for the speeds that were probed and the times that were measured. Where a link turns out slower, or others
//! use it, too, bytes come late, iteration after iteration. Every so often the moves that came late are begun as much
//! earlier as they were late, as far as their places are free (`tiercel_plan::leeway`); if the next iterations are shorter
//! it stays so and goes on, if not it is taken back. Then nothing changes until iterations begin to take other times than
//! they did. Only the time of moves is ever at stake: results are the same bits.

use std::collections::HashMap;

use tiercel_core::Nanos;

/// Iterations that are looked at before something is changed, and after.
const LOOKS: usize = 3;

/// What a change has to bring to be kept, as a share of the time.
const GAIN: f64 = 0.005;

/// What has to be waited for a change to be worth while, as a share of the time.
const WORTH: f64 = 0.01;

/// Iterations that differ this much from what they took are a change of the world.
const CHANGED: f64 = 0.1;

/// A move begins earlier by more than it was late: what makes one late is seldom the same twice.
const MARGIN: f64 = 1.25;

/// What is known of how well the plan's moves keep their times.
#[derive(Clone, Debug)]
pub(crate) struct Adaptation {
    /// When each move begins, and when it could at the earliest, as boundaries.
    starts: Vec<u32>,
    earliest: Vec<u32>,
    /// When this iteration reached each boundary.
    reached: Vec<Nanos>,
    /// How long kernels of this iteration waited for each move.
    waited: HashMap<usize, Nanos>,
    /// What the iterations since the last change took.
    times: Vec<Nanos>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The first iteration finds everything cold.
    Begin,
    /// What iterations take is being found out.
    Look,
    /// A change is being tried: how moves began before, and what iterations took.
    Try(Vec<u32>, Nanos),
    /// All is well, or cannot be helped: what iterations take, and how many in a row did not.
    Rest(Nanos, usize),
}

impl Adaptation {
    /// Nothing is known yet of a plan with so many boundaries whose moves begin, and could begin, at these.
    pub(crate) fn new(starts: Vec<u32>, earliest: Vec<u32>, boundaries: usize) -> Adaptation {
        let reached = vec![Nanos::ZERO; boundaries];
        Adaptation {
            starts,
            earliest,
            reached,
            waited: HashMap::new(),
            times: Vec::new(),
            phase: Phase::Begin,
        }
    }

    /// When each move begins.
    pub(crate) fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// An iteration has come to a boundary.
    pub(crate) fn reach(&mut self, boundary: usize, now: Nanos) {
        if let Some(when) = self.reached.get_mut(boundary) {
            *when = now;
        }
    }

    /// A kernel has waited for this move, among others.
    pub(crate) fn late(&mut self, index: usize, wait: Nanos) {
        if wait > Nanos::ZERO {
            let known = self.waited.entry(index).or_default();
            *known = (*known).max(wait);
        }
    }

    /// An iteration has ended; says whether moves begin at other boundaries from now on.
    pub(crate) fn end(&mut self, now: Nanos) -> bool {
        let took = now.saturating_sub(self.reached[0]);
        self.times.push(took);
        let waited = std::mem::take(&mut self.waited);
        let least = self.times.iter().min().copied().unwrap_or(took);
        let enough = self.times.len() >= LOOKS;
        match &mut self.phase {
            Phase::Begin => self.turn(Phase::Look),
            Phase::Look | Phase::Try(..) if !enough => false,
            Phase::Look => self.advance(&waited, least),
            Phase::Try(_, before) if least.0 as f64 <= before.0 as f64 * (1.0 - GAIN) => {
                self.advance(&waited, least)
            }
            Phase::Try(starts, before) => {
                let before = *before;
                self.starts = std::mem::take(starts);
                self.turn(Phase::Rest(before, 0));
                true
            }
            Phase::Rest(usual, others) => {
                let share = took.0 as f64 / usual.0.max(1) as f64;
                *others = if (share - 1.0).abs() > CHANGED { *others + 1 } else { 0 };
                let changed = *others >= LOOKS;
                self.times.clear();
                changed && self.turn(Phase::Look)
            }
        }
    }

    fn turn(&mut self, phase: Phase) -> bool {
        self.times.clear();
        self.phase = phase;
        false
    }

    /// Begins what was late earlier, if that is worth while and possible.
    fn advance(&mut self, waited: &HashMap<usize, Nanos>, time: Nanos) -> bool {
        let before = self.starts.clone();
        let total: u64 = waited.values().map(|wait| wait.0).sum();
        if total as f64 >= WORTH * time.0 as f64 {
            for (&index, wait) in waited {
                let (start, earliest) = (self.starts[index], self.earliest[index]);
                let lead = Nanos((wait.0 as f64 * MARGIN) as u64);
                let wanted = self.reached[start as usize].saturating_sub(lead);
                let soon = self.reached[..start as usize].partition_point(|when| *when <= wanted) as u32;
                self.starts[index] = soon.saturating_sub(1).max(earliest).min(start);
            }
        }
        if self.starts == before {
            return self.turn(Phase::Rest(time, 0));
        }
        self.turn(Phase::Try(before, time));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays an iteration of four kernels of 100 ns each; move 0 takes so long and is needed by the last.
    fn play(adaptation: &mut Adaptation, copy: u64, clock: &mut u64) -> bool {
        let mut arrives = 0;
        for boundary in 0..4 {
            adaptation.reach(boundary, Nanos(*clock));
            if adaptation.starts()[0] == boundary as u32 {
                arrives = *clock + copy;
            }
            if boundary == 3 {
                adaptation.late(0, Nanos(arrives.saturating_sub(*clock)));
                *clock = arrives.max(*clock);
            }
            *clock += 100;
        }
        adaptation.end(Nanos(*clock))
    }

    #[test]
    fn a_late_move_begins_earlier_and_stays_so_where_that_helps() {
        let (mut adaptation, mut clock) = (Adaptation::new(vec![2], vec![0], 5), 0);
        for _ in 0..20 {
            play(&mut adaptation, 180, &mut clock);
        }
        assert_eq!(adaptation.starts(), [1]);
        // The link becomes slower still.
        for _ in 0..20 {
            play(&mut adaptation, 290, &mut clock);
        }
        assert_eq!(adaptation.starts(), [0]);
    }

    #[test]
    fn nothing_changes_where_nothing_is_late_or_can_be_earlier() {
        for (copy, earliest) in [(90, 0), (180, 2)] {
            let (mut adaptation, mut clock) = (Adaptation::new(vec![2], vec![earliest], 5), 0);
            assert!((0..20).all(|_| !play(&mut adaptation, copy, &mut clock)));
            assert_eq!(adaptation.starts(), [2]);
        }
    }

    #[test]
    fn what_does_not_help_is_taken_back() {
        let (mut adaptation, mut clock) = (Adaptation::new(vec![2], vec![0], 5), 0);
        let mut tried = 0;
        for _ in 0..20 {
            // The copy takes longer the earlier it begins.
            let copy = 100 * (4 - u64::from(adaptation.starts()[0]));
            tried += u32::from(adaptation.starts()[0] != 2);
            play(&mut adaptation, copy, &mut clock);
        }
        assert!(tried > 0);
        assert_eq!(adaptation.starts(), [2]);
    }
}
