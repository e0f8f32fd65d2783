//! State of rewriting one function.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Ident, Lifetime};

use crate::assigned::Assigned;
use crate::errors::Errors;
use crate::scope::{Scope, Slot};

/// The use of an expression's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// None: the expression is a statement.
    Statement,
    /// The value of a branch, an arm or a block.
    Value,
    /// An operand of an expression.
    Operand,
}

impl Position {
    /// The position of the last expression of a branch or block in this position.
    pub fn of_tail(self) -> Position {
        match self {
            Position::Statement => Position::Statement,
            Position::Value | Position::Operand => Position::Value,
        }
    }
}

/// The target of `return`.
pub struct Frame {
    /// `: R`, or nothing where a `let` cannot name `R`.
    pub ascription: TokenStream,
    /// `PhantomData::<R>`, or none where an expression cannot name `R`.
    pub expected: Option<TokenStream>,
    /// Slots of the `&mut` parameters.
    pub slots: Vec<Slot>,
}

/// A loop around the code being rewritten.
pub struct Loop {
    /// The label in the source.
    pub written: Option<Lifetime>,
    /// The label in the expansion.
    pub label: Lifetime,
    /// The variable that holds the loop's hook.
    pub handle: Ident,
    /// The slots that the loop carries.
    pub slots: Vec<Slot>,
    /// Whether it is a `for`, whose `continue` must end the item.
    pub counted: bool,
    /// Whether a jump names the label.
    pub jumped: bool,
}

/// State of rewriting one function.
pub struct Rewriter<'e> {
    /// Names in scope.
    pub scope: Scope,
    /// The enclosing loops, up to the nearest closure.
    pub loops: Vec<Loop>,
    /// The target of `return`; none in a closure, or in a function without `return`.
    pub frame: Option<Frame>,
    /// Labels of blocks. The error is at the label, so jumps to it get none.
    pub block_labels: Vec<Lifetime>,
    /// Names the expected type of a value in [`Position::Value`]: an expression of type `PhantomData<T>`.
    pub expected: Option<TokenStream>,
    errors: &'e mut Errors,
    reported: Vec<Ident>,
    count: usize,
}

impl<'e> Rewriter<'e> {
    /// Starts a function.
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

    /// Reports `message` at `span`.
    pub fn error(&mut self, span: Span, message: impl std::fmt::Display) {
        self.errors.push(span, message);
    }

    /// A new number for an identifier of the expansion.
    pub fn fresh(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// The slots of a region that starts here and that `visit` walks.
    pub fn region(&self, visit: impl FnOnce(&mut Assigned)) -> Vec<Slot> {
        let mut assigned = Assigned::default();
        visit(&mut assigned);
        self.scope.slots(assigned.assignments)
    }

    /// `&mut [slots…]`, or an error where a later binding shadows the variable of a slot.
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
