//! Names in scope, and the *slots* that a jump carries.
//!
//! A slot is a place (a variable, or a field of one) that a region may assign, together with the
//! binding that its root meant where the region starts.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::{Expr, FnArg, Ident, Member, Pat, ReceiverKind, Signature, Type};

use crate::assigned::{Assignment, How, Place};
use crate::given::is_number_type;

/// What a name in scope can be assigned through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `let mut x`, a `mut` parameter.
    Owned,
    /// A `&mut T` that says so: a parameter, `&mut self`, `let r = &mut x`.
    Reborrow,
    /// Any other binding. If it is assigned *through* (`*p = …`, `p.f = …`), it is a `&mut` as well.
    Plain,
}

/// A binding's identity: its index in the order of declaration.
pub type BindingId = usize;

struct Binding {
    name: Ident,
    kind: Kind,
    id: BindingId,
}

enum Entry {
    Binding(Binding),
    /// The closure whose body follows: what is outside it cannot be carried.
    Closure,
    /// A place that an enclosing `for`'s iterator keeps borrowed.
    Borrowed(Place),
}

/// A place that a region may assign, resolved.
#[derive(Clone, Debug)]
pub struct Slot {
    binding: BindingId,
    place: Place,
}

/// What is known of a binding's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Its type is known where it is made, and does not wait for what follows.
    Typed,
    /// It surely is a `Ptr`.
    Pointer,
    /// It surely is a compile-time number.
    Number,
    /// It starts as a copy of a field.
    Copied,
}

/// The names in scope, innermost last.
#[derive(Default)]
pub struct Scope {
    entries: Vec<Entry>,
    bound: usize,
    /// What is known of bindings.
    facts: Vec<(BindingId, Fact)>,
}

/// A point to return to with [`Scope::leave`].
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

    /// Separates the body of a closure, which follows, from the variables so far.
    pub fn enter_closure(&mut self) {
        self.entries.push(Entry::Closure);
    }

    /// Says that an iterator borrows `place` until the scope ends.
    pub fn borrow(&mut self, place: Place) {
        self.entries.push(Entry::Borrowed(place));
    }

    /// Declares one name.
    pub fn bind(&mut self, name: &Ident, kind: Kind) {
        let id = self.bound;
        self.bound += 1;
        self.entries.push(Entry::Binding(Binding { name: name.clone(), kind, id }));
    }

    /// Declares the names that `pattern` binds; `by_mut` says that it matches a `&mut` as a whole.
    pub fn bind_pattern(&mut self, pattern: &Pat, by_mut: bool) {
        for (name, kind) in pattern_bindings(pattern, by_mut) {
            self.bind(&name, kind);
        }
    }

    /// The slots of the parameters that outlive the call: those of type `&mut T`.
    pub fn bind_parameters(&mut self, signature: &Signature) -> Vec<Slot> {
        let mut slots = Vec::new();
        for input in &signature.inputs {
            for (name, kind) in parameter_bindings(input) {
                self.facts.push((self.bound, Fact::Typed));
                self.bind(&name, kind);
                if kind == Kind::Reborrow {
                    slots.push(Slot { binding: self.bound - 1, place: Place::reborrowed(&name) });
                }
            }
            if let FnArg::Typed(typed) = input {
                if names_type(&typed.ty, "Ptr") {
                    self.note(&typed.pat, Fact::Pointer);
                } else if is_number_type(&typed.ty) {
                    self.note(&typed.pat, Fact::Number);
                }
            }
        }
        slots
    }

    /// Keeps `fact` of the name declared last, if `pattern` is no more than that.
    pub fn note(&mut self, pattern: &Pat, fact: Fact) {
        if is_plain_name(pattern).is_some() {
            self.facts.push((self.bound - 1, fact));
        }
    }

    /// Whether `name` means something that this is known of.
    pub fn is_known(&self, name: &Ident, fact: Fact) -> bool {
        self.find(name).is_some_and(|(binding, _)| self.facts.contains(&(binding.id, fact)))
    }

    /// Declares the names of a pattern that matches something of a known type.
    pub fn bind_typed(&mut self, pattern: &Pat, by_mut: bool) {
        let first = self.bound;
        self.bind_pattern(pattern, by_mut);
        self.facts.extend((first..self.bound).map(|id| (id, Fact::Typed)));
    }

    /// Whether this is a variable whose type was known where it was made. What a closure takes may not be.
    pub fn is_typed(&self, name: &Ident) -> bool {
        let is_it = |entry: &Entry| matches!(entry, Entry::Binding(binding) if binding.name == *name);
        let outer = self.entries.iter().rposition(is_it).map_or(&[][..], |index| &self.entries[..index]);
        let in_closure = outer.iter().any(|entry| matches!(entry, Entry::Closure));
        self.is_known(name, Fact::Typed) && !in_closure
    }

    /// Whether the expression surely is a `Ptr`: a parameter of that type, or an element of one.
    pub fn is_pointer(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => path.path.get_ident().is_some_and(|name| self.is_known(name, Fact::Pointer)),
            Expr::MethodCall(call) => {
                (call.method == "at" || call.method == "bytes") && self.is_pointer(&call.receiver)
            }
            Expr::Paren(paren) => self.is_pointer(&paren.expr),
            Expr::Group(group) => self.is_pointer(&group.expr),
            _ => false,
        }
    }

    /// What `name` means here, and whether it is a variable outside of the present closure.
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

    /// Those of `assignments`, of a region that starts here, that may change a variable of the present function or
    /// closure.
    pub fn assigned(&self, assignments: Vec<Assignment>) -> Vec<Assignment> {
        let may_change = |assignment: &Assignment| {
            let Some((binding, false)) = self.find(&assignment.place.root) else { return false };
            let certain = matches!(assignment.how, How::Assign);
            may_assign(binding.kind, assignment) && (certain || !self.is_borrowed(&assignment.place))
        };
        assignments.into_iter().filter(may_change).collect()
    }

    /// The slots of a region that starts here and makes `assignments`: no two of them overlap.
    pub fn slots(&self, assignments: Vec<Assignment>) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        for Assignment { mut place, .. } in self.assigned(assignments) {
            let Some((binding, _)) = self.find(&place.root) else { continue };
            if binding.kind != Kind::Owned && place.fields.is_empty() {
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

    /// The expression `&mut [slot, …]` at `span`, after the slots in `first`.
    ///
    /// Fails with the shadowing name where a slot's variable cannot be named any more.
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

fn slot_tokens(name: &str, borrow: TokenStream, span: Span) -> TokenStream {
    quote_spanned!(span=> (&::bespoke_codegen::hooks::SlotOf::new(#name, #borrow)).slot())
}

fn may_assign(kind: Kind, assignment: &Assignment) -> bool {
    match kind {
        Kind::Owned => assignment.how != How::Mention,
        Kind::Reborrow => true,
        Kind::Plain => assignment.how == How::Assign && assignment.through,
    }
}

/// The names that a parameter binds.
fn parameter_bindings(input: &FnArg) -> Vec<(Ident, Kind)> {
    match input {
        FnArg::Receiver(receiver) => {
            let by_mut = match &receiver.kind {
                ReceiverKind::Reference(_, _, mutability) => mutability.is_some(),
                ReceiverKind::Typed(_, ty) => is_mut_reference(ty),
                _ => false,
            };
            let kind = match (by_mut, receiver.mutability) {
                (true, _) => Kind::Reborrow,
                (false, Some(_)) => Kind::Owned,
                (false, None) => Kind::Plain,
            };
            vec![(Ident::new("self", receiver.self_token.span), kind)]
        }
        FnArg::Typed(typed) => pattern_bindings(&typed.pat, is_mut_reference(&typed.ty)),
    }
}

/// The names that `pattern` binds; `by_mut` says that it matches a `&mut` as a whole.
pub fn pattern_bindings(pattern: &Pat, by_mut: bool) -> Vec<(Ident, Kind)> {
    let mut found = Vec::new();
    collect_bindings(pattern, by_mut, &mut found);
    found
}

fn collect_bindings(pattern: &Pat, by_mut: bool, found: &mut Vec<(Ident, Kind)>) {
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
                _ if by_mut => Kind::Reborrow,
                (Some(_), Some(_)) => Kind::Reborrow,
                (None, Some(_)) => Kind::Owned,
                _ => Kind::Plain,
            };
            found.push((name.ident.clone(), kind));
        }
        Pat::Type(typed) => collect_bindings(&typed.pat, by_mut || is_mut_reference(&typed.ty), found),
        Pat::Paren(paren) => collect_bindings(&paren.pat, by_mut, found),
        Pat::Guard(guard) => inner(&guard.pat),
        Pat::Reference(reference) => inner(&reference.pat),
        // Every alternative binds the same names.
        Pat::Or(or) => or.cases.iter().take(1).for_each(inner),
        Pat::Slice(slice) => slice.elems.iter().for_each(inner),
        Pat::Tuple(tuple) => tuple.elems.iter().for_each(inner),
        Pat::TupleStruct(tuple) => tuple.elems.iter().for_each(inner),
        Pat::Struct(fields) => fields.fields.iter().for_each(|field| inner(&field.pat)),
        _ => {}
    }
}

/// The name that a pattern is, if it is no more than that.
pub fn is_plain_name(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(&name.ident),
        _ => None,
    }
}

/// Whether the type is spelled with this name, whatever its path and parameters are.
pub fn names_type(ty: &Type, name: &str) -> bool {
    match ty {
        Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
        // A type that came through a `macro_rules!` parameter.
        Type::Group(group) => names_type(&group.elem, name),
        Type::Paren(paren) => names_type(&paren.elem, name),
        _ => false,
    }
}

/// Whether the type is spelled `&mut T`.
pub fn is_mut_reference(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => reference.mutability.is_some(),
        Type::Group(group) => is_mut_reference(&group.elem),
        Type::Paren(paren) => is_mut_reference(&paren.elem),
        _ => false,
    }
}

/// Whether the expression is spelled `&mut e`.
pub fn is_mut_borrow(expression: &Expr) -> bool {
    match expression {
        Expr::Reference(reference) => reference.mutability.is_some(),
        Expr::Group(group) => is_mut_borrow(&group.expr),
        Expr::Paren(paren) => is_mut_borrow(&paren.expr),
        _ => false,
    }
}

impl Place {
    fn reborrowed(root: &Ident) -> Place {
        Place { root: root.clone(), fields: Vec::new(), deref: true }
    }

    /// Whether assigning `self` may assign all of `other`.
    fn covers(&self, other: &Place) -> bool {
        self.root == other.root
            && other.fields.starts_with(&self.fields)
            && (self.fields.len() < other.fields.len() || !self.deref || other.deref)
    }

    fn overlaps(&self, other: &Place) -> bool {
        self.root == other.root
            && (self.fields.starts_with(&other.fields) || other.fields.starts_with(&self.fields))
    }

    /// `&mut place`, located at `span`.
    fn borrow(&self, span: Span) -> TokenStream {
        // Located at the construct that carries it, but still the name that the kernel's author wrote.
        let root = Ident::new(&self.root.to_string(), self.root.span().located_at(span));
        let fields = self.fields.iter().map(|field| match field {
            Member::Named(name) => Member::Named(Ident::new(&name.to_string(), name.span().located_at(span))),
            Member::Unnamed(index) => Member::Unnamed(syn::Index { index: index.index, span }),
        });
        let star = self.deref.then(|| syn::Token![*](span));
        quote_spanned!(span=> &mut #star #root #(.#fields)*)
    }
}
