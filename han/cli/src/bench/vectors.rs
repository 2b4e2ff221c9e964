//! The vectors of a series: memory, and what stands in it. What they are of is known here alone, so that the
//! measurement exists once and not for each datatype.

use han::{Call, Collective, Communicator, Datatype, SharedVec};
use reduce_kernels::{Byte, Complex, Op, Pair, bf16, f16};
use shm_core::sys::limits::PageAligned;

use super::pattern::{Cell, Patterns, zero};
use super::series::Plan;
use super::{Memory, Result, no_memory};

/// Contents that alternate between repeats, or between iterations with rewritten vectors.
pub(super) const SEEDS: [u64; 2] = [1, 2];

/// Pairs of vectors, in slots: what a rank sends, or a bcast hands out, and where it receives.
pub(super) trait Vectors {
    /// From now on the first `count` elements are meant; before, none are.
    fn set_count(&mut self, count: usize);
    /// Has `run` carry out the operation on a slot. (A call that is returned is copied, which takes 15 ns.)
    fn call(&mut self, slot: usize, run: &mut dyn FnMut(&Call<'_>) -> han::Result<()>) -> han::Result<()>;
    /// Writes what this rank gives; `seed` is a place in [`SEEDS`].
    fn give(&mut self, slot: usize, seed: usize);
    /// Writes what is certainly wrong wherever a rank could receive.
    fn spoil(&mut self, slot: usize, seed: usize);
    /// Whether a rank that receives has received exactly what the model says.
    fn are_right(&self, slot: usize, seed: usize) -> bool;
}

/// Vectors as planned, of at most `count` elements, allocated and touched once.
pub(super) fn new<'a>(communicator: &'a Communicator, plan: &'a Plan, count: usize) -> Result<Box<dyn Vectors + 'a>> {
    let make = match plan.datatype {
        Datatype::Int8 => Typed::<i8>::boxed,
        Datatype::Int16 => Typed::<i16>::boxed,
        Datatype::Int32 => Typed::<i32>::boxed,
        Datatype::Int64 => Typed::<i64>::boxed,
        Datatype::Uint8 => Typed::<u8>::boxed,
        Datatype::Uint16 => Typed::<u16>::boxed,
        Datatype::Uint32 => Typed::<u32>::boxed,
        Datatype::Uint64 => Typed::<u64>::boxed,
        Datatype::Float16 => Typed::<f16>::boxed,
        Datatype::Bfloat16 => Typed::<bf16>::boxed,
        Datatype::Float => Typed::<f32>::boxed,
        Datatype::Double => Typed::<f64>::boxed,
        Datatype::ComplexFloat => Typed::<Complex<f32>>::boxed,
        Datatype::ComplexDouble => Typed::<Complex<f64>>::boxed,
        Datatype::Bool => Typed::<bool>::boxed,
        Datatype::Byte => Typed::<Byte>::boxed,
        Datatype::FloatInt => Typed::<Pair<f32>>::boxed,
        Datatype::DoubleInt => Typed::<Pair<f64>>::boxed,
        Datatype::LongInt => Typed::<Pair<i64>>::boxed,
        Datatype::TwoInt => Typed::<Pair<i32>>::boxed,
        Datatype::ShortInt => Typed::<Pair<i16>>::boxed,
        Datatype::Record(_) => unreachable!("no name on the command line is a record's"),
    };
    make(communicator, plan, count)
}

struct Typed<'a, T> {
    communicator: &'a Communicator,
    plan: &'a Plan,
    send: Vec<Vector<T>>,
    receive: Vec<Vector<T>>,
    count: usize,
    patterns: [Patterns<T>; SEEDS.len()],
}

impl<'a, T: Cell> Typed<'a, T> {
    fn boxed(communicator: &'a Communicator, plan: &'a Plan, count: usize) -> Result<Box<dyn Vectors + 'a>> {
        let one = |_| -> Result<_> {
            Ok(match plan.memory {
                Memory::Private => {
                    Vector::Private(PageAligned::try_new(zero(), count).map_err(|error| no_memory::<T>(count, &error))?)
                }
                Memory::Shared => Vector::Shared(communicator.alloc(count)?),
            })
        };
        let make = || (0..plan.buffers).map(one).collect::<Result<Vec<_>>>();
        let (send, receive) = (make()?, make()?);
        let patterns = patterns(communicator, plan, 0);
        Ok(Box::new(Self { communicator, plan, send, receive, count: 0, patterns }))
    }
}

impl<T: Cell> Vectors for Typed<'_, T> {
    fn set_count(&mut self, count: usize) {
        self.count = count;
        self.patterns = patterns(self.communicator, self.plan, count);
    }

    fn call(&mut self, slot: usize, run: &mut dyn FnMut(&Call<'_>) -> han::Result<()>) -> han::Result<()> {
        let (send, receive) = (&mut self.send[slot], self.receive[slot].first_mut(self.count));
        let Plan { collective, operator, root, .. } = *self.plan;
        let op = Op::from(operator);
        match collective {
            Collective::Barrier => run(Call::BARRIER),
            Collective::Bcast => run(&Call::bcast(send.first_mut(self.count), root)),
            Collective::Reduce => run(&Call::reduce(send.first(self.count), receive, op, root)?),
            Collective::Allreduce => run(&Call::allreduce(send.first(self.count), receive, op)?),
        }
    }

    fn give(&mut self, slot: usize, seed: usize) {
        self.patterns[seed].input.fill(self.send[slot].first_mut(self.count));
    }

    fn spoil(&mut self, slot: usize, seed: usize) {
        let wrong = &self.patterns[seed].wrong;
        wrong.fill(self.receive[slot].first_mut(self.count));
        wrong.fill(self.send[slot].first_mut(self.count));
    }

    fn are_right(&self, slot: usize, seed: usize) -> bool {
        let received = if self.plan.collective == Collective::Bcast { &self.send[slot] } else { &self.receive[slot] };
        self.patterns[seed].output.matches(received.first(self.count))
    }
}

fn patterns<T: Cell>(communicator: &Communicator, plan: &Plan, count: usize) -> [Patterns<T>; SEEDS.len()] {
    SEEDS.map(|seed| match plan.collective {
        Collective::Barrier | Collective::Bcast => Patterns::broadcast(plan.root, count, seed),
        Collective::Reduce | Collective::Allreduce => {
            Patterns::reduction(plan.operator, communicator.size(), communicator.rank(), count, seed)
        }
    })
}

/// One vector, of as many elements as the largest size needs.
enum Vector<T> {
    Private(PageAligned<T>),
    Shared(SharedVec<T>),
}

impl<T: Cell> Vector<T> {
    #[inline]
    fn first(&self, count: usize) -> &[T] {
        match self {
            Self::Private(vector) => vector.first(count),
            Self::Shared(vector) => &vector[..count],
        }
    }

    #[inline]
    fn first_mut(&mut self, count: usize) -> &mut [T] {
        match self {
            Self::Private(vector) => vector.first_mut(count),
            Self::Shared(vector) => &mut vector[..count],
        }
    }
}
