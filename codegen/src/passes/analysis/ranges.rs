//! Range analysis: bounds of integer values, derived from the defining instructions, the launch limits of special
//! registers, the conditions of dominating branches, and assumptions.

use rustc_hash::FxHashMap;

use crate::ir::{
    Binary, Block, Compare, Def, Function, Inst, InstData, Op, Predecessors, Special, Type, Unary, Value,
};

use super::Dominators;

/// An inclusive interval of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Least number of the interval.
    pub min: i128,
    /// Greatest number of the interval.
    pub max: i128,
}

impl Range {
    /// The range of all values of an integer type.
    pub fn of_type(ty: Type) -> Range {
        let bits = ty.bits();
        if ty.is_signed() {
            Range { min: -(1 << (bits - 1)), max: (1 << (bits - 1)) - 1 }
        } else {
            Range { min: 0, max: (1 << bits) - 1 }
        }
    }

    fn single(number: i128) -> Range {
        Range { min: number, max: number }
    }

    fn contains(self, other: Range) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    /// The intersection of both ranges; the first range if they are disjoint, as in unreachable code.
    fn and(self, other: Range) -> Range {
        let both = Range { min: self.min.max(other.min), max: self.max.min(other.max) };
        if both.min <= both.max { both } else { self }
    }

    fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Range) -> Range {
        let corner = |a: i128, b: i128| a.saturating_mul(b);
        let corners = [
            corner(self.min, other.min),
            corner(self.min, other.max),
            corner(self.max, other.min),
            corner(self.max, other.max),
        ];
        let fold = |pick: fn(i128, i128) -> i128| corners.into_iter().reduce(pick).unwrap_or(0);
        Range { min: fold(i128::min), max: fold(i128::max) }
    }
}

/// Maximum length of a chain of definitions to follow.
const MAX_DEPTH: u32 = 10;
/// Maximum number of dominating conditions to consider.
const MAX_CONDITIONS: usize = 32;

/// Ranges of a function's values. Valid as long as blocks and jumps do not change; instructions may.
pub struct Ranges {
    doms: Dominators,
    preds: Predecessors,
    /// Assumptions by block.
    facts: FxHashMap<Block, Vec<Inst>>,
}

impl Ranges {
    /// Creates the analysis of a function.
    pub fn new(function: &Function) -> Ranges {
        let mut facts: FxHashMap<Block, Vec<Inst>> = FxHashMap::default();
        for &block in &function.layout {
            let insts = function.block(block).insts.iter().copied();
            let own: Vec<Inst> =
                insts.filter(|&inst| matches!(function.inst(inst).op, Op::Assume(_))).collect();
            if !own.is_empty() {
                facts.insert(block, own);
            }
        }
        Ranges { doms: Dominators::new(function), preds: function.predecessors(), facts }
    }

    /// Range of an integer value wherever `block` is executed.
    pub fn of(&self, function: &Function, block: Block, value: Value) -> Range {
        Query { ranges: self, function, block }.range(value, MAX_DEPTH)
    }

    /// Value of the condition in `block`, if a dominating branch determines it.
    pub fn implied(&self, function: &Function, block: Block, condition: Value) -> Option<bool> {
        let mut found = None;
        Query { ranges: self, function, block }.dominating(|known, holds| {
            found = found.or((known == condition).then_some(holds));
        });
        found
    }

    /// Whether the product of two integers does not wrap in `block`.
    pub fn exact_product(&self, function: &Function, block: Block, [a, b]: [Value; 2]) -> bool {
        let range = |value| self.of(function, block, value);
        fits(function.value_type(a), range(a).times(range(b)))
    }

    /// For a wrapping sum of a value and a constant: the non-negative or negative number, equal to the constant modulo
    /// 2^width, with which the sum does not wrap; none if the sum may wrap with both.
    pub fn exact_summand(&self, function: &Function, block: Block, (x, c): (Value, u64)) -> Option<i64> {
        let ty = function.value_type(x);
        let range = self.of(function, block, x);
        exact_summands(ty, c).into_iter().find(|&c| fits(ty, range.plus(Range::single(c))))?.try_into().ok()
    }
}

/// The non-negative and the negative number equal to the constant modulo 2^width, smaller magnitude first.
fn exact_summands(ty: Type, c: u64) -> [i128; 2] {
    let (signed, unsigned) = (i128::from(ty.sign_extend(c)), i128::from(c));
    [signed, if signed < 0 { unsigned } else { unsigned - (1 << ty.bits()) }]
}

fn fits(ty: Type, range: Range) -> bool {
    Range::of_type(ty).contains(range)
}

struct Query<'a> {
    ranges: &'a Ranges,
    function: &'a Function,
    block: Block,
}

impl Query<'_> {
    fn range(&self, value: Value, depth: u32) -> Range {
        let ty = self.function.value_type(value);
        let any = Range::of_type(ty);
        if depth == 0 && ty.is_int() {
            let bits = self.function.constant(value);
            let number = |bits| if ty.is_signed() { ty.sign_extend(bits).into() } else { bits.into() };
            return bits.map_or(any, |bits| Range::single(number(bits)));
        }
        if !ty.is_int() {
            return any;
        }
        let computed = match self.function.value_def(value) {
            Def::Result(inst, _) => self.result(self.function.inst(inst), ty, depth - 1).unwrap_or(any),
            Def::Param(block, index) => self.param(block, index as usize, value, depth - 1),
        };
        computed.and(self.conditions(value, any, depth - 1))
    }

    /// Range of a result from the ranges of the operands; none if it is unknown or the result may wrap.
    fn result(&self, data: &InstData, ty: Type, depth: u32) -> Option<Range> {
        let arg = |index: usize| self.range(data.args[index], depth);
        let range = match data.op {
            Op::Const(bits) if ty.is_signed() => Range::single(ty.sign_extend(bits).into()),
            Op::Const(bits) => Range::single(bits.into()),
            Op::Special(special) => Range { min: 0, max: self.limit(special)? },
            Op::Unary(Unary::Popc | Unary::Clz) => Range { min: 0, max: data.ty.bits().into() },
            Op::Binary(binary) => self.binary(binary, data, ty, depth)?,
            Op::MulWide => arg(0).times(arg(1)),
            Op::MulAdd => arg(0).times(arg(1)).plus(arg(2)),
            Op::Select => arg(1).union(arg(2)),
            Op::Convert { saturate: false, .. } | Op::Bitcast
                if self.function.value_type(data.args[0]).is_int() =>
            {
                arg(0)
            }
            Op::BitField if ty.is_unsigned() => {
                // PTX takes longer fields modulo 256, but devices do not for 64-bit fields.
                let length = self.function.constant(data.args[2]).filter(|&length| length <= 255)?;
                Range { min: 0, max: (1 << length.min(64)) - 1 }
            }
            _ => return None,
        };
        fits(ty, range).then_some(range)
    }

    fn binary(&self, binary: Binary, data: &InstData, ty: Type, depth: u32) -> Option<Range> {
        let (a, b) = (self.range(data.args[0], depth), self.range(data.args[1], depth));
        let constant = (b.min == b.max).then_some(b.min);
        let positive = a.min >= 0 && b.min >= 0;
        Some(match binary {
            Binary::Add => {
                let Some(bits) = self.function.constant(data.args[1]) else { return Some(a.plus(b)) };
                let sums = exact_summands(ty, bits).map(|c| a.plus(Range::single(c)));
                sums.into_iter().find(|&sum| fits(ty, sum))?
            }
            Binary::Sub => Range { min: a.min - b.max, max: a.max - b.min },
            Binary::Mul => a.times(b),
            Binary::Div if constant.is_some_and(|c| c > 0) => {
                let c = constant?;
                Range { min: a.min / c, max: a.max / c }
            }
            Binary::Rem if a.min >= 0 && b.min > 0 => Range { min: 0, max: a.max.min(b.max - 1) },
            Binary::Min => Range { min: a.min.min(b.min), max: a.max.min(b.max) },
            Binary::Max => Range { min: a.min.max(b.min), max: a.max.max(b.max) },
            Binary::And if a.min >= 0 || b.min >= 0 => {
                let limits = [a, b].into_iter().filter(|r| r.min >= 0).map(|r| r.max);
                Range { min: 0, max: limits.min()? }
            }
            Binary::Or | Binary::Xor if positive => {
                let bits = 128 - a.max.max(b.max).leading_zeros();
                Range { min: 0, max: (1 << bits) - 1 }
            }
            Binary::Shl => {
                let amount = constant.filter(|&amount| amount < ty.bits().into())?;
                a.times(Range::single(1 << amount))
            }
            Binary::Shr => {
                let amount = constant?.min(i128::from(ty.bits()));
                Range { min: a.min >> amount, max: a.max >> amount }
            }
            _ => return None,
        })
    }

    /// Greatest value of a special register according to the limits of a launch.
    fn limit(&self, special: Special) -> Option<i128> {
        let threads = i128::from(self.function.threads.unwrap_or(1024));
        let cluster = i128::from(self.function.cluster.unwrap_or(16));
        let block = self.function.threads_by_axis().filter(|_| self.function.threads_yz != [1, 1]);
        if let Some([x, y, z]) = block.map(|block| block.map(i128::from)) {
            match special {
                Special::TidX => return Some(x - 1),
                Special::TidY => return Some(y - 1),
                Special::TidZ => return Some(z - 1),
                Special::NtidX => return Some(x),
                Special::NtidY => return Some(y),
                Special::NtidZ => return Some(z),
                _ => {}
            }
        }
        Some(match special {
            Special::TidX | Special::TidY => threads - 1,
            Special::TidZ => threads.min(64) - 1,
            Special::NtidX | Special::NtidY => threads,
            Special::NtidZ => threads.min(64),
            Special::CtaidX => i128::from(i32::MAX) - 1,
            Special::NctaidX => i32::MAX.into(),
            Special::CtaidY | Special::CtaidZ => 65534,
            Special::NctaidY | Special::NctaidZ => 65535,
            Special::LaneId => 31,
            Special::ClusterRank => cluster - 1,
            Special::ClusterSize => cluster,
            Special::ActiveMask
            | Special::SmId
            | Special::Clock
            | Special::Clock64
            | Special::GlobalTimer => return None,
        })
    }

    /// Range of a block parameter: the union of the ranges of incoming values. A counter is a parameter that one edge
    /// increments by a constant; its range requires a condition on that edge that bounds it, and starts at the values
    /// of the other edges.
    fn param(&self, block: Block, index: usize, param: Value, depth: u32) -> Range {
        let any = Range::of_type(self.function.value_type(param));
        let mut all: Option<Range> = None;
        for &pred in &self.ranges.preds[block] {
            let there = Query { block: pred, ..*self };
            for dest in self.function.terminator(pred).dests.iter().filter(|dest| dest.block == block) {
                let value = dest.args[index];
                let range = match self.step(value, param) {
                    Some(step) => {
                        let bound = there.conditions(param, any, depth).max.saturating_add(step);
                        if bound > any.max {
                            return any;
                        }
                        // The other edges give the lower bound.
                        Range { min: bound, max: bound }
                    }
                    None if value == param => continue,
                    None => there.range(value, depth),
                };
                all = Some(all.map_or(range, |all| all.union(range)));
            }
            if depth == 0 || all == Some(any) {
                return any;
            }
        }
        all.unwrap_or(any)
    }

    /// The constant c >= 0 if `value` is `param + c`.
    fn step(&self, value: Value, param: Value) -> Option<i128> {
        let data = self.function.defining_inst(value)?;
        let constant = data.args.get(1).and_then(|&c| self.function.constant(c))?;
        let step = i128::from(data.ty.sign_extend(constant));
        (data.op == Op::Binary(Binary::Add) && data.args[0] == param && step >= 0).then_some(step)
    }

    /// Narrows the range of a value by the conditions of dominating branches and by assumptions.
    fn conditions(&self, value: Value, mut range: Range, depth: u32) -> Range {
        self.dominating(|condition, holds| range = self.condition(condition, holds, value, range, depth));
        if self.ranges.facts.is_empty() || depth == 0 {
            return range;
        }
        let mut next = Some(self.block);
        for _ in 0..MAX_CONDITIONS {
            let Some(block) = next else { break };
            next = self.ranges.doms.immediate(block);
            for &inst in self.ranges.facts.get(&block).into_iter().flatten() {
                let data = self.function.inst(inst);
                let Op::Assume(fact) = data.op else { continue };
                range = match fact.compare() {
                    Some(compare) => self.compared(compare, data, value, range, depth),
                    None if data.args[0] == value => self.multiples(data, range),
                    None => range,
                };
            }
        }
        range
    }

    /// Narrows the range of a value that is a multiple of a constant.
    fn multiples(&self, data: &InstData, range: Range) -> Range {
        let Some(of) = self.function.constant(data.args[1]).map(i128::from).filter(|&of| of > 0) else {
            return range;
        };
        if data.ty.is_signed() && of > Range::of_type(data.ty).max {
            return range;
        }
        range.and(Range { min: -(-range.min).div_euclid(of) * of, max: range.max.div_euclid(of) * of })
    }

    /// Calls `visit` for each condition of a dominating branch, with the condition's value in this block.
    fn dominating(&self, mut visit: impl FnMut(Value, bool)) {
        let mut next = Some(self.block);
        for _ in 0..MAX_CONDITIONS {
            let Some(block) = next else { break };
            next = self.ranges.doms.immediate(block);
            let &[pred] = &self.ranges.preds[block][..] else { continue };
            let branch = self.function.terminator(pred);
            if branch.op == Op::Branch {
                visit(branch.args[0], branch.dests[0].block == block);
            }
        }
    }

    fn condition(&self, condition: Value, holds: bool, value: Value, range: Range, depth: u32) -> Range {
        let Some(data) = self.function.defining_inst(condition) else { return range };
        match data.op {
            Op::Binary(Binary::And) if holds => self.both(data, holds, value, range, depth),
            Op::Binary(Binary::Or) if !holds => self.both(data, holds, value, range, depth),
            Op::Unary(Unary::Not) => self.condition(data.args[0], !holds, value, range, depth),
            Op::Compare(compare) if data.ty.is_int() && depth > 0 => {
                let compare = if holds { compare } else { compare.inverted() };
                self.compared(compare, data, value, range, depth)
            }
            _ => range,
        }
    }

    /// Narrows the range of a value by a comparison of the operands of `data` that holds. `depth` is not 0.
    fn compared(&self, compare: Compare, data: &InstData, value: Value, range: Range, depth: u32) -> Range {
        let (compare, other) = match data.args[..] {
            [a, b] if a == value => (compare, b),
            [a, b] if b == value => (compare.swapped(), a),
            _ => return range,
        };
        let other = self.range(other, depth.min(3) - 1);
        let any = Range::of_type(data.ty);
        range.and(match compare {
            Compare::Eq => other,
            Compare::Ne => any,
            Compare::Lt => Range { min: any.min, max: other.max - 1 },
            Compare::Le => Range { min: any.min, max: other.max },
            Compare::Gt => Range { min: other.min + 1, max: any.max },
            Compare::Ge => Range { min: other.min, max: any.max },
        })
    }

    fn both(&self, data: &InstData, holds: bool, value: Value, range: Range, depth: u32) -> Range {
        let depth = depth.saturating_sub(1);
        let range = self.condition(data.args[0], holds, value, range, depth);
        self.condition(data.args[1], holds, value, range, depth)
    }
}
