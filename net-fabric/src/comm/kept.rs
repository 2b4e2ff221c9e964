//! The schedules of a communicator that were built, kept for the next call of the same shape.

use std::collections::HashMap;
use std::sync::Arc;

use reduce_kernels::Collective;

use crate::algorithm::Algorithm;
use crate::schedule::Schedule;

/// Steps of all schedules that a communicator keeps.
const MOST_STEPS: usize = 1 << 16;

/// What a rank's schedule depends on, on one communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Occasion {
    pub(super) algorithm: Algorithm,
    pub(super) collective: Collective,
    pub(super) root: usize,
    pub(super) bytes: usize,
    pub(super) element_bytes: usize,
    pub(super) chunk_bytes: usize,
    pub(super) slots: usize,
    pub(super) in_place: bool,
    pub(super) commutative: bool,
}

/// Schedules by occasion.
#[derive(Debug, Default)]
pub(super) struct Kept {
    schedules: HashMap<Occasion, Arc<Schedule>>,
    steps: usize,
    /// Of the last few occasions, which mostly come again: comparing takes less than hashing.
    recent: Vec<(Occasion, Arc<Schedule>)>,
    next: usize,
}

/// Occasions that are compared.
const RECENT: usize = 4;

impl Kept {
    /// The schedule of an occasion, by `build` if it is new.
    pub(super) fn get<E>(
        &mut self,
        occasion: Occasion,
        build: impl FnOnce() -> Result<Schedule, E>,
    ) -> Result<Arc<Schedule>, E> {
        if let Some((_, schedule)) = self.recent.iter().find(|(recent, _)| *recent == occasion) {
            return Ok(Arc::clone(schedule));
        }
        if let Some(schedule) = self.schedules.get(&occasion).map(Arc::clone) {
            self.remember(occasion, &schedule);
            return Ok(schedule);
        }
        let schedule = Arc::new(build()?);
        if self.steps + schedule.len() > MOST_STEPS {
            // Who uses so many different ones gains little from any.
            *self = Self::default();
        }
        self.steps += schedule.len();
        self.schedules.insert(occasion, Arc::clone(&schedule));
        self.remember(occasion, &schedule);
        Ok(schedule)
    }

    fn remember(&mut self, occasion: Occasion, schedule: &Arc<Schedule>) {
        let recent = (occasion, Arc::clone(schedule));
        if self.recent.len() < RECENT {
            self.recent.push(recent);
        } else {
            self.recent[self.next % RECENT] = recent;
            self.next += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::algorithm::Shape;

    #[test]
    fn a_schedule_is_built_once_and_few_are_kept() {
        let mut kept = Kept::default();
        let occasion = |bytes| Occasion {
            algorithm: Algorithm::Ring,
            collective: Collective::Allreduce,
            root: 0,
            bytes,
            element_bytes: 8,
            chunk_bytes: 64,
            slots: 8,
            in_place: true,
            commutative: true,
        };
        let build = |bytes| {
            let shape = Shape { size: 2, bytes, element_bytes: 8, chunk_bytes: 64, ..Shape::default() };
            Algorithm::Ring.build(Collective::Allreduce, &shape)
        };
        let first = kept.get(occasion(640), || build(640)).unwrap();
        let again = kept.get(occasion(640), || Err("it is known")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        for bytes in 1..400 {
            kept.get(occasion(bytes * 640), || build(bytes * 640)).unwrap();
            assert!(kept.steps <= MOST_STEPS);
            assert_eq!(kept.steps, kept.schedules.values().map(|schedule| schedule.len()).sum::<usize>());
        }
        assert!(kept.get(occasion(640), || Err("it was given up")).is_err());
        assert!(kept.get(occasion(1), || Err("not this way")).is_err());
    }
}
