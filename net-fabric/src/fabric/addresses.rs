//! Who the peers are.
#![allow(unsafe_code)] // libfabric is a C library.

use std::ptr;
use std::rc::Rc;

use libfabric_sys as sys;

use super::{Domain, Object, check};
use crate::error::{Error, Result};

/// The addresses that messages go to and come from.
pub struct AddressVector {
    raw: Object<sys::fid_av>,
    _domain: Rc<Domain>,
}

impl AddressVector {
    /// A vector with room for `peers`.
    ///
    /// # Errors
    /// `fi_av_open` fails.
    #[doc(alias = "fi_av_open")]
    pub fn open(domain: &Rc<Domain>, peers: usize) -> Result<Rc<Self>> {
        // Of type FI_AV_UNSPEC: the provider's favourite; the handles are kept whatever they are.
        let mut attributes = sys::fi_av_attr { count: peers, ..Default::default() };
        let mut raw = ptr::null_mut();
        // SAFETY: the domain is open, the attributes are read during the call.
        let result = unsafe { sys::fi_av_open(domain.raw(), &raw mut attributes, &raw mut raw, ptr::null_mut()) };
        // SAFETY: what the call has opened, and nobody else knows.
        let raw = unsafe { Object::opened("fi_av_open", result, raw) }?;
        Ok(Rc::new(Self { raw, _domain: Rc::clone(domain) }))
    }

    pub(super) fn fid(&self) -> *mut sys::fid {
        self.raw.fid()
    }

    /// The handle of a peer with this address, as [`Endpoint::name`](super::Endpoint::name) gave it there.
    ///
    /// # Errors
    /// The provider refuses the address.
    #[doc(alias = "fi_av_insert")]
    pub fn insert(&self, address: &[u8]) -> Result<sys::fi_addr_t> {
        // Providers read as much as their addresses are long, whatever came from the peer.
        let mut padded = [0_u8; MAX_ADDRESS_BYTES];
        let Some(room) = padded.get_mut(..address.len()) else {
            let reason = format!("an address of {} bytes: at most {MAX_ADDRESS_BYTES} are known", address.len());
            return Err(Error::Fabric { call: "fi_av_insert", reason });
        };
        room.copy_from_slice(address);
        let mut handle = sys::FI_ADDR_UNSPEC;
        let (av, from) = (self.raw.raw(), padded.as_ptr().cast());
        // SAFETY: the vector is open and not bound to an event queue, so that the call is complete when it returns;
        // the address has room for any provider's.
        let inserted = unsafe { sys::fi_av_insert(av, from, 1, &raw mut handle, 0, ptr::null_mut()) };
        check("fi_av_insert", inserted)?;
        if inserted != 1 || handle == sys::FI_ADDR_UNSPEC {
            let reason = "the provider does not take the address".to_owned();
            return Err(Error::Fabric { call: "fi_av_insert", reason });
        }
        Ok(handle)
    }
}

/// More than the addresses of any provider take.
pub(crate) const MAX_ADDRESS_BYTES: usize = 256;
