//! Asynchronous copies, mbarriers and their fences as PTX.

use super::printer::Printer;
use crate::ir::{AsyncCopy, FenceFor, InstData, Mbarrier};

impl Printer<'_> {
    pub(super) fn fence_for(&mut self, purpose: FenceFor) {
        match purpose {
            FenceFor::MbarrierInit => self.line(format_args!("fence.mbarrier_init.release.cluster;")),
            FenceFor::AsyncShared => self.line(format_args!("fence.proxy.async.shared::cta;")),
            FenceFor::Async => self.line(format_args!("fence.proxy.async;")),
        }
    }

    pub(super) fn mbarrier(&mut self, operation: Mbarrier, data: &InstData) {
        let barrier = self.register(data.args[0]);
        // sm_80 has no `.shared::cta`; `.shared` means the same.
        let name = match operation {
            Mbarrier::Init => "mbarrier.init.shared.b64",
            Mbarrier::Invalidate => "mbarrier.inval.shared.b64",
            Mbarrier::Arrive => "mbarrier.arrive.shared.b64",
            Mbarrier::ArriveCluster => "mbarrier.arrive.release.cluster.shared::cluster.b64",
            Mbarrier::ArriveExpectCluster => "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64",
            Mbarrier::ArriveExpect => "mbarrier.arrive.expect_tx.shared::cta.b64",
            Mbarrier::Expect => "mbarrier.expect_tx.relaxed.cta.shared::cta.b64",
            Mbarrier::TestWait => "mbarrier.test_wait.parity.shared.b64",
            Mbarrier::TryWait => "mbarrier.try_wait.parity.shared::cta.b64",
            Mbarrier::TryWaitCluster => "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64",
            Mbarrier::ArriveAfterCopies => "cp.async.mbarrier.arrive.noinc.shared.b64",
        };
        let to = match operation {
            Mbarrier::Arrive
            | Mbarrier::ArriveExpect
            | Mbarrier::ArriveCluster
            | Mbarrier::ArriveExpectCluster => "_, ".to_owned(),
            Mbarrier::TestWait | Mbarrier::TryWait | Mbarrier::TryWaitCluster => {
                format!("{}, ", self.register(data.results[0]))
            }
            _ => String::new(),
        };
        let rest: String = data.args[1..].iter().map(|&arg| format!(", {}", self.operand(arg))).collect();
        self.line(format_args!("{name} {to}[{barrier}]{rest};"));
    }

    pub(super) fn async_copy(&mut self, copy: AsyncCopy, data: &InstData) {
        match copy {
            AsyncCopy::Async { bytes, sized, hinted } => {
                // `.cg` (L1 bypass) requires 16-byte accesses.
                let cache = if bytes == 16 { "cg" } else { "ca" };
                let (to, from) = (self.register(data.args[0]), self.register(data.args[1]));
                let policy = self.policy(hinted, data);
                let size = if sized { format!(", {}", self.operand(data.args[2])) } else { String::new() };
                let name = format!("cp.async.{cache}.shared.global");
                self.line(format_args!("{name}{} [{to}], [{from}], {bytes}{size}{policy};", hint(hinted)));
            }
            AsyncCopy::Commit => self.line(format_args!("cp.async.commit_group;")),
            AsyncCopy::Wait { pending } => self.line(format_args!("cp.async.wait_group {pending};")),
            // The CTA's shared window is part of the cluster's; `.shared::cta` as destination needs a later PTX
            // version.
            AsyncCopy::Bulk { hinted } => {
                self.bulk("shared::cluster.global.mbarrier::complete_tx::bytes", hinted, data);
            }
            AsyncCopy::BulkMulticast { hinted } => {
                let name = "shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster";
                self.bulk(name, hinted, data);
            }
            AsyncCopy::BulkStore { hinted } => self.bulk("global.shared::cta.bulk_group", hinted, data),
            AsyncCopy::BulkToCluster => {
                self.bulk("shared::cluster.shared::cta.mbarrier::complete_tx::bytes", false, data);
            }
            AsyncCopy::BulkCommit => self.line(format_args!("cp.async.bulk.commit_group;")),
            AsyncCopy::BulkWait { pending, read } => {
                let read = if read { ".read" } else { "" };
                self.line(format_args!("cp.async.bulk.wait_group{read} {pending};"));
            }
            AsyncCopy::Prefetch => {
                let from = self.register(data.args[0]);
                self.line(format_args!("prefetch.global.L2 [{from}];"));
            }
            AsyncCopy::PrefetchBulk => {
                let (from, bytes) = (self.register(data.args[0]), self.operand(data.args[1]));
                self.line(format_args!("cp.async.bulk.prefetch.L2.global [{from}], {bytes};"));
            }
            AsyncCopy::TensorLoad { rank, multicast, hinted } => {
                self.tensor_load(rank, multicast, hinted, data)
            }
            AsyncCopy::TensorStore { rank, hinted } => {
                self.tensor_store(
                    &format!("cp.async.bulk.tensor.{rank}d.global.shared::cta"),
                    rank,
                    hinted,
                    data,
                );
            }
            AsyncCopy::TensorReduce { op, rank, hinted } => {
                let name = format!("cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}");
                self.tensor_store(&name, rank, hinted, data);
            }
            AsyncCopy::TensorPrefetch { rank, hinted } => {
                let tensor = self.tensor(0, rank, data);
                let policy = self.policy(hinted, data);
                let name = format!("cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile");
                self.line(format_args!("{name}{} {tensor}{policy};", hint(hinted)));
            }
            AsyncCopy::PrefetchTensorMap => {
                let map = self.register(data.args[0]);
                self.line(format_args!("prefetch.tensormap [{map}];"));
            }
        }
    }

    fn tensor_load(&mut self, rank: u8, multicast: bool, hinted: bool, data: &InstData) {
        let to = self.register(data.args[0]);
        let tensor = self.tensor(1, rank, data);
        let after = usize::from(rank) + 2;
        let done = self.register(data.args[after]);
        let mask =
            if multicast { format!(", {}", self.operand(data.args[after + 1])) } else { String::new() };
        let policy = self.policy(hinted, data);
        let name =
            format!("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes");
        let cast = if multicast { ".multicast::cluster" } else { "" };
        self.line(format_args!("{name}{cast}{} [{to}], {tensor}, [{done}]{mask}{policy};", hint(hinted)));
    }

    fn tensor_store(&mut self, name: &str, rank: u8, hinted: bool, data: &InstData) {
        let tensor = self.tensor(0, rank, data);
        let from = self.register(data.args[usize::from(rank) + 1]);
        let policy = self.policy(hinted, data);
        self.line(format_args!("{name}.tile.bulk_group{} {tensor}, [{from}]{policy};", hint(hinted)));
    }

    /// The operand `[map, {coordinates}]`, whose values start at operand `first`.
    fn tensor(&mut self, first: usize, rank: u8, data: &InstData) -> String {
        let map = self.register(data.args[first]);
        let coordinates = &data.args[first + 1..][..usize::from(rank)];
        let coordinates: Vec<String> = coordinates.iter().map(|&arg| self.operand(arg)).collect();
        format!("[{map}, {{{}}}]", coordinates.join(", "))
    }

    /// Prints `cp.async.bulk` with its operands: destination, source, bytes, and possibly an mbarrier, a mask of CTAs
    /// and a cache policy.
    fn bulk(&mut self, name: &str, hinted: bool, data: &InstData) {
        let (to, from) = (self.register(data.args[0]), self.register(data.args[1]));
        let mut rest = self.operand(data.args[2]);
        let operands = data.args.len() - usize::from(hinted);
        if operands > 3 {
            rest += &format!(", [{}]", self.register(data.args[3]));
        }
        if operands > 4 {
            rest += &format!(", {}", self.operand(data.args[4]));
        }
        rest += &self.policy(hinted, data);
        self.line(format_args!("cp.async.bulk.{name}{} [{to}], [{from}], {rest};", hint(hinted)));
    }
}

fn hint(hinted: bool) -> &'static str {
    if hinted { ".L2::cache_hint" } else { "" }
}
