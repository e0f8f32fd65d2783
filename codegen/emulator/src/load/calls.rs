//! The call graph of a module: which functions can be inlined, and how large the kernels become.
//!
//! A kernel's size grows with every path through the call graph, so functions that each call the one before twice double
//! it at every step. The sizes are computed here, once a function, before anything is copied.

use std::collections::HashMap;

use crate::load::addresses::FunctionAddresses;
use crate::load::ast::{Ast, Function, Instruction, Operand};
use crate::load::error::{ParseError, ParseErrorKind};

/// Largest number of instructions and declarations that inlining adds to the kernels of a module.
const MAX_ADDED: u64 = 1 << 18;
/// Largest number of calls that are active at once, the outermost included.
const MAX_DEPTH: usize = 64;
/// Functions that are named at each end of a long chain of calls.
const NAMED: usize = 3;

/// Sizes of the functions of a module, with their calls inlined.
pub(crate) struct CallGraph<'a> {
    ast: &'a Ast,
    /// Functions that indirect calls may call.
    pub(crate) addresses: FunctionAddresses<'a>,
    known: HashMap<&'a str, Inlined<'a>>,
    /// What inlining has added to the kernels so far.
    added: u64,
}

/// A function with its calls inlined.
#[derive(Clone, Copy)]
struct Inlined<'a> {
    /// Instructions and declarations.
    size: u64,
    /// Number of calls on the longest chain of calls from the function.
    depth: usize,
    /// The callee that adds most.
    largest: Option<&'a str>,
}

/// Name of the function that a `call` names.
pub(crate) fn callee(call: &Instruction) -> Option<&str> {
    let name = call.operands.iter().find_map(|operand| match operand {
        Operand::Symbol(name, 0) => Some(name.as_str()),
        _ => None,
    });
    name.filter(|_| call.opcode == "call")
}

impl<'a> CallGraph<'a> {
    pub(crate) fn new(ast: &'a Ast) -> CallGraph<'a> {
        CallGraph { ast, addresses: FunctionAddresses::new(ast), known: HashMap::new(), added: 0 }
    }

    /// Names of the functions that an instruction may call.
    fn callees<'i>(&self, instruction: &'i Instruction) -> Vec<&'i str>
    where
        'a: 'i,
    {
        let indirect = self.addresses.callees(instruction).into_iter().map(|(name, _)| name);
        indirect.chain(callee(instruction)).collect()
    }

    /// Checks that the calls of a kernel can be inlined.
    ///
    /// # Errors
    /// If a function calls itself, if calls nest too deeply, or if the module would become too large.
    pub(crate) fn check(&mut self, kernel: &'a Function) -> Result<(), ParseError> {
        let inlined = self.measure(kernel, &mut vec![&kernel.name])?;
        self.added = self.added.saturating_add(inlined.size - own_size(kernel));
        let calls_largest = |call: &&Instruction| {
            inlined.largest.is_some_and(|largest| self.callees(call).contains(&largest))
        };
        let first = kernel.body.iter().find(calls_largest);
        match first {
            Some(call) if self.added > MAX_ADDED => {
                let mut chain = vec![kernel.name.as_str()];
                let mut next = inlined.largest;
                while let Some(name) = next {
                    chain.push(name);
                    next = self.known.get(name).and_then(|inlined| inlined.largest);
                }
                let message = format!(
                    "`{}` has {} instructions and declarations with its calls inlined ({}); the emulator inlines up to \
                     {MAX_ADDED} in a module: call fewer functions, or load fewer kernels at once",
                    kernel.name,
                    inlined.size,
                    shown(&chain)
                );
                Err(call.error(ParseErrorKind::Unsupported, message))
            }
            _ => Ok(()),
        }
    }

    /// Measures a function; `chain` are the functions whose calls are active, this function the last.
    fn measure(
        &mut self,
        function: &'a Function,
        chain: &mut Vec<&'a str>,
    ) -> Result<Inlined<'a>, ParseError> {
        let mut inlined = Inlined { size: own_size(function), depth: 0, largest: None };
        let mut most = 0;
        let called = |call: &'a Instruction| self.callees(call).into_iter().map(move |name| (call, name));
        for (call, name) in function.body.iter().flat_map(called).collect::<Vec<_>>() {
            // Other calls are errors of their own.
            let Some(Some(callee)) = self.ast.device.get(name) else { continue };
            let refused = |message: String| Err(call.error(ParseErrorKind::Unsupported, message));
            chain.push(name);
            if let Some(first) = chain[..chain.len() - 1].iter().position(|&active| active == name) {
                let cycle = shown(&chain[first..]);
                return refused(format!(
                    "`{name}` calls itself ({cycle}); the emulator does not support recursion"
                ));
            }
            let too_deep = |chain: &[&str], more: usize| {
                format!(
                    "{} calls are active at once ({}); the emulator inlines up to {MAX_DEPTH}",
                    chain.len() - 1 + more,
                    shown(chain)
                )
            };
            if chain.len() - 1 > MAX_DEPTH {
                return refused(too_deep(chain, 0));
            }
            let one = match self.known.get(name) {
                Some(&known) => known,
                None => self.measure(callee, chain)?,
            };
            if chain.len() - 1 + one.depth > MAX_DEPTH {
                return refused(too_deep(chain, one.depth));
            }
            chain.pop();
            // Parameters and results are copied, and a guard becomes a branch. An address is compared.
            let indirect = if crate::load::calls::callee(call).is_none() { 3 } else { 0 };
            let copied = callee.params.len() + callee.returns.len() + 1 + indirect;
            let size = one.size.saturating_add(copied as u64);
            inlined.size = inlined.size.saturating_add(size);
            inlined.depth = inlined.depth.max(one.depth + 1);
            if size > most {
                (most, inlined.largest) = (size, Some(name));
            }
        }
        self.known.insert(&function.name, inlined);
        Ok(inlined)
    }
}

/// Number of instructions and declarations of a function.
fn own_size(function: &Function) -> u64 {
    let Function { registers, shared, locals, body, locations, scopes, labels, .. } = function;
    let declared =
        registers.len() + shared.len() + locals.len() + locations.len() + scopes.len() + labels.len();
    (body.len() + declared) as u64
}

/// A chain of calls; the middle of a long one is left out.
fn shown(chain: &[&str]) -> String {
    match chain {
        [first @ .., _] if first.len() >= 2 * NAMED => {
            let (head, tail) = (&chain[..NAMED], &chain[chain.len() - NAMED..]);
            format!("{} → … → {}", head.join(" → "), tail.join(" → "))
        }
        _ => chain.join(" → "),
    }
}
