//! Values of special registers and variable addresses that are known when a warp starts.

use crate::code::program::RESERVED_SHARED;
use crate::context::Launch;
use crate::context::cluster::ClusterState;
use crate::context::warp::Warp;
use crate::lanes::LANES;
use crate::load::ast::{ReservedShared, Special};
use crate::load::layout::Uniform;
use crate::load::types::Width;

/// Fills the register slots of a warp's uniform values, except values that the register image already holds.
pub(super) fn fill(launch: &Launch<'_>, cluster: &ClusterState, warp: &mut Warp) {
    let (rank, first) = (cluster.rank(warp.index), (warp.index % cluster.warps * LANES) as u32);
    for (uniform, width, slot) in launch.program.layout.uniforms() {
        if is_in_image(uniform, rank) {
            continue;
        }
        let values = match uniform {
            Uniform::Special(Special::Tid(axis)) => {
                thread_indices(launch.geometry.block, first, axis as usize)
            }
            _ => [value(launch, cluster, uniform, (rank, first)); LANES],
        };
        match width {
            Width::W64 => *warp.regs.lanes_mut(slot) = values,
            Width::W32 => *warp.regs.lanes_mut(slot) = values.map(|value| value as u32),
            Width::W16 => *warp.regs.lanes_mut(slot) = values.map(|value| value as u16),
            Width::Predicate => warp.regs.set_mask(slot, if values[0] != 0 { u32::MAX } else { 0 }),
        }
    }
}

/// Whether the kernel's register image holds a uniform's value for a CTA of rank `rank`.
fn is_in_image(uniform: Uniform, rank: usize) -> bool {
    match uniform {
        Uniform::Special(special) => matches!(
            special,
            Special::Laneid
                | Special::LanemaskEq
                | Special::LanemaskLe
                | Special::LanemaskLt
                | Special::LanemaskGe
                | Special::LanemaskGt
        ),
        Uniform::SharedAddress(_) => rank == 0,
        Uniform::ModuleAddress(_) => false,
    }
}

/// Indices along an axis of the threads of a warp whose first thread has the linear index `first`.
fn thread_indices([x, y, _]: [u32; 3], first: u32, axis: usize) -> [u64; LANES] {
    let mut at = [first % x, first / x % y, first / x / y];
    std::array::from_fn(|_| {
        let index = at[axis] as u64;
        at[0] += 1;
        if at[0] == x {
            at = [0, at[1] + 1, at[2]];
        }
        if at[1] == y {
            at = [at[0], 0, at[2] + 1];
        }
        index
    })
}

/// Value of a uniform, other than an index of a thread, in the warp that starts with thread `thread` of the CTA of rank `rank`.
fn value(launch: &Launch<'_>, cluster: &ClusterState, uniform: Uniform, (rank, thread): (usize, u32)) -> u64 {
    let geometry = &launch.geometry;
    let special = match uniform {
        Uniform::ModuleAddress(offset) => return launch.module_base.wrapping_add_signed(offset),
        Uniform::SharedAddress(offset) => return offset.wrapping_add(cluster.layout.base(rank)),
        Uniform::Special(special) => special,
    };
    if let Special::ReservedShared(what) = special {
        let offset = launch.program.reserved_shared(launch.dynamic_shared).unwrap_or(0);
        return match what {
            ReservedShared::Begin => cluster.layout.base(rank) + offset,
            ReservedShared::End => cluster.layout.base(rank) + offset + RESERVED_SHARED,
            ReservedShared::Capacity => RESERVED_SHARED,
        };
    }
    let value = match special {
        Special::Ntid(axis) => geometry.block[axis as usize],
        Special::Ctaid(axis) => cluster.at[rank][axis as usize],
        Special::Nctaid(axis) => geometry.grid[axis as usize],
        Special::Warpid => thread / LANES as u32,
        Special::Nwarpid => cluster.warps as u32,
        Special::Nsmid => 1,
        Special::DynamicSharedSize => launch.dynamic_shared,
        Special::TotalSharedSize => cluster.layout.bytes as u32,
        Special::Clusterid(axis) => geometry.cluster_at(cluster.index)[axis as usize],
        Special::Nclusterid(axis) => geometry.clusters()[axis as usize],
        Special::ClusterCtaid(axis) => geometry.cta_in_cluster(rank)[axis as usize],
        Special::ClusterNctaid(axis) => geometry.cluster[axis as usize],
        Special::ClusterCtarank => rank as u32,
        Special::ClusterNctarank => cluster.layout.ctas as u32,
        Special::IsExplicitCluster => geometry.explicit_cluster as u32,
        // The driver passes the upper and the lower half of the workspace's address.
        Special::Envreg(1) => (launch.grid_workspace >> 32) as u32,
        Special::Envreg(2) => launch.grid_workspace as u32,
        _ => 0,
    };
    value as u64
}
