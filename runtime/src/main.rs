//! The `bespoke` binary.
fn main() {}
