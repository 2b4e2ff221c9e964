//! The PMI connections of all ranks, none of which can make the launcher wait or grow.
//!
//! A rank that sends requests without taking the answers is not read from until it has taken them.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use han::bootstrap::pmi::wire::{LineBuffer, MAX_LINE_BYTES};
use nix::poll::{PollFd, PollFlags};

use super::server::{Answer, Phase, Server};

/// What a connection brings up that concerns the job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The rank broke the protocol; the text says how.
    Violation(String),
    /// The rank closed its end.
    HungUp,
    /// The rank asked to end the job with this exit code.
    Abort(i32),
}

struct Link {
    stream: UnixStream,
    lines: LineBuffer,
    unsent: Vec<u8>,
}

/// The server and its connections, by rank.
pub(crate) struct Links {
    server: Server,
    links: Vec<Option<Link>>,
}

impl Links {
    /// Serves one connection a rank.
    pub(crate) fn new(job: &str, blocks: &[usize], streams: Vec<UnixStream>) -> io::Result<Self> {
        let mut links = Vec::with_capacity(streams.len());
        for stream in streams {
            stream.set_nonblocking(true)?;
            links.push(Some(Link { stream, lines: LineBuffer::new(MAX_LINE_BYTES), unsent: Vec::new() }));
        }
        Ok(Self { server: Server::new(job, blocks), links })
    }

    /// What to wait for, beside the rank that it belongs to.
    pub(crate) fn poll_fds(&self) -> (Vec<usize>, Vec<PollFd<'_>>) {
        let open = self.links.iter().enumerate().filter_map(|(rank, link)| Some((rank, link.as_ref()?)));
        open.map(|(rank, link)| {
            let event = if link.unsent.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLOUT };
            (rank, PollFd::new(link.stream.as_fd(), event))
        })
        .unzip()
    }

    pub(crate) fn phase(&self, rank: usize) -> Phase {
        self.server.phase(rank)
    }

    /// Hangs up on `rank`, which ends its waiting.
    pub(crate) fn close(&mut self, rank: usize) {
        self.links[rank] = None;
    }

    /// Does what can be done on the connection of `rank` without waiting.
    pub(crate) fn serve(&mut self, rank: usize) -> Option<Report> {
        let link = self.links[rank].as_mut()?;
        match link.exchange() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) => {
                self.close(rank);
                return Some(Report::HungUp);
            }
        }
        loop {
            let line = match self.links[rank].as_mut()?.lines.next_line() {
                Ok(None) => return None,
                Ok(Some(line)) => line,
                Err(e) => return Some(Report::Violation(e.to_string())),
            };
            match self.server.handle(rank, &line) {
                Ok(Answer::Later) => {}
                Ok(Answer::Line(answer)) => self.say(rank, &answer),
                Ok(Answer::ToAll(answer)) => (0..self.links.len()).for_each(|rank| self.say(rank, &answer)),
                Ok(Answer::Abort(code)) => return Some(Report::Abort(code)),
                Err(why) => return Some(Report::Violation(why)),
            }
        }
    }

    fn say(&mut self, rank: usize, line: &str) {
        if let Some(link) = &mut self.links[rank] {
            link.unsent.extend_from_slice(line.as_bytes());
            // A rank that is gone is noticed when its connection is next read.
            let _ = link.flush();
        }
    }
}

impl Link {
    /// Sends what is due, then reads once; `false` when there is nothing to act on.
    fn exchange(&mut self) -> io::Result<bool> {
        self.flush()?;
        if !self.unsent.is_empty() {
            return Ok(false);
        }
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.lines.push(&chunk[..bytes]);
                Ok(true)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn pair(ranks: usize) -> (Links, Vec<UnixStream>) {
        let (near, far): (Vec<_>, Vec<_>) = (0..ranks).map(|_| UnixStream::pair().unwrap()).unzip();
        (Links::new("job", &[ranks], near).unwrap(), far)
    }

    fn read_line(stream: &UnixStream) -> String {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn requests_may_arrive_in_pieces() {
        let (mut links, ranks) = pair(1);
        (&ranks[0]).write_all(b"cmd=init pmi_ver").unwrap();
        assert_eq!(links.serve(0), None);
        (&ranks[0]).write_all(b"sion=1 pmi_subversion=1\n").unwrap();
        assert_eq!(links.serve(0), None);
        assert!(read_line(&ranks[0]).starts_with("cmd=response_to_init"));
    }

    #[test]
    fn a_line_without_end_is_a_violation() {
        let (mut links, ranks) = pair(1);
        (&ranks[0]).write_all(&[b'x'; 100_000]).unwrap();
        assert!(matches!(links.serve(0), Some(Report::Violation(why)) if why.contains("more than 1024 bytes")));
    }

    #[test]
    fn a_rank_that_takes_no_answers_is_not_read_from() {
        let (mut links, ranks) = pair(1);
        ranks[0].set_nonblocking(true).unwrap();
        (&ranks[0]).write_all(b"cmd=init pmi_version=1 pmi_subversion=1\n").unwrap();
        // Whole requests only, until neither side takes any more.
        while let Ok(sent) = (&ranks[0]).write(b"cmd=get_maxes\n") {
            assert_eq!(sent, b"cmd=get_maxes\n".len());
            assert_eq!(links.serve(0), None);
        }
        assert_eq!(links.serve(0), None);
        let held = links.links[0].as_ref().unwrap().unsent.len();
        assert!(held > 0 && held < 64 * 1024, "{held} bytes held");
        assert_eq!(links.poll_fds().1[0].events(), PollFlags::POLLOUT);
        links.close(0);
        assert!(links.poll_fds().1.is_empty());
    }

    #[test]
    fn the_barrier_answers_every_rank() {
        let (mut links, ranks) = pair(2);
        for (rank, stream) in ranks.iter().enumerate() {
            (&*stream).write_all(b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n").unwrap();
            assert_eq!(links.serve(rank), None);
        }
        for stream in &ranks {
            let lines: Vec<String> = BufReader::new(stream).lines().take(2).map(Result::unwrap).collect();
            assert_eq!(lines[1], "cmd=barrier_out rc=0");
        }
        drop(ranks);
        assert_eq!(links.serve(1), Some(Report::HungUp));
        assert_eq!(links.serve(1), None);
    }

    /// What a rank says in an exchange of two.
    fn conversation() -> Vec<u8> {
        let lines = [
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_maxes",
            "cmd=get_my_kvsname",
            "cmd=get kvsname=job_1 key=PMI_process_mapping",
            "cmd=put kvsname=job_1 key=han-0-0-0 value=000000030908a7",
            "cmd=barrier_in",
            "cmd=get kvsname=job_1 key=han-0-1-0",
            "cmd=finalize",
        ];
        lines.iter().flat_map(|line| line.bytes().chain([b'\n'])).collect()
    }

    /// Serves rank 0 of two that says `bytes` in pieces and takes every answer; its last report.
    fn serve_all(bytes: &[u8], piece: usize) -> Option<Report> {
        let (mut links, ranks) = pair(2);
        (&ranks[1]).write_all(b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n").unwrap();
        assert_eq!(links.serve(1), None);
        ranks[0].set_nonblocking(true).unwrap();
        for piece in bytes.chunks(piece) {
            (&ranks[0]).write_all(piece).unwrap();
            let report = links.serve(0);
            let _ = (&ranks[0]).read(&mut [0; 8192]);
            if report.is_some() {
                return report;
            }
            let held = links.links[0].as_ref().map_or(0, |link| link.lines.held() + link.unsent.len());
            assert!(held <= 16 * 1024, "{held} bytes are held");
        }
        None
    }

    #[test]
    fn a_conversation_in_pieces_is_understood() {
        for piece in [1, 7, 100, 4096] {
            assert_eq!(serve_all(&conversation(), piece), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn damaged_conversations_are_answered_or_violations(
            changes in proptest::collection::vec((0_usize..1000, proptest::prelude::any::<u8>()), 0..6),
            cut in 0_usize..1000,
            repeats in 0_usize..4,
            piece in 1_usize..600,
        ) {
            let mut bytes = conversation();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let cut = cut % bytes.len();
            let stretch = bytes[cut..].repeat(repeats);
            bytes.truncate(cut);
            bytes.extend(stretch);
            let _ = serve_all(&bytes, piece);
        }

        #[test]
        fn lines_that_are_too_long_are_violations(line in 0_usize..8, extra in 1024_usize..5000, piece in 1_usize..2000) {
            let whole = conversation();
            let mut lines: Vec<Vec<u8>> = whole.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            let end = lines[line].len() - 1;
            lines[line].splice(end..end, std::iter::repeat_n(b'x', extra));
            let report = serve_all(&lines.concat(), piece);
            assert!(matches!(report, Some(Report::Violation(_))), "{report:?}");
        }

        #[test]
        fn any_bytes_are_answered_or_violations(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..4000),
            piece in 1_usize..2000,
        ) {
            let _ = serve_all(&bytes, piece);
        }
    }
}
