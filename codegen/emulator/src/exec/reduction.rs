//! Operations of `cp.reduce.async.bulk`.

use super::atomic::{
    Add, AddBf16, AddF16, AddF32Global, AddF64Global, And, Dec, Inc, MaxS32, MaxS64, MaxU, MinS32, MinS64,
    MinU, Or, Update as _, Xor,
};
use crate::asynchronous::Reduction;
use crate::code::cursor::InstructionCursor;
use crate::load::types::Ty;
use crate::tensor_map::TensorType;

const NAMES: [&str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];

/// New bits of an element, from the old ones and the source's.
type Update = fn(u64, u64, u64) -> u64;

/// Supported reductions: operation, type, bytes of an element, and function. An operand list stores the index plus 1; 0
/// is no reduction.
const REDUCTIONS: [(&str, Ty, usize, Update); 23] = [
    ("add", Ty::U32, 4, Add::update),
    ("add", Ty::S32, 4, Add::update),
    ("add", Ty::U64, 8, Add::update),
    ("add", Ty::F32, 4, AddF32Global::update),
    ("add", Ty::F64, 8, AddF64Global::update),
    ("add", Ty::F16, 2, AddF16::update),
    ("add", Ty::Bf16, 2, AddBf16::update),
    ("min", Ty::U32, 4, MinU::update),
    ("min", Ty::S32, 4, MinS32::update),
    ("min", Ty::U64, 8, MinU::update),
    ("min", Ty::S64, 8, MinS64::update),
    ("max", Ty::U32, 4, MaxU::update),
    ("max", Ty::S32, 4, MaxS32::update),
    ("max", Ty::U64, 8, MaxU::update),
    ("max", Ty::S64, 8, MaxS64::update),
    ("inc", Ty::U32, 4, Inc::update),
    ("dec", Ty::U32, 4, Dec::update),
    ("and", Ty::B32, 4, And::update),
    ("and", Ty::B64, 8, And::update),
    ("or", Ty::B32, 4, Or::update),
    ("or", Ty::B64, 8, Or::update),
    ("xor", Ty::B32, 4, Xor::update),
    ("xor", Ty::B64, 8, Xor::update),
];

/// Takes the name of an operation.
pub(super) fn take_operation(op: &mut InstructionCursor<'_, '_>) -> Option<&'static str> {
    op.take_map(|name| NAMES.into_iter().find(|&known| known == name))
}

/// Number of a reduction, from 1 on.
pub(super) fn number(operation: &str, ty: Ty) -> Option<u32> {
    let at = REDUCTIONS.iter().position(|&(name, known, ..)| name == operation && known == ty)?;
    Some(at as u32 + 1)
}

/// The reduction with a number; `None` for 0.
pub(super) fn numbered(number: u32) -> Option<Reduction> {
    let &(_, _, bytes, update) = REDUCTIONS.get((number as usize).checked_sub(1)?)?;
    Some(Reduction { bytes, update })
}

/// Number of an operation on a tensor's elements, from 1 on.
pub(super) fn operation_number(operation: &str) -> u32 {
    NAMES.iter().position(|&name| name == operation).map_or(0, |at| at as u32 + 1)
}

/// The operation with this number on a tensor's elements. The error is the operation's name, if the emulator does not
/// have it for these elements.
pub(super) fn of_elements(operation: u32, element: TensorType) -> Result<Reduction, &'static str> {
    let name = NAMES[operation as usize - 1];
    let bits = matches!(name, "and" | "or" | "xor");
    let ty = match element {
        TensorType::U32 | TensorType::I32 if bits => Ty::B32,
        TensorType::U64 if bits => Ty::B64,
        // An H100 raises the error "illegal instruction".
        TensorType::I64 if bits => return Err(name),
        TensorType::I64 if name == "add" => Ty::U64,
        TensorType::U32 => Ty::U32,
        TensorType::I32 => Ty::S32,
        TensorType::U64 => Ty::U64,
        TensorType::I64 => Ty::S64,
        TensorType::F16 => Ty::F16,
        TensorType::Bf16 => Ty::Bf16,
        TensorType::F32 => Ty::F32,
        TensorType::F64 => Ty::F64,
        TensorType::U8 | TensorType::U16 => return Err(name),
    };
    number(name, ty).and_then(numbered).ok_or(name)
}
