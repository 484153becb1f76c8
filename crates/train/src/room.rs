//! How much memory a training run needs, and a machine of two tiers that has it.

use tiercel_core::{Backing, Bandwidth, Bytes, Link, Machine, Nanos, Step, Tier, TierId};
use tiercel_workload::{Kernel, Lifetimes, Trace};

/// The most memory that a trace's tensors take at once, in whole grains of a machine's heaps.
pub fn peak(trace: &Trace, grain: Bytes) -> Bytes {
    let lifetimes = Lifetimes::new(trace);
    let padded = |bytes: Bytes| bytes.round_up(grain).unwrap_or(bytes);
    let (_, unpadded) = lifetimes.peak();
    let waste: Bytes = trace.tensors.iter().map(|t| padded(t.bytes) - t.bytes).sum();
    // The waste of tensors that are never alive at the same time is counted too: little, and on the safe side.
    unpadded + waste
}

/// The kernel of a trace that works on the most memory at once, and how much that is on a machine like this.
///
/// Where kernels can work on the fastest tier alone, that tier must be at least so large.
pub fn working_set(trace: &Trace, grain: Bytes) -> (Step, Bytes) {
    let padded = |bytes: Bytes| bytes.round_up(grain).unwrap_or(bytes);
    let size = |kernel: &Kernel| {
        let mut tensors: Vec<_> = kernel.reads.iter().chain(&kernel.writes).map(|u| u.tensor).collect();
        tensors.sort_unstable();
        tensors.dedup();
        tensors.into_iter().map(|t| padded(trace.tensor(t).bytes)).sum::<Bytes>()
    };
    let sizes = trace.kernels.iter().enumerate().map(|(at, kernel)| (Step(at as u32), size(kernel)));
    sizes.max_by_key(|(_, bytes)| *bytes).unwrap_or_default()
}

/// Memory that surely holds a trace, pieces that lie badly included.
pub fn ample(trace: &Trace, grain: Bytes) -> Bytes {
    let peak = peak(trace, grain);
    Bytes(peak.0.saturating_add(peak.0 / 2).saturating_add(1 << 20)).round_up(Bytes::kib(4)).unwrap_or(peak)
}

/// What throttled memory reads and writes at unless somebody says otherwise: like persistent memory under a few threads.
pub const THROTTLED: (Bandwidth, Bandwidth) = (Bandwidth(2e9), Bandwidth(1e9));

/// Plain memory of so many bytes, and behind it a slow tier that holds everything that the trace has.
///
/// Throttled memory is as fast as [`THROTTLED`] says; the figures of other backings are not used, because they are as fast
/// as they are.
pub fn machine(trace: &Trace, fast: Bytes, slow: Backing) -> Machine {
    let computable = !matches!(slow, Backing::File(_));
    let (read, write) = THROTTLED;
    let tier = |name: &str, capacity, read, write, computable, backing| Tier {
        name: name.to_string(),
        capacity,
        read: Bandwidth::gb(read),
        write: Bandwidth::gb(write),
        combined: None,
        duplex: None,
        latency: Nanos::ZERO,
        computable,
        caches: false,
        rows: false,
        backing,
        price_per_gb: None,
    };
    let link = |from, to, speed| Link {
        spacing: None,
        from: TierId(from),
        to: TierId(to),
        latency: Nanos::ZERO,
        curve: vec![(1, speed)],
        threads: 1,
        via: None,
        bus: None,
        busy: 0.0,
    };
    let mut machine = Machine {
        name: "training".to_string(),
        source: "made for one run".to_string(),
        contention: 1.0,
        tiers: vec![
            tier("fast", fast, 10.0, 10.0, true, Backing::Dram),
            tier("slow", Bytes::mib(1), read.0 / 1e9, write.0 / 1e9, computable, slow),
        ],
        links: vec![link(0, 1, write), link(1, 0, read)],
        buses: Vec::new(),
        compute: Default::default(),
        detached: None,
        kernels: None,
    };
    machine.tiers[1].capacity = ample(trace, machine.grain());
    machine
}
