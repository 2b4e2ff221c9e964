//! A rank's memory, holding symbolic values instead of bytes.

use crate::schedule::Span;

use super::values::Value;

/// Consecutive bytes of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: usize,
    pub(super) value: Value,
    /// Which byte of the vector the first one belongs to.
    pub(super) origin: usize,
}

impl Piece {
    /// Those from `offset` on.
    fn behind(self, offset: usize) -> Self {
        Self { bytes: self.bytes - offset, origin: self.origin + offset, ..self }
    }

    fn first(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    fn goes_on_with(&self, next: &Self) -> bool {
        self.value == next.value && self.origin + self.bytes == next.origin
    }
}

/// A buffer: pieces by where they start, apart from each other. What lies between them was never written.
#[derive(Debug, Default)]
pub(super) struct Memory(Vec<(usize, Piece)>);

impl Memory {
    /// A buffer that holds a rank's whole operand.
    pub(super) fn operand(bytes: usize, value: Value) -> Self {
        Self(if bytes > 0 { vec![(0, Piece { bytes, value, origin: 0 })] } else { Vec::new() })
    }

    /// What is in these bytes, or the first one that was never written.
    pub(super) fn read(&self, span: Span, pieces: &mut Vec<Piece>) -> Result<(), usize> {
        let mut at = self.0.partition_point(|(start, piece)| start + piece.bytes <= span.start);
        let mut reached = span.start;
        while reached < span.end() {
            let Some(&(start, piece)) = self.0.get(at).filter(|(start, _)| *start <= reached) else {
                return Err(reached);
            };
            let piece = piece.behind(reached - start);
            let piece = piece.first(piece.bytes.min(span.end() - reached));
            reached += piece.bytes;
            at += 1;
            push(pieces, piece);
        }
        Ok(())
    }

    /// Puts pieces, as long as the span together, into these bytes.
    pub(super) fn write(&mut self, span: Span, pieces: &[Piece]) {
        if span.bytes == 0 {
            return;
        }
        let first = self.0.partition_point(|(start, piece)| start + piece.bytes <= span.start);
        if let [piece] = pieces {
            match self.0.get(first).copied() {
                // Most often something new comes behind all that is there, or takes the place of what was there.
                None => return self.0.push((span.start, *piece)),
                Some((start, old)) if start == span.start && old.bytes == span.bytes => {
                    self.0[first].1 = *piece;
                    return;
                }
                _ => {}
            }
        }
        let behind = first + self.0[first..].partition_point(|(start, _)| *start < span.end());
        // What is left of the pieces at both ends.
        let lower = self.0[first..behind].first().filter(|(start, _)| *start < span.start);
        let lower = lower.map(|&(start, piece)| (start, piece.first(span.start - start)));
        let upper = self.0[first..behind].last().filter(|(start, piece)| start + piece.bytes > span.end());
        let upper = upper.map(|&(start, piece)| (span.end(), piece.behind(span.end() - start)));
        let mut place = span.start;
        let written = pieces.iter().map(|&piece| {
            let start = place;
            place += piece.bytes;
            (start, piece)
        });
        let new: Vec<_> = lower.into_iter().chain(written).chain(upper).collect();
        debug_assert_eq!(pieces.iter().map(|piece| piece.bytes).sum::<usize>(), span.bytes);
        self.0.splice(first..behind, new);
    }
}

/// Appends a piece, to the last one if it goes on with that.
pub(super) fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if last.goes_on_with(&piece) => last.bytes += piece.bytes,
        _ => pieces.push(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Buffer;

    #[test]
    fn pieces_are_cut_overwritten_and_joined() {
        let span = |start, bytes| Span::new(Buffer::Scratch, start, bytes);
        let piece = |bytes, value, origin| Piece { bytes, value, origin };
        let mut memory = Memory::operand(16, 7);
        memory.write(span(4, 8), &[piece(2, 8, 100), piece(6, 9, 0)]);
        memory.write(span(20, 4), &[piece(4, 7, 20)]);
        let mut seen = Vec::new();
        assert_eq!(memory.read(span(2, 14), &mut seen), Ok(()));
        assert_eq!(seen, [piece(2, 7, 2), piece(2, 8, 100), piece(6, 9, 0), piece(4, 7, 12)]);
        assert_eq!(memory.read(span(12, 12), &mut Vec::new()), Err(16));
        memory.write(span(6, 6), &[piece(6, 7, 6)]);
        memory.write(span(4, 2), &[piece(2, 7, 4)]);
        seen.clear();
        assert_eq!(memory.read(span(0, 16), &mut seen), Ok(()));
        assert_eq!(seen, [piece(16, 7, 0)]);
    }
}
