//! Decoding of `wgmma`.

use super::execute::{HalfPair, Integer, Single, commit, fence, multiply, wait};
use super::operands::list;
use crate::code::cursor::InstructionCursor;
use crate::code::operands::NONE;
use crate::context::Exec;
use crate::exec::element::{Bfloat, Float8E4m3, Float8E5m2, Half, Signed8, Tf32, Unsigned8};
use crate::exec::fragment::registers_of;
use crate::load::ast::Operand;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Element types, in the order of their codes.
const TYPES: [&str; 8] = ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "f32"];

/// Registers of operand `A` per lane.
const REGISTERS_A: usize = 4;

pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let operation = op.take_any(&[("fence", 0), ("commit_group", 1), ("wait_group", 2), ("mma_async", 3)]);
    if !op.take("sync") || !op.take("aligned") {
        return Err(op.unsupported());
    }
    match operation {
        Some(0) => Ok(fence),
        Some(1) => Ok(commit),
        Some(2) => {
            op.imm = op.constant_operand(0)?;
            Ok(wait)
        }
        Some(3) => product(op),
        _ => Err(op.unsupported()),
    }
}

/// Takes the next of the types; `.s32` is the type of integer accumulators.
fn take_type(op: &mut InstructionCursor<'_, '_>) -> Option<&'static str> {
    op.take_map(|name| TYPES.iter().chain(&["s32"]).copied().find(|&known| known == name))
}

fn product(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    let shape = op.take_map(|name| {
        let (columns, depth) = name.strip_prefix("m64n")?.split_once('k')?;
        Some((columns.parse::<u32>().ok()?, depth.parse::<u32>().ok()?))
    });
    let Some((columns, depth)) = shape else { return Err(op.unsupported()) };
    let saturates = op.take("satfinite");
    let types = [take_type(op), take_type(op), take_type(op)];
    let [Some(d), Some(a), Some(b)] = types else { return Err(op.unsupported()) };
    let exec = match (d, a, b, depth) {
        ("f32", "f16", "f16", 16) => multiply::<Single, Half, Half>(),
        ("f16", "f16", "f16", 16) => multiply::<HalfPair, Half, Half>(),
        ("f32", "bf16", "bf16", 16) => multiply::<Single, Bfloat, Bfloat>(),
        ("f32", "tf32", "tf32", 8) => multiply::<Single, Tf32, Tf32>(),
        ("f32", "e4m3", "e4m3", 32) => multiply::<Single, Float8E4m3, Float8E4m3>(),
        ("f32", "e4m3", "e5m2", 32) => multiply::<Single, Float8E4m3, Float8E5m2>(),
        ("f32", "e5m2", "e4m3", 32) => multiply::<Single, Float8E5m2, Float8E4m3>(),
        ("f32", "e5m2", "e5m2", 32) => multiply::<Single, Float8E5m2, Float8E5m2>(),
        ("f16", "e4m3", "e4m3", 32) => multiply::<HalfPair, Float8E4m3, Float8E4m3>(),
        ("f16", "e4m3", "e5m2", 32) => multiply::<HalfPair, Float8E4m3, Float8E5m2>(),
        ("f16", "e5m2", "e4m3", 32) => multiply::<HalfPair, Float8E5m2, Float8E4m3>(),
        ("f16", "e5m2", "e5m2", 32) => multiply::<HalfPair, Float8E5m2, Float8E5m2>(),
        ("s32", "s8", "s8", 32) => multiply::<Integer, Signed8, Signed8>(),
        ("s32", "s8", "u8", 32) => multiply::<Integer, Signed8, Unsigned8>(),
        ("s32", "u8", "s8", 32) => multiply::<Integer, Unsigned8, Signed8>(),
        ("s32", "u8", "u8", 32) => multiply::<Integer, Unsigned8, Unsigned8>(),
        _ => return Err(op.unsupported()),
    };
    let integer = d == "s32";
    // Above 32 columns, integer products have only multiples of 16 columns.
    let step = if integer && columns > 32 { 16 } else { 8 };
    if columns == 0 || columns > 256 || columns % step != 0 || saturates && !integer {
        return Err(op.malformed(format!("no instruction has the form `{}`", op.text())));
    }
    let code = |name: &str| TYPES.iter().position(|&known| known == name).map_or(0, |at| at as u32 + 1);
    let mut flags = if saturates { list::SATURATE } else { 0 };

    let count = columns as usize / 8 * 4 / if d == "f16" { 2 } else { 1 };
    let scale_d = op.src(3, Ty::Pred)?;
    let constant = match op.operand(3)? {
        Operand::Int(value) => Some(*value != 0),
        _ => None,
    };
    let mut accumulators = Vec::new();
    for element in sized(op, 0, count)? {
        let Operand::Reg(register) = element else { return Err(op.unsupported()) };
        let slot = op.write_register(*register, Width::W32)?;
        match constant {
            Some(true) => drop(op.read_register(*register)),
            Some(false) => {}
            None => op.read_register_if(*register, scale_d),
        }
        accumulators.extend([slot, op.wgmma_register(*register)]);
    }
    let mut fragment = Vec::new();
    let descriptor_a = match op.operand(1)? {
        Operand::Vector(_) => {
            for element in sized(op, 1, REGISTERS_A)? {
                let Operand::Reg(register) = element else { return Err(op.unsupported()) };
                let slot = op.value(element, Ty::B32)?;
                fragment.extend([slot, op.wgmma_register(*register)]);
            }
            NONE
        }
        _ => op.src(1, Ty::B64)?,
    };
    let descriptor_b = op.src(2, Ty::B64)?;
    let mut next = 4;
    if !integer {
        for flag in [list::NEGATE_A, list::NEGATE_B] {
            flags |= match op.constant_operand(next)? as i64 {
                1 => 0,
                -1 => flag,
                other => return Err(op.error(format!("the scale {other} is neither 1 nor -1"))),
            };
            next += 1;
        }
    }
    if matches!(a, "f16" | "bf16") {
        let transposes = [list::TRANSPOSE_A, list::TRANSPOSE_B];
        for flag in &transposes[(descriptor_a == NONE) as usize..] {
            flags |= match op.constant_operand(next)? {
                0 => 0,
                1 => *flag,
                other => return Err(op.error(format!("the transposition {other} is neither 0 nor 1"))),
            };
            next += 1;
        }
    }
    let shape = columns | code(a) << 16 | code(b) << 20 | code(d) << 24;
    let mut operands =
        vec![columns, shape, flags, scale_d, descriptor_a, descriptor_b, (fragment.len() / 2) as u32];
    operands.extend(fragment);
    operands.extend(accumulators);
    op.imm = op.list(operands);
    Ok(exec)
}

/// The registers of operand `index`, which must be `count`.
fn sized<'f>(
    op: &mut InstructionCursor<'_, 'f>,
    index: usize,
    count: usize,
) -> Result<&'f [Operand], ParseError> {
    let elements = registers_of(op, index)?;
    if elements.len() != count {
        let message = format!("operand {} of `{}` must have {count} registers", index + 1, op.text());
        return Err(op.error(message));
    }
    Ok(elements)
}
