//! Inserting nodes in batches: every node of a batch searches the graph as it was before the batch, then all links are made.
//!
//! So threads never wait for one another and the graph does not depend on how many there are; one after the other, as the
//! paper inserts, is the same with batches of one. Batches grow with the graph (a sixty-fourth of it), and a node is linked
//! to nobody of its own batch, which an order at random makes harmless (ParlayANN, PPoPP 2024, builds in the like way).

use crate::graph::{Graph, TOP};
use crate::parallel;
use crate::rows::Rows;
use crate::search::{Scratch, View};

/// A batch is this part of the graph.
const PART: usize = 64;

/// The links that a node found for itself, by level, with keys.
type Found = Vec<Vec<(u32, u32)>>;

/// What is told while nodes are inserted.
pub(crate) struct Notes<'a> {
    /// After every batch, how many are done.
    pub(crate) tick: &'a mut dyn FnMut(usize),
    /// Nodes that somebody no longer has a link to on level 0, where anybody wants to know.
    pub(crate) dropped: Option<Vec<u32>>,
}

/// Inserts nodes whose rows are set, in this order.
pub(crate) fn insert(
    rows: &Rows,
    graph: &mut Graph,
    nodes: &[(u32, usize)],
    width: usize,
    unwanted: &(dyn Fn(u32) -> bool + Sync),
    scratches: &mut [Scratch],
    notes: &mut Notes<'_>,
) {
    let mut done = 0;
    let mut present = if graph.entry().is_some() { graph.nodes() - nodes.len() } else { 0 };
    while done < nodes.len() {
        let size = (present / PART).max(1).min(nodes.len() - done);
        let batch = &nodes[done..done + size];
        let view = View { rows, graph };
        let found =
            parallel::each(scratches, size, |scratch, at| plan(view, batch[at], width, unwanted, scratch));
        for ((node, level), lists) in batch.iter().zip(&found) {
            graph.raise(*node, *level);
            for (level, list) in lists.iter().enumerate() {
                let links: Vec<u32> = list.iter().map(|(_, link)| *link).collect();
                graph.set(*node, level, &links);
            }
        }
        answer(rows, graph, (batch, &found), scratches, &mut notes.dropped);
        for (node, level) in batch {
            if graph.entry().is_none_or(|entry| *level > graph.level(entry)) {
                graph.set_entry(Some(*node));
            }
        }
        done += size;
        present += size;
        (notes.tick)(done);
    }
}

/// Finds the links of one node.
fn plan(
    view: View<'_>,
    (node, level): (u32, usize),
    width: usize,
    unwanted: &dyn Fn(u32) -> bool,
    scratch: &mut Scratch,
) -> Found {
    let mut lists = vec![Vec::new(); level + 1];
    let Some(entry) = view.graph.entry() else { return lists };
    let top = view.graph.level(entry);
    let query = view.rows.get(node);
    let mut entries = vec![view.descend(query, entry, (top, level + 1), scratch)];
    for level in (0..=level.min(top)).rev() {
        view.beam(query, &entries, (level, width), scratch);
        entries.clear();
        entries.extend(scratch.beam.found());
        let linked: Vec<(u32, u32)> =
            entries.iter().copied().filter(|(_, other)| *other != node && !unwanted(*other)).collect();
        lists[level] = select(view.rows, &linked, view.graph.m());
    }
    lists
}

/// Links back: whoever was chosen gets a link to the one who chose.
fn answer(
    rows: &Rows,
    graph: &mut Graph,
    (batch, found): (&[(u32, usize)], &[Found]),
    scratches: &mut [Scratch],
    dropped: &mut Option<Vec<u32>>,
) {
    let mut back = Vec::new();
    for ((node, _), lists) in batch.iter().zip(found) {
        for (level, list) in lists.iter().enumerate() {
            back.extend(list.iter().map(|(key, link)| (level, *link, *key, *node)));
        }
    }
    back.sort_unstable();
    let groups: Vec<&[(usize, u32, u32, u32)]> = back.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).collect();
    let before = &*graph;
    let lists = parallel::each(scratches, groups.len(), |_, at| {
        let group = groups[at];
        let (level, node) = (group[0].0, group[0].1);
        let links = before.links(node, level);
        let new = group.iter().filter(|(_, _, _, other)| !links.contains(other));
        if links.len() + group.len() <= before.cap(level) {
            return links.iter().copied().chain(new.map(|(_, _, _, other)| *other)).collect();
        }
        let mut all = with_keys(rows, node, links);
        all.extend(new.map(|(_, _, key, other)| (*key, *other)));
        all.sort_unstable();
        select(rows, &all, before.cap(level)).into_iter().map(|(_, other)| other).collect::<Vec<u32>>()
    });
    for (group, list) in groups.iter().zip(&lists) {
        if let (Some(dropped), 0) = (&mut *dropped, group[0].0) {
            dropped.extend(graph.links(group[0].1, 0).iter().filter(|link| !list.contains(link)));
        }
        graph.set(group[0].1, group[0].0, list);
    }
}

/// Nodes with the keys of their distances to another.
pub(crate) fn with_keys(rows: &Rows, node: u32, others: &[u32]) -> Vec<(u32, u32)> {
    let mut keys = vec![0; others.len()];
    rows.distance().many(rows.get(node), rows, others, &mut keys);
    keys.into_iter().zip(others.iter().copied()).collect()
}

/// At most so many of these, nearest first: those that are nearer to the node than to any that is chosen already, so that
/// links lead into all directions (Algorithm 4 of the HNSW paper).
pub(crate) fn select(rows: &Rows, sorted: &[(u32, u32)], most: usize) -> Vec<(u32, u32)> {
    if sorted.len() < most {
        return sorted.to_vec();
    }
    let distance = rows.distance();
    let mut chosen: Vec<(u32, u32)> = Vec::with_capacity(most);
    for candidate in sorted {
        let row = rows.get(candidate.1);
        if chosen.iter().all(|(_, other)| distance.one(row, rows.get(*other)) >= candidate.0) {
            chosen.push(*candidate);
            if chosen.len() == most {
                break;
            }
        }
    }
    chosen
}

/// The level of the node with this number in order of arrival: each is reached by one in `m` of those below.
pub(crate) fn level(seed: u64, number: u64, m: usize) -> usize {
    let chance = (mix(seed, number) >> 11) as f64 / (1u64 << 53) as f64;
    let level = -(1.0 - chance).ln() / (m.max(2) as f64).ln();
    (level as usize).min(TOP)
}

/// A number at random for another.
pub(crate) fn mix(seed: u64, number: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd134_2543_de82_ef95);
    for _ in 0..2 {
        x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    x ^ (x >> 32)
}
