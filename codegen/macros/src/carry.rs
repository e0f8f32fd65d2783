//! `#[derive(Carry)]`: lets run-time branches and loops carry a struct of handles, field by field.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Field, Fields, Index, Member, Type, TypeReference, parse_quote_spanned};

use crate::errors::Errors;

/// Expands `#[derive(Carry)]`.
pub fn expand(item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Errors::default();
    let carried = match &input.data {
        Data::Struct(data) => carried(&data.fields, &mut errors),
        Data::Enum(data) => {
            errors.push(
                data.enum_token.span,
                "`Carry` is for structs: a run-time branch cannot choose between variants; use a struct with a `Val` \
                 as discriminant",
            );
            Vec::new()
        }
        Data::Union(data) => {
            errors.push(data.union_token.span, "`Carry` is for structs");
            Vec::new()
        }
    };
    if let Some(errors) = errors.into_tokens() {
        return errors;
    }

    let name = &input.ident;
    let mut generics = input.generics.clone();
    let bounds = &mut generics.make_where_clause().predicates;
    for (_, field) in &carried {
        let ty = &field.ty;
        bounds.push(parse_quote_spanned!(ty.span()=> #ty: ::bespoke_codegen::Carry));
    }
    let leaves = carried.iter().map(|(member, field)| {
        quote_spanned!(field.ty.span()=> ::bespoke_codegen::Carry::leaves(&self.#member, out);)
    });
    let restores = carried.iter().map(|(member, field)| {
        quote_spanned!(field.ty.span()=> ::bespoke_codegen::Carry::restore(&mut self.#member, values);)
    });
    let (parameters, arguments, conditions) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #parameters ::bespoke_codegen::Carry for #name #arguments #conditions {
            #[allow(unused_variables)]
            fn leaves(&self, out: &mut ::std::vec::Vec<::bespoke_codegen::ir::Value>) {
                #(#leaves)*
            }
            #[allow(unused_variables)]
            fn restore(&mut self, values: &mut dyn ::core::iter::Iterator<Item = ::bespoke_codegen::ir::Value>) {
                #(#restores)*
            }
        }
    }
}

/// The fields of the struct except those with `#[carry(skip)]`.
fn carried<'f>(fields: &'f Fields, errors: &mut Errors) -> Vec<(Member, &'f Field)> {
    let mut carried = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let mut skip = false;
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("carry")) {
            let parsed = attribute.parse_nested_meta(|meta| {
                if !meta.path.is_ident("skip") {
                    return Err(meta.error("`#[carry]` takes `skip` only"));
                }
                skip = true;
                Ok(())
            });
            if let Err(error) = parsed {
                errors.add(error);
            }
        }
        if let (false, Type::Reference(TypeReference { mutability: Some(_), .. })) = (skip, &field.ty) {
            errors.push(
                field.ty.span(),
                "a field that is a `&mut` is not carried: hold the value itself, or pass the `&mut` beside the struct",
            );
            continue;
        }
        if !skip {
            let member = match &field.ident {
                Some(name) => Member::Named(name.clone()),
                None => Member::Unnamed(Index { index: index as u32, span: field.ty.span() }),
            };
            carried.push((member, field));
        }
    }
    carried
}
