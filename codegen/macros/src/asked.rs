//! What takes no handles (`as`, indices, `*`, assertions): each asks a hook, which is nothing for what is known while
//! recording and an error for a handle.

use proc_macro2::Span;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Expr, ExprCast, ExprIndex, ExprMethodCall, ExprRange, ExprUnary, Macro, RangeLimits, Token, UnOp};

use crate::rewrite::{Position, Rewriter, is_literal, prefix_operand};
use crate::scope::Fact;

impl Rewriter<'_> {
    /// `as` takes no handles: the value passes through a hook that says so, and that is nothing for others.
    pub fn cast(&mut self, mut cast: ExprCast) -> Expr {
        self.expression(&mut cast.expr, Position::Operand);
        if is_literal(&cast.expr) {
            return Expr::Cast(cast);
        }
        let (value, span) = (&cast.expr, cast.as_token.span);
        let hook = format_ident!("__cast{}", self.fresh(), span = span);
        let before = quote_spanned!(span=> let #hook = ::bespoke_codegen::hooks::CastOf::new(#value););
        *cast.expr = Expr::Verbatim(quote_spanned!(span=> (&#hook).known_now()));
        Expr::Verbatim(quote_spanned!(span=> ({ #before (&#hook).result(#cast) })))
    }

    /// A condition beside a `let` takes no handles: it passes through a hook that says so.
    pub fn chained(&mut self, condition: &mut Expr) {
        let span = condition.span();
        self.expression(condition, Position::Operand);
        *condition = Expr::Verbatim(
            quote_spanned!(span=> (&::bespoke_codegen::hooks::ChainedOf::new(#condition)).known_now()),
        );
    }

    /// Methods of a range take no handles as its ends: these pass through a hook that says so at the method's name.
    pub fn method_of_range(&mut self, call: &mut ExprMethodCall) {
        let Some(range) = inner_range(&mut call.receiver) else { return };
        let ExprRange { start: Some(start), limits: RangeLimits::HalfOpen(_), end: Some(end), .. } = range
        else {
            return;
        };
        let typed = self.is_typed(start) && self.is_typed(end) && !(is_literal(start) && is_literal(end));
        if !typed || call.method == "contains" {
            return;
        }
        self.expression(start, Position::Operand);
        self.expression(end, Position::Operand);
        let ends = quote_spanned!(call.method.span()=> ::bespoke_codegen::hooks::EndsOf::new(#start, #end));
        *call.receiver = Expr::Verbatim(quote_spanned!(call.method.span()=> (&&&#ends).known_now()));
    }

    /// A handle indexes no array of Rust: the index passes through a hook that says so, and that is nothing for others.
    pub fn index(&mut self, index: &mut ExprIndex) {
        let span = index.bracket_token.span.join();
        if self.scope.is_pointer(&index.expr) {
            let (pointer, element) = (shown(&index.expr), shown(&index.index));
            self.error(
                span,
                format!(
                    "brackets do not reach memory of the GPU: write `{pointer}.at({element}).load()` for the value, \
                     `{pointer}.at({element}).store(value)` to assign it"
                ),
            );
        }
        self.expression(&mut index.expr, Position::Operand);
        self.expression(&mut index.index, Position::Operand);
        if !is_literal(&index.index) && !matches!(*index.index, Expr::Range(_)) {
            let value = &index.index;
            *index.index = Expr::Verbatim(
                quote_spanned!(span=> (&::bespoke_codegen::hooks::IndexOf::new(#value)).known_now()),
            );
        }
    }

    /// `*` takes no pointers of the GPU. What a call gives passes through a hook that says so; a place cannot.
    pub fn dereferenced(&mut self, operand: &mut Expr, span: Span) {
        if self.scope.is_pointer(operand) {
            let pointer = shown(operand);
            self.error(
                span,
                format!(
                    "`*` does not reach memory of the GPU: write `{pointer}.load()` for the value, \
                     `{pointer}.store(value)` to assign it"
                ),
            );
        }
        self.expression(operand, Position::Operand);
        if let Expr::MethodCall(_) | Expr::Call(_) = operand {
            *operand = Expr::Verbatim(
                quote_spanned!(span=> (&::bespoke_codegen::hooks::DerefOf::new(#operand)).known_now()),
            );
        }
    }

    /// `*p` where it is read, of a variable that was copied from a place: a `Ptr` passes through a hook that says so.
    pub fn read(&mut self, expression: &mut Expr) {
        match expression {
            Expr::Paren(paren) => self.read(&mut paren.expr),
            Expr::Unary(ExprUnary { op: UnOp::Deref(star), expr, .. }) => {
                if let Expr::Path(path) = &**expr
                    && let Some(name) = path.path.get_ident()
                    && self.scope.is_typed(name)
                    && self.scope.is_known(name, Fact::Copied)
                    && !self.scope.is_pointer(expr)
                {
                    **expr = Expr::Verbatim(
                        quote_spanned!(star.span=> *(&::bespoke_codegen::hooks::PointedOf::new(&#expr)).known_now()),
                    );
                }
            }
            _ => {}
        }
    }

    /// Assertions are made while recording: what they look at passes through a hook that says so of a handle.
    pub fn macro_(&mut self, call: &mut Macro) {
        let Some(name) = call.path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        let looked_at = match name.trim_start_matches("debug_") {
            "assert" => 1,
            "assert_eq" | "assert_ne" => 2,
            _ => return,
        };
        let Ok(mut arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) else {
            return;
        };
        let written = arguments.first().map(ToTokens::to_token_stream);
        for argument in arguments.iter_mut().take(looked_at) {
            let span = argument.span();
            self.expression(argument, Position::Operand);
            let value = prefix_operand(argument);
            *argument = Expr::Verbatim(
                quote_spanned!(span=> *(&::bespoke_codegen::hooks::AssertOf::new(&#value)).known_now()),
            );
        }
        arguments.pop_punct();
        // A condition without a message is its own.
        let message = (looked_at == 1 && arguments.len() == 1)
            .then(|| quote!(, "assertion failed: {}", ::core::stringify!(#written)));
        call.tokens = quote!(#arguments #message);
    }
}

/// The range that an expression is, within its parentheses.
fn inner_range(expression: &mut Expr) -> Option<&mut ExprRange> {
    match expression {
        Expr::Range(range) => Some(range),
        Expr::Paren(paren) => inner_range(&mut paren.expr),
        Expr::Group(group) => inner_range(&mut group.expr),
        _ => None,
    }
}

/// The expression as an error shows it: names, numbers and method calls, `…` for the rest.
fn shown(expression: &Expr) -> String {
    match expression {
        Expr::Path(_) | Expr::Lit(_) => expression.to_token_stream().to_string(),
        Expr::MethodCall(call) => format!("{}.{}(…)", shown(&call.receiver), call.method),
        _ => "…".to_owned(),
    }
}
