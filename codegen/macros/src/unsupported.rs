//! Constructs that cannot be recorded. Each error is at the construct's token and names an alternative.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Block, Expr, ExprAsync, ExprAwait, ExprBlock, ExprBreak, ExprClosure, ExprConst, ExprReturn, ExprTry,
    ExprTryBlock, ExprUnsafe, ExprWhile, ExprYield, Item, Local, Macro, Safety, Signature,
};

use crate::errors::Errors;

/// Macros that may be used while recording. Other macros could hide code that has to be rewritten.
const MACROS: [&str; 13] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "concat",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "format",
    "matches",
    "panic",
    "stringify",
    "unreachable",
    "vec",
];

/// Macros that print.
const PRINTING: [&str; 5] = ["dbg", "eprint", "eprintln", "print", "println"];

/// Reports qualifiers of a signature that a recorded function cannot have.
pub fn check_signature(signature: &Signature, errors: &mut Errors) {
    if let Some(token) = &signature.constness {
        errors.push(token.span, "a recorded function cannot be `const`: recording has side effects");
    }
    if let Some(token) = &signature.asyncness {
        errors.push(token.span, "a recorded function cannot be `async`: a kernel runs to its end");
    }
    if let Some(abi) = &signature.abi {
        errors.push(abi.extern_token.span, "a recorded function has no ABI: remove `extern`");
    }
    if let Safety::Unsafe(token) = &signature.safety {
        errors.push(token.span, "a recorded function cannot be `unsafe`: recording accesses no memory");
    }
    if let Some(variadic) = &signature.variadic {
        errors.push(variadic.dots.span(), "a recorded function cannot be variadic");
    }
}

/// Reports every construct in `block` that cannot be recorded, whatever the types.
pub fn check_body(block: &Block, errors: &mut Errors) {
    Check { errors, closures: 0 }.visit_block(block);
}

struct Check<'e> {
    errors: &'e mut Errors,
    closures: usize,
}

impl Check<'_> {
    fn error(&mut self, span: Span, message: &str) {
        self.errors.push(span, message);
    }
}

impl<'ast> Visit<'ast> for Check<'_> {
    fn visit_expr_break(&mut self, jump: &'ast ExprBreak) {
        if let Some(value) = &jump.expr {
            self.error(
                value.span(),
                "a recorded loop has no value: assign to a `let mut` variable, then `break`",
            );
        }
        visit::visit_expr_break(self, jump);
    }

    fn visit_expr_return(&mut self, jump: &'ast ExprReturn) {
        if self.closures > 0 {
            self.error(
                jump.return_token.span,
                "`return` in a closure cannot be recorded: end the closure with its value, or write a `#[device]` \
                 function",
            );
        }
        visit::visit_expr_return(self, jump);
    }

    fn visit_expr_try(&mut self, question: &'ast ExprTry) {
        self.error(
            question.question_token.span,
            "`?` cannot be recorded: a kernel returns no error; check compile-time values with `expect` or `match`",
        );
        visit::visit_expr_try(self, question);
    }

    fn visit_expr_try_block(&mut self, block: &'ast ExprTryBlock) {
        self.error(block.try_token.span, "`try` blocks cannot be recorded");
    }

    fn visit_expr_async(&mut self, block: &'ast ExprAsync) {
        self.error(block.async_token.span, "`async` cannot be recorded: a kernel runs to its end");
    }

    fn visit_expr_await(&mut self, wait: &'ast ExprAwait) {
        self.error(wait.await_token.span, "`.await` cannot be recorded: a kernel runs to its end");
        visit::visit_expr_await(self, wait);
    }

    fn visit_expr_yield(&mut self, wait: &'ast ExprYield) {
        self.error(wait.yield_token.span, "`yield` cannot be recorded: a kernel runs to its end");
    }

    fn visit_expr_unsafe(&mut self, block: &'ast ExprUnsafe) {
        self.error(
            block.unsafe_token.span,
            "`unsafe` cannot be recorded: access GPU memory through `Ptr`, and compute compile-time values outside of \
             the kernel",
        );
    }

    fn visit_expr_while(&mut self, repeat: &'ast ExprWhile) {
        if let Some(token) = first_let(&repeat.cond) {
            self.error(
                token,
                "`while let` cannot be recorded: use `for` over a Rust iterator, or `while` with a condition",
            );
        }
        visit::visit_expr_while(self, repeat);
    }

    fn visit_expr_block(&mut self, block: &'ast ExprBlock) {
        if let Some(label) = &block.label {
            self.error(
                label.name.span(),
                "labelled blocks cannot be recorded: use `if` and `else`, or a `#[device]` function with `return`",
            );
        }
        visit::visit_expr_block(self, block);
    }

    fn visit_expr_const(&mut self, block: &'ast ExprConst) {
        self.error(
            block.const_token.span,
            "inline `const` cannot be recorded: declare a `const` item, or a `let` of the compile-time value",
        );
    }

    fn visit_local(&mut self, local: &'ast Local) {
        match &local.init {
            None => self.error(
                local.let_token.span,
                "`let` without a value cannot be recorded: write `let mut x = val(0)`, and assign to it",
            ),
            Some(init) => {
                if let Some((token, _)) = &init.diverge {
                    self.error(
                        token.span,
                        "`let … else` cannot be recorded: use `match`, or `if let` around the rest",
                    );
                }
            }
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        if let Some(token) = &closure.asyncness {
            self.error(token.span, "`async` cannot be recorded: a kernel runs to its end");
        }
        self.closures += 1;
        visit::visit_expr_closure(self, closure);
        self.closures -= 1;
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let Some(name) = call.path.segments.last() else { return };
        if MACROS.iter().any(|known| name.ident == known) {
            return;
        }
        let what = if PRINTING.iter().any(|known| name.ident == known) {
            "would print while recording, not on the GPU: write `printf(…)` for run-time values; print compile-time \
             values outside of the kernel"
        } else {
            "could hide code that has to be recorded: write a `#[device]` function, or compute a compile-time value \
             outside of the kernel"
        };
        self.errors.push(call.path.span(), format!("`{}!` {what}", name.ident));
    }

    fn visit_item(&mut self, item: &'ast Item) {
        // Items other than statics are ordinary Rust and cannot use the kernel's variables.
        if let Item::Static(item) = item {
            self.error(
                item.static_token.span,
                "a `static` is host memory, which the GPU cannot access: use `const` or `shared_array`",
            );
        }
    }
    fn visit_type(&mut self, _: &'ast syn::Type) {}
}

/// Position of the first `let` in a let chain.
fn first_let(condition: &Expr) -> Option<Span> {
    match condition {
        Expr::Let(condition) => Some(condition.let_token.span),
        Expr::Binary(binary) => first_let(&binary.left).or_else(|| first_let(&binary.right)),
        _ => None,
    }
}
