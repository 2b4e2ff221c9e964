//! Communicators that share a link: whoever waits for one operation lets the others' messages move, and they its own.

use std::rc::Rc;

use net_fabric::algorithm::{Algorithm, Tree};
use net_fabric::transport::loopback::{Loopback, Options};
use net_fabric::{Error, FabricComm, Link, Patience, Plan, Policy, Ranks, Secret, Watch};
use reduce_kernels::Call;

#[test]
fn messages_that_move_meanwhile_complete_what_is_waited_for() {
    let plan = Plan { algorithm: Algorithm::Tree(Tree::Binomial), chunk_bytes: usize::MAX, policy: Policy::default() };
    let comm = |transport| {
        let ranks = Ranks::named(vec!["rank 0".to_owned(), "rank 1".to_owned()]);
        let link = Link::new(Box::new(transport), Secret::default(), ranks, Watch::default(), Patience::SHARED_CORE);
        FabricComm::new(Rc::new(link), 0, 0, vec![0, 1], None)
    };
    let comms = Loopback::world(2, Options::default()).into_iter().map(comm);
    let [mut one, mut other] = comms.collect::<Result<Vec<_>, _>>().unwrap().try_into().unwrap();

    let (mut theirs, mut own) = ([7_u64; 4], [0_u64; 4]);
    let call = Call::bcast(&mut own, 1);
    let announced = one.announce(call.signature()).unwrap();
    let mut idles = 0;
    let link = Rc::clone(one.link());
    let waited = one.run(announced, &call, &plan, || {
        idles += 1;
        if idles == 1 {
            let call = Call::bcast(&mut theirs, 1);
            let announced = other.announce(call.signature())?;
            other.run(announced, &call, &plan, || Ok::<_, Error>(()))?;
            // As another communicator's progress does.
            while link.progress()? {}
        }
        if idles < 1000 { Ok(()) } else { Err(Error::Timeout("it has completed long ago".to_owned())) }
    });
    drop(call);
    waited.unwrap();
    assert_eq!(own, [7; 4]);
}
