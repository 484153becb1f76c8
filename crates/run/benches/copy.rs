//! The copy engine against `memcpy` and against the best of a sweep of loops written by hand.
//!
//! ```text
//! cargo bench -p tiercel-run --bench copy                     everything, about three minutes
//! cargo bench -p tiercel-run --bench copy -- --quick          fewer rounds, less than a minute
//! cargo bench -p tiercel-run --bench copy -- one two hot      some of: one, two (threads), hot, file
//! cargo bench -p tiercel-run --bench copy -- --dir /path      the file there instead of in the temporary folder
//! ```
//!
//! *Cold* rows walk over buffers much larger than the last cache, as tiering does: no byte is met twice before it
//! has left the caches. *Hot* rows copy the same pair over and over. *One at a time* waits for each copy before it
//! starts the next; *queued* starts all and then waits. All contenders of a row take turns, round after round, so
//! that whatever else the machine does hits them alike. The best of the sweep then meets the engine and `memcpy`
//! again, in turns; that is what the table shows: medians, and medians of the ratios within a round.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tiercel_core::{Backend, Bytes, CopyOrder, Machine, Place, Ticket, TierId};
use tiercel_run::Host;
use tiercel_run::host::stream::Method;

const MIB: u64 = 1 << 20;

/// Each of the buffers that cold rows walk over.
const POOL: u64 = 1 << 30;

/// The file, and the memory that goes with it.
const FILE: u64 = 512 * MIB;

/// One way of copying everything that a row copies.
struct Contender<'a> {
    name: String,
    /// Copies the bytes that start at this offset of the pools.
    copy: Box<dyn FnMut(u64) -> Duration + 'a>,
}

/// What one row of a table copies: `work` bytes in copies of `size`, from windows of `pool` in turn.
#[derive(Clone, Copy)]
struct Row {
    size: u64,
    work: u64,
    pool: u64,
    rounds: usize,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Lets contenders take turns, round after round, and tells the speeds of each.
fn turns(row: Row, rounds: usize, turn: &mut u64, contenders: &mut [&mut Contender<'_>]) -> Vec<Vec<f64>> {
    let windows = (row.pool / row.work).max(1);
    let mut speeds = vec![Vec::new(); contenders.len()];
    for round in 0..=rounds {
        for (contender, speeds) in contenders.iter_mut().zip(&mut speeds) {
            let took = (contender.copy)(*turn % windows * row.work);
            *turn += 1;
            // The first round warms up.
            if round > 0 {
                speeds.push(row.work as f64 / took.as_secs_f64() / 1e9);
            }
        }
    }
    speeds
}

/// Finds the best of the sweep, lets it meet the engine and `memcpy` in turns, and prints the row. The first
/// contender is the engine, the second `memcpy` where there is one. Tells the engine's ratio to the best.
fn race(row: Row, plain: bool, mut contenders: Vec<Contender<'_>>) -> f64 {
    let mut turn = 0;
    let mut all: Vec<&mut Contender<'_>> = contenders.iter_mut().collect();
    let sweep = turns(row, row.rounds, &mut turn, &mut all);
    let sweep: Vec<f64> = sweep.into_iter().map(median).collect();
    let first = 1 + usize::from(plain);
    let best = (first..all.len()).max_by(|a, b| sweep[*a].total_cmp(&sweep[*b])).expect("a sweep");
    let (head, tail) = all.split_at_mut(first);
    let mut duel: Vec<&mut Contender<'_>> = head.iter_mut().map(|c| &mut **c).collect();
    duel.push(&mut *tail[best - first]);
    let speeds = turns(row, 2 * row.rounds, &mut turn, &mut duel);
    let ratio = |other: usize| median(speeds[0].iter().zip(&speeds[other]).map(|(e, o)| e / o).collect());
    let shown = |i: usize| format!("{:8.2} {:8.2}", median(speeds[i].clone()), ratio(i));
    println!(
        "{:>9} {:8.2} {} {}  {}",
        Bytes(row.size).to_string(),
        median(speeds[0].clone()),
        if plain { shown(1) } else { " ".repeat(17) },
        shown(first),
        duel[first].name
    );
    ratio(first)
}

fn title(what: &str) {
    println!("\n{what}");
    println!("{:>9} {:>8} {:>8} {:>8} {:>8} {:>8}", "size", "engine", "memcpy", "ratio", "best", "ratio");
}

fn machine(backing: &str, capacity: u64, threads: u32) -> Machine {
    let computable = !backing.starts_with("file");
    let toml = format!(
        "name = 'bench'
        [[tier]]\nname = 'a'\ncapacity = '{capacity}'\nread = '9 GB/s'\nwrite = '9 GB/s'\nbacking = 'dram'
        [[tier]]\nname = 'b'\ncapacity = '{capacity}'\nread = '9 GB/s'\nwrite = '9 GB/s'\nbacking = '{backing}'
        computable = {computable}
        [[link]]\nfrom = 'a'\nto = 'b'\nthreads = {threads}\nbandwidth = {{ 1 = '9 GB/s' }}
        [[link]]\nfrom = 'b'\nto = 'a'\nthreads = {threads}\nbandwidth = {{ 1 = '9 GB/s' }}"
    );
    Machine::parse(&toml).expect("a machine of two tiers")
}

fn open(backing: &str, capacity: u64, threads: u32) -> Host {
    Host::open(&machine(backing, capacity, threads)).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1);
    })
}

fn at(tier: u8, offset: u64) -> Place {
    Place { tier: TierId(tier), offset: Bytes(offset) }
}

fn address(host: &Host, tier: u8, bytes: u64) -> usize {
    host.slice(at(tier, 0), Bytes(bytes)).expect("memory").as_ptr().cast::<u8>() as usize
}

/// The engine, which waits for each copy before the next or for all at the end.
fn engine(host: &mut Host, row: Row, from: u8, to: u8, queued: bool) -> Contender<'_> {
    let mut tickets: Vec<Ticket> = Vec::with_capacity((row.work / row.size) as usize);
    let copy = move |base: u64| {
        let start = Instant::now();
        for offset in (base..base + row.work).step_by(row.size as usize) {
            let order =
                CopyOrder { from: at(from, offset), to: at(to, offset), bytes: Bytes(row.size), after: &[] };
            tickets.push(host.copy(order));
            if !queued {
                end(host, &mut tickets);
            }
        }
        end(host, &mut tickets);
        start.elapsed()
    };
    Contender { name: "engine".to_string(), copy: Box::new(copy) }
}

/// Waits for the last copy first: those before it have mostly ended by then.
fn end(host: &mut Host, tickets: &mut Vec<Ticket>) {
    while let Some(ticket) = tickets.pop() {
        host.wait(ticket).expect("a copy that works");
        host.forget(ticket);
    }
}

/// `threads` threads that share out the row's pieces of `piece` bytes by counting up; waking them is not counted.
fn by_hand(threads: usize, base: u64, row: Row, piece: u64, work: impl Fn(u64, u64) + Sync) -> Duration {
    let next = AtomicU64::new(base);
    let all = || {
        loop {
            let offset = next.fetch_add(piece, Ordering::Relaxed);
            if offset >= base + row.work {
                return;
            }
            work(offset, piece.min(base + row.work - offset));
        }
    };
    let (ready, go) = (AtomicUsize::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| {
                ready.fetch_add(1, Ordering::Relaxed);
                while !go.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                all();
            });
        }
        while ready.load(Ordering::Relaxed) < threads {
            thread::yield_now();
        }
        let start = Instant::now();
        go.store(true, Ordering::Release);
        all();
        start
    })
    .elapsed()
}

/// A loop over memory with one method, on one thread or two.
fn memory_loop(
    method: Method,
    piece: u64,
    threads: usize,
    row: Row,
    from: usize,
    to: usize,
) -> Contender<'static> {
    let piece = piece.min(row.size);
    let copy = move |base: u64| {
        by_hand(threads, base, row, piece, |offset, bytes| {
            let (from, to) = ((from + offset as usize) as *const u8, (to + offset as usize) as *mut u8);
            // SAFETY: both are within the pools of the hosts, which have no copy running now; threads take pieces
            // apart.
            unsafe { method.copy(from, to, bytes as usize) }
        })
    };
    let name = format!("{method:?} in pieces of {}, {threads} thread(s)", Bytes(piece));
    Contender { name, copy: Box::new(copy) }
}

/// All loops over memory: `memcpy` on whole copies first.
fn memory_sweep(row: Row, threads: &[usize], from: usize, to: usize) -> Vec<Contender<'static>> {
    let share = row.size.div_ceil(threads[threads.len() - 1] as u64);
    let mut all = vec![memory_loop(Method::Plain, share, threads[threads.len() - 1], row, from, to)];
    for &threads in threads {
        for &method in Method::available() {
            let mut pieces: Vec<u64> = [64 << 10, 256 << 10, MIB, 4 * MIB, row.size].to_vec();
            pieces.retain(|piece| *piece <= row.size);
            pieces.dedup();
            all.extend(pieces.into_iter().map(|piece| memory_loop(method, piece, threads, row, from, to)));
        }
    }
    all
}

/// Copies between memories with one or two threads; tells the worst ratio from 1 MiB on.
fn memory(threads: u32, quick: bool) -> f64 {
    let sizes = [4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];
    let mut worst = f64::INFINITY;
    let mut host = open("dram", POOL, threads);
    let (from, to) = (address(&host, 0, POOL), address(&host, 1, POOL));
    let counts: &[usize] = if threads == 1 { &[1] } else { &[1, 2] };
    // A second thread is of no use to small copies one at a time, and a copy of 64 MiB is a row of its own.
    let ways: &[(bool, &str)] =
        if threads == 1 { &[(false, "one at a time"), (true, "queued")] } else { &[(true, "queued")] };
    for (queued, how) in ways {
        title(&format!("DRAM to DRAM, cold, {threads} thread(s), {how}; GB/s"));
        for size in sizes {
            let work = size.max(if quick { 16 } else { 64 } * MIB);
            let row = Row { size, work, pool: POOL, rounds: if quick { 3 } else { 10 } };
            let mut all = vec![engine(&mut host, row, 0, 1, *queued)];
            all.extend(memory_sweep(row, counts, from, to));
            let ratio = race(row, true, all);
            worst = if size >= MIB { worst.min(ratio) } else { worst };
        }
    }
    worst
}

/// The same pair again and again: what a benchmark that forgets about caches would measure.
fn hot(quick: bool) {
    let mut host = open("dram", 4 * MIB, 1);
    let (from, to) = (address(&host, 0, 4 * MIB), address(&host, 1, 4 * MIB));
    title("DRAM to DRAM, hot, 1 thread(s), one at a time; GB/s");
    for size in [4 << 10, 16 << 10, 64 << 10, 256 << 10, MIB, 4 * MIB] {
        let row = Row { size, work: size, pool: size, rounds: if quick { 3 } else { 10 } };
        let repeat = |mut contender: Contender<'static>| {
            let copy = move |_| (0..32).map(|_| (contender.copy)(0)).min().expect("32 times");
            Contender { name: contender.name, copy: Box::new(copy) as Box<dyn FnMut(u64) -> Duration> }
        };
        let mut ours = engine(&mut host, row, 0, 1, false);
        let ours_copy = move |_| (0..32).map(|_| (ours.copy)(0)).min().expect("32 times");
        let mut all = vec![Contender { name: "engine".to_string(), copy: Box::new(ours_copy) }];
        all.extend(memory_sweep(row, &[1], from, to).into_iter().map(repeat));
        race(row, true, all);
    }
}

/// A nameless file of its own for the loops by hand, written once so that its blocks exist.
fn plain_file(directory: &str, memory: usize) -> File {
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_DIRECT);
    let file = options.open(directory).expect("a nameless file with direct I/O");
    // SAFETY: the descriptor is open.
    unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, FILE as i64) };
    // SAFETY: the memory of a host that has no copy running.
    let bytes = unsafe { std::slice::from_raw_parts(memory as *const u8, FILE as usize) };
    for offset in (0..FILE).step_by(4 << 20) {
        let piece = &bytes[offset as usize..][..4 << 20];
        file.write_all_at(piece, offset).expect("room for the file");
    }
    file
}

fn file(directory: &str, quick: bool) -> f64 {
    let mut host = open(&format!("file:{directory}"), FILE, 1);
    if host.buffered(TierId(1)) {
        println!("\n{directory} refuses direct I/O: no figures for files");
        return f64::INFINITY;
    }
    let memory = address(&host, 0, FILE);
    let other = plain_file(directory, memory);
    let fill = host.copy(CopyOrder { from: at(0, 0), to: at(1, 0), bytes: Bytes(FILE), after: &[] });
    host.wait(fill).expect("room for the file");
    let rounds = if quick { 2 } else { 5 };
    let mut worst = f64::INFINITY;
    for (write, queued, what) in [
        (true, true, "DRAM to file, queued"),
        (false, true, "file to DRAM, queued"),
        (true, false, "DRAM to file, one at a time"),
        (false, false, "file to DRAM, one at a time"),
    ] {
        title(&format!("{what}; GB/s"));
        for size in [4 << 10, 64 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB] {
            let least = if size < MIB { 4 * MIB } else { 64 * MIB };
            let row = Row { size, work: size.max(least), pool: FILE, rounds };
            let (from, to) = if write { (0, 1) } else { (1, 0) };
            let mut all = vec![engine(&mut host, row, from, to, queued)];
            let requests = [256 << 10, MIB, 2 * MIB, 4 * MIB].into_iter().filter(|r| *r < size).chain([size]);
            for request in requests.filter(|r| *r <= 8 * MIB) {
                for depth in [1, 2, 4, 8] {
                    let other = &other;
                    let one = if queued { row } else { Row { work: size, ..row } };
                    let copy = move |base: u64| {
                        let io = |offset: u64, bytes: u64| {
                            let at = (memory + offset as usize) as *mut u8;
                            // SAFETY: within the memory of the host, which has no copy running now; threads take
                            // pieces apart.
                            let bytes = unsafe { std::slice::from_raw_parts_mut(at, bytes as usize) };
                            match write {
                                true => other.write_all_at(bytes, offset),
                                false => other.read_exact_at(bytes, offset),
                            }
                            .expect("a request that works");
                        };
                        let starts = (base..base + row.work).step_by(one.work as usize);
                        starts.map(|start| by_hand(depth, start, one, request, io)).sum()
                    };
                    let name = format!("requests of {}, {depth} in flight", Bytes(request));
                    all.push(Contender { name, copy: Box::new(copy) });
                }
            }
            let ratio = race(row, false, all);
            worst = if size >= MIB { worst.min(ratio) } else { worst };
        }
    }
    worst
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let quick = arguments.iter().any(|a| a == "--quick");
    let mut directory = std::env::temp_dir().display().to_string();
    if let Some(i) = arguments.iter().position(|a| a == "--dir")
        && i + 1 < arguments.len()
    {
        directory = arguments.drain(i..=i + 1).nth(1).expect("two arguments");
    }
    arguments.retain(|a| a != "--quick");
    let chosen = |part: &str| arguments.is_empty() || arguments.iter().any(|a| a == part);
    let mut worst = Vec::new();
    if chosen("one") {
        worst.push(("one thread", memory(1, quick)));
    }
    if chosen("hot") {
        hot(quick);
    }
    if chosen("two") {
        worst.push(("two threads", memory(2, quick)));
    }
    if chosen("file") {
        worst.push(("file", file(&directory, quick)));
    }
    println!("\nengine against the best of the sweep, the worst cold row from 1 MiB on:");
    for (part, ratio) in worst {
        println!("{part}: {:.0} %", ratio * 100.0);
    }
}
