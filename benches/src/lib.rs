//! Benches of bespoke's host side.
