//! The generated Rust module.

use bespoke_codegen::ir::{Param, Type};
use bespoke_codegen::ptx::Target;
use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{EmitError, Emitted};

/// The text of the module: a module a target, in it `KERNELS` and a module a kernel.
pub(super) fn module(targets: &[(Target, Vec<Emitted>)]) -> Result<String, EmitError> {
    let modules = targets.iter().map(|(target, kernels)| {
        let name = format_ident!("sm_{}", target.number());
        let doc = format!("Kernels for {target}.");
        let sources = kernels.iter().map(|kernel| {
            let module = format_ident!("{}", kernel.compiled.name);
            quote!(#module::SOURCE)
        });
        let stubs = kernels.iter().map(|kernel| stub(*target, kernel));
        quote! {
            #[doc = #doc]
            pub mod #name {
                use ::bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher, params};

                /// Every kernel, sorted by name.
                pub const KERNELS: &[KernelSource] = &[#(#sources),*];

                #(#stubs)*
            }
        }
    });
    let tokens = quote!(#(#modules)*);
    Ok(prettyplease::unparse(&syn::parse2(tokens)?))
}

fn stub(target: Target, kernel: &Emitted) -> TokenStream {
    let name = &kernel.compiled.name;
    let module = format_ident!("{name}");
    let path = format!("{target}/{name}.ptx");
    let geometry = kernel.spec.geometry();
    let (grid, threads, shared) = (geometry.grid, geometry.threads, geometry.dynamic_shared);
    let summary = format!("{}.", capitalised(kernel.spec.summary()));
    let arguments = kernel.params.iter().map(|param| {
        let (name, ty) = (format_ident!("{}", param.name), argument_type(param));
        quote!(#name: #ty)
    });
    let values = kernel.params.iter().map(|param| {
        let name = format_ident!("{}", param.name);
        quote!(&#name)
    });
    quote! {
        #[doc = #summary]
        pub mod #module {
            use super::*;

            /// The entry point and the module's text.
            pub const SOURCE: KernelSource = KernelSource { name: #name, ptx: include_str!(#path) };

            /// The launch that the kernel was specialised for.
            pub const CONFIG: LaunchConfig =
                LaunchConfig { grid: [#(#grid),*], block: [#threads, 1, 1], dynamic_shared: #shared };

            /// Launches the kernel with [`CONFIG`].
            pub fn launch<L: Launcher>(launcher: &mut L, #(#arguments),*) -> Result<(), L::Error> {
                launcher.launch(&SOURCE, CONFIG, &params(&[#(#values),*]))
            }
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn argument_type(param: &Param) -> TokenStream {
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
        Type::U8 => quote!(u8),
        Type::U16 => quote!(u16),
        Type::U32 | Type::Shared => quote!(u32),
        Type::U64 | Type::Global => quote!(u64),
        Type::I8 => quote!(i8),
        Type::I16 => quote!(i16),
        Type::I32 => quote!(i32),
        Type::I64 => quote!(i64),
        Type::F16 => quote!(::bespoke_codegen::launch::f16),
        Type::Bf16 => quote!(::bespoke_codegen::launch::bf16),
        Type::F16x2 => quote!([::bespoke_codegen::launch::f16; 2]),
        Type::F32 => quote!(f32),
        Type::Pred => quote!(bool),
    }
}
