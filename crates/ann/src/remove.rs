//! Taking dead nodes out of a graph: whoever was linked to one gets links to the dead one's own links instead.
//!
//! A removed vector is found no more from the moment of its removal; its node stays in the way of searches until a tenth of
//! all are dead, and then all of them go at once (FreshDiskANN, 2021, section 4.2, consolidates in the like way). Their rows
//! and links are free for others afterwards. Nodes that nothing leads to any more are inserted anew.

use std::collections::HashSet;

use crate::graph::{Graph, NONE};
use crate::insert::{select, with_keys};
use crate::parallel;
use crate::rows::Rows;
use crate::search::{Scratch, View};

/// How many nodes are asked for a place to spare.
const SOME: usize = 4096;

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

/// Whether some node that this one is linked to, other than one of them, has a link back.
pub(crate) fn led(graph: &Graph, node: u32, except: u32) -> bool {
    let mut links = graph.links(node, 0).iter();
    links.any(|other| *other != except && graph.links(*other, 0).contains(&node))
}

/// Makes a link to every one of these nodes from the nearest node which a search finds and that has a place to spare; where none
/// has, instead of the farthest link that its end can do without. What no search finds is linked to from where searches begin.
pub(crate) fn lead_to(
    rows: &Rows,
    graph: &mut Graph,
    nodes: &[u32],
    width: usize,
    there: &(dyn Fn(u32) -> bool + Sync),
    scratch: &mut Scratch,
) {
    for node in nodes {
        let Some(entry) = graph.entry() else { return };
        let view = View { rows, graph };
        let first = view.descend(rows.get(*node), entry, (graph.level(entry), 1), scratch);
        view.beam(rows.get(*node), &[first], (0, width), scratch);
        let near: Vec<u32> =
            scratch.beam.found().map(|(_, other)| other).filter(|o| o != node && there(*o)).collect();
        if near.iter().any(|other| graph.links(*other, 0).contains(node)) {
            continue;
        }
        if let Some(other) = near.iter().find(|other| graph.links(**other, 0).len() < graph.cap(0)) {
            let list: Vec<u32> = graph.links(*other, 0).iter().copied().chain([*node]).collect();
            graph.set(*other, 0, &list);
            continue;
        }
        let instead = |other: &u32| {
            let mut list = with_keys(rows, *other, graph.links(*other, 0));
            list.sort_unstable();
            let spare = list.iter().rposition(|(_, link)| led(graph, *link, *other))?;
            list[spare].1 = *node;
            Some((*other, list.into_iter().map(|(_, link)| link).collect::<Vec<u32>>()))
        };
        if let Some((other, list)) = near.iter().find_map(instead) {
            graph.set(other, 0, &list);
        }
    }
}

/// Makes a link to every one of these nodes from the nearest of some that a way leads to and that have places to spare: nobody
/// loses a link, and so nobody else is cut off.
pub(crate) fn lead_from_some(
    rows: &Rows,
    graph: &mut Graph,
    nodes: &[u32],
    there: &(dyn Fn(u32) -> bool + Sync),
) {
    let spare = |graph: &Graph, node: u32| graph.links(node, 0).len() < graph.cap(0);
    let lost: HashSet<u32> = nodes.iter().copied().collect();
    let all = (0..graph.nodes() as u32).filter(|n| there(*n) && !lost.contains(n) && spare(graph, *n));
    let mut some: Vec<u32> = all.collect();
    let step = some.len().div_ceil(SOME).max(1);
    some = some.into_iter().step_by(step).collect();
    for node in nodes {
        some.retain(|other| spare(graph, *other));
        if let Some((_, other)) = with_keys(rows, *node, &some).into_iter().min() {
            let list: Vec<u32> = graph.links(other, 0).iter().copied().chain([*node]).collect();
            graph.set(other, 0, &list);
        }
        // From here on a way leads to this one, too.
        some.push(*node);
    }
}
