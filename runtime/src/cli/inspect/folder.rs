//! `bespoke inspect FOLDER`: emitted kernels, whoever wrote them.

use std::fmt::Write;
use std::path::Path;

use bespoke_codegen::emit::ManifestParameter;
use bespoke_codegen::ptx::Target;
use comfy_table::{CellAlignment, Table, presets};
use miette::{IntoDiagnostic, miette};

use super::kernels::{cells, occupancy, registers_and_spills};
use super::{Format, InspectArgs, Stage, find, grid, print_json, sass_tools, with_places};
use crate::cli::progress::Working;
use crate::inspect::Tools;
use crate::inspect::folder::{Folder, FolderKernel};

/// Prints the stage asked for.
pub(super) fn execute(args: &InspectArgs, path: &Path, target: Option<Target>) -> miette::Result<()> {
    refuse_what_is_a_plans(args, path)?;
    let folder = Folder::read(path).into_diagnostic()?;
    let target = folder.target(target.or(args.target)).into_diagnostic()?;
    let names = folder.names(target);
    let of = format!("{} for {target}", path.display());
    let one =
        args.kernel.as_deref().map(|name| find(&names, name, &of)).transpose()?.map(|index| names[index]);
    let stage = args.stage.unwrap_or(if one.is_some() { Stage::Ptx } else { Stage::Stats });
    let tools = match stage {
        Stage::Sass => sass_tools()?,
        Stage::Stats => Tools { nvdisasm: None, ..Tools::find().into_diagnostic()? },
        _ => Tools::default(),
    };
    let bar = tools.ptxas.is_some().then(|| Working::new("assembling"));
    let kernels = folder.kernels(target, one, &tools).into_diagnostic()?;
    drop(bar);
    let json = args.format == Format::Json;
    if stage == Stage::Stats {
        match (json, kernels.as_slice(), one) {
            (true, ..) => return print_json(&kernels),
            (false, [kernel], Some(_)) => print!("{}", describe(kernel)),
            _ => {
                let plural = if kernels.len() == 1 { "" } else { "s" };
                print!("{}\n\n{of}: {} kernel{plural}\n", table(&kernels), kernels.len());
            }
        }
        return Ok(());
    }
    let texts = kernels.iter().map(|kernel| text(kernel, stage)).collect::<miette::Result<Vec<_>>>()?;
    if json {
        let object = |(kernel, text): (&FolderKernel, &String)| serde_json::json!({ "kernel": kernel.name, "target": target, "text": text });
        return print_json(&kernels.iter().zip(&texts).map(object).collect::<Vec<_>>());
    }
    texts.iter().for_each(|text| println!("{}", text.trim_end()));
    Ok(())
}

/// Options that say something of a plan do nothing to kernels that are there already.
fn refuse_what_is_a_plans(args: &InspectArgs, path: &Path) -> miette::Result<()> {
    let stage = match args.stage {
        Some(Stage::Ir0 | Stage::Ir) => Some("a stage of IR"),
        Some(Stage::Plan) => Some("a plan"),
        _ => None,
    };
    let options = [
        (args.html.is_some(), "--html"),
        (args.sampled, "--sampled"),
        (args.context.is_some(), "--context"),
        (args.rules.tune.is_some(), "--tune"),
    ];
    let option = options.iter().find(|(given, _)| *given).map(|(_, name)| *name);
    match stage.or(option) {
        Some(what) => Err(miette!(
            help =
                "of a folder there are the stages stats, ptx and sass; name a model or a shape for the rest",
            "{}: {what} asks for more than the kernels, which are all that a folder holds",
            path.display()
        )),
        None => Ok(()),
    }
}

fn text(kernel: &FolderKernel, stage: Stage) -> miette::Result<String> {
    if stage != Stage::Sass {
        return Ok(kernel.ptx.clone());
    }
    let sass = kernel.sass.as_deref();
    let sass = sass.ok_or_else(|| miette!("{}: there is no SASS; the warning says why", kernel.name))?;
    Ok(with_places(sass, &kernel.name))
}

/// All kernels, one a line.
fn table(kernels: &[FolderKernel]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "kernel",
        "grid",
        "threads",
        "shared",
        "registers",
        "spills",
        "CTAs/SM",
        "PTX lines",
        "what",
    ]);
    for column in table.column_iter_mut().skip(1).take(7) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for kernel in kernels {
        let [registers, spills] = cells(kernel.ptxas);
        table.add_row([
            kernel.name.clone(),
            kernel.grid.map_or("-".to_owned(), grid),
            grid(kernel.block),
            (kernel.static_shared + kernel.dynamic_shared).to_string(),
            registers,
            spills,
            kernel.occupancy.ctas.to_string(),
            kernel.ptx_lines.to_string(),
            kernel.summary.clone(),
        ]);
    }
    table.trim_fmt()
}

/// One kernel, in lines.
fn describe(kernel: &FolderKernel) -> String {
    let mut lines = vec![("kernel", kernel.name.clone())];
    if !kernel.summary.is_empty() {
        lines.push(("what", kernel.summary.clone()));
    }
    let ctas = match kernel.grid {
        Some(of) => format!("{} CTAs", grid(of)),
        None => "CTAs as the host says".to_owned(),
    };
    lines.push(("target", kernel.target.to_string()));
    lines.push(("grid", format!("{ctas} of {} threads", grid(kernel.block))));
    lines.extend(kernel.cluster.map(|ctas| ("cluster", format!("{ctas} CTAs"))));
    lines.push((
        "shared memory",
        format!("{} bytes static, {} dynamic", kernel.static_shared, kernel.dynamic_shared),
    ));
    let parameters: Vec<String> = kernel.parameters.iter().map(parameter).collect();
    lines.push(("parameters", parameters.join(", ")));
    if !kernel.constants.is_null() {
        lines.push(("constants", kernel.constants.to_string()));
    }
    lines.extend(registers_and_spills(kernel.ptxas));
    lines.push(("occupancy", occupancy(&kernel.occupancy)));
    lines.push(("PTX lines", kernel.ptx_lines.to_string()));
    lines.iter().fold(String::new(), |mut out, (label, value)| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{label:<14} {value}");
        out
    })
}

fn parameter(parameter: &ManifestParameter) -> String {
    let ManifestParameter { name, ty, pointer, align, .. } = parameter;
    let star = if *pointer { "*" } else { "" };
    let promise = align.map_or(String::new(), |bytes| format!(" at multiples of {bytes} bytes"));
    format!("{name}: {star}{ty}{promise}")
}
