//! A program on DRAM and a slow tier behind it: the kernel moves the bytes, the keeper steers it from outside.
//!
//! The limit is a memory cgroup, the slow tier is the kernel's swap: nothing is loaded into the program, nothing of it can
//! be lost, and if the keeper is killed the program goes on under the kernel alone. The keeper looks at which pages came
//! back from the slow tier (through the kernel's own page map), reads ahead of streams, writes out behind them, and makes
//! room before it is needed, so that the program does not have to. A process that runs already cannot bring its memory
//! into another group: there the keeper itself writes out what came back least, until the process is within the limit.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::calls::{self, Advice, kinds};
use super::doctor::{self, Capability};
use super::group::Group;
use super::leftovers::{self, Note};
use super::patience::Patience;
use super::state::{spread, within};
use super::streams::{Streams, without};
use super::swapfile::{self, SwapFile};
use super::{KeepError, process};

pub use super::state::{Counts, State};

/// The least that a program may be given.
pub const LEAST: u64 = 16 << 20;

/// How much smaller a mapping must be to be left alone.
const SMALL: u64 = 1 << 20;

/// A piece of address space that is written out as one, where the keeper holds the limit.
const SPAN: u64 = 2 << 20;

/// What of the limit on processor time may be spent at the beginning, as if so much time had passed.
const SAVED: Duration = Duration::from_secs(2);

/// The shortest time between two looks.
const TICK: Duration = Duration::from_millis(10);

/// Whose pages are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A command to be started.
    Command(Vec<OsString>),
    /// A process that runs, and those that it started.
    Process(u32),
    /// All processes of a memory cgroup.
    Group(PathBuf),
}

/// What lies behind DRAM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Swap that is on already.
    Swap,
    /// A swap file, made at this path and removed afterwards.
    File(PathBuf),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whose pages.
    pub target: Target,
    /// How much of them may be in DRAM.
    pub fast: u64,
    /// What is behind it.
    pub slow: Slow,
    /// How large a swap file is; what seems right where nothing is said.
    pub slow_bytes: Option<u64>,
    /// Which share of a processor's time the keeper may take.
    pub overhead: f64,
    /// Whether the kernel is steered, or left alone with the limit.
    pub steer: bool,
    /// Whether what a command says goes to standard error, because standard output is ours.
    pub output_aside: bool,
}

/// What happened, for files of events.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A stream is read ahead of, or written out behind.
    Advice(u32, Advice, Range<u64>, &'static str),
    /// Room was made.
    Room(u64),
    /// Something that whoever runs the program should know.
    Note(String),
}

struct Watched {
    pid: u32,
    handle: OwnedFd,
    pagemap: File,
    ranges: Vec<Range<u64>>,
    swapped: Vec<Range<u64>>,
    streams: Streams,
    lately: Vec<Range<u64>>,
    /// Where the last writing out of spans ended, and how hot spans are by what came back.
    hand: u64,
    heat: std::collections::HashMap<u64, f32>,
}

/// A program that is kept.
pub struct Session {
    options: Options,
    group: Option<Group>,
    /// Keeps the kernel from ending processes while the disk catches up.
    patience: Option<Patience>,
    note: Note,
    folder: PathBuf,
    child: Option<Child>,
    watched: Vec<Watched>,
    /// When a process that ran already began: another that gets its number is not taken for it.
    began: Option<u64>,
    started: Instant,
    cpu: Duration,
    /// What making room took of it.
    room_cpu: Duration,
    refreshed: Option<Instant>,
    looked: Instant,
    look_cost: Duration,
    faults: u64,
    counts: Counts,
    /// Which mechanism was chosen, in words.
    pub mechanism: String,
    /// What was found of earlier keepers.
    pub found: Vec<leftovers::Found>,
}

/// All memory of this machine.
pub fn total_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// How large a swap file is where nobody says: four times what is fast, within what the disk has.
pub(super) fn swap_size(path: &std::path::Path, fast: u64) -> Result<u64, KeepError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let free = calls::disk_free(folder.unwrap_or(std::path::Path::new(".")))
        .map_err(|error| KeepError::SwapFile { path: path.to_path_buf(), error })?;
    let wanted = (fast * 4).clamp(1 << 30, 64 << 30);
    Ok(wanted.min((free / 2).max(64 << 20)))
}

impl Options {
    /// Whether it can be done at all; nothing is started or changed.
    pub fn check(&self) -> Result<(), KeepError> {
        let there = total_memory();
        if self.fast > there {
            return Err(KeepError::TooMuch { wanted: self.fast, there });
        }
        if self.fast < LEAST {
            return Err(KeepError::TooLittle { wanted: self.fast, least: LEAST });
        }
        match &self.target {
            Target::Command(_) => {}
            Target::Process(pid) => {
                if !process::runs(*pid) {
                    return Err(KeepError::NoProcess(*pid));
                }
                let not_ours = |error| KeepError::NotOurs { pid: *pid, error };
                process::mappings(*pid).map_err(not_ours)?;
                File::open(format!("/proc/{pid}/pagemap")).map_err(not_ours)?;
                let handle = calls::process(*pid).map_err(not_ours)?;
                calls::advise(&handle, &[], Advice::Cold).map_err(not_ours)?;
            }
            Target::Group(folder) => {
                if Group::at(folder)?.processes().is_empty() {
                    return Err(KeepError::EmptyGroup(folder.clone()));
                }
            }
        }
        match &self.slow {
            Slow::Swap if swapfile::areas().is_empty() => Err(KeepError::NoSwap),
            Slow::Swap => Ok(()),
            Slow::File(path) => {
                let exists = io::Error::from(io::ErrorKind::AlreadyExists);
                if path.exists() {
                    return Err(KeepError::SwapFile { path: path.clone(), error: exists });
                }
                if !doctor::has(Capability::Admin) {
                    return Err(KeepError::MaySwap);
                }
                swap_size(path, self.fast).map(drop)
            }
        }
    }
}

impl Session {
    /// Sets everything up and starts the command, or attaches to what runs.
    pub fn open(options: Options) -> Result<Session, KeepError> {
        let folder = leftovers::folder();
        let found = leftovers::clean(&folder);
        options.check()?;
        let mut session = Session {
            group: None,
            patience: None,
            note: Note::own(),
            folder,
            child: None,
            watched: Vec::new(),
            began: match options.target {
                Target::Process(pid) => process::began(pid),
                _ => None,
            },
            started: Instant::now(),
            cpu: calls::own_cpu(),
            room_cpu: Duration::ZERO,
            refreshed: None,
            looked: Instant::now(),
            look_cost: Duration::from_millis(1),
            faults: 0,
            counts: Counts::default(),
            mechanism: String::new(),
            found,
            options,
        };
        match session.set_up() {
            Ok(()) => Ok(session),
            Err(error) => {
                session.undo();
                Err(error)
            }
        }
    }

    /// Notes what is about to be set up, so that whoever comes next can undo it.
    fn write(&self) -> Result<(), KeepError> {
        let what = format!("noting what is set up in {}", self.folder.display());
        self.note.write(&self.folder).map_err(|error| KeepError::System { what, error })
    }

    fn set_up(&mut self) -> Result<(), KeepError> {
        let behind = match self.options.slow.clone() {
            Slow::Swap => "swap that is on".to_string(),
            Slow::File(path) => {
                let bytes =
                    self.options.slow_bytes.map_or_else(|| swap_size(&path, self.options.fast), Ok)?;
                // The kernel's list has whole paths.
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or(std::path::Path::new("."));
                let whole =
                    folder.canonicalize().map(|folder| folder.join(path.file_name().unwrap_or_default()));
                let path = whole.map_err(|error| KeepError::SwapFile { path, error })?;
                // Noted before it is there; what cannot be made is not ours to remove.
                self.note.swap = Some(path.clone());
                self.write()?;
                let file = match SwapFile::make(&path, bytes) {
                    Ok(file) => file,
                    Err(error) => {
                        self.note.swap = None;
                        self.write()?;
                        return Err(error);
                    }
                };
                file.on()?;
                format!("a swap file of {} MiB at {}", bytes >> 20, path.display())
            }
        };
        let fast = self.options.fast;
        match self.options.target.clone() {
            Target::Command(words) => {
                let group = self.make_group()?;
                let child = self.spawn(&words, &group)?;
                self.child = Some(child);
                self.mechanism = format!("memory cgroup v{} of its own, {behind}", group.version);
                self.group = Some(group);
            }
            Target::Process(_) => {
                self.mechanism = format!("the keeper holds the limit, {behind}");
            }
            Target::Group(folder) => {
                let group = Group::at(&folder)?;
                let refused = |error| KeepError::Limit { folder: folder.clone(), bytes: fast, error };
                self.note.limit = Some((folder.clone(), group.limit_text().map_err(refused)?));
                self.write()?;
                group.limit(fast).map_err(refused)?;
                self.mechanism = format!("the limit of {}, {behind}", folder.display());
                self.group = Some(group);
            }
        }
        Ok(())
    }

    fn make_group(&mut self) -> Result<Group, KeepError> {
        // Several keepers may live in one process, one after another.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let group = Group::create(&format!("tiercel-keep-{}-{number}", std::process::id()))?;
        self.note.group = Some(group.folder.clone());
        self.write()?;
        let bytes = self.options.fast;
        group.limit(bytes).map_err(|error| KeepError::Limit {
            folder: group.folder.clone(),
            bytes,
            error,
        })?;
        group.swap_freely();
        // Where it cannot be had the kernel decides, as without a keeper.
        self.patience = Patience::new(&group, bytes).ok();
        Ok(group)
    }

    /// Starts the command inside the group: a shell enters it and becomes the command.
    fn spawn(&self, words: &[OsString], group: &Group) -> Result<Child, KeepError> {
        let command = words.first().cloned().unwrap_or_default();
        let bad = |error| KeepError::Command { command: command.to_string_lossy().into_owned(), error };
        if !found_on_path(&command) {
            return Err(bad(io::ErrorKind::NotFound.into()));
        }
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg("echo $$ > \"$0\" && exec \"$@\"").arg(group.entrance()).args(words);
        if self.options.output_aside {
            shell.stdout(io::stderr());
        }
        shell.spawn().map_err(bad)
    }

    /// The processes that are kept.
    fn processes(&self) -> Vec<u32> {
        match (&self.group, &self.options.target) {
            (Some(group), _) => group.processes(),
            (None, Target::Process(pid)) if process::runs(*pid) && process::began(*pid) == self.began => {
                process::family(*pid)
            }
            _ => Vec::new(),
        }
    }

    /// Whether there is still something to keep; the status of a command that has ended.
    pub fn poll(&mut self) -> Option<Option<ExitStatus>> {
        if let Some(child) = &mut self.child {
            return match child.try_wait() {
                Ok(Some(status)) => Some(Some(status)),
                Ok(None) => None,
                Err(_) => Some(None),
            };
        }
        self.processes().is_empty().then_some(None)
    }

    /// How many processes the kernel has ended because fast memory and swap together were too little.
    pub fn ended_for_memory(&self) -> u64 {
        self.group.as_ref().map_or(0, Group::ended_for_memory)
    }

    /// The process of the command that was started.
    pub fn command(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Looks at mappings anew: programs map, fork and exec.
    fn refresh(&mut self) {
        let pids = self.processes();
        self.watched.retain(|watched| pids.contains(&watched.pid));
        for pid in pids {
            let ranges = match process::mappings(pid) {
                Ok(mappings) => {
                    let large = mappings.iter().filter(|m| m.is_anonymous() && m.bytes() >= SMALL);
                    let mut ranges: Vec<Range<u64>> = Vec::new();
                    for mapping in large {
                        match ranges.last_mut() {
                            Some(last) if last.end == mapping.range.start => last.end = mapping.range.end,
                            _ => ranges.push(mapping.range.clone()),
                        }
                    }
                    ranges
                }
                Err(_) => continue,
            };
            if let Some(known) = self.watched.iter_mut().find(|watched| watched.pid == pid) {
                known.ranges = ranges;
                // An open page map is that of the memory which the process had then: an exec gives it another.
                if let Ok(pagemap) = File::open(format!("/proc/{pid}/pagemap")) {
                    known.pagemap = pagemap;
                }
            } else if let (Ok(handle), Ok(pagemap)) =
                (calls::process(pid), File::open(format!("/proc/{pid}/pagemap")))
            {
                self.watched.push(Watched {
                    pid,
                    handle,
                    pagemap,
                    ranges,
                    swapped: Vec::new(),
                    streams: Streams::new(self.options.fast),
                    lately: Vec::new(),
                    hand: 0,
                    heat: Default::default(),
                });
            }
        }
        self.refreshed = Some(Instant::now());
    }

    /// One turn: sleeps a moment and does what there is to do. Events go to `tell`.
    pub fn step(&mut self, tell: &mut dyn FnMut(Event)) {
        std::thread::sleep(TICK);
        if self.refreshed.is_none_or(|at| at.elapsed() > Duration::from_millis(500)) {
            self.refresh();
        }
        if self.patience.as_mut().is_some_and(Patience::step) {
            self.counts.waits += 1;
        }
        if !self.options.steer {
            return;
        }
        let began = Instant::now();
        let faults: u64 = self.watched.iter().map(|watched| major_faults(watched.pid)).sum();
        let busy = faults > self.faults + 16;
        // Looks are as far apart as the limit on our time wants it, and rare while nothing comes back.
        let apart = self.look_cost.div_f64(self.options.overhead.max(0.001) * 0.5).max(TICK);
        let due = self.looked.elapsed() >= if busy { apart } else { Duration::from_secs(1).max(apart) };
        // Making room is work that the program would have had to do, and yet time that others do not get: it is charged, too.
        if busy && self.may_spend() {
            let before = calls::own_cpu();
            self.make_room(tell);
            self.room_cpu += calls::own_cpu().saturating_sub(before);
        }
        if due {
            self.faults = faults;
            self.look(tell);
            self.looked = Instant::now();
            self.look_cost = (self.look_cost * 3 + began.elapsed()) / 4;
        }
    }

    /// Whether the processor time so far is within the limit, with a moment's worth to begin with.
    fn may_spend(&self) -> bool {
        let allowed = (self.started.elapsed() + SAVED).mul_f64(self.options.overhead);
        calls::own_cpu().saturating_sub(self.cpu) < allowed
    }

    /// Writes out what was unused for longest before the program would have to wait for it.
    fn make_room(&mut self, tell: &mut dyn FnMut(Event)) {
        let Some(group) = &self.group else { return };
        if self.patience.as_ref().is_some_and(Patience::is_over) {
            return;
        }
        let fast = self.options.fast;
        let (low, high) = ((fast / 128).min(8 << 20), (fast / 64).min(16 << 20));
        if group.usage().is_ok_and(|usage| usage + low > fast) && group.reclaim(high, fast).is_ok() {
            self.counts.room += high;
            tell(Event::Room(high));
        }
    }

    fn look(&mut self, tell: &mut dyn FnMut(Event)) {
        self.counts.looks += 1;
        for watched in &mut self.watched {
            let mut swapped = Vec::new();
            for range in &watched.ranges {
                match calls::scan(&watched.pagemap, range.clone(), kinds::SWAPPED) {
                    Ok(runs) => swapped.extend(runs),
                    Err(_) => break,
                }
            }
            let came_back = without(&watched.swapped, &swapped);
            let went_out = without(&swapped, &watched.swapped);
            let bytes = |runs: &[Range<u64>]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
            self.counts.came_back += bytes(&came_back);
            self.counts.went_out += bytes(&went_out);
            let all = bytes(&watched.ranges);
            let steps = watched.streams.look(&came_back, all);
            // Only what is swapped out can be read, and reading more than there is would drive out what was just read.
            let ahead: Vec<Range<u64>> =
                steps.ahead.iter().flat_map(|range| within(&swapped, range)).collect();
            if !ahead.is_empty() && calls::advise(&watched.handle, &ahead, Advice::WillNeed).is_ok() {
                self.counts.ahead += bytes(&ahead);
                ahead.into_iter().for_each(|r| {
                    tell(Event::Advice(watched.pid, Advice::WillNeed, r, "ahead of a stream"));
                });
            }
            if !steps.behind.is_empty()
                && calls::advise(&watched.handle, &steps.behind, Advice::PageOut).is_ok()
            {
                self.counts.behind += bytes(&steps.behind);
                for range in steps.behind {
                    tell(Event::Advice(watched.pid, Advice::PageOut, range, "behind a stream"));
                }
            }
            for run in &came_back {
                let mut at = run.start / SPAN;
                while at * SPAN < run.end {
                    *watched.heat.entry(at).or_default() += 1.0;
                    at += 1;
                }
            }
            watched.swapped = swapped;
            watched.lately = came_back;
        }
        if self.group.is_none() {
            self.hold(tell);
        }
    }

    /// Holds the limit where no group does: writes out spans in turn, those last that came back most.
    fn hold(&mut self, tell: &mut dyn FnMut(Event)) {
        let resident: u64 = self
            .watched
            .iter()
            .filter_map(|w| process::memory(w.pid).ok())
            .map(|memory| memory.resident)
            .sum();
        let mut over = resident.saturating_sub(self.options.fast);
        for watched in &mut self.watched {
            let mut tries = 0;
            let spans: u64 = watched.ranges.iter().map(|r| (r.end - r.start).div_ceil(SPAN)).sum();
            while over > 0 && tries < 2 * spans {
                tries += 1;
                let next = watched.ranges.iter().find(|range| range.end > watched.hand);
                let Some(range) = next else {
                    watched.hand = 0;
                    continue;
                };
                let start = watched.hand.max(range.start);
                let end = (start + SPAN).min(range.end);
                watched.hand = end;
                // A second chance for what came back, and less of it each time.
                if let Some(heat) = watched.heat.get_mut(&(start / SPAN)).filter(|heat| **heat >= 1.0) {
                    *heat /= 2.0;
                    continue;
                }
                let span = start..end;
                let out: u64 = within(&watched.swapped, &span).iter().map(|run| run.end - run.start).sum();
                let here = span.end - span.start - out.min(span.end - span.start);
                if here == 0 {
                    continue;
                }
                if calls::advise(&watched.handle, std::slice::from_ref(&span), Advice::PageOut).is_ok() {
                    self.counts.behind += here;
                    over = over.saturating_sub(here);
                    tell(Event::Advice(watched.pid, Advice::PageOut, span, "over the limit"));
                }
            }
        }
    }

    /// How it stands, with the address space in so many parts.
    pub fn state(&self, parts: usize) -> State {
        let mut state = State {
            seconds: self.started.elapsed().as_secs_f64(),
            counts: self.counts,
            streams: self.watched.iter().map(|watched| watched.streams.known()).sum(),
            map: vec![[0; 3]; parts],
            ..State::default()
        };
        state.overhead = (calls::own_cpu() - self.cpu).as_secs_f64() / state.seconds.max(1e-9);
        state.room_overhead = self.room_cpu.as_secs_f64() / state.seconds.max(1e-9);
        for watched in &self.watched {
            if let Ok(memory) = process::memory(watched.pid) {
                state.resident += memory.resident;
                state.swapped += memory.swapped;
            }
        }
        let all: u64 = self.watched.iter().flat_map(|w| &w.ranges).map(|r| r.end - r.start).sum();
        if parts == 0 || all == 0 {
            return state;
        }
        let mut passed = 0;
        for watched in &self.watched {
            for range in &watched.ranges {
                for (at, list) in
                    [(0, std::slice::from_ref(range)), (1, &watched.swapped[..]), (2, &watched.lately[..])]
                {
                    for run in within(list, range) {
                        spread(
                            &mut state.map,
                            at,
                            passed + run.start - range.start,
                            run.end - run.start,
                            all,
                        );
                    }
                }
                passed += range.end - range.start;
            }
        }
        state
    }

    /// Asks the command to end.
    pub fn ask_to_end(&self) {
        if let Some(child) = &self.child {
            // It may have ended by itself just now.
            let _ = calls::signal(child.id(), libc::SIGTERM);
        }
    }

    /// Ends the command, whatever it does.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself just now.
            let _ = child.kill();
        }
    }

    /// Ends the keeping: a process that runs on is let go, and everything that was set up is undone.
    pub fn close(mut self) -> Result<(), String> {
        self.undo_all()
    }

    fn undo(&mut self) {
        // Whoever calls has a better error to tell; what is left is noted for the next keeper.
        let _ = self.undo_all();
    }

    fn undo_all(&mut self) -> Result<(), String> {
        if let Some(child) = &mut self.child
            && matches!(child.try_wait(), Ok(None))
        {
            return Err(format!(
                "process {} still runs: its group and its swap stay until it ends",
                child.id()
            ));
        }
        self.patience = None;
        let note = std::mem::take(&mut self.note);
        if note.keeper == 0 { Ok(()) } else { note.undo(&self.folder) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Major faults of a process so far.
fn major_faults(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let field =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(9)?.parse().ok());
    field.unwrap_or(0)
}

/// Whether a command can be found, as a shell finds it.
pub(super) fn found_on_path(command: &std::ffi::OsStr) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let is_program = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if command.to_string_lossy().contains('/') {
        return is_program(PathBuf::from(command));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(folder.join(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(target: Target, slow: Slow) -> Options {
        Options {
            target,
            fast: 64 << 20,
            slow,
            slow_bytes: None,
            overhead: 0.05,
            steer: true,
            output_aside: false,
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_before_anything_is_set_up() {
        let command = || Target::Command(vec!["true".into()]);
        let file = std::env::temp_dir().join("tiercel-none");
        let none = options(Target::Process(u32::MAX >> 1), Slow::File(file.clone()));
        assert!(matches!(none.check(), Err(KeepError::NoProcess(_))));
        let much = Options { fast: 1 << 60, ..options(command(), Slow::File(file.clone())) };
        assert!(matches!(much.check(), Err(KeepError::TooMuch { .. })));
        let little = Options { fast: 4096, ..options(command(), Slow::File(file.clone())) };
        assert!(matches!(little.check(), Err(KeepError::TooLittle { .. })));
        let group = options(Target::Group("/proc".into()), Slow::File(file.clone()));
        assert!(matches!(group.check(), Err(KeepError::NotAGroup(_))));
        let there = options(command(), Slow::File("/etc/passwd".into()));
        assert!(matches!(there.check(), Err(KeepError::SwapFile { .. })));
        // Others may turn swap on or off meanwhile.
        let none = || swapfile::areas().is_empty();
        let (before, refused, after) = (none(), options(command(), Slow::Swap).check(), none());
        if before && after {
            assert!(matches!(refused, Err(KeepError::NoSwap)));
        } else {
            eprintln!("skipped: swap is on, so asking for it is no mistake here");
        }
        assert!(!file.exists());
    }
}
