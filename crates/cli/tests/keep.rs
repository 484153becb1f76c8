//! `tiercel keep`: what cannot be done is refused with a clear message, and nothing is started.

use std::process::{Command, Output};

use serde_json::Value;

fn keep(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiercel"));
    command.arg("keep").args(arguments).output().expect("the binary runs")
}

#[test]
fn bad_use_is_named_and_nothing_is_started() {
    let started = std::env::temp_dir().join(format!("tiercel-started-{}", std::process::id()));
    let touch = ["--", "touch", started.to_str().expect("a name")];
    let cases: [(&[&str], i32, &str); 12] = [
        (&[], 2, "what is to be kept?"),
        (&["--pid", "1", "--cgroup", "/x"], 2, "exclude each other"),
        (&["--pid", "0"], 2, "0"),
        (
            &["--pid", "4294967", "--fast", "64MiB", "--slow", "file:/tmp/tiercel-none"],
            1,
            "no process 4294967",
        ),
        (
            &["--cgroup", "/proc", "--fast", "64MiB", "--slow", "file:/tmp/tiercel-none"],
            1,
            "no memory cgroup",
        ),
        (&["--slow", "file:/tmp/tiercel-none", touch[0], touch[1], touch[2]], 2, "--fast"),
        (&["--fast", "1EiB", "--slow", "file:/tmp/tiercel-none", touch[0], touch[1], touch[2]], 2, "1EiB"),
        (
            &["--fast", "9999GiB", "--slow", "file:/tmp/tiercel-none", touch[0], touch[1], touch[2]],
            1,
            "this machine has",
        ),
        (
            &["--fast", "4KiB", "--slow", "file:/tmp/tiercel-none", touch[0], touch[1], touch[2]],
            1,
            "too little",
        ),
        (
            &["--fast", "64MiB", "--slow", "tape", touch[0], touch[1], touch[2]],
            2,
            "neither `swap` nor `file:PATH`",
        ),
        (
            &["--fast", "64MiB", "--slow", "file:/no/such/place", touch[0], touch[1], touch[2]],
            1,
            "/no/such/place",
        ),
        (&["--policy", "tircel", touch[0], touch[1], touch[2]], 2, "did you mean `tiercel`?"),
    ];
    for (arguments, status, message) in cases {
        let output = keep(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(message), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert!(!started.exists(), "nothing was started");
}

#[test]
fn nodes_that_are_not_there_are_named() {
    let output = keep(&["--tiers", "0,4000", "--pid", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no node"), "{said}");
}

#[test]
fn the_doctor_answers_people_and_programs() {
    let output = keep(&["--doctor"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("what will be used"), "{said}");
    let output = keep(&["--doctor", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert!(document["facilities"].as_array().is_some_and(|list| list.len() > 10));
    assert!(document["plan"].as_array().is_some_and(|plan| !plan.is_empty()));
}
