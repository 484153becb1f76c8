//! HM-ANN by what it touches: counts need no clock.

use tiercel_ann::data::Ids;
use tiercel_ann::hm::reproduce::vectors;
use tiercel_ann::hm::{Goal, Hm, Variant, Widths, choose};
use tiercel_ann::{Index, Matrix, Metric, Spec};

fn index() -> (Index, Vec<f32>, usize) {
    let (numbers, dim) = vectors(4100, 3);
    let (base, queries) = numbers.split_at(4000 * dim);
    let mut index =
        Index::new(Spec { m: 8, ef_construction: 60, ..Spec::new(dim, Metric::L2, tiercel_ann::Dtype::U8) })
            .unwrap();
    index.add_items(&Matrix::of_f32(dim, base).unwrap(), None, 2).unwrap();
    (index, queries.to_vec(), dim)
}

/// A fifth of what vectors and links take.
const FAST: u64 = 4000 * (96 + 64) / 5;

#[test]
fn every_variant_finds_and_touches_what_it_should() {
    let (index, queries, dim) = index();
    let queries = Matrix::of_f32(dim, &queries).unwrap();
    let truth = index.exact(&queries, 10, 2).unwrap();
    let mut slow = Vec::new();
    for variant in Variant::ALL {
        let mut hm = Hm::new(&index, variant, FAST, 2, false).unwrap();
        let (found, touched, times) = hm.search(&queries, 10, Widths { l1: 100, l0: 2 }).unwrap();
        let recall = found.recall(&truth.labels, 10);
        assert!(recall > 0.85, "{}: {recall}", variant.name());
        assert_eq!(times.len(), 100);
        assert!(touched.waits <= touched.slow + touched.lists, "{}: {touched:?}", variant.name());
        match variant {
            Variant::AllFast => assert_eq!((touched.slow, touched.lists), (0, 0)),
            Variant::AllSlow => assert_eq!(touched.fast, 0),
            _ => assert!(touched.slow > 0 && touched.fast > 0, "{}: {touched:?}", variant.name()),
        }
        slow.push((variant, touched.slow));
        if variant.promotes() {
            let share = touched.slow as f64 / (touched.slow + touched.fast) as f64;
            assert!(share < 0.9, "{}: {share}", variant.name());
        }
    }
    let of = |wanted| slow.iter().find(|(variant, _)| *variant == wanted).map_or(0, |(_, slow)| *slow);
    assert!(of(Variant::FirstTouch) < of(Variant::AllSlow));
    assert!(of(Variant::MemoryMode) < of(Variant::AllSlow));
}

#[test]
fn promotion_fills_fast_memory_and_no_more() {
    let (index, _, _) = index();
    let shares: Vec<f64> = [FAST / 2, FAST, 2 * FAST]
        .into_iter()
        .map(|fast| Hm::new(&index, Variant::Promotion, fast, 1, false).unwrap().promoted())
        .collect();
    assert!(shares.windows(2).all(|pair| pair[0] < pair[1]), "{shares:?}");
    // N1 vectors and 2M links each, and a little for the levels above.
    assert!(shares[1] * 4000.0 * (96.0 + 64.0) <= FAST as f64);
    assert!(shares[1] > 0.15);
}

#[test]
fn widths_are_chosen_that_reach_the_goal() {
    let (index, queries, dim) = index();
    let queries = Matrix::of_f32(dim, &queries).unwrap();
    let truth = Ids { width: 1, labels: index.exact(&queries, 1, 1).unwrap().labels };
    let queries = queries.slice(0..16);
    let mut hm = Hm::new(&index, Variant::HmAnn, FAST, 1, false).unwrap();
    // So long that no measurement on a busy machine comes near it.
    let goal = Goal { k: 1, seconds: 3600.0, recall: 0.9 };
    let chosen = choose(&index, &mut hm, &queries, &truth, &goal).unwrap();
    assert!(chosen.recall >= 0.9 && chosen.predicted <= goal.seconds);
    assert_eq!(chosen.admitted, chosen.pairs);
    let hurried = Goal { seconds: 1e-9, ..goal };
    let error = choose(&index, &mut hm, &queries, &truth, &hurried).unwrap_err().to_string();
    assert!(error.starts_with("no setting reaches a recall of 0.9"), "{error}");
    let empty = Index::new(*index.spec()).unwrap();
    assert!(Hm::new(&empty, Variant::HmAnn, FAST, 1, false).is_err());
}
