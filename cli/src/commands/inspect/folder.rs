//! `bespoke inspect FOLDER`: emitted kernels of any program.

use std::path::Path;

use bespoke_codegen::ptx::Target;
use bespoke_inspect::folder::{Folder, FolderIr, FolderKernel};
use bespoke_inspect::{Tools, text};
use miette::{IntoDiagnostic, miette};

use super::{Format, InspectArgs, Stage, find, html, print_opt_reports, sass_tools};
use crate::console::{self, exact, out};
use crate::progress::Progress;

/// Prints the requested stage of the folder's kernels.
pub(super) fn execute(args: &InspectArgs, path: &Path, target: Option<Target>) -> miette::Result<()> {
    refuse_plan_options(args, path)?;
    let folder = Folder::read(path).into_diagnostic()?;
    let target = folder.target(target.or(args.target)).into_diagnostic()?;
    let names = folder.names(target);
    let of = format!("{} for {target}", path.display());
    let one =
        args.kernel.as_deref().map(|name| find(&names, name, &of)).transpose()?.map(|index| names[index]);
    if let Some(page) = &args.html {
        return html::write_folder(&folder, path, target, page, args.force);
    }
    let stage = args.stage.unwrap_or(if one.is_some() { Stage::Ptx } else { Stage::Stats });
    if matches!(stage, Stage::Ir0 | Stage::Ir | Stage::OptReport) {
        return print_ir(args, stage, target, &folder.ir(target, one).into_diagnostic()?);
    }
    let tools = match stage {
        Stage::Sass => sass_tools()?,
        Stage::Stats => Tools { nvdisasm: None, ..Tools::find().into_diagnostic()? },
        _ => Tools::default(),
    };
    let bar = tools.ptxas.is_some().then(|| Progress::delayed_spinner("assembling"));
    let kernels = folder.kernels(target, one, &tools).into_diagnostic()?;
    drop(bar);
    let json = args.format == Format::Json;
    if stage == Stage::Stats {
        match (json, kernels.as_slice(), one) {
            (true, ..) => return console::json(&kernels),
            (false, [kernel], Some(_)) => out!("{}", text::folder_kernel(kernel))?,
            _ => {
                let plural = if kernels.len() == 1 { "" } else { "s" };
                out!("{}\n\n{of}: {} kernel{plural}\n", text::folder(&kernels), kernels.len())?;
            }
        }
        return Ok(());
    }
    let texts = kernels.iter().map(|kernel| code_of(kernel, stage)).collect::<miette::Result<Vec<_>>>()?;
    if json {
        let object = |(kernel, text): (&FolderKernel, &String)| serde_json::json!({ "kernel": kernel.name, "target": target, "text": text });
        return console::json(&kernels.iter().zip(&texts).map(object).collect::<Vec<_>>());
    }
    // Kernels that share a module have one text.
    let is_first = |&(at, text): &(usize, &String)| !texts[..at].contains(text);
    texts.iter().enumerate().filter(is_first).try_for_each(|(_, text)| Ok(exact(text.trim_end())?))
}

/// Prints a stage that follows from the kernels' IR.
fn print_ir(args: &InspectArgs, stage: Stage, target: Target, kernels: &[FolderIr]) -> miette::Result<()> {
    for kernel in kernels.iter().filter(|kernel| !kernel.is_same) {
        tracing::warn!(
            "{}: another version of the passes made the folder's PTX; shown is what this version makes of its IR",
            kernel.name
        );
    }
    if stage == Stage::OptReport {
        let reports: Vec<_> =
            kernels.iter().map(|kernel| (kernel.name.as_str(), kernel.compiled.opt_report())).collect();
        return print_opt_reports(&reports, target, args.format == Format::Json);
    }
    let text = |kernel: &FolderIr| match stage {
        Stage::Ir0 => kernel.recorded.function().to_string(),
        _ => kernel.compiled.function.to_string(),
    };
    if args.format == Format::Json {
        let object = |kernel: &FolderIr| serde_json::json!({ "kernel": kernel.name, "target": target, "text": text(kernel) });
        return console::json(&kernels.iter().map(object).collect::<Vec<_>>());
    }
    kernels.iter().try_for_each(|kernel| Ok(exact(text(kernel).trim_end())?))
}

/// Fails for options that concern a plan, which a folder of kernels does not have.
fn refuse_plan_options(args: &InspectArgs, path: &Path) -> miette::Result<()> {
    let stage = match args.stage {
        Some(Stage::Plan) => Some("--stage plan"),
        Some(Stage::Model) => Some("--stage model"),
        _ => None,
    };
    let options = [
        (args.sampled, "--sampled"),
        (args.ctx.is_some(), "--ctx"),
        (!args.rows.is_empty(), "--rows"),
        (args.prefill, "--prefill"),
        (args.first_token, "--first-token"),
        (args.rules.tune.is_some(), "--tune"),
    ];
    let option = options.iter().find(|(given, _)| *given).map(|(_, name)| *name);
    match stage.or(option) {
        Some(what) => Err(miette!(
            help = "a folder has the stages stats, ir0, ir, opt-report, ptx and sass; name a model or a shape for others",
            "{}: {what} needs a plan; a folder has only kernels",
            path.display()
        )),
        None => Ok(()),
    }
}

fn code_of(kernel: &FolderKernel, stage: Stage) -> miette::Result<String> {
    if stage != Stage::Sass {
        return Ok(kernel.ptx.clone());
    }
    let sass = kernel.sass.as_deref();
    let sass = sass.ok_or_else(|| miette!("{}: there is no SASS; see the warning above", kernel.name))?;
    Ok(text::with_places(sass, &kernel.name))
}
