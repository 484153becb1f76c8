//! Layouts: who shares pages, and what pages hide.

use std::collections::BTreeMap;

use tiercel_core::Bytes;
use tiercel_profile::Accesses;
use tiercel_profile::accesses::PAGE;
use tiercel_profile::sharing::{Layout, Life, Piece, as_allocated, measure, pieces, reorganised};
use tiercel_testbed::for_seeds;
use tiercel_workload::nets;

fn random_pieces(random: &mut fastrand::Rng) -> Vec<Piece> {
    let life = |random: &mut fastrand::Rng| match random.u8(0..3) {
        0 => Life::Given,
        1 => Life::Short { visit: random.u32(0..5) },
        _ => Life::Long { birth: random.u32(0..5), last: random.u32(5..10) },
    };
    let count = random.usize(1..60);
    let piece = |_| {
        let largest = if random.bool() { 400 } else { 3 * PAGE.0 };
        let (bytes, passes) = (Bytes(random.u64(0..largest)), f64::from(random.u32(0..200)));
        Piece { bytes, passes, life: life(random) }
    };
    (0..count).map(piece).collect()
}

/// Every byte that a layout gives to somebody, page by page: who is there.
fn tenants(pieces: &[Piece], layout: &Layout) -> BTreeMap<u64, Vec<usize>> {
    let mut pages: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (at, piece) in pieces.iter().enumerate() {
        for byte in 0..piece.bytes.0.max(1) {
            let tenants = pages.entry((layout.offsets[at].0 + byte) / PAGE.0).or_default();
            if tenants.last() != Some(&at) {
                tenants.push(at);
            }
        }
    }
    pages
}

#[test]
fn only_the_like_share_pages_and_nobody_overlaps() {
    for_seeds(60, |seed| {
        let pieces = random_pieces(&mut fastrand::Rng::with_seed(seed));
        for layout in [as_allocated(&pieces), reorganised(&pieces, PAGE)] {
            let mut spans: Vec<(u64, u64)> =
                pieces.iter().zip(&layout.offsets).map(|(p, o)| (o.0, o.0 + p.bytes.0.max(1))).collect();
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two pieces overlap");
            assert!(spans.last().is_none_or(|span| span.1 <= layout.end.0));
        }
        let layout = reorganised(&pieces, PAGE);
        for (page, tenants) in tenants(&pieces, &layout) {
            let life = pieces[tenants[0]].life;
            assert!(tenants.iter().all(|at| pieces[*at].life == life), "page {page}: {tenants:?}");
            assert!(tenants.len() == 1 || life != Life::Given, "page {page}: {tenants:?}");
            let mut ordered = tenants.clone();
            ordered.sort_by_key(|at| layout.offsets[*at]);
            let passes: Vec<f64> = ordered.iter().map(|at| pieces[*at].passes).collect();
            assert!(passes.windows(2).all(|pair| pair[0] >= pair[1]), "the most accessed come first");
        }
        assert_eq!(measure(&pieces, &layout, PAGE).shared, 0);
    });
}

#[test]
fn figures_are_those_of_counting_page_by_page() {
    for_seeds(60, |seed| {
        let pieces = random_pieces(&mut fastrand::Rng::with_seed(seed));
        for layout in [as_allocated(&pieces), reorganised(&pieces, PAGE)] {
            let found = measure(&pieces, &layout, PAGE);
            let pages = tenants(&pieces, &layout);
            let unlike = |tenants: &Vec<usize>| {
                let lives: std::collections::BTreeSet<Life> =
                    tenants.iter().map(|at| pieces[*at].life).collect();
                lives.len() > 1 || (lives.contains(&Life::Given) && tenants.len() > 1)
            };
            assert_eq!(found.shared, pages.values().filter(|tenants| unlike(tenants)).count() as u64);
            let hot =
                |page: u64| pages.get(&page).map_or(0.0, |t| t.iter().map(|at| pieces[*at].passes).sum());
            for row in &found.rows {
                let inside = |passes: f64| row.least as f64 <= passes && passes <= row.most as f64;
                let objects: u64 = pieces.iter().filter(|p| inside(p.passes)).map(|p| p.bytes.0).sum();
                let many = (0..found.pages).filter(|page| inside(hot(*page))).count() as u64;
                assert_eq!((row.objects.0, row.pages.0), (objects, many * PAGE.0), "{row:?}");
            }
        }
    });
}

#[test]
fn pages_mislead_as_a_network_allocates_and_less_laid_out_anew() {
    let options = nets::NetOptions { batch: Some(128), ..nets::NetOptions::default() };
    let trace = nets::find("resnet32").expect("a network").build(&options).expect("it fits").trace;
    let all: Vec<Piece> = pieces(&trace, &Accesses::of_trace(&trace)).into_iter().map(|(_, p)| p).collect();
    let (before, after) =
        (measure(&all, &as_allocated(&all), PAGE), measure(&all, &reorganised(&all, PAGE), PAGE));
    println!("as allocated {before:#?}\nlaid out anew {after:#?}");
    assert!(before.shared > 0 && after.shared == 0);
    assert!(after.mistaken < before.mistaken, "{:?}, {:?}", after.mistaken, before.mistaken);
    let cold = |sharing: &tiercel_profile::sharing::Sharing| sharing.rows[1];
    assert!(cold(&before).pages < cold(&before).objects, "cold objects lie on pages that seem hot");
}
