//! A side read from a folder that `bespoke specialize` or a build script wrote.

use std::fs;
use std::path::{Path, PathBuf};

use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::{Plan, PlanParams};

use super::side::{Made, Side};
use crate::folder::{FolderError, is_identifier, read};
use crate::{InspectError, Listing, Places, Tools};

impl Side {
    /// Reads the kernels of the plan in `folder` for `target`, or of the only plan. Kernels read from a folder have no
    /// IR.
    pub fn of_folder(
        folder: &Path,
        target: Option<Target>,
        tools: &Tools,
        sass: bool,
    ) -> Result<Side, FolderError> {
        let plan = read_plan(folder, &choose(folder, target)?)?;
        let mut made = Vec::new();
        for kernel in &plan.kernels {
            let ptx = format!("{}/{}.ptx", plan.target(), kernel.name);
            let ptx = read(folder, ptx.as_ref())?;
            let ptxas = tools.ptxas.as_ref();
            let assembled = ptxas.map(|ptxas| ptxas.cubin(&kernel.name, &ptx, plan.target()));
            let assembled = assembled.transpose().map_err(InspectError::from)?;
            let text = assembled.as_ref().filter(|_| sass).and_then(|assembled| tools.disassemble(assembled));
            made.push(Made {
                ir: None,
                ptx,
                usage: assembled.map(|assembled| assembled.usage),
                sass: text.map(|text| Listing::of_sass(&text, &mut Places::new()).text),
            });
        }
        Ok(Side::new(
            format!("{} for {} in {}", plan.shape.name, plan.target(), folder.display()),
            &plan,
            &made,
        ))
    }
}

/// Most launches and kernels of a plan.
const LAUNCHES: usize = 1 << 16;
const KERNELS: usize = 1 << 10;

/// Reads a plan and checks the values from which files are found and figures are computed, since any program may have
/// written it.
fn read_plan(folder: &Path, file: &Path) -> Result<Plan, FolderError> {
    let path = folder.join(file);
    let plan: Plan = serde_json::from_str(&read(folder, file)?)
        .map_err(|source| FolderError::Json { path: path.clone(), source })?;
    let choice = |what: String| Err(FolderError::Choice { folder: path.clone(), what });
    for (name, count, most) in
        [("launches", plan.launches.len(), LAUNCHES), ("kernels", plan.kernels.len(), KERNELS)]
    {
        if count > most {
            return choice(format!("`{name}` has {count} entries; at most {most} are possible"));
        }
    }
    if !(1..=PlanParams::MAX_CONTEXT).contains(&plan.params.context) {
        return choice(format!("`params.context` is {}", plan.params.context));
    }
    for kernel in &plan.kernels {
        let named = match is_identifier(&kernel.name) {
            true => kernel.spec.check(),
            false => Err("`name` is not an identifier".to_owned()),
        };
        named.map_err(|what| FolderError::Kernel {
            path: path.clone(),
            kernel: kernel.name.clone(),
            what,
        })?;
    }
    match plan.launches.iter().find(|launch| launch.kernel >= plan.kernels.len()) {
        Some(launch) => choice(format!("launch {}: there is no kernel {}", launch.label, launch.kernel)),
        None => Ok(plan),
    }
}

/// Path, in `folder`, of the greedy plan for `target`, or of the only plan.
fn choose(folder: &Path, target: Option<Target>) -> Result<PathBuf, FolderError> {
    let plans = folder.join("plans");
    let failed = |source| FolderError::Io { path: plans.clone(), source };
    let mut found: Vec<String> = Vec::new();
    for entry in fs::read_dir(&plans).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let of_target = target.is_none_or(|target| name.ends_with(&format!(".{target}.json")));
        // Skips the assembler's reports, which are in the same folder.
        if of_target && name.ends_with(".json") && !name.ends_with(".report.json") {
            found.push(name);
        }
    }
    found.sort();
    match found.as_slice() {
        [one] => Ok(Path::new("plans").join(one)),
        [] => Err(FolderError::Choice { folder: plans, what: "there is no such plan".to_owned() }),
        several => {
            let what = format!("{}: {}", which(several, target), several.join(", "));
            Err(FolderError::Choice { folder: plans, what })
        }
    }
}

/// Advice for choosing one of several plans.
fn which(plans: &[String], target: Option<Target>) -> String {
    let mut targets: Vec<Target> = Target::ALL.to_vec();
    targets.retain(|target| plans.iter().any(|plan| plan.ends_with(&format!(".{target}.json"))));
    match (target, targets.as_slice()) {
        (None, [first, _, ..]) => format!("several plans; append a target to the folder, as in DIR@{first}"),
        (Some(target), _) | (None, &[target]) => {
            format!(
                "plans of several models for {target}; only one can be compared, so use a folder for each"
            )
        }
        (None, []) => "several plans".to_owned(),
    }
}
