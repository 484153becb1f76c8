//! Every policy by its name: which profiler, which strategy, which mechanism.

use crate::profilers::counters::Counters;
use crate::profilers::damon::Damon;
use crate::profilers::regions::{Parts, Regions};
use crate::profilers::segments::{Segments, Source};
use crate::profilers::windows::{Chance, Thermostat, Window};
use crate::strategies::Stay;
use crate::strategies::benefit::{self, Benefit};
use crate::strategies::flat::{Flat, View};
use crate::strategies::kernel::{Balancing, Rule};
use crate::strategies::pools::Pools;
use crate::tiers::Tiers;
use crate::watch::{Heat, Keeper, Mechanism, Profiler, Setting, Sight, Watch};

/// A policy that can be named.
#[derive(Clone, Copy)]
pub struct System {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    wire: fn(Setting, &Tiers) -> Keeper,
}

impl System {
    /// Wires it up.
    pub fn keeper(&self, setting: Setting, tiers: &Tiers) -> Keeper {
        (self.wire)(setting, tiers)
    }

    /// Whether the processor does it, with DRAM as a cache.
    pub fn is_cache(&self) -> bool {
        self.name == MEMORY_MODE
    }
}

/// The name of the policy that is no policy.
pub const MEMORY_MODE: &str = "memory-mode";

/// Looks at nothing.
struct Blind;

impl Profiler for Blind {
    fn scans(&self) -> usize {
        1
    }
    fn watch(&mut self, _: &crate::placement::Placement) -> Watch {
        Watch::Nothing
    }
    fn seen(&mut self, _: &[Sight]) {}
    fn close(&mut self, _: &crate::placement::Placement) -> Vec<Heat> {
        Vec::new()
    }
}

fn keeper(
    profiler: impl Profiler + 'static,
    strategy: impl crate::watch::Strategy + 'static,
    mechanism: Mechanism,
) -> Keeper {
    Keeper { profiler: Box::new(profiler), strategy: Box::new(strategy), mechanism, births: Vec::new() }
}

fn hm(setting: Setting, parts: Parts, view: View) -> Keeper {
    let strategy = Flat::new(setting.promoted, view);
    keeper(Regions::new(setting, parts), strategy, Mechanism::Adaptive)
}

fn balancing(profiler: impl Profiler + 'static, rule: Rule, setting: Setting) -> Keeper {
    keeper(profiler, Balancing::new(rule, setting.pages, setting.seed), Mechanism::MovePages)
}

fn ours(setting: Setting, source: Source, mechanism: Mechanism) -> Keeper {
    keeper(Segments::new(setting, source), Benefit::new(setting.pages), mechanism)
}

/// Every policy, ours first.
pub static ALL: [System; 11] = [
    System {
        name: "tiercel",
        about: "ours: runs of pages by a test on counts, moved while it pays; accesses that the processor picks",
        wire: |setting, _| ours(setting, Source::Samples, Mechanism::Rounds(3)),
    },
    System {
        name: "tiercel-bits",
        about: "ours on accessed bits, where no processor picks accesses",
        wire: |setting, _| ours(setting, Source::Bits, Mechanism::Rounds(3)),
    },
    System {
        name: "hm-keeper",
        about: "spans that merge and split by sampled hotness; N bytes an interval to the fastest tier",
        wire: |setting, _| hm(setting, Parts::All, View::Flat),
    },
    System {
        name: "first-touch",
        about: "pages stay where they were first touched",
        wire: |_, _| keeper(Blind, Stay, Mechanism::MovePages),
    },
    System {
        name: MEMORY_MODE,
        about: "DRAM as a direct-mapped cache",
        wire: |_, _| keeper(Blind, Stay, Mechanism::MovePages),
    },
    System {
        name: "autonuma",
        about: "pages that fault come to the program's socket",
        wire: |setting, _| balancing(Window::new(setting), Rule::AutoNuma, setting),
    },
    System {
        name: "memory-optimizer",
        about: "pages by chance, between the two kinds of one socket",
        wire: |setting, _| balancing(Chance::new(setting), Rule::MemoryOptimizer, setting),
    },
    System {
        name: "memory-tiering",
        about: "pages that fault, tier by tier",
        wire: |setting, _| balancing(Window::new(setting), Rule::MemoryTiering, setting),
    },
    System {
        name: "autotiering",
        about: "pages that fault go to the fastest tier with room or change places",
        wire: |setting, _| balancing(Window::new(setting), Rule::AutoTiering, setting),
    },
    System {
        name: "hemem",
        about: "spans with enough counted accesses, between DRAM and one slower tier",
        wire: |setting, tiers| Keeper {
            births: {
                let slow = Pools::slow(tiers);
                std::iter::once(0)
                    .chain([slow])
                    .chain((1..tiers.len() as u8).filter(|t| *t != slow))
                    .collect()
            },
            // 10 GB/s.
            ..keeper(
                Counters::new(setting),
                Pools::hemem(tiers, setting.promoted.saturating_mul(500)),
                Mechanism::Rounds(0),
            )
        },
    },
    System {
        name: "damon",
        about: "regions with one sampled page, split by chance; hot ones are promoted",
        wire: |setting, tiers| {
            keeper(Damon::new(setting), Pools::damon(tiers, setting.promoted), Mechanism::MovePages)
        },
    },
];

/// Parts of hm-keeper taken away or replaced, for Sections 8.8.3 to 8.8.5, and ours with older parts.
pub static VARIANTS: [System; 14] = [
    System {
        name: "hm-keeper, fixed regions",
        about: "no merging and splitting",
        wire: |setting, _| hm(setting, Parts::FixedRegions, View::Flat),
    },
    System {
        name: "hm-keeper, blind samples",
        about: "samples that merging saved go anywhere",
        wire: |setting, _| hm(setting, Parts::BlindSamples, View::Flat),
    },
    System {
        name: "hm-keeper, no limit",
        about: "a sample in every span, whatever it costs",
        wire: |setting, _| hm(setting, Parts::Unlimited, View::Flat),
    },
    System {
        name: "hm-keeper, hierarchical",
        about: "a tier at a time",
        wire: |setting, _| hm(setting, Parts::All, View::Hierarchical),
    },
    System {
        name: "hm-keeper, window",
        about: "the profiling of Memory-tiering",
        wire: |setting, _| {
            keeper(Window::new(setting), Flat::new(setting.promoted, View::Flat), Mechanism::Adaptive)
        },
    },
    System {
        name: "hm-keeper, thermostat",
        about: "the profiling of Thermostat",
        wire: |setting, _| {
            keeper(Thermostat::new(setting), Flat::new(setting.promoted, View::Flat), Mechanism::Adaptive)
        },
    },
    System {
        name: "hm-keeper, move_pages",
        about: "copies as move_pages makes them",
        wire: |setting, _| {
            let strategy = Flat::new(setting.promoted, View::Flat);
            keeper(Regions::new(setting, Parts::All), strategy, Mechanism::MovePages)
        },
    },
    System {
        name: "hm-keeper, nimble",
        about: "copies as Nimble makes them",
        wire: |setting, _| {
            let strategy = Flat::new(setting.promoted, View::Flat);
            keeper(Regions::new(setting, Parts::All), strategy, Mechanism::Nimble)
        },
    },
    System {
        name: "tiercel, adaptive copies",
        about: "ours with hm-keeper's way of copying",
        wire: |setting, _| ours(setting, Source::Samples, Mechanism::Adaptive),
    },
    System {
        name: "tiercel, regions",
        about: "our strategy on hm-keeper's profiler",
        wire: |setting, _| {
            keeper(Regions::new(setting, Parts::All), Benefit::new(setting.pages), Mechanism::Rounds(3))
        },
    },
    System {
        name: "tiercel, constant n",
        about: "hm-keeper's strategy on our profiler",
        wire: |setting, _| {
            let strategy = Flat::new(setting.promoted, View::Flat);
            keeper(Segments::new(setting, Source::Samples), strategy, Mechanism::Rounds(3))
        },
    },
    System {
        name: "tiercel, restless",
        about: "ours without damping: pages that just moved move again as easily",
        wire: |setting, _| {
            let strategy = Benefit::with(setting.pages, benefit::Parts::Restless);
            keeper(Segments::new(setting, Source::Samples), strategy, Mechanism::Rounds(3))
        },
    },
    System {
        name: "tiercel, latency alone",
        about: "ours without the load of tiers",
        wire: |setting, _| {
            let strategy = Benefit::with(setting.pages, benefit::Parts::Unloaded);
            keeper(Segments::new(setting, Source::Samples), strategy, Mechanism::Rounds(3))
        },
    },
    System {
        name: "tiercel, unsparing",
        about: "ours with the whole limit on profiling used in every interval",
        wire: |setting, _| {
            let profiler = Segments::unsparing(setting, Source::Samples);
            keeper(profiler, Benefit::new(setting.pages), Mechanism::Rounds(3))
        },
    },
];

/// The policy of this name.
pub fn named(name: &str) -> Option<&'static System> {
    ALL.iter().chain(&VARIANTS).find(|system| system.name == name)
}
