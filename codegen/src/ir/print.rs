//! The text form of a function: one instruction a line, types and every payload visible.
//!
//! ```text
//! kernel @gemv(w: global u8, n: u32) threads 256 {
//!   shared0 = f32 x 32 align 16
//! block0:
//!   v0 = param.global 0 @ "kernels/gemv.rs":12:5
//!   v1, v2 = load.u32 x2 nc v0 + 16 @ "dsl/lib.rs":3:9 in row < "kernels/gemv.rs":14:20
//!   jump block1(v1)
//! block1(v3: u32):
//!   return
//! }
//! ```
//!
//! An instruction is its results, the operation with its type after a dot, the operation's modifiers separated by
//! blanks, the operands separated by commas, and after `@` its source location; `in` precedes the name of the function
//! that was inlined, and `<` the place that it was inlined at. A float constant that is finite prints as the shortest
//! decimal that reads back to the same bits, any other as its bits in hexadecimal. A comment runs from `;` to the end of
//! its line.

use std::fmt::{self, Display, Formatter, Write};

use half::{bf16, f16};

use super::{Block, BlockCall, Cache, Function, Inst, Loc, Op, Order, Type};

impl Display for Function {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Printer { function: self, locs: true }.function(f)
    }
}

/// The function's text form without source locations.
pub fn without_locs(function: &Function) -> impl Display + '_ {
    from_fn(move |f| Printer { function, locs: false }.function(f))
}

/// One instruction's text form, without its source location.
pub fn instruction(function: &Function, inst: Inst) -> impl Display + '_ {
    from_fn(move |f| Printer { function, locs: false }.inst(f, inst))
}

/// A source location with the chain of places that it was inlined at, as `"file":line:column in function < …`.
pub fn location(function: &Function, loc: Loc) -> impl Display + '_ {
    from_fn(move |f| {
        let mut next = Some(loc);
        while let Some(loc) = next {
            let place = &function.locs[loc];
            quoted(f, &place.file)?;
            write!(f, ":{}:{}", place.line, place.column)?;
            if let Some(function) = &place.function {
                write!(f, " in {function}")?;
            }
            next = place.inlined_at;
            if next.is_some() {
                f.write_str(" < ")?;
            }
        }
        Ok(())
    })
}

/// A constant of type `ty` as its literal.
pub fn literal(ty: Type, bits: u64) -> impl Display {
    from_fn(move |f| {
        let finite = |f: &mut Formatter<'_>, value: f32| {
            if value.is_finite() { write!(f, "{value:?}") } else { write!(f, "{bits:#x}") }
        };
        match ty {
            Type::Pred => f.write_str(if bits == 0 { "false" } else { "true" }),
            Type::F32 => finite(f, f32::from_bits(bits as u32)),
            Type::F16 => finite(f, f16::from_bits(bits as u16).to_f32()),
            Type::Bf16 => finite(f, bf16::from_bits(bits as u16).to_f32()),
            Type::F16x2 | Type::Bf16x2 => write!(f, "{bits:#010x}"),
            _ if ty.is_signed() => write!(f, "{}", ty.sign_extend(bits)),
            _ => write!(f, "{bits}"),
        }
    })
}

/// The operation's name in the text form.
pub fn mnemonic(op: Op) -> &'static str {
    match op {
        Op::Const(_) => "const",
        Op::Param(_) => "param",
        Op::Special(_) => "special",
        Op::SharedAddress(_) => "shared_address",
        Op::DynamicShared => "dynamic_shared",
        Op::Unary(unary) => unary.name(),
        Op::Binary(binary) => binary.name(),
        Op::MulWide => "mul_wide",
        Op::MulAdd => "mul_add",
        Op::Compare(compare) => compare.name(),
        Op::Select => "select",
        Op::Convert { .. } => "convert",
        Op::Bitcast => "bitcast",
        Op::Lop3(_) => "lop3",
        Op::Prmt => "prmt",
        Op::BitField => "bit_field",
        Op::BitInsert => "bit_insert",
        Op::NthSetBit => "nth_set_bit",
        Op::Funnel { .. } => "funnel",
        Op::Dp4a { .. } => "dp4a",
        Op::Dp2a { .. } => "dp2a",
        Op::Pack => "pack",
        Op::ConvertPack => "convert_pack",
        Op::Unpack => "unpack",
        Op::PtrAdd => "ptr_add",
        Op::Load(_) => "load",
        Op::Store(_) => "store",
        Op::Atomic { .. } => "atomic",
        Op::Barrier { .. } => "barrier",
        Op::BarrierArrive { .. } => "barrier_arrive",
        Op::WarpBarrier => "warp_barrier",
        Op::Fence(_) => "fence",
        Op::SequentialFence(_) => "sequential_fence",
        Op::FenceFor(_) => "fence_for",
        Op::MapShared => "map_shared",
        Op::ClusterBarrier(_) => "cluster_barrier",
        Op::Mbarrier(_) => "mbarrier",
        Op::Transfer(_) => "transfer",
        Op::CachePolicy(_) => "cache_policy",
        Op::LoadMatrix { .. } => "load_matrix",
        Op::Mma(_) => "mma",
        Op::Shuffle(_) => "shuffle",
        Op::Vote(_) => "vote",
        Op::Match(_) => "match",
        Op::Reduce(_) => "reduce",
        Op::Elect => "elect",
        Op::Sleep => "sleep",
        Op::WaitForDependencies => "wait_for_dependencies",
        Op::LaunchDependents => "launch_dependents",
        Op::Jump => "jump",
        Op::Branch => "branch",
        Op::Return => "return",
    }
}

/// The modifiers between the operation's name and its operands, each followed by a blank.
fn modifiers(f: &mut Formatter<'_>, op: Op, ty: Type) -> fmt::Result {
    let int = |signed: bool, bits: u32| format!("{}{bits}", if signed { 'i' } else { 'u' });
    match op {
        Op::Const(bits) => write!(f, "{} ", literal(ty, bits)),
        Op::Param(index) => write!(f, "{index} "),
        Op::Special(special) => write!(f, "{special} "),
        Op::SharedAddress(var) => write!(f, "{var} "),
        Op::Convert { rounding, saturate } => write!(f, "{rounding} {}", if saturate { "sat " } else { "" }),
        Op::Lop3(table) => write!(f, "{table:#04x} "),
        Op::Funnel { left } => f.write_str(if left { "left " } else { "right " }),
        Op::Dp4a { a_signed, b_signed } => write!(f, "{} {} ", int(a_signed, 8), int(b_signed, 8)),
        Op::Dp2a { a_signed, b_signed, high } => {
            let half = if high { "high" } else { "low" };
            write!(f, "{} {} {half} ", int(a_signed, 16), int(b_signed, 8))
        }
        Op::Load(access) | Op::Store(access) => {
            if access.vector != 1 {
                write!(f, "x{} ", access.vector)?;
            }
            if access.cache != Cache::Default {
                write!(f, "{} ", access.cache)?;
            }
            if access.hinted {
                f.write_str("hinted ")?;
            }
            if let Some(ordering) = access.ordering {
                write!(f, "{ordering} ")?;
            }
            Ok(())
        }
        Op::Atomic { op, ordering, .. } if ordering.order == Order::Relaxed => {
            write!(f, "{op} {} ", ordering.scope)
        }
        Op::Atomic { op, ordering, .. } => write!(f, "{op} {ordering} "),
        Op::Barrier { id, threads: 0 } => write!(f, "{id} "),
        Op::Barrier { id, threads } => write!(f, "{id} threads {threads} "),
        Op::BarrierArrive { id, threads } => write!(f, "{id} threads {threads} "),
        Op::FenceFor(purpose) => write!(f, "{purpose} "),
        Op::ClusterBarrier(part) => write!(f, "{part} "),
        Op::Mbarrier(operation) => write!(f, "{operation} "),
        Op::Transfer(transfer) => write!(f, "{transfer} "),
        Op::CachePolicy(eviction) => write!(f, "{eviction} "),
        Op::LoadMatrix { matrices, transposed } => {
            write!(f, "x{matrices} {}", if transposed { "transposed " } else { "" })
        }
        Op::Mma(mma) => write!(f, "{mma} "),
        Op::Fence(scope) | Op::SequentialFence(scope) => write!(f, "{scope} "),
        Op::Shuffle(shuffle) => write!(f, "{shuffle} "),
        Op::Vote(vote) => write!(f, "{vote} "),
        Op::Match(lanes) => write!(f, "{lanes} "),
        Op::Reduce(reduce) => write!(f, "{reduce} "),
        _ => Ok(()),
    }
}

/// A file name in quotation marks, on one line.
fn quoted(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// Displays by a closure.
struct FromFn<F>(F);

impl<F: Fn(&mut Formatter<'_>) -> fmt::Result> Display for FromFn<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0(f)
    }
}

fn from_fn<F: Fn(&mut Formatter<'_>) -> fmt::Result>(write: F) -> FromFn<F> {
    FromFn(write)
}

struct Printer<'a> {
    function: &'a Function,
    locs: bool,
}

impl Printer<'_> {
    fn function(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let function = self.function;
        write!(f, "kernel @{}(", function.name)?;
        for (index, param) in function.params.iter().enumerate() {
            write!(f, "{}{}: {}", if index == 0 { "" } else { ", " }, param.name, param.ty)?;
            if let Some(element) = param.element {
                write!(f, " {element}")?;
            }
            if let Some(align) = param.align {
                write!(f, " align {align}")?;
            }
        }
        f.write_char(')')?;
        if let Some(threads) = function.threads {
            write!(f, " threads {threads}")?;
        }
        if let Some(blocks) = function.min_blocks {
            write!(f, " min_blocks {blocks}")?;
        }
        if let Some(blocks) = function.cluster {
            write!(f, " cluster {blocks}")?;
        }
        if function.allow_spills > 0 {
            write!(f, " allow_spills {}", function.allow_spills)?;
        }
        f.write_str(" {\n")?;
        for (var, shared) in function.shared.iter() {
            writeln!(f, "  {var} = {} x {} align {}", shared.element, shared.count, shared.align)?;
        }
        for &block in &function.layout {
            self.block(f, block)?;
        }
        f.write_str("}\n")
    }

    fn block(&self, f: &mut Formatter<'_>, block: Block) -> fmt::Result {
        let data = self.function.block(block);
        write!(f, "{block}")?;
        for (index, &param) in data.params.iter().enumerate() {
            let open = if index == 0 { "(" } else { ", " };
            write!(f, "{open}{param}: {}", self.function.value_type(param))?;
        }
        f.write_str(if data.params.is_empty() { ":\n" } else { "):\n" })?;
        for &inst in &data.insts {
            f.write_str("  ")?;
            self.inst(f, inst)?;
            if let (true, Some(loc)) = (self.locs, self.function.inst(inst).loc) {
                write!(f, " @ {}", location(self.function, loc))?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }

    fn inst(&self, f: &mut Formatter<'_>, inst: Inst) -> fmt::Result {
        let data = self.function.inst(inst);
        for (index, result) in data.results.iter().enumerate() {
            write!(f, "{}{result}", if index == 0 { "" } else { ", " })?;
        }
        if !data.results.is_empty() {
            f.write_str(" = ")?;
        }
        f.write_str(mnemonic(data.op))?;
        if data.op.is_typed() {
            write!(f, ".{}", data.ty)?;
        }
        // Everything after the name ends in a blank except the last item, so it is collected before it is cut.
        let mut rest = from_fn(|f| modifiers(f, data.op, data.ty)).to_string();
        for (index, arg) in data.args.iter().enumerate() {
            write!(rest, "{}{arg}", if index == 0 { "" } else { ", " })?;
            match data.op.offset() {
                Some(offset) if index == 0 && offset != 0 => {
                    let sign = if offset < 0 { '-' } else { '+' };
                    write!(rest, " {sign} {}", offset.unsigned_abs())?;
                }
                _ => {}
            }
        }
        for (index, dest) in data.dests.iter().enumerate() {
            let separator = if index == 0 && data.args.is_empty() { "" } else { ", " };
            write!(rest, "{separator}{dest}")?;
        }
        let rest = rest.trim_end();
        if rest.is_empty() { Ok(()) } else { write!(f, " {rest}") }
    }
}

impl Display for BlockCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.block)?;
        for (index, arg) in self.args.iter().enumerate() {
            write!(f, "{}{arg}", if index == 0 { "(" } else { ", " })?;
        }
        if self.args.is_empty() { Ok(()) } else { f.write_char(')') }
    }
}
