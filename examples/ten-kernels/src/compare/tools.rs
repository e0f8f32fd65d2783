//! nvcc, ptxas and nvdisasm.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use bespoke_codegen::ptx::Target;
use tempfile::TempDir;

use crate::Result;
use crate::cases::Case;
use crate::sass::{self, Counts};

/// NVIDIA's compiler, assembler and disassembler.
pub struct Tools {
    nvcc: PathBuf,
    ptxas: PathBuf,
    nvdisasm: PathBuf,
    scratch: TempDir,
}

/// Machine code of a kernel.
pub struct Code {
    pub ptx: String,
    pub cubin: Vec<u8>,
    pub registers: u32,
    /// Bytes of spill stores and loads.
    pub spills: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
    pub counts: Counts,
}

const INSTALL: &str = "install all of them, without a CUDA toolkit, by
    python3 -m venv target/cuda-tools
    target/cuda-tools/bin/pip install 'nvidia-cuda-nvcc==13.0.*' 'nvidia-nvvm==13.0.*' 'nvidia-cuda-crt==13.0.*' \\
        'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-cccl==13.0.*' nvidia-cuda-nvdisasm
    chmod +x target/cuda-tools/lib/python3*/site-packages/nvidia/cu13/bin/* \\
        target/cuda-tools/lib/python3*/site-packages/nvidia/cu13/nvvm/bin/*
or name the folder of nvcc, ptxas and nvdisasm by --tools";

impl Tools {
    /// Finds the tools in the folder, or else in `target/cuda-tools` or on `PATH`.
    pub fn find(folder: Option<&Path>) -> Result<Tools> {
        let folders: Vec<PathBuf> = match folder {
            Some(folder) => vec![folder.to_owned()],
            None => installed()
                .into_iter()
                .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default()))
                .collect(),
        };
        let tool = |name: &str| {
            let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
            found.ok_or_else(|| {
                let place = folder.map_or("target/cuda-tools and on PATH".to_owned(), |folder| {
                    folder.display().to_string()
                });
                format!("there is no `{name}` in {place}: {INSTALL}")
            })
        };
        Ok(Tools {
            nvcc: tool("nvcc")?,
            ptxas: tool("ptxas")?,
            nvdisasm: tool("nvdisasm")?,
            scratch: tempfile::tempdir()?,
        })
    }

    /// Compiles the twin to PTX.
    pub fn compile(&self, case: &Case, target: Target) -> Result<String> {
        let (source, ptx) = (self.scratch.path().join("twin.cu"), self.scratch.path().join("twin.ptx"));
        fs::write(&source, case.cuda)?;
        let arch = format!("-arch={target}");
        let options =
            [OsStr::new("-O3"), "-std=c++17".as_ref(), arch.as_ref(), "-ptx".as_ref(), "-o".as_ref()];
        let files = [ptx.as_os_str(), source.as_os_str()];
        run(&self.nvcc, options.into_iter().chain(files).chain(case.define.map(OsStr::new))).map_err(
            |error| {
                // Without exact versions, pip installs the newest of nvcc's parts.
                let differ = error.to_string().contains("Unsupported .version");
                if differ {
                    format!("the parts of nvcc have different versions: {INSTALL}\n{error}").into()
                } else {
                    error
                }
            },
        )?;
        Ok(fs::read_to_string(ptx)?)
    }

    /// Assembles PTX with one kernel, and counts its instructions.
    pub fn assemble(&self, ptx: String, target: Target) -> Result<Code> {
        let (source, cubin) =
            (self.scratch.path().join("kernel.ptx"), self.scratch.path().join("kernel.cubin"));
        fs::write(&source, &ptx)?;
        let arch = format!("-arch={target}");
        let options = [OsStr::new("-O3"), "-v".as_ref(), arch.as_ref(), "-o".as_ref()];
        let report = run(&self.ptxas, options.into_iter().chain([cubin.as_os_str(), source.as_os_str()]))?;
        let listing = run(&self.nvdisasm, [OsStr::new("-c"), cubin.as_os_str()])?;
        Ok(Code {
            ptx,
            cubin: fs::read(&cubin)?,
            registers: number_before(&report, " registers"),
            spills: number_before(&report, " bytes spill stores")
                + number_before(&report, " bytes spill loads"),
            shared: number_before(&report, " bytes smem"),
            counts: sass::count(&listing),
        })
    }
}

/// Folders of the tools in `target/cuda-tools`.
fn installed() -> Option<PathBuf> {
    let target = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/cuda-tools/lib"));
    let versions = fs::read_dir(target).ok()?.filter_map(std::result::Result::ok);
    versions.map(|version| version.path().join("site-packages/nvidia/cu13/bin")).find(|bin| bin.is_dir())
}

/// The number before `unit` in ptxas's report; 0 if there is none.
fn number_before(report: &str, unit: &str) -> u32 {
    let number =
        report.split_once(unit).and_then(|(before, _)| before.split([' ', '\n']).next_back()?.parse().ok());
    number.unwrap_or(0)
}

/// Runs a tool and returns what it printed.
fn run<'a>(tool: &Path, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<String> {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .map_err(|error| format!("{}: {error}", tool.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = text(&output.stdout) + &text(&output.stderr);
    if output.status.success() { Ok(printed) } else { Err(format!("{}: {printed}", tool.display()).into()) }
}
