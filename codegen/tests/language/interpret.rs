//! Interpreter of IR, to test the front end without the PTX printer, on recorded and optimised IR.
//!
//! The interpreter supports only what the test programs need: one thread, 32-bit unsigned integers, predicates, and
//! global memory as one array of words. Every pointer parameter is a byte address in that array.

use std::collections::HashMap;

use bespoke_codegen::ir::{Access, Binary, Block, Compare, Function, Op, Type, Unary, Value};

/// Limit on the executed instructions, against endless loops.
const FUEL: usize = 200_000;

/// Runs the function with these parameters on `memory`. A pointer is a byte address in `memory`.
pub fn run(function: &Function, parameters: &[u32], memory: &mut [u32]) {
    let mut values: HashMap<Value, u64> = HashMap::new();
    let mut block = function.layout[0];
    let mut fuel = FUEL;
    loop {
        let Some(next) = run_block(function, block, parameters, memory, &mut values, &mut fuel) else {
            return;
        };
        block = next;
    }
}

fn run_block(
    function: &Function,
    block: Block,
    parameters: &[u32],
    memory: &mut [u32],
    values: &mut HashMap<Value, u64>,
    fuel: &mut usize,
) -> Option<Block> {
    for &inst in &function.block(block).insts {
        *fuel = fuel.checked_sub(1).unwrap_or_else(|| panic!("does not end:\n{function}"));
        let data = function.inst(inst);
        let args: Vec<u64> = data
            .args
            .iter()
            .map(|arg| *values.get(arg).unwrap_or_else(|| panic!("{arg} has no value yet:\n{function}")))
            .collect();
        let mut target = None;
        let result = match data.op {
            Op::Const(bits) => bits,
            Op::Param(index) => parameters[index as usize].into(),
            Op::Unary(Unary::Not) if data.ty == Type::Pred => args[0] ^ 1,
            Op::Unary(Unary::Not) => u64::from(!(args[0] as u32)),
            Op::Binary(op) => binary(op, args[0] as u32, args[1] as u32).into(),
            Op::MulAdd => (args[0] as u32).wrapping_mul(args[1] as u32).wrapping_add(args[2] as u32).into(),
            Op::Compare(op) => compare(op, args[0] as u32, args[1] as u32).into(),
            Op::Select => {
                if args[0] == 1 {
                    args[1]
                } else {
                    args[2]
                }
            }
            Op::PtrAdd => args[0] + args[1],
            Op::Load(Access { vector: 1, offset, .. }) => memory[word(args[0], offset)].into(),
            Op::Store(Access { vector: 1, offset, .. }) => {
                memory[word(args[0], offset)] = args[1] as u32;
                0
            }
            Op::Return => return None,
            Op::Jump => {
                target = Some(&data.dests[0]);
                0
            }
            Op::Branch => {
                target = Some(&data.dests[usize::from(args[0] == 0)]);
                0
            }
            ref op => panic!("the programs here have no {op:?}"),
        };
        if let Some(target) = target {
            let passed: Vec<u64> = target.args.iter().map(|arg| values[arg]).collect();
            let params = &function.block(target.block).params;
            assert_eq!(params.len(), passed.len(), "{function}");
            values.extend(params.iter().copied().zip(passed));
            return Some(target.block);
        }
        if let Some(&value) = data.results.first() {
            values.insert(value, result);
        }
    }
    panic!("{block} has no end:\n{function}")
}

fn word(address: u64, offset: i32) -> usize {
    usize::try_from(address as i64 + i64::from(offset)).expect("an address in memory") / 4
}

fn binary(op: Binary, a: u32, b: u32) -> u32 {
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::MulHi => ((u64::from(a) * u64::from(b)) >> 32) as u32,
        Binary::Div => a.checked_div(b).unwrap_or(u32::MAX),
        Binary::Rem => a.checked_rem(b).unwrap_or(a),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a.checked_shl(b).unwrap_or(0),
        Binary::Shr => a.checked_shr(b).unwrap_or(0),
        op => panic!("the programs here have no {op:?}"),
    }
}

fn compare(op: Compare, a: u32, b: u32) -> bool {
    match op {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    }
}
