//! Benchmarks of bespoke's host code and of the emulator.
