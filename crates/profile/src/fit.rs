//! Fits the parameters of [`Model`] to a measured profile of two tiers.
//!
//! Every parameter is sought as a logarithm, near a first guess that has a meaning (a bandwidth, a share of the bytes)
//! and within bounds, so that a kind with few measurements stays near what kernels do in general. The residuals are the
//! logarithms of predicted over measured *slowdown* against everything in the fast tier, and with a smaller weight those
//! of the times themselves. What belongs to the tiers and what belongs to the kinds is fitted in turns.
//!
//! The profile has batch 16 only, and few large kernels. Three choices reach beyond it: `LARGE`, the bound on a
//! convolution's `overlap`, and `DEPTH` in the model. They were chosen so that whole networks at the batches of AutoTM's
//! Table 1 come out within the 3 to 8 times of its Figure 7; that agreement is therefore no evidence for the model, and
//! `tiercel reproduce autotm` marks these rows as fitted.

use std::collections::BTreeMap;

use tiercel_core::{Bandwidth, Bytes, KernelTier, Kernels, Kind, Machine, Nanos};

use crate::autotm::Group;
use crate::kinds::{FITTED, kind_of};
use crate::minimise::{Bounds, minimise};
use crate::model::Model;

/// The weight of times against slowdowns.
const TIMES: f64 = 0.2;

/// The residual from which on a measurement counts as an outlier.
const SCALE: f64 = 0.05;

/// Kernels that touch less than this measure how threads wake up, one way or the other.
const LEAST: u64 = 12_500;

/// Kernels that touch more than this many bytes count more: the networks that need two tiers have such, and few were
/// measured.
const LARGE: f64 = 5e7;

/// How strongly a parameter is held at its first guess.
const PRIOR: f64 = 0.05;

/// How well a model predicts slowdowns of one kind of kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The kind.
    pub kind: &'static str,
    /// Measured placements with an operand in the slow tier: with none there, a slowdown is 1 by its definition.
    pub rows: usize,
    /// The median of |predicted / measured − 1| of the slowdown, over these.
    pub median: f64,
    /// The median of |predicted / measured − 1| of the time, over these and those with everything in the fast tier.
    pub median_time: f64,
}

/// The relative errors of predicted slowdowns and of predicted times for the placements of one kernel.
fn errors(model: &Model, group: &Group) -> (Vec<f64>, Vec<f64>) {
    let fast = model.seconds(&group.kernel, &group.all_fast()).expect("a fitted model");
    let mut slowdowns = Vec::new();
    let mut times = vec![(fast / group.fast - 1.0).abs()];
    for (tiers, measured) in &group.moved {
        let time = model.seconds(&group.kernel, tiers).expect("a fitted model");
        slowdowns.push(((time / fast) / (measured / group.fast) - 1.0).abs());
        times.push((time / measured - 1.0).abs());
    }
    (slowdowns, times)
}

/// How well `model_of` predicts, for every fitted kind; it may give every kernel a model that never saw it.
pub fn scores<'m>(groups: &[Group], model_of: impl Fn(usize) -> &'m Model) -> Vec<Score> {
    let kinds = FITTED.iter().filter_map(|(kind, _)| {
        let own = groups.iter().enumerate().filter(|(_, g)| kind_of(&g.kernel.op) == Some(kind));
        let found: Vec<(Vec<f64>, Vec<f64>)> = own.map(|(at, group)| errors(model_of(at), group)).collect();
        let moved: Vec<f64> = found.iter().flat_map(|(slowdowns, _)| slowdowns.clone()).collect();
        let times: Vec<f64> = found.iter().flat_map(|(_, times)| times.clone()).collect();
        (!moved.is_empty()).then(|| Score {
            kind,
            rows: moved.len(),
            median: median(moved),
            median_time: median(times),
        })
    });
    kinds.collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

/// Fits everything, on a machine with a fast and a slow tier, in this many turns between tiers and kinds.
pub fn fit(machine: &Machine, groups: &[Group], turns: usize) -> Kernels {
    assert_eq!(machine.tiers.len(), 2, "a profile of two tiers is fitted on a machine of two");
    let mut kernels = guess(machine);
    for _ in 0..turns {
        fit_kinds(machine, groups, &mut kernels);
        fit_tiers(machine, groups, &mut kernels);
    }
    fit_kinds(machine, groups, &mut kernels);
    kernels.source =
        "fitted to the kernel profile in AutoTM's public repository (MIT): Cascade Lake, 24 threads, \
        six Optane modules, batch 16, float32"
            .to_string();
    kernels
}

/// Fits what belongs to the kinds, with the tiers as they are.
pub fn fit_kinds(machine: &Machine, groups: &[Group], kernels: &mut Kernels) {
    for (name, _) in FITTED {
        let own: Vec<&Group> =
            groups.iter().filter(|g| kind_of(&g.kernel.op) == Some(name) && g.footprint() >= LEAST).collect();
        if own.is_empty() {
            continue;
        }
        let first = first_guess(name);
        let parameters = kind_parameters(&first);
        let guess: Vec<f64> = parameters.iter().map(|p| p.get(&first).ln()).collect();
        let start: Vec<f64> = parameters.iter().map(|p| p.get(&kernels.kinds[name]).ln()).collect();
        let bounds: Vec<Bounds> =
            parameters.iter().map(|p| Bounds { low: p.low.ln(), high: p.high.ln() }).collect();
        let kind_at = |x: &[f64]| {
            let mut kind = first;
            parameters.iter().zip(x).for_each(|(p, x)| p.set(&mut kind, x.exp()));
            kind
        };
        let alone = Kernels { kinds: BTreeMap::new(), ..kernels.clone() };
        let rows: usize = own.iter().map(|g| g.moved.len() + 1).sum();
        let hold = PRIOR * (rows as f64 / 200.0).sqrt();
        let residuals = |x: &[f64]| {
            let model = Model::with(machine, &Kernels { default: kind_at(x), ..alone.clone() });
            let mut all = residuals(&model, &own);
            all.extend(x.iter().zip(&guess).map(|(x, g)| hold * (x - g)));
            all
        };
        let found = minimise(residuals, &start, &bounds, SCALE, 40);
        kernels.kinds.insert(name.to_string(), rounded(kind_at(&found)));
    }
}

/// The residuals of kernels that are all of the model's default kind.
fn residuals(model: &Model, groups: &[&Group]) -> Vec<f64> {
    let mut all = Vec::new();
    for group in groups {
        let fast = model.seconds(&group.kernel, &group.all_fast()).expect("a fitted model");
        let weight = (group.footprint() as f64 / LARGE).clamp(1.0, 4.0);
        all.push(weight * TIMES * (fast / group.fast).ln());
        for (tiers, measured) in &group.moved {
            let time = model.seconds(&group.kernel, tiers).expect("a fitted model");
            all.push(weight * ((time / fast) / (measured / group.fast)).ln());
            all.push(weight * TIMES * (time / measured).ln());
        }
    }
    all
}

/// Fits what belongs to the tiers, with the kinds as they are.
fn fit_tiers(machine: &Machine, groups: &[Group], kernels: &mut Kernels) {
    // Few kernels of many placements each must not outweigh many of few: every kind counts alike.
    let kinds: Vec<(f64, Vec<&Group>)> = FITTED[..10]
        .iter()
        .map(|(name, _)| {
            let own: Vec<&Group> = groups
                .iter()
                .filter(|g| kind_of(&g.kernel.op) == Some(name) && g.footprint() >= LEAST)
                .collect();
            let rows: usize = own.iter().map(|g| g.moved.len()).sum();
            ((500.0 / rows.max(1) as f64).sqrt().min(1.0), own)
        })
        .collect();
    let first = guess(machine);
    let (guessed, start) = (tier_figures(machine, &first), tier_figures(machine, kernels));
    let bounds: Vec<Bounds> = guessed.iter().map(|g| Bounds { low: g - 2.0, high: g + 2.0 }).collect();
    let residuals = |x: &[f64]| {
        let model = Model::with(machine, &with_tier_figures(machine, kernels, x));
        let mut all: Vec<f64> = x.iter().zip(&guessed).map(|(x, g)| 0.3 * (x - g)).collect();
        for (weight, own) in &kinds {
            all.extend(residuals(&model, own).iter().map(|r| weight * r));
        }
        all
    };
    let found = minimise(residuals, &start, &bounds, SCALE, 12);
    *kernels = with_tier_figures(machine, kernels, &found);
}

/// A figure of a kind that is sought.
struct Parameter {
    get: fn(&Kind) -> f64,
    set: fn(&mut Kind, f64),
    low: f64,
    high: f64,
}

impl Parameter {
    fn get(&self, kind: &Kind) -> f64 {
        (self.get)(kind).clamp(self.low, self.high)
    }

    fn set(&self, kind: &mut Kind, value: f64) {
        (self.set)(kind, value);
    }
}

macro_rules! parameter {
    ($low:expr, $high:expr, |$kind:ident| $place:expr) => {
        Parameter { low: $low, high: $high, get: |$kind| $place, set: |$kind, value| $place = value }
    };
}

/// The figures that are sought of a kind; those of computing only where computing counts.
fn kind_parameters(kind: &Kind) -> Vec<Parameter> {
    let mut all = vec![
        Parameter {
            low: 100.0,
            high: 100_000.0,
            get: |k| k.start.0 as f64,
            set: |k, x| k.start = Nanos(x.round() as u64),
        },
        Parameter {
            low: 100.0,
            high: 500_000.0,
            get: |k| k.spread.0 as f64,
            set: |k, x| k.spread = Nanos(x.round() as u64),
        },
        Parameter {
            low: 1e5,
            high: 5e7,
            get: |k| k.ramp.0 as f64,
            set: |k, x| k.ramp = Bytes(x.round() as u64),
        },
        parameter!(0.2, 2.5, |k| k.read),
        parameter!(0.2, 2.5, |k| k.write),
        parameter!(0.3, 3.0, |k| k.setup),
        parameter!(0.05, 4.0, |k| k.cache),
    ];
    if kind.rate > 0.0 {
        all.push(parameter!(0.02, 6.0, |k| k.spill));
        all.push(parameter!(0.005, 1.0, |k| k.rate));
        all.push(parameter!(0.05, 5000.0, |k| k.half));
        // Large convolutions hide little of their reads behind computing; small ones, of which there are more, seem to.
        let high = if kind.rows { 7.0 } else { 0.3 };
        all.push(Parameter { low: 0.02, high, get: |k| k.overlap - 1.0, set: |k, x| k.overlap = 1.0 + x });
    }
    all
}

/// Three digits: more than the measurements bear.
fn round(x: f64) -> f64 {
    format!("{x:.2e}").parse().expect("a number that was just written")
}

fn rounded(kind: Kind) -> Kind {
    Kind {
        start: Nanos(round(kind.start.0 as f64) as u64),
        spread: Nanos(round(kind.spread.0 as f64) as u64),
        ramp: Bytes(round(kind.ramp.0 as f64) as u64),
        read: round(kind.read),
        write: round(kind.write),
        spill: round(kind.spill),
        setup: round(kind.setup),
        rate: round(kind.rate),
        half: round(kind.half),
        overlap: round(kind.overlap),
        cache: round(kind.cache),
        ..kind
    }
}

/// What a kind is taken for before anything is measured.
fn first_guess(kind: &str) -> Kind {
    let plain = Kind {
        start: Nanos(5_000),
        spread: Nanos(10_000),
        ramp: Bytes(1_000_000),
        rate: 0.0,
        overlap: 1.2,
        ..Kind::default()
    };
    match kind {
        "conv" | "conv.backward-data" | "conv.backward-weight" | "linear" => {
            Kind { rate: 0.75, half: 5.0, spill: 1.0, ..plain }
        }
        "batch-norm" | "batch-norm.backward" => {
            Kind { rate: 0.06, half: 500.0, rows: true, read: 0.5, cache: 0.5, overlap: 2.0, ..plain }
        }
        "slice" => Kind { partial: true, ..plain },
        _ => plain,
    }
}

/// What DRAM and persistent memory are taken for before anything is measured.
fn guess(machine: &Machine) -> Kernels {
    let gb = |x| Some(Bandwidth::gb(x));
    let dram = KernelTier {
        read: gb(75.0),
        write: gb(60.0),
        cached_read: gb(400.0),
        cached_write: gb(200.0),
        ..KernelTier::default()
    };
    let pm = KernelTier {
        read: gb(30.0),
        write: gb(3.2),
        cached_read: gb(30.0),
        cached_write: gb(10.0),
        read_setup: Nanos(25_000),
        write_setup: Nanos(160_000),
    };
    let names = machine.tiers.iter().map(|t| t.name.clone());
    Kernels {
        source: String::new(),
        like: None,
        cache: Bytes(36_000_000),
        resident: Bytes(1_000_000),
        tiers: names.zip([dram, pm]).collect(),
        default: first_guess("conv"),
        kinds: FITTED.iter().map(|(name, _)| ((*name).to_string(), first_guess(name))).collect(),
    }
}

/// What is sought of the tiers, as logarithms.
fn tier_figures(machine: &Machine, kernels: &Kernels) -> Vec<f64> {
    let tier = |at: usize| kernels.tiers[&machine.tiers[at].name];
    let speeds =
        |t: KernelTier| [t.read, t.write, t.cached_read, t.cached_write].map(|b| b.map_or(1.0, |b| b.0).ln());
    let slow = tier(1);
    let setups = [slow.read_setup.0, slow.write_setup.0, kernels.resident.0].map(|x| (x as f64).ln());
    [speeds(tier(0)), speeds(slow)].concat().into_iter().chain(setups).collect()
}

/// The same kernels with other figures of the tiers.
fn with_tier_figures(machine: &Machine, kernels: &Kernels, x: &[f64]) -> Kernels {
    let speed = |at: usize| Some(Bandwidth(x[at].exp()));
    let tier = |at: usize, read_setup: Nanos, write_setup: Nanos| KernelTier {
        read: speed(at),
        write: speed(at + 1),
        cached_read: speed(at + 2),
        cached_write: speed(at + 3),
        read_setup,
        write_setup,
    };
    let nanos = |at: usize| Nanos(x[at].exp() as u64);
    let tiers = [tier(0, Nanos::ZERO, Nanos::ZERO), tier(4, nanos(8), nanos(9))];
    let names = machine.tiers.iter().map(|t| t.name.clone());
    Kernels { tiers: names.zip(tiers).collect(), resident: Bytes(x[10].exp() as u64), ..kernels.clone() }
}

/// The same kernels with the tiers' figures in three digits, as a file states them.
pub fn tidied(mut kernels: Kernels) -> Kernels {
    for tier in kernels.tiers.values_mut() {
        for speed in [&mut tier.read, &mut tier.write, &mut tier.cached_read, &mut tier.cached_write] {
            *speed = speed.map(|b| Bandwidth::gb(round(b.0 / 1e9)));
        }
        tier.read_setup = Nanos(round(tier.read_setup.0 as f64) as u64);
        tier.write_setup = Nanos(round(tier.write_setup.0 as f64) as u64);
    }
    kernels.resident = Bytes(round(kernels.resident.0 as f64) as u64);
    kernels
}
