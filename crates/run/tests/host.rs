//! The host world against a model of plain vectors, and against everything that a real system refuses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tiercel_core::Traffic;
use tiercel_core::{Backend, Bandwidth, Bytes, CopyOrder, Machine, Manager, Nanos, Place, Ticket, TierId};
use tiercel_run::{Host, HostError};

/// A directory that is gone, and was empty, when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tiercel-host-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self) -> String {
        format!("file:{}", self.0.display())
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A machine with these backings, all of one capacity, neighbours linked with two threads.
fn machine(backings: &[&str], capacity: Bytes) -> Machine {
    let mut toml = "name = 'test'\n".to_string();
    for (i, backing) in backings.iter().enumerate() {
        let computable = !backing.starts_with("file");
        toml += &format!(
            "[[tier]]\nname = 't{i}'\ncapacity = '{}'\nread = '2 GB/s'\nwrite = '1 GB/s'\n\
             backing = '{backing}'\ncomputable = {computable}\n",
            capacity.0
        );
    }
    for i in 1..backings.len() {
        for (a, b) in [(i - 1, i), (i, i - 1)] {
            toml += &format!(
                "[[link]]\nfrom = 't{a}'\nto = 't{b}'\nthreads = 2\nbandwidth = {{ 1 = '1 GB/s' }}\n"
            );
        }
    }
    Machine::parse(&toml).unwrap()
}

fn at(tier: u8, offset: u64) -> Place {
    Place { tier: TierId(tier), offset: Bytes(offset) }
}

/// The bytes of a stretch that no copy is using.
fn bytes(host: &mut Host, place: Place, bytes: u64) -> &mut [u8] {
    let slice = host.slice(place, Bytes(bytes)).expect("a tier that kernels can work on");
    // SAFETY: the tests ask only for stretches that no copy is using, and the host outlives the borrow.
    unsafe { &mut *slice.as_ptr() }
}

fn copy(host: &mut Host, from: Place, to: Place, bytes: u64, after: &[Ticket]) -> Ticket {
    host.copy(CopyOrder { from, to, bytes: Bytes(bytes), after })
}

fn refusal(machine: &Machine) -> HostError {
    Host::open(machine).err().expect("the machine must be refused")
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

// ---- contents -------------------------------------------------------------------------------------------------

/// A copy that may still run: what it reads and what it writes, in whole grains.
struct Flight {
    ticket: Ticket,
    reads: (u8, Range<u64>),
    writes: (u8, Range<u64>),
}

fn meet(a: &(u8, Range<u64>), b: &(u8, Range<u64>)) -> bool {
    a.0 == b.0 && a.1.start < b.1.end && b.1.start < a.1.end
}

/// Random copies, kernels, waits, cancels and forgets, beside vectors that do the same at once; `None` is a byte
/// that nobody may rely on.
struct Model {
    host: Host,
    tiers: Vec<Vec<Option<u8>>>,
    filed: Vec<bool>,
    grain: u64,
    capacity: u64,
    flights: Vec<Flight>,
    random: Random,
}

impl Model {
    fn new(backings: &[&str], capacity: Bytes, seed: u64) -> Model {
        let machine = machine(backings, capacity);
        Model {
            host: Host::open(&machine).unwrap(),
            tiers: vec![vec![Some(0); capacity.0 as usize]; backings.len()],
            filed: backings.iter().map(|b| b.starts_with("file")).collect(),
            grain: machine.grain().0,
            capacity: capacity.0,
            flights: Vec::new(),
            random: Random(seed),
        }
    }

    /// A stretch of some tier in whole grains, and how many bytes of it are used.
    fn stretch(&mut self, most: u64) -> (u8, Range<u64>, u64) {
        let tier = self.random.below(self.tiers.len() as u64) as u8;
        let bytes = 1 + self.random.below(most);
        let len = bytes.next_multiple_of(self.grain);
        let start = self.random.below((self.capacity - len) / self.grain + 1) * self.grain;
        (tier, start..start + len, bytes)
    }

    fn copy(&mut self) {
        let most = if self.random.below(4) == 0 { self.capacity / 2 } else { self.capacity / 32 };
        let (from, reads, bytes) = self.stretch(most);
        let to = self.random.below(self.tiers.len() as u64) as u8;
        let len = reads.end - reads.start;
        let start = self.random.below((self.capacity - len) / self.grain + 1) * self.grain;
        let (reads, writes) = ((from, reads), (to, start..start + len));
        if meet(&reads, &writes) {
            return;
        }
        let hazard =
            |f: &&Flight| meet(&f.writes, &reads) || meet(&f.writes, &writes) || meet(&f.reads, &writes);
        let after: Vec<Ticket> = self.flights.iter().filter(hazard).map(|f| f.ticket).collect();
        let ticket = copy(&mut self.host, at(from, reads.1.start), at(to, start), bytes, &after);
        for i in 0..len as usize {
            let byte = match i < bytes as usize {
                true => self.tiers[from as usize][reads.1.start as usize + i],
                false if self.filed[from as usize] || self.filed[to as usize] => None,
                false => continue,
            };
            self.tiers[to as usize][start as usize + i] = byte;
        }
        self.flights.push(Flight { ticket, reads, writes });
    }

    /// Ends one copy; nobody asks for it again.
    fn end(&mut self, flight: usize) {
        let flight = self.flights.swap_remove(flight);
        match self.random.below(3) {
            0 => while !self.host.done(flight.ticket).unwrap() {},
            _ => self.host.wait(flight.ticket).unwrap(),
        }
        assert_eq!(self.host.done(flight.ticket), Ok(true));
        if self.random.below(4) > 0 {
            self.host.forget(flight.ticket);
        }
    }

    fn cancel(&mut self, flight: usize) {
        let writes = self.flights[flight].writes.clone();
        // What copies after it made of the bytes is anybody's guess too, so a copy is cancelled only while no
        // other depends on it.
        let ticket = self.flights[flight].ticket;
        if self
            .flights
            .iter()
            .any(|f| f.ticket > ticket && (meet(&f.reads, &writes) || meet(&f.writes, &writes)))
        {
            return;
        }
        self.host.cancel(ticket);
        self.tiers[writes.0 as usize][writes.1.start as usize..writes.1.end as usize].fill(None);
    }

    /// Waits for all copies that touch a stretch, checks it, and writes it anew.
    fn kernel(&mut self) {
        let (tier, range, len) = self.stretch(self.capacity / 8);
        if self.filed[tier as usize] {
            return;
        }
        let stretch = (tier, range.clone());
        while let Some(i) =
            self.flights.iter().position(|f| meet(&f.writes, &stretch) || meet(&f.reads, &stretch))
        {
            self.end(i);
        }
        self.check(at(tier, range.start), at(tier, range.start), len);
        let first = self.random.below(256);
        let place = &mut self.tiers[tier as usize][range.start as usize..];
        for (i, byte) in bytes(&mut self.host, at(tier, range.start), len).iter_mut().enumerate() {
            *byte = (first + i as u64 + (i as u64 >> 8)) as u8;
            place[i] = Some(*byte);
        }
        if self.random.below(4) == 0 {
            let traffic = Traffic { tier: TierId(tier), read: Bytes(len), write: Bytes(len) };
            let started = self.host.now();
            self.host.charge(&[traffic], started);
        }
    }

    /// Compares the bytes at `real` with what the model has at `model`.
    fn check(&mut self, real: Place, model: Place, len: u64) {
        let expected = &self.tiers[model.tier.index()][model.offset.0 as usize..];
        let found = bytes(&mut self.host, real, len);
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!(expected.is_none_or(|e| e == *found), "byte {i} of {model:?}: {found} {expected:?}");
        }
    }

    fn check_all(&mut self) {
        while !self.flights.is_empty() {
            self.end(0);
        }
        for tier in 0..self.tiers.len() as u8 {
            if !self.filed[tier as usize] {
                self.check(at(tier, 0), at(tier, 0), self.capacity);
            }
        }
        // Files are looked at through tier 0, which has been checked by now.
        for tier in 0..self.tiers.len() as u8 {
            if !self.filed[tier as usize] {
                continue;
            }
            let ticket = copy(&mut self.host, at(tier, 0), at(0, 0), self.capacity, &[]);
            self.host.wait(ticket).unwrap();
            self.check(at(0, 0), at(tier, 0), self.capacity);
        }
    }

    fn play(mut self, actions: u32) {
        for _ in 0..actions {
            let flights = self.flights.len() as u64;
            match self.random.below(20) {
                0..11 => self.copy(),
                11..13 => self.kernel(),
                13 if flights > 0 => {
                    let flight = self.random.below(flights) as usize;
                    self.cancel(flight);
                }
                _ if flights > 0 => {
                    let flight = self.random.below(flights) as usize;
                    self.end(flight);
                }
                _ => {}
            }
        }
        self.check_all();
    }
}

#[test]
fn contents_follow_the_model_in_memory() {
    for seed in 0..6 {
        Model::new(&["dram", "dram"], Bytes::kib(64), seed).play(3000);
        Model::new(&["dram", "dram", "dram"], Bytes::mib(2), seed).play(250);
    }
}

#[test]
fn contents_follow_the_model_with_throttled_memory() {
    for seed in 0..4 {
        Model::new(&["dram", "throttled", "dram"], Bytes::kib(256), seed).play(400);
    }
}

#[test]
fn contents_follow_the_model_with_files() {
    let scratch = Scratch::new("model");
    let file = scratch.file();
    for seed in 0..4 {
        Model::new(&["dram", &file], Bytes::kib(512), seed).play(400);
        Model::new(&["dram", "throttled", &file, &file], Bytes::mib(1), seed).play(300);
        Model::new(&["dram", &file], Bytes::mib(12), seed).play(60);
    }
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn contents_follow_the_model_with_mapped_files() {
    let scratch = Scratch::new("dax");
    let dax = format!("dax:{}", scratch.0.display());
    Model::new(&["dram", &dax], Bytes::kib(300), 1).play(400);
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn a_file_system_in_memory_will_do() {
    let path = format!("/dev/shm/tiercel-host-{}", std::process::id());
    if fs::create_dir(&path).is_ok() {
        Model::new(&["dram", &format!("file:{path}")], Bytes::kib(512), 3).play(300);
        // It can be removed: nothing is left in it.
        fs::remove_dir(path).unwrap();
    }
}

#[test]
fn tickets_count_from_one_and_strangers_are_done() {
    let mut host = Host::open(&machine(&["dram", "dram"], Bytes::kib(64))).unwrap();
    assert_eq!(host.done(Ticket(7)), Ok(true));
    assert_eq!(host.wait(Ticket(7)), Ok(()));
    host.cancel(Ticket(7));
    host.forget(Ticket(7));
    let tickets: Vec<Ticket> =
        (0..3).map(|i| copy(&mut host, at(0, 0), at(1, i * 64), 64, &[Ticket(9)])).collect();
    assert_eq!(tickets, [Ticket(1), Ticket(2), Ticket(3)]);
    let nothing = copy(&mut host, at(0, 0), at(1, 0), 0, &[]);
    assert_eq!(host.done(nothing), Ok(true));
}

#[test]
#[should_panic(expected = "leaves its 64 KiB")]
fn a_copy_beyond_a_tier_is_a_bug() {
    let mut host = Host::open(&machine(&["dram", "dram"], Bytes::kib(64))).unwrap();
    copy(&mut host, at(0, 0), at(1, 4096), 64 << 10, &[]);
}

#[test]
#[should_panic(expected = "overlaps itself")]
fn a_copy_onto_itself_is_a_bug() {
    let mut host = Host::open(&machine(&["dram", "dram"], Bytes::kib(64))).unwrap();
    copy(&mut host, at(0, 0), at(0, 64), 128, &[]);
}

// ---- time -----------------------------------------------------------------------------------------------------

#[test]
fn throttled_memory_is_never_faster_than_it_says() {
    let mut host = Host::open(&machine(&["dram", "throttled"], Bytes::mib(16))).unwrap();
    assert_eq!((host.emulated(TierId(0)), host.emulated(TierId(1))), (false, true));
    let size = 16 << 20;
    for (from, to, speed) in [(0, 1, Bandwidth::gb(1.0)), (1, 0, Bandwidth::gb(2.0))] {
        let start = Instant::now();
        let ticket = copy(&mut host, at(from, 0), at(to, 0), size, &[]);
        host.wait(ticket).unwrap();
        let took = start.elapsed().as_nanos() as u64;
        assert!(took >= speed.time(Bytes(size)).0, "{size} bytes at {speed} took {}", Nanos(took));
    }
}

#[test]
fn copies_and_kernels_share_a_throttled_memory() {
    let mut host = Host::open(&machine(&["dram", "throttled"], Bytes::mib(16))).unwrap();
    let size = Bytes::mib(8);
    let start = host.now();
    let ticket = copy(&mut host, at(0, 0), at(1, 0), size.0, &[]);
    let kernel = Traffic { tier: TierId(1), read: Bytes::ZERO, write: size };
    host.charge(&[kernel, Traffic { tier: TierId(0), read: size, write: size }], start);
    assert!(host.now() - start >= Bandwidth::gb(1.0).time(size));
    host.wait(ticket).unwrap();
    assert!(host.now() - start >= Bandwidth::gb(1.0).time(size * 2));
    let free = host.now();
    host.charge(&[Traffic { tier: TierId(0), read: Bytes::gib(1 << 20), write: Bytes::ZERO }], free);
}

#[test]
fn a_manager_begins_when_nothing_is_under_way() {
    let machine = machine(&["dram", "throttled"], Bytes::mib(16));
    let mut host = Host::open(&machine).unwrap();
    bytes(&mut host, at(0, 0), 8 << 20).fill(7);
    copy(&mut host, at(0, 0), at(1, 0), 8 << 20, &[]);
    let manager = Manager::new(machine, host);
    let slice = manager.backend().slice(at(1, 0), Bytes::mib(8)).unwrap();
    // SAFETY: no copy is under way, and the manager has made none.
    assert!(unsafe { slice.as_ref() }.iter().all(|byte| *byte == 7));
}

// ---- what the system refuses ----------------------------------------------------------------------------------

#[test]
fn a_file_that_exists_is_refused_and_left_alone() {
    let scratch = Scratch::new("exists");
    let path = scratch.0.join("precious");
    fs::write(&path, "data").unwrap();
    std::os::unix::fs::symlink("nowhere", scratch.0.join("dangling")).unwrap();
    for kind in ["file", "dax"] {
        for name in ["precious", "dangling"] {
            let path = scratch.0.join(name);
            let error = refusal(&machine(&["dram", &format!("{kind}:{}", path.display())], Bytes::kib(64)));
            let text = error.to_string();
            assert!(matches!(error, HostError::Exists { .. }), "{text}");
            assert!(text.contains("tier `t1`") && text.contains(path.to_str().unwrap()), "{text}");
        }
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "data");
}

#[test]
fn a_directory_that_does_not_exist_is_named() {
    let scratch = Scratch::new("missing");
    // Not even where its parent is there: that may be another disk than the one that is meant.
    let missing = scratch.0.join("missing").display().to_string();
    for (kind, path) in [("file", "/no/such/place"), ("file", &missing), ("dax", &missing)] {
        let error = refusal(&machine(&["dram", &format!("{kind}:{path}")], Bytes::kib(64))).to_string();
        assert_eq!(error, format!("tier `t1`: there is no folder `{path}`"));
    }
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn a_disk_too_small_is_found_when_opening() {
    let scratch = Scratch::new("full");
    let capacity = Bytes::gib(1 << 21);
    for kind in ["file", "dax"] {
        let mut machine = machine(&["dram", &format!("{kind}:{}", scratch.0.display())], Bytes::kib(64));
        machine.tiers[1].capacity = capacity;
        match refusal(&machine) {
            HostError::Room { tier, path, wanted, available, .. } => {
                assert_eq!((tier.as_str(), &path, wanted), ("t1", &scratch.0, capacity));
                assert!(available > Bytes::ZERO && available < wanted);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn more_memory_than_there_is_is_an_error() {
    for backing in ["dram", "throttled"] {
        let machine =
            machine(&["dram", backing], Bytes::kib(64)).with_capacity(TierId(1), Bytes::gib(1 << 20));
        let text = refusal(&machine).to_string();
        assert!(text.starts_with(&format!("tier `t1` ({backing}) wants 1 PiB of memory; ")), "{text}");
        assert!(text.ends_with(" available"), "{text}");
    }
}

#[test]
fn a_node_that_does_not_exist_is_named() {
    let text = refusal(&machine(&["dram", "numa:4000"], Bytes::kib(64))).to_string();
    assert!(text.starts_with("tier `t1` wants NUMA node 4000; this machine has "), "{text}");
}

#[test]
fn memory_of_a_node_is_memory() {
    match Host::open(&machine(&["dram", "numa:0"], Bytes::kib(256))) {
        Ok(host) => {
            drop(host);
            Model::new(&["dram", "numa:0"], Bytes::kib(256), 5).play(400);
        }
        // Some containers forbid binding; then it must say so.
        Err(error) => assert!(error.to_string().contains("NUMA node 0"), "{error}"),
    }
}

// ---- in a process of its own ----------------------------------------------------------------------------------

const ROLE: &str = "TIERCEL_TEST_ROLE";

/// Runs one test of this file again, alone in another process, with a role to play.
fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

fn succeed(mut command: Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}

fn limit_files(bytes: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls with a structure of our own.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit), 0);
        limit.rlim_cur = bytes;
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

#[test]
fn a_limit_on_files_is_found_when_opening() {
    if role().is_none() {
        return succeed(again("a_limit_on_files_is_found_when_opening", "limited"));
    }
    let scratch = Scratch::new("limit");
    limit_files(1 << 20);
    for kind in ["file", "dax"] {
        let path = scratch.0.display();
        let text = refusal(&machine(&["dram", &format!("{kind}:{path}")], Bytes::mib(8))).to_string();
        let expected = format!("tier `t1` wants 8 MiB in {path}; 1 MiB available (File too large");
        assert!(text.starts_with(&expected), "{text}");
    }
    assert_eq!(scratch.names(), Vec::<String>::new());
    Model::new(&["dram", &scratch.file()], Bytes::mib(1), 1).play(50);
}

#[test]
fn a_write_that_fails_later_fails_its_copy_and_those_behind_it_only() {
    if role().is_none() {
        return succeed(again("a_write_that_fails_later_fails_its_copy_and_those_behind_it_only", "limited"));
    }
    let scratch = Scratch::new("later");
    let mut host = Host::open(&machine(&["dram", &scratch.file()], Bytes::mib(16))).unwrap();
    bytes(&mut host, at(0, 0), 1 << 20).fill(7);
    bytes(&mut host, at(0, 8 << 20), 1 << 20).fill(9);
    limit_files(4 << 20);

    let good = copy(&mut host, at(0, 0), at(1, 0), 1 << 20, &[]);
    let bad = copy(&mut host, at(0, 0), at(1, 6 << 20), 1 << 20, &[good]);
    let behind = copy(&mut host, at(1, 6 << 20), at(0, 8 << 20), 1 << 20, &[bad]);
    let beside = copy(&mut host, at(1, 0), at(0, 4 << 20), 1 << 20, &[good]);
    let error = host.wait(bad).unwrap_err().0;
    let path = scratch.0.to_str().unwrap();
    for part in ["tier `t1`: writing 1048576 bytes at offset 6291456", path, "File too large"] {
        assert!(error.contains(part), "{error}");
    }
    let inherited = host.wait(behind).unwrap_err().0;
    assert!(inherited.contains("wait for (copy 2) failed") && inherited.contains(&error), "{inherited}");
    assert_eq!((host.wait(good), host.wait(beside)), (Ok(()), Ok(())));
    assert!(bytes(&mut host, at(0, 8 << 20), 1 << 20).iter().all(|b| *b == 9), "it must not have moved");
    assert!(bytes(&mut host, at(0, 4 << 20), 1 << 20).iter().all(|b| *b == 7));

    assert_eq!(host.done(bad), Err(tiercel_core::CopyError(error)));
    let late = copy(&mut host, at(1, 6 << 20), at(0, 8 << 20), 1 << 20, &[bad]);
    assert!(host.wait(late).is_err());
    host.forget(bad);
    assert_eq!(host.done(bad), Ok(true));

    limit_files(libc::RLIM_INFINITY);
    let again = copy(&mut host, at(0, 0), at(1, 6 << 20), 1 << 20, &[]);
    let back = copy(&mut host, at(1, 6 << 20), at(0, 8 << 20), 1 << 20, &[again]);
    assert_eq!(host.wait(back), Ok(()));
    assert!(bytes(&mut host, at(0, 8 << 20), 1 << 20).iter().all(|b| *b == 7));
}

#[test]
fn no_thread_is_left() {
    if role().is_none() {
        return succeed(again("no_thread_is_left", "alone"));
    }
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let scratch = Scratch::new("threads");
    let before = threads();
    for wait in [true, false] {
        let mut host = Host::open(&machine(&["dram", "throttled", &scratch.file()], Bytes::mib(4))).unwrap();
        assert_eq!(threads(), before, "threads start with the first copy");
        let mut last = Ticket(0);
        for i in 0..3 {
            last = copy(&mut host, at(i, 0), at((i + 1) % 3, 0), 4 << 20, &[last]);
        }
        assert!(threads() > before);
        if wait {
            host.wait(last).unwrap();
        }
        drop(host);
        assert_eq!(threads(), before);
    }
    assert_eq!(scratch.names(), Vec::<String>::new());
}

/// Starts a process that copies to a file in the scratch directory without end, and waits until it does.
fn busy(test: &str, scratch: &Scratch) -> Child {
    let path = scratch.0.to_str().unwrap();
    let mut child = again(test, path).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("busy now")), "the other process ended");
    child
}

fn be_busy(path: &str) {
    // SAFETY: this process has set no handlers. Whoever runs the tests in the background may have it ignore interrupts.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let backing = format!("file:{path}");
    let mut host = Host::open(&machine(&["dram", &backing], Bytes::mib(8))).unwrap();
    for i in 0.. {
        let ticket = copy(&mut host, at(0, 0), at(1, 0), 8 << 20, &[]);
        host.wait(ticket).unwrap();
        host.forget(ticket);
        if i == 3 {
            println!("busy now");
        }
    }
}

#[test]
fn nothing_is_left_on_disk_however_the_process_ends() {
    if let Some(path) = role() {
        return be_busy(&path);
    }
    for signal in [libc::SIGKILL, libc::SIGINT, libc::SIGTERM] {
        let scratch = Scratch::new("killed");
        let mut child = busy("nothing_is_left_on_disk_however_the_process_ends", &scratch);
        assert_eq!(scratch.names(), Vec::<String>::new());
        // SAFETY: a signal to a child of our own that has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        assert!(!child.wait().unwrap().success());
        assert_eq!(scratch.names(), Vec::<String>::new());
    }
}
