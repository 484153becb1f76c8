//! The paths of a program whose iterations differ: which sequences of operations there are, which comes next, and what it costs to
//! be wrong (DyNN-Offload, Ren's dissertation, chapter 6, for programs that say nothing of themselves).
//!
//! Sequences are in a trie ([`tiercel_dynamic::trie`]), so nobody has to say where a program branches. Of a sample nothing can be
//! asked before the program works on it. What is known is which paths came before, and, as soon as the first operations run,
//! what shapes they work on; both are contexts in which paths are counted. Of the contexts of different lengths the one
//! that has been right most often is believed. The plan to begin with is the one that is expected to take least over the
//! paths that may come, by the times that were measured. Where the program does something else, the trie knows which paths
//! began alike.
//!
//! Everything is bounded: the trie by its limits, contexts and times by two generations of a fixed size.

use std::collections::HashMap;
use std::hash::Hash;

use serde::{Deserialize, Serialize};
use tiercel_dynamic::trie::{Here, Limits, NodeId, Symbol, Trie};

/// A path's name beyond one process: a mix of its operations.
pub type Name = u64;

/// What the trie of a program holds: at most 20 MB.
pub const LIMITS: Limits = Limits { nodes: 4096, symbols: 1 << 20, longest: 1 << 17 };
/// How many of the last paths are a context, at most.
const ORDERS: usize = 4;
/// Contexts of a generation, and the paths that are counted in one.
const CONTEXTS: usize = 4096;
const PATHS: usize = 16;
/// What of the past counts in how often a length of context was right.
const FADES: f64 = 0.9;
/// A path is begun with, or gone on with where another one ended, if it has this share of what may come; where nothing is followed, if it
/// has that one.
const BEGIN: f64 = 0.25;
const ENTER: f64 = 0.5;
/// A path that shapes point to is believed where it has this share.
const SURE: f64 = 0.6;
/// What a path is taken to cost after another one's plan, where nobody has measured it.
const WRONG: f64 = 1.25;
/// Paths that are looked at behind a fork, and sequences and operations that are saved.
const AHEAD: usize = 64;
const SAVED: usize = 64;
const SAVED_SYMBOLS: usize = 1 << 18;

/// A table of which the half that was used last is kept when it is full.
#[derive(Clone, Debug)]
struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash + Copy, V: Default> Generations<K, V> {
    fn new() -> Self {
        Generations { young: HashMap::new(), old: HashMap::new() }
    }

    fn get(&self, key: K) -> Option<&V> {
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    fn entry(&mut self, key: K) -> &mut V {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).unwrap_or_default();
            if self.young.len() >= CONTEXTS {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(key, value);
        }
        self.young.entry(key).or_default()
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old)
    }
}

/// A mean of times.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    count: u64,
    nanos: f64,
}

impl Mean {
    fn add(&mut self, nanos: f64) {
        self.count += 1;
        // What is long past fades, because plans get better.
        self.nanos += (nanos - self.nanos) / (self.count.min(16) as f64);
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then_some(self.nanos)
    }
}

/// How an iteration was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On demand from its beginning.
    Demand,
    /// By its own plan from its beginning to its end.
    Hit,
    /// Another plan was begun with, and its own plan went on.
    Turned,
    /// Another plan was begun with, and it ended on demand.
    Missed,
}

#[derive(Clone, Debug)]
struct Path {
    name: Name,
    planned: bool,
    times: [Mean; 4],
}

/// What is known of one path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFacts {
    /// Its leaf in the trie.
    pub leaf: NodeId,
    /// Its name.
    pub name: Name,
    /// Whether there is a plan for it.
    pub planned: bool,
    /// Its operations.
    pub operations: usize,
    /// How often it came, by [`Way`] in their order.
    pub counts: [u64; 4],
    /// The mean seconds of these.
    pub seconds: [Option<f64>; 4],
}

/// The paths of a program.
#[derive(Clone, Debug)]
pub struct Paths {
    trie: Trie,
    paths: HashMap<NodeId, Path>,
    by_name: HashMap<Name, NodeId>,
    /// In which context which paths came how often.
    contexts: Generations<u64, Vec<(Name, u32)>>,
    /// The last paths, the newest first, and how often each length of context was right.
    recent: [Name; ORDERS - 1],
    skill: [f64; ORDERS],
    /// The contexts of shapes of the iteration under way, and the node that was last looked ahead from.
    shapes: Vec<u64>,
    looked: Option<NodeId>,
    begun: Option<NodeId>,
    /// What a path took after another one's plan had been begun with.
    costs: Generations<(Name, Name), Mean>,
    /// Iterations in a row that nobody had seen before, and how often paths that were in vain begun with cost how much more.
    new: u64,
    lost: Mean,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths::new(LIMITS)
    }
}

impl Paths {
    /// Nothing known yet.
    pub fn new(limits: Limits) -> Paths {
        Paths {
            trie: Trie::new(limits),
            paths: HashMap::new(),
            by_name: HashMap::new(),
            contexts: Generations::new(),
            recent: [0; ORDERS - 1],
            skill: std::array::from_fn(|order| 0.5 + 0.01 * order as f64),
            shapes: Vec::new(),
            looked: None,
            begun: None,
            costs: Generations::new(),
            new: 0,
            lost: Mean::default(),
        }
    }

    /// The most bytes that all of this takes.
    pub fn most_bytes(limits: &Limits) -> usize {
        let context = 16 + size_of::<Vec<(Name, u32)>>() + PATHS * size_of::<(Name, u32)>();
        let cost = 16 + size_of::<((Name, Name), Mean)>();
        let path = 2 * (16 + size_of::<(NodeId, Path)>() + size_of::<(Name, NodeId)>());
        Trie::most_bytes(limits) + 2 * CONTEXTS * 2 * (context + cost) + limits.nodes * path
    }

    /// How many paths are known, and how many operations they have together.
    pub fn size(&self) -> (usize, usize) {
        (self.paths.len(), self.trie.symbols())
    }

    /// How many iterations in a row were new.
    pub fn new_in_a_row(&self) -> u64 {
        self.new
    }

    /// Whether the iteration under way is as a recorded one so far.
    pub fn is_known(&self) -> bool {
        matches!(self.trie.here(), Here::Known(_))
    }

    /// Says that there is a plan for a path, or none any more.
    pub fn mark(&mut self, leaf: NodeId, planned: bool) {
        if let Some(path) = self.paths.get_mut(&leaf) {
            path.planned = planned;
        }
    }

    fn context(&self, order: usize) -> u64 {
        self.recent[..order].iter().fold(mix(order as u64, 1), |mixed, name| mix(mixed, *name))
    }

    /// The planned path to begin the next iteration with, and its probability.
    pub fn begin(&mut self) -> Option<(NodeId, f64)> {
        self.shapes.clear();
        (self.looked, self.begun) = (None, None);
        let likely = self.likely();
        let whole: f64 = likely.iter().map(|(_, share)| share).sum();
        let planned = likely.iter().filter(|(name, _)| self.planned(*name).is_some());
        let best =
            planned.min_by(|a, b| self.expected(a.0, &likely).total_cmp(&self.expected(b.0, &likely)))?;
        (best.1 >= BEGIN * whole).then(|| (self.by_name[&best.0], best.1 / whole))
    }

    /// Which paths may come next, with their shares.
    fn likely(&self) -> Vec<(Name, f64)> {
        let orders = (0..ORDERS).filter(|order| self.contexts.get(self.context(*order)).is_some());
        let Some(order) = orders.max_by(|a, b| self.skill[*a].total_cmp(&self.skill[*b])) else {
            return Vec::new();
        };
        let counted = self.contexts.get(self.context(order)).into_iter().flatten();
        counted.map(|(name, count)| (*name, f64::from(*count))).collect()
    }

    fn planned(&self, name: Name) -> Option<NodeId> {
        let leaf = *self.by_name.get(&name)?;
        self.paths.get(&leaf).is_some_and(|path| path.planned).then_some(leaf)
    }

    fn expected(&self, begun: Name, likely: &[(Name, f64)]) -> f64 {
        let own = |name: Name| {
            let times = self.by_name.get(&name).and_then(|leaf| self.paths.get(leaf)).map(|path| path.times);
            times
                .and_then(|times| times[Way::Hit as usize].get().or_else(|| times.iter().find_map(Mean::get)))
        };
        let cost = |(name, share): &(Name, f64)| {
            let usual = own(*name).unwrap_or(1.0);
            let wrong = || self.costs.get((begun, *name)).and_then(Mean::get).unwrap_or(usual * WRONG);
            share * if *name == begun { usual } else { wrong() }
        };
        likely.iter().map(cost).sum()
    }

    /// The iteration is begun with this path's plan.
    pub fn begun(&mut self, leaf: NodeId) {
        self.begun = Some(leaf);
    }

    /// The first operations have these shapes. A planned path that followed on them nearly always.
    pub fn shape(&mut self, key: u64) -> Option<NodeId> {
        let key = mix(key, 2);
        self.shapes.push(key);
        let counted = self.contexts.get(key)?;
        let whole: u32 = counted.iter().map(|(_, count)| count).sum();
        let (name, count) = counted.iter().max_by_key(|(_, count)| count)?;
        (f64::from(*count) >= SURE * f64::from(whole)).then(|| self.planned(*name)).flatten()
    }

    /// The program does this next, and nothing is followed. A planned path, where it has just become likely.
    pub fn step(&mut self, symbol: Symbol) -> Option<NodeId> {
        match self.trie.step(symbol) {
            Here::Lost(_) => None,
            Here::Known(node) if self.looked == Some(node) => None,
            Here::Known(node) => {
                self.looked = Some(node);
                self.ahead(ENTER)
            }
        }
    }

    /// So many operations of a path have been done, and then these instead of its own. Another planned path that goes on so.
    pub fn turn(&mut self, leaf: NodeId, upto: usize, symbols: &[Symbol]) -> Option<NodeId> {
        self.trie.resume(leaf, upto);
        for symbol in symbols {
            self.trie.step(*symbol);
        }
        self.looked = match self.trie.here() {
            Here::Known(node) => Some(node),
            Here::Lost(_) => None,
        };
        self.ahead(BEGIN)
    }

    /// The planned path that is most likely from here on, if it is likely enough.
    fn ahead(&self, share: f64) -> Option<NodeId> {
        let (leaves, all) = self.trie.ahead(AHEAD);
        let count = |leaf: &NodeId| self.trie.count(*leaf).max(1) as f64;
        let whole: f64 = leaves.iter().map(count).sum();
        let planned = leaves.iter().filter(|leaf| self.paths.get(*leaf).is_some_and(|path| path.planned));
        let best = *planned.max_by(|a, b| count(a).total_cmp(&count(b)).then(b.cmp(a)))?;
        (all && count(&best) >= share * whole).then_some(best)
    }

    /// The iteration has ended, operation by operation. Its leaf, whether it was known, and leaves that were forgotten.
    pub fn end(&mut self, way: Way, nanos: f64) -> (Option<NodeId>, bool, Vec<NodeId>) {
        let (leaf, known, gone) = self.trie.end();
        for leaf in &gone {
            if let Some(path) = self.paths.remove(leaf) {
                self.by_name.remove(&path.name);
            }
        }
        self.new = if known { 0 } else { self.new + 1 };
        if let Some(leaf) = leaf {
            self.enter(leaf);
            self.count(leaf, way, nanos);
        }
        (leaf, known, gone)
    }

    fn enter(&mut self, leaf: NodeId) {
        if !self.paths.contains_key(&leaf) {
            let name = self.trie.sequence(leaf).into_iter().fold(3, mix).max(1);
            self.paths.insert(leaf, Path { name, planned: false, times: [Mean::default(); 4] });
            self.by_name.insert(name, leaf);
        }
    }

    /// The iteration has ended, and this path's plan was followed to its end.
    pub fn again(&mut self, leaf: NodeId, way: Way, nanos: f64) -> bool {
        self.new = 0;
        let known = self.trie.again(leaf);
        if known {
            self.count(leaf, way, nanos);
        }
        known
    }

    fn count(&mut self, leaf: NodeId, way: Way, nanos: f64) {
        let Some(path) = self.paths.get_mut(&leaf) else { return };
        let name = path.name;
        if matches!(way, Way::Turned | Way::Missed)
            && let Some(usual) = path.times[Way::Hit as usize].get()
        {
            self.lost.add(nanos - usual);
        }
        path.times[way as usize].add(nanos);
        for order in 0..ORDERS {
            let key = self.context(order);
            let said =
                self.contexts.get(key).and_then(|counted| counted.iter().max_by_key(|(_, count)| count));
            if let Some((said, _)) = said {
                let right = f64::from(u8::from(*said == name));
                self.skill[order] = FADES * self.skill[order] + (1.0 - FADES) * right;
            }
            add(self.contexts.entry(key), name);
        }
        for key in std::mem::take(&mut self.shapes) {
            add(self.contexts.entry(key), name);
        }
        self.recent.rotate_right(1);
        self.recent[0] = name;
        if let Some(begun) = self.begun.take().and_then(|leaf| self.paths.get(&leaf)) {
            let pair = (begun.name, name);
            self.costs.entry(pair).add(nanos);
        }
    }

    /// The seconds that a wrong guess costs on average over the path's own plan, where that has been measured.
    pub fn lost(&self) -> Option<f64> {
        self.lost.get().map(|nanos| nanos / 1e9)
    }

    /// All paths, the one that came last first.
    pub fn facts(&self) -> Vec<PathFacts> {
        let leaves = self.trie.leaves().into_iter();
        let facts = leaves.filter_map(|leaf| {
            let path = self.paths.get(&leaf)?;
            Some(PathFacts {
                leaf,
                name: path.name,
                planned: path.planned,
                operations: self.trie.sequence(leaf).len(),
                counts: path.times.map(|mean| mean.count),
                seconds: path.times.map(|mean| mean.get().map(|nanos| nanos / 1e9)),
            })
        });
        facts.collect()
    }

    /// The leaf of a path by its name.
    pub fn leaf(&self, name: Name) -> Option<NodeId> {
        self.by_name.get(&name).copied()
    }

    /// A path's name.
    pub fn name(&self, leaf: NodeId) -> Option<Name> {
        self.paths.get(&leaf).map(|path| path.name)
    }

    /// What has been learned: the paths that came last, as far as there is room, and what was counted of them.
    pub fn save(&self) -> Saved {
        let (mut sequences, mut left) = (Vec::new(), SAVED_SYMBOLS);
        for leaf in self.trie.leaves().into_iter().take(SAVED) {
            let symbols = self.trie.sequence(leaf);
            let Some(rest) = left.checked_sub(symbols.len()) else { break };
            left = rest;
            sequences.push((symbols, self.trie.count(leaf)));
        }
        sequences.reverse();
        let contexts = self.contexts.iter().map(|(key, counted)| (*key, counted.clone())).collect();
        Saved { sequences, contexts, recent: self.recent, skill: self.skill }
    }

    /// Takes up what another process has learned. What is not sound is left out.
    pub fn load(&mut self, saved: Saved) {
        for (symbols, count) in saved.sequences.into_iter().take(SAVED) {
            if symbols.len() >= SAVED_SYMBOLS {
                continue;
            }
            for symbol in symbols {
                self.trie.step(symbol);
            }
            if let (Some(leaf), ..) = self.trie.end() {
                self.enter(leaf);
                for _ in 1..count.min(100) {
                    self.trie.again(leaf);
                }
            }
        }
        for (key, counted) in saved.contexts.into_iter().take(2 * CONTEXTS) {
            let counted: Vec<_> = counted.into_iter().take(PATHS).filter(|(_, count)| *count > 0).collect();
            if !counted.is_empty() {
                *self.contexts.entry(key) = counted;
            }
        }
        self.recent = saved.recent;
        if saved.skill.iter().all(|skill| (0.0..=1.0).contains(skill)) {
            self.skill = saved.skill;
        }
    }
}

/// What has been learned of a program's paths, to be kept in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saved {
    sequences: Vec<(Vec<Symbol>, u64)>,
    contexts: Vec<(u64, Vec<(Name, u32)>)>,
    recent: [Name; ORDERS - 1],
    skill: [f64; ORDERS],
}

/// Counts a path in a context; the one that came least makes room.
fn add(counted: &mut Vec<(Name, u32)>, name: Name) {
    if let Some((_, count)) = counted.iter_mut().find(|(known, _)| *known == name) {
        *count = count.saturating_add(1);
    } else if counted.len() < PATHS {
        counted.push((name, 1));
    } else if let Some(least) = counted.iter_mut().min_by_key(|(_, count)| *count) {
        *least = (name, 1);
    }
}

/// Mixes a number into another (the finalizer of SplitMix64).
fn mix(mixed: u64, number: u64) -> u64 {
    let mut z = mixed.rotate_left(23).wrapping_add(number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(paths: &mut Paths, symbols: &[Symbol]) -> NodeId {
        for symbol in symbols {
            paths.step(*symbol);
        }
        paths.end(Way::Demand, 1000.0).0.expect("it is short")
    }

    #[test]
    fn paths_that_take_turns_are_foreseen() {
        let mut paths = Paths::default();
        let (a, b) = (play(&mut paths, &[1, 2, 3]), play(&mut paths, &[1, 4, 5]));
        paths.mark(a, true);
        paths.mark(b, true);
        let mut right = 0;
        for turn in 0..40 {
            let next = if turn % 2 == 0 { a } else { b };
            let said = paths.begin();
            right += u32::from(said.is_some_and(|(leaf, _)| leaf == next));
            assert!(paths.again(next, Way::Hit, 1000.0));
        }
        assert!(right >= 36, "{right} of 40");
    }

    #[test]
    fn shapes_tell_what_comes() {
        let mut paths = Paths::default();
        let leaves: Vec<_> = (0..8).map(|way| play(&mut paths, &[1, 2, 100 + way])).collect();
        leaves.iter().for_each(|leaf| paths.mark(*leaf, true));
        let mut random = fastrand::Rng::with_seed(1);
        let mut right = 0;
        for turn in 0..200 {
            paths.begin();
            let way = random.usize(0..8);
            let told = paths.shape(way as u64);
            right += u32::from(turn >= 100 && told == Some(leaves[way]));
            paths.again(leaves[way], Way::Hit, 1000.0);
        }
        assert_eq!(right, 100, "the second operation's shape decides");
    }

    #[test]
    fn a_path_goes_on_as_another_one() {
        let mut paths = Paths::default();
        let (a, b) = (play(&mut paths, &[1, 2, 3, 4]), play(&mut paths, &[1, 2, 5, 6]));
        assert_eq!(paths.turn(a, 2, &[5]), None, "it has no plan");
        paths.mark(b, true);
        assert_eq!(paths.turn(a, 2, &[5]), Some(b));
        assert_eq!(paths.turn(a, 2, &[7]), None, "nobody did that");
        assert!(!paths.is_known());
        let (new, known, _) = paths.end(Way::Missed, 3000.0);
        assert!(!known && new.is_some());
        paths.begin();
        assert_eq!(paths.step(1), None, "a, b and the new one are as likely, and b is a third");
        assert_eq!(paths.step(2), None);
        assert_eq!(paths.step(5), Some(b));
    }

    #[test]
    fn what_a_wrong_guess_costs_decides_and_is_said() {
        let mut paths = Paths::default();
        let (a, b) = (play(&mut paths, &[1]), play(&mut paths, &[2]));
        paths.mark(a, true);
        paths.mark(b, true);
        let mut random = fastrand::Rng::with_seed(3);
        // After a's plan b takes ten times as long; after b's plan a takes a tenth more. a comes a little more often.
        for _ in 0..400 {
            let came = if random.u8(0..10) < 6 { a } else { b };
            let begun = if random.bool() { a } else { b };
            paths.begin();
            paths.begun(begun);
            let way = if begun == came { Way::Hit } else { Way::Turned };
            let nanos = match (begun == a, came == a) {
                (true, false) => 10_000.0,
                (false, true) => 1_100.0,
                _ => 1_000.0,
            };
            paths.again(came, way, nanos);
        }
        assert_eq!(paths.begin().map(|(leaf, _)| leaf), Some(b));
        assert!(paths.lost().is_some_and(|seconds| seconds > 0.0));
        let facts = paths.facts();
        assert_eq!(facts.len(), 2);
        assert_eq!(facts.iter().flat_map(|path| path.counts).sum::<u64>(), 402);
    }

    #[test]
    fn what_was_learned_is_taken_up_and_nonsense_is_not() {
        let mut paths = Paths::default();
        for _ in 0..6 {
            for symbols in [[1, 2, 3], [1, 4, 5], [6, 7, 8]] {
                paths.begin();
                play(&mut paths, &symbols);
            }
        }
        let text = serde_json::to_string(&paths.save()).expect("plain numbers");
        let mut other = Paths::default();
        other.load(serde_json::from_str(&text).expect("it reads back"));
        assert_eq!(other.size(), paths.size());
        let names = |paths: &Paths| paths.facts().iter().map(|path| path.name).collect::<Vec<_>>();
        assert_eq!(names(&other), names(&paths));
        for leaf in other.trie.leaves() {
            other.mark(leaf, true);
        }
        let said = other.begin().expect("something is likely");
        assert_eq!(other.trie.sequence(said.0), [1, 2, 3], "three take turns");
        let mut saved = paths.save();
        saved.skill[0] = f64::NAN;
        saved.contexts.push((1, vec![(1, 0)]));
        other.load(saved);
        assert!(other.skill.iter().all(|skill| skill.is_finite()));
    }

    #[test]
    fn a_million_random_branches_stay_within_bounds() {
        let limits = Limits { nodes: 256, symbols: 1 << 12, longest: 256 };
        let mut paths = Paths::new(limits);
        let mut random = fastrand::Rng::with_seed(5);
        let (mut done, mut most) = (0, 0);
        while done < 1_000_000 {
            paths.begin();
            for at in 0..20 {
                paths.shape(random.u64(..));
                paths.step(at * 4 + random.u64(0..4));
            }
            done += 20;
            let (leaf, _, gone) = paths.end(Way::Demand, 1.0);
            paths.mark(leaf.expect("it is short"), random.bool());
            assert!(gone.iter().all(|leaf| !paths.paths.contains_key(leaf)));
            most = most.max(paths.paths.len());
        }
        let (count, symbols) = paths.size();
        assert!(most <= limits.nodes && symbols <= limits.symbols && count == paths.by_name.len());
        assert!(paths.contexts.young.len() <= CONTEXTS && paths.contexts.old.len() <= CONTEXTS);
        assert!(Paths::most_bytes(&LIMITS) < 32 << 20, "{}", Paths::most_bytes(&LIMITS));
    }
}
