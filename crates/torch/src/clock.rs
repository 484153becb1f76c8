//! How long an operation of PyTorch takes on a GPU that nobody has asked: the machine file's model, by kinds of operations.
//!
//! What an operation computes and what it moves is known without running it (`python/tiercel/_dry.py`); what kind it is follows from
//! its name here. Kinds stand in machine files (`[kernels.kind."torch.…"]` in `machines/h200.toml`) and say which share of the
//! processor is reached and how often bytes pass through memory. Time that the host takes to launch operations is not in it.

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_profile::{Model, ModelError};
use tiercel_sim::KernelTime;
use tiercel_workload::trace::{Kernel, Phase, TensorId, Use};

/// One operation, as far as its time depends on it.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Its type, such as `mm` or `native_layer_norm_backward`.
    pub op: String,
    /// The numbers that it computes with: `half`, `tf32` or `f32`.
    pub format: String,
    /// Floating-point operations, a multiply-add as two.
    pub flops: u64,
    /// Bytes that it reads.
    pub read: u64,
    /// Bytes that it writes.
    pub written: u64,
    /// Whether tensor cores cannot take its rows as they lie, because they are no multiple of 4 bytes.
    pub odd: bool,
    /// Whether it goes through memory with strides.
    pub strided: bool,
}

/// Operations whose name contains the first have the kind of the second; the first that fits counts.
const KINDS: [(&str, &str); 22] = [
    ("attention", "torch.attention"),
    ("convolution", "torch.conv"),
    ("layer_norm_backward", "torch.row-norm.backward"),
    ("rms_norm_backward", "torch.row-norm.backward"),
    ("norm_backward", "torch.norm.backward"),
    ("_norm", "torch.norm"),
    ("linalg", "torch.sum"),
    ("softmax", "torch.softmax"),
    ("embedding_dense_backward", "torch.scatter"),
    ("index_put", "torch.scatter"),
    ("scatter", "torch.scatter"),
    ("index_add", "torch.scatter"),
    ("dropout_backward", "torch.map"),
    ("dropout", "torch.random"),
    ("bernoulli", "torch.random"),
    ("pool", "torch.pool"),
    ("upsample", "torch.pool"),
    ("sum", "torch.sum"),
    ("mean", "torch.sum"),
    ("var", "torch.sum"),
    ("max", "torch.sum"),
    ("sort", "torch.scatter"),
];

/// The kind of an operation.
pub fn kind(call: &Call) -> String {
    let known = KINDS.iter().find(|(part, _)| call.op.contains(part)).map(|(_, kind)| *kind);
    let format = match (call.format.as_str(), known) {
        ("tf32", Some("torch.attention")) => "half",
        (format @ ("half" | "tf32"), _) => format,
        _ => "f32",
    };
    match known {
        Some(kind @ ("torch.attention" | "torch.conv")) => format!("{kind}.{format}"),
        Some(kind) if call.flops == 0 => kind.to_string(),
        _ if call.flops > 0 && call.odd && format != "f32" => "torch.product.odd".to_string(),
        _ if call.flops > 0 => format!("torch.product.{format}"),
        _ if call.strided => "torch.strided".to_string(),
        _ => "torch.map".to_string(),
    }
}

/// How long each of these operations takes on a machine, with everything in its fastest memory.
pub fn times(machine: &Machine, calls: &[Call]) -> Result<Vec<Nanos>, ModelError> {
    let model = Model::new(machine)?;
    Ok(calls.iter().map(|call| time(&model, machine, call)).collect())
}

fn time(model: &Model, machine: &Machine, call: &Call) -> Nanos {
    let operand = |bytes: u64| vec![Use { tensor: TensorId(0), bytes: Bytes(bytes) }];
    let kernel = Kernel {
        name: call.op.clone(),
        op: kind(call),
        reads: operand(call.read),
        writes: operand(call.written),
        flops: call.flops,
        layer: 0,
        phase: Phase::Forward,
        timings: Vec::new(),
        alternatives: Vec::new(),
        detached: false,
        factor: 1.0,
        repeat: None,
        derived: Default::default(),
    };
    model.time(machine, &kernel, &[TierId(0); 2])
}

#[cfg(test)]
mod tests {
    use tiercel_profile::machines;

    use super::*;

    fn call(op: &str, format: &str, flops: u64, read: u64, written: u64) -> Call {
        Call { op: op.into(), format: format.into(), flops, read, written, ..Call::default() }
    }

    #[test]
    fn kinds_follow_from_names() {
        let kinds = |op: &str, flops: u64| kind(&call(op, "half", flops, 1, 1));
        assert_eq!(kinds("addmm", 10), "torch.product.half");
        assert_eq!(kinds("convolution_backward", 10), "torch.conv.half");
        assert_eq!(kinds("_scaled_dot_product_flash_attention", 10), "torch.attention.half");
        assert_eq!(kinds("native_layer_norm_backward", 0), "torch.row-norm.backward");
        assert_eq!(kinds("cudnn_batch_norm_backward", 0), "torch.norm.backward");
        assert_eq!(kinds("native_dropout", 0), "torch.random");
        assert_eq!(kinds("add.Tensor", 0), "torch.map");
        assert_eq!(kind(&Call { strided: true, ..call("clone", "half", 0, 1, 1) }), "torch.strided");
        assert_eq!(kind(&Call { odd: true, ..call("mm", "half", 9, 1, 1) }), "torch.product.odd");
    }

    /// Every kind that operations can have is in the file that others are like.
    #[test]
    fn every_kind_is_known_of_the_h200() {
        let machine = machines::named("h200").expect("it ships");
        let kernels = machine.kernels.expect("it has kernels");
        let plain = KINDS.iter().map(|(_, kind)| kind.to_string());
        let plain = plain.filter(|kind| !["torch.attention", "torch.conv"].contains(&kind.as_str()));
        let with_format = ["half", "tf32", "f32"]
            .iter()
            .flat_map(|format| ["product", "conv", "attention"].map(|kind| format!("torch.{kind}.{format}")));
        let with_format = with_format.filter(|kind| kind != "torch.attention.tf32");
        for kind in plain.chain(with_format).chain(["torch.strided".into(), "torch.product.odd".into()]) {
            assert!(kernels.kinds.contains_key(&kind), "{kind}");
        }
    }

    #[test]
    fn large_products_take_arithmetic_and_large_maps_take_bytes() {
        for name in
            ["h200", "h100", "a100-80gb", "a100-40gb", "rtx3090", "rtx4090", "rtx5090", "l40s", "a10g"]
        {
            let machine = machines::named(name).expect("it ships");
            let product = call("mm", "half", 2 << 40, 1 << 26, 1 << 26);
            let map = call("add.Tensor", "half", 0, 1 << 30, 1 << 30);
            let found =
                times(&machine, &[product.clone(), Call { odd: true, ..product }, map]).expect("a model");
            let rate = (2u64 << 40) as f64 / found[0].seconds() / (machine.compute.gflops * 1e9);
            assert!((1.5..2.1).contains(&rate), "{name}: bf16 over TF32 is {rate}");
            assert!(found[1] > found[0], "{name}: rows that do not fit are slower");
            let speed = (2u64 << 30) as f64 / found[2].seconds();
            let fastest = machine.tiers[0].read.0;
            assert!((0.5 * fastest..=1.01 * fastest).contains(&speed), "{name}: {speed} of {fastest}");
        }
    }
}
