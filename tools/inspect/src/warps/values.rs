//! Abstract values of a kernel's IR for one thread of a CTA: constants, and addresses by their base.
//!
//! The thread's index is known, and so are the branches that depend on it alone: of those, only the side that the thread
//! takes is reachable. What the kernel loads, the CTA's index and the number of CTAs are unknown.

use bespoke_codegen::ir::{
    Binary, Block, Compare, Function, Inst, InstData, Op, SharedVar, Special, Type, Value,
};

/// What an address is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Base {
    /// A static variable in shared memory.
    Shared(SharedVar),
    /// Dynamic shared memory.
    Dynamic,
    /// A kernel parameter, by its index.
    Param(u32),
}

/// Value of an operand in one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Constant(u64),
    /// Address at `offset` from a base; plus something unknown if it `varies`.
    Address {
        base: Base,
        offset: i64,
        varies: bool,
    },
    Unknown,
}

impl Known {
    fn join(self, other: Known) -> Known {
        match (self, other) {
            _ if self == other => self,
            (Known::Address { base, offset, varies }, Known::Address { base: second, offset: o, .. })
                if base == second =>
            {
                // An address that varies already keeps its offset, so that joins end.
                Known::Address { base, offset: if varies { offset } else { offset.min(o) }, varies: true }
            }
            _ => Known::Unknown,
        }
    }
}

/// Values of one thread, and the blocks that it may reach.
pub(super) struct Thread<'f> {
    function: &'f Function,
    index: [u32; 3],
    lane: u32,
    /// By number; `None` before the first definition is evaluated.
    values: Vec<Option<Known>>,
    /// Whether the thread may reach the block of each number.
    reached: Vec<bool>,
}

impl<'f> Thread<'f> {
    /// Evaluates a kernel for the thread with an index in the CTA, and a lane in its warp.
    pub(super) fn evaluate(function: &'f Function, index: [u32; 3], lane: u32) -> Thread<'f> {
        let (values, reached) = (vec![None; function.value_count()], vec![false; function.block_count()]);
        let mut thread = Thread { function, index, lane, values, reached };
        if let Some(&entry) = function.layout.first() {
            thread.reach(entry);
        }
        while thread.pass() {}
        thread
    }

    /// Instructions that the thread may execute.
    pub(super) fn instructions(&self) -> impl Iterator<Item = Inst> + '_ {
        let reached = self.function.layout.iter().filter(|block| self.reached[block.as_u32() as usize]);
        reached.flat_map(|&block| self.function.block(block).insts.iter().copied())
    }

    /// Marks a block as reached; returns whether it was not reached before.
    fn reach(&mut self, block: Block) -> bool {
        !std::mem::replace(&mut self.reached[block.as_u32() as usize], true)
    }

    pub(super) fn value(&self, value: Value) -> Known {
        self.values[value.as_u32() as usize].unwrap_or(Known::Unknown)
    }

    /// The constant of a value; `None` if it is unknown.
    pub(super) fn constant(&self, value: Value) -> Option<u64> {
        match self.value(value) {
            Known::Constant(bits) => Some(bits),
            _ => None,
        }
    }

    /// Evaluates all reached blocks once; returns whether a value changed or a block was reached.
    fn pass(&mut self) -> bool {
        let function = self.function;
        let mut changed = false;
        for &block in &function.layout {
            if !self.reached[block.as_u32() as usize] {
                continue;
            }
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                let known = self.result(data);
                for (at, &result) in data.results.iter().enumerate() {
                    changed |= self.set(result, if at == 0 { known } else { Known::Unknown });
                }
                let taken = match data.op {
                    Op::Branch => self.constant(data.args[0]).map(|bits| (bits & 1 == 0) as usize),
                    _ => None,
                };
                for (at, dest) in data.dests.iter().enumerate() {
                    if taken.is_some_and(|taken| taken != at) {
                        continue;
                    }
                    for (&arg, &param) in dest.args.iter().zip(&function.block(dest.block).params) {
                        if let Some(known) = self.values[arg.as_u32() as usize] {
                            changed |= self.set(param, known);
                        }
                    }
                    changed |= self.reach(dest.block);
                }
            }
        }
        changed
    }

    /// Joins `known` into the value; returns whether the value changed.
    fn set(&mut self, value: Value, known: Known) -> bool {
        let old = &mut self.values[value.as_u32() as usize];
        let joined = old.map_or(known, |old| old.join(known));
        old.replace(joined) != Some(joined)
    }

    fn result(&self, data: &InstData) -> Known {
        let arg = |at: usize| self.value(data.args[at]);
        match data.op {
            Op::Const(bits) => Known::Constant(bits),
            Op::Param(index) => Known::Address { base: Base::Param(index), offset: 0, varies: false },
            Op::SharedAddress(variable) => {
                Known::Address { base: Base::Shared(variable), offset: 0, varies: false }
            }
            Op::DynamicShared => Known::Address { base: Base::Dynamic, offset: 0, varies: false },
            Op::Special(special) => self.special(special),
            // A device may elect another lane, but always the same.
            Op::Elect => Known::Constant((self.lane == 0) as u64),
            Op::MapShared => arg(0),
            Op::PtrAdd => match (arg(0), arg(1)) {
                (Known::Address { base, offset, varies }, Known::Constant(bits)) => {
                    let by = signed(self.function.value_type(data.args[1]), bits);
                    Known::Address { base, offset: offset.wrapping_add(by), varies }
                }
                (Known::Address { base, offset, .. }, _) => Known::Address { base, offset, varies: true },
                _ => Known::Unknown,
            },
            Op::Select => match arg(0) {
                Known::Constant(bits) => arg(if bits & 1 != 0 { 1 } else { 2 }),
                _ => arg(1).join(arg(2)),
            },
            // A zero decides a conjunction with something unknown.
            Op::Binary(Binary::And) if [arg(0), arg(1)].contains(&Known::Constant(0)) => Known::Constant(0),
            _ => {
                let constants: Option<Vec<u64>> = data.args.iter().map(|&arg| self.constant(arg)).collect();
                let result = constants.and_then(|args| integer(data.op, data.ty, &args));
                result.map_or(Known::Unknown, Known::Constant)
            }
        }
    }

    fn special(&self, special: Special) -> Known {
        let [x, y, z] = self.function.threads_by_axis().unwrap_or([1, 1, 1]);
        Known::Constant(match special {
            Special::TidX => self.index[0].into(),
            Special::TidY => self.index[1].into(),
            Special::TidZ => self.index[2].into(),
            Special::NtidX => x.into(),
            Special::NtidY => y.into(),
            Special::NtidZ => z.into(),
            Special::LaneId => self.lane.into(),
            _ => return Known::Unknown,
        })
    }
}

/// Value of the bits of an integer.
fn signed(ty: Type, bits: u64) -> i64 {
    match ty {
        Type::I32 => bits as u32 as i32 as i64,
        Type::U32 => bits as u32 as i64,
        _ => bits as i64,
    }
}

/// Result of an integer operation of 32 or 64 bits, or of a predicate; `None` if it is not evaluated here.
fn integer(op: Op, ty: Type, args: &[u64]) -> Option<u64> {
    let wide = match ty {
        Type::U64 | Type::I64 => true,
        Type::U32 | Type::I32 | Type::Pred => false,
        _ => return None,
    };
    let number =
        |at: usize| signed(ty, args[at]) as i128 & if ty == Type::U64 { u64::MAX as i128 } else { -1 };
    let result = match op {
        Op::Binary(Binary::Shl) if args[1] < 64 => number(0) << args[1],
        Op::Binary(Binary::Shr) => number(0) >> args[1].min(63),
        Op::Binary(binary) => {
            let (a, b) = (number(0), number(1));
            match binary {
                Binary::Add => a + b,
                Binary::Sub => a - b,
                Binary::Mul => a.wrapping_mul(b),
                Binary::Div if b != 0 => a / b,
                Binary::Rem if b != 0 => a % b,
                Binary::Min => a.min(b),
                Binary::Max => a.max(b),
                Binary::And => a & b,
                Binary::Or => a | b,
                Binary::Xor => a ^ b,
                _ => return None,
            }
        }
        Op::MulAdd => number(0).wrapping_mul(number(1)).wrapping_add(number(2)),
        Op::MulWide => return Some((number(0).wrapping_mul(number(1))) as u64),
        Op::Compare(compare) => {
            let (a, b) = (number(0), number(1));
            return Some(match compare {
                Compare::Eq => a == b,
                Compare::Ne => a != b,
                Compare::Lt => a < b,
                Compare::Le => a <= b,
                Compare::Gt => a > b,
                Compare::Ge => a >= b,
            } as u64);
        }
        _ => return None,
    };
    Some(match (ty, wide) {
        (Type::Pred, _) => result as u64 & 1,
        (_, true) => result as u64,
        (_, false) => result as u32 as u64,
    })
}
