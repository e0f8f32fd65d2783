//! Parameters of a kernel: run-time parameters, which the launch passes, and compile-time parameters.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{
    Attribute, Expr, FnArg, GenericArgument, Ident, Pat, PatIdent, PatType, PathArguments, Receiver,
    Signature, Type, parse_quote_spanned,
};

use crate::errors::Errors;
use crate::syntax::{impl_trait, is_number_type, names_type, plain_name};

const PRESENT_NEEDS_OPTION: &str = "`#[present(…)]` goes on a parameter of type `Option<Ptr<Global, T>>`";

/// Visitor that reports run-time parameters in a compile-time expression.
pub struct RunTimeNames<'a> {
    /// Run-time parameters of the kernel.
    pub run_time: &'a [PatType],
    /// Errors found so far.
    pub errors: &'a mut Errors,
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

/// Whether a parameter of this type is a run-time parameter: `Ptr<…>`, `Val<…>`, `TensorMap<…>` or `Option<Ptr<…>>`.
fn is_run_time(ty: &Type) -> bool {
    ["Ptr", "Val", "TensorMap"].iter().any(|name| names_type(ty, name)) || is_optional_pointer(ty)
}

/// Whether the type is written `Option<Ptr<…>>`.
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

/// Whether the type is `&mut [T]` or `&mut [T; N]` of a number type, as other kernel languages declare outputs.
fn is_output_slice(ty: &Type) -> bool {
    let Type::Reference(reference) = ty else { return false };
    let elements = match &*reference.elem {
        Type::Slice(slice) => &slice.elem,
        Type::Array(array) => &array.elem,
        _ => return false,
    };
    reference.mutability.is_some() && is_number_type(elements)
}

/// Whether a struct whose fields are run-time parameters is passed: `#[parameters]`.
fn is_passed_by_field(parameter: &PatType) -> bool {
    parameter.attrs.iter().any(|attr| attr.path().is_ident("parameters"))
}

/// Reports and removes attributes for run-time parameters that are on compile-time parameters.
pub fn check_compile_time(outer: &mut Signature, errors: &mut Errors) {
    for input in &mut outer.inputs {
        if let FnArg::Typed(PatType { ty, .. }) = &*input
            && is_output_slice(ty)
        {
            let message = "these numbers are the host's while the kernel is recorded: write `Ptr<Global, T>` for memory \
                           that the kernel changes";
            errors.push(ty.span(), message);
        }
        let (FnArg::Typed(PatType { attrs, .. }) | FnArg::Receiver(Receiver { attrs, .. })) = input;
        attrs.retain(|attr| {
            let message = if attr.path().is_ident("present") {
                PRESENT_NEEDS_OPTION
            } else if attr.path().is_ident("aligned") {
                "`#[aligned(…)]` goes on a parameter of type `Ptr<Global, T>`"
            } else if attr.path().is_ident("tile") {
                "`#[tile(…)]` goes on a parameter of type `TensorMap<T, RANK, …>`"
            } else {
                return true;
            };
            errors.push(attr.path().span(), message);
            false
        });
    }
}

/// Splits a signature into its run-time parameters and the signature without them.
pub fn split(signature: &Signature) -> (Vec<PatType>, Signature) {
    let mut outer = signature.clone();
    let mut run_time = Vec::new();
    outer.inputs = signature
        .inputs
        .iter()
        .filter(|input| match input {
            FnArg::Typed(typed) if is_run_time(&typed.ty) || is_passed_by_field(typed) => {
                run_time.push(typed.clone());
                false
            }
            // `self` is a compile-time parameter.
            FnArg::Typed(_) | FnArg::Receiver(_) => true,
        })
        .cloned()
        .collect();
    outer.output = parse_quote_spanned!(signature.ident.span()=> -> ::bespoke_codegen::Recorded);
    (run_time, outer)
}

/// The `let` statements that give each run of the function its own compile-time parameters, where a run may consume or
/// change them. Removes the `mut` that moves to these statements.
pub fn repeated(outer: &mut Signature) -> TokenStream {
    let mut lets = TokenStream::new();
    for input in &mut outer.inputs {
        let FnArg::Typed(PatType { pat, ty, .. }) = input else { continue };
        let by_value = !matches!(**ty, Type::Reference(_));
        let Pat::Ident(PatIdent { by_ref: None, mutability, ident, subpat: None, .. }) = &mut **pat else {
            continue;
        };
        let mutability = mutability.take();
        let value = match (by_value && !is_number_type(ty), &mutability) {
            (true, _) => {
                quote_spanned!(ident.span()=> (&::bespoke_codegen::hooks::Repeated::new(&#ident)).value())
            }
            (false, Some(_)) => quote_spanned!(ident.span()=> #ident),
            (false, None) => continue,
        };
        lets.extend(quote!(#[allow(unused_variables)] let #mutability #ident = #value;));
    }
    lets
}

/// The `let` statements that declare the run-time parameters in the recorded body.
pub fn declarations(run_time: &[PatType], errors: &mut Errors) -> TokenStream {
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
        if is_passed_by_field(parameter) {
            lets.extend(declared_by_field(parameter, ident, errors));
            continue;
        }
        let ParameterAttributes { aligned, tile, present, others } =
            ParameterAttributes::of(parameter, errors);
        for expression in [&present, &tile].into_iter().flatten() {
            RunTimeNames { run_time, errors }.visit_expr(expression);
        }
        let declared = match (aligned, tile) {
            (Some(bytes), _) => {
                quote_spanned!(ty.span()=> ::bespoke_codegen::hooks::aligned_parameter(#name, #bytes))
            }
            (None, Some(sizes)) => {
                quote_spanned!(ty.span()=> ::bespoke_codegen::hooks::tiled_parameter(#name, #sizes))
            }
            (None, None) => quote_spanned!(ident.span()=> ::bespoke_codegen::hooks::parameter(#name)),
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

/// The `let` statement that declares the fields of a struct as run-time parameters.
fn declared_by_field(parameter: &PatType, ident: &Ident, errors: &mut Errors) -> TokenStream {
    let PatType { attrs, pat, ty, .. } = parameter;
    let mut others = Vec::new();
    for attr in attrs {
        let path = attr.path();
        if ["aligned", "tile", "present"].iter().any(|name| path.is_ident(name)) {
            let name = path.get_ident().map(Ident::to_string).unwrap_or_default();
            errors.push(
                path.span(),
                format!("`#[{name}(…)]` does not go with `#[parameters]`: write it before a field"),
            );
        } else if !path.is_ident("parameters") {
            others.push(attr);
        } else if attr.meta.require_path_only().is_err() {
            errors.push(path.span(), "`#[parameters]` takes no arguments");
        }
    }
    let name = ident.to_string();
    let declared = quote_spanned!(ty.span()=> ::bespoke_codegen::hooks::parameters::<#ty>(#name));
    quote!(#(#others)* let #pat: #ty = #declared;)
}

/// Statements that check that compile-time parameters have no handles, for types that certainly are not generic.
pub fn checked(outer: &Signature) -> TokenStream {
    let has_self = outer.receiver().is_some();
    let is_generic = |ident: &Ident| {
        let name = ident.to_string();
        // The parameters of an `impl` are not visible here; they have short or capital names.
        let capitals = name.chars().all(|letter| !letter.is_lowercase());
        name == "Self" || capitals || outer.generics.type_params().any(|own| own.ident == *ident)
    };
    let mut checks = TokenStream::new();
    for input in &outer.inputs {
        let FnArg::Typed(PatType { ty, .. }) = input else { continue };
        let Type::Path(path) = &**ty else { continue };
        let plain = path.qself.is_none()
            && path.path.segments.iter().all(|part| part.arguments.is_none() && !is_generic(&part.ident));
        if plain && !has_self && !is_number_type(ty) {
            checks.extend(quote_spanned!(ty.span()=> ::bespoke_codegen::hooks::compile_time::<#ty>();));
        }
    }
    checks
}

/// Attributes of a run-time parameter, parsed.
struct ParameterAttributes<'a> {
    /// Alignment N in bytes, from `#[aligned(N)]`.
    aligned: Option<Expr>,
    /// Sizes of the tiles of a tensor map, from `#[tile([…])]`.
    tile: Option<Expr>,
    /// Compile-time condition from `#[present(condition)]`.
    present: Option<Expr>,
    others: Vec<&'a Attribute>,
}

impl<'a> ParameterAttributes<'a> {
    fn of(parameter: &'a PatType, errors: &mut Errors) -> ParameterAttributes<'a> {
        let mut attributes =
            ParameterAttributes { aligned: None, tile: None, present: None, others: Vec::new() };
        let optional = is_optional_pointer(&parameter.ty);
        let mut says_present = false;
        for attr in &parameter.attrs {
            let (name, slot, example) = if attr.path().is_ident("aligned") {
                ("aligned", &mut attributes.aligned, "needs a number of bytes: `#[aligned(16)]`")
            } else if attr.path().is_ident("tile") {
                (
                    "tile",
                    &mut attributes.tile,
                    "needs the elements along each dimension: `#[tile([64, 128])]`",
                )
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
        let says_tile = parameter.attrs.iter().any(|attr| attr.path().is_ident("tile"));
        if names_type(&parameter.ty, "TensorMap") && !says_tile {
            errors.push(
                parameter.ty.span(),
                "a tensor map needs the sizes of its tiles: write `#[tile([64, 128])]`, with the elements along each \
                 dimension, before the parameter",
            );
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

/// Doc attributes that describe the run-time parameters, since the generated function does not have them.
pub fn documentation(run_time: &[PatType]) -> Vec<syn::Attribute> {
    if run_time.is_empty() {
        return Vec::new();
    }
    let parameters: Vec<String> = run_time.iter().map(documented).collect();
    let line = format!(" Run-time parameters: {}.", parameters.join(", "));
    vec![syn::parse_quote!(#[doc = ""]), syn::parse_quote!(#[doc = #line])]
}

/// Markdown for a parameter, with its condition if it is optional.
fn documented(parameter: &PatType) -> String {
    let PatType { attrs, pat, ty, .. } = parameter;
    let text = format!("`{}`", spelled(quote!(#pat: #ty)));
    let condition = attrs.iter().find(|attr| attr.path().is_ident("present"));
    match condition.and_then(|attr| attr.parse_args::<Expr>().ok()) {
        Some(condition) => format!("{text} (present if `{}`)", spelled(quote!(#condition))),
        None => text,
    }
}

/// Text of tokens with usual spacing: `TokenStream` prints a space between any two tokens.
fn spelled(tokens: TokenStream) -> String {
    let spaces =
        [(" :: ", "::"), (" <", "<"), ("< ", "<"), (" >", ">"), (" ,", ","), (" :", ":"), (" . ", ".")];
    let text = tokens.to_string().replace("mut ", "").replace(" ()", "()").replace("! ", "!");
    spaces.iter().fold(text, |text, (from, to)| text.replace(from, to))
}
