//! Your own kernel, from its source to its launch: [`mod@kernel`] is the source, `build.rs` emits it, [`kernels`] is
//! the emitted module, and `main.rs` launches the kernel and compares the result with [`mod@reference`].

pub mod kernel;
pub mod reference;

/// The module that `build.rs` emitted: PTX for each target, and a typed stub.
pub mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
