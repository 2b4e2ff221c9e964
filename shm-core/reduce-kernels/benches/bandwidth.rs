//! Bandwidth of the kernels beside a plain copy of the same size in the same run.
//!
//! Counted are the bytes that an operation must load and store, n being the bytes of one operand:
//! copy 2n (one load, one store), `two` and `three` 3n (two loads, one store), `many(k)` (k+1)n.
//! So the same number means the same traffic between core and cache. The best of many rounds is
//! printed, and in every round all contestants take turns, so that a change of the machine's state
//! meets all of them.
#![allow(unsafe_code)] // Calls the kernels.

use reduce_kernels::{Datatype, Isa, Kernel, Operator, is_defined, kernel, kernel_for};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Sources of the many-operand form.
const SOURCES: usize = 4;
/// Rounds in which every contestant takes one turn.
const ROUNDS: usize = 25;
/// Bytes per operand that one turn moves at least, so that the clock's resolution does not matter.
const TURN_BYTES: usize = 2 << 20;

/// Page-aligned memory, so that every run measures the same alignment.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new(bytes: usize) -> Self {
        const PAGE_BYTES: usize = 4096;
        // Floats of such bytes are below 2 and far from underflow, whatever their width.
        const NORMAL: u8 = 0x3f;
        let memory = vec![NORMAL; bytes + PAGE_BYTES];
        let start = memory.as_ptr().align_offset(PAGE_BYTES);
        Self { memory, start }
    }

    fn pointer(&mut self) -> *mut u8 {
        self.memory[self.start..].as_mut_ptr()
    }
}

/// One thing to measure: its column, the bytes it moves per byte of an operand, and how to do it.
struct Contestant<'a> {
    name: String,
    traffic: usize,
    run: Box<dyn FnMut() + 'a>,
    best: Duration,
}

impl<'a> Contestant<'a> {
    fn new(name: impl Into<String>, traffic: usize, run: impl FnMut() + 'a) -> Self {
        Self { name: name.into(), traffic, run: Box::new(run), best: Duration::MAX }
    }
}

/// GB/s of every contestant on operands of `bytes`.
fn measure(contestants: &mut [Contestant<'_>], bytes: usize) -> Vec<f64> {
    let repeats = (TURN_BYTES / bytes).clamp(1, 1000);
    for _ in 0..ROUNDS {
        for contestant in &mut *contestants {
            let start = Instant::now();
            for _ in 0..repeats {
                (contestant.run)();
            }
            contestant.best = contestant.best.min(start.elapsed());
        }
    }
    contestants
        .iter()
        .map(|contestant| {
            let moved = contestant.traffic * bytes * repeats;
            moved as f64 / contestant.best.as_secs_f64() / 1e9
        })
        .collect()
}

/// The operands of every form; `destination` and `sources` are distinct.
struct Operands {
    destination: *mut u8,
    sources: [*const u8; SOURCES],
    bytes: usize,
}

impl Operands {
    fn copy(&self) -> Contestant<'_> {
        Contestant::new("copy", 2, || {
            let (src, dst) = black_box((self.sources[0], self.destination));
            // SAFETY: both buffers have `bytes` and are distinct.
            unsafe { std::ptr::copy_nonoverlapping(src, dst, self.bytes) };
        })
    }

    fn forms(&self, kernel: &'static Kernel) -> [Contestant<'_>; 3] {
        let count = self.bytes / kernel.datatype.size();
        let Self { destination: dst, sources, .. } = self;
        let isa = kernel.isa;
        [
            Contestant::new(format!("{isa} two"), 3, move || {
                // SAFETY: the buffers have `count` elements and are distinct.
                unsafe { (kernel.two)(*dst, sources[0], count) };
            }),
            Contestant::new(format!("{isa} three"), 3, move || {
                // SAFETY: the buffers have `count` elements and are distinct.
                unsafe { (kernel.three)(*dst, sources[0], sources[1], count) };
            }),
            Contestant::new(format!("{isa} many({SOURCES})"), SOURCES + 1, move || {
                // SAFETY: the buffers have `count` elements and are distinct.
                unsafe { (kernel.many)(*dst, sources, count) };
            }),
        ]
    }
}

/// One line a size: the copy, then every form of every instruction set.
fn sizes(datatype: Datatype, operator: Operator, operands: &mut Operands) {
    println!("\n{datatype} {operator}, GB/s (and share of the copy) by bytes of one operand");
    let kernels: Vec<_> = Isa::available().filter_map(|isa| kernel_for(isa, datatype, operator)).collect();
    for (line, exponent) in (10..=24).step_by(2).enumerate() {
        // 32 KiB is the size with a stated target, so it stands in for 16 KiB.
        operands.bytes = if exponent == 14 { 32 << 10 } else { 1 << exponent };
        let mut contestants = vec![operands.copy()];
        contestants.extend(kernels.iter().flat_map(|kernel| operands.forms(kernel)));
        let rates = measure(&mut contestants, operands.bytes);
        if line == 0 {
            print!("{:>9}{:>8}", "bytes", "copy");
            contestants[1..].iter().for_each(|contestant| print!("{:>18}", contestant.name));
            println!();
        }
        print!("{:>9}{:>8.1}", operands.bytes, rates[0]);
        rates[1..].iter().for_each(|rate| print!("{rate:>10.1} ({:>4.0}%)", 100.0 * rate / rates[0]));
        println!();
    }
}

/// Every defined pair at one size with the kernels that `kernel` gives out.
fn pairs(operands: &mut Operands) {
    operands.bytes = 32 << 10;
    println!("\nevery datatype and operator at 32 KiB, {}: three, GB/s (and share of the copy)", Isa::best());
    print!("{:12}", "");
    Operator::ALL.iter().for_each(|operator| print!("{:>12}", operator.name()));
    println!();
    for datatype in Datatype::ALL {
        print!("{:12}", datatype.name());
        for operator in Operator::ALL {
            let Some(kernel) = kernel(datatype, operator).filter(|_| is_defined(datatype, operator)) else {
                print!("{:>12}", "-");
                continue;
            };
            let [_, three, _] = operands.forms(kernel);
            let rates = measure(&mut [operands.copy(), three], operands.bytes);
            print!("{:>5.0} ({:>3.0}%)", rates[1], 100.0 * rates[1] / rates[0]);
        }
        println!();
    }
}

fn main() {
    const LARGEST_BYTES: usize = 16 << 20;
    let mut destination = Buffer::new(LARGEST_BYTES);
    let mut sources = [(); SOURCES].map(|()| Buffer::new(LARGEST_BYTES));
    let mut operands = Operands {
        destination: destination.pointer(),
        sources: sources.each_mut().map(|source| source.pointer().cast_const()),
        bytes: 0,
    };
    sizes(Datatype::Float, Operator::Sum, &mut operands);
    sizes(Datatype::Double, Operator::Sum, &mut operands);
    sizes(Datatype::Float16, Operator::Sum, &mut operands);
    pairs(&mut operands);
}
