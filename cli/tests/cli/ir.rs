//! The commands `opt` and `reduce`, on files with the text form of a kernel.

use super::*;

/// A file with a kernel as recorded.
fn recorded() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.ir");
    let model = fixture("llama-q8_0.gguf");
    std::fs::write(&path, output(&["inspect", &model, "choose", "--stage", "ir0"])).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn passes_run_over_a_file() {
    let (_folder, file) = recorded();
    let lines = |text: &str| text.lines().count();
    let (few, all) = (output(&["opt", &file, "--passes", "cleanup,dce"]), output(&["opt", &file]));
    assert!(few.starts_with("bespoke-ir 1\nkernel @choose_greedy") && lines(&all) < lines(&few), "{all}");
    let model = fixture("llama-q8_0.gguf");
    assert_eq!(all, output(&["inspect", &model, "choose", "--stage", "ir"]));
    let ptx = output(&["opt", &file, "--emit", "ptx"]);
    assert_eq!(ptx, output(&["inspect", &model, "choose", "--stage", "ptx"]));
    let report = output(&["opt", &file, "--report"]);
    assert_eq!(report, output(&["inspect", &model, "choose", "--stage", "opt-report"]));
    assert!(output(&["opt", "--list-passes"]).starts_with("cleanup\nfold\n"));
}

#[test]
fn errors_of_a_file_have_its_line() {
    let (folder, file) = recorded();
    let message = error(&["opt", &file, "--passes", "unrol"]);
    assert!(message.contains("`unrol` is not a pass; the passes are cleanup, fold"), "{message}");
    let broken = folder.path().join("broken.ir");
    std::fs::write(&broken, "bespoke-ir 1\nkernel @k() {\nblock0:\n  brunch\n}\n").unwrap();
    for command in [&["opt"][..], &["reduce", "--test", "true"]] {
        let message = error(&[command, &[broken.to_str().unwrap()]].concat());
        assert!(message.contains("broken.ir:4:3: `brunch` is not an operation"), "{message}");
    }
}

#[cfg(unix)]
#[test]
fn a_kernel_becomes_small() {
    let (folder, file) = recorded();
    let out = folder.path().join("small.ir");
    let small = out.to_str().unwrap();
    let ran = bespoke(&["reduce", &file, "--test", "grep -q shuffle", "--out", small]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("reduced to 2 instructions, 1 block, 0 parameters in "), "{}", ran.stderr);
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.contains("shuffle") && text.lines().count() < 8, "{text}");
    let message = error(&["reduce", &file, "--test", "grep -q nowhere"]);
    assert!(
        message.contains("`grep -q nowhere` fails for") && message.contains("must exit with 0"),
        "{message}"
    );
}
