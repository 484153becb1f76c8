//! Step times of every rival on one or all workloads, simulated: `cargo run --release -p tiercel-dynamic --example rivals [NAME]`.

use std::time::Instant;

use tiercel_dynamic::blocks::Cut;
use tiercel_dynamic::plans::Care;
use tiercel_dynamic::study::{Seen, Study};
use tiercel_dynamic::workloads::{ALL, Source};
use tiercel_profile::{Model, machines};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = machines::named("rtx6000")?;
    let model = Model::new(&machine)?;
    let only = std::env::args().nth(1);
    for workload in ALL.iter().filter(|w| only.as_deref().is_none_or(|name| name == w.name)) {
        let began = Instant::now();
        let mut study = Study::new(workload, &machine, &model, 0.5, Care::default());
        let longest = study.courses.iter().map(|c| c.taped.trace.kernels.len()).max().unwrap_or(0);
        println!(
            "{}: {} courses, {longest} kernels, peak {}",
            workload.name,
            study.courses.len(),
            study.peak
        );
        let mut source = Source::new(workload, 5);
        let mut seen = Seen::default();
        source.take(3000).iter().for_each(|sample| seen.see(&study, sample));
        println!("  trained after {:.1?}", began.elapsed());
        let samples = source.take(40);
        let wrong = study.costs().map(|costs| costs.wrong());
        println!("  planned after {:.1?}, a wrong guess costs {wrong:?}", began.elapsed());
        let right: Vec<usize> = samples.iter().map(|sample| study.course(sample)).collect();
        let mut turn = 0;
        let mut truth = |_: &_| {
            turn += 1;
            right[turn - 1]
        };
        let blocked = study.dynn_offload(&samples, Cut::Sentinel, &mut truth);
        for (name, sum) in [
            ("roomy", study.roomy(&samples)),
            ("oracle", study.oracle(&samples)),
            ("ours", study.ours(&samples, &mut seen)),
            ("blocks", blocked),
            ("on demand", study.on_demand(&samples)),
            ("unified", study.unified(&samples)),
            ("dtr", study.dtr(&samples)),
            ("l2l", study.layers(&samples)),
            ("zero", study.zero(&samples)),
        ] {
            match sum {
                Ok(sum) => println!(
                    "  {name:10} {:8.2} ms: again {:7.2}, stall {:7.2}, {} misses of {}",
                    sum.seconds * 1e3,
                    sum.again * 1e3,
                    sum.stall * 1e3,
                    sum.misses,
                    sum.steps
                ),
                Err(short) => println!("  {name:10} {short}"),
            }
        }
        println!("  all in {:.1?}", began.elapsed());
    }
    Ok(())
}
