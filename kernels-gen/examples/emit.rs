//! Emits every built-in shape, every fixture and the demo model, with KV caches of f16 and q8_0, into a folder:
//! `emit OUT [sm_90 …] [decode=8 prefill=64 …]`. Without targets, emits for all. `decode=N` and `prefill=N` add the kernels of
//! steps of N rows.

use std::path::PathBuf;

use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use bespoke_kernels::emit::Emission;
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::probe::{MmaProbeShape, ProbeShape};
use bespoke_kernels::plan::{StepKind, StepSize};
use bespoke_kernels::shape::{ModelShape, builtin};
use bespoke_kernels::spec::KernelSpec;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let out = PathBuf::from(args.next().ok_or("usage: emit OUT [TARGET …]")?);
    let (mut targets, mut steps): (Vec<Target>, Vec<StepSize>) = Default::default();
    for arg in args {
        match arg.split_once('=') {
            Some(("decode", rows)) => steps.push(StepSize { kind: StepKind::Decode, rows: rows.parse()? }),
            Some(("prefill", rows)) => steps.push(StepSize { kind: StepKind::Prefill, rows: rows.parse()? }),
            _ => targets.push(arg.parse()?),
        }
    }
    if targets.is_empty() {
        targets = Target::ALL.to_vec();
    }
    let probes =
        [KernelSpec::ReadProbe(ProbeShape::default()), KernelSpec::MmaProbe(MmaProbeShape::default())];
    let mut emission = probes.into_iter().fold(Emission::new(), Emission::kernel).kv(KvType::Q8_0);
    for target in targets {
        emission = emission.target(target);
    }
    for file in builtin() {
        for shape in file.shapes()? {
            emission = emission.shape_with_steps(shape, steps.clone());
        }
    }
    let mut models = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../demo/demo.gguf"))];
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures"))? {
        models.push(entry?.path());
    }
    for path in models {
        if path.extension().is_some_and(|extension| extension == "gguf") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let shape = ModelShape::from_gguf(&Gguf::open(&path)?, &name)?;
            emission = emission.shape_with_steps(shape, steps.clone());
        }
    }
    let start = std::time::Instant::now();
    let emitted = emission.write(&out)?;
    let bytes: usize = emitted.values().flatten().map(|kernel| kernel.compiled.ptx.len()).sum();
    println!(
        "{} kernels, {bytes} bytes of PTX, in {:.2} s",
        emitted.values().flatten().count(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
