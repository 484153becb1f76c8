//! Copies between two tiers, by the engine that will do so in earnest.

use std::time::{Duration, Instant};

use tiercel_core::{
    Backend, Backing, Bandwidth, Bytes, CopyOrder, Error, Link, Machine, Nanos, Place, Tier, TierId,
};
use tiercel_run::Host;

use super::{ProbeError, median};

/// One direction of a link.
pub(super) struct Direction {
    pub(super) curve: Vec<(u32, Bandwidth)>,
    pub(super) latency: Nanos,
}

impl Direction {
    /// The fewest threads that come within 3 % of the most.
    pub(super) fn threads(&self) -> u32 {
        let most = self.curve.iter().map(|(_, speed)| speed.0).fold(0.0, f64::max);
        let enough = self.curve.iter().find(|(_, speed)| speed.0 >= most * 0.97);
        enough.map_or(1, |(threads, _)| *threads)
    }
}

/// What was measured of a pair of tiers.
pub(super) struct Copies {
    /// Towards the second tier.
    pub(super) down: Direction,
    /// Towards the first.
    pub(super) up: Direction,
    /// Whether the system's cache is in the way.
    pub(super) buffered: bool,
}

/// The engine has at least so many requests to a file in flight.
const FILE_THREADS: [u32; 2] = [8, 16];

/// How long one pass over a file may take.
const PASS: Duration = Duration::from_millis(400);

/// Measures copies in both directions with these numbers of threads.
pub(super) fn measure(ends: [&Tier; 2], size: Bytes, counts: &[u32]) -> Result<Copies, ProbeError> {
    let file = ends.iter().any(|tier| matches!(tier.backing, Backing::File(_)));
    let counts = if file { &FILE_THREADS[..] } else { counts };
    let mut copies = Copies {
        down: Direction { curve: Vec::new(), latency: Nanos::ZERO },
        up: Direction { curve: Vec::new(), latency: Nanos::ZERO },
        buffered: false,
    };
    for (at, &threads) in counts.iter().enumerate() {
        let mut host = Host::open(&pair(ends, size, threads))?;
        copies.buffered |= host.buffered(TierId(1));
        // The first bytes that a file ever gets cost more than all later ones.
        let bytes = if file { warm(&mut host, size)? } else { size };
        for (direction, from, to) in [(&mut copies.down, 0, 1), (&mut copies.up, 1, 0)] {
            let speed = median(bytes, || copy(&mut host, from, to, bytes))?;
            direction.curve.push((threads, speed));
            if at == 0 {
                direction.latency = latency(&mut host, from, to)?;
            }
        }
    }
    Ok(copies)
}

/// A machine of these two tiers, just large enough.
fn pair(ends: [&Tier; 2], size: Bytes, threads: u32) -> Machine {
    let link = |from: u8, to: u8| Link {
        from: TierId(from),
        to: TierId(to),
        latency: Nanos::ZERO,
        curve: vec![(1, Bandwidth::gb(1.0))],
        threads,
    };
    Machine {
        name: "probe".to_string(),
        source: String::new(),
        contention: 1.0,
        tiers: ends.map(|tier| Tier { capacity: size, ..tier.clone() }).to_vec(),
        links: vec![link(0, 1), link(1, 0)],
        compute: Default::default(),
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
    let place = |tier: u8| Place { tier: TierId(tier), offset: Bytes::ZERO };
    let started = Instant::now();
    let ticket = host.copy(CopyOrder { from: place(from), to: place(to), bytes, after: &[] });
    let ended = host.wait(ticket);
    let took = started.elapsed();
    host.forget(ticket);
    ended.map_err(|cause| {
        let tier = |tier: u8| format!("{}", TierId(tier));
        Error::Copy { what: "probe".to_string(), bytes, from: tier(from), to: tier(to), cause }
    })?;
    Ok(took)
}

/// The time of a copy that is over as soon as it has begun: one page.
fn latency(host: &mut Host, from: u8, to: u8) -> Result<Nanos, ProbeError> {
    let mut times = Vec::new();
    for _ in 0..51 {
        times.push(copy(host, from, to, Bytes(4096))?);
    }
    times.sort_unstable();
    Ok(Nanos(times[times.len() / 2].as_nanos() as u64))
}
