//! Packs compiled kernels for `src/builtin.rs`: the PTX of a target's kernels in one file, each compressed by itself, and
//! a Rust table of the kernels.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use bespoke_codegen::emit::Emitted;
use bespoke_codegen::ptx::Target;
use rayon::prelude::*;

/// Level of compression. PTX shrinks to a seventh; higher levels gain a few percent and take several times as long.
const LEVEL: u8 = 6;

/// Writes the kernels of `targets`, sorted by name, to the folder `out`: the table as `kernels.rs`.
pub fn write<'a>(
    targets: impl IntoIterator<Item = (&'a Target, &'a Vec<Emitted>)>,
    out: &Path,
) -> io::Result<()> {
    let (mut names, mut arms, mut tables) = (String::new(), String::new(), String::new());
    for (target, kernels) in targets {
        let compressed: Vec<Vec<u8>> = kernels
            .par_iter()
            .map(|kernel| miniz_oxide::deflate::compress_to_vec(kernel.compiled.ptx.as_bytes(), LEVEL))
            .collect();
        fs::write(out.join(format!("{target}.ptx.deflate")), compressed.concat())?;
        let number = target.number();
        // Writing to a string does not fail.
        let _ = write!(names, "Target::Sm{number}, ");
        let _ = writeln!(arms, "        Target::Sm{number} => &SM_{number},");
        let _ = writeln!(
            tables,
            "static SM_{number}: BuiltInKernels = BuiltInKernels {{\n    ptx: include_bytes!(\"{target}.ptx.deflate\"),\n    kernels: &["
        );
        let mut start = 0;
        for (kernel, ptx) in kernels.iter().zip(&compressed) {
            let (name, end) = (&kernel.compiled.name, start + ptx.len());
            let cubin = match &kernel.assembled {
                Some(assembled) => {
                    let file = format!("{target}.{name}.cubin");
                    fs::write(out.join(&file), &assembled.cubin)?;
                    format!("Some(include_bytes!(\"{file}\"))")
                }
                None => "None".to_owned(),
            };
            let length = kernel.compiled.ptx.len();
            let _ = writeln!(
                tables,
                "        BuiltIn {{ name: \"{name}\", ptx: [{start}, {end}], length: {length}, cubin: {cubin} }},"
            );
            start = end;
        }
        tables.push_str("    ],\n};\n\n");
    }
    let text = format!(
        "const TARGETS: &[Target] = &[{names}];\n\n\
         fn kernels(target: Target) -> &'static BuiltInKernels {{\n    match target {{\n{arms}        \
         #[allow(unreachable_patterns)]\n        _ => &BuiltInKernels::NONE,\n    }}\n}}\n\n{tables}"
    );
    fs::write(out.join("kernels.rs"), text)
}
