//! Small numbers and their texts: medians, sizes, times.

pub(crate) use shm_core::settings::parse_bytes;

/// The middle value, or the mean of the two in the middle; 0 for none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count => f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
    }
}

/// A size as it is written on the command line: `64`, `4K`, `1M`, `2G`.
pub(crate) fn bytes_text(bytes: usize) -> String {
    for (shift, suffix) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{suffix}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Microseconds with the digits that matter.
pub(crate) fn time_text(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.3}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_back_as_they_are_written() {
        for bytes in [0, 1, 1023, 1024, 1536, 4096, 1 << 20, 3 << 20, 1 << 30] {
            assert_eq!(parse_bytes(&bytes_text(bytes)), Ok(bytes));
        }
        assert_eq!(bytes_text(1 << 20), "1M");
        assert_eq!(parse_bytes("2kib"), Ok(2048));
    }

    #[test]
    fn wrong_sizes_say_what_is_wrong() {
        assert!(parse_bytes("4X").is_err_and(|text| text.contains("K, M, G")));
        assert!(parse_bytes("K").is_err());
        assert!(parse_bytes("-1").is_err());
        assert!(parse_bytes("99999999999999G").is_err());
    }

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[8.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
        assert!(median(&[]).abs() < f64::EPSILON);
    }
}
