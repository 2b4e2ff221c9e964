//! What the library finds on this machine.
#![allow(unsafe_code)] // libfabric is a C library.

use std::ffi::{CStr, c_char};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr::{self, NonNull};
use std::slice;

use libfabric_sys as sys;

use super::{API_VERSION, check, library};
use crate::error::{Error, Result};

/// What is asked of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Reliable datagrams, of whatever kind.
    Any,
    /// Reliable datagrams with tags, receives from a named sender, and order.
    TaggedMessages,
}

/// A way to open an endpoint: provider, fabric, domain, and what they can do.
pub struct Info(NonNull<sys::fi_info>);

impl Drop for Info {
    fn drop(&mut self) {
        if let Ok(library) = library() {
            // SAFETY: made by this library, and freed once.
            unsafe { library.fi_freeinfo(self.0.as_ptr()) };
        }
    }
}

/// All that serves, in the library's order; empty if there is nothing.
///
/// The caller registers messages' memory (`FI_MR_LOCAL`) only where that is demanded: some providers leave it to whoever
/// offers it, and those that do it themselves keep a cache, or copy short messages.
///
/// # Errors
/// The library is missing, or fails.
pub fn query(wanted: Wanted) -> Result<Vec<Info>> {
    Ok(without_twins(query_with(wanted, 0)?, query_with(wanted, sys::FI_MR_LOCAL)?))
}

/// All of the first list, and of the second one what is another way.
fn without_twins(mut found: Vec<Info>, others: Vec<Info>) -> Vec<Info> {
    let way = |info: &Info| (info.provider(), info.fabric(), info.domain());
    let known: Vec<_> = found.iter().map(way).collect();
    found.extend(others.into_iter().filter(|info| !known.contains(&way(info))));
    found
}

/// The same, if the caller would also do what `registers` says.
fn query_with(wanted: Wanted, registers: u32) -> Result<Vec<Info>> {
    let library = library()?;
    let hints = hints(wanted, registers)?;
    let mut list = ptr::null_mut();
    // SAFETY: the hints are the library's own, null asks for any address, and there is room for a pointer.
    let result = unsafe { library.fi_getinfo(API_VERSION, ptr::null(), ptr::null(), 0, hints.raw(), &raw mut list) };
    if result == -sys::FI_ENODATA.cast_signed() {
        return Ok(Vec::new());
    }
    check("fi_getinfo", result)?;
    let mut found = Vec::new();
    let mut next = list;
    while let Some(info) = NonNull::new(next) {
        // SAFETY: a member of the list that the library has made, alive until it is freed below.
        found.push(unsafe { copy(library, info.as_ptr()) });
        // SAFETY: as above.
        next = unsafe { info.as_ref() }.next;
    }
    // SAFETY: the list is the library's, freed once.
    unsafe { library.fi_freeinfo(list) };
    found.into_iter().collect()
}

/// # Safety
/// `info` is null or a description that the library has made.
unsafe fn copy(library: &sys::Exports, info: *const sys::fi_info) -> Result<Info> {
    // SAFETY: by the caller's promise.
    let copy = unsafe { library.fi_dupinfo(info) };
    NonNull::new(copy).map(Info).ok_or(Error::Fabric { call: "fi_dupinfo", reason: "out of memory".to_owned() })
}

fn hints(wanted: Wanted, registers: u32) -> Result<Info> {
    // SAFETY: null asks for an empty description.
    let mut hints = unsafe { copy(library()?, ptr::null()) }?;
    // SAFETY: the description is ours alone.
    let top = unsafe { hints.0.as_mut() };
    // The contexts have room for the provider's notes.
    top.mode = sys::FI_CONTEXT | sys::FI_CONTEXT2;
    // SAFETY: an empty description has all its parts, and they are ours alone.
    unsafe { (*top.ep_attr).type_ = sys::FI_EP_RDM };
    // SAFETY: as above.
    let domain = unsafe { &mut *top.domain_attr };
    domain.threading = sys::FI_THREAD_DOMAIN;
    domain.resource_mgmt = sys::FI_RM_ENABLED;
    domain.mr_mode = (registers | sys::FI_MR_ENDPOINT | REMOTE_ACCESS_MODES).cast_signed();
    // SAFETY: the attributes are ours.
    unsafe { sys::han_fi_set_progress(domain, sys::FI_PROGRESS_MANUAL) };
    if wanted == Wanted::TaggedMessages {
        top.caps = sys::FI_TAGGED | sys::FI_DIRECTED_RECV;
        // SAFETY: as above.
        unsafe { (*top.tx_attr).msg_order = sys::FI_ORDER_SAS };
        // SAFETY: as above.
        unsafe { (*top.rx_attr).msg_order = sys::FI_ORDER_SAS };
    }
    Ok(hints)
}

/// What some providers demand for one-sided access, which is not used here.
const REMOTE_ACCESS_MODES: u32 = sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;

impl Info {
    pub(super) fn raw(&self) -> *mut sys::fi_info {
        self.0.as_ptr()
    }

    fn top(&self) -> &sys::fi_info {
        // SAFETY: the description lives as long as this value, and nobody writes it.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn fabric_attributes(&self) -> &sys::fi_fabric_attr {
        // SAFETY: descriptions that the library has made have all parts, which live as long as they.
        unsafe { &*self.top().fabric_attr }
    }

    fn domain_attributes(&self) -> &sys::fi_domain_attr {
        // SAFETY: as above.
        unsafe { &*self.top().domain_attr }
    }

    fn send_attributes(&self) -> &sys::fi_tx_attr {
        // SAFETY: as above.
        unsafe { &*self.top().tx_attr }
    }

    fn receive_attributes(&self) -> &sys::fi_rx_attr {
        // SAFETY: as above.
        unsafe { &*self.top().rx_attr }
    }

    fn endpoint_attributes(&self) -> &sys::fi_ep_attr {
        // SAFETY: as above.
        unsafe { &*self.top().ep_attr }
    }

    /// The provider's name, such as `tcp;ofi_rxm`.
    pub fn provider(&self) -> String {
        text(self.fabric_attributes().prov_name)
    }

    /// The provider's version.
    pub fn version(&self) -> (u32, u32) {
        let version = self.fabric_attributes().prov_version;
        (version >> 16, version & 0xffff)
    }

    /// The fabric: for IP the network, such as `192.0.2.0/24`.
    pub fn fabric(&self) -> String {
        text(self.fabric_attributes().name)
    }

    /// The domain: for IP the interface, such as `eth0`.
    pub fn domain(&self) -> String {
        text(self.domain_attributes().name)
    }

    /// What the link carries, in bits a second, where the library knows it.
    pub fn link_bits_per_second(&self) -> Option<u64> {
        // SAFETY: null, or a part that lives as long as the description.
        let nic = unsafe { self.top().nic.as_ref() }?;
        // SAFETY: as above.
        let link = unsafe { nic.link_attr.as_ref() }?;
        (link.speed > 0).then_some(link.speed as u64)
    }

    /// The form of its addresses (`FI_SOCKADDR_IN` and so on).
    pub fn address_format(&self) -> u32 {
        self.top().addr_format
    }

    /// The address that an endpoint would have, where it is one of IP.
    pub fn ip(&self) -> Option<IpAddr> {
        let (info, format) = (self.top(), self.top().addr_format);
        if info.src_addr.is_null() {
            return None;
        }
        // SAFETY: not null, so that many bytes of the description.
        let bytes = unsafe { slice::from_raw_parts(info.src_addr.cast::<u8>(), info.src_addrlen) };
        ip_of(format, bytes)
    }

    /// Whether messages' memory has to be registered (`FI_MR_LOCAL`).
    pub fn registers_local_memory(&self) -> bool {
        self.mr_mode() & sys::FI_MR_LOCAL != 0
    }

    /// Whether registrations are bound to an endpoint (`FI_MR_ENDPOINT`).
    pub fn binds_registrations(&self) -> bool {
        self.mr_mode() & sys::FI_MR_ENDPOINT != 0
    }

    fn mr_mode(&self) -> u32 {
        self.domain_attributes().mr_mode.cast_unsigned()
    }

    /// `mr_mode` in libfabric's words, `none` where nothing is demanded.
    pub fn registration_mode(&self) -> String {
        let names = [
            (sys::FI_MR_LOCAL, "FI_MR_LOCAL"),
            (sys::FI_MR_ENDPOINT, "FI_MR_ENDPOINT"),
            (sys::FI_MR_VIRT_ADDR, "FI_MR_VIRT_ADDR"),
            (sys::FI_MR_ALLOCATED, "FI_MR_ALLOCATED"),
            (sys::FI_MR_PROV_KEY, "FI_MR_PROV_KEY"),
        ];
        let set: Vec<_> = names.iter().filter(|(bit, _)| self.mr_mode() & bit != 0).map(|(_, name)| *name).collect();
        if set.is_empty() { "none".to_owned() } else { set.join(" ") }
    }

    /// Bytes of the word that travels beside a message.
    pub fn word_bytes(&self) -> usize {
        self.domain_attributes().cq_data_size
    }

    /// Bits of a tag, counted from the lowest.
    pub fn tag_bits(&self) -> u32 {
        match self.endpoint_attributes().mem_tag_format {
            0 => u64::BITS,
            format => u64::BITS - format.leading_zeros(),
        }
    }

    /// The most bytes of one message.
    pub fn max_message_bytes(&self) -> usize {
        self.endpoint_attributes().max_msg_size
    }

    /// The most bytes that a send takes along at once, so that their memory is free when it returns.
    pub fn inject_bytes(&self) -> usize {
        self.send_attributes().inject_size
    }

    /// Messages in each direction that may be under way at once, as it says.
    pub fn outstanding(&self) -> usize {
        self.send_attributes().size.min(self.receive_attributes().size)
    }

    /// Pieces of memory that one message may consist of.
    pub fn pieces(&self) -> usize {
        self.send_attributes().iov_limit.min(self.receive_attributes().iov_limit)
    }
}

fn text(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a C string of the description.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// The address in a `sockaddr_in` or `sockaddr_in6`.
pub(crate) fn ip_of(format: u32, bytes: &[u8]) -> Option<IpAddr> {
    match format {
        sys::FI_SOCKADDR_IN => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?).into()),
        sys::FI_SOCKADDR_IN6 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_registered_only_where_that_is_demanded() {
        let demanding = || {
            let mut all = query_with(Wanted::TaggedMessages, 0).unwrap();
            for info in &mut all {
                // SAFETY: the description is this test's alone.
                let domain = unsafe { info.0.as_mut() }.domain_attr;
                // SAFETY: descriptions have all parts.
                unsafe { (*domain).mr_mode |= sys::FI_MR_LOCAL.cast_signed() };
            }
            all
        };
        let all = without_twins(query_with(Wanted::TaggedMessages, 0).unwrap(), demanding());
        assert!(!all.is_empty() && !all.iter().any(Info::registers_local_memory));
        let all = without_twins(Vec::new(), demanding());
        assert!(!all.is_empty() && all.iter().all(Info::registers_local_memory));
    }
}
