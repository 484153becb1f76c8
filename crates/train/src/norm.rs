//! Batch norm with running statistics: the one kernel that judging a network needs and training it does not.

use tiercel_core::Step;
use tiercel_workload::Program;
use tiercel_workload::graph::DType;

use super::learner::{bytes, operand};
use tiercel_kernels::narrow::{round, widen};
use tiercel_run::stage::View;

/// y = (x − mean) · gamma / √(variance + epsilon) + beta, channel by channel.
pub(crate) fn infer(
    program: &Program,
    step: Step,
    epsilon: f32,
    views: &mut [View<'_>],
) -> Result<(), String> {
    let node = program.node(step);
    let at = |id| operand(program, step, id).ok_or("a batch norm without its operand");
    let [x, gamma, beta, mean, variance] = node.inputs[..] else {
        return Err("a batch norm has five operands".to_string());
    };
    let shape = program.graph.value(x).shape;
    let channels = shape.dim(1) as usize;
    let values = |id| -> Result<Vec<f32>, String> {
        Ok(numbers(program.graph.value(id).dtype, bytes(&views[at(id)?])))
    };
    let [gamma, beta, mean, variance] = [values(gamma)?, values(beta)?, values(mean)?, values(variance)?];
    let factor: Vec<f32> = gamma.iter().zip(&variance).map(|(g, v)| g / (v + epsilon).sqrt()).collect();
    let shift: Vec<f32> = (0..channels).map(|c| beta[c] - mean[c] * factor[c]).collect();

    let (from, to) = (at(x)?, at(node.outputs[0])?);
    let dtype = program.graph.value(x).dtype;
    let plane =
        (shape.elements() / shape.dim(0).max(1) / shape.dim(1).max(1)) as usize * dtype.size() as usize;
    let ([View::Read(source), View::Write(target)] | [View::Write(target), View::Read(source)]) =
        views.get_disjoint_mut([from, to]).map_err(|_| "a batch norm works on two tensors")?
    else {
        return Err("a batch norm reads one tensor and writes another".to_string());
    };
    for (at, (source, target)) in source.chunks_exact(plane).zip(target.chunks_exact_mut(plane)).enumerate() {
        let (factor, shift) = (factor[at % channels], shift[at % channels]);
        match dtype {
            DType::Bf16 => {
                for (x, y) in source.as_chunks::<2>().0.iter().zip(target.as_chunks_mut::<2>().0) {
                    let x = widen(u16::from_le_bytes(*x));
                    *y = round(x * factor + shift).to_le_bytes();
                }
            }
            _ => {
                for (x, y) in source.as_chunks::<4>().0.iter().zip(target.as_chunks_mut::<4>().0) {
                    *y = (f32::from_le_bytes(*x) * factor + shift).to_le_bytes();
                }
            }
        }
    }
    Ok(())
}

/// The elements of a small tensor.
fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DType::Bf16 => bytes.as_chunks::<2>().0.iter().map(|two| widen(u16::from_le_bytes(*two))).collect(),
        _ => bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect(),
    }
}
