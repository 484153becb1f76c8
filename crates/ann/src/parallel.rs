//! Work over threads whose outcome does not depend on how many there are.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many items a thread takes at a time.
const SHARE: usize = 8;

/// What `work` makes of each number below `items`, in their order. Every thread has one of the `tools`; there are as many
/// threads as tools, or fewer where there is little to do.
pub(crate) fn each<T: Send, R: Send>(
    tools: &mut [T],
    items: usize,
    work: impl Fn(&mut T, usize) -> R + Sync,
) -> Vec<R> {
    let threads = tools.len().min(items.div_ceil(SHARE));
    if threads <= 1 {
        let tool = &mut tools[0];
        return (0..items).map(|item| work(tool, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let (next, work) = (&next, &work);
    let mut parts: Vec<(usize, Vec<R>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = tools[..threads]
            .iter_mut()
            .map(|tool| {
                scope.spawn(move || {
                    let mut done = Vec::new();
                    loop {
                        let start = next.fetch_add(SHARE, Ordering::Relaxed);
                        if start >= items {
                            return done;
                        }
                        let share = start..(start + SHARE).min(items);
                        done.push((start, share.map(|item| work(tool, item)).collect()));
                    }
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    });
    parts.sort_unstable_by_key(|(start, _)| *start);
    parts.into_iter().flat_map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_depend_on_threads() {
        for items in [0, 1, 7, 8, 9, 1000] {
            for threads in [1, 2, 5] {
                let mut tools = vec![0usize; threads];
                let found = each(&mut tools, items, |tool, item| {
                    *tool += 1;
                    item * 3
                });
                assert!(found.iter().copied().eq((0..items).map(|item| item * 3)));
                assert_eq!(tools.iter().sum::<usize>(), items);
            }
        }
    }
}
