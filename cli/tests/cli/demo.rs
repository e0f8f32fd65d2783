//! A user's first commands: no arguments, the demo model, a small quantised model.

use super::{bespoke, error, json, output, scratch};

#[test]
fn no_arguments_bring_a_few_lines_that_offer_the_demo() {
    let text = output(&[]);
    assert!(text.lines().count() <= 15, "{text}");
    for part in [
        "\n  bespoke run  ",
        "\n  bespoke run -p \"17 + 25 =\" ",
        "cargo run --release -- run",
        "bespoke --help",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn run_without_a_model_decodes_the_one_inside() {
    let ran = bespoke(&["run", "--device", "emulator"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[..3], ["17 + 25 = 42", "408 - 579 = -171", "86 * 7 = 602"]);
    assert!(lines[3].starts_with("The old fox lives ") && lines[3].ends_with('.'), "{}", ran.stdout);
    // The device and why it was chosen; the speed; what to try next.
    for part in [
        " INFO device: bespoke PTX emulator: selected",
        "3 of 3 answers right; ",
        "bespoke run -p \"17 + 25 =\"",
    ] {
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    }
}

#[test]
fn answers_that_are_cut_off_are_not_counted_as_wrong() {
    for more in [&["run", "-n", "3"][..], &["run", "demo", "-n", "3"]] {
        let ran = bespoke(&[more, &["--device", "emulator"]].concat());
        assert!(ran.stdout.contains("408 - 579 = -17\n"), "{}", ran.stdout);
        assert!(ran.stderr.contains("2 of 2 answers right, 1 cut off by -n; "), "{}", ran.stderr);
    }
}

#[test]
fn the_demo_takes_questions_in_any_spelling() {
    for (question, answer) in [("17 + 25 =", " 42\n"), ("123x8", " 984\n"), (" 12 - 34 = ", " -22\n")] {
        assert_eq!(output(&["run", "--device", "emulator", "-p", question]), answer);
    }
    let object =
        json(&["run", "demo", "--device", "emulator", "-p", "17+25", "--format", "json", "--no-jit"]);
    assert_eq!((&object["model"], &object["text"]), (&"demo".into(), &" 42".into()));
    assert!(output(&["inspect", "demo"]).contains("demo for sm_90: "));
}

#[test]
fn a_model_of_ones_own_needs_a_prompt() {
    let (folder, _, made) = scratch("made.gguf");
    output(&["synth", &made]);
    for (args, parts) in [
        (&["run", &made][..], ["--prompt", "--tokens"]),
        (&["run", "-p", "Hello", "--tokens", "1"], ["--prompt", "--tokens"]),
        (&["run", "no-such.gguf"], ["there is no model no-such.gguf", "-p TEXT"]),
    ] {
        let ran = bespoke(args);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(parts.iter().all(|part| ran.stderr.contains(part)), "{}", ran.stderr);
    }
    drop(folder);
    assert!(error(&["run", "--format", "json"]).contains("--format json needs --prompt or --tokens"));
}

#[test]
fn quantize_writes_what_run_reads() {
    let (folder, path, float) = scratch("float.gguf");
    output(&["synth", &float, "--mix", "f16"]);
    let made = folder.path().join("made.gguf");
    let made_text = made.to_str().unwrap();
    let ran = bespoke(&["quantize", &float, made_text]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("Q4_K, ") && ran.stderr.contains(" Q6_K"), "{}", ran.stderr);
    assert!(made.metadata().unwrap().len() < path.metadata().unwrap().len() / 3);
    assert_eq!(
        output(&["run", made_text, "--device", "emulator", "--tokens", "1,2", "-n", "3"]).split(',').count(),
        3
    );

    let first = std::fs::read(&made).unwrap();
    assert!(error(&["quantize", &float, made_text]).contains("made.gguf already exists"));
    output(&["quantize", &float, made_text, "--force"]);
    assert!(std::fs::read(&made).unwrap() == first);
    // The model itself is never replaced, not even through a link.
    let link = folder.path().join("link.gguf");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for out in [&path, &link].into_iter().filter(|path| path.exists()) {
        let message = error(&["quantize", &float, out.to_str().unwrap(), "--force"]);
        assert!(
            message.contains(" is also an input (") && message.contains("write to another file"),
            "{message}"
        );
    }
    let _ = std::fs::remove_file(link);
    let message = error(&["logits", &float, "--tokens", "1", "--out", &float, "--force"]);
    assert!(message.contains(" is also an input ("), "{message}");
    let again = folder.path().join("again.gguf");
    let message = error(&["quantize", made_text, again.to_str().unwrap(), "-t", "q8_0"]);
    assert!(message.contains("is already Q4_K") && message.contains("--allow-requantize"), "{message}");
    // The demo model is a model as any other; rows that are no whole blocks are named.
    let ran = bespoke(&["quantize", "demo", again.to_str().unwrap(), "-t", "q8_0", "--allow-requantize"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains("not stored in the type of the mix"), "{}", ran.stderr);
    let odd = folder.path().join("odd.gguf");
    let odd = odd.to_str().unwrap();
    output(&["synth", odd, "--mix", "f16", "--ffn", "800"]);
    let ran = bespoke(&["quantize", odd, again.to_str().unwrap(), "--force"]);
    let said = "2 matrices are not stored in the type of the mix, by the length of their rows: ";
    assert!(ran.stderr.contains(said) && ran.stderr.contains(" needs multiples of 256"), "{}", ran.stderr);
    std::fs::remove_file(odd).unwrap();
    std::fs::remove_file(&again).unwrap();
    // No temporary files are left.
    assert_eq!(folder.path().read_dir().unwrap().count(), 2);
}
