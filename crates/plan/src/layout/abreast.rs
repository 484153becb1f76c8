//! Searches that run side by side, each on a thread of its own.

use std::panic::resume_unwind;

/// Does every job at once, and returns the results in order. A panic in one goes on in the caller.
pub(super) fn abreast<J: Send, R: Send>(
    jobs: impl ExactSizeIterator<Item = J>,
    work: impl Fn(J) -> R + Sync,
) -> Vec<R> {
    if jobs.len() == 1 {
        return jobs.map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = jobs.map(|job| scope.spawn(move || work(job))).collect();
        running.into_iter().map(|run| run.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}
