//! Dynamic networks, and samples that decide which way they go.
//!
//! The networks are those of DyNN-Offload's Table 6.2 and three of today's (a mixture of experts, early exit, layers that are
//! skipped). Their samples are *generated*: none of the paper's data sets is at hand. A sample is a bag of words (of patches,
//! for images), each with a vector, as from GloVe or an autoencoder; which way the network goes follows from what the words
//! are about, from two subjects together, so that no straight line separates the ways; and a few samples go another way
//! whatever they say (`samples.rs`). How often which way is taken follows Table 6.1 where branches are independent of one
//! another, and lengths where they count.
//!
//! One sample stands for one step: a batch whose members go the same way, as depth-based batching and loaders that sort by
//! length make them.

mod convolution;
mod parts;
mod recurrent;
pub mod samples;
mod transformer;

use crate::structure::Path;
use crate::tape::Taped;

pub use samples::{Sample, Source};

/// The kinds of networks for each of which there is one learned model (section 6.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Convolutions.
    Cnn,
    /// Recurrent cells.
    Lstm,
    /// Attention.
    Transformer,
}

/// What decides which way a sample goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing: there is one way.
    None,
    /// Its words.
    Words,
    /// Its length, and nothing else.
    Length,
    /// Its length, and for the last branch its words.
    Both,
}

/// A way through the network, and how often it is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// The arms.
    pub path: Path,
    /// Its share of the samples.
    pub share: f64,
}

/// A network with the ways through it.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Which learned model it belongs to.
    pub family: Family,
    /// What decides.
    pub cause: Cause,
    /// The rows that the largest batch has; see [`Sample::rows`].
    pub rows: u64,
    /// Whether batches differ in rows.
    pub varies: bool,
    /// Whether it is one of the paper's.
    pub paper: bool,
    build: fn(&[u16], u64, Scale) -> Taped,
    ways: fn() -> Vec<Way>,
}

/// How large networks are: in full, or small for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As large as makes sense on the paper's machine.
    Full,
    /// The same structure with less of everything.
    Small,
}

impl Scale {
    fn of(self, full: u64, small: u64) -> u64 {
        if self == Scale::Full { full } else { small }
    }
}

/// All workloads: the paper's seven, then three more.
pub static ALL: [Workload; 10] = [
    convolution::TREE_CNN,
    recurrent::UGAN,
    recurrent::TREE_LSTM,
    recurrent::VAR_LSTM,
    recurrent::FIXED_LSTM,
    transformer::VAR_BERT,
    transformer::FIXED_BERT,
    transformer::MOE,
    convolution::EARLY_EXIT,
    transformer::LAYER_SKIP,
];

/// The workload of this name.
pub fn named(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}

impl Workload {
    /// Whether it has more than one way.
    pub fn is_dynamic(&self) -> bool {
        self.cause != Cause::None
    }

    /// The ways through it, with their shares.
    pub fn ways(&self) -> Vec<Way> {
        (self.ways)()
    }

    /// Runs it: a batch of so many rows on a path.
    pub fn run(&self, path: &[u16], rows: u64, scale: Scale) -> Taped {
        (self.build)(path, rows, scale)
    }
}

/// The layers of var-BERT for other depths than its own (Figure 6.8): the same network with so many layers.
pub fn bert(layers: u64, path: &[u16], rows: u64) -> Taped {
    transformer::bert("var-bert", layers, path, rows, Scale::Full)
}

/// Shares that fall as one over the rank.
fn falling(paths: Vec<Path>) -> Vec<Way> {
    let all: f64 = (1..=paths.len()).map(|rank| 1.0 / rank as f64).sum();
    let share = |rank: usize| 1.0 / (rank + 1) as f64 / all;
    paths.into_iter().enumerate().map(|(rank, path)| Way { path, share: share(rank) }).collect()
}

/// Paths through a row of independent branches whose Jaccard distances to the first are distributed as Table 6.1 says: one
/// path (the first itself) with 5 % of the samples, then some in each of the other four ranges.
fn as_table_6_1(branches: usize, seed: u64) -> Vec<Way> {
    const RANGES: [(f64, f64, f64, usize); 4] =
        [(0.2, 0.4, 0.28, 3), (0.4, 0.6, 0.25, 3), (0.6, 0.8, 0.40, 4), (0.8, 1.0, 0.02, 1)];
    let mut random = fastrand::Rng::with_seed(seed);
    let taken = |path: &Path| {
        path.iter().enumerate().filter(|(_, arm)| **arm > 0).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let first: Path = (0..branches).map(|at| u16::from(at % 5 < 3)).collect();
    let mut ways = vec![Way { path: first.clone(), share: 0.05 }];
    for (low, high, share, count) in RANGES {
        let mut found = 0;
        while found < count {
            let path: Path = (0..branches).map(|_| u16::from(random.bool())).collect();
            let distance = crate::structure::jaccard(&taken(&first), &taken(&path));
            let new = ways.iter().all(|way| way.path != path) && path.contains(&1);
            if new && distance > low && distance <= high {
                ways.push(Way { path, share: share / count as f64 });
                found += 1;
            }
        }
    }
    ways
}

/// Paths of a loop that ends after 1, 2, … rounds: arm 1 goes on, arm 0 ends it.
fn rounds(most: usize) -> Vec<Path> {
    let path = |n: usize| {
        let mut path = vec![1; n];
        if n < most {
            path.push(0);
        }
        path
    };
    (1..=most).map(path).collect()
}
