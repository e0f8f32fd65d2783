//! Printer of the text form: one instruction per line, with all types and members.
//!
//! ```text
//! bespoke-ir 1
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
//! A tensor map's parameter has the layout of its tiles: `a: tensor_map f16 tile 64 128 swizzle 128`, with the elements along
//! each dimension and the bytes of the swizzle, 0 without one.
//!
//! Functions that the kernel calls follow it, each before those that call it. The types of their results are after the
//! parameters; `result` sets a result before `return`.
//!
//! ```text
//! function @square(p0: f32) results (f32) {
//! block0:
//!   v0 = param.f32 0
//!   v1 = mul.f32 v0, v0
//!   result.f32 0 v1
//!   return
//! }
//! ```
//!
//! The first line has the version of the form ([`VERSION`]).
//!
//! An instruction is its results, the opcode with its type after a dot, the opcode's members separated by blanks, the
//! operands separated by commas, and its source location after `@`. In a location, `in` precedes the name of the
//! inlined function and `<` the location of the call. `unroll 4` after the parameters of a loop's header asks for that
//! factor. `threads 256 y 8 z 1` are 32 threads along x, 8 along y and 1 along z. A float constant that is finite is the shortest decimal that
//! reads back to the same bits; any other is its bits in hexadecimal. A comment runs from `;` to the end of its line.

use std::fmt::{self, Display, Formatter, Write};

use super::inline::list;
use super::members::{Format, Literal};
use super::{Block, BlockCall, Function, Inst, Loc, TensorLayout};

/// Version of the text form: the number in its first line. A change that makes an older text invalid, or gives it another
/// meaning, increases it. New opcodes, types, attributes and members do not; `docs/ir.md` states the rule.
pub const VERSION: u32 = 1;

/// First word of the text form.
pub(super) const HEADER: &str = "bespoke-ir";

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

/// A source location with the chain of calls that it was inlined through, as `"file":line:column in function < …`.
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

/// Writes a file name in quotation marks, on one line.
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

/// Adapter that implements `Display` by a closure.
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
        match function.results {
            None => write!(f, "{HEADER} {VERSION}\nkernel @{}(", function.name)?,
            Some(_) => write!(f, "function @{}(", function.name)?,
        }
        for (index, param) in function.params.iter().enumerate() {
            write!(f, "{}{}: {}", if index == 0 { "" } else { ", " }, param.name, param.ty)?;
            if let Some(element) = param.element {
                write!(f, " {element}")?;
            }
            if let Some(align) = param.align {
                write!(f, " align {align}")?;
            }
            if let Some(TensorLayout { element, tile, swizzle }) = &param.tensor {
                write!(f, " {element} tile")?;
                tile.iter().try_for_each(|size| write!(f, " {size}"))?;
                write!(f, " swizzle {swizzle}")?;
            }
        }
        f.write_char(')')?;
        if let Some(results) = &function.results {
            write!(f, " results ({})", list(results))?;
        }
        if let Some(threads) = function.threads {
            write!(f, " threads {threads}")?;
            let [y, z] = function.threads_yz;
            if (y, z) != (1, 1) {
                write!(f, " y {y} z {z}")?;
            }
        }
        if let Some(blocks) = function.min_blocks {
            write!(f, " min_blocks {blocks}")?;
        }
        if let Some(registers) = function.max_registers {
            write!(f, " max_registers {registers}")?;
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
        for (var, local) in function.locals.iter() {
            writeln!(f, "  {var} = {} x {}", local.element, local.count)?;
        }
        for (var, table) in function.tables.iter() {
            let literal = |&bits: &u64| Literal.print(bits, table.element);
            let values: Vec<String> = table.values.iter().map(literal).collect();
            writeln!(f, "  {var} = {} {}", table.element, values.join(", "))?;
        }
        for &block in &function.layout {
            self.block(f, block)?;
        }
        f.write_str("}\n")?;
        for function in &function.functions {
            Printer { function, ..*self }.function(f)?;
        }
        Ok(())
    }

    fn block(&self, f: &mut Formatter<'_>, block: Block) -> fmt::Result {
        let data = self.function.block(block);
        write!(f, "{block}")?;
        for (index, &param) in data.params.iter().enumerate() {
            let open = if index == 0 { "(" } else { ", " };
            write!(f, "{open}{param}: {}", self.function.value_type(param))?;
        }
        f.write_str(if data.params.is_empty() { "" } else { ")" })?;
        if let Some(factor) = data.unroll {
            write!(f, " unroll {factor}")?;
        }
        f.write_str(":\n")?;
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
        f.write_str(data.op.name())?;
        if data.op.is_typed() {
            write!(f, ".{}", data.ty)?;
        }
        let members = data.op.members(data.ty);
        if !members.is_empty() {
            write!(f, " {members}")?;
        }
        let mut separator = " ";
        for (index, arg) in data.args.iter().enumerate() {
            write!(f, "{separator}{arg}")?;
            separator = ", ";
            match data.op.offset() {
                Some(offset) if index == 0 && offset != 0 => {
                    let sign = if offset < 0 { '-' } else { '+' };
                    write!(f, " {sign} {}", offset.unsigned_abs())?;
                }
                _ => {}
            }
        }
        for dest in &data.dests {
            write!(f, "{separator}{dest}")?;
            separator = ", ";
        }
        Ok(())
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
