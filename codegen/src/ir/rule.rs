//! Operand and result types of an opcode, as data.
//!
//! A row of the opcode table states a [`Rule`]: the types that the instruction may have, and its operands and results
//! relative to that type. [`Rule::signature`] applies a rule to one type.

use smallvec::SmallVec;

use super::types::Type;

/// A set of types, with its name for error messages.
#[derive(Clone, Copy)]
pub struct TypeSet {
    name: &'static str,
    contains: fn(Type) -> bool,
}

impl TypeSet {
    /// The set of the types for which `contains` is true.
    const fn new(name: &'static str, contains: fn(Type) -> bool) -> TypeSet {
        TypeSet { name, contains }
    }
}

pub(super) const ANY: TypeSet = TypeSet::new("any type", |_| true);
pub(super) const NO_POINTER: TypeSet = TypeSet::new("a scalar type", |ty| !ty.is_pointer());
pub(super) const PARAMETER: TypeSet = TypeSet::new("a parameter type", |_| true);
pub(super) const ELEMENT: TypeSet =
    TypeSet::new("a scalar element", |ty| !ty.is_pointer() && ty != Type::Pred);
pub(super) const NUMBER: TypeSet = TypeSet::new("a number", |ty| ty.is_int() || ty.is_float());
pub(super) const SCALAR_NUMBER: TypeSet = TypeSet::new("a scalar number", is_scalar_number);
pub(super) const SATURATING: TypeSet =
    TypeSet::new("a scalar number other than bf16", |ty| is_scalar_number(ty) && ty != Type::Bf16);
pub(super) const SIGNED_NUMBER: TypeSet =
    TypeSet::new("a signed number", |ty| ty.is_signed() || ty.is_float());
pub(super) const INTEGER: TypeSet = TypeSet::new("an integer", Type::is_int);
pub(super) const INTEGER_16_UP: TypeSet =
    TypeSet::new("an integer of 16 bits or more", |ty| ty.is_int() && ty.bits() >= 16);
pub(super) const INTEGER_32_UP: TypeSet = TypeSet::new("a 32- or 64-bit integer", is_word);
pub(super) const INTEGER_32_UP_OR_FLOAT: TypeSet =
    TypeSet::new("a float or a 32- or 64-bit integer", |ty| is_word(ty) || ty.is_float());
pub(super) const INTEGER_OR_WIDE_FLOAT: TypeSet =
    TypeSet::new("an integer, f32 or f64", |ty| ty.is_int() || is_wide_float(ty));
pub(super) const WIDE_FLOAT: TypeSet = TypeSet::new("f32 or f64", is_wide_float);
pub(super) const ROUNDED: TypeSet =
    TypeSet::new("f16, f32 or f64", |ty| ty == Type::F16 || is_wide_float(ty));
pub(super) const BITS: TypeSet =
    TypeSet::new("an integer or predicate", |ty| ty.is_int() || ty == Type::Pred);
pub(super) const APPROXIMATED: TypeSet =
    TypeSet::new("f32, f16 or f16x2", |ty| matches!(ty, Type::F32 | Type::F16 | Type::F16x2));
pub(super) const PACKED_FLOATS: TypeSet = TypeSet::new("f16x2 or bf16x2", |ty| ty.half().is_some());
pub(super) const PAIR: TypeSet = TypeSet::new("f16x2, bf16x2, u32 or u64", |ty| {
    matches!(ty, Type::F16x2 | Type::Bf16x2 | Type::U32 | Type::U64)
});
pub(super) const PAIRED: TypeSet =
    TypeSet::new("f16, bf16, u16 or u32", |ty| matches!(ty, Type::F16 | Type::Bf16 | Type::U16 | Type::U32));
pub(super) const POINTERS: TypeSet = TypeSet::new("a pointer", Type::is_memory_pointer);
pub(super) const BITS_32: TypeSet = TypeSet::new("a 32-bit type", |ty| ty.bits() == 32 && !ty.is_pointer());
pub(super) const BITS_32_OR_64: TypeSet =
    TypeSet::new("a 32- or 64-bit type", |ty| matches!(ty.bits(), 32 | 64) && !ty.is_pointer());
pub(super) const U32_OR_I32: TypeSet = TypeSet::new("u32 or i32", |ty| matches!(ty, Type::U32 | Type::I32));
pub(super) const ONLY_PRED: TypeSet = TypeSet::new("pred", |ty| ty == Type::Pred);
pub(super) const ONLY_U32: TypeSet = TypeSet::new("u32", |ty| ty == Type::U32);
pub(super) const ONLY_U64: TypeSet = TypeSet::new("u64", |ty| ty == Type::U64);
pub(super) const F32_OR_F16X2: TypeSet =
    TypeSet::new("f32 or f16x2", |ty| matches!(ty, Type::F32 | Type::F16x2));
pub(super) const ONLY_F16X2: TypeSet = TypeSet::new("f16x2", |ty| ty == Type::F16x2);
pub(super) const ONLY_F32: TypeSet = TypeSet::new("f32", |ty| ty == Type::F32);
pub(super) const ONLY_SHARED: TypeSet = TypeSet::new("shared", |ty| ty == Type::Shared);
pub(super) const ONLY_LOCAL: TypeSet = TypeSet::new("local", |ty| ty == Type::Local);
pub(super) const ONLY_CONSTANT: TypeSet = TypeSet::new("constant", |ty| ty == Type::Constant);
pub(super) const ONLY_CLUSTER: TypeSet = TypeSet::new("cluster", |ty| ty == Type::Cluster);

fn is_word(ty: Type) -> bool {
    ty.is_int() && ty.bits() >= 32
}

fn is_wide_float(ty: Type) -> bool {
    matches!(ty, Type::F32 | Type::F64)
}

fn is_scalar_number(ty: Type) -> bool {
    ty.is_int() || matches!(ty, Type::F16 | Type::Bf16 | Type::F32 | Type::F64)
}

/// The type of an operand or result, possibly relative to the instruction's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandType {
    /// The instruction's type.
    Same,
    /// The type half as wide as the instruction's type, for its low and high halves.
    Half,
    /// The type twice as wide as the instruction's type.
    Double,
    /// A fixed type or a class of types, whatever the instruction's type.
    Fixed(Expect),
}

pub(super) const T: OperandType = OperandType::Same;
pub(super) const HALF: OperandType = OperandType::Half;
pub(super) const DOUBLE: OperandType = OperandType::Double;
pub(super) const POINTER: OperandType = OperandType::Fixed(Expect::Pointer);
pub(super) const DATA: OperandType = OperandType::Fixed(Expect::Data);
pub(super) const OFFSET: OperandType = OperandType::Fixed(Expect::Offset);
pub(super) const PRED: OperandType = fixed(Type::Pred);
pub(super) const TENSOR_MAP: OperandType = fixed(Type::TensorMap);
pub(super) const U16: OperandType = fixed(Type::U16);
pub(super) const U32: OperandType = fixed(Type::U32);
pub(super) const I32: OperandType = fixed(Type::I32);
pub(super) const U64: OperandType = fixed(Type::U64);
pub(super) const F32: OperandType = fixed(Type::F32);
pub(super) const GLOBAL: OperandType = fixed(Type::Global);
pub(super) const SHARED: OperandType = fixed(Type::Shared);
pub(super) const LOCAL: OperandType = fixed(Type::Local);
pub(super) const CLUSTER: OperandType = fixed(Type::Cluster);

/// The type `ty`.
pub(super) const fn exactly(ty: Type) -> OperandType {
    fixed(ty)
}

const fn fixed(ty: Type) -> OperandType {
    OperandType::Fixed(Expect::Is(ty))
}

/// Requirement on the type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Exactly this type.
    Is(Type),
    /// Any pointer.
    Pointer,
    /// Any type that a register can hold except a predicate and the address of a tensor map.
    Data,
    /// u32, i32, u64 or i64.
    Offset,
}

/// Expected operand types and the result types of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Expected type of each operand.
    pub operands: SmallVec<[Expect; 4]>,
    /// Type of each result.
    pub results: SmallVec<[Type; 2]>,
}

/// Type rule of an opcode: allowed instruction types, operands and results.
pub(super) struct Rule {
    types: Option<TypeSet>,
    operands: SmallVec<[OperandType; 4]>,
    results: SmallVec<[OperandType; 2]>,
    error: Option<String>,
}

/// Rule of an instruction whose type is in the set `types`.
pub(super) fn typed(types: TypeSet, operands: &[OperandType], results: &[OperandType]) -> Rule {
    Rule { types: Some(types), ..untyped(operands, results) }
}

/// Rule of an instruction without a type of its own.
pub(super) fn untyped(operands: &[OperandType], results: &[OperandType]) -> Rule {
    Rule { types: None, operands: operands.into(), results: results.into(), error: None }
}

impl Rule {
    /// Adds the result of checking the opcode's members; an error makes every signature an error.
    pub fn check(mut self, members: Result<(), String>) -> Rule {
        self.error = members.err();
        self
    }

    /// Appends an L2 cache policy (u64) as last operand if `present`.
    pub fn policy(mut self, present: bool) -> Rule {
        self.operands.extend(present.then_some(U64));
        self
    }

    /// Whether instructions with this rule have a type.
    pub fn is_typed(&self) -> bool {
        self.types.is_some()
    }

    /// Signature at type `ty`, or the reason why the opcode called `name` has no such instruction.
    pub fn signature(self, name: &str, ty: Type) -> Result<Signature, String> {
        if let Some(types) = self.types.filter(|types| !(types.contains)(ty)) {
            return Err(format!("`{name}` needs {}, not {ty}", types.name));
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let resolve = |slot: &OperandType| {
            let wide = |other: Option<Type>| {
                other.map(Expect::Is).ok_or_else(|| format!("`{name}` has no instruction of type {ty}"))
            };
            match *slot {
                OperandType::Same => Ok(Expect::Is(ty)),
                OperandType::Half => wide(ty.halved()),
                OperandType::Double => wide(ty.doubled()),
                OperandType::Fixed(expect) => Ok(expect),
            }
        };
        let operands = self.operands.iter().map(resolve).collect::<Result<_, _>>()?;
        let result = |slot: &OperandType| match resolve(slot)? {
            Expect::Is(ty) => Ok(ty),
            expect => Err(format!("a result of `{name}` cannot be {expect:?}")),
        };
        let results = self.results.iter().map(result).collect::<Result<_, String>>()?;
        Ok(Signature { operands, results })
    }
}
