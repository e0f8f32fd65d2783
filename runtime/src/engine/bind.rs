//! A plan's buffers as device memory, and its launches with addresses.

use bespoke_kernels::plan::{BufferKind, Plan};

use crate::device::{self, Address, Allocation, Device, HostVisible, Kernel, Launch};

/// The plan's buffers.
pub struct Memory {
    addresses: Vec<Address>,
    state: Address,
    tokens: Address,
    finished: HostVisible,
    _device: Vec<Allocation>,
}

impl Memory {
    /// Allocates every buffer of the plan.
    pub fn allocate(plan: &Plan, device: &dyn Device) -> Result<Memory, device::Error> {
        let mut addresses = Vec::new();
        let mut allocations = Vec::new();
        let mut finished = None;
        for buffer in &plan.buffers {
            if buffer.kind == BufferKind::Finished {
                let memory = device.alloc_host_visible(&buffer.name, buffer.bytes)?;
                addresses.push(memory.address());
                finished = Some(memory);
            } else {
                let memory = device.alloc(&buffer.name, buffer.bytes)?;
                if buffer.kind == BufferKind::Counters {
                    device.fill(memory.address(), buffer.bytes, 0)?;
                }
                addresses.push(memory.address());
                allocations.push(memory);
            }
        }
        let find = |kind: &BufferKind| {
            let index = plan.buffers.iter().position(|buffer| buffer.kind == *kind);
            addresses[index.expect("every plan has one")]
        };
        let (state, tokens) = (find(&BufferKind::State), find(&BufferKind::Tokens));
        let finished = finished.expect("every plan has one");
        Ok(Memory { addresses, state, tokens, finished, _device: allocations })
    }

    /// Addresses in the order of the plan's buffers.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The address of the one buffer of the kind: state or tokens.
    pub fn address_of(&self, kind: &BufferKind) -> Address {
        if *kind == BufferKind::State { self.state } else { self.tokens }
    }

    /// The tokens for the host.
    pub fn finished(&self) -> &HostVisible {
        &self.finished
    }
}

/// The plan's launches with the addresses of their arguments; `kernels` in the order of the plan's.
pub fn launches(plan: &Plan, memory: &Memory, kernels: &[Kernel]) -> Vec<Launch> {
    launches_at(plan, &memory.addresses, kernels)
}

/// As [`launches`], with the addresses of the plan's buffers.
pub fn launches_at(plan: &Plan, addresses: &[Address], kernels: &[Kernel]) -> Vec<Launch> {
    plan.launches
        .iter()
        .map(|launch| Launch {
            kernel: kernels[launch.kernel].clone(),
            grid: launch.grid,
            block: [launch.threads, 1, 1],
            dynamic_shared: launch.dynamic_shared,
            params: launch
                .args
                .iter()
                .flat_map(|arg| addresses[arg.buffer].offset(arg.offset).0.to_le_bytes())
                .collect(),
            programmatic: launch.programmatic,
        })
        .collect()
}
