//! A world whose clock is simulated: messages take the time that a cost model says.
//!
//! [`Simulation`] is the world as its driver sees it: it goes from one moment at which a rank has something to do
//! to the next, and the driver lets that rank progress. Without a driver ([`Simulated::world`]) the clock goes on
//! whenever a rank progresses and has nothing to look at.
//!
//! Null pointers are taken: then no data move, only time passes.
#![allow(unsafe_code)] // Reads what callers send and writes what they receive.

mod clock;
mod layout;
mod machine;
mod nic;
mod noise;
mod world;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use layout::Layout;
pub use machine::{Level, Line, LogGp, Machine, Model, Seconds};
pub use noise::Noise;

use super::{Completion, Posted, Tag, Token, Transport};
use crate::error::{Error, Result};
use world::{Data, Posting, World};

/// How long a rank without a driver sleeps at most when the whole world has nothing to do.
const NAP: Duration = Duration::from_micros(50);

/// A simulated world as its driver sees it.
pub struct Simulation(Arc<Mutex<World>>);

impl Simulation {
    /// A world and its ranks' doors. Every rank wakes once at the beginning.
    ///
    /// # Errors
    /// The noise makes no sense there.
    pub fn new(machine: Machine, layout: Layout, noise: Noise) -> Result<(Self, Vec<Simulated>)> {
        let mut world = World::new(machine, layout, noise)?;
        world.wake_all();
        let ranks = doors(world, true);
        Ok((Self(Arc::clone(&ranks[0].world)), ranks))
    }

    /// Goes on to the next moment at which a rank can do something, and gives that rank; none if nothing happens
    /// any more.
    pub fn next_rank(&mut self) -> Option<usize> {
        lock(&self.0).next_wake()
    }

    /// How far a rank's processor is.
    #[must_use]
    pub fn now(&self, rank: usize) -> Seconds {
        lock(&self.0).now(rank)
    }

    /// Messages sent so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        lock(&self.0).sent()
    }
}

/// A rank's door to a simulated world.
pub struct Simulated {
    rank: usize,
    size: usize,
    world: Arc<Mutex<World>>,
    /// Whether somebody else moves the clock.
    driven: bool,
    /// Where receives go that have memory.
    places: HashMap<u64, Place>,
}

/// Where a message is to go.
struct Place {
    token: Token,
    data: *mut u8,
}

// SAFETY: who posted the receive has promised that nobody else uses the memory, from whatever thread.
unsafe impl Send for Place {}

impl Simulated {
    /// A world that needs no driver.
    ///
    /// # Errors
    /// None but those of [`Simulation::new`].
    pub fn world(machine: Machine, layout: Layout) -> Result<Vec<Self>> {
        Ok(doors(World::new(machine, layout, Noise::None)?, false))
    }

    /// How far this rank's processor is.
    #[must_use]
    pub fn now(&self) -> Seconds {
        lock(&self.world).now(self.rank)
    }

    fn check(&self, peer: usize) -> Result<()> {
        if peer < self.size {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!("there is no rank {peer}: the world has {}", self.size)))
    }
}

fn doors(world: World, driven: bool) -> Vec<Simulated> {
    let size = world.size();
    let world = Arc::new(Mutex::new(world));
    let door = |rank| Simulated { rank, size, world: Arc::clone(&world), driven, places: HashMap::new() };
    (0..size).map(door).collect()
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    // A panic of another rank's thread leaves the world usable enough for the others to fail in words.
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Transport for Simulated {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    unsafe fn send(
        &mut self,
        peer: usize,
        tag: Tag,
        word: u64,
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<Posted> {
        self.check(peer)?;
        let copied: Data = (!data.is_null() && bytes > 0).then(|| {
            // SAFETY: not null, so valid for reads of `bytes` bytes by the contract of this function.
            unsafe { std::slice::from_raw_parts(data, bytes) }.into()
        });
        lock(&self.world).send(self.rank, peer, Posting { tag, bytes, token }, word, copied)?;
        Ok(Posted::Pending)
    }

    unsafe fn receive(&mut self, peer: usize, tag: Tag, data: *mut u8, bytes: usize, token: Token) -> Result<Posted> {
        self.check(peer)?;
        let id = lock(&self.world).receive(self.rank, peer, Posting { tag, bytes, token });
        if !data.is_null() && bytes > 0 {
            self.places.insert(id, Place { token, data });
        }
        Ok(Posted::Pending)
    }

    fn progress(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        let ended = {
            let mut world = lock(&self.world);
            let mut ended = world.fetch(self.rank);
            while ended.is_empty() && !self.driven && world.step().is_some() {
                ended = world.fetch(self.rank);
            }
            ended
        };
        for ended in ended {
            if let Some((id, data)) = ended.received
                && let Some(place) = self.places.remove(&id)
                && let Some(data) = data
            {
                // SAFETY: the receive has neither completed nor been cancelled, so its memory is valid for writes
                // of its bytes, which are as many as came; the copy that came is the world's own.
                unsafe { place.data.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            }
            completed.push(ended.completion);
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        lock(&self.world).cancel(self.rank, token);
        self.places.retain(|_, place| place.token != token);
    }

    fn work(&mut self, reduced_bytes: usize, copied_bytes: usize) {
        lock(&self.world).work(self.rank, reduced_bytes, copied_bytes);
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        if !self.driven {
            std::thread::sleep(limit.min(NAP));
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let world = lock(&self.world);
        format!("simulated ({}, {})", world.machine().name, world.machine().model.name())
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        if !self.driven {
            lock(&self.world).leave(self.rank);
        }
    }
}

#[cfg(test)]
mod tests;
