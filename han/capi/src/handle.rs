//! Handles: numbers dressed as pointers, and the tables that they index.
//!
//! A handle is never dereferenced. It holds a tag for the kind of object, the index of a table's slot
//! and that slot's generation, which grows whenever the slot is freed, so handles that were freed,
//! belong to another kind, or never existed are told from live ones:
//!
//! ```text
//! bit 63      56 55              24 23        0
//!    [   tag    ][    generation   ][   index  ]
//! ```
//!
//! No address of a user-space object has a tag in its top byte, so a stray pointer is no handle either.

use std::fmt;
use std::marker::PhantomData;

const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 32;

const _: () = assert!(size_of::<usize>() == 8, "handles need pointers of 64 bits");

/// What a table can hold: gives each kind of object its own tag.
pub(crate) trait Kind {
    const TAG: u8;
}

/// An opaque `han_*_t` as it comes from C; nothing is known about it until a [`Slab`] knows it.
#[repr(transparent)]
pub struct Handle<T> {
    bits: usize,
    kind: PhantomData<*const T>,
}

impl<T> Handle<T> {
    /// `HAN_COMM_NULL` and its like.
    pub(crate) const NULL: Self = Self::from_bits(0);

    const fn from_bits(bits: usize) -> Self {
        Self { bits, kind: PhantomData }
    }

    pub(crate) fn is_null(self) -> bool {
        self.bits == 0
    }

    /// The value, for handles that stand for predefined objects.
    pub(crate) const fn bits(self) -> usize {
        self.bits
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bits == other.bits
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.bits)
    }
}

/// The table of all live objects of one kind.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T: Kind> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// Whether another value can be taken in.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < 1 << INDEX_BITS
    }

    /// Takes the value in and gives its handle, or `None` if all handles of this kind are in use.
    pub(crate) fn insert(&mut self, value: T) -> Option<Handle<T>> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() == 1 << INDEX_BITS => return None,
            None => {
                self.slots.push(Slot { generation: 0, value: None });
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[index];
        slot.value = Some(value);
        let generation = slot.generation as usize;
        let tag = usize::from(T::TAG) << (INDEX_BITS + GENERATION_BITS);
        Some(Handle::from_bits(tag | generation << INDEX_BITS | index))
    }

    /// The index of the slot that the handle stands for, if it is live.
    #[inline]
    fn index(&self, handle: Handle<T>) -> Option<usize> {
        let index = handle.bits & ((1 << INDEX_BITS) - 1);
        let slot = self.slots.get(index)?;
        let head = usize::from(T::TAG) << GENERATION_BITS | slot.generation as usize;
        (handle.bits >> INDEX_BITS == head).then_some(index)
    }

    #[inline]
    pub(crate) fn get(&self, handle: Handle<T>) -> Option<&T> {
        self.slots[self.index(handle)?].value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, handle: Handle<T>) -> Option<&mut T> {
        let index = self.index(handle)?;
        self.slots[index].value.as_mut()
    }

    /// Takes the value out; the handle is dead from here on.
    pub(crate) fn remove(&mut self, handle: Handle<T>) -> Option<T> {
        let index = self.index(handle)?;
        let slot = &mut self.slots[index];
        let value = slot.value.take()?;
        // A slot whose generations are used up is not used again, so no handle ever comes back.
        if let Some(generation) = slot.generation.checked_add(1) {
            slot.generation = generation;
            self.free.push(index);
        }
        Some(value)
    }

    /// All live objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Apple(u32);
    impl Kind for Apple {
        const TAG: u8 = 0xa1;
    }

    #[test]
    fn a_freed_handle_stays_dead_when_its_slot_is_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert(Apple(1)).unwrap();
        let second = slab.insert(Apple(2)).unwrap();
        assert_eq!(slab.remove(first), Some(Apple(1)));
        assert_eq!(slab.remove(first), None);
        let third = slab.insert(Apple(3)).unwrap();
        assert_eq!(third.bits & 0xff_ffff, first.bits & 0xff_ffff, "the slot is used again");
        assert_ne!(third, first);
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.get(second), Some(&Apple(2)));
        assert_eq!(slab.get_mut(third), Some(&mut Apple(3)));
        assert_eq!(slab.iter().count(), 2);
    }

    #[test]
    fn only_exact_handles_are_known() {
        let mut slab = Slab::new();
        let handle = slab.insert(Apple(1)).unwrap();
        for bit in 0..64 {
            assert_eq!(slab.get(Handle::from_bits(handle.bits ^ 1 << bit)), None, "bit {bit}");
        }
        for bits in [0, 1, usize::MAX, &raw const slab as usize] {
            assert_eq!(slab.get(Handle::from_bits(bits)), None);
        }
    }

    #[test]
    fn a_slot_without_generations_left_retires() {
        let mut slab = Slab::new();
        let handle = slab.insert(Apple(1)).unwrap();
        slab.slots[0].generation = u32::MAX;
        let last = Handle::from_bits(handle.bits | (u32::MAX as usize) << INDEX_BITS);
        assert_eq!(slab.remove(last), Some(Apple(1)));
        let next = slab.insert(Apple(2)).unwrap();
        assert_eq!(slab.index(next), Some(1));
        assert_eq!(slab.get(last), None);
    }
}
