//! Vectors of particles: what a processor does to several at once, in either precision.
//!
//! The inner loops are written once over [`Vector`] and compiled for what the processor has. Every vector has the same
//! number of lanes whatever the instructions, and sums of lanes are taken in the same order, so results are the same
//! bits with and without AVX2.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::sync::OnceLock;

use bytemuck::Pod;

#[cfg(target_arch = "x86_64")]
pub use avx2::{Wide4, Wide8};
pub use portable::{Eight, Four};

/// A floating-point number: `f32` or `f64`.
pub trait Real:
    Pod
    + Debug
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + Send
    + Sync
    + 'static
{
    /// What the precision is called in decks and results.
    const NAME: &'static str;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// The largest number below one.
    const BELOW_ONE: Self;
    /// The vectors that any processor has.
    type Plain: Vector<Real = Self>;
    /// The vectors that processors with AVX2 have.
    type Wide: Vector<Real = Self>;
    /// The nearest number of this precision.
    fn of(x: f64) -> Self;
    /// The same number in double precision.
    fn wide(self) -> f64;
    /// `self · b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
    /// The square root.
    fn root(self) -> Self;
    /// The largest whole number that is not above it.
    fn floor(self) -> Self;
}

macro_rules! real {
    ($real:ident, $plain:ident, $wide:ident) => {
        impl Real for $real {
            const NAME: &'static str = stringify!($real);
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const BELOW_ONE: Self = 1.0 - $real::EPSILON / 2.0;
            type Plain = $plain;
            #[cfg(target_arch = "x86_64")]
            type Wide = $wide;
            #[cfg(not(target_arch = "x86_64"))]
            type Wide = $plain;
            #[inline(always)]
            fn of(x: f64) -> Self {
                x as $real
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn fma(self, b: Self, c: Self) -> Self {
                self.mul_add(b, c)
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn floor(self) -> Self {
                $real::floor(self)
            }
        }
    };
}

real!(f32, Eight, Wide8);
real!(f64, Four, Wide4);

/// Several numbers that are worked on at once.
pub trait Vector: Copy {
    /// Its numbers.
    type Real: Real;
    /// The same numbers in memory.
    type Block: Pod + Default + AsRef<[Self::Real]> + AsMut<[Self::Real]> + Send + Sync;
    /// How many there are.
    const LANES: usize;
    /// The same number in all lanes.
    fn splat(x: Self::Real) -> Self;
    /// From memory.
    fn load(block: &Self::Block) -> Self;
    /// To memory.
    fn store(self, block: &mut Self::Block);
    /// Sums.
    fn add(self, b: Self) -> Self;
    /// Differences.
    fn sub(self, b: Self) -> Self;
    /// Products.
    fn mul(self, b: Self) -> Self;
    /// Quotients.
    fn div(self, b: Self) -> Self;
    /// `self · b + c`.
    fn fma(self, b: Self, c: Self) -> Self;
    /// `c − self · b`.
    fn fnma(self, b: Self, c: Self) -> Self;
    /// Square roots.
    fn root(self) -> Self;
    /// Which lanes are at least zero and below one: a mask.
    fn within(self) -> Self;
    /// The lanes that are in both masks; or a vector with the lanes that are not in a mask set to zero.
    fn and(self, mask: Self) -> Self;
    /// A mask as bits, the first lane lowest.
    fn bits(self) -> u32;
    /// The sum of all lanes, halves first.
    fn sum(self) -> Self::Real;
}

/// Which instructions the inner loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Whatever the compiler assumes.
    Portable,
    /// 256 bits with fused multiply-add.
    Avx2,
}

/// The best that this processor has; `TIERCEL_SIMD=portable` leaves better vectors unused.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let plain = std::env::var("TIERCEL_SIMD").is_ok_and(|name| name == "portable");
        if plain { Level::Portable } else { best() }
    })
}

#[cfg(target_arch = "x86_64")]
fn best() -> Level {
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        Level::Avx2
    } else {
        Level::Portable
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn best() -> Level {
    Level::Portable
}

/// Work that is compiled once for each kind of vectors.
pub trait Task<R: Real> {
    /// What comes out.
    type Output;
    /// Does it with these vectors; must be inlined.
    fn run<V: Vector<Real = R>>(self) -> Self::Output;
}

/// Does a task with the best vectors that there are, or the portable ones.
pub fn dispatch<R: Real, T: Task<R>>(level: Level, task: T) -> T::Output {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 if best() == Level::Avx2 => avx2::run(task),
        _ => task.run::<R::Plain>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every operation, and gives the bits of what came out.
    struct All<R>(Vec<R>);

    impl<R: Real> Task<R> for All<R> {
        type Output = Vec<f64>;
        #[inline(always)]
        fn run<V: Vector<Real = R>>(self) -> Vec<f64> {
            let blocks: Vec<V::Block> = self
                .0
                .chunks(V::LANES)
                .map(|chunk| {
                    let mut block = V::Block::default();
                    block.as_mut().copy_from_slice(chunk);
                    block
                })
                .collect();
            let mut out = Vec::new();
            for pair in blocks.windows(2) {
                let (a, b) = (V::load(&pair[0]), V::load(&pair[1]));
                let two = V::splat(R::of(2.0));
                let made = [
                    a.add(b),
                    a.sub(b),
                    a.mul(b),
                    a.div(b),
                    a.fma(b, two),
                    a.fnma(b, two),
                    a.mul(a).root(),
                    a.and(b.within()),
                ];
                for vector in made {
                    let mut block = V::Block::default();
                    vector.store(&mut block);
                    out.extend(block.as_ref().iter().map(|x| x.wide()));
                    out.push(vector.sum().wide());
                }
                out.push(f64::from(a.within().bits()));
            }
            out
        }
    }

    fn same<R: Real>() {
        let mut chance = fastrand::Rng::with_seed(7);
        let mut numbers: Vec<R> = (0..800).map(|_| R::of(chance.f64() * 4.0 - 2.0)).collect();
        numbers[..4].copy_from_slice(&[R::ZERO, R::ONE, R::BELOW_ONE, R::of(-0.0)]);
        let bits = |all: Vec<f64>| all.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        let plain = bits(dispatch(Level::Portable, All(numbers.clone())));
        assert_eq!(plain, bits(dispatch(best(), All(numbers))));
    }

    #[test]
    fn all_kinds_of_vectors_give_the_same_bits() {
        same::<f32>();
        same::<f64>();
    }
}
