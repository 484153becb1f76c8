//! The two ends that every plan lies between, and how time goes with fast memory from one to the other.

use tiercel_core::{Machine, Nanos};
use tiercel_systems::curve::least_fast;
use tiercel_systems::{Fast, Options, Run, Setting, System, WarmStarts, named, simulate};

use crate::{Session, SessionError};

/// Iterations that are simulated to see how a plan does; the first after the warm-up is like all others.
const ITERATIONS: u32 = 1;

/// An iteration with all memory fast, and one with all of it slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// With all memory fast.
    pub fast_only: Nanos,
    /// With all of it slow; `None` where kernels cannot work there.
    pub slow_only: Option<Nanos>,
}

impl Ends {
    /// How many times longer an iteration of this run takes than with all memory fast.
    pub fn slowdown(&self, run: &Run) -> f64 {
        run.time().0 as f64 / self.fast_only.0.max(1) as f64
    }
}

impl Session {
    /// The ends for this workload on this machine.
    pub fn ends(&self, options: Options) -> Result<Ends, SessionError> {
        let play = |name: &str| -> Result<Nanos, SessionError> {
            let setting = self.setting(self.machine(), options);
            Ok(simulate(named(name)?, &setting, ITERATIONS)?.time())
        };
        Ok(Ends { fast_only: play("fast-only")?, slow_only: play("slow-only").ok() })
    }

    /// A system with several amounts of fast memory, in the order in which they are given. With more memory a plan is never
    /// worse: each begins with those for less.
    pub fn sweep(&self, system: &System, options: Options, fast: &[Fast]) -> Result<Vec<Run>, SessionError> {
        let steps = self.watch().begin("planning", Some(fast.len()).filter(|amounts| *amounts > 1));
        let machines =
            fast.iter().map(|fast| self.with_fast(*fast)).collect::<Result<Vec<Machine>, SessionError>>()?;
        let mut points: Vec<(usize, Machine)> = machines.into_iter().enumerate().collect();
        points.sort_by_key(|(_, machine)| machine.tiers[0].capacity);
        let warm_starts = WarmStarts::default();
        let mut runs: Vec<(usize, Run)> = Vec::new();
        for (at, machine) in points {
            let setting = Setting { warm_starts: Some(&warm_starts), ..self.setting(&machine, options) };
            let run = simulate(system, &setting, ITERATIONS);
            steps.tick();
            runs.push((at, run.map_err(|error| SessionError::With { fast: fast[at], error })?));
        }
        runs.sort_by_key(|(at, _)| *at);
        Ok(runs.into_iter().map(|(_, run)| run).collect())
    }

    /// The least fast memory with which an iteration takes no longer than this share beyond all memory fast.
    pub fn least_fast(
        &self,
        system: &System,
        options: Options,
        ends: &Ends,
        within: f64,
    ) -> Result<Run, SessionError> {
        let steps = self.watch().begin("searching", Some(8));
        let setting = self.setting(self.machine(), options);
        let found = least_fast(system, &setting, ends.fast_only, within, ITERATIONS, || steps.tick())?;
        let machine = self.machine();
        found.ok_or_else(|| SessionError::NeverWithin {
            system: system.name,
            within: percent(within),
            fast_only: ends.fast_only,
            most: Fast::Share(1.25).bytes(self.peak(), machine.grain()).min(machine.tiers[0].capacity),
        })
    }
}

/// `0.055` as `5.5 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", (share * 1e6).round() / 1e4)
}
