//! Our two processes.
#![allow(unsafe_code)] // Posts messages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use net_fabric::transport::ofi::{Config, Interface, OfiTransport, Reach, open};
use net_fabric::transport::{Completion, Posted, Tag, Token, Transport};

use crate::{Args, Failure, What, command};

/// Starts both processes and reads what rank 0 says: the provider, and the time of each size.
pub(crate) fn spawn(args: &Args, port: u16) -> Result<(String, Vec<f64>), Failure> {
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or("this program's path is no text")?;
    let control = format!("{}:{port}", args.server);
    let start = |rank: usize| -> Result<Child, Failure> {
        let mut command = command(args, rank, program);
        command.args(["rank", &rank.to_string(), &control, "--provider", &args.what.provider]);
        let sizes: Vec<_> = args.what.bytes.iter().map(usize::to_string).collect();
        command.args(["--bytes", &sizes.join(","), "--iterations", &args.what.iterations.to_string()]);
        command.args(args.what.no_wait.then_some("--no-wait"));
        Ok(command.stdout(Stdio::piped()).spawn()?)
    };
    let mut ranks = [start(0)?, start(1)?];
    let mut lines = BufReader::new(ranks[0].stdout.take().ok_or("no output")?).lines();
    let provider = lines.next().ok_or("rank 0 said nothing")??;
    let times = lines.map(|line| Ok(line?.parse()?)).collect::<Result<Vec<f64>, Failure>>()?;
    for rank in &mut ranks {
        if !rank.wait()?.success() {
            return Err("one of our processes failed".into());
        }
    }
    Ok((provider, times))
}

/// What each of the two does.
pub(crate) fn run(what: &What, rank: usize, control: &str) -> Result<(), Failure> {
    let mut socket = meet(rank, control)?;
    let ip = if rank == 0 { socket.local_addr()?.ip() } else { socket.peer_addr()?.ip() };
    // On loopback the interface is that of the server's address; between nodes it is what reaches the other.
    let (interface, reach) = if ip.is_loopback() {
        (Some(Interface::Network(ip, 8)), Reach::Host)
    } else {
        (Some(Interface::Network(socket.local_addr()?.ip(), if ip.is_ipv4() { 32 } else { 128 })), Reach::Network)
    };
    let providers = vec![what.provider.clone()];
    let unconnected = open(&Config { providers, interface, reach, wait: !what.no_wait, ..Config::default() })?;
    let own = unconnected.address();
    socket.write_all(&u32::try_from(own.len())?.to_le_bytes())?;
    socket.write_all(&own)?;
    let mut bytes = [0; 4];
    socket.read_exact(&mut bytes)?;
    let mut other = vec![0; (u32::from_le_bytes(bytes) as usize).min(4096)];
    socket.read_exact(&mut other)?;
    let addresses = if rank == 0 { [own, other] } else { [other, own] };
    let mut transport = unconnected.connect(rank, &addresses)?;
    if rank == 0 {
        println!("{}", transport.describe());
    }
    for &bytes in &what.bytes {
        let time = play(&mut transport, bytes, what.iterations_of(bytes))?;
        if rank == 0 {
            println!("{time}");
        }
    }
    transport.leave(Duration::from_secs(20))?;
    Ok(())
}

fn meet(rank: usize, control: &str) -> Result<TcpStream, Failure> {
    if rank == 0 {
        return Ok(TcpListener::bind(control)?.accept()?.0);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(control) {
            Ok(socket) => return Ok(socket),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Sends to and fro; one way's time in microseconds.
fn play(transport: &mut OfiTransport, bytes: usize, iterations: usize) -> Result<f64, Failure> {
    let data = vec![1_u8; bytes];
    let mut into = vec![0_u8; bytes];
    let mut game = Game { transport, under_way: 0, completed: Vec::new() };
    let warm_up = (iterations / 10).clamp(10, 500);
    let mut started = Instant::now();
    for number in 0..warm_up + iterations {
        if number == warm_up {
            started = Instant::now();
        }
        game.receive(&mut into)?;
        if game.transport.rank() == 0 {
            game.send(&data)?;
            game.finish()?;
        } else {
            game.finish()?;
            game.send(&data)?;
        }
    }
    game.finish()?;
    if into.iter().any(|byte| *byte != 1) {
        return Err("a message did not arrive".into());
    }
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    let messages = (2 * iterations) as f64;
    Ok(started.elapsed().as_secs_f64() * 1e6 / messages)
}

struct Game<'a> {
    transport: &'a mut OfiTransport,
    under_way: usize,
    completed: Vec<Completion>,
}

impl Game<'_> {
    fn send(&mut self, data: &[u8]) -> Result<(), Failure> {
        let peer = 1 - self.transport.rank();
        // SAFETY: `play` keeps the memory until all has completed.
        self.begin(|this| unsafe { this.send(peer, Tag(1), 1, data.as_ptr(), data.len(), Token(0)) })
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<(), Failure> {
        let peer = 1 - self.transport.rank();
        let (start, bytes) = (into.as_mut_ptr(), into.len());
        // SAFETY: as above.
        self.begin(|this| unsafe { this.receive(peer, Tag(1), start, bytes, Token(1)) })
    }

    fn begin(&mut self, post: impl Fn(&mut OfiTransport) -> net_fabric::Result<Posted>) -> Result<(), Failure> {
        loop {
            match post(self.transport)? {
                Posted::Done => return Ok(()),
                Posted::Pending => {
                    self.under_way += 1;
                    return Ok(());
                }
                Posted::Busy => self.progress()?,
            }
        }
    }

    fn progress(&mut self) -> Result<(), Failure> {
        self.transport.progress(&mut self.completed)?;
        for completion in self.completed.drain(..) {
            completion.outcome?;
            self.under_way -= 1;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        while self.under_way > 0 {
            self.progress()?;
        }
        Ok(())
    }
}
