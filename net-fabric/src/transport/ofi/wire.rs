//! How much the wire behind an endpoint carries, as far as the system says it.
//!
//! libfabric knows it of the networks that it drives itself. Of an interface of IP the kernel does: the speed that its link
//! has come to, and a token bucket that lets less of it out (`tc-tbf`), as those who share a machine or a line are given.
#![allow(unsafe_code)] // One question to the kernel has no safe form.

use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;

use nix::libc;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::fabric::Info;

/// Megabits a second; `None` if nobody says.
pub(super) fn mbit_s(info: &Info) -> Option<u64> {
    info.link_bits_per_second().map(|bits| bits / MEGA).or_else(|| of_interface(&info.domain()))
}

const BITS: u64 = 8;
const MEGA: u64 = 1_000_000;

fn of_interface(name: &str) -> Option<u64> {
    link_speed(name).into_iter().chain(token_bucket(name)).min()
}

/// What `ethtool` shows, `struct ethtool_cmd` of the kernel's interface.
#[repr(C)]
#[derive(Default)]
struct LinkSettings {
    command: u32,
    _modes: [u32; 2],
    megabits: u16,
    _ports: [u8; 6],
    _packets: [u32; 2],
    /// The upper half.
    megabits_high: u16,
    _rest: [u16; 7],
}

const _: () = assert!(mem::size_of::<LinkSettings>() == 44 && mem::offset_of!(LinkSettings, megabits_high) == 28);

/// What a link's two ends have agreed on.
fn link_speed(name: &str) -> Option<u64> {
    /// Gives a link's settings.
    const GET_SETTINGS: u32 = 1;
    /// Stands for a speed that is not known.
    const UNKNOWN: u32 = u32::MAX;
    /// Older kernels give this to interfaces that programs serve (`tun`, `tap`), whatever these carry.
    const OF_PROGRAMS: u32 = 10;
    let mut settings = LinkSettings { command: GET_SETTINGS, ..LinkSettings::default() };
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: ptr::from_mut(&mut settings).cast() },
    };
    // The last place stays zero.
    if name.len() >= libc::IFNAMSIZ {
        return None;
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte.cast_signed());
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    // SAFETY: the request has an interface's name and points at settings, both of which live until this returns; the
    // command in them asks the kernel to fill in no more than these.
    if unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) } != 0 {
        return None;
    }
    let megabits = u32::from(settings.megabits_high) << 16 | u32::from(settings.megabits);
    let is_known = megabits > OF_PROGRAMS && megabits != UNKNOWN && megabits != u32::from(u16::MAX);
    is_known.then_some(megabits.into())
}

/// What the token bucket of an interface lets out, if it has one.
fn token_bucket(name: &str) -> Option<u64> {
    let interface = if_nametoindex(name).ok()?;
    let kernel = socket(AddressFamily::Netlink, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute);
    let kernel = kernel.ok()?;
    send(kernel.as_raw_fd(), &all_queues(), MsgFlags::empty()).ok()?;
    let mut reply = vec![0; 64 << 10];
    loop {
        // The kernel answers before it returns from here or there, so nobody waits.
        let bytes = recv(kernel.as_raw_fd(), &mut reply, MsgFlags::MSG_DONTWAIT).ok()?;
        for (kind, body) in messages(&reply[..bytes]) {
            match kind {
                QUEUE => {
                    if let Some(bytes_per_second) = rate_of(body, interface) {
                        return Some(bytes_per_second.saturating_mul(BITS) / MEGA);
                    }
                }
                _ => return None,
            }
        }
    }
}

// The kernel's words (rtnetlink(7), linux/rtnetlink.h and linux/pkt_sched.h).

/// A message that describes a queue of an interface.
const QUEUE: u16 = libc::RTM_NEWQDISC;
/// Bytes of `struct nlmsghdr`, `struct tcmsg` and `struct rtattr`.
const MESSAGE_HEAD: usize = 16;
const QUEUE_HEAD: usize = 20;
const ATTRIBUTE_HEAD: usize = 4;
/// The parent of the queue that all of an interface's packets pass.
const ROOT: u32 = u32::MAX;
/// Attributes of a queue.
const QUEUE_KIND: u16 = 1;
const QUEUE_OPTIONS: u16 = 2;
/// Options of a token bucket: what it was made with, and its rate if that has more than 32 bits.
const BUCKET: u16 = 1;
const BUCKET_RATE: u16 = 4;
/// Where the rate, in bytes a second, is in what it was made with.
const RATE_AT: usize = 8;

/// Asks for the queues of all interfaces.
fn all_queues() -> Vec<u8> {
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or_default();
    let length = u32::try_from(MESSAGE_HEAD + QUEUE_HEAD).unwrap_or_default();
    let mut request = Vec::with_capacity(MESSAGE_HEAD + QUEUE_HEAD);
    request.extend(length.to_ne_bytes());
    request.extend(libc::RTM_GETQDISC.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.resize(MESSAGE_HEAD + QUEUE_HEAD, 0);
    request
}

/// Kind and body of each message, the last of a reply among them.
fn messages(reply: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(reply, |head| Some((u32_at(head, 0)? as usize, u16_at(head, 4)?, MESSAGE_HEAD)))
}

/// Kind and value of each attribute.
fn attributes(body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// Marks that the value consists of attributes.
    const NESTED: u16 = 1 << 15;
    pieces(body, |head| Some((usize::from(u16_at(head, 0)?), u16_at(head, 2)? & !NESTED, ATTRIBUTE_HEAD)))
}

/// Kind and contents of pieces, of which `head` tells the length with its head, the kind, and the head's own length.
fn pieces(mut bytes: &[u8], head: impl Fn(&[u8]) -> Option<(usize, u16, usize)>) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (length, kind, head_bytes) = head(bytes)?;
        let contents = bytes.get(head_bytes..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, contents))
    })
}

/// The bytes a second of the token bucket that a message describes, if it is one of all packets of `interface`.
fn rate_of(queue: &[u8], interface: u32) -> Option<u64> {
    if u32_at(queue, 4)? != interface || u32_at(queue, 12)? != ROOT {
        return None;
    }
    let value = |of: &[u8], wanted| attributes(of).find(|(kind, _)| *kind == wanted).map(|(_, value)| value.to_vec());
    let queue = queue.get(QUEUE_HEAD..)?;
    if value(queue, QUEUE_KIND)? != b"tbf\0" {
        return None;
    }
    let options = value(queue, QUEUE_OPTIONS)?;
    if let Some(rate) = value(&options, BUCKET_RATE) {
        return Some(u64::from_ne_bytes(rate.try_into().ok()?));
    }
    u32_at(&value(&options, BUCKET)?, RATE_AT).map(u64::from)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// An attribute, or a message where the head is longer.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(ATTRIBUTE_HEAD + value.len()).unwrap();
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn queue(interface: u32, parent: u32, kind: &[u8], options: &[u8]) -> Vec<u8> {
        let head = [0, interface, 0, parent, 0].map(u32::to_ne_bytes).concat();
        [head, attribute(QUEUE_KIND, kind), attribute(QUEUE_OPTIONS, options)].concat()
    }

    #[test]
    fn the_rate_is_that_of_the_interface_s_own_bucket() {
        let made_with = [[0; RATE_AT].to_vec(), 125_000_000_u32.to_ne_bytes().to_vec()].concat();
        let bucket = attribute(BUCKET, &made_with);
        assert_eq!(rate_of(&queue(7, ROOT, b"tbf\0", &bucket), 7), Some(125_000_000));
        let long = [bucket.clone(), attribute(BUCKET_RATE, &12_500_000_000_u64.to_ne_bytes())].concat();
        assert_eq!(rate_of(&queue(7, ROOT, b"tbf\0", &long), 7), Some(12_500_000_000));
        for other in [
            queue(8, ROOT, b"tbf\0", &bucket),
            queue(7, 1, b"tbf\0", &bucket),
            queue(7, ROOT, b"fq\0", &bucket),
            queue(7, ROOT, b"tbf\0", &bucket[..10]),
            Vec::new(),
        ] {
            assert_eq!(rate_of(&other, 7), None);
        }
    }

    #[test]
    fn a_reply_is_gone_through_to_its_end_and_not_beyond() {
        let message = |kind: u16, body: &[u8]| {
            let length = u32::try_from(MESSAGE_HEAD + body.len()).unwrap();
            [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat()
        };
        let reply = [message(QUEUE, b"four"), message(3, b"12345678")].concat();
        let kinds: Vec<(u16, &[u8])> = messages(&reply).collect();
        assert_eq!(kinds, [(QUEUE, &b"four"[..]), (3, b"12345678")]);
        assert_eq!(messages(&reply[..reply.len() - 1]).count(), 1, "one was cut off");
        assert_eq!(messages(&[0; 64]).count(), 0, "a length that its own head exceeds");
    }

    #[test]
    fn what_has_no_speed_has_none() {
        assert_eq!(of_interface("lo"), None);
        assert_eq!(of_interface("there-is-no-such-interface"), None);
    }
}
