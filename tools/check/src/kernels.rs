//! Checks of the project's own kernels: the kernels of a shape on the cases of the selftest, the kernels of a model in
//! its decode plan.

use std::sync::Arc;

use bespoke::device::{self, Journal};
use bespoke::engine::{Engine, EngineOptions, gpu_for};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;
use bespoke_kernels::spec::KernelSpec;
use bespoke_selftest as selftest;

use super::report::{Finding, Report};
use super::{CheckError, Options};

/// Progress callback: number of completed kernels or tokens, their total, and the name of the kernel that runs next.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// Checks the kernels of a shape's plans whose names contain `filter`, on the cases of the selftest: random inputs, and
/// outputs compared with a computation in double precision.
///
/// # Errors
/// If no plan can be made for the shape, or no kernel has such a name.
pub fn shape(
    shape: &ModelShape,
    filter: &str,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, CheckError> {
    let journal = Arc::new(Journal::new(options.lints || options.profile));
    let device = device::checking(journal.clone(), options.checks);
    let own = gpu_for(&*device)?;
    let gpu = options.multiprocessors.map_or(own, |count| own.with_multiprocessors(count.get()));
    let mut specs = selftest::of_shape(shape, gpu, options.kv).map_err(bespoke::engine::EngineError::from)?;
    specs.retain(|spec| spec.name().contains(filter));
    if specs.is_empty() {
        return Err(CheckError::Nothing(format!("{} has no kernel with `{filter}` in its name", shape.name)));
    }
    let names: Vec<String> = specs.iter().map(KernelSpec::name).collect();
    let mut on_ended = |ended: usize| {
        progress(ended, names.len(), names.get(ended).map_or("", String::as_str));
    };
    let rows = selftest::run_with_progress(&*device, &specs, &mut |_| (), &mut on_ended)?.rows;
    let mut report = Report::new(&shape.name, journal.entries(), options);
    for row in rows {
        // The output of a kernel that a finding stopped is not a second finding.
        let stopped = report.findings.iter().any(|finding| row.kernel.contains(&finding.kernel));
        if let (Some(failure), false) = (&row.failure, stopped) {
            let message = format!("{}, `{}`: {failure}", row.what, row.output);
            report.findings.push(Finding::wrong_result(&row.kernel, message));
        }
    }
    Ok(report)
}

/// Checks a model's decode plan, with its real edges, for `steps` tokens from the start of a sequence.
///
/// # Errors
/// If the model cannot be loaded, or without a finding gives logits that are not finite.
pub fn model(
    gguf: &Gguf,
    shape: &ModelShape,
    steps: u32,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Report, CheckError> {
    let journal = Arc::new(Journal::new(options.lints || options.profile));
    let loading = EngineOptions {
        context: Some(steps.max(1)),
        kv: options.kv,
        multiprocessors: options.multiprocessors,
        prefill: false,
        ..EngineOptions::default()
    };
    let device = device::checking(journal.clone(), options.checks);
    let mut engine = Engine::load(device, gguf, shape, &loading, &|_, _| {})?;
    engine.start(&[FIRST_TOKEN.min(shape.dimensions.vocab - 1)])?;
    let mut overflow = None;
    for step in 0..steps {
        progress(step as usize, steps as usize, "tokens");
        engine.step()?;
        engine.wait()?;
        if let Err(error) = engine.logits() {
            overflow = Some(error);
            break;
        }
    }
    progress(steps as usize, steps as usize, "");
    let report = Report::new(&shape.name, journal.entries(), options);
    match overflow {
        // Logits are not those of the model after a finding.
        Some(error) if report.findings.is_empty() => Err(error.into()),
        _ => Ok(report),
    }
}

/// First token of the sequence. Many vocabularies use token 1 as the start of text; any other token would do.
const FIRST_TOKEN: u32 = 1;
