//! `tiercel keep` on real memory: a program on half of the memory that it wants gives right results, whoever is killed nothing
//! is lost and nothing stays behind, and who may not keep a program is told so.
//!
//! The program that is kept is this very file, run again (`kept_program`). Where swap may not be turned on, tests say so and
//! pass. `TIERCEL_CHECKED_WRITES` makes the program write more; `scripts/check-pages` does.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tiercel_pages::real::process::memory_group;
use tiercel_testbed::skipped;

const PAGE: usize = 512;
/// Words of the program's memory: 64 MiB.
const WORDS: usize = 8 << 20;
const THREADS: usize = 3;
/// How long anything may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);
/// How many words of a page are written and checked in a visit.
const VISIT: usize = 64;

/// One at a time: swap belongs to the machine.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn writes() -> u64 {
    std::env::var("TIERCEL_CHECKED_WRITES").ok().and_then(|text| text.parse().ok()).unwrap_or(150_000)
}

/// The program that is kept: writes and checks what it wrote before, in several threads, until it has done so many and, where
/// a file is named, until that is there.
#[test]
fn kept_program() {
    let Ok(how) = std::env::var("TIERCEL_KEPT") else { return };
    let memory: Vec<AtomicU64> = (0..WORDS as u64).map(AtomicU64::new).collect();
    println!("begun {}", std::process::id());
    let begun = Instant::now();
    // Nobody waits for ever for a test that failed.
    let goes_on = || how.starts_with('/') && !Path::new(&how).exists() && begun.elapsed() < PATIENCE;
    let done: u64 = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (memory, goes_on) = (&memory, &goes_on);
            move || {
                let pages = WORDS / PAGE / THREADS;
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let mut visits = vec![0u64; pages];
                let mut count = 0u64;
                while count < writes() / THREADS as u64 || !count.is_multiple_of(1 << 12) || goes_on() {
                    let page = random.usize(..pages);
                    let (first, visit) = ((page * THREADS + thread) * PAGE, visits[page]);
                    visits[page] += 1;
                    for (at, word) in memory[first..first + VISIT].iter().enumerate() {
                        let mark = |visit: u64| (visit << 32) | (first + at) as u64;
                        assert_eq!(
                            word.load(Ordering::Relaxed),
                            mark(visit),
                            "what was written last is there"
                        );
                        word.store(mark(visit + 1), Ordering::Relaxed);
                    }
                    count += VISIT as u64;
                }
                count
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("nothing is lost")).sum()
    });
    println!("right: {done} checked writes by {THREADS} threads");
}

/// This file as a program, for a shell.
fn program() -> String {
    let here = std::env::current_exe().expect("a program has a path");
    format!("'{}' kept_program --exact --nocapture --test-threads 1", here.display())
}

/// Where the swap file of a test goes.
fn place(name: &str) -> PathBuf {
    let folder = std::env::var_os("TIERCEL_TEST_DISK").map_or_else(std::env::temp_dir, PathBuf::from);
    folder.join(format!("tiercel-kept-{name}-{}", std::process::id()))
}

fn tiercel() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tiercel"))
}

/// `tiercel keep` with half of the program's memory, and a shell's command.
fn keep(slow: &Path, more: &[&str], how: &str, shell: &str) -> Command {
    let mut command = tiercel();
    command.args(["keep", "--fast", "32MiB", "--slow-size", "192MiB", "--slow"]);
    command.arg(format!("file:{}", slow.display())).args(more);
    command.args(["--", "sh", "-c", shell]).env("TIERCEL_KEPT", how);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether programs can be kept here; says why not.
fn can_keep() -> bool {
    let output = tiercel().args(["keep", "--doctor", "--json"]).output().expect("the binary runs");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let list = document["facilities"].as_array().expect("a list").clone();
    for name in ["a swap file of our own", "memory cgroup", "process_madvise"] {
        let found = list.iter().find(|facility| facility["name"] == name);
        if !found.is_some_and(|facility| facility["usable"] == true) {
            skipped(&format!("programs that are kept: no {name} here"));
            return false;
        }
    }
    // What the file system, or who watches over system calls, says of it, only trying tells.
    let slow = place("try");
    let tried = keep(&slow, &[], "", "true").output().expect("the binary runs");
    if !tried.status.success() {
        skipped(&format!("programs that are kept: {}", String::from_utf8_lossy(&tried.stderr)));
    }
    tried.status.success()
}

/// Nothing is left of a swap file.
fn is_gone(slow: &Path) -> bool {
    let on = fs::read_to_string("/proc/swaps").unwrap_or_default();
    !slow.exists() && !on.contains(&*slow.to_string_lossy())
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name")
}

/// KiB of a process that are swapped out.
fn swapped(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Everything a process said, once it has ended.
fn ended(child: Child) -> Output {
    child.wait_with_output().expect("it ends")
}

/// Waits until the program says that it has begun; its number, and what it says from then on.
fn begun(child: &mut Child) -> (u32, BufReader<std::process::ChildStdout>) {
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("begun") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it ended before it began");
    }
    let pid = line.split_ascii_whitespace().last().and_then(|word| word.parse().ok());
    (pid.expect("its number"), said)
}

fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-9", pid]).status().expect("kill runs");
    assert!(killed.success());
}

#[test]
fn results_are_right_through_forks_and_execs_and_the_page_shows_the_memory() {
    let _one = alone();
    if !can_keep() {
        return;
    }
    let (slow, events) = (place("right"), place("events.jsonl"));
    let page = events.with_extension("html");
    // A shell that forks, a child that ends, and an exec in place of the shell.
    let shell = format!("({0}) & (exit 3); wait; exec {0}", program());
    let more = ["--events", events.to_str().expect("a name")];
    let output = keep(&slow, &more, "short", &shell).output().expect("the binary runs");
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{noted}");
    assert_eq!(said.matches("right: ").count(), 2, "{said}{noted}");
    assert!(noted.contains("kept on") && is_gone(&slow), "{noted}");
    said.lines().filter(|line| line.starts_with("right")).for_each(|line| println!("{line}"));
    print!("{noted}");
    let mut report = tiercel();
    report.arg("report").arg(&events).arg("--html").arg(&page);
    let output = report.output().expect("the binary runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("kept: memory cgroup"), "{}", text(&output.stdout));
    assert!(fs::read_to_string(&page).expect("a page").contains("<h2>Kept: memory cgroup"));
    fs::remove_file(events).expect("it goes");
    fs::remove_file(page).expect("it goes");
}

#[test]
fn a_killed_keeper_leaves_its_program_alone_and_the_next_one_cleans_up() {
    let _one = alone();
    if !can_keep() {
        return;
    }
    let (slow, flag) = (place("keeper"), place("keeper-flag"));
    let mut child = keep(&slow, &[], name(&flag), &format!("exec {}", program())).spawn().expect("it starts");
    let (program, mut said) = begun(&mut child);
    let group = memory_group(program).map(|(folder, _)| folder.join("memory.oom_control"));
    let waits = || group.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    // Where the kernel can do that: a group of version 1.
    let waited = waits().contains("oom_kill_disable 1");
    kill(&child.id().to_string());
    child.wait().expect("it was killed");
    let until = Instant::now() + PATIENCE;
    while waits().contains("oom_kill_disable 1") && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!waited || waits().contains("oom_kill_disable 0"), "nobody waits for a keeper that is gone");
    // The program has the other end of the pipe, and goes on.
    fs::write(&flag, "").expect("a file");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("right: "), "{rest}");
    fs::remove_file(flag).expect("it goes");
    let until = Instant::now() + PATIENCE;
    while !is_gone(&slow) && Instant::now() < until {
        let next = keep(&place("next"), &[], "", "true").output().expect("the binary runs");
        assert!(next.status.success(), "{}", text(&next.stderr));
    }
    assert!(is_gone(&slow), "the next keeper cleans up");
}

#[test]
fn a_killed_program_ends_its_keeper_which_leaves_nothing() {
    let _one = alone();
    if !can_keep() {
        return;
    }
    let slow = place("program");
    let shell = format!("echo $$ && exec {}", program());
    let mut child = keep(&slow, &[], name(&place("never")), &shell).spawn().expect("it starts");
    let mut first = String::new();
    let mut said = BufReader::new(child.stdout.take().expect("piped"));
    said.read_line(&mut first).expect("text");
    kill(first.trim());
    let output = ended(child);
    let noted = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{noted}");
    assert!(noted.contains("signal: 9") && is_gone(&slow), "{noted}");
    assert!(!noted.contains("wanted more memory"), "nobody was short of it: {noted}");
}

#[test]
fn a_process_that_runs_is_kept_and_let_go() {
    let _one = alone();
    if !can_keep() {
        return;
    }
    let (slow, flag) = (place("runs"), place("runs-flag"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {}", program())]).env("TIERCEL_KEPT", &flag);
    let mut child = shell.stdout(Stdio::piped()).spawn().expect("it starts");
    let (_, mut said) = begun(&mut child);
    let mut command = tiercel();
    command.args(["keep", "--fast", "32MiB", "--slow-size", "192MiB", "--json"]);
    command.arg("--slow").arg(format!("file:{}", slow.display())).args(["--pid", &child.id().to_string()]);
    let keeper = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + PATIENCE;
    while swapped(child.id()) < 1 << 10 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::write(&flag, "").expect("a file");
    let output = ended(keeper);
    fs::remove_file(flag).expect("it goes");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert!(document["written_out_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{document}");
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(child.wait().expect("it ends").success() && rest.contains("right: "), "{rest}");
    assert!(is_gone(&slow));
}

#[test]
fn who_wants_more_than_there_is_is_ended_by_the_kernel_and_told_why() {
    let _one = alone();
    if !can_keep() {
        return;
    }
    let slow = place("short");
    let mut command = tiercel();
    command.args(["keep", "--fast", "24MiB", "--slow-size", "16MiB", "--slow"]);
    command.arg(format!("file:{}", slow.display())).env("TIERCEL_KEPT", "short");
    let output =
        command.args(["--", "sh", "-c", &format!("exec {}", program())]).output().expect("the binary runs");
    let noted = text(&output.stderr);
    assert!(is_gone(&slow), "{noted}");
    if output.status.success() {
        skipped("a full swap file: somebody else has swap on, which was enough");
        return;
    }
    assert!(noted.contains("--slow-size"), "{noted}");
}

#[test]
fn a_full_disk_stops_neither_the_program_nor_what_is_left_of_it() {
    let _one = alone();
    let slow = place("full");
    let mut command = tiercel();
    command.args(["keep", "--fast", "32MiB", "--slow-size", "1024TiB", "--slow"]);
    command.arg(format!("file:{}", slow.display()));
    let output = command.args(["--", "echo", "started"]).output().expect("the binary runs");
    let noted = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{noted}");
    assert!(output.stdout.is_empty() && is_gone(&slow), "nothing is started: {noted}");
    assert!(noted.contains("free") || noted.contains("CAP_SYS_ADMIN"), "{noted}");
    if !can_keep() {
        return;
    }
    let events = ["--events", "/dev/full"];
    let output =
        keep(&slow, &events, "", "head -c 64M /dev/zero | tail -c 1; echo done").output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("done") && is_gone(&slow));
}

#[test]
fn who_may_not_is_told_so_and_nothing_is_started() {
    const NOBODY: u32 = 65_534;
    let _one = alone();
    let nobody = |arguments: &[&str]| {
        let mut command = tiercel();
        command.arg("keep").args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").output()
    };
    let own = std::process::id().to_string();
    match nobody(&["--doctor"]) {
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
        Err(error) => {
            skipped(&format!("keeping as somebody without rights: the binary cannot be run: {error}"));
            return;
        }
    }
    let slow = format!("file:{}", place("nobody").display());
    let cases: [(&[&str], &str); 2] = [
        (&["--fast", "32MiB", "--slow", &slow, "--pid", &own], "cannot be managed"),
        (&["--fast", "32MiB", "--slow", &slow, "--", "echo", "started"], "CAP_SYS_ADMIN"),
    ];
    for (arguments, message) in cases {
        let output = nobody(arguments).expect("as before");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(message) && output.stdout.is_empty(), "{arguments:?}: {said}");
    }
}

#[test]
fn one_kind_of_memory_and_nothing_behind_it_is_not_enough() {
    let has_memory = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if has_memory.contains(['-', ',']) {
        eprintln!("skipped: this machine has several nodes");
        return;
    }
    let output = tiercel().args(["keep", "--", "echo", "started"]).output().expect("the binary runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--slow") && output.stdout.is_empty(), "{said}");
}
