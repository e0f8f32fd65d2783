//! Which instructions kernels consist of.

use std::collections::BTreeSet;

use bespoke_codegen::ir::{
    Atomic, Binary, Cache, Compare, Function, Match, Op, Ordering, Reduce, Rounding, Scope, Shuffle, Special,
    Transfer, Type, Unary, Vote, print::mnemonic,
};

/// Instructions that have been seen, as the operation's name with what it chooses among, and with its type.
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
                self.typed.insert(format!("{}.{}", mnemonic(data.op), data.ty));
                if let Op::Convert { .. } = data.op {
                    let from = function.value_type(data.args[0]);
                    self.typed.insert(format!("convert.{}.{from}", data.ty));
                }
            }
        }
    }

    /// Panics if anything is missing.
    pub fn check(&self) {
        let missing: Vec<String> = every().filter(|kind| !self.kinds.contains(kind)).collect();
        assert!(missing.is_empty(), "no kernel has any of {missing:?}");
        for (op, ty) in pure() {
            let name = format!("{}.{ty}", mnemonic(op));
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

fn scalars() -> impl Iterator<Item = Type> {
    Type::ALL.iter().copied().filter(|ty| ty.is_int() || (ty.is_float() && ty.half().is_none()))
}

/// The operation and what it chooses among. A new operation asks here what to make of it.
fn kind(op: Op) -> String {
    let name = mnemonic(op);
    match op {
        Op::Special(special) => format!("{name} {special}"),
        Op::Load(access) | Op::Store(access) => match access.ordering {
            Some(ordering) => format!("{name} {ordering}"),
            None => format!("{name} {} x{}", access.cache, access.vector),
        },
        Op::Atomic { op, .. } => format!("{name} {op}"),
        Op::Convert { rounding, saturate } => format!("{name} {rounding} {saturate}"),
        Op::Fence(scope) | Op::SequentialFence(scope) => format!("{name} {scope}"),
        Op::Shuffle(shuffle) => format!("{name} {shuffle}"),
        Op::Vote(vote) => format!("{name} {vote}"),
        Op::Match(lanes) => format!("{name} {lanes}"),
        Op::Reduce(reduce) => format!("{name} {reduce}"),
        Op::LoadMatrix { matrices, transposed } => format!("{name} {matrices} {transposed}"),
        Op::Mma(mma) => format!("{name} {mma}"),
        Op::Transfer(transfer) => format!("{name} {transfer}"),
        Op::Mbarrier(operation) => format!("{name} {operation}"),
        Op::ClusterBarrier(part) => format!("{name} {part}"),
        Op::Funnel { left } => format!("{name} {left}"),
        Op::Dp4a { a_signed, b_signed } => format!("{name} {a_signed} {b_signed}"),
        Op::Dp2a { a_signed, b_signed, high } => format!("{name} {a_signed} {b_signed} {high}"),
        Op::Const(_)
        | Op::Param(_)
        | Op::SharedAddress(_)
        | Op::DynamicShared
        | Op::Unary(_)
        | Op::Binary(_)
        | Op::MulWide
        | Op::MulAdd
        | Op::Compare(_)
        | Op::Select
        | Op::Bitcast
        | Op::Lop3(_)
        | Op::Prmt
        | Op::BitField
        | Op::BitInsert
        | Op::NthSetBit
        | Op::Elect
        | Op::Sleep
        | Op::Pack
        | Op::ConvertPack
        | Op::Unpack
        | Op::PtrAdd
        | Op::Barrier { .. }
        | Op::BarrierArrive { .. }
        | Op::WarpBarrier
        | Op::FenceFor(_)
        | Op::MapShared
        | Op::CachePolicy(_)
        | Op::WaitForDependencies
        | Op::LaunchDependents
        | Op::Jump
        | Op::Branch
        | Op::Return => name.into(),
    }
}

/// Everything that kernels should have. It leaves out, because no pass looks at their insides and the tests of the
/// intrinsics run them: `dynamic_shared`, `barrier_arrive`, barriers of some threads, `fence_for`, `mbarrier`,
/// bulk transfers, prefetches, and what belongs to clusters; and because two runs need not agree: clocks and `smid`.
fn every() -> impl Iterator<Item = String> {
    let plain = [
        "const",
        "param",
        "shared_address",
        "mul_wide",
        "mul_add",
        "select",
        "bitcast",
        "lop3",
        "prmt",
        "bit_field",
        "pack",
        "convert_pack",
        "unpack",
        "ptr_add",
        "barrier",
        "warp_barrier",
        "cache_policy",
        "jump",
        "branch",
        "return",
        "wait_for_dependencies",
        "launch_dependents",
    ];
    let mut ops: Vec<Op> = Vec::new();
    ops.extend(Special::ALL.iter().map(|&special| Op::Special(special)).filter(|op| {
        let cluster = matches!(op, Op::Special(Special::ClusterRank | Special::ClusterSize));
        !op.has_effect() && !cluster
    }));
    ops.extend(Unary::ALL.iter().map(|&unary| Op::Unary(unary)));
    ops.extend(Binary::ALL.iter().map(|&binary| Op::Binary(binary)));
    ops.extend(Compare::ALL.iter().map(|&compare| Op::Compare(compare)));
    ops.extend(Shuffle::ALL.iter().map(|&shuffle| Op::Shuffle(shuffle)));
    ops.extend(Match::ALL.iter().map(|&lanes| Op::Match(lanes)));
    ops.extend(Reduce::ALL.iter().map(|&reduce| Op::Reduce(reduce)));
    ops.extend([Op::BitInsert, Op::NthSetBit, Op::Elect, Op::Sleep]);
    ops.extend(Vote::ALL.iter().map(|&vote| Op::Vote(vote)));
    ops.extend(Scope::ALL.iter().flat_map(|&scope| [Op::Fence(scope), Op::SequentialFence(scope)]));
    for &rounding in Rounding::ALL {
        ops.extend([false, true].map(|saturate| Op::Convert { rounding, saturate }));
    }
    for a_signed in [false, true] {
        ops.push(Op::Funnel { left: a_signed });
        for b_signed in [false, true] {
            ops.push(Op::Dp4a { a_signed, b_signed });
            ops.extend([false, true].map(|high| Op::Dp2a { a_signed, b_signed, high }));
        }
    }
    for matrices in [1, 2, 4] {
        ops.extend([false, true].map(|transposed| Op::LoadMatrix { matrices, transposed }));
    }
    let transfers = [4, 8, 16].map(|bytes| Transfer::Async { bytes, hinted: false });
    ops.extend(
        transfers.into_iter().chain([Transfer::Commit, Transfer::Wait { pending: 0 }]).map(Op::Transfer),
    );
    ops.extend(Atomic::ALL.iter().map(|&op| Op::Atomic {
        op,
        ordering: Ordering::from(Scope::Gpu),
        offset: 0,
    }));
    let loads = Cache::ALL.iter().flat_map(|cache| [1, 2, 4].map(|vector| format!("load {cache} x{vector}")));
    let stores = ["default", "cg", "cs", "volatile"].into_iter();
    let stores = stores.flat_map(|cache| [1, 2, 4].map(|vector| format!("store {cache} x{vector}")));
    let ordered = Scope::ALL.iter().flat_map(|scope| {
        ["load relaxed", "load acquire", "store relaxed", "store release"]
            .map(|name| format!("{name} {scope}"))
    });
    let products = ["m16n8k16 u8 i8", "m16n8k32 i8 i8", "m16n8k8 f16 f16", "m16n8k16 bf16 bf16"];
    let products = products.into_iter().map(|product| format!("mma {product}"));
    plain
        .into_iter()
        .map(String::from)
        .chain(ops.into_iter().map(kind))
        .chain(loads)
        .chain(stores)
        .chain(ordered)
        .chain(products)
}

/// Pure operations of operands alone, with every type that they have.
fn pure() -> impl Iterator<Item = (Op, Type)> {
    let ops = crate::generate::pure_operations();
    ops.iter().flat_map(|(op, types)| types.iter().map(|&ty| (*op, ty)))
}
