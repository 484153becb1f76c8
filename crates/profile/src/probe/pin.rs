//! Keeps the threads that measure on one NUMA node, so that near memory is near for all of them.

use std::mem;

use tiercel_run::host::supply;

/// This thread, and those that it starts, on the cores of one node until this is dropped.
pub(super) struct Pinned {
    /// The cores that the thread might use before.
    before: Option<libc::cpu_set_t>,
    node: Option<u32>,
    cores: u32,
}

impl Pinned {
    /// Pins to the first of these nodes whose cores this thread may use; to none where there is no choice.
    pub(super) fn to_node(nodes: &[u32]) -> Pinned {
        let all = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let free = Pinned { before: None, node: nodes.first().copied(), cores: all };
        let Some(before) = allowed().filter(|_| nodes.len() > 1) else { return free };
        for &node in nodes {
            // SAFETY: an empty set is all zeros.
            let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
            let mut count = 0;
            for core in supply::cores(node).into_iter().filter(|core| *core < libc::CPU_SETSIZE as u32) {
                // SAFETY: the core's number is below the size of both sets.
                unsafe {
                    if libc::CPU_ISSET(core as usize, &before) {
                        libc::CPU_SET(core as usize, &mut set);
                        count += 1;
                    }
                }
            }
            if count > 0 && set_allowed(&set) {
                return Pinned { before: Some(before), node: Some(node), cores: count };
            }
        }
        free
    }

    /// The node.
    pub(super) fn node(&self) -> Option<u32> {
        self.node
    }

    /// How many cores there are to use.
    pub(super) fn cores(&self) -> u32 {
        self.cores
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            set_allowed(before);
        }
    }
}

/// The cores that this thread may use.
fn allowed() -> Option<libc::cpu_set_t> {
    // SAFETY: an empty set is all zeros.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set is ours to write, and its size is what we say.
    let found = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    (found == 0).then_some(set)
}

fn set_allowed(set: &libc::cpu_set_t) -> bool {
    // SAFETY: the set is readable, and its size is what we say.
    unsafe { libc::sched_setaffinity(0, mem::size_of_val(set), set) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_cores_back() {
        let count = |set: Option<libc::cpu_set_t>| {
            let set = set.expect("the system tells");
            // SAFETY: the core's number is below the size of the set.
            (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).count()
        };
        let before = count(allowed());
        // Twice the same node: a choice, as far as the code can tell.
        let pinned = Pinned::to_node(&[0, 0]);
        assert!(pinned.cores() >= 1 && count(allowed()) <= before);
        drop(pinned);
        assert_eq!(count(allowed()), before);
    }
}
