//! Test cases of each kind of kernel.

mod attention;
mod choice;
pub(super) mod matrix;
mod norm_add;
mod probe;
mod rows;
mod sampling;
mod select_rows;
mod shares;

use bespoke_kernels::spec::KernelSpec;

use super::case::Case;

/// Creates the test cases of a kernel.
pub(super) fn cases(spec: &KernelSpec) -> Vec<Case> {
    match spec {
        KernelSpec::Embed(s) => matrix::embed(s),
        KernelSpec::SelectRows(s) => vec![select_rows::select_rows(s)],
        KernelSpec::Gemv(s) => matrix::gemv_cases(s),
        KernelSpec::Prepare(s) => vec![matrix::prepare(s)],
        KernelSpec::Gemm(s) => matrix::gemm(s),
        KernelSpec::Convert(s) => matrix::convert(s),
        KernelSpec::NormAdd(s) => vec![norm_add::norm_add(s)],
        KernelSpec::Attention(s) => attention::attention(s),
        KernelSpec::AttentionShares(s) => shares::attention_shares(s),
        KernelSpec::Append(s) => attention::append(s),
        KernelSpec::AttentionChunk(s) => attention::chunk(s),
        KernelSpec::ChooseGreedy(s) => choice::choose_greedy(s),
        KernelSpec::SampleKeys(s) => sampling::sample_keys(s),
        KernelSpec::ChooseSampled(s) => sampling::choose_sampled(s),
        KernelSpec::ReadProbe(s) => probe::read_probe(s),
        KernelSpec::MmaProbe(s) => probe::mma_probe(s),
    }
}
