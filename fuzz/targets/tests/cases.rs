//! Runs every target on its checked-in inputs: `fuzz/seeds/TARGET`, where fuzzing begins, and `fuzz/found/TARGET`, inputs
//! that once failed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, panic};

use bespoke_fuzz::TARGETS;
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Longest time for an input, without optimisation and on a busy machine.
const TIME: Duration = Duration::from_secs(10);

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    files
}

/// One test for all targets: the allocator counts the memory of the whole process.
#[test]
fn every_input_passes_within_its_limits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder fuzz");
    let mut failures = Vec::new();
    for target in &TARGETS {
        let seeds = files(&root.join("seeds").join(target.name));
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        for path in seeds.into_iter().chain(files(&root.join("found").join(target.name))) {
            let data = fs::read(&path).expect("an input");
            let (start, before) = (Instant::now(), ALLOCATOR.current_usage());
            ALLOCATOR.reset_peak_usage();
            let outcome = panic::catch_unwind(|| (target.run)(&data));
            let (time, memory) = (start.elapsed(), ALLOCATOR.peak_usage().saturating_sub(before));
            let mut fail = |what: String| failures.push(format!("{}: {what}", path.display()));
            if outcome.is_err() {
                fail("a property fails, see above".into());
            }
            if time > TIME {
                fail(format!("took {time:?}; {TIME:?} is the limit"));
            }
            if memory > target.memory {
                fail(format!("took {memory} bytes of memory; {} is the limit", target.memory));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Every target is a binary for libFuzzer, and every folder of inputs belongs to a target.
#[test]
fn targets_binaries_and_folders_have_the_same_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder fuzz");
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    for folder in ["fuzz_targets", "seeds", "found"] {
        for path in files(&root.join(folder)) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            assert!(names.contains(&&*name), "{}: no target has this name", path.display());
        }
    }
    for name in names {
        let path = root.join("fuzz_targets").join(name).with_extension("rs");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            text.contains(&format!("bespoke_fuzz::run(\"{name}\"")),
            "{}: runs another target",
            path.display()
        );
    }
}
