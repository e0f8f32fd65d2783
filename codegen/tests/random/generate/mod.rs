//! Generator of well-typed kernels without data races and out-of-bounds accesses: the result does not depend on the
//! schedule.

mod memory;
mod together;

use std::sync::LazyLock;

use bespoke_codegen::ir::{Binary, Compare, Op, Rounding, Special, Type, Unary};

use crate::lower::{POINTERS, SCALARS, operand_types};
use crate::numbers::{self, Random};
use crate::program::*;

/// Types of generated values.
const TYPES: [Type; 14] = [
    Type::Pred,
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::I8,
    Type::I16,
    Type::I32,
    Type::I64,
    Type::F16,
    Type::Bf16,
    Type::F16x2,
    Type::Bf16x2,
    Type::F32,
];

/// Generates the kernel of a seed.
pub fn program(seed: u64) -> Program {
    let mut random = Random(seed);
    let threads = random.pick(&[32, 64, 64, 96]);
    let mut generator = Generator { random, threads, ids: 0, scope: Vec::new(), computed: Vec::new() };
    let body = generator.start();
    generator.program(seed, body)
}

/// Pure opcodes to compute values with, and the types of each. Immediates are chosen later.
static PURE: LazyLock<Vec<(Op, Vec<Type>)>> = LazyLock::new(|| {
    let unary = Unary::ALL.iter().map(|&unary| Op::Unary(unary));
    let binary = Binary::ALL.iter().map(|&binary| Op::Binary(binary));
    let compare = Compare::ALL.iter().map(|&compare| Op::Compare(compare));
    let others = [
        Op::MulWide,
        Op::MulAdd,
        Op::Select,
        Op::Lop3(0),
        Op::Prmt,
        Op::BitField,
        Op::BitInsert,
        Op::NthSetBit,
        Op::Funnel { left: true },
        Op::Dp4a { a_signed: true, b_signed: true },
        Op::Dp2a { a_signed: true, b_signed: true, high: true },
        Op::Pack,
        Op::ConvertPack,
        Op::Unpack,
    ];
    let ops = unary.chain(binary).chain(compare).chain(others);
    ops.map(|op| (op, TYPES.into_iter().filter(|&ty| operand_types(op, ty).is_some()).collect())).collect()
});

/// Opcodes that are typical of address computations and conditions.
const PLAIN: [Op; 12] = [
    Op::Binary(Binary::Add),
    Op::Binary(Binary::Add),
    Op::Binary(Binary::Sub),
    Op::Binary(Binary::Mul),
    Op::Binary(Binary::And),
    Op::Binary(Binary::Shl),
    Op::Binary(Binary::Shr),
    Op::MulAdd,
    Op::Select,
    Op::Compare(Compare::Lt),
    Op::Compare(Compare::Ge),
    Op::Compare(Compare::Ne),
];

/// A value in scope at a statement.
#[derive(Clone, Copy)]
struct Known {
    id: Id,
    ty: Type,
    /// Whether the value is the same in all threads of a CTA.
    uniform: bool,
    /// Exclusive upper bound of a u32, if known.
    bound: Option<u32>,
}

/// Restrictions on a statement from the statements around it.
#[derive(Clone, Copy)]
struct At {
    /// Number of levels by which statements may still be nested.
    depth: u32,
    /// Whether all threads of the CTA execute the statement together.
    together: bool,
    /// Whether threads may return here.
    returns: bool,
}

struct Generator {
    random: Random,
    threads: u32,
    ids: Id,
    scope: Vec<Known>,
    /// Earlier computations, which [`Generator::again`] repeats.
    computed: Vec<Stmt>,
}

impl Generator {
    fn chance(&mut self, n: u32) -> bool {
        self.random.once_in(n)
    }

    fn fresh(&mut self, ty: Type, uniform: bool, bound: Option<u32>) -> Id {
        self.ids += 1;
        self.scope.push(Known { id: self.ids, ty, uniform, bound });
        self.ids
    }

    /// Statements that read the thread's indices and some parameters.
    fn start(&mut self) -> Vec<Stmt> {
        let mut list = Vec::new();
        let mut leaf = |generator: &mut Generator, op, ty, uniform, bound| {
            let result = generator.fresh(ty, uniform, bound);
            list.push(Stmt::Compute { op, ty, args: Vec::new(), results: vec![result] });
        };
        leaf(self, Op::Special(Special::TidX), Type::U32, false, Some(self.threads));
        leaf(self, Op::Special(Special::LaneId), Type::U32, false, Some(32));
        leaf(self, Op::Special(Special::CtaidX), Type::U32, true, Some(2));
        if self.chance(4) {
            let special = self.random.pick(&[
                Special::TidY,
                Special::TidZ,
                Special::NtidX,
                Special::NtidY,
                Special::NtidZ,
                Special::CtaidY,
                Special::CtaidZ,
                Special::NctaidX,
                Special::NctaidY,
                Special::NctaidZ,
            ]);
            leaf(self, Op::Special(special), Type::U32, true, None);
        }
        for (index, (_, ty)) in SCALARS.into_iter().enumerate() {
            if self.chance(2) {
                leaf(self, Op::Param((POINTERS.len() + index) as u32), ty, true, None);
            }
        }
        list
    }

    fn program(mut self, seed: u64, mut body: Vec<Stmt>) -> Program {
        let at = At { depth: 3, together: true, returns: false };
        body.extend(self.list(at, 4, 20));
        let tail = self.list(At { depth: 2, together: false, returns: true }, 0, 8);
        let visible = self.scope.clone();
        let mut stored: Vec<Operand> =
            visible.iter().map(|known| Operand::value(known.ty, known.id)).collect();
        // Unused results are work for dead code elimination.
        stored.retain(|_| !self.random.once_in(4));
        Program {
            ctas: 1 + self.random.below(2),
            threads: self.threads,
            fixed_threads: !self.random.once_in(4),
            seed,
            body,
            tail,
            stored,
            unreachable: self.random.once_in(8),
        }
    }

    fn list(&mut self, at: At, least: u32, more: u32) -> Vec<Stmt> {
        let mut list = Vec::new();
        for _ in 0..least + self.random.below(more) {
            self.statement(at, &mut list);
        }
        list
    }

    fn statement(&mut self, at: At, list: &mut Vec<Stmt>) {
        let stmt = match self.random.below(if at.depth > 0 { 26 } else { 20 }) {
            0..=9 => self.compute(),
            10 if self.chance(2) => self.again(),
            10 => self.related(),
            11..=13 if self.chance(4) => return self.neighbours(list),
            11 | 12 => self.load(),
            13 => self.store(),
            14 => self.atomic(),
            15 => self.guarded(),
            16 => self.copy(),
            17 => self.effect(at),
            18 | 19 if at.together => self.collective(),
            18 | 19 => self.compute(),
            20..=22 => self.conditional(at),
            _ => self.repetition(at),
        };
        list.push(stmt);
        if at.returns && at.depth < 2 && self.chance(12) {
            list.push(Stmt::Return);
        }
    }

    fn constant(&mut self, ty: Type) -> Operand {
        if ty == Type::Pred {
            return Operand::bits(ty, self.random.below(2).into());
        }
        Operand::bits(ty, numbers::bits(&mut self.random, ty))
    }

    /// An operand: a value in scope, often a recent one, or a constant.
    fn operand(&mut self, ty: Type) -> Operand {
        let known: Vec<Id> = self.scope.iter().filter(|known| known.ty == ty).map(|known| known.id).collect();
        if known.is_empty() || self.chance(4) {
            return self.constant(ty);
        }
        let recent = if self.chance(2) { known.len().saturating_sub(4) } else { 0 };
        Operand::value(ty, self.random.pick(&known[recent..]))
    }

    fn operands(&mut self, types: &[Type]) -> Vec<Operand> {
        types.iter().map(|&ty| self.operand(ty)).collect()
    }

    fn is_uniform(&self, operand: &Operand) -> bool {
        match operand.source {
            Source::Bits(_) => true,
            Source::Value(id) => self.scope.iter().any(|known| known.id == id && known.uniform),
        }
    }

    fn results(&mut self, op: Op, ty: Type, args: &[Operand]) -> Vec<Id> {
        let uniform = op.is_movable() && args.iter().all(|arg| self.is_uniform(arg));
        let types = op.signature(ty).map(|signature| signature.results).unwrap_or_default();
        types.into_iter().map(|ty| self.fresh(ty, uniform, None)).collect()
    }

    fn pure(&mut self, op: Op, ty: Type, args: Vec<Operand>) -> Stmt {
        let results = self.results(op, ty, &args);
        let stmt = Stmt::Compute { op, ty, args, results };
        self.computed.push(stmt.clone());
        stmt
    }

    fn compute(&mut self) -> Stmt {
        if self.chance(5) {
            return self.convert();
        }
        let (op, ty) = if self.chance(2) {
            let ty = self.random.pick(&[Type::U32, Type::U32, Type::I32, Type::U64, Type::I64]);
            (self.random.pick(&PLAIN), ty)
        } else {
            let (op, types) = &PURE[self.random.below(PURE.len() as u32) as usize];
            (*op, self.random.pick(types))
        };
        let op = self.immediates(op);
        let mut args = self.operands(&operand_types(op, ty).unwrap_or_default());
        if args.len() >= 2 && args[0].ty == args[1].ty && self.chance(16) {
            args[1] = args[0];
        }
        // Most shift amounts are less than the width.
        if matches!(op, Op::Binary(Binary::Shl | Binary::Shr)) && self.chance(2) {
            args[1] = Operand::bits(Type::U32, self.random.below(ty.bits()).into());
        }
        self.pure(op, ty, args)
    }

    fn immediates(&mut self, op: Op) -> Op {
        let mut flag = || self.random.once_in(2);
        match op {
            Op::Lop3(_) => Op::Lop3(self.random.next() as u8),
            Op::Funnel { .. } => Op::Funnel { left: flag() },
            Op::Dp4a { .. } => Op::Dp4a { a_signed: flag(), b_signed: flag() },
            Op::Dp2a { .. } => Op::Dp2a { a_signed: flag(), b_signed: flag(), high: flag() },
            op => op,
        }
    }

    fn convert(&mut self) -> Stmt {
        if self.chance(4) {
            let from = self.random.pick(&TYPES[1..]);
            let alike: Vec<Type> = TYPES[1..].iter().copied().filter(|ty| ty.bits() == from.bits()).collect();
            let to = self.random.pick(&alike);
            let arg = self.operand(from);
            return self.pure(Op::Bitcast, to, vec![arg]);
        }
        let scalars: Vec<Type> = TYPES[1..].iter().copied().filter(|ty| ty.half().is_none()).collect();
        let (from, to) = (self.random.pick(&scalars), self.random.pick(&scalars));
        let (rounding, saturate) = (self.random.pick(Rounding::ALL), to != Type::Bf16 && self.chance(4));
        let arg = self.operand(from);
        self.pure(Op::Convert { rounding, saturate }, to, vec![arg])
    }

    /// Repeats an earlier computation, for value numbering.
    fn again(&mut self) -> Stmt {
        if self.computed.is_empty() {
            return self.compute();
        }
        let index = self.random.below(self.computed.len() as u32) as usize;
        let Stmt::Compute { op, ty, args, .. } = self.computed[index].clone() else { return self.compute() };
        let results = self.results(op, ty, &args);
        Stmt::Compute { op, ty, args, results }
    }

    /// The inverse of an earlier computation, or a comparison of its result.
    fn related(&mut self) -> Stmt {
        let visible = |generator: &Generator, id: Id| generator.scope.iter().any(|known| known.id == id);
        let recent = self.computed.len().saturating_sub(12);
        let candidates: Vec<Stmt> = self.computed[recent..].to_vec();
        let chosen = self.random.below(candidates.len() as u32) as usize;
        let Some(Stmt::Compute { op, ty, args, results }) = candidates.get(chosen).cloned() else {
            return self.compute();
        };
        if !results.iter().all(|&id| visible(self, id)) {
            return self.compute();
        }
        let types = op.signature(ty).map(|signature| signature.results).unwrap_or_default();
        let values: Vec<Operand> =
            types.iter().zip(&results).map(|(&ty, &id)| Operand::value(ty, id)).collect();
        let (value, result) = (values[0], types[0]);
        match op {
            Op::Unary(Unary::Neg | Unary::Not | Unary::Brev) => self.pure(op, ty, vec![value]),
            Op::Unpack => self.pure(Op::Pack, args[0].ty, values),
            Op::Pack => self.pure(Op::Unpack, args[0].ty, vec![value]),
            Op::Convert { saturate: true, .. } if args[0].ty == Type::Bf16 => self.compute(),
            Op::Bitcast | Op::Convert { .. } => self.pure(op, args[0].ty, vec![value]),
            Op::Compare(_) => self.pure(Op::Unary(Unary::Not), Type::Pred, vec![value]),
            Op::Binary(Binary::Shl) => self.pure(Op::Binary(Binary::Shr), ty, vec![value, args[1]]),
            Op::Binary(Binary::Add) => self.pure(Op::Binary(Binary::Sub), ty, vec![value, args[1]]),
            Op::Binary(_) if ty.is_int() => {
                let constant = self.constant(ty);
                let compare = self.random.pick(Compare::ALL);
                self.pure(Op::Compare(compare), ty, vec![value, constant])
            }
            // The second operand is the neutral element, or almost.
            _ if result.is_float() => {
                let bits = match (result.half().unwrap_or(result), self.random.below(3)) {
                    (_, 0) => 0,
                    (half, 1) => 1 << (half.bits() - 1),
                    (Type::F16, _) => 0x3c00,
                    (Type::Bf16, _) => 0x3f80,
                    _ => 0x3f80_0000,
                };
                let bits = if result.half().is_some() { bits << 16 | bits } else { bits };
                let binary = self.random.pick(&[Binary::Add, Binary::Sub, Binary::Mul]);
                let mut args = vec![value, Operand::bits(result, bits)];
                if self.chance(2) {
                    args[0] = self.operand(result);
                }
                self.pure(Op::Binary(binary), result, args)
            }
            _ => self.compute(),
        }
    }

    /// A condition; uniform in the CTA if required.
    fn condition(&mut self, uniform: bool) -> Operand {
        let known: Vec<Id> = self
            .scope
            .iter()
            .filter(|known| known.ty == Type::Pred && (known.uniform || !uniform))
            .map(|known| known.id)
            .collect();
        if known.is_empty() || self.chance(8) {
            return self.constant(Type::Pred);
        }
        Operand::value(Type::Pred, self.random.pick(&known))
    }

    fn conditional(&mut self, at: At) -> Stmt {
        let uniform = at.together && self.chance(2);
        let condition = self.condition(uniform);
        let together = at.together && self.is_uniform(&condition);
        let inner = At { depth: at.depth - 1, together, ..at };
        let types: Vec<Type> = (0..self.random.below(4)).map(|_| self.random.pick(&TYPES)).collect();
        let before = self.scope.len();
        let arm = |generator: &mut Generator, most: u32| {
            let list = generator.list(inner, 0, most);
            let merged = generator.operands(&types);
            let uniform: Vec<bool> = merged.iter().map(|operand| generator.is_uniform(operand)).collect();
            generator.scope.truncate(before);
            (list, merged, uniform)
        };
        // If-conversion applies to small branches only.
        let sizes = self.random.pick(&[(3, 1), (3, 3), (8, 1), (8, 8)]);
        let (then, yes, yes_uniform) = arm(self, sizes.0);
        let (otherwise, no, no_uniform) = arm(self, sizes.1);
        let mut merges = Vec::new();
        for (index, (then, otherwise)) in yes.into_iter().zip(no).enumerate() {
            let uniform = together && yes_uniform[index] && no_uniform[index];
            let id = self.fresh(then.ty, uniform, None);
            merges.push(Merge { id, then, otherwise });
        }
        Stmt::If(If { condition, then, otherwise, direct: self.chance(2), merges })
    }

    fn repetition(&mut self, at: At) -> Stmt {
        let ty =
            self.random.pick(&[Type::U32, Type::U32, Type::I32, Type::U64, Type::I64, Type::U16, Type::I8]);
        let test_at_end = self.chance(3);
        let constant = self.chance(2);
        let trips = if constant {
            Trips::Constant(self.random.below(5).max(test_at_end.into()))
        } else {
            Trips::Modulo4(self.operand(Type::U32))
        };
        let step = self.random.pick(&[1, 1, 1, 2, 5, -1]);
        let ordered = if step > 0 { Compare::Lt } else { Compare::Gt };
        // A loop with its test at the end and an exact comparison would miss its limit if its trip count were 0.
        let exact = self.chance(4) && (constant || !test_at_end);
        let compare = if exact { Compare::Ne } else { ordered };
        // A counter that is compared for equality may wrap.
        let start = match (exact, step > 0) {
            (true, _) => numbers::bits(&mut self.random, ty),
            (_, true) => self.random.pick(&[0, 0, 1, 3, 40]),
            _ => 40,
        };
        let inits: Vec<Operand> = (0..self.random.below(4))
            .map(|_| {
                let ty = self.random.pick(&TYPES);
                self.operand(ty)
            })
            .collect();
        let leaves = self.chance(4);
        let together = at.together && !leaves && constant;
        let before = self.scope.len();
        let bound = (ty == Type::U32 && compare == Compare::Lt)
            .then(|| start as u32 + step as u32 * if constant { 4 } else { 3 });
        let counter = self.fresh(ty, together, bound.map(|bound| bound.max(start as u32 + 1)));
        let inside: Vec<Id> = inits.iter().map(|init| self.fresh(init.ty, false, None)).collect();
        let most = self.random.pick(&[2, 8]);
        let body = self.list(At { depth: at.depth - 1, together, ..at }, 1, most);
        let leave = leaves.then(|| self.condition(false));
        let nexts: Vec<Operand> = inits.iter().map(|init| self.operand(init.ty)).collect();
        self.scope.truncate(before);
        let carried = inits
            .into_iter()
            .zip(nexts)
            .zip(inside)
            .map(|((init, next), inside)| {
                let after = self.fresh(init.ty, false, None);
                Carried { inside, after, init, next }
            })
            .collect();
        Stmt::Loop(Loop { counter, ty, start, step, trips, compare, test_at_end, carried, body, leave })
    }
}

/// The pure opcodes that the generated kernels use, with the types of each.
pub fn pure_operations() -> &'static [(Op, Vec<Type>)] {
    &PURE
}
