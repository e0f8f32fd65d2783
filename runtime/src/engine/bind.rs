//! Binding of a plan to a device: the plan's buffers as device memory, and its launches with device addresses.

use bespoke_kernels::plan::{BufferKind, BufferName, Plan};

use super::EngineError;
use crate::device::{
    self, Address, Allocation, Device, GraphReport, HostVisible, Kernel, Launch, LaunchSequence,
};

/// Addresses of the buffers through which the host controls sampling.
#[derive(Clone, Copy)]
pub struct SamplingBuffers {
    /// The record of sampling parameters.
    pub parameters: Address,
    /// The logit bias of each token, f32 `[vocab]`; read only if the record says so.
    pub bias: Address,
    /// The bit of each token that may be chosen, u32 `[vocab / 32]`; read only if the record says so.
    pub mask: Address,
}

/// Device memory of a plan's buffers.
pub struct PlanBuffers {
    addresses: Vec<Address>,
    state: Address,
    prompt_state: Option<Address>,
    tokens: Address,
    logits: Address,
    sampling: Option<SamplingBuffers>,
    host_tokens: HostVisible,
    _device: Vec<Allocation>,
}

impl PlanBuffers {
    /// Allocates every buffer of the plan. No buffer has content yet.
    pub fn allocate(plan: &Plan, device: &dyn Device) -> Result<PlanBuffers, device::Error> {
        let mut addresses = Vec::new();
        let mut allocations = Vec::new();
        let mut host_tokens = None;
        for buffer in &plan.buffers {
            if buffer.kind == BufferKind::HostTokens {
                let memory = device.alloc_host_visible(&buffer.name, buffer.bytes)?;
                addresses.push(memory.address());
                host_tokens = Some(memory);
            } else {
                let memory = device.alloc(&buffer.name, buffer.bytes)?;
                addresses.push(memory.address());
                allocations.push(memory);
            }
        }
        let find = |kind: BufferKind| {
            let index = plan.buffers.iter().position(|buffer| buffer.kind == kind);
            index.map(|index| addresses[index])
        };
        let named = |name| plan.buffer(name).map(|index| addresses[index]);
        Ok(PlanBuffers {
            state: named(BufferName::State).expect("every engine has decode steps"),
            prompt_state: named(BufferName::PromptState),
            tokens: find(BufferKind::Tokens).expect("every plan has tokens"),
            logits: named(BufferName::Logits).expect("every plan has logits"),
            sampling: find(BufferKind::Sampling)
                .zip(find(BufferKind::LogitBias).zip(find(BufferKind::TokenMask)))
                .map(|(parameters, (bias, mask))| SamplingBuffers { parameters, bias, mask }),
            host_tokens: host_tokens.expect("every plan has tokens for the host"),
            addresses,
            _device: allocations,
        })
    }

    /// Sets the counters to zero, which they are between complete launches.
    pub fn clear_counters(&self, plan: &Plan, device: &dyn Device) -> Result<(), device::Error> {
        self.clear(BufferKind::Counters, plan, device)
    }

    /// Sets all pages of the KV cache to zero.
    pub fn clear_cache(&self, plan: &Plan, device: &dyn Device) -> Result<(), device::Error> {
        self.clear(BufferKind::KvCache, plan, device)
    }

    /// Sets the buffers of a kind to zero.
    fn clear(&self, kind: BufferKind, plan: &Plan, device: &dyn Device) -> Result<(), device::Error> {
        let buffers = plan.buffers.iter().zip(&self.addresses);
        let mut buffers = buffers.filter(|(buffer, _)| buffer.kind == kind);
        buffers.try_for_each(|(buffer, &address)| device.fill(address, buffer.bytes, 0))
    }

    /// Device addresses of the buffers, in the plan's order.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Address of the row records of decode, verify and first-token steps ([`bespoke_kernels::kernels::state`]).
    pub fn state(&self) -> Address {
        self.state
    }

    /// Address of the row records of prefill steps; none in an engine without such steps.
    pub fn prompt_state(&self) -> Option<Address> {
        self.prompt_state
    }

    /// Address of the tokens of the sequence, one per position.
    pub fn tokens(&self) -> Address {
        self.tokens
    }

    /// Address of the logits of the last step, `f32 [vocab]`.
    pub fn logits(&self) -> Address {
        self.logits
    }

    /// Addresses of the sampling parameters; none in a plan that decodes greedily.
    pub fn sampling(&self) -> Option<SamplingBuffers> {
        self.sampling
    }

    /// The chosen tokens in host-visible memory, one per position.
    pub fn host_tokens(&self) -> &HostVisible {
        &self.host_tokens
    }
}

/// Creates the plan's launches, with the device addresses of their arguments. `kernels` are in the plan's order.
pub fn launches(plan: &Plan, buffers: &PlanBuffers, kernels: &[Kernel]) -> Vec<Launch> {
    launches_at(plan, &buffers.addresses, kernels)
}

/// Creates launches as [`launches`] does, from the device address of each buffer in the plan's order.
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

/// Checks every launch against the device's shared memory: a device may have less than the plan's target.
pub(super) fn check_shared_memory(plan: &Plan, device: &dyn Device) -> Result<(), EngineError> {
    let limit = device.info().shared_per_block_optin;
    match plan.launches.iter().find(|launch| launch.dynamic_shared > limit) {
        None => Ok(()),
        Some(launch) => Err(EngineError::SharedMemory {
            label: launch.label.to_string(),
            needed: launch.dynamic_shared,
            device: device.info().name.clone(),
            limit,
        }),
    }
}

/// Captures the launches as a graph and compares the graph with the plan. Returns none, with a warning, if the capture
/// fails.
pub(super) fn capture(
    sequence: &mut dyn LaunchSequence,
    plan: &Plan,
) -> Result<Option<GraphReport>, EngineError> {
    let report = match sequence.capture() {
        Ok(report) => report,
        Err(error @ device::Error::Capture(_)) => {
            tracing::warn!("{error}; kernels are launched one by one instead");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let planned: Vec<&str> =
        plan.launches.iter().map(|launch| plan.kernels[launch.kernel].name.as_str()).collect();
    if report.nodes != planned.len() {
        return Err(EngineError::GraphMismatch(format!(
            "{} nodes for {} launches",
            report.nodes,
            planned.len()
        )));
    }
    match report.kernels.iter().zip(&planned).position(|(node, kernel)| node != kernel) {
        None => Ok(Some(report)),
        Some(index) => Err(EngineError::GraphMismatch(format!(
            "node {index} is {}, launch {index} is {}",
            report.kernels[index], planned[index]
        ))),
    }
}
