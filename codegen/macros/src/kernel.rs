//! `#[kernel]`: turns a function into one that records a kernel.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Expr, ExprClosure, ExprReturn, Item, ItemFn, ReturnType, Signature, Token, parse_quote_spanned};

use crate::device::{not_a_function, with_errors};
use crate::errors::Errors;
use crate::parameters::{self, RunTimeNames};
use crate::rewrite;
use crate::unsupported;

/// Expands `#[kernel]`.
pub fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => return not_a_function(error, "#[kernel]", item),
    };
    let mut errors = Errors::default();
    let options = options(arguments, &mut errors);
    let ItemFn { mut attrs, vis, sig, block, .. } = function;
    check(&sig, &mut errors);
    Returns(&mut errors).visit_block(&block);
    let (run_time, mut outer) = parameters::split(&sig);
    let Options { threads, min_blocks, max_registers, cluster, allow_spills } = &options;
    for option in [threads, min_blocks, max_registers, cluster, allow_spills].into_iter().flatten() {
        RunTimeNames { run_time: &run_time, errors: &mut errors }.visit_expr(option);
    }
    let parameters = parameters::declarations(&run_time, &mut errors);
    parameters::check_compile_time(&mut outer, &mut errors);
    let repeated = parameters::repeated(&mut outer);
    let checked = parameters::checked(&outer);
    let body = rewrite::body(&sig, &ReturnType::Default, *block, &mut errors);
    attrs.extend(parameters::documentation(&run_time));
    if let Some(errors) = errors.into_tokens() {
        return with_errors(errors, &attrs, &vis, &outer);
    }

    let imports = rewrite::imports();
    let lints = rewrite::allowed_lints();
    let name = sig.ident.to_string();
    let option = |value: Option<Expr>| match value {
        Some(value) => quote_spanned!(value.span()=> ::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    };
    let threads = option(options.threads.map(|size| {
        let span = size.span();
        parse_quote_spanned!(span=> ::bespoke_codegen::hooks::CtaSize::axes(#size))
    }));
    let (min_blocks, max_registers) = (option(options.min_blocks), option(options.max_registers));
    let (cluster, allow_spills) = (option(options.cluster), option(options.allow_spills));
    let span = sig.ident.span();
    let options = quote_spanned! {span=>
        ::bespoke_codegen::hooks::KernelOptions {
            threads: #threads, min_blocks: #min_blocks, max_registers: #max_registers, cluster: #cluster,
            allow_spills: #allow_spills
        }
    };
    // The call is not in a `#[track_caller]` function: its line, recorded with the kernel, is that of the kernel's
    // name.
    let call = quote_spanned! {span=>
        ::bespoke_codegen::hooks::record_kernel(#name, #options, || { #repeated #parameters #body })
    };
    quote! {
        #(#attrs)*
        #lints
        #vis #outer {
            #imports
            #checked
            #call
        }
    }
}

/// The options in `#[kernel(…)]`.
#[derive(Default)]
struct Options {
    threads: Option<Expr>,
    min_blocks: Option<Expr>,
    max_registers: Option<Expr>,
    cluster: Option<Expr>,
    allow_spills: Option<Expr>,
}

/// Parses `threads = expr, min_blocks = expr, max_registers = expr, cluster = expr, allow_spills = expr`.
fn options(arguments: TokenStream, errors: &mut Errors) -> Options {
    let mut options = Options::default();
    let parser = syn::meta::parser(|meta| {
        let (name, slot) = if meta.path.is_ident("threads") {
            ("threads", &mut options.threads)
        } else if meta.path.is_ident("min_blocks") {
            ("min_blocks", &mut options.min_blocks)
        } else if meta.path.is_ident("max_registers") {
            ("max_registers", &mut options.max_registers)
        } else if meta.path.is_ident("cluster") {
            ("cluster", &mut options.cluster)
        } else if meta.path.is_ident("allow_spills") {
            ("allow_spills", &mut options.allow_spills)
        } else {
            let path = meta.path.to_token_stream();
            return Err(meta.error(format!(
                "`#[kernel]` takes `threads = …`, `min_blocks = …`, `max_registers = …`, `cluster = …` and \
                 `allow_spills = …`, not `{path}`"
            )));
        };
        if !meta.input.peek(Token![=]) {
            return Err(meta.error(format!("`{name}` needs a value: `{name} = …`")));
        }
        let value: Expr = meta.value()?.parse()?;
        if slot.replace(value).is_some() {
            return Err(meta.error(format!("`{name}` is given twice")));
        }
        Ok(())
    });
    if let Err(error) = parser.parse2(arguments) {
        errors.add(error);
    }
    options
}

/// Reports parts of a signature that a kernel cannot have.
fn check(signature: &Signature, errors: &mut Errors) {
    unsupported::check_signature(signature, errors);
    if let ReturnType::Type(_, ty) = &signature.output {
        errors.push(ty.span(), "a kernel returns nothing: store results through a pointer");
    }
}

/// Visitor that reports `return` with a value.
struct Returns<'e>(&'e mut Errors);

impl<'ast> Visit<'ast> for Returns<'_> {
    fn visit_expr_return(&mut self, jump: &'ast ExprReturn) {
        if let Some(value) = &jump.expr {
            let message =
                "a kernel returns nothing: store results through a pointer, and leave with `return;`";
            self.0.push(value.span(), message);
        }
    }
    // A `return` in a closure is reported by another check.
    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}
    fn visit_item(&mut self, _: &'ast Item) {}
}
