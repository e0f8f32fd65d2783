//! A recorded kernel and its compilation to PTX.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::ir::parse::{ParseError, parse};
use crate::ir::verify::{VerifyError, is_identifier, verify};
use crate::ir::{CONSTANT_MEMORY, Effect, Function, InstData, Op, Param, Type};
use crate::passes::convergence::{self, Divergence};
use crate::passes::{self, OptLevel, Pass, Pipeline, Unreachable};
use crate::ptx::{self, Target, Unsupported};

/// A recorded kernel: its IR before any pass.
#[derive(Clone, Debug)]
pub struct Kernel {
    function: Function,
}

/// Errors of compiling a kernel to PTX.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompileError {
    /// The target does not support an instruction.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The kernel's name is no name of PTX.
    #[error("kernel `{kernel}`: not a valid name in PTX: use ASCII letters, digits and `_`, a letter first")]
    Name {
        /// Name of the kernel.
        kernel: String,
    },
    /// Two kernels of a module have the same name.
    #[error(
        "two kernels of a module are called `{kernel}`: give one of them another name with `Kernel::named`, for example \
         `{kernel}(&shape)?.named(\"{kernel}_4096\")`"
    )]
    Duplicate {
        /// The duplicate name.
        kernel: String,
    },
    /// A kernel has the name of a variable or function that its module declares.
    #[error(
        "kernel `{kernel}`: its module declares a variable or function of this name: rename the kernel with `Kernel::named`"
    )]
    Symbol {
        /// Name of the kernel.
        kernel: String,
    },
    /// The tables of a module's kernels are too large.
    #[error(
        "{bytes} bytes of tables exceed the limit of {CONSTANT_MEMORY} bytes of constant memory per module: put the \
         kernels into several modules, or pass a table as a buffer"
    )]
    Constants {
        /// Size of the distinct tables of all kernels, in bytes.
        bytes: u64,
    },
    /// Threads diverge before a barrier or a warp-wide instruction.
    #[error(transparent)]
    Divergent(#[from] Divergence),
    /// The IR is invalid: a bug in the recorder or in a pass.
    #[error("kernel {kernel}: invalid IR (a bug in bespoke-codegen):\n{errors}")]
    Invalid {
        /// Name of the kernel.
        kernel: String,
        /// The violated rules, as text.
        errors: String,
    },
}

/// Why a text is not the IR of a kernel.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IrError {
    /// The text is not IR; the message begins with line and column.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The IR violates rules of the verifier.
    #[error("invalid IR:\n{}", lines(.0))]
    Invalid(Vec<VerifyError>),
}

fn lines(errors: &[VerifyError]) -> String {
    let lines: Vec<String> = errors.iter().map(|error| format!("  {error}")).collect();
    lines.join("\n")
}

/// A compiled kernel: PTX and statistics.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Name of the kernel and of its PTX entry point.
    pub name: String,
    /// The target that the kernel was compiled for.
    pub target: Target,
    /// PTX text of the module. It has other entry points too if the kernel is part of a [`Module`](crate::Module).
    pub ptx: String,
    /// The optimised IR that the PTX was printed from.
    pub function: Function,
    /// Statistics of the PTX and the IR.
    pub report: Report,
    /// What each pass run changed.
    pub passes: passes::Report,
}

/// Statistics of a compiled kernel: size, instruction mix, shared memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Lines of PTX; of a kernel that shares its module with others, those of its entry point.
    pub ptx_lines: usize,
    /// Number of IR instructions, without constants and assumptions; functions that are called count once.
    pub instructions: usize,
    /// Number of IR instructions of each kind.
    pub mix: BTreeMap<String, usize>,
    /// Static shared memory, in bytes.
    pub static_shared: u32,
}

impl Kernel {
    pub(crate) fn new(function: Function) -> Kernel {
        Kernel { function }
    }

    pub(crate) fn into_function(self) -> Function {
        self.function
    }

    /// Reads a kernel from its text form ([`mod@crate::ir::print`]), without the blocks that no jump reaches: a kernel as
    /// recorded may have such blocks, which the verifier rejects.
    ///
    /// ```
    /// use bespoke_codegen::Kernel;
    /// use bespoke_codegen::ptx::Target;
    ///
    /// let kernel = Kernel::parse(
    ///     "bespoke-ir 1
    ///      kernel @twice(x: global f32) threads 32 {
    ///      block0:
    ///        v0 = param.global 0
    ///        v1 = load.f32 v0
    ///        v2 = add.f32 v1, v1
    ///        store.f32 v0, v2
    ///        return
    ///      }",
    /// )?;
    /// assert!(kernel.compile(Target::Sm80)?.ptx.contains("add.rn.f32"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse(text: &str) -> Result<Kernel, IrError> {
        let mut function = parse(text)?;
        for callee in &mut function.functions {
            Unreachable.run(callee);
        }
        Unreachable.run(&mut function);
        verify(&function).map_err(IrError::Invalid)?;
        Ok(Kernel { function })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// Renames the kernel, for example for a specialisation. The name must be a PTX identifier: letters, digits and
    /// underscores.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Kernel {
        self.function.name = name.into();
        self
    }

    /// Prepares the kernel for programmatic launch (`griddepcontrol`, sm_90): it first lets the next kernel start, then
    /// waits until all earlier kernels are complete. Without a programmatic edge, the kernel behaves as before.
    #[must_use]
    pub fn programmatic(mut self) -> Kernel {
        let entry = self.function.layout[0];
        let loc = self.function.block(entry).insts.first().and_then(|&inst| self.function.inst(inst).loc);
        let start = [Op::LaunchDependents, Op::WaitForDependencies].map(|op| {
            let data = InstData {
                op,
                ty: Type::U32,
                args: SmallVec::new(),
                dests: Vec::new(),
                results: SmallVec::new(),
                loc,
            };
            self.function.create_inst(data, &[])
        });
        self.function.block_mut(entry).insts.splice(0..0, start);
        self
    }

    /// The run-time parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.function.params
    }

    /// Threads per CTA along all axes, if fixed.
    pub fn threads(&self) -> Option<u32> {
        self.function.threads
    }

    /// Threads per CTA along x, y and z, if fixed.
    pub fn block(&self) -> Option<[u32; 3]> {
        self.function.threads_by_axis()
    }

    /// The IR as recorded, before any pass.
    pub fn function(&self) -> &Function {
        &self.function
    }

    /// Optimises the kernel and compiles it to PTX for `target`.
    pub fn compile(&self, target: Target) -> Result<Compiled, CompileError> {
        self.compile_at(target, OptLevel::Default)
    }

    /// Like [`Kernel::compile`], at the given optimisation level.
    pub fn compile_at(&self, target: Target, level: OptLevel) -> Result<Compiled, CompileError> {
        self.compile_with(target, &Pipeline::of(level))
    }

    /// Like [`Kernel::compile`], with the given passes.
    pub fn compile_with(&self, target: Target, pipeline: &Pipeline) -> Result<Compiled, CompileError> {
        let (_, mut kernels) = compile_module(std::slice::from_ref(self), target, pipeline)?;
        let mut kernel = kernels.remove(0);
        kernel.report.ptx_lines = kernel.ptx.lines().count();
        Ok(kernel)
    }

    /// Checks the kernel as recorded and runs the passes.
    fn optimise(&self, pipeline: &Pipeline) -> Result<(Function, passes::Report), CompileError> {
        if !is_identifier(self.name()) {
            return Err(CompileError::Name { kernel: self.name().to_owned() });
        }
        let mut function = self.function.clone();
        convergence::check(&function)?;
        let passes = pipeline.run(&mut function);
        verify(&function).map_err(|errors| CompileError::Invalid {
            kernel: self.name().to_owned(),
            errors: errors.iter().map(|error| format!("  {error}\n")).collect(),
        })?;
        Ok((function, passes))
    }
}

/// Compiles kernels to one PTX module. Returns its text and the kernels in order.
pub(crate) fn compile_module(
    kernels: &[Kernel],
    target: Target,
    pipeline: &Pipeline,
) -> Result<(String, Vec<Compiled>), CompileError> {
    let optimised: Vec<_> =
        kernels.iter().map(|kernel| kernel.optimise(pipeline)).collect::<Result<_, _>>()?;
    let functions: Vec<&Function> = optimised.iter().map(|(function, _)| function).collect();
    for (index, kernel) in kernels.iter().enumerate() {
        if kernels[..index].iter().any(|other| other.name() == kernel.name()) {
            return Err(CompileError::Duplicate { kernel: kernel.name().to_owned() });
        }
        if ptx::declares(&functions, kernel.name()) {
            return Err(CompileError::Symbol { kernel: kernel.name().to_owned() });
        }
    }
    let bytes = ptx::constant_bytes(&functions);
    if bytes > CONSTANT_MEMORY {
        return Err(CompileError::Constants { bytes });
    }
    let text = ptx::print_module(&functions, target)?;
    let kernels = optimised.into_iter().map(|(function, passes)| Compiled {
        name: function.name.clone(),
        target,
        ptx: text.clone(),
        report: Report::of(&function, ptx::entry_text(&text, &function.name).unwrap_or_default()),
        function,
        passes,
    });
    let kernels = kernels.collect();
    Ok((text, kernels))
}

impl Report {
    fn of(function: &Function, ptx: &str) -> Report {
        let mut report = Report { ptx_lines: ptx.lines().count(), ..Report::default() };
        for function in function.functions.iter().chain([function]) {
            report.count(function);
        }
        report.static_shared = u32::try_from(function.static_shared()).unwrap_or(u32::MAX);
        report
    }

    /// Adds a function's instructions to the report, except constants and assumptions.
    fn count(&mut self, function: &Function) {
        let report = self;
        for &block in &function.layout {
            for &inst in &function.block(block).insts {
                let data = function.inst(inst);
                let kind = match data.op {
                    Op::Const(_) => continue,
                    Op::Load(_) if function.value_type(data.args[0]) == Type::Global => "global loads",
                    Op::Load(_) | Op::Store(_) if function.value_type(data.args[0]) == Type::Local => {
                        "local accesses"
                    }
                    Op::Load(_) if function.value_type(data.args[0]) == Type::Constant => "constant loads",
                    Op::Load(_) | Op::LoadMatrix { .. } => "shared loads",
                    Op::Store(_) if function.value_type(data.args[0]) == Type::Global => "global stores",
                    Op::Store(_) => "shared stores",
                    Op::Call(_) => "calls",
                    Op::Result(_) => "control",
                    Op::Atomic { .. } => "atomics",
                    Op::Dp4a { .. } | Op::Dp2a { .. } => "dot products",
                    Op::Mma(_) | Op::Wgmma { .. } => "matrix products",
                    Op::AsyncCopy(_) => "asynchronous copies",
                    Op::Barrier { .. }
                    | Op::BarrierArrive { .. }
                    | Op::WarpBarrier
                    | Op::ClusterBarrier(_)
                    | Op::Mbarrier(_)
                    | Op::Fence(_)
                    | Op::SequentialFence(_)
                    | Op::FenceFor(_)
                    | Op::WgmmaFence { .. }
                    | Op::WgmmaCommit
                    | Op::WgmmaWait { .. } => "barriers",
                    op if op.effect() == Effect::Exchange || (op.is_pure() && op.is_convergent()) => {
                        "warp exchange"
                    }
                    op if op.is_terminator() => "control",
                    _ if data.ty.is_float() => "float arithmetic",
                    _ => "integer arithmetic",
                };
                if data.op.effect() == Effect::Fact {
                    continue;
                }
                report.instructions += 1;
                *report.mix.entry(kind.to_owned()).or_default() += 1;
            }
        }
    }
}
