//! Taking dead nodes out of a graph: whoever was linked to one gets links to the dead one's own links instead.
//!
//! A removed vector is found no more from the moment of its removal; its node stays in the way of searches until a tenth of
//! all are dead, and then all of them go at once (FreshDiskANN, 2021, section 4.2, consolidates in the like way). Their rows
//! and links are free for others afterwards. Nodes that nothing leads to any more are inserted anew.

use crate::graph::{Graph, NONE};
use crate::insert::{select, with_keys};
use crate::parallel;
use crate::rows::Rows;
use crate::search::Scratch;

/// Takes nodes out and tells which of the others nothing leads to any more.
pub(crate) fn remove(
    rows: &Rows,
    graph: &mut Graph,
    nodes: &[u32],
    there: &(dyn Fn(u32) -> bool + Sync),
    scratches: &mut [Scratch],
) -> Vec<u32> {
    let mut dead = vec![false; graph.nodes()];
    nodes.iter().for_each(|node| dead[*node as usize] = true);
    let before = &*graph;
    let mended: Vec<Vec<(usize, Vec<u32>)>> = parallel::each(scratches, before.nodes(), |_, at| {
        let node = at as u32;
        let levels = 0..=if dead[at] || !there(node) { return Vec::new() } else { before.level(node) };
        let mended = levels.filter_map(|level| Some((level, mend(rows, before, node, level, &dead)?)));
        mended.collect()
    });
    for (node, lists) in mended.iter().enumerate() {
        for (level, list) in lists {
            graph.set(node as u32, *level, list);
        }
    }
    for node in nodes {
        graph.raise(*node, 0);
        graph.set(*node, 0, &[]);
    }
    if graph.entry().is_none_or(|entry| dead[entry as usize]) {
        let left = (0..graph.nodes() as u32).filter(|node| there(*node) && !dead[*node as usize]);
        let highest = left.max_by_key(|node| (graph.level(*node), std::cmp::Reverse(*node)));
        graph.set_entry(highest);
    }
    unreached(graph, there)
}

/// The links of a node without dead ones, if it has any.
fn mend(rows: &Rows, graph: &Graph, node: u32, level: usize, dead: &[bool]) -> Option<Vec<u32>> {
    let links = graph.links(node, level);
    if !links.iter().any(|link| dead[*link as usize]) {
        return None;
    }
    let mut others = Vec::new();
    for link in links {
        match dead[*link as usize] {
            false => others.push(*link),
            true => others.extend_from_slice(graph.links(*link, level)),
        }
    }
    others.sort_unstable();
    others.dedup();
    others.retain(|other| *other != node && !dead[*other as usize]);
    let mut sorted = with_keys(rows, node, &others);
    sorted.sort_unstable();
    Some(select(rows, &sorted, graph.cap(level)).into_iter().map(|(_, other)| other).collect())
}

/// Nodes that no way on level 0 leads to from where searches begin there.
pub(crate) fn unreached(graph: &Graph, there: &(dyn Fn(u32) -> bool + Sync)) -> Vec<u32> {
    let Some(entry) = graph.entry() else { return Vec::new() };
    let mut reached = vec![false; graph.nodes()];
    reached[entry as usize] = true;
    let mut left = vec![entry];
    while let Some(node) = left.pop() {
        for link in graph.ground(node) {
            if *link == NONE {
                break;
            }
            if !std::mem::replace(&mut reached[*link as usize], true) {
                left.push(*link);
            }
        }
    }
    (0..graph.nodes() as u32).filter(|node| there(*node) && !reached[*node as usize]).collect()
}

/// Makes a link to every one of these nodes from the nearest that has a place to spare, or instead of its farthest.
pub(crate) fn lead_to(rows: &Rows, graph: &mut Graph, nodes: &[u32]) {
    for node in nodes {
        let links = graph.links(*node, 0).to_vec();
        let mut near = with_keys(rows, *node, &links);
        near.sort_unstable();
        let spare = near.iter().find(|(_, other)| graph.links(*other, 0).len() < graph.cap(0));
        let Some((_, other)) = spare.or(near.first()).copied() else { continue };
        let mut list = graph.links(other, 0).to_vec();
        if list.contains(node) {
            continue;
        }
        if list.len() == graph.cap(0) {
            list.pop();
        }
        list.push(*node);
        graph.set(other, 0, &list);
    }
}
