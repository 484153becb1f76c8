//! What tensors hold before a kernel writes them: numbers from [`Init`], in the tensor's own format.

use tiercel_workload::graph::{DType, Graph, Init, Value};

use super::random::Stream;

/// Fills a value's bytes as its [`Init`] says. `stream` is the value's own; the numbers at an index are the same
/// however the value is stored, up to rounding.
pub fn fill(graph: &Graph, value: &Value, seed: u64, bytes: &mut [u8]) {
    match value.init {
        // Nothing was computed yet; zeros, so that what is read too early is the same every time.
        Init::Computed => bytes.fill(0),
        Init::Copy(of) => {
            let source = graph.value(of);
            let stream = Stream::new(seed, &source.name);
            let narrow = source.dtype == DType::Bf16;
            let number = |i| {
                let x = number(source.init, stream, i);
                if narrow { f32::from_bits(u32::from(bf16(x)) << 16) } else { x }
            };
            write(value.dtype, bytes, number, |i| whole(source.init, stream, i));
        }
        init => fill_from(value, init, Stream::new(seed, &value.name), bytes),
    }
}

/// Fills a value's bytes from a stream.
pub(crate) fn fill_from(value: &Value, init: Init, stream: Stream, bytes: &mut [u8]) {
    match init {
        Init::Normal(deviation) => {
            write(value.dtype, bytes, |i| deviation * stream.normal(i), |i| whole(init, stream, i));
        }
        _ => write(value.dtype, bytes, |i| number(init, stream, i), |i| whole(init, stream, i)),
    }
}

fn number(init: Init, stream: Stream, index: u64) -> f32 {
    match init {
        Init::Constant(x) => x,
        Init::Normal(deviation) => deviation * stream.normal(index),
        Init::Below(_) | Init::Ascending => whole(init, stream, index) as f32,
        Init::Computed | Init::Copy(_) => 0.0,
    }
}

fn whole(init: Init, stream: Stream, index: u64) -> u64 {
    match init {
        Init::Constant(x) => x as u64,
        Init::Below(bound) => stream.below(index, bound.max(1)),
        Init::Ascending => index,
        Init::Normal(_) | Init::Computed | Init::Copy(_) => 0,
    }
}

/// Writes every element of a tensor: numbers where its format has fractions, else whole ones.
pub(crate) fn write(dtype: DType, bytes: &mut [u8], number: impl Fn(u64) -> f32, whole: impl Fn(u64) -> u64) {
    let size = dtype.size() as usize;
    let elements = bytes.chunks_exact_mut(size).zip(0u64..);
    match dtype {
        DType::F32 => elements.for_each(|(out, i)| out.copy_from_slice(&number(i).to_le_bytes())),
        DType::Bf16 => elements.for_each(|(out, i)| out.copy_from_slice(&bf16(number(i)).to_le_bytes())),
        DType::I32 => elements.for_each(|(out, i)| out.copy_from_slice(&(whole(i) as i32).to_le_bytes())),
        DType::I64 => elements.for_each(|(out, i)| out.copy_from_slice(&(whole(i) as i64).to_le_bytes())),
    }
}

/// The nearest number with eight bits of precision, ties to even; what is not a number stays none.
pub(crate) fn bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use tiercel_workload::graph::{Builder, Optimizer};

    use super::*;

    fn network(dtype: DType) -> Graph {
        let mut b = Builder::new("tiny", dtype);
        let x = b.input("x", [4, 8]);
        b.layer("one");
        let y = b.linear(x, 3);
        let loss = b.cross_entropy(y, "labels");
        b.train(&[loss], Optimizer::MOMENTUM);
        b.finish().expect("fits")
    }

    fn filled(graph: &Graph, name: &str, seed: u64) -> Vec<u8> {
        let value = graph.values.iter().find(|v| v.name == name).expect("it is there");
        let mut bytes = vec![0xaa; value.shape.bytes(value.dtype).0 as usize];
        fill(graph, value, seed, &mut bytes);
        bytes
    }

    #[test]
    fn contents_follow_from_seed_and_name() {
        let graph = network(DType::F32);
        let weight = filled(&graph, "one.weight", 1);
        assert_eq!(weight, filled(&graph, "one.weight", 1));
        assert_ne!(weight, filled(&graph, "one.weight", 2));
        assert_ne!(weight[..], filled(&graph, "x", 1)[..weight.len()]);
        assert!(filled(&graph, "one.bias", 1).iter().all(|b| *b == 0));
        let labels = filled(&graph, "labels", 1);
        assert!(labels.chunks_exact(4).all(|l| i32::from_le_bytes(l.try_into().unwrap()) < 3));
    }

    #[test]
    fn a_master_is_the_rounded_weight() {
        let graph = network(DType::Bf16);
        let weight = filled(&graph, "one.weight", 5);
        let master = filled(&graph, "one.weight.master", 5);
        assert_eq!(weight.len() * 2, master.len());
        for (narrow, wide) in weight.chunks_exact(2).zip(master.chunks_exact(4)) {
            assert_eq!([0, 0, narrow[0], narrow[1]], wide);
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_and_ties_to_even() {
        let widen = |x: u16| f32::from_bits(u32::from(x) << 16);
        assert_eq!(widen(bf16(1.0)), 1.0);
        assert_eq!(widen(bf16(1.0 + 1.0 / 256.0)), 1.0);
        assert_eq!(widen(bf16(1.0 + 3.0 / 256.0)), 1.0 + 4.0 / 256.0);
        assert_eq!(widen(bf16(-1.003_906_4)), -1.007_812_5);
        assert!(widen(bf16(f32::NAN)).is_nan());
        assert_eq!(widen(bf16(f32::INFINITY)), f32::INFINITY);
        assert_eq!(widen(bf16(f32::MAX)), f32::INFINITY);
    }
}
