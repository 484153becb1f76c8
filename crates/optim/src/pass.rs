//! The pass over memory: every number is read once and written once (Algorithm 4).
//!
//! Parameters fall into tiles of one size. A thread that is free takes the next one, so that a core which does something else
//! meanwhile holds up nobody; tiles finish about in their order, and the first ones can leave while the last are computed. No
//! number depends on another, so results depend neither on the tiles nor on the threads.
//!
//! The loop is written once, plainly, and compiled for each instruction set; the compiler turns it into vector code and
//! changes no rounding.

use std::ops::Range;
use std::sync::Mutex;

use tiercel_kernels::pool::Pool;
use tiercel_kernels::simd::{Level, level};

use crate::number::{Bf16, Emulated, F16, Fused, Instruction, Number};
use crate::rule::{AdamStep, Decay, Factors, Rule, SgdStep, Step};

/// Parameters in a tile: the streams of one tile fit into a core's own cache.
pub const TILE: usize = 16 << 10;

/// Gradients, in the numbers that they come in.
#[derive(Clone, Copy, Debug)]
pub enum Gradient<'a> {
    /// 32 bits.
    F32(&'a [f32]),
    /// The upper halves of those.
    Bf16(&'a [Bf16]),
    /// Half precision.
    F16(&'a [F16]),
}

/// Where new parameters go beside their place in 32 bits.
#[derive(Debug)]
pub enum Output<'a> {
    /// Nowhere.
    None,
    /// As they are, to another place.
    F32(&'a mut [f32]),
    /// Rounded to the upper halves.
    Bf16(&'a mut [Bf16]),
    /// Rounded to half precision.
    F16(&'a mut [F16]),
}

/// Parameters that change in one step of an optimizer, and all that changes with them. All slices are of one length, but
/// for moments that the optimizer does not keep.
#[derive(Debug)]
pub struct Part<'a> {
    /// The parameters.
    pub parameter: &'a mut [f32],
    /// Their first moments.
    pub first: &'a mut [f32],
    /// Their second moments.
    pub second: &'a mut [f32],
    /// Their gradients.
    pub gradient: Gradient<'a>,
    /// Where the new parameters also go.
    pub output: Output<'a>,
}

/// Takes step `step` (the first is 1) with gradients that are first multiplied with two factors, one after the other.
/// `finished` is called with the range of each finished tile, by the thread that finished it.
///
/// # Panics
/// If slices are not of one length, or `finished` panics.
pub fn update(
    pool: &mut Pool,
    rule: Rule,
    step: u64,
    factors: [f32; 2],
    part: Part<'_>,
    finished: &(dyn Fn(Range<usize>) + Sync),
) {
    update_at(level(), pool, rule, step, factors, part, finished);
}

/// The same on a given instruction set, or the best that the processor has where it lacks that.
pub fn update_at(
    level: Level,
    pool: &mut Pool,
    rule: Rule,
    step: u64,
    factors: [f32; 2],
    part: Part<'_>,
    finished: &(dyn Fn(Range<usize>) + Sync),
) {
    let factors = Factors(factors);
    let pass = Pass { level: level.min(tiercel_kernels::simd::level()), finished };
    match rule {
        Rule::Adam(adam) if adam.kind == Decay::Coupled => {
            pass.run(pool, AdamStep::<true>::new(adam, step, factors), part);
        }
        Rule::Adam(adam) => pass.run(pool, AdamStep::<false>::new(adam, step, factors), part),
        Rule::Sgd(sgd) if sgd.momentum != 0.0 => {
            pass.run(pool, SgdStep::<true>::new(sgd, step, factors), part);
        }
        Rule::Sgd(sgd) => pass.run(pool, SgdStep::<false>::new(sgd, step, factors), part),
    }
}

/// A new number that goes nowhere.
#[derive(Clone, Copy)]
struct Nowhere;

impl Number for Nowhere {
    fn widen(self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn narrow(_: f32) -> Nowhere {
        Nowhere
    }
}

struct Pass<'p> {
    level: Level,
    finished: &'p (dyn Fn(Range<usize>) + Sync),
}

/// The slices of one tile.
struct Tile<'a, G, O> {
    start: usize,
    parameter: &'a mut [f32],
    moments: [&'a mut [f32]; 2],
    gradient: &'a [G],
    output: &'a mut [O],
}

impl Pass<'_> {
    fn run<S: Step>(&self, pool: &mut Pool, step: S, part: Part<'_>) {
        let Part { parameter, first, second, gradient, output } = part;
        let moments = [first, second];
        match gradient {
            Gradient::F32(g) => self.with(pool, step, parameter, moments, g, output),
            Gradient::Bf16(g) => self.with(pool, step, parameter, moments, g, output),
            Gradient::F16(g) => self.with(pool, step, parameter, moments, g, output),
        }
    }

    fn with<S: Step, G: Number>(
        &self,
        pool: &mut Pool,
        step: S,
        parameter: &mut [f32],
        moments: [&mut [f32]; 2],
        gradient: &[G],
        output: Output<'_>,
    ) {
        let mut nowhere = vec![Nowhere; parameter.len()];
        match output {
            Output::None => self.tiles(pool, step, parameter, moments, gradient, &mut nowhere),
            Output::F32(out) => self.tiles(pool, step, parameter, moments, gradient, out),
            Output::Bf16(out) => self.tiles(pool, step, parameter, moments, gradient, out),
            Output::F16(out) => self.tiles(pool, step, parameter, moments, gradient, out),
        }
    }

    fn tiles<S: Step, G: Number, O: Number>(
        &self,
        pool: &mut Pool,
        step: S,
        parameter: &mut [f32],
        [first, second]: [&mut [f32]; 2],
        gradient: &[G],
        output: &mut [O],
    ) {
        let len = parameter.len();
        assert_eq!(gradient.len(), len, "as many gradients as parameters");
        assert_eq!(output.len(), len, "as many outputs as parameters");
        assert!(S::MOMENTS < 1 || first.len() == len, "as many first moments as parameters");
        assert!(S::MOMENTS < 2 || second.len() == len, "as many second moments as parameters");
        let mut moments = [first.chunks_mut(TILE), second.chunks_mut(TILE)];
        let parts = parameter.chunks_mut(TILE).zip(gradient.chunks(TILE)).zip(output.chunks_mut(TILE));
        let tiles = parts.enumerate().map(|(index, ((parameter, gradient), output))| {
            let [first, second] = &mut moments;
            let first = if S::MOMENTS < 1 { &mut [] } else { first.next().unwrap_or_default() };
            let second = if S::MOMENTS < 2 { &mut [] } else { second.next().unwrap_or_default() };
            Tile { start: index * TILE, parameter, moments: [first, second], gradient, output }
        });
        let tiles = Mutex::new(tiles);
        let next = || tiles.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
        let work = |_: usize| {
            while let Some(mut tile) = next() {
                let range = tile.start..tile.start + tile.parameter.len();
                one(self.level, step, &mut tile);
                (self.finished)(range);
            }
        };
        if len <= TILE { work(0) } else { pool.run(&work) }
    }
}

/// Changes the parameters of one tile.
fn one<S: Step, G: Number, O: Number>(level: Level, step: S, tile: &mut Tile<'_, G, O>) {
    let Tile { parameter, moments: [first, second], gradient, output, .. } = tile;
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: levels are at most what the processor has.
        Level::Avx512 => unsafe { avx512(step, parameter, first, second, gradient, output) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: levels are at most what the processor has.
        Level::Avx2 => unsafe { avx2(step, parameter, first, second, gradient, output) },
        #[cfg(target_arch = "aarch64")]
        _ => each::<Instruction, S, G, O>(step, parameter, first, second, gradient, output),
        #[cfg(not(target_arch = "aarch64"))]
        _ => each::<Emulated, S, G, O>(step, parameter, first, second, gradient, output),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn avx512<S: Step, G: Number, O: Number>(
    step: S,
    parameter: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradient: &[G],
    output: &mut [O],
) {
    each::<Instruction, S, G, O>(step, parameter, first, second, gradient, output);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<S: Step, G: Number, O: Number>(
    step: S,
    parameter: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradient: &[G],
    output: &mut [O],
) {
    each::<Instruction, S, G, O>(step, parameter, first, second, gradient, output);
}

/// The loop over parameters.
#[inline(always)]
fn each<F: Fused, S: Step, G: Number, O: Number>(
    step: S,
    parameter: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradient: &[G],
    output: &mut [O],
) {
    let len = parameter.len();
    let (gradient, output) = (&gradient[..len], &mut output[..len]);
    match S::MOMENTS {
        2 => {
            let (first, second) = (&mut first[..len], &mut second[..len]);
            for i in 0..len {
                let old = [first[i], second[i]];
                let (p, [m, v]) = step.step::<F>(parameter[i], old, gradient[i].widen());
                (parameter[i], first[i], second[i]) = (p, m, v);
                output[i] = O::narrow(p);
            }
        }
        1 => {
            let first = &mut first[..len];
            for i in 0..len {
                let (p, [m, _]) = step.step::<F>(parameter[i], [first[i], 0.0], gradient[i].widen());
                (parameter[i], first[i]) = (p, m);
                output[i] = O::narrow(p);
            }
        }
        _ => {
            for i in 0..len {
                let (p, _) = step.step::<F>(parameter[i], [0.0; 2], gradient[i].widen());
                parameter[i] = p;
                output[i] = O::narrow(p);
            }
        }
    }
}
