//! `tiercel train`: trains a network on this machine's memory with real arithmetic.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tiercel_core::Backing;
use tiercel_session::trial::Trial;
use tiercel_session::{Checkpointing, Fast, Options, Source, Training, cores, machine};
use tiercel_systems::{DEFAULT, named};
use tiercel_train::data::Split;
use tiercel_train::{Schedule, Text, with_rate};
use tiercel_workload::{Lifetimes, Program, Workload, nets, open};

use crate::amounts::{self, count, duration};
use crate::answer::Answer;
use crate::failure::{Failure, told};
use crate::figures::counted;
use crate::sizes::Sizes;
use crate::terminal::{Terminal, watch_for_interrupts};
use crate::{files, outcome, trial};

const EXAMPLES: &str = "\
Examples:
  tiercel train
      a small network on the digits that come with Tiercel, on a fifth of the fast memory that it wants: under Tiercel and
      beside other systems, with a page that shows what happened
  tiercel train resnet50 --batch 8 --image 64 --iterations 5 --slow file:/tmp --system cachedarrays-lmp --lookahead 4
      ResNet-50 on random images, with the disk as the slow memory";

/// Train a network on this machine's memory with real arithmetic, most of it in slow memory if need be.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A network (such as cnn, mlp, vgg16, resnet50, gpt2)
    #[arg(value_name = "NET")]
    net: Option<String>,
    /// What to learn from: `digits` (comes with Tiercel), `synthetic`, a folder of IDX files as MNIST has them, or a file of text
    #[arg(long, value_name = "DATA")]
    data: Option<String>,
    #[command(flatten)]
    sizes: Sizes,
    /// Train until so many iterations are done, those before a checkpoint included
    #[arg(long, value_name = "K", conflicts_with = "epochs", value_parser = count, allow_hyphen_values = true)]
    iterations: Option<u64>,
    /// Train until the data has been seen so many times [default: 5; 10 iterations on synthetic data]
    #[arg(long, value_name = "E", value_parser = count, allow_hyphen_values = true)]
    epochs: Option<u64>,
    /// Fast memory: a share of what training keeps in memory at its peak, or an amount [default: 20%; enough for fast-only]
    #[arg(long, value_name = "20%|8MiB", allow_hyphen_values = true)]
    fast: Option<Fast>,
    /// What is behind the slow tier: throttled (an emulation), dram, numa:N, dax:PATH or file:PATH
    #[arg(long, value_name = "BACKING", default_value = "throttled")]
    slow: Backing,
    /// Who decides where tensors live (`tiercel list` names them) [default: tiercel]
    #[arg(long, value_name = "S")]
    system: Option<String>,
    /// Where the page goes that compares the systems, when all are compared [default: report.html]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// For planners: the time after which the best plan so far is taken
    #[arg(long, value_name = "10s", default_value = "10s", value_parser = duration, allow_hyphen_values = true)]
    time: Duration,
    /// How many kernels ahead the policy hears what comes; the system's own choice unless set
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    lookahead: Option<u32>,
    /// Learning rate; each optimizer has its own default
    #[arg(long, value_name = "RATE", value_parser = amounts::rate, allow_hyphen_values = true)]
    lr: Option<f32>,
    /// The learning rate over time: constant, step:EVERY:FACTOR or cosine[:WARMUP[:ITERATIONS]], in iterations
    #[arg(long, value_name = "SCHEDULE", default_value = "constant", value_parser = plausible)]
    schedule: String,
    /// Write weights, optimizer state and progress to this file at the end (safetensors); one that exists takes --resume
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Write the checkpoint after every so many iterations too
    #[arg(long, value_name = "N", requires = "checkpoint", value_parser = clap::value_parser!(u64).range(1..), allow_hyphen_values = true)]
    every: Option<u64>,
    /// Go on from the checkpoint if it is there
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Threads that compute; results do not depend on them [default: one a core]
    #[arg(long, value_name = "N", value_parser = amounts::threads, allow_hyphen_values = true)]
    threads: Option<usize>,
    #[command(flatten)]
    answer: Answer,
}

impl Arguments {
    fn net(&self) -> &str {
        self.net.as_deref().unwrap_or(if self.is_trial() { TRIAL_NET } else { "cnn" })
    }

    fn system(&self) -> &str {
        self.system.as_deref().unwrap_or(DEFAULT)
    }

    /// How much fast memory there is: a fifth of what is wanted, or enough for the system that needs all.
    fn fast(&self) -> Fast {
        let usual = if self.system() == "fast-only" { Fast::All } else { Fast::Share(0.2) };
        self.fast.unwrap_or(usual)
    }

    /// What is learnt from: digits, for networks that take any picture.
    fn data(&self) -> &str {
        let images = self.is_trial() || matches!(self.net(), "cnn" | "mlp");
        self.data.as_deref().unwrap_or(if images { "digits" } else { "synthetic" })
    }

    /// Whether nothing was chosen that makes it another job than the main one.
    fn is_trial(&self) -> bool {
        self.net.is_none() && self.system.is_none() && self.checkpoint.is_none() && self.epochs.is_none()
    }
}

/// The main job: all systems side by side.
fn compared(arguments: &Arguments, threads: usize) -> anyhow::Result<String> {
    if arguments.iterations == Some(0) {
        bail!("--iterations 0: systems are compared by at least 1 iteration");
    }
    let (sizes, watch) = (&arguments.sizes, Terminal::new());
    let source = Source::open(arguments.data())?;
    let (program, batch) =
        program(arguments, (sizes.batch.or(Some(TRIAL_BATCH)), sizes.image.or(Some(TRIAL_IMAGE))), &source)?;
    let trial = Trial {
        net: arguments.net(),
        program,
        batch,
        machine: &|task| {
            let peak = Lifetimes::new(&task.training.trace).peak().1;
            let machine = machine::for_task(task, peak, arguments.fast(), arguments.slow.clone())?;
            machine::as_probed(machine, &*watch)
        },
        data: &|| Ok(Source::open(arguments.data())?.data()),
        iterations: arguments.iterations.unwrap_or(TRIAL_ITERATIONS).min(1_000_000) as u32,
        learning: trial_learning(arguments)?,
        threads,
        seed: arguments.answer.seed,
    };
    let html = arguments.html.as_deref().unwrap_or(Path::new("report.html"));
    trial::run(&trial, html, arguments.answer.json, &*watch)
}

/// A network that computes enough for copies to hide behind, and works on memory, not on the cache alone.
const TRIAL_NET: &str = "resnet32";
const TRIAL_BATCH: u64 = 64;
const TRIAL_IMAGE: u64 = 32;
const TRIAL_ITERATIONS: u64 = 5;

/// How long it is trained, and how: what it takes to know nearly all digits that it has not seen.
const TRIAL_UNTIL: u64 = 115;
const TRIAL_SCHEDULE: &str = "cosine:12";
const TRIAL_RATE: f32 = 0.05;

/// The iterations in which the network of the main job learns, and how its learning rate goes; none where a number of
/// iterations to compare was chosen, or other data.
fn trial_learning(arguments: &Arguments) -> anyhow::Result<Option<(u64, Schedule)>> {
    if arguments.iterations.is_some() || arguments.data.is_some() {
        return Ok(None);
    }
    let text = if arguments.schedule == "constant" { TRIAL_SCHEDULE } else { &arguments.schedule };
    Ok(Some((TRIAL_UNTIL, schedule(text, TRIAL_UNTIL)?)))
}

/// The text to print, or what is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<String> {
    let threads = arguments.threads.unwrap_or_else(cores);
    if arguments.is_trial() {
        files::end_when_interrupted();
        return compared(arguments, threads);
    }
    if arguments.html.is_some() {
        let message = "--html is for the page that compares systems; that is made where no network, no --system, no \
                       --epochs and no --checkpoint is given";
        return Err(Failure::usage(message).into());
    }
    if let Some(path) = &arguments.checkpoint {
        files::check(path)?;
        if path.exists() && !arguments.resume {
            bail!(
                "--checkpoint: `{}` exists; --resume goes on from it, another name starts anew beside it",
                path.display()
            );
        }
    }
    watch_for_interrupts()?;
    alone(arguments, threads)
}

/// One network under one system: what there is to print, also where somebody interrupted.
fn alone(arguments: &Arguments, threads: usize) -> anyhow::Result<String> {
    let system = named(arguments.system())?;
    let source = Source::open(arguments.data())?;
    let (program, batch) = program(arguments, (arguments.sizes.batch, arguments.sizes.image), &source)?;
    let data = source.data();
    let epoch = data.samples(Split::Train).map(|samples| samples.div_ceil(batch.max(1)).max(1));
    let until = match (arguments.iterations, arguments.epochs, epoch) {
        (Some(iterations), ..) => iterations,
        (None, epochs, Some(epoch)) => epochs.unwrap_or(5).saturating_mul(epoch),
        (None, Some(_), None) => bail!("synthetic data has no epochs; give --iterations"),
        (None, None, None) => 10,
    };
    let schedule = schedule(&arguments.schedule, until)?;
    let training = Training {
        net: arguments.net().to_string(),
        program,
        batch,
        fast: arguments.fast(),
        slow: arguments.slow.clone(),
        system,
        options: Options {
            time: arguments.time,
            lookahead: arguments.lookahead.map(|kernels| kernels as usize),
            seed: arguments.answer.seed,
            ..Options::default()
        },
        threads,
        checkpoint: arguments.checkpoint.clone().map(|path| Checkpointing {
            path,
            every: arguments.every,
            resume: arguments.resume,
        }),
    };
    let outcome = training.run(data, until, schedule, &*Terminal::new())?;
    let dtype = arguments.sizes.dtype();
    let text = match arguments.answer.json {
        true => format!("{:#}\n", outcome::document(&outcome, dtype)),
        false => outcome::table(&outcome, dtype),
    };
    if outcome.interrupted {
        let message = format!("interrupted after {} of {until} iterations", outcome.iterations);
        return Err(Failure::interrupted(message, Some(text)).into());
    }
    Ok(text)
}

/// The network with everything that was chosen, in sizes that fit the data, and its batch.
fn program(
    arguments: &Arguments,
    (batch, side): (Option<u64>, Option<u64>),
    source: &Source,
) -> anyhow::Result<(Program, u64)> {
    let image = match source {
        // Networks for photographs halve an image five times; a file knows its own size.
        Source::Images(images) => match arguments.net() {
            "cnn" | "mlp" => Some(images.side()),
            net => nets::find(net).map(|_| images.side().next_multiple_of(32)),
        },
        _ => None,
    };
    arguments.sizes.check(&[arguments.net()])?;
    let options = nets::NetOptions {
        batch,
        image: side.or(image),
        words: matches!(source, Source::Text(_)).then_some(Text::WORDS),
        ..arguments.sizes.options()
    };
    let workload = open(arguments.net(), &options)?;
    let Workload::Program { mut program, batch } = workload else {
        bail!("{}: a trace says what is computed on, not how; give a network", arguments.net());
    };
    let usual = arguments.is_trial().then_some(TRIAL_RATE);
    if let Some(rate) = arguments.lr.or(usual) {
        program = with_rate(program, rate);
    }
    Ok((program, batch))
}

/// A schedule of which the end may be left to the run.
fn schedule(text: &str, until: u64) -> anyhow::Result<Schedule> {
    let whole = match text.split(':').collect::<Vec<_>>()[..] {
        ["cosine"] => format!("cosine:0:{until}"),
        ["cosine", warmup] if warmup.parse().is_ok_and(|warmup: u64| warmup > until) => {
            let whole = counted(until, "iteration");
            bail!("--schedule {text}: the warm-up is longer than the run, which has {whole}");
        }
        ["cosine", warmup] => format!("cosine:{warmup}:{until}"),
        _ => text.to_string(),
    };
    whole.parse().context("--schedule")
}

/// A schedule that will do when it is known how long the run is.
fn plausible(text: &str) -> anyhow::Result<String> {
    let end = format!(":{}", u64::MAX);
    let tidied = |error| anyhow::Error::msg(told(&error).replace("--schedule: ", "").replace(&end, ""));
    schedule(text, u64::MAX).map(|_| text.to_string()).map_err(tidied)
}
