//! Statements that synchronise threads or exchange values among them.

use std::sync::LazyLock;

use bespoke_codegen::ir::{Fact, Match, Op, Reduce, Scope, Shuffle, Type, Vote};

use super::{At, Generator};
use crate::lower::operand_types;
use crate::program::*;

impl Generator {
    pub(super) fn effect(&mut self, at: At) -> Stmt {
        let scope = self.random.pick(Scope::ALL);
        let op = match self.random.below(if at.together { 8 } else { 6 }) {
            0 => Op::Fence(scope),
            1 => Op::SequentialFence(scope),
            2 => Op::LaunchDependents,
            3 => Op::WaitForDependencies,
            4 => Op::Sleep,
            5 => return self.assumption(),
            6 => Op::Barrier { id: 0, threads: 0 },
            _ => Op::WarpBarrier,
        };
        let args = match op {
            Op::WarpBarrier => vec![Operand::bits(Type::U32, u32::MAX.into())],
            Op::Sleep => vec![Operand::bits(Type::U32, self.random.below(100).into())],
            _ => Vec::new(),
        };
        Stmt::Compute { op, ty: Type::U32, args, results: Vec::new() }
    }

    /// A true assumption about a value with a known bound, if there is one. It stays true if the value's definition is
    /// deleted, which makes the value zero.
    fn assumption(&mut self) -> Stmt {
        let bounded: Vec<(Id, u32)> = self
            .scope
            .iter()
            .filter_map(|known| Some((known.id, known.bound.filter(|&bound| bound > 0)?)))
            .collect();
        let fact = self.random.pick(Fact::ALL);
        let args = match bounded.is_empty() {
            true => [Operand::bits(Type::U32, 0), Operand::bits(Type::U32, 1)],
            false => {
                let (id, bound) = self.random.pick(&bounded);
                [Operand::value(Type::U32, id), Operand::bits(Type::U32, bound.into())]
            }
        };
        let args = match fact {
            Fact::Lt | Fact::Le | Fact::Ne => args.to_vec(),
            Fact::Eq => vec![args[0], args[0]],
            Fact::MultipleOf => vec![args[0], Operand::bits(Type::U32, 1)],
        };
        Stmt::Compute { op: Op::Assume(fact), ty: Type::U32, args, results: Vec::new() }
    }

    /// A synchronisation or exchange that all threads of the CTA execute together.
    pub(super) fn collective(&mut self) -> Stmt {
        let all = Operand::bits(Type::U32, u32::MAX.into());
        match self.random.below(9) {
            0 | 1 => {
                let shuffle = self.random.pick(Shuffle::ALL);
                let ty = self.random.pick(&[Type::U32, Type::I32, Type::F32, Type::F16x2, Type::Bf16x2]);
                // Segments of 32, 16 or 8 lanes; for `up`, the clamp is the lowest lane of the segment.
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
            6 => self.matrices(),
            7 => {
                let reduce = self.random.pick(Reduce::ALL);
                let bitwise = matches!(reduce, Reduce::And | Reduce::Or | Reduce::Xor);
                let ty = if bitwise || self.chance(2) { Type::U32 } else { Type::I32 };
                let args = vec![self.operand(ty), all];
                self.warp(Op::Reduce(reduce), ty, args)
            }
            _ if self.chance(3) => self.warp(Op::Elect, Type::U32, vec![all]),
            _ => {
                let lanes = self.random.pick(Match::ALL);
                let ty = self.random.pick(&[Type::U32, Type::F32, Type::I64, Type::F16x2]);
                let args = vec![self.operand(ty), all];
                self.warp(Op::Match(lanes), ty, args)
            }
        }
    }

    fn warp(&mut self, op: Op, ty: Type, args: Vec<Operand>) -> Stmt {
        let results = self.results(op, ty, &args);
        Stmt::Compute { op, ty, args, results }
    }

    /// A matrix operation of the whole warp on registers, such as a matrix product.
    pub(super) fn matrices(&mut self) -> Stmt {
        let (op, ty) = self.random.pick(&MATRICES);
        let args = self.operands(&operand_types(op, ty).unwrap_or_default());
        let results = self.results(op, ty, &args);
        Stmt::Compute { op, ty, args, results }
    }
}

/// Pure opcodes of a whole warp, with every type that they have except f64.
static MATRICES: LazyLock<Vec<(Op, Type)>> = LazyLock::new(|| {
    let warp = Op::every().into_iter().filter(|op| op.is_pure() && op.is_convergent());
    let typed = warp.flat_map(|op| Type::ALL.iter().map(move |&ty| (op, ty)));
    let typed = typed.filter(|&(_, ty)| ty != Type::F64);
    typed.filter(|&(op, ty)| (op.is_typed() || ty == Type::U32) && operand_types(op, ty).is_some()).collect()
});
