//! `tiercel keep` on a machine with several NUMA nodes: hot pages to the fast ones.

use std::ops::Range;
use std::process::{Child, Command};
use std::sync::atomic::Ordering;

use anyhow::Context;
use serde_json::{Value, json};
use tiercel_pages::real::daemon::{Daemon, Interval, Options};
use tiercel_pages::real::group::Group;
use tiercel_pages::real::{KeepError, nodes, process};
use tiercel_pages::watch::Why;

use super::events::Events;
use super::top::Top;
use super::{Arguments, interrupts, size};
use crate::failure::Failure;

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<String> {
    // Everything that can be refused is, before anything is started.
    if let Some(pid) = arguments.pid
        && !process::runs(pid)
    {
        return Err(KeepError::NoProcess(pid).into());
    }
    nodes::ordered(arguments.tiers.as_deref())?;
    let mut child: Option<Child> = None;
    let pid = match (arguments.pid, &arguments.cgroup) {
        (Some(pid), _) => pid,
        (None, Some(folder)) => {
            let group = Group::at(folder)?;
            let largest = |pid: &u32| process::memory(*pid).map_or(0, |memory| memory.resident);
            let found = group.processes().into_iter().max_by_key(largest);
            found.with_context(|| format!("no process is in {}", folder.display()))?
        }
        (None, None) => {
            let words = &arguments.command;
            let mut command = Command::new(&words[0]);
            command.args(&words[1..]);
            if arguments.answer.json {
                command.stdout(std::io::stderr());
            }
            let started = command.spawn();
            let started = started.with_context(|| format!("cannot start `{}`", words[0].display()))?;
            let pid = started.id();
            child = Some(started);
            // Mappings of the program itself, not of what starts it.
            std::thread::sleep(std::time::Duration::from_millis(200));
            pid
        }
    };
    let asked = interrupts();
    let options = Options {
        pid,
        nodes: arguments.tiers.clone(),
        fast: arguments.fast.map(|fast| fast.0),
        policy: arguments.policy.clone(),
        tracker: arguments.tracker.clone(),
        interval: arguments.interval,
        overhead: arguments.overhead,
        rate: arguments.rate.0 as u64,
    };
    let mut daemon = match Daemon::open(options) {
        Ok(daemon) => daemon,
        Err(error) => {
            if let Some(mut child) = child {
                // It was started for nothing.
                let _ = child.kill();
                let _ = child.wait();
            }
            return Err(error.into());
        }
    };
    let about =
        format!("{} on nodes {}, watched through {}", arguments.policy, names(&daemon), daemon.tracker());
    eprintln!("tiercel: {about}");
    let mut events = Events::open(arguments.events.as_deref(), &about)?;
    let mut top = Top::new(arguments.top);
    let mut all: Vec<Interval> = Vec::new();
    while asked.load(Ordering::Relaxed) == 0 {
        let Some(interval) = daemon.step()? else { break };
        events.tell("interval", figures(&interval));
        events.tell("map", json!({"parts": interval.map}));
        for (range, node, why) in &interval.moves {
            events.tell("move", moved(range, *node, *why));
        }
        let lines = lines(&interval, &daemon);
        if top.due() {
            top.draw(&lines);
        } else if !arguments.answer.json {
            eprintln!("{}", lines[0]);
        }
        all.push(interval);
    }
    let status = child.map(|mut child| child.wait());
    let sum = |which: fn(&Interval) -> u64| all.iter().map(which).sum::<u64>();
    let document = json!({
        "mechanism": about,
        "measured": true,
        "intervals": all.iter().map(figures).collect::<Vec<_>>(),
        "promoted_bytes": sum(|i| i.promoted) * 4096,
        "demoted_bytes": sum(|i| i.demoted) * 4096,
        "refused_bytes": sum(|i| i.refused) * 4096,
    });
    events.tell("end", json!({"intervals": all.len()}));
    let out = if arguments.answer.json { format!("{document:#}\n") } else { String::new() };
    match status {
        Some(Ok(status)) if !status.success() => Err(Failure {
            message: format!("the command ended with {status}"),
            status: (status.code().unwrap_or(1) as u8).max(1),
            out: Some(out),
        }
        .into()),
        _ => Ok(out),
    }
}

fn names(daemon: &Daemon) -> String {
    daemon.nodes().iter().map(|node| node.id.to_string()).collect::<Vec<_>>().join(" > ")
}

fn figures(interval: &Interval) -> Value {
    json!({
        "seconds": interval.seconds,
        "promoted_pages": interval.promoted,
        "demoted_pages": interval.demoted,
        "refused_pages": interval.refused,
        "bytes_on": interval.on,
        "hot_bytes": interval.hot,
        "hot_fast_bytes": interval.hot_fast,
        "spans": interval.spans,
        "overhead": interval.overhead,
    })
}

fn moved(range: &Range<u64>, node: u32, why: Why) -> Value {
    let why = match why {
        Why::Hot => "hot",
        Why::Room => "room",
    };
    json!({"address": range.start, "bytes": range.end - range.start, "node": node, "why": why})
}

fn lines(interval: &Interval, daemon: &Daemon) -> Vec<String> {
    let on = daemon
        .nodes()
        .iter()
        .zip(&interval.on)
        .map(|(node, bytes)| format!("node {} {}", node.id, size(*bytes)));
    vec![
        format!(
            "{:7.1} s   up {} pages, down {}, refused {}   hot {} of which fast {}   {}   keeper {:.1} %",
            interval.seconds,
            interval.promoted,
            interval.demoted,
            interval.refused,
            size(interval.hot),
            size(interval.hot_fast),
            on.collect::<Vec<_>>().join(", "),
            interval.overhead * 100.0
        ),
        format!("spans {}   moves {}", interval.spans, interval.moves.len()),
    ]
}
