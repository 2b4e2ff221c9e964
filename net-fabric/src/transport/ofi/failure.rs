//! What a failed message means.

use libfabric_sys as sys;

use super::slots::{Kind, Operation};
use crate::error::Error;
use crate::fabric::{self, Failure};

/// Whether a code says that the peer, or the way to it, is gone.
pub(super) fn is_loss(code: i32) -> bool {
    [
        sys::FI_ECANCELED,
        sys::FI_ECONNABORTED,
        sys::FI_ECONNREFUSED,
        sys::FI_ECONNRESET,
        sys::FI_EHOSTDOWN,
        sys::FI_EHOSTUNREACH,
        sys::FI_EIO,
        // `sockets`, of a peer whose connection has ended.
        sys::FI_ENOENT,
        sys::FI_ENETDOWN,
        sys::FI_ENETUNREACH,
        sys::FI_ENOTCONN,
        sys::EPIPE,
        sys::FI_ESHUTDOWN,
        sys::FI_ETIMEDOUT,
    ]
    .iter()
    .any(|loss| loss.cast_signed() == code)
}

/// A post was refused.
pub(super) fn of_post(call: &'static str, peer: usize, code: i32) -> Error {
    if is_loss(code) {
        Error::Unreachable { rank: peer, reason: format!("{call} failed: {}", fabric::words(code)) }
    } else {
        fabric::failed(call, code)
    }
}

/// A message has failed. `lost` is why the peer was given up before, if it was.
pub(super) fn of_message(operation: &Operation, failure: &Failure, bytes: usize, lost: Option<&String>) -> Error {
    let peer = operation.peer;
    let receives = matches!(operation.kind, Kind::Receive(_));
    let call = if receives { "fi_trecv" } else { "fi_tsend" };
    if operation.cancelled {
        return Error::Fabric { call: "fi_cancel", reason: "the message was given up".to_owned() };
    }
    if failure.code == sys::FI_ETRUNC.cast_signed() {
        // Some tell the message's length, others how much of it there is.
        let came = if bytes > operation.bytes { bytes } else { bytes + failure.excess_bytes };
        return Error::Length { rank: peer, sent: came.max(operation.bytes + 1), expected: operation.bytes };
    }
    if let Some(reason) = lost {
        return Error::Unreachable { rank: peer, reason: reason.clone() };
    }
    if is_loss(failure.code) {
        let reason = if failure.code == sys::FI_ECANCELED.cast_signed() {
            "its connection is closed".to_owned()
        } else {
            failure.words.clone()
        };
        return Error::Unreachable { rank: peer, reason };
    }
    Error::Fabric { call, reason: format!("{}, with rank {peer}", failure.words) }
}
