//! State of rewriting one function: scope, enclosing loops and return target.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Ident, Lifetime};

use crate::assigned::Assigned;
use crate::errors::Errors;
use crate::scope::{Scope, Slot};

/// How the value of an expression is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Not used: the expression is a statement.
    Statement,
    /// As the value of a branch, a `match` arm or a block.
    Value,
    /// As an operand of an expression.
    Operand,
}

impl Position {
    /// How the value of a branch's or block's last expression is used, if the branch or block is in this position.
    pub fn of_tail(self) -> Position {
        match self {
            Position::Statement => Position::Statement,
            Position::Value | Position::Operand => Position::Value,
        }
    }
}

/// The target of `return`: the type of the result and the slots to carry.
pub struct Frame {
    /// Type ascription `: R` of the function's result; empty if a `let` cannot name `R`.
    pub ascription: TokenStream,
    /// Expression `PhantomData::<R>`; none if an expression cannot name `R`.
    pub expected: Option<TokenStream>,
    /// Slots of the `&mut` parameters, whose values outlive the call.
    pub slots: Vec<Slot>,
}

/// A loop around the code being rewritten.
pub struct Loop {
    /// Label of the loop in the source.
    pub written: Option<Lifetime>,
    /// Label of the loop in the expansion.
    pub label: Lifetime,
    /// The variable that holds the loop's hook.
    pub handle: Ident,
    /// The slots that the loop carries from one iteration to the next.
    pub slots: Vec<Slot>,
    /// Whether the loop is a `for`, whose `continue` must also end the iteration in the hook.
    pub counted: bool,
    /// Whether a jump uses the loop's label.
    pub jumped: bool,
}

/// State of rewriting one function.
pub struct Rewriter<'e> {
    /// Names in scope.
    pub scope: Scope,
    /// The loops around the current expression, up to the nearest closure, innermost last.
    pub loops: Vec<Loop>,
    /// The target of `return`; none in a closure, or in a function without `return`.
    pub frame: Option<Frame>,
    /// Labels of blocks. A block label is an error, so jumps to the block are not reported too.
    pub block_labels: Vec<Lifetime>,
    /// The expected type of a value in [`Position::Value`], as an expression of type `PhantomData<T>`.
    pub expected: Option<TokenStream>,
    errors: &'e mut Errors,
    reported: Vec<Ident>,
    count: usize,
}

impl<'e> Rewriter<'e> {
    /// Creates the state at the start of a function.
    pub fn new(
        scope: Scope,
        frame: Option<Frame>,
        expected: Option<TokenStream>,
        errors: &'e mut Errors,
    ) -> Self {
        Rewriter {
            scope,
            loops: Vec::new(),
            frame,
            block_labels: Vec::new(),
            expected,
            errors,
            reported: Vec::new(),
            count: 0,
        }
    }

    /// Reports an error with the text `message` at `span`.
    pub fn error(&mut self, span: Span, message: impl std::fmt::Display) {
        self.errors.push(span, message);
    }

    /// Returns a new number, for a unique identifier in the expansion.
    pub fn fresh(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// The slots of a region that starts at this point; `visit` visits the code of the region.
    pub fn region(&self, visit: impl FnOnce(&mut Assigned)) -> Vec<Slot> {
        let mut assigned = Assigned::default();
        visit(&mut assigned);
        self.scope.slots(assigned.assignments)
    }

    /// The expression `&mut [slots…]`; an error if a later binding shadows the variable of a slot.
    pub fn slot_list(&mut self, first: Option<&Ident>, slots: &[Slot], span: Span) -> TokenStream {
        self.scope.slot_list(first, slots, span).unwrap_or_else(|name| {
            if !self.reported.contains(&name) {
                self.errors.push(
                    name.span(),
                    format!(
                        "`{name}` shadows a variable that a loop or `return` around it carries: rename one of them"
                    ),
                );
                self.reported.push(name);
            }
            quote!(&mut [])
        })
    }
}
