//! Programs with the preloaded library: nothing is lost, whatever they ask of their memory; what they end with is theirs.
//!
//! The programs are this file's own `program`, run again with a name in its environment. `TIERCEL_CHECKED_WRITES` sets how many
//! writes are checked, `TIERCEL_TEST_DISK` where files go.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tiercel_pages::real::KeepError;
use tiercel_pages::real::preload::{Preloaded, usable};
use tiercel_pages::real::session::{Event, Options, Slow, Target};
use tiercel_pages::real::state::State;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

/// How long a program may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(570);

/// The program that is kept, where one is asked for.
#[test]
fn program() {
    let Ok(name) = std::env::var("TIERCEL_PROGRAM") else { return };
    match name.as_str() {
        "writes" => writes(),
        "calls" => calls(),
        "forks" => forks(),
        "signals" => signals(),
        "fails" => std::process::exit(fails()),
        "keeper" => keeper(),
        other => panic!("no program {other}"),
    }
    println!("right: {name}");
}

/// Checked writes by several threads to pages that they share.
fn writes() {
    const THREADS: usize = 3;
    const VISIT: usize = 64;
    let wanted: u64 =
        std::env::var("TIERCEL_CHECKED_WRITES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let words = 64 * MIB / 8;
    let memory: Vec<AtomicU64> = (0..words as u64).map(AtomicU64::new).collect();
    let done: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let memory = &memory;
                scope.spawn(move || {
                    let pages = words * 8 / PAGE;
                    let mut random = fastrand::Rng::with_seed(thread as u64);
                    let mut visits = vec![0u32; pages];
                    let mut count = 0;
                    while count < wanted / THREADS as u64 {
                        let page = random.usize(..pages);
                        let first = page * PAGE / 8 + thread * VISIT;
                        let visit = visits[page];
                        visits[page] += 1;
                        for (at, word) in memory[first..first + VISIT].iter().enumerate() {
                            let mark = |visit: u32| u64::from(visit) << 32 | (first + at) as u64;
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
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("nothing is lost")).sum()
    });
    println!("{done} checked writes by {THREADS} threads");
}

/// Memory from the kernel, with what each of its pages should hold.
struct Mapping {
    at: *mut u64,
    pages: Vec<u64>,
}

// SAFETY: a mapping belongs to the thread that holds it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(pages: usize) -> Mapping {
        // SAFETY: a new private mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED, "memory");
        Mapping { at: at.cast(), pages: vec![0; pages] }
    }

    /// A word near the beginning of a page and one near its end.
    fn words(&self, page: usize) -> [*mut u64; 2] {
        // SAFETY: both lie in the mapping.
        unsafe { [self.at.add(page * PAGE / 8 + 3), self.at.add((page + 1) * PAGE / 8 - 1)] }
    }

    fn write(&mut self, page: usize, stamp: u64) {
        self.pages[page] = stamp;
        // SAFETY: words of this mapping, which only we use.
        self.words(page).iter().for_each(|word| unsafe { word.write_volatile(stamp) });
    }

    fn check(&self, page: usize) {
        // SAFETY: as above.
        let found = self.words(page).map(|word| unsafe { word.read_volatile() });
        assert_eq!(found, [self.pages[page]; 2], "page {page} of {} at {:?}", self.pages.len(), self.at);
    }

    fn resize(&mut self, pages: usize) {
        let (old, new) = (self.pages.len() * PAGE, pages * PAGE);
        // SAFETY: the whole mapping, which nobody else uses.
        let at = unsafe { libc::mremap(self.at.cast(), old, new, libc::MREMAP_MAYMOVE) };
        assert_ne!(at, libc::MAP_FAILED, "memory is moved: {}", std::io::Error::last_os_error());
        self.at = at.cast();
        self.pages.resize(pages, 0);
    }

    fn give_up(&mut self, from: usize, to: usize) {
        // SAFETY: pages of this mapping.
        let code = unsafe {
            libc::madvise(self.at.add(from * PAGE / 8).cast(), (to - from) * PAGE, libc::MADV_DONTNEED)
        };
        assert_eq!(code, 0);
        self.pages[from..to].fill(0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which is not used any more.
        unsafe { libc::munmap(self.at.cast(), self.pages.len() * PAGE) };
    }
}

/// Three threads map, grow, shrink, move, give up and unmap memory in any order, and check what it holds.
fn calls() {
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let mut mappings: Vec<Mapping> = Vec::new();
                let mut stamp = thread << 48;
                let until = Instant::now() + PATIENCE / 2;
                for _ in 0..6000 {
                    if Instant::now() > until {
                        break;
                    }
                    let held: usize = mappings.iter().map(|mapping| mapping.pages.len()).sum();
                    if mappings.is_empty() || (held < 24 * MIB / PAGE && random.u8(..8) == 0) {
                        let mut mapping = Mapping::new(random.usize(200..2500));
                        (0..mapping.pages.len()).step_by(random.usize(1..4)).for_each(|page| {
                            stamp += 1;
                            mapping.write(page, stamp);
                        });
                        mappings.push(mapping);
                    }
                    let which = random.usize(..mappings.len());
                    let mapping = &mut mappings[which];
                    let pages = mapping.pages.len();
                    match random.u8(..40) {
                        0 => drop(mappings.swap_remove(which)),
                        1 | 2 => mapping.resize(random.usize(pages / 2..pages * 3 / 2) + 1),
                        3 | 4 => {
                            let from = random.usize(..pages);
                            mapping.give_up(from, random.usize(from..pages) + 1);
                        }
                        5..20 => {
                            let page = random.usize(..pages);
                            mapping.check(page);
                            stamp += 1;
                            mapping.write(page, stamp);
                        }
                        20 => (0..pages).for_each(|page| mapping.check(page)),
                        _ => mapping.check(random.usize(..pages)),
                    }
                }
                for mapping in &mappings {
                    (0..mapping.pages.len()).for_each(|page| mapping.check(page));
                }
            });
        }
    });
}

/// What a child that checks all of some memory ends with.
fn child_of(mapping: &Mapping, raw: bool, nested: bool) -> i32 {
    // SAFETY: the child runs functions of this file alone, and ends without cleaning up.
    let pid = unsafe { if raw { libc::syscall(libc::SYS_fork) as i32 } else { libc::fork() } };
    assert!(pid >= 0, "a child");
    if pid == 0 {
        let right = (0..mapping.pages.len()).all(|page| {
            // SAFETY: words of the mapping, of which the child has a copy.
            let found = mapping.words(page).map(|word| unsafe { word.read_volatile() });
            // SAFETY: as above; the parent's are not changed by this.
            mapping.words(page).iter().for_each(|word| unsafe { word.write_volatile(7) });
            found == [mapping.pages[page]; 2]
        });
        // What it wrote itself is what its own child finds.
        let mut own = Mapping { at: mapping.at, pages: vec![7; mapping.pages.len()] };
        let deeper = if nested && right { child_of(&own, raw, false) } else { 0 };
        own.pages.clear();
        std::mem::forget(own);
        // SAFETY: ends the child.
        unsafe { libc::_exit(if right { deeper + 40 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(waited, pid);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}

/// Children see what the parent had; the parent goes on with what it has; others write meanwhile.
fn forks() {
    let mut mapping = Mapping::new(40 * MIB / PAGE);
    (0..mapping.pages.len()).for_each(|page| mapping.write(page, 1 << 40 | page as u64));
    let stop = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let words: Vec<AtomicU64> = (0..8 * MIB as u64 / 8).map(AtomicU64::new).collect();
            let mut random = fastrand::Rng::with_seed(5);
            let mut sum = 0;
            while stop.load(Ordering::Relaxed) == 0 {
                words[random.usize(..words.len())].fetch_add(1 << 40, Ordering::Relaxed);
                sum += 1;
            }
            assert_eq!(words.iter().map(|word| word.load(Ordering::Relaxed) >> 40).sum::<u64>(), sum);
        });
        for (raw, nested) in [(false, false), (true, false), (false, true), (false, false), (true, true)] {
            let wanted = if nested { 80 } else { 40 };
            assert_eq!(child_of(&mapping, raw, nested), wanted, "raw {raw}, nested {nested}");
            (0..mapping.pages.len()).for_each(|page| mapping.check(page));
            mapping.write(3, 9);
            // A child that becomes another program at once.
            let echo = Command::new("echo").arg("x").output().expect("echo runs");
            assert_eq!(echo.stdout, b"x\n");
        }
        stop.store(1, Ordering::Relaxed);
        writer.join().expect("nothing is lost");
    });
}

static RUNG: AtomicU64 = AtomicU64::new(0);

extern "C" fn ring(_: i32) {
    RUNG.fetch_add(1, Ordering::Relaxed);
}

/// Signals come to the program's own threads while it misses pages, all of its files can be closed, and system calls read and
/// write what is away.
fn signals() {
    use std::io::{Read, Seek, Write};
    // SAFETY: a handler that does nothing but count; a timer of this process.
    unsafe {
        libc::signal(libc::SIGALRM, ring as extern "C" fn(i32) as libc::sighandler_t);
        let often = libc::timeval { tv_sec: 0, tv_usec: 5000 };
        let timer = libc::itimerval { it_interval: often, it_value: often };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
        // As daemons do.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
    }
    let mut bytes: Vec<u8> = (0..48 * MIB).map(|at| (at / 1000) as u8).collect();
    // SAFETY: a file of no name, which is ours.
    let mut file = unsafe {
        use std::os::fd::FromRawFd;
        std::fs::File::from_raw_fd(libc::memfd_create(c"x".as_ptr(), 0))
    };
    for _ in 0..2 {
        file.rewind().expect("a file");
        file.write_all(&bytes).expect("what is away is written");
        bytes.fill(1);
        file.rewind().expect("a file");
        file.read_exact(&mut bytes).expect("it is read to where it is missing");
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at / 1000) as u8));
    }
    assert!(RUNG.load(Ordering::Relaxed) > 3, "signals came");
}

/// Ends with a status of its own, with memory away.
fn fails() -> i32 {
    let bytes = vec![5u8; 48 * MIB];
    i32::from(
        bytes.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum::<u64>()
            == 5 * 48 * MIB as u64 / PAGE as u64,
    ) * 7
}

/// Keeps `writes` and says when pages of it are away; it is killed then.
fn keeper() {
    let disk = PathBuf::from(std::env::var("TIERCEL_TEST_SLOW").expect("a path"));
    let mut session = Preloaded::open(&options("writes", 32, disk)).expect("it starts");
    while session.poll().is_none() {
        session.step(&mut |_| {});
        if session.state(0).swapped > 0 {
            println!("away");
            std::thread::sleep(PATIENCE);
        }
    }
}

/// This file's own program on so many MiB.
fn options(name: &str, fast: u64, slow: PathBuf) -> Options {
    let here = std::env::current_exe().expect("a program has a path");
    let words = ["env", &format!("TIERCEL_PROGRAM={name}"), here.to_str().expect("a name")];
    let test = ["program", "--exact", "--nocapture", "--test-threads", "1"];
    Options {
        target: Target::Command(words.iter().chain(&test).map(Into::into).collect()),
        fast: fast << 20,
        slow: Slow::File(slow),
        slow_bytes: Some(256 << 20),
        overhead: 0.05,
        steer: true,
        output_aside: false,
    }
}

fn disk(name: &str) -> PathBuf {
    let folder = std::env::var_os("TIERCEL_TEST_DISK").map_or_else(std::env::temp_dir, PathBuf::from);
    folder.join(format!("tiercel-preloaded-{name}-{}", std::process::id()))
}

/// What became of a kept program.
struct Outcome {
    status: std::process::ExitStatus,
    /// The state when most was away, and the last one.
    most: State,
    last: State,
    notes: Vec<String>,
}

/// Runs a program on so many MiB; nothing where it cannot be had here, which is said.
fn kept(name: &str, fast: u64, more: impl FnOnce(&mut Options)) -> Option<Outcome> {
    if let Err(error) = usable() {
        eprintln!("skipped: {error}");
        return None;
    }
    let slow = disk(name);
    let mut options = options(name, fast, slow.clone());
    more(&mut options);
    let mut session = match Preloaded::open(&options) {
        Ok(session) => session,
        Err(error @ KeepError::DiskFull { .. }) => {
            eprintln!("skipped: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let mut notes = Vec::new();
    let mut most = State::default();
    let until = Instant::now() + PATIENCE;
    let (status, mut last) = loop {
        session.step(&mut |event| {
            if let Event::Note(note) = event {
                notes.push(note);
            }
        });
        let last = session.state(72);
        if last.swapped >= most.swapped {
            most = last.clone();
        }
        if let Some(status) = session.poll() {
            break (status.expect("a status"), last);
        }
        if Instant::now() > until {
            session.kill();
        }
    };
    let after = session.state(0);
    last.counts = after.counts;
    assert_eq!(session.close(), Ok(()));
    assert!(left(&slow).is_empty(), "{:?}", left(&slow));
    Some(Outcome { status, most, last, notes })
}

/// Files that begin as the slow tier's.
fn left(slow: &Path) -> Vec<PathBuf> {
    let folder = slow.parent().expect("a folder");
    let name = slow.file_name().expect("a name").to_string_lossy().into_owned();
    let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    files.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&name))).collect()
}

fn all_right(outcome: &Outcome) {
    assert!(outcome.status.success(), "{:?} {:?} {:?}", outcome.status, outcome.last, outcome.notes);
    assert!(
        outcome.most.swapped > 0 && outcome.last.counts.went_out > 0,
        "pages were away: {:?}",
        outcome.most
    );
    assert_eq!(outcome.notes, Vec::<String>::new());
}

#[test]
fn a_million_checked_writes_by_threads() {
    let Some(outcome) = kept("writes", 32, |_| {}) else { return };
    all_right(&outcome);
    assert!(outcome.last.counts.came_back > 0, "{:?}", outcome.last);
    assert!(outcome.most.map.iter().any(|part| part[1] > 0), "the map has it: {:?}", outcome.most);
}

#[test]
fn memory_that_is_mapped_moved_given_up_and_unmapped_by_threads() {
    let Some(outcome) = kept("calls", 24, |_| {}) else { return };
    all_right(&outcome);
}

#[test]
fn forks_of_the_c_library_and_others() {
    let Some(outcome) = kept("forks", 24, |_| {}) else { return };
    assert!(outcome.status.success(), "{:?} {:?}", outcome.last, outcome.notes);
    assert!(outcome.last.counts.went_out > 0);
    assert!(outcome.notes.iter().all(|note| note.contains("left alone")), "{:?}", outcome.notes);
}

#[test]
fn signals_closed_files_and_system_calls_on_what_is_away() {
    let Some(outcome) = kept("signals", 24, |_| {}) else { return };
    all_right(&outcome);
}

#[test]
fn a_program_ends_with_its_own_status() {
    let Some(outcome) = kept("fails", 24, |_| {}) else { return };
    assert_eq!(outcome.status.code(), Some(7), "{:?}", outcome.notes);
}

#[test]
fn a_file_that_is_full_costs_memory_and_nothing_else() {
    let Some(outcome) = kept("fails", 24, |options| options.slow_bytes = Some(8 << 20)) else { return };
    assert_eq!(outcome.status.code(), Some(7), "{:?}", outcome.notes);
    assert!(outcome.notes.iter().any(|note| note.contains("cannot take more")), "{:?}", outcome.notes);
}

#[test]
fn a_killed_program_leaves_nothing() {
    if let Err(error) = usable() {
        return eprintln!("skipped: {error}");
    }
    let slow = disk("killed");
    let mut session = Preloaded::open(&options("writes", 32, slow.clone())).expect("it starts");
    while session.poll().is_none() {
        session.step(&mut |_| {});
        if session.state(0).swapped > 0 {
            session.kill();
        }
    }
    assert_eq!(session.poll().flatten().and_then(|status| status.code()), None, "it was killed");
    assert_eq!(session.close(), Ok(()));
    assert!(left(&slow).is_empty());
}

#[test]
fn a_killed_keeper_is_not_missed() {
    use std::io::{BufRead, BufReader, Read};
    if let Err(error) = usable() {
        return eprintln!("skipped: {error}");
    }
    let slow = disk("keeper");
    let mut keeper = Command::new(std::env::current_exe().expect("a program has a path"));
    keeper.args(["program", "--exact", "--nocapture", "--test-threads", "1"]);
    keeper.env("TIERCEL_PROGRAM", "keeper").env("TIERCEL_TEST_SLOW", &slow);
    let mut keeper = keeper.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(keeper.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("away") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "it ended before anything was away");
    }
    let pid = keeper.id();
    keeper.kill().expect("it runs");
    keeper.wait().expect("it was killed");
    // The program has the other end of the pipe, and goes on.
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(rest.contains("right: writes"), "{rest}");
    let until = Instant::now() + PATIENCE;
    let cleaned = tiercel_pages::real::leftovers::Found::Cleaned(pid);
    loop {
        let target = Target::Command(vec!["true".into()]);
        let mut next =
            Preloaded::open(&Options { target, ..options("", 32, slow.clone()) }).expect("it starts");
        while next.poll().is_none() {
            next.step(&mut |_| {});
        }
        let done = next.found().contains(&cleaned);
        assert_eq!(next.close(), Ok(()));
        // Another test may have cleaned up.
        if done || Instant::now() > until || !noted(pid) {
            break;
        }
    }
    assert!(!noted(pid) && left(&slow).is_empty());
}

/// Whether something of a keeper is still noted.
fn noted(pid: u32) -> bool {
    tiercel_pages::real::leftovers::folder().join(format!("keep-{pid}")).exists()
}

#[test]
fn what_cannot_be_had_is_said() {
    let options =
        |target, slow| Options { target, slow, slow_bytes: None, ..options("", 24, PathBuf::new()) };
    let file = || Slow::File(disk("none"));
    let command = |words: &[&str]| Target::Command(words.iter().map(Into::into).collect());
    let refused =
        |options: Options| Preloaded::open(&options).err().map(|error| error.to_string()).unwrap_or_default();
    if usable().is_err() {
        return eprintln!("skipped: no library here");
    }
    assert!(refused(options(Target::Process(1), file())).contains("to a command that is started"));
    assert!(refused(options(command(&["true"]), Slow::Swap)).contains("--slow file:"));
    assert!(refused(options(command(&["/no/such/program"]), file())).contains("/no/such/program"));
    let nowhere = Slow::File(PathBuf::from("/no/such/place/x"));
    assert!(refused(options(command(&["true"]), nowhere)).contains("/no/such/place"));
    let much = Options { slow_bytes: Some(1 << 60), ..options(command(&["true"]), file()) };
    assert!(refused(much).contains("free"));
}
