//! Bytes as PMI values: hexadecimal, the length first, cut into pieces that fit one line each.

use crate::bootstrap::error::{Error, Result};

/// Largest payload of one rank; start-up cards are a few hundred bytes.
pub(super) const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// Digits that tell the payload's length in bytes, at the start of the first piece.
const LENGTH_DIGITS: usize = 8;

/// The payload's text; the pieces are its cuts.
pub(super) fn encode(payload: &[u8]) -> Result<String> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        let bytes = payload.len();
        return Err(Error::Protocol(format!("{bytes} bytes exceed the {MAX_PAYLOAD_BYTES} that a rank may publish")));
    }
    let mut text = format!("{:0LENGTH_DIGITS$x}", payload.len());
    text.extend(
        payload.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(HEX[usize::from(digit)])),
    );
    Ok(text)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Length in digits of the whole text whose first piece is `piece`.
pub(super) fn text_len(piece: &str) -> Result<usize> {
    let length = piece.get(..LENGTH_DIGITS).and_then(|digits| usize::from_str_radix(digits, 16).ok());
    match length {
        Some(bytes) if bytes <= MAX_PAYLOAD_BYTES => Ok(LENGTH_DIGITS + 2 * bytes),
        _ => Err(malformed(piece)),
    }
}

/// The payload of a whole text.
pub(super) fn decode(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    match bytes {
        Some(mut bytes) if odd.is_empty() && text.len() == text_len(text)? => Ok(bytes.split_off(LENGTH_DIGITS / 2)),
        _ => Err(malformed(text)),
    }
}

fn malformed(text: &str) -> Error {
    Error::Protocol(format!("a peer's value of {} bytes is not a length and hexadecimal digits", text.len()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_length_comes_first() {
        assert_eq!(encode(b"").unwrap(), "00000000");
        assert_eq!(encode(&[0, 0xab]).unwrap(), "0000000200ab");
        assert!(encode(&vec![0; MAX_PAYLOAD_BYTES + 1]).is_err());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0000000",
            "00000001",
            "000000010",
            "00000001000",
            "0000000g00",
            "ffffffff00",
            "+0000001ab",
            "00000001\u{e9}",
        ] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_survive(payload in prop::collection::vec(any::<u8>(), 0..2000)) {
            let text = encode(&payload).unwrap();
            prop_assert_eq!(text_len(&text).unwrap(), text.len());
            prop_assert_eq!(decode(&text).unwrap(), payload);
        }

        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "\\PC{0,64}") {
            let _ = decode(&text);
        }
    }
}
