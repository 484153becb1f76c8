//! What a machine file says of kernels: how each kind uses the memory and the processor.
//!
//! The figures come from a fit (`crates/profile/src/fit.rs` makes them, `crates/profile/src/model.rs` says what
//! they mean together); this file only holds, reads and checks them. What belongs to a kind of kernel is apart from
//! what belongs to a tier, so that a machine with other memory uses the same kinds with its own bandwidths: it names
//! the machine to take them from with `like`.
//!
//! ```toml
//! [kernels]
//! source = "fitted to …"
//! cache = "36 MB"
//! [kernels.tier.pm]          # how the tier looks to loads and stores of kernels; what is absent is the tier's own
//! write = "3.4 GB/s"
//! write_setup = "150 us"
//! [kernels.default]          # what kinds have in common
//! overlap = 1.2
//! [kernels.kind.conv]        # what a kind has otherwise
//! rate = 0.8
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::machine::optional;
use crate::units::{Bandwidth, Bytes, Nanos, text};

/// What is known of kernels on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernels {
    /// Where the figures come from.
    pub source: String,
    /// The shipped machine whose kinds these are, apart from those stated here.
    pub like: Option<String>,
    /// How much the processor's last-level cache holds.
    pub cache: Bytes,
    /// The size at which an operand no longer waits in the caches for the kernel that reads it.
    pub resident: Bytes,
    /// How tiers look to kernels, by the tier's name.
    pub tiers: BTreeMap<String, KernelTier>,
    /// A kernel of a kind that is not listed.
    pub default: Kind,
    /// The kinds of kernels, by name.
    pub kinds: BTreeMap<String, Kind>,
}

/// How a tier looks to the loads and stores of kernels, which differ from copies with streaming instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelTier {
    /// Reading what no cache holds; the tier's own bandwidth where absent.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub read: Option<Bandwidth>,
    /// Writing what no cache absorbs; the tier's own bandwidth where absent.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub write: Option<Bandwidth>,
    /// Reading while all that the kernel touches fits in the cache; as without a cache where absent.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub cached_read: Option<Bandwidth>,
    /// Writing while all that the kernel touches fits in the cache; as without a cache where absent.
    #[serde(with = "optional", skip_serializing_if = "Option::is_none")]
    pub cached_write: Option<Bandwidth>,
    /// What every operand that is read here adds, whatever its size.
    #[serde(with = "text")]
    pub read_setup: Nanos,
    /// What every operand that is written here adds, whatever its size.
    #[serde(with = "text")]
    pub write_setup: Nanos,
}

/// How one kind of kernel uses memory and processor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Kind {
    /// The time of a kernel that does nothing.
    #[serde(with = "text")]
    pub start: Nanos,
    /// What is added for spreading work over all threads, once there is enough of it.
    #[serde(with = "text")]
    pub spread: Nanos,
    /// The bytes at which half of `spread` is felt.
    #[serde(with = "text")]
    pub ramp: Bytes,
    /// How often the bytes that are read come from memory: 0.5 where a second pass finds them in the cache.
    pub read: f64,
    /// How often the bytes that are written go to memory.
    pub write: f64,
    /// How many times more often that is, at most, once the cache does not hold what is written and each byte of it
    /// takes much arithmetic: a convolution that adds to its output piece by piece then does so in memory.
    pub spill: f64,
    /// How much of a tier's setup times is felt.
    pub setup: f64,
    /// The share of the processor's floating-point rate that is reached at best; 0 where the arithmetic never counts.
    pub rate: f64,
    /// Where half of that rate is reached: in operations a byte, or in `rows` elements a row.
    pub half: f64,
    /// Whether `half` counts elements a row (the largest operand over the smallest, as channels have their
    /// statistics) rather than operations a byte.
    pub rows: bool,
    /// How well computing hides behind memory: at 1 their times add, far above it the longer one counts.
    pub overlap: f64,
    /// How much of the cache helps: 1 for all of it.
    pub cache: f64,
    /// Whether a kernel reads no more of its operands than it writes, as one that takes a slice.
    pub partial: bool,
}

impl Default for Kind {
    fn default() -> Kind {
        Kind {
            start: Nanos(0),
            spread: Nanos(0),
            ramp: Bytes(1_000_000),
            read: 1.0,
            write: 1.0,
            spill: 0.0,
            setup: 1.0,
            rate: 1.0,
            half: 0.0,
            rows: false,
            overlap: 8.0,
            cache: 1.0,
            partial: false,
        }
    }
}

impl Kind {
    /// What is wrong with the figures, if anything is.
    fn wrong(&self) -> Option<String> {
        let figures = [
            ("read", self.read),
            ("write", self.write),
            ("spill", self.spill),
            ("setup", self.setup),
            ("rate", self.rate),
            ("half", self.half),
            ("cache", self.cache),
        ];
        let bad = figures.iter().find(|(_, figure)| !(figure.is_finite() && *figure >= 0.0));
        if let Some((name, figure)) = bad {
            return Some(format!("{name} is {figure}; it must not be below zero"));
        }
        let overlap = self.overlap;
        if !(overlap.is_finite() && overlap >= 1.0) {
            return Some(format!("overlap is {overlap}; it is at least 1"));
        }
        (self.ramp == Bytes::ZERO).then(|| "ramp must be above zero".to_string())
    }
}

/// The table as written: kinds state only what differs from the default.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileKernels {
    #[serde(default)]
    source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    like: Option<String>,
    #[serde(default = "cache", with = "text")]
    cache: Bytes,
    #[serde(default = "resident", with = "text")]
    resident: Bytes,
    #[serde(default)]
    tier: BTreeMap<String, KernelTier>,
    #[serde(default)]
    default: Kind,
    #[serde(default)]
    kind: BTreeMap<String, toml::Table>,
}

fn cache() -> Bytes {
    Bytes(36_000_000)
}

fn resident() -> Bytes {
    Bytes(1_000_000)
}

impl FileKernels {
    /// Fills in what the kinds leave to the default, and verifies every figure; `tiers` are the machine's own.
    pub(crate) fn read<'a>(self, tiers: impl Iterator<Item = &'a str> + Clone) -> Result<Kernels, String> {
        if let Some(name) = self.tier.keys().find(|name| !tiers.clone().any(|tier| tier == *name)) {
            let known: Vec<&str> = tiers.collect();
            return Err(format!("kernels name the tier `{name}`; the tiers are {}", known.join(", ")));
        }
        for (name, tier) in &self.tier {
            let speeds = [tier.read, tier.write, tier.cached_read, tier.cached_write];
            if speeds.iter().flatten().any(|b| !(b.0.is_finite() && b.0 > 0.0)) {
                return Err(format!("kernels.tier.{name}: bandwidths must be above zero"));
            }
        }
        if self.cache == Bytes::ZERO || self.resident == Bytes::ZERO {
            return Err("kernels: cache and resident must be above zero".to_string());
        }
        if let Some(what) = self.default.wrong() {
            return Err(format!("kernels.default: {what}"));
        }
        let common = toml::Table::try_from(self.default).expect("a kind is plain numbers and strings");
        let mut kinds = BTreeMap::new();
        for (name, own) in self.kind {
            let mut table = common.clone();
            table.extend(own);
            let kind: Kind = table
                .try_into()
                .map_err(|e: toml::de::Error| format!("kernels.kind.{name}: {}", e.message()))?;
            if let Some(what) = kind.wrong() {
                return Err(format!("kernels.kind.{name}: {what}"));
            }
            kinds.insert(name, kind);
        }
        Ok(Kernels {
            source: self.source,
            like: self.like,
            cache: self.cache,
            resident: self.resident,
            tiers: self.tier,
            default: self.default,
            kinds,
        })
    }

    /// The table to write, in which every kind states only what differs from the default.
    pub(crate) fn of(kernels: &Kernels) -> FileKernels {
        let table = |kind: &Kind| toml::Table::try_from(kind).expect("a kind is plain numbers and strings");
        let common = table(&kernels.default);
        let own = |kind: &Kind| {
            let mut own = table(kind);
            own.retain(|name, value| common.get(name) != Some(value));
            own
        };
        FileKernels {
            source: kernels.source.clone(),
            like: kernels.like.clone(),
            cache: kernels.cache,
            resident: kernels.resident,
            tier: kernels.tiers.clone(),
            default: kernels.default,
            kind: kernels.kinds.iter().map(|(name, kind)| (name.clone(), own(kind))).collect(),
        }
    }
}

impl Kernels {
    /// Writes the table alone, in its TOML form, for whoever puts it into a machine file.
    pub fn to_toml(&self) -> String {
        let file = BTreeMap::from([("kernels", FileKernels::of(self))]);
        toml::to_string(&file).expect("kernels are plain tables, strings and numbers")
    }
}
