//! The page of `bespoke inspect --html`: one file with data, style and scripts, without network access.

use std::path::Path;

use bespoke::device::Bytes;
use bespoke_codegen::ptx::Target;
use bespoke_inspect::folder::Folder;
use bespoke_inspect::{Inspection, Tools, text};
use bespoke_kernels::plan::{Plan, Tuning};
use miette::IntoDiagnostic;

use crate::console::outln;
use crate::output::{self, Force};
use crate::progress::Progress;

/// Writes the page of a plan.
pub(super) fn write(plan: &Plan, tuning: &Tuning, path: &Path, force: Force) -> miette::Result<()> {
    write_page(path, force, |tools| {
        let bar = Progress::count("kernels", 0);
        let tell = |done: usize, total: usize| bar.update(done as u64, total as u64);
        let inspection = Inspection::of(plan, tuning, tools, &tell).into_diagnostic()?;
        bar.finish();
        Ok(inspection)
    })
}

/// Writes the page of the kernels in the folder at `from`.
pub(super) fn write_folder(
    folder: &Folder,
    from: &Path,
    target: Target,
    path: &Path,
    force: Force,
) -> miette::Result<()> {
    write_page(path, force, |tools| {
        let _bar = Progress::delayed_spinner("kernels");
        Inspection::of_folder(folder, &from.display().to_string(), target, tools).into_diagnostic()
    })
}

/// Writes a page with the data that `inspect` computes.
fn write_page(
    path: &Path,
    force: Force,
    inspect: impl FnOnce(&Tools) -> miette::Result<Inspection>,
) -> miette::Result<()> {
    // Created first, so that an unwritable path fails before kernels are assembled for every target.
    let file = output::create(path, force)?;
    let tools = Tools::find().into_diagnostic()?;
    for (tool, missing, what) in [
        ("ptxas", tools.ptxas.is_none(), "registers, spills and SASS"),
        ("nvdisasm", tools.nvdisasm.is_none(), "SASS"),
    ] {
        if missing {
            let variable = tool.to_uppercase();
            tracing::warn!("no {tool} on PATH or in BESPOKE_{variable}: the page has no {what}");
        }
    }
    let inspection = inspect(&tools)?;
    let text = text::page(&inspection).into_diagnostic()?;
    output::write(file, text.as_bytes())?;
    let count = inspection.kernels.len();
    let plural = if count == 1 { "" } else { "s" };
    outln!("{}: {count} kernel{plural}, {}", path.display(), Bytes(text.len() as u64))?;
    Ok(())
}
