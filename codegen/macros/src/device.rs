//! `#[device]`: marks a function whose body is recorded; each call inlines it.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Attribute, Ident, ItemFn, ReturnType, Signature, Visibility};

use crate::call;
use crate::errors::Errors;
use crate::rewrite;
use crate::syntax::returns_impl_trait;
use crate::unsupported;

/// Expands `#[device]`.
pub fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => return not_a_function(error, "#[device]", item),
    };
    let mut errors = Errors::default();
    let calls = match syn::parse2::<Option<Ident>>(arguments.clone()) {
        Ok(Some(word)) if word == "call" => true,
        Ok(None) => false,
        _ => {
            let span = arguments.into_iter().next().map_or_else(Span::call_site, |token| token.span());
            errors
                .push(span, "`#[device]` takes `call` or nothing: `#[device(call)]` is called, not inlined");
            false
        }
    };
    let ItemFn { attrs, vis, sig, block, .. } = function;
    unsupported::check_signature(&sig, &mut errors);
    let names = if calls { call::names(&sig, &mut errors) } else { Vec::new() };
    let body = rewrite::body(&sig, &sig.output, *block, &mut errors);
    if let Some(errors) = errors.into_tokens() {
        return with_errors(errors, &attrs, &vis, &sig);
    }

    let imports = rewrite::imports();
    let lints = rewrite::allowed_lints();
    let track_caller = track_caller(&attrs);
    let name = sig.ident.to_string();
    let span = sig.ident.span();
    // In a `#[track_caller]` function, every call has the line of that function's caller. The body needs its own lines,
    // and gets them in a closure. The bound `FnOnce` lets the closure return what it borrows.
    let scope = quote_spanned! {span=>
        let __scope = ::bespoke_codegen::hooks::enter_device(#name, ::core::panic::Location::caller());
        fn __record<R>(body: impl ::core::ops::FnOnce() -> R) -> R { body() }
    };
    let body = match &sig.output {
        _ if calls => call::body(&sig, &names, &body),
        ReturnType::Default => quote!(#scope __record(move || { #body })),
        output if returns_impl_trait(output) => quote!(#scope __record(move || #body)),
        output => quote!(#scope __record(move || #output #body)),
    };
    quote! {
        #(#attrs)*
        #track_caller
        #lints
        #vis #sig {
            #imports
            #body
        }
    }
}

/// The attribute `#[track_caller]`, unless the function already has it.
fn track_caller(attrs: &[Attribute]) -> Option<TokenStream> {
    let present = attrs.iter().any(|attribute| attribute.path().is_ident("track_caller"));
    (!present).then(|| quote!(#[track_caller]))
}

/// The error messages, and the function with a body that fits any return type, so that its callers get no errors.
pub fn with_errors(
    errors: TokenStream,
    attrs: &[Attribute],
    vis: &Visibility,
    sig: &Signature,
) -> TokenStream {
    quote! {
        #errors
        #(#attrs)*
        #[allow(unused_variables, unused_mut, clippy::diverging_sub_expression)]
        #vis #sig {
            ::core::unreachable!()
        }
    }
}

/// Reports an attribute on an item that is not a function, and emits the item unchanged.
pub fn not_a_function(error: syn::Error, attribute: &str, item: TokenStream) -> TokenStream {
    let mut error = error;
    error.combine(syn::Error::new(error.span(), format!("`{attribute}` goes on a function with a body")));
    let error = error.into_compile_error();
    quote!(#error #item)
}
