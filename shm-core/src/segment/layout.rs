//! Where everything stands in shared memory. Structs here hold atomics only; all of them are valid
//! when zeroed, which is how the kernel hands them out.

use crate::sync::{AtomicU32, AtomicU64, Bell, Latch, OpRecord, Reaching, Slot, Watermark};

/// First word of every segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"han-shm\0");
/// Raised when the meaning of a field changes without its place changing.
pub const VERSION: u32 = 8;
/// Slots of every rank: steps without cells that may be in flight. A quarter of them is used where every rank
/// has a core to itself.
pub const SLOTS: u32 = 128;
/// Most ranks that have cells of a whole page and annexes, so that a segment of 256 ranks stays modest.
const MANY_RANKS: usize = 32;
/// Most cells that a rank has.
const MOST_CELLS: usize = 1024;
/// What they take.
pub const MOST_BYTES_OF_CELLS: usize = MOST_CELLS * PAGE;
/// Cells that are in use at first, and the fewest that a rank has.
pub const FIRST_CELLS: usize = 64;
/// Operations whose signatures each rank keeps for its peers to look at.
pub const HISTORY: usize = 2 * SLOTS as usize;
/// Calls of several operations that each rank keeps for its peers to look at.
pub const CALLS: u32 = 32;
/// Segments are cut at page borders so that each rank's part lies on its own pages.
pub const PAGE: usize = 4096;
/// Words of payload beside a flag.
pub const INLINE_WORDS: usize = 15;
/// Payload that rides in the flag's lines.
pub const INLINE_BYTES: usize = 8 * INLINE_WORDS;
/// What of a payload stands in the line that a reader polls.
pub const POLLED_BYTES: usize = 64 - 8;
/// Words of an abort record: kind, rank and pid, length, then text.
pub const ABORT_WORDS: usize = 64;

/// The flag and inline payload of one step.
pub type StepSlot = Slot<INLINE_WORDS>;
/// Why the job ended.
pub type AbortRecord = Latch<ABORT_WORDS>;

/// What a segment begins with; written by its maker before anybody else maps it.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`layout_hash`] of the build that made it.
    pub layout: AtomicU64,
    /// A random value that tells this segment from every other.
    pub cookie: AtomicU64,
    /// Ranks that share it.
    pub size: AtomicU32,
    /// Bytes of one cell; 0 in a job segment.
    pub cell_bytes: AtomicU32,
    /// Threads that still hold an in-process segment.
    pub holders: AtomicU32,
}

/// The flags of one rank in a communicator; its cells follow on the next page.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct RankFlags {
    /// How far this rank has read.
    pub consumed: Watermark,
    /// 1 once this rank has freed the communicator.
    pub freed: Watermark,
    /// Sequence number of the newest operation that this rank has entered.
    pub entered: Entered,
    /// Signatures of the newest operations, by sequence number.
    pub history: [OpRecord; HISTORY],
    /// Number of the newest call of several operations that this rank has told of.
    pub called: Entered,
    /// Signatures of the newest of them, by number.
    pub calls: [OpRecord; CALLS as usize],
    /// The slot of a step is at its number modulo those in use, which are a power of two.
    pub slots: [StepSlot; SLOTS as usize],
}

/// A counter alone on its lines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Entered(pub AtomicU32);

/// The life of one rank, in the job's segment.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct RankStatus {
    /// Process id.
    pub pid: AtomicU32,
    /// One of the constants below.
    pub state: AtomicU32,
    /// The wait for ranks of this job.
    pub wait: WaitStatus,
    /// Those that it waits for, a bit each.
    pub missing: [AtomicU64; 4],
    /// The wait for messages over a network.
    pub network_wait: WaitStatus,
    /// Some of the world's ranks that it waits for there, each with 1 added; 0 where there is none.
    pub network_missing: [AtomicU32; 4],
    /// Set while the rank works on its peers' own memory.
    pub reaching: Reaching,
    /// Its rank in the world, for onlookers.
    pub number: AtomicU32,
}

/// A wait that has become long, for onlookers.
#[derive(Debug)]
#[repr(C)]
pub struct WaitStatus {
    /// When it began; 0 when it is over.
    pub since_ns: AtomicU64,
    /// Signature of the operation.
    pub packed: AtomicU64,
    /// Count of that operation.
    pub count: AtomicU64,
    /// Its sequence number in the communicator.
    pub sequence: AtomicU32,
    /// The communicator's number.
    pub communicator: AtomicU32,
}

/// The regions of memory that one rank lets its peers map, in the job's segment.
///
/// A region's number tells its place here, so a peer finds out by one load whether it lives.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct RegionTable {
    /// Grows with every region that is given up.
    pub given_up: Entered,
    /// The numbers of the living; 0 where there is none.
    pub living: [AtomicU64; REGIONS],
}

/// Most regions of a rank at one time. Whoever looks for a buffer's region, or a peer's mapping of it, may go through
/// all of them, so that each more would cost time in collectives.
pub const REGIONS: usize = REGISTERED + HEAP_REGIONS;
/// Most registered buffers among them.
pub const REGISTERED: usize = 256;
/// So many places registered buffers leave to the heap. Its regions grow with what lies in them, three of a size at most,
/// so these are more than a machine's memory fills.
pub const HEAP_REGIONS: usize = 64;

/// [`RankStatus::state`]: attached, not finalized; before that it is 0.
pub const RUNNING: u32 = 1;
/// [`RankStatus::state`]: has come to the last barrier of the world.
pub const FINALIZING: u32 = 3;
/// [`RankStatus::state`]: finalized; its end is no death.
pub const FINALIZED: u32 = 2;

/// The start of a job's segment; the ranks' [`RankStatus`] follow.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct JobFlags {
    /// Why the job ended, if it did.
    pub abort: AbortRecord,
    /// Where ranks sleep.
    pub bell: Bell,
    /// Ranks of the world, for onlookers; written by rank 0.
    pub world: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == 128);
const _: () = assert!(size_of::<StepSlot>() == 128);
const _: () = assert!(size_of::<Watermark>() == 128);
const _: () = assert!(size_of::<OpRecord>() == 32);
const _: () = assert!(size_of::<RankFlags>() == 512 + 32 * (HISTORY + CALLS as usize) + 128 * SLOTS as usize);
const _: () = assert!(size_of::<RankStatus>() == 128);
const _: () = assert!(size_of::<RegionTable>() == 128 + 8 * REGIONS && REGIONS == 320);
const _: () = assert!(size_of::<AbortRecord>() == 640);
const _: () = assert!(size_of::<Bell>() == 128);
const _: () = assert!(SLOTS.is_power_of_two() && HISTORY.is_power_of_two());
// Each operation takes at least one step, and no rank enters one that lies more than SLOTS ahead of
// what all have consumed; so no record is written again while a peer may look at it.
const _: () = assert!(HISTORY >= 2 * SLOTS as usize);

/// Changes whenever two builds could disagree about the bytes of a segment.
#[must_use]
pub const fn layout_hash() -> u64 {
    let parts = [
        VERSION as u64,
        size_of::<Header>() as u64,
        size_of::<RankFlags>() as u64,
        size_of::<RankStatus>() as u64,
        size_of::<RegionTable>() as u64,
        size_of::<JobFlags>() as u64,
        SLOTS as u64,
        FIRST_CELLS as u64,
        MOST_CELLS as u64,
        MANY_RANKS as u64,
        cell_bytes(1) as u64,
        annex_bytes(1) as u64,
        HISTORY as u64,
        CALLS as u64,
        INLINE_WORDS as u64,
        PAGE as u64,
    ];
    let package = env!("CARGO_PKG_VERSION").as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < parts.len() {
        hash = (hash ^ parts[i]).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    i = 0;
    while i < package.len() {
        hash = (hash ^ package[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
}

/// `bytes` rounded up to whole pages.
#[must_use]
pub const fn whole_pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE) * PAGE
}

/// Length of a cell where there are `ranks`.
#[must_use]
pub const fn cell_bytes(ranks: usize) -> usize {
    if ranks <= MANY_RANKS { PAGE } else { PAGE / 4 }
}

/// Bytes behind a payload's cells that the next one leaves free: a core that reads a payload to its end asks for some lines
/// behind it, too, which would be taken from a writer that has just asked for them. Where ranks share cores nobody
/// writes and reads at once for long.
#[must_use]
pub const fn gap_bytes(own_cores: bool) -> usize {
    if own_cores { 512 } else { 0 }
}

/// Length of the place that belongs to each slot in use, for payloads that do not fit beside the flag but need
/// no cell; none where there are many ranks. Being few, annexes are soon all in memory that the kernel has given
/// out, and near.
#[must_use]
pub const fn annex_bytes(ranks: usize) -> usize {
    if ranks <= MANY_RANKS { 1024 } else { 0 }
}

/// Longest payload that stands beside the flag: all that there is room for, or where the writer has a core to ask for its
/// annex's lines in advance, what is in the line that readers poll.
#[must_use]
pub fn beside_bytes(ranks: usize, own_cores: bool) -> usize {
    if own_cores && annex_bytes(ranks) > 0 { POLLED_BYTES } else { INLINE_BYTES }
}

/// Cells that each of `ranks` has: more than may be in flight, so that by the time a place comes again its
/// last readers' copies have left their caches. Taking a line back from a cache costs a writer several
/// times what writing to one that nobody has costs; about 8 MiB in all ranks' cells are enough for that. Many ranks
/// have more: the shorter their chunks, the more often those that share a core take turns on it.
#[must_use]
pub fn cells_in_ring(ranks: usize) -> usize {
    let all_bytes = if ranks <= MANY_RANKS { 8 << 20 } else { 16 << 20 };
    (all_bytes / ranks.next_power_of_two() / cell_bytes(ranks)).clamp(FIRST_CELLS, MOST_CELLS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in ARCHITECTURE.md.
    #[test]
    fn a_ranks_part_is_as_large_as_documented() {
        for (ranks, kib) in [
            (2..=2, 4096),
            (3..=4, 2048),
            (5..=8, 1024),
            (9..=16, 512),
            (17..=64, 256),
            (65..=128, 128),
            (129..=256, 64),
        ] {
            for ranks in ranks {
                assert_eq!(cells_in_ring(ranks) * cell_bytes(ranks), kib * 1024, "{ranks}");
                let annexes = if ranks <= 32 { 128 * 1024 } else { 0 };
                assert_eq!(SLOTS as usize * annex_bytes(ranks), annexes, "{ranks}");
            }
        }
        assert_eq!(whole_pages(size_of::<RankFlags>()), 28 * 1024);
        assert_eq!(size_of::<RankStatus>() + size_of::<RegionTable>(), 2816);
    }
}
