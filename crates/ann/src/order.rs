//! An order of rows in which those that are linked lie together, so that one read of a slow page brings several that the
//! same search wants (Starling, SIGMOD 2024, shuffles the blocks of a disk to that end), and so that links are near in caches.

use crate::graph::Graph;

/// Those of these nodes that are `there`, in groups of `page` that have the most links among them.
pub(crate) fn together(graph: &Graph, page: usize, there: impl Fn(u32) -> bool) -> Vec<u32> {
    let nodes = graph.nodes();
    let mut placed: Vec<bool> = (0..nodes as u32).map(|node| !there(node)).collect();
    let total = placed.iter().filter(|placed| !**placed).count();
    let mut order = Vec::with_capacity(total);
    // Nodes beside the group, with how many links lead to each from it.
    let mut beside: Vec<(u32, u32)> = Vec::new();
    let mut position = vec![u32::MAX; nodes];
    let mut next = 0;
    let mut seed = graph.entry();
    while order.len() < total {
        let from = seed.take().filter(|node| !placed[*node as usize]).unwrap_or_else(|| {
            while placed[next] {
                next += 1;
            }
            next as u32
        });
        let mut newest = from;
        for member in 0..page.max(1) {
            placed[newest as usize] = true;
            order.push(newest);
            for link in graph.links(newest, 0).iter().filter(|link| !placed[**link as usize]) {
                match position[*link as usize] {
                    u32::MAX => {
                        position[*link as usize] = beside.len() as u32;
                        beside.push((1, *link));
                    }
                    at => beside[at as usize].0 += 1,
                }
            }
            let nearest = |a: &&(u32, u32), b: &&(u32, u32)| a.0.cmp(&b.0).then(b.1.cmp(&a.1));
            let best = beside.iter().filter(|(_, node)| !placed[*node as usize]).max_by(nearest);
            match best {
                Some((_, node)) if member + 1 < page.max(1) => newest = *node,
                best => {
                    seed = best.map(|(_, node)| *node);
                    break;
                }
            }
        }
        for (_, node) in beside.drain(..) {
            position[node as usize] = u32::MAX;
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_there_comes_once_and_links_lie_together() {
        // A ring of nodes in a stride that is far in numbers and near in links.
        let nodes = 1000u32;
        let mut graph = Graph::new(2);
        graph.resize(nodes as usize).unwrap();
        let at = |place: u32| place * 37 % nodes;
        for place in 0..nodes {
            graph.set(at(place), 0, &[at((place + 1) % nodes), at((place + nodes - 1) % nodes)]);
        }
        graph.set_entry(Some(5));
        let order = together(&graph, 10, |node| node != 7);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq((0..nodes).filter(|node| *node != 7)));
        let page_of = |node: u32| order.iter().position(|n| *n == node).map(|at| at / 10);
        let near = (0..nodes).filter(|place| page_of(at(*place)) == page_of(at((place + 1) % nodes))).count();
        assert!(near > 800, "{near} of 1000 links stay on a page");
    }
}
