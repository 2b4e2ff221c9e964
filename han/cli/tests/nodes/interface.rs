//! Nodes with a second interface that leads nowhere: `HAN_INTERFACE` says by which one they reach each other.

use serde_json::Value;

use crate::harness::Finished;
use crate::ranks;
use crate::testbed::Testbed;

/// Some nodes, each with an interface `aaa0` as well, at 172.30.0.1 and so on, which ends in the node itself.
fn with_dead_ends(nodes: usize) -> Option<Testbed> {
    let testbed = Testbed::up(nodes)?;
    for node in 0..nodes {
        let script = format!(
            "ip link add aaa0 type veth peer name aaa1; ip address add 172.30.0.{}/24 dev aaa0; \
             ip link set aaa0 up; ip link set aaa1 up",
            node + 1
        );
        testbed.on_node(node, &["sh", "-ec", &script]);
    }
    Some(testbed)
}

fn hello(testbed: &Testbed, interface: &str) -> Finished {
    let words = ["-n", "3", "--nodes", "3", "--node-exec", &testbed.prefix()];
    ranks::job(&words, "hello").env("HAN_INTERFACE", interface).finish()
}

#[test]
fn the_interface_that_joins_the_nodes_can_be_named() {
    let Some(testbed) = with_dead_ends(3) else { return };
    // The address of one node with the bits of its network, which is that of all.
    let network = testbed.on_node(1, &["sh", "-c", "ip -4 -brief address show eth0 | awk '{ print $3 }'"]);
    for interface in ["eth0", network.trim()] {
        hello(&testbed, interface).expect(0, &[]);
    }
    hello(&testbed, "aaa0").expect(3, &["cannot be reached", " at 172.30.0."]);
    hello(&testbed, "eth7")
        .expect(3, &["has no network", "no provider fits", "is not on eth7, as HAN_INTERFACE demands"]);
}

/// As of containers: each node has the same address at a bridge that nothing leaves.
#[test]
fn an_address_that_all_hosts_have_is_not_taken_and_an_error_by_name() {
    let Some(testbed) = Testbed::up(3) else { return };
    let script = "mount -t sysfs sysfs /sys; ip link add aaa0 type bridge; ip address add 172.18.0.1/16 dev aaa0; \
                  ip link add aaa1 type veth peer name aaa2; ip link set aaa1 master aaa0; \
                  for link in aaa0 aaa1 aaa2; do ip link set $link up; done";
    for node in 0..3 {
        testbed.on_node(node, &["sh", "-ec", script]);
    }
    let info = testbed.on_node(0, &[env!("CARGO_BIN_EXE_han"), "info", "--json"]);
    let info: Value = serde_json::from_str(&info).unwrap();
    let bridges = info["providers"].as_array().unwrap().iter();
    let mut bridges = bridges.filter(|provider| provider["domain"] == "aaa0" && provider["fits"] == true).peekable();
    assert!(bridges.peek().is_some(), "{info}");
    for bridge in bridges {
        assert!(bridge["reason"].as_str().unwrap().contains("looks like a bridge inside this host"), "{bridge}");
    }
    let words = ["-n", "4", "--nodes", "3", "--node-exec", &testbed.prefix()];
    ranks::job(&words, "hello").finish().expect(0, &[]);
    hello(&testbed, "aaa0").expect(3, &["rank 0 (", "rank 1 (", "same address 172.18.0.1", "HAN_INTERFACE"]);
}

#[test]
fn the_list_of_providers_is_of_the_interface_that_is_named() {
    let Some(testbed) = with_dead_ends(1) else { return };
    for (interface, domain) in [("aaa0", "aaa0"), ("eth0", "eth0"), ("172.30.0.0/16", "aaa0")] {
        let variable = format!("HAN_INTERFACE={interface}");
        let info = testbed.on_node(0, &["env", &variable, env!("CARGO_BIN_EXE_han"), "info", "--json"]);
        let info: Value = serde_json::from_str(&info).unwrap();
        let fitting = info["providers"].as_array().unwrap().iter().filter(|provider| provider["fits"] == true);
        let domains: Vec<_> = fitting.map(|provider| provider["domain"].as_str().unwrap()).collect();
        assert!(!domains.is_empty() && domains.iter().all(|&found| found == domain), "{interface}: {domains:?}");
    }
}
