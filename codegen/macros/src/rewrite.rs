//! Traversal of a function body. The expansions are in [`crate::control`], [`crate::static_only`] and
//! [`crate::expected_type`].

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprClosure, ExprMatch, ExprUnary, Ident, Local, Macro, Pat, ReturnType,
    Signature, Stmt, Type, UnOp,
};

use crate::assigned::{Assigned, Assignment, Certainty, is_compound_assignment};
use crate::errors::Errors;
use crate::expected_type::{ascribed, names};
use crate::returns;
use crate::rewriter::{Frame, Position, Rewriter};
use crate::scope::Scope;
use crate::sides::convert_constants;
use crate::static_only::has_number;
use crate::syntax::{has_region, is_literal, is_mut_borrow, prefix_operand, returns_impl_trait};
use crate::unsupported;

/// Rewrites the body of a function with the given signature; the result is a block expression.
///
/// For a kernel, `output` is the default. If an error is added to `errors`, the tokens must not be used.
pub fn body(
    signature: &Signature,
    output: &ReturnType,
    mut block: Block,
    errors: &mut Errors,
) -> TokenStream {
    let unit = is_unit(output);
    returns::strip_tail_returns(&mut block, unit);
    unsupported::check_body(&block, errors);

    let mut scope = Scope::default();
    let slots = scope.bind_parameters(signature);
    let frame = returns::has_return(&block).then(|| Frame {
        ascription: ascription(output),
        expected: result_type(output),
        slots,
    });
    let mut rewriter = Rewriter::new(scope, frame, result_type(output), errors);
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

/// Imports of the traits with the hooks that the expansion calls as methods. Where an operand's type decides between
/// two implementations, the hooks are a pair of traits, and autoref selects the first one that applies.
pub fn imports() -> TokenStream {
    quote! {
        #[allow(unused_imports)]
        use ::bespoke_codegen::hooks::{
            AssertionOfHandle as _, CastOfHandle as _, CastResult as _, CastResultOfHandle as _,
            CompareDyn as _, CompareStatic as _, ConditionIf as _, ConditionWhile as _,
            DereferenceOfHandle as _, ForDyn as _, ForStatic as _, HandleIn as _, IndexOfHandle as _,
            LetChainOfHandle as _, MatchOfHandle as _, MatchedHandle as _, NoIf as _, NoSlot as _, NoWhile as _, OtherIn as _,
            RepeatedByClone as _, RepeatedByReference as _, SlotOfHandles as _, StaticSlot as _,
            StaticValue as _,
        };
    }
}

/// Attributes that allow the lints which the expansion triggers and the kernel's author cannot prevent.
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

/// Whether a function with this return type returns `()`.
fn is_unit(output: &ReturnType) -> bool {
    match output {
        ReturnType::Default => true,
        ReturnType::Type(_, ty) => matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty()),
    }
}

/// The type ascription `: R` for a `let` of the function's result.
fn ascription(output: &ReturnType) -> TokenStream {
    match output {
        ReturnType::Default => quote!(: ()),
        ReturnType::Type(..) if returns_impl_trait(output) => TokenStream::new(),
        ReturnType::Type(arrow, ty) => quote_spanned!(arrow.span()=> : #ty),
    }
}

/// An expression that carries the return type, `PhantomData::<R>`; none if an expression cannot name the type.
fn result_type(output: &ReturnType) -> Option<TokenStream> {
    match output {
        ReturnType::Type(_, ty) if !returns_impl_trait(output) && !matches!(**ty, Type::Never(_)) => {
            Some(names(ty))
        }
        _ => None,
    }
}

impl Rewriter<'_> {
    /// Rewrites a block; `position` is the use of the block's value.
    pub fn block(&mut self, block: &mut Block, position: Position) {
        let mark = self.scope.enter();
        let last = block.stmts.len().saturating_sub(1);
        for (index, statement) in block.stmts.iter_mut().enumerate() {
            match statement {
                Stmt::Local(local) => self.local(local),
                Stmt::Expr(expression, None) if index == last => self.expression(expression, position),
                Stmt::Expr(expression, semi) => {
                    // A jump is expanded to a block, which needs no semicolon.
                    if matches!(expression, Expr::Break(_) | Expr::Continue(_) | Expr::Return(_)) {
                        *semi = None;
                    }
                    self.expression(expression, Position::Statement);
                }
                Stmt::Macro(statement) => self.assertion(&mut statement.mac),
                Stmt::Item(_) => {}
            }
        }
        self.scope.leave(mark);
    }

    fn local(&mut self, local: &mut Local) {
        let by_mut = local.init.as_ref().is_some_and(|init| is_mut_borrow(&init.expr));
        let ascribed = ascribed(&local.pat);
        if let Some(init) = &mut local.init {
            let value = &mut *init.expr;
            if let (Expr::If(branch), Some(_)) = (&mut *value, ascribed) {
                convert_constants(branch, true);
            }
            let typed = ascribed.and_then(|ty| Some((names(ty), self.declared_place(value)?)));
            self.expression(value, Position::Operand);
            if let Some((expected, place)) = typed {
                *value = self.with_expected_type(value, &place, &expected);
            }
        }
        match ascribed {
            Some(ty) => self.scope.bind_typed(&local.pat, ty, by_mut),
            None => self.scope.bind_pattern(&local.pat, by_mut),
        }
    }

    /// Rewrites an expression. Only in [`Position::Value`] does the expression have the type that `self.expected`
    /// names.
    pub fn expression(&mut self, expression: &mut Expr, position: Position) {
        if position != Position::Value {
            let expected = self.expected.take();
            self.rewrite(expression, position);
            self.expected = expected;
            return;
        }
        let typed =
            self.expected.clone().and_then(|expected| Some((expected, self.declared_place(expression)?)));
        match typed {
            Some((expected, place)) => {
                self.expression(expression, Position::Operand);
                *expression = self.with_expected_type(expression, &place, &expected);
            }
            None => self.rewrite(expression, position),
        }
    }

    fn rewrite(&mut self, expression: &mut Expr, position: Position) {
        let taken = match expression {
            Expr::Call(_) | Expr::Struct(_) => return self.call(expression),
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
                return self.dereference(expr, span);
            }
            Expr::Macro(call) => return self.assertion(&mut call.mac),
            Expr::Block(block) => {
                self.block_labels.extend(block.label.as_ref().map(|label| label.name.clone()));
                return self.block(&mut block.block, position.of_tail());
            }
            Expr::Group(group) => return self.expression(&mut group.expr, position),
            Expr::Closure(closure) => return self.closure(closure),
            Expr::Let(condition) => {
                let by_mut = is_mut_borrow(&condition.expr);
                self.matched(&mut condition.expr, has_number(&condition.pat));
                return self.scope.bind_pattern(&condition.pat, by_mut);
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

    fn match_(&mut self, choice: &mut ExprMatch, position: Position) {
        self.scrutinee(choice);
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

    /// Reports assignments of captured variables in a closure: they happen when the closure is called, so no slot
    /// carries them.
    fn check_captures(&mut self, closure: &ExprClosure) {
        let mut assigned = Assigned::default();
        assigned.visit_expr_closure(closure);
        let mut reported: Vec<Ident> = Vec::new();
        for Assignment { place, certainty, .. } in self.scope.assigned(assigned.assignments) {
            let name = place.root;
            if reported.contains(&name) {
                continue;
            }
            let what = match certainty {
                Certainty::Assigned => format!(
                    "a closure cannot assign `{name}` of the function around it: return the new value, or write a \
                     `#[device]` function that takes `&mut {name}`"
                ),
                Certainty::Possible | Certainty::Mentioned => format!(
                    "this may assign `{name}` of the function around the closure: write a `#[device]` function that \
                     takes `&mut {name}`; if the closure only reads it, write `let {name} = &{name};` before"
                ),
            };
            self.error(name.span(), what);
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
                let hoists = is_compound_assignment(&binary.op) && has_region(&binary.right);
                self.expression(&mut binary.left, Position::Operand);
                self.expression(&mut binary.right, Position::Operand);
                match hoists {
                    true => self.after_its_value(binary),
                    false => Expr::Binary(binary),
                }
            }
        }
    }

    /// `x += value` as two statements. The value's region may carry `x`, which `x += …` borrows before it evaluates the
    /// value.
    fn after_its_value(&mut self, binary: ExprBinary) -> Expr {
        let ExprBinary { attrs, left, op, right } = binary;
        let span = op.span();
        let value = format_ident!("__value{}", self.fresh(), span = span);
        Expr::Verbatim(quote_spanned!(span=> #(#attrs)* { let #value = #right; #left #op #value; }))
    }

    fn comparison(&mut self, binary: ExprBinary, (method, mirrored): (&str, &str)) -> Expr {
        let span = binary.op.span();
        let ExprBinary { attrs, mut left, mut right, .. } = binary;
        // The type of the left operand selects the hook, and a literal has no type of its own: `0 < n` is recorded as
        // `n > 0`.
        let flip = is_literal(&left) && !is_literal(&right);
        self.expression(&mut left, Position::Operand);
        self.expression(&mut right, Position::Operand);
        let (left, right) = if flip { (right, left) } else { (left, right) };
        let method = Ident::new(if flip { mirrored } else { method }, span);
        let (left, right) = (prefix_operand(&left), prefix_operand(&right));
        Expr::Verbatim(
            quote_spanned!(span=> #(#attrs)* (&::bespoke_codegen::hooks::Pair::new(&#left, &#right)).#method()),
        )
    }
}

impl VisitMut for Rewriter<'_> {
    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        self.expression(expression, Position::Operand);
    }
    fn visit_block_mut(&mut self, block: &mut Block) {
        self.block(block, Position::Value);
    }
    // These are compile-time Rust, whose comparisons and blocks are not rewritten.
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_path_mut(&mut self, _: &mut syn::Path) {}
    fn visit_angle_bracketed_generic_arguments_mut(&mut self, _: &mut syn::AngleBracketedGenericArguments) {}
    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
    fn visit_macro_mut(&mut self, _: &mut Macro) {}
    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}
}

/// Names of the hook methods for a comparison, and for the comparison with exchanged operands.
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
