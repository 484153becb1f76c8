//! Vectors as values, for loops that the compiler does not turn into vector code by itself: rows that are shorter than
//! what it unrolls, comparisons, and numbers that are exchanged between lanes.
//!
//! Who has a [`Lanes`] has a processor with these vectors, so its functions are safe; the macro [`lanes!`] hands it out.
//! All that lies between the macro and them must be inlined, always: closures, which nobody promises to inline, will not
//! do.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use plain::Plain;

/// A kind of vectors. Results are the same whatever the kind, lane by lane.
pub trait Lanes: Copy {
    /// So many numbers.
    type Vector: Copy;
    /// A yes or no for each of them.
    type Mask: Copy;
    /// How many.
    const COUNT: usize;

    /// The same number in all lanes.
    fn splat(self, number: f32) -> Self::Vector;
    /// The numbers from position `at` on.
    fn load(self, from: &[f32], at: usize) -> Self::Vector;
    /// The same, and zeros where there are no more.
    fn load_some(self, from: &[f32], at: usize) -> Self::Vector;
    /// Writes a vector to position `at`.
    fn store(self, numbers: Self::Vector, to: &mut [f32], at: usize);
    /// The same, as far as there is room.
    fn store_some(self, numbers: Self::Vector, to: &mut [f32], at: usize);
    /// a + b.
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a − b.
    fn sub(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a · b.
    fn mul(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a · b + c, rounded once.
    fn fma(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// a / b.
    fn div(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// √x.
    fn root(self, x: Self::Vector) -> Self::Vector;
    /// The smaller of x and what is best so far, which stays where x is not a number.
    fn smaller(self, x: Self::Vector, best: Self::Vector) -> Self::Vector;
    /// 2 to the power of the whole number that is in the last bits of x, which leave no room for others.
    fn two_to(self, x: Self::Vector) -> Self::Vector;
    /// n and m, where x = m · 2^n and m is between √½ and √2.
    fn parts(self, x: Self::Vector) -> [Self::Vector; 2];
    /// The larger of x and what is best so far, which stays where x is not a number.
    fn larger(self, x: Self::Vector, best: Self::Vector) -> Self::Vector;
    /// Where x is greater than what is best so far, or is not a number.
    fn better(self, x: Self::Vector, best: Self::Vector) -> Self::Mask;
    /// Where x is not a number.
    fn strange(self, x: Self::Vector) -> Self::Mask;
    /// Where a and b are equal.
    fn equal(self, a: Self::Vector, b: Self::Vector) -> Self::Mask;
    /// Those whose bits are set, the first lane's being the last.
    fn these(self, bits: u16) -> Self::Mask;
    /// One or the other.
    fn pick(self, mask: Self::Mask, yes: Self::Vector, no: Self::Vector) -> Self::Vector;
    /// Every other number of two vectors: those in even places, and those in odd ones.
    fn part(self, low: Self::Vector, high: Self::Vector) -> [Self::Vector; 2];
    /// Numbers in turn from both.
    fn join(self, even: Self::Vector, odd: Self::Vector) -> [Self::Vector; 2];
    /// The first halves of both, and the second ones.
    fn halve(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];

    /// As many numbers of two vectors, one behind the other, from number `N` on; up to four.
    fn slide<const N: usize>(self, low: Self::Vector, high: Self::Vector) -> Self::Vector;
    /// The last number of one vector, and all but the last of another.
    fn follow(self, before: Self::Vector, all: Self::Vector) -> Self::Vector;

    /// Every third number of three vectors: those in places that are multiples of three, and those one and two further.
    #[inline(always)]
    fn part3(self, all: [Self::Vector; 3]) -> [Self::Vector; 3] {
        self.exchange(all, |i| i % Self::COUNT * 3 + i / Self::COUNT)
    }

    /// Numbers in turn from all three.
    #[inline(always)]
    fn join3(self, all: [Self::Vector; 3]) -> [Self::Vector; 3] {
        self.exchange(all, |i| i % 3 * Self::COUNT + i / 3)
    }

    /// Numbers of three vectors in another order.
    #[inline(always)]
    fn exchange(self, all: [Self::Vector; 3], place: impl Fn(usize) -> usize) -> [Self::Vector; 3] {
        let [mut from, mut to] = [[0f32; 48]; 2];
        for (at, one) in all.into_iter().enumerate() {
            self.store(one, &mut from, at * Self::COUNT);
        }
        for (i, to) in to[..3 * Self::COUNT].iter_mut().enumerate() {
            *to = from[place(i)];
        }
        [self.load(&to, 0), self.load(&to, Self::COUNT), self.load(&to, 2 * Self::COUNT)]
    }
}

/// The bits of √½.
const ROOT: i32 = 0x3f35_04f3;

/// Functions of a kind of vectors that are one instruction each.
#[cfg(target_arch = "x86_64")]
macro_rules! instructions {
    ($vector:ty: $($name:ident($($arg:ident),+) $call:ident;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $vector),+) -> $vector {
                // SAFETY: the processor has these vectors.
                unsafe { $call($($arg),+) }
            }
        )+
    };
}
#[cfg(target_arch = "x86_64")]
use instructions;

/// Compiles a function for each kind of vectors, which is its first argument, and calls the best that the processor has.
macro_rules! lanes {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $([$life:lifetime, $g:ident: $($bound:tt)+])? ($l:ident; $($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$life, $g: $($bound)+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn any<$($life,)? L: $crate::simd::Lanes $(, $g: $($bound)+)?>($l: L, $($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$life, $g: $($bound)+>)? ($l: $crate::simd::Avx512, $($arg: $ty),*) $(-> $ret)? { any($l, $($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$life, $g: $($bound)+>)? ($l: $crate::simd::Avx2, $($arg: $ty),*) $(-> $ret)? { any($l, $($arg),*) }
            match $crate::simd::level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::simd::Level::Avx512 => unsafe {
                    avx512($crate::simd::Avx512::new(), $($arg),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor has these vectors.
                $crate::simd::Level::Avx2 => unsafe {
                    avx2($crate::simd::Avx2::new(), $($arg),*)
                },
                _ => any($crate::simd::Plain, $($arg),*),
            }
        }
    };
}
pub(crate) use lanes;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a vector holds.
    fn numbers<L: Lanes>(l: L, vector: L::Vector) -> Vec<f32> {
        let mut all = vec![0f32; L::COUNT];
        l.store(vector, &mut all, 0);
        all
    }

    fn every_function<L: Lanes>(l: L) {
        let n = L::COUNT;
        let count: Vec<f32> = (0..4 * n).map(|i| i as f32).collect();
        let at = |first: usize, step: usize| {
            count[first..].iter().step_by(step).take(n).copied().collect::<Vec<_>>()
        };
        let [a, b, c] = [0, n, 2 * n].map(|first| l.load(&count, first));
        assert_eq!(l.part(a, b).map(|v| numbers(l, v)), [at(0, 2), at(1, 2)]);
        let [even, odd] = l.part(a, b);
        assert_eq!(l.join(even, odd).map(|v| numbers(l, v)), [at(0, 1), at(n, 1)]);
        let mixed = |first: usize| [&count[first..][..n / 2], &count[n + first..][..n / 2]].concat();
        assert_eq!(l.halve(a, b).map(|v| numbers(l, v)), [mixed(0), mixed(n / 2)]);
        assert_eq!(l.part3([a, b, c]).map(|v| numbers(l, v)), [at(0, 3), at(1, 3), at(2, 3)]);
        let parts = l.part3([a, b, c]);
        assert_eq!(l.join3(parts).map(|v| numbers(l, v)), [at(0, 1), at(n, 1), at(2 * n, 1)]);
        let slid = [l.slide::<1>(a, b), l.slide::<2>(a, b), l.slide::<3>(a, b), l.slide::<4>(a, b)];
        assert_eq!(slid.map(|v| numbers(l, v)), [1, 2, 3, 4].map(|first| at(first, 1)));
        assert_eq!(numbers(l, l.follow(a, b)), at(n - 1, 1));
        for some in 0..=n + 1 {
            let there = &count[1..1 + some];
            let expected: Vec<f32> = (1..=n).map(|i| if i <= some { i as f32 } else { 0.0 }).collect();
            assert_eq!(numbers(l, l.load_some(there, 0)), expected);
            let mut to = vec![-1.0; some + 2];
            l.store_some(a, &mut to[1..], 1);
            assert_eq!(to[..2], [-1.0; 2]);
            assert!(to[2..].iter().take(n).zip(&count).all(|(to, number)| to == number), "{to:?}");
            l.store_some(a, &mut to, some + 5);
            assert_eq!(numbers(l, l.load_some(there, some + 5)), vec![0.0; n]);
        }
        let (one, nan) = (l.splat(1.0), l.splat(f32::NAN));
        let yes = |mask| numbers(l, l.pick(mask, one, l.splat(0.0))) == vec![1.0; n];
        let no = |mask| numbers(l, l.pick(mask, one, l.splat(0.0))) == vec![0.0; n];
        assert!(yes(l.better(one, l.splat(0.5))) && yes(l.better(nan, one)) && yes(l.better(nan, nan)));
        assert!(no(l.better(one, one)) && no(l.better(one, nan)) && no(l.equal(nan, nan)));
        assert!(yes(l.equal(l.larger(nan, one), one)) && yes(l.equal(l.larger(one, l.splat(0.5)), one)));
        assert!(yes(l.equal(l.larger(l.splat(0.5), one), one)));
        assert!(yes(l.equal(one, one)) && no(l.equal(one, l.splat(2.0))));
        assert!(yes(l.strange(nan)) && no(l.strange(one)));
        assert!(yes(l.these(u16::MAX)) && no(l.these(0)));
        let odd = l.pick(l.these(0xaaaa), one, l.splat(0.0));
        assert!(numbers(l, odd).iter().enumerate().all(|(lane, one)| *one == (lane % 2) as f32));
        assert!(yes(l.equal(l.smaller(nan, one), one)) && yes(l.equal(l.smaller(l.splat(2.0), one), one)));
        assert!(yes(l.equal(l.root(l.div(l.splat(4.5), l.splat(2.0))), l.splat(1.5))));
        assert!(yes(l.equal(l.two_to(l.splat(f32::from_bits(3))), l.splat(8.0))));
        for x in [1.0f32, 0.7, 0.8, 1.4, 1.42, 3e-5, 7e8] {
            let [n, m] = l.parts(l.splat(x)).map(|v| numbers(l, v)[0]);
            assert!((0.707..1.4143).contains(&m) && m * n.exp2() == x, "{x} is {m} times 2 to {n}");
        }
        let fused = l.fma(l.splat(1.0 + f32::EPSILON), l.splat(1.0 - f32::EPSILON), l.splat(-1.0));
        assert!(numbers(l, fused) == vec![-f32::EPSILON * f32::EPSILON; n]);
        let expected: Vec<f32> = count[..n].iter().map(|x| (x + 3.0) * (x - 1.0)).collect();
        assert_eq!(numbers(l, l.mul(l.add(a, l.splat(3.0)), l.sub(a, one))), expected);
    }

    #[test]
    fn all_kinds_do_the_same() {
        every_function(Plain);
        #[cfg(target_arch = "x86_64")]
        {
            use super::super::{Level, level};
            if level() >= Level::Avx2 {
                // SAFETY: the processor has these vectors.
                every_function(unsafe { Avx2::new() });
            }
            if level() >= Level::Avx512 {
                // SAFETY: the processor has these vectors.
                every_function(unsafe { Avx512::new() });
            }
        }
    }
}
