//! The kernel being recorded on this thread, and how instructions are appended to it.

mod error;
mod path;

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering};

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::ReservedValue;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::dominance::DominatorTree;
use crate::ir::verify::misuse;
use crate::ir::{
    Block, BlockCall, Def, Function, Inst, InstData, Loc, Local, LocalVar, Op, Param, Shared, SharedVar,
    SourceLoc, Table, TableVar, Type, Value,
};

pub use error::RecordError;
pub(super) use error::{error_at, error_of};
pub(crate) use path::MergeId;
use path::Merges;
pub(super) use path::{Replay, Stop};

/// The Rust source line that appends an instruction.
pub(crate) type Site = &'static Location<'static>;

pub(crate) struct Recorder {
    pub func: Function,
    /// The block that instructions are appended to. It has no terminator: after a jump, recording continues in a new,
    /// unreachable block. In a replay: the block that is being followed.
    pub block: Block,
    /// Number of run-time branches and loops around the current point of recording.
    pub depth: u32,
    /// Calls of `#[device]` functions around the current point of recording, outermost first.
    pub calls: Vec<Call>,
    /// The path being followed, after the kernel has been recorded.
    pub(super) replay: Option<Replay>,
    pub(super) merges: Merges,
    /// Branches of loops of intrinsics, which contain no code of the kernel's author.
    pub(super) intrinsic_branches: Vec<Inst>,
    /// Why the current call of [`with`] ends the recording or the replay, if it does.
    pub(super) stop: Option<Stop>,
    /// Where the functions being recorded are defined, outermost first: the function that calls record, and its callers.
    pub(super) active: Vec<Site>,
    /// Whether this function is recorded again for a replay of its caller: then it is not replayed itself.
    pub(super) again: bool,
    dominators: DominatorTree,
    /// The block of each instruction.
    homes: SecondaryMap<Inst, Option<Block>>,
    /// The Rust line of the construct that made each block's parameters.
    param_sites: SecondaryMap<Block, Option<Site>>,
    /// How many copies of a block the hints of the loops around it ask for; absent for one.
    copies: SecondaryMap<Block, Option<u64>>,
    locs: FxHashMap<SourceLoc, Loc>,
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
    /// Number of the recording on this thread.
    static RECORDING: Cell<u32> = const { Cell::new(0) };
}

/// Number of recordings that any thread has started.
static RECORDINGS: AtomicU32 = AtomicU32::new(0);

/// Number of a new recording.
pub(super) fn new_recording() -> u32 {
    RECORDINGS.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// An SSA value and the recording that it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    value: Value,
    recording: u32,
}

impl Handle {
    /// The handle of a value of the kernel being recorded.
    pub fn new(value: Value) -> Handle {
        Handle { value, recording: RECORDING.get() }
    }

    /// The SSA value; the reserved value, which the recorder refuses, if the handle belongs to another recording.
    pub fn id(self) -> Value {
        if self.recording == RECORDING.get() { self.value } else { Value::reserved_value() }
    }
}

/// Runs `f` on the kernel being recorded.
///
/// # Panics
/// If no kernel is being recorded.
pub(crate) fn with<R>(f: impl FnOnce(&mut Recorder) -> R) -> R {
    let (result, stop) = RECORDER.with_borrow_mut(|slot| {
        let recorder =
            slot.as_mut().expect("handles and intrinsics can be used only inside of a #[kernel] function");
        let result = f(recorder);
        (result, recorder.stop.take())
    });
    match stop {
        None => result,
        Some(Stop::Error(site, message)) => fail(site, message),
        Some(Stop::PathEnds) => std::panic::resume_unwind(Box::new(Stop::PathEnds)),
    }
}

/// Stops the recording, by unwinding, with an error at `site`.
pub(crate) fn fail(site: Site, message: impl Into<String>) -> ! {
    let (kernel, callers) = with(|r| (r.func.name.clone(), r.callers()));
    std::panic::resume_unwind(Box::new(RecordError { callers, ..error_at(&kernel, site, message.into()) }))
}

impl Recorder {
    /// The calls around the current point of recording, innermost first, as text.
    pub(super) fn callers(&self) -> Vec<String> {
        let sites = self.calls.iter().rev().filter_map(|call| self.func.locs.get(call.site));
        sites.map(|site| format!("{}:{}:{}", site.file, site.line, site.column)).collect()
    }

    pub(super) fn new(name: &str) -> Recorder {
        let mut func = Function::new(name);
        let entry = func.create_block();
        func.layout.push(entry);
        Recorder {
            func,
            block: entry,
            depth: 0,
            calls: Vec::new(),
            replay: None,
            merges: Merges::default(),
            intrinsic_branches: Vec::new(),
            stop: None,
            active: Vec::new(),
            again: false,
            dominators: DominatorTree::new(entry),
            homes: SecondaryMap::new(),
            param_sites: SecondaryMap::new(),
            copies: SecondaryMap::new(),
            locs: FxHashMap::default(),
        }
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
        if self.replay.is_some() {
            return Loc::reserved_value();
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
        if self.replay.is_some() {
            return self.follow(op, ty, args);
        }
        if self.func.results.is_some() && !op.is_callable() {
            return Err(NOT_CALLABLE.to_owned());
        }
        if self.func.inst_count() >= MAX_INSTRUCTIONS {
            let what = if self.func.results.is_some() { "called function" } else { "kernel" };
            return Err(format!(
                "the {what} has more than {MAX_INSTRUCTIONS} instructions: a loop over compile-time numbers is unrolled \
                 completely; give its range a handle, as in `for i in 0..val(n)`, for a loop at run time"
            ));
        }
        self.check_uses(args)?;
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
        let inst = self.place(data, &results);
        Ok(self.func.inst(inst).results.clone())
    }

    /// Appends an instruction to the current block.
    fn place(&mut self, data: InstData, results: &[Type]) -> Inst {
        let inst = self.func.create_inst(data, results);
        self.func.block_mut(self.block).insts.push(inst);
        self.homes[inst] = Some(self.block);
        inst
    }

    /// Checks that every value is defined on all paths to the current point of recording.
    pub(super) fn check_uses(&self, args: &[Value]) -> Result<(), String> {
        for &arg in args {
            if arg.is_reserved_value() {
                return Err(FOREIGN.to_owned());
            }
            let home = match self.func.value_def(arg) {
                Def::Param(block, _) => Some(block),
                Def::Result(inst, _) => self.homes[inst],
            };
            if self.is_live() && !home.is_some_and(|home| self.dominators.dominates(home, self.block)) {
                return Err(format!(
                    "this uses the value of {}, in a run-time branch or loop that may not have run: declare \
                     `let mut x = val(…)` before that branch or loop and assign `x` in it, or store the value in a \
                     `shared_array`",
                    self.definition(arg)
                ));
            }
        }
        Ok(())
    }

    /// The Rust line of a value's definition, as `file:line:column`.
    pub(super) fn definition(&self, value: Value) -> String {
        match self.func.value_def(value) {
            Def::Result(inst, _) => match self.func.inst(inst).loc {
                Some(loc) => {
                    let SourceLoc { file, line, column, .. } = &self.func.locs[loc];
                    format!("{file}:{line}:{column}")
                }
                None => "an unknown line".to_owned(),
            },
            Def::Param(block, _) => match self.param_sites[block] {
                Some(site) => site.to_string(),
                None => "an unknown line".to_owned(),
            },
        }
    }

    /// The value's raw bits if it is a constant of this kernel.
    pub fn constant(&self, value: Value) -> Option<u64> {
        if value.is_reserved_value() { None } else { self.func.constant(value) }
    }

    /// Declares a static shared variable. In a replay: the variable that was declared here.
    pub fn shared_variable(&mut self, shared: Shared) -> SharedVar {
        match self.next_op() {
            Some(Op::SharedAddress(known)) if self.func.shared[known] == shared => known,
            Some(_) => SharedVar::reserved_value(),
            None => self.func.shared.push(shared),
        }
    }

    /// Declares an array in local memory. In a replay: the array that was declared here.
    pub fn local_variable(&mut self, local: Local) -> LocalVar {
        match self.next_op() {
            Some(Op::LocalAddress(known)) if self.func.locals[known] == local => known,
            Some(_) => LocalVar::reserved_value(),
            None => self.func.locals.push(local),
        }
    }

    /// Declares a table of constants, or finds an equal one. In a replay: the table that was declared here.
    pub fn table(&mut self, table: Table) -> TableVar {
        match self.next_op() {
            Some(Op::TableAddress(known) | Op::Print(known)) if self.func.tables[known] == table => known,
            Some(_) => TableVar::reserved_value(),
            None => {
                let equal = self.func.tables.iter().find(|(_, known)| **known == table).map(|(var, _)| var);
                equal.unwrap_or_else(|| self.func.tables.push(table))
            }
        }
    }

    /// Declares a kernel parameter and returns its index. In a replay: the parameter that was declared here.
    pub(super) fn parameter(&mut self, param: Param) -> u32 {
        match self.next_op() {
            Some(Op::Param(known)) if self.func.params[known as usize] == param => known,
            Some(_) => u32::MAX,
            None => {
                self.func.params.push(param);
                self.func.params.len() as u32 - 1
            }
        }
    }

    /// Whether the current point of recording is reachable; it is not after a jump.
    pub fn is_live(&self) -> bool {
        self.replay.is_some() || self.dominators.is_reached(self.block)
    }

    /// Marks `block` as a successor of the current block.
    pub fn reach(&mut self, block: Block) {
        self.dominators.add_edge(self.block, block);
    }

    pub(super) fn terminate(&mut self, op: Op, args: &[Value], dests: Vec<BlockCall>, site: Site) -> Inst {
        let passed = std::iter::once(args).chain(dests.iter().map(|dest| &dest.args[..]));
        let wrong = passed.map(|args| self.check_uses(args)).find_map(Result::err);
        let wrong = wrong.or_else(|| dests.iter().find_map(|dest| self.mismatch(dest)));
        if let Some(message) = wrong {
            self.stop.get_or_insert(Stop::Error(site, message));
        }
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
        self.place(data, &[])
    }

    /// Error of a jump whose arguments do not have the types of the target's parameters.
    fn mismatch(&self, dest: &BlockCall) -> Option<String> {
        let params = &self.func.block(dest.block).params;
        let same = params.len() == dest.args.len()
            && params
                .iter()
                .zip(&dest.args)
                .all(|(&a, &b)| self.func.value_type(a) == self.func.value_type(b));
        let message = "the handles in this value differ in number or type between the run-time paths that join here: \
                       make a `Vec`, an `Option` or an enum of handles the same on all paths";
        (!same).then(|| message.to_owned())
    }

    /// Ends the current block with a jump to `block`, and continues in a new, unreachable block.
    pub fn jump(&mut self, block: Block, args: Vec<Value>, site: Site) {
        self.terminate(Op::Jump, &[], vec![BlockCall { block, args }], site);
        let dead = self.func.create_block();
        self.switch_to(dead);
    }

    /// Ends the current block with a branch; the caller switches to one of the targets.
    pub fn branch(&mut self, condition: Value, then: BlockCall, otherwise: BlockCall, site: Site) -> Inst {
        self.terminate(Op::Branch, &[condition], vec![then, otherwise], site)
    }

    /// Checks the size of the loop that has just been recorded, whose hint asks for `factor` copies of its body.
    pub fn check_unrolled(&mut self, header: Block, factor: u32, site: Site) {
        let first = self.func.layout.iter().rposition(|&block| block == header).unwrap_or(0);
        let mut size: u64 = 0;
        for &block in &self.func.layout[first..] {
            let copies = self.copies[block].unwrap_or(1).saturating_mul(factor.into());
            self.copies[block] = Some(copies);
            size = size.saturating_add(copies.saturating_mul(self.func.block(block).insts.len() as u64));
        }
        if size > MAX_UNROLLED {
            let message = format!(
                "`unroll({factor})` makes {size} instructions of this loop, more than {MAX_UNROLLED}: write a \
                 smaller factor"
            );
            self.stop.get_or_insert(Stop::Error(site, message));
        }
    }

    /// Continues recording in `block`, which is appended to the layout.
    pub fn switch_to(&mut self, block: Block) {
        self.func.layout.push(block);
        self.dominators.start(block);
        self.block = block;
    }

    /// Creates a block with parameters of the types of `values`, for the construct at `site`.
    pub fn block_like(&mut self, values: &[Value], site: Site) -> (Block, Vec<Value>) {
        let block = self.func.create_block();
        self.param_sites[block] = Some(site);
        if values.iter().any(|value| value.is_reserved_value()) {
            self.stop.get_or_insert(Stop::Error(site, FOREIGN.to_owned()));
            return (block, Vec::new());
        }
        let params = values
            .iter()
            .map(|&value| {
                let ty = self.func.value_type(value);
                self.func.append_block_param(block, ty)
            })
            .collect();
        (block, params)
    }

    /// Creates the target of run-time jumps to the merge point `merge`.
    pub fn merge_block(&mut self, merge: MergeId, values: &[Value], site: Site) -> (Block, Vec<Value>) {
        let (block, params) = self.block_like(values, site);
        self.merges.owners[block] = Some(merge);
        (block, params)
    }
}

/// Maximum number of instructions of a kernel, or of a called function, as recorded.
const MAX_INSTRUCTIONS: usize = 1 << 17;

/// Maximum number of instructions of a loop after unrolling by a hint.
const MAX_UNROLLED: u64 = 1 << 16;

/// Error of a handle that belongs to another recording.
pub(super) const FOREIGN: &str = "this handle belongs to another kernel, or to an earlier recording of this one, which kept it in a \
                       `static` or another place outside of the function: pass the value as a parameter, or compute it \
                       in this kernel";

/// Error of an instruction that a called function cannot contain.
const NOT_CALLABLE: &str = "a function with `#[device(call)]` cannot have barriers, instructions of a whole warp or shared \
                            variables, since some threads may call it while others do not: write `#[device]`, which is \
                            inlined, or pass a pointer to shared memory";

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

/// Restores the recorder of an enclosing recording.
struct Reset(Option<Recorder>, u32);

impl Drop for Reset {
    fn drop(&mut self) {
        RECORDER.set(self.0.take());
        RECORDING.set(self.1);
    }
}

/// Runs the kernel's function with `recorder`. Returns what it panicked with, if it did.
pub(super) fn run(
    recorder: Recorder,
    recording: u32,
    body: &mut dyn FnMut(),
) -> (Recorder, std::thread::Result<()>) {
    error::note_panics();
    let reset = Reset(RECORDER.replace(Some(recorder)), RECORDING.replace(recording));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    let recorder = RECORDER.take().expect("the recorder stays for the whole body");
    drop(reset);
    (recorder, outcome)
}
