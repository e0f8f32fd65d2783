//! A kernel of one's own, from its source to its launch: [`kernel`] is what one writes, `build.rs` emits it, [`kernels`]
//! is what comes out, and `main.rs` launches it and compares the result with [`mod@reference`].

pub mod kernel;
pub mod reference;

/// What `build.rs` emitted: PTX for each target, and a typed stub.
pub mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
