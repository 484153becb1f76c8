//! Nothing that is written is lost while spans move to and fro: threads count in words of their own and check, at every
//! write, that the last one is still there.
//!
//! A million writes in every run of the tests; `scripts/check-pages` makes it ten million (`TIERCEL_CHECKED_WRITES`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tiercel_pages::arena::{Arena, ArenaError, SPAN, TierSpec};

const SPANS: usize = 8;

fn arena() -> Option<Arena> {
    let tiers = [TierSpec { spans: SPANS, node: None }, TierSpec { spans: SPANS, node: None }];
    match Arena::new(SPANS, &tiers) {
        Ok(arena) => Some(arena),
        Err(ArenaError::System { what, error }) => {
            eprintln!("skipped: {what}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// In both directions, while threads write; where the mover gets no processor, they write on until it did.
const MIGRATIONS: u64 = 64;

/// How many writes are checked at least.
fn writes() -> u64 {
    std::env::var("TIERCEL_CHECKED_WRITES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000)
}

#[test]
fn no_write_is_lost_while_spans_move() {
    let Some(arena) = arena() else { return };
    const THREADS: usize = 3;
    let each = writes() / THREADS as u64;
    let over = AtomicBool::new(false);
    let (migrations, written) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let write = |thread: usize| {
            let (arena, migrations, written, over) = (&arena, &migrations, &written, &over);
            move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let words = SPANS * SPAN / 8 / THREADS;
                let mut expected = vec![0u64; words];
                let mut count = 0;
                // Whoever finds a mistake ends the mover; without it nobody would ever be done.
                while count < each
                    || (migrations.load(Ordering::Relaxed) < MIGRATIONS && !over.load(Ordering::Relaxed))
                {
                    count += 1;
                    let at = random.usize(..words);
                    let place = at * THREADS + thread;
                    let span = arena.words(place / (SPAN / 8)).expect("a span");
                    let word = &span[place % (SPAN / 8)];
                    assert_eq!(word.load(Ordering::Relaxed), expected[at], "what was written last is there");
                    word.store(count, Ordering::Relaxed);
                    expected[at] = count;
                }
                written.fetch_add(count, Ordering::Relaxed);
                for (at, expected) in expected.iter().enumerate() {
                    let place = at * THREADS + thread;
                    let span = arena.words(place / (SPAN / 8)).expect("a span");
                    assert_eq!(span[place % (SPAN / 8)].load(Ordering::Relaxed), *expected);
                }
            }
        };
        let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(write(thread))).collect();
        let mover = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(99);
            // Ends by itself where it fails, and with it the writers.
            let _ends = Ends(&over);
            while !over.load(Ordering::Relaxed) {
                let span = random.usize(..SPANS);
                let to = 1 - arena.tier(span).expect("a span");
                arena.migrate(span, to).expect("there is room");
                assert_eq!(arena.tier(span), Some(to));
                migrations.fetch_add(1, Ordering::Relaxed);
                // So that writers get on; they wait for the span that moves.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        let failed = writers.into_iter().filter_map(|writer| writer.join().err()).count();
        over.store(true, Ordering::Relaxed);
        mover.join().expect("the mover");
        assert_eq!(failed, 0, "writers found what they wrote");
    });
    let (migrations, written) = (migrations.into_inner(), written.into_inner());
    assert!(migrations >= MIGRATIONS, "spans moved all the time: {migrations}");
    println!(
        "{written} checked writes by {THREADS} threads during {migrations} migrations to and fro, none lost"
    );
}

/// Says that it is over, also when its owner panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_does_not_fit_or_exist_is_refused() {
    let tiers = [TierSpec { spans: 1, node: None }, TierSpec { spans: 1, node: None }];
    assert!(matches!(Arena::new(3, &tiers), Err(ArenaError::Full { .. })));
    assert!(matches!(Arena::new(0, &tiers), Err(ArenaError::Full { .. })));
    let Some(arena) = arena() else { return };
    assert!(matches!(arena.migrate(SPANS, 0), Err(ArenaError::Unknown { what: "span", .. })));
    assert!(matches!(arena.migrate(0, 2), Err(ArenaError::Unknown { what: "tier", .. })));
    assert!(arena.words(SPANS).is_err());
    let full = Arena::new(2, &tiers).expect("as before");
    let Err(error) = full.migrate(0, 1) else { panic!("the second tier is full") };
    assert!(error.to_string().contains("tier 1"), "{error}");
    assert_eq!(full.tier(0), Some(0));
}
