//! `#[kernel]`: a function that records a kernel.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::Parser;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{
    Attribute, Expr, ExprClosure, ExprReturn, FnArg, GenericArgument, Ident, Item, ItemFn, PatType,
    PathArguments, Receiver, ReturnType, Signature, Token, Type, parse_quote_spanned,
};

use crate::device::{not_a_function, with_errors};
use crate::errors::Errors;
use crate::rewrite;
use crate::syntax::{impl_trait, names_type, plain_name};
use crate::unsupported;

const PRESENT_NEEDS_OPTION: &str = "`#[present(…)]` goes on a parameter of type `Option<Ptr<Global, T>>`";

/// The expansion of `#[kernel]`.
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
    let (run_time, mut outer) = split(&sig);
    for option in [&options.threads, &options.min_blocks, &options.cluster].into_iter().flatten() {
        RunTimeNames { run_time: &run_time, errors: &mut errors }.visit_expr(option);
    }
    let parameters = parameters(&run_time, &mut errors);
    check_compile_time(&mut outer, &mut errors);
    let body = rewrite::body(&sig, &ReturnType::Default, *block, &mut errors);
    attrs.extend(documentation(&run_time));
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
    let (threads, min_blocks) = (option(options.threads), option(options.min_blocks));
    let (cluster, allow_spills) = (option(options.cluster), option(options.allow_spills));
    let span = sig.ident.span();
    let options = quote_spanned! {span=>
        ::bespoke_codegen::hooks::KernelOptions {
            threads: #threads, min_blocks: #min_blocks, cluster: #cluster, allow_spills: #allow_spills
        }
    };
    // Not `#[track_caller]`: the hook records the line of the kernel's name.
    let call = quote_spanned! {span=>
        ::bespoke_codegen::hooks::record_kernel(#name, #options, || { #parameters #body })
    };
    quote! {
        #(#attrs)*
        #lints
        #vis #outer {
            #imports
            #call
        }
    }
}

/// The options in `#[kernel(…)]`.
#[derive(Default)]
struct Options {
    threads: Option<Expr>,
    min_blocks: Option<Expr>,
    cluster: Option<Expr>,
    allow_spills: Option<Expr>,
}

/// `threads = expr, min_blocks = expr, cluster = expr, allow_spills = expr`.
fn options(arguments: TokenStream, errors: &mut Errors) -> Options {
    let mut options = Options::default();
    let parser = syn::meta::parser(|meta| {
        let (name, slot) = if meta.path.is_ident("threads") {
            ("threads", &mut options.threads)
        } else if meta.path.is_ident("min_blocks") {
            ("min_blocks", &mut options.min_blocks)
        } else if meta.path.is_ident("cluster") {
            ("cluster", &mut options.cluster)
        } else if meta.path.is_ident("allow_spills") {
            ("allow_spills", &mut options.allow_spills)
        } else {
            let path = meta.path.to_token_stream();
            return Err(meta.error(format!(
                "`#[kernel]` takes `threads = …`, `min_blocks = …`, `cluster = …` and `allow_spills = …`, not `{path}`"
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

/// Reports what a kernel's signature cannot contain.
fn check(signature: &Signature, errors: &mut Errors) {
    unsupported::check_signature(signature, errors);
    if let ReturnType::Type(_, ty) = &signature.output {
        errors.push(ty.span(), "a kernel returns nothing: store results through a pointer");
    }
}

/// Reports `return` with a value.
struct Returns<'e>(&'e mut Errors);

impl<'ast> Visit<'ast> for Returns<'_> {
    fn visit_expr_return(&mut self, jump: &'ast ExprReturn) {
        if let Some(value) = &jump.expr {
            let message =
                "a kernel returns nothing: store results through a pointer, and leave with `return;`";
            self.0.push(value.span(), message);
        }
    }
    // `return` in a closure is reported elsewhere.
    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}
    fn visit_item(&mut self, _: &'ast Item) {}
}

/// Reports run-time parameters in an option of `#[kernel]`.
struct RunTimeNames<'a> {
    run_time: &'a [PatType],
    errors: &'a mut Errors,
}

impl<'ast> Visit<'ast> for RunTimeNames<'_> {
    fn visit_ident(&mut self, name: &'ast Ident) {
        let is_run_time = |parameter: &PatType| plain_name(&parameter.pat).is_some_and(|own| own == name);
        if self.run_time.iter().any(is_run_time) {
            let message = format!(
                "`{name}` is known only on the GPU: write an expression of compile-time parameters and constants"
            );
            self.errors.push(name.span(), message);
        }
    }
}

/// Whether the launch passes a parameter of this type.
fn is_run_time(ty: &Type) -> bool {
    names_type(ty, "Ptr") || names_type(ty, "Val") || is_optional_pointer(ty)
}

/// Whether the type is spelled `Option<Ptr<…>>`.
fn is_optional_pointer(ty: &Type) -> bool {
    match ty {
        Type::Path(path) if names_type(ty, "Option") => {
            let arguments = path.path.segments.last().map(|last| &last.arguments);
            let Some(PathArguments::AngleBracketed(arguments)) = arguments else { return false };
            matches!(arguments.args.first(), Some(GenericArgument::Type(inner)) if names_type(inner, "Ptr"))
        }
        Type::Group(group) => is_optional_pointer(&group.elem),
        Type::Paren(paren) => is_optional_pointer(&paren.elem),
        _ => false,
    }
}

/// Reports and removes attributes of run-time parameters on compile-time parameters.
fn check_compile_time(outer: &mut Signature, errors: &mut Errors) {
    for input in &mut outer.inputs {
        let (FnArg::Typed(PatType { attrs, .. }) | FnArg::Receiver(Receiver { attrs, .. })) = input;
        attrs.retain(|attr| {
            let message = if attr.path().is_ident("present") {
                PRESENT_NEEDS_OPTION
            } else if attr.path().is_ident("aligned") {
                "`#[aligned(…)]` goes on a parameter of type `Ptr<Global, T>`"
            } else {
                return true;
            };
            errors.push(attr.path().span(), message);
            false
        });
    }
}

/// The run-time parameters, and the signature that is left without them.
fn split(signature: &Signature) -> (Vec<PatType>, Signature) {
    let mut outer = signature.clone();
    let mut run_time = Vec::new();
    outer.inputs = signature
        .inputs
        .iter()
        .filter(|input| match input {
            FnArg::Typed(typed) if is_run_time(&typed.ty) => {
                run_time.push(typed.clone());
                false
            }
            // `self` is known while recording.
            FnArg::Typed(_) | FnArg::Receiver(_) => true,
        })
        .cloned()
        .collect();
    outer.output = parse_quote_spanned!(signature.ident.span()=> -> ::bespoke_codegen::Recorded);
    (run_time, outer)
}

/// The `let`s that declare the run-time parameters.
fn parameters(run_time: &[PatType], errors: &mut Errors) -> TokenStream {
    let mut lets = TokenStream::new();
    for parameter in run_time {
        let PatType { pat, ty, .. } = parameter;
        if let Some(span) = impl_trait(ty) {
            errors.push(
                span,
                "a run-time parameter cannot be `impl Trait`: name a type, or make the kernel generic over it",
            );
        }
        let Some(ident) = plain_name(pat) else {
            errors.push(pat.span(), "a run-time parameter must be a plain name, which the launch uses");
            continue;
        };
        let name = ident.to_string();
        let ParameterAttributes { aligned, present, others } = ParameterAttributes::of(parameter, errors);
        if let Some(condition) = &present {
            RunTimeNames { run_time, errors }.visit_expr(condition);
        }
        let declared = match aligned {
            Some(bytes) => {
                quote_spanned!(ty.span()=> ::bespoke_codegen::hooks::aligned_parameter(#name, #bytes))
            }
            None => quote_spanned!(ident.span()=> ::bespoke_codegen::hooks::parameter(#name)),
        };
        let declared = match present {
            Some(condition) => quote_spanned! {condition.span()=>
                if #condition { ::core::option::Option::Some(#declared) } else { ::core::option::Option::None }
            },
            None => declared,
        };
        lets.extend(quote!(#(#others)* let #pat: #ty = #declared;));
    }
    lets
}

/// The attributes of a run-time parameter.
struct ParameterAttributes<'a> {
    /// N of `#[aligned(N)]`.
    aligned: Option<Expr>,
    /// The condition of `#[present(condition)]`.
    present: Option<Expr>,
    others: Vec<&'a Attribute>,
}

impl<'a> ParameterAttributes<'a> {
    fn of(parameter: &'a PatType, errors: &mut Errors) -> ParameterAttributes<'a> {
        let mut attributes = ParameterAttributes { aligned: None, present: None, others: Vec::new() };
        let optional = is_optional_pointer(&parameter.ty);
        let mut says_present = false;
        for attr in &parameter.attrs {
            let (name, slot, example) = if attr.path().is_ident("aligned") {
                ("aligned", &mut attributes.aligned, "needs a number of bytes: `#[aligned(16)]`")
            } else if attr.path().is_ident("present") {
                says_present = true;
                if !optional {
                    errors.push(attr.path().span(), PRESENT_NEEDS_OPTION);
                }
                (
                    "present",
                    &mut attributes.present,
                    "needs a compile-time condition: `#[present(shape.has_bias)]`",
                )
            } else {
                attributes.others.push(attr);
                continue;
            };
            match attr.parse_args() {
                Ok(_) if slot.is_some() => {
                    errors.push(attr.path().span(), format!("`{name}` is given twice"))
                }
                Ok(value) => *slot = Some(value),
                Err(_) => errors.push(attr.path().span(), format!("`{name}` {example}")),
            }
        }
        if optional && !says_present {
            errors.push(
                parameter.ty.span(),
                "an optional pointer needs a compile-time condition that says when the kernel has it: write \
                 `#[present(condition)]` before the parameter",
            );
        }
        attributes
    }
}

/// Documentation of the run-time parameters, which the generated function does not have.
fn documentation(run_time: &[PatType]) -> Vec<syn::Attribute> {
    if run_time.is_empty() {
        return Vec::new();
    }
    let parameters: Vec<String> = run_time.iter().map(documented).collect();
    let line = format!(" Run-time parameters: {}.", parameters.join(", "));
    vec![syn::parse_quote!(#[doc = ""]), syn::parse_quote!(#[doc = #line])]
}

/// A parameter and the condition of an optional one, in Markdown.
fn documented(parameter: &PatType) -> String {
    let PatType { attrs, pat, ty, .. } = parameter;
    let text = format!("`{}`", spelled(quote!(#pat: #ty)));
    let condition = attrs.iter().find(|attr| attr.path().is_ident("present"));
    match condition.and_then(|attr| attr.parse_args::<Expr>().ok()) {
        Some(condition) => format!("{text} (present if `{}`)", spelled(quote!(#condition))),
        None => text,
    }
}

/// Tokens as one writes them: `TokenStream` prints a space between any two.
fn spelled(tokens: TokenStream) -> String {
    let spaces =
        [(" :: ", "::"), (" <", "<"), ("< ", "<"), (" >", ">"), (" ,", ","), (" :", ":"), (" . ", ".")];
    let text = tokens.to_string().replace("mut ", "").replace(" ()", "()").replace("! ", "!");
    spaces.iter().fold(text, |text, (from, to)| text.replace(from, to))
}
