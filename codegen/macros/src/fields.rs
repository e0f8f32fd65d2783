//! `#[derive(Parameters)]`: declares the fields of a struct as parameters of a kernel.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Expr, Field, Index, Member, parse_quote_spanned};

use crate::errors::Errors;
use crate::syntax::names_type;

/// Expands `#[derive(Parameters)]`.
pub fn expand(item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Errors::default();
    let mut declared = Vec::new();
    let mut generics = input.generics.clone();
    match &input.data {
        Data::Struct(data) => {
            let bounds = &mut generics.make_where_clause().predicates;
            for (index, field) in data.fields.iter().enumerate() {
                let member = match &field.ident {
                    Some(name) => Member::Named(name.clone()),
                    None => Member::Unnamed(Index { index: index as u32, span: field.ty.span() }),
                };
                let ty = &field.ty;
                let own = match &member {
                    Member::Named(name) => name.unraw().to_string(),
                    Member::Unnamed(index) => index.index.to_string(),
                };
                let name = quote!(&::std::format!("{}_{}", name, #own));
                let value = match attribute(field, &mut errors) {
                    Some(("aligned", bytes)) => {
                        quote_spanned!(ty.span()=> ::bespoke_codegen::hooks::aligned_parameter(#name, #bytes))
                    }
                    Some((_, sizes)) => {
                        quote_spanned!(ty.span()=> ::bespoke_codegen::hooks::tiled_parameter(#name, #sizes))
                    }
                    None => {
                        bounds.push(parse_quote_spanned!(ty.span()=> #ty: ::bespoke_codegen::Parameters));
                        quote_spanned!(ty.span()=> <#ty as ::bespoke_codegen::Parameters>::declare(#name))
                    }
                };
                declared.push(quote!(#member: #value));
            }
        }
        Data::Enum(data) => errors.push(
            data.enum_token.span,
            "`Parameters` is for structs: a launch passes no variants; use a struct with a `Val` as discriminant",
        ),
        Data::Union(data) => errors.push(data.union_token.span, "`Parameters` is for structs"),
    }
    if let Some(errors) = errors.into_tokens() {
        return errors;
    }

    let ident = &input.ident;
    let (parameters, arguments, conditions) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #parameters ::bespoke_codegen::Parameters for #ident #arguments #conditions {
            #[track_caller]
            #[allow(unused_variables)]
            fn declare(name: &str) -> Self {
                #ident { #(#declared),* }
            }
        }
    }
}

/// The name and the argument of the field's `#[aligned(…)]` or `#[tile(…)]`.
fn attribute(field: &Field, errors: &mut Errors) -> Option<(&'static str, Expr)> {
    let mut found = None;
    for attr in &field.attrs {
        let (name, example) = if attr.path().is_ident("aligned") {
            ("aligned", "needs a number of bytes: `#[aligned(16)]`")
        } else if attr.path().is_ident("tile") {
            ("tile", "needs the elements along each dimension: `#[tile([64, 128])]`")
        } else {
            continue;
        };
        match attr.parse_args() {
            Ok(_) if found.is_some() => {
                errors.push(attr.path().span(), "a field takes one `#[aligned(…)]` or `#[tile(…)]`")
            }
            Ok(value) => found = Some((name, value)),
            Err(_) => errors.push(attr.path().span(), format!("`{name}` {example}")),
        }
    }
    if names_type(&field.ty, "TensorMap") && !matches!(found, Some(("tile", _))) {
        errors.push(
            field.ty.span(),
            "a tensor map needs the sizes of its tiles: write `#[tile([64, 128])]`, with the elements along each \
             dimension, before the field",
        );
    }
    found
}
