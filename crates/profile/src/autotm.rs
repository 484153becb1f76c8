//! Reads the kernel profile that AutoTM's authors measured, as kernels like those of our own traces.
//!
//! The columns are kernel, input_shapes, output_shapes, input_loc, output_loc, time_us; shapes are width x height x
//! channels x batch, float32 throughout, and a location is D (DRAM) or P (persistent memory). Lines that begin with #
//! say where the file comes from. A key that repeats (the file has no column for layouts) counts with the mean of its
//! times, and times of 0 are left out: they are those of kernels that did nothing, or less than the clock saw.

use std::collections::BTreeMap;

use tiercel_core::{Bytes, TierId};
use tiercel_workload::trace::Phase;
use tiercel_workload::{Kernel, TensorId, Use};

/// A kernel with its shapes, and its time for every placement that was measured.
#[derive(Clone, Debug)]
pub struct Group {
    /// The kernel; its `op` is the name in the profile.
    pub kernel: Kernel,
    /// The time in seconds with everything in DRAM.
    pub fast: f64,
    /// Other placements, reads then writes, with their times in seconds.
    pub moved: Vec<(Vec<TierId>, f64)>,
}

impl Group {
    /// The placement with everything in DRAM.
    pub fn all_fast(&self) -> Vec<TierId> {
        vec![TierId(0); self.kernel.reads.len() + self.kernel.writes.len()]
    }

    /// All bytes that the kernel touches.
    pub fn footprint(&self) -> u64 {
        self.kernel.reads.iter().chain(&self.kernel.writes).map(|u| u.bytes.0).sum()
    }
}

/// What is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ProfileError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

/// A kernel type with its shapes, as written.
type Key<'a> = (&'a str, &'a str, &'a str);

/// Reads a profile. Kernels whose time with everything in DRAM is unknown are left out: nothing is relative to them.
pub fn parse(csv: &str) -> Result<Vec<Group>, ProfileError> {
    let mut times: BTreeMap<Key<'_>, BTreeMap<Vec<TierId>, Vec<f64>>> = BTreeMap::new();
    for (at, line) in csv.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') || line.starts_with("kernel,") {
            continue;
        }
        let wrong = |what: String| ProfileError { line: at + 1, what };
        let cells: Vec<&str> = line.trim().split(',').collect();
        let [kernel, inputs, outputs, read_from, written_to, time] = cells[..] else {
            return Err(wrong(format!("{} columns; there should be 6", cells.len())));
        };
        let micros: f64 = time.parse().map_err(|_| wrong(format!("`{time}` is no time")))?;
        if !(micros.is_finite() && micros >= 0.0) {
            return Err(wrong(format!("`{time}` is no time")));
        }
        let place = |letter| match letter {
            'D' => Ok(TierId(0)),
            'P' => Ok(TierId(1)),
            other => Err(wrong(format!("`{other}` is no location; there are D and P"))),
        };
        let tiers: Vec<TierId> =
            read_from.chars().chain(written_to.chars()).map(place).collect::<Result<_, _>>()?;
        let (reads, writes) = (shapes(inputs).map_err(wrong)?, shapes(outputs).map_err(wrong)?);
        if (reads.len(), writes.len()) != (read_from.len(), written_to.len()) {
            return Err(wrong("as many locations as shapes are needed".to_string()));
        }
        if micros > 0.0 {
            times.entry((kernel, inputs, outputs)).or_default().entry(tiers).or_default().push(micros / 1e6);
        }
    }
    let mut groups = Vec::new();
    for ((op, inputs, outputs), placements) in times {
        let both = shapes(inputs).and_then(|r| Ok((r, shapes(outputs)?)));
        let (reads, writes) = both.expect("shapes that were read before");
        let mean = |times: &Vec<f64>| times.iter().sum::<f64>() / times.len() as f64;
        let kernel = kernel(op, &reads, &writes);
        let is_fast = |tiers: &Vec<TierId>| tiers.iter().all(|t| *t == TierId(0));
        let Some(fast) = placements.iter().find(|(tiers, _)| is_fast(tiers)).map(|(_, t)| mean(t)) else {
            continue;
        };
        let moved = placements.iter().filter(|(tiers, _)| !is_fast(tiers)).map(|(p, t)| (p.clone(), mean(t)));
        groups.push(Group { kernel, fast, moved: moved.collect() });
    }
    Ok(groups)
}

type Shape = Vec<u64>;

fn shapes(text: &str) -> Result<Vec<Shape>, String> {
    let dim = |d: &str| d.parse::<u64>().ok().filter(|d| (1..=1 << 32).contains(d));
    let shape = |s: &str| {
        let dims: Option<Shape> = s.split('x').map(dim).collect();
        let small =
            |dims: &Shape| dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).is_some_and(|n| n < 1 << 60);
        dims.filter(small).ok_or_else(|| format!("`{s}` is no shape"))
    };
    text.split(';').map(shape).collect()
}

fn elements(shape: &Shape) -> u64 {
    shape.iter().product()
}

/// The kernel with the costs that our own traces state: see `crates/workload/src/graph/cost.rs`.
fn kernel(op: &str, inputs: &[Shape], outputs: &[Shape]) -> Kernel {
    let norm = op.starts_with("BatchNorm");
    let used =
        |shape: &Shape, passes: u64| Use { tensor: TensorId(0), bytes: Bytes(4 * passes * elements(shape)) };
    let reads = inputs.iter().map(|s| used(s, if norm && s.len() == 4 { 2 } else { 1 }));
    Kernel {
        name: op.to_string(),
        op: op.to_string(),
        reads: reads.collect(),
        writes: outputs.iter().map(|s| used(s, 1)).collect(),
        flops: flops(op, inputs, outputs),
        layer: 0,
        phase: Phase::Forward,
        timings: Vec::new(),
        alternatives: Vec::new(),
        detached: false,
        factor: 1.0,
        repeat: None,
        derived: Default::default(),
    }
}

fn flops(op: &str, inputs: &[Shape], outputs: &[Shape]) -> u64 {
    // The taps of one filter: all its extents but the last.
    let taps = |filters: &Shape| filters.iter().rev().skip(1).product::<u64>();
    let largest = || inputs.iter().map(elements).max().unwrap_or(0);
    match (op, inputs, outputs) {
        ("ConvolutionBias" | "Convolution", [_, w, ..], [y, ..]) => 2 * elements(y) * taps(w),
        ("ConvolutionBackpropData", [w, dy, ..], _) => 2 * elements(dy) * taps(w),
        ("ConvolutionBiasBackpropFiltersBias" | "ConvolutionBackpropFilters", [_, dy, ..], [dw, ..]) => {
            2 * elements(dy) * taps(dw)
        }
        // Each of the three extents of a product stands in two of the three matrices.
        ("MatmulBias" | "Dot", [a, b, ..], [y, ..]) => {
            let cube = elements(a) as f64 * elements(b) as f64 * elements(y) as f64;
            2 * cube.sqrt() as u64
        }
        ("BatchNormTrainingBackprop", ..) => 11 * largest(),
        ("BatchNormTraining" | "BatchNormTrainingRelu", ..) => 8 * largest(),
        ("Add" | "Relu" | "ReluBackprop" | "Multiply", ..) => largest(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_are_averaged_and_zeros_left_out() {
        let csv = "# by them\nkernel,input_shapes,output_shapes,input_loc,output_loc,time_us\n\
            Add,10;10,10,DD,D,4.0\nAdd,10;10,10,DD,D,6.0\nAdd,10;10,10,DP,P,50.0\nAdd,10;10,10,PP,P,0.0\n\
            Slice,20,10,P,D,3.0\n";
        let groups = parse(csv).unwrap();
        assert_eq!(groups.len(), 1, "a slice without its time in DRAM says nothing");
        assert!((groups[0].fast - 5e-6).abs() < 1e-12);
        assert_eq!(groups[0].moved.len(), 1);
        assert_eq!((groups[0].kernel.flops, groups[0].footprint()), (10, 120));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, what) in [
            ("Add,1;1,1,DD,D", "line 2: 5 columns; there should be 6"),
            ("Add,1;1,1,DX,D,1", "line 2: `X` is no location; there are D and P"),
            ("Add,1;1,1,D,D,1", "line 2: as many locations as shapes are needed"),
            ("Add,1;1x-3,1,DD,D,1", "line 2: `1x-3` is no shape"),
            ("Add,1;1,1,DD,D,-1", "line 2: `-1` is no time"),
        ] {
            assert_eq!(parse(&format!("# x\n{line}\n")).unwrap_err().to_string(), what);
        }
    }

    #[test]
    fn operations_count_as_in_our_traces() {
        let conv = parse("ConvolutionBias,56x56x64x16;3x3x64x128;128,56x56x128x16,DDD,D,1\n").unwrap();
        assert_eq!(conv[0].kernel.flops, 2 * (56 * 56 * 128 * 16) * (3 * 3 * 64));
        let product = parse("MatmulBias,4096x16;1000x16,1000x4096,DD,D,1\n").unwrap();
        assert_eq!(product[0].kernel.flops, 2 * 4096 * 16 * 1000);
    }
}
