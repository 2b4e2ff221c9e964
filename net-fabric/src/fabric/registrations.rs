//! Memory that is registered while messages use it.
//!
//! A registration lives as long as the messages that use it, and messages that use the same range share it. So none
//! outlives the memory that it was made of: nothing has to be watched for memory that is freed and mapped again,
//! which a cache of our own could not see. Most providers whose registrations are expensive keep caches of their own below
//! `fi_mr_reg`, with monitors of the address space; these make registering the same buffer again cheap. (`efa` keeps
//! one only where it registers by itself, as it does if nobody offers to, see [`query`](super::query).) The number of registrations is bounded by that of the messages under way.
#![allow(unsafe_code)] // libfabric is a C library.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use libfabric_sys as sys;

use super::{Domain, Object, check};
use crate::error::Result;

/// Which memory, and whether messages are written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Range {
    start: usize,
    bytes: usize,
    written: bool,
}

/// A use of registered memory, to be given back.
#[derive(Debug)]
#[must_use]
pub struct Registered(Range);

struct Region {
    raw: Object<sys::fid_mr>,
    users: usize,
}

/// The memory of a domain's messages.
pub struct Registrations {
    regions: HashMap<Range, Region>,
    next_key: u64,
    made: u64,
    /// Registrations belong to it, where the provider says so (`FI_MR_ENDPOINT`).
    endpoint: Option<*mut sys::fid>,
    domain: Rc<Domain>,
}

impl Registrations {
    /// None yet.
    pub fn new(domain: &Rc<Domain>) -> Self {
        Self { regions: HashMap::new(), next_key: 1, made: 0, endpoint: None, domain: Rc::clone(domain) }
    }

    /// From now on registrations are bound to this endpoint, which has to outlive this value.
    pub(super) fn bind_to(&mut self, endpoint: *mut sys::fid) {
        self.endpoint = Some(endpoint);
    }

    /// Whether they are bound to an endpoint, which then is closed after them.
    pub fn are_bound(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Registrations that were made until now.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Registrations that live.
    pub fn living(&self) -> usize {
        self.regions.len()
    }

    /// Registers memory for a message: what to post it with, and what to give back after it.
    ///
    /// # Errors
    /// The provider refuses.
    ///
    /// # Safety
    /// The memory is valid until its use is given back, for writes if it is `written`.
    #[doc(alias = "fi_mr_reg")]
    pub unsafe fn acquire(
        &mut self,
        start: *const u8,
        bytes: usize,
        written: bool,
    ) -> Result<(Registered, *mut c_void)> {
        let range = Range { start: start.addr(), bytes, written };
        if let Some(region) = self.regions.get_mut(&range) {
            region.users += 1;
            // SAFETY: the registration is open.
            return Ok((Registered(range), unsafe { sys::fi_mr_desc(region.raw.raw()) }));
        }
        let access = if written { sys::FI_RECV } else { sys::FI_SEND };
        let key = self.next_key;
        let (domain, from) = (self.domain.raw(), start.cast());
        let mut raw = ptr::null_mut();
        // SAFETY: the domain is open, and the memory is valid by the caller's promise.
        let result = unsafe { sys::fi_mr_reg(domain, from, bytes, access, 0, key, 0, &raw mut raw, ptr::null_mut()) };
        // SAFETY: what the call has opened, and nobody else knows.
        let raw = unsafe { Object::opened("fi_mr_reg", result, raw) }?;
        self.next_key += 1;
        self.made += 1;
        if let Some(endpoint) = self.endpoint {
            // SAFETY: both are open.
            check("fi_mr_bind", unsafe { sys::fi_mr_bind(raw.raw(), endpoint, 0) })?;
            // SAFETY: the registration is open and bound.
            check("fi_mr_enable", unsafe { sys::fi_mr_enable(raw.raw()) })?;
        }
        // SAFETY: the registration is open.
        let descriptor = unsafe { sys::fi_mr_desc(raw.raw()) };
        self.regions.insert(range, Region { raw, users: 1 });
        Ok((Registered(range), descriptor))
    }

    /// Gives a use back; the last one ends the registration.
    pub fn release(&mut self, registered: Registered) {
        let Registered(range) = registered;
        if let Some(region) = self.regions.get_mut(&range) {
            region.users -= 1;
            if region.users == 0 {
                self.regions.remove(&range);
            }
        }
    }
}
