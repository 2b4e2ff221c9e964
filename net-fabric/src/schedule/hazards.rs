//! Which earlier steps a step must wait for, from the bytes that they read and write.
//!
//! For each range of a buffer: who wrote it last, and who has read it since. A reader waits for the writer; a
//! writer waits for the readers since, who have waited for the writer before, or for that writer if nobody
//! read. Lists of readers are shared by the pieces of a range that is cut.

use super::{Buffer, Span};

/// What is known about the buffers that are written.
#[derive(Debug, Default)]
pub(super) struct Hazards {
    output: Ranges,
    scratch: Ranges,
    readers: Vec<Reader>,
}

impl Hazards {
    /// Takes note that `step` reads `span`, and appends those that it must wait for.
    pub(super) fn read(&mut self, span: Span, step: u32, waits: &mut Vec<u32>) {
        let ranges = match span.buffer {
            Buffer::Input => return,
            Buffer::Output => &mut self.output,
            Buffer::Scratch => &mut self.scratch,
        };
        if span.bytes > 0 {
            ranges.read(span, step, &mut self.readers, waits);
        }
    }

    /// Takes note that `step` writes `span`, and appends those that it must wait for.
    pub(super) fn write(&mut self, span: Span, step: u32, waits: &mut Vec<u32>) {
        let ranges = match span.buffer {
            Buffer::Input => unreachable!("refused by the builder"),
            Buffer::Output => &mut self.output,
            Buffer::Scratch => &mut self.scratch,
        };
        if span.bytes > 0 {
            ranges.write(span, step, &self.readers, waits);
        }
    }
}

/// A link of a list of readers.
#[derive(Debug)]
struct Reader {
    step: u32,
    next: u32,
}

const NONE: u32 = u32::MAX;

/// Bytes that the same steps have touched.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: usize,
    end: usize,
    writer: u32,
    /// The first link of its readers since the writer.
    readers: u32,
}

/// The ranges of one buffer in ascending order. Nobody has touched what lies between them.
#[derive(Debug, Default)]
struct Ranges(Vec<Range>);

impl Ranges {
    fn read(&mut self, span: Span, step: u32, links: &mut Vec<Reader>, waits: &mut Vec<u32>) {
        let mut at = self.cut(span.start);
        let mut covered = span.start;
        while covered < span.end() {
            let next = self.0.get(at).map_or(usize::MAX, |range| range.start);
            if next > covered {
                let end = next.min(span.end());
                self.0.insert(at, Range { start: covered, end, writer: NONE, readers: NONE });
            } else if self.0[at].end > span.end() {
                self.split(at, span.end());
            }
            let range = &mut self.0[at];
            if range.writer != NONE && range.writer != step {
                waits.push(range.writer);
            }
            links.push(Reader { step, next: range.readers });
            range.readers = last(links);
            covered = range.end;
            at += 1;
        }
    }

    fn write(&mut self, span: Span, step: u32, links: &[Reader], waits: &mut Vec<u32>) {
        let first = self.cut(span.start);
        let mut behind = first;
        while behind < self.0.len() && self.0[behind].start < span.end() {
            if self.0[behind].end > span.end() {
                self.split(behind, span.end());
            }
            let range = self.0[behind];
            if range.readers == NONE {
                waits.extend((range.writer != NONE && range.writer != step).then_some(range.writer));
            }
            let mut link = range.readers;
            while link != NONE {
                let Reader { step: reader, next } = links[link as usize];
                waits.extend((reader != step).then_some(reader));
                link = next;
            }
            behind += 1;
        }
        let whole = Range { start: span.start, end: span.end(), writer: step, readers: NONE };
        if first == behind {
            self.0.insert(first, whole);
        } else {
            self.0[first] = whole;
            self.0.drain(first + 1..behind);
        }
    }

    /// Makes `byte` a border, and says which range is the first behind it.
    fn cut(&mut self, byte: usize) -> usize {
        let at = match self.0.last() {
            Some(last) if last.end > byte => self.0.partition_point(|range| range.end <= byte),
            _ => return self.0.len(),
        };
        if self.0[at].start < byte {
            self.split(at, byte);
            return at + 1;
        }
        at
    }

    fn split(&mut self, at: usize, byte: usize) {
        let upper = Range { start: byte, ..self.0[at] };
        self.0[at].end = byte;
        self.0.insert(at + 1, upper);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a schedule has fewer than 2^32 accesses, see the builder")]
fn last(links: &[Reader]) -> u32 {
    links.len() as u32 - 1
}
