//! Which target and ISA version an instruction needs.

use super::target::{IsaVersion, Target};
use crate::ir::{Binary, Cache, Compare, FenceFor, InstData, Mbarrier, Op, Special, Transfer, Type, Unary};

/// An instruction that the target lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {instruction} needs {needs}, but the kernel is specialised for {target}{place}")]
pub struct Unsupported {
    /// The kernel.
    pub kernel: String,
    /// The instruction's name.
    pub instruction: String,
    /// The first target that has it, as `sm_90 or later`.
    pub needs: String,
    /// The target asked for.
    pub target: Target,
    /// Where in the Rust source, as ` (file:line:column)`; empty if unknown.
    pub place: String,
}

/// What one instruction needs.
pub(super) struct Requirement {
    pub name: &'static str,
    pub target: Target,
    pub isa: IsaVersion,
}

const fn need(name: &'static str, target: Target, isa: IsaVersion) -> Requirement {
    Requirement { name, target, isa }
}

/// The requirement beyond sm_80 and PTX 7.0, which every target meets. From the "PTX ISA Notes" and "Target ISA
/// Notes" of each instruction in the PTX ISA.
pub(super) fn requirement(inst: &InstData, source: Option<Type>) -> Option<Requirement> {
    use Target::{Sm80, Sm90};
    let bf16 = inst.ty == Type::Bf16;
    Some(match inst.op {
        Op::WaitForDependencies => need("griddepcontrol.wait", Sm90, (7, 8)),
        Op::LaunchDependents => need("griddepcontrol.launch_dependents", Sm90, (7, 8)),
        Op::Binary(Binary::Add) if bf16 => need("add.bf16", Sm90, (7, 8)),
        Op::Binary(Binary::Sub) if bf16 => need("sub.bf16", Sm90, (7, 8)),
        Op::Binary(Binary::Mul) if bf16 => need("mul.bf16", Sm90, (7, 8)),
        Op::Binary(Binary::Add) if inst.ty == Type::Bf16x2 => need("add.bf16x2", Sm90, (7, 8)),
        Op::Binary(Binary::Sub) if inst.ty == Type::Bf16x2 => need("sub.bf16x2", Sm90, (7, 8)),
        Op::Binary(Binary::Mul) if inst.ty == Type::Bf16x2 => need("mul.bf16x2", Sm90, (7, 8)),
        Op::Compare(Compare::Eq | Compare::Ne | Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge)
            if bf16 =>
        {
            need("setp.bf16", Sm90, (7, 8))
        }
        Op::Convert { .. } if bf16 && source.is_some_and(Type::is_int) => {
            need("cvt.bf16 from an integer", Sm90, (7, 8))
        }
        Op::Mbarrier(operation) => mbarrier(operation),
        Op::Transfer(transfer) => return self::transfer(transfer),
        Op::FenceFor(FenceFor::MbarrierInit) => need("fence.mbarrier_init", Sm90, (8, 0)),
        Op::FenceFor(FenceFor::AsyncShared | FenceFor::Async) => need("fence.proxy.async", Sm90, (8, 0)),
        Op::Special(Special::ClusterRank) => need("%cluster_ctarank", Sm90, (7, 8)),
        Op::Special(Special::ClusterSize) => need("%cluster_nctarank", Sm90, (7, 8)),
        Op::MapShared => need("mapa", Sm90, (7, 8)),
        Op::ClusterBarrier(_) => need("barrier.cluster", Sm90, (8, 0)),
        Op::Elect => need("elect.sync", Sm90, (8, 0)),
        Op::CachePolicy(_) => need("createpolicy", Sm80, (7, 4)),
        Op::Load(access) | Op::Store(access) if access.hinted => need("L2::cache_hint", Sm80, (7, 4)),
        Op::Load(access) if access.cache == Cache::ReadOnlyStreaming => {
            need("ld.L1::no_allocate", Sm80, (7, 4))
        }
        Op::Unary(Unary::Tanh | Unary::Exp2) if inst.ty != Type::F32 => {
            need("f16 approximation", Sm80, (7, 0))
        }
        _ => return None,
    })
}

fn mbarrier(operation: Mbarrier) -> Requirement {
    use Target::{Sm80, Sm90};
    match operation {
        Mbarrier::Init => need("mbarrier.init", Sm80, (7, 0)),
        Mbarrier::Invalidate => need("mbarrier.inval", Sm80, (7, 0)),
        // With its state thrown away.
        Mbarrier::Arrive => need("mbarrier.arrive", Sm80, (7, 1)),
        Mbarrier::ArriveExpect => need("mbarrier.arrive.expect_tx", Sm90, (8, 0)),
        Mbarrier::ArriveCluster => need("mbarrier.arrive.shared::cluster", Sm90, (8, 0)),
        Mbarrier::ArriveExpectCluster => need("mbarrier.arrive.expect_tx.shared::cluster", Sm90, (8, 0)),
        Mbarrier::TryWaitCluster => need("mbarrier.try_wait.acquire.cluster", Sm90, (8, 0)),
        Mbarrier::Expect => need("mbarrier.expect_tx", Sm90, (8, 0)),
        Mbarrier::TestWait => need("mbarrier.test_wait.parity", Sm80, (7, 1)),
        Mbarrier::TryWait => need("mbarrier.try_wait.parity", Sm90, (7, 8)),
        Mbarrier::ArriveAfterCopies => need("cp.async.mbarrier.arrive", Sm80, (7, 0)),
    }
}

fn transfer(transfer: Transfer) -> Option<Requirement> {
    use Target::{Sm80, Sm90};
    Some(match transfer {
        Transfer::Async { hinted: true, .. } => need("cp.async.L2::cache_hint", Sm80, (7, 4)),
        Transfer::Bulk { .. }
        | Transfer::BulkMulticast { .. }
        | Transfer::BulkStore { .. }
        | Transfer::BulkToCluster
        | Transfer::BulkCommit
        | Transfer::BulkWait { .. } => need("cp.async.bulk", Sm90, (8, 0)),
        Transfer::PrefetchBulk => need("cp.async.bulk.prefetch", Sm90, (8, 0)),
        Transfer::Async { .. } | Transfer::Commit | Transfer::Wait { .. } | Transfer::Prefetch => {
            return None;
        }
    })
}
