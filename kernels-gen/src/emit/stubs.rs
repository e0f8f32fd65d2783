//! The generated Rust module.

use bespoke_codegen::ir::{Param, Type};
use bespoke_codegen::ptx::Target;
use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

use super::{EmitError, Emitted};

/// The text of the module: `TARGETS`, `kernels` by target, and a module a target, in it `KERNELS` and a module a
/// kernel. `targets` come oldest first, each one's kernels sorted by name.
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
            #[allow(dead_code)]
            pub mod #name {
                use ::bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher, params};

                /// Every kernel, sorted by name.
                pub static KERNELS: &[KernelSource] = &[#(#sources),*];

                #(#stubs)*
            }
        }
    });
    let variants: Vec<_> = targets.iter().map(|(target, _)| format_ident!("Sm{}", target.number())).collect();
    let names = targets.iter().map(|(target, _)| format_ident!("sm_{}", target.number()));
    let others = (targets.len() < Target::ALL.len()).then(|| quote!(_ => &[],));
    let tokens = quote! {
        use ::bespoke_codegen::launch::KernelSource;
        use ::bespoke_codegen::ptx::Target;

        /// The targets that kernels were emitted for, oldest first.
        #[allow(dead_code)]
        pub const TARGETS: &[Target] = &[#(Target::#variants),*];

        /// Every kernel for `target`, sorted by name.
        #[allow(dead_code)]
        pub fn kernels(target: Target) -> &'static [KernelSource] {
            match target {
                #(Target::#variants => #names::KERNELS,)*
                #others
            }
        }

        #(#modules)*
    };
    Ok(prettyplease::unparse(&syn::parse2(tokens)?))
}

fn stub(target: Target, kernel: &Emitted) -> TokenStream {
    let name = &kernel.compiled.name;
    let module = format_ident!("{name}");
    let path = format!("{target}/{name}.ptx");
    let geometry = kernel.spec.geometry();
    let number = Literal::u32_unsuffixed;
    let (grid, threads, shared) =
        (geometry.grid.map(number), number(geometry.threads), number(geometry.dynamic_shared));
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
            // An argument for each of the kernel's parameters, however many.
            #[allow(clippy::too_many_arguments)]
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
        Type::U32 | Type::Shared | Type::Cluster => quote!(u32),
        Type::U64 | Type::Global => quote!(u64),
        Type::I8 => quote!(i8),
        Type::I16 => quote!(i16),
        Type::I32 => quote!(i32),
        Type::I64 => quote!(i64),
        Type::F16 => quote!(::bespoke_codegen::launch::f16),
        Type::Bf16 => quote!(::bespoke_codegen::launch::bf16),
        Type::F16x2 => quote!([::bespoke_codegen::launch::f16; 2]),
        Type::Bf16x2 => quote!([::bespoke_codegen::launch::bf16; 2]),
        Type::F32 => quote!(f32),
        Type::Pred => quote!(bool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::compile;
    use crate::kernels::argmax::ChooseShape;
    use crate::kernels::probe::ProbeShape;
    use crate::spec::KernelSpec;

    fn generated() -> String {
        let specs = [
            KernelSpec::ReadProbe(ProbeShape { grid: 2, threads: 64 }),
            KernelSpec::ChooseGreedy(ChooseShape { candidates: 9, threads: 32 }),
        ];
        let targets = [Target::Sm80, Target::Sm90].map(|target| (target, compile(&specs, target).unwrap()));
        module(&targets).unwrap()
    }

    #[test]
    fn a_stub_is_typed_like_the_kernel() {
        let text = generated();
        for part in [
            "pub const TARGETS: &[Target] = &[Target::Sm80, Target::Sm90];",
            "Target::Sm90 => sm_90::KERNELS,",
            "&[read_probe_g2_t64::SOURCE, choose_greedy_n9_t32::SOURCE]",
            "ptx: include_str!(\"sm_90/choose_greedy_n9_t32.ptx\"),",
            "grid: [2, 1, 1], block: [64, 1, 1], dynamic_shared: 0,",
            "launcher: &mut L, data: DevicePointer<u32>, units: u32, out: DevicePointer<u32>, ) -> Result<(), L::Error>",
            "launcher.launch(&SOURCE, CONFIG, &params(&[&data, &units, &out]))",
        ] {
            assert!(words(&text).contains(&words(part)), "{part}\nis not in\n{text}");
        }
    }

    /// The text with its line breaks and indentation made spaces, and without commas at a list's end.
    fn words(text: &str) -> String {
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("[ ", "[")
            .replace(", ]", "]")
            .replace(",]", "]")
    }

    #[test]
    fn the_module_is_formatted_rust_and_always_the_same() {
        let text = generated();
        let parsed = syn::parse_file(&text).unwrap();
        assert_eq!(prettyplease::unparse(&parsed), text);
        assert_eq!(generated(), text);
    }

    #[test]
    fn without_kernels_it_is_a_module_all_the_same() {
        let text = module(&[]).unwrap();
        syn::parse_file(&text).unwrap();
        assert!(text.contains("pub const TARGETS: &[Target] = &[];"), "{text}");
    }
}
