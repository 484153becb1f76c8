//! Every rival on small studies: ours is ahead of those that know nothing and near the one that knows all, and twice the same.

use std::time::Duration;

use tiercel_dynamic::blocks::{Cut, Representation};
use tiercel_dynamic::exam::{self, Setup};
use tiercel_dynamic::learned::Training;
use tiercel_dynamic::plans::Care;
use tiercel_dynamic::study::{Seen, Study, Sum};
use tiercel_dynamic::workloads::{Source, named};
use tiercel_profile::{Model, machines};

fn study(name: &str) -> Study {
    let machine = machines::named("rtx6000").expect("it ships");
    let model = Model::new(&machine).expect("it has a model");
    // Rounds end planning, not time: plans are the same on a busy machine.
    let care = Care { rounds: 200, time: Duration::from_secs(3600) };
    Study::new(named(name).expect("there is one"), &machine, &model, 0.5, care)
}

fn ours(study: &mut Study) -> Sum {
    let mut source = Source::new(study.workload, 5);
    let mut seen = Seen::default();
    source.take(600).iter().for_each(|sample| seen.see(study, sample));
    study.ours(&source.take(16), &mut seen).expect("it fits")
}

#[test]
fn ours_is_ahead_of_the_blind_and_near_the_oracle() {
    for name in ["tree-cnn", "ugan", "var-lstm", "moe"] {
        let mut study = study(name);
        let found = ours(&mut study);
        assert_eq!(found, ours(&mut study), "{name}: the seed decides everything");
        let mut source = Source::new(study.workload, 5);
        source.take(600);
        let samples = source.take(16);
        let demand = study.on_demand(&samples).expect("it fits");
        assert!(found.seconds < demand.seconds, "{name}: {found:?} {demand:?}");
        if let Ok(dtr) = study.dtr(&samples) {
            // On tree-cnn both are within a hundredth of each other, either way.
            assert!(found.seconds < 1.02 * dtr.seconds, "{name}: {found:?} {dtr:?}");
        }
        let oracle = study.oracle(&samples).expect("it fits");
        assert!(found.seconds < 1.1 * oracle.seconds, "{name}: {found:?} {oracle:?}");
        let roomy = study.roomy(&samples).expect("it fits");
        // Copies beside kernels slow them a little.
        let same = |sum: Sum| (sum.compute / roomy.compute - 1.0).abs() < 0.03;
        assert!(same(oracle) && same(demand), "{name}: {oracle:?} {demand:?} {roomy:?}");
        let unified = study.unified(&samples).expect("it fits");
        assert!(unified.seconds > demand.seconds, "{name}: faults cost time");
        assert!(roomy.seconds <= 1.05 * oracle.seconds, "{name}");
    }
}

#[test]
fn blocks_serve_wrong_guesses_on_demand() {
    let mut study = study("early-exit");
    let samples = Source::new(study.workload, 5).take(12);
    let truth: Vec<usize> = samples.iter().map(|sample| study.course(sample)).collect();
    let wrong: Vec<usize> = truth.iter().map(|course| (course + 1) % study.courses.len()).collect();
    let mut play = |said: &[usize]| {
        let mut said = said.iter();
        let mut tell = |_: &_| *said.next().expect("one each");
        study.dynn_offload(&samples, Cut::Sentinel, &mut tell).expect("it fits")
    };
    let (right, missed) = (play(&truth), play(&wrong));
    assert_eq!((right.misses, missed.misses), (0, missed.steps));
    assert!((right.compute / missed.compute - 1.0).abs() < 0.02, "{right:?} {missed:?}");
}

#[test]
fn predictors_know_paths_that_they_have_not_seen() {
    let study = study("early-exit");
    let studies = [&study];
    let mut drawn = exam::draw(&studies, 1);
    drawn[0].trained.truncate(2000);
    drawn[0].tested.truncate(400);
    let training = Training { epochs: 10, ..Training::default() };
    let setup = Setup { representation: Representation::Idioms, hidden: 128, training };
    let mut learned = exam::train(&studies, &drawn, setup);
    let accuracy = exam::accuracy(&mut learned, &studies, &drawn)[0];
    assert!(accuracy > 0.6, "{accuracy}");
    let (ours, seen) = exam::our_accuracy(&study, &drawn[0], 2);
    assert!(ours > 0.8, "{ours}");
    assert_eq!(seen.trie.sequences(), study.workload.ways().len());
}
