//! `tiercel train`: trains a network on this machine's memory with real arithmetic.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tiercel_core::{Backing, Bytes, Machine, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_systems::{DEFAULT, Fast, Options, named};
use tiercel_train::data::{self, Idx, Pictures};
use tiercel_train::{
    Data, Images, Lesson, Schedule, Settings, Synthetic, Task, Text, Trainer, checkpoint, room, with_rate,
};
use tiercel_workload::{Lifetimes, Program, Workload, nets, open};

use crate::amounts::{self, count, duration};
use crate::answer::Answer;
use crate::figures::counted;
use crate::outcome::Outcome;
use crate::sizes::Sizes;
use crate::trial::Trial;
use crate::wired::{self, Wired, emulated};
use crate::{Failure, files, machine, staged};

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

    /// Whether nothing was chosen that makes it another job than the main one.
    fn is_trial(&self) -> bool {
        self.net.is_none() && self.system.is_none() && self.checkpoint.is_none() && self.epochs.is_none()
    }
}

/// The main job: all systems side by side.
fn trial(arguments: &Arguments, threads: usize) -> anyhow::Result<String> {
    if arguments.iterations == Some(0) {
        return Err("--iterations 0: systems are compared by at least 1 iteration".to_string());
    }
    let source = Source::open(arguments)?;
    let sizes = (arguments.sizes.batch.or(Some(TRIAL_BATCH)), arguments.sizes.image.or(Some(TRIAL_IMAGE)));
    let (program, batch) = program(arguments, sizes, &source)?;
    Trial {
        net: arguments.net(),
        program,
        batch,
        machine: &|task| {
            let peak = Lifetimes::new(&task.training.trace).peak().1;
            machine::as_probed(machine(arguments, task, peak)?)
        },
        data: &|| Source::open(arguments)?.data(),
        iterations: arguments.iterations.unwrap_or(TRIAL_ITERATIONS).min(1_000_000) as u32,
        learning: trial_learning(arguments)?,
        threads,
        seed: arguments.answer.seed,
        html: arguments.html.as_deref().unwrap_or(Path::new("report.html")),
        json: arguments.answer.json,
    }
    .run()
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
pub fn run(arguments: &Arguments) -> Result<String, Failure> {
    let threads = arguments.threads.unwrap_or_else(staged::cores);
    if arguments.is_trial() {
        files::end_when_interrupted();
        return Ok(trial(arguments, threads)?);
    }
    if arguments.html.is_some() {
        let message = "--html is for the page that compares systems; that is made where no network, no --system, no \
                       --epochs and no --checkpoint is given";
        return Err(Failure::usage(message.to_string()));
    }
    if let Some(path) = &arguments.checkpoint {
        files::check(path)?;
        if path.exists() && !arguments.resume {
            return Err(Failure::from(format!(
                "--checkpoint: `{}` exists; --resume goes on from it, another name starts anew beside it",
                path.display()
            )));
        }
    }
    watch_for_interrupts()?;
    let (text, interrupted) = alone(arguments, threads)?;
    match interrupted {
        Some(message) => Err(Failure { message, status: 130, out: Some(text) }),
        None => Ok(text),
    }
}

/// One network under one system: what there is to print, and where somebody interrupted, how far it came.
fn alone(arguments: &Arguments, threads: usize) -> anyhow::Result<(String, Option<String>)> {
    let system = named(arguments.system())?;
    let source = Source::open(arguments)?;
    let task = task(arguments, &source, threads)?;
    let peak = Lifetimes::new(&task.training.trace).peak().1;
    let machine = machine(arguments, &task, peak)?;
    let batch = task.batch.max(1);
    let data = source.data()?;
    task.check(data.as_ref())?;
    let epoch = data.samples(data::Split::Train).map(|samples| samples.div_ceil(batch).max(1));
    let until = match (arguments.iterations, arguments.epochs, epoch) {
        (Some(iterations), ..) => iterations,
        (None, epochs, Some(epoch)) => epochs.unwrap_or(5).saturating_mul(epoch),
        (None, Some(_), None) => return Err("synthetic data has no epochs; give --iterations".to_string()),
        (None, None, None) => 10,
    };
    let schedule = schedule(&arguments.schedule, until)?;
    let options = Options {
        time: arguments.time,
        lookahead: arguments.lookahead.map(|kernels| kernels as usize),
        seed: arguments.answer.seed,
        ..Options::default()
    };
    let Wired { task, machine, prepared, outlook } = Wired::plan(system, &task, machine, threads, options)?;
    let settings = Settings { seed: arguments.answer.seed, schedule, lookahead: 0 };
    let mut trainer = wired::trainer(&task, &machine, prepared, data, settings, threads)?;

    let resumed = resume(arguments, &mut trainer, schedule)?;
    let (lessons, interrupted) = learn(arguments, &mut trainer, until)?;
    let saved = match &arguments.checkpoint {
        Some(path) => trainer.save(path).map(|()| Some(path.display().to_string())),
        None => Ok(None),
    };
    let saved = saved?;
    let score = if interrupted { Ok(None) } else { trainer.evaluate() };
    let outcome = Outcome {
        net: arguments.net().to_string(),
        batch,
        dtype: arguments.sizes.dtype(),
        data: trainer.about_data(),
        system: arguments.system().to_string(),
        threads,
        seed: trainer.seed(),
        peak,
        fast: machine.tier(TierId(0)).capacity,
        slow: machine.tier(TierId(1)).backing.to_string(),
        emulated: emulated(&trainer, &machine),
        outlook,
        lessons,
        totals: trainer.totals().clone(),
        score: score?,
        hash: trainer.digest()?,
        resumed,
        interrupted,
        checkpoint: saved,
    };
    let text = if arguments.answer.json { format!("{:#}\n", outcome.document()) } else { outcome.table() };
    let said = || format!("interrupted after {} of {until} iterations", trainer.iteration());
    Ok((text, interrupted.then(said)))
}

/// The data, before it is known whether it fits.
enum Source {
    Synthetic,
    Images(Box<Images>),
    Text(Text),
}

impl Source {
    fn open(arguments: &Arguments) -> anyhow::Result<Source> {
        let images = arguments.is_trial() || matches!(arguments.net(), "cnn" | "mlp");
        let own = if images { "digits" } else { "synthetic" };
        match arguments.data.as_deref().unwrap_or(own) {
            "synthetic" => Ok(Source::Synthetic),
            "digits" => Ok(Source::Images(Box::new(digits()?))),
            path => {
                let path = PathBuf::from(path);
                let opened = if path.is_dir() {
                    Images::open(&path).map(|images| Source::Images(Box::new(images)))
                } else {
                    Text::open(&path).map(Source::Text)
                };
                opened
            }
        }
    }

    fn data(self) -> anyhow::Result<Box<dyn Data>> {
        Ok(match self {
            Source::Synthetic => Box::new(Synthetic),
            Source::Images(images) => images,
            Source::Text(text) => Box::new(text),
        })
    }
}

/// The digits that come with Tiercel (see data/README.md).
fn digits() -> anyhow::Result<Images> {
    let pictures = |images: &[u8], labels: &[u8]| {
        let images = Idx::parse(images, 3)?;
        let labels = Idx::parse(labels, 1)?;
        Pictures::new(images.dims[1], images.dims[2], images.bytes, labels.bytes)
    };
    macro_rules! file {
        ($name:literal) => {
            include_bytes!(concat!("../../../data/digits/", $name))
        };
    }
    let train = pictures(file!("train-images-idx3-ubyte"), file!("train-labels-idx1-ubyte"))?;
    let test = pictures(file!("t10k-images-idx3-ubyte"), file!("t10k-labels-idx1-ubyte"))?;
    Images::new("digits", train, test)
}

/// The network with everything that was chosen, ready for the kernels.
fn task(arguments: &Arguments, source: &Source, threads: usize) -> anyhow::Result<Task> {
    let (program, batch) = program(arguments, (arguments.sizes.batch, arguments.sizes.image), source)?;
    Ok(Task::new(program, batch, |program| prepare(program, threads)))
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
    let options = nets::Options {
        batch,
        image: side.or(image),
        words: matches!(source, Source::Text(_)).then_some(Text::WORDS),
        ..arguments.sizes.options()
    };
    let workload = open(arguments.net(), &options)?;
    let Workload::Program { mut program, batch } = workload else {
        bail!(
            "{}: a trace says what is computed on, not how; give a network",
            arguments.net()
        );
    };
    let usual = arguments.is_trial().then_some(TRIAL_RATE);
    if let Some(rate) = arguments.lr.or(usual) {
        program = with_rate(program, rate);
    }
    Ok((program, batch))
}

/// A fast tier of the size that was asked for, and a slow one that holds everything.
fn machine(arguments: &Arguments, task: &Task, peak: Bytes) -> anyhow::Result<Machine> {
    let trace = &task.training.trace;
    let asked = arguments.fast.unwrap_or(Fast::Share(0.2));
    let machine = room::machine(trace, peak, arguments.slow.clone());
    let whole = match arguments.fast {
        Some(Fast::All) => room::ample(trace, Bytes::kib(4)),
        None if arguments.system() == "fast-only" => room::ample(trace, Bytes::kib(4)),
        _ => asked.bytes(peak, machine.grain()),
    };
    let machine = machine.with_capacity(TierId(0), whole);
    let programs = [Some(&task.training), task.evaluation.as_ref()];
    let largest = programs
        .into_iter()
        .flatten()
        .map(|program| (program, room::working_set(&program.trace, machine.grain())));
    if let Some((program, (step, least))) = largest.max_by_key(|(_, (_, bytes))| *bytes)
        && least > whole
        && !machine.tier(TierId(1)).computable
    {
        bail!(
            "--fast {asked}: {whole} of fast memory is too little: kernels cannot work on {}, and {} works on {least} at once; \
             --fast {}KiB would do",
            machine.tier(TierId(1)).backing,
            program.node(step).name,
            least.0.div_ceil(1024)
        );
    }
    Ok(machine)
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
    whole.parse().map_err(|error| format!("--schedule: {error}"))
}

/// A schedule that will do when it is known how long the run is.
fn plausible(text: &str) -> anyhow::Result<String> {
    let end = format!(":{}", u64::MAX);
    let tidied = |error: String| error.replace("--schedule: ", "").replace(&end, "");
    schedule(text, u64::MAX).map(|_| text.to_string()).map_err(tidied)
}

/// Goes on from the checkpoint, where that was asked for and there is one.
fn resume(
    arguments: &Arguments,
    trainer: &mut Trainer<'_, Library>,
    schedule: Schedule,
) -> anyhow::Result<Option<u64>> {
    let Some(path) = &arguments.checkpoint else { return Ok(None) };
    checkpoint::tidy(path)?;
    if !arguments.resume || !path.exists() {
        return Ok(None);
    }
    let progress = trainer.resume(path)?;
    if progress.schedule != schedule.to_string() {
        eprintln!(
            "tiercel: the checkpoint was written under schedule {}; going on with {schedule}",
            progress.schedule
        );
    }
    // The seed is 0 where nobody asked for one.
    let asked = arguments.answer.seed;
    if asked != 0 && asked != progress.seed {
        eprintln!(
            "tiercel: the checkpoint was written under seed {}; going on with that, not {asked}",
            progress.seed
        );
    }
    Ok(Some(progress.iteration))
}

/// Whether somebody wants the run to end.
static STOP: AtomicBool = AtomicBool::new(false);

/// Whether there is something to end well: an iteration that is being learnt from.
static LEARNING: AtomicBool = AtomicBool::new(false);

/// From now on an interrupt ends the program; once it learns, it ends after the iteration, and a second interrupt does not
/// wait for that.
fn watch_for_interrupts() -> anyhow::Result<()> {
    let handler = || {
        let learning = LEARNING.load(Ordering::SeqCst);
        if !learning || STOP.swap(true, Ordering::SeqCst) {
            tiercel_run::files::discard();
            if learning {
                eprintln!(
                    "tiercel: interrupted twice: ended within an iteration, the last whole checkpoint stays"
                );
            }
            std::process::exit(130);
        }
    };
    ctrlc::set_handler(handler).map_err(|error| format!("cannot watch for interrupts: {error}"))
}

/// Trains until enough iterations are done, or somebody wants it to end.
fn learn(
    arguments: &Arguments,
    trainer: &mut Trainer<'_, Library>,
    until: u64,
) -> anyhow::Result<(Vec<Lesson>, bool)> {
    LEARNING.store(true, Ordering::SeqCst);
    let mut bar = Bar::new(until);
    let mut lessons = Vec::new();
    while trainer.iteration() < until && !STOP.load(Ordering::SeqCst) {
        let lesson = trainer.iterate()?;
        bar.show(trainer.iteration(), lesson.loss);
        lessons.push(lesson);
        if let (Some(every), Some(path)) = (arguments.every, &arguments.checkpoint)
            && trainer.iteration().is_multiple_of(every)
            && trainer.iteration() < until
        {
            trainer.save(path)?;
        }
    }
    bar.clear();
    let interrupted = trainer.iteration() < until;
    Ok((lessons, interrupted))
}

/// A progress bar for runs that somebody may be waiting for: a terminal is there, and two seconds have passed.
struct Bar {
    until: u64,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(until: u64) -> Bar {
        Bar { until, started: Instant::now(), bar: None }
    }

    fn show(&mut self, done: u64, loss: f32) {
        if self.bar.is_none() {
            if !std::io::stderr().is_terminal() || self.started.elapsed() < Duration::from_secs(2) {
                return;
            }
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  loss {msg}  {eta} left");
            let bar = ProgressBar::new(self.until);
            self.bar = Some(style.map_or(bar.clone(), |style| bar.with_style(style)));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(format!("{loss:.4}"));
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
