//! NVIDIA's disassembler: SASS as text, with source lines.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use bespoke_codegen::ptxas::Ptxas;
use bespoke_files::Scratch;

/// Environment variable that names a disassembler, or disables it.
pub const VARIABLE: &str = "BESPOKE_NVDISASM";

/// Error of the disassembler.
#[derive(Debug, thiserror::Error)]
pub enum NvdisasmError {
    /// `BESPOKE_NVDISASM` names a file that does not exist.
    #[error("{VARIABLE}: there is no file {}", .0.display())]
    NotThere(PathBuf),
    /// The disassembler cannot be run, or its input file cannot be written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The disassembler or the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The disassembler refused the module.
    #[error("nvdisasm: {0}")]
    Refused(String),
}

/// A disassembler.
#[derive(Clone, Debug)]
pub struct Nvdisasm {
    path: PathBuf,
}

impl Nvdisasm {
    /// Finds the disassembler that `BESPOKE_NVDISASM` names, or else `nvdisasm` on `PATH` or beside `ptxas`. `None` if
    /// there is none, or if the variable is `none` or empty.
    pub fn find(ptxas: Option<&Ptxas>) -> Result<Option<Nvdisasm>, NvdisasmError> {
        if let Some(path) = env::var_os(VARIABLE) {
            if path.is_empty() || path == "none" {
                return Ok(None);
            }
            let path = PathBuf::from(path);
            return if path.is_file() {
                Ok(Some(Nvdisasm { path }))
            } else {
                Err(NvdisasmError::NotThere(path))
            };
        }
        let name = format!("nvdisasm{}", env::consts::EXE_SUFFIX);
        let folders = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&folders).map(|folder| folder.join(&name));
        let beside = ptxas.map(|ptxas| ptxas.path().with_file_name(&name));
        Ok(on_path.chain(beside).find(|path| path.is_file()).map(|path| Nvdisasm { path }))
    }

    /// Disassembles a cubin, with comments that name source lines.
    pub fn disassemble(&self, cubin: &[u8]) -> Result<String, NvdisasmError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| NvdisasmError::Io { path, source }
        };
        let scratch = Scratch::create().map_err(failed(&env::temp_dir()))?;
        let file = scratch.path().join("kernel.cubin");
        fs::write(&file, cubin).map_err(failed(&file))?;
        let run = Command::new(&self.path).args(["-c", "-gi"]).arg(&file).output();
        let output = run.map_err(failed(&self.path))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
            return Err(NvdisasmError::Refused(text));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
