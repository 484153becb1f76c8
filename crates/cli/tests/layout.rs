//! The verb `layout`, run as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const SMALL: &str = "id,lower,upper,size\na,0,4,2048\nb,3,8,1024\nc,4,10,2048\n";

/// A folder of its own for a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("layout-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("writes");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).expect("reads")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Runs `tiercel layout` with these words in this folder.
    fn layout(&self, words: &str) -> Output {
        let words = words.split_whitespace();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tiercel"));
        command.current_dir(&self.0).arg("layout").args(words).output().expect("runs")
    }

    fn json(&self, words: &str, status: i32) -> Value {
        let output = self.layout(words);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

#[test]
fn packs_within_the_capacity_and_writes_offsets() {
    let folder = Folder::new("packs");
    folder.file("small.csv", SMALL);
    for capacity in ["3072", "3KiB", "3.5KiB", "1MiB"] {
        let output = folder.layout(&format!("small.csv --capacity {capacity} --out packed.csv"));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        let packed = folder.read("packed.csv");
        let rows: Vec<Vec<&str>> = packed.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows[0], ["id", "lower", "upper", "size", "offset"]);
        let offset = |at: usize| rows[at][4].parse::<u64>().expect("a number");
        let apart = |a: (u64, u64), b: (u64, u64)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
        assert!(apart((offset(1), 2048), (offset(2), 1024)));
        assert!(apart((offset(2), 1024), (offset(3), 2048)));
    }
    assert_eq!(folder.names(), ["packed.csv", "small.csv"], "nothing is left behind");
}

#[test]
fn the_table_says_how_good_it_is() {
    let folder = Folder::new("table");
    folder.file("small.csv", SMALL);
    let output = folder.layout("small.csv --capacity 3KiB --out packed.csv");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("time")).collect();
    assert_eq!(
        lines,
        [
            "  buffers      3, packed into 3 KiB",
            "  peak         3 KiB (3,072 bytes), the lowest possible",
            "  lower bound  3 KiB (3,072 bytes): the most bytes alive at once",
            "  written      packed.csv",
        ]
    );
}

#[test]
fn json_has_the_agreed_names() {
    let folder = Folder::new("json");
    folder.file("small.csv", SMALL);
    let document = folder.json("small.csv --json --seed 3", 0);
    assert_eq!(document["peak_bytes"], 3072);
    assert_eq!(document["lower_bound_bytes"], 3072);
    assert_eq!(document["packed"], true);
    assert_eq!(document["capacity_bytes"], Value::Null);
    assert!(document["solve_ms"].as_f64().is_some_and(|ms| ms > 0.0));
}

#[test]
fn what_does_not_fit_ends_with_status_one() {
    let folder = Folder::new("full");
    folder.file("small.csv", SMALL);
    folder.file("packed.csv", "what was there");
    let output = folder.layout("small.csv --capacity 3071 --out packed.csv");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "tiercel: small.csv: the buffers do not fit into 3071 bytes: the best packing found takes 3072 bytes, and 3072 \
         are alive at once; largest of 2 alive at moment 4: c (2 KiB), b (1 KiB)\n"
    );
    assert_eq!(folder.read("packed.csv"), "what was there");
    let document = folder.json("small.csv --capacity 3071 --json", 1);
    assert_eq!((&document["packed"], &document["peak_bytes"]), (&Value::from(false), &Value::from(3072)));
}

#[test]
fn what_cannot_be_read_ends_with_status_two() {
    let folder = Folder::new("wrong");
    folder.file("small.csv", SMALL);
    folder.file("bad.csv", "id,lower,upper,size\na,0,4,2048\nb,3,8,1k\n");
    let cases = [
        ("bad.csv", "tiercel: bad.csv: line 3, column `size`: `1k` is no whole number\n"),
        ("none.csv", "tiercel: none.csv: No such file or directory (os error 2)\n"),
        ("small.csv --out no/such.csv", "tiercel: cannot write `no/such.csv`: there is no folder `no`\n"),
        ("small.csv --out .", "tiercel: cannot write `.`: it is a folder\n"),
    ];
    for (words, expected) in cases {
        let output = folder.layout(words);
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(output.stdout.is_empty());
    }
    for words in [
        "small.csv --capacity much",
        "small.csv --capacity -1",
        "small.csv --time soon",
        "",
        "small.csv --seed x",
    ] {
        let output = folder.layout(words);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{words}");
    }
}

#[test]
fn help_has_examples() {
    let output = Folder::new("help").layout("--help");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.matches("tiercel layout ").count() >= 2, "{text}");
    assert!(text.contains("Exit status"));
}

/// A pipe is written to as it is; a link stays a link.
#[cfg(unix)]
#[test]
fn links_and_pipes_stay_what_they_are() {
    let folder = Folder::new("links");
    folder.file("small.csv", SMALL);
    folder.file("target.csv", "old");
    std::os::unix::fs::symlink("target.csv", folder.0.join("link.csv")).expect("a link");
    assert!(folder.layout("small.csv --out link.csv").status.success());
    assert!(folder.0.join("link.csv").is_symlink());
    assert!(folder.read("target.csv").starts_with("id,lower,upper,size,offset\n"));
    let output = folder.layout("small.csv --json --out /dev/stdout");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("id,lower,upper,size,offset\n"));
}
