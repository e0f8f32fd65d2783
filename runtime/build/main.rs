//! Compiles the built-in kernels of the decoder.

#[cfg(feature = "decoder")]
mod decoder;
#[cfg(feature = "decoder")]
mod pack;

fn main() {
    println!("cargo::rerun-if-changed=build");
    #[cfg(feature = "decoder")]
    decoder::emit_kernels();
}
