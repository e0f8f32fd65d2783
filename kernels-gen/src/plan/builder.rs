//! A plan that is being built, and the views of its buffers.

use super::tuning::Tuning;
use super::{
    Argument, ArgumentAccess, Buffer, BufferKind, Launch, LaunchLabel, LaunchRole, Plan, PlanKernel,
};
use crate::kernels::gemv::GemvShape;
use crate::kernels::launching::Trigger;
use crate::spec::KernelSpec;

/// A view into a buffer of the plan being built.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// Index of the buffer in the plan.
    pub buffer: usize,
    /// Offset in the buffer, in bytes.
    pub offset: u64,
    /// Size, in bytes.
    pub bytes: u64,
}

impl View {
    /// The view as an argument that the launch reads.
    pub fn read(self, param: &str) -> Argument {
        self.argument(param, ArgumentAccess::Read)
    }

    /// The view as an argument that the launch writes.
    pub fn write(self, param: &str) -> Argument {
        self.argument(param, ArgumentAccess::Write)
    }

    /// The view as an argument that the launch reads and writes.
    pub fn read_write(self, param: &str) -> Argument {
        self.argument(param, ArgumentAccess::ReadWrite)
    }

    fn argument(self, param: &str, access: ArgumentAccess) -> Argument {
        Argument {
            param: param.to_owned(),
            buffer: self.buffer,
            offset: self.offset,
            bytes: self.bytes,
            access,
        }
    }
}

/// A plan that is being built, and the tuning rules that decide its divisions.
pub(super) struct Builder<'a> {
    pub plan: Plan,
    pub tuning: &'a Tuning,
    /// Products that were divided, each with what decides its division: all layers have the same few.
    pub divided: Vec<((GemvShape, LaunchRole, Trigger), GemvShape)>,
}

impl Builder<'_> {
    /// Adds a buffer.
    pub fn buffer(&mut self, name: impl Into<String>, bytes: u64, kind: BufferKind) -> View {
        self.plan.buffers.push(Buffer { name: name.into(), bytes, kind });
        View { buffer: self.plan.buffers.len() - 1, offset: 0, bytes }
    }

    /// Adds a launch that depends on the previous one.
    pub fn launch(&mut self, label: impl Into<LaunchLabel>, spec: KernelSpec, args: Vec<Argument>) {
        let name = spec.name();
        let kernel = match self.plan.kernels.iter().position(|kernel| kernel.name == name) {
            Some(index) => index,
            None => {
                self.plan.kernels.push(PlanKernel { name, spec: spec.clone() });
                self.plan.kernels.len() - 1
            }
        };
        let geometry = spec.geometry();
        let first = self.plan.launches.is_empty();
        let after = self.plan.launches.len().checked_sub(1).into_iter().collect();
        self.plan.launches.push(Launch {
            label: label.into(),
            kernel,
            grid: geometry.grid,
            threads: geometry.threads,
            dynamic_shared: geometry.dynamic_shared,
            args,
            after,
            programmatic: self.plan.gpu.is_programmatic() && !first && spec.may_start_early(),
        });
    }
}

/// Bytes of `n` f32.
pub(super) fn f32s(n: u32) -> u64 {
    u64::from(n) * 4
}
