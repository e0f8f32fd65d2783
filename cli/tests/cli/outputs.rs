//! Output files and folders: complete or absent, whatever fails.

use super::*;

/// A command that writes `target` in the folder of the test, which has a model `model.gguf`.
struct Writer {
    target: &'static str,
    args: &'static [&'static str],
    /// Standard input.
    input: &'static str,
}

const WRITERS: [Writer; 7] = [
    Writer { target: "out.gguf", args: &["synth", "out.gguf", "--layers", "1", "--vocab", "300"], input: "" },
    Writer { target: "out.gguf", args: &["quantize", "model.gguf", "out.gguf", "--type", "q8_0"], input: "" },
    Writer { target: "page.html", args: &["inspect", "model.gguf", "--html", "page.html"], input: "" },
    Writer {
        target: "l.safetensors",
        args: &["logits", "model.gguf", "--tokens", "1", "--out", "l.safetensors", "--device", "emulator"],
        input: "",
    },
    Writer {
        target: "trace.json",
        args: &["bench", "model.gguf", "-n", "1", "-r", "1", "--device", "emulator", "--trace", "trace.json"],
        input: "",
    },
    Writer {
        target: "kernels",
        args: &["specialize", "model.gguf", "--target", "sm_90", "--out", "kernels"],
        input: "",
    },
    Writer {
        target: "saved.json",
        args: &["chat", "demo", "--device", "emulator", "--chat-template", "chatml"],
        input: "/save saved.json\n",
    },
];

impl Writer {
    /// Runs the command in `folder` with faults, if there are any.
    fn run(&self, folder: &Path, more: &[&str], faults: &str) -> Ran {
        let mut command = command(&[self.args, more].concat());
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("BESPOKE_FAULTS", faults).env("BESPOKE_PTXAS", "none");
        let mut child = command.spawn().unwrap();
        // The command may have ended without reading.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), self.input.as_bytes());
        let ran = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: ran.status.code(), stdout: text(ran.stdout), stderr: text(ran.stderr) }
    }

    /// Option or input that replaces an earlier output.
    fn forced(&self) -> (Writer, &'static [&'static str]) {
        let Writer { target, args, input } = *self;
        match input {
            "" => (Writer { target, args, input }, &["--force"]),
            _ => (Writer { target, args, input: "/save -f saved.json\n" }, &[]),
        }
    }
}

/// A folder with a small float model.
fn prepared() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    output(&["synth", model.to_str().unwrap(), "--layers", "1", "--vocab", "300", "--mix", "f16"]);
    folder
}

/// Paths below a folder, sorted, with the content of files.
fn tree(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in next.read_dir().unwrap().map(|entry| entry.unwrap().path()) {
            let content = if path.is_dir() { Vec::new() } else { std::fs::read(&path).unwrap() };
            if path.is_dir() {
                folders.push(path.clone());
            }
            all.push((path, content));
        }
    }
    all.sort();
    all
}

#[test]
#[cfg(debug_assertions)]
fn a_fault_leaves_what_was_there_and_is_an_error() {
    let folder = prepared();
    for (number, writer) in WRITERS.iter().enumerate() {
        let before = tree(folder.path());
        let failing = |writer: &Writer, more: &[&str], faults: &[&str], before: &[(PathBuf, Vec<u8>)]| {
            for fault in faults {
                let ran = writer.run(folder.path(), more, fault);
                let what = format!("{fault} {:?}\n{}", writer.args, ran.stderr);
                assert_eq!(ran.code, Some(1), "{what}");
                assert!(ran.stderr.contains("cannot write ") && !ran.stderr.contains("panicked"), "{what}");
                assert!(tree(folder.path()) == before, "{what}");
            }
        };
        // Each kind of fault, at one writer after the other.
        let kinds = ["create=1", "space=1", "rename=1"];
        failing(writer, &[], &[kinds[number % kinds.len()]], &before);
        assert_eq!(writer.run(folder.path(), &[], "short=997").code, Some(0), "{:?}", writer.args);
        let first = tree(folder.path());
        assert!(first.len() > before.len(), "{:?}", writer.args);
        // The output is not replaced by accident, and a fault while it is replaced leaves it.
        let ran = writer.run(folder.path(), &[], "");
        assert!(ran.code == Some(1) && ran.stderr.contains("already exists"), "{}", ran.stderr);
        let (writer, force) = writer.forced();
        failing(&writer, force, &[["sync=1", "rename=1"][number % 2]], &first);
        assert_eq!(writer.run(folder.path(), force, "").code, Some(0), "{:?}", writer.args);
        let names =
            |tree: &[(PathBuf, Vec<u8>)]| tree.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(names(&tree(folder.path())), names(&first));
        let target = folder.path().join(writer.target);
        let removed =
            if target.is_dir() { std::fs::remove_dir_all(target) } else { std::fs::remove_file(target) };
        removed.unwrap();
    }
}

#[test]
#[cfg(debug_assertions)]
fn every_move_of_a_folder_can_fail() {
    let folder = prepared();
    let specialize = WRITERS.iter().find(|writer| writer.args[0] == "specialize").unwrap();
    assert_eq!(specialize.run(folder.path(), &[], "").code, Some(0));
    let before = tree(folder.path());
    let mut failed = 0;
    // Other options make other kernels, so that files are removed, replaced and added.
    let more = ["--force", "--target", "sm_80"];
    for rename in (1..).step_by(13) {
        let ran = specialize.run(folder.path(), &more, &format!("rename={rename}"));
        if ran.code == Some(0) {
            break;
        }
        assert!(tree(folder.path()) == before, "rename={rename}: {}", ran.stderr);
        failed += 1;
    }
    assert!(failed >= 2, "{failed} moves failed");
}

#[test]
#[cfg(unix)]
fn links_are_not_followed_and_not_replaced() {
    let (folder, path, text) = scratch("out.gguf");
    let mine = folder.path().join("mine");
    for (name, content) in [("dangling", None), ("mine", Some("mine"))] {
        std::os::unix::fs::symlink(name, &path).unwrap();
        if let Some(content) = content {
            std::fs::write(&mine, content).unwrap();
        }
        assert!(error(&["synth", &text]).contains("already exists"));
        assert!(path.is_symlink() && mine.exists() == content.is_some());
        // With --force the link is replaced, and what it names stays.
        output(&["synth", &text, "--force"]);
        assert!(!path.is_symlink() && path.is_file());
        assert!(!folder.path().join("dangling").exists());
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(std::fs::read_to_string(mine).unwrap(), "mine");
}

/// A limit on the size of files ends a process by a signal, unless it is an error like a full disk.
#[test]
#[cfg(unix)]
fn a_limit_on_the_size_of_files_is_an_error() {
    let (folder, _, text) = scratch("out.gguf");
    let limited = "ulimit -f 64; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_bespoke"), "synth", &text]);
    let ran = command.output().unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with(&format!("error: cannot write {text}: File too large")), "{stderr}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_dash_is_no_output_file() {
    let folder = tempfile::tempdir().unwrap();
    let ran = command(&["synth", "-"]).current_dir(folder.path()).output().unwrap();
    let message = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(1) && message.contains("help: give a file's name"), "{message}");
    assert_eq!(tree(folder.path()), []);
}

#[test]
fn synth_writes_only_what_run_accepts() {
    let (folder, path, text) = scratch("out.gguf");
    for (option, value) in [
        ("--layers", "4294967295"),
        ("--layers", "70000"),
        ("--layers", "0"),
        ("--vocab", "4294967295"),
        ("--hidden", "20000000"),
        ("--context", "0"),
        ("--eps", "nan"),
        ("--eps", "inf"),
        ("--eps", "0"),
        ("--rope-base", "nan"),
    ] {
        let ran = bespoke(&["synth", &text, option, value]);
        assert_eq!(ran.code, Some(2), "{option} {value}: {}", ran.stderr);
        assert!(ran.stderr.contains(option) && ran.stderr.contains(value), "{}", ran.stderr);
    }
    for (args, message) in [
        (&["--hidden", "6"][..], "hidden 6 and ffn 768"),
        (&["--head-dim", "34"], "head dimension 34"),
        (&["--hidden", "4000000", "--mix", "q8_0"], "shared memory"),
    ] {
        let found = error(&[&["synth", &text], args].concat());
        assert!(found.contains(message), "{found}");
    }
    assert!(!path.exists() && folder.path().read_dir().unwrap().count() == 0);
}
