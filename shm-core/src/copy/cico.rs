//! Copies between user memory and cells.
//!
//! The C library copies a few KiB and more by `rep movsb`, which is slow to read lines that another core has
//! just written (4 KiB bcast between two cores: 470 ns against 230 by vector loads and stores). To write to such lines it
//! can be quick ([`copy_string`]).
#![allow(unsafe_code)] // raw copies between user memory and memory that other processes map

use std::mem::MaybeUninit;

/// Copies `bytes` from `from` to `to`.
///
/// # Safety
/// Both are valid for `bytes` and do not overlap; nobody writes to `from` meanwhile, and nobody else
/// touches `to`.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes <= LINE {
        // SAFETY: the caller's promise.
        return unsafe { copy_short(to, from, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_asking::<0, 0>(to, from, bytes) };
}

/// Copies at most a line without a call and without a loop: pieces from the front, and as many that end with the last byte.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn copy_short(to: *mut u8, from: *const u8, bytes: usize) {
    debug_assert!(bytes <= LINE);
    // SAFETY, here and below: `bytes` are at least the pieces' length, and at most twice as many.
    match bytes {
        33.. => {
            // SAFETY: above.
            unsafe { copy_ends::<16>(to, from, 32) };
            let last = bytes - 32;
            // SAFETY: above.
            unsafe { copy_ends::<16>(to.wrapping_add(last), from.wrapping_add(last), 32) };
        }
        // SAFETY: above.
        16.. => unsafe { copy_ends::<16>(to, from, bytes) },
        // SAFETY: above.
        8.. => unsafe { copy_ends::<8>(to, from, bytes) },
        // SAFETY: above.
        4.. => unsafe { copy_ends::<4>(to, from, bytes) },
        // SAFETY: above.
        2.. => unsafe { copy_ends::<2>(to, from, bytes) },
        // SAFETY: above.
        1 => unsafe { copy_piece::<1>(to, from, 0) },
        0 => {}
    }
}

/// Copies the first `N` of `bytes` and the last `N`, which may be some of the first.
///
/// # Safety
/// As for [`copy`], for `bytes`, which are `N` at least.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_piece::<N>(to, from, 0) };
    // SAFETY: the same.
    unsafe { copy_piece::<N>(to, from, bytes - N) };
}

/// As [`copy`], from lines that other cores' caches or memory may hold: of a long copy they are asked for in advance.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub(crate) unsafe fn copy_from_shared(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes < LEAST_READ_AHEAD {
        // SAFETY: the caller's promise.
        return unsafe { copy(to, from, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_asking::<READ_AHEAD, 0>(to, from, bytes) };
}

/// Shorter copies are quicker without, on some machines (`docs/copy-in-copy-out.md`, decision 6).
const LEAST_READ_AHEAD: usize = 8 << 10;
/// So many bytes before they are read lines are asked for.
const READ_AHEAD: usize = 2 << 10;

/// As [`copy`], to lines that other cores' caches may hold: they are asked for in advance. Stores drain in order, so that
/// each would have to wait until its line has been taken from them.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub(crate) unsafe fn copy_to_shared(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_asking::<0, { 16 * LINE }>(to, from, bytes) };
}

/// As [`copy`], if long enough with requests for the lines that lie so many bytes ahead of what is read, `READ`, and of what is
/// written, `WRITTEN`, if any.
///
/// # Safety
/// As for [`copy`].
#[inline]
unsafe fn copy_asking<const READ: usize, const WRITTEN: usize>(to: *mut u8, from: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= LEAST_VECTORED {
        // Whole lines at a time, but where they are asked for as they are read (`docs/copy-in-copy-out.md`, decision 8).
        if READ == 0 && has_avx512() {
            // SAFETY: AVX-512 is there; the rest is the caller's promise.
            return unsafe { copy_avx512::<READ, WRITTEN>(to, from, bytes) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: AVX2 is there; the rest is the caller's promise.
            return unsafe { copy_avx2::<READ, WRITTEN>(to, from, bytes) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
}

/// Copies `bytes` from `from` to where peers look for them: no store crosses a cache line, and none comes back to a
/// line that an earlier one has left.
///
/// The C library's last store overlaps the ones before it: it may cross two lines that a peer polls already, which
/// then go back and forth once more (200 bytes took longer than 256; `docs/small-messages.md`, decision 13).
///
/// # Safety
/// As for [`copy`]; `to` is a multiple of 8.
#[inline(always)] // short payloads stand in front of a flag that peers wait for
pub(crate) unsafe fn copy_in(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes <= LINE - to.addr() % LINE {
        // SAFETY: the caller's promise; it is one line.
        unsafe { copy_short(to, from, bytes) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { copy_in_lines(to, from, bytes) };
    }
}

/// # Safety
/// As for [`copy_in`].
#[inline(never)]
unsafe fn copy_in_lines(to: *mut u8, from: *const u8, bytes: usize) {
    if bytes >= LEAST_WHOLE {
        // SAFETY: the caller's promise.
        return unsafe { copy(to, from, bytes) };
    }
    #[cfg(target_arch = "x86_64")]
    if bytes >= 2 * LINE && to.addr().is_multiple_of(LINE) && has_avx512() {
        // SAFETY: AVX-512 is there; the rest is the caller's promise.
        let lines = unsafe { copy_lines(to, from, bytes) };
        // SAFETY: what is left of it.
        return unsafe { copy_in_pieces(to.wrapping_add(lines), from.wrapping_add(lines), bytes - lines) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_in_pieces(to, from, bytes) };
}

/// Copies the whole lines at the beginning, a store each, and tells how many bytes that were.
///
/// # Safety
/// As for [`copy`]; `to` begins a line.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[allow(clippy::cast_ptr_alignment)] // unaligned loads
unsafe fn copy_lines(to: *mut u8, from: *const u8, bytes: usize) -> usize {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_storeu_si512};
    let lines = bytes - bytes % LINE;
    for at in (0..lines).step_by(LINE) {
        // SAFETY: a line lies within `bytes`; a load of any alignment.
        let line = unsafe { _mm512_loadu_si512(from.wrapping_add(at).cast()) };
        // SAFETY: the same, for a store.
        unsafe { _mm512_storeu_si512(to.wrapping_add(at).cast(), line) };
    }
    lines
}

/// From here on payloads are copied in rounds whose last stores are few beside the others.
const LEAST_WHOLE: usize = 512;

/// # Safety
/// As for [`copy_in`].
unsafe fn copy_in_pieces(to: *mut u8, from: *const u8, bytes: usize) {
    let mut at = 0;
    // SAFETY, here and below: a piece lies within `bytes`; loads and stores of any alignment.
    if !to.addr().is_multiple_of(16) && bytes >= 8 {
        // SAFETY: above.
        unsafe { copy_piece::<8>(to, from, at) };
        at += 8;
    }
    while bytes - at >= 16 {
        // SAFETY: above.
        unsafe { copy_piece::<16>(to, from, at) };
        at += 16;
    }
    // What is left is part of one line.
    // SAFETY: above.
    unsafe { copy_short(to.wrapping_add(at), from.wrapping_add(at), bytes - at) };
}

/// Copies the `N` bytes at `at`.
///
/// # Safety
/// As for [`copy`], for these bytes.
#[inline(always)]
unsafe fn copy_piece<const N: usize>(to: *mut u8, from: *const u8, at: usize) {
    // Elements may have padding, which is nothing that could be read as bytes.
    // SAFETY: the caller's promise; a load of any alignment.
    let piece = unsafe { from.wrapping_add(at).cast::<[MaybeUninit<u8>; N]>().read() };
    // SAFETY: the same, for a store.
    unsafe { to.wrapping_add(at).cast::<[MaybeUninit<u8>; N]>().write(piece) };
}

/// Below this the C library uses vector registers itself.
#[cfg(target_arch = "x86_64")]
const LEAST_VECTORED: usize = 512;

/// True where registers of 64 bytes cost nothing beside their use: before AVX-512 VBMI2 (Ice Lake, Zen 4) cores slowed down.
#[cfg(target_arch = "x86_64")]
#[inline]
fn has_avx512() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vbmi2")
}

/// A copy by four registers of `$register` a round.
#[cfg(target_arch = "x86_64")]
macro_rules! vectored {
    ($name:ident, $feature:literal, $register:ident, $load:ident, $store:ident) => {
        /// # Safety
        /// As for [`copy`].
        #[target_feature(enable = $feature)]
        #[allow(clippy::cast_ptr_alignment)] // unaligned loads and stores
        unsafe fn $name<const READ: usize, const WRITTEN: usize>(to: *mut u8, from: *const u8, bytes: usize) {
            use std::arch::x86_64::{$load, $register, $store};
            /// Bytes of one round.
            const ROUND: usize = 4 * size_of::<$register>();

            let whole = bytes - bytes % ROUND;
            let mut at = 0;
            while at < whole {
                for line in (at..at + ROUND).step_by(LINE) {
                    if READ > 0 && at + READ < bytes {
                        prefetch_for_read(from.wrapping_add(line + READ));
                    }
                    if WRITTEN > 0 && at + WRITTEN < bytes {
                        prefetch_for_write(to.wrapping_add(line + WRITTEN));
                    }
                }
                let source = from.wrapping_add(at).cast::<$register>();
                let target = to.wrapping_add(at).cast::<$register>();
                // SAFETY: a whole round lies within `bytes`; loads of any alignment.
                let a = unsafe { $load(source) };
                // SAFETY: the same.
                let b = unsafe { $load(source.wrapping_add(1)) };
                // SAFETY: the same.
                let c = unsafe { $load(source.wrapping_add(2)) };
                // SAFETY: the same.
                let d = unsafe { $load(source.wrapping_add(3)) };
                // SAFETY: a whole round lies within `bytes`; stores of any alignment.
                unsafe { $store(target, a) };
                // SAFETY: the same.
                unsafe { $store(target.wrapping_add(1), b) };
                // SAFETY: the same.
                unsafe { $store(target.wrapping_add(2), c) };
                // SAFETY: the same.
                unsafe { $store(target.wrapping_add(3), d) };
                at += ROUND;
            }
            let rest = bytes - whole;
            // SAFETY: the rest of both, after `whole` bytes.
            unsafe { to.wrapping_add(whole).copy_from_nonoverlapping(from.wrapping_add(whole), rest) };
        }
    };
}

#[cfg(target_arch = "x86_64")]
vectored!(copy_avx2, "avx2", __m256i, _mm256_loadu_si256, _mm256_storeu_si256);
#[cfg(target_arch = "x86_64")]
vectored!(copy_avx512, "avx512f", __m512i, _mm512_loadu_si512, _mm512_storeu_si512);

/// As [`copy`], with stores that go to memory past this core's caches, where the machine has them.
///
/// # Safety
/// As for [`copy`].
#[inline]
pub(crate) unsafe fn copy_past_caches(to: *mut u8, from: *const u8, bytes: usize) {
    // Sanitizers see no non-temporal stores: there ordinary ones take their place, under the same flags.
    #[cfg(all(target_arch = "x86_64", not(sanitized)))]
    if bytes >= LEAST_VECTORED && std::arch::is_x86_feature_detected!("avx2") {
        // Up to the first whole line of the target.
        let head = to.align_offset(LINE).min(bytes);
        let body = (bytes - head) / LINE * LINE;
        let rest = head + body;
        // SAFETY: three parts of what the caller vouches for; the second starts at a line of `to`.
        unsafe { to.copy_from_nonoverlapping(from, head) };
        // SAFETY: the same, and AVX2 is there.
        unsafe { stream_avx2(to.wrapping_add(head), from.wrapping_add(head), body) };
        // SAFETY: the same.
        unsafe { to.wrapping_add(rest).copy_from_nonoverlapping(from.wrapping_add(rest), bytes - rest) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { copy(to, from, bytes) }
}

/// As [`copy`], by the processor's string instruction, which may take whole lines without asking for what is in them, whoever
/// has them.
///
/// Its stores need no order among themselves, but all later ones come behind them, so that a release orders them as any other.
///
/// # Safety
/// As for [`copy`].
#[inline(never)]
pub(crate) unsafe fn copy_string(to: *mut u8, from: *const u8, bytes: usize) {
    // Sanitizers see no assembly.
    #[cfg(all(target_arch = "x86_64", not(sanitized)))]
    // SAFETY: both are valid for `bytes` by the caller's promise; the direction flag is clear, as at every function's begin.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(sanitized))))]
    // SAFETY: the caller's promise.
    unsafe {
        copy(to, from, bytes);
    }
}

/// Reads a byte of each line.
///
/// # Safety
/// `from` is valid for `bytes`, and nobody writes there meanwhile.
pub(super) unsafe fn read_lines(from: *const u8, bytes: usize) {
    for at in (0..bytes).step_by(LINE) {
        // SAFETY: a byte of the caller's; volatile, so that it is read though nobody wants it.
        let _ = unsafe { from.wrapping_add(at).read_volatile() };
    }
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Private memory of a cache line, which every element may begin.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line {
    _bytes: [u8; LINE],
}

impl Line {
    pub(crate) const ZERO: Self = Self { _bytes: [0; LINE] };
}

const _: () = assert!(size_of::<Line>() == LINE);

/// Asks for the line of `at`, to be read.
#[inline]
pub(crate) fn prefetch_for_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes no memory and no flags and cannot fault.
    unsafe {
        core::arch::asm!("prefetcht0 [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the line of `at` as one that this core will write to.
#[inline]
pub(crate) fn prefetch_for_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes no memory and no flags and cannot fault.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Copies whole lines by non-temporal stores, and orders them before every later store.
///
/// # Safety
/// As for [`copy`]; `to` is aligned to a line and `bytes` is a multiple of it.
#[cfg(all(target_arch = "x86_64", not(sanitized)))]
#[target_feature(enable = "avx2")]
#[allow(clippy::cast_ptr_alignment)] // unaligned loads; the stores are aligned by the caller
unsafe fn stream_avx2(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    let mut at = 0;
    while at < bytes {
        let source = from.wrapping_add(at).cast::<__m256i>();
        let target = to.wrapping_add(at).cast::<__m256i>();
        // SAFETY: a whole line lies within `bytes`; loads of any alignment.
        let a = unsafe { _mm256_loadu_si256(source) };
        // SAFETY: the same.
        let b = unsafe { _mm256_loadu_si256(source.wrapping_add(1)) };
        // SAFETY: the same; the caller has aligned `to`, and the lines are made visible by the fence below.
        unsafe { _mm256_stream_si256(target, a) };
        // SAFETY: the same.
        unsafe { _mm256_stream_si256(target.wrapping_add(1), b) };
        at += LINE;
    }
    // Non-temporal stores are not ordered by a release: this fence stands between them and the flag (S1).
    _mm_sfence();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        let source: Vec<u8> = (0..5000).map(|i| u8::try_from(i % 251).unwrap_or(0)).collect();
        for bytes in (0..300).chain([511, 512, 513, 639, 640, 641, 4095, 4096, 4100]) {
            for (from, to) in [(0, 0), (1, 0), (0, 3), (5, 8), (16, 48), (31, 33)] {
                let ways = if to % 8 == 0 {
                    &[copy, copy_to_shared, copy_past_caches, copy_string, copy_in][..]
                } else {
                    &[copy, copy_to_shared, copy_past_caches, copy_string]
                };
                for way in ways {
                    let mut target = vec![255u8; 5200];
                    // So far from the beginning of a line.
                    let to = target.as_ptr().align_offset(LINE) + to;
                    // SAFETY: both vectors have room for the offset and `bytes`.
                    unsafe { way(target.as_mut_ptr().wrapping_add(to), source.as_ptr().wrapping_add(from), bytes) };
                    assert_eq!(target[to..to + bytes], source[from..from + bytes], "{bytes} bytes {from} to {to}");
                    assert!(target[..to].iter().chain(&target[to + bytes..]).all(|&byte| byte == 255));
                }
            }
        }
    }
}
