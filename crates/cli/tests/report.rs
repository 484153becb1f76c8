//! `tiercel report` as people and programs use it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect};
use serde_json::Value;
use tiercel_core::{Bytes, Manager, TierId};
use tiercel_policies::by_name;
use tiercel_report::{Header, write_events};
use tiercel_run::Executor;
use tiercel_sim::Sim;
use tiercel_testbed::{machine, random_trace};

/// A folder that is gone when the test ends; the program runs in it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tiercel-report-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) -> &Folder {
        std::fs::write(self.0.join(name), text).expect("writes");
        self
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("readable").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tiercel"));
        command.current_dir(&self.0).arg("report").args(arguments).output().expect("the program starts")
    }

    /// Runs what must work; returns its output and its notes.
    fn good(&self, arguments: &[&str]) -> (String, String) {
        let output = self.run(arguments);
        let notes = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{arguments:?}: {notes}");
        (String::from_utf8(output.stdout).expect("text"), notes)
    }

    /// Runs what cannot be done; verifies the complaint.
    fn bad(&self, arguments: &[&str], complaint: Expect) {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        complaint.assert_eq(&String::from_utf8(output.stderr).expect("text"));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The example of the format's reference.
fn example() -> &'static str {
    let page = include_str!("../../../docs/events-format.md");
    let start = page.find("```jsonl\n").expect("an example") + "```jsonl\n".len();
    &page[start..start + page[start..].find("```").expect("it ends")]
}

/// The events of a random trace under a policy, in simulation.
fn events(system: &str) -> Vec<u8> {
    let trace = random_trace(&mut fastrand::Rng::with_seed(5), 12, 1 << 16);
    let all: u64 = trace.tensors.iter().map(|t| t.bytes.0.next_multiple_of(64)).sum();
    let machine = machine(&[all / 3, all * 2], 2);
    let mut manager = Manager::new(machine.clone(), Sim::new(machine.clone()));
    manager.record();
    let mut policy = by_name(system).expect("a policy");
    let mut executor = Executor::new(&trace).lookahead(2);
    for _ in 0..3 {
        executor.iterate(&mut manager, policy.as_mut()).expect("it runs");
    }
    let mut header = Header::simulated(&trace, &machine, system);
    header.peak_bytes = Some(Bytes(all));
    assert_eq!(header.tier_name(TierId(1)), machine.tiers[1].name);
    let mut out = Vec::new();
    write_events(&mut out, &header, &manager.take_events()).expect("writes to memory");
    out
}

const RESULTS: &str = r#"[
    {"net":"mlp","system":"fast-only","machine":"here","iteration_ns":[100,100],"measured":true,"fast_bytes":1000},
    {"net":"mlp","system":"redl","machine":"here","iteration_ns":[120,130],"measured":true,"fast_bytes":200}
]"#;

#[test]
fn help_shows_examples() {
    let folder = Folder::new("help");
    let (help, _) = folder.good(&["--help"]);
    let examples = help.split("Examples:").nth(1).expect("examples");
    assert!(examples.lines().filter(|line| line.trim_start().starts_with("tiercel report ")).count() >= 2);
    let output = folder.run(&[]);
    assert_eq!(output.status.code(), Some(2), "events are required");
}

#[test]
fn a_run_is_told_in_words() {
    let folder = Folder::new("words");
    let (text, notes) = folder.put("events.jsonl", example()).good(&["events.jsonl"]);
    assert_eq!(notes, "");
    expect![[r#"
        tiny, batch 32: cachedarrays-lmp on small, simulated

          fast memory    4 KiB, 50 % of the peak; 1 KiB used
          iteration      1.3 µs (one)
          moved          1 KiB fetched and 0 B evicted an iteration
          stall          300 ns an iteration, 23 % of the time
          recorded       2 kernels, 1 copy of 1 KiB

          where kernels waited, 300 ns in the iterations that count

            time  share  times  tensor     kernel      because
          300 ns  100 %      1  fc.weight  fc.forward  bytes not there yet

          Kernels waited for data on its way to them. Start fetching earlier (a longer look-ahead), keep the
          tensors that head the list in fast memory, or give more of it.
    "#]]
    .assert_eq(&text);
}

#[test]
fn every_form_is_written_whole_and_nothing_else() {
    let folder = Folder::new("forms");
    folder.put("lm.jsonl", events("cachedarrays-lm")).put("lmp.jsonl", events("cachedarrays-lmp"));
    folder.put("results.json", RESULTS);
    let arguments = [
        "lm.jsonl",
        "lmp.jsonl",
        "results.json",
        "--html",
        "r.html",
        "--perfetto",
        "t.json",
        "--csv",
        "s.csv",
    ];
    let (text, notes) = folder.good(&arguments);
    assert!(
        text.contains("cachedarrays-lm ") && text.contains("cachedarrays-lmp") && text.contains("redl"),
        "{text}"
    );
    assert_eq!(notes.lines().count(), 3, "{notes}");
    assert!(notes.lines().all(|line| line.starts_with("tiercel: wrote ")), "{notes}");
    assert_eq!(folder.entries(), ["lm.jsonl", "lmp.jsonl", "r.html", "results.json", "s.csv", "t.json"]);
    let page = folder.text("r.html");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("Some times are measured, some simulated"));
    let trace: Value = serde_json::from_str(&folder.text("t.json")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 100));
    let table = folder.text("s.csv");
    assert!(table.starts_with("run,net,system,kind,began_ns,") && table.lines().count() > 100);
    // The same again gives the same, and replaces what is there.
    folder.good(&arguments);
    assert_eq!(folder.text("r.html"), page);
}

#[test]
fn json_is_one_document_and_results_alone_will_do() {
    let folder = Folder::new("json");
    folder.put("events.jsonl", example()).put("results.json", RESULTS);
    let (text, notes) = folder.good(&["events.jsonl", "--json", "--html", "r.html"]);
    assert!(notes.starts_with("tiercel: wrote r.html, "), "{notes}");
    let document: Value = serde_json::from_str(&text).expect("one document");
    assert_eq!(document["comparison"][0]["iteration_ns"][0], 1300);
    assert_eq!(document["runs"][0]["stalls"]["all"][0]["object"], "fc.weight");
    assert_eq!(document["runs"][0]["iterations"][0]["compute_alone_ns"], 900);
    let (text, _) = folder.good(&["results.json", "--csv", "rows.csv"]);
    expect![[r#"
        mlp, on here, measured

          system       fast  iteration  slowdown  stall  stalled  kernels slower  fetched  evicted
          fast-only  1000 B     100 ns     1.00×   0 ns    0.0 %           0.0 %      0 B      0 B
          redl        200 B     130 ns     1.30×   0 ns    0.0 %            23 %      0 B      0 B
    "#]]
    .assert_eq(&text);
    assert_eq!(folder.text("rows.csv").lines().count(), 3);
    // What `report --json` says can be reported on again.
    let (text, _) = folder.good(&["events.jsonl", "--json"]);
    let (again, _) = folder.put("document.json", text).good(&["document.json"]);
    assert!(again.contains("cachedarrays-lmp"), "{again}");
}

#[test]
fn events_come_through_a_pipe() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiercel"));
    let command = command.args(["report", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    child.stdin.take().expect("a pipe").write_all(example().as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).starts_with("tiny, batch 32"));
}

#[test]
fn complaints_say_what_is_wrong_and_where() {
    let folder = Folder::new("complaints");
    folder
        .put("events.jsonl", example())
        .put("results.json", RESULTS)
        .put("empty", "")
        .put("odd.json", "{\"a\":1}");
    folder.put("cut.jsonl", example().replacen("\"bytes\":1024}\n", "\"byt\n", 2));
    folder.put("old.jsonl", example().replace("\"tiercel_events\":1", "\"tiercel_events\":7"));
    std::fs::create_dir(folder.0.join("inside")).expect("makes");
    folder.bad(
        &["no.jsonl"],
        expect![[r#"
        tiercel: cannot read `no.jsonl`: No such file or directory (os error 2)
    "#]],
    );
    folder.bad(
        &["inside"],
        expect![[r#"
        tiercel: cannot read `inside`: it is a folder
    "#]],
    );
    folder.bad(
        &["empty"],
        expect![[r#"
        tiercel: empty: the file is empty
    "#]],
    );
    folder.bad(&["odd.json"], expect![[r#"
        tiercel: odd.json: these are neither events nor results of runs: run 1 has no `system` or no `iteration_ns`
    "#]]);
    folder.bad(
        &["cut.jsonl"],
        expect![[r#"
        tiercel: cut.jsonl: line 2: EOF while parsing a string (column 60)
    "#]],
    );
    folder.bad(
        &["old.jsonl"],
        expect![[r#"
        tiercel: old.jsonl: line 1: the file is of version 7; version 1 can be read
    "#]],
    );
    folder.bad(
        &["events.jsonl", "--html", "none/r.html"],
        expect![[r#"
            tiercel: cannot write `none/r.html`: there is no folder `none`
        "#]],
    );
    folder.bad(
        &["events.jsonl", "--html", "inside"],
        expect![[r#"
            tiercel: cannot write `inside`: it is a folder
        "#]],
    );
    folder.bad(
        &["events.jsonl", "--csv", "./events.jsonl"],
        expect![[r#"
        tiercel: --csv: `./events.jsonl` is what is to be read
    "#]],
    );
    folder.bad(
        &["events.jsonl", "--html", "x", "--csv", "x"],
        expect![[r#"
        tiercel: --html and --csv name the same file `x`
    "#]],
    );
    folder.bad(
        &["results.json", "--perfetto", "t.json"],
        expect![[r#"
        tiercel: --perfetto: a trace is made of events, and no file has any
    "#]],
    );
    assert_eq!(
        folder.entries(),
        ["cut.jsonl", "empty", "events.jsonl", "inside", "odd.json", "old.jsonl", "results.json"],
        "nothing was left behind"
    );
}

#[test]
fn no_file_makes_it_panic() {
    let folder = Folder::new("fuzz");
    let good = events("cachedarrays-lmp");
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..40 {
        let mut text = good.clone();
        for _ in 0..random.usize(1..40) {
            let at = random.usize(0..text.len());
            text[at] = random.u8(..);
        }
        text.truncate(random.usize(1..=text.len()));
        let output = folder.put("fuzz", &text).run(&[
            "fuzz",
            "--html",
            "r.html",
            "--csv",
            "s.csv",
            "--perfetto",
            "t.json",
        ]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)) && !said.contains("panicked"), "{said}");
    }
}
