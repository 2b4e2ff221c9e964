//! Every kernel of every instruction set of this CPU against the scalar kernel: every length up to
//! three vectors and around the blocks, every misalignment, every aliasing, special values.
#![allow(unsafe_code)] // Calls the kernels.

mod support;

use reduce_kernels::{Datatype, Isa, Kernel, Operator, is_defined, kernel_for};
use support::{agree, operand};

/// Bytes of the longest vector of any instruction set; misalignments are tested modulo this.
const VECTOR_BYTES: usize = 64;
/// Operands of the many-operand tests.
const OPERANDS: usize = 9;

fn for_every_kernel(test: impl Fn(&'static Kernel, &'static Kernel)) {
    for isa in Isa::available() {
        for datatype in Datatype::ALL {
            for operator in Operator::ALL {
                if is_defined(datatype, operator) {
                    let scalar = kernel_for(Isa::Scalar, datatype, operator).expect("defined");
                    test(kernel_for(isa, datatype, operator).expect("defined"), scalar);
                }
            }
        }
    }
}

/// Zero to three vectors one by one, then what takes one and two of the largest blocks (256 or 128
/// elements of one or two bytes, 64 of all others) with remainders of every kind.
fn lengths(datatype: Datatype) -> impl Iterator<Item = usize> {
    let block = match datatype.size() {
        1 => 256,
        2 => 128,
        _ => 64,
    };
    (0..=3 * VECTOR_BYTES / datatype.size()).chain(
        [block, 2 * block].into_iter().flat_map(|blocks| [blocks - 1, blocks, blocks + 1, blocks + 7, blocks + 23]),
    )
}

/// All of them, but under a sanitizer, which asks whose memory it is, one in nine.
fn misalignments() -> impl Iterator<Item = usize> {
    (0..VECTOR_BYTES).step_by(if cfg!(sanitized) { 9 } else { 1 })
}

fn longest(datatype: Datatype) -> usize {
    lengths(datatype).max().expect("not empty")
}

/// Memory in which an array can stand at any misalignment between guard bytes.
struct Arena {
    bytes: Vec<u8>,
    base: usize,
}

impl Arena {
    const GUARD: u8 = 0xa5;

    fn new(capacity: usize) -> Self {
        let bytes = vec![Self::GUARD; capacity + 4 * VECTOR_BYTES];
        let base = VECTOR_BYTES + bytes.as_ptr().align_offset(VECTOR_BYTES);
        Self { bytes, base }
    }

    /// Puts `content` at `misalignment` bytes after a vector boundary, guards around it.
    fn put(&mut self, misalignment: usize, content: &[u8]) -> *mut u8 {
        let start = self.base + misalignment;
        self.bytes[start - VECTOR_BYTES..start].fill(Self::GUARD);
        self.bytes[start..start + content.len()].copy_from_slice(content);
        self.bytes[start + content.len()..][..VECTOR_BYTES].fill(Self::GUARD);
        self.bytes[start..].as_mut_ptr()
    }

    /// What stands there now; panics if a guard has been written over.
    fn get(&self, misalignment: usize, length: usize) -> &[u8] {
        let start = self.base + misalignment;
        let before = &self.bytes[start - VECTOR_BYTES..start];
        let after = &self.bytes[start + length..][..VECTOR_BYTES];
        assert!(before.iter().all(|&byte| byte == Self::GUARD), "wrote before the destination");
        assert!(after.iter().all(|&byte| byte == Self::GUARD), "wrote behind the destination");
        &self.bytes[start..start + length]
    }
}

/// The result of the scalar kernel over aligned arrays. Every kernel works element by element, so
/// the result for a shorter count is a prefix of it.
fn oracle(scalar: &Kernel, operands: &[&[u8]], count: usize) -> Vec<u8> {
    let mut result = vec![0; count * scalar.datatype.size()];
    let pointers: Vec<*const u8> = operands.iter().map(|operand| operand.as_ptr()).collect();
    // SAFETY: every array has `count` elements of the datatype, and they are distinct.
    unsafe { (scalar.many)(result.as_mut_ptr(), &pointers, count) };
    result
}

fn check(kernel: &Kernel, what: &str, count: usize, found: &[u8], oracle: &[u8]) {
    let Kernel { isa, datatype, operator, .. } = kernel;
    let expected = &oracle[..found.len()];
    if !agree(*datatype, *operator, found, expected) {
        let size = datatype.size();
        let index = (0..count)
            .find(|i| {
                let range = i * size..(i + 1) * size;
                !agree(*datatype, *operator, &found[range.clone()], &expected[range])
            })
            .expect("some element differs");
        let range = index * size..(index + 1) * size;
        panic!(
            "{isa} {datatype} {operator} {what}, {count} elements: element {index} is {:02x?}, \
             scalar has {:02x?}",
            &found[range.clone()],
            &expected[range]
        );
    }
}

#[test]
fn two_operands_at_every_length_and_misalignment() {
    for_every_kernel(|kernel, scalar| {
        let (size, longest) = (kernel.datatype.size(), longest(kernel.datatype));
        let (a, b) = (operand(kernel.datatype, 0, longest), operand(kernel.datatype, 1, longest));
        let oracle = oracle(scalar, &[&a, &b], longest);
        let (mut inout, mut src) = (Arena::new(a.len()), Arena::new(b.len()));
        for count in lengths(kernel.datatype) {
            let bytes = count * size;
            for at in misalignments() {
                // The other operand walks through all misalignments too, at another pace.
                let other = (at * 27 + count) % VECTOR_BYTES;
                let inout_ptr = inout.put(at, &a[..bytes]);
                let src_ptr = src.put(other, &b[..bytes]);
                // SAFETY: both have `count` elements, in different arenas; the CPU has the ISA.
                unsafe { (kernel.two)(inout_ptr, src_ptr, count) };
                check(kernel, "two", count, inout.get(at, bytes), &oracle);
                assert_eq!(src.get(other, bytes), &b[..bytes], "the source has changed");
            }
        }
    });
}

#[test]
fn three_operands_at_every_length_and_misalignment() {
    for_every_kernel(|kernel, scalar| {
        let (size, longest) = (kernel.datatype.size(), longest(kernel.datatype));
        let (a, b) = (operand(kernel.datatype, 0, longest), operand(kernel.datatype, 1, longest));
        let oracle = oracle(scalar, &[&a, &b], longest);
        let mut arenas = [(); 3].map(|()| Arena::new(a.len()));
        for count in lengths(kernel.datatype) {
            let bytes = count * size;
            for at in misalignments() {
                let [dst, left, right] = &mut arenas;
                let dst_ptr = dst.put(at, &vec![0x77; bytes]);
                let left_ptr = left.put((at * 27 + count) % VECTOR_BYTES, &a[..bytes]);
                let right_ptr = right.put((at * 11 + 5 * count) % VECTOR_BYTES, &b[..bytes]);
                // SAFETY: all have `count` elements, in different arenas; the CPU has the ISA.
                unsafe { (kernel.three)(dst_ptr, left_ptr, right_ptr, count) };
                check(kernel, "three", count, dst.get(at, bytes), &oracle);
            }
        }
    });
}

#[test]
fn many_operands_at_every_length() {
    for_every_kernel(|kernel, scalar| {
        let (size, longest) = (kernel.datatype.size(), longest(kernel.datatype));
        let operands: Vec<Vec<u8>> = (0..OPERANDS).map(|i| operand(kernel.datatype, i, longest)).collect();
        let mut arenas: Vec<Arena> = (0..OPERANDS).map(|_| Arena::new(operands[0].len())).collect();
        let mut dst = Arena::new(operands[0].len());
        for k in 1..=OPERANDS {
            let slices: Vec<&[u8]> = operands[..k].iter().map(Vec::as_slice).collect();
            let oracle = oracle(scalar, &slices, longest);
            for count in lengths(kernel.datatype) {
                let bytes = count * size;
                let place = |i: usize| (i * 27 + k * 7 + count) % VECTOR_BYTES;
                let pointers: Vec<*const u8> =
                    (0..k).map(|i| arenas[i].put(place(i), &operands[i][..bytes]).cast_const()).collect();
                let at = place(k);
                let dst_ptr = dst.put(at, &vec![0x77; bytes]);
                // SAFETY: all have `count` elements, in different arenas; the CPU has the ISA.
                unsafe { (kernel.many)(dst_ptr, &pointers, count) };
                check(kernel, &format!("many({k})"), count, dst.get(at, bytes), &oracle);
            }
        }
    });
}

#[test]
fn many_over_256_operands() {
    for_every_kernel(|kernel, scalar| {
        let count = longest(kernel.datatype);
        let operands: Vec<Vec<u8>> = (0..256).map(|i| operand(kernel.datatype, i, count)).collect();
        let slices: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let found = oracle(kernel, &slices, count);
        check(kernel, "many(256)", count, &found, &oracle(scalar, &slices, count));
    });
}

#[test]
fn destination_is_one_of_the_sources() {
    for_every_kernel(|kernel, scalar| {
        let (size, longest) = (kernel.datatype.size(), longest(kernel.datatype));
        let operands: Vec<Vec<u8>> = (0..5).map(|i| operand(kernel.datatype, i, longest)).collect();
        let slices: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let mut dst = Arena::new(operands[0].len());
        for k in 1..=operands.len() {
            let oracle = oracle(scalar, &slices[..k], longest);
            for aliased in 0..k {
                for count in lengths(kernel.datatype) {
                    let (bytes, at) = (count * size, (count * 5 + k) % VECTOR_BYTES);
                    let dst_ptr = dst.put(at, &operands[aliased][..bytes]);
                    let mut pointers: Vec<*const u8> = operands[..k].iter().map(|operand| operand.as_ptr()).collect();
                    pointers[aliased] = dst_ptr;
                    // SAFETY: all have `count` elements; one source starts where `dst` does.
                    unsafe { (kernel.many)(dst_ptr, &pointers, count) };
                    let what = format!("many({k}) onto source {aliased}");
                    check(kernel, &what, count, dst.get(at, bytes), &oracle);
                    if k == 2 {
                        let dst_ptr = dst.put(at, &operands[aliased][..bytes]);
                        pointers[aliased] = dst_ptr;
                        // SAFETY: as above.
                        unsafe { (kernel.three)(dst_ptr, pointers[0], pointers[1], count) };
                        let what = format!("three onto source {aliased}");
                        check(kernel, &what, count, dst.get(at, bytes), &oracle);
                    }
                }
            }
        }
    });
}

#[test]
fn every_operand_is_the_same_memory() {
    for_every_kernel(|kernel, scalar| {
        let (size, longest) = (kernel.datatype.size(), longest(kernel.datatype));
        let a = operand(kernel.datatype, 0, longest);
        let oracle = oracle(scalar, &[&a, &a], longest);
        let mut memory = Arena::new(a.len());
        for count in lengths(kernel.datatype) {
            let bytes = count * size;
            let pointer = memory.put(3, &a[..bytes]);
            // SAFETY: the source starts where the destination starts.
            unsafe { (kernel.two)(pointer, pointer, count) };
            check(kernel, "two onto itself", count, memory.get(3, bytes), &oracle);
            let pointer = memory.put(3, &a[..bytes]);
            // SAFETY: as above.
            unsafe { (kernel.three)(pointer, pointer, pointer, count) };
            check(kernel, "three onto itself", count, memory.get(3, bytes), &oracle);
        }
    });
}

#[test]
fn without_sources_nothing_is_written() {
    for_every_kernel(|kernel, _| {
        let mut memory = Arena::new(256);
        let pointer = memory.put(1, &[0x77; 256]);
        // SAFETY: the destination has at least 256 / size elements.
        unsafe { (kernel.many)(pointer, &[], 256 / kernel.datatype.size()) };
        assert_eq!(memory.get(1, 256), [0x77; 256]);
    });
}
