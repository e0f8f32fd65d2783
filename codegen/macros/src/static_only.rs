//! Rust constructs that take compile-time values only: `as`, indices, `*`, `match` with numbers, let chains and
//! assertions. Each operand passes through a hook, a call that does not compile for a handle; the compile error
//! names an alternative.

use proc_macro2::Span;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{BinOp, Expr, ExprBinary, ExprCast, ExprIndex, ExprMatch, Ident, Macro, Pat, Token};

use crate::rewriter::{Position, Rewriter};
use crate::scope::DeclaredType;
use crate::syntax::{is_literal, prefix_operand};

impl Rewriter<'_> {
    /// Rewrites the cast `value as T`.
    pub fn cast(&mut self, mut cast: ExprCast) -> Expr {
        self.expression(&mut cast.expr, Position::Operand);
        if is_literal(&cast.expr) {
            return Expr::Cast(cast);
        }
        let (value, span) = (&cast.expr, cast.as_token.span);
        let hook = format_ident!("__cast{}", self.fresh(), span = span);
        let before = quote_spanned!(span=> let #hook = ::bespoke_codegen::hooks::CastOperand::new(#value););
        *cast.expr = Expr::Verbatim(quote_spanned!(span=> (&#hook).static_value()));
        Expr::Verbatim(quote_spanned!(span=> ({ #before (&#hook).result(#cast) })))
    }

    /// Rewrites the condition of an `if` with `let`. The `if` remains plain Rust, and a let chain keeps its `&&`.
    pub fn let_chain(&mut self, condition: &mut Expr) {
        match condition {
            Expr::Binary(ExprBinary { op: BinOp::And(_), left, right, .. }) => {
                self.let_chain(left);
                self.let_chain(right);
            }
            Expr::Let(_) => self.expression(condition, Position::Operand),
            _ => {
                let span = condition.span();
                self.expression(condition, Position::Operand);
                *condition = Expr::Verbatim(quote_spanned! {span=>
                    (&::bespoke_codegen::hooks::LetChainOperand::new(#condition)).static_value()
                });
            }
        }
    }

    /// Rewrites `array[index]`. The index of a pointer needs no hook: `Index` on a pointer is itself an error.
    pub fn index(&mut self, index: &mut ExprIndex) {
        let span = index.bracket_token.span.join();
        let of_pointer = self.declared_pointer(&index.expr).is_some();
        self.expression(&mut index.expr, Position::Operand);
        self.expression(&mut index.index, Position::Operand);
        if !of_pointer && !is_literal(&index.index) && !matches!(*index.index, Expr::Range(_)) {
            let value = &index.index;
            *index.index = Expr::Verbatim(
                quote_spanned!(span=> (&::bespoke_codegen::hooks::IndexOperand::new(#value)).static_value()),
            );
        }
    }

    /// Rewrites `*operand`. The value of a call passes through a hook; a place cannot, because it may be assigned.
    pub fn dereference(&mut self, operand: &mut Expr, span: Span) {
        if let Some(name) = self.declared_pointer(operand) {
            let message = format!(
                "`*` does not access GPU memory: write `{name}.load()` for the value, `{name}.store(value)` to \
                 assign it"
            );
            self.error(span, message);
        }
        self.expression(operand, Position::Operand);
        if let Expr::MethodCall(_) | Expr::Call(_) = operand {
            *operand = Expr::Verbatim(quote_spanned! {span=>
                (&::bespoke_codegen::hooks::DereferenceOperand::new(#operand)).static_value()
            });
        }
    }

    /// The variable that `expression` names, if it is declared as a pointer.
    fn declared_pointer<'a>(&self, expression: &'a Expr) -> Option<&'a Ident> {
        let Expr::Path(path) = expression else { return None };
        path.path.get_ident().filter(|name| self.scope.declared(name) == DeclaredType::Pointer)
    }

    /// Rewrites the operand of a `match` whose patterns contain numbers.
    pub fn scrutinee(&mut self, choice: &mut ExprMatch) {
        let numbers = choice.arms.iter().any(|arm| has_number(&arm.pat));
        self.matched(&mut choice.expr, numbers);
    }

    /// Rewrites the operand of a `match` or `let`. If a pattern has a `number`, it passes through a hook if it is a place, a
    /// method call or a comparison.
    pub fn matched(&mut self, operand: &mut Expr, number: bool) {
        let (place, value) = (
            matches!(operand, Expr::Path(_) | Expr::Field(_)),
            matches!(operand, Expr::MethodCall(_) | Expr::Binary(_)),
        );
        self.expression(operand, Position::Operand);
        let span = operand.span();
        if place && number {
            *operand = Expr::Verbatim(quote_spanned! {span=>
                *(&::bespoke_codegen::hooks::MatchOperand::new(&#operand)).static_value()
            });
        } else if value && number {
            *operand = Expr::Verbatim(quote_spanned! {span=>
                (&::bespoke_codegen::hooks::MatchedValue::new(#operand)).static_value()
            });
        }
    }

    /// Rewrites the operands of `assert!`, `assert_eq!`, `assert_ne!` and their `debug_` forms. Other macros are
    /// unchanged.
    pub fn assertion(&mut self, call: &mut Macro) {
        let Some(name) = call.path.segments.last().map(|segment| segment.ident.to_string()) else { return };
        let operands = match name.trim_start_matches("debug_") {
            "assert" => 1,
            "assert_eq" | "assert_ne" => 2,
            _ => return,
        };
        let Ok(mut arguments) = call.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated) else {
            return;
        };
        let written = arguments.first().map(ToTokens::to_token_stream);
        for argument in arguments.iter_mut().take(operands) {
            let span = argument.span();
            self.expression(argument, Position::Operand);
            let value = prefix_operand(argument);
            *argument = Expr::Verbatim(quote_spanned! {span=>
                *(&::bespoke_codegen::hooks::AssertionOperand::new(&#value)).static_value()
            });
        }
        arguments.pop_punct();
        // `assert!` without a message prints its condition as written, not as rewritten.
        let message = (operands == 1 && arguments.len() == 1)
            .then(|| quote!(, "assertion failed: {}", ::core::stringify!(#written)));
        call.tokens = quote!(#arguments #message);
    }
}

/// Whether the pattern contains a literal or a range.
pub fn has_number(pattern: &Pat) -> bool {
    match pattern {
        Pat::Lit(_) | Pat::Range(_) => true,
        Pat::Or(or) => or.cases.iter().any(has_number),
        Pat::Guard(guarded) => has_number(&guarded.pat),
        Pat::Paren(paren) => has_number(&paren.pat),
        _ => false,
    }
}
