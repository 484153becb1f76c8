//! Several ranks come to the bits of one: whatever the system, with a window or without, and across a restart. Ranks are threads here;
//! `scripts/test-mpi` does the same with processes and MPI.

use std::path::PathBuf;

use tiercel_core::Bandwidth;
use tiercel_pic::deck::Deck;
use tiercel_pic::run::{Options, Summary, run, run_with};
use tiercel_pic::scene::Amount;
use tiercel_pic::system::System;
use tiercel_pic::team::{Channels, Team};

/// A hot plasma with a beam that drifts through it; tiles of unequal size, so thin along z that shapes reach over them.
fn closed(order: usize) -> Deck {
    let text = format!(
        "seed = 3\nsteps = 5\norder = {order}\npusher = \"vay\"\n\
         [grid]\ncells = [10, 12, 17]\nlength = [1.0, 1.2, 1.7]\ntile = [6, 5, 3]\n\
         [[species]]\nname = \"electrons\"\ncharge = -1.0\nmass = 1.0\ndensity = 1.0\nper_cell = [2, 2, 1]\nthermal = [0.3]\n\
         [[species]]\nname = \"beam\"\ncharge = -1.0\nmass = 1.0\ndensity = 3.0\nper_cell = [2, 1, 1]\ndrift = [0.0, 0.0, 5.0]\n\
         centre = [0.5, 0.6, 0.8]\nsize = [0.2, 0.2, 0.2]\n[output]\nmeasure = 2\n"
    );
    Deck::parse(&text).expect("a good deck")
}

/// A laser and a bunch in a plasma that a window moves through: layers go from rank to rank.
fn moving() -> Deck {
    let text = "seed = 3\nsteps = 32\norder = 3\npusher = \"higuera-cary\"\n\
         [grid]\ncells = [24, 12, 24]\nlength = [4.0, 1.8, 2.4]\ntile = [9, 7, 4]\nboundary = [\"absorbing\", \"periodic\", \"absorbing\"]\n\
         absorber = 4\n[window]\nfrom = 0.5\n\
         [[laser]]\na0 = 3.0\nfrequency = 10.0\nduration = 0.5\npeak = 0.7\nwaist = 1.0\nat = 0.6\nfocus = 1.0\n\
         [[species]]\nname = \"electrons\"\ncharge = -1.0\nmass = 1.0\ndensity = 1.0\nper_cell = [2, 2, 1]\nthermal = [0.3]\n\
         from = [0.0, 0.0, 1.0]\nto = [9.0, 9.0, 9.0]\nramp = 1.0\n\
         [[species]]\nname = \"beam\"\ncharge = -1.0\nmass = 1.0\ndensity = 3.0\nper_cell = [2, 1, 1]\ndrift = [0.0, 0.0, 5.0]\n\
         centre = [1.0, 0.6, 1.2]\nsize = [0.2, 0.2, 0.2]\n";
    Deck::parse(text).expect("a good deck")
}

fn options() -> Options {
    Options { throttled: (Bandwidth(20e9), Bandwidth(20e9)), ..Options::default() }
}

/// What the rank that leads says of a run of so many.
fn together(ranks: usize, deck: &Deck, options: &Options) -> Summary {
    let threads: Vec<_> = Channels::ranks(ranks)
        .into_iter()
        .map(|link| {
            let (deck, options) = (deck.clone(), options.clone());
            std::thread::spawn(move || {
                run_with(&deck, &options, Team::of(Box::new(link)), &mut |_| true).expect("a run")
            })
        })
        .collect();
    let all: Vec<Summary> = threads.into_iter().map(|thread| thread.join().expect("a rank")).collect();
    all.into_iter().next().expect("a rank that leads")
}

/// Energies are added up in another order: to rounding.
fn same(alone: &Summary, team: &Summary, what: &str) {
    assert_eq!(team.output_hash, alone.output_hash, "{what}");
    assert_eq!((team.particles, team.steps), (alone.particles, alone.steps), "{what}");
    for (one, other) in [(&alone.first, &team.first), (&alone.last, &team.last)] {
        assert!((other.energy() / one.energy() - 1.0).abs() < 1e-12, "{what}");
        assert_eq!(one.charge.len(), other.charge.len(), "{what}");
    }
}

#[test]
fn ranks_come_to_the_bits_of_one() {
    for order in [1, 3] {
        let deck = closed(order);
        let alone = run(&deck, &options(), &mut |_| true).expect("a run");
        for ranks in [2, 3, 4, 6] {
            same(&alone, &together(ranks, &deck, &options()), &format!("order {order}, {ranks} ranks"));
        }
        let fast = Some(Amount::Share(0.7));
        for system in [System::SlowOnly, System::WarpxPm, System::Tiercel] {
            let options = Options { system, fast, ..options() };
            same(&alone, &together(2, &deck, &options), &format!("order {order}, {system}"));
        }
    }
}

#[test]
fn a_window_moves_from_rank_to_rank() {
    let deck = moving();
    assert_eq!(deck.setup.moved(31), 4);
    let alone = run(&deck, &options(), &mut |_| true).expect("a run");
    for ranks in [2, 3, 6] {
        same(&alone, &together(ranks, &deck, &options()), &format!("{ranks} ranks"));
    }
}

#[test]
fn a_restart_may_have_other_ranks() {
    let deck = moving();
    let path: PathBuf = std::env::temp_dir().join(format!("tiercel-team-{}.ckpt", std::process::id()));
    let whole = run(&deck, &options(), &mut |_| true).expect("a run");
    // Three begin, two go on, and one ends it.
    let part =
        |steps| Options { checkpoint: Some(path.clone()), resume: true, steps: Some(steps), ..options() };
    together(3, &deck, &part(15));
    together(2, &deck, &part(20));
    let last = run(&deck, &part(32), &mut |_| true).expect("a run");
    std::fs::remove_file(&path).expect("a checkpoint");
    assert_eq!((last.resumed, last.output_hash), (Some(20), whole.output_hash));
}

#[test]
fn more_ranks_than_layers_are_refused() {
    let link = Channels::ranks(7).swap_remove(6);
    let error =
        run_with(&closed(1), &options(), Team::of(Box::new(link)), &mut |_| true).expect_err("too many");
    assert!(error.to_string().contains("7 of them cannot share 6 layers"), "{error}");
}
