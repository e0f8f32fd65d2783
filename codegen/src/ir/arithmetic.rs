//! Arithmetic and bitwise opcodes of one and two operands, comparisons and roundings.

use super::effect::{BASELINE, Requirement, since};
use super::named::named_enum;
use super::rule::{
    APPROXIMATED, BITS, INTEGER, INTEGER_16_UP, INTEGER_32_UP, INTEGER_OR_WIDE_FLOAT, NUMBER, ONLY_F32,
    ROUNDED, SIGNED_NUMBER, T, U32, WIDE_FLOAT, typed,
};
use super::table::opcode_family;
use super::types::Type;
use crate::target::Target::Sm90;

opcode_family! {
    /// Opcodes of one operand.
    pub enum Unary at ty {
        /// Arithmetic negation.
        Neg = "neg": typed(NUMBER, &[T], &[T]); BASELINE,
        /// Bitwise complement; logical on predicates.
        Not = "not": typed(BITS, &[T], &[T]); BASELINE,
        /// Absolute value.
        Abs = "abs": typed(SIGNED_NUMBER, &[T], &[T]); BASELINE,
        /// Number of one bits, as u32.
        Popc = "popc": typed(INTEGER_32_UP, &[T], &[U32]); BASELINE,
        /// Number of leading zero bits, as u32.
        Clz = "clz": typed(INTEGER_32_UP, &[T], &[U32]); BASELINE,
        /// Bits in reverse order.
        Brev = "brev": typed(INTEGER_32_UP, &[T], &[T]); BASELINE,
        /// Reciprocal, correctly rounded.
        Rcp = "rcp": typed(WIDE_FLOAT, &[T], &[T]); BASELINE,
        /// Reciprocal, approximate (1 ulp).
        RcpApprox = "rcp_approx": typed(ONLY_F32, &[T], &[T]); BASELINE,
        /// Square root, correctly rounded.
        Sqrt = "sqrt": typed(WIDE_FLOAT, &[T], &[T]); BASELINE,
        /// Square root, approximate.
        SqrtApprox = "sqrt_approx": typed(ONLY_F32, &[T], &[T]); BASELINE,
        /// The nearest integral value, ties to even.
        RoundEven = "round_even": typed(ROUNDED, &[T], &[T]); BASELINE,
        /// The integral value next towards zero.
        Trunc = "trunc": typed(ROUNDED, &[T], &[T]); BASELINE,
        /// The largest integral value that is not greater.
        Floor = "floor": typed(ROUNDED, &[T], &[T]); BASELINE,
        /// The smallest integral value that is not less.
        Ceil = "ceil": typed(ROUNDED, &[T], &[T]); BASELINE,
        /// Reciprocal square root, approximate (about 2^-22.9 relative).
        Rsqrt = "rsqrt": typed(ONLY_F32, &[T], &[T]); BASELINE,
        /// 2^x, approximate (about 2 ulp).
        Exp2 = "exp2": typed(APPROXIMATED, &[T], &[T]); BASELINE,
        /// log2 x, approximate (2^-22 relative).
        Log2 = "log2": typed(ONLY_F32, &[T], &[T]); BASELINE,
        /// sin x, approximate (2^-20.5 absolute in [-pi, pi]).
        Sin = "sin": typed(ONLY_F32, &[T], &[T]); BASELINE,
        /// cos x, approximate (2^-20.5 absolute in [-pi, pi]).
        Cos = "cos": typed(ONLY_F32, &[T], &[T]); BASELINE,
        /// tanh x, approximate (2^-11 relative).
        Tanh = "tanh": typed(APPROXIMATED, &[T], &[T]); BASELINE,
    }
}

opcode_family! {
    /// Opcodes of two operands.
    pub enum Binary at ty {
        /// Sum; wraps for integers.
        Add = "add": typed(NUMBER, &[T, T], &[T]); bfloat("add", ty),
        /// Difference; wraps for integers.
        Sub = "sub": typed(NUMBER, &[T, T], &[T]); bfloat("sub", ty),
        /// Product; the low half for integers.
        Mul = "mul": typed(NUMBER, &[T, T], &[T]); bfloat("mul", ty),
        /// The high half of an integer product.
        MulHi = "mul_hi": typed(INTEGER_16_UP, &[T, T], &[T]); BASELINE,
        /// Quotient: truncating for integers, correctly rounded for floats.
        Div = "div": typed(INTEGER_OR_WIDE_FLOAT, &[T, T], &[T]); BASELINE,
        /// Quotient of floats, approximate (2 ulp for moderate divisors).
        DivApprox = "div_approx": typed(ONLY_F32, &[T, T], &[T]); BASELINE,
        /// Remainder of a truncating division.
        Rem = "rem": typed(INTEGER, &[T, T], &[T]); BASELINE,
        /// Minimum; if one operand is NaN, the other operand.
        Min = "min": typed(NUMBER, &[T, T], &[T]); BASELINE,
        /// Maximum; if one operand is NaN, the other operand.
        Max = "max": typed(NUMBER, &[T, T], &[T]); BASELINE,
        /// The magnitude of the first operand with the sign of the second.
        CopySign = "copy_sign": typed(WIDE_FLOAT, &[T, T], &[T]); BASELINE,
        /// Bitwise and; logical on predicates.
        And = "and": typed(BITS, &[T, T], &[T]); BASELINE,
        /// Bitwise or; logical on predicates.
        Or = "or": typed(BITS, &[T, T], &[T]); BASELINE,
        /// Bitwise exclusive or; logical on predicates.
        Xor = "xor": typed(BITS, &[T, T], &[T]); BASELINE,
        /// Left shift by the second operand (u32), which clamps at the width in bits.
        Shl = "shl": typed(INTEGER, &[T, U32], &[T]); BASELINE,
        /// Right shift by the second operand (u32), which clamps at the width in bits; arithmetic for signed types.
        Shr = "shr": typed(INTEGER, &[T, U32], &[T]); BASELINE,
    }
}

/// Requirement of an arithmetic opcode: on bfloat16, sm_90.
fn bfloat(name: &str, ty: Type) -> Option<Requirement> {
    let is_bfloat = matches!(ty, Type::Bf16 | Type::Bf16x2);
    if is_bfloat { since(format!("{name}.{ty}"), Sm90, (7, 8)) } else { BASELINE }
}

named_enum! {
    /// Relations of two integers that an assumption states.
    pub enum Fact {
        /// Equal.
        Eq = "eq",
        /// Not equal.
        Ne = "ne",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Le = "le",
        /// The first is a multiple of the second.
        MultipleOf = "multiple_of",
    }
}

impl Fact {
    /// The comparison that holds; none for a multiple.
    pub fn compare(self) -> Option<Compare> {
        match self {
            Fact::Eq => Some(Compare::Eq),
            Fact::Ne => Some(Compare::Ne),
            Fact::Lt => Some(Compare::Lt),
            Fact::Le => Some(Compare::Le),
            Fact::MultipleOf => None,
        }
    }
}

named_enum! {
    /// Formats of floats of 8 bits, of which pairs are converted.
    pub enum Float8 {
        /// 4 bits of exponent, 3 bits of fraction.
        E4m3 = "e4m3",
        /// 5 bits of exponent, 2 bits of fraction.
        E5m2 = "e5m2",
    }
}

named_enum! {
    /// Comparisons; the result is a predicate. With a NaN operand, `ne` is true and all others are false.
    pub enum Compare {
        /// Equal.
        Eq = "eq",
        /// Not equal.
        Ne = "ne",
        /// Less.
        Lt = "lt",
        /// Less or equal.
        Le = "le",
        /// Greater.
        Gt = "gt",
        /// Greater or equal.
        Ge = "ge",
    }
}

impl Compare {
    /// Whether the comparison is true for `a` and `b`.
    pub fn holds<T: PartialOrd>(self, a: &T, b: &T) -> bool {
        match self {
            Compare::Eq => a == b,
            Compare::Ne => a != b,
            Compare::Lt => a < b,
            Compare::Le => a <= b,
            Compare::Gt => a > b,
            Compare::Ge => a >= b,
        }
    }

    /// The comparison of (b, a) that is equivalent to this comparison of (a, b).
    pub fn swapped(self) -> Compare {
        match self {
            Compare::Lt => Compare::Gt,
            Compare::Le => Compare::Ge,
            Compare::Gt => Compare::Lt,
            Compare::Ge => Compare::Le,
            same => same,
        }
    }

    /// The negated comparison, for operands that are not NaN.
    pub fn inverted(self) -> Compare {
        match self {
            Compare::Eq => Compare::Ne,
            Compare::Ne => Compare::Eq,
            Compare::Lt => Compare::Ge,
            Compare::Le => Compare::Gt,
            Compare::Gt => Compare::Le,
            Compare::Ge => Compare::Lt,
        }
    }
}

named_enum! {
    /// Rounding mode of a conversion.
    pub enum Rounding {
        /// To nearest, ties to even.
        Nearest = "rn",
        /// Towards zero.
        Zero = "rz",
        /// Towards minus infinity.
        Down = "rm",
        /// Towards plus infinity.
        Up = "rp",
    }
}
