//! Codes that only who knows a key can make: HMAC-SHA-256.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a code.
pub(super) const CODE_BYTES: usize = 32;

/// A key; never shown.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    pub(super) fn new(secret: &[u8]) -> Self {
        // Any length is a key of HMAC; `new_from_slice` says otherwise for other constructions only.
        let key = Hmac::new_from_slice(secret).unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        Self(key)
    }

    /// The code of `parts` for one purpose. All but the last part must have a fixed length.
    pub(super) fn code(&self, purpose: &str, parts: &[&[u8]]) -> [u8; CODE_BYTES] {
        self.over(purpose, parts).finalize().into_bytes().into()
    }

    /// Whether `code` is that code; takes as long if not.
    pub(super) fn confirms(&self, code: &[u8], purpose: &str, parts: &[&[u8]]) -> bool {
        self.over(purpose, parts).verify_slice(code).is_ok()
    }

    fn over(&self, purpose: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(purpose.as_bytes());
        // No purpose has a zero, so none is the beginning of another.
        mac.update(&[0]);
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
