//! Random well-typed kernels that compute the same however their threads take turns, and stay in bounds.

use std::sync::LazyLock;

use bespoke_codegen::ir::{
    Access, Atomic, Binary, Cache, Compare, Mma, MmaElement, MmaShape, Op, Order, Ordering, Rounding, Scope,
    Shuffle, Special, Type, Unary, Vote,
};

use crate::lower::{POINTERS, SCALARS, operand_types};
use crate::numbers::{self, Random};
use crate::program::*;

/// Types that values are made of.
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

/// What a kernel of this seed is.
pub fn program(seed: u64) -> Program {
    let mut random = Random(seed);
    let threads = random.pick(&[32, 64, 64, 96]);
    let mut generator = Generator { random, threads, ids: 0, scope: Vec::new(), computed: Vec::new() };
    let body = generator.start();
    generator.program(seed, body)
}

/// Pure operations that need nothing but operands, with the types they have. Immediates are chosen later.
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

/// What address computations and conditions are made of.
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

/// A value that may be used.
#[derive(Clone, Copy)]
struct Known {
    id: Id,
    ty: Type,
    /// The same in all threads of a CTA.
    uniform: bool,
    /// A u32 below this.
    bound: Option<u32>,
}

/// Where a statement stands.
#[derive(Clone, Copy)]
struct At {
    /// How deep structures may nest.
    depth: u32,
    /// All threads of the CTA come here together.
    together: bool,
    /// Threads may return.
    returns: bool,
}

struct Generator {
    random: Random,
    threads: u32,
    ids: Id,
    scope: Vec<Known>,
    /// What has been computed, to compute it again.
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

    /// The thread's numbers and some parameters.
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
        // What nobody needs is for dead code elimination.
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
            10 => self.again(),
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

    /// A value in scope, a recent one for choice, or a constant.
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
        let (_, types) = op.signature(ty).unwrap_or_default();
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
        // Shifts by less than the width, most often.
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
        let (rounding, saturate) = (self.random.pick(Rounding::ALL), self.chance(4));
        let arg = self.operand(from);
        self.pure(Op::Convert { rounding, saturate }, to, vec![arg])
    }

    /// What an earlier statement computes, once more.
    fn again(&mut self) -> Stmt {
        if self.computed.is_empty() {
            return self.compute();
        }
        let index = self.random.below(self.computed.len() as u32) as usize;
        let Stmt::Compute { op, ty, args, .. } = self.computed[index].clone() else { return self.compute() };
        let results = self.results(op, ty, &args);
        Stmt::Compute { op, ty, args, results }
    }

    /// An index and its greatest value.
    fn index(&mut self, most: u32) -> Option<(Operand, Option<u32>, u32)> {
        let small: Vec<Known> =
            self.scope.iter().filter(|known| known.bound.is_some_and(|b| b <= most + 1)).copied().collect();
        if !small.is_empty() && self.chance(2) {
            let known = self.random.pick(&small);
            return Some((Operand::value(Type::U32, known.id), None, known.bound.unwrap_or(1) - 1));
        }
        let bits = (most + 1).ilog2();
        if bits == 0 {
            return None;
        }
        let mask = (1 << (1 + self.random.below(bits))) - 1;
        Some((self.operand(Type::U32), Some(mask), mask))
    }

    /// Where `bytes` bytes may be accessed, aligned to them.
    fn place(&mut self, region: Region, bytes: u32) -> Place {
        let room = region.bytes() - bytes;
        let mut index = None;
        let (mut least, mut used) = (0, 0);
        if self.chance(if region == Region::Input { 8 } else { 2 }) {
        } else if let Some((value, mask, greatest)) = self.index(room / bytes) {
            let most = (room / bytes).checked_div(greatest).unwrap_or(4).min(5);
            let scale = bytes * (1 + self.random.below(most));
            let form = self.random.pick(&[
                Form::Wide,
                Form::WideSigned,
                Form::Converted,
                Form::Shifted,
                Form::Narrow,
                Form::NarrowSigned,
            ]);
            let signed = matches!(form, Form::WideSigned | Form::NarrowSigned);
            let add = match self.random.below(3) {
                0 => 0,
                1 if signed => -(self.random.below(9) as i32),
                _ => self.random.below(9) as i32,
            };
            index = Some(Index { value, mask, wraps: self.chance(3), add, scale, form });
            (least, used) = (add * scale as i32, greatest * scale);
        }
        // The last byte that is reached is the region's last one, or the first one its first.
        let slack = (room - used) / bytes;
        let begin = bytes * self.random.below(slack + 1);
        let begin = self.random.pick(&[0, begin, begin, slack * bytes]) as i32;
        let rest = begin - least;
        let (near, far) = (self.random.below(17) as i32 * 4 - 32, self.random.below(5) as i32 * 4000 - 8000);
        let step = self.random.pick(&[0, 0, rest, near, far]);
        Place { region, index, step, offset: rest - step }
    }

    fn element(&mut self) -> Type {
        self.random.pick(&TYPES[1..])
    }

    fn access(&mut self, ty: Type, region: Region, load: bool) -> Access {
        let vector = self.random.pick(&[1, 1, 1, 2, 4]);
        let vector = if u32::from(vector) * ty.bytes() > 16 { 1 } else { vector };
        let mut access = Access { vector, ..Access::SCALAR };
        let caches: &[Cache] = match (region, load) {
            (Region::Shared, _) => &[Cache::Default, Cache::Volatile],
            (Region::Input, true) => Cache::ALL,
            _ => &[Cache::Default, Cache::L2, Cache::Streaming, Cache::Volatile],
        };
        access.cache = if self.chance(2) { self.random.pick(caches) } else { Cache::Default };
        if access.cache == Cache::Default && vector == 1 && self.chance(6) {
            let other = if load { Order::Acquire } else { Order::Release };
            let order = self.random.pick(&[Order::Relaxed, other]);
            access.ordering = Some(order.among(self.random.pick(Scope::ALL)));
        } else if access.cache != Cache::Volatile && region != Region::Shared {
            access.hinted = self.chance(8);
        }
        access
    }

    fn load(&mut self) -> Stmt {
        let region = self.random.pick(&[Region::Input, Region::Input, Region::Scratch, Region::Shared]);
        let ty = self.element();
        let access = self.access(ty, region, true);
        let place = self.place(region, ty.bytes() * u32::from(access.vector));
        let results = (0..access.vector).map(|_| self.fresh(ty, false, None)).collect();
        Stmt::Load { ty, access, place, results }
    }

    fn store(&mut self) -> Stmt {
        let region = self.random.pick(&[Region::Scratch, Region::Scratch, Region::Shared]);
        let ty = self.element();
        let access = self.access(ty, region, false);
        let place = self.place(region, ty.bytes() * u32::from(access.vector));
        let values = self.operands(&vec![ty; access.vector.into()]);
        Stmt::Store { ty, access, place, values }
    }

    fn atomic(&mut self) -> Stmt {
        let ordering = Ordering {
            order: self.random.pick(Order::ALL),
            scope: self.random.pick(&[Scope::Gpu, Scope::Sys]),
        };
        let types = [Type::U32, Type::I32, Type::U64, Type::I64];
        if self.chance(2) {
            // All threads change the words of the table; the order does not show if a word has one operation.
            let commutative = [Atomic::Add, Atomic::Min, Atomic::Max, Atomic::And, Atomic::Or, Atomic::Xor];
            let (row, column) = (self.random.below(4), self.random.below(6));
            let ty = types[row as usize];
            let offset = ((row * 6 + column) * 8) as i32;
            let place = Place { region: Region::Table, index: None, step: 0, offset };
            let values = self.operands(&[ty]);
            return Stmt::Atomic {
                op: commutative[column as usize],
                ty,
                ordering,
                place,
                values,
                result: None,
            };
        }
        let op = self.random.pick(Atomic::ALL);
        let ty = if op == Atomic::Add && self.chance(3) { Type::F32 } else { self.random.pick(&types) };
        let region = self.random.pick(&[Region::Scratch, Region::Shared]);
        let place = self.place(region, ty.bytes());
        let values = self.operands(&vec![ty; 1 + usize::from(op == Atomic::Cas)]);
        let result = Some(self.fresh(ty, false, None)).filter(|_| !self.random.once_in(3));
        Stmt::Atomic { op, ty, ordering, place, values, result }
    }

    fn guarded(&mut self) -> Stmt {
        let (index, ty) = (self.operand(Type::U32), self.element());
        let bound = self.random.pick(&[1, 5, 16, 32, 60]);
        let otherwise = self.operand(ty);
        let result = self.fresh(ty, false, None);
        Stmt::Guarded { index, bound, ty, otherwise, result }
    }

    fn copy(&mut self) -> Stmt {
        let bytes = self.random.pick(&[4, 8, 16]);
        let place = self.place(Region::Input, bytes.into());
        Stmt::CopyAsync { bytes, place, result: self.fresh(Type::U32, false, None) }
    }

    fn effect(&mut self, at: At) -> Stmt {
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
    fn collective(&mut self) -> Stmt {
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

    fn product(&mut self) -> Stmt {
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

    /// A condition, the same in all threads if asked for.
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
        // Small arms are what branches turn into selections for.
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
        // A loop whose test stands behind the body would miss its limit if it should not run at all.
        let exact = self.chance(4) && (constant || !test_at_end);
        let compare = if exact { Compare::Ne } else { ordered };
        // The counter may wrap if it is compared for equality.
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

/// The pure operations of operands alone that kernels are made of, with their types.
pub fn pure_operations() -> &'static [(Op, Vec<Type>)] {
    &PURE
}
