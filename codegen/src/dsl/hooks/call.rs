//! Calls of functions that are not inlined: what `#[device(call)]` expands to.

use std::panic::Location;

use super::slot::{Slot, leaves, set_leaves};
use crate::dsl::record;
use crate::ir::Value;

/// Records a call of the function `name`, defined at `definition` and called at `site`, with the handles in `arguments`.
/// `body` runs the function: it calls [`call_parameters`] and [`call_results`]. Returns the results.
pub fn call(
    name: &str,
    definition: &'static Location<'static>,
    site: &'static Location<'static>,
    arguments: &[Slot<'_>],
    body: &mut dyn FnMut(),
) -> Vec<Value> {
    record::record_call(name, [definition, site], &leaves(arguments), body).into_vec()
}

/// Makes the handles in `arguments` the parameters of the function being recorded.
#[track_caller]
pub fn call_parameters(arguments: &mut [Slot<'_>]) {
    let count = leaves(arguments).len();
    set_leaves(arguments, &record::call_parameters(count, Location::caller()));
}

/// Makes the handles in `result` the results of the function being recorded.
#[track_caller]
pub fn call_results(result: &[Slot<'_>]) {
    record::call_results(&leaves(result), Location::caller());
}

/// Makes the handles in `result` the results of a call.
pub fn returned(result: &mut [Slot<'_>], values: &[Value]) {
    set_leaves(result, values);
}
