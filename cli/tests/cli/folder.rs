//! Models in Hugging Face folders, and quantisation on load.

use super::*;

/// A folder of the package that reads folders.
fn folder(name: &str) -> String {
    format!("{}/../hf/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_folder_runs_and_converts() {
    let model = folder("llama");
    let decode = |model: &str, more: &[&str]| {
        let args = ["run", model, "--device", "emulator", "--tokens", "5,6,7", "-n", "4"];
        output(&[&args, more].concat())
    };
    let ids = decode(&model, &[]);
    assert_eq!(ids.trim().split(',').count(), 4, "{ids}");
    let (_scratch, _, out) = scratch("out.gguf");
    output(&["quantize", &model, &out, "--type", "bf16"]);
    assert_eq!(decode(&out, &[]), ids);

    // Quantised on load or before: the same weights.
    output(&["quantize", &model, &out, "--type", "q8_0", "--force"]);
    assert_eq!(decode(&model, &["--quantize", "q8_0"]), decode(&out, &[]));
    let text = output(&["inspect", &model, "--quantize", "q8_0"]);
    assert!(text.contains("q80"), "{text}");
    let message = error(&["run", &out, "--quantize", "q4_0", "--tokens", "1"]);
    assert!(
        message.contains("is already Q8_0") && message.contains("help: start from the float file"),
        "{message}"
    );
}

#[test]
fn text_and_checks_take_a_folder() {
    let model = folder("qwen2");
    let text = output(&["run", &model, "--device", "emulator", "-p", "the quick", "-n", "2"]);
    assert!(!text.is_empty());
    assert!(output(&["check", &model, "--steps", "1"]).contains("no findings"));
}

#[test]
fn other_folders_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    let message = error(&["run", empty.path().to_str().unwrap(), "--tokens", "1"]);
    assert!(message.contains("a folder without config.json is no model"), "{message}");
}
