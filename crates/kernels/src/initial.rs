//! First contents of what no kernel makes: weights, optimizer state, synthetic data.

use crate::KernelError;
use std::collections::HashMap;

use tiercel_workload::Program;
use tiercel_workload::graph::{DType, Init, Value, ValueId};

use super::narrow;
use super::random;

/// What a tensor holds at first.
#[derive(Clone, Debug)]
struct Start {
    init: Init,
    dtype: DType,
    /// The name whose random numbers it has: its own, or that of the value that it copies or is a part of.
    key: u64,
    /// How many of those come before its own.
    first: usize,
    /// The number format that its numbers were rounded to before.
    through: DType,
    /// Whether it comes anew for every iteration.
    fed: bool,
}

/// What every tensor of a program holds at first, by its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Starts {
    by_name: HashMap<String, Start>,
}

impl Starts {
    pub fn new(program: &Program) -> Starts {
        let graph = &program.graph;
        let of = |id: ValueId, value: &Value| {
            let source = match value.init {
                Init::Copy(other) => other,
                _ => id,
            };
            let (source, first) = graph.whole(source);
            let source = graph.value(source);
            Start {
                init: source.init,
                dtype: value.dtype,
                key: random::name(&source.name),
                first: first as usize,
                through: source.dtype,
                fed: !value.persistent,
            }
        };
        let made = (0..).map(ValueId).zip(&graph.values).filter(|(_, v)| v.view_of.is_none());
        Starts { by_name: made.map(|(id, v)| (v.name.clone(), of(id, v))).collect() }
    }

    /// Fills a tensor; the data of every iteration differs, all else depends on the seed and the name alone.
    pub fn fill(&self, name: &str, seed: u64, iteration: u64, bytes: &mut [u8]) -> Result<(), KernelError> {
        let Some(start) = self.by_name.get(name) else {
            return Err(KernelError::Value(name.to_string()));
        };
        let key = random::key(&[seed, start.key, if start.fed { 1 + iteration } else { 0 }]);
        let number = |at: usize| match start.init {
            Init::Constant(c) => c,
            Init::Normal(deviation) => deviation * random::normal(key, at as u64),
            Init::Below(n) => (random::mix(key ^ at as u64) % n.max(1)) as f32,
            Init::Ascending => at as f32,
            Init::Computed | Init::Copy(_) => 0.0,
        };
        let rounded = |at: usize| match start.through {
            DType::Bf16 => narrow::widen(narrow::round(number(at))),
            _ => number(at),
        };
        let below = |at: usize| match start.init {
            Init::Below(n) => random::mix(key ^ at as u64) % n.max(1),
            Init::Ascending => at as u64,
            _ => number(at) as u64,
        };
        let misfit = |error| KernelError::Cast { what: name.to_string(), error };
        match start.dtype {
            DType::F32 => {
                let numbers: &mut [f32] = bytemuck::try_cast_slice_mut(bytes).map_err(misfit)?;
                numbers.iter_mut().zip(start.first..).for_each(|(n, at)| *n = rounded(at));
            }
            DType::Bf16 => {
                let numbers: &mut [u16] = bytemuck::try_cast_slice_mut(bytes).map_err(misfit)?;
                numbers.iter_mut().zip(start.first..).for_each(|(n, at)| *n = narrow::round(number(at)));
            }
            DType::I32 => {
                let numbers: &mut [i32] = bytemuck::try_cast_slice_mut(bytes).map_err(misfit)?;
                numbers.iter_mut().zip(start.first..).for_each(|(n, at)| *n = below(at) as i32);
            }
            DType::I64 => {
                let numbers: &mut [i64] = bytemuck::try_cast_slice_mut(bytes).map_err(misfit)?;
                numbers.iter_mut().zip(start.first..).for_each(|(n, at)| *n = below(at) as i64);
            }
        }
        Ok(())
    }
}
