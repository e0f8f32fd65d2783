//! Lowest `.target` and `.version` of each instruction, checked in the emulator and with ptxas.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bespoke_emulator::{Module, ParseErrorKind};

use crate::{lines, module};

/// Targets, each with the first PTX version that supports it. A target has all instructions of the targets before it.
const TARGETS: [(&str, &str); 8] = [
    ("sm_75", "6.3"),
    ("sm_80", "7.0"),
    ("sm_86", "7.1"),
    ("sm_89", "7.8"),
    ("sm_90", "7.8"),
    ("sm_90a", "8.0"),
    ("sm_100", "8.6"),
    ("sm_100a", "8.6"),
];

const VERSIONS: [&str; 22] = [
    "6.3", "6.4", "6.5", "7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8", "8.0", "8.1", "8.2",
    "8.3", "8.4", "8.5", "8.6", "8.7", "8.8", "9.0",
];
const NEWEST: &str = VERSIONS[VERSIONS.len() - 1];

/// An instruction to load for a target and version.
struct Case {
    target: &'static str,
    version: &'static str,
    instruction: String,
    /// Whether the target or version does not have the instruction.
    refused: bool,
}

impl Case {
    fn describe(&self) -> String {
        format!("`{}` for {} and {}", self.instruction, self.target, self.version)
    }
}

/// Cases for each instruction: at its requirement, for the next lower target, and for the next lower version.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for line in lines().iter().filter(|line| line.is_supported()) {
        let platforms = line.requirement.split(',').enumerate();
        for (number, platform) in platforms {
            let (target, version) = platform.split_once(':').expect("a target and a version");
            let at = TARGETS.iter().position(|(known, _)| *known == target).expect("a target of the list");
            let version_at = VERSIONS.iter().position(|known| *known == version).expect("a known version");
            let mut platforms = vec![(target, version, false)];
            // Only the first target of a line is the lowest with the instruction.
            if number == 0 && at > 0 {
                platforms.push((TARGETS[at - 1].0, NEWEST, true));
            }
            if version != TARGETS[at].1 {
                platforms.push((target, VERSIONS[version_at - 1], true));
            }
            for (target, version, refused) in platforms {
                let case = |form: &String| Case { target, version, instruction: form.clone(), refused };
                cases.extend(line.forms.iter().map(case));
            }
        }
    }
    cases
}

#[test]
fn instructions_are_refused_below_their_requirement() {
    let mut wrong = String::new();
    for case in cases() {
        let text = module(case.target, case.version, [case.instruction.as_str()]);
        let errors = Module::load(&text).err().unwrap_or_default();
        let for_target = errors.iter().all(|error| error.kind == ParseErrorKind::Target);
        if errors.is_empty() == case.refused || !for_target {
            let _ = writeln!(wrong, "{}: {errors:?}", case.describe());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn ptxas_agrees_with_the_requirements() {
    let Some(ptxas) = std::env::var_os("BESPOKE_PTXAS").map(PathBuf::from) else {
        let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!in_ci, "CI must set BESPOKE_PTXAS to the path of ptxas");
        // `println!` would be captured by the test harness.
        let _ = writeln!(std::io::stderr(), "skipped: BESPOKE_PTXAS does not name a ptxas");
        return;
    };
    let folder = std::env::temp_dir().join(format!("isa-requirements-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the modules");
    let mut wrong = String::new();
    let (refused, accepted): (Vec<Case>, Vec<Case>) = cases().into_iter().partition(|case| case.refused);
    // Runs ptxas once for all instructions of a target and version.
    let mut by_platform: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for case in &accepted {
        by_platform.entry((case.target, case.version)).or_default().push(&case.instruction);
    }
    for ((target, version), instructions) in by_platform {
        if let Err(error) = assemble(&ptxas, &folder, target, &module(target, version, instructions)) {
            let _ = writeln!(wrong, "{target} and {version}: {error}");
        }
    }
    for case in refused {
        let text = module(case.target, case.version, [case.instruction.as_str()]);
        if assemble(&ptxas, &folder, case.target, &text).is_ok() {
            let _ = writeln!(wrong, "{}: ptxas accepts it", case.describe());
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder exists");
    assert!(wrong.is_empty(), "{wrong}");
}

/// Runs ptxas on a module; the error is the output of ptxas.
fn assemble(ptxas: &Path, folder: &Path, target: &str, text: &str) -> Result<(), String> {
    let file = folder.join("module.ptx");
    std::fs::write(&file, text).expect("the folder exists");
    let mut command = Command::new(ptxas);
    command.args(["--compile-only", "-O0", "-arch", target, "-o"]).arg(folder.join("module.o")).arg(&file);
    let output = command.output().expect("BESPOKE_PTXAS names an executable");
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
