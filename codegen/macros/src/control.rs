//! Expansions of `if`, `&&`, `||`, loops and jumps.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{
    Block, Expr, ExprBinary, ExprBlock, ExprBreak, ExprContinue, ExprForLoop, ExprIf, ExprLoop,
    ExprMethodCall, ExprRange, ExprReturn, ExprWhile, Ident, Label, Lifetime, Pat, RangeLimits,
};

use crate::assigned::iterated_place;
use crate::returns;
use crate::rewriter::{Loop, Position, Rewriter};
use crate::scope::Slot;
use crate::sides::convert_constants;
use crate::syntax::{is_mut_borrow, is_unsigned_literal};

impl Rewriter<'_> {
    /// Expands `if`: both branches are recorded, each at most once.
    pub fn if_(&mut self, mut branch: ExprIf, position: Position) -> Expr {
        if position != Position::Statement {
            convert_constants(&mut branch, self.expected.is_some());
        }
        if has_let(&branch.cond) {
            return self.plain_if(branch, position);
        }
        let ExprIf { attrs, if_token, mut cond, then_branch, else_branch } = branch;
        let span = if_token.span;
        self.expression(&mut cond, Position::Operand);
        let slots = self.region(|assigned| {
            assigned.visit_block(&then_branch);
            if let Some((_, other)) = &else_branch {
                assigned.visit_expr(other);
            }
        });

        let else_span = else_branch.as_ref().map_or(span, |(token, _)| token.span);
        let then_diverges = returns::block_diverges(&then_branch);
        let else_diverges = else_branch.as_ref().is_some_and(|(_, other)| returns::diverges(other));
        let value = if else_branch.is_some() { position.of_tail() } else { Position::Statement };
        // A branch that ends in a jump has no value. Recording continues after a run-time jump, so an `if` statement
        // with such a branch has the value `()`.
        let no_value = match value {
            Position::Statement => quote_spanned!(span=> ::core::option::Option::Some(())),
            _ if then_diverges && else_diverges => quote_spanned!(span=> ::core::option::Option::None::<()>),
            _ => quote_spanned!(span=> ::core::option::Option::None),
        };
        let diverges = then_diverges || else_diverges;
        let branch_value = |rewriter: &mut Self, expression: &mut Expr, jumps: bool, span: Span| {
            rewriter.expression(expression, if jumps { Position::Statement } else { value });
            if jumps || (diverges && value == Position::Statement) {
                quote_spanned!(span=> { #expression #no_value })
            } else {
                quote_spanned!(span=> ::core::option::Option::Some(#expression))
            }
        };
        let number = self.fresh();
        let [handle, then, other] =
            ["__if", "__then", "__else"].map(|stem| format_ident!("{stem}{number}", span = span));
        let mut then_branch = Expr::Block(ExprBlock { attrs: Vec::new(), label: None, block: then_branch });
        let then_value = branch_value(self, &mut then_branch, then_diverges, span);
        let else_value = match else_branch {
            Some((_, mut other)) => branch_value(self, &mut other, else_diverges, else_span),
            None => quote_spanned!(span=> ::core::option::Option::Some(())),
        };

        let list = self.slot_list(None, &slots, span);
        let else_list = self.slot_list(None, &slots, else_span);
        let enter_else = quote_spanned!(else_span=> #handle.enter_else(#else_list));
        let none = quote_spanned!(span=> ::core::option::Option::None);
        // The expected type is set before either branch is checked, so that a type error is reported at a branch's
        // value.
        let none = match &self.expected {
            Some(expected) if value == Position::Value && !(then_diverges && else_diverges) => {
                quote_spanned!(span=> ::bespoke_codegen::hooks::no_values(#expected))
            }
            _ => quote_spanned!(span=> [#none, #none]),
        };
        Expr::Verbatim(quote_spanned! {span=> #(#attrs)* {
            let mut #handle = (&::bespoke_codegen::hooks::condition(#cond)).begin_if(#list);
            let [mut #then, mut #other] = #none;
            if #handle.enter_then() { #then = #then_value; }
            if #enter_else { #other = #else_value; }
            #handle.finish(#list, #then, #other)
        }})
    }

    /// Keeps `if let` and let chains as plain Rust: the branch is chosen while recording. Only the expressions in the
    /// condition and in the blocks are rewritten.
    fn plain_if(&mut self, mut branch: ExprIf, position: Position) -> Expr {
        let value = position.of_tail();
        let mark = self.scope.enter();
        self.let_chain(&mut branch.cond);
        self.block(&mut branch.then_branch, value);
        self.scope.leave(mark);
        if let Some((_, other)) = &mut branch.else_branch {
            self.expression(other, value);
        }
        Expr::If(branch)
    }

    /// Expands `&&` and `||` into an `if` with a value and a single branch.
    pub fn short_circuit(&mut self, binary: ExprBinary, stem: &str) -> Expr {
        let span = binary.op.span();
        let ExprBinary { attrs, mut left, mut right, .. } = binary;
        self.expression(&mut left, Position::Operand);
        let slots = self.region(|assigned| assigned.visit_expr(&right));
        self.expression(&mut right, Position::Operand);
        let number = self.fresh();
        let begin = format_ident!("begin_{stem}", span = span);
        let handle = format_ident!("__{stem}{number}", span = span);
        let value = format_ident!("__right{number}", span = span);
        let list = self.slot_list(None, &slots, span);
        Expr::Verbatim(quote_spanned! {span=> #(#attrs)* {
            let #handle = ::bespoke_codegen::hooks::#begin(#left, #list);
            let #value = if #handle.enter() { #handle.right(#right) } else { ::core::option::Option::None };
            #handle.finish(#list, #value)
        }})
    }

    /// Expands `while`.
    pub fn while_(&mut self, repeat: ExprWhile) -> Expr {
        let ExprWhile { attrs, label, while_token, mut cond, mut body } = repeat;
        let span = while_token.span;
        let slots = self.region(|assigned| {
            assigned.visit_expr(&cond);
            assigned.visit_block(&body);
        });
        self.expression(&mut cond, Position::Operand);
        let list = self.slot_list(None, &slots, span);
        let (context, label) = self.loop_body(label, slots, &mut body, span, false);
        let handle = context.handle;
        let condition = quote_spanned!(cond.span()=> ::bespoke_codegen::hooks::condition_type(|| #cond));
        // The type of the condition selects a compile-time or run-time loop before the condition is first evaluated.
        Expr::Verbatim(quote_spanned! {span=> #(#attrs)* {
            let mut #handle = (&#condition).begin_while(#list);
            #label loop {
                if !#handle.test(#cond, #list) { break; }
                #body
                if #handle.next(#list) { break; }
            }
            #handle.finish(#list);
        }})
    }

    /// Expands `loop`, which is always a run-time loop.
    pub fn loop_(&mut self, repeat: ExprLoop, position: Position) -> Expr {
        let ExprLoop { attrs, label, loop_token, mut body } = repeat;
        let span = loop_token.span;
        if position != Position::Statement {
            self.error(
                span,
                "a recorded `loop` has no value: `break` out of it, and write the value after it",
            );
        }
        let slots = self.region(|assigned| assigned.visit_block(&body));
        let list = self.slot_list(None, &slots, span);
        let (context, label) = self.loop_body(label, slots, &mut body, span, false);
        let handle = context.handle;
        Expr::Verbatim(quote_spanned! {span=> #(#attrs)* {
            let mut #handle = ::bespoke_codegen::hooks::begin_loop(#list);
            #label loop {
                #body
                if #handle.next(#list) { break; }
            }
            #handle.finish(#list);
        }})
    }

    /// Expands `for`: unrolls a Rust iterator, or records a loop over a run-time range.
    pub fn for_(&mut self, repeat: ExprForLoop) -> Expr {
        let ExprForLoop { attrs, label, for_token, pat, mut expr, mut body, .. } = repeat;
        let span = for_token.span;
        let mark = self.scope.enter();
        if let Some(place) = iterated_place(&expr) {
            self.scope.borrow(place);
        }
        let slots = self.region(|assigned| assigned.visit_item_body(&pat, &body));
        let list = self.slot_list(None, &slots, span);
        self.bind_item(&pat, &expr);
        let (context, label) = self.loop_body(label, slots, &mut body, span, true);
        self.scope.leave(mark);
        let iterated = self.iterated(&mut expr);

        let handle = context.handle;
        let item = format_ident!("{handle}_item", span = span);
        Expr::Verbatim(quote_spanned! {span=> #(#attrs)* {
            let mut #handle = (&::bespoke_codegen::hooks::ForOf::new(#iterated)).for_loop();
            #label loop {
                let ::core::option::Option::Some(#item) = #handle.next_item(#list) else { break };
                { let #pat = #item; #body }
                #handle.end_item(#list);
            }
            #handle.finish(#list);
        }})
    }

    /// Declares the loop variables of a `for` over `iterated`.
    fn bind_item(&mut self, pattern: &Pat, iterated: &Expr) {
        let by_mut = match iterated {
            Expr::MethodCall(call) => call.method == "iter_mut",
            _ => is_mut_borrow(iterated),
        };
        self.scope.bind_pattern(pattern, by_mut && matches!(pattern, Pat::Ident(_)));
    }

    /// Rewrites the body of a loop; returns the loop, and its label if a jump uses the label.
    fn loop_body(
        &mut self,
        written: Option<Label>,
        slots: Vec<Slot>,
        body: &mut Block,
        span: Span,
        counted: bool,
    ) -> (Loop, Option<TokenStream>) {
        let handle = format_ident!("__loop{}", self.fresh(), span = span);
        let label = Lifetime::new(&format!("'{handle}"), span);
        let written = written.map(|label| label.name);
        self.loops.push(Loop { written, label, handle, slots, counted, jumped: false });
        self.block(body, Position::Statement);
        let context = self.loops.pop().expect("pushed above");
        let label = context.jumped.then(|| {
            let label = &context.label;
            quote_spanned!(span=> #label:)
        });
        (context, label)
    }

    /// Rewrites the iterator of a `for`: a Rust range becomes a range of `hooks`, which also takes handles.
    fn iterated(&mut self, iterated: &mut Expr) -> TokenStream {
        if let Some(tokens) = self.adapted_range(iterated) {
            return tokens;
        }
        self.expression(iterated, Position::Operand);
        iterated.to_token_stream()
    }

    /// `a..b` with any of `rev`, `step_by` and `unroll`, as a range of `hooks`.
    fn adapted_range(&mut self, iterated: &mut Expr) -> Option<TokenStream> {
        match iterated {
            Expr::Range(range) => self.range(range),
            Expr::Paren(paren) => self.adapted_range(&mut paren.expr),
            Expr::MethodCall(ExprMethodCall { receiver, method, args, .. })
                if method == "step_by" || method == "rev" || (method == "unroll" && args.len() == 1) =>
            {
                let range = self.adapted_range(receiver).or_else(|| {
                    // A Rust range of two literals.
                    let Expr::Paren(paren) = &mut **receiver else { return None };
                    (method == "unroll" && matches!(*paren.expr, Expr::Range(_)))
                        .then(|| receiver.to_token_stream())
                })?;
                args.iter_mut().for_each(|argument| self.expression(argument, Position::Operand));
                Some(if method == "unroll" {
                    quote_spanned!(method.span()=> ::bespoke_codegen::hooks::unroll(#range, #args))
                } else {
                    quote_spanned!(method.span()=> #range.#method(#args))
                })
            }
            _ => None,
        }
    }

    /// `a..b` as a range of `hooks`. A range of two literals stays a Rust range, so that its type is inferred.
    fn range(&mut self, range: &mut ExprRange) -> Option<TokenStream> {
        let ExprRange { start: Some(start), limits, end: Some(end), .. } = range else { return None };
        let (span, inclusive) = match limits {
            RangeLimits::HalfOpen(dots) => (dots.span(), ""),
            RangeLimits::Closed(dots) => (dots.span(), "_inclusive"),
        };
        let literal = is_unsigned_literal(start);
        if literal && matches!(**end, Expr::Lit(_)) {
            return None;
        }
        let from_literal = if literal { "_from_literal" } else { "" };
        let hook = Ident::new(&format!("range{inclusive}{from_literal}"), span);
        self.expression(start, Position::Operand);
        self.expression(end, Position::Operand);
        Some(quote_spanned!(span=> ::bespoke_codegen::hooks::#hook(#start, #end)))
    }

    /// Expands `break`.
    pub fn break_(&mut self, jump: ExprBreak, position: Position) -> Expr {
        let span = jump.break_token.span;
        let Some(index) = self.target(jump.label.as_ref(), span, "break") else { return Expr::Break(jump) };
        let list = self.jump_list(index, span);
        let (handle, label) = self.loop_names(index, span);
        self.jump(
            span,
            "break",
            position,
            |after| quote_spanned!(span=> { if #handle.break_(#list) { break #label; } #after }),
        )
    }

    /// Expands `continue`.
    pub fn continue_(&mut self, jump: ExprContinue, position: Position) -> Expr {
        let span = jump.continue_token.span;
        let Some(index) = self.target(jump.label.as_ref(), span, "continue") else {
            return Expr::Continue(jump);
        };
        let list = self.jump_list(index, span);
        let (handle, label) = self.loop_names(index, span);
        let end = self.loops[index].counted.then(|| quote_spanned!(span=> #handle.end_item(#list);));
        self.jump(
            span,
            "continue",
            position,
            |after| quote_spanned!(span=> { if #handle.continue_(#list) { #end continue #label; } #after }),
        )
    }

    /// Expands `return`.
    pub fn return_(&mut self, mut jump: ExprReturn, position: Position) -> Expr {
        let span = jump.return_token.span;
        let place = jump.expr.as_ref().and_then(|value| self.declared_place(value));
        if let Some(value) = &mut jump.expr {
            // The variable below has the function's type, if an expression can name it.
            let typed = self.frame.as_ref().is_some_and(|frame| frame.expected.is_some());
            if let (Expr::If(branch), true) = (&mut **value, typed) {
                convert_constants(branch, true);
            }
            self.expression(value, Position::Operand);
        }
        let Some(frame) = self.frame.take() else { return Expr::Return(jump) };
        if let (Some(value), Some(place), Some(expected)) = (&mut jump.expr, place, &frame.expected) {
            **value = self.with_expected_type(value, &place, expected);
        }
        let value = match &jump.expr {
            Some(value) => value.to_token_stream(),
            None => quote_spanned!(span=> ()),
        };
        let name = Ident::new("__value", span);
        let list = self.slot_list(Some(&name), &frame.slots, span);
        let ascription = &frame.ascription;
        let jump = self.jump(span, "return", position, |after| {
            quote_spanned! {span=> {
                let mut #name #ascription = #value;
                if __frame.return_(#list) { return #name; }
                #after
            }}
        });
        self.frame = Some(frame);
        jump
    }

    /// Index of the loop that a jump refers to, by label or as the innermost loop.
    fn target(&mut self, label: Option<&Lifetime>, span: Span, word: &str) -> Option<usize> {
        let found = self.loops.iter().rposition(|context| match label {
            Some(label) => context.written.as_ref().is_some_and(|written| written.ident == label.ident),
            None => true,
        });
        match (found, label) {
            (Some(index), _) => self.loops[index].jumped = true,
            (None, Some(label)) if self.block_labels.contains(label) => {}
            (None, Some(label)) => self.error(label.span(), format!("no loop here has the label `{label}`")),
            (None, None) => self.error(span, format!("`{word}` outside of a loop")),
        }
        found
    }

    fn jump_list(&mut self, index: usize, span: Span) -> TokenStream {
        let slots = self.loops[index].slots.clone();
        self.slot_list(None, &slots, span)
    }

    /// The variable with the hook of an enclosing loop, and the loop's label, both with the span of the jump.
    fn loop_names(&self, index: usize, span: Span) -> (Ident, Lifetime) {
        let Loop { handle, label, .. } = &self.loops[index];
        (Ident::new(&handle.to_string(), span), Lifetime::new(&label.to_string(), span))
    }

    /// The expansion of a jump, built by `block` from the code that follows if recording does not take the jump.
    fn jump(
        &mut self,
        span: Span,
        word: &str,
        position: Position,
        block: impl FnOnce(TokenStream) -> TokenStream,
    ) -> Expr {
        Expr::Verbatim(match position {
            Position::Statement => block(TokenStream::new()),
            // The jump is the value of a `match` arm or of an `if let`. Recording continues after a run-time jump and
            // would need a value here.
            Position::Value => {
                let message = format!(
                    "a run-time `{word}` cannot take the place of a value: make it a statement of its own"
                );
                block(quote_spanned!(span=> ::core::panic!(#message)))
            }
            Position::Operand => {
                self.error(span, format!("`{word}` must be a statement of its own"));
                TokenStream::new()
            }
        })
    }
}

/// Whether a condition contains `let`.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}
