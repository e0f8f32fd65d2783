//! Lowering of the statement tree to IR.

mod address;
mod control;

use bespoke_codegen::ir::{
    Access, AsyncCopy, Binary, Block, BlockCall, Cache, Compare, Expect, Function, InstData, Op, Param,
    Rounding, Shared, SharedVar, Special, Type, Value,
};

use crate::program::{Id, Operand, Place, Program, Region, Source, Stmt};

/// Bytes of the output buffer per thread and stored value.
pub const SLOT: u32 = 8;

/// Names of the pointer parameters: the buffers of [`Region::Input`], [`Region::Scratch`] and [`Region::Table`], and
/// the output. The first scalar parameter is -16.
pub const POINTERS: [&str; 4] = ["input", "scratch", "table", "out"];
pub const SCALARS: [(&str, Type); 6] = [
    ("minus_16", Type::U32),
    ("f", Type::F32),
    ("l", Type::I64),
    ("h", Type::F16),
    ("b", Type::U8),
    ("s", Type::I16),
];

const ADD: Op = Op::Binary(Binary::Add);
const AND: Op = Op::Binary(Binary::And);
const MUL: Op = Op::Binary(Binary::Mul);
const SHL: Op = Op::Binary(Binary::Shl);
const PLAIN: Op = Op::Convert { rounding: Rounding::Zero, saturate: false };

/// Lowers a kernel to IR, which is valid once unreachable blocks are removed.
pub fn lower(program: &Program) -> Function {
    let mut function = Function::new("k");
    // Allocations are aligned to 16 bytes or more.
    let pointers = POINTERS.map(|name| (name, Type::Global, Some(Type::U8), Some(16)));
    let scalars = SCALARS.map(|(name, ty)| (name, ty, None, None));
    function.params = pointers
        .into_iter()
        .chain(scalars)
        .map(|(name, ty, element, align)| Param { name: name.into(), ty, element, align, tensor: None })
        .collect();
    function.threads = program.fixed_threads.then_some(program.threads);
    let mut lower = Lower { function, block: None, scope: Vec::new(), bases: Bases::default(), program };
    let entry = lower.new_block();
    lower.open(entry);
    lower.prepare();
    lower.list(&program.body);
    lower.list(&program.tail);
    lower.finish();
    if program.unreachable {
        let block = lower.new_block();
        lower.open(block);
        lower.end(Op::Return, &[], Vec::new());
    }
    lower.function
}

/// Addresses that are computed in the entry block.
#[derive(Default)]
struct Bases {
    thread: Option<Value>,
    linear: Option<Value>,
    input: Option<Value>,
    scratch: Option<Value>,
    table: Option<Value>,
    shared: Option<Value>,
    exchange: Option<Value>,
    copies: Option<Value>,
}

struct Lower<'a> {
    function: Function,
    /// The block that instructions are appended to; none after a return.
    block: Option<Block>,
    scope: Vec<(Id, Value)>,
    bases: Bases,
    program: &'a Program,
}

impl Lower<'_> {
    fn new_block(&mut self) -> Block {
        self.function.create_block()
    }

    /// Appends the block to the layout and makes it the current one.
    fn open(&mut self, block: Block) {
        self.function.layout.push(block);
        self.block = Some(block);
    }

    fn push(&mut self, op: Op, ty: Type, args: &[Value], dests: Vec<BlockCall>) -> Vec<Value> {
        let Some(block) = self.block else { unreachable!("nothing follows a return") };
        let results = op.signature(ty).unwrap_or_else(|error| panic!("{error}")).results;
        let args = args.iter().copied().collect();
        let data = InstData { op, ty, args, dests, results: Default::default(), loc: None };
        let inst = self.function.create_inst(data, &results);
        self.function.block_mut(block).insts.push(inst);
        self.function.inst(inst).results.to_vec()
    }

    fn emit(&mut self, op: Op, ty: Type, args: &[Value]) -> Value {
        self.push(op, ty, args, Vec::new())[0]
    }

    fn effect(&mut self, op: Op, ty: Type, args: &[Value]) {
        self.push(op, ty, args, Vec::new());
    }

    fn end(&mut self, op: Op, args: &[Value], dests: Vec<BlockCall>) {
        self.push(op, Type::U32, args, dests);
        self.block = None;
    }

    fn jump(&mut self, block: Block, args: Vec<Value>) {
        if self.block.is_some() {
            self.end(Op::Jump, &[], vec![BlockCall { block, args }]);
        }
    }

    fn constant(&mut self, ty: Type, bits: u64) -> Value {
        self.emit(Op::Const(bits & ty.mask()), ty, &[])
    }

    fn operand(&mut self, operand: Operand) -> Value {
        let bits = match operand.source {
            Source::Bits(bits) => bits,
            Source::Value(id) => {
                let known = self.scope.iter().rev().find(|(name, _)| *name == id).map(|&(_, value)| value);
                match known.filter(|&value| self.function.value_type(value) == operand.ty) {
                    Some(value) => return value,
                    None => 0,
                }
            }
        };
        self.constant(operand.ty, bits)
    }

    fn operands(&mut self, operands: &[Operand]) -> Vec<Value> {
        operands.iter().map(|&operand| self.operand(operand)).collect()
    }

    fn name(&mut self, ids: &[Id], values: &[Value]) {
        self.scope.extend(ids.iter().copied().zip(values.iter().copied()));
    }

    /// Emits in the entry block the addresses that the statements need.
    fn prepare(&mut self) {
        let mut program = self.program.clone();
        let (mut regions, mut exchange, mut copies) = (Vec::new(), false, false);
        crate::program::stmts(&mut program, &mut |stmt| {
            exchange |= matches!(stmt, Stmt::Exchange { .. } | Stmt::LoadMatrix { .. });
            copies |= matches!(stmt, Stmt::CopyAsync { .. });
            regions.extend(matches!(stmt, Stmt::Guarded { .. }).then_some(Region::Input));
            regions.extend(crate::program::place(stmt).map(|place| place.region));
        });
        let needs = |region| regions.contains(&region);
        let threads = self.program.threads;
        let thread = self.emit(Op::Special(Special::TidX), Type::U32, &[]);
        self.bases.thread = Some(thread);
        if needs(Region::Scratch) || !self.program.stored.is_empty() {
            let cta = self.emit(Op::Special(Special::CtaidX), Type::U32, &[]);
            let threads = self.constant(Type::U32, threads.into());
            self.bases.linear = Some(self.emit(Op::MulAdd, Type::U32, &[cta, threads, thread]));
        }
        if needs(Region::Input) {
            self.bases.input = Some(self.emit(Op::Param(0), Type::Global, &[]));
        }
        if needs(Region::Scratch) {
            self.bases.scratch = Some(self.own(1, Region::Scratch.bytes()));
        }
        if needs(Region::Table) {
            self.bases.table = Some(self.emit(Op::Param(2), Type::Global, &[]));
        }
        if needs(Region::Shared) {
            let own = self.shared(Region::Shared.bytes());
            let zero = self.constant(Type::U64, 0);
            for offset in (0..Region::Shared.bytes() as i32).step_by(16) {
                let access = Access { vector: 2, offset, ..Access::SCALAR };
                self.effect(Op::Store(access), Type::U64, &[own, zero, zero]);
            }
            self.bases.shared = Some(own);
        }
        if exchange {
            self.bases.exchange = Some(self.shared(SLOT));
        }
        if copies {
            self.bases.copies = Some(self.shared(16));
        }
    }

    /// Address of the thread's part of a buffer: `bytes` bytes per thread.
    fn own(&mut self, param: u32, bytes: u32) -> Value {
        let Some(linear) = self.bases.linear else { unreachable!("computed before") };
        let base = self.emit(Op::Param(param), Type::Global, &[]);
        let bytes = self.constant(Type::U32, bytes.into());
        let offset = self.emit(Op::MulWide, Type::U32, &[linear, bytes]);
        self.emit(Op::PtrAdd, Type::Global, &[base, offset])
    }

    /// Address of the thread's part of a new shared variable: `bytes` bytes per thread.
    fn shared(&mut self, bytes: u32) -> Value {
        let count = self.program.threads * bytes / 8;
        let variable: SharedVar = self.function.shared.push(Shared { element: Type::U64, count, align: 16 });
        let base = self.emit(Op::SharedAddress(variable), Type::Shared, &[]);
        let bytes = self.constant(Type::U32, bytes.into());
        let thread = self.thread();
        let offset = self.emit(MUL, Type::U32, &[thread, bytes]);
        self.emit(Op::PtrAdd, Type::Shared, &[base, offset])
    }

    fn thread(&self) -> Value {
        self.bases.thread.unwrap_or_else(|| unreachable!("computed first"))
    }

    fn base(&self, region: Region) -> Value {
        let base = match region {
            Region::Input => self.bases.input,
            Region::Scratch => self.bases.scratch,
            Region::Shared => self.bases.shared,
            Region::Table => self.bases.table,
        };
        base.unwrap_or_else(|| unreachable!("computed before"))
    }

    fn list(&mut self, list: &[Stmt]) {
        for stmt in list {
            if self.block.is_none() {
                return;
            }
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Compute { op, ty, args, results } => {
                let args = self.operands(args);
                let values = self.push(*op, *ty, &args, Vec::new());
                self.name(results, &values);
            }
            Stmt::Load { ty, access, place, results } => {
                let pointer = self.place(place);
                let mut args = vec![pointer];
                args.extend(access.hinted.then(|| self.policy()));
                let op = Op::Load(Access { offset: place.offset, ..*access });
                let values = self.push(op, *ty, &args, Vec::new());
                self.name(results, &values);
            }
            Stmt::Store { ty, access, place, values } => {
                let mut args = self.operands(values);
                args.insert(0, self.place(place));
                args.extend(access.hinted.then(|| self.policy()));
                self.effect(Op::Store(Access { offset: place.offset, ..*access }), *ty, &args);
            }
            Stmt::Atomic { op, ty, ordering, place, values, result } => {
                let mut args = self.operands(values);
                args.insert(0, self.place(place));
                let op = Op::Atomic { op: *op, ordering: *ordering, offset: place.offset };
                let old = self.emit(op, *ty, &args);
                self.name(result.as_slice(), &[old]);
            }
            Stmt::Exchange { value, by, result } => self.exchange(*value, *by, *result),
            Stmt::LoadMatrix { matrices, transposed, value, results } => {
                let op = Op::LoadMatrix { matrices: *matrices, transposed: *transposed };
                self.load_matrix(op, *value, results);
            }
            Stmt::CopyAsync { bytes, place, result } => self.copy(*bytes, place, *result),
            Stmt::Guarded { index, bound, ty, otherwise, result } => {
                self.guarded(*index, *bound, *ty, *otherwise, *result);
            }
            Stmt::If(inner) => self.conditional(inner),
            Stmt::Loop(inner) => self.repetition(inner),
            Stmt::Return => self.end(Op::Return, &[], Vec::new()),
        }
    }

    fn policy(&mut self) -> Value {
        self.emit(Op::CachePolicy(bespoke_codegen::ir::Eviction::First), Type::U64, &[])
    }

    fn barrier(&mut self) {
        self.effect(Op::Barrier { id: 0, threads: 0 }, Type::U32, &[]);
    }

    fn exchange(&mut self, value: Operand, by: u32, result: Id) {
        let value = self.operand(value);
        let ty = self.function.value_type(value);
        let own = self.bases.exchange.unwrap_or_else(|| unreachable!("computed before"));
        self.effect(Op::Store(Access::SCALAR), ty, &[own, value]);
        self.barrier();
        let (thread, by) = (self.thread(), self.constant(Type::U32, by.into()));
        let sum = self.emit(ADD, Type::U32, &[thread, by]);
        let threads = self.constant(Type::U32, self.program.threads.into());
        let other = self.emit(Op::Binary(Binary::Rem), Type::U32, &[sum, threads]);
        // The distance from the thread's part of the variable to the other thread's part.
        let distance = self.emit(Op::Binary(Binary::Sub), Type::U32, &[other, thread]);
        let amount = self.constant(Type::U32, 3);
        let distance = self.emit(SHL, Type::U32, &[distance, amount]);
        let pointer = self.emit(Op::PtrAdd, Type::Shared, &[own, distance]);
        let found = self.emit(Op::Load(Access::SCALAR), ty, &[pointer]);
        self.barrier();
        self.name(&[result], &[found]);
    }

    fn load_matrix(&mut self, op: Op, value: Operand, results: &[Id]) {
        let value = self.operand(value);
        let own = self.bases.exchange.unwrap_or_else(|| unreachable!("computed before"));
        self.effect(Op::Store(Access::SCALAR), Type::U64, &[own, value]);
        self.barrier();
        let thread = self.thread();
        // The 16 rows of 16 bytes of a warp begin at the part of its lane 0.
        let (mask, row) = (self.constant(Type::U32, 31), self.constant(Type::U32, 15));
        let lane = self.emit(AND, Type::U32, &[thread, mask]);
        let row = self.emit(AND, Type::U32, &[thread, row]);
        let [three, four] = [3, 4].map(|amount| self.constant(Type::U32, amount));
        let back = self.emit(SHL, Type::U32, &[lane, three]);
        let row = self.emit(SHL, Type::U32, &[row, four]);
        let distance = self.emit(Op::Binary(Binary::Sub), Type::U32, &[row, back]);
        let pointer = self.emit(Op::PtrAdd, Type::Shared, &[own, distance]);
        let values = self.push(op, Type::U32, &[pointer], Vec::new());
        self.barrier();
        self.name(results, &values);
    }

    fn copy(&mut self, bytes: u8, place: &Place, result: Id) {
        let source = self.place(&Place { step: place.step + place.offset, ..*place });
        let target = self.bases.copies.unwrap_or_else(|| unreachable!("computed before"));
        self.effect(
            Op::AsyncCopy(AsyncCopy::Async { bytes, sized: false, hinted: false }),
            Type::U32,
            &[target, source],
        );
        self.effect(Op::AsyncCopy(AsyncCopy::Commit), Type::U32, &[]);
        self.effect(Op::AsyncCopy(AsyncCopy::Wait { pending: 0 }), Type::U32, &[]);
        let found = self.emit(Op::Load(Access::SCALAR), Type::U32, &[target]);
        self.name(&[result], &[found]);
    }

    fn guarded(&mut self, index: Operand, bound: u32, ty: Type, otherwise: Operand, result: Id) {
        let (index, otherwise) = (self.operand(index), self.operand(otherwise));
        let limit = self.constant(Type::U32, bound.into());
        let inside = self.emit(Op::Compare(Compare::Lt), Type::U32, &[index, limit]);
        let (load, join) = (self.new_block(), self.new_block());
        let skip = BlockCall { block: join, args: vec![otherwise] };
        self.end(Op::Branch, &[inside], vec![BlockCall { block: load, args: Vec::new() }, skip]);
        self.open(load);
        let scale = self.constant(Type::U32, ty.bytes().into());
        let bytes = self.emit(Op::MulWide, Type::U32, &[index, scale]);
        let pointer = self.emit(Op::PtrAdd, Type::Global, &[self.base(Region::Input), bytes]);
        // The last element in bounds ends at the end of the buffer.
        let offset = (Region::Input.bytes() - bound * ty.bytes()) as i32;
        let access = Access { offset, cache: Cache::ReadOnly, ..Access::SCALAR };
        let found = self.emit(Op::Load(access), ty, &[pointer]);
        self.jump(join, vec![found]);
        let merged = self.function.append_block_param(join, ty);
        self.open(join);
        self.name(&[result], &[merged]);
    }

    /// Stores the thread's results to the output.
    fn finish(&mut self) {
        if self.block.is_none() {
            return;
        }
        let stored = self.program.stored.clone();
        if !stored.is_empty() {
            let out = self.own(3, SLOT * stored.len() as u32);
            for (index, &operand) in stored.iter().enumerate() {
                let mut value = self.operand(operand);
                if operand.ty == Type::Pred {
                    let [one, zero] = [1, 0].map(|bits| self.constant(Type::U32, bits));
                    value = self.emit(Op::Select, Type::U32, &[value, one, zero]);
                }
                let access = Access { offset: (SLOT as usize * index) as i32, ..Access::SCALAR };
                let ty = self.function.value_type(value);
                self.effect(Op::Store(access), ty, &[out, value]);
            }
        }
        self.end(Op::Return, &[], Vec::new());
    }
}

/// Operand types of an opcode, if each is a fixed type.
pub fn operand_types(op: Op, ty: Type) -> Option<Vec<Type>> {
    let signature = op.signature(ty).ok()?;
    signature
        .operands
        .into_iter()
        .map(|expect| if let Expect::Is(ty) = expect { Some(ty) } else { None })
        .collect()
}
