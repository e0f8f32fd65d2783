//! Behaviour of the emulator, one file for each family of instructions.

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
