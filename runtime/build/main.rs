//! What the library holds besides its code: for the decoder, kernels and their sources.

#[cfg(feature = "decoder")]
mod decoder;
#[cfg(feature = "decoder")]
mod sources;

fn main() {
    println!("cargo::rerun-if-changed=build");
    #[cfg(feature = "decoder")]
    decoder::emit_kernels();
}
