//! libfabric's `fi_pingpong`.

use std::process::Stdio;
use std::time::Duration;

use crate::{Args, Failure, command};

/// Runs it for one size; one way's time in microseconds.
pub(crate) fn spawn(args: &Args, bytes: usize, port: u16) -> Result<f64, Failure> {
    // Where the server's end of the control connection is named -B, the client's knowledge of it is -P.
    let start = |node: usize, port_option: &str| {
        let mut command = command(args, node, "fi_pingpong");
        command.args(["-e", "rdm", "-p", &args.what.provider, "-d", &args.domain, "-S", &bytes.to_string()]);
        command.args(["-I", &args.what.iterations_of(bytes).to_string(), port_option, &port.to_string()]);
        command.stdout(Stdio::piped());
        command
    };
    let mut server = start(0, "-B").spawn().map_err(|error| format!("fi_pingpong (package libfabric-bin): {error}"))?;
    // It listens when it has looked for providers, which it does not tell: the client is tried until it is met.
    let mut tries = 0;
    let text = loop {
        std::thread::sleep(Duration::from_millis(200));
        let client = start(1, "-P").arg(&args.server).stderr(Stdio::null()).output()?;
        if client.status.success() {
            break String::from_utf8(client.stdout)?;
        }
        tries += 1;
        if tries == 20 || server.try_wait()?.is_some() {
            let _ = server.kill();
            let _ = server.wait();
            return Err(format!("fi_pingpong over {} does not work here", args.what.provider).into());
        }
    };
    server.wait()?;
    let row = text.lines().find(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    // bytes, sent, acknowledged, total, time, MB/s, us/transfer, ...
    let time = row.and_then(|row| row.split_whitespace().nth(6)).ok_or_else(|| format!("fi_pingpong said: {text}"))?;
    Ok(time.parse()?)
}
