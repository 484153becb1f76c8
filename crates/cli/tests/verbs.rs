//! The verbs that plan and simulate, as people and programs use them.

mod shell;

use serde_json::Value;
use shell::{Folder, command, json, text, tiercel};

const MLP: [&str; 5] = ["mlp", "--batch", "8", "--machine", "optane-autotm"];

fn with<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[verb][..], &MLP, more].concat()
}

#[test]
fn every_verb_shows_two_examples() {
    let verbs = String::from_utf8(tiercel(&["--help"]).stdout).expect("text");
    let verbs = verbs.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = verbs.take_while(|line| line.starts_with("  "));
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    for verb in verbs.iter().filter(|verb| **verb != "help") {
        let help = text(&[verb, "--help"]);
        let examples = help.split("Examples:").nth(1).unwrap_or_else(|| panic!("{verb} has no examples"));
        let count = examples.lines().filter(|line| line.starts_with(&format!("  tiercel {verb}"))).count();
        assert!(count >= 2, "{verb}: {help}");
        if *verb != "completions" && !help.contains("<COMMAND>") {
            assert!(help.contains("--json") && help.contains("--seed"), "{verb}: {help}");
        }
    }
    for verb in [
        "list",
        "probe",
        "describe",
        "profile",
        "plan",
        "run",
        "compare",
        "reproduce",
        "train",
        "completions",
    ] {
        assert!(verbs.contains(&verb), "{verb} is missing from {verbs:?}");
    }
}

#[test]
fn list_knows_what_other_verbs_know() {
    let all = json(&["list"]);
    let names = |what: &str| -> Vec<String> {
        let list = all[what].as_array().expect("a list").iter();
        list.map(|entry| {
            assert!(entry.to_string().len() > 40, "{entry} says nothing of itself");
            entry["name"].as_str().expect("a name").to_string()
        })
        .collect()
    };
    for net in ["vgg19", "resnet200", "bert-large", "mlp"] {
        assert!(names("networks").iter().any(|name| name == net), "{net}");
    }
    for machine in ["optane-autotm", "h200", "cxl"] {
        assert!(names("machines").iter().any(|name| name == machine), "{machine}");
    }
    let systems = names("systems");
    for system in ["fast-only", "memory-mode", "cachedarrays-lmp", "autotm-static", "autotm-sync"] {
        assert!(systems.iter().any(|name| name == system), "{system}");
    }
    let page = text(&["list", "systems"]);
    assert!(systems.iter().all(|name| page.contains(name.as_str())) && !page.contains("vgg19"), "{page}");
}

#[test]
fn a_plan_has_the_names_that_programs_rely_on() {
    let d = json(&with("plan", &["--fast", "30%", "--system", "autotm-sync", "--time", "1s"]));
    assert_eq!(d["system"], "autotm-sync");
    let number = |name: &str| d[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", d[name]));
    assert!(number("bound_ns") <= number("iteration_ns"));
    assert!(number("fast_only_ns") <= number("iteration_ns"));
    assert!(number("iteration_ns") <= number("slow_only_ns"));
    let gap = (number("iteration_ns") - number("bound_ns")) / number("iteration_ns");
    assert!((gap - number("gap")).abs() < 1e-6);
    assert!((number("fast_bytes") / number("peak_bytes") - 0.3).abs() < 1e-3);
    for name in ["solve_ms", "fetched_bytes", "evicted_bytes", "recomputed_ns", "peak_fast_bytes"] {
        number(name);
    }
    assert!(d.as_object().is_some_and(|d| d.contains_key("layout_bytes")));
    assert!(number("peak_fast_bytes") <= number("fast_bytes"));
    assert!(number("used_memory_price_share") < 1.0);
}

#[test]
fn several_amounts_of_fast_memory_make_a_curve() {
    let curve = json(&with("plan", &["--fast", "20%,50%,120%", "--system", "cachedarrays-lm"]));
    let curve = curve.as_array().expect("a list");
    let slowdowns: Vec<f64> = curve.iter().filter_map(|point| point["slowdown"].as_f64()).collect();
    assert_eq!(slowdowns.len(), 3);
    assert!(slowdowns[0] >= slowdowns[1] && slowdowns[2] < 1.001, "{slowdowns:?}");
    let prices: Vec<f64> =
        curve.iter().filter_map(|point| point["used_memory_price_share"].as_f64()).collect();
    assert!(prices[0] < prices[1] && prices[1] < prices[2], "{prices:?}");
    let page = text(&with("plan", &["--fast", "20%,50%", "--system", "cachedarrays-lm"]));
    assert!(page.contains("speed for it") && page.lines().count() >= 7, "{page}");
}

#[test]
fn the_least_fast_memory_keeps_within_what_was_asked() {
    let arguments = ["plan", "resnet32", "--batch", "8", "--machine", "optane-autotm", "--within", "60%"];
    let arguments = [&arguments[..], &["--system", "cachedarrays-lm"]].concat();
    let d = json(&arguments);
    assert!(d["slowdown"].as_f64().is_some_and(|slowdown| slowdown <= 1.6), "{d}");
    assert!(d["fast_fraction"].as_f64().is_some_and(|share| share < 1.0), "{d}");
    assert!(text(&arguments).contains("within 60 % of fast-only"));
}

#[test]
fn a_plan_that_was_saved_is_played() {
    let folder = Folder::new("plan");
    let path = folder.path("plan.json");
    let planned = json(&with("plan", &["--fast", "40%", "--system", "autotm-sync", "--out", &path]));
    assert_eq!(folder.entries(), ["plan.json"], "nothing is left beside it");
    let run = json(&["run", "mlp", "--batch", "8", "--plan", &path]);
    assert_eq!(run["system"], "plan");
    assert_eq!(run["machine"], "optane-autotm");
    assert_eq!(run["fast_bytes"], planned["fast_bytes"]);
    assert_eq!(run["planned_ns"], planned["iteration_ns"]);
    let again = json(&with("run", &["--fast", "40%", "--system", "autotm-sync"]));
    assert_eq!(run["iteration_ns"], again["iteration_ns"]);
}

#[test]
fn a_run_has_the_names_that_programs_rely_on() {
    let d = json(&with("run", &["--fast", "30%", "--system", "cachedarrays-lm", "--iterations", "4"]));
    assert_eq!(
        (&d["system"], &d["on"], &d["measured"]),
        (&"cachedarrays-lm".into(), &"sim".into(), &false.into())
    );
    assert_eq!(d["iteration_ns"].as_array().map(Vec::len), Some(4));
    for name in ["stall_ns", "fetched_bytes", "evicted_bytes", "peak_fast_bytes", "batch", "fast_bytes"] {
        assert!(d[name].is_u64(), "{name}");
    }
    assert!(d.get("loss").is_none() && d.get("output_hash").is_none(), "nothing was computed");
    let page = text(&with("run", &["--fast", "30%", "--system", "cachedarrays-lm"]));
    assert!(page.contains("3 simulated iterations under cachedarrays-lm"), "{page}");
}

#[test]
fn results_on_the_host_do_not_depend_on_the_system() {
    let run = |system: &str| {
        let more = ["--on", "host", "--machine", "dram-throttled", "--iterations", "3", "--system", system];
        json(&[&["run", "mlp", "--width", "32", "--batch", "8"][..], &more].concat())
    };
    let fast = run("fast-only");
    assert_eq!((&fast["on"], &fast["measured"]), (&"host".into(), &true.into()));
    assert_eq!(fast["loss"].as_array().map(Vec::len), Some(3));
    assert_eq!(fast["iteration_ns"].as_array().map(Vec::len), Some(3));
    for system in ["cachedarrays-lmp", "autotm-sync", "first-touch"] {
        let other = run(system);
        assert_eq!(other["system"], system);
        for same in ["loss", "output_hash"] {
            assert_eq!(fast[same], other[same], "{system}: {same}");
        }
    }
}

fn comparison(threads: &str) -> Value {
    json(&[
        "compare",
        "mlp,resnet32",
        "--batch",
        "8",
        "--machine",
        "optane-autotm",
        "--fast",
        "20%,60%",
        "--systems",
        "fast-only,first-touch,autotm-sync,cachedarrays-lm",
        "--threads",
        threads,
    ])
}

#[test]
fn a_comparison_is_complete_ordered_and_the_same_on_any_number_of_threads() {
    let all = comparison("1");
    assert_eq!(all, comparison("3"));
    let rows = all.as_array().expect("a list");
    assert_eq!(rows.len(), 2 * 2 * 4);
    let mut at = 0;
    for net in ["mlp", "resnet32"] {
        for fast in [0.2, 0.6] {
            for system in ["fast-only", "first-touch", "autotm-sync", "cachedarrays-lm"] {
                let row = &rows[at];
                at += 1;
                assert_eq!((&row["net"], &row["system"]), (&net.into(), &system.into()));
                assert!((row["fast_fraction"].as_f64().expect("a share") - fast).abs() < 1e-3, "{row}");
                assert_eq!((&row["batch"], &row["machine"]), (&8.into(), &"optane-autotm".into()));
                assert!(row["slowdown"].as_f64().is_some_and(|slowdown| slowdown >= 1.0), "{row}");
                for name in ["iteration_ns", "stall_ns", "fetched_bytes", "evicted_bytes", "peak_fast_bytes"]
                {
                    assert!(!row[name].is_null(), "{name}");
                }
                // AutoTM's prices: 16.61 for a gigabyte of DRAM, 7.85 for one of PMM.
                let share = if system == "fast-only" { 1.0 } else { fast };
                let gigabytes = row["peak_bytes"].as_f64().expect("a size") / 1e9;
                let price = row["memory_price"].as_f64().expect("the machine has prices") / gigabytes;
                assert!((price - (7.85 + share * (16.61 - 7.85))).abs() < 0.02, "{row}");
            }
        }
    }
}

#[test]
fn a_comparison_says_what_could_not_be_run() {
    let arguments =
        ["compare", "mlp", "--machine", "h200", "--fast", "1%,150%", "--systems", "cachedarrays-lm"];
    let rows = json(&arguments);
    assert!(rows[0]["error"].as_str().is_some_and(|error| error.contains("works on")), "{rows}");
    assert!(rows[0]["slowdown"].is_null() && rows[1]["slowdown"].is_f64(), "{rows}");
    let page = text(&arguments);
    assert!(page.contains("         -") && page.contains("- mlp with"), "{page}");
}

#[test]
fn what_happened_can_be_reported() {
    let folder = Folder::new("events");
    let (events, page) = (folder.path("events.jsonl"), folder.path("page.html"));
    for on in ["sim", "host"] {
        let small =
            ["run", "mlp", "--width", "32", "--batch", "8", "--machine", "dram-throttled", "--on", on];
        let more = ["--system", "cachedarrays-lmp", "--iterations", "2", "--events", &events];
        let run = json(&[&small[..], &more].concat());
        let report = json(&["report", &events]);
        let text = report.to_string();
        assert!(text.contains("cachedarrays-lmp") && text.contains("mlp"), "{on}: {text}");
        let started = std::fs::read_to_string(&events).expect("it was written");
        let kernels = started.lines().filter(|line| line.contains("kernel_ended")).count();
        assert!(kernels >= run["iterations"].as_u64().expect("a number") as usize * 10, "{on}: {kernels}");
    }
    let compare =
        ["compare", "mlp", "--machine", "optane-autotm", "--systems", "first-touch,cachedarrays-lm"];
    text(&[&compare[..], &["--html", &page]].concat());
    let html = std::fs::read_to_string(&page).expect("it was written");
    assert!(html.starts_with("<!DOCTYPE html>") || html.starts_with("<!doctype html>"), "{}", &html[..80]);
    assert!(html.contains("cachedarrays-lm") && html.len() < 5_000_000);
    let mut left = folder.entries();
    left.sort();
    assert_eq!(left, ["events.jsonl", "page.html"]);
}

#[test]
fn explain_counts_the_bytes_of_every_choice() {
    let case = ["explain", "zero", "--params", "4.3e9", "--machine", "h200", "--fast", "32GiB"];
    let page = text(&case);
    for row in ["gradients, masters, moments, update", "127 ways", "streamed", "119 GB/s"] {
        assert!(page.contains(row), "{row}: {page}");
    }
    let found = json(&case);
    let left: Vec<u64> = found["choices"]
        .as_array()
        .expect("a list")
        .iter()
        .flat_map(|c| c["gpu_bytes_each"].as_u64())
        .collect();
    assert_eq!(left, [16, 14, 4, 2]);
    let time = |name: &str| found[name]["update_ns"].as_u64().expect("a time");
    assert!(time("with_room") < time("without_room"));
    assert!(time("without_room") < found["host_only_ns"].as_u64().expect("a time"));
    let small = tiercel(&["explain", "zero", "--params", "4.3e9", "--fast", "4GiB"]);
    assert!(
        !small.status.success() && String::from_utf8_lossy(&small.stderr).contains("8.01 GiB"),
        "{small:?}"
    );
}

#[test]
fn completions_name_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&["completions", shell]);
        for verb in ["list", "probe", "describe", "plan", "run", "compare", "reproduce", "train"] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
    }
}

#[test]
fn nobody_sees_colour_or_progress_who_is_not_at_a_terminal() {
    let output =
        command(&with("compare", &["--systems", "all"])).env("CLICOLOR", "1").output().expect("runs");
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!output.stdout.contains(&0x1b));
}

/// The lines that are said however busy the machine is on which the tests run.
fn told(said: &str) -> Vec<&str> {
    said.lines().filter(|line| !line.starts_with("tiercel: other programs had ")).collect()
}

/// Where nothing can be kept, this machine is measured all the same, and why it was not kept is said in a line.
#[test]
fn this_machine_is_known_where_nothing_can_be_kept() {
    let folder = Folder::new("unkept");
    let cache = folder.file("cache", "a file where a folder should be");
    let arguments = ["run", "mlp", "--batch", "8", "--fast", "50%", "--system", "cachedarrays-lmp", "--json"];
    let output = command(&arguments).env("XDG_CACHE_HOME", &cache).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let [first, second] = told(&said)[..] else { panic!("{said}") };
    assert!(first.starts_with("tiercel: measuring this machine for the first time"), "{said}");
    let start = format!(
        "tiercel: what was measured of this machine is not kept for the next time: cannot write `{cache}/tiercel/here-"
    );
    assert!(second.starts_with(&start) && second.ends_with("Not a directory (os error 20)"), "{said}");
}

/// The machine is measured when somebody first asks for it, and kept.
#[test]
fn this_machine_is_measured_once() {
    let folder = Folder::new("here");
    let run = |arguments: &[&str]| {
        let output = command(arguments).env("XDG_CACHE_HOME", folder.path("cache")).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    };
    let arguments = ["run", "mlp", "--batch", "8", "--fast", "50%", "--system", "cachedarrays-lmp", "--json"];
    let first = run(&arguments);
    assert!(String::from_utf8_lossy(&first.stderr).contains("measuring this machine for the first time"));
    let second = run(&arguments);
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(told(&said).is_empty(), "{said}");
    assert_eq!(first.stdout, second.stdout, "the same machine gives the same simulation");
    let out = folder.path("machine.toml");
    let found = run(&["probe", "--json", "--file", &folder.path(""), "--out", &out]);
    let found: Value = serde_json::from_slice(&found.stdout).expect("one document");
    assert_eq!(found["measured"], true);
    let tiers = found["tiers"].as_array().expect("tiers");
    assert!(
        tiers.len() >= 2 && tiers.iter().all(|t| t["read_bytes_per_second"].as_f64() > Some(1e6)),
        "{found}"
    );
    assert!(tiers[0]["latency_ns"].as_u64().is_some_and(|ns| (1..100_000).contains(&ns)), "{found}");
    assert!(found["links"].as_array().is_some_and(|links| links.len() >= 2), "{found}");
    let mut left = folder.entries();
    left.sort();
    assert_eq!(left, ["cache", "machine.toml"], "the file is gone");
    run(&["run", "mlp", "--batch", "8", "--machine", &out, "--fast", "50%", "--system", "cachedarrays-lmp"]);
    let memory = run(&["probe", "--no-file", "--json"]);
    let memory: Value = serde_json::from_slice(&memory.stdout).expect("one document");
    assert!(memory["tiers"].as_array().is_some_and(|tiers| tiers.iter().all(|t| t["computable"] == true)));
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let folder = Folder::new("interrupt");
    let plan = folder.path("plan.json");
    let mut child =
        command(&["plan", "densenet264", "--machine", "optane-autotm", "--system", "autotm-static"])
            .args(["--fast", "20%", "--gap", "0%", "--time", "60s", "--out", &plan])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("starts");
    std::thread::sleep(std::time::Duration::from_millis(700));
    let id = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &id]).status().expect("kill is there");
    let status = child.wait().expect("ends");
    assert_eq!(status.code(), Some(130));
    assert_eq!(folder.entries(), [] as [&str; 0]);
}
