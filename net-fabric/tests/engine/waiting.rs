//! Communicators that share a link: whoever waits for one operation lets the others' messages move, and they its own.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use net_fabric::algorithm::{Algorithm, Tree};
use net_fabric::transport::loopback::{Loopback, Options};
use net_fabric::{Error, FabricComm, Link, Patience, Plan, Policy, Ranks, Secret, Watch};
use reduce_kernels::{Call, Strangers, UserOperator};

const PLAN: Plan =
    Plan { algorithm: Algorithm::Tree(Tree::Binomial), chunk_bytes: usize::MAX, policy: Policy::Blocking };

fn links() -> [Rc<Link>; 2] {
    let link = |transport| {
        let ranks = Ranks::named(vec!["rank 0".to_owned(), "rank 1".to_owned()]);
        let (patience, strangers) = (Patience::SHARED_CORE, Rc::new(Strangers::beside(1, || Duration::ZERO)));
        Rc::new(Link::new(Box::new(transport), Secret::default(), ranks, Watch::default(), patience, strangers))
    };
    let links: Vec<_> = Loopback::world(2, Options::default()).into_iter().map(link).collect();
    links.try_into().unwrap()
}

fn comm(link: &Rc<Link>, number: u16) -> FabricComm {
    FabricComm::new(Rc::clone(link), number.into(), number, vec![0, 1], None).unwrap()
}

/// Announces and carries out `call`.
fn run(comm: &mut FabricComm, call: &Call<'_>) -> Result<(), Error> {
    let announced = comm.announce(call.signature())?;
    comm.run(announced, call, &PLAN, || Ok::<_, Error>(()))
}

// A communicator that an operator gives back.
thread_local!(static GIVEN_BACK: RefCell<Option<FabricComm>> = const { RefCell::new(None) });

#[test]
fn a_number_that_an_operator_has_given_back_begins_anew() {
    let links = links();
    let [one, other] = &links;
    for link in &links {
        let mut comm = comm(link, 5);
        comm.announce(Call::BARRIER.signature()).unwrap();
        if link.rank() == 0 {
            GIVEN_BACK.set(Some(comm));
        }
    }
    let sum = UserOperator::elementwise::<u64>(true, |left, right| {
        drop(GIVEN_BACK.take());
        left + right
    });
    let [mut send, mut into] = [[7_u64], [0]];
    run(&mut comm(other, 0), &Call::reduce_in_place(&mut send, sum.clone().into(), 0)).unwrap();
    run(&mut comm(one, 0), &Call::reduce(&send, &mut into, sum.into(), 0).unwrap()).unwrap();
    assert!(into == [14] && !one.has_number(5));

    run(&mut comm(other, 5), &Call::bcast(&mut send, 1)).unwrap();
    run(&mut comm(one, 5), &Call::bcast(&mut into, 1)).unwrap();
    assert_eq!(into, [7]);
}

#[test]
fn messages_that_move_meanwhile_complete_what_is_waited_for() {
    let [mut one, mut other] = links().map(|link| comm(&link, 0));

    let (mut theirs, mut own) = ([7_u64; 4], [0_u64; 4]);
    let call = Call::bcast(&mut own, 1);
    let announced = one.announce(call.signature()).unwrap();
    let mut idles = 0;
    let link = Rc::clone(one.link());
    let waited = one.run(announced, &call, &PLAN, || {
        idles += 1;
        if idles == 1 {
            run(&mut other, &Call::bcast(&mut theirs, 1))?;
            // As another communicator's progress does.
            while link.progress()? {}
        }
        if idles < 1000 { Ok(()) } else { Err(Error::Timeout("it has completed long ago".to_owned())) }
    });
    drop(call);
    waited.unwrap();
    assert_eq!(own, [7; 4]);
}

#[test]
fn a_root_that_waits_for_nobody_hears_of_an_end() {
    for (pause, most) in [(Duration::ZERO, 1030), (Duration::from_millis(20), 2)] {
        let [mut root, other] = links().map(|link| comm(&link, 0));
        let mut bcast = || run(&mut root, &Call::bcast(&mut [7_u64], 0));
        bcast().unwrap();
        other.link().end("it has had enough");
        let error = (0..most).find_map(|_| {
            thread::sleep(pause);
            bcast().err()
        });
        assert!(matches!(error, Some(Error::Aborted { rank: 1, .. })), "{pause:?}: {error:?}");
    }
}
