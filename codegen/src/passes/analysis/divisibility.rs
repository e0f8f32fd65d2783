//! Divisibility analysis: the known low bits of integers and addresses.
//!
//! The analysis finds `value ≡ remainder (mod 2^bits)`. Facts start at shared variables (their alignment), global
//! pointers (the element size, or the alignment that the launch guarantees) and constants. Sums, products, shifts and
//! masks propagate facts; a block parameter has the low bits that all incoming values share.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};

use super::Dominators;
use crate::ir::{ARRAY_ALIGN, Binary, Fact, Function, InstData, Op, Type, Value};

/// A number modulo a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residue {
    /// Number of known low bits, up to 64.
    pub bits: u32,
    /// The known low bits.
    pub remainder: u64,
}

impl Residue {
    const UNKNOWN: Residue = Residue { bits: 0, remainder: 0 };

    fn new(bits: u32, number: u64) -> Residue {
        Residue { bits, remainder: number & low(bits) }
    }

    /// Whether every number with this residue is a multiple of `divisor`, a power of two.
    pub fn is_multiple_of(self, divisor: u64) -> bool {
        divisor.trailing_zeros() <= self.bits && self.remainder.is_multiple_of(divisor)
    }

    /// Residue of the sum with a constant.
    #[must_use]
    pub fn offset_by(self, number: i64) -> Residue {
        Residue::new(self.bits, self.remainder.wrapping_add(number as u64))
    }

    fn cut(self, bits: u32) -> Residue {
        Residue::new(self.bits.min(bits), self.remainder)
    }

    fn plus(self, other: Residue) -> Residue {
        Residue::new(self.bits.min(other.bits), self.remainder.wrapping_add(other.remainder))
    }

    fn negated(self) -> Residue {
        Residue::new(self.bits, self.remainder.wrapping_neg())
    }

    /// Residue of the product. In (r + 2^k x)(s + 2^l y), a term with an unknown factor is a multiple of its known
    /// factor.
    fn times(self, other: Residue) -> Residue {
        let zeros = |known: Residue| if known.remainder == 0 { 64 } else { known.remainder.trailing_zeros() };
        let bits = (self.bits + zeros(other)).min(other.bits + zeros(self)).min(self.bits + other.bits);
        Residue::new(bits.min(64), self.remainder.wrapping_mul(other.remainder))
    }

    /// Applies `bit` to each pair of low bits, unknown ones as `None`, up to the first unknown result.
    fn bitwise(self, other: Residue, bit: impl Fn(Option<bool>, Option<bool>) -> Option<bool>) -> Residue {
        let at =
            |number: Residue, index: u32| (index < number.bits).then_some(number.remainder >> index & 1 != 0);
        let known: Vec<bool> = (0..64).map_while(|index| bit(at(self, index), at(other, index))).collect();
        let remainder = known.iter().rev().fold(0, |number, &bit| number << 1 | u64::from(bit));
        Residue { bits: known.len() as u32, remainder }
    }

    /// Common low bits of both numbers.
    fn meet(self, other: Residue) -> Residue {
        let equal = (self.remainder ^ other.remainder).trailing_zeros();
        self.cut(other.bits.min(equal))
    }
}

fn low(bits: u32) -> u64 {
    if bits == 0 { 0 } else { u64::MAX >> (64 - bits) }
}

/// Numbers of low bits that are zero by assumption, for values that are defined in the same block as the assumption: a
/// thread that computes such a value also executes the assumption.
fn assumed(function: &Function) -> FxHashMap<Value, u32> {
    let mut zeros = FxHashMap::default();
    for &block in &function.layout {
        let mut own: FxHashSet<Value> = function.block(block).params.iter().copied().collect();
        for &inst in &function.block(block).insts {
            let data = function.inst(inst);
            own.extend(&data.results);
            let (&[value, of], Op::Assume(Fact::MultipleOf)) = (&data.args[..], data.op) else { continue };
            if let Some(of) = function.constant(of).filter(|&of| of != 0 && own.contains(&value)) {
                let known = zeros.entry(value).or_insert(0);
                *known = of.trailing_zeros().max(*known);
            }
        }
    }
    zeros
}

/// Known low bits of a function's values. Valid until the function changes; nothing is known of values added later.
pub struct Divisibility {
    /// Known low bits of each value; `None` if not visited yet.
    values: SecondaryMap<Value, Option<Residue>>,
    /// Low bits that are zero by assumption.
    zeros: FxHashMap<Value, u32>,
}

impl Divisibility {
    /// Runs the analysis.
    pub fn new(function: &Function) -> Divisibility {
        let mut this = Divisibility { values: SecondaryMap::new(), zeros: assumed(function) };
        let order = Dominators::new(function).reverse_postorder().to_vec();
        // Optimistic: values not visited yet are ignored, and facts only ever weaken until nothing changes.
        let mut changed = true;
        while changed {
            changed = false;
            for &block in &order {
                for &inst in &function.block(block).insts {
                    let data = function.inst(inst);
                    for &result in &data.results {
                        let residue = this.result(function, data, function.value_type(result));
                        changed |= this.enter(result, residue);
                    }
                    for dest in &data.dests {
                        for (&param, &arg) in function.block(dest.block).params.iter().zip(&dest.args) {
                            let residue = this.of(arg);
                            changed |= this.enter(param, residue);
                        }
                    }
                }
            }
        }
        this
    }

    /// Known low bits of the value.
    pub fn of(&self, value: Value) -> Residue {
        self.values[value].unwrap_or(Residue::UNKNOWN)
    }

    fn enter(&mut self, value: Value, residue: Residue) -> bool {
        let zeros = self.zeros.get(&value).copied().unwrap_or(0);
        let residue = if zeros > residue.bits { Residue::new(zeros, 0) } else { residue };
        let entry = &mut self.values[value];
        let new = entry.map_or(residue, |known| known.meet(residue));
        let changed = *entry != Some(new);
        *entry = Some(new);
        changed
    }

    fn result(&self, function: &Function, data: &InstData, ty: Type) -> Residue {
        if !ty.is_int() && !ty.is_pointer() {
            return Residue::UNKNOWN;
        }
        let arg = |index: usize| self.of(data.args[index]);
        let amount = |index: usize| {
            let amount = function.constant(data.args[index]);
            amount.map(|amount| amount.min(u64::from(ty.bits())) as u32)
        };
        let residue = match data.op {
            Op::Const(bits) => Residue::new(64, bits),
            Op::SharedAddress(var) => Residue::new(function.shared[var].align.trailing_zeros(), 0),
            Op::LocalAddress(_) | Op::TableAddress(_) => Residue::new(ARRAY_ALIGN.trailing_zeros(), 0),
            // Dynamic shared memory has the alignment that the printer declares: 128 bytes.
            Op::DynamicShared => Residue::new(7, 0),
            Op::Param(index) => {
                let alignment = function.params[index as usize].alignment();
                Residue::new(alignment.trailing_zeros(), 0)
            }
            Op::PtrAdd => arg(0).plus(arg(1)),
            Op::MulWide => arg(0).times(arg(1)),
            Op::MulAdd => arg(0).times(arg(1)).plus(arg(2)),
            Op::Select => arg(1).meet(arg(2)),
            Op::Convert { saturate: false, .. } | Op::Bitcast
                if function.value_type(data.args[0]).is_int() =>
            {
                arg(0)
            }
            Op::Binary(binary) => match binary {
                Binary::Add => arg(0).plus(arg(1)),
                Binary::Sub => arg(0).plus(arg(1).negated()),
                Binary::Mul => arg(0).times(arg(1)),
                Binary::Min | Binary::Max => arg(0).meet(arg(1)),
                Binary::And => arg(0).bitwise(arg(1), |a, b| match (a, b) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                }),
                Binary::Or => arg(0).bitwise(arg(1), |a, b| match (a, b) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                }),
                Binary::Xor => arg(0).bitwise(arg(1), |a, b| Some(a? != b?)),
                Binary::Shl => match amount(1) {
                    Some(amount) => arg(0).times(Residue::new(64, 1u64.checked_shl(amount).unwrap_or(0))),
                    None => Residue::UNKNOWN,
                },
                Binary::Shr => match amount(1) {
                    Some(amount) if amount < 64 => {
                        let known = arg(0).cut(ty.bits());
                        Residue::new(known.bits.saturating_sub(amount), known.remainder >> amount)
                    }
                    _ => Residue::UNKNOWN,
                },
                _ => Residue::UNKNOWN,
            },
            _ => Residue::UNKNOWN,
        };
        // Narrow arithmetic wraps at its width, and a number extended from the result may have any sign. Constants are
        // exact.
        let narrow = data.args.iter().map(|&arg| function.value_type(arg)).filter(|ty| ty.is_int());
        let width = narrow.map(Type::bits).chain([ty.bits()]).min().unwrap_or(64);
        residue.cut(width)
    }
}
