//! The page of `bespoke inspect --html`: one file with data, style and scripts, without network access.

use std::path::Path;

use bespoke::device::Bytes;
use bespoke_inspect::{Inspection, Tools, text};
use bespoke_kernels::plan::{Plan, Tuning};
use miette::IntoDiagnostic;

use crate::console::outln;
use crate::output::{self, Force};
use crate::progress::Progress;

/// Writes the page of a plan.
pub(super) fn write(plan: &Plan, tuning: &Tuning, path: &Path, force: Force) -> miette::Result<()> {
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
    let bar = Progress::count("kernels", 0);
    let tell = |done: usize, total: usize| bar.update(done as u64, total as u64);
    let inspection = Inspection::of(plan, tuning, &tools, &tell).into_diagnostic()?;
    bar.finish();
    let text = text::page(&inspection).into_diagnostic()?;
    output::write(file, text.as_bytes())?;
    outln!("{}: {} kernels, {}", path.display(), inspection.kernels.len(), Bytes(text.len() as u64))?;
    Ok(())
}
