//! Types of PTX operands.

/// The type of registers of 128 bits, as a suffix without its dot. The parser replaces each by two registers of 64 bits.
pub(crate) const WIDE: &str = "b128";

/// Operand type, written as a suffix such as `.u32` or `.f16x2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Ty {
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    U16x2,
    S16x2,
    /// Two packed 8-bit floats in the format E4M3; `E5m2x2` has two in the format E5M2.
    E4m3x2,
    E5m2x2,
    F32,
    F64,
    Pred,
}

impl Ty {
    /// Parses a type suffix, given without its dot.
    pub(crate) fn parse(text: &str) -> Option<Ty> {
        Some(match text {
            "b8" => Ty::B8,
            "b16" => Ty::B16,
            "b32" => Ty::B32,
            "b64" => Ty::B64,
            "u8" => Ty::U8,
            "u16" => Ty::U16,
            "u32" => Ty::U32,
            "u64" => Ty::U64,
            "s8" => Ty::S8,
            "s16" => Ty::S16,
            "s32" => Ty::S32,
            "s64" => Ty::S64,
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::Bf16,
            "bf16x2" => Ty::Bf16x2,
            "tf32" => Ty::Tf32,
            "u16x2" => Ty::U16x2,
            "s16x2" => Ty::S16x2,
            "e4m3x2" => Ty::E4m3x2,
            "e5m2x2" => Ty::E5m2x2,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "pred" => Ty::Pred,
            _ => return None,
        })
    }

    /// Type suffix without its dot.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ty::B8 => "b8",
            Ty::B16 => "b16",
            Ty::B32 => "b32",
            Ty::B64 => "b64",
            Ty::U8 => "u8",
            Ty::U16 => "u16",
            Ty::U32 => "u32",
            Ty::U64 => "u64",
            Ty::S8 => "s8",
            Ty::S16 => "s16",
            Ty::S32 => "s32",
            Ty::S64 => "s64",
            Ty::F16 => "f16",
            Ty::F16x2 => "f16x2",
            Ty::Bf16 => "bf16",
            Ty::Bf16x2 => "bf16x2",
            Ty::E4m3x2 => "e4m3x2",
            Ty::E5m2x2 => "e5m2x2",
            Ty::Tf32 => "tf32",
            Ty::F32 => "f32",
            Ty::F64 => "f64",
            Ty::U16x2 => "u16x2",
            Ty::S16x2 => "s16x2",
            Ty::Pred => "pred",
        }
    }

    /// Size in memory, in bytes; 0 for a predicate.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Ty::Pred => 0,
            Ty::B8 | Ty::U8 | Ty::S8 => 1,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::Bf16 | Ty::E4m3x2 | Ty::E5m2x2 => 2,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 8,
            _ => 4,
        }
    }

    pub(crate) fn bits(self) -> u32 {
        self.bytes() * 8
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// Whether the type is an integer type: `.uN`, `.sN` or `.bN`.
    pub(crate) fn is_integer(self) -> bool {
        !self.is_float() && self != Ty::Pred
    }

    pub(crate) fn is_float(self) -> bool {
        use Ty::{Bf16, Bf16x2, E4m3x2, E5m2x2, F16, F16x2, F32, F64, Tf32};
        matches!(self, F16 | F16x2 | Bf16 | Bf16x2 | Tf32 | E4m3x2 | E5m2x2 | F32 | F64)
    }

    /// Width of the register that holds a value of this type. PTX has no arithmetic on 8-bit registers, so 8-bit values
    /// use 16-bit registers.
    pub(crate) fn width(self) -> Width {
        match self.bytes() {
            0 => Width::Predicate,
            1 | 2 => Width::W16,
            4 => Width::W32,
            _ => Width::W64,
        }
    }
}

/// Width of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(crate) enum Width {
    /// One bit per lane, stored as a 32-bit mask per warp.
    Predicate,
    W16,
    W32,
    W64,
}

impl Width {
    /// Bytes that a register of this width takes in the register file: one value for each of 32 lanes.
    pub(crate) fn slot_bytes(self) -> u32 {
        match self {
            Width::Predicate => 4,
            Width::W16 => 64,
            Width::W32 => 128,
            Width::W64 => 256,
        }
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            Width::Predicate => 1,
            Width::W16 => 16,
            Width::W32 => 32,
            Width::W64 => 64,
        }
    }
}
