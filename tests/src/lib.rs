//! Whole-product tests of bespoke.
