//! What the library holds besides its code: for the decoder, kernels.

#[cfg(feature = "decoder")]
mod decoder;

fn main() {
    println!("cargo::rerun-if-changed=build");
    #[cfg(feature = "decoder")]
    decoder::emit_kernels();
}
