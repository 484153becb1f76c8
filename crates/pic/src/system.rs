//! What users choose by name: how particles and fields are placed, and how often particles cross memory.

use std::fmt;
use std::str::FromStr;

use tiercel_core::{Backing, Bandwidth, Bytes, Link, Machine, Nanos, Tier, TierId};

use crate::error::PicError;
use crate::paged::{Keeps, Paged};
use crate::placement::{Cached, Ferry, Fixed, Zones};
use crate::simulation::Passes;
use crate::store::Placement;

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Everything in fast memory.
    AllFast,
    /// Everything in slow memory.
    SlowOnly,
    /// In fast memory until it is full, particles before fields.
    FirstTouch,
    /// Fast memory as a cache of the slow one.
    MemoryMode,
    /// Fields in fast memory, particles in slow memory.
    Static,
    /// WarpX-PM.
    WarpxPm,
    /// Ours.
    Tiercel,
}

impl System {
    /// All systems by name.
    pub const ALL: [(&'static str, System); 7] = [
        ("all-fast", System::AllFast),
        ("slow-only", System::SlowOnly),
        ("first-touch", System::FirstTouch),
        ("memory-mode", System::MemoryMode),
        ("static", System::Static),
        ("warpx-pm", System::WarpxPm),
        ("tiercel", System::Tiercel),
    ];
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = System::ALL.iter().find(|(_, system)| system == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for System {
    type Err = String;

    fn from_str(text: &str) -> Result<System, String> {
        let found = System::ALL.iter().find(|(name, _)| *name == text).map(|(_, system)| *system);
        let names = || System::ALL.map(|(name, _)| name).join(", ");
        found.ok_or_else(|| format!("no system `{text}`; there are {}", names()))
    }
}

/// How much a simulation needs of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// All particles.
    pub particles: Bytes,
    /// Fields and currents.
    pub fields: Bytes,
    /// What is short-lived.
    pub temporaries: Bytes,
    /// Where particles are.
    pub metadata: Bytes,
    /// The particles of the tile that has most.
    pub tile: Bytes,
    /// The fields and currents of the layer that has most.
    pub layer: Bytes,
}

impl Needs {
    /// All of it.
    pub fn all(&self) -> Bytes {
        self.particles + self.fields + self.temporaries + self.metadata
    }
}

/// A system ready to be used.
pub struct Wired {
    /// Where things go.
    pub placement: Box<dyn Placement>,
    /// How often particles cross memory.
    pub passes: Passes,
    /// How many bytes of particles a kernel works on at most.
    pub batch: Option<Bytes>,
}

/// How many batches there is room for in the migration zone: one arrives while another is worked on, and one leaves.
const BATCHES: u64 = 3;

impl System {
    /// Wires the system up for so much fast memory.
    pub fn wire(self, needs: &Needs, machine: &Machine) -> Result<Wired, PicError> {
        let (fast, slow) = (machine.tiers[0].capacity, machine.slowest());
        let slow_tier = machine.tier(slow);
        if !slow_tier.computable
            && let Some(keeps) = self.keeps()
        {
            return self.paged(keeps, needs, fast);
        }
        let two = Wired {
            placement: Box::new(Fixed { name: "", tiers: Vec::new() }),
            passes: Passes::Two,
            batch: None,
        };
        let fixed = |name, tiers: &[TierId]| Box::new(Fixed { name, tiers: tiers.to_vec() });
        let short = needs.temporaries + needs.metadata;
        Ok(match self {
            System::AllFast => {
                Wired { placement: fixed("all-fast", &[TierId(0)]), passes: Passes::One, ..two }
            }
            System::SlowOnly => Wired { placement: fixed("slow-only", &[slow]), ..two },
            System::FirstTouch => Wired { placement: fixed("first-touch", &[TierId(0), slow]), ..two },
            System::MemoryMode => Wired { placement: Box::new(Cached::new(fast)), ..two },
            System::Static => {
                let Needs { metadata, temporaries, fields, .. } = *needs;
                let zones = Zones { metadata, temporaries, migration: Bytes::ZERO, fields };
                self.enough(fast, short, "what is short-lived")?;
                Wired { placement: Box::new(Ferry::new("static", zones, 0.0)), ..two }
            }
            System::WarpxPm | System::Tiercel => {
                // Fields first if nothing can compute on slow memory; then batches as large as a quarter of the rest allows.
                let held = if slow_tier.computable { short } else { short + needs.fields };
                let least = Bytes(needs.tile.0 * BATCHES + needs.tile.0 / 2);
                self.enough(
                    fast,
                    held + least,
                    "a tile on its way, one at work and one on its way back, beside the rest,",
                )?;
                let rest = fast.saturating_sub(short + needs.fields);
                let batch = Bytes(rest.0 / (4 * BATCHES)).max(needs.tile);
                let migration = Bytes(batch.0 * BATCHES + needs.tile.0 / 2);
                let Needs { metadata, temporaries, fields, .. } = *needs;
                let zones = Zones { metadata, temporaries, migration, fields };
                let ours = self == System::Tiercel;
                let name = if ours { "tiercel" } else { "warpx-pm" };
                let passes = if ours { Passes::One } else { Passes::Two };
                let room = rest.saturating_sub(migration).0 as f64;
                let stays = if ours { (room / needs.particles.0.max(1) as f64).min(1.0) } else { 0.0 };
                Wired { placement: Box::new(Ferry::new(name, zones, stays)), passes, batch: Some(batch) }
            }
        })
    }

    /// What a baseline keeps in fast memory where nothing can compute on the slow one.
    fn keeps(self) -> Option<Keeps> {
        match self {
            System::SlowOnly => Some(Keeps::Nothing),
            System::FirstTouch => Some(Keeps::First),
            System::MemoryMode => Some(Keeps::Last),
            System::Static => Some(Keeps::Fields),
            System::AllFast | System::WarpxPm | System::Tiercel => None,
        }
    }

    /// A baseline whose objects come when kernels ask for them.
    fn paged(self, keeps: Keeps, needs: &Needs, fast: Bytes) -> Result<Wired, PicError> {
        // What a kernel uses: a tile, or a layer's fields and currents and its neighbours' fields; and one tile that leaves.
        let reserve = Bytes((needs.tile.0 * 2).max(needs.layer.0 * 3) + needs.tile.0 / 2) + needs.layer * 3;
        self.enough(fast, reserve, "a tile at work and one on its way back, beside the fields around it,")?;
        let name = System::ALL.iter().find(|(_, system)| *system == self).map_or("", |(name, _)| name);
        let placement = Box::new(Paged::new(name, keeps, reserve));
        Ok(Wired { placement, passes: Passes::Two, batch: Some(needs.tile) })
    }

    fn enough(self, fast: Bytes, wanted: Bytes, what: &'static str) -> Result<(), PicError> {
        let slack = Bytes(64 << 10);
        if fast >= wanted + slack {
            Ok(())
        } else {
            Err(PicError::TooLittle { fast, what, wanted, enough: wanted + slack })
        }
    }
}

/// A machine of two tiers: so much fast memory, and behind it enough of the slow one. Throttled memory is slowed down to
/// these bandwidths; other memories are as fast as they are.
pub fn machine(
    needs: &Needs,
    fast: Bytes,
    slow: Backing,
    throttled: (Bandwidth, Bandwidth),
    copiers: u32,
) -> Machine {
    let computable = !matches!(slow, Backing::File(_));
    let (read, write) = throttled;
    let tier = |name: &str, capacity, read, write, computable, backing| Tier {
        name: name.to_string(),
        capacity,
        read,
        write,
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
        threads: copiers,
        via: None,
        bus: None,
        busy: 0.0,
    };
    let page = Bytes(4096);
    let quick = Bandwidth(10e9);
    let behind = Bytes(needs.all().0 * 3 / 2 + (8 << 20)).round_up(page).unwrap_or(needs.all());
    Machine {
        name: "particles".to_string(),
        source: "made for one run".to_string(),
        contention: 1.0,
        tiers: vec![
            tier("fast", fast.round_up(page).unwrap_or(fast), quick, quick, true, Backing::Dram),
            tier("slow", behind, read, write, computable, slow),
        ],
        links: vec![link(0, 1, write), link(1, 0, read)],
        buses: Vec::new(),
        compute: Default::default(),
        detached: None,
        kernels: None,
    }
}
