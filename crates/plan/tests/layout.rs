//! Packings held against naive models: a checker of all pairs, a search of all orders, rectangles cut to pieces.

mod instances;

use std::time::Duration;

use fastrand::Rng;
use instances::Row;
use tiercel_core::Bytes;
use tiercel_plan::Effort;
use tiercel_plan::layout::{Buffer, Fault, LayoutError, Packing, pack, verify};
use tiercel_testbed::for_seeds;

/// Far more than any of these take, so that no result depends on how fast the machine is.
fn patient(seed: u64) -> Effort {
    Effort { gap: 0.0, time: Duration::from_secs(120), seed, ..Effort::default() }
}

fn buffers(rows: &[Row]) -> Vec<Buffer> {
    rows.iter().map(|(lower, upper, size)| Buffer::new(*lower, *upper, Bytes(*size))).collect()
}

/// Every pair of buffers, byte for byte.
fn sound(buffers: &[Buffer], offsets: &[Bytes], capacity: Bytes) -> bool {
    let end = |at: usize| u128::from(offsets[at].0) + u128::from(buffers[at].size.0);
    (0..buffers.len()).all(|a| {
        let x = &buffers[a];
        end(a) <= u128::from(capacity.0)
            && offsets[a].0.is_multiple_of(x.alignment.0)
            && (0..a).all(|b| {
                let y = &buffers[b];
                let together = x.lower < y.upper && y.lower < x.upper;
                let apart = end(a) <= u128::from(offsets[b].0) || end(b) <= u128::from(offsets[a].0);
                !together || apart
            })
    })
}

/// The most bytes alive at a moment.
fn live(buffers: &[Buffer]) -> u64 {
    let alive = |moment: u64| {
        let alive = buffers.iter().filter(|b| b.lower <= moment && moment < b.upper);
        alive.map(|b| b.size.0).sum::<u64>()
    };
    buffers.iter().map(|b| alive(b.lower)).max().unwrap_or(0)
}

/// Checks a packing against the naive models, and returns it.
fn checked(buffers: &[Buffer], packing: Packing) -> Packing {
    assert!(sound(buffers, &packing.offsets, packing.peak));
    let highest = buffers.iter().zip(&packing.offsets).map(|(b, at)| at.0 + b.size.0).max().unwrap_or(0);
    assert_eq!(packing.peak.0, highest);
    let live = live(buffers);
    assert!(
        packing.lower_bound.0 >= live
            && packing.lower_bound <= packing.proven
            && packing.proven <= packing.peak
    );
    if buffers.iter().all(|b| b.alignment.0 == 1) {
        assert_eq!(packing.lower_bound.0, live);
    }
    packing
}

/// Few buffers of few sizes over few moments, so that they get into each other's way.
fn few(rng: &mut Rng, most: usize) -> Vec<Buffer> {
    let moments = rng.u64(1..12);
    let sizes = rng.u64(1..9);
    let unit = [1, 1, 64, 1000][rng.usize(0..4)];
    let alignments: &[u64] = [&[1][..], &[1], &[1, 2, 4], &[3, 5], &[64]][rng.usize(0..5)];
    let count = rng.usize(0..=most);
    let buffer = |_| {
        let lower = rng.u64(0..moments);
        let upper = rng.u64(lower + 1..=moments);
        let size = Bytes(unit * rng.u64(1..=sizes));
        Buffer::new(lower, upper, size).aligned(Bytes(alignments[rng.usize(0..alignments.len())]))
    };
    (0..count).map(buffer).collect()
}

/// The lowest peak there is: buffers in every order, each as low as those before it allow that live when it does.
fn lowest_peak(buffers: &[Buffer]) -> u64 {
    fn go(buffers: &[Buffer], placed: &mut Vec<(usize, u64)>, peak: u64, best: &mut u64) {
        if peak >= *best {
            return;
        }
        if placed.len() == buffers.len() {
            *best = peak;
            return;
        }
        for at in (0..buffers.len()).filter(|at| placed.iter().all(|(p, _)| p != at)).collect::<Vec<_>>() {
            let b = &buffers[at];
            let under =
                placed.iter().filter(|(p, _)| b.lower < buffers[*p].upper && buffers[*p].lower < b.upper);
            let floor = under.map(|(_, end)| *end).max().unwrap_or(0);
            let end = floor.next_multiple_of(b.alignment.0) + b.size.0;
            placed.push((at, end));
            go(buffers, placed, peak.max(end), best);
            placed.pop();
        }
    }
    let mut best = u64::MAX;
    go(buffers, &mut Vec::new(), 0, &mut best);
    best
}

#[test]
fn tiny_instances_are_packed_as_low_as_possible() {
    for_seeds(1500, |seed| {
        let mut rng = Rng::with_seed(seed);
        let buffers = few(&mut rng, 7);
        let best = lowest_peak(&buffers);
        let packing = checked(&buffers, pack(&buffers, None, &patient(seed)).expect("packs"));
        assert_eq!((packing.peak.0, packing.proven.0), (best, best), "{buffers:?}");
        let exact = pack(&buffers, Some(Bytes(best)), &patient(seed)).expect("fits");
        assert!(checked(&buffers, exact).peak.0 <= best);
        if let Some(less) = best.checked_sub(1) {
            match pack(&buffers, Some(Bytes(less)), &patient(seed)) {
                Err(LayoutError::DoesNotFit(shortfall)) => {
                    assert!(shortfall.is_proven(), "{buffers:?}");
                    checked(&buffers, shortfall.best);
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn packings_are_sound_and_repeat() {
    for_seeds(150, |seed| {
        let mut rng = Rng::with_seed(seed);
        let buffers = few(&mut rng, 60);
        // A goal that is reached or given up long before the time is over.
        let effort = Effort { gap: 0.3, ..patient(seed) };
        let padded = |b: &Buffer| b.size.0.next_multiple_of(b.alignment.0) + b.alignment.0;
        let capacity = Some(Bytes(buffers.iter().map(padded).sum()));
        let once = pack(&buffers, capacity, &effort).expect("room for all beside each other");
        let twice = pack(&buffers, capacity, &effort).expect("the same again");
        assert_eq!(once.offsets, twice.offsets);
        checked(&buffers, once);
    });
}

#[test]
fn verification_agrees_with_all_pairs() {
    for_seeds(4000, |seed| {
        let mut rng = Rng::with_seed(seed);
        let buffers = few(&mut rng, 5);
        let room = rng.u64(1..40);
        let offsets: Vec<Bytes> =
            buffers.iter().map(|b| Bytes(rng.u64(0..room) / 4 * b.size.0.min(8))).collect();
        let capacity = Bytes(rng.u64(0..8000));
        assert_eq!(verify(&buffers, &offsets, Some(capacity)).is_ok(), sound(&buffers, &offsets, capacity));
    });
}

#[test]
fn faults_name_the_buffers() {
    let buffers = [Buffer::new(0, 4, Bytes(8)), Buffer::new(2, 6, Bytes(8)).aligned(Bytes(4))];
    let fault = |offsets: &[u64], capacity: Option<u64>| {
        let offsets: Vec<Bytes> = offsets.iter().copied().map(Bytes).collect();
        verify(&buffers, &offsets, capacity.map(Bytes)).map_err(|fault: Fault| fault.to_string())
    };
    let cases: [(&[u64], Option<u64>, &str); 6] = [
        (&[0], None, "2 buffers have 1 offsets"),
        (&[0, 8], Some(15), "buffer 1, 8 bytes at offset 8, ends beyond the capacity of 15 bytes"),
        (&[0, 9], None, "buffer 1 lies at 9, which is no multiple of its alignment 4"),
        (&[0, 4], None, "buffer 0 at 0 and buffer 1 at 4 overlap at moment 2"),
        (&[7, 0], None, "buffer 0 at 7 and buffer 1 at 0 overlap at moment 2"),
        (
            &[u64::MAX, 8],
            None,
            "buffer 0, 8 bytes at offset 18446744073709551615, ends beyond the capacity of 18446744073709551615 bytes",
        ),
    ];
    for (offsets, capacity, expected) in cases {
        assert_eq!(fault(offsets, capacity), Err(expected.to_string()));
    }
    assert_eq!(fault(&[0, 8], Some(16)), Ok(()));
    assert_eq!(fault(&[8, 0], None), Ok(()));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let good = Buffer::new(0, 1, Bytes(1));
    let cases = [
        (Buffer::new(3, 3, Bytes(1)), "buffer 1 lives from 3 to 3: the upper end must be the greater"),
        (Buffer::new(0, 1, Bytes(0)), "buffer 1 has no bytes"),
        (good.aligned(Bytes(0)), "buffer 1 has an alignment of zero; one is the least"),
        (Buffer::new(0, 1, Bytes(u64::MAX)), "the buffers add up to more bytes than 62 bits count"),
        (good.aligned(Bytes(1 << 62)), "the buffers add up to more bytes than 62 bits count"),
    ];
    for (bad, expected) in cases {
        let error = pack(&[good, bad], None, &patient(0)).expect_err("refused");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn shortfalls_say_how_far_it_came() {
    let buffers = buffers(&[(0, 2, 4), (1, 3, 4), (2, 4, 2)]);
    let error =
        |capacity| pack(&buffers, Some(Bytes(capacity)), &patient(0)).expect_err("too little").to_string();
    assert_eq!(
        error(7),
        "the buffers do not fit into 7 bytes: the best packing found takes 8 bytes, and 8 are alive at once"
    );
}

#[test]
fn nothing_needs_no_room() {
    let packing = pack(&[], Some(Bytes::ZERO), &patient(0)).expect("nothing fits into nothing");
    assert_eq!((packing.peak, packing.lower_bound), (Bytes::ZERO, Bytes::ZERO));
}

#[test]
fn the_first_packing_is_finished_even_without_time() {
    let rows = instances::random(3, 2000, 0.3);
    let effort = Effort { time: Duration::ZERO, ..patient(0) };
    checked(&buffers(&rows), pack(&buffers(&rows), None, &effort).expect("packs"));
}

#[test]
fn many_buffers_come_within_two_percent() {
    let many = [
        instances::uniform(1, 12_000, 0.05),
        instances::random(2, 12_000, 0.1),
        instances::requests(3, 12_000),
    ];
    for rows in many {
        let effort = Effort { gap: 0.02, time: Duration::from_secs(60), ..patient(0) };
        let hasty = Effort { time: Duration::ZERO, ..effort };
        let first = pack(&buffers(&rows), None, &hasty).expect("packs");
        assert!(first.gap() > 0.02, "no search is needed: {} of {}", first.peak, first.lower_bound);
        let packing = checked(&buffers(&rows), pack(&buffers(&rows), None, &effort).expect("packs"));
        assert!(packing.gap() <= 0.02, "{} of {}", packing.peak, packing.lower_bound);
    }
}

/// What a plan for a tenth of a network's memory keeps in fast memory: few large tensors that take turns and leave next to
/// no room, many small ones that come and go, and weights that stay.
fn planned(seed: u64) -> Vec<Row> {
    let mut random = Rng::with_seed(seed);
    let large: [(u64, u64); 12] = [
        (0, 4),
        (1, 10),
        (10, 12),
        (11, 22),
        (12, 13),
        (13, 15),
        (22, 27),
        (23, 32),
        (32, 36),
        (33, 43),
        (36, 37),
        (37, 42),
    ];
    let quarters: [(u64, u64); 13] = [
        (3, 11),
        (4, 11),
        (5, 11),
        (7, 11),
        (8, 15),
        (16, 23),
        (17, 23),
        (19, 23),
        (20, 25),
        (26, 33),
        (27, 33),
        (29, 33),
        (30, 35),
    ];
    let (times, period) = (6, 43);
    let mut rows: Vec<Row> = (0..150).map(|_| (0, times * period, random.u64(20..200))).collect();
    for start in (0..times).map(|at| at * period) {
        rows.extend(large.map(|(lower, upper)| (start + lower, start + upper, 16_000)));
        rows.extend(quarters.map(|(lower, upper)| (start + lower, start + upper, 4_000)));
        let mut small = || {
            let lower = start + random.u64(..period - 2);
            (lower, lower + random.u64(1..3), random.u64(1..30))
        };
        rows.extend((0..80).map(|_| small()));
    }
    rows
}

#[test]
fn plans_for_little_memory_are_packed_without_a_long_search() {
    for seed in 0..5 {
        let buffers = buffers(&planned(seed));
        let capacity = Bytes(live(&buffers) + 300);
        // Rounds are counted, not time.
        let brief = Effort { time: Duration::MAX, rounds: 2, ..patient(seed) };
        let packing =
            pack(&buffers, Some(capacity), &brief).unwrap_or_else(|error| panic!("{seed}: {error}"));
        assert!(sound(&buffers, &packing.offsets, capacity));
    }
}
