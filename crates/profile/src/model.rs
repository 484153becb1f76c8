//! Kernel times by placement for machines that we do not have: a roofline with the figures of the machine file.
//!
//! ```text
//! time    = start + spread · F / (F + ramp) + setups + (compute^overlap + memory^overlap)^(1 / overlap)
//! compute = flops / (rate · gflops) · (1 + half / intensity)
//! memory  = Σ over operands: bytes · (read or write) · (h / cached + (1 − h) / uncached bandwidth of its tier),
//!           the uncached part of writes 1 + spill · d / (d + 600) times, with d the flops per written byte
//! h       = 1 / (1 + (F / (cache · share))^2.5)       the part of the traffic that the cache absorbs
//! setups  = Σ over operands: setup · (read or write setup of its tier)
//! ```
//!
//! F is all that the kernel touches. Names are those of [`Kind`] and [`KernelTier`]. On tiers other than the fastest,
//! operands that are read and smaller than `resident` still wait in a cache: they cost what they cost on the fastest
//! tier. An operand on a slower tier never costs less than on a faster one, so moving one down never helps.
//!
//! What was measured and what it taught (AutoTM section 2.2 shows one kernel; the profile all of them): reads from
//! persistent memory hide behind computing, writes do not; plain stores reach a third of what streaming stores do once
//! they no longer fit the cache; every operand written there costs some 150 µs however small it is.

use std::collections::{BTreeMap, HashMap};

use tiercel_core::{Bytes, KernelTier, Kernels, Kind, Machine, Nanos, TierId, Traffic};
use tiercel_sim::{KernelTime, Roofline, together};
use tiercel_workload::Kernel;

use crate::kinds::kind_of;
use crate::machines;

/// How sharply the cache stops to help once a kernel touches more than it holds.
const SHARPNESS: f64 = 2.5;

/// How sharply operands stop to wait in the caches once they are larger than `resident`.
const RESIDENCE: i32 = 8;

/// Operations per written byte at which half of a kind's `spill` is felt.
const DEPTH: f64 = 600.0;

/// What keeps a model from being made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The machine takes its kinds from one that does not exist.
    #[error("machine `{machine}`: kernels are like those of `{like}`: {what}")]
    Like {
        /// The machine.
        machine: String,
        /// The machine that it names.
        like: String,
        /// Why that does not help.
        what: String,
    },
}

/// Kernel times from the parameters of a machine file, or from the bandwidths alone where it has none. A time that
/// the trace states for just this placement goes first.
#[derive(Clone, Debug)]
pub struct Model {
    /// Absent where the machine has no parameters.
    fitted: Option<Fitted>,
}

#[derive(Clone, Debug)]
struct Fitted {
    /// Bytes.
    cache: f64,
    /// Bytes.
    resident: f64,
    /// Operations a second.
    flops: f64,
    tiers: Vec<Rates>,
    default: Kind,
    kinds: HashMap<String, Kind>,
}

/// A tier as kernels see it, in seconds and seconds a byte.
#[derive(Clone, Copy, Debug)]
struct Rates {
    read: f64,
    write: f64,
    cached_read: f64,
    cached_write: f64,
    read_setup: f64,
    write_setup: f64,
}

/// What a kernel does with one operand, or with one tier.
struct Touch {
    tier: usize,
    write: bool,
    bytes: f64,
    /// Whether it is one operand, which may wait in a cache and takes time to set up.
    operand: bool,
}

impl Model {
    /// The model of a machine; it answers for this machine only, whatever its capacities.
    pub fn new(machine: &Machine) -> Result<Model, ModelError> {
        let Some(own) = &machine.kernels else { return Ok(Model { fitted: None }) };
        let Some(like) = &own.like else { return Ok(Model::with(machine, own)) };
        let wrong =
            |what: String| ModelError::Like { machine: machine.name.clone(), like: like.clone(), what };
        let other = machines::named(like).map_err(|e| wrong(e.to_string()))?;
        let theirs = other.kernels.filter(|k| k.like.is_none());
        let theirs = theirs.ok_or_else(|| wrong("it has none of its own".to_string()))?;
        let kinds = theirs.kinds.into_iter().chain(own.kinds.clone()).collect();
        Ok(Model::with(machine, &Kernels { kinds, default: theirs.default, ..own.clone() }))
    }

    /// The model of a machine with these parameters, whatever its file says.
    pub fn with(machine: &Machine, kernels: &Kernels) -> Model {
        let rates = |name: &String, read: f64, write: f64| {
            let seen = kernels.tiers.get(name).copied().unwrap_or_default();
            let KernelTier { read: r, write: w, cached_read, cached_write, read_setup, write_setup } = seen;
            let (read, write) = (r.map_or(read, |b| b.0), w.map_or(write, |b| b.0));
            Rates {
                read: 1.0 / read,
                write: 1.0 / write,
                cached_read: 1.0 / cached_read.map_or(read, |b| b.0),
                cached_write: 1.0 / cached_write.map_or(write, |b| b.0),
                read_setup: read_setup.seconds(),
                write_setup: write_setup.seconds(),
            }
        };
        let tiers = machine.tiers.iter().map(|t| rates(&t.name, t.read.0, t.write.0)).collect();
        let kinds: &BTreeMap<String, Kind> = &kernels.kinds;
        Model {
            fitted: Some(Fitted {
                cache: kernels.cache.0 as f64,
                resident: kernels.resident.0 as f64,
                flops: machine.compute.gflops * 1e9,
                tiers,
                default: kernels.default,
                kinds: kinds.iter().map(|(name, kind)| (name.clone(), *kind)).collect(),
            }),
        }
    }

    /// Whether the machine file has parameters, so that times are more than bandwidths suggest.
    pub fn is_fitted(&self) -> bool {
        self.fitted.is_some()
    }

    /// The time in seconds of a kernel whose reads, then writes, lie on these tiers, from the parameters alone.
    pub(crate) fn seconds(&self, kernel: &Kernel, tiers: &[TierId]) -> Option<f64> {
        let fitted = self.fitted.as_ref()?;
        let reads = kernel.reads.iter().map(|u| (false, u.bytes));
        let writes = kernel.writes.iter().map(|u| (true, u.bytes));
        let touch = |((write, bytes), tier): ((bool, Bytes), &TierId)| Touch {
            tier: tier.index(),
            write,
            bytes: bytes.0 as f64,
            operand: true,
        };
        let touches: Vec<Touch> = reads.chain(writes).zip(tiers).map(touch).collect();
        Some(fitted.seconds(kernel, &touches))
    }
}

impl Fitted {
    fn kind(&self, op: &str) -> &Kind {
        let own = self.kinds.get(op);
        own.or_else(|| self.kinds.get(kind_of(op)?)).unwrap_or(&self.default)
    }

    fn seconds(&self, kernel: &Kernel, touches: &[Touch]) -> f64 {
        let kind = self.kind(&kernel.op);
        let all: f64 = touches.iter().map(|t| t.bytes).sum();
        let written: f64 = touches.iter().filter(|t| t.write).map(|t| t.bytes).sum();
        let footprint = if kind.partial { all.min(2.0 * written) } else { all };
        let room = (self.cache * kind.cache).max(1.0);
        let cached = 1.0 / (1.0 + (footprint / room).powf(SHARPNESS));
        let depth = kernel.flops as f64 / written.max(1.0);
        let passes = 1.0 + kind.spill * depth / (depth + DEPTH);
        let (mut memory, mut setups) = (0.0, 0.0);
        let mut readable = written;
        for touch in touches {
            let mut bytes = touch.bytes;
            if kind.partial && !touch.write {
                bytes = bytes.min(readable);
                readable -= bytes;
            }
            let (time, setup) = self.operand(kind, touch, bytes, cached, passes);
            memory += time;
            setups += setup;
        }
        let compute = self.compute(kind, kernel);
        let start =
            kind.start.seconds() + kind.spread.seconds() * footprint / (footprint + kind.ramp.0 as f64);
        start + kind.setup * setups + together(compute, memory, kind.overlap)
    }

    /// The time of one operand and its setup: the most of what it would be on this tier and all faster ones.
    fn operand(&self, kind: &Kind, touch: &Touch, bytes: f64, cached: f64, passes: f64) -> (f64, f64) {
        let blend = |hit: f64, miss: f64| cached * hit + (1.0 - cached) * miss;
        // Small operands that are read are still in a cache, wherever they lie.
        let fresh = if touch.operand && !touch.write {
            1.0 / (1.0 + (self.resident / touch.bytes.max(1.0)).powi(RESIDENCE))
        } else {
            1.0
        };
        let (mut time, mut setup) = (0.0_f64, 0.0_f64);
        for (at, rates) in self.tiers[..=touch.tier].iter().enumerate() {
            let felt = if at == 0 { 1.0 } else { fresh };
            let (a_byte, first) = if touch.write {
                (kind.write * blend(rates.cached_write, passes * rates.write), rates.write_setup)
            } else {
                (kind.read * blend(rates.cached_read, rates.read), rates.read_setup)
            };
            time = time.max(felt * bytes * a_byte);
            setup = setup.max(felt * first);
        }
        (time, if touch.operand { setup } else { 0.0 })
    }

    fn compute(&self, kind: &Kind, kernel: &Kernel) -> f64 {
        if kernel.flops == 0 || kind.rate == 0.0 {
            return 0.0;
        }
        let flops = kernel.flops as f64;
        let sizes =
            || kernel.reads.iter().chain(&kernel.writes).map(|u| u.bytes.0 as f64).filter(|b| *b > 0.0);
        let intensity = if kind.rows {
            sizes().fold(1.0, f64::max) / sizes().fold(f64::INFINITY, f64::min)
        } else {
            flops / sizes().sum::<f64>().max(1.0)
        };
        flops / (kind.rate * self.flops) * (1.0 + kind.half / intensity)
    }
}

impl KernelTime for Model {
    fn time(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos {
        if let Some(measured) = kernel.timings.iter().find(|timing| timing.tiers == tiers) {
            return measured.time;
        }
        match self.seconds(kernel, tiers) {
            Some(seconds) => Nanos::from_seconds(seconds),
            None => Roofline.time(machine, kernel, tiers),
        }
    }

    fn cached(&self, machine: &Machine, kernel: &Kernel, traffic: &[Traffic]) -> Nanos {
        let Some(fitted) = &self.fitted else { return Roofline.cached(machine, kernel, traffic) };
        let touches: Vec<Touch> = traffic
            .iter()
            .flat_map(|t| [(t.tier, false, t.read), (t.tier, true, t.write)])
            .map(|(tier, write, bytes)| Touch {
                tier: tier.index(),
                write,
                bytes: bytes.0 as f64,
                operand: false,
            })
            .collect();
        Nanos::from_seconds(fitted.seconds(kernel, &touches))
    }
}
