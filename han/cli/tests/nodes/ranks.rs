//! The ranks of these tests: this test binary, started again by the launcher to play a role.

use std::env;
use std::process;

use han::{Context, Error, ErrorKind, Result};

use crate::harness::Job;

const ROLE: &str = "HAN_TEST_ROLE";

/// `han run OPTIONS` of ranks that play `role`; however slow they are, they report what became of the others.
pub(crate) fn job(options: &[&str], role: &str) -> Job {
    let own = env::current_exe().unwrap();
    let program = [own.to_str().unwrap(), "ranks::play_a_role", "--exact", "--ignored", "--nocapture", "--quiet"];
    Job::new(&[&["--grace", "120"], options, &["--"], &program].concat()).env(ROLE, role)
}

/// Tells the test what happened on this rank.
pub(crate) fn report(text: &str) {
    // The launcher's rank: a role may report before, or because, the engine does not know its own.
    let rank = env::var("PMI_RANK").unwrap();
    eprintln!("report of rank {rank} (pid {}): {text}", process::id());
}

#[test]
#[ignore = "a rank of other tests: they start it under the launcher"]
fn play_a_role() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let result = match words[..] {
        ["hello"] => hello(),
        ["model"] => crate::model::rank(&crate::model::COUNTS),
        ["short-model"] => crate::model::rank(&[7, 1025]),
        ["in-order"] => crate::model::in_order(),
        ["very-many"] => crate::model::very_many(),
        ["too-many"] => crate::model::too_many(),
        ["many-splits"] => crate::model::many_splits(),
        ["counted"] => crate::counted::rank(),
        ["stream"] => crate::faults::stream(),
        ["late"] => crate::faults::late(),
        ["sends-alone", pause_ms, what] => crate::faults::sends_alone(pause_ms.parse().unwrap(), what),
        ["runs-ahead"] => crate::memory::runs_ahead(),
        ["lags"] => crate::memory::lags(),
        ["late-at-last"] => crate::faults::late_at_last(),
        ["staggered"] => crate::faults::staggered(),
        ["late-behind", folder, first] => crate::faults::late_behind(folder.as_ref(), first),
        ["differ", rank, count, own, others] => {
            crate::mismatch::differ(rank.parse().unwrap(), count.parse().unwrap(), own, others)
        }
        ["ahead", count, own] => crate::mismatch::ahead(count.parse().unwrap(), own),
        ["leave-child", how] => crate::faults::leave_child(how),
        ["leave-early", rank] => crate::mismatch::leave_early(rank.parse().unwrap()),
        ["agree", what] => crate::agreement::rank(what),
        ["no-truth", count] => crate::mismatch::no_truth(count.parse().unwrap()),
        ["mismatch"] => crate::mismatch::mismatch(),
        ["few-files"] => crate::memory::few_files(),
        ["register"] => crate::memory::register(),
        _ => panic!("no such role: {role}"),
    };
    if let Err(e) = result {
        report(&format!("{e} [{}]", kind_of(&e)));
        process::exit(3);
    }
    process::exit(0);
}

/// What the tests rely on that ask for a good end alone: a rank that plays no role has none.
#[test]
fn a_role_that_is_not_there_fails_its_job() {
    let done = job(&["-n", "2", "--nodes", "2"], "understudy").finish();
    assert_ne!(done.code, 0, "{done:#?}");
    assert!(done.stderr.contains("no such role: understudy"), "{done:#?}");
}

fn kind_of(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::PeerDied => "death",
        ErrorKind::Mismatch => "mismatch",
        ErrorKind::Aborted => "abort",
        _ => "another",
    }
}

fn hello() -> Result<()> {
    let context = Context::init()?;
    context.world().barrier()?;
    context.finalize()
}
