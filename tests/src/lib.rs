//! Integration tests of all packages together.
