//! Amounts that make no sense, files that are none, and interrupts: what a user is told then, and that nothing is left.

mod shell;

use expect_test::{Expect, expect};
use shell::{Folder, command, complains, json, text, tiercel};

fn check(arguments: &str, status: i32, expected: Expect) {
    complains(&arguments.split(' ').collect::<Vec<_>>(), status, expected);
}

/// Clap's complaint of a value, in short.
fn value(arguments: &str, why: &str) {
    let output = tiercel(&arguments.split(' ').collect::<Vec<_>>());
    let said = String::from_utf8(output.stderr).expect("text");
    let expected = format!("error: invalid value {why}\n\nFor more information, try '--help'.\n");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments}: {said}");
    assert_eq!(said, expected, "{arguments}");
}

#[test]
fn numbers_below_zero_are_named() {
    const WHOLE: &str = "is no whole number between 0 and 18446744073709551615";
    value("plan mlp --batch -1", &format!("'-1' for '--batch <N>': `-1` {WHOLE}"));
    value("describe mlp --image -1", &format!("'-1' for '--image <N>': `-1` {WHOLE}"));
    value("list --seed -1", &format!("'-1' for '--seed <N>': `-1` {WHOLE}"));
    value("train mlp --iterations -1", &format!("'-1' for '--iterations <K>': `-1` {WHOLE}"));
    value("train mlp --epochs 1.5", &format!("'1.5' for '--epochs <E>': `1.5` {WHOLE}"));
    let huge = "99999999999999999999";
    value(&format!("run mlp --batch {huge}"), &format!("'{huge}' for '--batch <N>': `{huge}` {WHOLE}"));
    value("run mlp --iterations -1", "'-1' for '--iterations <K>': -1 is not in 1..=100000");
    value("run mlp --gap -1%", "'-1%' for '--gap <1%>': `-1%` is no share such as 5% or 0.05");
    value("plan mlp --within -3%", "'-3%' for '--within <5%>': `-3%` is no share such as 5% or 0.05");
    value("plan mlp --time -1s", "'-1s' for '--time <10s>': `-1s` is no time such as 10s, 500ms or 2m");
    value("layout x --time -1s", "'-1s' for '--time <TIME>': `-1s` is no time such as 10s, 500ms or 2m");
    value(
        "layout x --time never",
        "'never' for '--time <TIME>': `never` is no time such as 10s, 500ms or 2m",
    );
    value(
        "reproduce autotm --threads 0",
        "'0' for '--threads <N>': `0` is no number of threads between 1 and 4096",
    );
    value("train mlp --lr -0.1", "'-0.1' for '--lr <RATE>': `-0.1` is no learning rate such as 0.01");
    value("train mlp --checkpoint c --every 0", "'0' for '--every <N>': 0 is not in 1..18446744073709551615");
}

#[test]
fn fast_memory_that_nobody_has() {
    let says = "is neither a share of the peak above 0% and up to 1000%, such as 20%, nor a size such as 8GiB, nor `all`";
    for fast in ["0", "-5%", "100000%", "nan%", "99999999999999GiB", "-8GiB"] {
        value(
            &format!("run mlp --fast {fast}"),
            &format!("'{fast}' for '--fast <20%|8GiB>': `{fast}` {says}"),
        );
    }
    for fast in ["20", "0.2"] {
        value(
            &format!("run mlp --fast {fast}"),
            &format!(
                "'{fast}' for '--fast <20%|8GiB>': `{fast}` has no unit; {fast}% is a share of the peak, {fast}GiB a \
                 size, and {fast}B are so many bytes"
            ),
        );
    }
    // More than the peak is more than enough, and a little is what one grain holds.
    let all =
        json(&["run", "mlp", "--machine", "optane-autotm", "--fast", "200%", "--system", "first-touch"]);
    assert_eq!(all["fast_fraction"].as_f64().map(|share| share.round()), Some(2.0));
    let little =
        json(&["run", "mlp", "--machine", "optane-autotm", "--fast", "1B", "--system", "first-touch"]);
    assert_eq!(little["fast_bytes"], 64);
}

#[test]
fn sizes_that_no_network_has() {
    check(
        "plan mlp --batch 0 --machine cxl",
        1,
        expect![[r#"
        tiercel: mlp: batch 0 is not between 1 and 4294967296
    "#]],
    );
    check(
        "describe vgg16 --image 65536 --batch 4294967296",
        1,
        expect![[r#"
        tiercel: images: 4294967296x3x65536x65536 is no size for a tensor
    "#]],
    );
    check(
        "describe gpt2 --width 0",
        1,
        expect![[r#"
        tiercel: gpt2: width 0 is not between 1 and 1048576
    "#]],
    );
}

#[test]
fn looking_far_ahead_is_looking_at_everything() {
    let far = |kernels: &str| {
        let system = ["--machine", "optane-autotm", "--system", "cachedarrays-lmp"];
        json(&[&["run", "mlp", "--batch", "8", "--lookahead", kernels], &system[..]].concat())
    };
    assert_eq!(far("4294967295")["iteration_ns"], far("1000")["iteration_ns"]);
}

#[test]
fn what_is_named_twice_counts_once() {
    let compare = ["compare", "mlp,mlp", "--batch", "8", "--machine", "optane-autotm", "--fast", "20%,20%"];
    let rows = json(&[&compare[..], &["--systems", "first-touch,first-touch"]].concat());
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    assert!(
        text(&["run", "mlp", "--machine", "cxl", "--system", "first-touch", "--iterations", "1"])
            .contains("1 simulated iteration under")
    );
}

#[test]
fn folders_and_devices_are_no_files() {
    let folder = Folder::new("folders");
    let path = folder.path("");
    let path = path.trim_end_matches('/');
    let says = |arguments: &[&str], status: i32, expected: Expect| {
        let output = tiercel(&[arguments, &[path]].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{arguments:?}");
        expected.assert_eq(&String::from_utf8_lossy(&output.stderr).replace(path, "FOLDER"));
    };
    says(
        &["describe"],
        1,
        expect![[r#"
        tiercel: cannot read `FOLDER`: Is a directory (os error 21)
    "#]],
    );
    says(
        &["describe", "mlp", "--out"],
        1,
        expect![[r#"
        tiercel: cannot write `FOLDER`: it is a folder
    "#]],
    );
    says(
        &["plan", "mlp", "--machine", "cxl", "--out"],
        1,
        expect![[r#"
        tiercel: cannot write `FOLDER`: it is a folder
    "#]],
    );
    says(
        &["run", "mlp", "--plan"],
        1,
        expect![[r#"
        tiercel: cannot read `FOLDER`: Is a directory (os error 21)
    "#]],
    );
    says(
        &["run", "mlp", "--machine", "cxl", "--events"],
        1,
        expect![[r#"
        tiercel: cannot write `FOLDER`: it is a folder
    "#]],
    );
    says(
        &["run", "mlp", "--machine"],
        1,
        expect![[r#"
        tiercel: cannot read `FOLDER`: Is a directory (os error 21)
    "#]],
    );
    says(
        &["layout"],
        2,
        expect![[r#"
        tiercel: FOLDER: Is a directory (os error 21)
    "#]],
    );
    says(
        &["report"],
        1,
        expect![[r#"
        tiercel: cannot read `FOLDER`: it is a folder
    "#]],
    );
    says(
        &["train", "mlp", "--checkpoint"],
        1,
        expect![[r#"
        tiercel: cannot write `FOLDER`: it is a folder
    "#]],
    );
    says(
        &["train", "mlp", "--data"],
        1,
        expect![[r#"
        tiercel: `FOLDER` has no file of images: there is no train-images-idx3-ubyte[.gz]
    "#]],
    );
    says(
        &["train", "--html"],
        1,
        expect![[r#"
        tiercel: cannot write `FOLDER`: it is a folder
    "#]],
    );
    assert!(folder.entries().is_empty(), "nothing is left");
    assert!(!std::path::Path::new(&format!("{path}.part")).exists(), "nor beside it");
    // A folder in which nobody can write, found out before the work.
    check(
        "train mlp --checkpoint /proc/c.safetensors",
        1,
        expect![[r#"
        tiercel: cannot write `/proc/c.safetensors`: No such file or directory (os error 2)
    "#]],
    );
    check(
        "plan densenet264 --machine cxl --out /proc/plan.json",
        1,
        expect![[r#"
        tiercel: cannot write `/proc/plan.json`: No such file or directory (os error 2)
    "#]],
    );
    check(
        "describe /dev/zero",
        1,
        expect![[r#"
        tiercel: cannot read `/dev/zero`: it is no file, and has more than 256 MiB
    "#]],
    );
    check(
        "run mlp --plan /dev/null",
        1,
        expect![[r#"
        tiercel: /dev/null: not a plan: EOF while parsing a value at line 1 column 0
    "#]],
    );
}

#[test]
fn text_that_is_none_and_files_that_are_cut_off() {
    let folder = Folder::new("cut");
    let binary = folder.file("binary", [0xFF, 0xFE, 0x00]);
    let says = |arguments: &[&str], file: &str, status: i32, expected: Expect| {
        let output = tiercel(&[arguments, &[file]].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{arguments:?}");
        expected.assert_eq(&String::from_utf8_lossy(&output.stderr).replace(file, "FILE"));
    };
    says(
        &["describe"],
        &binary,
        1,
        expect![[r#"
        tiercel: FILE: line 1, column 1: this is not UTF-8 text
    "#]],
    );
    says(
        &["run", "mlp", "--plan"],
        &binary,
        1,
        expect![[r#"
        tiercel: FILE: not a plan: expected value at line 1 column 1
    "#]],
    );
    says(
        &["layout"],
        &binary,
        2,
        expect![[r#"
        tiercel: FILE: line 1: this is no UTF-8 text
    "#]],
    );
    says(
        &["report"],
        &binary,
        1,
        expect![[r#"
        tiercel: FILE: these are neither events nor results of runs: expected value at line 1 column 1
    "#]],
    );
    let resume = ["train", "mlp", "--iterations", "1", "--system", "first-touch", "--resume", "--checkpoint"];
    says(
        &resume,
        &binary,
        1,
        expect![[r#"
        tiercel: checkpoint `FILE`: 8 bytes were expected and 3 are there: it is cut off
    "#]],
    );
    let plan = folder.path("plan.json");
    let how = ["--batch", "8", "--machine", "optane-autotm", "--system", "autotm-static", "--out", &plan];
    assert!(tiercel(&[&["plan", "mlp"], &how[..]].concat()).status.success());
    let whole = std::fs::read(&plan).expect("it was written");
    let half = folder.file("half.json", &whole[..100]);
    says(
        &["run", "mlp", "--plan"],
        &half,
        1,
        expect![[r#"
        tiercel: FILE: not a plan: EOF while parsing an object at line 1 column 100
    "#]],
    );
}

#[test]
fn a_processor_that_nobody_stated_is_told_of() {
    let folder = Folder::new("assumed");
    let text = "name = \"bare\"\n[[tier]]\nname = \"a\"\ncapacity = \"1 GiB\"\nread = \"9 GB/s\"\nwrite = \"9 GB/s\"\n";
    let stated = folder
        .file("stated.toml", text.replace("[[tier]]", "[compute]\nthreads = 2\ngflops = 99.0\n[[tier]]"));
    let bare = folder.file("bare.toml", text);
    let run = |machine: &str| {
        let system = ["--system", "fast-only", "--iterations", "1", "--json"];
        tiercel(&[&["run", "mlp", "--batch", "8", "--machine", machine], &system[..]].concat())
    };
    let (silent, said) = (run(&stated), run(&bare));
    assert!(silent.status.success() && silent.stderr.is_empty());
    expect![[r#"
        tiercel: machine `bare` states no [compute]: 1 thread and 50 GFLOP/s are assumed, and times of kernels are no better than that
    "#]]
    .assert_eq(&String::from_utf8_lossy(&said.stderr));
    let assumed = |output: &std::process::Output| {
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
        document["compute_assumed"].clone()
    };
    assert_eq!((assumed(&silent), assumed(&said)), (false.into(), true.into()));
}

#[test]
fn a_folder_for_slow_memory_must_be_there() {
    let folder = Folder::new("slow");
    let missing = folder.path("missing");
    let complaint = format!("tiercel: tier `slow`: there is no folder `{missing}`\n");
    // Under a system that plans memory is measured first, which takes a folder, too.
    let planned = format!("tiercel: there is no folder `{missing}`\n");
    for (system, complaint) in [("first-touch", complaint), ("tiercel", planned)] {
        let slow = format!("file:{missing}");
        let run = ["train", "mlp", "--iterations", "1", "--fast", "16MiB"];
        let output = tiercel(&[&run[..], &["--system", system, "--slow", &slow]].concat());
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&output.stderr), complaint, "{system}");
    }
    assert!(folder.entries().is_empty());
}

#[test]
fn a_checkpoint_is_not_written_over() {
    let folder = Folder::new("kept");
    let file = folder.file("weights", "2,015 iterations");
    let output = tiercel(&["train", "mlp", "--iterations", "1", "--checkpoint", &file]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let complaint = String::from_utf8_lossy(&output.stderr).replace(&file, "FILE");
    expect![[r#"
        tiercel: --checkpoint: `FILE` exists; --resume goes on from it, another name starts anew beside it
    "#]]
    .assert_eq(&complaint);
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "2,015 iterations");
}

#[test]
fn options_that_do_not_go_together() {
    check(
        "train --iterations 0",
        1,
        expect![[r#"
        tiercel: --iterations 0: systems are compared by at least 1 iteration
    "#]],
    );
    check(
        "train mlp --html page.html",
        2,
        expect![[r#"
        tiercel: --html is for the page that compares systems; that is made where no network, no --system, no --epochs and no --checkpoint is given
    "#]],
    );
    check(
        "train mlp --schedule cosine:100 --iterations 1 --system first-touch",
        1,
        expect![[r#"
        tiercel: --schedule cosine:100: the warm-up is longer than the run, which has 1 iteration
    "#]],
    );
    check(
        "train cnn --data synthetic --epochs 1",
        1,
        expect![[r#"
        tiercel: synthetic data has no epochs; give --iterations
    "#]],
    );
    check(
        "train mlp --checkpoint /no/such/folder/c.safetensors",
        1,
        expect![[r#"
        tiercel: cannot write `/no/such/folder/c.safetensors`: there is no folder `/no/such/folder`
    "#]],
    );
}

#[test]
fn an_interrupt_ends_a_run_and_leaves_nothing() {
    let folder = Folder::new("interrupted");
    let [events, page, weights] = ["events.jsonl", "page.html", "weights"].map(|name| folder.path(name));
    let host =
        ["--on", "host", "--machine", "dram-throttled", "--system", "first-touch", "--iterations", "100000"];
    let runs = [
        [&["run", "cnn", "--events", &events][..], &host].concat(),
        vec!["train", "--html", &page, "--iterations", "100000"],
        // It plans for long, and has nothing to save yet.
        vec!["train", "densenet264", "--batch", "16", "--image", "64", "--checkpoint", &weights],
    ];
    for arguments in runs {
        let quiet = std::process::Stdio::null;
        let mut child = command(&arguments).stdout(quiet()).stderr(quiet()).spawn().expect("runs");
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let id = child.id().to_string();
        let kill = std::process::Command::new("kill").args(["-INT", &id]).status().expect("there is kill");
        assert!(kill.success(), "{arguments:?} ran on until then");
        let ended = child.wait().expect("it ends");
        assert_eq!(ended.code(), Some(130), "{arguments:?}");
        assert!(folder.entries().is_empty(), "{arguments:?}");
    }
}
