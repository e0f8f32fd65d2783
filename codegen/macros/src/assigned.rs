//! Analysis of the places that a region of code may assign.
//!
//! The analysis is syntactic and conservative. A place (a variable or a field of one) may be assigned if it is the left
//! side of an assignment, borrowed with `&mut`, the receiver of a method that is not known to take `&self`, or named in
//! a macro call.

use std::fmt;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Arm, BinOp, Block, Expr, ExprAssign, ExprBinary, ExprClosure, ExprField, ExprForLoop, ExprIf, ExprIndex,
    ExprLet, ExprMethodCall, ExprPath, ExprRawAddr, ExprReference, ExprUnary, ExprWhile, Ident, Item, Local,
    Macro, Member, PointerMutability, UnOp,
};

use crate::bindings::pattern_bindings;

/// A place: a variable or a field of one, written `root.f.g` or `*root.f.g`.
#[derive(Clone, Debug)]
pub struct Place {
    /// The variable.
    pub root: Ident,
    /// The path of fields from the variable.
    pub fields: Vec<Member>,
    /// Whether the place is behind a reference: `*root.f.g`.
    pub deref: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root)?;
        for field in &self.fields {
            match field {
                Member::Named(name) => write!(f, ".{name}")?,
                Member::Unnamed(index) => write!(f, ".{}", index.index)?,
            }
        }
        Ok(())
    }
}

/// Certainty that code assigns a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// `place = …`, `place += …`, `&mut place`.
    Assigned,
    /// `place.method(…)` or a name in a macro call: a possible assignment.
    Possible,
    /// A plain mention, as in `f(r)`: an assignment only if `r` is a `&mut`.
    Mentioned,
}

/// A place that may be assigned, and how certain that is.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The place.
    pub place: Place,
    /// How certain the assignment is: definite, possible, or only if the variable is a `&mut`.
    pub certainty: Certainty,
    /// Whether the assignment is to a field, an index or `*` of the variable, not to the variable itself.
    pub through: bool,
    /// Whether the place is what a method of the variable returns, as in `*cell.borrow_mut() = x`.
    pub returned: bool,
}

/// Standard library methods that do not assign their receiver, which therefore needs no slot.
const READS_RECEIVER: [&str; 8] =
    ["clone", "copied", "into", "into_iter", "is_empty", "iter", "len", "to_vec"];

/// Visitor that collects the places that the visited code may assign, in order of appearance.
#[derive(Default)]
pub struct Assigned {
    /// The assignments found, except those of names that the visited code declares.
    pub assignments: Vec<Assignment>,
    locals: Vec<Ident>,
}

impl Assigned {
    fn add(&mut self, expression: &Expr, certainty: Certainty) {
        if let Some((place, open)) = place_of(expression)
            && !self.locals.contains(&place.root)
        {
            let through = !open || !place.fields.is_empty();
            let returned = is_returned(expression);
            self.assignments.push(Assignment { place, certainty, through, returned });
        }
    }

    fn target(&mut self, left: &Expr) {
        match left {
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|element| self.target(element)),
            Expr::Array(array) => array.elems.iter().for_each(|element| self.target(element)),
            Expr::Struct(fields) => fields.fields.iter().for_each(|field| self.target(&field.expr)),
            Expr::Call(call) => call.args.iter().for_each(|argument| self.target(argument)),
            Expr::Paren(paren) => self.target(&paren.expr),
            Expr::Group(group) => self.target(&group.expr),
            _ => self.add(left, Certainty::Assigned),
        }
    }

    fn scoped(&mut self, visit: impl FnOnce(&mut Self)) {
        let outer = self.locals.len();
        visit(self);
        self.locals.truncate(outer);
    }

    /// Visits the body of a `for` loop whose loop variables are bound by `pattern`.
    pub fn visit_item_body(&mut self, pattern: &syn::Pat, body: &Block) {
        self.scoped(|this| {
            this.declare(pattern);
            this.visit_block(body);
        });
    }

    fn declare(&mut self, pattern: &syn::Pat) {
        self.locals.extend(pattern_bindings(pattern, false).into_iter().map(|(name, _)| name));
    }

    /// Visits a place that is only read: the variable does not count as mentioned.
    fn base(&mut self, base: &Expr) {
        match base {
            Expr::Path(path) if path.path.get_ident().is_some() => {}
            _ => self.visit_expr(base),
        }
    }

    fn names_in(&mut self, tokens: TokenStream) {
        // Number of consecutive dots before the token. A token after one dot, but not after `..`, names a field or a
        // method.
        let mut dots = 0;
        for token in tokens {
            let is_member = dots == 1;
            dots = if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.') {
                dots + 1
            } else {
                0
            };
            match token {
                TokenTree::Group(group) => self.names_in(group.stream()),
                TokenTree::Ident(root) if !is_member && !self.locals.contains(&root) => {
                    let place = Place { root, fields: Vec::new(), deref: false };
                    self.assignments.push(Assignment {
                        place,
                        certainty: Certainty::Possible,
                        through: false,
                        returned: false,
                    });
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Assigned {
    fn visit_expr_assign(&mut self, assign: &'ast ExprAssign) {
        self.target(&assign.left);
        visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        if is_compound_assignment(&binary.op) {
            self.add(&binary.left, Certainty::Assigned);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_reference(&mut self, reference: &'ast ExprReference) {
        if reference.mutability.is_some() {
            self.add(&reference.expr, Certainty::Assigned);
        }
        visit::visit_expr_reference(self, reference);
    }

    fn visit_expr_raw_addr(&mut self, address: &'ast ExprRawAddr) {
        if matches!(address.mutability, PointerMutability::Mut(_)) {
            self.add(&address.expr, Certainty::Assigned);
        }
        visit::visit_expr_raw_addr(self, address);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        if READS_RECEIVER.iter().any(|name| call.method == name) {
            self.base(&call.receiver);
        } else {
            self.add(&call.receiver, Certainty::Possible);
            self.visit_expr(&call.receiver);
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        if path.qself.is_none() && path.path.get_ident().is_some() {
            self.add(&Expr::Path(path.clone()), Certainty::Mentioned);
        }
    }

    fn visit_expr_field(&mut self, field: &'ast ExprField) {
        self.base(&field.base);
    }

    fn visit_expr_index(&mut self, index: &'ast ExprIndex) {
        self.base(&index.expr);
        self.visit_expr(&index.index);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        match unary.op {
            UnOp::Deref(_) => self.base(&unary.expr),
            _ => visit::visit_expr_unary(self, unary),
        }
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.names_in(call.tokens.clone());
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.scoped(|this| visit::visit_block(this, block));
    }

    fn visit_local(&mut self, local: &'ast Local) {
        visit::visit_local(self, local);
        self.declare(&local.pat);
    }

    fn visit_expr_let(&mut self, condition: &'ast ExprLet) {
        self.visit_expr(&condition.expr);
        self.declare(&condition.pat);
    }

    fn visit_expr_if(&mut self, branch: &'ast ExprIf) {
        self.scoped(|this| {
            this.visit_expr(&branch.cond);
            this.visit_block(&branch.then_branch);
        });
        if let Some((_, other)) = &branch.else_branch {
            self.visit_expr(other);
        }
    }

    fn visit_expr_while(&mut self, repeat: &'ast ExprWhile) {
        self.scoped(|this| visit::visit_expr_while(this, repeat));
    }

    fn visit_expr_for_loop(&mut self, repeat: &'ast ExprForLoop) {
        self.visit_expr(&repeat.expr);
        self.scoped(|this| {
            this.declare(&repeat.pat);
            this.visit_block(&repeat.body);
        });
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.scoped(|this| {
            this.declare(&arm.pat);
            visit::visit_arm(this, arm);
        });
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        self.scoped(|this| {
            closure.inputs.iter().for_each(|input| this.declare(input));
            this.visit_expr(&closure.body);
        });
    }

    fn visit_item(&mut self, _: &'ast Item) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
}

/// The place that a `for` over `iterated` keeps borrowed, if the syntax shows one.
pub fn iterated_place(iterated: &Expr) -> Option<Place> {
    const BORROW: [&str; 6] = ["iter", "iter_mut", "chunks", "chunks_exact", "windows", "as_slice"];
    match iterated {
        Expr::Reference(reference) => place_of(&reference.expr).map(|(place, _)| place),
        Expr::Paren(paren) => iterated_place(&paren.expr),
        Expr::Group(group) => iterated_place(&group.expr),
        Expr::MethodCall(call) if BORROW.iter().any(|name| call.method == name) => {
            place_of(&call.receiver).map(|(place, _)| place)
        }
        Expr::MethodCall(call) => iterated_place(&call.receiver),
        _ => None,
    }
}

/// The place that `expression` names or starts with, and whether the expression is exactly that place.
fn place_of(expression: &Expr) -> Option<(Place, bool)> {
    match expression {
        Expr::Path(path) if path.qself.is_none() => {
            let root = path.path.get_ident()?.clone();
            Some((Place { root, fields: Vec::new(), deref: false }, true))
        }
        Expr::Field(field) => {
            let (mut place, open) = place_of(&field.base)?;
            if open {
                place.fields.push(field.member.clone());
            }
            Some((place, open))
        }
        Expr::Unary(ExprUnary { op: UnOp::Deref(_), expr, .. }) => {
            let (mut place, open) = place_of(expr)?;
            place.deref |= open;
            Some((place, false))
        }
        Expr::Paren(paren) => place_of(&paren.expr),
        Expr::Group(group) => place_of(&group.expr),
        Expr::Index(index) => place_of(&index.expr).map(|(place, _)| (place, false)),
        Expr::MethodCall(call) => place_of(&call.receiver).map(|(place, _)| (place, false)),
        _ => None,
    }
}

/// Whether the place that `expression` names is what a method returns.
fn is_returned(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(_) => true,
        Expr::Field(field) => is_returned(&field.base),
        Expr::Index(index) => is_returned(&index.expr),
        Expr::Unary(ExprUnary { expr, .. }) => is_returned(expr),
        Expr::Paren(paren) => is_returned(&paren.expr),
        Expr::Group(group) => is_returned(&group.expr),
        _ => false,
    }
}

/// Whether the operator is a compound assignment such as `+=`.
pub fn is_compound_assignment(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}
