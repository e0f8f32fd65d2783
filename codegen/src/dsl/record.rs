//! The kernel being recorded on this thread, and how instructions are appended to it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::Location;

use cranelift_entity::EntitySet;
use smallvec::SmallVec;

use crate::ir::verify::{is_identifier, misuse};
use crate::ir::{Block, BlockCall, Function, InstData, Loc, Op, Param, SourceLoc, Type, Value};
use crate::kernel::Kernel;

/// The Rust source line that appends an instruction.
pub(crate) type Site = &'static Location<'static>;

/// The result of recording a kernel.
pub type Recorded = Result<Kernel, RecordError>;

/// Error of a kernel that cannot be recorded, with the Rust source line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel {kernel}: {message}\n  --> {file}:{line}:{column}")]
pub struct RecordError {
    /// Name of the kernel.
    pub kernel: String,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// Path of the Rust source file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

pub(crate) struct Recorder {
    pub func: Function,
    /// The block that instructions are appended to. It has no terminator: after a jump, recording continues in a new,
    /// unreachable block.
    pub block: Block,
    /// Number of run-time branches and loops around the current point of recording.
    pub depth: u32,
    /// Calls of `#[device]` functions around the current point of recording, outermost first.
    pub calls: Vec<Call>,
    /// Blocks that are reachable from the entry block.
    reached: EntitySet<Block>,
    locs: HashMap<SourceLoc, Loc>,
}

/// The call of a `#[device]` function that is being inlined.
pub(crate) struct Call {
    /// Name of the function.
    pub function: &'static str,
    /// Source line of the call.
    pub site: Loc,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Runs `f` on the kernel being recorded.
///
/// # Panics
/// If no kernel is being recorded.
pub(crate) fn with<R>(f: impl FnOnce(&mut Recorder) -> R) -> R {
    RECORDER.with_borrow_mut(|slot| {
        f(slot.as_mut().expect("handles and intrinsics can be used only inside of a #[kernel] function"))
    })
}

/// Stops the recording, by unwinding, with an error at `site`.
pub(crate) fn fail(site: Site, message: impl Into<String>) -> ! {
    let kernel = with(|r| r.func.name.clone());
    std::panic::resume_unwind(Box::new(RecordError {
        kernel,
        message: message.into(),
        file: site.file().to_owned(),
        line: site.line(),
        column: site.column(),
    }))
}

impl Recorder {
    fn new(name: &str) -> Recorder {
        let mut func = Function::new(name);
        let entry = func.create_block();
        func.layout.push(entry);
        let mut reached = EntitySet::new();
        reached.insert(entry);
        Recorder { func, block: entry, depth: 0, calls: Vec::new(), reached, locs: HashMap::new() }
    }

    pub fn loc(&mut self, site: Site) -> Loc {
        let call = self.calls.last();
        // A function that is passed as a value is called from a line of the standard library.
        if let Some(call) = call.filter(|_| site.file().starts_with("/rustc/")) {
            return call.site;
        }
        let loc = SourceLoc {
            file: site.file().replace('\\', "/"),
            line: site.line(),
            column: site.column(),
            function: call.map(|call| call.function.to_owned()),
            inlined_at: call.map(|call| call.site),
        };
        if let Some(&known) = self.locs.get(&loc) {
            return known;
        }
        let id = self.func.locs.push(loc.clone());
        self.locs.insert(loc, id);
        id
    }

    pub fn append(
        &mut self,
        op: Op,
        ty: Type,
        args: &[Value],
        site: Site,
    ) -> Result<SmallVec<[Value; 2]>, String> {
        let results = op.signature(ty)?.results;
        let loc = self.loc(site);
        let data = InstData {
            op,
            ty,
            args: SmallVec::from_slice(args),
            dests: Vec::new(),
            results: SmallVec::new(),
            loc: Some(loc),
        };
        if let Some(message) = misuse(&self.func, &data) {
            return Err(message);
        }
        let inst = self.func.create_inst(data, &results);
        self.func.block_mut(self.block).insts.push(inst);
        Ok(self.func.inst(inst).results.clone())
    }

    /// Whether the current point of recording is reachable; it is not after a jump.
    pub fn is_live(&self) -> bool {
        self.reached.contains(self.block)
    }

    /// Marks `block` as a successor of the current block.
    pub fn reach(&mut self, block: Block) {
        if self.is_live() {
            self.reached.insert(block);
        }
    }

    fn terminate(&mut self, op: Op, args: &[Value], dests: Vec<BlockCall>, site: Site) {
        dests.iter().for_each(|dest| self.reach(dest.block));
        let loc = self.loc(site);
        let data = InstData {
            op,
            ty: Type::U32,
            args: SmallVec::from_slice(args),
            dests,
            results: SmallVec::new(),
            loc: Some(loc),
        };
        let inst = self.func.create_inst(data, &[]);
        self.func.block_mut(self.block).insts.push(inst);
    }

    /// Ends the current block with a jump to `block`, and continues in a new, unreachable block.
    pub fn jump(&mut self, block: Block, args: Vec<Value>, site: Site) {
        self.terminate(Op::Jump, &[], vec![BlockCall { block, args }], site);
        let dead = self.func.create_block();
        self.switch_to(dead);
    }

    /// Ends the current block with a branch; the caller switches to one of the targets.
    pub fn branch(&mut self, condition: Value, then: BlockCall, otherwise: BlockCall, site: Site) {
        self.terminate(Op::Branch, &[condition], vec![then, otherwise], site);
    }

    /// Continues recording in `block`, which is appended to the layout.
    pub fn switch_to(&mut self, block: Block) {
        self.func.layout.push(block);
        self.block = block;
    }

    /// Creates a block with parameters of the types of `values`.
    pub fn block_like(&mut self, values: &[Value]) -> (Block, Vec<Value>) {
        let block = self.func.create_block();
        let params = values
            .iter()
            .map(|&value| {
                let ty = self.func.value_type(value);
                self.func.append_block_param(block, ty)
            })
            .collect();
        (block, params)
    }
}

/// Appends an instruction, and returns its results.
pub(crate) fn emit(op: Op, ty: Type, args: &[Value], site: Site) -> SmallVec<[Value; 2]> {
    match with(|r| r.append(op, ty, args, site)) {
        Ok(results) => results,
        Err(message) => fail(site, message),
    }
}

/// Appends an instruction with one result, and returns the result.
pub(crate) fn emit1(op: Op, ty: Type, args: &[Value], site: Site) -> Value {
    emit(op, ty, args, site)[0]
}

/// Options of a kernel, as given in `#[kernel(…)]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelOptions {
    /// Number of threads per CTA, if it is fixed.
    pub threads: Option<u32>,
    /// Minimum number of CTAs that a multiprocessor should hold at a time; limits the registers per thread.
    pub min_blocks: Option<u32>,
    /// Number of CTAs along x that form a cluster (sm_90).
    pub cluster: Option<u32>,
    /// Bytes of stack per thread that the assembler may spill registers to; no spills are allowed if absent.
    pub allow_spills: Option<u32>,
}

impl KernelOptions {
    /// The reason why no GPU can launch a kernel with these options, if there is one.
    fn error(&self) -> Option<String> {
        let out_of_range = |what: &str, value: Option<u32>, most: u32| {
            let value = value.filter(|value| !(1..=most).contains(value))?;
            Some(format!("`{what} = {value}` is out of range: write 1 to {most}"))
        };
        let without_threads = || {
            let alone = self.min_blocks.is_some() && self.threads.is_none();
            alone.then(|| {
                "`min_blocks` limits registers only together with `threads = …`: write both".to_owned()
            })
        };
        out_of_range("threads", self.threads, 1024)
            .or_else(|| out_of_range("min_blocks", self.min_blocks, 32))
            .or_else(without_threads)
            .or_else(|| out_of_range("cluster", self.cluster, 8))
    }
}

struct Reset(Option<Recorder>);

impl Drop for Reset {
    fn drop(&mut self) {
        RECORDER.set(self.0.take());
    }
}

/// Records the kernel whose body is `body`. `#[kernel]` expands to a call of it.
#[track_caller]
pub fn record_kernel(name: &str, options: KernelOptions, body: impl FnOnce()) -> Recorded {
    let site = Location::caller();
    let mut recorder = Recorder::new(name);
    recorder.func.threads = options.threads;
    recorder.func.min_blocks = options.min_blocks;
    recorder.func.cluster = options.cluster;
    recorder.func.allow_spills = options.allow_spills.unwrap_or(0);
    if let Some(message) = options.error() {
        let (file, line, column) = (site.file().to_owned(), site.line(), site.column());
        return Err(RecordError { kernel: name.to_owned(), message, file, line, column });
    }
    let reset = Reset(RECORDER.replace(Some(recorder)));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    let recorded = RECORDER.take().expect("the recorder stays for the whole body");
    drop(reset);
    let mut recorder = recorded;
    match outcome {
        Ok(()) => {
            recorder.terminate(Op::Return, &[], Vec::new(), site);
            Ok(Kernel::new(recorder.func))
        }
        Err(payload) => match payload.downcast::<RecordError>() {
            Ok(error) => Err(*error),
            Err(payload) => {
                let message = payload
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string()))
                    .unwrap_or_else(|| "the kernel panicked while it was recorded".into());
                Err(RecordError {
                    kernel: name.to_owned(),
                    message,
                    file: site.file().to_owned(),
                    line: site.line(),
                    column: site.column(),
                })
            }
        },
    }
}

/// A kernel's run-time parameter: a scalar or a global pointer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel's run-time parameter",
    label = "a launch passes scalars and pointers to global memory; shared memory is declared in the kernel, by `shared_array`",
    note = "use `Val<T>` of a scalar, or `Ptr<Global, T>`"
)]
pub trait KernelParam: Sized {
    /// Declares the parameter `name` in the kernel's signature.
    fn declare(name: &str) -> Param;
    /// The handle of the parameter with SSA value `value`.
    fn from_value(value: Value) -> Self;
}

/// Declares the next run-time parameter of the kernel being recorded.
#[track_caller]
pub fn parameter<P: KernelParam>(name: &str) -> P {
    declare(P::declare(name), Location::caller())
}

/// Declares the next run-time parameter, a pointer that the launch promises to be a multiple of `align` bytes.
#[track_caller]
pub fn aligned_parameter<P: PointerParam>(name: &str, align: u32) -> P {
    let site = Location::caller();
    if !align.is_power_of_two() {
        fail(site, format!("`{name}` cannot be aligned to {align} bytes: write a power of two"));
    }
    declare(Param { align: Some(align), ..P::declare(name) }, site)
}

/// Run-time parameters that are pointers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pointer and has no alignment",
    label = "remove `#[aligned(…)]`, or make this a `Ptr<Global, …>`"
)]
pub trait PointerParam: KernelParam {}

fn declare<P: KernelParam>(param: Param, site: Site) -> P {
    if !is_identifier(&param.name) {
        let name = &param.name;
        fail(
            site,
            format!("PTX has no name for the parameter `{name}`: write ASCII letters, digits and `_`"),
        );
    }
    let ty = param.ty;
    let index = with(|r| {
        r.func.params.push(param);
        r.func.params.len() as u32 - 1
    });
    P::from_value(emit1(Op::Param(index), ty, &[], site))
}
