//! NVIDIA's assembler: register counts, spills and machine code ahead of time.
//!
//! Kernels run without `ptxas`: the driver assembles PTX itself. If a `ptxas` is found, `bespoke inspect` shows its
//! report, and an emission can embed its machine code (a *cubin*) beside the PTX.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs, io};

use bespoke_files::Scratch;
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, Key};
use crate::ptx::Target;

/// Environment variable with the path of an assembler, or `none` to disable assembling.
pub const VARIABLE: &str = "BESPOKE_PTXAS";

/// Prefix of the PTX comment that states how many bytes of stack per thread the kernel may spill.
pub(crate) const ALLOWED: &str = "// allow_spills: ";

/// Options for every module: source lines for profilers and debuggers, and a report.
const OPTIONS: [&str; 2] = ["-lineinfo", "-v"];

/// Resource usage of a kernel, as reported by ptxas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Registers per thread.
    pub registers: u32,
    /// Spill stores per thread, in bytes.
    pub spill_stores: u32,
    /// Spill loads per thread, in bytes.
    pub spill_loads: u32,
    /// Static shared memory per CTA, in bytes.
    pub static_shared: u32,
    /// Stack frame per thread, in bytes.
    pub stack: u32,
}

impl Usage {
    /// Whether the kernel spills registers or has local arrays beyond a stack frame of `allowed` bytes per thread.
    pub fn spills_beyond(&self, allowed: u32) -> bool {
        self.stack > allowed || (allowed == 0 && self.spill_stores + self.spill_loads > 0)
    }
}

/// Allowed stack frame per thread of the entry point `kernel` in bytes, read from the printer's comment before it in a PTX
/// text; 0 without the comment.
pub fn allowed_stack(ptx: &str, kernel: &str) -> u32 {
    let entry = format!(".visible .entry {kernel}(");
    let before = ptx.lines().zip(ptx.lines().skip(1)).find(|(_, line)| line.starts_with(&entry));
    let noted = before.and_then(|(line, _)| line.strip_prefix(ALLOWED)?.strip_suffix(" bytes of stack"));
    noted.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Result of assembling a module: machine code and resource usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// Resource usage of the module's kernel.
    pub usage: Usage,
    /// The module as an ELF file, for devices of exactly its target's compute capability.
    pub cubin: Vec<u8>,
}

impl Assembled {
    /// Serialised form for the cache: five numbers, then the ELF file.
    fn to_bytes(&self) -> Vec<u8> {
        let Usage { registers, spill_stores, spill_loads, static_shared, stack } = self.usage;
        let mut bytes: Vec<u8> = [registers, spill_stores, spill_loads, static_shared, stack]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        bytes.extend_from_slice(&self.cubin);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Assembled> {
        let (numbers, cubin) = bytes.split_at_checked(5 * size_of::<u32>())?;
        let number = |index: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| numbers[4 * index + byte]));
        let usage = Usage {
            registers: number(0),
            spill_stores: number(1),
            spill_loads: number(2),
            static_shared: number(3),
            stack: number(4),
        };
        Some(Assembled { usage, cubin: cubin.to_vec() })
    }
}

/// Errors of the assembler.
#[derive(Debug, thiserror::Error)]
pub enum PtxasError {
    /// `BESPOKE_PTXAS` names no existing file.
    #[error("BESPOKE_PTXAS: there is no file {}", .0.display())]
    NotFound(PathBuf),
    /// The assembler cannot be run, or one of its files cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the assembler or of the file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The assembler rejected the PTX.
    #[error("ptxas for {target}: {message}")]
    Rejected {
        /// The target that the PTX was assembled for.
        target: Target,
        /// Output of the assembler.
        message: String,
    },
    /// The assembler's output has no report.
    #[error("ptxas reported no resource usage for `{0}`")]
    NoReport(String),
}

/// A `ptxas` executable, with an optional cache of its results.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
    cached: Option<Cached>,
}

/// Cache of results, and the assembler's version, which is part of every key.
#[derive(Clone, Debug)]
struct Cached {
    cache: Cache,
    version: Vec<u8>,
}

impl Ptxas {
    /// Finds the assembler: the path in `BESPOKE_PTXAS`, or else the first `ptxas` on `PATH`. None if there is no
    /// assembler, or if `BESPOKE_PTXAS` is `none` or empty.
    pub fn find() -> Result<Option<Ptxas>, PtxasError> {
        match env::var_os(VARIABLE) {
            Some(value) => Ptxas::named(&value),
            None => Ok(Ptxas::on_path()),
        }
    }

    /// The assembler that `BESPOKE_PTXAS` selects when set to `value`.
    fn named(value: &OsStr) -> Result<Option<Ptxas>, PtxasError> {
        if value.is_empty() || value == "none" {
            return Ok(None);
        }
        let path = PathBuf::from(value);
        if path.is_file() { Ok(Some(Ptxas { path, cached: None })) } else { Err(PtxasError::NotFound(path)) }
    }

    fn on_path() -> Option<Ptxas> {
        let name = format!("ptxas{}", env::consts::EXE_SUFFIX);
        let folders = env::var_os("PATH").unwrap_or_default();
        let path = env::split_paths(&folders).map(|folder| folder.join(&name)).find(|path| path.is_file())?;
        Some(Ptxas { path, cached: None })
    }

    /// Stores results in `cache`, and reuses them for equal inputs.
    pub fn cached(mut self, cache: Cache) -> Result<Ptxas, PtxasError> {
        let version = self.output(&["--version"])?.stdout;
        self.cached = Some(Cached { cache, version });
        Ok(self)
    }

    /// Path of the assembler.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Resource usage of a module with the entry point `kernel`, according to ptxas.
    pub fn assemble(&self, kernel: &str, ptx: &str, target: Target) -> Result<Usage, PtxasError> {
        self.cubin(kernel, ptx, target).map(|assembled| assembled.usage)
    }

    /// Assembles a module with the entry point `kernel`, including line information.
    pub fn cubin(&self, kernel: &str, ptx: &str, target: Target) -> Result<Assembled, PtxasError> {
        let mut assembled = self.cubins(&[kernel], ptx, target)?;
        assembled.pop().ok_or_else(|| PtxasError::NoReport(kernel.to_owned()))
    }

    /// Assembles a module with the entry points `kernels` once, including line information. The results have the same
    /// machine code, and the resource usage of each kernel in turn.
    pub fn cubins(&self, kernels: &[&str], ptx: &str, target: Target) -> Result<Vec<Assembled>, PtxasError> {
        let Some(Cached { cache, version }) = &self.cached else { return self.run(kernels, ptx, target) };
        let target_name = crate::ptx::architecture(ptx).unwrap_or_else(|| target.to_string());
        let options = OPTIONS.join(" ");
        let key = |kernel: &str| {
            Key::of(&[
                version.as_slice(),
                options.as_bytes(),
                target_name.as_bytes(),
                kernel.as_bytes(),
                ptx.as_bytes(),
            ])
        };
        let known = kernels.iter().map(|kernel| Assembled::from_bytes(cache.get(key(kernel)).as_deref()?));
        if let Some(known) = known.collect() {
            return Ok(known);
        }
        let assembled = self.run(kernels, ptx, target)?;
        for (kernel, assembled) in kernels.iter().zip(&assembled) {
            cache
                .put(key(kernel), &assembled.to_bytes())
                .map_err(|source| PtxasError::Io { path: cache.folder().to_owned(), source })?;
        }
        Ok(assembled)
    }

    fn run(&self, kernels: &[&str], ptx: &str, target: Target) -> Result<Vec<Assembled>, PtxasError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| PtxasError::Io { path, source }
        };
        let scratch = Scratch::create().map_err(failed(&env::temp_dir()))?;
        let (input, cubin) = (scratch.path().join("kernel.ptx"), scratch.path().join("kernel.cubin"));
        fs::write(&input, ptx).map_err(failed(&input))?;
        let target_name = crate::ptx::architecture(ptx).unwrap_or_else(|| target.to_string());
        let mut arguments: Vec<&OsStr> = OPTIONS.iter().map(OsStr::new).collect();
        arguments.extend(["-arch", &target_name, "-o"].map(OsStr::new));
        arguments.extend([cubin.as_os_str(), input.as_os_str()]);
        let output = self.output(&arguments)?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if !output.status.success() {
            return Err(PtxasError::Rejected { target, message: text.trim().to_owned() });
        }
        let cubin = fs::read(&cubin).map_err(failed(&cubin))?;
        let assembled = kernels.iter().map(|&kernel| {
            let usage = parse(&text, kernel).ok_or_else(|| PtxasError::NoReport(kernel.to_owned()))?;
            Ok(Assembled { usage, cubin: cubin.clone() })
        });
        assembled.collect()
    }

    fn output(&self, arguments: &[impl AsRef<OsStr>]) -> Result<Output, PtxasError> {
        let run = Command::new(&self.path).args(arguments).output();
        run.map_err(|source| PtxasError::Io { path: self.path.clone(), source })
    }
}

/// Parses the report of `ptxas -v` on `kernel`: counts in the lines after the line that names the kernel.
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
pub(crate) mod tests {
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

    #[test]
    fn a_stack_frame_may_be_as_large_as_the_kernel_allows() {
        let usage = |stack, spill_stores| Usage { stack, spill_stores, ..Usage::default() };
        let spills = [(0, 0, 0), (0, 4, 0), (8, 0, 0), (8, 12, 8), (8, 12, 7)]
            .map(|(stack, stores, allowed)| usage(stack, stores).spills_beyond(allowed));
        assert_eq!(spills, [false, true, true, false, true]);
    }

    #[test]
    fn the_variable_names_an_assembler_or_says_that_there_is_none() {
        for none in ["", "none"] {
            assert!(matches!(Ptxas::named(OsStr::new(none)), Ok(None)), "{none:?}");
        }
        let missing = Ptxas::named(OsStr::new("/no/such/ptxas")).expect_err("there is no such file");
        assert_eq!(missing.to_string(), "BESPOKE_PTXAS: there is no file /no/such/ptxas");
    }

    /// A fake assembler: counts its runs, copies the PTX text to its output, and reports the given usage for kernel
    /// `k`.
    #[cfg(unix)]
    pub(crate) fn fake(folder: &Path, version: &str, report: &str) -> Ptxas {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.join("ptxas");
        let script = format!(
            "#!/bin/sh\n\
             [ \"$1\" = --version ] && {{ echo {version}; exit; }}\n\
             echo run >> {log}\n\
             while [ $# -gt 1 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n\
             cat \"$1\" > \"$out\"\n\
             echo \"ptxas info : Compiling entry function 'k' for 'sm_90'\" >&2\n\
             echo \"{report}\" >&2\n",
            log = folder.join("log").display()
        );
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Ptxas { path, cached: None }
    }

    #[cfg(unix)]
    const REPORTED: &str = "ptxas info : Used 7 registers, 16 bytes smem";

    #[cfg(unix)]
    #[test]
    fn the_same_text_is_assembled_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let runs = || fs::read_to_string(folder.path().join("log")).unwrap_or_default().lines().count();
        let cache = Cache::new(folder.path().join("cache"), 1 << 20);
        let ptxas = fake(folder.path(), "one", REPORTED).cached(cache.clone()).unwrap();
        let usage = Usage { registers: 7, static_shared: 16, ..Usage::default() };
        for (ptx, target, expected) in [
            ("text", Target::Sm90, 1),
            ("text", Target::Sm90, 1),
            ("other text", Target::Sm90, 2),
            ("text", Target::Sm80, 3),
            ("other text", Target::Sm90, 3),
        ] {
            let assembled = ptxas.cubin("k", ptx, target).unwrap();
            assert_eq!(assembled, Assembled { usage, cubin: ptx.into() });
            assert_eq!(runs(), expected, "{ptx} for {target}");
        }
        let newer = fake(folder.path(), "two", REPORTED).cached(cache).unwrap();
        newer.cubin("k", "text", Target::Sm90).unwrap();
        assert_eq!(runs(), 4, "another version of the assembler");
        fake(folder.path(), "two", REPORTED).assemble("k", "text", Target::Sm90).unwrap();
        assert_eq!(runs(), 5, "without a cache");
    }
}
