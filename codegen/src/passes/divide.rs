//! Quotients and remainders of u32 by constants as products, because ptxas divides by a constant as by a variable.
//!
//! ```text
//!   v1 = div.u32 v0, 36    →    v1 = shr.u32 (mul_hi.u32 v0, 0xe38e38e4), 5
//!   v2 = rem.u32 v0, 36         v2 = sub.u32 v0, (mul.u32 v1, 36)
//! ```
//!
//! Runs after the rounds, whose passes know the ranges of quotients but not of these products.

use super::analysis::ranges::Ranges;
use super::edit::{Editor, Rewrite, rewrite};
use super::remarks::{DivisionKept, Done, Missed};
use super::{Pass, Remarks};
use crate::ir::{Binary, Function, InstData, Op, Type, Value};

/// The pass for quotients by constants; see the module.
pub struct Divide;

impl Pass for Divide {
    fn name(&self) -> &'static str {
        "divide"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
        let ranges = Ranges::new(function);
        rewrite(function, |editor, data| match visit(editor, &ranges, data) {
            Some((rewritten, done)) => {
                remarks.done(data.loc, done);
                rewritten
            }
            None => Rewrite::Keep,
        })
    }

    fn missed(&self, function: &Function, remarks: &mut Remarks) {
        for &inst in function.layout.iter().flat_map(|&block| &function.block(block).insts) {
            let data = function.inst(inst);
            if !matches!(data.op, Op::Binary(Binary::Div | Binary::Rem)) || !data.ty.is_int() {
                continue;
            }
            let why = match function.constant(data.args[1]) {
                None => DivisionKept::NotConstant,
                Some(_) if data.ty != Type::U32 => DivisionKept::Type { ty: data.ty },
                Some(_) => continue,
            };
            remarks.missed(data.loc, Missed::Division { why });
        }
    }
}

fn visit(editor: &mut Editor<'_>, ranges: &Ranges, data: &InstData) -> Option<(Rewrite, Done)> {
    let Op::Binary(binary @ (Binary::Div | Binary::Rem)) = data.op else { return None };
    let (ty, x) = (data.ty, data.args[0]);
    if ty != Type::U32 || editor.function.constant(x).is_some() {
        return None;
    }
    let divisor = u32::try_from(editor.function.constant(data.args[1])?).ok()?;
    let largest = ranges.of(editor.function, editor.block, x).max.clamp(0, u32::MAX.into()) as u32;
    let quotient = Quotient::by(divisor, largest)?.insert(editor, x);
    let done = Done::Divided { divisor, remainder: binary == Binary::Rem };
    if binary == Binary::Div {
        return Some((Rewrite::value(quotient), done));
    }
    let multiple = editor.insert(Op::Binary(Binary::Mul), ty, &[quotient, data.args[1]]);
    Some((Rewrite::into(Op::Binary(Binary::Sub), ty, &[x, multiple]), done))
}

/// How to compute a quotient (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quotient {
    /// ((x >> `before`) · `factor`) >> 32 >> `after`.
    Product { before: u32, factor: u32, after: u32 },
    /// (((x − t) >> 1) + t) >> `after`, where t = (x · `factor`) >> 32: the factor has a 33rd bit.
    Wide { factor: u32, after: u32 },
}

impl Quotient {
    /// The quotient by a divisor of all numbers up to `largest`; none if the divisor is zero or a power of two.
    fn by(divisor: u32, largest: u32) -> Option<Quotient> {
        if divisor.is_power_of_two() || divisor == 0 {
            return None;
        }
        let product = |divisor: u32, largest: u32| {
            (0..32u32).find_map(|after| {
                let factor = (1u64 << (32 + after)) / u64::from(divisor) + 1;
                let excess = factor as u128 * u128::from(divisor) - (1 << (32 + after));
                let exact = excess * u128::from(largest) < 1 << (32 + after);
                Some((u32::try_from(factor).ok()?, after)).filter(|_| exact)
            })
        };
        if let Some((factor, after)) = product(divisor, largest) {
            return Some(Quotient::Product { before: 0, factor, after });
        }
        let before = divisor.trailing_zeros();
        if before > 0 {
            let (factor, after) = product(divisor >> before, largest >> before)?;
            return Some(Quotient::Product { before, factor, after });
        }
        let bits = 32 - divisor.leading_zeros();
        let factor = (1u128 << (32 + bits)) / u128::from(divisor) + 1;
        Some(Quotient::Wide { factor: factor as u32, after: bits - 1 })
    }

    /// Inserts the instructions that compute the quotient of `x`.
    fn insert(self, editor: &mut Editor<'_>, x: Value) -> Value {
        let ty = Type::U32;
        match self {
            Quotient::Product { before, factor, after } => {
                let [before, factor, after] = [before, factor, after].map(|c| editor.constant(ty, c.into()));
                let mut binary = |binary, a, b| editor.insert(Op::Binary(binary), ty, &[a, b]);
                let x = binary(Binary::Shr, x, before);
                let high = binary(Binary::MulHi, x, factor);
                binary(Binary::Shr, high, after)
            }
            Quotient::Wide { factor, after } => {
                let [factor, one, after] = [factor, 1, after].map(|c| editor.constant(ty, c.into()));
                let mut binary = |binary, a, b| editor.insert(Op::Binary(binary), ty, &[a, b]);
                let high = binary(Binary::MulHi, x, factor);
                let rest = binary(Binary::Sub, x, high);
                let half = binary(Binary::Shr, rest, one);
                let sum = binary(Binary::Add, half, high);
                binary(Binary::Shr, sum, after)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(quotient: Quotient, x: u32) -> u32 {
        let high = |x: u32, factor: u32| ((u64::from(x) * u64::from(factor)) >> 32) as u32;
        match quotient {
            Quotient::Product { before, factor, after } => high(x >> before, factor) >> after,
            Quotient::Wide { factor, after } => {
                let t = high(x, factor);
                (((x - t) >> 1) + t) >> after
            }
        }
    }

    /// Numbers at which quotients by the divisor change, up to the largest, and around powers of two.
    fn numbers(divisor: u32, largest: u32) -> impl Iterator<Item = u32> {
        let multiples = [1, 2, 3, largest / divisor / 2, largest / divisor];
        let multiples = multiples.into_iter().map(move |n| n.saturating_mul(divisor));
        let powers = (0..32).map(|bit| 1 << bit);
        let around = |n: u32| [n.saturating_sub(1), n, n.saturating_add(1)];
        multiples.chain(powers).chain([largest]).flat_map(around).filter(move |&x| x <= largest)
    }

    #[test]
    fn quotients_are_exact() {
        let near_powers = (2..32).flat_map(|bit| [(1 << bit) - 1, (1 << bit) + 1, 3 << (bit - 2)]);
        let divisors = (3..2000).chain(near_powers).chain([641, 6_700_417, u32::MAX - 1, u32::MAX]);
        for divisor in divisors.filter(|divisor: &u32| !divisor.is_power_of_two()) {
            for largest in [u32::MAX, u32::MAX / 2, u32::MAX / 3, 1 << 20, 1295, divisor] {
                let quotient = Quotient::by(divisor, largest).expect("not a power of two");
                for x in numbers(divisor, largest) {
                    assert_eq!(compute(quotient, x), x / divisor, "{x} / {divisor} by {quotient:?}");
                }
            }
        }
        assert_eq!(Quotient::by(0, 7), None);
        assert_eq!(Quotient::by(8, 7), None);
    }

    #[test]
    fn small_numbers_need_no_shift_before() {
        let quotient = |divisor, largest| Quotient::by(divisor, largest).expect("not a power of two");
        assert!(matches!(quotient(7, u32::MAX), Quotient::Wide { .. }));
        assert!(matches!(quotient(14, u32::MAX), Quotient::Product { before: 1, .. }));
        assert!(matches!(quotient(7, 1 << 20), Quotient::Product { before: 0, .. }));
    }
}
