//! `bespoke inspect`: what is generated for a model, at every stage.

mod choices;
mod kernels;
mod plan;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::{Plan, PlanKernel, PlanParams, Sampling};
use clap::ValueEnum;
use miette::{IntoDiagnostic, miette};
use serde_json::json;

use super::model;
use super::rules::RulesArgs;
use crate::engine::DEFAULT_CONTEXT;

/// Show the kernels and the plan that a model is decoded with, at every stage
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke inspect llama-3.1-8b                           the kernels, with what they cost
  bespoke inspect model.gguf choose --stage ir           a kernel's IR
  bespoke inspect llama-3.1-8b attention_h --stage ptx   its PTX
  bespoke inspect llama-3.1-8b --stage plan              the launches and buffers of a step, and how they divide their work
  bespoke inspect llama-3.1-8b --stage plan --format json > plan.json

Registers and spills are ptxas' words, where one is on PATH or named by BESPOKE_PTXAS.")]
pub struct InspectArgs {
    #[arg(value_name = "MODEL|SHAPE", help = model::HELP)]
    model: String,
    /// A kernel's name, or a part of it that no other has [default: all]
    #[arg(value_name = "KERNEL")]
    kernel: Option<String>,
    /// What to show [default: stats, or ptx of one kernel]
    #[arg(long, value_enum)]
    stage: Option<Stage>,
    /// The target to generate for
    #[arg(long, default_value_t = Target::Sm90, value_name = "TARGET")]
    target: Target,
    /// Text to read, or JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The plan that draws tokens instead of taking the most likely one
    #[arg(long)]
    sampled: bool,
    /// Positions in the KV cache [default: the model's context, at most 4096]
    #[arg(long, value_name = "N")]
    context: Option<u32>,
    /// How work is divided.
    #[command(flatten)]
    rules: RulesArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// IR as it was recorded
    Ir0,
    /// IR after all passes
    Ir,
    /// PTX
    Ptx,
    /// Launches and buffers
    Plan,
    /// Geometry, traffic, instruction counts and what ptxas says
    Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
}

/// Prints the stage asked for.
pub fn execute(args: &InspectArgs) -> miette::Result<()> {
    let shape = model::resolve(&args.model)?;
    let context = args.context.unwrap_or(shape.dimensions.context.min(DEFAULT_CONTEXT));
    let tuning = args.rules.read()?;
    args.rules.warn_if_for_others(&tuning, args.target);
    let sampling = if args.sampled { Sampling::Sampled } else { Sampling::Greedy };
    let params = PlanParams::single(context).choosing(sampling);
    let plan = Plan::tuned(&shape, args.target, params, &tuning).into_diagnostic()?;
    let kernel = args.kernel.as_deref().map(|name| find(&plan, name)).transpose()?;
    let chosen: Vec<&PlanKernel> = match kernel {
        Some(index) => vec![&plan.kernels[index]],
        None => plan.kernels.iter().collect(),
    };
    let default = if kernel.is_some() { Stage::Ptx } else { Stage::Stats };
    let json = args.format == Format::Json;
    match args.stage.unwrap_or(default) {
        Stage::Plan if json => print_json(&plan),
        Stage::Plan => {
            print!("{}{}", choices::text(&plan, kernel, &tuning), plan::text(&plan, kernel));
            Ok(())
        }
        Stage::Stats => {
            let stats = kernels::stats(&plan, &chosen)?;
            match (json, kernel) {
                (true, _) => return print_json(&stats),
                (false, Some(_)) => stats.iter().for_each(|stats| print!("{}", kernels::describe(stats))),
                (false, None) => print!("{}", kernels::table(&plan, &stats)),
            }
            Ok(())
        }
        stage @ (Stage::Ir0 | Stage::Ir | Stage::Ptx) => {
            let texts = chosen.iter().map(|kernel| Ok((&kernel.name, text(kernel, stage, args.target)?)));
            let texts = texts.collect::<miette::Result<Vec<_>>>()?;
            if json {
                let objects: Vec<_> = texts
                    .iter()
                    .map(|(name, text)| json!({ "kernel": name, "target": args.target, "text": text }))
                    .collect();
                return print_json(&objects);
            }
            texts.iter().for_each(|(_, text)| println!("{}", text.trim_end()));
            Ok(())
        }
    }
}

fn print_json(value: &impl serde::Serialize) -> miette::Result<()> {
    println!("{}", serde_json::to_string_pretty(value).into_diagnostic()?);
    Ok(())
}

/// A kernel's text at a stage.
fn text(kernel: &PlanKernel, stage: Stage, target: Target) -> miette::Result<String> {
    let recorded = kernel.spec.kernel(target).into_diagnostic()?;
    if stage == Stage::Ir0 {
        return Ok(recorded.function().to_string());
    }
    let compiled = recorded.compile(target).into_diagnostic()?;
    Ok(if stage == Stage::Ir { compiled.function.to_string() } else { compiled.ptx })
}

/// The kernel that `name` is, or alone starts with, or alone contains.
fn find(plan: &Plan, name: &str) -> miette::Result<usize> {
    let names = || plan.kernels.iter().map(|kernel| kernel.name.as_str()).enumerate();
    if let Some((index, _)) = names().find(|(_, other)| *other == name) {
        return Ok(index);
    }
    let starting: Vec<_> = names().filter(|(_, other)| other.starts_with(name)).collect();
    let containing: Vec<_> = names().filter(|(_, other)| other.contains(name)).collect();
    let (what, candidates) = match (starting.as_slice(), containing.as_slice()) {
        ([(index, _)], _) | ([], [(index, _)]) => return Ok(*index),
        ([], []) => ("is no kernel of", names().collect()),
        ([], _) => ("is in several names of kernels of", containing),
        _ => ("starts several names of kernels of", starting),
    };
    let list: String = candidates.iter().map(|(_, name)| format!("\n  {name}")).collect();
    Err(miette!("`{name}` {what} {}; choose one of:{list}", plan.shape.name))
}

/// CTAs as `132` or `8x4x1`.
fn grid([x, y, z]: [u32; 3]) -> String {
    if (y, z) == (1, 1) { x.to_string() } else { format!("{x}x{y}x{z}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(&model::resolve("llama-3.2-1b").unwrap(), Target::Sm90, PlanParams::single(256)).unwrap()
    }

    #[test]
    fn kernels_by_a_part_of_their_name() {
        let plan = plan();
        let found = |name| find(&plan, name).map(|index| plan.kernels[index].name.clone());
        let full = found("swiglu").unwrap();
        assert!(full.starts_with("gemv_q4kr8192_q4kr8192"));
        assert_eq!(found(&full).unwrap(), full);
        assert_eq!(found("gemv_q4kr8192").unwrap(), full);
        // A prefix beats a part in the middle.
        assert!(found("attention_h").unwrap().starts_with("attention_h32"));
    }

    #[test]
    fn what_is_not_clear_lists_the_candidates() {
        let plan = plan();
        let error = find(&plan, "gemv").unwrap_err().to_string();
        assert!(
            error.starts_with(
                "`gemv` starts several names of kernels of llama-3.2-1b; choose one of:\n  gemv_"
            )
        );
        assert!(!error.contains("embed"), "{error}");
        let error = find(&plan, "softmax").unwrap_err().to_string();
        assert!(error.starts_with("`softmax` is no kernel of") && error.contains("swiglu"), "{error}");
    }

    #[test]
    fn grids() {
        assert_eq!(grid([132, 1, 1]), "132");
        assert_eq!(grid([8, 4, 1]), "8x4x1");
    }
}
