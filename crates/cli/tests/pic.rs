//! `tiercel pic`: a deck runs under any system to the same result, has its page, and a bad one is refused with its line.

mod shell;

use shell::{Folder, json, text, tiercel};

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
        assert_eq!(systems.len(), 7, "{slow}");
        for system in systems {
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
    let deck = folder.file("deck.toml", DECK);
    let output = tiercel(&["pic", "run", &deck, "--fast", "64KiB", "--slow", "dram"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("of fast memory is too little") && said.contains("a tile on its way"), "{said}");
}
