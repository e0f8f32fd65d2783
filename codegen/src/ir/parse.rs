//! Parser of the text form that [`super::print`] writes.
//!
//! Values, blocks and shared variables keep their numbers. Numbers that the text skips become unused entities outside
//! all blocks. The results of an instruction are numbered consecutively. The parser does not check operand types: the
//! verifier may still reject the function.
//!
//! The first line has the version of the form; another version is an error. A text without that line, as tests write by
//! hand, is read as the current version.

mod build;

use std::borrow::Cow;

use super::inline::types;
use super::lex::Kind;
pub use super::lex::ParseError;
use super::members::{Format, Literal, Variant};
use super::print::{HEADER, VERSION};
use super::reader::{Name, Reader};
use super::{Function, Local, Op, Param, Shared, SourceLoc, Table, TensorLayout, Type};

/// Parses the text form of a function.
pub fn parse(text: &str) -> Result<Function, ParseError> {
    let text = without_header(text)?;
    let kernel = Reader::new(&text)?.kernel()?;
    build::function(kernel)
}

/// The text with its first line, if that has the version, made a comment. An error if the version is not [`VERSION`].
fn without_header(text: &str) -> Result<Cow<'_, str>, ParseError> {
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(';') {
            start += line.len();
            continue;
        }
        let Some(version) = content.strip_prefix(HEADER) else { break };
        let version = version.split(';').next().unwrap_or("").trim();
        if version != VERSION.to_string() {
            let message =
                format!("this text is `{HEADER} {version}`, and this parser reads `{HEADER} {VERSION}`");
            return Err(ParseError::new(number as u32 + 1, 1, message));
        }
        return Ok(Cow::Owned(format!("{};{}", &text[..start], &text[start..])));
    }
    Ok(Cow::Borrowed(text))
}

/// A parsed kernel with unresolved names.
struct Kernel {
    name: String,
    params: Vec<Param>,
    /// Types of the results of a function.
    results: Option<Vec<Type>>,
    /// The functions after the kernel.
    functions: Vec<Kernel>,
    threads: Option<u32>,
    threads_yz: [u32; 2],
    min_blocks: Option<u32>,
    max_registers: Option<u32>,
    cluster: Option<u32>,
    allow_spills: u32,
    shared: Vec<Shared>,
    locals: Vec<Local>,
    tables: Vec<Table>,
    blocks: Vec<BlockText>,
}

struct BlockText {
    name: Name,
    params: Vec<(Name, Type)>,
    unroll: Option<u32>,
    insts: Vec<InstText>,
}

struct InstText {
    op: Op,
    ty: Type,
    results: Vec<Name>,
    args: Vec<Name>,
    dests: Vec<(Name, Vec<Name>)>,
    /// Source location and its callers, innermost first; each is inlined at the next.
    locs: Vec<SourceLoc>,
}

impl Reader {
    /// Parses a kernel and the functions after it.
    fn kernel(&mut self) -> Result<Kernel, ParseError> {
        self.keyword("kernel")?;
        let mut kernel = self.function(false)?;
        while self.eat_word("function") {
            kernel.functions.push(self.function(true)?);
        }
        if self.kind() != &Kind::End {
            return Err(self.error("expected nothing or a function after the kernel's closing brace"));
        }
        Ok(kernel)
    }

    /// Parses a kernel or a function from its name on.
    fn function(&mut self, has_results: bool) -> Result<Kernel, ParseError> {
        self.punct('@')?;
        let name = self.word("the kernel's name")?;
        let params = self.kernel_params()?;
        let mut results = None;
        if has_results {
            self.keyword("results")?;
            results = Some(types(self)?);
        }
        let threads = if self.eat_word("threads") { Some(self.parsed("a number of threads")?) } else { None };
        let mut threads_yz = [1, 1];
        if threads.is_some() && self.eat_word("y") {
            threads_yz[0] = self.parsed("a number of threads")?;
            self.keyword("z")?;
            threads_yz[1] = self.parsed("a number of threads")?;
        }
        let min_blocks =
            if self.eat_word("min_blocks") { Some(self.parsed("a number of CTAs")?) } else { None };
        let max_registers =
            if self.eat_word("max_registers") { Some(self.parsed("a number of registers")?) } else { None };
        let cluster = if self.eat_word("cluster") { Some(self.parsed("a number of CTAs")?) } else { None };
        let allow_spills = if self.eat_word("allow_spills") { self.parsed("a number of bytes")? } else { 0 };
        self.punct('{')?;
        self.newline()?;
        let mut shared = Vec::new();
        while self.peek_word().is_some_and(|word| word.starts_with("shared")) {
            shared.push(self.shared(shared.len())?);
        }
        let mut locals = Vec::new();
        while self.peek_word().is_some_and(|word| word.starts_with("local")) {
            locals.push(self.local(locals.len())?);
        }
        let mut tables = Vec::new();
        while self.peek_word().is_some_and(|word| word.starts_with("table")) {
            tables.push(self.table(tables.len())?);
        }
        let mut blocks = Vec::new();
        while !self.eat('}') {
            blocks.push(self.block()?);
        }
        if self.kind() == &Kind::Newline {
            self.at += 1;
        }
        Ok(Kernel {
            name,
            params,
            results,
            functions: Vec::new(),
            threads,
            threads_yz,
            min_blocks,
            max_registers,
            cluster,
            allow_spills,
            shared,
            locals,
            tables,
            blocks,
        })
    }

    fn kernel_params(&mut self) -> Result<Vec<Param>, ParseError> {
        let mut params = Vec::new();
        self.punct('(')?;
        while !self.eat(')') {
            if !params.is_empty() {
                self.punct(',')?;
            }
            let name = self.word("a parameter's name")?;
            self.punct(':')?;
            let ty = self.parsed("a type")?;
            if ty == Type::TensorMap {
                let tensor = Some(self.tensor_layout()?);
                params.push(Param { name, ty, element: None, align: None, tensor });
                continue;
            }
            let typed = self.peek_word().is_some_and(|word| word != "align");
            let element = if typed { Some(self.parsed("a type")?) } else { None };
            let align = if self.eat_word("align") { Some(self.parsed("a number of bytes")?) } else { None };
            params.push(Param { name, ty, element, align, tensor: None });
        }
        Ok(params)
    }

    fn tensor_layout(&mut self) -> Result<TensorLayout, ParseError> {
        let element = self.parsed("an element type")?;
        self.keyword("tile")?;
        let mut tile = Vec::new();
        while !self.eat_word("swizzle") {
            tile.push(self.parsed("a number of elements, or `swizzle`")?);
        }
        Ok(TensorLayout { element, tile, swizzle: Variant.read(self, element)? })
    }

    fn shared(&mut self, index: usize) -> Result<Shared, ParseError> {
        self.numbered("shared", index)?;
        let element = self.parsed("a type")?;
        self.keyword("x")?;
        let count = self.parsed("a number of elements")?;
        self.keyword("align")?;
        let align = self.parsed("an alignment")?;
        self.newline()?;
        Ok(Shared { element, count, align })
    }

    fn local(&mut self, index: usize) -> Result<Local, ParseError> {
        self.numbered("local", index)?;
        let element = self.parsed("a type")?;
        self.keyword("x")?;
        let count = self.parsed("a number of elements")?;
        self.newline()?;
        Ok(Local { element, count })
    }

    fn table(&mut self, index: usize) -> Result<Table, ParseError> {
        self.numbered("table", index)?;
        let element = self.parsed("a type")?;
        let mut values = vec![Literal.read(self, element)?];
        while self.eat(',') {
            values.push(Literal.read(self, element)?);
        }
        self.newline()?;
        Ok(Table { element, values })
    }

    /// Parses the name of the variable number `index` of a kind, and the `=` after it.
    fn numbered(&mut self, prefix: &'static str, index: usize) -> Result<(), ParseError> {
        let name = self.name(prefix)?;
        if name.number as usize != index {
            let message = format!("{prefix} variables are numbered in order: expected {prefix}{index}");
            return Err(name.error(message));
        }
        self.punct('=')
    }

    fn block(&mut self) -> Result<BlockText, ParseError> {
        let name = self.name("block")?;
        let mut params = Vec::new();
        if self.eat('(') {
            while !self.eat(')') {
                if !params.is_empty() {
                    self.punct(',')?;
                }
                let value = self.name("v")?;
                self.punct(':')?;
                params.push((value, self.parsed("a type")?));
            }
        }
        let unroll = if self.eat_word("unroll") { Some(self.parsed("a factor")?) } else { None };
        self.punct(':')?;
        self.newline()?;
        let mut insts = Vec::new();
        while self.kind() != &Kind::Punct('}') && !self.at_block() {
            insts.push(self.inst()?);
        }
        Ok(BlockText { name, params, unroll, insts })
    }

    fn inst(&mut self) -> Result<InstText, ParseError> {
        let mut results = Vec::new();
        let assigns = matches!(self.next_kind(), Some(Kind::Punct(',' | '=')));
        if assigns {
            results.push(self.name("v")?);
            while self.eat(',') {
                results.push(self.name("v")?);
            }
            self.punct('=')?;
        }
        let (mut op, ty) = self.op()?;
        let (mut args, mut dests) = (Vec::new(), Vec::new());
        while !matches!(self.kind(), Kind::Newline | Kind::Punct('@')) {
            if args.len() + dests.len() > 0 {
                self.punct(',')?;
            }
            if self.at_block() {
                dests.push(self.block_call()?);
                continue;
            }
            args.push(self.name("v")?);
            if op.offset().is_some() && args.len() == 1 {
                op = op.with_offset(self.offset()?);
            }
        }
        let locs = if self.eat('@') { self.locs()? } else { Vec::new() };
        self.newline()?;
        Ok(InstText { op, ty, results, args, dests, locs })
    }

    /// Parses an opcode, its type and its members, up to the first operand.
    fn op(&mut self) -> Result<(Op, Type), ParseError> {
        let word = self.word("an operation")?;
        let (name, ty) = match word.split_once('.') {
            Some((name, text)) => {
                let ty = text.parse().map_err(|()| self.error_before(format!("`{text}` is not a type")))?;
                (name, Some(ty))
            }
            None => (word.as_str(), None),
        };
        let begin = self.at;
        let op = Op::read(name, self, ty.unwrap_or(Type::U32))?;
        let op = op.ok_or_else(|| self.error_before(format!("`{name}` is not an operation")))?;
        if op.is_typed() != ty.is_some() {
            self.at = begin;
            let what = if op.is_typed() { "needs a type" } else { "has no type" };
            return Err(self.error_before(format!("`{name}` {what}")));
        }
        Ok((op, ty.unwrap_or(Type::U32)))
    }

    fn block_call(&mut self) -> Result<(Name, Vec<Name>), ParseError> {
        let block = self.name("block")?;
        let mut args = Vec::new();
        if self.eat('(') {
            while !self.eat(')') {
                if !args.is_empty() {
                    self.punct(',')?;
                }
                args.push(self.name("v")?);
            }
        }
        Ok((block, args))
    }

    fn offset(&mut self) -> Result<i32, ParseError> {
        let negative = self.eat('-');
        if !negative && !self.eat('+') {
            return Ok(0);
        }
        let size: i64 = self.parsed("an offset")?;
        let offset = if negative { size.checked_neg() } else { Some(size) };
        offset
            .and_then(|o| i32::try_from(o).ok())
            .ok_or_else(|| self.error_before("the offset does not fit i32"))
    }

    fn locs(&mut self) -> Result<Vec<SourceLoc>, ParseError> {
        let mut locs = Vec::new();
        loop {
            let Kind::Text(file) = self.kind().clone() else {
                return Err(self.error("expected a file name in quotation marks"));
            };
            self.at += 1;
            self.punct(':')?;
            let line = self.parsed("a line")?;
            self.punct(':')?;
            let column = self.parsed("a column")?;
            let function = if self.eat_word("in") { Some(self.word("a function's name")?) } else { None };
            locs.push(SourceLoc { file, line, column, function, inlined_at: None });
            if !self.eat('<') {
                return Ok(locs);
            }
        }
    }
}

#[cfg(test)]
mod tests;
