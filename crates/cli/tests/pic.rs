//! `tiercel pic`: a deck runs under any system to the same result, has its page, and a bad one is refused with its line.

mod shell;

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use shell::{Folder, command, json, text, tiercel};

const DECK: &str = "\
steps = 12
[grid]
cells = [16, 1, 48]
length = [4.0, 1.0, 6.0]
tile = [8, 1, 8]
boundary = \"absorbing\"
absorber = 4
[window]
[[laser]]
a0 = 1.0
frequency = 6.0
duration = 1.0
peak = 1.0
waist = 2.0
at = 2.5
[[species]]
name = \"electrons\"
charge = -1.0
mass = 1.0
density = 1.0
per_cell = [4, 4, 4]
thermal = [0.1]
";

#[test]
fn a_deck_has_the_same_result_and_a_page() {
    let folder = Folder::new("pic-page");
    let (deck, page) = (folder.file("deck.toml", DECK), folder.path("page.html"));
    let fast = json(&["pic", "run", &deck, "--threads", "1"]);
    let slow = json(&["pic", "run", &deck, "--fast", "80%", "--threads", "2", "--html", &page]);
    assert_eq!(fast["output_hash"], slow["output_hash"]);
    assert_eq!(
        (&slow["system"], &slow["steps"], &slow["emulated"]),
        (&"tiercel".into(), &12.into(), &true.into())
    );
    assert!(slow["particles"].as_u64() > Some(10_000));
    let html = std::fs::read_to_string(&page).expect("a page");
    for part in
        ["density of electrons", "phase space of electrons", "Ex in", "Energy", "data:image/png;base64,iVBOR"]
    {
        assert!(html.contains(part) || part == "Ex in" && html.contains("Ex <small>"), "{part}");
    }
}

#[test]
fn a_comparison_has_every_system_and_what_is_possible() {
    let folder = Folder::new("pic-compare");
    let (deck, page) = (folder.file("deck.toml", DECK), folder.path("page.html"));
    let turns = ["--rounds", "1", "--steps", "1", "--threads", "1", "--fast", "80%", "--html", &page];
    let with = |more: &[&str]| json(&[&["pic", "compare", &deck][..], &turns, more].concat());
    for slow in ["throttled", &format!("file:{}", std::env::temp_dir().display())] {
        let found = with(&["--slow", slow, "--throttle", "20GB/s,20GB/s"]);
        let systems = found["systems"].as_array().expect("a list");
        assert_eq!(systems.len(), 8, "{slow}");
        for system in systems {
            // No page of a file can be looked at.
            if slow != "throttled" && system["system"] == "ial" {
                assert!(
                    system["error"].as_str().is_some_and(|why| why.contains("a file is none")),
                    "{system}"
                );
                continue;
            }
            assert!(system["seconds"].as_f64() > Some(0.0), "{slow}: {system}");
        }
        assert_eq!((&found["same_results"], &found["measured"]), (&true.into(), &true.into()), "{slow}");
        let roofline = &found["roofline"];
        assert!(roofline["seconds"].as_f64() >= roofline["compute"].as_f64(), "{slow}: {roofline}");
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("warpx-pm") && html.contains("what is possible"));
    let two = with(&["--systems", "tiercel"]);
    assert_eq!(two["systems"].as_array().map(Vec::len), Some(2));
    let page = text(&["pic", "compare", &deck, "--rounds", "1", "--steps", "1", "--fast", "80%"]);
    assert!(page.contains("possible") && page.contains("the same for all"), "{page}");
}

#[test]
fn a_bench_says_what_was_measured() {
    let page = text(&["pic", "bench", "--cells", "4", "--steps", "1"]);
    assert!(page.contains("f32, order 1, one pass") && page.contains("f64, order 2, two passes"), "{page}");
    let document = json(&["pic", "bench", "--cells", "4", "--steps", "1"]);
    assert_eq!(document["measured"], true);
    assert_eq!(document["cases"][1]["particles"], 4096);
}

#[test]
fn bad_decks_are_refused_with_their_line() {
    let folder = Folder::new("pic-bad");
    for (from, to, part) in [
        ("density = 1.0", "density = -1.0", "line 20: `density` is -1.0, and must be zero or more"),
        ("density = 1.0", "densty = 1.0", "line 20: there is no key `densty` here, did you mean `density`?"),
        ("absorber = 4", "absorber = 4\nstep = 0.2", "line 8: a step of 0.2 is beyond Courant's limit"),
        ("absorber = 4", "absorber = 24", "line 3: the ends absorb 24 cells each"),
        (
            "tile = [8, 1, 8]",
            "tile = [8, 1, 48]",
            "line 3: the ends absorb 48 cells each, in whole tiles of 48",
        ),
        ("at = 2.5", "at = 0.1", "line 15: `at` is 0.1, and must be between 1"),
    ] {
        let deck = folder.file("deck.toml", DECK.replacen(from, to, 1));
        let output = tiercel(&["pic", "run", &deck]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part), "{said} has no `{part}`");
    }
    // Nothing of what is far too large is made.
    for (from, to, part) in [
        ("per_cell = [4, 4, 4]", "per_cell = [60000, 60000, 60000]", "the particles of a tile want"),
        ("cells = [16, 1, 48]", "cells = [65536, 65536, 65536]", "the currents of all tiles want"),
    ] {
        let deck = folder.file("deck.toml", DECK.replacen(from, to, 1));
        let output = tiercel(&["pic", "run", &deck]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(part), "{said} has no `{part}`");
    }
    let deck = folder.file("deck.toml", DECK);
    let output = tiercel(&["pic", "run", &deck, "--fast", "64KiB", "--slow", "dram"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("of fast memory is too little") && said.contains("a tile on its way"), "{said}");
}

/// Ctrl-C once: the iteration ends, a checkpoint is left although nobody asked for one, and from it the run comes to the bits of one that
/// was never interrupted.
#[test]
fn an_interrupted_run_goes_on_from_what_it_left() {
    let folder = Folder::new("pic-interrupted");
    let deck = folder.file("deck.toml", format!("{DECK}[output]\nevery = 1\n"));
    let mut long = command(&["pic", "run", &deck, "--steps", "100000", "--threads", "1", "--output", "."]);
    let long = long.current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let long = long.expect("runs");
    while !Path::new(&folder.path("iteration_00000002.json")).exists() {
        sleep(Duration::from_millis(5));
    }
    let status = Command::new("kill").args(["-INT", &long.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
    let output = long.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted after") && said.contains("--checkpoint deck.checkpoint"), "{said}");
    let left = folder.path("deck.checkpoint");
    let none = ["--output", &folder.path("more"), "--threads", "1"];
    let with = |more: &[&str]| json(&[&["pic", "run", &deck][..], &none, more].concat());
    let resumed = with(&["--checkpoint", &left, "--resume", "--steps", "1"]);
    let (at, one) = (resumed["steps"].as_u64().expect("a number"), 1);
    assert!(at > one && resumed["done"] == 0, "{resumed}");
    let steps = (at + 3).to_string();
    let resumed = with(&["--checkpoint", &left, "--resume", "--steps", &steps]);
    let straight = with(&["--steps", &steps]);
    assert_eq!((resumed["resumed"].as_u64(), &resumed["output_hash"]), (Some(at), &straight["output_hash"]));
}

/// What cannot be written is said and lost, and nothing else is: the run goes on to its end, and the exit status tells.
#[test]
fn files_that_cannot_be_written_end_no_run() {
    let folder = Folder::new("pic-unwritable");
    let deck = folder.file("deck.toml", format!("{DECK}[output]\nevery = 6\n"));
    // No folder can be made where a file is.
    let (blocked, kept) = (folder.file("blocked", ""), folder.path("kept.checkpoint"));
    let output = tiercel(&[
        "pic",
        "run",
        &deck,
        "--output",
        &blocked,
        "--checkpoint",
        &kept,
        "--threads",
        "1",
        "--json",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("iteration_000000").count(), 3, "{said}");
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("what there is all the same");
    assert_eq!((&document["done"], document["lost"].as_array().map(Vec::len)), (&12.into(), Some(3)));
    let good = json(&["pic", "run", &deck, "--output", &folder.path("good"), "--threads", "1"]);
    assert_eq!(document["output_hash"], good["output_hash"]);
    // The checkpoint is whole; where there is no room for another it stays.
    let resumed =
        json(&["pic", "run", &deck, "--output", &folder.path("more"), "--checkpoint", &kept, "--resume"]);
    assert_eq!((&resumed["resumed"], &resumed["output_hash"]), (&12.into(), &good["output_hash"]));
}
