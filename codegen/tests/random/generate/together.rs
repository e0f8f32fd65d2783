//! Statements by which threads wait for each other or exchange values.

use bespoke_codegen::ir::{Mma, MmaElement, MmaShape, Op, Scope, Shuffle, Type, Vote};

use super::{At, Generator};
use crate::lower::operand_types;
use crate::program::*;

impl Generator {
    pub(super) fn effect(&mut self, at: At) -> Stmt {
        let scope = self.random.pick(Scope::ALL);
        let op = match self.random.below(if at.together { 6 } else { 4 }) {
            0 => Op::Fence(scope),
            1 => Op::SequentialFence(scope),
            2 => Op::LaunchDependents,
            3 => Op::WaitForDependencies,
            4 => Op::Barrier { id: 0, threads: 0 },
            _ => Op::WarpBarrier,
        };
        let args =
            if op == Op::WarpBarrier { vec![Operand::bits(Type::U32, u32::MAX.into())] } else { Vec::new() };
        Stmt::Compute { op, ty: Type::U32, args, results: Vec::new() }
    }

    /// What all threads do together.
    pub(super) fn collective(&mut self) -> Stmt {
        let all = Operand::bits(Type::U32, u32::MAX.into());
        match self.random.below(7) {
            0 | 1 => {
                let shuffle = self.random.pick(Shuffle::ALL);
                let ty = self.random.pick(&[Type::U32, Type::I32, Type::F32, Type::F16x2, Type::Bf16x2]);
                // Segments of 32, 16 or 8 lanes; the clamp is the least lane where a lane below is read.
                let segment = self.random.pick(&[0, 0, 0x10, 0x18]) << 8;
                let clamp = segment | if shuffle == Shuffle::Up { 0 } else { 31 };
                let lane = if self.chance(2) {
                    Operand::bits(Type::U32, self.random.below(32).into())
                } else {
                    self.operand(Type::U32)
                };
                let args = vec![self.operand(ty), lane, Operand::bits(Type::U32, clamp), all];
                let results = self.results(Op::Shuffle(shuffle), ty, &args);
                Stmt::Compute { op: Op::Shuffle(shuffle), ty, args, results }
            }
            2 => {
                let vote = self.random.pick(Vote::ALL);
                let ty = if vote == Vote::Ballot { Type::U32 } else { Type::Pred };
                let args = vec![self.operand(Type::Pred), all];
                let results = self.results(Op::Vote(vote), ty, &args);
                Stmt::Compute { op: Op::Vote(vote), ty, args, results }
            }
            3 | 4 => {
                let ty = self.element();
                let value = self.operand(ty);
                let by = self.random.pick(&[0, 1, 2, 31, 32, 33]);
                Stmt::Exchange { value, by, result: self.fresh(ty, false, None) }
            }
            5 => {
                let (matrices, transposed) = (self.random.pick(&[1, 2, 4]), self.chance(2));
                let value = self.operand(Type::U64);
                let results = (0..matrices).map(|_| self.fresh(Type::U32, false, None)).collect();
                Stmt::LoadMatrix { matrices, transposed, value, results }
            }
            _ => self.product(),
        }
    }

    pub(super) fn product(&mut self) -> Stmt {
        let (a, b) = self.random.pick(&[
            (MmaElement::U8, MmaElement::I8),
            (MmaElement::I8, MmaElement::I8),
            (MmaElement::F16, MmaElement::F16),
            (MmaElement::Bf16, MmaElement::Bf16),
        ]);
        let fitting: Vec<MmaShape> = MmaShape::ALL
            .iter()
            .copied()
            .filter(|s| matches!(s.dimensions()[2] * a.bits(), 128 | 256))
            .collect();
        let (op, ty) = (Op::Mma(Mma { shape: self.random.pick(&fitting), a, b }), a.sum());
        let args = self.operands(&operand_types(op, ty).unwrap_or_default());
        let results = self.results(op, ty, &args);
        Stmt::Compute { op, ty, args, results }
    }
}
