//! Behaviour of the emulator, with one file per family of instructions or feature.

mod asynchronous;
mod bits;
mod checks;
mod cluster;
mod collective;
mod compare;
mod control;
mod convert;
mod float;
mod half;
mod harness;
mod integer;
mod load_store;
mod loading;
mod matrix;
mod mistakes;
mod moves;
mod pipeline;
mod places;
mod profile;
mod programmatic;
mod properties;
mod races;
mod sharing;
mod values;
