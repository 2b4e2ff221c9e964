//! `han info` on machines that are described: groups, leaders and trees as a user sees them.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Runs `han info`; gives standard output, or standard error if it failed.
fn info(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
    let output = command.arg("info").args(arguments).stdin(Stdio::null()).env_remove("HAN_SET").output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

fn object(arguments: &[&str]) -> Value {
    serde_json::from_str(&info(arguments).unwrap()).unwrap()
}

#[test]
fn a_described_machine_is_printed_with_the_tree_below_any_root() {
    let text = info(&["--synthetic", "pack:2 l3:2 core:4", "--root", "13"]).unwrap();
    let expected = "\
pack:2 l3:2 core:4: ranks 0 to 15 on processors 0-15

| level  | leader | group |
|--------|--------|-------|
| l3     | 0      | 0-3   |
| l3     | 4      | 4-7   |
| l3     | 8      | 8-11  |
| l3     | 12     | 12-15 |
| socket | 0      | 0, 4  |
| socket | 8      | 8, 12 |
| node   | 0      | 0, 8  |

Tree below root 13, depth 3; messages: l3 12, socket 2, node 1

13
├─ l3: 12, 14-15
├─ socket: 8
│  └─ l3: 9-11
└─ node: 0
   ├─ l3: 1-3
   └─ socket: 4
      └─ l3: 5-7
";
    assert_eq!(text, expected);
}

#[test]
fn shapes_are_drawn_as_they_hang() {
    let arguments = ["--synthetic", "pack:2 l3:2 core:4", "--root", "3", "--shape", "chain,l3=binomial"];
    let text = info(&arguments).unwrap();
    let (_, tree) = text.split_once("\n3\n").unwrap();
    let expected = "\
├─ l3: 1
├─ l3: 2 > 0
├─ socket: 4
│  ├─ l3: 5
│  └─ l3: 6 > 7
└─ node: 8
   ├─ l3: 9
   ├─ l3: 10 > 11
   └─ socket: 12
      ├─ l3: 13
      └─ l3: 14 > 15
";
    assert_eq!(tree, expected, "{text}");
}

#[test]
fn a_machine_is_told_in_json_for_every_root() {
    for root in 0..64_u64 {
        let told = object(&["--synthetic", "pack:2 l3:4 core:8", "--root", &root.to_string(), "--json"]);
        let levels: Vec<_> = told["levels"].as_array().unwrap().iter().collect();
        let messages: Vec<_> = levels.iter().map(|level| (&level["level"], &level["messages"])).collect();
        assert_eq!(json!(messages), json!([["l3", 56], ["socket", 6], ["node", 1]]));
        assert_eq!((&told["ranks"], &told["root"], &told["depth"]), (&json!(64), &json!(root), &json!(3)));
        let tree = told["tree"].as_array().unwrap();
        assert_eq!(tree[usize::try_from(root).unwrap()]["parent"], Value::Null);
        let mut reached: Vec<u64> = tree
            .iter()
            .flat_map(|rank| rank["children"].as_array().unwrap())
            .map(|rank| rank.as_u64().unwrap())
            .collect();
        reached.push(root);
        reached.sort_unstable();
        assert_eq!(reached, (0..64).collect::<Vec<_>>());
        for rank in tree {
            for child in rank["children"].as_array().unwrap() {
                assert_eq!(tree[usize::try_from(child.as_u64().unwrap()).unwrap()]["parent"], rank["rank"]);
            }
        }
    }
}

#[test]
fn ranks_may_be_fewer_more_or_on_chosen_cores() {
    let told = object(&["--synthetic", "pack:2 l3:4 core:8", "--cores", "60,0-2,8", "--root", "2", "--json"]);
    assert_eq!(told["processors"], json!([60, 0, 1, 2, 8]));
    let groups = |level: usize| told["levels"][level]["groups"].clone();
    let group = |leader: usize, members: &[usize]| json!({"leader": leader, "members": members});
    assert_eq!(groups(0), json!([group(0, &[0]), group(1, &[1, 2, 3]), group(4, &[4])]));
    assert_eq!(groups(1), json!([group(0, &[0]), group(1, &[1, 4])]));
    assert_eq!(told["tree"][2]["children"], json!([1, 3, 4, 0]));
    let told = object(&["--synthetic", "l3:2 core:2 pu:2", "-n", "9", "--json"]);
    assert_eq!(told["processors"], json!([0, 2, 4, 6, 1, 3, 5, 7, 0]));
    assert_eq!(told["levels"][0]["groups"][0], group(0, &[0, 4, 8]));
    assert_eq!(object(&["--synthetic", "l3:2 core:2 pu:2", "--json"])["ranks"], 4);
}

#[test]
fn this_machines_own_ranks_have_a_tree_as_well() {
    let told = object(&["-n", "4", "--root", "3", "--json"]);
    assert_eq!((&told["ranks"], &told["tree"][3]["parent"]), (&json!(4), &Value::Null));
    let told = object(&["--json"]);
    let hardware = &told["hardware"];
    assert!(hardware["sockets"].as_u64().is_some() && !hardware["numa_nodes"].as_array().unwrap().is_empty());
    assert!(!hardware["hierarchy"].as_str().unwrap().is_empty(), "{hardware}");
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let machine = ["--synthetic", "pack:2 l3:4 core:8"];
    for (arguments, expected) in [
        (&["--synthetic", "pack:2 cores:8"][..], "\"cores\" is not a part of a machine; a right description is"),
        (&["--synthetic", "core:2 core:2"], "pack:2 l3:4 core:8"),
        (&["--synthetic", "pack:4 core:2000"], "more than 4096 processors"),
        (&[machine[0], machine[1], "--root", "64"], "0 to 63"),
        (&[machine[0], machine[1], "-n", "257"], "1 to 256"),
        (&[machine[0], machine[1], "-n", "0"], "1 to 256"),
        (&[machine[0], machine[1], "--cores", "64"], "it has 0-63"),
        (&[machine[0], machine[1], "--cores", "5-3"], "0-2,8,40"),
        (&[machine[0], machine[1], "--shape", "ring"], "flat, chain, binomial or radix8"),
        (&["--xml", "/no/such/file"], "/no/such/file: No such file"),
    ] {
        let error = info(arguments).unwrap_err();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn a_topology_that_is_set_is_checked_at_start_up() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
    let output = command.arg("info").env("HAN_SET", "topology=pack:2 l3").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("\"l3\" is not of the form KIND:COUNT"), "{error}");
}
