//! Rows of a step: their records, and what the choice of a token does to them.

use bespoke_kernels::kernels::state::{FLAGS, Row, WORDS};

use crate::inputs::u32s;

/// Number of positions of each sequence in the token buffers.
pub(super) const CONTEXT: usize = 16;

/// What a row does.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// The next token is chosen.
    Chooses,
    /// The row chooses, and its next token is given by the prompt.
    Given,
    /// The row exists and does not choose.
    Passes,
    /// The row does not exist.
    Absent,
}

/// Kinds of consecutive rows.
const KINDS: [Kind; 6] =
    [Kind::Chooses, Kind::Given, Kind::Chooses, Kind::Passes, Kind::Chooses, Kind::Absent];

/// A row of a step.
#[derive(Clone, Copy)]
pub(super) struct StepRow {
    /// The words of the record besides the flag of a row that exists.
    pub record: Row,
    /// Whether the row exists.
    pub exists: bool,
}

impl StepRow {
    /// The one row of a step that chooses a token: the position, and the length of the prompt.
    pub fn single(position: u32, prompt: u32) -> StepRow {
        StepRow { record: Row { position, prompt, chooses: true, ..Row::default() }, exists: true }
    }

    /// Whether the row's sequence gets another token, and the row's position advances.
    pub fn advances(&self) -> bool {
        self.exists && self.record.chooses
    }

    /// Whether the next token is chosen, not given by the prompt.
    pub fn draws(&self) -> bool {
        self.advances() && self.record.position + 1 >= self.record.prompt
    }

    /// Index in the token buffers of the row's token.
    pub fn token(&self) -> usize {
        (self.record.tokens + self.record.position) as usize
    }

    /// Index in the token buffers of the next token.
    pub fn next(&self) -> usize {
        self.token() + 1
    }

    fn words(&self) -> [u32; WORDS as usize] {
        let mut words = self.record.words();
        if !self.exists {
            words[FLAGS as usize] = 0;
        }
        words
    }
}

/// Number of slots of a step with `count` rows; at least one slot belongs to no row.
pub(super) fn slots(count: u32) -> u32 {
    count + 1
}

/// Number of elements of the token buffers of a step with `count` rows.
pub(super) fn token_count(count: u32) -> usize {
    slots(count) as usize * CONTEXT
}

/// Number of steps that together have every kind of row at the first rows.
pub(super) fn turns(count: u32) -> u32 {
    if (count as usize) < KINDS.len() { KINDS.len() as u32 } else { 2 }
}

/// Rows of step `turn`: rows of every kind, at different positions. Slots, token buffers and rows have different orders,
/// so that no index can stand for another.
pub(super) fn rows(count: u32, turn: u32) -> Vec<StepRow> {
    let row = |row: u32| {
        let kind = KINDS[((row + turn) as usize) % KINDS.len()];
        let position = 2 + (3 * row + turn) % 9;
        let next = position + 1;
        let prompt = match kind {
            Kind::Given => next + 1 + row % 3,
            // Of rows that do not choose, some are within the prompt.
            Kind::Passes => next - 1 + 4 * (row % 2),
            Kind::Chooses | Kind::Absent => next - row % 2,
        };
        let (slots, chooses) = (slots(count), kind != Kind::Passes);
        // 7 and 2 have no common divisor with the numbers of slots, which are powers of two and one more.
        let (slot, tokens) = ((7 * row + 3) % slots, (2 * row + 1) % slots * CONTEXT as u32);
        let record = Row { position, prompt, chooses, slot, tokens, ..Row::default() };
        StepRow { record, exists: kind != Kind::Absent }
    };
    (0..count).map(row).collect()
}

/// Records of rows as bytes.
pub(super) fn records(rows: &[StepRow]) -> Vec<u8> {
    u32s(&rows.iter().flat_map(StepRow::words).collect::<Vec<_>>())
}

/// Records of rows after the choice.
pub(super) fn advanced(rows: &[StepRow]) -> Vec<u8> {
    let mut rows = rows.to_vec();
    for row in &mut rows {
        row.record.position += u32::from(row.advances());
    }
    records(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a step have sequences of their own, and the turns of few rows have every kind at each row.
    #[test]
    fn rows_are_distinct_and_of_every_kind() {
        for count in [1, 2, 4, 8, 16, 32, 64] {
            let mut kinds = vec![[false; 4]; count as usize];
            for turn in 0..turns(count) {
                let rows = rows(count, turn);
                for key in [|row: &StepRow| row.record.slot, |row: &StepRow| row.record.tokens] {
                    let mut keys: Vec<u32> = rows.iter().map(key).collect();
                    keys.sort_unstable();
                    keys.dedup();
                    assert_eq!(keys.len(), rows.len());
                }
                for (row, kinds) in rows.iter().zip(&mut kinds) {
                    assert!((row.record.position as usize) < CONTEXT - 1 && row.next() < token_count(count));
                    let kind = match (row.exists, row.record.chooses, row.draws()) {
                        (false, ..) => 0,
                        (_, false, _) => 1,
                        (_, _, false) => 2,
                        _ => 3,
                    };
                    kinds[kind] = true;
                }
            }
            if count < 6 {
                assert!(kinds.iter().flatten().all(|&found| found), "{count}: {kinds:?}");
            }
            assert!((0..4).all(|kind| kinds.iter().any(|row| row[kind])), "{count}: {kinds:?}");
        }
    }
}
