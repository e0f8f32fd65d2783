//! Signals: incomplete files are removed, and the exit code is 128 + the signal's number.

use std::io::{Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

const SIGNALS: [(Signal, i32); 3] = [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)];

fn send(child: &Child, signal: Signal) {
    // A process that has ended is a zombie until it is waited for, so its number is not another one's.
    let _ = kill(Pid::from_raw(child.id() as i32), signal);
}

/// Starts a `synth` that takes long, and waits for its temporary file.
fn long_synth(folder: &Path, mut command: Command) -> Child {
    let args = ["synth", "large.gguf", "--shape", "llama-3.1-8b", "--layers", "1", "--mix", "f32"];
    let mut child = command.args(args).current_dir(folder).spawn().unwrap();
    let start = Instant::now();
    while folder.read_dir().unwrap().count() == 0 {
        if start.elapsed().as_secs() > 60 {
            child.kill().unwrap();
            panic!("no temporary file appeared");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn a_signal_removes_what_is_incomplete() {
    for (signal, code) in SIGNALS {
        let folder = tempfile::tempdir().unwrap();
        let mut child = long_synth(folder.path(), command(&[]));
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{signal}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_bespoke")]);
    let mut child = long_synth(folder.path(), shell);
    send(&child, Signal::SIGHUP);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(child.try_wait().unwrap(), None);
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// The message after the first signal waits for a reader of standard error; the second signal does not.
#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    let full = std::thread::spawn(move || {
        // Blocks when the pipe is full, until the test ends.
        let _ = filler.write_all(&vec![b'.'; 1 << 20]);
    });
    std::thread::sleep(Duration::from_millis(200));
    let mut command = command(&[]);
    command.stderr(writer);
    let mut child = long_synth(folder.path(), command);
    send(&child, Signal::SIGTERM);
    let start = Instant::now();
    while folder.path().read_dir().unwrap().count() > 0 {
        assert!(start.elapsed().as_secs() < 60, "the temporary file stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(child.try_wait().unwrap(), None, "the message was not awaited");
    // Not SIGHUP, which `nohup` ignores. The first of these may come too soon to be a second signal.
    while child.try_wait().unwrap().is_none() {
        assert!(start.elapsed().as_secs() < 60, "the process stays");
        send(&child, Signal::SIGTERM);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(child.wait().unwrap().code(), Some(143));
    drop(reader);
    full.join().unwrap();
}

/// `timeout` sends its signal to the process and to its group.
#[test]
fn a_signal_that_comes_twice_is_one() {
    let endless = ["run", "demo", "--device", "emulator", "-p", "The", "--ignore-eos", "-n", "-1"];
    let mut child = command(&endless).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // A piece of the answer: from then on the first Ctrl-C is a request.
    let mut answer = vec![0];
    stdout.read_exact(&mut answer).unwrap();
    send(&child, Signal::SIGINT);
    std::thread::sleep(Duration::from_millis(2));
    send(&child, Signal::SIGINT);
    stdout.read_to_end(&mut answer).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(answer.ends_with(b"\n"), "{:?}", String::from_utf8_lossy(&answer));
}

/// Process 1 of a container has no default actions.
#[test]
#[cfg(target_os = "linux")]
fn process_1_ends_by_signals() {
    let mut namespace = Command::new("unshare");
    namespace.args(["--user", "--map-root-user", "--fork", "--pid", env!("CARGO_BIN_EXE_bespoke")]);
    let folder = tempfile::tempdir().unwrap();
    let mut child = long_synth(folder.path(), namespace);
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let inner: i32 = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(inner), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

/// Signals at random times of every command that writes. Takes minutes; run it with
/// `cargo test -p bespoke-cli --test cli -- --ignored --nocapture signals_at_random_times`. BESPOKE_SIGNALS is the number
/// of signals for each command.
#[test]
#[ignore = "takes minutes"]
fn signals_at_random_times_leave_nothing() {
    let count: u32 = std::env::var("BESPOKE_SIGNALS").map_or(60, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.gguf");
    output(&["synth", model.to_str().unwrap(), "--mix", "f16"]);
    let emulator = ["--device", "emulator"];
    for args in [
        vec!["synth", "out.gguf", "--force", "--hidden", "1024", "--ffn", "4096"],
        vec!["quantize", "model.gguf", "out.gguf", "--force"],
        vec!["specialize", "model.gguf", "--target", "sm_90", "--out", "out", "--force"],
        vec!["inspect", "model.gguf", "--html", "out.html", "--force"],
        [&["logits", "model.gguf", "--tokens", "1", "--out", "out.safetensors", "--force"][..], &emulator]
            .concat(),
        [&["bench", "model.gguf", "-n", "2", "-r", "1", "--trace", "out.json", "--force"][..], &emulator]
            .concat(),
    ] {
        let start = Instant::now();
        let spawn = || {
            let mut command = command(&args);
            command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        assert_eq!(spawn().wait().unwrap().code(), Some(0), "{args:?}");
        let whole = start.elapsed();
        let names = || {
            let mut names: Vec<_> = walk(folder.path());
            names.sort();
            names
        };
        let before = names();
        let (mut ended, mut completed) = (0, 0);
        let mut state = 1u64;
        for index in 0..count {
            // A linear congruential generator: the same times in every run.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (signal, code) = SIGNALS[index as usize % SIGNALS.len()];
            let mut child = spawn();
            std::thread::sleep(whole.mul_f64((state >> 40) as f64 / f64::from(1u32 << 24)));
            send(&child, signal);
            match child.wait().unwrap() {
                status if status.code() == Some(code) => ended += 1,
                status if status.code() == Some(0) => completed += 1,
                // Before the handlers are installed, the signal has its default action.
                status if std::os::unix::process::ExitStatusExt::signal(&status) == Some(code - 128) => {
                    ended += 1
                }
                status => panic!("{args:?}: {status}"),
            }
            assert_eq!(names(), before, "{args:?} after {signal}");
        }
        eprintln!(
            "{:<10} {count} signals: {ended} ended the command, {completed} came too late; nothing left",
            args[0]
        );
    }
}

/// Paths of all files and folders below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { [walk(&path), vec![path]].concat() } else { vec![path] })
        .collect()
}
