//! What depends on the processor: which vectors it has, inner loops written for each (`product.rs`, `paired.rs`,
//! `strip.rs`, `depthwise.rs`, `broad.rs`, `depthwise_strided.rs`, `maxima.rs`, `pack.rs`), vectors for such loops (`vector.rs`) and as
//! values (`lanes`), sums of them (`sums.rs`), and the macro that compiles plain loops once for each.
//!
//! The one place of the kernels with intrinsics. A processor without AVX2 gets the portable code.

#[cfg(target_arch = "x86_64")]
mod broad;
mod depthwise;
#[cfg(target_arch = "x86_64")]
mod depthwise_strided;
mod lanes;
mod maxima;
mod pack;
mod paired;
mod product;
mod strip;
mod sums;
mod vector;

use std::sync::OnceLock;

pub use depthwise::{Depthwise, Weights};
#[cfg(target_arch = "x86_64")]
pub(crate) use lanes::{Avx2, Avx512};
pub(crate) use lanes::{Lanes, Plain, lanes};
pub use maxima::{Keys, Maxima};
pub use pack::{
    Layout, Runs, expect, fetch, fetch_early, foresee, lay, lay_pairs, lay_parted, transpose, transpose_far,
};
pub use paired::{Pairs, correlate_pairs, shifted_pairs};
pub use product::{
    Correlation, LINES, Shifts, Soon, correlate, lines, product, product_ahead, shifted, shifted_along,
};
pub use strip::{Finish, Lying, Panels, STRIP, Strip, strip};
pub(crate) use sums::{PARTS, Sums, add_neighbours, halves};

/// The vectors that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Whatever the compiler assumes.
    Portable,
    /// 256 bits with fused multiply-add.
    Avx2,
    /// 512 bits.
    Avx512,
}

impl Level {
    /// All kinds by name, the least first.
    pub const ALL: [(&'static str, Level); 3] =
        [("portable", Level::Portable), ("avx2", Level::Avx2), ("avx512", Level::Avx512)];

    /// The kind of this name, or `most` where that is less: no processor has more than it has.
    fn at_most(most: Level, name: &str) -> Result<Level, UnknownLevel> {
        let found = Level::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, level)| (*level).min(most)).ok_or_else(|| UnknownLevel(name.to_string()))
    }
}

/// The environment asks for vectors that are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE} is {0:?}, which is none of {names:?}", names = Level::ALL.map(|(name, _)| name))]
pub struct UnknownLevel(pub String);

/// The variable of the environment that names a kind of vectors; better ones are then left unused.
pub const VARIABLE: &str = "TIERCEL_SIMD";

/// The vectors that kernels use: those that this processor has, or lesser ones where [`VARIABLE`] asks for these. It stays
/// what it is at the first call.
#[inline]
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| asked().unwrap_or_else(|_| detect()))
}

/// The same, or why the environment asks for something that is none: then kernels would use what the processor has.
pub fn asked() -> Result<Level, UnknownLevel> {
    match std::env::var(VARIABLE) {
        Ok(name) => Level::at_most(detect(), &name),
        Err(_) => Ok(detect()),
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, wide) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        _ => Level::Portable,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Portable
}

/// Compiles a function for each kind of vectors, and calls the best that the processor has. The compiler turns plain
/// loops into vector code; results are the same on every processor, because it neither reorders arithmetic nor fuses
/// what does not ask for it.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $([$g:ident: $($bound:tt)+])? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn plain $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? { plain($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? { plain($($arg),*) }
            match $crate::simd::level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::simd::Level::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                _ => plain($($arg),*),
            }
        }
    };
}
pub(crate) use wide;

/// The size of the piece of a product that the inner loop computes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The most rows.
    pub rows: usize,
    /// Elements of a vector; a piece is one or two of them wide.
    pub lanes: usize,
}

impl Tile {
    /// The most elements that a piece has, on any processor.
    pub const MOST: usize = 14 * 32;

    /// The piece of this processor.
    pub fn here() -> Tile {
        match level() {
            Level::Avx512 => Tile { rows: 14, lanes: 16 },
            Level::Avx2 => Tile { rows: 6, lanes: 8 },
            Level::Portable => Tile { rows: 4, lanes: 8 },
        }
    }

    /// The most columns.
    pub fn columns(self) -> usize {
        2 * self.lanes
    }
}

#[cfg(test)]
#[path = "../../tests/harness/lesser.rs"]
mod lesser;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_gives_vectors_that_are_not_there() {
        for ((name, asked), (_, most)) in Level::ALL.into_iter().flat_map(|a| Level::ALL.map(|b| (a, b))) {
            assert_eq!(Level::at_most(most, name), Ok(asked.min(most)));
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let error = Level::at_most(Level::Avx2, "avx3").unwrap_err().to_string();
        assert_eq!(error, r#"TIERCEL_SIMD is "avx3", which is none of ["portable", "avx2", "avx512"]"#);
    }

    #[test]
    fn kernels_are_right_with_lesser_vectors() {
        let names = Level::ALL.iter().filter(|(_, one)| *one < level()).map(|(name, _)| *name);
        lesser::pass(VARIABLE, names, "kernels_are_right_with_lesser_vectors", None);
    }
}
