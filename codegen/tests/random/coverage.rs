//! Coverage of the instruction set by the random kernels.

use std::collections::BTreeSet;

use bespoke_codegen::ir::{AsyncCopy, Function, MmaElement, Op, Special, Type};

/// Instructions that occurred in the kernels so far: opcodes with their members, and opcodes with their types.
#[derive(Default)]
pub struct Reached {
    kinds: BTreeSet<String>,
    typed: BTreeSet<String>,
}

impl Reached {
    pub fn add(&mut self, function: &Function) {
        for &block in &function.layout {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                self.kinds.insert(kind(data.op));
                self.typed.insert(format!("{}.{}", data.op.name(), data.ty));
                if let Op::Convert { .. } = data.op {
                    let from = function.value_type(data.args[0]);
                    self.typed.insert(format!("convert.{}.{from}", data.ty));
                }
            }
        }
    }

    /// Panics if an instruction of [`every`] or a type of a pure opcode has not occurred.
    pub fn check(&self) {
        let missing: Vec<String> = every().filter(|kind| !self.kinds.contains(kind)).collect();
        assert!(missing.is_empty(), "no kernel has any of {missing:?}");
        for (op, ty) in pure() {
            let name = format!("{}.{ty}", op.name());
            assert!(self.typed.contains(&name), "no kernel has {name}");
        }
        for to in scalars() {
            for from in scalars() {
                let name = format!("convert.{to}.{from}");
                assert!(self.typed.contains(&name), "no kernel has {name}");
            }
        }
    }
}

/// Random kernels have no f64: which payload a NaN of f64 arithmetic has depends on the order of the operands, which
/// passes exchange. The tables of `testing/tests/intrinsics` execute every f64 instruction with and without passes.
fn scalars() -> impl Iterator<Item = Type> {
    let scalars =
        Type::ALL.iter().copied().filter(|ty| ty.is_int() || (ty.is_float() && ty.half().is_none()));
    scalars.filter(|&ty| ty != Type::F64)
}

/// The opcode with the members that distinguish instructions, without constants and indices.
fn kind(op: Op) -> String {
    let name = op.name();
    match op {
        Op::Load(access) | Op::Store(access) => match access.ordering {
            Some(ordering) => format!("{name} {ordering}"),
            None => format!("{name} {} x{}", access.cache, access.vector),
        },
        Op::Atomic { op, .. } => format!("{name} {op}"),
        Op::Const(_)
        | Op::Param(_)
        | Op::SharedAddress(_)
        | Op::Lop3(_)
        | Op::Barrier { .. }
        | Op::BarrierArrive { .. }
        | Op::CachePolicy(_) => name.into(),
        op => op.text(Type::U32),
    }
}

/// Every instruction that the random kernels should contain.
fn every() -> impl Iterator<Item = String> {
    let exists = |op: &Op| Type::ALL.iter().any(|&ty| op.signature(ty).is_ok());
    Op::every().into_iter().filter(exists).filter(|&op| !is_omitted(op)).map(kind)
}

/// Whether the generator omits an instruction: no pass distinguishes it from others and the tests of the intrinsics
/// execute it, or its result may differ between two runs.
fn is_omitted(op: Op) -> bool {
    match op {
        Op::Special(special) => {
            special.is_volatile() || matches!(special, Special::ClusterRank | Special::ClusterSize)
        }
        Op::Load(access) | Op::Store(access) => access.hinted,
        Op::Barrier { threads, .. } => threads != 0,
        Op::AsyncCopy(AsyncCopy::Async { sized, hinted, .. }) => sized || hinted,
        Op::AsyncCopy(AsyncCopy::Wait { pending }) => pending != 0,
        Op::AsyncCopy(AsyncCopy::Commit) => false,
        // The tests of `tests/language/calls.rs` execute calls.
        Op::Call(_) | Op::Result(_) => true,
        // Inline PTX is opaque to passes except for its effect.
        Op::Inline(_)
        | Op::DynamicShared
        | Op::LocalAddress(_)
        | Op::TableAddress(_)
        | Op::Print(_)
        | Op::Trap
        | Op::BarrierArrive { .. }
        | Op::FenceFor(_)
        | Op::Mbarrier(_)
        | Op::AsyncCopy(_)
        | Op::MapShared
        | Op::ConvertToFloat8(_)
        | Op::ConvertFromFloat8(_)
        | Op::ClusterBarrier(_) => true,
        Op::Mma(mma) => mma.a == MmaElement::F64,
        op if op.is_architecture_specific() => true,
        _ => false,
    }
}

/// Pure opcodes that the generator uses, with every type that they have.
fn pure() -> impl Iterator<Item = (Op, Type)> {
    let ops = crate::generate::pure_operations();
    ops.iter().flat_map(|(op, types)| types.iter().map(|&ty| (*op, ty)))
}
