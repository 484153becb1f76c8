//! Work for several threads with a split that depends on nothing but their number.
//!
//! Results do not depend on it at all: every piece of work has memory of its own, and what pieces share is added up
//! afterwards, in one order.

/// Calls `work` for every item, on so many threads at most, each with a scratch of its own and a run of neighbouring items.
pub fn each<T: Send, S: Send>(scratch: &mut [S], items: &mut [T], work: impl Fn(&mut S, &mut T) + Sync) {
    let threads = scratch.len().min(items.len()).max(1);
    if threads == 1 {
        let Some(scratch) = scratch.first_mut() else { return };
        items.iter_mut().for_each(|item| work(scratch, item));
        return;
    }
    let total = items.len();
    std::thread::scope(|scope| {
        let mut left = items;
        for (index, scratch) in scratch.iter_mut().take(threads).enumerate() {
            let count = total * (index + 1) / threads - total * index / threads;
            let (mine, rest) = left.split_at_mut(count);
            left = rest;
            let work = &work;
            if index + 1 == threads {
                mine.iter_mut().for_each(|item| work(scratch, item));
            } else {
                scope.spawn(move || mine.iter_mut().for_each(|item| work(scratch, item)));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_worked_on_once() {
        for threads in 1..5 {
            for count in 0..10 {
                let mut items = vec![0; count];
                let mut scratch = vec![0; threads];
                each(&mut scratch, &mut items, |seen, item| {
                    *item += 1;
                    *seen += 1;
                });
                assert!(items.iter().all(|item| *item == 1));
                assert_eq!(scratch.iter().sum::<usize>(), count);
            }
        }
    }
}
