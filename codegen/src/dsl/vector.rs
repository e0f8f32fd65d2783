//! Elements of vector accesses: as they are, or several narrow elements in each 32-bit word.

use super::recorder::{Site, emit, emit1};
use super::scalar::Scalar;
use crate::ir::{Access, Op, Rounding, Type, Value};

/// Number of 32-bit words of an access of `count` elements of type `T` that PTX has no vector for: 8 elements of 2 bytes,
/// 8 or 16 of 1 byte.
fn words<T: Scalar>(count: usize) -> Option<u8> {
    match (T::TYPE.bytes(), count) {
        (1, 8) => Some(2),
        (1, 16) | (2, 8) => Some(4),
        _ => None,
    }
}

/// Loads `count` elements. `operands` are the pointer and, if `access` is hinted, the policy.
pub(super) fn load<T: Scalar>(access: Access, operands: &[Value], count: usize, site: Site) -> Vec<Value> {
    let Some(vector) = words::<T>(count) else {
        return emit(Op::Load(Access { vector: elements(count), ..access }), T::TYPE, operands, site)
            .to_vec();
    };
    let words = emit(Op::Load(Access { vector, ..access }), Type::U32, operands, site);
    words.into_iter().flat_map(|word| split::<T>(word, site)).collect()
}

/// Stores `values` at the pointer, with a policy if `access` is hinted.
pub(super) fn store<T: Scalar>(
    access: Access,
    pointer: Value,
    values: &[Value],
    policy: Option<Value>,
    site: Site,
) {
    let (vector, ty, values) = match words::<T>(values.len()) {
        None => (elements(values.len()), T::TYPE, values.to_vec()),
        Some(vector) => {
            let each = values.len() / usize::from(vector);
            (vector, Type::U32, values.chunks(each).map(|chunk| join::<T>(chunk, site)).collect())
        }
    };
    let operands: Vec<Value> = std::iter::once(pointer).chain(values).chain(policy).collect();
    emit(Op::Store(Access { vector, ..access }), ty, &operands, site);
}

/// The vector length of an access of `count` elements. The type rule of the access rejects a count that is no vector
/// length.
fn elements(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}

fn cast(ty: Type, value: Value, site: Site) -> Value {
    emit1(Op::Bitcast, ty, &[value], site)
}

fn convert(ty: Type, value: Value, site: Site) -> Value {
    emit1(Op::Convert { rounding: Rounding::Nearest, saturate: false }, ty, &[value], site)
}

fn constant(number: u64, site: Site) -> Value {
    emit1(Op::Const(number), Type::U32, &[], site)
}

/// The elements in a word, lowest address first.
fn split<T: Scalar>(word: Value, site: Site) -> Vec<Value> {
    match T::TYPE {
        ty @ (Type::U8 | Type::I8) => {
            let (wide, word) =
                if ty == Type::U8 { (Type::U32, word) } else { (Type::I32, cast(Type::I32, word, site)) };
            let byte = |i: u64| {
                let field = [word, constant(8 * i, site), constant(8, site)];
                convert(ty, emit1(Op::BitField, wide, &field, site), site)
            };
            (0..4).map(byte).collect()
        }
        Type::I16 => {
            let halves = emit(Op::Unpack, Type::U16, &[word], site);
            halves.into_iter().map(|half| cast(Type::I16, half, site)).collect()
        }
        ty => {
            let pair = ty.doubled().unwrap_or(Type::U32);
            let word = if pair == Type::U32 { word } else { cast(pair, word, site) };
            emit(Op::Unpack, ty, &[word], site).to_vec()
        }
    }
}

/// The word of two or four elements, the first at the lowest address.
fn join<T: Scalar>(values: &[Value], site: Site) -> Value {
    match T::TYPE {
        ty @ (Type::U8 | Type::I8) => {
            let byte = |&value: &Value| {
                let bits = if ty == Type::I8 { cast(Type::U8, value, site) } else { value };
                convert(Type::U32, bits, site)
            };
            let first = byte(&values[0]);
            (1..values.len()).fold(first, |word, i| {
                let operands = [byte(&values[i]), word, constant(8 * i as u64, site), constant(8, site)];
                emit1(Op::BitInsert, Type::U32, &operands, site)
            })
        }
        Type::I16 => {
            let halves = [cast(Type::U16, values[0], site), cast(Type::U16, values[1], site)];
            emit1(Op::Pack, Type::U32, &halves, site)
        }
        ty => {
            let pair = ty.doubled().unwrap_or(Type::U32);
            let word = emit1(Op::Pack, pair, values, site);
            if pair == Type::U32 { word } else { cast(Type::U32, word, site) }
        }
    }
}
