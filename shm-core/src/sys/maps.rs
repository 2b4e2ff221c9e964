//! The mappings of this process, as the kernel lists them.

use std::ops::Range;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::read;

/// Room for a line of the list: all that matters stands before the name, which may be cut.
const LINE_BYTES: usize = 4096;

/// The list that the kernel makes of them. That of the process itself (`/proc/self`) is empty once its main thread has ended.
pub(super) const LIST: &str = "/proc/thread-self/maps";

/// One line of the list.
#[derive(Debug)]
pub(super) struct Mapping<'a> {
    pub(super) range: Range<usize>,
    pub(super) permissions: &'a str,
    /// Where it begins in its file.
    pub(super) offset: u64,
    pub(super) inode: u64,
    pub(super) name: &'a str,
}

impl<'a> Mapping<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        let permissions = words.next()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        let name = line.find(['/', '[']).map_or("", |at| &line[at..]);
        Some(Self { range, permissions, offset, inode, name })
    }

    /// True if it is shared memory of the file `inode` whose offsets are addresses.
    pub(super) fn mirrors(&self, inode: u64) -> bool {
        self.inode == inode && self.permissions.ends_with('s') && self.offset == self.range.start as u64
    }
}

/// Shows `look` the mappings in the order of their addresses, until it answers that it has seen enough.
///
/// Allocates nothing, so that a forked child may call it, and `look` may change the mapping that it is shown.
///
/// # Errors
/// The list cannot be read, or is empty: who reads it has a mapping at least.
pub(super) fn each(look: impl FnMut(&Mapping<'_>) -> bool) -> Result<(), Errno> {
    each_of(&open(LIST, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?, look)
}

fn each_of(list: &OwnedFd, mut look: impl FnMut(&Mapping<'_>) -> bool) -> Result<(), Errno> {
    let (mut buffer, mut filled, mut skips, mut is_empty) = ([0_u8; LINE_BYTES], 0, false, true);
    loop {
        let bytes = match read(list, &mut buffer[filled..]) {
            Err(Errno::EINTR) => continue,
            Ok(0) if is_empty => return Err(Errno::ESRCH),
            Ok(0) => return Ok(()),
            bytes => bytes?,
        };
        filled += bytes;
        let mut rest = &buffer[..filled];
        loop {
            let end = rest.iter().position(|&byte| byte == b'\n');
            let is_cut = end.is_none() && rest.len() == LINE_BYTES;
            if end.is_none() && !is_cut {
                break;
            }
            let (line, behind) = rest.split_at(end.unwrap_or(rest.len()));
            let mapping = line.utf8_chunks().next().and_then(|text| Mapping::parse(text.valid()));
            is_empty &= mapping.is_none();
            if !std::mem::replace(&mut skips, is_cut)
                && let Some(mapping) = mapping
                && look(&mapping)
            {
                return Ok(());
            }
            rest = behind.get(1..).unwrap_or_default();
        }
        let kept = filled - rest.len()..filled;
        filled = kept.len();
        buffer.copy_within(kept, 0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let line =
            "55d0e5a0e000-55d0e5a2f000 rw-s 00003000 00:01 17                        /memfd:with space (deleted)";
        let heap = Mapping::parse(line).unwrap();
        assert_eq!((heap.range.clone(), heap.offset, heap.inode), (0x55d0_e5a0_e000..0x55d0_e5a2_f000, 0x3000, 17));
        assert_eq!((heap.permissions, heap.name), ("rw-s", "/memfd:with space (deleted)"));
        assert!(!heap.mirrors(17));
        assert!(Mapping::parse("3000-4000 rw-s 00003000 00:01 17").unwrap().mirrors(17));
        assert!(!Mapping::parse("3000-4000 rw-p 00003000 00:01 17").unwrap().mirrors(17));
        assert!(Mapping::parse("").is_none() && Mapping::parse("1000 rw-p").is_none());
    }

    #[test]
    fn every_mapping_is_shown_once_and_in_order() {
        // More than fits into the buffer at once, each a mapping of its own.
        let pages: Vec<_> =
            (0..200).map(|i| super::super::map::SharedMap::anonymous("han-test", 4096 * (1 + i))).collect();
        let starts: Vec<usize> = pages.iter().map(|page| page.as_ref().unwrap().base().addr()).collect();
        let (mut reached, mut found) = (0, 0);
        each(|mapping| {
            assert!(mapping.range.start >= reached);
            reached = mapping.range.end;
            found += usize::from(starts.contains(&mapping.range.start));
            false
        })
        .unwrap();
        assert_eq!(found, starts.len());
        let mut shown = 0;
        each(|_| {
            shown += 1;
            shown == 3
        })
        .unwrap();
        assert_eq!(shown, 3);
    }

    #[test]
    fn a_list_without_mappings_is_none() {
        let empty = open("/dev/null", OFlag::O_RDONLY, Mode::empty()).unwrap();
        assert_eq!(each_of(&empty, |_| panic!("there is nothing to show")), Err(Errno::ESRCH));
    }
}
