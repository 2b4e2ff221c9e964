//! Where messages go out and come in.
#![allow(unsafe_code)] // libfabric is a C library.

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

use libfabric_sys as sys;

use super::{AddressVector, CompletionQueue, Context, Domain, Info, Object, Registrations, check};
use crate::error::{Error, Result};

/// A peer's handle and a tag: what a message is matched by.
#[derive(Debug, Clone, Copy)]
pub struct Matching {
    /// As the address vector gave it.
    pub peer: sys::fi_addr_t,
    /// All its bits count.
    pub tag: u64,
}

/// Memory of a message.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Its first byte.
    pub start: *mut u8,
    /// Its length.
    pub bytes: usize,
    /// Its registration's, or null.
    pub descriptor: *mut c_void,
}

impl Memory {
    fn vector(&self) -> sys::iovec {
        sys::iovec { iov_base: self.start.cast(), iov_len: self.bytes }
    }
}

/// Pieces of one message, as C describes them.
fn described(pieces: &[Memory]) -> ([sys::iovec; MOST_PIECES], [*mut c_void; MOST_PIECES]) {
    assert!(pieces.len() <= MOST_PIECES);
    let mut vectors = [sys::iovec::default(); MOST_PIECES];
    let mut descriptors = [ptr::null_mut(); MOST_PIECES];
    for (place, piece) in pieces.iter().enumerate() {
        vectors[place] = piece.vector();
        descriptors[place] = piece.descriptor;
    }
    (vectors, descriptors)
}

const MOST_PIECES: usize = 3;

/// What became of a posted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Post {
    /// It is under way.
    Begun,
    /// There is no room now: let the provider work and try again.
    Again,
    /// It was refused, with this code of the library.
    Refused(i32),
}

impl Post {
    fn of(result: isize) -> Self {
        const AGAIN: isize = -(sys::FI_EAGAIN as isize);
        match result {
            0.. => Self::Begun,
            AGAIN => Self::Again,
            code => Self::Refused(i32::try_from(-code).unwrap_or(i32::MAX)),
        }
    }
}

/// An endpoint for reliable datagrams, enabled.
pub struct Endpoint {
    raw: Object<sys::fid_ep>,
    _queue: Rc<CompletionQueue>,
    _addresses: Rc<AddressVector>,
    _domain: Rc<Domain>,
}

impl Endpoint {
    /// Opens an endpoint, whose completions go to the queue and whose peers are in the vector.
    ///
    /// # Errors
    /// The call that failed.
    #[doc(alias = "fi_endpoint")]
    pub fn open(
        domain: &Rc<Domain>,
        info: &Info,
        queue: &Rc<CompletionQueue>,
        addresses: &Rc<AddressVector>,
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the domain is open, the description is that which it was opened from.
        let result = unsafe { sys::fi_endpoint(domain.raw(), info.raw(), &raw mut raw, ptr::null_mut()) };
        // SAFETY: what the call has opened, and nobody else knows.
        let raw = unsafe { Object::opened("fi_endpoint", result, raw) }?;
        // SAFETY: both are open, and the endpoint is closed first.
        let bound = unsafe { sys::fi_ep_bind(raw.raw(), addresses.fid(), 0) };
        check("fi_ep_bind (address vector)", bound)?;
        let both = sys::FI_TRANSMIT | sys::FI_RECV;
        // SAFETY: as above.
        check("fi_ep_bind (completion queue)", unsafe { sys::fi_ep_bind(raw.raw(), queue.fid(), both) })?;
        // SAFETY: the endpoint has all that it needs.
        check("fi_enable", unsafe { sys::fi_enable(raw.raw()) })?;
        Ok(Self { raw, _queue: Rc::clone(queue), _addresses: Rc::clone(addresses), _domain: Rc::clone(domain) })
    }

    /// Binds registrations that are made from now on to this endpoint, which has to outlive them.
    pub fn own(&self, registrations: &mut Registrations) {
        registrations.bind_to(self.raw.fid());
    }

    /// The address at which peers reach it.
    ///
    /// # Errors
    /// `fi_getname` fails.
    #[doc(alias = "fi_getname")]
    pub fn name(&self) -> Result<Vec<u8>> {
        let mut room = [0_u8; super::addresses::MAX_ADDRESS_BYTES];
        let mut bytes = room.len();
        // SAFETY: the endpoint is open, and the room is as large as is said.
        let result = unsafe { sys::fi_getname(self.raw.fid(), room.as_mut_ptr().cast(), &raw mut bytes) };
        check("fi_getname", result)?;
        let reason = || format!("an address of {bytes} bytes: at most {} are known", room.len());
        room.get(..bytes).map(<[u8]>::to_vec).ok_or_else(|| Error::Fabric { call: "fi_getname", reason: reason() })
    }

    /// Sends bytes that are taken along at once: no completion follows, unless it fails.
    ///
    /// # Safety
    /// `data` is valid for reads of `bytes` bytes.
    #[doc(alias = "fi_tinjectdata")]
    pub unsafe fn inject(&self, to: Matching, word: u64, data: *const u8, bytes: usize) -> Post {
        // SAFETY: the endpoint is enabled, the handle is of its vector, and the memory by the caller's promise.
        Post::of(unsafe { sys::fi_tinjectdata(self.raw.raw(), data.cast(), bytes, word, to.peer, to.tag) })
    }

    /// Begins to send, with a word beside the message.
    ///
    /// # Safety
    /// Memory and context stay valid and untouched until the completion, or until the endpoint is closed.
    #[doc(alias = "fi_tsenddata")]
    pub unsafe fn send(&self, to: Matching, word: u64, data: Memory, context: Context) -> Post {
        let (endpoint, start, context) = (self.raw.raw(), data.start.cast(), context.cast());
        // SAFETY: the endpoint is enabled, the handle is of its vector, and the rest by the caller's promise.
        Post::of(unsafe {
            sys::fi_tsenddata(endpoint, start, data.bytes, data.descriptor, word, to.peer, to.tag, context)
        })
    }

    /// Begins to send pieces as one message: at most 3.
    ///
    /// # Safety
    /// As [`send`](Self::send).
    #[doc(alias = "fi_tsendmsg")]
    pub unsafe fn send_pieces(&self, to: Matching, pieces: &[Memory], context: Context) -> Post {
        let (vectors, mut descriptors) = described(pieces);
        let message = Self::message(to, 0, &vectors[..pieces.len()], &mut descriptors, context);
        // SAFETY: as in `send`; the description of the pieces is read during the call.
        Post::of(unsafe { sys::fi_tsendmsg(self.raw.raw(), &raw const message, sys::FI_COMPLETION) })
    }

    /// Begins to receive.
    ///
    /// # Safety
    /// Memory and context stay valid and unused until the completion, or until the endpoint is closed.
    #[doc(alias = "fi_trecv")]
    pub unsafe fn receive(&self, from: Matching, data: Memory, context: Context) -> Post {
        let (endpoint, start, context) = (self.raw.raw(), data.start.cast(), context.cast());
        // SAFETY: the endpoint is enabled, the handle is of its vector, and the rest by the caller's promise.
        Post::of(unsafe {
            sys::fi_trecv(endpoint, start, data.bytes, data.descriptor, from.peer, from.tag, 0, context)
        })
    }

    /// Begins to receive one message into pieces: at most 3.
    ///
    /// # Safety
    /// As [`receive`](Self::receive).
    #[doc(alias = "fi_trecvmsg")]
    pub unsafe fn receive_pieces(&self, from: Matching, pieces: &[Memory], context: Context) -> Post {
        let (vectors, mut descriptors) = described(pieces);
        let message = Self::message(from, 0, &vectors[..pieces.len()], &mut descriptors, context);
        // SAFETY: as in `receive`; the description of the pieces is read during the call.
        Post::of(unsafe { sys::fi_trecvmsg(self.raw.raw(), &raw const message, sys::FI_COMPLETION) })
    }

    /// Looks for a message of any tag from a peer that no receive was posted for, and claims it. The completion
    /// has its tag, word and length; or it fails with `FI_ENOMSG`, if there is none.
    ///
    /// # Safety
    /// The context stays valid until the completion, or until the endpoint is closed.
    #[doc(alias = "FI_PEEK")]
    pub unsafe fn look_for_unexpected(&self, peer: sys::fi_addr_t, context: Context) -> Post {
        let message = Self::message(Matching { peer, tag: 0 }, u64::MAX, &[], &mut [], context);
        let flags = sys::FI_PEEK | sys::FI_CLAIM | sys::FI_COMPLETION;
        // SAFETY: as in `receive`; a look has no memory.
        Post::of(unsafe { sys::fi_trecvmsg(self.raw.raw(), &raw const message, flags) })
    }

    /// Receives the message that was claimed with this context.
    ///
    /// # Safety
    /// As [`receive`](Self::receive).
    #[doc(alias = "FI_CLAIM")]
    pub unsafe fn receive_claimed(&self, from: Matching, data: Memory, context: Context) -> Post {
        let mut descriptors = [data.descriptor];
        let vectors = [data.vector()];
        let message = Self::message(from, 0, &vectors, &mut descriptors, context);
        let flags = sys::FI_CLAIM | sys::FI_COMPLETION;
        // SAFETY: as in `receive`; the description of the memory is read during the call.
        Post::of(unsafe { sys::fi_trecvmsg(self.raw.raw(), &raw const message, flags) })
    }

    fn message(
        with: Matching,
        ignore: u64,
        vectors: &[sys::iovec],
        descriptors: &mut [*mut c_void],
        context: Context,
    ) -> sys::fi_msg_tagged {
        sys::fi_msg_tagged {
            msg_iov: vectors.as_ptr(),
            desc: descriptors.as_mut_ptr(),
            iov_count: vectors.len(),
            addr: with.peer,
            tag: with.tag,
            ignore,
            context: context.cast(),
            data: 0,
        }
    }

    /// Asks for a message to be given up; a completion follows in any case, sooner or later.
    #[doc(alias = "fi_cancel")]
    pub fn cancel(&self, context: Context) {
        // SAFETY: the endpoint is open; a context that is not under way is ignored. Providers that cannot cancel
        // say so, and the message goes on.
        let _ = unsafe { sys::fi_cancel(self.raw.fid(), context.cast()) };
    }
}
