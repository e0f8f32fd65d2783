//! Which target and ISA version an instruction needs.

use super::target::{IsaVersion, Target};
use crate::ir::{Binary, Cache, Compare, InstData, Op, Type, Unary};

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
        Op::Compare(Compare::Eq | Compare::Ne | Compare::Lt | Compare::Le | Compare::Gt | Compare::Ge)
            if bf16 =>
        {
            need("setp.bf16", Sm90, (7, 8))
        }
        Op::Convert { .. } if bf16 && source.is_some_and(Type::is_int) => {
            need("cvt.bf16 from an integer", Sm90, (7, 8))
        }
        Op::Load(access) if access.cache == Cache::ReadOnlyStreaming => {
            need("ld.L1::no_allocate", Sm80, (7, 4))
        }
        Op::Unary(Unary::Tanh | Unary::Exp2) if inst.ty != Type::F32 => {
            need("f16 approximation", Sm80, (7, 0))
        }
        _ => return None,
    })
}
