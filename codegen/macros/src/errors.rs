//! Errors found in one function, reported together.

use proc_macro2::{Span, TokenStream};

/// The errors found so far, each with its span.
#[derive(Default)]
pub struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds an error with the text `message` at `span`.
    pub fn push(&mut self, span: Span, message: impl std::fmt::Display) {
        self.add(syn::Error::new(span, message));
    }

    /// Adds an error that syn reported.
    pub fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// The `compile_error!` calls to emit; none if there is no error.
    pub fn into_tokens(self) -> Option<TokenStream> {
        self.0.map(|error| error.into_compile_error())
    }
}
