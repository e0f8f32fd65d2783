//! Python's generators and views of mappings, which can be iterated over and nothing else.
//!
//! In jinja2 some filters return generators. A generator is true even if it is empty, has no length, cannot be written
//! as JSON, and is empty the second time.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

use crate::rewrite;

/// A generator over the items of a list.
#[derive(Debug)]
pub struct Generator {
    items: Value,
    consumed: AtomicBool,
}

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        if self.consumed.swap(true, Ordering::Relaxed) {
            return Enumerator::Iter(Box::new(std::iter::empty().filter(|_| true)));
        }
        match self.items.try_iter() {
            // `filter` hides the length.
            Ok(items) => Enumerator::Iter(Box::new(items.filter(|_| true))),
            Err(_) => Enumerator::NonEnumerable,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn render(self: &Arc<Self>, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<generator object>")
    }
}

/// View of a mapping: `keys()`, `values()` or `items()`.
#[derive(Debug)]
pub struct View(Value);

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.0.try_iter() {
            Ok(items) => Enumerator::Iter(Box::new(items)),
            Err(_) => Enumerator::NonEnumerable,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.0.len()
    }
}

fn generator(items: impl Into<Value>) -> Value {
    Value::from_object(Generator { items: items.into(), consumed: AtomicBool::new(false) })
}

/// A view of a mapping with these items.
pub fn view(items: Value) -> Value {
    Value::from_object(View(items))
}

/// Whether a value is a generator or a view.
pub fn is_lazy(value: &Value) -> bool {
    value.downcast_object_ref::<Generator>().is_some() || value.downcast_object_ref::<View>().is_some()
}

/// Whether Python can iterate over a value.
pub fn is_iterable(value: &Value) -> bool {
    !value.is_none() && (is_lazy(value) || value.try_iter().is_ok())
}

/// The iterable of a `for` loop: fails for `none`. Texts and generators become lists, since loops know
/// their length.
fn iterable(state: &mut State<'_, '_>, value: Value) -> Result<Value, Error> {
    if value.is_none() {
        return Err(not_iterable());
    }
    let has_no_length = value.as_str().is_some() || value.downcast_object_ref::<Generator>().is_some();
    if has_no_length { filters::list(state, value) } else { Ok(value) }
}

fn not_iterable() -> Error {
    Error::new(ErrorKind::InvalidOperation, "none is not iterable")
}

/// Replaces the filters that return generators, and adds the check of loops.
pub fn install(environment: &mut Environment<'_>) {
    environment.add_filter(rewrite::ITERABLE, iterable);
    environment.add_test("iterable", is_iterable);
    environment.add_filter("list", |state: &mut State<'_, '_>, value: Value| {
        if value.is_none() { Err(not_iterable()) } else { filters::list(state, value) }
    });
    environment.add_filter("map", |state: &mut State<'_, '_>, value: Value, arguments: Arguments| {
        filters::map(state, value, arguments).map(generator)
    });
    environment.add_filter(
        "select",
        |state: &mut State<'_, '_>, value: Value, test: Text<'_>, rest: Arguments| {
            filters::select(state, value, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "reject",
        |state: &mut State<'_, '_>, value: Value, test: Text<'_>, rest: Arguments| {
            filters::reject(state, value, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "selectattr",
        |state: &mut State<'_, '_>, value: Value, name: Cow<'_, str>, test: Text<'_>, rest: Arguments| {
            filters::selectattr(state, value, name, test, rest).map(generator)
        },
    );
    environment.add_filter(
        "rejectattr",
        |state: &mut State<'_, '_>, value: Value, name: Cow<'_, str>, test: Text<'_>, rest: Arguments| {
            filters::rejectattr(state, value, name, test, rest).map(generator)
        },
    );
    environment.add_filter("unique", |state: &mut State<'_, '_>, value: Value, options: Kwargs| {
        filters::unique(state, value, options).map(generator)
    });
    environment.add_filter("items", |value: &Value| filters::items(value).map(generator));
}

/// Positional and named arguments.
type Arguments = Rest<ValueOrKwargs>;

/// Name of a test, if there is one.
type Text<'a> = Option<Cow<'a, str>>;
