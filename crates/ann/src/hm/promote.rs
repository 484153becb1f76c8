//! Algorithm 1: nodes in the order of their degrees on level 0 fill the upper levels, the highest level first.

use crate::element::Matrix;
use crate::error::AnnError;
use crate::graph::Graph;
use crate::hm::memory::promoted_bytes;
use crate::index::{Index, NOBODY};
use crate::insert;
use crate::rows::Rows;
use crate::search::Scratch;

/// Which nodes are promoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Those with the most links on level 0, to and from.
    Degree,
    /// Some.
    Random,
}

/// The levels from 1 up: a world of its own, whose ground is level 1.
pub(crate) struct Upper {
    /// The vectors of promoted nodes, in the order of promotion.
    pub(crate) rows: Rows,
    /// Their links, 2M on level 1.
    pub(crate) graph: Graph,
    /// The node of each.
    pub(crate) nodes: Vec<u32>,
    /// Which of them a node is; none for most.
    pub(crate) place: Vec<u32>,
}

/// The degree of every node: links from it and to it.
pub(crate) fn degrees(graph: &Graph) -> Vec<u32> {
    let mut degrees = vec![0; graph.nodes()];
    for node in 0..graph.nodes() as u32 {
        for link in graph.links(node, 0) {
            degrees[node as usize] += 1;
            // A link both ways is one link.
            if !graph.links(*link, 0).contains(&node) {
                degrees[*link as usize] += 1;
            }
        }
    }
    degrees
}

/// How many nodes level 1 may have with so much fast memory: section 3.3.4, solved for N1.
pub(crate) fn allowed(index: &Index, bytes: u64) -> usize {
    ((bytes as f64 / promoted_bytes(&index.spec)) as usize).min(index.len())
}

/// Builds the levels from 1 up out of so many nodes.
pub(crate) fn promote(index: &Index, count: usize, order: Order, threads: usize) -> Result<Upper, AnnError> {
    let alive = |node: &u32| index.labels[*node as usize] != NOBODY;
    let mut all: Vec<u32> = (0..index.graph.nodes() as u32).filter(alive).collect();
    match order {
        Order::Degree => {
            let degrees = degrees(&index.graph);
            all.sort_by_key(|node| (std::cmp::Reverse(degrees[*node as usize]), *node));
        }
        Order::Random => {
            all.sort_by_key(|node| (insert::mix(index.spec.seed ^ 0x9e1, u64::from(*node)), *node))
        }
    }
    all.truncate(count.max(1));
    let mut rows = Rows::new(index.spec.intake());
    let mut graph = Graph::new(index.spec.m);
    rows.resize(all.len())
        .and_then(|()| graph.resize(all.len()))
        .map_err(AnnError::memory(all.len() * rows.stride()))?;
    let kept = rows.kept();
    for (at, node) in all.iter().enumerate() {
        rows.set_kept(at as u32, &index.rows.get(*node).0[..kept]);
    }
    let planned = levels(all.len(), index.spec.m);
    let nodes: Vec<(u32, usize)> =
        planned.into_iter().enumerate().map(|(at, level)| (at as u32, level)).collect();
    let mut scratches: Vec<Scratch> = (0..threads.max(1)).map(|_| Scratch::default()).collect();
    let width = index.spec.ef_construction.max(index.spec.m);
    let mut notes = insert::Notes { tick: &mut |_| {}, dropped: None };
    insert::insert(&rows, &mut graph, &nodes, width, &|_| false, &mut scratches, &mut notes);
    let mut place = vec![u32::MAX; index.graph.nodes()];
    all.iter().enumerate().for_each(|(at, node)| place[*node as usize] = at as u32);
    Ok(Upper { rows, graph, nodes: all, place })
}

/// How far above level 1 each node is in the order of promotion: the first fill the highest level, and every level has one in M
/// of those on the level below.
fn levels(count: usize, m: usize) -> Vec<usize> {
    let mut sizes = vec![count];
    while sizes[sizes.len() - 1] > m {
        sizes.push(sizes[sizes.len() - 1] / m);
    }
    (0..count).map(|at| sizes.iter().rposition(|size| at < *size).unwrap_or(0)).collect()
}

impl AnnError {
    /// The system has not so much memory.
    pub(crate) fn memory(wanted: usize) -> impl FnOnce(std::io::Error) -> AnnError {
        move |_| AnnError::FastMemory {
            what: "promoted vectors",
            wanted: tiercel_core::Bytes(wanted as u64),
            there: tiercel_core::Bytes::ZERO,
        }
    }
}

/// Vectors of a matrix as the rows of an index would be, for a check of shapes.
pub(crate) fn fits(index: &Index, queries: &Matrix<'_>) -> Result<(), AnnError> {
    if queries.dim() == index.spec.dim {
        return Ok(());
    }
    Err(AnnError::Dimension { wanted: index.spec.dim, found: queries.dim() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_shrink_by_m_and_the_first_are_on_top() {
        let levels = levels(1000, 10);
        let on = |level: usize| levels.iter().filter(|l| **l >= level).count();
        assert_eq!((on(0), on(1), on(2), on(3)), (1000, 100, 10, 0));
        assert!(levels.windows(2).all(|pair| pair[0] >= pair[1]));
    }

    #[test]
    fn degrees_count_links_of_both_ways_once() {
        let mut graph = Graph::new(2);
        graph.resize(4).unwrap();
        graph.set(0, 0, &[1, 2]);
        graph.set(1, 0, &[0]);
        graph.set(3, 0, &[2]);
        assert_eq!(degrees(&graph), [2, 1, 2, 1]);
    }
}
