//! The client against scripted launchers: each says fixed lines, whatever it is asked.
//!
//! Real launchers are met in the launcher's own tests.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::thread;

use super::*;

const GREETING: [&str; 4] = [
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",
    "cmd=my_kvsname kvsname=kvs_1",
    "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))",
];

/// Answers line by line, hangs up after the last, and returns what it was told.
fn serve(link: impl Read + Write + Send + 'static, answers: Vec<String>) -> thread::JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let mut link = BufReader::new(link);
        let mut told = Vec::new();
        for answer in answers {
            let mut line = String::new();
            link.read_line(&mut line).unwrap();
            told.push(line);
            link.get_mut().write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
        told
    })
}

/// A client of a launcher that says `greeting`, then `answers`; rank 1 of 2.
fn client(greeting: &[&str], answers: &[&str]) -> (Result<Client>, thread::JoinHandle<Vec<String>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let script = greeting.iter().chain(answers).map(|line| (*line).to_owned()).collect();
    let server = serve(far, script);
    let client = Client::over_inherited(near.as_raw_fd(), 1, 2);
    (client, server)
}

fn refusal(greeting: &[&str]) -> String {
    client(greeting, &[]).0.unwrap_err().to_string()
}

#[test]
fn handshake_learns_the_nodes() {
    let (client, server) = client(&GREETING, &["cmd=finalize_ack"]);
    let mut client = client.unwrap();
    assert_eq!(client.nodes(), Some(vec![0, 1]));
    client.finalize().unwrap();
    assert_eq!(server.join().unwrap()[0], "cmd=init pmi_version=1 pmi_subversion=1\n");
}

#[test]
fn a_launcher_without_a_mapping_is_accepted() {
    let mut greeting = GREETING;
    greeting[3] = "cmd=get_result rc=-1 msg=key_not_found value=unknown";
    assert_eq!(client(&greeting, &[]).0.unwrap().nodes(), None);
}

#[test]
fn a_mapping_may_be_longer_than_a_line_that_is_written() {
    let mut greeting = GREETING;
    // What Slurm says of 1000 ranks that `-m cyclic` puts on two nodes.
    let mapping = format!("cmd=get_result rc=0 value=(vector{})", ",(0,2,1)".repeat(500));
    greeting[3] = &mapping;
    assert_eq!(client(&greeting, &[]).0.unwrap().nodes(), Some(vec![0, 1]));
}

#[test]
fn payloads_longer_than_a_value_are_cut_and_joined() {
    let mut greeting = GREETING;
    greeting[1] = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=13";
    let answers = [
        "cmd=put_result rc=0",
        "cmd=put_result rc=0",
        "cmd=barrier_out rc=0",
        "cmd=get_result rc=0 value=000000050001",
        "cmd=get_result rc=0 value=020304",
    ];
    let (client, server) = client(&greeting, &answers);
    let all = client.unwrap().allgather(&[9, 8, 7]).unwrap();
    assert_eq!(all, [vec![0, 1, 2, 3, 4], vec![9, 8, 7]]);
    let told = server.join().unwrap();
    assert_eq!(told[4], "cmd=put kvsname=kvs_1 key=han-0-1-0 value=000000030908\n");
    assert_eq!(told[5], "cmd=put kvsname=kvs_1 key=han-0-1-1 value=07\n");
    assert_eq!(told[8], "cmd=get kvsname=kvs_1 key=han-0-0-1\n");
}

#[test]
fn a_hostile_launcher_is_refused_with_a_reason() {
    assert!(refusal(&["cmd=response_to_init rc=-1 msg=version_2_only"]).contains("refused `init`: version 2 only"));
    assert!(refusal(&["cmd=maxes rc=0"]).contains("where `cmd=response_to_init` was due"));
    assert!(refusal(&["\u{7}garbage"]).contains("printable ASCII"));
    assert!(refusal(&[&"x".repeat(MAX_ANSWER_BYTES)]).contains("more than 1048576 bytes"));
    assert!(refusal(&GREETING[..1]).contains("closed the PMI connection"));
    assert!(refusal(&[]).contains("closed the PMI connection"));
    let with = |index: usize, line: &'static str| {
        let mut greeting = GREETING;
        greeting[index] = line;
        refusal(&greeting)
    };
    assert!(with(1, "cmd=maxes kvsname_max=256 keylen_max=64").contains("without `vallen_max`"));
    assert!(with(1, "cmd=maxes keylen_max=64 vallen_max=8").contains("leaves 7 bytes"));
    assert!(with(1, "cmd=maxes keylen_max=64 vallen_max=-5").contains("not a number"));
    assert!(with(3, "cmd=get_result rc=0 value=(vector)").contains("PMI_process_mapping"));
}

#[test]
fn a_peer_value_that_promises_more_than_it_has_is_refused() {
    let exchange = |first: &str| {
        let value = format!("cmd=get_result rc=0 value={first}");
        let answers = ["cmd=put_result rc=0", "cmd=barrier_out", &value, "cmd=get_result rc=-1 msg=key_not_found"];
        client(&GREETING, &answers).0.unwrap().allgather(b"x").unwrap_err().to_string()
    };
    assert!(exchange("0000000500").contains("no rank has put the key"));
    assert!(exchange("ffffffff00").contains("is not a length"));
    assert!(exchange("0000000100ff").contains("is not a length"));
}

#[test]
fn the_port_form_takes_rank_and_size_from_the_launcher() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (link, _) = listener.accept().unwrap();
        let mut script = vec!["cmd=initack rc=0\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0".to_owned()];
        script.extend(GREETING.map(str::to_owned));
        serve(link, script).join().unwrap()
    });
    let client = Client::over_tcp(&address, 7).unwrap();
    assert_eq!((client.rank(), client.size()), (2, 3));
    assert_eq!(client.nodes(), Some(vec![0, 1, 0]));
    assert_eq!(server.join().unwrap()[0], "cmd=initack pmiid=7\n");
}

#[test]
fn a_launcher_that_is_gone_is_an_error_and_no_signal() {
    let (client, server) = client(&GREETING, &[]);
    let mut client = client.unwrap();
    server.join().unwrap();
    assert!(matches!(client.barrier(), Err(Error::Closed)));
    assert!(matches!(client.barrier(), Err(Error::Closed)));
    client.abort(3, "nobody listens");
}

/// All that a launcher says from the greeting to the end of an exchange of two ranks, in which rank 1 takes part.
fn whole_conversation() -> Vec<u8> {
    let exchange = ["cmd=put_result rc=0", "cmd=barrier_out rc=0", "cmd=get_result rc=0 value=000000030908a7"];
    let lines = GREETING.iter().chain(&exchange).chain(&["cmd=finalize_ack rc=0"]);
    lines.flat_map(|line| line.bytes().chain([b'\n'])).collect()
}

/// A client that hears `bytes` and then nothing more: what became of it. Whatever it heard, it has come to an end.
fn hear(bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
    let (near, far) = UnixStream::pair().unwrap();
    let mut talker = far.try_clone().unwrap();
    let (said, bytes) = (bytes.len(), bytes.to_vec());
    let talking = thread::spawn(move || {
        // The client may hang up before it has heard all.
        let _ = talker.write_all(&bytes);
        let _ = talker.shutdown(std::net::Shutdown::Write);
    });
    let outcome = Client::over_inherited(near.as_raw_fd(), 1, 2).map_err(ExchangeError::from).and_then(|mut client| {
        let all = client.allgather(b"own")?;
        client.finalize()?;
        // What was asked and not answered stays small.
        assert!(client.lines.held() <= said);
        Ok(all)
    });
    drop((near, far));
    talking.join().unwrap();
    outcome
}

#[test]
fn the_whole_conversation_is_understood() {
    assert_eq!(hear(&whole_conversation()).unwrap(), [vec![9, 8, 0xa7], b"own".to_vec()]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    #[test]
    fn a_launcher_that_breaks_off_is_an_error(at in 0_usize..1000) {
        let whole = whole_conversation();
        let kept = at % whole.len();
        let outcome = hear(&whole[..kept]);
        assert!(outcome.is_err(), "{kept} of {} bytes were enough", whole.len());
    }

    #[test]
    fn damaged_conversations_end(
        changes in proptest::collection::vec((0_usize..1000, proptest::prelude::any::<u8>()), 1..6),
        cut in 0_usize..1000,
        repeats in 1_usize..4,
    ) {
        let mut bytes = whole_conversation();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        // A stretch that comes several times.
        let cut = cut % bytes.len();
        let stretch = bytes[cut..].repeat(repeats);
        bytes.truncate(cut);
        bytes.extend(stretch);
        let _ = hear(&bytes);
    }

    #[test]
    fn lines_of_any_length_end(line in 0_usize..8, extra in 0_usize..5000, byte in b' '..=b'~') {
        let whole = whole_conversation();
        let mut lines: Vec<Vec<u8>> = whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let line = line % lines.len();
        let end = lines[line].len() - 1;
        lines[line].splice(end..end, std::iter::repeat_n(byte, extra));
        let _ = hear(&lines.concat());
    }

    #[test]
    fn any_bytes_end(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..3000)) {
        assert!(hear(&bytes).is_err());
    }
}
