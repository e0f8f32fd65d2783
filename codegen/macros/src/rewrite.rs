//! Rewrites a function body into one that records: the traversal. The expansions are in [`crate::control`] and
//! [`crate::asked`].

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprClosure, ExprMatch, ExprUnary, Ident, Lifetime, Lit, Local, Macro,
    Pat, ReturnType, Signature, Stmt, Type, UnOp,
};

use crate::assigned::{Assigned, Assignment, How};
use crate::control::Loop;
use crate::errors::Errors;
use crate::scope::{Fact, Scope, Slot, is_mut_borrow};
use crate::{diagnose, given, tail};

/// What becomes of an expression's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Nothing: the expression is a statement.
    Statement,
    /// It is the value of a branch, an arm or a block.
    Value,
    /// It is used on the spot.
    Operand,
}

impl Position {
    /// The position of a branch's or a block's last expression, where the whole stands here.
    pub fn of_tail(self) -> Position {
        match self {
            Position::Statement => Position::Statement,
            Position::Value | Position::Operand => Position::Value,
        }
    }
}

/// Where a `return` goes.
pub struct Frame {
    /// `: R`, or nothing where `R` cannot be written in a `let`.
    pub ascription: TokenStream,
    /// Names R, likewise.
    pub wanted: Option<TokenStream>,
    /// The `&mut` parameters.
    pub slots: Vec<Slot>,
}

/// The state of rewriting one function.
pub struct Rewriter<'e> {
    pub scope: Scope,
    /// The enclosing loops, up to the nearest closure.
    pub loops: Vec<Loop>,
    /// Where `return` goes; none in a closure, or where there is no `return`.
    pub frame: Option<Frame>,
    /// Labels of blocks, which are reported where they stand and not again at each jump.
    pub block_labels: Vec<Lifetime>,
    errors: &'e mut Errors,
    hidden: Vec<String>,
    count: usize,
    /// Names the type that a value must have here: an expression of type `PhantomData<T>`.
    pub wanted: Option<TokenStream>,
}

/// Rewrites the body of a function with this signature; the result is a block expression.
///
/// Kernels pass the default `output`. Errors go to `errors`; the tokens are then of no use.
pub fn body(
    signature: &Signature,
    output: &ReturnType,
    mut block: Block,
    errors: &mut Errors,
) -> TokenStream {
    let unit = is_unit(output);
    tail::strip_returns(&mut block, unit);
    diagnose::check_body(&block, errors);

    let mut scope = Scope::default();
    let slots = scope.bind_parameters(signature);
    let framed = tail::has_return(&block);
    let frame = framed.then(|| Frame { ascription: ascription(output), wanted: wanted(output), slots });
    let mut rewriter = Rewriter {
        scope,
        loops: Vec::new(),
        frame,
        block_labels: Vec::new(),
        errors,
        hidden: Vec::new(),
        count: 0,
        wanted: wanted(output),
    };
    rewriter.block(&mut block, if unit { Position::Statement } else { Position::Value });

    let Some(Frame { ascription, slots, .. }) = rewriter.frame.take() else { return quote!(#block) };
    let span = signature.ident.span();
    let result = Ident::new("__result", span);
    let slots = rewriter.slot_list(Some(&result), &slots, span);
    quote_spanned! {span=> {
        let mut __frame = ::bespoke_codegen::hooks::Frame::enter();
        let mut #result #ascription = #block;
        __frame.finish(#slots);
        #result
    }}
}

/// The imports that the expansion's method calls need: each hook that is chosen by type is a pair of
/// traits, of which autoref finds the first that applies. `NoFunctions` and `NotOfPointer` are for the author's calls.
pub fn imports() -> TokenStream {
    quote! {
        #[allow(unused_imports)]
        use ::bespoke_codegen::hooks::{
            AnyIf as _, AnyWhile as _, AssertDyn as _, CastDyn as _, CastResult as _, CastResultDyn as _,
            ChainedDyn as _, CompareDyn as _, CompareStatic as _, ConditionIf as _, ConditionWhile as _,
            DerefDyn as _, EndDyn as _, ForDyn as _, ForStatic as _, GivenHandle as _, GivenPlain as _,
            IndexDyn as _, KnownNow as _, MatchDyn as _, NoFunctions as _, NotOfPointer as _, StartDyn as _,
            ViaCarry as _, ViaNothing as _, ViaStatic as _,
        };
    }
}

/// Lints that the expansion trips and the kernel's author cannot help.
pub fn allowed_lints() -> TokenStream {
    quote! {
        #[allow(
            unreachable_code, unused_braces, unused_parens, unused_labels,
            clippy::blocks_in_conditions, clippy::let_and_return, clippy::let_unit_value,
            clippy::needless_borrow, clippy::never_loop, clippy::op_ref, clippy::redundant_closure_call,
            clippy::unit_arg, clippy::unused_unit, clippy::while_let_loop
        )]
    }
}

/// Whether a function with this output returns `()`.
fn is_unit(output: &ReturnType) -> bool {
    match output {
        ReturnType::Default => true,
        ReturnType::Type(_, ty) => matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty()),
    }
}

/// `: R` for a `let` of the function's result.
fn ascription(output: &ReturnType) -> TokenStream {
    match output {
        ReturnType::Default => quote!(: ()),
        ReturnType::Type(..) if has_impl_trait(output) => TokenStream::new(),
        ReturnType::Type(arrow, ty) => quote_spanned!(arrow.span()=> : #ty),
    }
}

/// Names the type of a function's result, where it can be named.
fn wanted(output: &ReturnType) -> Option<TokenStream> {
    match output {
        ReturnType::Type(_, ty) if !has_impl_trait(output) && !matches!(**ty, Type::Never(_)) => {
            Some(given::names(ty))
        }
        _ => None,
    }
}

/// Whether the type says `impl Trait`, which only a signature may.
pub fn has_impl_trait(output: &ReturnType) -> bool {
    struct Find(bool);
    impl<'ast> syn::visit::Visit<'ast> for Find {
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut find = Find(false);
    syn::visit::visit_return_type(&mut find, output);
    find.0
}

impl Rewriter<'_> {
    /// Reports `message` at `span`.
    pub fn error(&mut self, span: Span, message: impl std::fmt::Display) {
        self.errors.push(span, message);
    }

    /// A number that no other construct of this function has.
    pub fn fresh(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// The slots of the region that `visit` walks, which starts here.
    pub fn region(&self, visit: impl FnOnce(&mut Assigned)) -> Vec<Slot> {
        let mut assigned = Assigned::default();
        visit(&mut assigned);
        self.scope.slots(assigned.assignments)
    }

    /// `&mut [slots…]`, or an error where one of them is hidden by a later binding.
    pub fn slot_list(&mut self, first: Option<&Ident>, slots: &[Slot], span: Span) -> TokenStream {
        self.scope.slot_list(first, slots, span).unwrap_or_else(|name| {
            let text = name.to_string();
            if !self.hidden.contains(&text) {
                self.errors.push(
                    name.span(),
                    format!(
                        "this `{name}` hides the one that a jump out of here carries: rename one of them"
                    ),
                );
                self.hidden.push(text);
            }
            quote!(&mut [])
        })
    }

    /// Rewrites a block; `position` is that of its last expression.
    pub fn block(&mut self, block: &mut Block, position: Position) {
        let mark = self.scope.enter();
        let last = block.stmts.len().saturating_sub(1);
        for (index, statement) in block.stmts.iter_mut().enumerate() {
            match statement {
                Stmt::Local(local) => self.local(local),
                Stmt::Expr(expression, None) if index == last => self.expression(expression, position),
                Stmt::Expr(expression, semi) => {
                    // A jump becomes a block, which needs no semicolon.
                    if matches!(expression, Expr::Break(_) | Expr::Continue(_) | Expr::Return(_)) {
                        *semi = None;
                    }
                    self.expression(expression, Position::Statement);
                }
                Stmt::Macro(statement) => self.macro_(&mut statement.mac),
                Stmt::Item(_) => {}
            }
        }
        self.scope.leave(mark);
    }

    fn local(&mut self, local: &mut Local) {
        let said = given::said(&local.pat);
        let (mut by_mut, mut typed, mut facts) = (false, said.is_some(), Vec::new());
        if let Some(init) = &mut local.init {
            let first = &mut *init.expr;
            by_mut = is_mut_borrow(first);
            typed |= self.is_typed(first);
            facts = self.facts(first, said);
            let source = said.and_then(|ty| Some((given::names(ty), self.source(first)?)));
            self.read(first);
            self.expression(first, Position::Operand);
            if let Some((wanted, source)) = source {
                *first = self.given_as(first, &source, &wanted);
            }
        }
        if typed {
            self.scope.bind_typed(&local.pat, by_mut);
        } else {
            self.scope.bind_pattern(&local.pat, by_mut);
        }
        facts.into_iter().for_each(|fact| self.scope.note(&local.pat, fact));
    }

    /// What is known of a variable that starts as `first`, of the type that is said.
    fn facts(&self, first: &Expr, said: Option<&Type>) -> Vec<Fact> {
        let facts = [
            (Fact::Pointer, self.scope.is_pointer(first)),
            (Fact::Number, is_literal(first) && said.is_none_or(given::is_number_type)),
            (Fact::Copied, matches!(first, Expr::Field(_))),
        ];
        facts.into_iter().filter_map(|(fact, holds)| holds.then_some(fact)).collect()
    }

    /// Rewrites an expression. Only a value is what is wanted; what it is made of is not.
    pub fn expression(&mut self, expression: &mut Expr, position: Position) {
        if position != Position::Value {
            let wanted = self.wanted.take();
            self.rewrite(expression, position);
            self.wanted = wanted;
            return;
        }
        self.read(expression);
        let given = self.wanted.clone().and_then(|wanted| Some((wanted, self.source(expression)?)));
        match given {
            Some((wanted, source)) => {
                self.expression(expression, Position::Operand);
                *expression = self.given_as(expression, &source, &wanted);
            }
            None => self.rewrite(expression, position),
        }
    }

    fn rewrite(&mut self, expression: &mut Expr, position: Position) {
        let taken = match expression {
            Expr::Call(_) | Expr::MethodCall(_) | Expr::Struct(_) => return self.taking(expression),
            Expr::Assign(assign) => {
                if let Some(hooked) = self.assign(assign) {
                    *expression = hooked;
                }
                return;
            }
            Expr::Match(choice) => return self.match_(choice, position),
            Expr::Index(index) => return self.index(index),
            Expr::Unary(ExprUnary { op: UnOp::Deref(star), expr, .. }) => {
                let span = star.span;
                return self.dereferenced(expr, span);
            }
            Expr::Macro(call) => return self.macro_(&mut call.mac),
            Expr::Block(block) => {
                self.block_labels.extend(block.label.as_ref().map(|label| label.name.clone()));
                return self.block(&mut block.block, position.of_tail());
            }
            Expr::Group(group) => return self.expression(&mut group.expr, position),
            Expr::Closure(closure) => return self.closure(closure),
            Expr::Let(condition) => {
                self.expression(&mut condition.expr, Position::Operand);
                return self.scope.bind_pattern(&condition.pat, is_mut_borrow(&condition.expr));
            }
            Expr::Repeat(repeat) => return self.expression(&mut repeat.expr, Position::Operand),
            Expr::If(_)
            | Expr::While(_)
            | Expr::Loop(_)
            | Expr::ForLoop(_)
            | Expr::Break(_)
            | Expr::Continue(_)
            | Expr::Return(_)
            | Expr::Cast(_)
            | Expr::Binary(_) => std::mem::replace(expression, Expr::Verbatim(TokenStream::new())),
            _ => return visit_mut::visit_expr_mut(self, expression),
        };
        *expression = match taken {
            Expr::If(branch) => self.if_(branch, position),
            Expr::While(repeat) => self.while_(repeat),
            Expr::Loop(repeat) => self.loop_(repeat, position),
            Expr::ForLoop(repeat) => self.for_(repeat),
            Expr::Break(jump) => self.break_(jump, position),
            Expr::Continue(jump) => self.continue_(jump, position),
            Expr::Return(jump) => self.return_(jump, position),
            Expr::Cast(cast) => self.cast(cast),
            Expr::Binary(binary) => self.binary(binary),
            other => other,
        };
    }

    /// A `match` takes no handles: a place that is compared with numbers passes through a hook that says so.
    fn match_(&mut self, choice: &mut ExprMatch, position: Position) {
        let place = matches!(*choice.expr, Expr::Path(_) | Expr::Field(_));
        let numbers = choice.arms.iter().any(|arm| is_number(&arm.pat));
        self.expression(&mut choice.expr, Position::Operand);
        if place && numbers {
            let value = &choice.expr;
            *choice.expr = Expr::Verbatim(
                quote_spanned!(value.span()=> *(&::bespoke_codegen::hooks::MatchOf::new(&#value)).known_now()),
            );
        }
        for arm in &mut choice.arms {
            let mark = self.scope.enter();
            self.scope.bind_pattern(&arm.pat, false);
            if let Pat::Guard(guarded) = &mut arm.pat {
                self.expression(&mut guarded.guard, Position::Operand);
            }
            self.expression(&mut arm.body, position.of_tail());
            self.scope.leave(mark);
        }
    }

    fn closure(&mut self, closure: &mut ExprClosure) {
        self.check_captures(closure);
        let (loops, frame) = (std::mem::take(&mut self.loops), self.frame.take());
        let mark = self.scope.enter();
        self.scope.enter_closure();
        for input in &closure.inputs {
            self.scope.bind_pattern(input, false);
        }
        self.expression(&mut closure.body, Position::Statement);
        self.scope.leave(mark);
        (self.loops, self.frame) = (loops, frame);
    }

    /// A closure's assignments happen when it is called, where nothing can carry them.
    fn check_captures(&mut self, closure: &ExprClosure) {
        let mut assigned = Assigned::default();
        assigned.visit_expr_closure(closure);
        let mut reported: Vec<Ident> = Vec::new();
        for Assignment { place, how, .. } in self.scope.assigned(assigned.assignments) {
            let name = place.root;
            if reported.contains(&name) {
                continue;
            }
            let what = match how {
                How::Assign => format!(
                    "a closure cannot assign `{name}` of the function around it: return the new value, or write a \
                     `#[device]` function that takes `&mut {name}`"
                ),
                How::Perhaps | How::Mention => format!(
                    "this may change `{name}` of the function around the closure: write a `#[device]` function that \
                     takes `&mut {name}`, or, if the closure only reads it, `let {name} = &{name};` before"
                ),
            };
            self.errors.push(name.span(), what);
            reported.push(name);
        }
    }

    fn binary(&mut self, mut binary: ExprBinary) -> Expr {
        if let Some(method) = comparison(&binary.op) {
            return self.comparison(binary, method);
        }
        match binary.op {
            BinOp::And(_) => self.short_circuit(binary, "and"),
            BinOp::Or(_) => self.short_circuit(binary, "or"),
            _ => {
                if given::is_arithmetic(&binary.op) {
                    self.read(&mut binary.left);
                }
                self.read(&mut binary.right);
                self.expression(&mut binary.left, Position::Operand);
                self.expression(&mut binary.right, Position::Operand);
                Expr::Binary(binary)
            }
        }
    }

    fn comparison(&mut self, binary: ExprBinary, (method, mirrored): (&str, &str)) -> Expr {
        let span = binary.op.span();
        let ExprBinary { attrs, mut left, mut right, .. } = binary;
        // A literal has no type of its own to choose the hook by: `0 < n` is recorded as `n > 0`.
        let flip = is_literal(&left) && !is_literal(&right);
        self.read(&mut left);
        self.read(&mut right);
        self.expression(&mut left, Position::Operand);
        self.expression(&mut right, Position::Operand);
        let (left, right) = if flip { (right, left) } else { (left, right) };
        let method = Ident::new(if flip { mirrored } else { method }, span);
        let (left, right) = (prefix_operand(&left), prefix_operand(&right));
        Expr::Verbatim(
            quote_spanned!(span=> #(#attrs)* (&::bespoke_codegen::hooks::Pair::new(&#left, &#right)).#method()),
        )
    }

    /// The condition of an `if` that stays plain Rust because it says `let`: a chain keeps its `&&`.
    pub fn chain(&mut self, condition: &mut Expr) {
        match condition {
            Expr::Binary(ExprBinary { op: BinOp::And(_), left, right, .. }) => {
                self.chain(left);
                self.chain(right);
            }
            Expr::Let(_) => self.expression(condition, Position::Operand),
            _ => self.chained(condition),
        }
    }

    /// Declares a `for`'s variables.
    pub fn bind_item(&mut self, pattern: &Pat, iterated: &Expr) {
        let by_mut = match iterated {
            Expr::MethodCall(call) => call.method == "iter_mut",
            _ => is_mut_borrow(iterated),
        };
        let by_mut = by_mut && matches!(pattern, Pat::Ident(_));
        match iterated {
            Expr::Range(range)
                if [&range.start, &range.end].into_iter().flatten().all(|end| self.is_typed(end)) =>
            {
                self.scope.bind_typed(pattern, by_mut)
            }
            _ => self.scope.bind_pattern(pattern, by_mut),
        }
    }
}

impl VisitMut for Rewriter<'_> {
    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        self.expression(expression, Position::Operand);
    }
    fn visit_block_mut(&mut self, block: &mut Block) {
        self.block(block, Position::Value);
    }
    // What follows is compile-time Rust, whose comparisons and blocks are not the kernel's.
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_path_mut(&mut self, _: &mut syn::Path) {}
    fn visit_angle_bracketed_generic_arguments_mut(&mut self, _: &mut syn::AngleBracketedGenericArguments) {}
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
    fn visit_macro_mut(&mut self, _: &mut Macro) {}
    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}
}

/// A comparison's method, and the one for exchanged operands.
fn comparison(operator: &BinOp) -> Option<(&'static str, &'static str)> {
    match operator {
        BinOp::Eq(_) => Some(("eq", "eq")),
        BinOp::Ne(_) => Some(("ne", "ne")),
        BinOp::Lt(_) => Some(("lt", "gt")),
        BinOp::Le(_) => Some(("le", "ge")),
        BinOp::Gt(_) => Some(("gt", "lt")),
        BinOp::Ge(_) => Some(("ge", "le")),
        _ => None,
    }
}

/// Whether the pattern names a number or a range of them.
fn is_number(pattern: &Pat) -> bool {
    match pattern {
        Pat::Lit(_) | Pat::Range(_) => true,
        Pat::Or(or) => or.cases.iter().any(is_number),
        Pat::Guard(guarded) => is_number(&guarded.pat),
        Pat::Paren(paren) => is_number(&paren.pat),
        _ => false,
    }
}

/// Whether the expression is a literal, perhaps with a sign.
pub fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) => true,
        Expr::Paren(paren) => is_literal(&paren.expr),
        Expr::Group(group) => is_literal(&group.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && is_literal(&unary.expr),
        _ => false,
    }
}

/// An unsigned integer literal that can be a `u32`.
pub fn is_unsigned_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::Lit(literal)
        if matches!(&literal.lit, Lit::Int(int) if matches!(int.suffix(), "" | "u32")))
}

/// The tokens of `expression` as the operand of a prefix operator.
pub fn prefix_operand(expression: &Expr) -> TokenStream {
    match expression {
        Expr::Path(_)
        | Expr::Lit(_)
        | Expr::Call(_)
        | Expr::MethodCall(_)
        | Expr::Field(_)
        | Expr::Index(_)
        | Expr::Paren(_)
        | Expr::Unary(_) => quote!(#expression),
        _ => quote!((#expression)),
    }
}
