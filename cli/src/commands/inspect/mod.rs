//! `bespoke inspect`: the kernels and the plan of a model, at every stage.

mod diff;
mod folder;
mod html;

use std::path::{Path, PathBuf};

use bespoke::engine::DEFAULT_CONTEXT;
use bespoke_codegen::opt_report::OptReport;
use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Ptxas;
use bespoke_inspect::diff::Code;
use bespoke_inspect::model::ModelSummary;
use bespoke_inspect::{Stats, Tools, text};
use bespoke_kernels::emit;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::plan::{Plan, PlanKernel, PlanParams, Sampling, StepKind, StepSize, Tuning};
use bespoke_kernels::spec::KernelSpec;
use clap::ValueEnum;
use miette::{IntoDiagnostic, miette};
use rayon::prelude::*;
use serde_json::json;

use crate::console::{self, exact, out, outln};
use crate::model::{self, LoadArgs};
use crate::output::Force;
use crate::progress::Progress;
use crate::rules::RulesArgs;
use crate::session::ArithmeticArgs;

/// Help text of the first argument.
const SUBJECT: &str = "A GGUF file, a Hugging Face folder, or `demo`; a built-in shape: its name, or name and mix as in llama-3.1-8b-q8_0; or a folder of emitted kernels. SUBJECT@TARGET is short for --target";

/// Show the kernels and the decode plan of a model, at every stage
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke inspect model.gguf                             the file, and the kernels with what they cost
  bespoke inspect model.gguf --stage model               the file alone: architecture, types, tokenizer, template
  bespoke inspect llama-3.1-8b                           the kernels of a built-in shape
  bespoke inspect llama-3.1-8b --html page.html          all of it as a page for a browser
  bespoke inspect model.gguf choose --stage ir           a kernel's IR
  bespoke inspect llama-3.1-8b attention_h --stage ptx   its PTX
  bespoke inspect llama-3.1-8b choose --stage opt-report what the passes did to it, and what they did not do, by Rust line
  bespoke inspect llama-3.1-8b --stage plan              the launches and buffers of a step, and how they divide their work
  bespoke inspect llama-3.1-8b --rows 8                  the kernels of a decode step of 8 sequences
  bespoke inspect llama-3.1-8b --rows 64 --prefill       the kernels of a step of 64 prompt tokens
  bespoke inspect llama-3.1-8b --rows 1,8,64             what rows cost, role by role
  bespoke inspect llama-3.1-8b --stage plan --format json > plan.json
  bespoke inspect OUT_DIR norm_scale --stage sass        the machine code of a kernel that a build script emitted
  bespoke inspect --diff llama-3.1-8b llama-3.2-1b       what other dimensions change
  bespoke inspect --diff llama-3.1-8b@sm_80 llama-3.1-8b@sm_90 --role ffn_down --stage ptx

Registers and spills come from ptxas, on PATH or named by BESPOKE_PTXAS; SASS also needs an nvdisasm, \
on PATH, beside ptxas or named by BESPOKE_NVDISASM.")]
pub struct InspectArgs {
    #[arg(value_name = "MODEL|SHAPE|FOLDER", help = SUBJECT, required_unless_present = "diff")]
    model: Option<String>,
    /// How the weights are loaded.
    #[command(flatten)]
    load: LoadArgs,
    /// A kernel's name or a unique part of it [default: all kernels]
    #[arg(value_name = "KERNEL")]
    kernel: Option<String>,
    /// Stage to show [default: stats, or ptx for one kernel]
    #[arg(long, value_enum)]
    stage: Option<Stage>,
    /// Write a page for a browser, which needs no network: source, IR, PTX and SASS side by side, costs, the plan as
    /// a graph
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernel", "stage", "diff"])]
    html: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
    /// Compare two models, shapes or folders that `specialize` wrote; append `@TARGET` for another target. With
    /// --stage, also compare the code
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "model")]
    diff: Option<Vec<String>>,
    /// With --diff, only the kernels in this role: embed, attn_qkv, attention, attn_output, ffn_gate_up, ffn_down, ...
    #[arg(long, requires = "diff")]
    role: Option<String>,
    /// The target to generate for [default: sm_90; for a folder, its newest]
    #[arg(long, value_name = "TARGET")]
    target: Option<Target>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Show the plan that samples, instead of the greedy one
    #[arg(long)]
    sampled: bool,
    /// Show the decode (or first-token) step of this many sequences, or with --prefill the step of this many prompt tokens.
    /// Several numbers are compared in a table [default: 1, with --prefill the most]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Vec<u32>,
    /// Show the prefill step, which processes prompts
    #[arg(long)]
    prefill: bool,
    /// Show the first-token step, which follows a prefill step and chooses the first tokens of answers
    #[arg(long, conflicts_with = "prefill")]
    first_token: bool,
    /// Type of the KV cache: f16 or q8_0 [default: f16]
    #[arg(long, value_name = "TYPE", default_value_t, hide_default_value = true)]
    kv: KvType,
    /// Operands of matrix products.
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// Positions in the KV cache, or 0 for the model's context [default: the model's context, at most 4096]
    #[arg(long, short, aliases = ["context", "ctx-size"], value_name = "N")]
    ctx: Option<u32>,
    /// Rules for dividing the work.
    #[command(flatten)]
    rules: RulesArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// The file: architecture, dimensions, types of tensors, tokenizer, chat template
    Model,
    /// IR as recorded
    Ir0,
    /// IR after all passes
    Ir,
    /// Optimisations applied and missed, with the reason, by Rust line
    OptReport,
    /// PTX
    Ptx,
    /// The GPU's own instructions
    Sass,
    /// Launches and buffers
    Plan,
    /// Geometry, traffic, instruction counts, registers and spills
    Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Target without `--target` and without a folder.
const TARGET: Target = Target::Sm90;

/// Prints the requested stage.
pub fn execute(args: &InspectArgs) -> miette::Result<()> {
    if let Some([a, b]) = args.diff.as_deref() {
        return diff::execute(args, a, b);
    }
    // clap does not refuse this itself, because a model is given instead of --diff.
    if args.role.is_some() {
        return Err(miette!(
            help = "`bespoke inspect MODEL KERNEL` shows one kernel",
            "--role has no effect without --diff"
        ));
    }
    // clap requires a model unless --diff is given.
    let subject = args.model.as_deref().unwrap_or_default();
    let (model, target) = with_target(subject)?;
    if let (Some(named), Some(target)) = (target, args.target.filter(|&given| Some(given) != target)) {
        return Err(miette!("{subject} is for {named}, but --target is {target}: give one target"));
    }
    if is_folder(model) {
        return folder::execute(args, Path::new(model), target);
    }
    if args.stage == Some(Stage::Model) {
        return print_model(args, model);
    }
    let target = target.or(args.target).unwrap_or(TARGET);
    let tuning = args.rules.read()?;
    if args.rows.len() > 1 {
        return compare_rows(args, model, target, &tuning);
    }
    let plan = plan_of(args, model, (target, None), &tuning)?;
    if let Some(path) = &args.html {
        return html::write(&plan, &tuning, path, args.force);
    }
    let names: Vec<&str> = plan.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let kernel = args.kernel.as_deref().map(|name| find(&names, name, &plan.shape.name)).transpose()?;
    let chosen: Vec<&PlanKernel> = match kernel {
        Some(index) => vec![&plan.kernels[index]],
        None => plan.kernels.iter().collect(),
    };
    let default = if kernel.is_some() { Stage::Ptx } else { Stage::Stats };
    let json = args.format == Format::Json;
    match args.stage.unwrap_or(default) {
        Stage::Model => print_model(args, model),
        Stage::OptReport => {
            let reports =
                chosen.iter().map(|kernel| Ok((kernel.name.as_str(), opt_report_of(kernel, target)?)));
            print_opt_reports(&reports.collect::<miette::Result<Vec<_>>>()?, target, json)
        }
        Stage::Plan if json => console::json(&plan),
        Stage::Plan => {
            out!("{}{}", text::choices(&plan, kernel, &tuning), text::plan(&plan, kernel))?;
            Ok(())
        }
        Stage::Stats => {
            let stats = stats(&plan, &chosen, &assembler()?)?;
            match (json, kernel) {
                (true, _) => return console::json(&stats),
                (false, Some(_)) => stats.iter().try_for_each(|stats| out!("{}", text::kernel(stats)))?,
                (false, None) => {
                    if let Some(path) = model::path_of(model) {
                        outln!("{}", text::model(&ModelSummary::of(&model::open_gguf(path)?)))?;
                    }
                    out!("{}", text::kernels(&plan, &stats))?;
                }
            }
            Ok(())
        }
        stage @ (Stage::Ir0 | Stage::Ir | Stage::Ptx | Stage::Sass) => {
            let tools = if stage == Stage::Sass { sass_tools()? } else { Tools::default() };
            let bar = tools.ptxas.is_some().then(|| Progress::delayed_spinner("assembling"));
            let texts =
                chosen.iter().map(|kernel| Ok((&kernel.name, code_of(kernel, stage, target, &tools)?)));
            let texts = texts.collect::<miette::Result<Vec<_>>>()?;
            drop(bar);
            if json {
                let objects: Vec<_> = texts
                    .iter()
                    .map(|(name, text)| json!({ "kernel": name, "target": target, "text": text }))
                    .collect();
                return console::json(&objects);
            }
            texts.iter().try_for_each(|(_, text)| Ok(exact(text.trim_end())?))
        }
    }
}

/// Prints the summary of a model's file. The model itself may be unsupported.
fn print_model(args: &InspectArgs, model: &str) -> miette::Result<()> {
    let path = model::path_of(model).ok_or_else(|| match model::builtin_named(model) {
        Ok(_) => miette!("`{model}` is a built-in shape: --stage model shows a model's file"),
        Err(error) => error,
    })?;
    if args.kernel.is_some() {
        return Err(miette!("--stage model shows a model's file, not a kernel"));
    }
    let summary = ModelSummary::of(&model::open_gguf(path)?);
    match args.format {
        Format::Json => console::json(&summary),
        Format::Text => {
            out!("{}", text::model(&summary))?;
            Ok(())
        }
    }
}

/// Splits `llama-3.1-8b@sm_80` into name and target; no target if a file or folder has the whole name.
fn with_target(subject: &str) -> miette::Result<(&str, Option<Target>)> {
    match subject.rsplit_once('@') {
        Some((name, target)) if !Path::new(subject).exists() => {
            let target = target.parse().map_err(|error| miette!("{subject}: {error}"))?;
            Ok((name, Some(target)))
        }
        _ => Ok((subject, None)),
    }
}

/// Whether a subject is a folder of emitted kernels.
fn is_folder(name: &str) -> bool {
    Path::new(name).is_dir() && !model::is_builtin(name) && !model::is_hf_folder(Path::new(name))
}

/// Prints the kernels of steps of several numbers of rows.
fn compare_rows(args: &InspectArgs, model: &str, target: Target, tuning: &Tuning) -> miette::Result<()> {
    if args.kernel.is_some() || args.html.is_some() || !matches!(args.stage, None | Some(Stage::Stats)) {
        return Err(miette!(
            help = "name one number of rows, as in --rows 8",
            "several numbers of rows can be compared only at --stage stats, for all kernels"
        ));
    }
    let base = plan_of(args, model, (target, None), tuning)?;
    let tools = assembler()?;
    let mut steps: Vec<(Plan, Vec<Stats>)> = Vec::new();
    for &rows in &args.rows {
        let params = step_of(args, Some(rows), &base.params)?;
        if steps.iter().any(|(plan, _)| plan.params.rows == params.rows) {
            continue;
        }
        let plan = Plan::tuned(&base.shape, base.gpu, params, tuning).into_diagnostic()?;
        let stats = stats(&plan, &plan.kernels.iter().collect::<Vec<_>>(), &tools)?;
        steps.push((plan, stats));
    }
    match args.format {
        Format::Json => console::json(&steps.into_iter().flat_map(|(_, stats)| stats).collect::<Vec<_>>()),
        Format::Text => {
            out!("{}", text::by_rows(&steps))?;
            Ok(())
        }
    }
}

/// Parameters of the engine's smallest step that holds `rows` rows. Its sequences have pages for their whole context.
fn step_of(args: &InspectArgs, rows: Option<u32>, base: &PlanParams) -> miette::Result<PlanParams> {
    let kind = match (args.prefill, args.first_token) {
        (true, _) => StepKind::Prefill,
        (_, true) => StepKind::FirstToken,
        _ => StepKind::Decode,
    };
    let sizes = kind.sizes();
    let most = sizes.last().copied().unwrap_or(1);
    let rows = rows.unwrap_or(if args.prefill { most } else { 1 });
    let Some(&size) = sizes.iter().find(|&&size| size >= rows) else {
        return Err(miette!("--rows {rows}: {kind} steps have at most {most} rows"));
    };
    if size != rows {
        tracing::info!("the smallest {kind} step for {rows} rows has {size}");
    }
    if args.arithmetic.arithmetic == Arithmetic::F16 && (args.prefill || size == 1) {
        return Err(miette!(
            "--arithmetic f16 has no effect here: it is for decode and first-token steps of --rows 2 and more"
        ));
    }
    let slots = if args.prefill { 1 } else { size };
    let params = base.clone().with_slots(slots, slots * base.slot_pages());
    Ok(params.with_step(StepSize { kind, rows: size }))
}

/// The plan of a model's step, with `context` positions unless `--ctx` was given.
fn plan_of(
    args: &InspectArgs,
    model: &str,
    (target, context): (Target, Option<u32>),
    tuning: &Tuning,
) -> miette::Result<Plan> {
    let shape = model::resolve(model, args.load)?;
    let most = shape.dimensions.context;
    let context = match args.ctx {
        Some(0) => most,
        Some(given) => given,
        None => context.unwrap_or(most.min(DEFAULT_CONTEXT)),
    };
    let gpu = args.rules.gpu(target);
    args.rules.warn_if_unused(tuning, &gpu);
    let sampling = if args.sampled { Sampling::Sampled } else { Sampling::Greedy };
    let params = PlanParams::single(context).with_kv(args.kv).with_sampling(sampling);
    let params = params.with_arithmetic(args.arithmetic.arithmetic);
    let params = step_of(args, args.rows.first().copied(), &params)?;
    Plan::tuned(&shape, gpu, params, tuning).into_diagnostic()
}

/// The assembler and the disassembler; fails with advice if one is missing.
fn sass_tools() -> miette::Result<Tools> {
    let tools = Tools::find().into_diagnostic()?;
    tools.require_sass().into_diagnostic()?;
    Ok(tools)
}

/// The assembler for statistics. Logs if there is none.
fn assembler() -> miette::Result<Tools> {
    let tools = Tools { ptxas: Ptxas::find().into_diagnostic()?, nvdisasm: None };
    if tools.ptxas.is_none() {
        tracing::info!("no ptxas on PATH or in BESPOKE_PTXAS: registers and spills are not shown");
    }
    Ok(tools)
}

/// Compiles the kernels, and assembles them if `tools` has a ptxas.
fn stats(plan: &Plan, kernels: &[&PlanKernel], tools: &Tools) -> miette::Result<Vec<Stats>> {
    let specs: Vec<KernelSpec> = kernels.iter().map(|kernel| kernel.spec.clone()).collect();
    let emitted = emit::compile(&specs, plan.target()).into_diagnostic()?;
    let usage = |kernel| tools.assemble(kernel).map(|assembled| assembled.usage);
    let _bar = tools.ptxas.is_some().then(|| Progress::delayed_spinner("assembling"));
    Ok(emitted.par_iter().map(|kernel| Stats::of(plan, kernel, usage(kernel))).collect())
}

/// What the passes did to a kernel.
fn opt_report_of(kernel: &PlanKernel, target: Target) -> miette::Result<OptReport> {
    let made = emit::compile(std::slice::from_ref(&kernel.spec), target).into_diagnostic()?;
    let emitted = made.first().ok_or_else(|| miette!("{}: no kernel was generated", kernel.name))?;
    Ok(emitted.compiled.opt_report())
}

/// Prints what the passes did to kernels, given by their names.
fn print_opt_reports(reports: &[(&str, OptReport)], target: Target, json: bool) -> miette::Result<()> {
    if json {
        let object = |(name, report): &(&str, OptReport)| json!({ "kernel": name, "target": target, "entries": report.entries });
        return console::json(&reports.iter().map(object).collect::<Vec<_>>());
    }
    reports.iter().try_for_each(|(name, report)| Ok(exact(text::opt_report(name, report).trim_end())?))
}

/// Text of a kernel at a stage.
fn code_of(kernel: &PlanKernel, stage: Stage, target: Target, tools: &Tools) -> miette::Result<String> {
    if stage == Stage::Ir0 {
        return Ok(kernel.spec.kernel(target).into_diagnostic()?.function().to_string());
    }
    let made = emit::compile(std::slice::from_ref(&kernel.spec), target).into_diagnostic()?;
    let emitted = made.first().ok_or_else(|| miette!("{}: no kernel was generated", kernel.name))?;
    let compiled = &emitted.compiled;
    match stage {
        Stage::Ir => Ok(compiled.function.to_string()),
        Stage::Sass => {
            let sass = tools.assemble(emitted).and_then(|assembled| tools.disassemble(&assembled));
            let sass =
                sass.ok_or_else(|| miette!("{}: there is no SASS; see the warning above", kernel.name))?;
            Ok(text::with_places(&sass, &kernel.name))
        }
        _ => Ok(compiled.ptx.clone()),
    }
}

/// Code that `--diff` compares at a stage; none for stages that are not code.
fn code(stage: Stage) -> Option<Code> {
    match stage {
        Stage::Ir => Some(Code::Ir),
        Stage::Ptx => Some(Code::Ptx),
        Stage::Sass => Some(Code::Sass),
        Stage::Model | Stage::Ir0 | Stage::OptReport | Stage::Plan | Stage::Stats => None,
    }
}

/// Index of the kernel with that name, or of the only one whose name starts with or contains `name`. `of` names the
/// subject in the error.
fn find(names: &[&str], name: &str, of: &str) -> miette::Result<usize> {
    let names = || names.iter().copied().enumerate();
    if let Some((index, _)) = names().find(|(_, other)| *other == name) {
        return Ok(index);
    }
    let starting: Vec<_> = names().filter(|(_, other)| other.starts_with(name)).collect();
    let containing: Vec<_> = names().filter(|(_, other)| other.contains(name)).collect();
    let (what, candidates) = match (starting.as_slice(), containing.as_slice()) {
        ([(index, _)], _) | ([], [(index, _)]) => return Ok(*index),
        ([], []) => ("is not a kernel of", names().collect()),
        ([], _) => ("is part of several kernel names of", containing),
        _ => ("starts several kernel names of", starting),
    };
    let list: String = candidates.iter().map(|(_, name)| format!("\n  {name}")).collect();
    Err(miette!("`{name}` {what} {of}; choose one of:{list}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] =
        ["attention_h32_k8", "choose_greedy", "embed_q4k", "gemv_q4kr2048", "gemv_q4kr8192_swiglu_attention"];

    fn found(name: &str) -> Result<&'static str, String> {
        find(&NAMES, name, "this").map(|index| NAMES[index]).map_err(|error| error.to_string())
    }

    #[test]
    fn kernels_are_found_by_part_of_their_name() {
        assert_eq!(found("swiglu").unwrap(), NAMES[4]);
        assert_eq!(found(NAMES[4]).unwrap(), NAMES[4]);
        assert_eq!(found("gemv_q4kr8192").unwrap(), NAMES[4]);
        // A prefix beats a part in the middle.
        assert_eq!(found("attention").unwrap(), NAMES[0]);
    }

    #[test]
    fn an_ambiguous_name_lists_the_candidates() {
        let error = found("gemv").unwrap_err();
        assert_eq!(
            error,
            format!(
                "`gemv` starts several kernel names of this; choose one of:\n  {}\n  {}",
                NAMES[3], NAMES[4]
            )
        );
        let error = found("softmax").unwrap_err();
        assert!(
            error.starts_with("`softmax` is not a kernel of this") && error.contains("swiglu"),
            "{error}"
        );
    }

    #[test]
    fn a_name_may_end_with_a_target() {
        assert_eq!(with_target("qwen3-0.6b@sm_80").unwrap(), ("qwen3-0.6b", Some(Target::Sm80)));
        assert_eq!(with_target("qwen3-0.6b").unwrap(), ("qwen3-0.6b", None));
        let error = with_target("qwen3-0.6b@sm_75").unwrap_err().to_string();
        assert!(error.starts_with("qwen3-0.6b@sm_75: ") && error.contains("sm_80"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("odd@name.gguf");
        std::fs::write(&file, "").unwrap();
        assert_eq!(with_target(file.to_str().unwrap()).unwrap().1, None);
    }
}
