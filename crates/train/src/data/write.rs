//! Numbers as the bytes of a tensor.

use tiercel_workload::graph::DType;

use tiercel_kernels::narrow;

/// Writes every element of a tensor: numbers where its format has fractions, else whole ones.
pub(super) fn write(dtype: DType, bytes: &mut [u8], number: impl Fn(u64) -> f32, whole: impl Fn(u64) -> u64) {
    let elements = bytes.chunks_exact_mut(dtype.size() as usize).zip(0u64..);
    match dtype {
        DType::F32 => elements.for_each(|(out, i)| out.copy_from_slice(&number(i).to_le_bytes())),
        DType::Bf16 => {
            elements.for_each(|(out, i)| out.copy_from_slice(&narrow::round(number(i)).to_le_bytes()));
        }
        DType::I32 => elements.for_each(|(out, i)| out.copy_from_slice(&(whole(i) as i32).to_le_bytes())),
        DType::I64 => elements.for_each(|(out, i)| out.copy_from_slice(&(whole(i) as i64).to_le_bytes())),
    }
}
