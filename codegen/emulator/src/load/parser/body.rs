//! Function bodies: scopes, labels and declarations.

use std::collections::{HashMap, HashSet};

use super::names::Names;
use super::{Linkage, Parser};
use crate::load::ast::{Function, Instruction, Location, Prototype, RegId, Register};
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::Token;
use crate::load::types::{Ty, WIDE};

/// Largest number of registers that a function may use.
pub(super) const MAX_REGISTERS: usize = 1 << 20;

/// Largest number of scopes inside each other.
const MAX_SCOPES: usize = 256;

/// Declarations in one `{ }` scope of a function body.
#[derive(Default)]
pub(super) struct LexicalScope {
    pub(super) id: usize,
    /// All names declared in the scope.
    pub(super) names: Names,
    registers: HashMap<String, RegId>,
    /// Register ranges such as `.reg .b32 %r<12>`: prefix to (type, count). A register is created at its first use.
    ranges: HashMap<String, (RegisterType, u64)>,
    /// `.local` and `.param` variables: declared name to a name that is unique in the function.
    pub(super) variables: HashMap<String, String>,
    /// `.branchtargets` lists: label of the list to its target labels.
    pub(super) targets: HashMap<String, Vec<String>>,
    /// `.callprototype` and `.calltargets` directives by label.
    pub(super) prototypes: HashMap<String, Prototype>,
}

pub(super) struct Body<'p, 'a> {
    pub(super) parser: &'p mut Parser<'a>,
    pub(super) function: &'p mut Function,
    pub(super) scopes: Vec<LexicalScope>,
    /// Whether the function is a kernel.
    pub(super) is_kernel: bool,
    /// Location of the last `.loc`: an index into [`Function::locations`].
    pub(super) source: Option<u32>,
    /// Last location with each `.file` index, line and column: `inlined_at` refers to it.
    last_locations: HashMap<(u32, u32, u32), u32>,
    /// Number of instructions that `brx.idx` instructions have been expanded to so far.
    pub(super) expanded: usize,
    /// Low halves of the registers of 128 bits; the high half is the register after.
    pub(super) wide: HashSet<RegId>,
}

/// Declared type of registers.
#[derive(Clone, Copy)]
enum RegisterType {
    Plain(Ty),
    /// 128 bits.
    Wide,
}

/// Parses the body of a kernel or a device function. `names` are the names of the parameters.
pub(super) fn parse(
    parser: &mut Parser<'_>,
    function: &mut Function,
    names: Names,
    is_kernel: bool,
) -> Result<(), ParseError> {
    parser.expect('{')?;
    function.scopes.push(0);
    let mut outer = LexicalScope { names, ..LexicalScope::default() };
    for formal in function.params.iter().chain(&function.returns) {
        if let Some(register) = formal.register {
            outer.registers.insert(formal.name.clone(), register);
        }
    }
    let mut body = Body {
        parser,
        function,
        scopes: vec![outer],
        is_kernel,
        source: None,
        last_locations: HashMap::new(),
        expanded: 0,
        wide: HashSet::new(),
    };
    while !body.scopes.is_empty() {
        body.statement()?;
    }
    let last = &body.parser.tokens[body.parser.at - 1];
    // A thread that reaches the end of the body exits.
    let end = Instruction {
        guard: None,
        opcode: "exit".into(),
        modifiers: Vec::new(),
        operands: Vec::new(),
        line: last.line,
        column: last.column,
        source: body.source,
        scope: 0,
    };
    function.body.push(end);
    Ok(())
}

impl Body<'_, '_> {
    fn statement(&mut self) -> Result<(), ParseError> {
        let p = &mut *self.parser;
        match (p.peek(), p.peek_ahead(1)) {
            (Token::Punct('{'), _) => {
                if self.scopes.len() > MAX_SCOPES {
                    let message = format!("the emulator supports up to {MAX_SCOPES} nested scopes");
                    return Err(p.error_of(ParseErrorKind::Unsupported, message));
                }
                p.at += 1;
                let parent = self.scopes.last().map_or(0, |scope| scope.id);
                let id = self.function.scopes.len();
                self.function.scopes.push(parent);
                self.scopes.push(LexicalScope { id, ..LexicalScope::default() });
                Ok(())
            }
            (Token::Punct('}'), _) => {
                p.at += 1;
                self.scopes.pop();
                Ok(())
            }
            (Token::Punct(';'), _) => {
                p.at += 1;
                Ok(())
            }
            (Token::Ident(label), Token::Punct(':'))
                if matches!(p.peek_ahead(2), Token::Dot("branchtargets")) =>
            {
                let at = p.here();
                p.at += 3;
                self.branch_targets(label, at)
            }
            (Token::Ident(name), Token::Punct(':'))
                if matches!(p.peek_ahead(2), Token::Dot("callprototype" | "calltargets")) =>
            {
                let at = p.here();
                self.declare("label", name, at);
                let prototype = self.parser.prototype()?;
                if let Some(scope) = self.scopes.last_mut() {
                    scope.prototypes.insert(name.to_string(), prototype);
                }
                Ok(())
            }
            (Token::Ident(label), Token::Punct(':')) => {
                let place = p.here();
                p.at += 2;
                self.declare("label", label, place);
                let scope = self.scopes.last().map_or(0, |scope| scope.id);
                let at = self.function.body.len();
                self.function.labels.entry((scope, label.to_string())).or_insert(at);
                Ok(())
            }
            (Token::Dot("reg"), _) => self.registers(),
            (Token::Dot("shared"), _) => {
                p.at += 1;
                let (variable, at) = p.variable(&Linkage::default())?;
                self.declare("variable", &variable.name, at);
                self.function.shared.push(variable);
                Ok(())
            }
            (Token::Dot("local" | "param"), _) => self.variable(),
            (Token::Dot("loc"), _) => self.location(),
            (Token::Dot("pragma"), _) => {
                p.at += 2;
                p.expect(';')
            }
            (Token::Assume, _) => self.assumption(),
            (Token::Dot(other), _) => Err(p.unknown_word(&format!("directive `.{other}`"), other)),
            (Token::Ident(_) | Token::Punct('@'), _) => {
                if let Err(error) = self.instruction() {
                    self.parser.report(error);
                    self.parser.skip_statement()?;
                }
                Ok(())
            }
            _ => p.expected("an instruction, a label or `}`"),
        }
    }

    /// Declares a name in the innermost scope.
    fn declare(&mut self, what: &str, name: &str, at: (u32, u32)) {
        if let Some(scope) = self.scopes.last_mut()
            && let Err(error) = scope.names.declare(what, name, at)
        {
            self.parser.report(error);
        }
    }

    /// Parses a register declaration such as `.reg .b32 %a, %r<12>;`.
    fn registers(&mut self) -> Result<(), ParseError> {
        let p = &mut *self.parser;
        p.at += 1;
        let Token::Dot(word) = p.peek() else { return p.expected("the registers' type") };
        let ty = match Ty::parse(word) {
            Some(ty) => RegisterType::Plain(ty),
            None if word == WIDE => RegisterType::Wide,
            None => return Err(p.unknown_word(&format!("register type `.{word}`"), word)),
        };
        p.at += 1;
        loop {
            let at = self.parser.here();
            let name = self.parser.ident("a register name")?;
            let Some(scope) = self.scopes.last_mut() else { return self.parser.expected("`}`") };
            if self.parser.take('<') {
                let count = self.parser.int("the number of registers")?;
                self.parser.expect('>')?;
                match scope.names.declare_range(name, count, at) {
                    Ok(()) => drop(scope.ranges.insert(name.to_string(), (ty, count))),
                    Err(error) => self.parser.report(error),
                }
            } else if let Err(error) = scope.names.declare("register", name, at) {
                self.parser.report(error);
            } else {
                let id = add_register(self.function, &mut self.wide, name, ty);
                scope.registers.insert(name.to_string(), id);
            }
            if self.function.registers.len() > MAX_REGISTERS {
                return Err(self.parser.error_of(ParseErrorKind::Unsupported, "too many registers"));
            }
            if !self.parser.take(',') {
                break;
            }
        }
        self.parser.expect(';')
    }

    /// Parses a `.local` or `.param` variable.
    fn variable(&mut self) -> Result<(), ParseError> {
        self.parser.at += 1;
        let (mut variable, at) = self.parser.variable(&Linkage::default())?;
        self.declare("variable", &variable.name, at);
        if let Some(scope) = self.scopes.last_mut() {
            let unique = match scope.id {
                0 => variable.name.clone(),
                id => format!("{}@{id}", variable.name),
            };
            scope.variables.insert(std::mem::replace(&mut variable.name, unique.clone()), unique);
        }
        self.function.locals.push(variable);
        Ok(())
    }

    /// Parses a list of branch targets: `name: .branchtargets a, b;`.
    fn branch_targets(&mut self, name: &str, at: (u32, u32)) -> Result<(), ParseError> {
        self.declare("label", name, at);
        let mut labels = Vec::new();
        loop {
            labels.push(self.parser.ident("a label")?.to_string());
            if !self.parser.take(',') {
                break;
            }
        }
        if let Some(scope) = self.scopes.last_mut() {
            scope.targets.insert(name.to_string(), labels);
        }
        self.parser.expect(';')
    }

    /// Parses `.loc file line column [, function_name label [+ n], inlined_at file line column]`.
    fn location(&mut self) -> Result<(), ParseError> {
        let p = &mut *self.parser;
        p.at += 1;
        let at = p.position()?;
        let mut caller = None;
        while p.take(',') {
            match p.ident("`function_name` or `inlined_at`")? {
                "function_name" => {
                    p.ident("a label")?;
                    if p.take('+') {
                        p.int("an offset")?;
                    }
                }
                "inlined_at" => caller = Some(p.position()?),
                other => return Err(p.error(format!("unsupported `.loc` attribute `{other}`"))),
            }
        }
        let inlined_at = caller.map(|at| match self.last_locations.get(&at) {
            Some(&known) => known,
            None => self.add_location(Location { at, inlined_at: None }),
        });
        self.source = Some(self.add_location(Location { at, inlined_at }));
        Ok(())
    }

    /// Adds a location to the function and returns its index.
    fn add_location(&mut self, location: Location) -> u32 {
        let index = self.function.locations.len() as u32;
        self.function.locations.push(location);
        self.last_locations.insert(location.at, index);
        index
    }

    /// Register with the given name in the innermost scope that declares the name.
    pub(super) fn find_register(&mut self, name: &str) -> Option<RegId> {
        for scope in self.scopes.iter_mut().rev() {
            if let Some(&id) = scope.registers.get(name) {
                return Some(id);
            }
            let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let index = name[prefix.len()..].parse::<u64>();
            if let (Some(&(ty, count)), Ok(index)) = (scope.ranges.get(prefix), index)
                && index < count
            {
                let id = add_register(self.function, &mut self.wide, name, ty);
                scope.registers.insert(name.to_string(), id);
                return Some(id);
            }
        }
        None
    }
}

/// Adds a register to a function and returns its number.
fn add_register(function: &mut Function, wide: &mut HashSet<RegId>, name: &str, ty: RegisterType) -> RegId {
    let id = function.registers.len() as RegId;
    let mut add = |name: String, ty: Ty| function.registers.push(Register { name, ty });
    match ty {
        RegisterType::Plain(ty) => add(name.to_string(), ty),
        RegisterType::Wide => {
            add(name.to_string(), Ty::B64);
            add(format!("{name} (upper half)"), Ty::B64);
            wide.insert(id);
        }
    }
    id
}
