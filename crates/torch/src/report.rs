//! What a plan is expected to do, for people: the house's page, events and Perfetto trace of a simulated iteration, with the step
//! times that were measured beside it.
//!
//! The copies and kernels of a program on a GPU are not watched one by one while it runs: what the page draws is the plan as it is
//! simulated, and it says so. Step times are the program's own.

use std::io;
use std::path::Path;

use tiercel_core::{Bytes, Nanos, Stamped};
use tiercel_report::{Comparison, Header, Log, Report, Row, Run, perfetto, write_events};
use tiercel_systems::SystemError;

use crate::planning::Decided;

/// A plan's iteration as it is expected.
pub struct Expected {
    header: Header,
    events: Vec<Stamped>,
    run: Run,
    predicted: Nanos,
}

/// Why it cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The plan cannot be simulated.
    #[error(transparent)]
    System(#[from] SystemError),
    /// What was written cannot be read or written.
    #[error("events: {0}")]
    Events(String),
}

impl Expected {
    /// Simulates a plan.
    pub fn new(decided: &Decided, name: &str) -> Result<Expected, ShowError> {
        let run = decided.simulate()?;
        let mut header = Header::simulated(decided.played(), &run.machine, &run.system);
        header.net = name.to_string();
        header.peak_bytes = Some(decided.peak);
        header.fast_bytes = decided.limit;
        header.warmup_iterations = run.warmup;
        let mut lines = Vec::new();
        let wrong = |error: io::Error| ShowError::Events(error.to_string());
        write_events(&mut lines, &header, &run.events).map_err(wrong)?;
        let log = Log::read(&lines[..]).map_err(|error| ShowError::Events(error.to_string()))?;
        Ok(Expected { header, events: run.events, run: Run::new(log), predicted: decided.predicted })
    }

    /// Writes the file of events.
    pub fn events(&self, out: &mut Vec<u8>) -> io::Result<()> {
        write_events(out, &self.header, &self.events)
    }

    /// Writes a trace for Perfetto.
    pub fn perfetto(&self, out: &mut Vec<u8>) -> io::Result<()> {
        perfetto::write(out, std::slice::from_ref(&self.run))
    }

    /// The report: the expected iteration in full, and the measured ones in figures.
    pub fn report(self, title: &str, measured: &Measured) -> Report {
        let expected = self.run.row();
        let row = Row {
            system: format!("{}, measured", expected.system),
            on: measured.device.clone(),
            measured: true,
            iteration_ns: measured.planned_ns.clone(),
            predicted_ns: Some(self.predicted.0),
            peak_fast_bytes: Bytes(measured.peak_bytes),
            stall_ns: 0,
            ..expected.clone()
        };
        let demand = Row {
            system: "served on demand, measured".to_string(),
            iteration_ns: measured.demand_ns.clone(),
            predicted_ns: None,
            fetched_bytes: Bytes::ZERO,
            evicted_bytes: Bytes::ZERO,
            ..row.clone()
        };
        let name = format!("{}, predicted", expected.system);
        let all = [Row { system: name, ..expected }, row, demand];
        let rows = all.into_iter().filter(|row| !row.iteration_ns.is_empty()).collect();
        let mut run = self.run;
        run.notes.push(
            "Predicted: this is the plan as it is simulated, with kernel times as they were recorded. Storages lie where their own \
             allocator puts them: the map's addresses are the simulation's, of which there may be twice as many as bytes."
                .into(),
        );
        run.notes.extend(measured.notes.iter().cloned());
        Report {
            title: title.to_string(),
            comparison: Comparison::new(rows),
            runs: vec![run],
            ..Report::default()
        }
    }
}

/// What was measured beside a plan.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Where.
    pub device: String,
    /// Iterations that followed the plan.
    pub planned_ns: Vec<u64>,
    /// Iterations that were served on demand.
    pub demand_ns: Vec<u64>,
    /// The most bytes there were on the device.
    pub peak_bytes: u64,
    /// What else is to be said, a line each.
    pub notes: Vec<String>,
}

/// A limit of fast memory, and what a plan for it is expected to take.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The limit.
    pub bytes: Bytes,
    /// The time of an iteration.
    pub iteration_ns: u64,
    /// Bytes moved to fast memory in an iteration.
    pub fetched: Bytes,
    /// Bytes moved away from it.
    pub evicted: Bytes,
}

/// What an estimate has to say of a program on a machine.
#[derive(Clone, Debug, Default)]
pub struct Estimated {
    /// The program.
    pub name: String,
    /// The machine.
    pub machine: String,
    /// The most bytes alive at once with nothing moved.
    pub peak: Bytes,
    /// The time of an iteration with everything in fast memory.
    pub all_fast_ns: u64,
    /// What was found for each limit.
    pub limits: Vec<Limit>,
    /// What else is to be said, a line each.
    pub notes: Vec<String>,
}

impl Estimated {
    /// The report: the time against the limit, and one plan's iteration where there is one.
    pub fn report(&self, expected: Option<Expected>) -> Report {
        let row = |limit: &Limit| Row {
            net: self.name.clone(),
            machine: self.machine.clone(),
            system: tiercel_systems::DEFAULT.to_string(),
            on: "sim".to_string(),
            fast_fraction: Some(limit.bytes.0 as f64 / self.peak.0.max(1) as f64),
            fast_bytes: limit.bytes,
            iteration_ns: vec![limit.iteration_ns],
            fetched_bytes: limit.fetched,
            evicted_bytes: limit.evicted,
            slowdown: Some(limit.iteration_ns as f64 / self.all_fast_ns.max(1) as f64),
            fast_only_ns: Some(self.all_fast_ns),
            ..Row::default()
        };
        let comparison = Comparison::new(self.limits.iter().map(row).collect());
        let runs = expected.map(|expected| {
            let mut run = expected.run;
            run.notes.extend(self.notes.iter().cloned());
            run
        });
        let title = format!("{} on {}, estimated", self.name, self.machine);
        Report { title, comparison, runs: runs.into_iter().collect(), ..Report::default() }
    }
}

/// Writes a file whole or not at all.
pub fn save(path: &Path, contents: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut bytes = Vec::new();
    contents(&mut bytes)?;
    tiercel_run::files::replace(path, &bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tiercel_core::Machine;
    use tiercel_profile::machines;

    use super::*;
    use crate::{Asked, Operation, Recording, Role, StorageInfo, decide, with_capacities};

    /// Six operations forward, each of which leaves 1 MiB that the same one backward needs.
    fn recorded() -> Recording {
        let storage = |name: &str, persistent| StorageInfo {
            name: name.into(),
            bytes: 1 << 20,
            role: if persistent { Role::Weight } else { Role::Activation },
            persistent,
        };
        let mut recording = Recording { storages: vec![storage("w", true)], operations: Vec::new() };
        recording.storages.extend((0..7).map(|_| storage("x", false)));
        let operation = |op: &str, phase, reads: Vec<u32>, writes: Vec<u32>| Operation {
            op: op.into(),
            layer: "layer".into(),
            phase,
            reads,
            writes,
            workspace: 0,
            nanos: 100_000,
            repeat: None,
        };
        recording.operations.push(operation("rand", 0, vec![0], vec![1]));
        recording.operations.extend((1..7).map(|at| operation("mm", 0, vec![0, at], vec![at + 1])));
        recording.operations.extend((1..7).rev().map(|at| operation("mm", 1, vec![0, at, at + 1], vec![at])));
        recording
    }

    fn machine(mebibytes: u64) -> Machine {
        let machine = machines::named("h200").expect("it ships");
        with_capacities(&machine, &[Bytes(mebibytes << 20), Bytes(1 << 30)])
    }

    fn expected(mebibytes: u64) -> (Decided, Expected) {
        let trace = Arc::new(recorded().trace("six"));
        let decided = decide(
            trace,
            &machine(mebibytes),
            "tiercel",
            Asked { again: true, places: false, seconds: 0.3, seed: 0 },
        )
        .expect("a plan");
        let expected = Expected::new(&decided, "six").expect("a run");
        (decided, expected)
    }

    #[test]
    fn a_plan_is_shown_as_it_was_predicted() {
        let (decided, expected) = expected(5);
        assert_eq!(decided.limit, Bytes(5 << 20));
        let last = expected.run.counted().last().expect("an iteration").time();
        let off = last.0 as f64 / decided.predicted.0 as f64;
        assert!(
            (0.9..1.1).contains(&off),
            "the page draws what was predicted: {last} for {}",
            decided.predicted
        );
        let mut events = Vec::new();
        expected.events(&mut events).expect("written");
        let log = Log::read(&events[..]).expect("it reads back");
        assert_eq!(Run::new(log).kernels.len(), expected.run.kernels.len());
        let mut trace = Vec::new();
        expected.perfetto(&mut trace).expect("written");
        assert!(serde_json::from_slice::<serde_json::Value>(&trace).is_ok());
        assert_eq!(expected.run.header.fast_bytes, Bytes(5 << 20));
    }

    #[test]
    fn measured_times_stand_beside_predicted_ones() {
        let (decided, expected) = expected(5);
        let measured = Measured {
            device: "cpu".into(),
            planned_ns: vec![2 * decided.predicted.0; 3],
            demand_ns: vec![9 * decided.predicted.0],
            peak_bytes: 5 << 20,
            notes: vec!["Paths: two".into()],
        };
        let report = expected.report("six", &measured);
        let rows: Vec<(&str, bool)> =
            report.comparison.rows.iter().map(|row| (row.system.as_str(), row.measured)).collect();
        assert_eq!(
            rows,
            [
                ("tiercel, predicted", false),
                ("tiercel, measured", true),
                ("served on demand, measured", true)
            ]
        );
        assert_eq!(report.comparison.rows[1].predicted_ns, Some(decided.predicted.0));
        let page = report.html();
        assert!(page.contains("What ran when") && page.contains("Predicted: this is the plan"));
        assert!(page.contains("Paths: two"));
        let alone = Expected::new(&decided, "six").expect("a run").report("six", &Measured::default());
        assert_eq!(alone.comparison.rows.len(), 1, "what was not measured has no row");
    }

    #[test]
    fn an_estimate_has_a_curve_and_its_notes() {
        let (decided, expected) = expected(5);
        let limit = |mebibytes: u64, iteration_ns| Limit {
            bytes: Bytes(mebibytes << 20),
            iteration_ns,
            fetched: Bytes(1),
            evicted: Bytes(1),
        };
        let estimated = Estimated {
            name: "six".into(),
            machine: "h200".into(),
            peak: decided.peak,
            all_fast_ns: decided.all_fast.0,
            limits: vec![limit(5, decided.predicted.0), limit(8, decided.all_fast.0)],
            notes: vec!["the largest batch is 7".into()],
        };
        let report = estimated.report(Some(expected));
        let curves = report.all_curves();
        assert_eq!((curves.len(), curves[0].points.len()), (1, 2));
        assert!(report.html().contains("the largest batch is 7"));
        assert_eq!(estimated.report(None).runs.len(), 0);
    }
}
