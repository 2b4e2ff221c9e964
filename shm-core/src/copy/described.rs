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
