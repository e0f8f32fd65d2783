//! Template of a launch file for a PTX file.

use std::collections::VecDeque;
use std::fmt::Write;
use std::path::Path;

use bespoke_emulator::{Kernel, Param, TENSOR_MAP_BYTES};

use super::ptx::Loaded;
use super::triton::Metadata;

/// Elements per buffer, and threads per CTA, that the template suggests.
const ELEMENTS: u32 = 1024;
const THREADS: u32 = 128;

/// Template that launches every kernel once, with a buffer for each parameter that may be an address or a tensor map.
pub fn template(loaded: &Loaded) -> String {
    let mut text = String::from("version = 1\n");
    let path = Path::new(&loaded.name);
    let triton = Metadata::beside(path, loaded.kernels());
    for kernel in loaded.kernels() {
        let params = kernel.params().iter().map(|param| format!(".{} {}", param.ty, param.name));
        let params = params.collect::<Vec<_>>().join(", ");
        let shared = kernel.static_shared_bytes();
        let _ = write!(text, "\n# {}({params}), {shared} bytes of static shared memory\n", kernel.name());
        let mut args = Vec::new();
        let triton = triton.as_ref().filter(|metadata| metadata.name == kernel.name());
        let count = kernel.params().len();
        let count = triton.map_or(count, |metadata| metadata.arguments(count));
        let mut descriptors = triton.into_iter().flat_map(Metadata::tensor_descriptors);
        // Arguments that belong to the last tensor map.
        let mut after_map: VecDeque<u64> = VecDeque::new();
        for param in &kernel.params()[..count] {
            if let Some(number) = after_map.pop_front() {
                args.push(number.to_string());
                continue;
            }
            let pointer = param.size == 8 && matches!(param.ty, "u64" | "b64");
            if pointer || is_tensor_map(param) {
                let buffer = buffer_name(kernel, &param.name);
                let descriptor = if pointer { None } else { descriptors.next() };
                let (element, count) = match &descriptor {
                    Some(descriptor) => (descriptor.element(), descriptor.box_sizes().into_iter().product()),
                    None => ("f32", ELEMENTS),
                };
                let _ = write!(
                    text,
                    "\n[buffers.\"{buffer}\"]\ntype = \"{element}\"      # u8 … u64, i8 … i64, f16, bf16, f32, f64\n\
                     count = {count}\ninit = \"random\"   # zeros, iota, random or uninitialised; or fill, values, \
                     hex, file\n"
                );
                args.push(match descriptor {
                    _ if pointer => format!("\"{buffer}\""),
                    Some(descriptor) => {
                        after_map = descriptor.sizes_and_strides().into();
                        let (sizes, swizzle) = (descriptor.box_sizes(), descriptor.swizzle_bytes());
                        tensor_map(&buffer, element, &sizes, &sizes, swizzle)
                    }
                    // A matrix of 32 columns. The contiguous dimension is the first.
                    None => tensor_map(&buffer, element, &[32, ELEMENTS / 32], &[32, 32], 0),
                });
            } else {
                args.push(match (param.ty, param.size) {
                    ("f32" | "f64" | "f16" | "bf16", _) => "1.0".to_owned(),
                    (ty, size) if ty == "b8" && size > 1 => {
                        format!("{{ hex = \"{}\" }}", "00".repeat(size as usize))
                    }
                    _ => ELEMENTS.to_string(),
                });
            }
        }
        if triton.is_some() {
            let file = path.with_extension("json");
            let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let _ = write!(
                text,
                "\n[[launch]]\n# Triton's metadata: block, cluster, shared memory, scratch memory\ntriton = {file:?}\n\
                 grid = {ELEMENTS}\nargs = [{}]\n",
                args.join(", ")
            );
            continue;
        }
        let block = kernel.reqntid().or(kernel.maxntid()).unwrap_or([THREADS, 1, 1]);
        let grid =
            ELEMENTS.div_ceil(block.iter().fold(1, |product: u32, &n| product.saturating_mul(n)).max(1));
        let _ = write!(
            text,
            "\n[[launch]]\nkernel = \"{}\"\ngrid = {grid}\nblock = {block:?}\n{}args = [{}]\n",
            kernel.name(),
            if kernel.takes_dynamic_shared() {
                "shared = 4096     # bytes of dynamic shared memory\n"
            } else {
                ""
            },
            args.join(", ")
        );
    }
    text
}

/// The argument for a tensor map.
fn tensor_map(buffer: &str, element: &str, sizes: &[u32], box_sizes: &[u32], swizzle: u32) -> String {
    format!(
        "{{ tensor = \"{buffer}\", type = \"{element}\", sizes = {sizes:?}, box = {box_sizes:?}, swizzle = {swizzle} }}"
    )
}

/// Whether a parameter has the size and alignment of a tensor map (`CUtensorMap`).
fn is_tensor_map(param: &Param) -> bool {
    param.ty == "b8" && param.size == TENSOR_MAP_BYTES as u32 && param.align >= 64
}

/// Name of a parameter without the kernel's name, which nvcc prepends.
fn buffer_name(kernel: &Kernel, param: &str) -> String {
    let short = param.strip_prefix(kernel.name()).map_or(param, |rest| rest.trim_start_matches('_'));
    format!("{}.{short}", kernel.name())
}
