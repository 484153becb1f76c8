//! Published systems and baselines, each a short wiring of shared parts, and the one way to simulate them.
//!
//! A *system* is what a user chooses by name: it may plan ahead, needs a few iterations to learn, and ends as a policy.
//! [`ALL`] lists them; [`System::prepare`] wires one up for a trace and a machine; [`simulate`] plays it. Verbs that run,
//! compare and reproduce all come through here, so their figures agree.
//!
//! ```
//! use tiercel_core::Nanos;
//! use tiercel_profile::{Model, machines};
//! use tiercel_systems::{Fast, Options, Setting, Times, named, simulate};
//! use tiercel_workload::nets;
//!
//! let trace = nets::find("resnet32").expect("a built-in network").build(&nets::NetOptions::default())?.trace;
//! let machine = machines::named("optane-autotm")?;
//! let times = Times::new(Model::new(&machine)?);
//! let machine = Fast::Share(0.2).machine(&trace, &machine);
//! let setting = Setting::new(&trace, &machine, &times);
//! let run = simulate(named("cachedarrays-lm")?, &setting, 3)?;
//! assert_eq!(run.iterations.len(), 3);
//! assert!(run.time() > Nanos::ZERO);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `lib.rs` | the list of all systems, and what it takes to prepare one |
//! | `simulate.rs` | the one way to simulate a system, so that all verbs agree |
//! | `planning.rs` | from a planner to a policy: the one place that knows the planners |
//! | `tiercel.rs` | Tiercel's own system: what is tried and in which order |
//! | `tiercel/` | the best alternative so far; what to compute again |
//! | `autotm.rs`, `cachedarrays.rs`, `sentinel.rs`, `redl.rs`, `swaps.rs`, `pages.rs`, `memory_mode.rs`, `fixed.rs` | the wiring of published systems and baselines |
//! | `fast.rs` | how much fast memory |
//! | `compare.rs` | many simulations over all cores |
//! | `parallel.rs` | independent jobs over all cores |
//! | `curve.rs` | what fast memory is worth, and the least that is enough |
//! | `warm_starts.rs` | what planning with one amount of memory teaches for the next |
//! | `reproduce/` | the papers' figures as data, beside ours, each with its verdict |
//! | `zero/` | ZeRO-Offload on paper: where states lie, how large a model, how long a step |

mod autotm;
mod cachedarrays;
pub mod compare;
mod copiers;
pub mod curve;
mod fast;
mod fixed;
mod lookahead;
mod memory_mode;
mod pages;
mod parallel;
pub mod planning;
mod redl;
pub mod reproduce;
mod sentinel;
mod simulate;
mod split;
mod swaps;
mod tiercel;
mod warm_starts;
pub mod zero;

use std::sync::Arc;
use std::time::Duration;

use tiercel_core::{Bytes, CopyThreads, Machine, Nanos, Policy, TierId, Traffic};
use tiercel_plan::{Flaw, Implementation, PlanError};
use tiercel_sim::KernelTime;
use tiercel_workload::{Kernel, Program, Trace, spelling};

use copiers::Copies;
pub use fast::{Fast, FastError};
pub use lookahead::with_best_lookahead;
pub use parallel::each;
pub use planning::Planned;
pub use simulate::{Recording, Run, predict, simulate, simulate_prepared, simulate_recorded};
pub use split::Split;
pub use warm_starts::WarmStarts;

/// The system that is used where none is named.
pub const DEFAULT: &str = "tiercel";

/// Every system, in the order in which tables list them: a new one joins with a line here and a file of its own.
pub static ALL: [System; 18] = [
    fixed::FAST_ONLY,
    fixed::SLOW_ONLY,
    fixed::FIRST_TOUCH,
    memory_mode::MEMORY_MODE,
    cachedarrays::NONE,
    cachedarrays::L,
    cachedarrays::LM,
    cachedarrays::LMP,
    autotm::STATIC,
    autotm::SYNC,
    autotm::ASYNC,
    sentinel::SENTINEL,
    redl::REDL,
    pages::IAL,
    pages::UNIFIED_MEMORY,
    swaps::VDNN,
    swaps::CAPUCHIN,
    tiercel::TIERCEL,
];

/// One system: what it is called, what it is, and how it is wired.
#[derive(Clone, Copy)]
pub struct System {
    /// The name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Where it was published.
    pub paper: &'static str,
    /// The memory that it is given.
    pub(crate) allowance: Allowance,
    /// When it copies.
    pub(crate) copies: Copies,
    /// Whether it does better or worse with how many kernels ahead it hears what comes.
    pub(crate) hears_ahead: bool,
    /// Whether it plans ahead, for which it must know how long kernels take.
    pub plans: bool,
    pub(crate) prepare: fn(&Setting<'_>) -> Result<Prepared, SystemError>,
}

/// How much memory a system is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// What the machine has.
    Given,
    /// A fastest tier that holds everything: the goal that others are measured against.
    AllFast,
    /// A slowest tier that holds everything: the other end.
    AllSlow,
}

/// What a system is set up for.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// What runs.
    pub trace: &'a Trace,
    /// The program behind the trace, where there is one: a system may rewrite it, and what comes of it has the workspace
    /// that this one has.
    pub program: Option<&'a Program>,
    /// What it runs on; the fastest tier's capacity is what the system may use of it.
    pub machine: &'a Machine,
    /// How long kernels take.
    pub times: &'a Times,
    /// What can be chosen.
    pub options: Options,
    /// What planners have learned of the same with other amounts of fast memory, and add to; nothing where every plan is to
    /// stand for itself.
    pub warm_starts: Option<&'a WarmStarts>,
}

impl<'a> Setting<'a> {
    /// A trace on a machine, with the usual choices.
    pub fn new(trace: &'a Trace, machine: &'a Machine, times: &'a Times) -> Setting<'a> {
        Setting { trace, program: None, machine, times, options: Options::default(), warm_starts: None }
    }

    /// A program, which a system may rewrite.
    pub fn of(program: &'a Program, machine: &'a Machine, times: &'a Times) -> Setting<'a> {
        Setting { program: Some(program), ..Setting::new(&program.trace, machine, times) }
    }

    /// The same with other choices.
    pub fn with(self, options: Options) -> Setting<'a> {
        Setting { options, ..self }
    }
}

/// What can be chosen of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// For planners: the gap between plan and bound that is good enough.
    pub gap: f64,
    /// For planners: the time after which the best plan so far is taken.
    pub time: Duration,
    /// For planners: the rounds of search after which it is, however fast the machine is.
    pub rounds: u32,
    /// How many kernels ahead the policy hears what comes; the system's own choice where absent.
    pub lookahead: Option<usize>,
    /// For Tiercel's own system: what may be done with what does not fit.
    pub choices: Choices,
    /// What everything random follows from.
    pub seed: u64,
}

/// What may be done with tensors that do not fit into fast memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choices {
    /// They are moved.
    Move,
    /// Activations are dropped and computed again; nothing moves.
    Recompute,
    /// Whichever is better for each.
    #[default]
    Both,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            gap: 0.01,
            time: Duration::from_secs(10),
            rounds: u32::MAX,
            lookahead: None,
            choices: Choices::Both,
            seed: 0,
        }
    }
}

/// A system that is ready to run.
pub struct Prepared {
    /// Who decides.
    pub policy: Box<dyn Policy>,
    /// Iterations in which it still learns, and which no figure should count.
    pub warmup: u32,
    /// How many kernels ahead the policy hears what comes.
    pub lookahead: usize,
    /// The threads that copy in each direction, where it chose them.
    pub copy_threads: Vec<CopyThreads>,
    /// What it decided ahead of time, where it did.
    pub planned: Option<Planned>,
    /// The program that it runs instead of the one that it was given: one that computes the same, with some of it
    /// computed again, or weights updated early.
    pub rewritten: Option<Arc<Program>>,
    /// The trace that it runs instead of the one that it was given: the same, with implementations chosen.
    pub implemented: Option<Arc<Trace>>,
}

impl Prepared {
    /// The machine with the copy threads that were chosen.
    pub fn staffed(&self, machine: &Machine) -> Machine {
        machine.clone().staffed(&self.copy_threads)
    }

    /// A policy as it is.
    pub fn plain(policy: Box<dyn Policy>) -> Prepared {
        let copy_threads = Vec::new();
        let (planned, rewritten, implemented) = (None, None, None);
        Prepared { policy, warmup: 1, lookahead: 0, copy_threads, planned, rewritten, implemented }
    }

    /// A policy that needs one iteration until memory looks as it does at the start of every later one.
    pub(crate) fn policy(policy: impl Policy + 'static) -> Prepared {
        Prepared::plain(Box::new(policy))
    }
}

/// How long kernels take, shared by everybody who asks.
#[derive(Clone)]
pub struct Times(Arc<dyn KernelTime + Send + Sync>);

impl Times {
    /// Times from any source.
    pub fn new(times: impl KernelTime + Send + Sync + 'static) -> Times {
        Times(Arc::new(times))
    }
}

impl KernelTime for Times {
    fn time(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos {
        self.0.time(machine, kernel, tiers)
    }

    fn cached(&self, machine: &Machine, kernel: &Kernel, traffic: &[Traffic]) -> Nanos {
        self.0.cached(machine, kernel, traffic)
    }
}

/// Why a system cannot do what was asked of it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SystemError {
    /// No system has this name.
    #[error("no system `{name}`; {}", .nearest.map_or_else(known, |n| format!("did you mean `{n}`?")))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The system whose name is most like it.
        nearest: Option<&'static str>,
    },
    /// There is nothing to plan.
    #[error("{system}: {error}")]
    Problem {
        /// The system.
        system: &'static str,
        /// Why not.
        error: PlanError,
    },
    /// A plan chooses an implementation that the trace does not offer.
    #[error("the plan has kernel `{}` (step {}) run as `{}`, which the trace does not offer", .0.kernel, .0.step, .0.name)]
    Implementation(Implementation),
    /// No plan was found.
    #[error("{system}: found no plan that keeps to {limit} of {tier}")]
    NoPlan {
        /// The system.
        system: &'static str,
        /// The fastest tier.
        tier: String,
        /// What there is of it.
        limit: Bytes,
    },
    /// The plan must not run.
    #[error("the plan does not fit: {0}")]
    Flaw(Box<Flaw>),
    /// An iteration failed.
    #[error("{system}{}: {error}", .kernel.as_ref().map(|k| format!(", kernel {k}")).unwrap_or_default())]
    Run {
        /// The system.
        system: String,
        /// The kernel, where it was one.
        kernel: Option<String>,
        /// What went wrong.
        error: Box<tiercel_core::Error>,
    },
}

impl From<Flaw> for SystemError {
    fn from(flaw: Flaw) -> SystemError {
        SystemError::Flaw(Box::new(flaw))
    }
}

fn known() -> String {
    format!("there are {}", ALL.map(|system| system.name).join(", "))
}

/// The system of this name.
pub fn named(name: &str) -> Result<&'static System, SystemError> {
    ALL.iter().find(|system| system.name == name).ok_or_else(|| {
        let nearest = spelling::nearest(name, ALL.iter().map(|system| system.name));
        SystemError::Unknown { name: name.to_string(), nearest }
    })
}

impl System {
    /// Wires the system up: plans where it plans ahead, and hands over its policy.
    pub fn prepare(&self, setting: &Setting<'_>) -> Result<Prepared, SystemError> {
        let mut prepared = copiers::prepare(self, setting)?;
        prepared.lookahead = setting.options.lookahead.unwrap_or(prepared.lookahead);
        Ok(prepared)
    }

    /// The machine that the system is given: the one asked for, unless the system stands for having all memory fast
    /// or all memory slow.
    pub fn machine(&self, trace: &Trace, machine: &Machine) -> Machine {
        let ample = tiercel_train::room::ample(trace, machine.grain());
        match self.allowance {
            Allowance::Given => machine.clone(),
            Allowance::AllFast => machine.clone().with_capacity(TierId(0), ample),
            Allowance::AllSlow => {
                let slowest = machine.slowest();
                let capacity = machine.tier(slowest).capacity.max(ample);
                machine.clone().with_capacity(slowest, capacity)
            }
        }
    }

    /// Whether it is the same however much fast memory there is.
    pub fn ignores_fast(&self) -> bool {
        self.allowance == Allowance::AllFast
    }
}
