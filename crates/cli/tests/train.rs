//! `tiercel train` as people and programs use it.

mod shell;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use shell::said;

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiercel"));
    // Away from the user's own cache folder.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    command.arg("train").args(arguments).env("XDG_CACHE_HOME", cache).env_remove("RUST_BACKTRACE");
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the program starts")
}

fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

/// What the program complains of, in one line.
fn complaint(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.stdout.is_empty(), "{arguments:?}");
    let text = said(&output);
    // A name that does not exist is bad usage; everything else is work that failed.
    let unknown = ["network", "system"].iter().any(|kind| text.starts_with(&format!("tiercel: no {kind} `")));
    assert_eq!(output.status.code(), Some(if unknown { 2 } else { 1 }), "{arguments:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().to_string()
}

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tiercel-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn entries(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        entries.map(|e| e.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SMALL: [&str; 7] = ["mlp", "--width", "32", "--batch", "32", "--slow", "dram"];

/// The same under a system that plans nothing, so that nothing has to be measured first.
const PLAIN: [&str; 9] =
    ["mlp", "--width", "32", "--batch", "32", "--slow", "dram", "--system", "cachedarrays-lm"];

#[test]
fn the_document_has_the_names_that_programs_rely_on() {
    let fast = json(&[&SMALL[..], &["--iterations", "20", "--system", "fast-only"]].concat());
    let tight = json(&[&SMALL[..], &["--iterations", "20", "--fast", "20%"]].concat());
    for document in [&fast, &tight] {
        assert_eq!(document["net"], "mlp");
        assert_eq!(document["on"], "host");
        assert_eq!(document["measured"], true);
        assert_eq!(document["iteration_ns"].as_array().map(Vec::len), Some(20));
        assert_eq!(document["loss"].as_array().map(Vec::len), Some(20));
        for number in ["stall_ns", "fetched_bytes", "evicted_bytes", "peak_fast_bytes", "fast_bytes", "batch"]
        {
            assert!(document[number].is_u64(), "{number}");
        }
        assert!(document["accuracy"].as_f64().is_some_and(|a| (0.0..=1.0).contains(&a)));
    }
    assert_eq!(fast["system"], "fast-only");
    assert_eq!(fast["evicted_bytes"], 0);
    assert_eq!(tight["system"], "tiercel");
    assert!(tight["planned_ns"].is_u64() && fast["planned_ns"].is_null());
    // A plan may move nothing where slow memory is as fast; a policy that makes room does.
    let moved = json(&[&PLAIN[..], &["--iterations", "2", "--fast", "20%"]].concat());
    assert!(moved["evicted_bytes"].as_u64() > Some(0));
    assert!(tight["peak_fast_bytes"].as_u64() <= tight["fast_bytes"].as_u64());
    for same in ["loss", "output_hash", "accuracy", "test_loss"] {
        assert_eq!(fast[same], tight[same], "{same}");
    }
    for system in ["autotm-static", "autotm-sync", "cachedarrays-lmp", "sentinel", "slow-only"] {
        let other = json(&[&SMALL[..], &["--iterations", "20", "--system", system]].concat());
        assert_eq!(other["system"], system);
        assert_eq!(other["output_hash"], fast["output_hash"], "{system}");
    }
    let seeded = json(&[&SMALL[..], &["--iterations", "20", "--seed", "1"]].concat());
    assert_ne!(seeded["output_hash"], fast["output_hash"]);
    let threads = json(&[&SMALL[..], &["--iterations", "20", "--threads", "1"]].concat());
    assert_eq!(threads["output_hash"], fast["output_hash"]);
}

#[test]
fn the_table_says_what_is_emulated() {
    let output = run(&["mlp", "--width", "16", "--batch", "16", "--iterations", "2"]);
    assert!(output.status.success());
    assert_eq!(said(&output), "", "no progress where nobody looks");
    let table = String::from_utf8(output.stdout).expect("text");
    for part in
        ["mlp, batch 16, f32: 2 iterations on digits", "emulated", "stall", "accuracy", "samples a second"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn complaints_say_what_would_do() {
    assert_eq!(complaint(&["resnet51"]), "tiercel: no network `resnet51`; did you mean `resnet50`?");
    assert_eq!(
        complaint(&["mlp", "--system", "cachedarays-lm"]),
        "tiercel: no system `cachedarays-lm`; did you mean `cachedarrays-lm`?"
    );
    assert!(complaint(&["mlp", "--system", "xyzzy"]).contains("there are fast-only, slow-only"));
    let folder = Folder::new("complaints");
    let slow = format!("file:{}", folder.0.display());
    // A system that plans would have the disk measured.
    let on_disk = ["mlp", "--slow", &slow, "--system", "cachedarrays-lm"];
    let small = complaint(&[&on_disk[..], &["--fast", "100KiB"]].concat());
    assert!(small.contains("100 KiB of fast memory is too little") && small.contains("would do"), "{small}");
    let least = small.split("--fast ").nth(2).and_then(|rest| rest.split(' ').next()).expect("an amount");
    let enough = json(&[&on_disk[..], &["--fast", least, "--iterations", "2"]].concat());
    assert_eq!(enough["loss"].as_array().map(Vec::len), Some(2), "what would do does");
    assert!(folder.entries().is_empty(), "nothing is left on the disk");

    assert!(complaint(&["mlp", "--data", "/no/such"]).contains("cannot read `/no/such`"));
    assert!(complaint(&["gpt2", "--data", "digits", "--depth", "1"]).contains("images of 8x8 do not fit"));
    assert!(complaint(&["cnn", "--image", "4"]).contains("images of 8x8 do not fit"));
    let empty = complaint(&["cnn", "--data", &folder.0.display().to_string()]);
    assert!(empty.contains("no file of images: there is no train-images-idx3-ubyte"), "{empty}");
    let nowhere = complaint(&[&SMALL[..], &["--checkpoint", "/no/such/file"]].concat());
    assert!(nowhere.contains("there is no folder `/no/such`"), "{nowhere}");
    let broken = complaint(&[&SMALL[..], &["--lr", "1e30"]].concat());
    assert!(broken.contains("it is the first tensor that has such a number"), "{broken}");
    let both = run(&["mlp", "--iterations", "1", "--epochs", "1"]);
    assert_eq!(both.status.code(), Some(2));
}

/// Waits until a file is there and has been replaced since.
fn wait_for(path: &Path, since: Option<SystemTime>) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        let written = path.metadata().and_then(|m| m.modified()).ok();
        if written.is_some() && written != since {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no checkpoint was written");
}

#[test]
fn a_run_that_is_killed_goes_on_from_its_last_checkpoint() {
    let folder = Folder::new("killed");
    let file = folder.file("run.safetensors");
    let arguments = [&PLAIN[..], &["--iterations", "1500", "--checkpoint", &file, "--resume"]].concat();
    let whole = json(&[&PLAIN[..], &["--iterations", "1500"]].concat());
    let mut killed = 0;
    let mut since = None;
    for round in 0..4u64 {
        let running = [&arguments[..], &["--every", "1", "--json"]].concat();
        let mut child =
            command(&running).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        wait_for(Path::new(&file), since);
        // Anywhere in an iteration, or in the middle of a checkpoint.
        std::thread::sleep(Duration::from_micros(700 * round));
        child.kill().expect("it can be killed");
        killed += u32::from(!child.wait().expect("it has ended").success());
        since = Path::new(&file).metadata().and_then(|m| m.modified()).ok();
    }
    assert!(killed >= 3, "the runs were long enough to be killed");
    let last = json(&arguments);
    let from = last["resumed_from"].as_u64().expect("it went on");
    assert!((1..1500).contains(&from), "{from}");
    assert_eq!(last["output_hash"], whole["output_hash"]);
    let losses = |document: &Value| document["loss"].as_array().expect("a list").clone();
    assert_eq!(losses(&last), losses(&whole)[from as usize..]);
    assert_eq!(folder.entries(), ["run.safetensors"], "nothing else is left behind");
}

#[test]
fn an_interrupt_ends_after_the_iteration_and_keeps_the_checkpoint() {
    let folder = Folder::new("interrupted");
    let file = folder.file("run.safetensors");
    let arguments =
        [&PLAIN[..], &["--iterations", "100000000", "--checkpoint", &file, "--every", "1", "--json"]]
            .concat();
    let child = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait_for(Path::new(&file), None);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill is there");
    assert!(sent.success());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "whoever goes on after success should not");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["interrupted"], true);
    let done = document["loss"].as_array().map(Vec::len).expect("a list") as u64;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("interrupted after {done} of 100000000 iterations")), "{said}");
    assert_eq!(folder.entries(), ["run.safetensors"]);
    let target = (done + 1).to_string();
    let on = json(&[&PLAIN[..], &["--iterations", &target, "--checkpoint", &file, "--resume"]].concat());
    assert_eq!(on["resumed_from"], done);
}

#[test]
fn a_second_interrupt_ends_at_once_and_leaves_nothing_half_written() {
    let folder = Folder::new("interrupted-twice");
    let file = folder.file("run.safetensors");
    // Weights of 34 MB: most of the time goes into checkpoints.
    let net = ["mlp", "--width", "2048", "--batch", "8", "--slow", "dram", "--system", "cachedarrays-lm"];
    let run = ["--iterations", "1000000", "--checkpoint", &file, "--every", "1", "--resume"];
    let twice = std::cell::Cell::new(0);
    // On a busy machine a run may end between the two, so there are more rounds until one does not.
    for round in (0..60u64).take_while(|round| *round < 4 || twice.get() == 0) {
        let mut child = command(&[&net[..], &run].concat());
        let child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        wait_for(&Path::new(&file).with_extension("safetensors.part"), None);
        std::thread::sleep(Duration::from_millis(7 * (round % 8)));
        for _ in 0..2 {
            let id = child.id().to_string();
            Command::new("kill").args(["-INT", &id]).status().expect("kill is there");
            std::thread::sleep(Duration::from_millis(1 + round % 5));
        }
        let output = child.wait_with_output().expect("it ends");
        let said = said(&output);
        let again = said.trim_end()
            == "tiercel: interrupted twice: ended within an iteration, the last whole checkpoint stays";
        assert!(again || said.contains("interrupted after "), "{said}");
        assert!(!again || output.status.code() == Some(130), "{:?}", output.status);
        assert!(folder.entries().iter().all(|name| name == "run.safetensors"), "{:?}", folder.entries());
        twice.set(twice.get() + u32::from(again));
    }
    assert!(twice.get() > 0, "no run was interrupted twice");
}

#[test]
fn a_run_goes_on_with_its_own_seed_and_says_so() {
    let folder = Folder::new("seeded");
    let file = folder.file("run.safetensors");
    let until = |iterations: &'static str, seed: &'static str| {
        [&PLAIN[..], &["--iterations", iterations, "--seed", seed, "--checkpoint", &file, "--resume"]]
            .concat()
    };
    assert!(run(&until("1", "3")).status.success());
    let output = run(&until("2", "4"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("written under seed 3; going on with that, not 4"), "{said}");
    assert!(!String::from_utf8_lossy(&run(&until("3", "3")).stderr).contains("seed"));
}

#[test]
fn a_checkpoint_serves_whichever_system_goes_on() {
    let folder = Folder::new("handed-on");
    let file = folder.file("run.safetensors");
    let whole = json(&[&PLAIN[..], &["--iterations", "9"]].concat());
    for (until, system) in [("3", "tiercel"), ("6", "cachedarrays-lmp"), ("9", "tiercel")] {
        let with = ["--iterations", until, "--system", system, "--checkpoint", &file, "--resume"];
        let part = json(&[&SMALL[..], &with].concat());
        assert_eq!(part["loss"].as_array().map(Vec::len), Some(3), "{system}");
        assert!(until != "9" || part["output_hash"] == whole["output_hash"], "{part}");
    }
}
