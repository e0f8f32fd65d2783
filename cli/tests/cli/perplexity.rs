//! `perplexity` and `compare`.

use super::*;

const STORY: &str = "The old fox lives in the tower. It wants a loaf of bread.";

/// A file with a story that the demo model tells.
fn story() -> (TempDir, String) {
    let (folder, path, text) = scratch("story.txt");
    std::fs::write(path, STORY).unwrap();
    (folder, text)
}

#[test]
fn perplexity_of_a_text() {
    let (_folder, text) = story();
    let args = ["perplexity", "demo", "--device", "emulator", "--file", &text, "--ctx", "8", "--chunks", "2"];
    let object = json(&[&args[..], &["--format", "json"]].concat());
    // Windows of 8: the last 3 tokens of each are scored.
    for (key, value) in [("scored", 6), ("positions", 14)] {
        assert_eq!(object[key], value, "{key}");
    }
    assert_eq!((&object["model"], &object["text"]["windows"]), (&"demo".into(), &2.into()));
    let perplexity = object["perplexity"]["value"].as_f64().unwrap();
    assert!(perplexity > 1.0 && perplexity < 50.0, "{object}");
    assert!((perplexity.ln() - object["loss"]["value"].as_f64().unwrap()).abs() < 1e-12);

    let lines = output(&args);
    let error = object["perplexity"]["standard_error"].as_f64().unwrap();
    assert!(
        lines
            .starts_with(&format!("perplexity {perplexity:.4} ± {error:.4} over 6 tokens\n14 positions in "))
    );

    let strided = json(&[&args[..], &["--stride", "4", "--format", "json"]].concat());
    assert_eq!((&strided["scored"], &strided["text"]["stride"]), (&11.into(), &4.into()));
}

#[test]
fn a_model_compared_with_itself_and_with_another() {
    let (_folder, text) = story();
    let rest = ["--device", "emulator", "--file", &text, "--ctx", "8", "--chunks", "1"];
    let same = output(&[&["compare", "demo", "demo"], &rest[..]].concat());
    assert!(same.contains("KL divergence   mean 0.000000 ± 0.000000"), "{same}");
    assert!(same.contains("same top token  100.00 ± 0.00 %"), "{same}");
    let other = fixture("llama-q8_0.gguf");
    let message = error(&[&["compare", "demo", &other], &rest[..]].concat());
    let expected = "cannot be compared: the models have different vocabularies: 512 and 400 tokens";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_text_that_fills_no_window_is_an_error() {
    let (_folder, text) = story();
    let message = error(&["perplexity", "demo", "--device", "emulator", "--file", &text]);
    assert!(
        message.contains("which do not fill a window of ")
            && message.contains("help: use a longer text, or --ctx ")
    );
    for none in [["--chunks", "0"], ["--stride", "0"]] {
        let ran = bespoke(&[&["perplexity", "demo", "--file", &text], &none[..]].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains("0 is not in 1..="), "{}", ran.stderr);
    }
    let message = error(&["perplexity", "demo", "--device", "emulator", "--file", "missing.txt"]);
    assert!(message.starts_with("error: cannot read missing.txt: "), "{message}");
}
