//! How a rank and rank 0 prove to each other that they know the secret, without saying it.
//!
//! Each sends a greeting with random bytes; the rank claims its place with a code over both greetings; rank 0 answers
//! with one of its own. A code is good for these greetings and this direction alone, so none can be used again. All
//! messages have fixed lengths: nothing that a stranger sends is waited for longer, or kept.

use super::proof::{CODE_BYTES, Key};

/// The protocol, its version last.
const MAGIC: &[u8; 8] = b"han-rdv1";
const NONCE_BYTES: usize = 32;

pub(super) const GREETING_BYTES: usize = MAGIC.len() + NONCE_BYTES;
pub(super) const CLAIM_BYTES: usize = 2 * size_of::<u32>() + CODE_BYTES;
pub(super) const VERDICT_BYTES: usize = 1 + CODE_BYTES;

/// The first message of either side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Greeting([u8; GREETING_BYTES]);

impl Greeting {
    pub(super) fn new(nonce: [u8; NONCE_BYTES]) -> Self {
        let mut bytes = [0; GREETING_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()..].copy_from_slice(&nonce);
        Self(bytes)
    }

    /// `None` if these are not the words of this protocol.
    pub(super) fn from_bytes(bytes: [u8; GREETING_BYTES]) -> Option<Self> {
        bytes.starts_with(MAGIC).then_some(Self(bytes))
    }

    /// Whether a greeting can begin with these bytes.
    pub(super) fn may_begin(bytes: &[u8]) -> bool {
        bytes.iter().zip(MAGIC).all(|(byte, expected)| byte == expected)
    }

    pub(super) fn bytes(&self) -> &[u8; GREETING_BYTES] {
        &self.0
    }
}

/// The place that a rank says it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) size: u32,
}

impl Place {
    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.rank.to_le_bytes());
        bytes[4..].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }
}

/// What both sides know once they have greeted each other.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) secret: Key,
    pub(super) member: Greeting,
    pub(super) root: Greeting,
}

const CLAIMS: &str = "han rendezvous: a rank claims its place";
const WELCOMES: &str = "han rendezvous: rank 0 welcomes it";
const TALKS: &str = "han rendezvous: key of this connection";

const WELCOME: u8 = 1;
const REFUSED: u8 = 0;

/// What rank 0 answers to a claim.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It knows the secret, and so does who answers.
    Welcome,
    /// It does not take the claim's code for good.
    Refused,
    /// Whoever answers does not know the secret.
    Impostor,
}

impl Greeted {
    pub(super) fn claim(&self, place: Place) -> [u8; CLAIM_BYTES] {
        let mut bytes = [0; CLAIM_BYTES];
        bytes[..8].copy_from_slice(&place.bytes());
        bytes[8..].copy_from_slice(&self.code(CLAIMS, place));
        bytes
    }

    /// The place that was claimed, if by someone who knows the secret.
    pub(super) fn check_claim(&self, bytes: &[u8; CLAIM_BYTES]) -> Option<Place> {
        let (numbers, code) = bytes.split_at(8);
        let number = |at: usize| Some(u32::from_le_bytes(numbers.get(at..at + 4)?.try_into().ok()?));
        let place = Place { rank: number(0)?, size: number(4)? };
        let parts: &[&[u8]] = &[&self.member.0, &self.root.0, &place.bytes()];
        self.secret.confirms(code, CLAIMS, parts).then_some(place)
    }

    pub(super) fn welcome(&self, place: Place) -> [u8; VERDICT_BYTES] {
        let mut bytes = [WELCOME; VERDICT_BYTES];
        bytes[1..].copy_from_slice(&self.code(WELCOMES, place));
        bytes
    }

    pub(super) fn refusal() -> [u8; VERDICT_BYTES] {
        [REFUSED; VERDICT_BYTES]
    }

    pub(super) fn check_verdict(&self, bytes: &[u8; VERDICT_BYTES], place: Place) -> Verdict {
        let parts: &[&[u8]] = &[&self.member.0, &self.root.0, &place.bytes()];
        match bytes[0] {
            REFUSED => Verdict::Refused,
            WELCOME if self.secret.confirms(&bytes[1..], WELCOMES, parts) => Verdict::Welcome,
            _ => Verdict::Impostor,
        }
    }

    /// The key of this connection's messages.
    pub(super) fn key(&self, place: Place) -> Key {
        Key::new(&self.code(TALKS, place))
    }

    fn code(&self, purpose: &str, place: Place) -> [u8; CODE_BYTES] {
        self.secret.code(purpose, &[&self.member.0, &self.root.0, &place.bytes()])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLACE: Place = Place { rank: 3, size: 4 };

    fn greeted(secret: &[u8], member: u8, root: u8) -> Greeted {
        let greeting = |byte| Greeting::new([byte; NONCE_BYTES]);
        Greeted { secret: Key::new(secret), member: greeting(member), root: greeting(root) }
    }

    #[test]
    fn both_sides_of_one_secret_believe_each_other() {
        let (member, root) = (greeted(b"secret", 1, 2), greeted(b"secret", 1, 2));
        assert_eq!(root.check_claim(&member.claim(PLACE)), Some(PLACE));
        assert_eq!(member.check_verdict(&root.welcome(PLACE), PLACE), Verdict::Welcome);
        assert_eq!(member.check_verdict(&Greeted::refusal(), PLACE), Verdict::Refused);
    }

    #[test]
    fn nothing_is_good_for_another_secret_greeting_place_or_direction() {
        let good = greeted(b"secret", 1, 2);
        for other in [greeted(b"another", 1, 2), greeted(b"secret", 3, 2), greeted(b"secret", 1, 3)] {
            assert_eq!(other.check_claim(&good.claim(PLACE)), None);
            assert_eq!(other.check_verdict(&good.welcome(PLACE), PLACE), Verdict::Impostor);
        }
        let elsewhere = Place { rank: 2, ..PLACE };
        assert_eq!(good.check_verdict(&good.welcome(PLACE), elsewhere), Verdict::Impostor);
        // What is sent with the key of one connection is no message of another.
        let key = |greeted: &Greeted, place| greeted.key(place).code("a message", &[]);
        assert_eq!(key(&greeted(b"secret", 1, 2), PLACE), key(&good, PLACE));
        for other in [greeted(b"another", 1, 2), greeted(b"secret", 3, 2), greeted(b"secret", 1, 3)] {
            assert_ne!(key(&other, PLACE), key(&good, PLACE));
        }
        assert_ne!(key(&good, elsewhere), key(&good, PLACE));
        // A claim that is sent back is no welcome.
        let mut reflected = [WELCOME; VERDICT_BYTES];
        reflected[1..].copy_from_slice(&good.claim(PLACE)[8..]);
        assert_eq!(good.check_verdict(&reflected, PLACE), Verdict::Impostor);
    }

    #[test]
    fn other_protocols_are_told_by_their_first_words() {
        let mut bytes = *Greeting::new([7; NONCE_BYTES]).bytes();
        assert!(Greeting::from_bytes(bytes).is_some());
        assert!((0..GREETING_BYTES).all(|length| Greeting::may_begin(&bytes[..length])));
        bytes[..4].copy_from_slice(b"GET ");
        assert!(Greeting::from_bytes(bytes).is_none());
        assert!((1..GREETING_BYTES).all(|length| !Greeting::may_begin(&bytes[..length])));
    }

    proptest! {
        #[test]
        fn damaged_claims_are_refused(at in 0..CLAIM_BYTES, flip in 1_u8..) {
            let greeted = greeted(b"secret", 1, 2);
            let mut claim = greeted.claim(PLACE);
            claim[at] ^= flip;
            prop_assert_eq!(greeted.check_claim(&claim), None);
        }

        #[test]
        fn damaged_verdicts_are_no_welcome(at in 0..VERDICT_BYTES, flip in 1_u8..) {
            let greeted = greeted(b"secret", 1, 2);
            let mut verdict = greeted.welcome(PLACE);
            verdict[at] ^= flip;
            prop_assert_ne!(greeted.check_verdict(&verdict, PLACE), Verdict::Welcome);
        }
    }
}
