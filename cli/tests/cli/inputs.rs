//! Inputs that cannot be read: a file whose reads fail, a folder in place of a file, a missing file.

use super::*;

/// Command lines with `INPUT` in place of the file.
const READERS: [&str; 15] = [
    "run INPUT -p x",
    "run demo -f INPUT",
    "run demo -p x --tune INPUT",
    "chat INPUT",
    "tokenize INPUT -p x",
    "tokenize demo -f INPUT",
    "perplexity demo -f INPUT",
    "compare demo INPUT -f /etc/passwd",
    "logits demo --reference INPUT",
    "bench INPUT",
    "inspect INPUT",
    "specialize INPUT --target sm_90 --out NEW",
    "quantize INPUT NEW --type q8_0",
    "synth NEW --like INPUT",
    "check SCALE --launches INPUT",
];

/// `/proc/self/mem` is a regular file whose first byte cannot be read (EIO).
#[test]
#[cfg(target_os = "linux")]
fn an_input_that_cannot_be_read_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let names: [&str; 3] = ["/proc/self/mem", "folder", "missing"];
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let scale = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check/scale.ptx");
    for reader in READERS {
        for name in names {
            let line = reader.replace("INPUT", name).replace("SCALE", scale);
            let args: Vec<&str> = line.split(' ').collect();
            let Output { status, stdout, stderr } =
                command(&args).current_dir(folder.path()).output().unwrap();
            let stderr = String::from_utf8(stderr).unwrap();
            assert_eq!(status.code(), Some(if args[0] == "check" { 2 } else { 1 }), "{line}\n{stderr}");
            assert!(stdout.is_empty() && !stderr.contains("panicked"), "{line}\n{stderr}");
            assert!(stderr.starts_with("error: ") && stderr.contains(name), "{line}\n{stderr}");
            let left = folder.path().read_dir().unwrap().count();
            assert_eq!(left, 1, "{line} left a file");
        }
    }
}
