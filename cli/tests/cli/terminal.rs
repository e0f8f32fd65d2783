//! Standard output and standard error that cannot be written, and text of files that would drive a terminal.

use std::fs::File;

use bespoke_gguf::{GgmlType, Gguf, Writer};

use super::*;

/// Commands that print results, with their exit code when standard output cannot be written.
fn printers() -> Vec<(Vec<String>, i32)> {
    let model = fixture("llama-q4_0.gguf");
    let text = format!("{}/story.txt", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&text, "The old fox lives in the tower. It wants a loaf of bread.").unwrap();
    let emulator = ["--device", "emulator"];
    let commands: Vec<(Vec<&str>, i32)> = vec![
        (vec![], 1),
        (vec!["--help"], 1),
        (vec!["run", "--help"], 1),
        (vec!["--version"], 1),
        (vec!["devices"], 1),
        (vec!["inspect", &model], 1),
        (vec!["inspect", &model, "--format", "json"], 1),
        (vec!["inspect", &model, "--stage", "plan"], 1),
        (vec!["inspect", &model, "choose", "--stage", "ptx"], 1),
        (vec!["inspect", "--diff", &model, &model], 1),
        (vec!["tokenize", "demo", "-p", "17"], 1),
        (vec!["tokenize", "demo", "--decode", "1,2"], 1),
        (vec!["tokenize", "demo", "-p", "17", "--format", "json"], 1),
        ([&["run", &model, "--tokens", "1", "-n", "2"][..], &emulator].concat(), 1),
        ([&["run", "-p", "17 + 25 =", "--format", "json"][..], &emulator].concat(), 1),
        ([&["run", "-p", "17 + 25 =", "--logprobs", "2"][..], &emulator].concat(), 1),
        ([&["bench", &model, "-n", "1", "-r", "1"][..], &emulator].concat(), 1),
        ([&["perplexity", "demo", "-f", &text, "--ctx", "8", "--chunks", "1"][..], &emulator].concat(), 1),
        (vec!["tune", &model, "--dry-run", "--device", "emulator"], 1),
        (vec!["selftest", "--device", "emulator", "--filter", "choose_greedy"], 1),
        (vec!["check", &model, "--steps", "1"], 2),
        (vec!["check", &model, "--steps", "1", "--format", "json"], 2),
        (vec!["check", "/no/such/file.ptx", "--format", "json"], 2),
    ];
    let owned = |args: Vec<&str>| args.into_iter().map(str::to_owned).collect();
    commands.into_iter().map(|(args, code)| (owned(args), code)).collect()
}

fn started(args: &[String]) -> Command {
    command(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_standard_output_is_an_error() {
    for (args, code) in printers() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = started(&args).stdout(full).output().unwrap();
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{args:?}: {stderr}");
        let message = "cannot write to standard output: No space left on device";
        assert!(stderr.contains(message) && !stderr.contains("panicked"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for (args, _) in printers() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = started(&args).env("BESPOKE_LOG", "error").stdout(writer).output().unwrap();
        assert_eq!(ran.status.code(), Some(141), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&ran.stderr), "", "{args:?}");
    }
}

/// The result is complete, but the exit code says that something was lost.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_behind_standard_error_is_the_exit_code() {
    let args = ["run", "-p", "17 + 25 =", "--device", "emulator"];
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ran = command(&args).stderr(full).output().unwrap();
    assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(1), &b" 42\n"[..]));
    for args in [&["run", "/no/such/model.gguf", "--tokens", "1"][..], &["nonsense"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        assert!(matches!(command(args).stderr(full).status().unwrap().code(), Some(1 | 2)), "{args:?}");
    }
    // A closed pipe is the reader's choice.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = command(&args).stderr(writer).output().unwrap();
    assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b" 42\n"[..]));
}

/// Sets the title, clears the screen, reorders text.
const EVIL: &str = "\x1b]0;title\x07\x1b[2J\u{9b}2J\u{202e}";

fn assert_harmless(text: &str) {
    let control = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    assert!(!text.contains(|letter| control(letter) || letter == '\u{202e}'), "{text:?}");
}

#[test]
fn names_in_a_model_do_not_reach_the_terminal() {
    let (_folder, path, text) = scratch("evil.gguf");
    let file = Gguf::open(fixture("llama-q4_0.gguf")).unwrap();
    let write = |change: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new();
        let keys = file.metadata().map(|(key, _)| key).filter(|&key| key != "general.architecture");
        keys.for_each(|key| writer.copy(&file, key).unwrap());
        for info in file.tensors() {
            writer.tensor(&info.name, &info.dims, info.ty).unwrap();
        }
        change(&mut writer);
        let mut data = writer.start(Vec::new()).unwrap();
        while let Some((_, missing)) = data.next() {
            data.write(&vec![0; missing as usize]).unwrap();
        }
        std::fs::write(&path, data.finish().unwrap()).unwrap();
    };
    let architecture = |writer: &mut Writer, name: &str| writer.set("general.architecture", name).unwrap();
    for change in [
        &(|writer: &mut Writer| architecture(writer, EVIL)) as &dyn Fn(&mut Writer),
        &|writer| {
            architecture(writer, "llama");
            writer.tensor(EVIL, &[32], GgmlType::F32).unwrap();
        },
        &|writer| {
            architecture(writer, "llama");
            writer.set(&format!("llama.{EVIL}"), 1u32).unwrap();
        },
    ] {
        write(change);
        for args in [&["inspect", &text][..], &["run", &text, "--tokens", "1"], &["quantize", &text, "/no/x"]]
        {
            let ran = bespoke(args);
            assert_ne!(ran.code, Some(0));
            assert_harmless(&(ran.stdout + &ran.stderr));
        }
        let ran = bespoke(&["check", &text, "--format", "json"]);
        assert_harmless(&(ran.stdout.clone() + &ran.stderr));
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert!(report["error"].to_string().len() > 10, "{report}");
    }
    let message = error(&["inspect", &text]);
    assert!(message.contains(r"\u{1b}]0;title\u{7}"), "{message}");
}

/// In a pipe, text of a model is exact.
#[test]
fn decoded_text_is_exact_in_a_pipe() {
    let text = output(&["tokenize", "demo", "-p", "17 + 25 =\n", "--format", "json"]);
    let tokens = serde_json::from_str::<Value>(&text).unwrap()["tokens"].to_string();
    let ids = tokens.trim_matches(['[', ']']);
    assert!(output(&["tokenize", "demo", "--decode", ids]).ends_with("17 + 25 =\n\n"));
}

/// Without threads, a command works on its only one or says that it needs more.
#[test]
#[cfg(target_os = "linux")]
fn a_refused_thread_is_no_panic() {
    use std::os::unix::process::CommandExt;
    let model = fixture("llama-q4_0.gguf");
    for (args, works) in [
        (&["tokenize", "demo", "-p", "17"][..], true),
        (&["inspect", "llama-3.2-1b", "choose", "--stage", "ptx"], true),
        (&["run", &model, "--tokens", "1", "-n", "1", "--device", "emulator"], false),
    ] {
        let mut command = command(args);
        // The limit does not bind root.
        // SAFETY: `geteuid` always succeeds.
        if unsafe { libc::geteuid() } == 0 {
            command.uid(65_534);
        }
        // SAFETY: `setrlimit` may be called between `fork` and `exec`.
        unsafe {
            command.pre_exec(|| {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                match libc::setrlimit(libc::RLIMIT_NPROC, &none) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        let ran = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        assert_eq!(ran.status.code(), Some(if works { 0 } else { 1 }), "{args:?}: {stderr}");
        assert!(stderr.contains("threads, using 1"), "{args:?}: {stderr}");
        assert!(works || stderr.contains("error: cannot start threads"), "{args:?}: {stderr}");
    }
}
