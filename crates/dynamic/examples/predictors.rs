//! Accuracy, misses and times of the predictors: `cargo run --release -p tiercel-dynamic --example predictors [HIDDEN]`.

use std::time::Instant;

use tiercel_dynamic::blocks::Representation;
use tiercel_dynamic::exam::{self, Setup};
use tiercel_dynamic::learned::Training;
use tiercel_dynamic::plans::Care;
use tiercel_dynamic::study::Study;
use tiercel_dynamic::workloads::{ALL, Family};
use tiercel_profile::{Model, machines};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = machines::named("rtx6000")?;
    let model = Model::new(&machine)?;
    let hidden = std::env::args().nth(1).map_or(Ok(512), |n| n.parse())?;
    for family in [Family::Cnn, Family::Lstm, Family::Transformer] {
        let of = ALL.iter().filter(|w| w.family == family && w.is_dynamic());
        let studies: Vec<Study> = of.map(|w| Study::new(w, &machine, &model, 0.5, Care::default())).collect();
        let studies: Vec<&Study> = studies.iter().collect();
        let drawn = exam::draw(&studies, 1);
        for representation in [Representation::Idioms, Representation::GlobalIds] {
            let began = Instant::now();
            let setup = Setup { representation, hidden, training: Training::default() };
            let mut learned = exam::train(&studies, &drawn, setup);
            let accuracy = exam::accuracy(&mut learned, &studies, &drawn);
            println!("{family:?} {representation:?}: {accuracy:.3?} after {:.1?}", began.elapsed());
            if representation == Representation::Idioms {
                for (network, study) in studies.iter().enumerate() {
                    let times = exam::times(&mut learned, study, network, &drawn[network].tested);
                    let misses = exam::misses(&mut learned, &studies, &drawn, network, 9);
                    let (ours, mut seen) = exam::our_accuracy(study, &drawn[network], 3);
                    let time = exam::our_time(study, &mut seen, &drawn[network].tested);
                    let our_misses = exam::our_misses(study, &mut seen, 9);
                    println!(
                        "  {}: {times:.1?} us, misses {misses:?}; ours {ours:.3}, {time:.1} us, misses {our_misses:?}, {} leaves",
                        study.workload.name,
                        seen.trie.sequences()
                    );
                }
            }
        }
    }
    println!("trie: {:.0} ns an operation", exam::trie_time());
    Ok(())
}
