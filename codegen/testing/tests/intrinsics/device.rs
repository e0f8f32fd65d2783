//! Compiles a kernel with and without optimisation, assembles it for several targets and runs it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use bespoke_codegen::dsl::{Recorded, Scalar};
use bespoke_codegen::launch::{Argument, DevicePointer, params};
use bespoke_codegen::passes::OptLevel;
use bespoke_codegen::ptx::Target;
use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run};

use crate::host::Host;

/// Initial state of a global buffer passed to a kernel.
pub enum Buffer {
    /// A buffer with these contents.
    Holding(Vec<u8>),
    /// An uninitialised buffer of this many bytes.
    Empty(usize),
}

/// Bytes of values as in memory.
pub fn bytes<T: Scalar>(values: &[T]) -> Vec<u8> {
    let size = T::TYPE.bytes() as usize;
    values.iter().flat_map(|value| value.bits().to_le_bytes()[..size].to_vec()).collect()
}

/// Values from their bytes in memory.
pub fn values<T: Host>(bytes: &[u8]) -> Vec<T> {
    let element = |chunk: &[u8]| chunk.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
    bytes.chunks_exact(T::TYPE.bytes() as usize).map(|chunk| T::from_bits(element(chunk))).collect()
}

/// Parameters of a kernel launch.
pub struct Launch<'a> {
    /// The lowest target that supports the kernel.
    pub oldest: Target,
    pub config: LaunchConfig,
    /// Buffers for the first parameters, which are pointers.
    pub buffers: &'a [Buffer],
    /// Arguments for the other parameters.
    pub scalars: &'a [&'a dyn Argument],
}

/// Targets for which every kernel is assembled, if they support it.
const TARGETS: [Target; 3] = [Target::Sm80, Target::Sm90, Target::Sm120];

/// Runs a kernel at both optimisation levels. After each, `check` gets the contents of all buffers and the PTX.
pub fn execute(recorded: Recorded, launch: &Launch<'_>, mut check: impl FnMut(&[Vec<u8>], &str)) {
    let kernel = recorded.unwrap_or_else(|error| panic!("{error}"));
    for level in [OptLevel::None, OptLevel::Default] {
        let targets = TARGETS.into_iter().filter(|&target| target >= launch.oldest);
        for (index, target) in targets.enumerate() {
            let first = index == 0;
            // Without optimisation, only the header of the PTX depends on the target.
            if level == OptLevel::None && !first {
                continue;
            }
            let compiled = kernel.compile_at(target, level).unwrap_or_else(|error| panic!("{error}"));
            assemble(&compiled.ptx, target);
            if first {
                let after = emulate(kernel.name(), &compiled.ptx, launch)
                    .unwrap_or_else(|error| panic!("{}: {error}\n{}", kernel.name(), compiled.ptx));
                check(&after, &compiled.ptx);
            }
        }
    }
}

fn emulate(name: &str, ptx: &str, launch: &Launch<'_>) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let module = Module::parse(ptx)?;
    let kernel = module.kernel(name).ok_or("no such kernel")?;
    let memory = Memory::new();
    let mut buffers = Vec::new();
    for (index, buffer) in launch.buffers.iter().enumerate() {
        let length = match buffer {
            Buffer::Holding(bytes) => bytes.len(),
            Buffer::Empty(length) => *length,
        };
        let address = memory.alloc(&format!("buffer {index}"), length as u64);
        if let Buffer::Holding(bytes) = buffer {
            memory.write(address, bytes)?;
        }
        buffers.push((DevicePointer::<u8>::new(address), length));
    }
    let pointers = buffers.iter().map(|(pointer, _)| pointer as &dyn Argument);
    let arguments: Vec<_> = pointers.chain(launch.scalars.iter().copied()).collect();
    run(kernel, &memory, &launch.config, &params(&arguments), &Options::default())?;
    let mut after = Vec::new();
    for (pointer, length) in buffers {
        let mut bytes = vec![0; length];
        memory.read(pointer.address(), &mut bytes)?;
        after.push(bytes);
    }
    Ok(after)
}

/// Checks that the kernel compiles and assembles, at both optimisation levels, for `oldest` and every later target and
/// for no earlier one; returns its optimised instructions for `oldest`, one per line.
pub fn listing(recorded: Recorded, oldest: Target) -> String {
    let kernel = recorded.unwrap_or_else(|error| panic!("{error}"));
    for target in Target::ALL {
        for level in [OptLevel::None, OptLevel::Default] {
            match kernel.compile_at(target, level) {
                Ok(compiled) if target >= oldest => assemble(&compiled.ptx, target),
                Ok(_) => panic!("{} compiles for {target}, before {oldest}", kernel.name()),
                Err(error) if target >= oldest => panic!("{error}"),
                Err(error) => assert!(error.to_string().contains(" needs "), "{error}"),
            }
        }
    }
    let compiled = kernel.compile(oldest).unwrap_or_else(|error| panic!("{error}"));
    let version = compiled.ptx.lines().next().unwrap_or_default();
    // The names of inlined functions follow the code.
    let code = compiled.ptx.split("\n.section").next().unwrap_or_default();
    let body = code.lines().filter(|line| {
        let text = line.trim_start();
        let code = line.starts_with('\t') && !text.starts_with('.') || line.starts_with('$');
        code && !text.starts_with("ld.param") && !text.starts_with("cvta")
    });
    std::iter::once(version).chain(body).flat_map(|line| [line, "\n"]).collect()
}

/// Checks that `ptxas` accepts the PTX, if `ptxas` is available.
pub fn assemble(ptx: &str, target: Target) {
    static SEEN: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let number = number(ptx);
    if !SEEN.lock().unwrap_or_else(PoisonError::into_inner).insert(number) {
        return;
    }
    run_ptxas(ptx, &target.to_string(), "-O0");
}

/// What `ptxas -O3` says about PTX for one compute capability alone, such as sm_90a; `None` without `ptxas`.
pub fn remarks(ptx: &str, target: Target) -> Option<String> {
    run_ptxas(ptx, &format!("{target}a"), "-O3")
}

fn number(ptx: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    ptx.hash(&mut hasher);
    hasher.finish()
}

/// Assembles PTX and returns what ptxas says.
fn run_ptxas(ptx: &str, target: &str, level: &str) -> Option<String> {
    let ptxas = ptxas()?;
    let number = number(ptx);
    let stem =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number:x}{level}", std::process::id()));
    let (source, object) = (stem.with_extension("ptx"), stem.with_extension("cubin"));
    std::fs::write(&source, ptx).expect("the build's own folder is writable");
    let output = Command::new(ptxas)
        .arg(format!("-arch={target}"))
        .args([level, "-o"])
        .args([&object, &source])
        .output()
        .expect("ptxas starts");
    let message = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "ptxas -arch={target}:\n{message}\n{ptx}");
    for file in [source, object] {
        std::fs::remove_file(file).expect("ptxas left the files it was given");
    }
    Some(message)
}

/// Path of the assembler: `BESPOKE_PTXAS`, or `ptxas` on `PATH`.
///
/// # Panics
/// If there is no assembler and `CI` is `true`.
fn ptxas() -> Option<&'static PathBuf> {
    static PTXAS: OnceLock<Option<PathBuf>> = OnceLock::new();
    PTXAS
        .get_or_init(|| {
            let named = std::env::var_os("BESPOKE_PTXAS").map(PathBuf::from);
            let path = std::env::var_os("PATH").unwrap_or_default();
            let on_path =
                || std::env::split_paths(&path).map(|folder| folder.join("ptxas")).find(|f| f.is_file());
            let found = named.or_else(on_path);
            if found.is_none() {
                let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
                assert!(!in_ci, "CI must set BESPOKE_PTXAS to the path of ptxas");
                // Written directly to stderr, because the test harness captures `eprintln!`.
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: no ptxas in BESPOKE_PTXAS or on PATH, so no PTX is assembled"
                );
            }
            found
        })
        .as_ref()
}
