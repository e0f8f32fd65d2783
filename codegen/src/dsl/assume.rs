//! Assumptions about run-time values, which the passes use.

use std::panic::Location;

use cranelift_entity::packed_option::ReservedValue;

use super::recorder::{Site, emit, fail, with};
use super::value::IntoVal;
use crate::ir::{self, Binary, Compare, Fact, Function, Op, Unary};

/// States that a condition holds, for the optimiser: `assume(n % 4 == 0)`, `assume(n <= 1024)`.
///
/// The condition is a comparison of two integers of 32 or 64 bits, or says that one is a multiple of a constant; several
/// are joined by `&`. Passes derive ranges and alignment from it: rows of `n` elements with `n % 4 == 0` get vector
/// accesses, and a loop over `0..n` unrolled by 4 needs no second loop. An assumption about multiples applies only to
/// values that are defined in its own basic block, so write it directly after them or, for parameters, at the start of the
/// kernel. If a thread reaches a false assumption, the behaviour of the whole launch is undefined. On the emulator this is
/// a finding at the assumption's line. Assumptions about values that the kernel does not use are dropped, with their check.
///
/// - PTX: no instruction; the comment `//@ assume.le.u32 …`, which the emulator checks
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
/// /// x[i] *= 2 for i < n, and n is a multiple of 4.
/// #[kernel(threads = 1)]
/// fn doubled(x: Ptr<Global, u32>, n: Val<u32>) {
///     assume(n % 4 == 0);
///     for i in (0..n).unroll(4) {
///         x.at(i).store(x.at(i).load() * 2);
///     }
/// }
/// let kernel = doubled()?;
/// let done = Launch::of(&kernel).buffer(&[1u32; 8]).value(8u32).run()?;
/// assert_eq!(done.buffer::<u32>(0), [2; 8]);
/// // No second loop for remaining elements.
/// assert_eq!(done.ptx().matches("ld.global.u32").count(), 4);
/// assert!(done.has("//@ assume.multiple_of.u32 …, 4;"));
///
/// let finding = Launch::of(&kernel).buffer(&[1u32; 8]).value(7u32).run().err().map(|finding| finding.to_string());
/// assert!(finding.is_some_and(|text| text.starts_with("false assumption in kernel `doubled`")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn assume(condition: impl IntoVal<bool>) {
    let site = Location::caller();
    let condition = condition.into_val().id();
    let facts = with(|r| {
        let mut facts = Vec::new();
        let known = !condition.is_reserved_value() && collect(&r.func, condition, true, &mut facts);
        known.then_some(facts)
    });
    match facts {
        Some(facts) => facts.into_iter().for_each(|fact| fact.record(site)),
        None => fail(
            site,
            "`assume` does not understand this condition: compare integers of 32 or 64 bits, as in `n <= 1024`, or write \
             `n % 4 == 0` with a constant, and join several by `&`, not `&&`",
        ),
    }
}

/// A relation of two values, or a constant condition.
enum Stated {
    Fact(Fact, ir::Type, [ir::Value; 2]),
    Nothing,
    False,
}

impl Stated {
    fn record(self, site: Site) {
        match self {
            Stated::Fact(fact, ty, args) => {
                emit(Op::Assume(fact), ty, &args, site);
            }
            Stated::Nothing => {}
            Stated::False => {
                fail(site, "this assumption is false on every path: remove it, or the code after it")
            }
        }
    }
}

/// Collects the facts that hold if the condition is `holds`; returns whether it consists of facts.
fn collect(function: &Function, condition: ir::Value, holds: bool, facts: &mut Vec<Stated>) -> bool {
    if let Some(constant) = function.constant(condition) {
        facts.push(if (constant != 0) == holds { Stated::Nothing } else { Stated::False });
        return true;
    }
    let Some(data) = function.defining_inst(condition) else { return false };
    let (fact, args) = match (data.op, &data.args[..]) {
        (Op::Binary(Binary::And), &[a, b]) if holds => {
            return collect(function, a, true, facts) && collect(function, b, true, facts);
        }
        (Op::Binary(Binary::Or), &[a, b]) if !holds => {
            return collect(function, a, false, facts) && collect(function, b, false, facts);
        }
        (Op::Unary(Unary::Not), &[a]) => return collect(function, a, !holds, facts),
        (Op::Compare(compare), &[a, b]) if data.ty.is_int() && data.ty.bits() >= 32 => {
            let compare = if holds { compare } else { compare.inverted() };
            match compare {
                Compare::Eq => match multiple(function, [a, b]).or_else(|| multiple(function, [b, a])) {
                    Some(args) => (Fact::MultipleOf, args),
                    None => (Fact::Eq, [a, b]),
                },
                Compare::Ne => (Fact::Ne, [a, b]),
                Compare::Lt => (Fact::Lt, [a, b]),
                Compare::Le => (Fact::Le, [a, b]),
                Compare::Gt => (Fact::Lt, [b, a]),
                Compare::Ge => (Fact::Le, [b, a]),
            }
        }
        _ => return false,
    };
    facts.push(Stated::Fact(fact, data.ty, args));
    true
}

/// The operands of `x % c`, if this is the first value, c is a positive constant, and the second value is zero.
fn multiple(function: &Function, [remainder, zero]: [ir::Value; 2]) -> Option<[ir::Value; 2]> {
    let data = function.defining_inst(remainder)?;
    let &[x, c] = &data.args[..] else { return None };
    let positive = data.ty.sign_extend(function.constant(c)?) > 0 || data.ty.is_unsigned();
    let is_remainder = data.op == Op::Binary(Binary::Rem) && positive && function.constant(c) != Some(0);
    (is_remainder && function.constant(zero) == Some(0)).then_some([x, c])
}
