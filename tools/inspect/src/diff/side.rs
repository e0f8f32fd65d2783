//! One side of a comparison: a plan's kernels by role.

use bespoke_codegen::ptxas::Usage;
use bespoke_kernels::emit::{self, Emitted};
use bespoke_kernels::plan::Plan;
use bespoke_kernels::spec::KernelSpec;
use rayon::prelude::*;
use serde_json::Value;

use crate::{InspectError, Listing, Places, Tools, stats};

/// Stages of code that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// IR after all passes.
    Ir,
    /// PTX.
    Ptx,
    /// SASS.
    Sass,
}

/// Kernels of a plan or of an emitted folder, as one side of a comparison.
#[derive(Clone, Debug)]
pub struct Side {
    /// Title, such as `llama-3.1-8b for sm_90`.
    pub name: String,
    /// Positions in the KV cache, on which a launch's bytes depend.
    pub context: u32,
    /// Kernels with their roles.
    pub kernels: Vec<SideKernel>,
}

/// A kernel in a role.
#[derive(Clone, Debug)]
pub struct SideKernel {
    /// Role: name of the kernel's launches without the layer, such as `attn_qkv`.
    pub role: String,
    /// Name of the kernel.
    pub name: String,
    /// Paths and values of the kernel's compile-time parameters.
    pub constants: Vec<(String, String)>,
    /// Names and values of geometry and costs.
    pub figures: Vec<(String, String)>,
    pub(super) ir: Option<String>,
    pub(super) ptx: String,
    pub(super) sass: Option<String>,
}

impl SideKernel {
    /// The code at a stage, if known.
    pub fn code(&self, code: Code) -> Option<&str> {
        match code {
            Code::Ir => self.ir.as_deref(),
            Code::Ptx => Some(&self.ptx),
            Code::Sass => self.sass.as_deref(),
        }
    }

    /// Number of compile-time parameters with equal values in two kernels.
    pub(super) fn in_common(&self, other: &SideKernel) -> usize {
        self.constants.iter().filter(|constant| other.constants.contains(constant)).count()
    }
}

/// A compiled kernel, not yet assigned to roles.
pub(super) struct Made {
    pub ir: Option<String>,
    pub ptx: String,
    pub usage: Option<Usage>,
    pub sass: Option<String>,
}

impl Side {
    /// Compiles a plan's kernels; disassembles them if `sass` is set.
    pub fn of_plan(plan: &Plan, tools: &Tools, sass: bool) -> Result<Side, InspectError> {
        let specs: Vec<KernelSpec> = plan.kernels.iter().map(|kernel| kernel.spec.clone()).collect();
        let make = |emitted: &Emitted| {
            let assembled = tools.assemble(emitted);
            let text = assembled.as_ref().filter(|_| sass).and_then(|assembled| tools.disassemble(assembled));
            Made {
                ir: Some(Listing::of_ir(&emitted.compiled.function, &mut Places::new()).text),
                ptx: emitted.compiled.ptx.clone(),
                usage: assembled.map(|assembled| assembled.usage),
                sass: text.map(|text| Listing::of_sass(&text, &mut Places::new()).text),
            }
        };
        let made: Vec<Made> = emit::compile(&specs, plan.target())?.par_iter().map(make).collect();
        Ok(Side::new(format!("{} for {}", plan.shape.name, plan.target()), plan, &made))
    }

    /// Lists each kernel once for every role it has in the plan.
    pub(super) fn new(name: String, plan: &Plan, made: &[Made]) -> Side {
        let mut kernels: Vec<SideKernel> = Vec::new();
        for launch in &plan.launches {
            let (role, kernel) = (launch.label.role.name(), &plan.kernels[launch.kernel]);
            if kernels.iter().any(|known| known.role == role && known.name == kernel.name) {
                continue;
            }
            let made = &made[launch.kernel];
            let same = |it: &&bespoke_kernels::plan::Launch| {
                it.kernel == launch.kernel && it.label.role == launch.label.role
            };
            kernels.push(SideKernel {
                role: role.to_owned(),
                name: kernel.name.clone(),
                constants: flatten(&stats::constants(&kernel.spec)),
                figures: figures(plan, &kernel.spec, made, plan.launches.iter().filter(same).count()),
                ir: made.ir.clone(),
                ptx: made.ptx.clone(),
                sass: made.sass.clone(),
            });
        }
        Side { name, context: plan.params.context, kernels }
    }
}

fn figures(plan: &Plan, spec: &KernelSpec, made: &Made, launches: usize) -> Vec<(String, String)> {
    let geometry = spec.geometry();
    let [x, y, z] = geometry.grid;
    let instructions =
        made.ptx.lines().map(str::trim).filter(|line| line.ends_with(';') && !line.starts_with('.'));
    let mut figures = vec![
        ("launches", launches.to_string()),
        ("grid", if (y, z) == (1, 1) { x.to_string() } else { format!("{x}x{y}x{z}") }),
        ("threads", geometry.threads.to_string()),
        ("shared memory", (geometry.dynamic_shared + spec.static_shared()).to_string()),
        ("bytes a launch", spec.bytes(plan.params.context.into()).to_string()),
        ("PTX instructions", instructions.count().to_string()),
    ];
    if let Some(usage) = made.usage {
        figures.push(("registers", usage.registers.to_string()));
        figures.push(("spills", (usage.spill_stores + usage.spill_loads).to_string()));
    }
    if let Some(sass) = &made.sass {
        let instructions = sass.lines().filter(|line| !line.starts_with('.'));
        figures.push(("SASS instructions", instructions.count().to_string()));
    }
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Flattens nested objects to paths and values, such as `schedule.grid` and `132`; list elements by index.
fn flatten(value: &Value) -> Vec<(String, String)> {
    fn walk(path: &str, value: &Value, out: &mut Vec<(String, String)>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match value {
            Value::Object(object) => object.iter().for_each(|(key, value)| walk(&below(key), value, out)),
            Value::Array(list) => {
                list.iter()
                    .enumerate()
                    .for_each(|(index, value)| walk(&below(&index.to_string()), value, out));
            }
            Value::String(text) => out.push((path.to_owned(), text.clone())),
            value => out.push((path.to_owned(), value.to_string())),
        }
    }
    let mut out = Vec::new();
    walk("", value, &mut out);
    out
}
