//! A network's structure as a matrix with its control flows (DyNN-Offload, section 6.4.1: the architecture feature matrix).
//!
//! The paper writes it down by hand. Here it is collected from what runs: a program says where it branches and which way
//! it goes ([`Event`]), and what many samples do is merged into one [`Structure`], arm by arm. A loop is a
//! branch inside the arm of a branch: as deep as samples have been seen to go.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::operator::{Nine, Operator};

/// What a program does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It runs an operator.
    Operator(Arc<Operator>),
    /// At this place of the program it goes this way.
    Branch {
        /// The place.
        site: u32,
        /// The way.
        arm: u16,
    },
    /// Both ways meet again.
    Join,
}

/// The ways that a sample goes, in the order in which it comes to them.
pub type Path = Vec<u16>;

/// The path of a sequence of events.
pub fn path_of(events: &[Event]) -> Path {
    let arm = |event: &Event| match event {
        Event::Branch { arm, .. } => Some(*arm),
        _ => None,
    };
    events.iter().filter_map(arm).collect()
}

/// A part of a program.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Operator(Arc<Operator>),
    Choice { site: u32, arms: BTreeMap<u16, Vec<Node>> },
}

/// A sequence does not fit what is known of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// It does something else at this event, and no branch says why.
    #[error("event {0} is not what the program did there before, and no branch is known there")]
    Another(usize),
    /// A branch does not end, or ends without a beginning.
    #[error("branches do not match at event {0}")]
    Unmatched(usize),
}

/// The structure of a program, as far as it has been seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structure {
    nodes: Vec<Node>,
    begun: bool,
}

impl Structure {
    /// Merges what one sample does into what is known. Sizes of operators may differ: those of the first sample are kept.
    pub fn add(&mut self, events: &[Event]) -> Result<(), Unlike> {
        let mut merged = self.nodes.clone();
        let end = merge(&mut merged, !self.begun, events, 0)?;
        if end != events.len() {
            return Err(Unlike::Unmatched(end));
        }
        self.nodes = merged;
        self.begun = true;
        Ok(())
    }

    /// The matrix: a row of nine numbers for each operator in the order of the program, all arms of a branch one after the
    /// other, and a row of zeros for each branch.
    pub fn matrix(&self) -> Vec<Nine> {
        fn walk(nodes: &[Node], rows: &mut Vec<Nine>) {
            for node in nodes {
                match node {
                    Node::Operator(operator) => rows.push(operator.nine()),
                    Node::Choice { arms, .. } => {
                        rows.push([0.0; 9]);
                        arms.values().for_each(|arm| walk(arm, rows));
                    }
                }
            }
        }
        let mut rows = Vec::new();
        walk(&self.nodes, &mut rows);
        rows
    }

    /// How many places there are at which the program branches.
    pub fn branches(&self) -> usize {
        self.matrix().iter().filter(|row| row.iter().all(|number| *number == 0.0)).count()
    }

    /// How many paths the arms that were seen allow for, up to a limit.
    pub fn paths(&self, limit: u64) -> u64 {
        fn count(nodes: &[Node], limit: u64) -> u64 {
            let ways = |node: &Node| match node {
                Node::Operator(_) => 1,
                Node::Choice { arms, .. } => {
                    arms.values().map(|arm| count(arm, limit)).sum::<u64>().min(limit)
                }
            };
            nodes.iter().map(ways).fold(1u64, |all, ways| all.saturating_mul(ways).min(limit))
        }
        count(&self.nodes, limit)
    }

    /// The operators that a path leads over; `None` where an arm has not been seen.
    pub fn resolve(&self, path: &[u16]) -> Option<Vec<Arc<Operator>>> {
        fn walk(
            nodes: &[Node],
            path: &mut std::slice::Iter<'_, u16>,
            out: &mut Vec<Arc<Operator>>,
        ) -> Option<()> {
            for node in nodes {
                match node {
                    Node::Operator(operator) => out.push(Arc::clone(operator)),
                    Node::Choice { arms, .. } => walk(arms.get(path.next()?)?, path, out)?,
                }
            }
            Some(())
        }
        let (mut rest, mut out) = (path.iter(), Vec::new());
        walk(&self.nodes, &mut rest, &mut out)?;
        rest.next().is_none().then_some(out)
    }

    /// The sites and arms that a path leads over: what the Jaccard distance of two samples is taken of (section 6.2.2).
    pub fn taken(&self, path: &[u16]) -> Vec<(u32, u16)> {
        fn walk(nodes: &[Node], path: &mut std::slice::Iter<'_, u16>, out: &mut Vec<(u32, u16)>) {
            for node in nodes {
                if let Node::Choice { site, arms } = node
                    && let Some(arm) = path.next()
                {
                    if *arm > 0 {
                        out.push((*site, *arm));
                    }
                    walk(arms.get(arm).map_or(&[], Vec::as_slice), path, out);
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.nodes, &mut path.iter(), &mut out);
        out
    }
}

/// One minus what two sets have in common of what they have together; 0 for two empty ones.
pub fn jaccard<T: Ord>(a: &[T], b: &[T]) -> f64 {
    let common = a.iter().filter(|x| b.contains(x)).count();
    let together = a.len() + b.len() - common;
    if together == 0 { 0.0 } else { 1.0 - common as f64 / together as f64 }
}

/// Merges events from `at` on into the nodes of one arm, up to the join that ends it; returns where that is.
fn merge(nodes: &mut Vec<Node>, fresh: bool, events: &[Event], mut at: usize) -> Result<usize, Unlike> {
    let mut next = 0;
    while at < events.len() {
        match &events[at] {
            Event::Join => break,
            Event::Operator(operator) => {
                match nodes.get(next) {
                    None if fresh => nodes.push(Node::Operator(Arc::clone(operator))),
                    Some(Node::Operator(known)) if known.name == operator.name => {}
                    _ => return Err(Unlike::Another(at)),
                }
                at += 1;
            }
            Event::Branch { site, arm } => {
                if nodes.len() == next && fresh {
                    nodes.push(Node::Choice { site: *site, arms: BTreeMap::new() });
                }
                let Some(Node::Choice { site: known, arms }) = nodes.get_mut(next) else {
                    return Err(Unlike::Another(at));
                };
                if known != site {
                    return Err(Unlike::Another(at));
                }
                let new = !arms.contains_key(arm);
                at = merge(arms.entry(*arm).or_default(), new, events, at + 1)?;
                if events.get(at) != Some(&Event::Join) {
                    return Err(Unlike::Unmatched(at));
                }
                at += 1;
            }
        }
        next += 1;
    }
    if next < nodes.len() { Err(Unlike::Another(at)) } else { Ok(at) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(name: &str) -> Event {
        Event::Operator(Arc::new(Operator::new(name, &[&[2, 3]], &[&[2, 3]])))
    }

    fn branch(site: u32, arm: u16) -> Event {
        Event::Branch { site, arm }
    }

    #[test]
    fn samples_make_one_structure() {
        let mut structure = Structure::default();
        let long = [op("mm"), branch(0, 1), op("relu"), branch(1, 0), Event::Join, Event::Join, op("sum")];
        let short = [op("mm"), branch(0, 0), Event::Join, op("sum")];
        structure.add(&short).expect("the first");
        structure.add(&long).expect("another arm");
        structure.add(&short).expect("again");
        let rows = structure.matrix();
        assert_eq!(rows.len(), 5);
        assert_eq!(structure.branches(), 2);
        assert_eq!(structure.paths(100), 2);
        let names = |path: &[u16]| {
            structure.resolve(path).map(|ops| ops.iter().map(|op| op.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(names(&[0]), Some(vec!["mm".to_string(), "sum".to_string()]));
        assert_eq!(names(&path_of(&long)).map(|names| names.len()), Some(3));
        assert_eq!(names(&[2]), None);
        assert_eq!(structure.taken(&[1, 0]), [(0, 1)]);
        let other = [op("mm"), op("tanh")];
        assert_eq!(structure.add(&other), Err(Unlike::Another(1)));
        assert_eq!(structure.add(&[op("mm"), branch(0, 0)]), Err(Unlike::Unmatched(2)));
    }

    #[test]
    fn distances_are_shares_of_what_differs() {
        assert_eq!(jaccard(&[1, 2], &[1, 2]), 0.0);
        assert_eq!(jaccard(&[1, 2], &[3]), 1.0);
        assert_eq!(jaccard(&[1, 2, 3], &[1]), 1.0 - 1.0 / 3.0);
        assert_eq!(jaccard::<u8>(&[], &[]), 0.0);
    }
}
