//! The caches of this machine, as the kernel lists them.

use std::fs;

/// What is assumed of the last cache where the kernel does not tell.
const USUAL_BYTES: usize = 32 << 20;

/// Size of the last-level cache that the first core uses.
#[must_use]
pub fn last_level_bytes() -> usize {
    let size = |index: u32| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok();
    (0..8).filter_map(size).filter_map(|text| bytes(text.trim())).max().unwrap_or(USUAL_BYTES)
}

/// `32768K` or `32M` as bytes.
fn bytes(text: &str) -> Option<usize> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(bytes("32768K"), Some(32 << 20));
        assert_eq!(bytes("32M"), Some(32 << 20));
        assert_eq!(bytes("512"), Some(512));
        assert_eq!(bytes("12X"), None);
        assert_eq!(bytes(""), None);
        assert!(last_level_bytes() > 0);
    }
}
