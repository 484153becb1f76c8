//! `tiercel keep --slow …`: DRAM and a disk, with the kernel's swap in between, or a library that is loaded into the program.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;
use tiercel_pages::real::KeepError;
use tiercel_pages::real::calls::Advice;
use tiercel_pages::real::kept::Kept;
use tiercel_pages::real::leftovers::Found;
use tiercel_pages::real::preload::Preloaded;
use tiercel_pages::real::session::{Event, Options, Session, Slow, State, Target};

use super::events::Events;
use super::top::{self, Top};
use super::{Arguments, interrupts, size};
use crate::failure::Failure;

/// How long a command has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn run(arguments: &Arguments, target: Target, slow: Slow) -> anyhow::Result<String> {
    let is_command = matches!(target, Target::Command(_));
    let options = Options {
        target,
        fast: arguments.fast.map_or(0, |fast| fast.0),
        slow,
        slow_bytes: arguments.slow_size.map(|size| size.0),
        overhead: arguments.overhead,
        steer: !arguments.unsteered,
        output_aside: arguments.answer.json,
    };
    let fast = options.fast;
    let asked = interrupts();
    let mut session = open(&options, arguments.mechanism.as_deref())?;
    for found in session.found() {
        eprintln!("tiercel: {}", left(found));
    }
    let mut events = Events::open(arguments.events.as_deref(), session.mechanism())?;
    let mut top = Top::new(arguments.top);
    let mut last = "nothing yet".to_string();
    let mut noted = Instant::now();
    let mut asked_at: Option<Instant> = None;
    let mut peak = State::default();
    let status = loop {
        session.step(&mut |event| {
            let (what, fields, text) = describe(&event);
            if let Event::Note(note) = &event {
                eprintln!("tiercel: {note}");
            }
            events.tell(what, fields);
            last = text;
        });
        if top.due() {
            top.draw(&top::lines(&session.state(top::PARTS), fast, arguments.overhead, &last));
        }
        if noted.elapsed() > Duration::from_secs(1) {
            let state = session.state(top::PARTS);
            events.tell("state", figures(&state));
            if arguments.events.is_some() {
                let map: Vec<[u64; 3]> = state.map.clone();
                events.tell("map", json!({"parts": map}));
            }
            if state.swapped >= peak.swapped {
                peak = state;
            }
            noted = Instant::now();
        }
        if let Some(status) = session.poll() {
            break status;
        }
        if asked.load(Ordering::Relaxed) > 0 {
            if !is_command {
                break None;
            }
            match asked_at {
                // A command in our terminal was interrupted as we were; it may want a moment to end by itself.
                None => asked_at = Some(Instant::now()),
                Some(at) if at.elapsed() > GRACE || asked.load(Ordering::Relaxed) > 1 => session.kill(),
                Some(at) if at.elapsed() > Duration::from_millis(500) => session.ask_to_end(),
                Some(_) => {}
            }
        }
    };
    let state = session.state(0);
    let short = session.ended_for_memory() > 0;
    let mechanism = session.mechanism().to_string();
    let closed = session.close();
    if let Err(why) = &closed {
        eprintln!("tiercel: not everything could be undone, the next keeper will try again: {why}");
    }
    let mut document = figures(&state);
    document["mechanism"] = json!(mechanism);
    document["fast_bytes"] = json!(fast);
    document["measured"] = json!(true);
    document["most_swapped_bytes"] = json!(peak.swapped);
    document["status"] = json!(status.and_then(|status| status.code()));
    events.tell("end", document.clone());
    let text =
        if arguments.answer.json { format!("{document:#}\n") } else { summary(&state, &mechanism, fast) };
    let out = if arguments.answer.json {
        text
    } else {
        // Standard output belongs to the command.
        eprint!("{text}");
        String::new()
    };
    match status {
        Some(status) if !status.success() => {
            let code = status.code().unwrap_or(1) as u8;
            let mut message = format!("the command ended with {status}");
            if short {
                message += ": the kernel ended a process of it, because it wanted more memory than --fast and swap have \
                            together; give it more with --slow-size";
            }
            Err(Failure { message, status: code.max(1), out: Some(out) }.into())
        }
        _ => Ok(out),
    }
}

/// Sets everything up and starts the command: the kernel's swap where it can be had, a preloaded library where it cannot.
fn open(options: &Options, mechanism: Option<&str>) -> anyhow::Result<Box<dyn Kept>> {
    let swap = || Session::open(options.clone()).map(|session| Box::new(session) as Box<dyn Kept>);
    let opened = match mechanism {
        Some("preload") => Preloaded::open(options),
        Some(_) => swap(),
        None => match swap() {
            Err(why) if can_preload(options) && why.is_for_want_of_swap() => {
                eprintln!("tiercel: {why}; a library is loaded into the command instead");
                Preloaded::open(options).map_err(|error| match error {
                    KeepError::NoPreload(error) => {
                        KeepError::Neither { swap: why.to_string(), preload: error }
                    }
                    error => error,
                })
            }
            opened => opened,
        },
    };
    Ok(opened?)
}

fn can_preload(options: &Options) -> bool {
    matches!((&options.target, &options.slow), (Target::Command(_), Slow::File(_))) && options.steer
}

fn left(found: &Found) -> String {
    match found {
        Found::Alive(pid) => format!("another keeper is at work (process {pid})"),
        Found::InUse(pid, programs) => format!(
            "keeper {pid} is gone and its program still runs (process {}): it keeps its memory cgroup and its swap until \
             it ends",
            programs[0]
        ),
        Found::Cleaned(pid) => format!("cleaned up after keeper {pid}, which was killed"),
        Found::Stuck(pid, why) => format!("cannot clean up after keeper {pid}: {why}"),
    }
}

fn describe(event: &Event) -> (&'static str, serde_json::Value, String) {
    match event {
        Event::Advice(pid, advice, range, why) => {
            let done = match advice {
                Advice::Cold => "cold",
                Advice::PageOut => "written out",
                Advice::WillNeed => "read ahead",
            };
            let bytes = range.end - range.start;
            let fields =
                json!({"pid": pid, "advice": done, "address": range.start, "bytes": bytes, "why": why});
            ("advice", fields, format!("{} {done} at {:#x}, {why}", size(bytes), range.start))
        }
        Event::Note(note) => ("note", json!({"note": note}), note.clone()),
        Event::Room(bytes) => ("room", json!({"bytes": bytes}), format!("{} of room made", size(*bytes))),
    }
}

fn figures(state: &State) -> serde_json::Value {
    let counts = &state.counts;
    json!({
        "seconds": state.seconds,
        "resident_bytes": state.resident,
        "swapped_bytes": state.swapped,
        "came_back_bytes": counts.came_back,
        "went_out_bytes": counts.went_out,
        "read_ahead_bytes": counts.ahead,
        "written_out_bytes": counts.behind,
        "room_bytes": counts.room,
        "rescued_bytes": counts.rescued,
        "waits": counts.waits,
        "looks": counts.looks,
        "overhead": state.overhead,
        "room_overhead": state.room_overhead,
    })
}

fn summary(state: &State, mechanism: &str, fast: u64) -> String {
    let counts = &state.counts;
    format!(
        "\nkept on {} of fast memory for {:.1} s: {mechanism}\n  seen coming back {}, going out {}; read ahead {}, \
         written out {}, room made {}\n  the keeper took {:.2} % of a core, of which {:.2} % made room in the program's place{}\n",
        size(fast),
        state.seconds,
        size(counts.came_back),
        size(counts.went_out),
        size(counts.ahead),
        size(counts.behind),
        size(counts.room),
        state.overhead * 100.0,
        state.room_overhead * 100.0,
        match counts.waits {
            0 => String::new(),
            waits => format!(
                "\n  the disk was behind {waits} times: the program waited where the kernel would have ended it"
            ),
        },
    )
}
