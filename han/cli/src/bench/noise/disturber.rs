//! Puts a rank to sleep at the times of its noise, wherever it is.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use net_fabric::transport::simulated::Noise;
use shm_core::sys::doze::Sleeper;

use super::super::Result;
use super::super::series::Around;

/// Delays of one operation, from its beginning.
struct Order {
    begin: Instant,
    noise: Noise,
    rank: usize,
}

/// A thread that knows when this one is to sleep.
pub(super) struct Disturber {
    rank: usize,
    sleeper: Sleeper,
    /// The noise of each operation, by its number.
    noise: Box<dyn Fn(usize) -> Noise>,
    orders: Sender<Option<Order>>,
}

impl Disturber {
    /// For the calling thread, which is `rank`.
    pub(super) fn new(rank: usize, noise: impl Fn(usize) -> Noise + 'static) -> Result<Self> {
        let sleeper = Sleeper::of_this_thread()?;
        let (orders, listens) = channel();
        thread::Builder::new().name("han-noise".to_owned()).spawn(move || disturb(&listens, sleeper))?;
        Ok(Self { rank, sleeper, noise: Box::new(noise), orders })
    }
}

impl Around for Disturber {
    fn begun(&mut self, number: usize, at: Instant) {
        let noise = (self.noise)(number);
        if noise == Noise::None {
            return;
        }
        // What is there from the beginning has to be, however late the other thread gets to it.
        for (start_s, length_s) in noise.delays(self.rank).take_while(|(start_s, _)| *start_s <= 0.0) {
            let _ = self.sleeper.sleep(Duration::from_secs_f64((start_s + length_s).max(0.0)));
        }
        // The thread ends with this value alone.
        let _ = self.orders.send(Some(Order { begin: at, noise, rank: self.rank }));
    }

    fn ended(&mut self) {
        let _ = self.orders.send(None);
    }
}

/// Follows orders, each until the next comes.
fn disturb(orders: &Receiver<Option<Order>>, sleeper: Sleeper) {
    let mut next = orders.recv();
    while let Ok(order) = next {
        next = order.and_then(|order| carry_out(orders, &order, sleeper)).map_or_else(|| orders.recv(), Ok);
    }
}

/// Carries an order out to its end, or until another one comes, which is returned.
fn carry_out(orders: &Receiver<Option<Order>>, order: &Order, sleeper: Sleeper) -> Option<Option<Order>> {
    for (start_s, length_s) in order.noise.delays(order.rank).skip_while(|(start_s, _)| *start_s <= 0.0) {
        let start = order.begin + Duration::from_secs_f64(start_s);
        match orders.recv_timeout(start.saturating_duration_since(Instant::now())) {
            Ok(other) => return Some(other),
            Err(RecvTimeoutError::Disconnected) => return Some(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if sleeper.sleep(Duration::from_secs_f64(length_s)).is_err() {
            return None;
        }
    }
    None
}
