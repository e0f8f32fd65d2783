//! Emits the kernels of a fixture, like a user's build script.

use std::error::Error;
use std::path::PathBuf;

use bespoke_codegen::ptx::Target;
use bespoke_gguf::Gguf;
use bespoke_kernels::emit::Emission;
use bespoke_kernels::shape::ModelShape;

fn main() -> Result<(), Box<dyn Error>> {
    let fixture = "fixtures/llama-q4_k_m.gguf";
    println!("cargo::rerun-if-changed={fixture}");
    let shape = ModelShape::from_gguf(&Gguf::open(fixture)?, "fixture")?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    Emission::new().shape(shape).target(Target::Sm90).write(&out)?;
    Ok(())
}
