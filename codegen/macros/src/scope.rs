//! Names in scope, and the slots of a region of code.
//!
//! A region is the code of a branch, a loop or a right side of `&&` and `||`. A *slot* is a place (a variable, or a
//! field of one) that a region may assign, together with the binding that the variable's name has where the region
//! starts.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{FnArg, Ident, Member, Pat, Signature, Type};

use crate::assigned::{Assignment, Certainty, Place};
use crate::bindings::{BindingKind, parameter_bindings, pattern_bindings};
use crate::syntax::{is_number_type, names_type, plain_name};

/// Index of a binding in the order of declaration.
pub type BindingId = usize;

/// What the source declares about a binding's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredType {
    /// No declared type that may be a handle: the type is inferred, or a Rust number.
    None,
    /// A pointer, `Ptr<…>`.
    Pointer,
    /// Any other type that may be a handle or contain one.
    Other,
}

struct Binding {
    name: Ident,
    kind: BindingKind,
    id: BindingId,
    declared: DeclaredType,
}

enum Entry {
    Binding(Binding),
    /// The start of a closure's body. Variables declared before it cannot be carried by regions inside.
    Closure,
    /// A place that the iterator of an enclosing `for` keeps borrowed.
    Borrowed(Place),
}

/// A place that a region may assign, resolved to its binding.
#[derive(Clone, Debug)]
pub struct Slot {
    binding: BindingId,
    place: Place,
}

/// The names in scope, innermost last.
#[derive(Default)]
pub struct Scope {
    entries: Vec<Entry>,
    bound: usize,
}

/// The position in the names at which a scope starts, for [`Scope::leave`].
#[must_use]
pub struct Mark(usize);

impl Scope {
    /// Starts a scope.
    pub fn enter(&self) -> Mark {
        Mark(self.entries.len())
    }

    /// Ends the scope that began at `mark`.
    pub fn leave(&mut self, mark: Mark) {
        self.entries.truncate(mark.0);
    }

    /// Marks the start of a closure's body, which separates it from the variables declared so far.
    pub fn enter_closure(&mut self) {
        self.entries.push(Entry::Closure);
    }

    /// Marks `place` as borrowed by the iterator of a `for` until the scope ends.
    pub fn borrow(&mut self, place: Place) {
        self.entries.push(Entry::Borrowed(place));
    }

    fn bind(&mut self, name: &Ident, kind: BindingKind, declared: DeclaredType) {
        let id = self.bound;
        self.bound += 1;
        self.entries.push(Entry::Binding(Binding { name: name.clone(), kind, id, declared }));
    }

    /// Declares the names that `pattern` binds; `by_mut` states whether the matched value is a `&mut`.
    pub fn bind_pattern(&mut self, pattern: &Pat, by_mut: bool) {
        for (name, kind) in pattern_bindings(pattern, by_mut) {
            self.bind(&name, kind, DeclaredType::None);
        }
    }

    /// Declares the names of `pattern` in `let pattern: ty`.
    pub fn bind_typed(&mut self, pattern: &Pat, ty: &Type, by_mut: bool) {
        for (name, kind) in pattern_bindings(pattern, by_mut) {
            self.bind(&name, kind, declared_type(pattern, ty));
        }
    }

    /// Declares the parameters; returns the slots of parameters of type `&mut T`, whose values outlive the call.
    pub fn bind_parameters(&mut self, signature: &Signature) -> Vec<Slot> {
        let mut slots = Vec::new();
        for input in &signature.inputs {
            let declared = match input {
                FnArg::Receiver(_) => DeclaredType::Other,
                FnArg::Typed(typed) => declared_type(&typed.pat, &typed.ty),
            };
            for (name, kind) in parameter_bindings(input) {
                self.bind(&name, kind, declared);
                if kind == BindingKind::MutReference {
                    slots.push(Slot { binding: self.bound - 1, place: Place::reborrowed(&name) });
                }
            }
        }
        slots
    }

    /// What the source declares about the type of the variable `name`.
    pub fn declared(&self, name: &Ident) -> DeclaredType {
        self.find(name).map_or(DeclaredType::None, |(binding, _)| binding.declared)
    }

    /// The binding of `name`, and whether it is declared outside the current closure.
    fn find(&self, name: &Ident) -> Option<(&Binding, bool)> {
        let mut captured = false;
        for entry in self.entries.iter().rev() {
            match entry {
                Entry::Binding(binding) if binding.name == *name => return Some((binding, captured)),
                Entry::Closure => captured = true,
                _ => {}
            }
        }
        None
    }

    fn is_borrowed(&self, place: &Place) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Borrowed(other) if other.overlaps(place)))
    }

    /// The `assignments` of a region that may change a variable of the current function or closure. The region starts
    /// here.
    pub fn assigned(&self, assignments: Vec<Assignment>) -> Vec<Assignment> {
        let may_change = |assignment: &Assignment| {
            let Some((binding, false)) = self.find(&assignment.place.root) else { return false };
            let certain = assignment.certainty == Certainty::Assigned;
            may_assign(binding.kind, assignment) && (certain || !self.is_borrowed(&assignment.place))
        };
        assignments.into_iter().filter(may_change).collect()
    }

    /// The slots of a region that starts here and makes `assignments`. No two slots overlap.
    pub fn slots(&self, assignments: Vec<Assignment>) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        for Assignment { mut place, .. } in self.assigned(assignments) {
            let Some((binding, _)) = self.find(&place.root) else { continue };
            if binding.kind != BindingKind::Mutable && place.fields.is_empty() {
                place.deref = true;
            }
            if slots.iter().any(|slot| slot.place.covers(&place)) {
                continue;
            }
            slots.retain(|slot| !place.covers(&slot.place));
            slots.push(Slot { binding: binding.id, place });
        }
        slots
    }

    /// The expression `&mut [slot, …]` at `span`, with the variable `first` as its first element.
    ///
    /// Fails with the name that shadows the variable of a slot.
    pub fn slot_list(&self, first: Option<&Ident>, slots: &[Slot], span: Span) -> Result<TokenStream, Ident> {
        let mut items = Vec::new();
        if let Some(result) = first {
            items.push(slot_tokens("result", quote_spanned!(span=> &mut #result), span));
        }
        for slot in slots {
            if let Some((binding, _)) = self.find(&slot.place.root)
                && binding.id != slot.binding
            {
                return Err(binding.name.clone());
            }
            items.push(slot_tokens(&slot.place.to_string(), slot.place.borrow(span), span));
        }
        Ok(quote_spanned!(span=> &mut [#(#items),*]))
    }
}

fn declared_type(pattern: &Pat, ty: &Type) -> DeclaredType {
    let name = match pattern {
        Pat::Type(typed) => plain_name(&typed.pat),
        _ => plain_name(pattern),
    };
    match name {
        Some(_) if names_type(ty, "Ptr") => DeclaredType::Pointer,
        Some(_) if !is_number_type(ty) => DeclaredType::Other,
        _ => DeclaredType::None,
    }
}

fn slot_tokens(name: &str, borrow: TokenStream, span: Span) -> TokenStream {
    quote_spanned!(span=> (&::bespoke_codegen::hooks::SlotOf::new(#name, #borrow)).slot())
}

fn may_assign(kind: BindingKind, assignment: &Assignment) -> bool {
    match kind {
        BindingKind::Mutable => assignment.certainty != Certainty::Mentioned,
        BindingKind::MutReference => true,
        // If a method returns the assigned place, as in `*cell.borrow_mut() = x`, that place is not `*variable`. Replays find
        // state that changes through it.
        BindingKind::Other => {
            assignment.certainty == Certainty::Assigned && assignment.through && !assignment.returned
        }
    }
}

impl Place {
    fn reborrowed(root: &Ident) -> Place {
        Place { root: root.clone(), fields: Vec::new(), deref: true }
    }

    /// Whether assigning the place `self` may assign all of the place `other`.
    fn covers(&self, other: &Place) -> bool {
        self.root == other.root
            && other.fields.starts_with(&self.fields)
            && (self.fields.len() < other.fields.len() || !self.deref || other.deref)
    }

    fn overlaps(&self, other: &Place) -> bool {
        self.root == other.root
            && (self.fields.starts_with(&other.fields) || other.fields.starts_with(&self.fields))
    }

    /// The expression `&mut place`, located at `span`.
    fn borrow(&self, span: Span) -> TokenStream {
        // The location is that of the construct that carries the place; the hygiene is that of the source name.
        let root = Ident::new(&self.root.to_string(), self.root.span().located_at(span));
        let fields = self.fields.iter().map(|field| match field {
            Member::Named(name) => Member::Named(Ident::new(&name.to_string(), name.span().located_at(span))),
            Member::Unnamed(index) => Member::Unnamed(syn::Index { index: index.index, span }),
        });
        let star = self.deref.then(|| syn::Token![*](span));
        quote_spanned!(span=> &mut #star #root #(.#fields)*)
    }
}
