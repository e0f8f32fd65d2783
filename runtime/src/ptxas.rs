//! NVIDIA's assembler as a judge: what registers and spills a kernel's PTX comes to.
//!
//! Nothing here is needed to run a model. Where a `ptxas` is found, `inspect` reports what it says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io};

use bespoke_codegen::ptx::Target;
use serde::Serialize;

/// What ptxas says of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Registers a thread.
    pub registers: u32,
    /// Bytes of registers stored to local memory.
    pub spill_stores: u32,
    /// Bytes of registers loaded from local memory.
    pub spill_loads: u32,
    /// Static shared memory, in bytes.
    pub static_shared: u32,
    /// Stack frame, in bytes.
    pub stack: u32,
}

/// Why there is no [`Usage`].
#[derive(Debug, thiserror::Error)]
pub enum PtxasError {
    /// `BESPOKE_PTXAS` names no file.
    #[error("BESPOKE_PTXAS: there is no file {}", .0.display())]
    NotThere(PathBuf),
    /// It cannot be run.
    #[error("cannot run {}: {source}", path.display())]
    Io {
        /// The assembler.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It refused the PTX.
    #[error("ptxas for {target}: {message}")]
    Refused {
        /// The target.
        target: Target,
        /// What it printed.
        message: String,
    },
    /// It printed something else than a report.
    #[error("ptxas reported nothing for `{0}`")]
    NoReport(String),
}

/// An assembler.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
}

impl Ptxas {
    /// The assembler that `BESPOKE_PTXAS` names, or the first `ptxas` on `PATH`; none if there is none.
    pub fn find() -> Result<Option<Ptxas>, PtxasError> {
        if let Some(path) = env::var_os("BESPOKE_PTXAS").filter(|path| !path.is_empty()) {
            let path = PathBuf::from(path);
            return if path.is_file() { Ok(Some(Ptxas { path })) } else { Err(PtxasError::NotThere(path)) };
        }
        let name = format!("ptxas{}", env::consts::EXE_SUFFIX);
        let folders = env::var_os("PATH").unwrap_or_default();
        let path = env::split_paths(&folders).map(|folder| folder.join(&name)).find(|path| path.is_file());
        Ok(path.map(|path| Ptxas { path }))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Assembles a module with the entry point `kernel` and throws the result away.
    pub fn assemble(&self, kernel: &str, ptx: &str, target: Target) -> Result<Usage, PtxasError> {
        let failed = |source| PtxasError::Io { path: self.path.clone(), source };
        let files = Scratch::new();
        fs::write(&files.ptx, ptx).map_err(failed)?;
        let output = Command::new(&self.path)
            .args(["-v", "-arch", &target.to_string(), "-o"])
            .args([&files.cubin, &files.ptx])
            .output()
            .map_err(failed)?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if !output.status.success() {
            return Err(PtxasError::Refused { target, message: text.trim().to_owned() });
        }
        parse(&text, kernel).ok_or_else(|| PtxasError::NoReport(kernel.to_owned()))
    }
}

/// Two temporary files of this process.
struct Scratch {
    ptx: PathBuf,
    cubin: PathBuf,
}

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let named = |extension: &str| {
            env::temp_dir().join(format!("bespoke-{}-{number}.{extension}", std::process::id()))
        };
        Scratch { ptx: named("ptx"), cubin: named("cubin") }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for path in [&self.ptx, &self.cubin] {
            // A file that was never written is no loss.
            let _ = fs::remove_file(path);
        }
    }
}

/// Reads the report of `ptxas -v` on `kernel`: after a line that names it come numbers in words.
fn parse(text: &str, kernel: &str) -> Option<Usage> {
    let names_it =
        |line: &str| line.contains("Compiling entry function") && line.contains(&format!("'{kernel}'"));
    let report: Vec<&str> = text
        .lines()
        .skip_while(|line| !names_it(line))
        .enumerate()
        .take_while(|(index, line)| *index == 0 || !line.contains("Compiling entry function"))
        .map(|(_, line)| line)
        .collect();
    let before = |what: &str| {
        report.iter().find_map(|line| {
            let before = line[..line.find(what)?].trim_end();
            before.rsplit([' ', ',']).next()?.parse().ok()
        })
    };
    Some(Usage {
        registers: before("registers")?,
        spill_stores: before("bytes spill stores").unwrap_or(0),
        spill_loads: before("bytes spill loads").unwrap_or(0),
        static_shared: before("bytes smem").unwrap_or(0),
        stack: before("bytes stack frame").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem, 548 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
";

    #[test]
    fn reports() {
        let first =
            Usage { registers: 255, spill_stores: 12, spill_loads: 8, static_shared: 4096, stack: 16 };
        assert_eq!(parse(REPORT, "first"), Some(first));
        assert_eq!(parse(REPORT, "second"), Some(Usage { registers: 10, ..Usage::default() }));
        assert_eq!(parse(REPORT, "firs"), None);
        assert_eq!(parse("", "first"), None);
    }
}
