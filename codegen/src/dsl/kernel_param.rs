//! Run-time parameters of a kernel: scalars, pointers and tensor maps.

use std::panic::Location;

use super::recorder::{Site, emit1, fail, with};
use crate::ir::verify::is_identifier;
use crate::ir::{Op, Param, TensorLayout, Value};

/// A kernel's run-time parameter: a scalar or a global pointer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a kernel's run-time parameter",
    label = "a launch passes scalars and pointers to global memory; shared memory is declared in the kernel, by `shared_array`",
    note = "use `Val<T>` of a scalar, or `Ptr<Global, T>`"
)]
pub trait KernelParam: Sized {
    /// Declares the parameter `name` in the kernel's signature.
    fn declare(name: &str) -> Param;
    /// The handle of the parameter with SSA value `value`.
    fn from_value(value: Value) -> Self;
}

/// Declares the next run-time parameter of the kernel being recorded.
#[track_caller]
pub fn parameter<P: KernelParam>(name: &str) -> P {
    declare(P::declare(name), Location::caller())
}

/// Declares the next run-time parameter, a pointer that the launch promises to be a multiple of `align` bytes.
#[track_caller]
pub fn aligned_parameter<P: PointerParam>(name: &str, align: u32) -> P {
    let site = Location::caller();
    if !align.is_power_of_two() {
        fail(site, format!("`{name}` cannot be aligned to {align} bytes: write a power of two"));
    }
    declare(Param { align: Some(align), ..P::declare(name) }, site)
}

/// Run-time parameters that are pointers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pointer and has no alignment",
    label = "remove `#[aligned(…)]`, or make this a `Ptr<Global, …>`"
)]
pub trait PointerParam: KernelParam {}

/// A kernel's run-time parameter that is a tensor map.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor map and has no tiles",
    label = "remove `#[tile(…)]`, or make this a `TensorMap<T, RANK, …>`"
)]
pub trait TensorParam: Sized {
    /// Elements of a tile along each dimension: an array of one number for each.
    type Tile;
    /// Declares the parameter `name` in the kernel's signature.
    fn declare(name: &str, tile: &Self::Tile) -> Param;
    /// The handle of the parameter with SSA value `value`.
    fn from_value(value: Value, tile: Self::Tile) -> Self;
}

/// Declares the next run-time parameter, a tensor map with tiles of these sizes.
#[track_caller]
pub fn tiled_parameter<P: TensorParam>(name: &str, tile: P::Tile) -> P {
    let site = Location::caller();
    let param = P::declare(name, &tile);
    if let Some(Err(why)) = param.tensor.as_ref().map(TensorLayout::check) {
        fail(site, format!("`{name}`: {why}"));
    }
    P::from_value(declare_value(param, site), tile)
}

fn declare<P: KernelParam>(param: Param, site: Site) -> P {
    P::from_value(declare_value(param, site))
}

fn declare_value(param: Param, site: Site) -> Value {
    if !is_identifier(&param.name) {
        let name = &param.name;
        fail(
            site,
            format!("PTX has no name for the parameter `{name}`: write ASCII letters, digits and `_`"),
        );
    }
    let twice = with(|r| r.replay.is_none() && r.func.params.iter().any(|known| known.name == param.name));
    if twice {
        fail(site, format!("two parameters are called `{}`: rename one of them, or a field", param.name));
    }
    let ty = param.ty;
    let index = with(|r| r.parameter(param));
    emit1(Op::Param(index), ty, &[], site)
}
