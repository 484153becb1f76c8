//! Reads, writes and chases pointers through the memory of one tier, as kernels would.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tiercel_core::{
    Backing, Bandwidth, Bytes, Error, Hint, Machine, Manager, Nanos, ObjectId, Operand, Policy, Step, Tier,
    TierId,
};
use tiercel_run::{Array, Memory, MemoryError};

use super::{ProbeError, median};

/// What was measured of a tier.
pub(super) struct Measured {
    pub(super) read: Vec<(u32, Bandwidth)>,
    pub(super) write: Vec<(u32, Bandwidth)>,
    latency: Nanos,
}

impl Measured {
    /// The tier, with the most that any number of threads reached.
    pub(super) fn tier(&self, name: &str, backing: Backing, capacity: Bytes) -> Tier {
        let most = |curve: &[(u32, Bandwidth)]| {
            curve.iter().map(|point| point.1).fold(Bandwidth(1.0), super::faster)
        };
        Tier {
            name: name.to_string(),
            capacity,
            read: most(&self.read),
            write: most(&self.write),
            combined: None,
            duplex: None,
            latency: self.latency,
            computable: true,
            caches: false,
            rows: false,
            backing,
            price_per_gb: None,
        }
    }
}

/// Measures memory with these numbers of threads.
pub(super) fn measure(
    name: &str,
    backing: &Backing,
    size: Bytes,
    counts: &[u32],
) -> Result<Measured, ProbeError> {
    let mut memory = Memory::open(&alone(name, backing, size), Stay)?;
    let mut numbers = memory.array::<u64>("probe", (size.0 / 8) as usize)?;
    let (mut read, mut write) = (Vec::new(), Vec::new());
    for &threads in counts {
        let bytes = size;
        let writing = median(bytes, || Ok(fill(&mut memory, &mut numbers, threads)?))?;
        let reading = median(bytes, || Ok(add(&mut memory, &numbers, threads)?))?;
        write.push((threads, writing));
        read.push((threads, reading));
    }
    let latency = chase(&mut memory, &mut numbers)?;
    Ok(Measured { read, write, latency })
}

/// A machine of just this memory.
fn alone(name: &str, backing: &Backing, size: Bytes) -> Machine {
    Machine {
        name: "probe".to_string(),
        source: String::new(),
        contention: 1.0,
        tiers: vec![Tier {
            name: name.to_string(),
            // Room for the heap to round up.
            capacity: size + Bytes::kib(64),
            read: Bandwidth::gb(1.0),
            write: Bandwidth::gb(1.0),
            combined: None,
            duplex: None,
            latency: Nanos::ZERO,
            computable: true,
            caches: false,
            rows: false,
            backing: backing.clone(),
            price_per_gb: None,
        }],
        links: Vec::new(),
        buses: Vec::new(),
        compute: Default::default(),
        detached: None,
        kernels: None,
    }
}

fn fill(memory: &mut Memory, numbers: &mut Array<u64>, threads: u32) -> Result<Duration, MemoryError> {
    let mut took = Duration::ZERO;
    memory.run(numbers, |all| {
        let started = Instant::now();
        let part = all.len().div_ceil(threads as usize).max(1);
        std::thread::scope(|scope| {
            for part in all.chunks_mut(part) {
                scope.spawn(|| {
                    part.fill(black_box(0x0123_4567_89AB_CDEF));
                    black_box(part);
                });
            }
        });
        took = started.elapsed();
    })?;
    Ok(took)
}

fn add(memory: &mut Memory, numbers: &Array<u64>, threads: u32) -> Result<Duration, MemoryError> {
    let mut took = Duration::ZERO;
    memory.run(numbers, |all| {
        let started = Instant::now();
        let part = all.len().div_ceil(threads as usize).max(1);
        std::thread::scope(|scope| {
            for part in all.chunks(part) {
                scope.spawn(|| black_box(sum(part)));
            }
        });
        took = started.elapsed();
    })?;
    Ok(took)
}

/// The sum in several lanes, so that adding never waits for adding.
fn sum(numbers: &[u64]) -> u64 {
    let mut lanes = [0u64; 32];
    for block in numbers.chunks_exact(32) {
        for (lane, number) in lanes.iter_mut().zip(block) {
            *lane = lane.wrapping_add(*number);
        }
    }
    lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
}

/// Numbers in a cache line of 64 bytes.
const LINE: usize = 8;

/// The time of one load that depends on the one before, through all cache lines in an order that nothing can guess.
fn chase(memory: &mut Memory, numbers: &mut Array<u64>) -> Result<Nanos, MemoryError> {
    memory.run(&mut *numbers, link)?;
    let mut latency = Nanos::ZERO;
    memory.run(numbers, |all| {
        let steps = (all.len() / LINE).min(2_000_000);
        let mut at = 0;
        // Half as many steps again, to be rid of what the linking left in the caches.
        for _ in 0..steps / 2 {
            at = all[at] as usize;
        }
        let started = Instant::now();
        for _ in 0..steps {
            at = all[at] as usize;
        }
        let took = started.elapsed();
        black_box(at);
        latency = Nanos((took.as_nanos() as u64).div_ceil(steps.max(1) as u64));
    })?;
    Ok(latency)
}

/// Makes one ring of the first numbers of all lines, in a random order (Sattolo's algorithm).
fn link(all: &mut [u64]) {
    let lines = all.len() / LINE;
    for line in 0..lines {
        all[line * LINE] = (line * LINE) as u64;
    }
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for line in (1..lines).rev() {
        // The generator of Vigna's xorshift64*; any that is fast does.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let other = (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as usize % line;
        all.swap(line * LINE, other * LINE);
    }
}

/// A policy for a machine of one tier: everything is there and stays there.
struct Stay;

impl Policy for Stay {
    fn name(&self) -> &str {
        "stay"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let size = m.size(object)?;
        let region = m.allocate(TierId(0), size).map_err(|_| m.no_room(object, TierId(0)))?;
        m.set_primary(object, region)
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire { m.retire(object) } else { Ok(()) }
    }

    fn before(&mut self, _: &mut Manager, _: Step, _: &[Operand]) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_visits_every_line_once() {
        let mut all = vec![0u64; 1000 * LINE];
        link(&mut all);
        let mut seen = vec![false; 1000];
        let mut at = 0;
        for _ in 0..1000 {
            assert!(!std::mem::replace(&mut seen[at / LINE], true));
            at = all[at] as usize;
        }
        assert_eq!(at, 0);
    }

    #[test]
    fn lanes_add_up() {
        let numbers: Vec<u64> = (0..320).collect();
        assert_eq!(sum(&numbers), 319 * 320 / 2);
    }
}
