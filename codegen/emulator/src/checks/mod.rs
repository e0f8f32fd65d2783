//! Checks of what a kernel does: races, programmatic order, and suspicious numbers.

pub(crate) mod numeric;
pub(crate) mod programmatic;
pub(crate) mod races;
