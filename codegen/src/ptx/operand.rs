//! Registers, immediates and PTX names of types.

use crate::ir::Type;

/// A class of virtual registers with the same PTX type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Class {
    Pred,
    Half,
    Word,
    Float,
    Long,
    Double,
}

impl Class {
    pub const ALL: [Class; 6] =
        [Class::Pred, Class::Half, Class::Word, Class::Float, Class::Long, Class::Double];

    /// Register class for values of a type.
    pub fn of(ty: Type) -> Class {
        match ty {
            Type::Pred => Class::Pred,
            Type::U16 | Type::I16 | Type::F16 | Type::Bf16 => Class::Half,
            Type::U8 | Type::I8 | Type::U32 | Type::I32 | Type::F16x2 | Type::Bf16x2 => Class::Word,
            Type::Shared | Type::Cluster | Type::Local => Class::Word,
            Type::F32 => Class::Float,
            Type::F64 => Class::Double,
            Type::U64 | Type::I64 | Type::Global | Type::Constant | Type::TensorMap => Class::Long,
        }
    }

    /// Prefix of register names in this class.
    pub fn prefix(self) -> &'static str {
        match self {
            Class::Pred => "%p",
            Class::Half => "%h",
            Class::Word => "%r",
            Class::Float => "%f",
            Class::Long => "%rd",
            Class::Double => "%fd",
        }
    }

    /// PTX type in the declaration of this class's registers, also used by `mov`.
    pub fn declared(self) -> &'static str {
        match self {
            Class::Pred => "pred",
            Class::Half => "b16",
            Class::Word => "b32",
            Class::Float => "f32",
            Class::Long => "b64",
            Class::Double => "f64",
        }
    }
}

/// A virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register {
    pub class: Class,
    pub number: u32,
}

impl std::fmt::Display for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.class.prefix(), self.number)
    }
}

/// Whether constants of the type may be immediates in PTX.
pub(super) fn immediate_allowed(ty: Type) -> bool {
    !matches!(ty, Type::Pred | Type::F16 | Type::Bf16) && ty.half().is_none()
}

/// A constant in PTX syntax; a 16-bit float as its raw bits, for `mov.b16` and `mov.b32`.
pub(super) fn immediate(ty: Type, bits: u64) -> String {
    match ty {
        Type::F32 => format!("0f{bits:08X}"),
        Type::F64 => format!("0d{bits:016X}"),
        Type::I8 => (bits as u8 as i8).to_string(),
        Type::I16 => (bits as u16 as i16).to_string(),
        Type::I32 => (bits as u32 as i32).to_string(),
        Type::I64 => (bits as i64).to_string(),
        Type::F16 | Type::Bf16 => format!("0x{bits:04X}"),
        Type::F16x2 | Type::Bf16x2 => format!("0x{bits:08X}"),
        _ => bits.to_string(),
    }
}

/// PTX type in arithmetic instructions; 8-bit integers use the 32-bit types.
pub(super) fn arithmetic(ty: Type) -> &'static str {
    match ty {
        Type::U8 | Type::U32 => "u32",
        Type::I8 | Type::I32 => "s32",
        Type::U16 => "u16",
        Type::I16 => "s16",
        Type::U64 => "u64",
        Type::I64 => "s64",
        Type::F16 => "f16",
        Type::Bf16 => "bf16",
        Type::F16x2 => "f16x2",
        Type::Bf16x2 => "bf16x2",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Pred => "pred",
        Type::Global | Type::Constant | Type::TensorMap => "u64",
        Type::Shared | Type::Cluster | Type::Local => "u32",
    }
}

/// PTX type in `cvt` and memory accesses, which have 8-bit types.
pub(super) fn memory(ty: Type) -> &'static str {
    match ty {
        Type::U8 => "u8",
        Type::I8 => "s8",
        Type::F16 | Type::Bf16 => "b16",
        Type::F16x2 | Type::Bf16x2 => "b32",
        _ => arithmetic(ty),
    }
}

/// Untyped PTX type (`b16`, `b32`, …) of the register that holds a value of the type.
pub(super) fn bits(ty: Type) -> &'static str {
    match Class::of(ty) {
        Class::Pred => "pred",
        Class::Half => "b16",
        Class::Word | Class::Float => "b32",
        Class::Long | Class::Double => "b64",
    }
}
