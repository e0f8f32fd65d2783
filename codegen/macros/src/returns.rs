//! Analysis of `return` in tail position, and of blocks that end in a jump.

use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprClosure, ExprReturn, Item, Stmt};

/// Whether `block` ends in a jump, and so has no value.
pub fn block_diverges(block: &Block) -> bool {
    matches!(block.stmts.last(), Some(Stmt::Expr(last, _)) if diverges(last))
}

/// Whether `expression` always ends in `return`, `break` or `continue`.
pub fn diverges(expression: &Expr) -> bool {
    match expression {
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Block(inner) => block_diverges(&inner.block),
        Expr::Paren(inner) => diverges(&inner.expr),
        Expr::If(branch) => {
            block_diverges(&branch.then_branch)
                && branch.else_branch.as_ref().is_some_and(|(_, other)| diverges(other))
        }
        Expr::Match(choice) => !choice.arms.is_empty() && choice.arms.iter().all(|arm| diverges(&arm.body)),
        _ => false,
    }
}

/// Turns every `return e` in tail position into the tail expression `e`, because such a return needs no jump.
///
/// In a function that returns `()` (`unit`), the branch of an `if` without `else` is in tail position as well.
pub fn strip_tail_returns(block: &mut Block, unit: bool) {
    let Some(Stmt::Expr(last, semi)) = block.stmts.last_mut() else { return };
    match last {
        Expr::Return(ExprReturn { expr: Some(value), .. }) => {
            let value = (**value).clone();
            block.stmts.pop();
            block.stmts.push(Stmt::Expr(value, None));
        }
        Expr::Return(ExprReturn { expr: None, .. }) => {
            block.stmts.pop();
        }
        _ if unit || semi.is_none() => strip_expression(last, unit),
        _ => {}
    }
}

fn strip_expression(expression: &mut Expr, unit: bool) {
    match expression {
        Expr::Return(ExprReturn { expr, .. }) => {
            *expression = match expr.take() {
                Some(value) => *value,
                None => syn::parse_quote!({}),
            };
        }
        Expr::Block(inner) => strip_tail_returns(&mut inner.block, unit),
        Expr::If(branch) => {
            if let Some((_, other)) = &mut branch.else_branch {
                strip_tail_returns(&mut branch.then_branch, unit);
                strip_expression(other, unit);
            } else if unit {
                strip_tail_returns(&mut branch.then_branch, unit);
            }
        }
        Expr::Match(choice) => {
            for arm in &mut choice.arms {
                strip_expression(&mut arm.body, unit);
            }
        }
        _ => {}
    }
}

/// Whether `block` contains a `return` from the enclosing function, not from a closure or a nested item.
pub fn has_return(block: &Block) -> bool {
    struct Find(bool);
    impl<'ast> Visit<'ast> for Find {
        fn visit_expr_return(&mut self, _: &'ast ExprReturn) {
            self.0 = true;
        }
        fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}
        fn visit_item(&mut self, _: &'ast Item) {}
    }
    let mut find = Find(false);
    visit::visit_block(&mut find, block);
    find.0
}
