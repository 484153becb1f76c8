//! The byte copy itself.
//!
//! Data that changes tier is cold more often than not: nobody has read it for a while, and its destination is
//! larger than the caches. Non-temporal stores then save reading the destination first, and prefetching a few
//! lines ahead of the hardware keeps the reads going; together they are half as fast again as `memcpy` on the
//! one machine tried (Zen 4, virtual). A copy that takes up little of a core's own cache is left to `memcpy`: its bytes stay near for
//! whoever asked for them.

use std::ptr;
use std::sync::OnceLock;

use tiercel_core::Bytes;

use super::supply;

/// A way of copying bytes; which are there depends on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The system's `memcpy`.
    Plain,
    /// Non-temporal stores of 16 bytes.
    Sse2,
    /// Non-temporal stores of 32 bytes.
    Avx2,
    /// Non-temporal stores of 64 bytes.
    Avx512,
}

impl Method {
    /// The methods that this processor has, the best for cold bytes last.
    pub fn available() -> &'static [Method] {
        static FOUND: OnceLock<Vec<Method>> = OnceLock::new();
        FOUND.get_or_init(|| {
            #[allow(unused_mut)]
            let mut found = vec![Method::Plain];
            #[cfg(target_arch = "x86_64")]
            {
                found.push(Method::Sse2);
                if std::is_x86_feature_detected!("avx2") {
                    found.push(Method::Avx2);
                }
                if std::is_x86_feature_detected!("avx512f") {
                    found.push(Method::Avx512);
                }
            }
            found
        })
    }

    /// The best method for a copy of so many bytes in all.
    pub fn best(bytes: Bytes) -> Method {
        static THRESHOLD: OnceLock<Bytes> = OnceLock::new();
        let threshold = THRESHOLD.get_or_init(|| {
            let core = supply::cache(2).unwrap_or(Bytes::mib(1));
            Bytes(core.0 / 16)
        });
        if bytes <= *threshold { Method::Plain } else { Method::cold() }
    }

    /// The best method for bytes that are in no cache and need not be in one afterwards.
    pub fn cold() -> Method {
        *Method::available().last().expect("memcpy is everywhere")
    }

    /// Copies `bytes` from one place to another; when it returns, other threads that learn of it see the bytes.
    ///
    /// # Safety
    /// The source must be readable and the destination writable for `bytes`, they must not overlap, nobody may
    /// write either or read the destination meanwhile, and the method must be among [`Method::available`].
    pub unsafe fn copy(self, from: *const u8, to: *mut u8, bytes: usize) {
        debug_assert!(Method::available().contains(&self));
        match self {
            // SAFETY: the caller's promise.
            Method::Plain => unsafe { ptr::copy_nonoverlapping(from, to, bytes) },
            // SAFETY: the caller's promise, which includes that the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            _ => unsafe { x86::copy(self, from, to, bytes) },
            #[cfg(not(target_arch = "x86_64"))]
            // SAFETY: the caller's promise.
            _ => unsafe { ptr::copy_nonoverlapping(from, to, bytes) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::ptr;

    use super::Method;

    /// What one turn of the loops moves.
    const BLOCK: usize = 256;

    /// How far ahead of the loads the prefetches run.
    const AHEAD: usize = 2048;

    /// Copies the ragged ends with `memcpy` and whole blocks, with aligned stores, by `method`.
    ///
    /// # Safety
    /// As for [`Method::copy`].
    pub(super) unsafe fn copy(method: Method, from: *const u8, to: *mut u8, bytes: usize) {
        let head = to.align_offset(64).min(bytes);
        let body = (bytes - head) / BLOCK * BLOCK;
        let tail = bytes - head - body;
        // SAFETY: head, body and tail together are the `bytes` that the caller vouches for, in this order; after
        // the head the destination is aligned to 64 bytes, as the block loops want, and the body is whole blocks.
        unsafe {
            ptr::copy_nonoverlapping(from, to, head);
            let (from, to) = (from.add(head), to.add(head));
            match method {
                Method::Avx512 => avx512(from, to, body),
                Method::Avx2 => avx2(from, to, body),
                _ => sse2(from, to, body),
            }
            ptr::copy_nonoverlapping(from.add(body), to.add(body), tail);
            // Without a fence, the news of the copy's end could overtake non-temporal stores.
            _mm_sfence();
        }
    }

    macro_rules! blocks {
        ($name:ident, $feature:literal, $width:literal, $zero:ident, $load:ident, $store:ident) => {
            /// # Safety
            /// The processor has the feature; `from` is readable and `to` writable for `bytes`, a multiple of
            /// the block; `to` is aligned to 64 bytes; they do not overlap.
            #[target_feature(enable = $feature)]
            unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize) {
                let mut at = 0;
                while at < bytes {
                    for line in 0..BLOCK / 64 {
                        // A prefetch past the end of the source fetches something else, or nothing; it never
                        // faults.
                        let ahead = from.wrapping_add(at + AHEAD + line * 64);
                        _mm_prefetch::<_MM_HINT_NTA>(ahead.cast());
                    }
                    let mut block = [$zero(); BLOCK / $width];
                    for (i, part) in block.iter_mut().enumerate() {
                        // SAFETY: `at` is a multiple of the block below `bytes`, so the whole block is readable.
                        *part = unsafe { $load(from.add(at + i * $width).cast()) };
                    }
                    for (i, part) in block.iter().enumerate() {
                        // SAFETY: likewise writable, and aligned because 64 divides the block.
                        unsafe { $store(to.add(at + i * $width).cast(), *part) };
                    }
                    at += BLOCK;
                }
            }
        };
    }

    blocks!(avx512, "avx512f", 64, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_stream_si512);
    blocks!(avx2, "avx2", 32, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_stream_si256);
    blocks!(sse2, "sse2", 16, _mm_setzero_si128, _mm_loadu_si128, _mm_stream_si128);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_copies_every_length_and_alignment_and_nothing_beside() {
        let source: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for &method in Method::available() {
            for bytes in [0, 1, 63, 64, 65, 255, 256, 257, 511, 1024, 4096, 4321] {
                for shift in [0, 1, 31, 64, 65] {
                    let mut target = vec![0xEEu8; 5000];
                    // SAFETY: both vectors reach beyond `shift + bytes + 3`, and they are two.
                    unsafe { method.copy(source.as_ptr().add(3), target.as_mut_ptr().add(shift), bytes) };
                    assert!(target[..shift].iter().all(|b| *b == 0xEE), "{method:?} {bytes} {shift}");
                    assert_eq!(target[shift..shift + bytes], source[3..3 + bytes], "{method:?} {bytes}");
                    assert!(target[shift + bytes..].iter().all(|b| *b == 0xEE), "{method:?} {bytes} {shift}");
                }
            }
        }
    }

    #[test]
    fn large_copies_bypass_the_caches_where_the_processor_can() {
        assert_eq!(Method::best(Bytes(64)), Method::Plain);
        assert_eq!(Method::best(Bytes::gib(1)), Method::cold());
    }
}
