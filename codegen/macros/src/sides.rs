//! Constants as values of an `if`: `if c { x } else { 0.0 }`.
//!
//! With a handle on the other side, the constant must become a handle. Each constant at the end of a side passes through
//! `hooks::side`, which has the type of the other sides.

use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Block, Expr, ExprIf, Lit, Stmt, UnOp};

use crate::returns::diverges;

/// Wraps the values of an `if` with `else` that are constants in `hooks::side(…)`. Leaves an `if` alone whose values are all
/// constants, unless its type is declared (`expected`): nothing else would decide the type.
pub fn convert_constants(branch: &mut ExprIf, expected: bool) {
    let mut decided = expected;
    each_value_of_if(branch, &mut |value| {
        decided |= !is_constant(value) && !diverges(value) && !matches!(value, Expr::Macro(_));
    });
    if !decided {
        return;
    }
    each_value_of_if(branch, &mut |value| {
        if is_constant(value) {
            let span = value.span();
            *value = Expr::Verbatim(quote_spanned!(span=> ::bespoke_codegen::hooks::side(#value)));
        }
    });
}

/// Calls `visit` with every expression that may be the value of the `if`, nested ones included.
fn each_value_of_if(branch: &mut ExprIf, visit: &mut dyn FnMut(&mut Expr)) {
    if let Some((_, other)) = &mut branch.else_branch {
        each_value_of_block(&mut branch.then_branch, visit);
        each_value(other, visit);
    }
}

fn each_value(expression: &mut Expr, visit: &mut dyn FnMut(&mut Expr)) {
    match expression {
        Expr::Block(inner) if inner.label.is_none() => each_value_of_block(&mut inner.block, visit),
        Expr::If(branch) => each_value_of_if(branch, visit),
        value => visit(value),
    }
}

fn each_value_of_block(block: &mut Block, visit: &mut dyn FnMut(&mut Expr)) {
    if let Some(Stmt::Expr(value, None)) = block.stmts.last_mut() {
        each_value(value, visit);
    }
}

/// Whether the expression is a number or `bool`, with or without sign, or the name of a constant, such as `f32::INFINITY`.
fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Lit(literal) => matches!(literal.lit, Lit::Int(_) | Lit::Float(_) | Lit::Bool(_)),
        Expr::Unary(negated) if matches!(negated.op, UnOp::Neg(_)) => is_constant(&negated.expr),
        Expr::Paren(inner) => is_constant(&inner.expr),
        Expr::Group(inner) => is_constant(&inner.expr),
        Expr::Path(path) if path.path.segments.len() > 1 => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            let capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            last.arguments.is_none() && name.chars().all(capital)
        }),
        _ => false,
    }
}
