//! Generator of the Rust module with launch stubs.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::{EmitError, Emitted, Variants};
use crate::ir::{Param, TensorLayout, Type};
use crate::ptx::Target;

/// Text of the Rust module: `TARGETS`, `kernels` by target, one module per target with its sources, and one module per
/// kernel with its sources, geometry and stub.
pub(super) fn module(
    targets: &BTreeMap<Target, Vec<Emitted>>,
    kernels: &BTreeMap<&str, Variants<'_>>,
) -> Result<String, EmitError> {
    let variants: Vec<_> = targets.keys().map(|&target| variant(target)).collect();
    let names = targets.keys().map(|&target| format_ident!("{}", target.to_string()));
    let others = (targets.len() < Target::ALL.len()).then(|| quote!(_ => &[],));
    let lists = targets.iter().map(|(&target, kernels)| list(target, kernels));
    let stubs = kernels.iter().map(|(name, variants)| kernel(name, variants));
    let tokens = quote! {
        /// The targets that kernels were emitted for, oldest first.
        #[allow(dead_code)]
        pub const TARGETS: &[::bespoke_codegen::ptx::Target] = &[#(::bespoke_codegen::ptx::Target::#variants),*];

        /// Every kernel for `target`, sorted by name.
        #[allow(dead_code)]
        pub fn kernels(
            target: ::bespoke_codegen::ptx::Target,
        ) -> &'static [&'static ::bespoke_codegen::launch::KernelSource] {
            match target {
                #(::bespoke_codegen::ptx::Target::#variants => #names::KERNELS,)*
                #others
            }
        }

        #(#lists)*
        #(#stubs)*
    };
    Ok(prettyplease::unparse(&syn::parse2(tokens)?))
}

/// Name of the target's variant in `Target`.
fn variant(target: Target) -> Ident {
    format_ident!("Sm{}", target.number())
}

/// Name of the static that holds a kernel for the target.
fn source_name(target: Target) -> Ident {
    format_ident!("SM_{}", target.number())
}

/// The static slice of a target's kernels.
fn list(target: Target, kernels: &[Emitted]) -> TokenStream {
    let (name, source) = (format_ident!("{}", target.to_string()), source_name(target));
    let doc = format!(" Kernels for {target}.");
    let kernels = kernels.iter().map(|kernel| format_ident!("{}", kernel.compiled.name));
    quote! {
        #[doc = #doc]
        #[allow(dead_code)]
        pub mod #name {
            /// Every kernel, sorted by name.
            pub static KERNELS: &[&::bespoke_codegen::launch::KernelSource] = &[#(&super::#kernels::#source),*];
        }
    }
}

/// The module of a kernel. All variants have the same parameters and geometry.
fn kernel(name: &str, variants: &Variants<'_>) -> Option<TokenStream> {
    let first = variants.first()?;
    let module = format_ident!("{name}");
    let doc = match &first.summary[..] {
        "" => format!(" The kernel `{name}`."),
        summary => format!(" {}.", capitalised(summary)),
    };
    let sources = variants.iter().map(|kernel| source(kernel));
    let names = variants.iter().map(|kernel| source_name(kernel.compiled.target));
    let pointer = first.params.iter().any(|param| param.element.is_some()).then(|| quote!(DevicePointer,));
    let tensor =
        first.params.iter().any(|param| param.tensor.is_some()).then(|| quote!(, Swizzle, TensorMap));
    let launch = launch(first);
    Some(quote! {
        #[doc = #doc]
        #[allow(dead_code)]
        pub mod #module {
            use ::bespoke_codegen::launch::{#pointer KernelSource, LaunchConfig, Launcher #tensor};
            use ::bespoke_codegen::ptx::Target;

            #(#sources)*

            /// The kernel for each of its targets, oldest first.
            pub static SOURCES: &[&KernelSource] = &[#(&#names),*];

            #launch
        }
    })
}

/// The [`KernelSource`](crate::launch::KernelSource) literal of a kernel.
fn source(kernel: &Emitted) -> TokenStream {
    let (name, target) = (&kernel.compiled.name, kernel.compiled.target);
    let (source, variant) = (source_name(target), variant(target));
    let module = &kernel.module;
    let path = format!("{target}/{module}.ptx");
    let doc = format!(" For {target} and later.");
    let cubin = match kernel.assembled {
        Some(_) => {
            let path = format!("{target}/{module}.cubin");
            quote!(Some(include_bytes!(#path)))
        }
        None => quote!(None),
    };
    quote! {
        #[doc = #doc]
        pub static #source: KernelSource = KernelSource {
            name: #name,
            target: Target::#variant,
            ptx: include_str!(#path),
            cubin: #cubin,
        };
    }
}

/// The launch configuration and the `launch` function of a kernel.
fn launch(kernel: &Emitted) -> TokenStream {
    let number = Literal::u32_unsuffixed;
    let (block, shared) = (kernel.block.map(number), number(kernel.dynamic_shared));
    let block_and_shared = quote!(block: [#(#block),*], dynamic_shared: #shared);
    let unused = |name: &str| {
        let mut name = name.to_owned();
        while kernel.params.iter().any(|param| param.name == name) {
            name.push('_');
        }
        format_ident!("{name}")
    };
    let (launcher, grid) = (unused("launcher"), unused("grid"));
    let (config, argument, used) = match kernel.grid {
        Some(grid) => {
            let grid = grid.map(number);
            let config = quote! {
                /// The launch that the kernel was specialised for.
                pub const CONFIG: LaunchConfig = LaunchConfig { grid: [#(#grid),*], #block_and_shared };
            };
            (config, None, quote!(self::CONFIG))
        }
        None => {
            let config = quote! {
                /// A launch with this grid: CTAs along x, y and z.
                pub const fn config(grid: [u32; 3]) -> LaunchConfig {
                    LaunchConfig { grid, #block_and_shared }
                }
            };
            (config, Some(quote!(#grid: [u32; 3],)), quote!(self::config(#grid)))
        }
    };
    let doc = match kernel.grid {
        Some(_) => " Launches the kernel with [`CONFIG`].",
        None => " Launches the kernel with a grid of so many CTAs along x, y and z.",
    };
    let names: Vec<_> = kernel.params.iter().map(|param| format_ident!("{}", param.name)).collect();
    let types = kernel.params.iter().map(argument_type);
    let (promise, checks) = requirements(&kernel.params);
    quote! {
        #config

        #[doc = #doc]
        #promise
        // The stub has one argument for each of the kernel's parameters, however many.
        #[allow(clippy::too_many_arguments)]
        pub fn launch<L: Launcher>(
            #launcher: &mut L,
            #argument
            #(#names: #types),*
        ) -> Result<(), L::Error> {
            #checks
            #launcher.launch(self::SOURCES, #used, &::bespoke_codegen::launch::params(&[#(&#names),*]))
        }
    }
}

/// What a launch requires of arguments, the alignment of pointers and the layout of tensor maps: text for the
/// documentation, and assertions.
fn requirements(params: &[Param]) -> (TokenStream, TokenStream) {
    let (mut promise, mut checks) = (TokenStream::new(), TokenStream::new());
    for param in params {
        let name = format_ident!("{}", param.name);
        let (doc, check) = if let Some(bytes) = param.align {
            let number = Literal::u64_unsuffixed(bytes.into());
            let message = format!("`{name}` must be a multiple of {bytes} bytes");
            let doc = format!(" If `{name}` is no multiple of {bytes} bytes.");
            (doc, quote!(assert!(#name.address().is_multiple_of(#number), #message);))
        } else if let Some(TensorLayout { tile, swizzle, .. }) = &param.tensor {
            let sizes: Vec<String> = tile.iter().map(u32::to_string).collect();
            let layout = format!("tiles of {} elements and a swizzle of {swizzle} bytes", sizes.join(" × "));
            let message = format!("`{name}` must have {layout}");
            let (sizes, swizzle) =
                (tile.iter().map(|&size| Literal::u32_unsuffixed(size)), format_ident!("{swizzle:?}"));
            let doc = format!(" If `{name}` does not have {layout}.");
            (doc, quote!(assert!(#name.has_layout([#(#sizes),*], Swizzle::#swizzle), #message);))
        } else {
            continue;
        };
        if promise.is_empty() {
            promise.extend(quote! {
                ///
                /// # Panics
            });
        }
        promise.extend(quote!(#[doc = #doc]));
        checks.extend(check);
    }
    (promise, checks)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn argument_type(param: &Param) -> TokenStream {
    if let Some(TensorLayout { element, tile, .. }) = &param.tensor {
        let (element, rank) = (scalar(*element), Literal::usize_unsuffixed(tile.len()));
        return quote!(&TensorMap<#element, #rank>);
    }
    match param.element {
        Some(element) => {
            let element = scalar(element);
            quote!(DevicePointer<#element>)
        }
        None => scalar(param.ty),
    }
}

fn scalar(ty: Type) -> TokenStream {
    match ty {
        Type::Pred => quote!(bool),
        Type::U8 => quote!(u8),
        Type::U16 => quote!(u16),
        Type::U32 | Type::Shared | Type::Cluster | Type::Local => quote!(u32),
        Type::U64 | Type::Global | Type::Constant | Type::TensorMap => quote!(u64),
        Type::I8 => quote!(i8),
        Type::I16 => quote!(i16),
        Type::I32 => quote!(i32),
        Type::I64 => quote!(i64),
        Type::F16 => quote!(::bespoke_codegen::launch::f16),
        Type::Bf16 => quote!(::bespoke_codegen::launch::bf16),
        Type::F16x2 => quote!(::bespoke_codegen::launch::F16x2),
        Type::Bf16x2 => quote!(::bespoke_codegen::launch::Bf16x2),
        Type::F32 => quote!(f32),
        Type::F64 => quote!(f64),
    }
}
