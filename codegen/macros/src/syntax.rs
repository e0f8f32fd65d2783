//! Predicates on the syntax of types, patterns and expressions.

use proc_macro2::TokenStream;
use quote::quote;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Ident, Lit, Pat, ReturnType, Type, TypeImplTrait, UnOp};

/// The name in a pattern that consists of a single name.
pub fn plain_name(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(&name.ident),
        _ => None,
    }
}

/// Whether the last segment of the type's path is `name`.
pub fn names_type(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
        // The type came through a `macro_rules!` parameter.
        Type::Group(group) => names_type(&group.elem, name),
        Type::Paren(paren) => names_type(&paren.elem, name),
        _ => false,
    }
}

/// Whether evaluating the expression may record a branch or a loop; closures run later.
pub fn has_region(expression: &Expr) -> bool {
    struct Find(bool);
    impl<'ast> Visit<'ast> for Find {
        fn visit_expr(&mut self, expression: &'ast Expr) {
            match expression {
                Expr::If(_) | Expr::While(_) | Expr::ForLoop(_) | Expr::Loop(_) => self.0 = true,
                Expr::Binary(binary) if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) => self.0 = true,
                Expr::Closure(_) => {}
                other => visit::visit_expr(self, other),
            }
        }
    }
    let mut find = Find(false);
    find.visit_expr(expression);
    find.0
}

/// Whether the type is written as a Rust number type or `bool`.
pub fn is_number_type(ty: &Type) -> bool {
    ["bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64", "usize"]
        .iter()
        .any(|name| names_type(ty, name))
}

/// Whether the type is written `&mut T`.
pub fn is_mut_reference(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => reference.mutability.is_some(),
        Type::Group(group) => is_mut_reference(&group.elem),
        Type::Paren(paren) => is_mut_reference(&paren.elem),
        _ => false,
    }
}

/// The first `impl Trait` in the type, which only a signature may contain.
pub fn impl_trait(ty: &Type) -> Option<proc_macro2::Span> {
    struct Find(Option<proc_macro2::Span>);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_impl_trait(&mut self, ty: &'ast TypeImplTrait) {
            self.0.get_or_insert(ty.impl_token.span);
        }
    }
    let mut find = Find(None);
    visit::visit_type(&mut find, ty);
    find.0
}

/// Whether a function's result type contains `impl Trait`.
pub fn returns_impl_trait(output: &ReturnType) -> bool {
    matches!(output, ReturnType::Type(_, ty) if impl_trait(ty).is_some())
}

/// Whether the expression is written `&mut e`.
pub fn is_mut_borrow(expression: &Expr) -> bool {
    match expression {
        Expr::Reference(reference) => reference.mutability.is_some(),
        Expr::Group(group) => is_mut_borrow(&group.expr),
        Expr::Paren(paren) => is_mut_borrow(&paren.expr),
        _ => false,
    }
}

/// Whether the expression is a literal or a negated literal.
pub fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(_) => true,
        Expr::Paren(paren) => is_literal(&paren.expr),
        Expr::Group(group) => is_literal(&group.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Neg(_)) && is_literal(&unary.expr),
        _ => false,
    }
}

/// Whether the expression is an integer literal that may be a `u32`.
pub fn is_unsigned_literal(expression: &Expr) -> bool {
    matches!(expression, Expr::Lit(literal)
        if matches!(&literal.lit, Lit::Int(int) if matches!(int.suffix(), "" | "u32")))
}

/// The expression as operand of a prefix operator, in parentheses if precedence requires them.
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
