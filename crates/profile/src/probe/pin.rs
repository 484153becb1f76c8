//! Keeps the threads that measure on one NUMA node, so that near memory is near for all of them.

use tiercel_run::cores::Cores;
use tiercel_run::host::supply;

/// This thread, and those that it starts, on the cores of one node until this is dropped.
pub(super) struct Pinned {
    /// The cores that the thread might use before.
    before: Option<Cores>,
    node: Option<u32>,
    cores: u32,
}

impl Pinned {
    /// Pins to the first of these nodes whose cores this thread may use; to none where there is no choice.
    pub(super) fn to_node(nodes: &[u32]) -> Pinned {
        let all = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let free = Pinned { before: None, node: nodes.first().copied(), cores: all };
        let Some(before) = Cores::allowed().filter(|_| nodes.len() > 1) else { return free };
        for &node in nodes {
            let ours = supply::cores(node).into_iter().filter(|core| before.holds(*core));
            let set = ours.fold(Cores::none(), Cores::with);
            if set.count() > 0 && set.keep_here() {
                return Pinned { before: Some(before), node: Some(node), cores: set.count() as u32 };
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
            before.keep_here();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_cores_back() {
        let count = || Cores::allowed().expect("the system tells").count();
        let before = count();
        // Twice the same node: a choice, as far as the code can tell.
        let pinned = Pinned::to_node(&[0, 0]);
        assert!(pinned.cores() >= 1 && count() <= before);
        drop(pinned);
        assert_eq!(count(), before);
    }
}
