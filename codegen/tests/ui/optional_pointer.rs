use bespoke_codegen::prelude::*;

#[kernel]
fn no_condition(x: Ptr<Global, f32>, bias: Option<Ptr<Global, f32>>) {
    x.store(0.0);
}

#[kernel]
fn empty_condition(x: Ptr<Global, f32>, #[present] bias: Option<Ptr<Global, f32>>) {
    x.store(0.0);
}

#[kernel]
fn run_time_condition(n: Val<bool>, #[present(n)] x: Option<Ptr<Global, f32>>) {}

#[kernel]
fn plain_pointer(#[present(on)] x: Ptr<Global, f32>, on: bool) {
    x.store(0.0);
}

#[kernel]
fn number(#[present(on)] x: Val<f32>, on: bool) {}

#[kernel]
fn optional_number(#[present(on)] x: Option<Val<f32>>, on: bool) {}

#[kernel]
fn aligned_number(x: Ptr<Global, f32>, #[aligned(16)] n: u32) {
    x.store(0.0);
}

fn main() {}
