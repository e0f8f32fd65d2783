//! A kernel as typed SSA in entity arenas.

use cranelift_entity::{PrimaryMap, SecondaryMap};
use smallvec::SmallVec;

use super::call::{Callee, FunctionSignature};
use super::effect::OpaqueEffect;
use super::entities::{Block, Inst, Loc, LocalVar, SharedVar, TableVar, Value};
use super::op::Op;
use super::tensor::TensorLayout;
use super::types::Type;

/// A location in a kernel's Rust source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLoc {
    /// The file as rustc names it, relative to the workspace root.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The inlined `#[device]` function that contains this location, if its name is known.
    pub function: Option<String>,
    /// The location of the call, if the function was inlined.
    pub inlined_at: Option<Loc>,
}

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name of the parameter in the Rust source.
    pub name: String,
    /// Type of the parameter: `Type::Global` for pointers, `Type::TensorMap` for tensor maps, otherwise the scalar type.
    pub ty: Type,
    /// Element type of a pointer, for launch stubs; none for scalars.
    pub element: Option<Type>,
    /// Alignment in bytes that the launch guarantees for a pointer, if larger than the element's: a power of two.
    pub align: Option<u32>,
    /// Layout of a tensor map (`Type::TensorMap`): element type, tile and swizzle.
    pub tensor: Option<TensorLayout>,
}

/// Size of a tensor map in the `.param` space, in bytes.
pub const TENSOR_MAP_BYTES: u32 = 128;
/// Alignment of a tensor map in the `.param` space, in bytes.
pub const TENSOR_MAP_ALIGN: u32 = 64;

impl Param {
    /// Size in the `.param` space, in bytes.
    pub fn bytes(&self) -> u32 {
        if self.ty == Type::TensorMap { TENSOR_MAP_BYTES } else { self.ty.bytes() }
    }

    /// Alignment in the `.param` space, in bytes.
    pub fn space_alignment(&self) -> u32 {
        if self.ty == Type::TensorMap { TENSOR_MAP_ALIGN } else { self.ty.bytes() }
    }

    /// Guaranteed alignment of a pointer parameter in bytes; 1 for scalars.
    pub fn alignment(&self) -> u32 {
        self.element.map_or(1, Type::bytes).max(self.align.unwrap_or(1))
    }
}

/// A static shared-memory variable: `count` elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Element type.
    pub element: Type,
    /// Number of elements.
    pub count: u32,
    /// Alignment in bytes, a power of two.
    pub align: u32,
}

/// An array in the local memory of each thread: `count` elements, aligned to [`ARRAY_ALIGN`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Element type.
    pub element: Type,
    /// Number of elements.
    pub count: u32,
}

/// A table of constants in constant memory, aligned to [`ARRAY_ALIGN`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// Element type.
    pub element: Type,
    /// Raw bits of the elements.
    pub values: Vec<u64>,
}

impl Table {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.values.len() as u64 * u64::from(self.element.bytes())
    }
}

/// Constant memory of a module, in bytes.
pub const CONSTANT_MEMORY: u64 = 64 << 10;

/// Alignment of local arrays and tables, in bytes: that of the widest access.
pub const ARRAY_ALIGN: u32 = 16;

/// A jump target with its block arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCall {
    /// The target block.
    pub block: Block,
    /// One argument for each parameter of the target block.
    pub args: Vec<Value>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstData {
    /// The opcode.
    pub op: Op,
    /// The type that the opcode is applied to; `Type::U32` if it has no type. See [`Op::signature`].
    pub ty: Type,
    /// Operands, in order.
    pub args: SmallVec<[Value; 4]>,
    /// Jump targets; empty unless the instruction is a terminator.
    pub dests: Vec<BlockCall>,
    /// Values that the instruction defines.
    pub results: SmallVec<[Value; 2]>,
    /// Source location.
    pub loc: Option<Loc>,
}

impl InstData {
    /// Number of leading operands that the instruction updates in place: see [`Op::in_place`].
    pub fn in_place(&self) -> usize {
        self.op.in_place(self.ty)
    }
}

/// The definition of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Def {
    /// Result `.1` of an instruction.
    Result(Inst, u32),
    /// Parameter `.1` of a block.
    Param(Block, u32),
}

#[derive(Clone, Debug)]
struct ValueData {
    ty: Type,
    def: Def,
}

/// A basic block: parameters, then instructions of which the last is a terminator.
#[derive(Clone, Debug, Default)]
pub struct BlockData {
    /// Block parameters.
    pub params: Vec<Value>,
    /// Instructions in order.
    pub insts: Vec<Inst>,
    /// Of a loop's header: how often the loop is to be unrolled; 1 keeps it. Without it, the passes decide.
    pub unroll: Option<u32>,
}

/// A kernel, or a function that it calls.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name of the kernel and of its PTX entry point.
    pub name: String,
    /// Kernel parameters, in order.
    pub params: Vec<Param>,
    /// Types of the results of a function; none for a kernel.
    pub results: Option<Vec<Type>>,
    /// The functions of a kernel: each calls only functions before it. A function has none of its own.
    pub functions: Vec<Function>,
    /// Threads per CTA along all axes, if fixed (`.reqntid`).
    pub threads: Option<u32>,
    /// How many of the threads are along y and z; 1 and 1 for a line of threads along x.
    pub threads_yz: [u32; 2],
    /// Minimum number of CTAs resident per multiprocessor, which limits the registers per thread (`.minnctapersm`).
    pub min_blocks: Option<u32>,
    /// Largest number of registers per thread (`.maxnreg`).
    pub max_registers: Option<u32>,
    /// CTAs per cluster, along x (`.reqnctapercluster`): they run at the same time and can access each other's shared
    /// memory. The grid is a multiple of the cluster.
    pub cluster: Option<u32>,
    /// Bytes of stack per thread that registers may spill to; a larger spill is an error.
    pub allow_spills: u32,
    /// Static shared-memory variables.
    pub shared: PrimaryMap<SharedVar, Shared>,
    /// Arrays in local memory.
    pub locals: PrimaryMap<LocalVar, Local>,
    /// Tables of constants.
    pub tables: PrimaryMap<TableVar, Table>,
    /// Source locations.
    pub locs: PrimaryMap<Loc, SourceLoc>,
    /// Blocks in the order they are printed; the first is the entry and has no parameters.
    pub layout: Vec<Block>,
    blocks: PrimaryMap<Block, BlockData>,
    insts: PrimaryMap<Inst, InstData>,
    values: PrimaryMap<Value, ValueData>,
}

/// The predecessors of every block.
pub type Predecessors = SecondaryMap<Block, SmallVec<[Block; 2]>>;

impl Function {
    /// An empty kernel.
    pub fn new(name: impl Into<String>) -> Function {
        Function {
            name: name.into(),
            params: Vec::new(),
            results: None,
            functions: Vec::new(),
            threads: None,
            threads_yz: [1, 1],
            min_blocks: None,
            max_registers: None,
            cluster: None,
            allow_spills: 0,
            shared: PrimaryMap::new(),
            locals: PrimaryMap::new(),
            tables: PrimaryMap::new(),
            locs: PrimaryMap::new(),
            layout: Vec::new(),
            blocks: PrimaryMap::new(),
            insts: PrimaryMap::new(),
            values: PrimaryMap::new(),
        }
    }

    /// Number of instructions in the block, where a call counts 1 plus the instructions of the called function.
    pub fn recorded_work(&self, block: Block) -> usize {
        let insts = self.blocks[block].insts.iter();
        insts.map(|&inst| self.work_of(self.insts[inst].op)).sum()
    }

    /// Number of instructions that recording the opcode records: 1, and for a call also those of the called function.
    pub fn work_of(&self, op: Op) -> usize {
        let Some(function) = self.called(op) else { return 1 };
        let insts = function.layout.iter().flat_map(|&block| &function.blocks[block].insts);
        1 + insts.map(|&inst| self.work_of(function.insts[inst].op)).sum::<usize>()
    }

    /// The function that the opcode calls, if it is a call.
    pub fn called(&self, op: Op) -> Option<&Function> {
        let Op::Call(callee) = op else { return None };
        self.functions.iter().find(|function| function.name == callee.signature().name)
    }

    /// Name, types and side effect of a function, for calls of it.
    pub fn as_callee(&self) -> Callee {
        Callee::new(FunctionSignature {
            name: self.name.clone(),
            params: self.params.iter().map(|param| param.ty).collect(),
            results: self.results.clone().unwrap_or_default(),
            effect: self.effect(),
        })
    }

    /// The side effect of a function on its caller. Its own local arrays do not count.
    fn effect(&self) -> OpaqueEffect {
        let owns_locals = self.params.iter().all(|param| param.ty != Type::Local);
        let insts = self.layout.iter().flat_map(|&block| &self.block(block).insts);
        let effect = |&inst: &Inst| {
            let data = self.inst(inst);
            match data.op {
                Op::Result(_) => OpaqueEffect::Pure,
                Op::Load(_) | Op::Store(_) if owns_locals && self.value_type(data.args[0]) == Type::Local => {
                    OpaqueEffect::Pure
                }
                op => op.effect().as_opaque(),
            }
        };
        insts.map(effect).max().unwrap_or(OpaqueEffect::Pure)
    }

    /// Whether a call of `callee` can call this function, which has its name, its types and no stronger effect.
    pub(super) fn accepts_calls_of(&self, callee: Callee) -> bool {
        let FunctionSignature { name, params, results, effect } = callee.signature();
        self.name == *name
            && self.params.iter().map(|param| param.ty).eq(params.iter().copied())
            && self.results.as_ref() == Some(results)
            && self.effect() <= *effect
    }

    /// Threads per CTA along x, y and z, if fixed.
    pub fn threads_by_axis(&self) -> Option<[u32; 3]> {
        let [y, z] = self.threads_yz;
        self.threads.map(|threads| [threads / (y * z).max(1), y, z])
    }

    /// Size of the static shared memory in bytes.
    pub fn static_shared(&self) -> u64 {
        self.shared.values().map(|shared| u64::from(shared.count) * u64::from(shared.element.bytes())).sum()
    }

    /// Alignment of the dynamic shared memory in bytes: 128, or that of the kernel's widest swizzled tiles.
    pub fn dynamic_shared_alignment(&self) -> u32 {
        let tiles = self.params.iter().filter_map(|param| Some(param.tensor.as_ref()?.swizzle.alignment()));
        tiles.fold(128, u32::max)
    }

    /// Size of a thread's local arrays in bytes.
    pub fn local_bytes(&self) -> u64 {
        let bytes = |local: &Local| u64::from(local.count) * u64::from(local.element.bytes());
        self.locals.values().map(|local| bytes(local).next_multiple_of(ARRAY_ALIGN.into())).sum()
    }

    /// Size of the tables of constants in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.tables.values().map(|table| table.bytes().next_multiple_of(ARRAY_ALIGN.into())).sum()
    }

    /// Whether an instruction exists on devices of one compute capability alone ([`Op::is_architecture_specific`]).
    pub fn uses_architecture_specific(&self) -> bool {
        let insts = self.layout.iter().flat_map(|&block| &self.block(block).insts);
        insts.into_iter().any(|&inst| self.inst(inst).op.is_architecture_specific())
    }

    /// A new empty block, not yet in the layout.
    pub fn create_block(&mut self) -> Block {
        self.blocks.push(BlockData::default())
    }

    /// The block's parameters and instructions.
    pub fn block(&self, block: Block) -> &BlockData {
        &self.blocks[block]
    }

    /// The block's parameters and instructions.
    pub fn block_mut(&mut self, block: Block) -> &mut BlockData {
        &mut self.blocks[block]
    }

    /// Number of blocks created so far, in the layout or not.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Number of values created so far.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Number of instructions created so far.
    pub fn inst_count(&self) -> usize {
        self.insts.len()
    }

    /// Number of instructions in the blocks of the layout.
    pub fn size(&self) -> usize {
        self.layout.iter().map(|&block| self.blocks[block].insts.len()).sum()
    }

    /// The instruction.
    pub fn inst(&self, inst: Inst) -> &InstData {
        &self.insts[inst]
    }

    /// The instruction.
    pub fn inst_mut(&mut self, inst: Inst) -> &mut InstData {
        &mut self.insts[inst]
    }

    /// Appends a parameter of type `ty` to `block`.
    pub fn append_block_param(&mut self, block: Block, ty: Type) -> Value {
        let index = self.blocks[block].params.len() as u32;
        let value = self.values.push(ValueData { ty, def: Def::Param(block, index) });
        self.blocks[block].params.push(value);
        value
    }

    /// Removes the block's parameters for which `keep` is false, and the corresponding arguments of every jump
    /// to it. The removed values must have no uses left.
    pub fn retain_block_params(&mut self, block: Block, keep: &[bool]) {
        let mut index = 0;
        let mut params = std::mem::take(&mut self.blocks[block].params);
        params.retain(|_| {
            index += 1;
            keep[index - 1]
        });
        for (index, &param) in params.iter().enumerate() {
            self.values[param].def = Def::Param(block, index as u32);
        }
        self.blocks[block].params = params;
        for &from in &self.layout {
            let Some(&last) = self.blocks[from].insts.last() else { continue };
            for dest in &mut self.insts[last].dests {
                if dest.block == block {
                    let mut index = 0;
                    dest.args.retain(|_| {
                        index += 1;
                        keep[index - 1]
                    });
                }
            }
        }
    }

    /// Creates an instruction with new results of these types, in no block.
    pub fn create_inst(&mut self, mut data: InstData, results: &[Type]) -> Inst {
        data.results.clear();
        let inst = self.insts.push(data);
        for (index, &ty) in results.iter().enumerate() {
            let value = self.values.push(ValueData { ty, def: Def::Result(inst, index as u32) });
            self.insts[inst].results.push(value);
        }
        inst
    }

    /// The value's type.
    pub fn value_type(&self, value: Value) -> Type {
        self.values[value].ty
    }

    /// The definition of the value.
    pub fn value_def(&self, value: Value) -> Def {
        self.values[value].def
    }

    /// The instruction that defines the value, if one does.
    pub fn defining_inst(&self, value: Value) -> Option<&InstData> {
        match self.values[value].def {
            Def::Result(inst, _) => Some(&self.insts[inst]),
            Def::Param(..) => None,
        }
    }

    /// The value's raw bits if it is a constant.
    pub fn constant(&self, value: Value) -> Option<u64> {
        match self.defining_inst(value)?.op {
            Op::Const(bits) => Some(bits),
            _ => None,
        }
    }

    /// The block's terminator.
    ///
    /// # Panics
    /// If the block is empty, which the verifier excludes.
    pub fn terminator(&self, block: Block) -> &InstData {
        let last = self.blocks[block].insts.last().expect("a verified block has a terminator");
        &self.insts[*last]
    }

    /// The targets of the block's terminator.
    pub fn successors(&self, block: Block) -> impl Iterator<Item = Block> + '_ {
        let last = self.blocks[block].insts.last();
        last.into_iter().flat_map(|&inst| self.insts[inst].dests.iter().map(|dest| dest.block))
    }

    /// The predecessors of every block, in layout order; a block with two edges to it occurs twice.
    pub fn predecessors(&self) -> Predecessors {
        let mut preds = Predecessors::with_capacity(self.blocks.len());
        for &block in &self.layout {
            for succ in self.successors(block) {
                preds[succ].push(block);
            }
        }
        preds
    }

    /// Replaces every use of a value by `map(value)`, in operands and in block arguments.
    pub fn rewrite_uses(&mut self, map: impl Fn(Value) -> Value) {
        for &block in &self.layout {
            for &inst in &self.blocks[block].insts {
                let data = &mut self.insts[inst];
                data.args.iter_mut().for_each(|value| *value = map(*value));
                for dest in &mut data.dests {
                    dest.args.iter_mut().for_each(|value| *value = map(*value));
                }
            }
        }
    }
}
