//! Every placement, policy, number of threads and kind of vectors gives the same bits, and so does a restart.

use tiercel_core::{Backing, Bandwidth, Bytes};
use tiercel_pic::deck::Deck;
use tiercel_pic::run::{Options, run};
use tiercel_pic::scene::Amount;
use tiercel_pic::simd::Level;
use tiercel_pic::system::{Needs, System, machine};
use tiercel_pic::{Passes, Real, Simulation, Ways};

/// A plasma whose particles change tiles often, with a beam that drifts through it.
fn deck(precision: &str, order: usize) -> Deck {
    let text = format!(
        "seed = 3\nsteps = 6\nprecision = \"{precision}\"\norder = {order}\npusher = \"vay\"\n\
         [grid]\ncells = [20, 12, 17]\nlength = [2.0, 1.2, 1.7]\ntile = [6, 5, 4]\n\
         [[species]]\nname = \"electrons\"\ncharge = -1.0\nmass = 1.0\ndensity = 1.0\nper_cell = [2, 2, 1]\nthermal = [0.3]\n\
         [[species]]\nname = \"beam\"\ncharge = -1.0\nmass = 1.0\ndensity = 3.0\nper_cell = [2, 1, 1]\ndrift = [0.0, 0.0, 5.0]\n\
         centre = [1.0, 0.6, 0.8]\nsize = [0.2, 0.2, 0.2]\n"
    );
    Deck::parse(&text).expect("a good deck")
}

/// A laser and a bunch in a plasma that a window moves through: ends absorb waves and particles, layers go and come.
fn moving() -> Deck {
    let text = "seed = 3\nsteps = 32\norder = 3\npusher = \"higuera-cary\"\n\
         [grid]\ncells = [24, 20, 24]\nlength = [4.0, 3.0, 2.4]\ntile = [9, 7, 4]\nboundary = [\"absorbing\", \"periodic\", \"absorbing\"]\n\
         absorber = 4\n[window]\nfrom = 0.5\n\
         [[laser]]\na0 = 3.0\nfrequency = 10.0\nduration = 0.5\npeak = 0.7\nwaist = 1.0\nat = 0.6\nfocus = 1.0\n\
         [[species]]\nname = \"electrons\"\ncharge = -1.0\nmass = 1.0\ndensity = 1.0\nper_cell = [2, 2, 1]\nthermal = [0.3]\n\
         from = [0.0, 0.0, 1.0]\nto = [9.0, 9.0, 9.0]\nramp = 1.0\n\
         [[species]]\nname = \"beam\"\ncharge = -1.0\nmass = 1.0\ndensity = 3.0\nper_cell = [2, 1, 1]\ndrift = [0.0, 0.0, 5.0]\n\
         centre = [1.0, 0.6, 1.2]\nsize = [0.2, 0.2, 0.2]\n";
    Deck::parse(text).expect("a good deck")
}

fn quick() -> (Bandwidth, Bandwidth) {
    (Bandwidth(20e9), Bandwidth(20e9))
}

fn hash(deck: &Deck, options: Options) -> u64 {
    let options = Options { throttled: quick(), ..options };
    run(deck, &options, &mut |_| true)
        .unwrap_or_else(|error| panic!("{}: {error}", options.system))
        .output_hash
}

/// All systems but IAL, whose policy is not here: `tiercel pic compare` holds it to the same bits.
fn systems() -> impl Iterator<Item = (&'static str, System)> {
    System::ALL.into_iter().filter(|(_, system)| *system != System::Ial)
}

#[test]
fn every_system_gives_the_same_bits() {
    for (precision, order) in [("f32", 1), ("f64", 3)] {
        let deck = deck(precision, order);
        let all = hash(&deck, Options::default());
        for (name, system) in systems() {
            for threads in [1, 3] {
                let fast = Some(Amount::Share(0.6));
                assert_eq!(
                    hash(&deck, Options { system, threads, fast, ..Options::default() }),
                    all,
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn every_system_gives_the_same_bits_with_a_window_and_a_laser() {
    let deck = moving();
    // The last iteration moves on for the fourth time.
    assert_eq!(deck.setup.moved(31), 4);
    let all = hash(&deck, Options::default());
    let folder = std::env::temp_dir().display().to_string();
    for (name, system) in systems() {
        let fast = Some(Amount::Share(0.8));
        let options = Options { system, threads: 2, fast, ..Options::default() };
        assert_eq!(hash(&deck, options.clone()), all, "{name}");
        if matches!(system, System::WarpxPm | System::Tiercel) {
            let slow = Backing::File(folder.clone());
            assert_eq!(hash(&deck, Options { slow, ..options }), all, "{name} on a file");
        }
    }
}

#[test]
fn a_slow_tier_that_is_a_file_gives_the_same_bits() {
    let deck = deck("f32", 2);
    let all = hash(&deck, Options::default());
    let folder = std::env::temp_dir().display().to_string();
    for system in [System::WarpxPm, System::Tiercel] {
        let slow = Backing::File(folder.clone());
        let options = Options { system, slow, fast: Some(Amount::Share(0.7)), ..Options::default() };
        assert_eq!(hash(&deck, options), all, "{system}");
    }
}

fn bits<R: Real>(deck: &Deck, ways: Ways) -> u64 {
    let all = Bytes::mib(32);
    let needs = Needs { particles: all, ..Needs::default() };
    let machine = machine(&needs, all, Backing::Dram, quick(), 1);
    let wired = System::AllFast.wire(&needs, &machine).expect("a machine of memory");
    let mut simulation =
        Simulation::<R>::new(deck.setup.clone(), ways, &machine, wired.placement).expect("room");
    for _ in 0..5 {
        simulation.iterate(false).expect("an iteration");
    }
    simulation.hash().expect("everything")
}

#[test]
fn vectors_and_passes_do_not_matter() {
    for order in 1..=3 {
        let one = bits::<f32>(&deck("f32", order), Ways::default());
        for (level, passes) in [
            (Level::Portable, Passes::One),
            (Level::Portable, Passes::Two),
            (Ways::default().level, Passes::Two),
        ] {
            let ways = Ways { level, passes, batch: Some(Bytes(1)), ..Ways::default() };
            assert_eq!(bits::<f32>(&deck("f32", order), ways), one, "order {order}, {level:?}, {passes:?}");
        }
    }
    let deck = deck("f64", 2);
    let portable = Ways { level: Level::Portable, ..Ways::default() };
    assert_eq!(bits::<f64>(&deck, Ways::default()), bits::<f64>(&deck, portable));
}

#[test]
fn a_restart_goes_on_with_the_same_bits() {
    restart(&deck("f32", 1), 2);
    restart(&moving(), 17);
}

fn restart(deck: &Deck, after: u64) {
    let path = std::env::temp_dir().join(format!("tiercel-pic-{}-{after}.ckpt", std::process::id()));
    let whole = hash(deck, Options::default());
    // Interrupted after some iterations, under one system; gone on with under another.
    let first = Options { checkpoint: Some(path.clone()), throttled: quick(), ..Options::default() };
    let mut left = after;
    let stopped = run(deck, &first, &mut |_| {
        left -= 1;
        left > 0
    });
    assert!(stopped.expect("a run").interrupted);
    let second = Options {
        resume: true,
        system: System::Tiercel,
        fast: Some(Amount::Share(0.6)),
        threads: 2,
        throttled: quick(),
        ..first.clone()
    };
    let summary = run(deck, &second, &mut |_| true).expect("the rest");
    assert_eq!((summary.resumed, summary.output_hash), (Some(after), whole));
    // A damaged one is refused.
    let mut bytes = std::fs::read(&path).expect("a checkpoint");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).expect("a file");
    let error = run(deck, &second, &mut |_| true).expect_err("damaged").to_string();
    assert!(error.contains("damaged"), "{error}");
    std::fs::remove_file(&path).expect("gone");
}

#[test]
fn too_little_memory_is_said_with_what_would_do() {
    let options =
        Options { system: System::Tiercel, fast: Some(Amount::Bytes(Bytes::kib(100))), ..Options::default() };
    let error = run(&deck("f32", 1), &options, &mut |_| true).expect_err("too little").to_string();
    assert!(error.contains("of fast memory is too little") && error.contains("--fast"), "{error}");
}
