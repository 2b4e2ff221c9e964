//! The caches of this machine, as the kernel lists them.

use std::fs;

/// What is assumed of the last cache where the kernel does not tell.
const USUAL_BYTES: usize = 32 << 20;

/// More than this for each core that uses it is no cache of these cores alone: a virtual machine of few cores is told the
/// size of its host's, which it shares with others.
const MOST_BYTES_A_CORE: usize = 16 << 20;

/// But so large a part of it, all its cores together can count on.
const LEAST_PART: usize = 10;

/// Size of the last-level cache that the first core uses, as far as this machine's cores can count on it.
#[must_use]
pub fn last_level_bytes() -> usize {
    let cache = |index: u32| {
        let read = |what| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}")).ok();
        Some((bytes(read("size")?.trim())?, read("shared_cpu_list").and_then(|list| count(list.trim()))))
    };
    let (bytes, cores) = (0..8).filter_map(cache).max_by_key(|&(bytes, _)| bytes).unwrap_or((USUAL_BYTES, None));
    cores.map_or(bytes, |cores| share(bytes, cores))
}

/// What `cores` can count on of a cache of `bytes` that they are said to share with nobody else.
fn share(bytes: usize, cores: usize) -> usize {
    bytes.min(cores.saturating_mul(MOST_BYTES_A_CORE).max(bytes / LEAST_PART))
}

/// How many cores a list like `0-3,8` has.
fn count(list: &str) -> Option<usize> {
    let one = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.split(',').map(one).sum()
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

    #[test]
    fn cores_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-1"), Some(2));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count(""), None);
        assert_eq!(count("3-1"), None);
    }

    #[test]
    fn few_cores_do_not_have_a_whole_hosts_cache() {
        const MIB: usize = 1 << 20;
        assert_eq!(share(32 * MIB, 8), 32 * MIB, "eight cores around a cache");
        assert_eq!(share(105 * MIB, 112), 105 * MIB, "a socket");
        assert_eq!(share(260 * MIB, 2), 32 * MIB, "a virtual machine");
        assert_eq!(share(480 * MIB, 2), 48 * MIB, "one of a larger host");
    }
}
