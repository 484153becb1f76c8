//! `tiercel profile`, and measured times in the verbs that plan and simulate.

mod shell;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use shell::{Folder, command};

const SMALL: [&str; 5] = ["mlp", "--width", "32", "--batch", "8"];

/// A run with a cache folder of its own.
fn run(folder: &Folder, arguments: &[&str]) -> Output {
    command(arguments).env("XDG_CACHE_HOME", folder.path("cache")).output().expect("runs")
}

fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

fn profile(folder: &Folder, more: &[&str]) -> Value {
    document(&run(folder, &[&["profile"], &SMALL[..], &["--json"], more].concat()))
}

#[test]
fn a_kernel_is_measured_once() {
    let folder = Folder::new("profile");
    let first = profile(&folder, &[]);
    let number = |d: &Value, name: &str| d[name].as_u64().unwrap_or_else(|| panic!("{name}: {d}"));
    assert!(number(&first, "times_measured") > 10 && number(&first, "times_known_before") == 0);
    assert_eq!(number(&first, "times"), number(&first, "times_measured"));
    assert!(number(&first, "fast_ns") > 0);
    let kinds = first["kinds"].as_array().expect("a list");
    let share: f64 = kinds.iter().filter_map(|kind| kind["share"].as_f64()).sum();
    assert!((share - 1.0).abs() < 1e-6 && kinds.iter().any(|kind| kind["kind"] == "linear"), "{first}");
    let again = profile(&folder, &[]);
    assert_eq!(number(&again, "times_measured"), 0);
    assert_eq!((&first["fast_ns"], &first["slow_ns"]), (&again["fast_ns"], &again["slow_ns"]));
    // On plain memory nothing is new with another slow tier; with another number of threads everything is.
    let file = profile(&folder, &["--slow", &format!("file:{}", folder.path(""))]);
    assert_eq!((number(&file, "times_measured"), &file["slow_ns"]), (0, &Value::Null));
    let three = profile(&folder, &["--threads", "3"]);
    assert_eq!(number(&three, "times_known_before"), 0);
}

#[test]
fn a_table_says_what_was_measured_and_where_it_is_kept() {
    let folder = Folder::new("profile-table");
    let output = run(&folder, &[&["profile"], &SMALL[..]].concat());
    let page = String::from_utf8(output.stdout).expect("text");
    for part in [
        "mlp, batch 8",
        "all fast",
        "all slow",
        "ratio",
        "share",
        "linear.backward-weight",
        "were known",
        "kept in",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_damaged_file_is_measured_again() {
    let folder = Folder::new("profile-damage");
    let first = profile(&folder, &[]);
    let cache = first["cache"].as_str().expect("a path");
    let whole = std::fs::read(cache).expect("it is there");
    for damaged in [&whole[..whole.len() / 2], b"\xff\xfe"] {
        std::fs::write(cache, damaged).expect("writable");
        let output = run(&folder, &[&["profile"], &SMALL[..], &["--json"]].concat());
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let complaint: Vec<&str> = complaint.lines().filter(|line| line.contains("is no profile")).collect();
        let complaint = complaint.join("\n");
        assert!(complaint.contains("is no profile") && complaint.lines().count() == 1, "{complaint}");
        assert_eq!(document(&output)["times_known_before"], 0);
        assert_eq!(profile(&folder, &[])["times_measured"], 0, "it is whole again");
    }
}

#[test]
fn two_at_a_time_do_not_lose_each_others_work() {
    let folder = Folder::new("profile-both");
    // The machine is measured first, so that both begin with kernels.
    document(&run(&folder, &["profile", "mlp", "--width", "8", "--batch", "4", "--json"]));
    let start = |width: &str| {
        command(&["profile", "mlp", "--width", width, "--batch", "8", "--json"])
            .env("XDG_CACHE_HOME", folder.path("cache"))
            .stdout(Stdio::null())
            .spawn()
            .expect("starts")
    };
    let mut both = [start("16"), start("24")];
    assert!(both.iter_mut().all(|child| child.wait().expect("ends").success()));
    for width in ["16", "24"] {
        let again = run(&folder, &["profile", "mlp", "--width", width, "--batch", "8", "--json"]);
        assert_eq!(document(&again)["times_measured"], 0, "{width}");
    }
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    let folder = Folder::new("profile-interrupt");
    document(&run(&folder, &[&["profile"], &SMALL[..], &["--json"]].concat()));
    let arguments = ["profile", "cnn", "--batch", "8", "--json"];
    let child = command(&arguments)
        .env("XDG_CACHE_HOME", folder.path("cache"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    std::thread::sleep(std::time::Duration::from_millis(900));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    let output = child.wait_with_output().expect("ends");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{complaint}");
    assert!(complaint.contains("tiercel: interrupted: ") && complaint.contains("goes on"), "{complaint}");
    let again = document(&run(&folder, &arguments));
    assert!(again["times_known_before"].as_u64() > Some(0), "{again}");
    let cache = Path::new(again["cache"].as_str().expect("a path")).parent().expect("a folder").to_path_buf();
    let left = std::fs::read_dir(cache)
        .expect("readable")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert!(left.into_iter().all(|name| !name.ends_with(".part")));
}

#[test]
fn what_was_measured_is_what_plans_go_by() {
    let folder = Folder::new("profile-times");
    let trace = folder.path("mlp.trace");
    let measured = profile(&folder, &["--machine", "dram-throttled", "--out", &trace]);
    let with = |verb: &str, what: &[&str], more: &[&str]| {
        let machine = ["--machine", "dram-throttled", "--json", "--fast", "150%", "--system", "first-touch"];
        document(&run(&folder, &[&[verb], what, &machine, more].concat()))
    };
    // Everything fits, so an iteration is the sum of its kernels.
    let kernels = measured["fast_ns"].as_f64().expect("a number");
    let near = |d: &Value| {
        let time = d["iteration_ns"][0].as_f64().expect("a number");
        assert!((time / kernels - 1.0).abs() < 0.02, "{time} and {kernels}");
    };
    near(&with("run", &SMALL, &["--times", "measured"]));
    near(&with("run", &[&trace], &[]));
    assert!(with("plan", &SMALL, &["--times", "measured"])["iteration_ns"].as_f64() > Some(0.0));
    let machine =
        ["--machine", "dram-throttled", "--json", "--times", "measured", "--systems", "first-touch"];
    let rows = document(&run(&folder, &[&["compare"], &SMALL[..], &machine].concat()));
    assert!((rows[0]["fast_only_ns"].as_f64().expect("a number") / kernels - 1.0).abs() < 0.02, "{rows}");
}
