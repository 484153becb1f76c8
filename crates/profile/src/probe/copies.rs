//! Copies between two tiers, by the engine that will do so in earnest.

use std::time::{Duration, Instant};

use tiercel_core::{
    Backend, Backing, Bandwidth, Bytes, CopyOrder, Error, Link, Machine, Nanos, Place, Ticket, Tier, TierId,
};
use tiercel_run::{Host, cores};

use super::{ProbeError, median};

/// One direction of a link.
pub(super) struct Direction {
    pub(super) curve: Vec<(u32, Bandwidth)>,
    pub(super) latency: Nanos,
    /// Of a file: the time that each copy adds to many at once.
    pub(super) spacing: Option<Nanos>,
    /// For each point of the curve, the share of its threads' time in which they were busy.
    pub(super) busy: Vec<f64>,
}

impl Direction {
    /// The fewest threads that come near the most: within 3 %, and within 10 % where they say how much of a file is in
    /// flight, because whatever is wanted next waits for all of that.
    pub(super) fn threads(&self) -> u32 {
        let most = self.curve.iter().map(|(_, speed)| speed.0).fold(0.0, f64::max);
        let near = if self.spacing.is_some() { 0.9 } else { 0.97 };
        let enough = self.curve.iter().find(|(_, speed)| speed.0 >= most * near);
        enough.map_or(1, |(threads, _)| *threads)
    }

    /// How busy those threads are.
    pub(super) fn busy(&self) -> f64 {
        let at = self.curve.iter().position(|(threads, _)| *threads == self.threads());
        at.and_then(|at| self.busy.get(at)).copied().unwrap_or(1.0)
    }
}

/// What was measured of a pair of tiers.
pub(super) struct Copies {
    /// Towards the second tier.
    pub(super) down: Direction,
    /// Towards the first.
    pub(super) up: Direction,
    /// How much of both directions there is at once: the shares of their own speeds, added up.
    pub(super) duplex: f64,
    /// Whether the system's cache is in the way.
    pub(super) buffered: bool,
}

/// Threads that the link of a file is tried with: the engine keeps as much in flight as they say.
const FILE_THREADS: [u32; 2] = [8, 16];

/// Copies that are under way at once where that is measured.
const MANY: u64 = 16;

/// How long one pass over a file may take.
const PASS: Duration = Duration::from_millis(400);

/// Measures copies in both directions with these numbers of threads.
pub(super) fn measure(ends: [&Tier; 2], size: Bytes, counts: &[u32]) -> Result<Copies, ProbeError> {
    let file = ends.iter().any(|tier| matches!(tier.backing, Backing::File(_)));
    let counts = if file { &FILE_THREADS[..] } else { counts };
    let unknown = || Direction { curve: Vec::new(), latency: Nanos::ZERO, spacing: None, busy: Vec::new() };
    let mut copies = Copies { down: unknown(), up: unknown(), duplex: 0.0, buffered: false };
    for (at, &threads) in counts.iter().enumerate() {
        let mut host = Host::open(&pair(ends, size, threads))?;
        copies.buffered |= host.buffered(TierId(1));
        // The first bytes that a file ever gets cost more than all later ones.
        let bytes = if file { warm(&mut host, size)? } else { size };
        for (direction, from, to) in [(&mut copies.down, 0, 1), (&mut copies.up, 1, 0)] {
            let (began, busy) = (Instant::now(), cores::time_used());
            let speed = median(bytes, || copy(&mut host, from, to, bytes))?;
            let busy = cores::time_used().saturating_sub(busy).as_secs_f64();
            let there = began.elapsed().as_secs_f64() * f64::from(threads);
            direction.busy.push((busy / there.max(1e-9) * 100.0).round().min(100.0) / 100.0);
            direction.curve.push((threads, speed));
            if at == 0 {
                direction.latency = pages(&mut host, (from, to), 1)?;
                if file {
                    let many = pages(&mut host, (from, to), MANY)?.saturating_sub(direction.latency);
                    direction.spacing = Some(Nanos(many.0 / (MANY - 1)).min(direction.latency));
                }
            }
        }
        let half = Bytes((bytes.0 / 2) >> 12 << 12);
        let speed = median(half, || both(&mut host, half))?;
        let share = |direction: &Direction| direction.curve.last().map_or(0.0, |(_, own)| speed.0 / own.0);
        copies.duplex = (share(&copies.down) + share(&copies.up)).min(2.0).max(copies.duplex);
    }
    Ok(copies)
}

/// A machine of these two tiers, just large enough.
fn pair(ends: [&Tier; 2], size: Bytes, threads: u32) -> Machine {
    let link = |from: u8, to: u8| Link {
        from: TierId(from),
        to: TierId(to),
        latency: Nanos::ZERO,
        spacing: None,
        curve: vec![(1, Bandwidth::gb(1.0))],
        threads,
        via: None,
        bus: None,
        busy: 0.0,
    };
    Machine {
        name: "probe".to_string(),
        source: String::new(),
        contention: 1.0,
        tiers: ends.map(|tier| Tier { capacity: size, ..tier.clone() }).to_vec(),
        links: vec![link(0, 1), link(1, 0)],
        buses: Vec::new(),
        compute: Default::default(),
        detached: None,
        kernels: None,
    }
}

/// Writes more and more of a file until that takes a while, and returns how much that is.
fn warm(host: &mut Host, size: Bytes) -> Result<Bytes, ProbeError> {
    let mut bytes = Bytes::mib(8).min(size);
    loop {
        copy(host, 0, 1, bytes)?;
        let again = copy(host, 0, 1, bytes)?;
        if bytes >= size || again * 2 > PASS {
            return Ok(bytes);
        }
        bytes = Bytes(bytes.0 * 2).min(size);
    }
}

fn copy(host: &mut Host, from: u8, to: u8, bytes: Bytes) -> Result<Duration, ProbeError> {
    let started = Instant::now();
    let ticket = begin(host, (from, to), Bytes::ZERO, bytes);
    end(host, ticket, (from, to), bytes)?;
    Ok(started.elapsed())
}

/// So many bytes in either direction at the same time, of different parts of the tiers.
fn both(host: &mut Host, bytes: Bytes) -> Result<Duration, ProbeError> {
    let started = Instant::now();
    let down = begin(host, (0, 1), Bytes::ZERO, bytes);
    let up = begin(host, (1, 0), bytes, bytes);
    end(host, down, (0, 1), bytes)?;
    end(host, up, (1, 0), bytes)?;
    Ok(started.elapsed())
}

/// Starts to copy what lies at the same offset of both tiers.
fn begin(host: &mut Host, (from, to): (u8, u8), offset: Bytes, bytes: Bytes) -> Ticket {
    let place = |tier: u8| Place { tier: TierId(tier), offset };
    host.copy(CopyOrder { from: place(from), to: place(to), bytes, after: &[] })
}

fn end(host: &mut Host, ticket: Ticket, (from, to): (u8, u8), bytes: Bytes) -> Result<(), ProbeError> {
    let ended = host.wait(ticket);
    host.forget(ticket);
    ended.map_err(|cause| {
        let tier = |tier: u8| format!("{}", TierId(tier));
        Error::Copy { what: "probe".to_string(), bytes, from: tier(from), to: tier(to), cause }
    })?;
    Ok(())
}

/// The time of so many copies at once that are over as soon as they have begun: a page each.
fn pages(host: &mut Host, way: (u8, u8), count: u64) -> Result<Nanos, ProbeError> {
    let page = Bytes(4096);
    let mut times = Vec::new();
    for _ in 0..51 {
        let started = Instant::now();
        let tickets: Vec<Ticket> = (0..count).map(|at| begin(host, way, Bytes(at * page.0), page)).collect();
        for ticket in tickets {
            end(host, ticket, way, page)?;
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok(Nanos(times[times.len() / 2].as_nanos() as u64))
}
