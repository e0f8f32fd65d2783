//! From a kernel to its cases.

mod attention;
mod choice;
mod elementwise;
mod matrix;

use bespoke_kernels::spec::KernelSpec;

use super::case::Case;

/// The cases of a kernel.
pub(super) fn cases(spec: &KernelSpec) -> Vec<Case> {
    match spec {
        KernelSpec::Embed(s) => vec![matrix::embed(s)],
        KernelSpec::Gemv(s) => vec![matrix::gemv(s)],
        KernelSpec::RmsNorm(s) => elementwise::rms_norm(s),
        KernelSpec::Rope(s) => elementwise::rope(s),
        KernelSpec::KvAppend(s) => elementwise::kv_append(s),
        KernelSpec::Swiglu(s) => vec![elementwise::swiglu(s)],
        KernelSpec::ResidualAdd(s) => vec![elementwise::residual_add(s)],
        KernelSpec::Attention(s) => attention::attention(s),
        KernelSpec::AttentionCombine(s) => attention::combine(s),
        KernelSpec::Argmax(s) => choice::argmax(s),
        KernelSpec::ChooseGreedy(s) => choice::choose_greedy(s),
        KernelSpec::ReadProbe(s) => choice::read_probe(s),
    }
}
