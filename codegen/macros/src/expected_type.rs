//! Handles where another type is expected: an argument, a field, a result or an assigned value.
//!
//! A place whose type is declared in the source (a parameter, `let x: T`, or a field of these) passes through a hook, a
//! function of `bespoke_codegen::hooks` whose error message says how to convert a handle. Other expressions get rustc's
//! "mismatched types".

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut;
use syn::{Expr, ExprAssign, Member, Pat, Type};

use crate::rewriter::Rewriter;
use crate::scope::DeclaredType;

/// Hook that checks the type of one value: a statement before the value's use, a statement after it, and the variable
/// that both refer to.
struct Hook {
    before: TokenStream,
    after: TokenStream,
    name: Ident,
}

impl Rewriter<'_> {
    /// The tokens of `expression` if it is a variable with a declared type, or a field of one.
    pub fn declared_place(&self, expression: &Expr) -> Option<TokenStream> {
        self.is_declared_place(expression).then(|| expression.to_token_stream())
    }

    fn is_declared_place(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => {
                path.path.get_ident().is_some_and(|name| self.scope.declared(name) != DeclaredType::None)
            }
            Expr::Field(field) => self.is_declared_place(&field.base),
            Expr::Paren(paren) => self.is_declared_place(&paren.expr),
            Expr::Group(group) => self.is_declared_place(&group.expr),
            _ => false,
        }
    }

    /// Rewrites a function call or a struct literal, whose arguments or fields have expected types.
    pub fn call(&mut self, expression: &mut Expr) {
        let places: Vec<_> =
            arguments(expression).into_iter().map(|argument| self.declared_place(argument)).collect();
        visit_mut::visit_expr_mut(self, expression);
        let (mut before, mut after) = (TokenStream::new(), TokenStream::new());
        for (argument, place) in arguments(expression).into_iter().zip(places) {
            let Some(place) = place else { continue };
            let hook = self.hook(&place, argument.span());
            *argument = Expr::Verbatim(hook.pass(argument));
            before.extend(hook.before);
            after.extend(hook.after);
        }
        if !before.is_empty() {
            let value = format_ident!("__call{}", self.fresh(), span = expression.span());
            *expression = Expr::Verbatim(quote!(({ #before let #value = #expression; #after #value })));
        }
    }

    /// Rewrites the assignment `x = value`, whose value has the type of `x`.
    pub fn assign(&mut self, assign: &mut ExprAssign) -> Option<Expr> {
        let destructures =
            !matches!(*assign.left, Expr::Path(_) | Expr::Field(_) | Expr::Index(_) | Expr::Unary(_));
        let place = if destructures { None } else { self.declared_place(&assign.right) };
        visit_mut::visit_expr_assign_mut(self, assign);
        let hook = self.hook(&place?, assign.right.span());
        *assign.right = Expr::Verbatim(hook.pass(&assign.right));
        let Hook { before, after, .. } = hook;
        Some(Expr::Verbatim(quote!(({ #before #assign; #after }))))
    }

    /// Passes `value`, the rewritten `place`, through a hook that requires the type `T`; `expected` is an expression of
    /// type `PhantomData<T>`.
    pub fn with_expected_type(&mut self, value: &Expr, place: &TokenStream, expected: &TokenStream) -> Expr {
        let span = value.span();
        let hook = self.hook(place, span);
        let (passed, name) = (hook.pass(value), format_ident!("{}_value", hook.name));
        let Hook { before, after, .. } = hook;
        let value = quote_spanned!(span=> ::bespoke_codegen::hooks::of_type(#expected, #passed));
        Expr::Verbatim(quote!(({ #before let #name = #value; #after #name })))
    }

    fn hook(&mut self, place: &TokenStream, span: Span) -> Hook {
        let name = format_ident!("__expected{}", self.fresh(), span = span);
        let before = quote_spanned! {span=>
            let #name = (&::bespoke_codegen::hooks::TypedPlace::new(&#place)).expectation();
        };
        Hook { before, after: quote_spanned!(span=> #name.check_type();), name }
    }
}

impl Hook {
    /// The call that passes `value` through this hook. The call has the span of the whole value, so that errors
    /// underline all of it.
    fn pass(&self, value: &Expr) -> TokenStream {
        let tokens = value.to_token_stream();
        let (name, first) = (&self.name, value.span());
        let last = tokens.clone().into_iter().last().map_or(first, |token| token.span());
        let mut value = Group::new(proc_macro2::Delimiter::Parenthesis, tokens);
        value.set_span(last);
        let value = TokenTree::Group(value);
        quote_spanned!(first=> #name.pass #value)
    }
}

/// The arguments of a function call, or the fields of a struct literal; none if an argument is a closure, because the
/// types of closure parameters must be known immediately.
fn arguments(expression: &mut Expr) -> Vec<&mut Expr> {
    let arguments: Vec<&mut Expr> = match expression {
        Expr::Call(call) => call.args.iter_mut().collect(),
        // In `S { x }`, one token names both the field and the variable.
        Expr::Struct(literal) => {
            let is_written = |field: &syn::FieldValue| {
                field.colon_token.is_some() && matches!(field.member, Member::Named(_))
            };
            if !literal.fields.iter().all(is_written) {
                return Vec::new();
            }
            literal.fields.iter_mut().map(|field| &mut field.expr).collect()
        }
        _ => Vec::new(),
    };
    if arguments.iter().any(|argument| matches!(argument, Expr::Closure(_))) { Vec::new() } else { arguments }
}

/// An expression that carries the type `ty`: `PhantomData::<T>`.
pub fn names(ty: &Type) -> TokenStream {
    quote_spanned!(ty.span()=> ::core::marker::PhantomData::<#ty>)
}

/// The type `T` in `let x: T`.
pub fn ascribed(pattern: &Pat) -> Option<&Type> {
    match pattern {
        Pat::Type(typed) if !matches!(*typed.ty, Type::Infer(_)) => Some(&typed.ty),
        _ => None,
    }
}
