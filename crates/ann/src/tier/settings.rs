//! Which width of beam and how many vectors read reach which recall, measured on the index's own vectors when it is saved.
//!
//! Some vectors are asked for as if they were queries, themselves left out. What comes from outside is a little harder to
//! find, so a setting is chosen as if two fifths of what may be missed were missed already: descriptors of other pictures need that much.

use crate::codes::Codes;
use crate::file::Shape;
use crate::index::Index;
use crate::links::Links;
use crate::parallel;
use crate::tier::fast::{Fast, Towers, Walk};

/// How many vectors are asked for.
const LEARNT: usize = 200;

/// How many neighbours count.
const K: usize = 10;

/// Widths of beams, and numbers of vectors read, that are tried.
const LADDER: [u32; 16] = [10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640, 896, 1280, 1792];

/// One setting and what it reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The width of the beam over codes.
    pub ef: u32,
    /// How many of the nearest by estimate are read.
    pub rerank: u32,
    /// The share of the ten nearest that is found.
    pub recall: f32,
}

/// All settings that were tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings(pub(crate) Vec<Setting>);

/// The recall to reach on an index's own vectors for one to be reached by queries from elsewhere.
pub(crate) fn with_margin(recall: f64) -> f64 {
    recall + (1.0 - recall) * 0.4
}

/// What is measured on: the codes and links that will be searched, and what lies together on a page.
pub(crate) struct Trial<'a> {
    pub(crate) fast: &'a Fast,
    /// The row of each node.
    pub(crate) order: &'a [u32],
    pub(crate) shape: Shape,
}

impl Settings {
    /// Tries every setting.
    pub(crate) fn measure(index: &Index, trial: &Trial<'_>, threads: usize) -> Settings {
        let Trial { fast, order, shape } = trial;
        let nodes = order.len();
        if nodes <= K {
            return Settings::default();
        }
        let asked: Vec<u32> =
            (0..LEARNT.min(nodes)).map(|at| (at * nodes / LEARNT.min(nodes)) as u32).collect();
        let truth = index.nearest_rows(
            &asked.iter().map(|node| order[*node as usize]).collect::<Vec<u32>>(),
            K + 1,
            threads,
        );
        let mut place = vec![u32::MAX; index.labels.len()];
        order.iter().enumerate().for_each(|(node, row)| place[*row as usize] = node as u32);
        let mut tools: Vec<Walk> = (0..threads.max(1)).map(|_| Walk::default()).collect();
        let hits: Vec<Vec<u32>> = parallel::each(&mut tools, asked.len(), |walk, at| {
            let node = asked[at];
            fast.codes.coder().ask(index.rows.get(order[node as usize]).0, &mut walk.query);
            let near = truth[at].iter().map(|row| place[*row as usize]).filter(|other| *other != node);
            let near: Vec<u64> = near.take(K).map(|node| shape.page(node)).collect();
            let mut hits = Vec::new();
            for ef in LADDER {
                fast.walk(nodes, ef as usize, walk);
                let found: Vec<u64> = walk
                    .beam
                    .found()
                    .map(|(_, node)| node)
                    .filter(|n| *n != node)
                    .map(|n| shape.page(n))
                    .collect();
                for rerank in LADDER.into_iter().filter(|rerank| *rerank <= ef) {
                    let read = &found[..found.len().min(rerank as usize)];
                    hits.push(near.iter().filter(|page| read.contains(page)).count() as u32);
                }
            }
            hits
        });
        let pairs = LADDER
            .into_iter()
            .flat_map(|ef| LADDER.into_iter().filter(move |r| *r <= ef).map(move |r| (ef, r)));
        let recall =
            |at: usize| hits.iter().map(|hits| hits[at]).sum::<u32>() as f32 / (K * hits.len()) as f32;
        Settings(
            pairs.enumerate().map(|(at, (ef, rerank))| Setting { ef, rerank, recall: recall(at) }).collect(),
        )
    }

    /// The cheapest setting for a recall, or the best there is: a vector read from a disk costs about as much as following sixteen.
    pub(crate) fn choose(&self, recall: f64) -> Option<Setting> {
        let wanted = with_margin(recall) as f32;
        let cost = |setting: &Setting| setting.ef + 16 * setting.rerank;
        let enough =
            self.0.iter().filter(|setting| setting.recall >= wanted).min_by_key(|setting| cost(setting));
        enough.or_else(|| self.0.iter().max_by(|a, b| a.recall.total_cmp(&b.recall))).copied()
    }

    /// What a file keeps.
    pub(crate) fn write(&self) -> Vec<u8> {
        let words = self.0.iter().flat_map(|s| [s.ef, s.rerank, s.recall.to_bits()]);
        words.flat_map(u32::to_le_bytes).collect()
    }

    /// What a file kept.
    pub(crate) fn read(bytes: &[u8]) -> Option<Settings> {
        let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let setting = |w: &[u32]| Setting { ef: w[0], rerank: w[1], recall: f32::from_bits(w[2]) };
        let all: Vec<Setting> = words.chunks_exact(3).map(setting).collect();
        let widths = 1..=*LADDER.last()?;
        let width = |s: &Setting| widths.contains(&s.ef) && widths.contains(&s.rerank);
        let good = all.iter().all(|s| width(s) && (0.0..=1.0).contains(&s.recall));
        (good && bytes.len().is_multiple_of(12)).then_some(Settings(all))
    }
}

impl Fast {
    /// What a file that is being written will have in fast memory.
    pub(crate) fn of(links: Links, codes: Codes, towers: Towers, entry: u32) -> Fast {
        Fast { links, codes, towers, entry }
    }
}
