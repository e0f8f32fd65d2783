//! The names that patterns and parameters bind, and how code can assign through each.

use syn::{FnArg, Ident, Pat, ReceiverKind};

use crate::syntax::is_mut_reference;

/// How code can assign through a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingKind {
    /// `let mut x` or a `mut` parameter: assigned directly.
    Mutable,
    /// A `&mut T` visible in the syntax: a parameter, `&mut self`, `let r = &mut x`.
    MutReference,
    /// Any other binding. Code that assigns through the binding (`*p = …`, `p.f = …`) shows that it is a `&mut`.
    Other,
}

/// The names that a parameter binds, with the kind of each.
pub fn parameter_bindings(input: &FnArg) -> Vec<(Ident, BindingKind)> {
    match input {
        FnArg::Receiver(receiver) => {
            let by_mut = match &receiver.kind {
                ReceiverKind::Reference(_, _, mutability) => mutability.is_some(),
                ReceiverKind::Typed(_, ty) => is_mut_reference(ty),
                _ => false,
            };
            let kind = match (by_mut, receiver.mutability) {
                (true, _) => BindingKind::MutReference,
                (false, Some(_)) => BindingKind::Mutable,
                (false, None) => BindingKind::Other,
            };
            vec![(Ident::new("self", receiver.self_token.span), kind)]
        }
        FnArg::Typed(typed) => pattern_bindings(&typed.pat, is_mut_reference(&typed.ty)),
    }
}

/// The names that `pattern` binds; `by_mut` states whether the matched value is a `&mut`.
pub fn pattern_bindings(pattern: &Pat, by_mut: bool) -> Vec<(Ident, BindingKind)> {
    let mut found = Vec::new();
    collect_bindings(pattern, by_mut, &mut found);
    found
}

fn collect_bindings(pattern: &Pat, by_mut: bool, found: &mut Vec<(Ident, BindingKind)>) {
    let mut inner = |pattern: &Pat| collect_bindings(pattern, false, found);
    match pattern {
        Pat::Ident(name) => {
            if let Some((_, inside)) = &name.subpat {
                inner(inside);
            }
            // A lone capitalised name in a pattern is a constant or a unit variant.
            if name.ident.to_string().starts_with(char::is_uppercase) {
                return;
            }
            let kind = match (&name.by_ref, &name.mutability) {
                _ if by_mut => BindingKind::MutReference,
                (Some(_), Some(_)) => BindingKind::MutReference,
                (None, Some(_)) => BindingKind::Mutable,
                _ => BindingKind::Other,
            };
            found.push((name.ident.clone(), kind));
        }
        Pat::Type(typed) => collect_bindings(&typed.pat, by_mut || is_mut_reference(&typed.ty), found),
        Pat::Paren(paren) => collect_bindings(&paren.pat, by_mut, found),
        Pat::Guard(guard) => inner(&guard.pat),
        Pat::Reference(reference) => inner(&reference.pat),
        // Every alternative of an or-pattern binds the same names.
        Pat::Or(or) => or.cases.iter().take(1).for_each(inner),
        Pat::Slice(slice) => slice.elems.iter().for_each(inner),
        Pat::Tuple(tuple) => tuple.elems.iter().for_each(inner),
        Pat::TupleStruct(tuple) => tuple.elems.iter().for_each(inner),
        Pat::Struct(fields) => fields.fields.iter().for_each(|field| inner(&field.pat)),
        _ => {}
    }
}
