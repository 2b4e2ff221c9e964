//! The lock-free protocols, each small enough to be model-checked whole.
//!
//! Every release is labelled and names the acquire that it pairs with; `README.md` beside this file
//! holds the table of pairs and the argument for each protocol. All flags are single-writer and only
//! move forward, so nothing is ever reset and no operation ends in a barrier.

mod bell;
mod latch;
mod primitive;
mod reaching;
mod record;
mod slot;
#[cfg(not(loom))]
mod wait;
mod watermark;

pub use bell::Bell;
pub use latch::Latch;
#[cfg(not(loom))]
pub(crate) use primitive::{AtomicU32, AtomicU64, Ordering};
pub use reaching::Reaching;
pub use record::OpRecord;
pub use slot::Slot;
#[cfg(not(loom))]
pub use wait::{Patience, Waiter};
pub use watermark::Watermark;

/// True if step `a` comes before step `b` on the 32-bit circle.
///
/// Steps in use at one time lie within one ring of each other, so half the circle is plenty.
#[must_use]
pub const fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::before;

    #[test]
    fn steps_are_ordered_across_the_wrap() {
        assert!(before(1, 2));
        assert!(!before(2, 2));
        assert!(before(u32::MAX, 0));
        assert!(before(u32::MAX - 5, 58));
        assert!(!before(58, u32::MAX - 5));
    }
}
