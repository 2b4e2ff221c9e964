//! The end of a trace: one file of all ranks, on one time axis.
//!
//! Rank 0 reads the parts that it sees, as it does those of its node or on a file system that all have; the others are
//! brought to it by broadcasts, one piece after the other. The lines of all parts, whose times are by rank 0's clock by
//! then, make the file. Trouble with files is no error of the job: it is told at its very end.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

use shm_core::Call;
use shm_core::sys::clock::now_ns;

use super::clock::{Alignment, Mark, Offset};
use super::part::{self, Card};
use super::start::{bcast, marks};
use super::{Trace, beside, part_of, replace};
use crate::carrier::Carrier;
use crate::context::Inner;
use crate::error::Result;
use crate::files::{NewFile, replaceable};

/// Bytes that are broadcast at once.
const PIECE_BYTES: usize = 1 << 20;

/// The line on a rank, and the lines of its events.
type Lines = (String, String);

impl Trace {
    /// Writes the file of all ranks. Collective over `world`. Gives the trouble that this rank has met with files.
    ///
    /// # Errors
    /// The job has ended with an error; the parts are left where they are.
    pub(crate) fn finish(&self, world: &mut Carrier, context: &Inner) -> Result<Option<String>> {
        let alignment = self.alignment(world, context)?;
        let own = part::lines(&self.card, &self.store.borrow(), now_ns(), Some(&alignment));
        if let Err(error) = replace(&self.part, &[part::file(&self.card, &own).as_bytes()]) {
            self.note_trouble(&self.part, &error);
        }
        // Rank 0 may be reading it from now on: it stays as it is.
        self.is_finished.set(true);
        let is_whole = self.join(own, world, context).inspect_err(|_| self.is_finished.set(false))?;
        if is_whole {
            let _ = fs::remove_file(&self.part);
            return Ok(None);
        }
        Ok(self.trouble.borrow_mut().take())
    }

    /// Makes one file of all ranks' last words; true on all if that has worked.
    fn join(&self, own: Lines, world: &mut Carrier, context: &Inner) -> Result<bool> {
        world.run(Call::FINALIZE, context)?;
        let whole = self.gather(own, world, context)?;
        let mut written = [u8::from(whole.is_some_and(|parts| self.put_together(&parts)))];
        bcast(world, context, &mut written, 0)?;
        Ok(written[0] == 1)
    }

    /// How this rank's times become those of rank 0.
    fn alignment(&self, world: &mut Carrier, context: &Inner) -> Result<Alignment> {
        if !self.several_clocks {
            return Ok(Alignment::SAME);
        }
        let last = marks(world, context)?;
        let flat = |marks: &[Mark]| marks.iter().flat_map(|mark| [mark.entered_ns, mark.left_ns]).collect::<Vec<_>>();
        let mut of_rank_0 = [flat(&self.card.marks), flat(&last)].concat();
        bcast(world, context, &mut of_rank_0, 0)?;
        let of_rank_0: Vec<Mark> =
            of_rank_0.as_chunks().0.iter().map(|&[entered_ns, left_ns]| Mark { entered_ns, left_ns }).collect();
        let mut clock = self.card.clock.clone().into_bytes();
        clock.resize(self.card.clock.len().max(CLOCK_BYTES), 0);
        clock.truncate(CLOCK_BYTES);
        let own = clock.clone();
        bcast(world, context, &mut clock, 0)?;
        if clock == own {
            return Ok(Alignment::SAME);
        }
        let (first_of_0, last_of_0) = of_rank_0.split_at(self.card.marks.len());
        let first = Offset::between(&self.card.marks, first_of_0);
        Ok(first.map_or(Alignment::SAME, |first| Alignment::new(first, Offset::between(&last, last_of_0))))
    }

    /// The lines of all ranks, on rank 0; `None` elsewhere.
    fn gather(&self, own: Lines, world: &mut Carrier, context: &Inner) -> Result<Option<Vec<Source>>> {
        let Card { rank, size, job, .. } = &self.card;
        let mut is_seen = vec![1_u8; *size];
        if *rank == 0 {
            for (other, is_seen) in is_seen.iter_mut().enumerate().skip(1) {
                *is_seen = u8::from(self.open_part(other, job).is_ok());
            }
        }
        bcast(world, context, &mut is_seen, 0)?;
        let mut own = Some(own);
        let mut parts = Vec::new();
        for (other, is_seen) in is_seen.into_iter().enumerate() {
            if other > 0 && is_seen == 1 {
                parts.push(Source::File);
                continue;
            }
            let mut lines = own.take_if(|_| *rank == other).unwrap_or_default();
            for text in [&mut lines.0, &mut lines.1].into_iter().filter(|_| other > 0) {
                self.bring(text, other, world, context)?;
            }
            parts.push(Source::Here(lines));
        }
        Ok((*rank == 0).then_some(parts))
    }

    /// Brings a text of `root` to rank 0.
    fn bring(&self, text: &mut String, root: usize, world: &mut Carrier, context: &Inner) -> Result<()> {
        let mut bytes = std::mem::take(text).into_bytes();
        let mut length = [bytes.len() as u64];
        bcast(world, context, &mut length, root)?;
        let length = usize::try_from(length[0]).unwrap_or(0);
        let keeps = self.card.rank == 0 || self.card.rank == root;
        bytes.resize(if keeps { length } else { 0 }, 0);
        let mut elsewhere = vec![0; if keeps { 0 } else { PIECE_BYTES.min(length) }];
        for begin in (0..length).step_by(PIECE_BYTES) {
            let end = length.min(begin + PIECE_BYTES);
            let piece = if keeps { &mut bytes[begin..end] } else { &mut elsewhere[..end - begin] };
            bcast(world, context, piece, root)?;
        }
        *text = String::from_utf8(bytes).unwrap_or_default();
        Ok(())
    }

    /// Writes the file of all ranks; true if that has worked.
    fn put_together(&self, parts: &[Source]) -> bool {
        let written = replaceable(&self.path).and_then(|path| {
            let new = beside(&path, ".new");
            let written = self.write_whole(&new, parts).and_then(|()| fs::rename(&new, path));
            written.inspect_err(|_| drop(fs::remove_file(&new)))
        });
        if let Err(error) = &written {
            self.note_trouble(&self.path, error);
        }
        written.is_ok()
    }

    fn write_whole(&self, path: &Path, parts: &[Source]) -> io::Result<()> {
        let Card { job, size, .. } = &self.card;
        let mut out = io::BufWriter::new(NewFile::create(path)?);
        out.write_all(part::head(job, *size, true).as_bytes())?;
        for (rank, source) in parts.iter().enumerate() {
            let comma = if rank == 0 { "" } else { ",\n" };
            let about = match source {
                Source::Here((about, _)) => about.clone(),
                Source::File => self.open_part(rank, job)?.0,
            };
            write!(out, "{comma}{about}")?;
        }
        write!(out, "\n{}", part::MIDDLE)?;
        for (rank, source) in parts.iter().enumerate() {
            let comma = if rank == 0 { "" } else { ",\n" };
            let events = match source {
                Source::Here((_, events)) => events.clone(),
                Source::File => {
                    let mut text = String::new();
                    self.open_part(rank, job)?.1.read_to_string(&mut text)?;
                    text.strip_suffix(part::END).ok_or_else(damaged)?.to_owned()
                }
            };
            write!(out, "{comma}{}", events.trim_end())?;
        }
        write!(out, "\n{}", part::END)?;
        out.flush()
    }

    /// The line on a rank from its file, and the file from its events on. An error unless it is its last word.
    fn open_part(&self, rank: usize, job: &str) -> io::Result<(String, BufReader<fs::File>)> {
        let mut file = BufReader::new(fs::File::open(part_of(&self.path, rank))?);
        let (mut head, mut about, mut middle) = (String::new(), String::new(), String::new());
        for line in [&mut head, &mut about, &mut middle] {
            file.read_line(line)?;
        }
        let is_it = head == part::head(job, self.card.size, false)
            && about.starts_with(&part::last_word(rank))
            && middle == part::MIDDLE;
        if is_it { Ok((about.trim_end().to_owned(), file)) } else { Err(damaged()) }
    }
}

/// Bytes of a clock's identity that are compared.
const CLOCK_BYTES: usize = 64;

/// Where the lines of a rank are.
enum Source {
    Here(Lines),
    /// In its file, which this rank sees.
    File,
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a rank's part is not what it has written")
}
