//! Runs for tests to report on: real executors, real policies, simulated time.
#![allow(dead_code)] // each test file uses a part of it

use tiercel_core::{Bytes, Machine, Manager, Stamped, TierId, Totals};
use tiercel_policies::by_name;
use tiercel_profile::{Model, machines};
use tiercel_report::{Header, Log, Row};
use tiercel_run::{Executor, Iteration};
use tiercel_sim::{Sim, World};
use tiercel_workload::{Lifetimes, Trace, nets};

/// What was played, and what the executor and the manager say of it.
pub struct Played {
    pub header: Header,
    pub events: Vec<Stamped>,
    pub iterations: Vec<Iteration>,
    pub totals: Totals,
}

impl Played {
    pub fn log(&self) -> Log {
        Log::new(self.header.clone(), &self.events)
    }
}

/// Plays a trace for some iterations, recorded.
pub fn play<W: World + 'static>(
    trace: &Trace,
    machine: &Machine,
    world: W,
    system: &str,
    lookahead: usize,
    count: usize,
) -> Played {
    let measured = world.measured();
    let mut manager = Manager::new(machine.clone(), world);
    manager.record();
    let mut policy = by_name(system).expect("a policy");
    let mut executor = Executor::new(trace).lookahead(lookahead);
    let mut iterate =
        |_| executor.iterate(&mut manager, policy.as_mut()).unwrap_or_else(|e| panic!("{system}: {e}"));
    let iterations = (0..count).map(&mut iterate).collect();
    manager.drain().expect("no copy fails");
    let mut header = Header::simulated(trace, machine, system);
    if measured {
        header = Header::measured(trace, machine, system, |_| false);
    }
    header.peak_bytes = Some(Lifetimes::new(trace).peak().1);
    Played { header, events: manager.take_events(), iterations, totals: manager.totals().clone() }
}

/// A built-in network with a small batch.
pub fn network(name: &str, batch: u64) -> Trace {
    let options = nets::NetOptions { batch: Some(batch), ..nets::NetOptions::default() };
    nets::find(name).expect("a built-in network").build(&options).expect("it builds").trace
}

/// A shipped machine whose fast tier holds a share of what the trace keeps alive at its peak.
pub fn tight(name: &str, trace: &Trace, share: f64) -> Machine {
    let machine = machines::named(name).expect("a shipped machine");
    let peak = Lifetimes::new(trace).peak().1;
    let fast = Bytes((peak.0 as f64 * share) as u64).round_up(machine.grain()).expect("small enough");
    machine.with_capacity(TierId(0), fast)
}

/// A network on a shipped machine with a share of its peak in fast memory, in simulation.
pub fn simulate(net: &str, batch: u64, machine: &str, share: f64, system: &str) -> Played {
    let trace = network(net, batch);
    let machine = tight(machine, &trace, share);
    let times = Model::new(&machine).expect("the machine file has what the model needs");
    let world = Sim::with_times(machine.clone(), times);
    let mut played = play(&trace, &machine, world, system, 4, 3);
    played.header.batch = Some(batch);
    played
}

/// Rows of a comparison that is as large as one gets, with figures that follow a formula.
pub fn many_rows(nets: usize, systems: usize, shares: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for net in 0..nets {
        for system in 0..systems {
            for share in 1..=shares {
                let fraction = 0.1 * share as f64;
                let base = 100_000_000 * (net as u64 + 1);
                let slower = 1.0 + system as f64 * (1.0 - fraction) * 0.3;
                let name = if system == 0 { "fast-only".to_string() } else { format!("system-{system}") };
                let fast = Bytes(((net as f64 + 1.0) * 6.4e10 * fraction) as u64);
                rows.push(Row {
                    net: format!("network-{net}"),
                    batch: Some(256),
                    machine: "made-up".to_string(),
                    system: name,
                    on: "sim".to_string(),
                    fast_fraction: Some(fraction),
                    fast_bytes: fast,
                    iteration_ns: vec![(base as f64 * slower) as u64; 2],
                    fetched_bytes: Bytes(1 << 33),
                    evicted_bytes: Bytes(1 << 32),
                    stall_ns: base / 20 * system as u64,
                    peak_fast_bytes: fast,
                    memory_price: Some(100.0 + 8.0 * fast.0 as f64 / 1e9),
                    ..Row::default()
                });
            }
        }
    }
    rows
}
