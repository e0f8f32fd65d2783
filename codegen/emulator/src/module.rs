//! Loaded modules and kernels.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::checks::numeric::NumericKind;
use crate::code::collective::Collective;
use crate::code::cursor::Symbol;
use crate::code::program::{AddressOfVariable, Place, Program, Source};
use crate::context::Inst;
use crate::decode::{self, Decoded, opcodes};
use crate::load::addresses::add_names;
use crate::load::ast::{Ast, Clusters, Function, InitialAddress, Instruction, ParamDecl, Variable};
use crate::load::calls::CallGraph;
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::{control_flow, link, parser};
use crate::memory::{GUARD, Memory, PlacedVariable, VARIABLE_ALIGNMENT};
use crate::profile::traffic::ProfileTraits;

/// A loaded PTX module with decoded kernels.
#[derive(Debug)]
pub struct Module {
    target: Option<u32>,
    kernels: Vec<Kernel>,
    refused: Vec<RefusedKernel>,
    problems: Vec<ParseError>,
}

/// A kernel that cannot be launched, because it or a function that it calls has errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedKernel {
    /// The kernel's name.
    pub name: String,
    /// The errors, in the order of the text, up to [`Module::MAX_ERRORS`].
    pub errors: Vec<ParseError>,
}

impl Module {
    /// Loads a PTX text.
    ///
    /// # Errors
    /// The first [`ParseError`]: invalid PTX, or PTX that the emulator does not support.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        Module::load(text).map_err(|errors| errors.into_iter().next().unwrap_or_default())
    }

    /// Loads a PTX text and returns all errors, each with its [kind](ParseErrorKind).
    ///
    /// # Errors
    /// The errors in the order of the text, up to the first error after which parsing cannot continue, and up to
    /// [`Module::MAX_ERRORS`].
    pub fn load(text: &str) -> Result<Module, Vec<ParseError>> {
        let mut module = Module::load_partly(text)?;
        if module.problems.is_empty() { Ok(module) } else { Err(std::mem::take(&mut module.problems)) }
    }

    /// Loads the kernels of a PTX text that have no errors; [`Module::refused`] has the other kernels, and
    /// [`Module::problems`] all errors.
    ///
    /// # Errors
    /// As [`Module::load`], if an error is in no function, if parsing cannot continue after it, or if no kernel is without
    /// errors.
    pub fn load_partly(text: &str) -> Result<Module, Vec<ParseError>> {
        let mut ast = parser::parse(text, opcodes::look_up).map_err(first_errors)?;
        let mut errors = std::mem::take(&mut ast.errors);
        let variables = lay_out_module(&ast, &mut errors);
        let place = |variable: &PlacedVariable| (variable.name.clone(), Symbol::Module(variable.offset));
        let mut names: HashMap<String, Symbol> = variables.iter().map(place).collect();
        let mut initial: Vec<Vec<u8>> = ast.globals.iter().map(|variable| variable.init.clone()).collect();
        let mut graph = CallGraph::new(&ast);
        names.extend(graph.addresses.iter().map(|(name, at)| (name.to_string(), Symbol::Function(at))));
        let addresses = initial_addresses(&ast, &names, &mut initial, &mut errors);
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let source = Arc::new(Source {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            lines: text.lines().map(str::to_string).collect(),
            files: ast.files.clone(),
            variables,
            initial,
            addresses,
        });
        let is_usable = errors.is_empty();
        let (mut kernels, mut refused) = (Vec::new(), Vec::new());
        for function in &ast.functions {
            let mut own = function.errors.clone();
            let expanded = link::inline_calls(&ast, &mut graph, function, &mut own);
            match Kernel::new(&expanded, &ast, &names, &source) {
                Ok(kernel) if own.is_empty() => kernels.push(kernel),
                outcome => {
                    own.extend(outcome.err().unwrap_or_default());
                    own = in_order(own);
                    errors.extend(own.iter().cloned());
                    refused.push(RefusedKernel { name: function.name.clone(), errors: first_errors(own) });
                }
            }
        }
        errors.extend(ast.device.values().flatten().flat_map(|function| function.errors.iter().cloned()));
        let problems = first_errors(in_order(errors));
        match is_usable && (problems.is_empty() || !kernels.is_empty()) {
            true => Ok(Module { target: ast.target, kernels, refused, problems }),
            false => Err(problems),
        }
    }

    /// The kernels that cannot be launched, in the order of the text. Only [`Module::load_partly`] returns modules with such
    /// kernels.
    pub fn refused(&self) -> &[RefusedKernel] {
        &self.refused
    }

    /// All errors of the text, in its order: those of the refused kernels, and of functions that no kernel calls. Up to
    /// [`Module::MAX_ERRORS`].
    pub fn problems(&self) -> &[ParseError] {
        &self.problems
    }

    /// Largest number of errors that [`Module::load`] returns.
    pub const MAX_ERRORS: usize = 1000;

    /// Number of the text's first `.target`: 90 for sm_90 and sm_90a.
    pub fn target(&self) -> Option<u32> {
        self.target
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name() == name)
    }

    /// All kernels, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.kernels.iter()
    }
}

/// The errors in the order of the text, each once.
fn in_order(mut errors: Vec<ParseError>) -> Vec<ParseError> {
    // An instruction with another error needs no error about its target as well.
    errors.sort_by_key(|error| (error.line, error.column, error.kind == ParseErrorKind::Target));
    errors.dedup_by(|error, kept| {
        let same_place = (error.line, error.column) == (kept.line, kept.column);
        same_place && (error.kind == ParseErrorKind::Target || error == kept)
    });
    errors
}

/// The first errors, and if there are too many an error that counts the others.
fn first_errors(mut errors: Vec<ParseError>) -> Vec<ParseError> {
    let most = Module::MAX_ERRORS - 1;
    if errors.len() > Module::MAX_ERRORS {
        let ParseError { kind, line, column, .. } = errors[most];
        let message = format!("{} more errors from here on; correct the first ones", errors.len() - most);
        errors.truncate(most);
        errors.push(ParseError::new(kind, (line, column), message));
    }
    errors
}

/// Maximum bytes of the `.global` and `.const` variables of a module.
const MAX_GLOBAL: u64 = 1 << 28;
/// Maximum bytes of local memory per thread.
const MAX_LOCAL: u64 = 512 << 10;
/// Size in bytes of a thread's stack, from which `alloca` allocates.
const STACK: u64 = 64 << 10;
/// Granularity in bytes of a thread's local memory.
const LOCAL_ALIGN: u64 = 16;

/// One kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name of the parameter in the PTX.
    pub name: String,
    /// Type as the PTX spells it, such as `u64`; for an array, the element type.
    pub ty: &'static str,
    /// Byte offset in the parameter block.
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Alignment of `offset` in bytes.
    pub align: u32,
}

/// A loaded kernel.
#[derive(Debug)]
pub struct Kernel {
    params: Vec<Param>,
    reqntid: Option<[u32; 3]>,
    maxntid: Option<[u32; 3]>,
    pub(crate) clusters: Clusters,
    pub(crate) program: Program,
    pub(crate) insts: Vec<Inst>,
    /// Class and memory traffic of each instruction, for profiles.
    pub(crate) profile_traits: Vec<ProfileTraits>,
    /// Effect of each instruction on the values that numeric checks track.
    pub(crate) numeric_effects: Vec<NumericKind>,
}

/// A kernel's shared variables.
struct SharedVariables {
    sized: Vec<PlacedVariable>,
    dynamic: Option<(String, u64)>,
    /// Bytes of the sized variables, rounded up to the alignment of the dynamic variables that follow.
    bytes: u64,
    /// As `bytes`, with the guard zones.
    guarded: u64,
}

/// A thread's local variables.
struct LocalVariables {
    variables: Vec<PlacedVariable>,
    /// Offset of the stack from which `alloca` allocates.
    stack: u64,
    /// Bytes of all local memory of a thread, with the guard zones.
    bytes: u64,
}

/// Bytes of the guard zone after a local variable, which no access may touch.
const LOCAL_GUARD: u64 = 256;
/// A function with more local variables has no guard zones between them, since each thread of the emulator allocates them.
/// Parameters of inlined calls are local variables, too.
const MAX_GUARDED_LOCALS: usize = 32;

/// Bytes of the guard zone between two shared variables, which no access may touch. A multiple of every swizzle pattern, so
/// that bank conflicts are those of a layout without guard zones.
const SHARED_GUARD: u64 = 1024;

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
        let LocalVariables { variables: local_variables, stack, bytes: local } =
            lay_out_local(function, &mut symbols)?;
        let shared = lay_out_shared(function, &ast.shared, &mut symbols);
        let Decoded { insts, register_checks, tracked, lists, layout, value_flow, wgmma } =
            decode::decode(function, &symbols)?;
        let place = |at: &Instruction| Place { line: at.line, source: at.source };
        Ok(Kernel {
            params,
            reqntid: function.reqntid,
            maxntid: function.maxntid,
            clusters: function.clusters,
            program: Program {
                name: function.name.clone(),
                source: source.clone(),
                places: function.body.iter().map(place).collect(),
                exits: function.body.iter().map(control_flow::exits_always).collect(),
                locations: function.locations.clone(),
                static_shared: shared.bytes,
                guarded_shared: shared.guarded,
                shared: shared.sized,
                dynamic_shared: shared.dynamic,
                local,
                local_variables,
                stack,
                layout,
                register_names: function.registers.iter().map(|register| register.name.clone()).collect(),
                register_checks,
                value_flow,
                loads_non_coherent: function.body.iter().any(|at| at.opcode == "ld" && at.has("nc")),
                collectives: Collective::in_function(function, ast.target),
                tracked,
                lists,
                wgmma,
                entry_registers: function.register_limits.at_entry(
                    function
                        .reqntid
                        .or(function.maxntid)
                        .and_then(|threads| threads.into_iter().try_fold(1u32, u32::checked_mul)),
                    function.body.iter().filter_map(Instruction::register_increase).max(),
                ),
            },
            insts,
            // Every decoded instruction has a row in the opcode table.
            profile_traits: function.body.iter().filter_map(opcodes::profile_traits).collect(),
            numeric_effects: function.body.iter().map(NumericKind::of).collect(),
        })
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// The parameters, with the layout that the driver uses.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes of the parameter block.
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }

    /// The block size that `.reqntid` requires.
    pub fn reqntid(&self) -> Option<[u32; 3]> {
        self.reqntid
    }

    /// The largest block size that `.maxntid` allows.
    pub fn maxntid(&self) -> Option<[u32; 3]> {
        self.maxntid
    }

    /// The cluster size, in CTAs along x, y and z, that `.reqnctapercluster` requires.
    pub fn required_cluster(&self) -> Option<[u32; 3]> {
        self.clusters.required
    }

    /// Bytes of shared memory that the kernel declares.
    pub fn static_shared_bytes(&self) -> u64 {
        self.program.static_shared
    }

    /// Whether the kernel declares shared memory whose size the launch chooses.
    pub fn takes_dynamic_shared(&self) -> bool {
        self.program.dynamic_shared.is_some()
    }

    /// Number of instructions.
    pub fn instruction_count(&self) -> usize {
        self.insts.len()
    }

    /// The address of the module's variables in `memory`; the first launch allocates them.
    pub(crate) fn module_base(&self, memory: &Memory) -> u64 {
        let source = &self.program.source;
        if source.variables.is_empty() {
            return 0;
        }
        memory.module_base(source.id, |memory| {
            let base = memory.alloc_variables(&source.variables);
            let mut initial = source.initial.clone();
            for &AddressOfVariable { holder, at, offset } in &source.addresses {
                initial[holder][at..at + 8].copy_from_slice(&base.wrapping_add_signed(offset).to_le_bytes());
            }
            for (variable, initial) in source.variables.iter().zip(initial) {
                let at = base + variable.offset;
                // Cannot fail: the ranges are inside the allocation.
                let filled = memory.fill(at, variable.bytes, 0);
                let written = memory.write(at, &initial);
                debug_assert_eq!((filled, written), (Ok(()), Ok(())));
            }
            base
        })
    }
}

/// Assigns offsets to the module's variables, with guard zones between them.
fn lay_out_module(ast: &Ast, errors: &mut Vec<ParseError>) -> Vec<PlacedVariable> {
    let (mut placed, mut end, mut bytes) = (Vec::new(), 0u64, 0u64);
    for variable in &ast.globals {
        bytes += variable.bytes;
        if bytes > MAX_GLOBAL {
            errors.push(variable.too_large(MAX_GLOBAL));
            break;
        }
        let offset = end.next_multiple_of(VARIABLE_ALIGNMENT.max(variable.align as u64));
        placed.push(PlacedVariable { name: variable.name.clone(), offset, bytes: variable.bytes });
        end = offset + variable.bytes + GUARD;
    }
    placed
}

/// Writes the addresses of functions into the initial bytes of the module's variables. Returns the addresses of variables
/// that belong there.
fn initial_addresses(
    ast: &Ast,
    names: &HashMap<String, Symbol>,
    initial: &mut [Vec<u8>],
    errors: &mut Vec<ParseError>,
) -> Vec<AddressOfVariable> {
    let mut of_variables = Vec::new();
    for (holder, variable) in ast.globals.iter().enumerate() {
        for InitialAddress { at, name, offset, place } in &variable.addresses {
            let at = *at as usize;
            match names.get(name) {
                Some(&Symbol::Module(address)) => {
                    of_variables.push(AddressOfVariable { holder, at, offset: address as i64 + offset });
                }
                Some(&Symbol::Function(address)) => {
                    let address = address.wrapping_add_signed(*offset);
                    initial[holder][at..at + 8].copy_from_slice(&address.to_le_bytes());
                }
                _ if ast.device.contains_key(name) => {
                    let message = format!("the function `{name}` has no body in this module");
                    errors.push(ParseError::new(ParseErrorKind::Unsupported, *place, message));
                }
                _ => {
                    let message = format!("unknown name `{name}`");
                    errors.push(ParseError::new(ParseErrorKind::Undefined, *place, message));
                }
            }
        }
    }
    of_variables
}

/// Assigns offsets in a thread's local memory: to the function's variables, and to the stack from which `alloca` allocates.
/// There are guard zones between the variables, unless they are more than [`MAX_GUARDED_LOCALS`].
fn lay_out_local(
    function: &Function,
    symbols: &mut HashMap<String, Symbol>,
) -> Result<LocalVariables, Vec<ParseError>> {
    let (mut variables, mut end) = (Vec::new(), 0u64);
    let guard = if function.locals.len() <= MAX_GUARDED_LOCALS { LOCAL_GUARD } else { 0 };
    for variable in &function.locals {
        let offset = end.next_multiple_of(variable.align as u64);
        symbols.insert(variable.name.clone(), Symbol::Local(offset));
        variables.push(PlacedVariable { name: variable.name.clone(), offset, bytes: variable.bytes });
        end = offset + variable.bytes + guard;
    }
    let stack = end.next_multiple_of(LOCAL_ALIGN);
    let allocates = function.body.iter().any(|instruction| instruction.opcode == "alloca");
    let stack_bytes = if allocates { STACK } else { 0 };
    // Guard zones are the emulator's.
    let bytes = stack + stack_bytes - guard * variables.len() as u64;
    if bytes > MAX_LOCAL {
        let line = function.body.first().map_or(0, |first| first.line);
        let message = format!("{bytes} bytes of local memory are more than {MAX_LOCAL}");
        return Err(vec![ParseError::new(ParseErrorKind::Target, (line, 1), message)]);
    }
    Ok(LocalVariables { variables, stack, bytes: stack + stack_bytes })
}

/// Assigns offsets to the function's shared variables, and to the module's shared variables that the function names.
/// Dynamic shared memory comes last; all dynamic variables have the same offset. Guard zones separate the variables.
fn lay_out_shared(
    function: &Function,
    module: &[Variable],
    symbols: &mut HashMap<String, Symbol>,
) -> SharedVariables {
    let mut used = BTreeSet::new();
    function
        .body
        .iter()
        .flat_map(|instruction| &instruction.operands)
        .for_each(|operand| add_names(operand, &mut used));
    let used = module.iter().filter(|variable| used.contains(variable.name.as_str()));
    let variables: Vec<&Variable> = used.chain(&function.shared).collect();
    let most_aligned = variables.iter().map(|variable| variable.align as u64).max();
    let guard = SHARED_GUARD.max(most_aligned.unwrap_or(1));
    let (mut sized, mut end) = (Vec::new(), 0u64);
    for variable in variables.iter().filter(|variable| !variable.dynamic) {
        let at = end.next_multiple_of(variable.align as u64);
        let offset = at + guard * sized.len() as u64;
        symbols.insert(variable.name.clone(), Symbol::Shared(offset));
        sized.push(PlacedVariable { name: variable.name.clone(), offset, bytes: variable.bytes });
        end = at + variable.bytes;
    }
    let dynamic = variables.iter().filter(|variable| variable.dynamic);
    let align = dynamic.clone().map(|variable| variable.align).max().unwrap_or(1);
    let at = end.next_multiple_of(align as u64);
    let mut dynamic_shared = None;
    let offset = at + guard * sized.len() as u64;
    for variable in dynamic {
        symbols.insert(variable.name.clone(), Symbol::Shared(offset));
        dynamic_shared = Some((variable.name.clone(), offset));
    }
    let (bytes, guards) = match dynamic_shared {
        Some(_) => (at, sized.len()),
        None => (end, sized.len().saturating_sub(1)),
    };
    SharedVariables { sized, dynamic: dynamic_shared, bytes, guarded: bytes + guard * guards as u64 }
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
