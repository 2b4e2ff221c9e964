//! A fabric and its domain: one interface of one provider.
#![allow(unsafe_code)] // libfabric is a C library.

use std::ptr;
use std::rc::Rc;

use libfabric_sys as sys;

use super::{Info, Object, library};
use crate::error::Result;

/// An opened interface, with the fabric that it belongs to.
pub struct Domain {
    // Closed first.
    domain: Object<sys::fid_domain>,
    _fabric: Object<sys::fid_fabric>,
}

impl Domain {
    /// Opens what was found.
    ///
    /// # Errors
    /// The call that failed.
    #[doc(alias = "fi_fabric")]
    pub fn open(info: &Info) -> Result<Rc<Self>> {
        let attributes = ptr::from_ref(info.fabric_attributes()).cast_mut();
        let mut raw = ptr::null_mut();
        // SAFETY: the attributes are those that the library has found; it reads them alone.
        let result = unsafe { library()?.fi_fabric(attributes, &raw mut raw, ptr::null_mut()) };
        // SAFETY: what the call has opened, and nobody else knows.
        let fabric = unsafe { Object::opened("fi_fabric", result, raw) }?;
        let mut raw = ptr::null_mut();
        // SAFETY: the fabric is open, the description is the library's.
        let result = unsafe { sys::fi_domain(fabric.raw(), info.raw(), &raw mut raw, ptr::null_mut()) };
        // SAFETY: as above.
        let domain = unsafe { Object::opened("fi_domain", result, raw) }?;
        Ok(Rc::new(Self { domain, _fabric: fabric }))
    }

    pub(super) fn raw(&self) -> *mut sys::fid_domain {
        self.domain.raw()
    }
}
