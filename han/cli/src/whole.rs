//! Whole numbers among arguments.

use std::fmt::Display;
use std::ops::RangeInclusive;

/// Far more ranks than any machine can start: sums of a few of them fit everywhere.
pub(crate) const MOST_RANKS: u32 = 1 << 20;

/// Reads a number within a range, both ends included.
pub(crate) fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: Copy + Display + PartialOrd + TryFrom<i128>,
{
    let (least, most) = range.into_inner();
    move |text| {
        let number: i128 = text.parse().map_err(|_| format!("it must be a whole number of at least {least}"))?;
        match T::try_from(number) {
            Ok(number) if number > most => Err(format!("it must be at most {most}")),
            Ok(number) if number >= least => Ok(number),
            Err(_) if number > 0 => Err(format!("it must be at most {most}")),
            _ => Err(format!("it must be at least {least}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn numbers_outside_are_refused_with_what_is_inside() {
        let read = within(2..=9_u32);
        assert_eq!((read("2"), read("9")), (Ok(2), Ok(9)));
        for (text, expected) in [
            ("1", "it must be at least 2"),
            ("-3", "it must be at least 2"),
            ("10", "it must be at most 9"),
            ("99999999999999", "it must be at most 9"),
            ("2.5", "it must be a whole number of at least 2"),
            ("", "it must be a whole number of at least 2"),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
    }
}
