//! `f16` and `bf16` to and from `f32`, without branches, so that loops over them vectorize.

/// Halves to single precision: exact.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    // From one format's exponent to the other's.
    const REBIAS: u32 = (127 - 15) << 23;
    // The mantissa of a subnormal half, added to this one's, makes a number that is as much larger. Only normal floats
    // are on the way, so the result is the same where a program has subnormal ones flushed to zero.
    const LEAST_NORMAL: u32 = (127 - 14) << 23;
    const F32_INFINITE_EXPONENT: u32 = 0xff << 23;
    let bits = u32::from(half);
    let magnitude = (bits & 0x7fff) << 13;
    let subnormal = (f32::from_bits(magnitude + LEAST_NORMAL) - f32::from_bits(LEAST_NORMAL)).to_bits();
    let finite = if magnitude < 1 << 23 { subnormal } else { magnitude + REBIAS };
    let infinite_or_nan = if bits & 0x7c00 == 0x7c00 { F32_INFINITE_EXPONENT } else { 0 };
    f32::from_bits(finite | infinite_or_nan | (bits & 0x8000) << 16)
}

/// Single precision to halves: to nearest even, overflow to infinity, NaN to a quiet NaN.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // The result has been brought into the low 16 bits.
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    const F16_OVERFLOWS: u32 = (127 + 16) << 23;
    const F16_MIN_NORMAL: u32 = (127 - 14) << 23;
    const F32_INFINITY: u32 = 0xff << 23;
    // Added to a value below the least normal half, this brings the half's last place to the last
    // place of an f32, so that the addition itself rounds to nearest even.
    const SUBNORMAL_MAGIC: f32 = f32::from_bits((127 - 1) << 23);

    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    let odd = (magnitude >> 13) & 1;
    let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let subnormal = (f32::from_bits(magnitude) + SUBNORMAL_MAGIC).to_bits().wrapping_sub(SUBNORMAL_MAGIC.to_bits());
    let nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    let finite = if magnitude < F16_MIN_NORMAL { subnormal } else { normal };
    let bounded = if magnitude >= F16_OVERFLOWS { 0x7c00 } else { finite };
    let result = if magnitude > F32_INFINITY { nan } else { bounded };
    (result | sign) as u16
}

/// `bf16` to single precision: exact.
#[inline(always)]
pub(crate) fn bf16_to_f32(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Single precision to `bf16`: to nearest even, NaN to a quiet NaN.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Shifted into the low 16 bits.
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + odd);
    let quiet_nan = bits | 0x0040_0000;
    let result = if value.is_nan() { quiet_nan } else { rounded };
    (result >> 16) as u16
}

/// Orders `f16` (`INFINITY` = 0x7c00) or `bf16` (0x7f80) by their bits: `left < right` as IEEE 754
/// has it, so -0 equals 0 and NaN is less than nothing.
#[inline(always)]
pub(crate) fn half_less<const INFINITY: u16>(left: u16, right: u16) -> bool {
    let (a, b) = (left & 0x7fff, right & 0x7fff);
    let ordered = (a <= INFINITY) & (b <= INFINITY);
    ordered & (signed_magnitude(left) < signed_magnitude(right))
}

/// Sign and magnitude to two's complement.
#[inline(always)]
fn signed_magnitude(bits: u16) -> i16 {
    let magnitude = (bits & 0x7fff).cast_signed();
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn every_half_widens_as_the_half_crate_says() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(bits), f16::from_bits(bits).to_f32_const());
            assert!(same(ours, theirs), "f16 {bits:#06x}: {ours} but {theirs}");
            let (ours, theirs) = (bf16_to_f32(bits), bf16::from_bits(bits).to_f32_const());
            assert!(same(ours, theirs), "bf16 {bits:#06x}: {ours} but {theirs}");
        }
    }

    /// As programs do that are compiled for speed (`-ffast-math`): subnormal floats are read and written as zero.
    #[cfg(target_arch = "x86_64")]
    #[test]
    #[allow(unsafe_code)]
    fn every_half_widens_alike_where_subnormal_floats_are_flushed() {
        use std::arch::asm;
        use std::hint::black_box;

        const FLUSH: u32 = 1 << 15 | 1 << 6;
        let mut usual = 0_u32;
        // SAFETY: stores the control register.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut usual) };
        let set = |control: u32| {
            // SAFETY: no exception is enabled that was not before, and what is computed meanwhile is what the test asks for.
            unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control) };
        };
        // What is called between cannot be moved out of there.
        let flushing = |work: fn() -> Vec<u32>| {
            set(usual | FLUSH);
            let done = black_box(work)();
            set(usual);
            done
        };
        let is_flushed = flushing(|| vec![(black_box(f32::from_bits(1)) * black_box(2.0)).to_bits()]) == [0];
        let widened = flushing(|| (0..=u16::MAX).map(|bits| f16_to_f32(black_box(bits)).to_bits()).collect());
        assert!(is_flushed);
        for (bits, ours) in (0..=u16::MAX).zip(widened) {
            let theirs = f16::from_bits(bits).to_f32_const();
            assert!(same(f32::from_bits(ours), theirs), "f16 {bits:#06x}: {ours:#x} but {theirs}");
        }
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
    }

    #[test]
    fn narrowing_rounds_as_the_half_crate_says() {
        // Every sign, exponent and upper mantissa, with the lower mantissa at and around the ties
        // of both formats.
        for upper in 0..=u16::MAX {
            for lower in [0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(upper) << 16 | lower);
                let (ours, theirs) = (f32_to_f16(value), f16::from_f32_const(value));
                assert!(
                    ours == theirs.to_bits() || (theirs.is_nan() && f16::from_bits(ours).is_nan()),
                    "{value:e} to f16: {ours:#06x} but {theirs:?}"
                );
                let (ours, theirs) = (f32_to_bf16(value), bf16::from_f32_const(value));
                assert!(
                    ours == theirs.to_bits() || (theirs.is_nan() && bf16::from_bits(ours).is_nan()),
                    "{value:e} to bf16: {ours:#06x} but {theirs:?}"
                );
            }
        }
    }

    #[test]
    fn every_half_is_ordered_as_its_value() {
        let samples = [0u16, 1, 0x3ff, 0x400, 0x3c00, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7f7f, 0x7f80, 0x7f81, 0x7fff];
        let both_signs = samples.into_iter().flat_map(|bits| [bits, bits | 0x8000]);
        for right in both_signs {
            for left in 0..=u16::MAX {
                assert_eq!(
                    half_less::<0x7c00>(left, right),
                    f16_to_f32(left) < f16_to_f32(right),
                    "f16 {left:#06x} < {right:#06x}"
                );
                assert_eq!(
                    half_less::<0x7f80>(left, right),
                    bf16_to_f32(left) < bf16_to_f32(right),
                    "bf16 {left:#06x} < {right:#06x}"
                );
            }
        }
    }
}
