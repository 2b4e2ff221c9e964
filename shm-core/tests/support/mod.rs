//! Ranks for the tests: threads over the heap twin or over real segments, and an independent serial
//! model of every collective.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::missing_errors_doc)]
#![allow(unsafe_code)] // vouches for the threads' exchange

use std::rc::Rc;
use std::thread;

use shm_core::exchange::{ThreadExchange, thread_group};
use shm_core::segment::Backing;
use shm_core::{Call, Job, LocalComm, Settings};

/// Runs `body` on `size` threads that are the ranks of one job, and returns what each returned.
pub fn ranks<R: Send>(
    size: usize,
    settings: &Settings,
    body: impl Fn(&mut LocalComm, &mut ThreadExchange) -> R + Sync,
) -> Vec<R> {
    let body = &body;
    thread::scope(|scope| {
        let start = |mut exchange: ThreadExchange| {
            let settings = settings.clone();
            scope.spawn(move || {
                let job = Rc::new(Job::together(&mut exchange, settings).unwrap());
                let mut comm = LocalComm::together(&mut exchange, Rc::clone(&job), 0, (0..size).collect()).unwrap();
                let result = body(&mut comm, &mut exchange);
                if job.check().is_ok() {
                    comm.run(Call::barrier(), idle).unwrap();
                }
                job.finalize();
                result
            })
        };
        // SAFETY: what `body` exchanges makes further communicators.
        let group = unsafe { thread_group(size) };
        let threads: Vec<_> = group.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Settings over the heap twin, for threads that share cores.
pub fn heap() -> Settings {
    let mut settings = Settings::default();
    settings.backing = Some(Backing::Heap);
    settings
}

/// Nothing to do while waiting.
pub fn idle() -> shm_core::Result<bool> {
    Ok(false)
}
