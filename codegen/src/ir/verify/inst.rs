//! The verifier's rules for single instructions.

use cranelift_entity::EntitySet;

use super::typed;
use crate::ir::dominators::{Dominators, InstBlocks};
use crate::ir::{
    ARRAY_ALIGN, AsyncCopy, Block, Cache, Def, Expect, Function, Inst, InstData, Op, Signature, Table, Type,
    Value,
};

/// Facts about the function for the rules.
pub(super) struct Context<'a> {
    pub doms: &'a Dominators,
    pub insts: &'a InstBlocks,
    /// Instructions checked so far, which in the current block are those before the current instruction.
    pub placed: EntitySet<Inst>,
}

/// Errors in an instruction's operands beyond their number and types.
pub(super) fn misuses(function: &Function, data: &InstData) -> Vec<String> {
    let mut errors = Vec::new();
    casts(function, data, &mut errors);
    memory(function, data, &mut errors);
    asynchronous(function, data, &mut errors);
    errors
}

impl Context<'_> {
    /// Errors in the instruction.
    pub(super) fn check(&self, function: &Function, block: Block, inst: Inst) -> Vec<String> {
        let data = function.inst(inst);
        let mut errors = Vec::new();
        self.dominance(function, block, data, &mut errors);
        signature(function, data, &mut errors);
        targets(function, data, &mut errors);
        entities(function, data, &mut errors);
        if errors.is_empty() {
            errors = misuses(function, data);
        }
        match data.loc {
            Some(loc) if !function.locs.is_valid(loc) => errors.push("has an unknown source location".into()),
            None if !function.locs.is_empty() => errors.push("has no source location".into()),
            _ => {}
        }
        errors
    }

    fn dominance(&self, function: &Function, block: Block, data: &InstData, errors: &mut Vec<String>) {
        for &value in data.args.iter().chain(data.dests.iter().flat_map(|dest| &dest.args)) {
            let dominates = match function.value_def(value) {
                Def::Param(home, index) => {
                    function.block(home).params.get(index as usize) == Some(&value)
                        && self.doms.dominates(home, block)
                }
                Def::Result(def, _) => match self.insts[def] {
                    Some(home) if home == block => self.placed.contains(def),
                    Some(home) => self.doms.dominates(home, block),
                    None => false,
                },
            };
            if !dominates {
                errors.push(format!("the definition of {value} does not dominate this use"));
            }
        }
    }
}

fn signature(function: &Function, data: &InstData, errors: &mut Vec<String>) {
    let Signature { operands: expected, results } = match data.op.signature(data.ty) {
        Ok(signature) => signature,
        Err(message) => return errors.push(message),
    };
    if !data.op.is_typed() && data.ty != Type::U32 {
        errors.push(format!("the operation has no type but is given {}", data.ty));
    }
    if data.args.len() != expected.len() {
        errors.push(format!("has {} operands, not {}", data.args.len(), expected.len()));
    }
    for (&arg, &expect) in data.args.iter().zip(&expected) {
        if !accepts(expect, function.value_type(arg)) {
            errors.push(format!("{} is not {}", typed(function, arg), description(expect)));
        }
    }
    if data.results.len() != results.len() {
        errors.push(format!("has {} results, not {}", data.results.len(), results.len()));
    }
    for (&result, &ty) in data.results.iter().zip(&results) {
        if function.value_type(result) != ty {
            errors.push(format!("the result {} is not of type {ty}", typed(function, result)));
        }
    }
}

fn accepts(expect: Expect, ty: Type) -> bool {
    match expect {
        Expect::Is(expected) => ty == expected,
        Expect::Pointer => ty.is_memory_pointer(),
        Expect::Data => ty != Type::Pred && ty != Type::TensorMap,
        Expect::Offset => ty.is_int() && ty.bits() >= 32,
    }
}

fn description(expect: Expect) -> String {
    match expect {
        Expect::Is(ty) => format!("of type {ty}"),
        Expect::Pointer => "a pointer".into(),
        Expect::Data => "data in a register".into(),
        Expect::Offset => "an offset of 32 or 64 bits".into(),
    }
}

fn targets(function: &Function, data: &InstData, errors: &mut Vec<String>) {
    for dest in &data.dests {
        let params = &function.block(dest.block).params;
        if dest.args.len() != params.len() {
            errors.push(format!(
                "passes {} arguments to {}, not {}",
                dest.args.len(),
                dest.block,
                params.len()
            ));
        }
        for (&arg, &param) in dest.args.iter().zip(params) {
            if function.value_type(arg) != function.value_type(param) {
                errors.push(format!("{} is passed to {}", typed(function, arg), typed(function, param)));
            }
        }
    }
}

fn entities(function: &Function, data: &InstData, errors: &mut Vec<String>) {
    match data.op {
        Op::Param(index) => match function.params.get(index as usize) {
            None => errors.push(format!("the kernel has no parameter {index}")),
            Some(param) if param.ty != data.ty => {
                errors.push(format!("parameter {} is of type {}, not {}", param.name, param.ty, data.ty));
            }
            Some(_) => {}
        },
        Op::Result(index) => match function.results.as_ref().map(|results| results.get(index as usize)) {
            Some(Some(&ty)) if ty == data.ty => {}
            Some(Some(ty)) => errors.push(format!("result {index} is of type {ty}, not {}", data.ty)),
            Some(None) => errors.push(format!("the function has no result {index}")),
            None => errors.push("a kernel has no results".into()),
        },
        Op::SharedAddress(var) if !function.shared.is_valid(var) => {
            errors.push(format!("the kernel has no {var}"));
        }
        Op::LocalAddress(var) if !function.locals.is_valid(var) => {
            errors.push(format!("the kernel has no {var}"));
        }
        Op::TableAddress(var) | Op::Print(var) if !function.tables.is_valid(var) => {
            errors.push(format!("the kernel has no {var}"));
        }
        Op::Print(var) if !is_format(&function.tables[var]) => {
            errors.push(format!("{var} is no format: u8 that end with 0"));
        }
        _ => {}
    }
}

/// Whether a table can be the format of [`Op::Print`].
fn is_format(table: &Table) -> bool {
    table.element == Type::U8 && table.values.last() == Some(&0)
}

fn casts(function: &Function, data: &InstData, errors: &mut Vec<String>) {
    let Some(&arg) = data.args.first() else { return };
    let from = function.value_type(arg);
    match data.op {
        Op::Convert { .. } if from.is_pointer() || from.half().is_some() => {
            errors.push(format!("{} is not a scalar number", typed(function, arg)));
        }
        Op::Bitcast if from.bits() != data.ty.bits() || data.ty == Type::Pred => {
            errors.push(format!("{} has not the width of {}", typed(function, arg), data.ty));
        }
        _ => {}
    }
}

fn memory(function: &Function, data: &InstData, errors: &mut Vec<String>) {
    let Some(offset) = data.op.offset() else { return };
    let pointer = data.args[0];
    let space = function.value_type(pointer);
    if let Type::Local | Type::Constant = space {
        let (what, instead) = match space {
            Type::Local => ("local memory is private to its thread", "load and store it"),
            _ => ("a table of constants is read-only", "load it, or use a `shared_array` or a buffer"),
        };
        let refused = match data.op {
            Op::Load(access) | Op::Store(access)
                if access.cache == Cache::Volatile || access.ordering.is_some() =>
            {
                Some("volatile or ordered access")
            }
            Op::Store(_) if space == Type::Constant => Some("store"),
            Op::Atomic { .. } => Some("atomic"),
            _ => None,
        };
        errors.extend(refused.map(|refused| format!("{what} and has no {refused}: {instead}")));
    }
    let mut elements = 1;
    if let Op::Load(access) | Op::Store(access) = data.op {
        elements = u32::from(access.vector);
        let plain = matches!(access.cache, Cache::Default | Cache::Volatile) && !access.hinted;
        if !plain && function.value_type(pointer) != Type::Global {
            let hint = if access.hinted { "hinted" } else { access.cache.name() };
            errors.push(format!("{hint} access of {}", typed(function, pointer)));
        }
    }
    errors.extend(misaligned(function, pointer, offset, elements * data.ty.bytes()));
}

/// Alignment of a tile in shared memory that a bulk tensor copy moves, in bytes.
const TILE_ALIGN: u32 = 128;

/// Checks alignment and sizes of the operands of asynchronous copies, matrix loads and mbarriers.
fn asynchronous(function: &Function, data: &InstData, errors: &mut Vec<String>) {
    let aligned = |operand: usize, size: u32| misaligned(function, data.args[operand], 0, size);
    match data.op {
        Op::Mbarrier(_) => errors.extend(aligned(0, 8)),
        Op::LoadMatrix { .. } => errors.extend(aligned(0, 16)),
        Op::AsyncCopy(AsyncCopy::Async { bytes, .. }) => errors.extend(aligned(0, bytes.into())),
        Op::AsyncCopy(AsyncCopy::Bulk { .. } | AsyncCopy::BulkMulticast { .. }) => {
            errors.extend(aligned(0, 16));
            errors.extend(aligned(3, 8));
            errors.extend(sixteenths(function, data.args[2]));
        }
        Op::AsyncCopy(AsyncCopy::BulkStore { .. } | AsyncCopy::BulkToCluster) => {
            errors.extend(aligned(1, 16));
            errors.extend(sixteenths(function, data.args[2]));
        }
        Op::AsyncCopy(AsyncCopy::TensorLoad { rank, .. }) => {
            errors.extend(aligned(0, TILE_ALIGN));
            errors.extend(aligned(usize::from(rank) + 2, 8));
        }
        Op::AsyncCopy(AsyncCopy::TensorStore { rank, .. } | AsyncCopy::TensorReduce { rank, .. }) => {
            errors.extend(aligned(usize::from(rank) + 1, TILE_ALIGN));
        }
        Op::AsyncCopy(AsyncCopy::PrefetchBulk) => errors.extend(sixteenths(function, data.args[1])),
        _ => {}
    }
}

fn sixteenths(function: &Function, bytes: Value) -> Option<String> {
    let bytes = function.constant(bytes).filter(|bytes| bytes % 16 != 0)?;
    Some(format!("moves {bytes} bytes, not a multiple of 16"))
}

/// Error of accessing `size` bytes at `pointer + offset`, if that is in a variable of the kernel and misaligned.
fn misaligned(function: &Function, pointer: Value, offset: i32, size: u32) -> Option<String> {
    let (align, at) = place_in_variable(function, pointer)?;
    let (size, begin) = (i64::from(size), at.wrapping_add(i64::from(offset)));
    let wrong = align % size != 0 || begin % size != 0;
    wrong.then(|| format!("accesses {size} bytes at byte {begin} of a variable aligned to {align}"))
}

/// Alignment of the variable that `pointer` points into, and constant byte offset from its beginning; none for
/// other pointers and offsets that are not constant.
fn place_in_variable(function: &Function, pointer: Value) -> Option<(i64, i64)> {
    let (mut pointer, mut at) = (pointer, 0i64);
    // Unchecked instructions may form a cycle; no chain is longer than the number of values.
    for _ in 0..function.value_count() {
        let data = function.defining_inst(pointer)?;
        match data.op {
            Op::SharedAddress(var) => {
                return Some((i64::from(function.shared.get(var)?.align), at));
            }
            Op::LocalAddress(_) | Op::TableAddress(_) => return Some((ARRAY_ALIGN.into(), at)),
            Op::PtrAdd => {
                let (&base, &offset) = (data.args.first()?, data.args.get(1)?);
                at = at.wrapping_add(i64::from(function.constant(offset)? as i32));
                pointer = base;
            }
            _ => return None,
        }
    }
    None
}
