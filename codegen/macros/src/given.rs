//! What is given where something of a certain type is wanted: an argument, a field, a result, what a variable becomes.
//! A handle of another type passes through a hook that says what to write instead; see `bespoke_codegen::hooks`.
//!
//! The hook looks at the type of a place before the place is given. So what is given must be a place, or made of one in
//! a way that tells its type, and the place's type must be known already: a parameter, or a variable whose first value
//! does not wait for what follows.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit_mut;
use syn::{BinOp, Expr, ExprAssign, Member, Pat, Type, UnOp};

use crate::rewrite::Rewriter;
use crate::scope::{Fact, names_type};

/// Functions and methods that take any handle, and say themselves what they do not take.
const TAKE_ANY: [&str; 12] =
    ["at", "bytes", "store", "min", "max", "val", "fma", "mul_add", "select", "push", "Some", "Ok"];

/// Functions whose value is of a type that only its use tells.
const TYPED_BY_USE: [&str; 5] = ["default", "from", "into", "parse", "zeroed"];

/// Methods whose value is of a type that the receiver tells.
const TYPED_BY_RECEIVER: [&str; 14] = [
    "at",
    "bytes",
    "load",
    "cast",
    "bitcast",
    "min",
    "max",
    "abs",
    "len",
    "of_block",
    "load_vector",
    "load_relaxed",
    "load_acquire",
    "load_cached",
];

/// How the type of what is given follows from a place's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is the place.
    Place,
    /// Arithmetic, or another element: if the place is a handle, it is one of the same type.
    Made,
    /// It is loaded from the place.
    Loaded,
}

/// What is given, by the place that tells its type.
pub struct Source {
    how: How,
    place: TokenStream,
}

/// A hook around what is given: the statement before, the statement after, and the variable that both name.
struct Hook {
    before: TokenStream,
    after: TokenStream,
    name: Ident,
}

impl Rewriter<'_> {
    /// The place that tells the type of `expression`, if there is one.
    pub fn source(&self, expression: &Expr) -> Option<Source> {
        match expression {
            Expr::Paren(inner) => self.source(&inner.expr),
            Expr::Group(inner) => self.source(&inner.expr),
            Expr::Path(_) | Expr::Field(_) => {
                let place = || expression.to_token_stream();
                let known = self.is_typed_place(expression) && !self.is_number(expression);
                known.then(|| Source { how: How::Place, place: place() })
            }
            Expr::MethodCall(call) if call.method == "at" || call.method == "bytes" => {
                let Source { how, place } = self.source(&call.receiver)?;
                (how != How::Loaded).then_some(Source { how: How::Made, place })
            }
            Expr::MethodCall(call) if call.method == "load" && call.args.is_empty() => {
                let Source { how, place } = self.source(&call.receiver)?;
                (how != How::Loaded).then_some(Source { how: How::Loaded, place })
            }
            Expr::Binary(binary) if is_arithmetic(&binary.op) => {
                let (left, right) = (self.source(&binary.left), self.source(&binary.right));
                // What is loaded surely is a handle, and then so is what is made of it.
                match right {
                    Some(right) if right.how == How::Loaded => Some(right),
                    right => left.or(right).map(Source::made),
                }
            }
            Expr::Unary(unary) if !matches!(unary.op, UnOp::Deref(_)) => {
                self.source(&unary.expr).map(Source::made)
            }
            _ => None,
        }
    }

    fn is_typed_place(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Path(path) => path.path.get_ident().is_some_and(|name| self.scope.is_typed(name)),
            Expr::Field(field) => self.is_typed_place(&field.base),
            Expr::Paren(paren) => self.is_typed_place(&paren.expr),
            _ => false,
        }
    }

    fn is_number(&self, expression: &Expr) -> bool {
        matches!(expression, Expr::Path(path)
            if path.path.get_ident().is_some_and(|name| self.scope.is_known(name, Fact::Number)))
    }

    /// Whether the type of a variable that starts as `expression` is known from there on.
    pub fn is_typed(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Lit(_) => true,
            Expr::Paren(inner) => self.is_typed(&inner.expr),
            Expr::Group(inner) => self.is_typed(&inner.expr),
            Expr::Reference(inner) => self.is_typed(&inner.expr),
            Expr::Call(call) => called(&call.func).is_some_and(|name| !listed(name, &TYPED_BY_USE)),
            Expr::MethodCall(call) => {
                listed(&call.method, &TYPED_BY_RECEIVER) && self.is_typed(&call.receiver)
            }
            Expr::Binary(binary) => self.is_typed(&binary.left) && self.is_typed(&binary.right),
            Expr::Path(_) | Expr::Field(_) => self.is_typed_place(expression),
            _ => self.source(expression).is_some(),
        }
    }

    /// Rewrites a call or a struct, whose arguments and fields are wanted to be of certain types.
    pub fn taking(&mut self, expression: &mut Expr) {
        if let Expr::MethodCall(call) = expression {
            self.method_of_range(call);
        }
        let sources = self.argument_sources(expression);
        match expression {
            Expr::Call(call) => call.args.iter_mut().for_each(|argument| self.read(argument)),
            Expr::MethodCall(call) => call.args.iter_mut().for_each(|argument| self.read(argument)),
            _ => {}
        }
        visit_mut::visit_expr_mut(self, expression);
        let (mut before, mut after) = (TokenStream::new(), TokenStream::new());
        let arguments: Vec<&mut Expr> = match expression {
            Expr::Call(call) => call.args.iter_mut().collect(),
            Expr::MethodCall(call) => call.args.iter_mut().collect(),
            Expr::Struct(literal) => literal.fields.iter_mut().map(|field| &mut field.expr).collect(),
            _ => Vec::new(),
        };
        for (argument, source) in arguments.into_iter().zip(sources) {
            let Some(source) = source else { continue };
            let hook = self.hook(&source, argument.span());
            *argument = Expr::Verbatim(hook.give(argument));
            before.extend(hook.before);
            after.extend(hook.after);
        }
        if !before.is_empty() {
            let taken = format_ident!("__taken{}", self.fresh(), span = expression.span());
            *expression = Expr::Verbatim(quote!(({ #before let #taken = #expression; #after #taken })));
        }
    }

    /// The arguments' sources, as far as they are looked at. Closures want the types of their parameters at once.
    fn argument_sources(&self, expression: &Expr) -> Vec<Option<Source>> {
        let (name, arguments): (_, Vec<&Expr>) = match expression {
            Expr::Call(call) => (called(&call.func), call.args.iter().collect()),
            Expr::MethodCall(call) => (Some(&call.method), call.args.iter().collect()),
            // `S { x }` names a variable and a field with one token.
            Expr::Struct(literal) => {
                let values = literal.fields.iter().filter(|field| field.colon_token.is_some());
                let named = values.clone().all(|field| matches!(field.member, Member::Named(_)));
                let all = literal.fields.len() == values.clone().count() && named;
                (None, if all { values.map(|field| &field.expr).collect() } else { Vec::new() })
            }
            _ => (None, Vec::new()),
        };
        let any = name.is_some_and(|name| listed(name, &TAKE_ANY));
        if any || arguments.iter().any(|argument| matches!(argument, Expr::Closure(_))) {
            return Vec::new();
        }
        arguments.into_iter().map(|argument| self.source(argument)).collect()
    }

    /// Rewrites `x = value`.
    pub fn assign(&mut self, assign: &mut ExprAssign) -> Option<Expr> {
        let one = matches!(*assign.left, Expr::Path(_) | Expr::Field(_) | Expr::Index(_) | Expr::Unary(_));
        let source = if one { self.source(&assign.right) } else { None };
        self.read(&mut assign.right);
        visit_mut::visit_expr_assign_mut(self, assign);
        let hook = self.hook(&source?, assign.right.span());
        *assign.right = Expr::Verbatim(hook.give(&assign.right));
        let Hook { before, after, .. } = hook;
        Some(Expr::Verbatim(quote!(({ #before #assign; #after }))))
    }

    /// `value`, rewritten, as what `wanted` names: an expression of type `PhantomData<T>`.
    pub fn given_as(&mut self, value: &Expr, source: &Source, wanted: &TokenStream) -> Expr {
        let span = value.span();
        let hook = self.hook(source, span);
        let (given, name) = (hook.give(value), format_ident!("{}_value", hook.name));
        let Hook { before, after, .. } = hook;
        let value = quote_spanned!(span=> ::bespoke_codegen::hooks::as_wanted(#wanted, #given));
        Expr::Verbatim(quote!(({ #before let #name = #value; #after #name })))
    }

    fn hook(&mut self, Source { how, place }: &Source, span: Span) -> Hook {
        let name = format_ident!("__given{}", self.fresh(), span = span);
        let of = match how {
            How::Place => "GivenPlace",
            How::Made => "GivenMade",
            How::Loaded => "GivenLoaded",
        };
        let of = Ident::new(of, span);
        let before =
            quote_spanned!(span=> let #name = (&::bespoke_codegen::hooks::#of::new(&#place)).given(););
        Hook { before, after: quote_spanned!(span=> #name.settle();), name }
    }
}

impl Source {
    fn made(self) -> Source {
        let how = if self.how == How::Place { How::Made } else { self.how };
        Source { how, ..self }
    }
}

impl Hook {
    /// `value`, given: from its first token to its last one, so that errors show all of it.
    fn give(&self, value: &Expr) -> TokenStream {
        let tokens = value.to_token_stream();
        let (name, first) = (&self.name, value.span());
        let last = tokens.clone().into_iter().last().map_or(first, |token| token.span());
        let mut value = Group::new(proc_macro2::Delimiter::Parenthesis, tokens);
        value.set_span(last);
        let value = TokenTree::Group(value);
        quote_spanned!(first=> #name.give #value)
    }
}

/// An expression that names the type alone.
pub fn names(ty: &Type) -> TokenStream {
    quote_spanned!(ty.span()=> ::core::marker::PhantomData::<#ty>)
}

/// The type that a pattern says.
pub fn said(pattern: &Pat) -> Option<&Type> {
    match pattern {
        Pat::Type(typed) if !matches!(*typed.ty, Type::Infer(_)) => Some(&typed.ty),
        _ => None,
    }
}

/// Whether this is a compile-time number's type.
pub fn is_number_type(ty: &Type) -> bool {
    ["bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "usize"]
        .iter()
        .any(|name| names_type(ty, name))
}

/// The last name of what is called.
fn called(function: &Expr) -> Option<&Ident> {
    match function {
        Expr::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

fn listed(name: &Ident, names: &[&str]) -> bool {
    names.iter().any(|listed| name == listed)
}

/// Whether the operator is one that has an assignment's form.
pub fn is_arithmetic(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::Add(_)
            | BinOp::Sub(_)
            | BinOp::Mul(_)
            | BinOp::Div(_)
            | BinOp::Rem(_)
            | BinOp::BitAnd(_)
            | BinOp::BitOr(_)
            | BinOp::BitXor(_)
            | BinOp::Shl(_)
            | BinOp::Shr(_)
    )
}
