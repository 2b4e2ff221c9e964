//! A buffer as its owner describes it to peers, and as that travels beside a flag.

use super::regions::Extent;

/// A buffer as its owner describes it to peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Described {
    /// Where it begins in its owner's address space.
    pub(super) address: usize,
    /// Number of the region that it lies in; 0 for memory that peers cannot map.
    pub(super) region: u64,
    /// The region's descriptor in its owner.
    pub(super) fd: u32,
    /// 1 where the region's offset in the file is its address, as for registered memory; else 0.
    at_address: u32,
    pub(super) inode: u64,
    pub(super) region_bytes: usize,
    /// Where the buffer begins in the region.
    pub(super) offset: usize,
}

const _: () = assert!(size_of::<Described>() == 48 && size_of::<usize>() == size_of::<u64>());

impl Described {
    /// How many words it travels as.
    pub(crate) const WORDS: usize = size_of::<Self>() / size_of::<u64>();

    /// Memory that peers cannot map.
    #[inline]
    pub(super) fn plain(address: usize) -> Self {
        Self { address, region: 0, fd: 0, at_address: 0, inode: 0, region_bytes: 0, offset: 0 }
    }

    #[inline]
    pub(super) fn within(extent: &Extent, address: usize, offset: usize) -> Self {
        let &Extent { number, fd, inode, bytes, at_address, .. } = extent;
        let at_address = u32::from(at_address);
        Self { address, region: number, fd, at_address, inode, region_bytes: bytes, offset }
    }

    /// As words of a flag's payload.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        let Self { address, region, fd, at_address, inode, region_bytes, offset } = self;
        let file = u64::from(fd) | u64::from(at_address) << 32;
        [address as u64, region, file, inode, region_bytes as u64, offset as u64]
    }

    /// From words of a flag's payload.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // they were that small when they were written
    pub(crate) fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [address, region, file, inode, region_bytes, offset] = words;
        Self {
            address: address as usize,
            region,
            fd: file as u32,
            at_address: (file >> 32) as u32,
            inode,
            region_bytes: region_bytes as usize,
            offset: offset as usize,
        }
    }

    /// Where its region begins in the file.
    pub(super) fn file_offset(&self) -> u64 {
        if self.at_address == 0 { 0 } else { (self.address - self.offset) as u64 }
    }

    /// True if it lies in a region that peers can map.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.region != 0
    }
}

/// The vectors of a rank's part in a call, as it describes them to peers. They travel as words: where both lie in one region, or
/// in none, as many as stand in the line of the flag that peers poll, so that they need not wait for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Vectors {
    pub(crate) send: Described,
    /// `None` where the rank receives nothing.
    pub(crate) recv: Option<Described>,
}

/// In the first word: bits 0 to 7 are the caller's own, then these, and the descriptor from bit 32 on.
const RECEIVES: u64 = 1 << 8;
/// What is received lies in another region, and is described by itself.
const APART: u64 = 1 << 9;
const AT_ADDRESS: u64 = 1 << 10;
const FD_AT: u32 = 32;

impl Vectors {
    /// The most words.
    pub(crate) const WORDS: usize = Self::TOGETHER + Described::WORDS;
    /// Words where both vectors lie in one region, or in none.
    const TOGETHER: usize = 7;

    /// The words, and how many of them count. `own`: what else the first one says.
    #[inline]
    pub(crate) fn to_words(self, own: u8) -> ([u64; Self::WORDS], usize) {
        let Self { send, recv } = self;
        let mut words = [0; Self::WORDS];
        let mut used = Self::TOGETHER;
        let file = u64::from(send.fd) << FD_AT | if send.at_address == 0 { 0 } else { AT_ADDRESS };
        let mut head = u64::from(own) | file;
        let mut distance = 0;
        if let Some(recv) = recv {
            head |= RECEIVES;
            if recv.region == send.region {
                distance = recv.address.wrapping_sub(send.address);
            } else {
                head |= APART;
                words[Self::TOGETHER..].copy_from_slice(&recv.to_words());
                used = Self::WORDS;
            }
        }
        let Described { address, region, inode, region_bytes, offset, .. } = send;
        let together = [head, region, inode, region_bytes as u64, address as u64, offset as u64, distance as u64];
        words[..Self::TOGETHER].copy_from_slice(&together);
        (words, used)
    }

    /// How many words count, by the first one.
    #[inline]
    pub(crate) fn used(head: u64) -> usize {
        if head & APART == 0 { Self::TOGETHER } else { Self::WORDS }
    }

    /// From words of a flag's payload.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // they were that small when they were written
    pub(crate) fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let [head, region, inode, region_bytes, address, offset, distance, apart @ ..] = *words;
        let send = Described {
            address: address as usize,
            region,
            fd: (head >> FD_AT) as u32,
            at_address: u32::from(head & AT_ADDRESS != 0),
            inode,
            region_bytes: region_bytes as usize,
            offset: offset as usize,
        };
        let behind = |place: usize| place.wrapping_add(distance as usize);
        let recv = if head & RECEIVES == 0 {
            None
        } else if head & APART != 0 {
            Some(Described::from_words(apart))
        } else {
            let offset = if send.is_shared() { behind(send.offset) } else { 0 };
            Some(Described { address: behind(send.address), offset, ..send })
        };
        Self { send, recv }
    }
}

const _: () = assert!(Vectors::TOGETHER * size_of::<u64>() <= crate::segment::layout::POLLED_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_what_their_words_say() {
        let plain = Described::plain(0x7fff_1234);
        let lower = Described::plain(0x1000);
        let extent =
            |number, at_address| Extent { start: 0x1_0000, bytes: 1 << 30, number, fd: 77, inode: 9, at_address };
        let within = |extent, offset| Described::within(&extent, 0x1_0000 + offset, offset);
        let (heap, other) = (extent(5, false), extent(6, true));
        let all = [plain, lower, within(heap, 0), within(heap, 4096), within(other, 64), within(other, 1 << 29)];
        for send in all {
            for recv in all.map(Some).into_iter().chain([None]) {
                for own in [0, 3, 255] {
                    let vectors = Vectors { send, recv };
                    let (mut words, used) = vectors.to_words(own);
                    let is_together = recv.is_none_or(|recv| recv.region == send.region);
                    assert_eq!(used, if is_together { Vectors::TOGETHER } else { Vectors::WORDS });
                    assert_eq!((words[0] & 255, Vectors::used(words[0])), (own.into(), used));
                    words[used..].fill(u64::MAX);
                    assert_eq!(Vectors::from_words(&words), vectors);
                }
            }
        }
    }
}
