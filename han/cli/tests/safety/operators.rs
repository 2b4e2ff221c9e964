//! Users' operators that outlast the job: whoever has its error has its vectors, however long a peer's operator takes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, process};

use han::{Call, Communicator, Context, Result, UserOperator};

use crate::copies::{all_say, vector};
use crate::harness::eventually;
use crate::{finish, roles};

/// What ranks use their vectors for once they have them back.
const TAKEN_BACK: i64 = -1;
/// The folder in which ranks tell each other how far they are, by empty files.
const PLACE: &str = "HAN_TEST_PLACE";

fn tell(what: &str) {
    fs::write(Path::new(&env::var(PLACE).unwrap()).join(what), "").unwrap();
}

fn wait_for(what: &str) {
    let file = Path::new(&env::var(PLACE).unwrap()).join(what);
    eventually(what, || file.exists());
}

fn call(collective: &str, send: &'static [i64], recv: &'static mut [i64], op: UserOperator) -> Call<'static> {
    match collective {
        "allreduce" => Call::allreduce(send, recv, op.into()).unwrap(),
        "reduce" => Call::reduce(send, recv, op.into(), 0).unwrap(),
        _ => unreachable!("no such collective: {collective}"),
    }
}

/// Rank 2 leaves the job when rank 1 is in its operator, which goes on when rank 0 has used its vectors for something else.
pub(crate) fn outlast(method: &str, collective: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let shared = method == "shared";
    let (send, recv) = (vector(world, shared)?, vector(world, shared)?);
    world.barrier()?;
    match world.rank() {
        0 => give_up(world, collective, send, recv),
        1 => {
            let is_first = AtomicBool::new(true);
            let op = UserOperator::elementwise::<i64>(true, move |a, b| {
                if is_first.swap(false, Ordering::Relaxed) {
                    tell("in the operator");
                    wait_for("taken back");
                }
                assert!(a != TAKEN_BACK && b != TAKEN_BACK, "what rank 0 does with its vectors is its own affair");
                a + b
            });
            let outcome = world.run(call(collective, send, recv, op));
            tell("over");
            outcome
        }
        _ => {
            let op = UserOperator::elementwise::<i64>(true, |a, b| a + b);
            let mut request = world.start(call(collective, send, recv, op))?;
            let file = Path::new(&env::var(PLACE).unwrap()).join("in the operator");
            while !file.exists() {
                assert!(!request.test()?, "rank 1 has not done its part");
            }
            drop(request);
            drop(context);
            wait_for("over");
            process::exit(3);
        }
    }
}

fn give_up(world: &Communicator, collective: &str, send: &mut [i64], recv: &mut [i64]) -> Result<()> {
    let op = UserOperator::elementwise::<i64>(true, |a, b| a + b);
    let outcome = match collective {
        "allreduce" => world.allreduce(send, recv, op),
        _ => world.reduce(send, recv, op, 0),
    };
    send.fill(TAKEN_BACK);
    recv.fill(TAKEN_BACK);
    tell("taken back");
    wait_for("over");
    let changed = send.iter().chain(&*recv).filter(|&&element| element != TAKEN_BACK).count();
    assert_eq!(changed, 0, "elements that nobody lends have changed");
    outcome
}

fn outlasts(method: &str, set: &str) {
    for form in ["joint", "slice", "ring", "direct"] {
        // A root alone reduces in `direct`.
        for collective in ["allreduce", "reduce"].iter().take(if form == "direct" { 1 } else { 2 }) {
            let place = tempfile::tempdir().unwrap();
            let job = roles::job(3, &format!("outlast {method} {collective}"));
            let job = job.env(PLACE, place.path().to_str().unwrap());
            let set =
                format!("{set},form={form},for_all_max_bytes=1000000000,assume_own_cores=1,spins=1,timeout_s=200");
            let done = finish(job.env("HAN_SET", &set));
            done.expect(3, &[]);
            all_say(&done, &[0, 1], "rank 2 (pid ");
        }
    }
}

#[test]
fn an_operator_that_outlasts_the_job_writes_to_nobodys_ordinary_memory() {
    outlasts("cma", "methods=cma,single_copy=by_kernel");
}

#[test]
fn an_operator_that_outlasts_the_job_works_on_no_mapped_memory() {
    outlasts("shared", "single_copy=if_shared");
}
