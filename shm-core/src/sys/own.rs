//! What the process that made it drops, and no child that it has forked.
#![allow(unsafe_code)] // decides whether a value is dropped

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A value whose end tells others something, for instance by a closed connection. A forked child has a copy of it, which
/// stays as it is whatever the child does with it: its end would be told in the parent's name.
#[derive(Debug)]
pub struct Own<T> {
    value: ManuallyDrop<T>,
    pid: u32,
}

impl<T> Own<T> {
    /// This process's.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), pid: std::process::id() }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: dropped here alone, and not used any more.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Own<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Told<'a>(&'a Cell<u32>);

    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn the_process_that_made_it_drops_it() {
        let drops = Cell::new(0);
        drop(Own::new(Told(&drops)));
        assert_eq!(drops.get(), 1);
        drop(Own { value: ManuallyDrop::new(Told(&drops)), pid: std::process::id() + 1 });
        assert_eq!(drops.get(), 1, "this process is another's child");
    }
}
