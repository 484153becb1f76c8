//! The links of a hierarchical navigable small world: every node on level 0, ever fewer above (Malkov and Yashunin,
//! "Efficient and robust approximate nearest neighbor search using Hierarchical Navigable Small World graphs").

use std::io;

use crate::arena::Arena;

/// Ends a list that is not full.
pub(crate) const NONE: u32 = u32::MAX;

/// The most nodes: an entry of a beam has a bit of its row to spare.
pub(crate) const MOST: usize = (1 << 31) - 1;

/// The highest level that a node is given.
pub(crate) const TOP: usize = 31;

/// Who is linked with whom.
pub(crate) struct Graph {
    m: usize,
    nodes: usize,
    ground: Arena,
    /// Which tower a node has, by node.
    tower: Vec<u32>,
    /// The lists of nodes above level 0, level 1 first.
    towers: Vec<Vec<Vec<u32>>>,
    vacant: Vec<u32>,
    entry: Option<u32>,
}

impl Graph {
    /// A graph without nodes, with so many links a node, twice as many on level 0.
    pub(crate) fn new(m: usize) -> Graph {
        Graph {
            m,
            nodes: 0,
            ground: Arena::new(),
            tower: Vec::new(),
            towers: Vec::new(),
            vacant: Vec::new(),
            entry: None,
        }
    }

    /// Has room for so many nodes; new ones are without links.
    pub(crate) fn resize(&mut self, nodes: usize) -> io::Result<()> {
        let before = self.ground.len();
        self.ground.resize(nodes * self.cap(0) * size_of::<u32>())?;
        self.ground[before..].fill(u8::MAX);
        self.tower.resize(nodes, NONE);
        self.nodes = nodes;
        Ok(())
    }

    /// How many nodes there is room for.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Links a node, as asked for.
    pub(crate) fn m(&self) -> usize {
        self.m
    }

    /// The most links of a node on a level.
    pub(crate) fn cap(&self, level: usize) -> usize {
        if level == 0 { 2 * self.m } else { self.m }
    }

    /// Where searches begin.
    pub(crate) fn entry(&self) -> Option<u32> {
        self.entry
    }

    /// Has searches begin elsewhere.
    pub(crate) fn set_entry(&mut self, entry: Option<u32>) {
        self.entry = entry;
    }

    /// The highest level of a node.
    pub(crate) fn level(&self, node: u32) -> usize {
        match self.tower[node as usize] {
            NONE => 0,
            tower => self.towers[tower as usize].len(),
        }
    }

    /// Gives a node a tower of so many levels above 0, with empty lists; none for 0.
    pub(crate) fn raise(&mut self, node: u32, levels: usize) {
        let old = std::mem::replace(&mut self.tower[node as usize], NONE);
        if old != NONE {
            self.towers[old as usize] = Vec::new();
            self.vacant.push(old);
        }
        if levels > 0 {
            let tower = self.vacant.pop().unwrap_or_else(|| {
                self.towers.push(Vec::new());
                (self.towers.len() - 1) as u32
            });
            self.towers[tower as usize] = vec![Vec::new(); levels];
            self.tower[node as usize] = tower;
        }
    }

    /// The links of a node on level 0 with [`NONE`] behind the last.
    #[inline(always)]
    pub(crate) fn ground(&self, node: u32) -> &[u32] {
        let cap = 2 * self.m;
        &bytemuck::cast_slice(&self.ground)[node as usize * cap..][..cap]
    }

    /// The links of a node on a level that it reaches.
    pub(crate) fn links(&self, node: u32, level: usize) -> &[u32] {
        if level == 0 {
            let all = self.ground(node);
            &all[..all.iter().position(|link| *link == NONE).unwrap_or(all.len())]
        } else {
            match self.tower[node as usize] {
                NONE => &[],
                tower => self.towers[tower as usize].get(level - 1).map_or(&[], Vec::as_slice),
            }
        }
    }

    /// Gives a node other links on a level that it reaches, no more than fit.
    pub(crate) fn set(&mut self, node: u32, level: usize, links: &[u32]) {
        assert!(links.len() <= self.cap(level), "{} links where {} fit", links.len(), self.cap(level));
        if level == 0 {
            let cap = 2 * self.m;
            let list = &mut bytemuck::cast_slice_mut(&mut self.ground)[node as usize * cap..][..cap];
            list[..links.len()].copy_from_slice(links);
            list[links.len()..].fill(NONE);
        } else {
            let tower = self.tower[node as usize] as usize;
            self.towers[tower][level - 1] = links.to_vec();
        }
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        let lists = self.towers.iter().flatten();
        let above: usize = lists.map(|list| list.capacity() * 4 + size_of::<Vec<u32>>()).sum();
        self.ground.len() + self.tower.len() * 4 + self.towers.len() * size_of::<Vec<u32>>() + above
    }
}
