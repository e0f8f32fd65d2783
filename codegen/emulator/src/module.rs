//! Modules and kernels as loaded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::decode::{self, Code, Place, Symbol};
use crate::finding::SourceLine;
use crate::load::ast::{Ast, Clusters, Function, Location, Operand, ParamDecl, Variable};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::link;
use crate::load::parser;
use crate::memory::Memory;

/// A loaded PTX module: every instruction is decoded, so that what runs was understood whole.
#[derive(Debug)]
pub struct Module {
    kernels: Vec<Kernel>,
}

impl Module {
    /// Loads a PTX text.
    ///
    /// # Errors
    /// The first [`ParseError`], for what an assembler would refuse and for what the emulator lacks.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        Module::load(text).map_err(|errors| errors.into_iter().next().unwrap_or_default())
    }

    /// [`Module::parse`] that tells every reason at once, each with its [kind](ParseErrorKind): what is wrong with the
    /// text, and what the emulator would have to learn to run it.
    ///
    /// # Errors
    /// All of them, in the order of the text. A mistake that leaves the rest of the text without meaning is the last.
    pub fn load(text: &str) -> Result<Module, Vec<ParseError>> {
        let mut ast = parser::parse(text)?;
        let mut errors = std::mem::take(&mut ast.errors);
        let mut data = Vec::new();
        let mut names = HashMap::new();
        for variable in &ast.globals {
            data.resize(data.len().next_multiple_of(variable.align.max(1) as usize), 0);
            names.insert(variable.name.clone(), Symbol::Module(data.len() as u64));
            let end = data.len() + variable.bytes as usize;
            data.extend_from_slice(&variable.init);
            data.resize(end, 0);
        }
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let source = Arc::new(Source {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            lines: text.lines().map(str::to_string).collect(),
            files: ast.files.clone(),
            data,
        });
        let mut kernels = Vec::new();
        for function in &ast.functions {
            let expanded = link::expand(&ast, function, &mut errors);
            match Kernel::new(&expanded, &ast, &names, &source) {
                Ok(kernel) => kernels.push(kernel),
                Err(found) => errors.extend(found),
            }
        }
        if errors.is_empty() {
            return Ok(Module { kernels });
        }
        // Of an instruction that is not understood, nobody needs to know who else would not.
        errors.sort_by_key(|error| (error.line, error.column, error.kind == ParseErrorKind::Target));
        errors.dedup_by(|error, kept| {
            let same_place = (error.line, error.column) == (kept.line, kept.column);
            same_place && (error.kind == ParseErrorKind::Target || error == kept)
        });
        Err(errors)
    }

    /// The kernel of that name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// All kernels, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter()
    }
}

/// The most local memory of a thread, and what one thread's is a multiple of.
const MAX_LOCAL: u64 = 512 << 10;
const LOCAL_ALIGN: u64 = 16;

/// What all kernels of a module share.
#[derive(Debug)]
struct Source {
    id: u64,
    lines: Vec<String>,
    files: HashMap<u32, String>,
    /// The initial bytes of the `.global` and `.const` variables.
    data: Vec<u8>,
}

/// One kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name in the PTX.
    pub name: String,
    /// Its type as the PTX spells it, such as `u64`; of an array, the elements' type.
    pub ty: &'static str,
    /// Byte offset in the parameter block.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Alignment of the offset.
    pub align: u32,
}

/// One loaded kernel.
#[derive(Debug)]
pub struct Kernel {
    name: String,
    params: Vec<Param>,
    reqntid: Option<[u32; 3]>,
    maxntid: Option<[u32; 3]>,
    pub(crate) clusters: Clusters,
    static_shared: u64,
    /// Name, offset and bytes.
    shared: Vec<(String, u64, u64)>,
    dynamic_shared: Option<(String, u64)>,
    /// Bytes that each thread has for itself.
    pub(crate) local: u64,
    pub(crate) code: Code,
    source: Arc<Source>,
}

impl Kernel {
    fn new(
        function: &Function,
        ast: &Ast,
        names: &HashMap<String, Symbol>,
        source: &Arc<Source>,
    ) -> Result<Kernel, Vec<ParseError>> {
        let mut symbols = names.clone();
        let params = lay_out_params(function);
        for param in &params {
            symbols.insert(param.name.clone(), Symbol::Param(param.offset));
        }
        let mut kernel = Kernel {
            name: function.name.clone(),
            params,
            reqntid: function.reqntid,
            maxntid: function.maxntid,
            clusters: function.clusters,
            static_shared: 0,
            shared: Vec::new(),
            dynamic_shared: None,
            local: 0,
            code: Code::empty(),
            source: source.clone(),
        };
        for variable in &function.locals {
            let at = kernel.local.next_multiple_of(variable.align as u64);
            symbols.insert(variable.name.clone(), Symbol::Local(at));
            kernel.local = at + variable.bytes;
        }
        kernel.local = kernel.local.next_multiple_of(LOCAL_ALIGN);
        if kernel.local > MAX_LOCAL {
            let line = function.body.first().map_or(0, |first| first.line);
            let message = format!("{} bytes of local memory are more than {MAX_LOCAL}", kernel.local);
            return Err(vec![ParseError::new(ParseErrorKind::Target, (line, 1), message)]);
        }
        kernel.lay_out_shared(function, &ast.shared, &mut symbols);
        kernel.code = decode::decode(function, &symbols)?;
        Ok(kernel)
    }

    /// Places the function's own variables and those of the module that it names; dynamic shared
    /// memory follows, all of its names at one address.
    fn lay_out_shared(
        &mut self,
        function: &Function,
        module: &[Variable],
        symbols: &mut HashMap<String, Symbol>,
    ) {
        let used = |variable: &&Variable| {
            function
                .body
                .iter()
                .any(|instruction| instruction.operands.iter().any(|operand| names(operand, &variable.name)))
        };
        let variables: Vec<&Variable> = module.iter().filter(used).chain(&function.shared).collect();
        let mut end = 0u64;
        for variable in variables.iter().filter(|variable| !variable.dynamic) {
            let at = end.next_multiple_of(variable.align as u64);
            symbols.insert(variable.name.clone(), Symbol::Shared(at));
            self.shared.push((variable.name.clone(), at, variable.bytes));
            end = at + variable.bytes;
        }
        let dynamic = variables.iter().filter(|variable| variable.dynamic);
        let align = dynamic.clone().map(|variable| variable.align).max().unwrap_or(1);
        let at = end.next_multiple_of(align as u64);
        for variable in dynamic {
            symbols.insert(variable.name.clone(), Symbol::Shared(at));
            self.dynamic_shared = Some((variable.name.clone(), at));
        }
        self.static_shared = if self.dynamic_shared.is_some() { at } else { end };
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, laid out as the driver does.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes of the parameter block.
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }

    /// The block size that `.reqntid` demands.
    pub fn reqntid(&self) -> Option<[u32; 3]> {
        self.reqntid
    }

    /// The largest block size that `.maxntid` allows.
    pub fn maxntid(&self) -> Option<[u32; 3]> {
        self.maxntid
    }

    /// The cluster size, in CTAs along x, y and z, that `.reqnctapercluster` demands.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        self.clusters.required
    }

    /// Bytes of shared memory that the kernel declares.
    pub fn static_shared_bytes(&self) -> u64 {
        self.static_shared
    }

    /// Whether the kernel declares shared memory whose size the launch chooses.
    pub fn takes_dynamic_shared(&self) -> bool {
        self.dynamic_shared.is_some()
    }

    /// Number of instructions.
    pub fn instruction_count(&self) -> usize {
        self.code.insts.len()
    }

    /// Name, offset and bytes of every shared variable, for a launch with that much dynamic memory.
    pub(crate) fn shared_variables(&self, dynamic_bytes: u32) -> Vec<(String, u64, u64)> {
        let dynamic = self.dynamic_shared.clone().map(|(name, at)| (name, at, dynamic_bytes as u64));
        self.shared.iter().cloned().chain(dynamic).collect()
    }

    pub(crate) fn place(&self, pc: usize) -> Place {
        self.code.places[pc.min(self.code.places.len() - 1)]
    }

    /// The text of a PTX line, trimmed.
    pub(crate) fn line_text(&self, line: u32) -> String {
        let index = (line as usize).saturating_sub(1);
        self.source.lines.get(index).map_or(String::new(), |text| text.trim().to_string())
    }

    pub(crate) fn source_line(&self, place: Place) -> Option<SourceLine> {
        place.source.map(|at| self.line_at(self.code.locations[at as usize]))
    }

    /// Where the line of a place was inlined, and that, up to the kernel's own line.
    pub(crate) fn inlined_at(&self, place: Place) -> Vec<SourceLine> {
        let outer = |at: u32| self.code.locations[at as usize].inlined_at;
        let callers = std::iter::successors(place.source.and_then(outer), |&at| outer(at));
        callers.map(|at| self.line_at(self.code.locations[at as usize])).collect()
    }

    fn line_at(&self, Location { at: (file, line, column), .. }: Location) -> SourceLine {
        let file = self.source.files.get(&file).cloned().unwrap_or_else(|| format!("file {file}"));
        SourceLine { file, line, column }
    }

    /// The address of the module's variables in `memory`, placed there by the first launch.
    pub(crate) fn module_base(&self, memory: &Memory) -> u64 {
        if self.source.data.is_empty() {
            return 0;
        }
        memory.module_base(self.source.id, |memory| {
            let base = memory.alloc("module variables", self.source.data.len() as u64);
            // The range was allocated just now.
            let written = memory.write(base, &self.source.data);
            debug_assert_eq!(written, Ok(()));
            base
        })
    }
}

fn names(operand: &Operand, name: &str) -> bool {
    match operand {
        Operand::Symbol(found, _) => found == name,
        Operand::Address(base, _) => names(base, name),
        Operand::Vector(elements) => elements.iter().any(|element| names(element, name)),
        _ => false,
    }
}

fn lay_out_params(function: &Function) -> Vec<Param> {
    let place = |(param, offset): (&ParamDecl, u32)| Param {
        name: param.name.clone(),
        ty: param.ty.name(),
        offset,
        size: param.bytes,
        align: param.align,
    };
    function.params.iter().zip(function.param_offsets()).map(place).collect()
}
