//! The index against looking at every vector: after any sequence of changes, for every kind of vector, with filters.

use std::collections::BTreeMap;

use tiercel_ann::{
    Ask, Dtype, FastMemory, Filter, Index, Matrix, Metric, NOBODY, SaveOptions, Spec, TierAsk, Tiered,
};
use tiercel_core::Bytes;

/// Vectors in clusters, as real ones are.
fn clustered(random: &mut fastrand::Rng, count: usize, dim: usize) -> Vec<f32> {
    let centres: Vec<i32> = (0..20 * dim).map(|_| random.i32(10..110)).collect();
    let mut numbers = Vec::new();
    for _ in 0..count {
        let centre = random.usize(0..20) * dim;
        numbers.extend((0..dim).map(|at| (centres[centre + at] + random.i32(-9..10)) as f32));
    }
    numbers
}

fn spec(dim: usize, metric: Metric, dtype: Dtype) -> Spec {
    Spec { m: 8, ef_construction: 60, ..Spec::new(dim, metric, dtype) }
}

#[test]
fn every_kind_of_vector_is_found() {
    let mut random = fastrand::Rng::with_seed(1);
    let numbers = clustered(&mut random, 1250, 24);
    let (vectors, queries) = numbers.split_at(1200 * 24);
    let (vectors, queries) = (Matrix::of_f32(24, vectors).unwrap(), Matrix::of_f32(24, queries).unwrap());
    for dtype in Dtype::ALL {
        for metric in Metric::ALL {
            let mut index = Index::new(spec(24, metric, dtype)).unwrap();
            index.add_items(&vectors, None, 2).unwrap();
            let truth = index.exact(&queries, 10, 2).unwrap();
            let ask = Ask { ef: Some(120), threads: 2, ..Ask::default() };
            let found = index.knn_query(&queries, 10, &ask).unwrap();
            let recall = found.recall(&truth.labels, 10);
            assert!(recall > 0.97, "{dtype} {metric}: {recall}");
            assert!(found.distances.iter().all(|d| d.is_finite()));
        }
    }
}

/// By inner product the longest vectors are near to everybody, and others would be cut off: whatever there is must be found where
/// the beam is wide enough.
#[test]
fn a_way_leads_to_every_vector() {
    for (seed, metric) in
        [(5, Metric::InnerProduct), (6, Metric::InnerProduct), (7, Metric::Cosine), (8, Metric::L2)]
    {
        let mut random = fastrand::Rng::with_seed(seed);
        let numbers = clustered(&mut random, 900, 24);
        let vectors = Matrix::of_f32(24, &numbers).unwrap();
        let mut index =
            Index::new(Spec { m: 6, ef_construction: 30, ..Spec::new(24, metric, Dtype::F32) }).unwrap();
        let all = |index: &Index| {
            let ask = Ask { ef: Some(900), threads: 2, ..Ask::default() };
            let truth = index.exact(&vectors, 10, 2).unwrap();
            index.knn_query(&vectors, 10, &ask).unwrap().recall(&truth.labels, 10)
        };
        index.add_items(&vectors.slice(0..500), None, 2).unwrap();
        assert!(all(&index) > 0.9999, "{metric}, seed {seed}: {}", all(&index));
        // One after the other they are looked after now and then: few may be missed in between.
        (500..900).for_each(|at| index.add_items(&vectors.slice(at..at + 1), None, 1).unwrap());
        assert!(all(&index) > 0.99, "{metric}, seed {seed}: {}", all(&index));
        (0..900).filter(|label| label % 4 == 1).for_each(|label| index.remove(label).unwrap());
        index.compact(2);
        assert!(all(&index) > 0.9999, "{metric}, seed {seed}: {}", all(&index));
    }
}

#[test]
fn threads_change_nothing() {
    let mut random = fastrand::Rng::with_seed(2);
    let numbers = clustered(&mut random, 3000, 16);
    let vectors = Matrix::of_f32(16, &numbers).unwrap();
    let build = |threads| {
        let mut index = Index::new(spec(16, Metric::L2, Dtype::F32)).unwrap();
        index.add_items(&vectors.slice(0..2500), None, threads).unwrap();
        (0..400).for_each(|label| index.remove(label * 3).unwrap());
        index.add_items(&vectors.slice(2500..3000), None, threads).unwrap();
        let ask = Ask { ef: Some(30), threads, ..Ask::default() };
        index.knn_query(&vectors.slice(0..200), 10, &ask).unwrap()
    };
    let alone = build(1);
    assert_eq!(alone, build(2));
    assert_eq!(alone, build(5));
}

#[test]
fn filters_are_kept_at_any_share() {
    let mut random = fastrand::Rng::with_seed(3);
    let numbers = clustered(&mut random, 5000, 16);
    let vectors = Matrix::of_f32(16, &numbers).unwrap();
    let mut index = Index::new(spec(16, Metric::L2, Dtype::U8)).unwrap();
    index.add_items(&vectors, None, 2).unwrap();
    let queries = vectors.slice(0..50);
    for part in [1, 2, 10, 100, 1000, 10_000] {
        let wanted = move |label: u64| label % part == part / 2;
        let mut bits = vec![0u64; 5000usize.div_ceil(64)];
        (0..5000)
            .filter(|label| wanted(*label))
            .for_each(|label| bits[label as usize / 64] |= 1 << (label % 64));
        let mut kept = Index::new(*index.spec()).unwrap();
        let labels: Vec<u64> = (0..5000).filter(|label| wanted(*label)).collect();
        let only = vectors.pick(labels.iter().map(|label| *label as usize));
        kept.add_items(&only, Some(&labels), 1).unwrap();
        let truth = kept.exact(&queries, 10, 1).unwrap();
        for filter in [Filter::Predicate(&wanted), Filter::Bitmap(&bits)] {
            let ask = Ask { ef: Some(100), threads: 1, filter: Some(filter) };
            let found = index.knn_query(&queries, 10, &ask).unwrap();
            assert!(found.labels.iter().all(|label| *label == NOBODY || wanted(*label)));
            let there = truth.labels.iter().filter(|label| **label != NOBODY).count();
            let same =
                (0..50).flat_map(|q| found.of(q).iter().filter(move |l| **l != NOBODY).map(move |l| (q, *l)));
            let hits = same.filter(|(q, label)| truth.of(*q).contains(label)).count();
            assert!(hits as f64 >= 0.97 * there as f64, "one in {part}: {hits} of {there}");
        }
    }
}

#[test]
fn what_is_wrong_is_told_and_changes_nothing() {
    let mut index = Index::new(spec(4, Metric::L2, Dtype::U8)).unwrap();
    let good = Matrix::of_f32(4, &[1.0; 8]).unwrap();
    index.add_items(&good, Some(&[5, 6]), 1).unwrap();
    let say = |result: Result<(), tiercel_ann::AnnError>| result.unwrap_err().to_string();
    assert_eq!(say(index.add_items(&good, Some(&[1]), 1)), "1 labels for 2 vectors");
    assert_eq!(say(index.add_items(&good, Some(&[1, 1]), 1)), "label 1 comes twice among the vectors to add");
    let long = Matrix::of_f32(5, &[1.0; 5]).unwrap();
    assert_eq!(say(index.add_items(&long, None, 1)), "vectors of 5 numbers for an index of 4");
    let odd = Matrix::of_f32(4, &[1.0, 1.0, 1.0, 1.0, 1.0, 300.0, 1.0, 1.0]).unwrap();
    assert_eq!(say(index.add_items(&odd, None, 1)), "vector 1 has 300 at 1, which u8 cannot hold");
    assert_eq!(say(index.remove(7)), "the index holds no vector with the label 7");
    assert_eq!(say(index.update(7, &good.slice(0..1))), "the index holds no vector with the label 7");
    assert!(index.knn_query(&long, 1, &Ask::default()).is_err());
    assert!(index.knn_query(&good, 0, &Ask::default()).is_err());
    assert_eq!(index.len(), 2);
    let found = index.knn_query(&good, 3, &Ask::default()).unwrap();
    assert_eq!(found.of(0), [5, 6, NOBODY]);
    assert!(Index::new(Spec { m: 1, ..*index.spec() }).is_err());
    assert!(Index::new(Spec { dim: 0, ..*index.spec() }).is_err());
}

/// A plain map that answers by looking at everything.
#[derive(Default)]
struct Naive(BTreeMap<u64, Vec<f32>>);

impl Naive {
    fn nearest(&self, query: &[f32], k: usize) -> Vec<f32> {
        let apart = |v: &Vec<f32>| v.iter().zip(query).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
        let mut all: Vec<f32> = self.0.values().map(apart).collect();
        all.sort_by(f32::total_cmp);
        all.truncate(k);
        all
    }

    /// The share of the ten true nearest that are found of some vectors.
    fn share(&self, find: impl Fn(&[f32]) -> Vec<f32>) -> f64 {
        let (mut hits, mut there) = (0, 0);
        for query in self.0.values().take(30) {
            let truth = self.nearest(query, 10);
            let worst = truth.last().copied().unwrap_or(0.0);
            hits += find(query).iter().filter(|distance| **distance <= worst).count();
            there += truth.len();
        }
        hits as f64 / there as f64
    }
}

/// Adds, removals, updates, compactions, saving and loading at random: labels are right, distances are those of the vectors, and the share of
/// the true nearest that is found stays high.
#[test]
fn any_sequence_of_changes_keeps_the_recall() {
    let seeds = std::env::var("TIERCEL_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    for seed in 0..seeds {
        let mut random = fastrand::Rng::with_seed(100 + seed);
        let dim = 12;
        let mut index = Index::new(Spec { seed, ..spec(dim, Metric::L2, Dtype::U8) }).unwrap();
        let mut naive = Naive::default();
        let path = std::env::temp_dir().join(format!("tiercel-ann-any-{seed}-{}", std::process::id()));
        let pool = clustered(&mut random, 4000, dim);
        let pick = |random: &mut fastrand::Rng| {
            let at = random.usize(0..4000) * dim;
            pool[at..at + dim].to_vec()
        };
        for round in 0..60 {
            match random.u32(0..10) {
                0..4 => {
                    let count = random.usize(1..120);
                    let labels: Vec<u64> = {
                        let mut labels: Vec<u64> = (0..count).map(|_| random.u64(0..2000)).collect();
                        labels.sort_unstable();
                        labels.dedup();
                        labels
                    };
                    let vectors: Vec<Vec<f32>> = labels.iter().map(|_| pick(&mut random)).collect();
                    index
                        .add_items(&Matrix::of_f32(dim, &vectors.concat()).unwrap(), Some(&labels), 2)
                        .unwrap();
                    naive.0.extend(labels.into_iter().zip(vectors));
                }
                4..8 => {
                    let some: Vec<u64> = naive.0.keys().copied().filter(|_| random.u32(0..6) == 0).collect();
                    for label in some {
                        naive.0.remove(&label);
                        index.remove(label).unwrap();
                    }
                }
                8 => {
                    let some: Vec<u64> = naive.0.keys().copied().filter(|_| random.u32(0..12) == 0).collect();
                    for label in some {
                        let vector = pick(&mut random);
                        index.update(label, &Matrix::of_f32(dim, &vector).unwrap()).unwrap();
                        naive.0.insert(label, vector);
                    }
                }
                _ if random.u32(0..8) == 0 => {
                    naive.0.keys().for_each(|label| index.remove(*label).unwrap());
                    naive.0.clear();
                }
                _ if random.bool() => {
                    index.save(&path, &SaveOptions { code_bits: 1, ..SaveOptions::default() }).unwrap();
                    if !naive.0.is_empty() {
                        let tiered = Tiered::open(&path, FastMemory::Bytes(Bytes::mib(2)), 1).unwrap();
                        let ask = TierAsk { ef: Some(300), rerank: Some(150), ..TierAsk::default() };
                        let share = naive.share(|query| {
                            let query = Matrix::of_f32(dim, query).unwrap();
                            tiered.knn_query(&query, 10, &ask).unwrap().0.distances
                        });
                        assert!(share >= 0.95, "seed {seed}, round {round}, in the file: {share}");
                    }
                    index = Index::load(&path).unwrap();
                }
                _ => index.compact(2),
            }
            assert_eq!(index.len(), naive.0.len());
            assert!(index.labels().all(|label| naive.0.contains_key(&label)));
            let (mut hits, mut there) = (0, 0);
            for _ in 0..20 {
                let query = pick(&mut random);
                let ask = Ask { ef: Some(80), ..Ask::default() };
                let found = index.knn_query(&Matrix::of_f32(dim, &query).unwrap(), 10, &ask).unwrap();
                let truth = naive.nearest(&query, 10);
                let mut labels: Vec<u64> = found.of(0).iter().copied().filter(|l| *l != NOBODY).collect();
                assert_eq!(labels.len(), truth.len(), "seed {seed}, round {round}");
                for (label, distance) in labels.iter().zip(&found.distances) {
                    let vector = &naive.0[label];
                    let apart: f32 = vector.iter().zip(&query).map(|(a, b)| (a - b).powi(2)).sum();
                    assert_eq!(apart, *distance, "seed {seed}, round {round}");
                }
                labels.sort_unstable();
                labels.dedup();
                assert_eq!(labels.len(), truth.len(), "no label twice");
                let worst = truth.last().copied().unwrap_or(0.0);
                hits += found.distances.iter().filter(|d| **d <= worst).count();
                there += truth.len();
            }
            assert!(hits as f64 >= 0.95 * there as f64, "seed {seed}, round {round}: {hits} of {there}");
        }
        let _ = std::fs::remove_file(path);
    }
}
