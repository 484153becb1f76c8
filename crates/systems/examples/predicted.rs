//! Predicted against measured: networks under every system on this machine's real memory, with slow memory that is
//! emulated and slow memory that is a file, beside what simulation said before.
//!
//!     cargo run --release -p tiercel-systems --example predicted [-- NET ...]
//!
//! What runs is what `tiercel train` runs: the program as the system rewrites it, in parts, with activations computed again
//! and weights updated early, in the same order of steps from survey to trainer.
//! The simulation knows the machine as it was probed and each kernel as it was measured alone, nothing of the run itself.
//! The machine is probed anew before every network, and its disk and the pace of its processor before every system: what others
//! use, too, is not what it was minutes ago.
//! Only iterations during which other programs left the processor alone count, the middle one of them; a row without any
//! says so, and tells the shortest.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use tiercel_core::{Backing, Bytes, Machine, Nanos, TierId};
use tiercel_kernels::{Library, prepare};
use tiercel_profile::measured::beside_measured_times;
use tiercel_profile::probe::{self, here, probe};
use tiercel_profile::quiet::{self, Others};
use tiercel_profile::{Kept, Survey};
use tiercel_systems::{ALL, Fast, Options, Setting, System, Times, predict};
use tiercel_train::{Settings, Synthetic, Task, Trainer, room};
use tiercel_workload::nets;

/// The networks, in sizes that take a part of a second: a name, the batch, the side of images.
const NETS: [(&str, u64, Option<u64>); 3] = [("cnn", 128, None), ("resnet32", 32, None), ("mlp", 256, None)];

/// Iterations that count.
const ITERATIONS: usize = 6;

/// How long a system is given to find quiet.
const PATIENCE: Duration = Duration::from_secs(6);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let folder = here::folder();
    std::fs::create_dir_all(&folder)?;
    println!(
        "{:<10} {:<10} {:<18} {:>10} {:>10} {:>8}",
        "slow", "net", "system", "predicted", "measured", "error"
    );
    let mut rows: Vec<Row> = Vec::new();
    for slow in [Backing::Throttled, Backing::File(folder.display().to_string())] {
        let kind = if slow == Backing::Throttled { "throttled" } else { "file" };
        for (net, batch, image) in NETS {
            if !wanted.is_empty() && !wanted.iter().any(|name| name == net) {
                continue;
            }
            let machine = probe(&probe::Settings { slow: Some(slow.clone()) }, |_| ())?.machine;
            let options = nets::NetOptions { batch: Some(batch), image, ..nets::NetOptions::default() };
            let program = nets::find(net).ok_or("no such network")?.build(&options)?;
            let task = Task::new(program, batch, |program| prepare(program, threads));
            let survey = Survey::new(&task.training, &machine, threads).again(true);
            let (kept, known) = kernels(&survey, threads)?;
            for system in &ALL {
                let machine = probe::again(&machine)?;
                let times = Times::new(survey.times(&kept).paced(&machine, survey.pace(&kept)?));
                match play(system, &task, &machine, &times, threads) {
                    Ok((predicted, measured, calm)) => {
                        let error = predicted.0 as f64 / measured.0.max(1) as f64 - 1.0;
                        println!(
                            "{kind:<10} {net:<10} {:<18} {:>10} {:>10} {:>+6.1} %{}",
                            system.name,
                            predicted.to_string(),
                            measured.to_string(),
                            100.0 * error,
                            if calm { "" } else { "  (others were busy)" }
                        );
                        let what = format!("{} of {net} with {kind}", system.name);
                        rows.push(Row { error: error.abs(), what, calm: calm && known });
                    }
                    Err(why) => println!("{kind:<10} {net:<10} {:<18} {why}", system.name),
                }
            }
        }
    }
    summary("all rows", &rows.iter().collect::<Vec<_>>());
    summary("undisturbed", &rows.iter().filter(|row| row.calm).collect::<Vec<_>>());
    Ok(())
}

/// How far a prediction was off.
struct Row {
    error: f64,
    what: String,
    /// Whether neither the kernels' times nor the iterations were measured while others were busy.
    calm: bool,
}

fn summary(name: &str, rows: &[&Row]) {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| a.error.total_cmp(&b.error));
    if let (Some(median), Some(worst)) = (rows.get(rows.len() / 2), rows.last()) {
        let (median, most) = (100.0 * median.error, 100.0 * worst.error);
        println!(
            "{name}: {} with a median error of {median:.1} %, the worst {most:.1} % ({})",
            rows.len(),
            worst.what
        );
    }
}

/// How long the kernels take, measured where that is not known yet; and whether nobody was in the way of nine in ten of them.
fn kernels(survey: &Survey, threads: usize) -> Result<(Kept, bool), Failure> {
    let mut kept = Kept::open(threads);
    let started = Instant::now();
    survey.measure(&mut kept, || true)?;
    while survey.disturbed(&kept) > 0 && started.elapsed() < PATIENCE * 6 {
        quiet::wait(PATIENCE);
        survey.measure(&mut kept, || started.elapsed() < PATIENCE * 6)?;
    }
    let disturbed = survey.disturbed(&kept);
    if disturbed > 0 {
        println!("# {disturbed} of {} kernel times were measured while others were busy", survey.len());
    }
    Ok((kept, disturbed * 10 <= survey.len()))
}

/// A fifth of the peak in fast memory, or as much as the largest kernel needs where it cannot work elsewhere.
fn machine_for(system: &System, task: &Task, machine: &Machine) -> Machine {
    let trace = &task.training.trace;
    let slowest = machine.slowest();
    let mut fast = Fast::Share(0.2).bytes(tiercel_workload::Lifetimes::new(trace).peak().1, machine.grain());
    if !machine.tier(slowest).computable {
        let programs = [Some(&task.training), task.evaluation.as_ref()];
        let least = programs.into_iter().flatten().map(|p| room::working_set(&p.trace, machine.grain()).1);
        fast = fast
            .max(Bytes(least.max().unwrap_or_default().0 * 3 / 2))
            .round_up(machine.grain())
            .unwrap_or(fast);
    }
    let machine = machine.clone().with_capacity(TierId(0), fast);
    system.machine(trace, &machine.with_capacity(slowest, room::ample(trace, Bytes::kib(4))))
}

/// What was predicted of an iteration, what was measured, and whether no other program was in the way.
fn play(
    system: &System,
    task: &Task,
    machine: &Machine,
    times: &Times,
    threads: usize,
) -> Result<(Nanos, Nanos, bool), Failure> {
    let machine = machine_for(system, task, machine);
    let options = Options { time: Duration::from_secs(2), ..Options::default() };
    let model = beside_measured_times(&machine);
    let setting = Setting::of(&task.training, &model, times).with(options);
    let (predicted, mut prepared) = predict(system, &setting)?;
    let machine = prepared.staffed(&machine);
    let rewritten = prepared.rewritten.take();
    let task = rewritten.map_or(Cow::Borrowed(task), |program| Cow::Owned(task.played_as(program)));
    let settings = Settings { lookahead: prepared.lookahead, ..Settings::default() };
    let library = |program: &_| Library::new(program, threads);
    let mut trainer = Trainer::new(&task, &machine, prepared.policy, Box::new(Synthetic), settings, library)?;
    for _ in 0..predicted.warmup {
        trainer.iterate()?;
    }
    let (mut quiet, mut disturbed) = (Vec::new(), Vec::new());
    let started = Instant::now();
    while quiet.len() < ITERATIONS && started.elapsed() < PATIENCE {
        quiet::wait(PATIENCE.saturating_sub(started.elapsed()));
        // Several at a time: the system counts its time coarsely.
        let others = Others::since_now();
        let times =
            (0..3).map(|_| Ok(trainer.iterate()?.figures.time)).collect::<Result<Vec<_>, Failure>>()?;
        if others.share() <= quiet::LITTLE { &mut quiet } else { &mut disturbed }.extend(times);
    }
    let calm = !quiet.is_empty();
    let mut measured = if calm { quiet } else { disturbed };
    measured.sort_unstable();
    let at = if calm { measured.len() / 2 } else { 0 };
    Ok((predicted.time(), measured[at], calm))
}
