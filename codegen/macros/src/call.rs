//! `#[device(call)]`: a function that is called.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{FnArg, Ident, Pat, PatIdent, PatType, ReturnType, Signature, Type};

use crate::errors::Errors;
use crate::syntax::returns_impl_trait;

/// The names of the parameters. Reports parameters and results that a call cannot pass.
pub fn names(signature: &Signature, errors: &mut Errors) -> Vec<Ident> {
    let mut names = Vec::new();
    for input in &signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                errors.push(
                    receiver.span(),
                    "a function with `#[device(call)]` has no `self`: pass the fields that it uses",
                );
            }
            FnArg::Typed(PatType { ty, .. }) if matches!(**ty, Type::Reference(_) | Type::ImplTrait(_)) => {
                errors.push(
                    ty.span(),
                    "a function with `#[device(call)]` takes handles, structs of them and compile-time values, not \
                     references and closures: return what it changes, or write `#[device]`, which is inlined",
                );
            }
            FnArg::Typed(PatType { pat, .. }) => match &**pat {
                Pat::Ident(PatIdent { ident, by_ref: None, subpat: None, .. }) => names.push(ident.clone()),
                pat => errors.push(pat.span(), "a parameter of a function with `#[device(call)]` is a name"),
            },
        }
    }
    if returns_impl_trait(&signature.output) {
        errors.push(
            signature.output.span(),
            "a function with `#[device(call)]` returns handles: write their type",
        );
    }
    names
}

/// The expansion of the function's body, which records a call.
pub fn body(signature: &Signature, names: &[Ident], body: &TokenStream) -> TokenStream {
    let span = signature.ident.span();
    let name = signature.ident.to_string();
    let slots: Vec<TokenStream> = names
        .iter()
        .map(|ident| {
            let text = ident.to_string();
            quote_spanned!(span=> (&::bespoke_codegen::hooks::SlotOf::new(#text, &mut #ident)).slot())
        })
        .collect();
    let output = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, ty) => quote!(#ty),
    };
    let result =
        quote_spanned!(span=> (&::bespoke_codegen::hooks::SlotOf::new("result", &mut __result)).slot());
    quote_spanned! {span=>
        let __site = ::core::panic::Location::caller();
        // A closure is not `#[track_caller]`: this is the line of the function's name.
        let __definition = (|| ::core::panic::Location::caller())();
        #(#[allow(unused_mut)] let mut #names = #names;)*
        let mut __returned: ::core::option::Option<#output> = ::core::option::Option::None;
        let __values = {
            let __passed = (#(::core::clone::Clone::clone(&#names),)*);
            let __arguments = [#(#slots),*];
            ::bespoke_codegen::hooks::call(#name, __definition, __site, &__arguments, &mut || {
                #[allow(unused_mut)]
                let (#(mut #names,)*) = ::core::clone::Clone::clone(&__passed);
                ::bespoke_codegen::hooks::call_parameters(&mut [#(#slots),*]);
                let mut __result: #output = (move || -> #output { #body })();
                ::bespoke_codegen::hooks::call_results(&[#result]);
                __returned = ::core::option::Option::Some(__result);
            })
        };
        let mut __result = __returned.expect("the function has returned");
        ::bespoke_codegen::hooks::returned(&mut [#result], &__values);
        __result
    }
}
