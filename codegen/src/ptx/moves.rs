//! Parallel assignment as a sequence of moves.

/// One move of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move<R, S> {
    /// `to = from`.
    Copy(R, S),
    /// `scratch = register`, before the register is overwritten.
    Save(R),
    /// `to = scratch`.
    Restore(R),
}

/// Orders the parallel assignments `to = from` such that no source is overwritten before it is read. A cycle uses the
/// scratch register, which is free again before the next cycle. `register` returns the register that a source reads, if
/// any.
pub(super) fn sequence<R: Copy + PartialEq, S: Copy>(
    assignments: &[(R, S)],
    register: impl Fn(S) -> Option<R>,
) -> Vec<Move<R, S>> {
    let mut pending: Vec<(R, S)> =
        assignments.iter().copied().filter(|&(to, from)| register(from) != Some(to)).collect();
    let mut moves = Vec::new();
    // The register whose old value is in the scratch register.
    let mut saved: Option<R> = None;
    while !pending.is_empty() {
        let free = pending.iter().position(|&(to, _)| {
            !pending.iter().any(|&(_, from)| register(from) == Some(to) && saved != Some(to))
        });
        match free {
            Some(index) => {
                let (to, from) = pending.swap_remove(index);
                if saved.is_some() && register(from) == saved {
                    moves.push(Move::Restore(to));
                    saved = None;
                } else {
                    moves.push(Move::Copy(to, from));
                }
            }
            None => {
                let (to, _) = pending[0];
                moves.push(Move::Save(to));
                saved = Some(to);
            }
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executes the moves on registers that initially hold their own index; returns their final contents.
    fn run(assignments: &[(usize, usize)]) -> Vec<usize> {
        let mut registers: Vec<usize> = (0..8).collect();
        let mut scratch = usize::MAX;
        for step in sequence(assignments, Some) {
            match step {
                Move::Copy(to, from) => registers[to] = registers[from],
                Move::Save(from) => scratch = registers[from],
                Move::Restore(to) => registers[to] = scratch,
            }
        }
        registers
    }

    #[test]
    fn assigns_in_parallel() {
        for (assignments, expected) in [
            (&[][..], [0, 1, 2, 3, 4, 5, 6, 7]),
            (&[(0, 1), (1, 2), (2, 3)], [1, 2, 3, 3, 4, 5, 6, 7]),
            (&[(2, 1), (1, 0)], [0, 0, 1, 3, 4, 5, 6, 7]),
            (&[(0, 1), (1, 0)], [1, 0, 2, 3, 4, 5, 6, 7]),
            (&[(0, 1), (1, 2), (2, 0), (3, 4), (4, 3)], [1, 2, 0, 4, 3, 5, 6, 7]),
            (&[(0, 1), (1, 0), (2, 0), (3, 1)], [1, 0, 0, 1, 4, 5, 6, 7]),
            (&[(0, 0), (1, 1)], [0, 1, 2, 3, 4, 5, 6, 7]),
        ] {
            assert_eq!(run(assignments), expected, "{assignments:?}");
        }
    }
}
