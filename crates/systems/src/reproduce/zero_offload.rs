//! ZeRO-Offload (dissertation, chapter 5): what text and tables state, by simulation of steps on a DGX-2.
//!
//! Link and GPU memory come from the shipped machine `v100`; what is added for a DGX-2 stands below. Two rates are fitted: the
//! GPU's to the 40 TFLOPS of the 10 B model, the host's memory to CPU-Adam's time for 1 B parameters.

use super::bench::{Bench, row};
use super::{Claim, Paper, Row};
use crate::zero::choices::{least_moved, valid};
use crate::zero::memory::{LeftOnGpu, Way, largest};
use crate::zero::steps::{PASS, Rates, SEPARATE, System, seconds};
use crate::zero::{Gpt, SEQUENCE};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    name: "zero-offload",
    title: "ZeRO-Offload: Democratizing Billion-Scale Model Training (dissertation, chapter 5)",
    machine: "v100",
    remarks: &[
        "The machine `v100` with 32 GB on each GPU and 1.5 TB on the host (Table 5.2); 120 GB/s between GPUs of a node and \
         100 GB/s between nodes (NVSwitch and eight links of 100 Gb/s at 80 and 100 %).",
        "Two rates are fitted: 40 TFLOPS of a GPU, to the 10 B model; 127 GB/s of host memory, to CPU-Adam's 0.22 s. GPUs \
         compute at one rate whatever the model and the batch, so figures that say how kernels become slower are not here.",
        "Simulated: steps as tasks, block by block. CPU-Adam itself is real here: `docs/optim.md` has what was measured.",
        "L2L is taken to fetch each block anew in each pass of each micro-batch, and to wait for it, as the text says of it.",
        "Table 5.1 prints 4M in its last row beside a saving of 8x; 2M is what that is.",
    ],
    reasons: &[
        (
            "PT-CPU",
            "counted are the bytes of PyTorch's separate operations alone; new memory for each result, whose pages \
                    the system clears at first touch, and passes that one processor does are not",
        ),
        ("over PT-CPU", "as the rows of PT-CPU"),
        ("CPU-Adam", "the paper's takes longer for each parameter the more there are; here all are alike"),
        ("PT-GPU", "bytes of separate operations at the bandwidth of the shipped machine"),
        (
            "PyTorch",
            "16 bytes a parameter, as the paper counts; with gradients in 32 bits beside those, as libraries of the \
                     time had, it is 1.5",
        ),
        (
            "Megatron",
            "states are divided evenly here and only blocks of one width are tried; its limit is not explained in \
                      the text",
        ),
        (
            "L2L",
            "fetching a block anew in each pass costs more the smaller the micro-batch; the paper does not say how far \
                 L2L's copies overlap",
        ),
    ],
    rows,
};

/// Table 5.3, models for one GPU: billions of parameters, blocks, width, sequences at once.
const MODELS: [(&str, Gpt); 9] = [
    ("1 B", Gpt { layers: 20, hidden: 2048, batch: 32 }),
    ("2 B", Gpt { layers: 40, hidden: 2048, batch: 32 }),
    ("4 B", Gpt { layers: 64, hidden: 2304, batch: 32 }),
    ("6 B", Gpt { layers: 53, hidden: 3072, batch: 16 }),
    ("8 B", Gpt { layers: 72, hidden: 3072, batch: 16 }),
    ("10 B", Gpt { layers: 50, hidden: 4096, batch: 10 }),
    ("11 B", Gpt { layers: 55, hidden: 4096, batch: 8 }),
    ("12 B", Gpt { layers: 60, hidden: 4096, batch: 4 }),
    ("13 B", Gpt { layers: 65, hidden: 4096, batch: 4 }),
];

/// Sequences of a step in all.
const BATCH: u64 = 512;

const TERA: f64 = 1e12;
const IN_TIME: System = System::Offload { delayed: false };
const LATE: System = System::Offload { delayed: true };

fn rates(bench: &Bench<'_>) -> Rates {
    let (hbm, out, back) = bench.device();
    Rates { gpu: 40.0 * TERA, hbm, out, back, host: 127e9, near: 120e9, far: 100e9, node: 16 }
}

fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let rates = rates(bench);
    let mut rows = choices();
    rows.extend(scale());
    rows.extend(throughput(rates));
    rows.extend(adam(rates));
    rows.extend(delayed(rates));
    rows.extend(gpus(rates));
    rows
}

/// Table 5.1.
fn choices() -> Vec<Row> {
    let place = "Table 5.1: bytes a parameter on the GPU";
    let (names, paper) = (
        ["all on the GPU", "gradients on the host", "update on the host", "gradients and update on the host"],
        [16.0, 14.0, 4.0, 2.0],
    );
    let found = valid();
    let mut rows: Vec<Row> = names
        .into_iter()
        .zip(paper)
        .enumerate()
        .map(|(index, (name, bytes))| {
            let ours = found.get(index).map(|choice| choice.on_gpu() as f64);
            row(name, place, Claim::About(bytes), ours.ok_or_else(|| "there is none".to_string()), "bytes")
        })
        .collect();
    let place = "Section 5.3.3";
    rows.push(row(
        "least bytes moved",
        place,
        Claim::About(4.0),
        Ok(least_moved() as f64),
        "bytes a parameter",
    ));
    rows.push(row(
        "divisions that move so few",
        place,
        Claim::About(3.0),
        Ok(found.len() as f64 - 1.0),
        "of 127",
    ));
    rows
}

/// Figure 5.7 as far as the text states it.
fn scale() -> Vec<Row> {
    let place = "Section 5.6.2, Figure 5.7: the largest model";
    let gib = f64::from(1 << 30);
    let room = |gpus| LeftOnGpu { gpu: 32.0 * gib, host: 1.5e12, gpus };
    let shape = |hidden, batch| Gpt { layers: 1, hidden, batch };
    let line = |what: &str, claim, way, shape, gpus| {
        row(what, place, claim, Ok(largest(way, shape, room(gpus)) / 1e9), "B parameters")
    };
    let offload = |slices| Way::Offload { slices };
    vec![
        line("PyTorch, one GPU", Claim::About(1.4), Way::Plain, shape(2048, 4), 1),
        line("ZeRO-Offload, one GPU", Claim::About(13.0), offload(1), shape(4096, 4), 1),
        line("ZeRO-2, 16 GPUs", Claim::About(9.0), Way::Zero2, shape(4096, 4), 16),
        line("Megatron, 16 GPUs", Claim::About(15.0), Way::Sliced, shape(4096, 8), 16),
        line("ZeRO-Offload, 16 GPUs, 8 slices", Claim::AtLeast(70.0), offload(8), shape(8192, 8), 16),
    ]
}

/// Operations a second of a GPU that a step comes to.
fn tflops(model: Gpt, time: f64, gpus: u64) -> f64 {
    8.0 * model.parameters() * BATCH as f64 * SEQUENCE / time / gpus as f64 / TERA
}

/// Figure 5.8.
fn throughput(rates: Rates) -> Vec<Row> {
    let place = "Section 5.6.2, Figure 5.8: one GPU, batch 512";
    let time = |system, model| seconds(system, model, rates, 1, BATCH);
    let gains: Vec<f64> =
        MODELS.iter().map(|(_, m)| (time(System::Layers, *m) / time(IN_TIME, *m) - 1.0) * 100.0).collect();
    let mean = gains.iter().sum::<f64>() / gains.len() as f64;
    let most = gains.iter().copied().fold(0.0, f64::max);
    let ten = MODELS[5].1;
    let mut rows = vec![
        row("10 B", place, Claim::About(40.0), Ok(tflops(ten, time(IN_TIME, ten), 1)), "TFLOPS").fitted(),
        row("ahead of L2L, mean", place, Claim::About(14.0), Ok(mean), "% of the speed"),
        row("ahead of L2L, most", place, Claim::About(22.0), Ok(most), "% of the speed"),
    ];
    let by_model = MODELS.iter().zip(gains);
    rows.extend(by_model.map(|((name, model), gain)| {
        let what = format!("ahead of L2L, {name}, {} at once", model.batch);
        row(what, place, Claim::Silent, Ok(gain), "% of the speed")
    }));
    rows
}

/// Table 5.4.
fn adam(rates: Rates) -> Vec<Row> {
    let paper = [
        (1.0, [0.22, 1.39, 0.10]),
        (2.0, [0.51, 2.75, 0.26]),
        (4.0, [1.03, 5.71, 0.64]),
        (8.0, [2.41, 11.93, 0.87]),
        (10.0, [2.57, 14.76, 1.00]),
    ];
    let place = "Table 5.4";
    let mut rows = Vec::new();
    for (billions, [cpu, separate, gpu]) in paper {
        let count = billions * 1e9;
        let what = |name: &str| format!("{name}, {billions} B");
        let first = row(what("CPU-Adam"), place, Claim::About(cpu), Ok(PASS * count / rates.host), "s");
        rows.push(if billions == 1.0 { first.fitted() } else { first });
        let ours = Ok(SEPARATE * count / rates.host);
        rows.push(row(what("PT-CPU"), place, Claim::About(separate), ours, "s"));
        rows.push(row(what("PT-GPU"), place, Claim::About(gpu), Ok(SEPARATE * count / rates.hbm), "s"));
    }
    let place = "Section 5.6.2: CPU-Adam's speed";
    rows.push(row("over PT-CPU", place, Claim::Between(5.0, 6.4), Ok(SEPARATE / PASS), "times"));
    rows
}

/// Figure 5.11.
fn delayed(rates: Rates) -> Vec<Row> {
    let place = "Section 5.6.2, Figure 5.11: delayed updates, batch 8";
    let gain = |model: Gpt| {
        let model = Gpt { batch: 8, ..model };
        seconds(IN_TIME, model, rates, 1, 8) / seconds(LATE, model, rates, 1, 8)
    };
    let least = MODELS.iter().map(|(_, model)| gain(*model)).fold(f64::INFINITY, f64::min);
    let most = MODELS.iter().map(|(_, model)| gain(*model)).fold(0.0, f64::max);
    let why = "by Table 5.4 and the link's bandwidth, update and copies are a seventh of a step at 40 TFLOPS; how they came to \
               more than a third of one is not said";
    vec![
        row("the least, 1 to 13 B", place, Claim::About(1.12), Ok(least), "times the speed"),
        row("the most, 1 to 13 B", place, Claim::About(1.59), Ok(most), "times the speed").note(why),
    ]
}

/// Figure 5.10.
fn gpus(rates: Rates) -> Vec<Row> {
    let place = "Section 5.6.2, Figure 5.10: 10 B on many GPUs, batch 512";
    let model = MODELS[5].1;
    let mut rows = Vec::new();
    for gpus in [1, 4, 16, 32, 64, 128] {
        let time = |system| seconds(system, model, rates, gpus, BATCH);
        let ours = Ok(tflops(model, time(IN_TIME), gpus));
        // One GPU's rate is fitted; what holds or not is how much of it many keep.
        let line = row(format!("GPUs: {gpus}"), place, Claim::AtLeast(30.0), ours, "TFLOPS a GPU");
        rows.push(if gpus == 1 { line.fitted() } else { line });
        if gpus >= 64 {
            let ratio = Ok(time(System::Zero2) / time(IN_TIME));
            let what = format!("GPUs: {gpus}, of the speed of ZeRO-2");
            rows.push(row(what, place, Claim::AtMost(1.0), ratio, "times"));
        }
    }
    rows
}
