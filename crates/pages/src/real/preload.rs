//! A program on DRAM and a file without the kernel's swap: a library is loaded into it (`crates/preload`) that takes pages away
//! and brings them back when they are missed.
//!
//! The keeper gives the library and a board to the command through its environment and looks at the board from then on. Each
//! process has a file of its own beside the path that was named, which has no name any more once it is open: whoever is
//! killed, and however, leaves nothing behind. A keeper that is killed is not missed by its program.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tiercel_preload::board::{self, BYTES, Board, PARTS, Stage, VARIABLE, Why};
use tiercel_preload::sys;

use super::kept::Kept;
use super::leftovers::{self, Found, Note};
use super::session::{Event, LEAST, Options, Slow, Target, swap_size, total_memory};
use super::state::{Counts, State};
use super::{KeepError, calls, process};

/// The library, as it was compiled; empty where there is none for this processor.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preloaded.so"));

/// The time between two looks at the board.
const TICK: Duration = Duration::from_millis(20);

/// A program that has had no slot for so long does not have the library.
const LOADED: Duration = Duration::from_secs(2);

/// How much of a disk is left alone.
const LEFT: u64 = 1 << 30;

/// The names of folders that are ours.
const FOLDERS: &str = "tiercel-keep-";

/// A program that has the library.
pub struct Preloaded {
    child: Child,
    board: &'static Board,
    note: Note,
    notes: PathBuf,
    found: Vec<Found>,
    mechanism: String,
    started: Instant,
    cpu: Duration,
    /// What was told of processes, so that it is told once.
    told: Vec<(u32, String)>,
}

fn refused(what: String) -> impl Fn(io::Error) -> KeepError {
    move |error| KeepError::System { what: what.clone(), error }
}

/// Whether programs can be given the library here, and why not.
pub fn usable() -> Result<(), KeepError> {
    if LIBRARY.is_empty() {
        return Err(KeepError::NoPreload("it is there for x86-64 and the GNU C library alone".to_string()));
    }
    let maps = sys::open(b"/proc/self/maps\0", sys::Mode::Read);
    let asked = maps.and_then(|maps| {
        let found = sys::mapping_at(maps, 0);
        sys::close(maps);
        found
    });
    if let Err(error) = asked {
        let error = io::Error::from_raw_os_error(error.0);
        return Err(KeepError::NoPreload(format!(
            "/proc/self/maps cannot be asked for mappings (Linux 6.11): {error}"
        )));
    }
    match sys::guard::new() {
        Ok(guard) => {
            sys::close(guard);
            Ok(())
        }
        Err(error) => Err(KeepError::NoPreload(format!(
            "userfaultfd that hears of forks and moves pages (it takes root or CAP_SYS_PTRACE): {}",
            io::Error::from_raw_os_error(error.0)
        ))),
    }
}

/// A folder in which programs may be loaded from files, with no characters that the loader takes for others.
fn folder(slow: &Path) -> Result<PathBuf, KeepError> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("{FOLDERS}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let beside = slow.parent().unwrap_or(Path::new("/")).to_path_buf();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for parent in [PathBuf::from("/dev/shm"), std::env::temp_dir(), beside] {
        let plain = !parent.as_os_str().as_bytes().iter().any(|byte| b" :;".contains(byte));
        if !plain || !calls::programs_may_lie_in(&parent) {
            continue;
        }
        let folder = parent.join(&name);
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => last = error,
        }
    }
    Err(refused("a folder for the library".to_string())(last))
}

/// The processes that use a folder of ours.
pub fn users(folder: &Path) -> Vec<u32> {
    let Ok(file) = File::options().read(true).write(true).open(folder.join("board")) else {
        return Vec::new();
    };
    if file.metadata().map_or(0, |meta| meta.len()) < BYTES {
        return Vec::new();
    }
    let Ok(board) = board::map(sys::File(file.as_raw_fd() as u32)) else { return Vec::new() };
    let pids = board.used().map(|slot| slot.pid.load(Ordering::Relaxed));
    pids.filter(|pid| process::runs(*pid)).collect()
}

/// Removes a folder of ours, with what is in it.
pub fn remove(folder: &Path) -> io::Result<()> {
    let ours = folder.file_name().is_some_and(|name| name.as_bytes().starts_with(FOLDERS.as_bytes()));
    if !ours {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What can be refused, before anything is set up: the command, the path and how large a process's file may become.
fn check(options: &Options) -> Result<(Vec<OsString>, PathBuf, u64), KeepError> {
    usable()?;
    let there = total_memory();
    if options.fast > there {
        return Err(KeepError::TooMuch { wanted: options.fast, there });
    }
    if options.fast < LEAST {
        return Err(KeepError::TooLittle { wanted: options.fast, least: LEAST });
    }
    let Target::Command(words) = &options.target else {
        return Err(KeepError::NoPreload(
            "a library can be given to a command that is started, not to a process that runs".to_string(),
        ));
    };
    let Slow::File(path) = &options.slow else {
        return Err(KeepError::NoPreload(
            "it writes to a file: name one with `--slow file:/path`".to_string(),
        ));
    };
    let bad = |error| KeepError::SlowFile { path: path.clone(), error };
    let parent = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let whole = parent.canonicalize().map_err(bad)?.join(path.file_name().unwrap_or_default());
    let bytes = options.slow_bytes.map_or_else(|| swap_size(&whole, options.fast), Ok)?;
    let free = calls::disk_free(whole.parent().unwrap_or(Path::new("/"))).map_err(bad)?;
    if free < bytes.saturating_add(LEFT) {
        return Err(KeepError::DiskFull { path: whole, wanted: bytes, free, left: LEFT });
    }
    // What the library will do, tried.
    let trial = PathBuf::from(format!("{}.try-{}", whole.display(), std::process::id()));
    File::create_new(&trial).and_then(|_| fs::remove_file(&trial)).map_err(bad)?;
    if !super::session::found_on_path(words.first().map_or("".as_ref(), OsString::as_os_str)) {
        let command = words.first().map_or(String::new(), |word| word.to_string_lossy().into_owned());
        return Err(KeepError::Command { command, error: io::ErrorKind::NotFound.into() });
    }
    Ok((words.clone(), whole, bytes))
}

impl Preloaded {
    /// Starts the command with the library.
    pub fn open(options: &Options) -> Result<Box<dyn Kept>, KeepError> {
        let notes = leftovers::folder();
        let found = leftovers::clean(&notes);
        let (words, path, bytes) = check(options)?;
        let folder = folder(&path)?;
        let mut note = Note::own();
        note.folder = Some(folder.clone());
        let made = note
            .write(&notes)
            .map_err(refused(format!("noting what is set up in {}", notes.display())))
            .and_then(|()| set_up(&folder, options.fast, bytes, &path))
            .and_then(|board| start(&words, &folder, options.output_aside).map(|child| (board, child)));
        let (board, child) = match made {
            Ok(made) => made,
            Err(error) => {
                // The error that came first is told; what is left is noted for the next keeper.
                let _ = note.undo(&notes);
                return Err(error);
            }
        };
        let mechanism = format!(
            "a preloaded library (userfaultfd), up to {} MiB a process beside {}",
            bytes >> 20,
            path.display()
        );
        Ok(Box::new(Preloaded {
            child,
            board,
            note,
            notes,
            found,
            mechanism,
            started: Instant::now(),
            cpu: calls::own_cpu(),
            told: Vec::new(),
        }))
    }

    fn tell_once(&mut self, pid: u32, text: String, tell: &mut dyn FnMut(Event)) {
        let known = (pid, text);
        if !self.told.contains(&known) {
            tell(Event::Note(match pid {
                0 => known.1.clone(),
                pid => format!("process {pid}: {}", known.1),
            }));
            self.told.push(known);
        }
    }

    /// Tells what the libraries have to say.
    fn listen(&mut self, tell: &mut dyn FnMut(Event)) {
        let mut news = Vec::new();
        for slot in self.board.used() {
            let pid = slot.pid.load(Ordering::Relaxed);
            if let Stage::Alone(why, error) = slot.stage() {
                let error = io::Error::from_raw_os_error(error.0);
                let what = match why {
                    Why::Faults => "userfaultfd is refused",
                    Why::Proc => "what /proc says of it cannot be read",
                    Why::File => "its file cannot be made",
                    Why::Memory => "there is no memory for the books",
                    Why::Thread => "no thread can be started",
                };
                news.push((pid, format!("left alone, {what}: {error}")));
            }
            let error = slot.write_error.load(Ordering::Relaxed);
            if error != 0 {
                let error = io::Error::from_raw_os_error(error as i32);
                news.push((
                    pid,
                    format!("has more in memory than it should, its file cannot take more: {error}"),
                ));
            }
            if slot.raw_forks.load(Ordering::Relaxed) > 0 {
                let what = "has children that it forked without the C library; they are left alone, with all of their memory";
                news.push((pid, what.to_string()));
            }
        }
        if self.board.turned_away.load(Ordering::Relaxed) > 0 {
            news.push((0, format!("more than {} processes at a time: some are left alone", board::SLOTS)));
        }
        let quick = self.started.elapsed() < LOADED;
        if self.board.ever.load(Ordering::Relaxed) == 0 && !quick {
            news.push((0, ALONE.to_string()));
        }
        for (pid, text) in news {
            self.tell_once(pid, text, tell);
        }
    }
}

/// What is said of a program that the loader gave no library.
const ALONE: &str = "the command does not load the library (it is linked statically, sets its user id, or belongs to \
                     somebody else): it is left alone, with all of its memory";

/// Writes the library and the board.
fn set_up(folder: &Path, fast: u64, bytes: u64, path: &Path) -> Result<&'static Board, KeepError> {
    let bad = refused(format!("setting up {}", folder.display()));
    fs::write(folder.join("library.so"), LIBRARY).map_err(&bad)?;
    let file = File::options().create_new(true).read(true).write(true).mode(0o600).open(folder.join("board"));
    let file = file.map_err(&bad)?;
    file.set_len(BYTES).map_err(&bad)?;
    let board = board::map(sys::File(file.as_raw_fd() as u32));
    let board = board.map_err(|error| bad(io::Error::from_raw_os_error(error.0)))?;
    if !board.set_up(fast, bytes, path.as_os_str().as_bytes()) {
        return Err(bad(io::Error::from(io::ErrorKind::InvalidFilename)));
    }
    Ok(board)
}

/// Starts the command with the library and the board in its environment.
fn start(words: &[OsString], folder: &Path, output_aside: bool) -> Result<Child, KeepError> {
    let mut command = Command::new(&words[0]);
    let mut libraries = folder.join("library.so").into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    command.args(&words[1..]).env("LD_PRELOAD", libraries).env(VARIABLE, folder.join("board"));
    if output_aside {
        command.stdout(io::stderr());
    }
    command
        .spawn()
        .map_err(|error| KeepError::Command { command: words[0].to_string_lossy().into_owned(), error })
}

impl Kept for Preloaded {
    fn mechanism(&self) -> &str {
        &self.mechanism
    }

    fn found(&self) -> &[Found] {
        &self.found
    }

    fn step(&mut self, tell: &mut dyn FnMut(Event)) {
        std::thread::sleep(TICK);
        self.board.sweep(process::runs);
        self.listen(tell);
    }

    fn poll(&mut self) -> Option<Option<ExitStatus>> {
        match self.child.try_wait() {
            Ok(Some(status)) => Some(Some(status)),
            Ok(None) => None,
            Err(_) => Some(None),
        }
    }

    fn state(&self, parts: usize) -> State {
        self.board.wants_maps.store(u32::from(parts > 0), Ordering::Relaxed);
        let sums = |which| self.board.sum(which);
        let mut state = State {
            seconds: self.started.elapsed().as_secs_f64(),
            resident: self.board.resident(),
            counts: Counts {
                came_back: sums(0),
                went_out: sums(1),
                ahead: sums(2),
                behind: sums(3),
                rescued: sums(4),
                ..Counts::default()
            },
            map: vec![[0; 3]; parts],
            ..State::default()
        };
        let time = Duration::from_nanos(sums(5)) + calls::own_cpu().saturating_sub(self.cpu);
        state.overhead = time.as_secs_f64() / state.seconds.max(1e-9);
        for slot in self.board.used() {
            state.swapped += slot.away.load(Ordering::Relaxed);
            state.streams += slot.streams.load(Ordering::Relaxed) as usize;
        }
        // The map of the largest process: address spaces cannot be drawn over one another.
        let size =
            |slot: &&board::Slot| slot.resident.load(Ordering::Relaxed) + slot.away.load(Ordering::Relaxed);
        if let Some(slot) = self.board.used().max_by_key(size).filter(|_| parts > 0) {
            for (at, part) in slot.map.iter().enumerate() {
                let to = &mut state.map[at * parts / PARTS];
                for (sum, kib) in to.iter_mut().zip(part) {
                    *sum += u64::from(kib.load(Ordering::Relaxed)) << 10;
                }
            }
        }
        state
    }

    fn ended_for_memory(&self) -> u64 {
        0
    }

    fn ask_to_end(&self) {
        // It may have ended by itself just now.
        let _ = calls::signal(self.child.id(), libc::SIGTERM);
    }

    fn kill(&mut self) {
        // It may have ended by itself just now.
        let _ = self.child.kill();
    }

    fn close(mut self: Box<Self>) -> Result<(), String> {
        let folder = self.note.folder.clone().unwrap_or_default();
        let users = users(&folder);
        if let Some(pid) = users.first() {
            return Err(format!("process {pid} still runs: {} stays until it ends", folder.display()));
        }
        std::mem::take(&mut self.note).undo(&self.notes)
    }
}

impl Drop for Preloaded {
    fn drop(&mut self) {
        if let Some(folder) = &self.note.folder
            && users(folder).is_empty()
        {
            // What is left is noted for the next keeper.
            let _ = std::mem::take(&mut self.note).undo(&self.notes);
        }
    }
}
