//! The word beside each message: who belongs to the job, and who does the same operation.
//!
//! The lower half is a digest of the fingerprints of the operation and of all before it on its communicator; the upper half is half of `SipHash-2-4` of the tag, both
//! ranks and that digest, keyed with the job's secret. So whoever does not know the secret has one chance in 2^32 to
//! pass as a rank for one message, and each wrong guess ends the job. It does not hide the data, nor does it protect
//! them from somebody who can change messages on their way: that needs an encrypted network.

use siphasher::sip::SipHasher24;

use crate::transport::Tag;

/// What all ranks must agree on in an operation: for instance collective, datatype, operator and root in one word,
/// and the count in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Fingerprint(pub [u64; 2]);

/// The job's secret: random, and the same on all ranks.
#[derive(Clone, Copy, Default)]
pub struct Secret(pub [u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Makes and checks words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seal(SipHasher24);

/// What a word says that is not the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// The sender knows the secret, but does another operation.
    OtherOperation,
    /// The sender does not know the secret.
    Stranger,
}

impl Fingerprint {
    /// Half a word for this operation and all before it on its communicator, whose half word is `before`.
    pub(crate) fn digest(self, before: u32) -> u32 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.0[0] ^ u64::from(before)).wrapping_mul(ODD);
        let mixed = (mixed ^ (mixed >> 31) ^ self.0[1]).wrapping_mul(ODD);
        // The upper half is the better mixed one.
        (mixed >> 32) as u32
    }
}

impl Seal {
    pub(super) fn new(secret: Secret) -> Self {
        Self(SipHasher24::new_with_key(&secret.0))
    }

    /// The word of a message.
    pub(super) fn word(&self, tag: Tag, sender: usize, receiver: usize, digest: u32) -> u64 {
        let mut text = [0; 24];
        text[..8].copy_from_slice(&tag.0.to_le_bytes());
        text[8..16].copy_from_slice(&((sender as u64) << 32 | receiver as u64).to_le_bytes());
        text[16..20].copy_from_slice(&digest.to_le_bytes());
        self.0.hash(&text) & !u64::from(u32::MAX) | u64::from(digest)
    }

    /// What is wrong with a word that is not the expected one.
    #[cold]
    pub(super) fn examine(&self, word: u64, tag: Tag, sender: usize, receiver: usize) -> Broken {
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let digest = word as u32;
        let is_known = word == self.word(tag, sender, receiver, digest);
        if is_known { Broken::OtherOperation } else { Broken::Stranger }
    }

    /// The word of a message whose bytes count as well.
    pub(super) fn word_of_bytes(&self, tag: Tag, sender: usize, receiver: usize, bytes: &[u8]) -> u64 {
        let mut text = Vec::with_capacity(bytes.len() + 16);
        text.extend(tag.0.to_le_bytes());
        text.extend(((sender as u64) << 32 | receiver as u64).to_le_bytes());
        text.extend(bytes);
        self.0.hash(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_and_other_operations_are_told_apart() {
        let seal = Seal::new(Secret([3; 16]));
        let (own, other) = (Fingerprint([1, 2]).digest(0), Fingerprint([1, 3]).digest(0));
        assert_ne!(own, other);
        assert_ne!(own, Fingerprint([1, 2]).digest(other), "what was before counts");
        let word = seal.word(Tag(5), 1, 2, other);
        assert_eq!(seal.examine(word, Tag(5), 1, 2), Broken::OtherOperation);
        for (tag, sender, receiver) in [(6, 1, 2), (5, 2, 2), (5, 1, 1)] {
            assert_eq!(seal.examine(word, Tag(tag), sender, receiver), Broken::Stranger);
        }
        let stranger = Seal::new(Secret([4; 16])).word(Tag(5), 1, 2, own);
        assert_eq!(seal.examine(stranger, Tag(5), 1, 2), Broken::Stranger);
        assert_eq!(format!("{:?}", Secret([9; 16])), "Secret(..)");
    }

    #[test]
    fn every_byte_of_a_sealed_message_counts() {
        let seal = Seal::new(Secret([3; 16]));
        let word = seal.word_of_bytes(Tag(5), 1, 2, &[1, 2, 3]);
        assert_ne!(word, seal.word_of_bytes(Tag(5), 1, 2, &[1, 2, 4]));
        assert_ne!(word, seal.word_of_bytes(Tag(5), 2, 1, &[1, 2, 3]));
    }
}
