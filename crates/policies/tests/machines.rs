//! A small network runs on every shipped machine.

use tiercel_core::{Bytes, Manager, Nanos, TierId};
use tiercel_policies::{CachedArrays, Mode};
use tiercel_profile::{Model, machines};
use tiercel_run::Executor;
use tiercel_sim::Sim;
use tiercel_workload::{Lifetimes, nets};

#[test]
fn a_small_network_runs_on_each() {
    let options = nets::NetOptions { batch: Some(16), ..nets::NetOptions::default() };
    let program = nets::find("resnet32").unwrap().build(&options).unwrap().trace;
    let (_, peak) = Lifetimes::new(&program).peak();
    for name in machines::names() {
        let machine = machines::named(name).unwrap().with_capacity(TierId(0), Bytes(peak.0 / 2));
        let model = Model::new(&machine).unwrap();
        let mut manager = Manager::new(machine.clone(), Sim::with_times(machine, model));
        let mut policy = CachedArrays::new(Mode::LM);
        let mut executor = Executor::new(&program);
        executor.iterate(&mut manager, &mut policy).unwrap();
        let iteration = executor.iterate(&mut manager, &mut policy).unwrap();
        assert!(iteration.time > Nanos::ZERO, "{name}");
        assert!(
            iteration.fetched + iteration.evicted > Bytes::ZERO,
            "{name}: half of the memory makes it move"
        );
    }
}
