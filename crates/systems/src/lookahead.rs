//! How many kernels ahead a system should hear what comes: as many as serve it best.
//!
//! A system that fetches what a hint names can hear it long before, and have its copies beside more kernels; too long before,
//! and what it fetches pushes out what is wanted sooner. Where systems are held against each other, each is to be at its best.

use crate::{Options, Recording, Setting, System, SystemError, simulate_recorded};

/// The numbers of kernels that are tried.
const AHEAD: [usize; 6] = [0, 1, 2, 4, 8, 16];

/// The choices with the look-ahead with which the system is fastest in simulation: those given, where it takes no notice of it,
/// or a look-ahead was asked for.
pub fn with_best_lookahead(system: &System, setting: &Setting<'_>) -> Result<Options, SystemError> {
    let given = setting.options;
    if !system.hears_ahead || given.lookahead.is_some() {
        return Ok(given);
    }
    let mut best: Option<(u64, Options)> = None;
    for ahead in AHEAD {
        let options = Options { lookahead: Some(ahead), ..given };
        let run = simulate_recorded(system, &setting.with(options), 1, Recording::Off)?;
        let time = run.time().0;
        if best.is_none_or(|(least, _)| time < least) {
            best = Some((time, options));
        }
    }
    Ok(best.map_or(given, |(_, options)| options))
}
