//! What tests of several files share: a small machine and a small setting.

use crate::tiers::{Tier, Tiers};
use crate::watch::{Costs, Setting};

/// Four tiers of 128, 128, 1024 and 1024 pages with the latencies of Table 8.1.
pub fn tiers() -> Tiers {
    let tier = |name: &str, pages, latency_ns, read, socket, kind| Tier {
        name: name.to_string(),
        pages,
        latency_ns,
        read,
        write: read / 2.0,
        socket,
        kind,
    };
    Tiers {
        list: vec![
            tier("dram", 128, 90.0, 95.0, 0, 0),
            tier("remote-dram", 128, 145.0, 35.0, 1, 0),
            tier("pm", 1024, 275.0, 35.0, 0, 1),
            tier("remote-pm", 1024, 340.0, 1.0, 1, 1),
        ],
        copy: vec![vec![10.0; 4]; 4],
    }
}

/// So many pages in spans of 16.
pub fn setting(pages: u32) -> Setting {
    Setting {
        pages,
        span: 16,
        interval_ns: 2.4e6,
        overhead: 0.05,
        costs: Costs { bit_ns: 40.0, fault_ns: 1200.0, trap_ns: 100.0, sample_ns: 16.0 },
        promoted: 12,
        window: 16,
        seed: 1,
    }
}
