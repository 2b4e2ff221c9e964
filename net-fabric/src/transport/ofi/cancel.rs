//! Giving messages up, sleeping, and the end of a transport.

use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use super::OfiTransport;
use super::slots::{Kind, Operation};
use crate::error::{Error, Result};
use crate::fabric::Registrations;
use crate::transport::{Completion, Token};

/// How long a provider may take to give a message's memory back.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long after a peer was found to be gone the endpoint stays open, so that other ranks can be told.
const FAREWELL: Duration = Duration::from_secs(1);
/// Sleeps of providers that cannot wake us.
const NAP: Duration = Duration::from_micros(100);
/// The longest sleep while a message that nobody asked for could bar one that is awaited, which wakes nobody.
const WATCHFUL_NAP: Duration = Duration::from_millis(2);
/// The longest sleep in any case: afterwards peers are looked after.
const LONGEST_NAP: Duration = Duration::from_millis(100);

impl OfiTransport {
    /// Takes a message's memory from the provider; if nothing else helps, by closing the endpoint, after which the
    /// transport is broken. Only jobs that are failing anyway give messages up.
    pub(super) fn give_up(&mut self, token: Token) {
        let of_token = |operation: &Operation| match &operation.kind {
            Kind::Send(own) | Kind::Receive(own) => *own == token,
            _ => false,
        };
        let Some(slot) = self.slots.around(0).find(|(_, operation)| of_token(operation)).map(|(slot, _)| slot) else {
            return;
        };
        if let Some(operation) = self.slots.get_mut(slot) {
            operation.cancelled = true;
        }
        if let Some(endpoint) = &self.endpoint {
            endpoint.cancel(self.slots.context(slot));
        }
        let started = Instant::now();
        while self.slots.get_mut(slot).is_some_and(|operation| of_token(operation)) {
            if self.read_queue().is_err() || started.elapsed() > PATIENCE {
                let reason = "the endpoint was closed to take the memory of messages that were given up from it";
                self.close(Error::Fabric { call: "fi_cancel", reason: reason.to_owned() });
            }
        }
    }

    /// Ends sends to peers that are gone, which some providers keep for ever: nothing has moved for `idle`. Only closing
    /// the endpoint takes their memory from it, and a world that has lost a rank is at its end. The caller has had
    /// time to tell the other ranks, to whom this rank looks as if it were gone itself afterwards.
    pub(super) fn forsake(&mut self, idle: Duration) -> Result<()> {
        if idle < PATIENCE || self.gone_since.is_some_and(|since| since.elapsed() < FAREWELL) {
            return Ok(());
        }
        let forsaken = self
            .slots
            .around(0)
            .find_map(|(_, operation)| Some((operation.peer, self.lost.get(operation.peer)?.clone()?)));
        if let Some((rank, reason)) = forsaken {
            self.close(Error::Unreachable { rank, reason });
        }
        Ok(())
    }

    /// Closes the endpoint: no memory is in the provider's hands any more, and all messages have failed.
    /// `why` is what they are told, unless the transport was broken before.
    fn close(&mut self, why: Error) {
        if self.registrations.as_ref().is_some_and(Registrations::are_bound) {
            self.registrations = None;
        }
        self.endpoint = None;
        self.registrations = None;
        let error = self.broken.get_or_insert(why).clone();
        let living: Vec<_> = self.slots.around(0).map(|(slot, _)| slot).collect();
        for slot in living {
            if let Some(Operation { kind: Kind::Send(token) | Kind::Receive(token), .. }) = self.slots.take(slot) {
                self.ready.push(Completion { token, word: 0, outcome: Err(error.clone()) });
            }
        }
        (self.sending, self.receiving) = (0, 0);
    }

    /// Sleeps until something has completed, at most `limit`.
    pub(super) fn doze(&mut self, limit: Duration) -> Result<()> {
        if let Some(error) = &self.broken {
            return if self.ready.is_empty() { Err(error.clone()) } else { Ok(()) };
        }
        if self.read_queue()? > 0 || !self.ready.is_empty() {
            self.stall.moved();
            return Ok(());
        }
        let idle = self.stall.slept();
        self.stalled(idle)?;
        if self.endpoint.is_none() || !self.ready.is_empty() {
            return Ok(());
        }
        let barred = self.receiving > 0 && self.unexpected.can_look();
        let limit = limit.min(if barred { WATCHFUL_NAP } else { LONGEST_NAP });
        // Waiting counts in milliseconds.
        if self.queue.waits() && limit >= Duration::from_millis(1) {
            let queue = Rc::clone(&self.queue);
            let waited = queue.wait(limit, |event| self.finish(event));
            if self.unbroken(waited)? > 0 {
                self.stall.moved();
            }
            return Ok(());
        }
        thread::sleep(limit.min(NAP));
        Ok(())
    }
}

impl Drop for OfiTransport {
    fn drop(&mut self) {
        // Before the memory that it may still write to: slots, and what they hold.
        let reason = "the transport is gone".to_owned();
        self.close(Error::Fabric { call: "fi_close", reason });
    }
}
