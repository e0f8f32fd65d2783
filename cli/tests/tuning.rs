//! `--tune`: every command follows the tuning rules, and the results do not change.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Rules that change every kind of launch.
const RULES: &str = include_str!("../../tests/fixtures/rules.toml");

fn fixture() -> String {
    format!("{}/../tests/fixtures/llama-q4_k_m.gguf", env!("CARGO_MANIFEST_DIR"))
}

/// Exit code, standard output and standard error of the binary.
fn bespoke(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
    command.args(args).env_remove("BESPOKE_LOG").env_remove("BESPOKE_PTXAS").stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn output(args: &[&str]) -> String {
    let (code, stdout, stderr) = bespoke(args);
    assert_eq!(code, Some(0), "{args:?}\n{stderr}");
    stdout
}

fn error(args: &[&str]) -> String {
    let (code, stdout, stderr) = bespoke(args);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{args:?}\n{stderr}");
    stderr
}

/// A file of rules in a temporary folder.
fn rules(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn other_kernels_give_the_same_tokens() {
    let (_folder, rules) = rules(RULES);
    let model = fixture();
    let run = |more: &[&str]| {
        let args = ["run", &model, "--tokens", "1,2,3", "-n", "6", "--device", "emulator"];
        output(&[&args, more].concat())
    };
    assert_eq!(run(&[]), run(&["--tune", &rules]));
    let kernels = |more: &[&str]| -> Vec<String> {
        let json = output(&[&["inspect", &model, "--stage", "plan", "--format", "json"], more].concat());
        let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
        let kernels = plan["kernels"].as_array().unwrap().iter();
        kernels.map(|kernel| kernel["name"].as_str().unwrap().to_owned()).collect()
    };
    let (plain, tuned) = (kernels(&[]), kernels(&["--tune", &rules]));
    let shared: Vec<_> = plain.iter().filter(|name| tuned.contains(name)).collect();
    assert!(shared.iter().all(|name| name.starts_with("embed")), "{shared:?}");
}

#[test]
fn the_plan_says_who_chose() {
    let (_folder, rules) = rules("version = 1\n[[rule]]\nrole = 'ffn_down'\nwarps = 4\nstages = 2");
    let text = output(&["inspect", "llama-3.2-1b", "--stage", "plan", "--tune", &rules]);
    for line in text.lines().take_while(|line| !line.is_empty()).skip(1) {
        let chooser = if line.contains("ffn_down") { "file: warps, stages" } else { "cost model" };
        assert!(line.trim_end().ends_with(chooser), "{line}");
    }
    assert!(text.contains("132 multiprocessors with 228.00 KiB of shared memory each"), "{text}");
}

#[test]
fn rules_apply_to_one_number_of_multiprocessors() {
    let rule = "version = 1\n[[rule]]\nmultiprocessors = 20\nrole = 'ffn_down'\nwarps = 4";
    let (_folder, rules) = rules(rule);
    let plan = |count| {
        let args =
            ["inspect", "llama-3.2-1b", "--stage", "plan", "--tune", &rules, "--multiprocessors", count];
        output(&args)
    };
    let small = plan("20");
    assert!(small.contains("sm_90: 20 multiprocessors with") && small.contains("file: warps"), "{small}");
    let large = plan("114");
    assert!(large.contains("sm_90: 114 multiprocessors with") && !large.contains("file: warps"), "{large}");
}

#[test]
fn text_does_not_depend_on_the_number_of_multiprocessors() {
    let text = |options: &[&str]| {
        output(
            &[&["run", "demo", "--device", "emulator", "-p", "one plus two is", "-n", "8"], options].concat(),
        )
    };
    assert_eq!(text(&["--multiprocessors", "20"]), text(&[]));
}

#[test]
fn specialise_writes_the_kernels_of_the_rules() {
    let (folder, rules) = rules("version = 1\n[[rule]]\nrole = 'output'\nwarps = 5");
    let out = folder.path().join("kernels");
    let written = output(&[
        "specialize",
        &fixture(),
        "--target",
        "sm_80",
        "--out",
        out.to_str().unwrap(),
        "--tune",
        &rules,
    ]);
    let head: Vec<&str> =
        written.lines().filter(|line| line.contains("_argmax_") && line.ends_with(".ptx")).collect();
    assert!(head.len() == 1 && head[0].contains("_w5_") && Path::new(head[0]).is_file(), "{written}");
}

#[test]
fn a_file_that_cannot_be_followed_is_refused() {
    for (text, expected) in [
        ("version = 7", "version 7; this program reads version 1"),
        ("version = 1\n[[rule]]\nrole = 'ffn_down'\nwarps = 32", "ffn_down: warps = 32: must be 1 to 31"),
        ("version = 1\n[[rule]]\nrole = 'output'\nstages = 60", "stages = 60: "),
    ] {
        let (_folder, rules) = rules(text);
        let message = error(&["inspect", "llama-3.2-1b", "--tune", &rules]);
        assert!(message.starts_with("error: ") && message.contains(expected), "{message}");
    }
    let message = error(&["inspect", "llama-3.2-1b", "--tune", "no/such/file"]);
    assert!(message.starts_with("error: cannot read rules from no/such/file\n"), "{message}");
    let (_folder, rules) = rules("version = 1\n[[rule]]\nrole = 'output'\ntarget = 'sm_80'\nwarps = 4");
    let (_, _, warning) = bespoke(&["inspect", "llama-3.2-1b", "--stage", "plan", "--tune", &rules]);
    assert!(
        warning.contains("has no rule for sm_90 with 132 multiprocessors: the cost model decides"),
        "{warning}"
    );
}

#[test]
fn the_emulator_is_not_measured() {
    let message = error(&["tune", &fixture(), "--device", "emulator"]);
    assert!(message.contains("nothing to measure on the emulator"), "{message}");
    assert!(message.contains("--dry-run lists what would be measured"), "{message}");
    let list = output(&["tune", "llama-3.2-1b", "--dry-run", "--device", "emulator"]);
    let line = |role: &str, knob: &str| {
        let has = |line: &&str| line.contains(&format!("| {role} ")) && line.contains(&format!("| {knob} "));
        list.lines().find(has).unwrap_or_else(|| panic!("{role} {knob}\n{list}")).to_owned()
    };
    assert!(line("ffn_down", "warps").contains("| 4, 6, 8, 12, 16 "), "{list}");
    assert!(!line("attn_qkv", "trigger").contains("at_start"), "{list}");
    assert!(line("attention", "splits").contains(" 64 "), "{list}");
}
