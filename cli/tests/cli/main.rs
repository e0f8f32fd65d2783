//! The command line, by running the binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

mod batch;
mod bench;
mod chat;
mod demo;
mod folder;
mod inputs;
mod inspect;
mod ir;
mod outputs;
mod perplexity;
mod run;
mod serve;
#[cfg(unix)]
mod signals;
mod terminal;
mod tokenize;

/// Result of running the binary.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Gives Ctrl-C its default action. A shell's background job ignores it, the binary would inherit that, and keep it.
fn default_interrupt() {
    #[cfg(unix)]
    {
        use nix::sys::signal::{SigHandler, Signal, signal};
        // SAFETY: this installs no handler.
        unsafe { signal(Signal::SIGINT, SigHandler::SigDfl) }.unwrap();
    }
}

fn command(args: &[&str]) -> Command {
    default_interrupt();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
    command.args(args).env_remove("BESPOKE_LOG").env_remove("BESPOKE_PTXAS").stdin(Stdio::null());
    command
}

fn bespoke(args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } = command(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs a command that must succeed; returns its standard output.
fn output(args: &[&str]) -> String {
    let ran = bespoke(args);
    assert_eq!(ran.code, Some(0), "{args:?}\n{}", ran.stderr);
    ran.stdout
}

/// Runs a command that must fail with exit code 1 and no standard output; returns the message.
fn error(args: &[&str]) -> String {
    let ran = bespoke(args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}\n{}", ran.stderr);
    assert!(!ran.stderr.contains('\x1b') && !ran.stderr.contains("panicked"), "{}", ran.stderr);
    // Log lines may come before the message.
    let log = |line: &&str| line.starts_with(" INFO ") || line.starts_with(" WARN ");
    let message: String = ran.stderr.split_inclusive('\n').skip_while(log).collect();
    assert!(message.starts_with("error: "), "{}", ran.stderr);
    message
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&output(args)).unwrap()
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    assert!(path.is_file(), "{}", path.display());
    path.to_str().unwrap().to_owned()
}

/// A temporary folder, and a path in it.
fn scratch(name: &str) -> (TempDir, PathBuf, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (folder, path, text)
}

#[test]
fn help_lists_the_commands_and_each_has_examples() {
    let commands = [
        "run",
        "chat",
        "batch",
        "tokenize",
        "logits",
        "perplexity",
        "compare",
        "inspect",
        "specialize",
        "synth",
        "quantize",
        "selftest",
        "bench",
        "bench-server",
        "serve",
        "tune",
        "devices",
    ];
    let help = output(&["--help"]);
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "{command}\n{help}");
        let help = output(&[command, "--help"]);
        assert!(help.contains("Examples:\n") && help.contains(&format!("  bespoke {command}")), "{help}");
    }
    assert_eq!(output(&["--version"]), format!("bespoke {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for args in [
        &["decode"][..],
        &["inspect"],
        &["inspect", "llama-3.1-8b", "--target", "sm_70"],
        &["synth", "x.gguf", "--mix", "q9"],
        &["specialize", "llama-3.1-8b", "--out", "x"],
    ] {
        let ran = bespoke(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
}

#[test]
fn an_option_without_an_effect_is_refused() {
    for (args, message) in [
        (&["inspect", "demo", "--role", "attention"][..], "--role has no effect without --diff"),
        (
            &["inspect", "demo@sm_80", "--target", "sm_90"],
            "demo@sm_80 is for sm_80, but --target is sm_90: give one target",
        ),
        (
            &["inspect", "--diff", "demo@sm_80", "demo@sm_90", "--target", "sm_90"],
            "--target sm_90 has no effect: demo@sm_80 and demo@sm_90 both name a target",
        ),
        (&["opt", "x.ir", "--target", "sm_80"], "--target has no effect without --emit ptx"),
        (
            &["bench", "demo", "-o", "csv", "-b", "2"],
            "-o csv has only the rows of single sequences: it would not print the results of --batch",
        ),
        (
            &["bench", "demo", "-o", "csv", "--timeline"],
            "-o csv has only the rows of single sequences: it would not print the results of --timeline",
        ),
    ] {
        let found = error(args);
        assert!(found.starts_with(&format!("error: {message}")), "{args:?}: {found}");
    }
    for (args, message) in [
        (&["bench", "demo", "--draft-lengths", "3"][..], "--speculate[=<RATES>]"),
        (&["bench-server", "--seconds", "5", "-r", "2"], "'--seconds <SECONDS>' cannot be used with"),
    ] {
        let ran = bespoke(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn a_selftest_takes_the_demo_model_as_a_shape() {
    let args = ["selftest", "--device", "emulator", "--filter", "choose_greedy_n32", "--shape"];
    assert!(output(&[&args[..], &["demo"]].concat()).contains(": 1 kernel, "));
    let message = error(&[&args[..], &["deno"]].concat());
    assert!(message.contains("`deno` is neither a file nor a built-in shape\n  help: did you mean demo?"));
}

#[test]
fn an_unknown_shape_brings_suggestions() {
    let message = error(&["inspect", "lama-3.1-8b"]);
    assert!(message.contains("`lama-3.1-8b` is neither a file nor a built-in shape"), "{message}");
    assert!(message.contains("help: did you mean llama-3.1-8b"), "{message}");
}

#[test]
fn a_folder_without_a_model_is_no_unknown_shape() {
    let folder = tempfile::tempdir().unwrap();
    let Output { status, stderr, .. } = command(&["check", "."]).current_dir(&folder).output().unwrap();
    let message = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(2));
    assert!(message.contains("config.json") && !message.contains("did you mean"), "{message}");
}

#[test]
fn errors_of_files_and_long_prompts_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("text"), "no tensors").unwrap();
    let of_logits = |args: &[&str]| error(&[&["logits", "demo", "--tokens", "1"], args].concat());
    assert!(of_logits(&["--reference", &path("text")]).contains("is not a safetensors file: "));
    let message = of_logits(&["--out", folder.path().to_str().unwrap()]);
    assert!(message.contains("is a folder") && !message.contains("--force"), "{message}");
    let long = vec!["5"; 70].join(",");
    let message = error(&["run", "demo", "--tokens", &long, "--ctx", "64"]);
    assert!(message.contains("and the model was trained for 64"), "{message}");
    assert!(message.contains("help: shorten the prompt"), "{message}");
}

#[test]
fn what_is_no_model_is_said_in_one_message() {
    let (_folder, path, text) = scratch("bad.gguf");
    let message = error(&["inspect", &text]);
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
    let message = error(&["run", &text, "-p", "1"]);
    assert!(message.contains("No such file") && message.contains("nothing is downloaded"), "{message}");
    std::fs::write(&path, "this is not a model").unwrap();
    for command in ["inspect", "run", "logits", "specialize"] {
        let args: &[&str] = match command {
            "inspect" => &["inspect", &text],
            "run" => &["run", &text, "--tokens", "1"],
            "logits" => &["logits", &text, "--tokens", "1", "--out", "x.safetensors"],
            _ => &["specialize", &text, "--target", "sm_90", "--out", "x"],
        };
        let message = error(args);
        assert!(message.contains("bad.gguf") && message.contains("not a GGUF file"), "{message}");
    }
    // Cut off in the tensors' data.
    let whole = std::fs::read(fixture("llama-q4_k_m.gguf")).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 100]).unwrap();
    assert!(error(&["inspect", &text]).contains("bad.gguf"));
}

#[test]
fn specialize_writes_what_the_build_writes() {
    let (_folder, path, out) = scratch("kernels");
    let listed = output(&[
        "specialize",
        &fixture("llama-q8_0.gguf"),
        "--target",
        "sm_90",
        "--target",
        "sm_80",
        "--out",
        &out,
    ]);
    for file in listed.lines() {
        assert!(Path::new(file).is_file(), "{file}");
    }
    let module = std::fs::read_to_string(path.join("kernels.rs")).unwrap();
    let plan = std::fs::read_to_string(path.join("plans/llama-q8_0.sm_90.json")).unwrap();
    let plan: Value = serde_json::from_str(&plan).unwrap();
    for kernel in plan["kernels"].as_array().unwrap() {
        let name = kernel["name"].as_str().unwrap();
        assert!(module.contains(&format!("\"sm_90/{name}.ptx\"")), "{name}");
        let ptx = std::fs::read_to_string(path.join(format!("sm_90/{name}.ptx"))).unwrap();
        assert!(ptx.contains(&format!(".entry {name}(")), "{ptx}");
    }
}

#[test]
fn specialize_leaves_nothing_of_an_earlier_shape_and_what_is_not_its_own() {
    let (_folder, path, out) = scratch("kernels");
    let into = |model: &str, target: &'static str| {
        [
            "specialize".to_owned(),
            fixture(model),
            "--target".into(),
            target.into(),
            "--out".into(),
            out.clone(),
        ]
    };
    let plans = || {
        let mut names: Vec<_> =
            path.join("plans").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        // Only with a ptxas.
        names.retain(|name| name != "qwen2-q4_k_m.sm_90.report.json");
        names.sort();
        names
    };
    fn strs(args: &[String]) -> Vec<&str> {
        args.iter().map(String::as_str).collect()
    }
    output(&strs(&into("llama-q8_0.gguf", "sm_80")));
    for (name, text) in [("notes.txt", "mine"), ("sm_80/other.ptx", "mine"), ("plans/other.json", "{}")] {
        std::fs::write(path.join(name), text).unwrap();
    }
    let again = into("qwen2-q4_k_m.gguf", "sm_90");
    let message = error(&strs(&again));
    assert!(
        message.contains("kernels.json already exists") && message.contains("help: --force"),
        "{message}"
    );
    output(&[&strs(&again)[..], &["--force"]].concat());
    assert_eq!(plans(), ["other.json", "qwen2-q4_k_m.sm_90.json"]);
    let left: Vec<_> =
        path.join("sm_80").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other.ptx"]);
    assert!(path.join("notes.txt").is_file());

    // Two models in one folder, as a build script may write them: the plan to compare is ambiguous.
    let (first, second) = (path.join("plans/qwen2-q4_k_m.sm_90.json"), path.join("plans/other.json"));
    std::fs::copy(&first, path.join("plans/twin.sm_90.json")).unwrap();
    std::fs::remove_file(second).unwrap();
    let message = error(&["inspect", "--diff", &out, &out]);
    assert!(message.contains("plans of several models for sm_90"), "{message}");
    std::fs::rename(path.join("plans/twin.sm_90.json"), path.join("plans/twin.sm_80.json")).unwrap();
    let message = error(&["inspect", "--diff", &out, &out]);
    assert!(message.contains("append a target to the folder, as in DIR@sm_80"), "{message}");
}

#[test]
fn synth_writes_models_that_the_others_read() {
    let (folder, path, text) = scratch("tiny.gguf");
    let ran = bespoke(&["synth", &text, "--arch", "qwen2", "--layers", "3", "--mix", "q8_0", "--tied"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("tiny.gguf: ") && !ran.stderr.contains('\x1b'), "{}", ran.stderr);
    let plan = json(&["inspect", &text, "--stage", "plan", "--format", "json"]);
    assert_eq!(plan["shape"]["architecture"], "qwen2");
    assert_eq!(plan["shape"]["layers"].as_array().unwrap().len(), 3);
    assert_eq!(plan["shape"]["head"], Value::Null);

    // An existing file is not replaced without --force; the same arguments give the same file.
    let first = std::fs::read(&path).unwrap();
    let args = ["synth", &text, "--arch", "qwen2", "--layers", "3", "--mix", "q8_0", "--tied"];
    let message = error(&args);
    assert!(message.contains("tiny.gguf already exists") && message.contains("help: --force"), "{message}");
    output(&[&args[..], &["--force"]].concat());
    assert!(std::fs::read(&path).unwrap() == first);
    output(&[&args[..], &["--force", "--seed", "2"]].concat());
    assert!(std::fs::read(&path).unwrap() != first);

    // A model written with `--like` has the same shape.
    let twin = folder.path().join("twin.gguf");
    let twin = twin.to_str().unwrap();
    output(&["synth", twin, "--like", &text]);
    let mut shapes = [&text[..], twin]
        .map(|model| json(&["inspect", model, "--stage", "plan", "--format", "json"])["shape"].clone());
    for shape in &mut shapes {
        shape["name"] = Value::Null;
    }
    assert_eq!(shapes[0], shapes[1]);
    // No temporary files are left.
    assert_eq!(folder.path().read_dir().unwrap().count(), 2);
}

#[test]
fn a_synthetic_model_has_layers_of_every_kind() {
    for (architecture, layers) in [("llama", 2), ("gemma2", 2), ("smollm3", 4), ("gemma3", 6)] {
        let (_folder, _, text) = scratch("kinds.gguf");
        output(&["synth", &text, "--arch", architecture]);
        let summary = json(&["inspect", &text, "--stage", "model", "--format", "json"]);
        assert_eq!(summary["layers"], layers, "{architecture}");
    }
}

#[test]
fn synth_refuses_what_is_no_model() {
    let (_folder, path, text) = scratch("none.gguf");
    assert!(
        error(&["synth", &text, "--heads", "3"]).contains("3 query heads are not a multiple of 2 key heads")
    );
    assert!(error(&["synth", &text, "--shape", "llama-9"]).contains("`llama-9` is neither"));
    assert!(!path.exists());
}

#[test]
#[cfg(unix)]
fn an_interrupted_specialize_leaves_what_was_there() {
    let (folder, path, text) = scratch("kernels");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("notes.txt"), "mine").unwrap();
    let names = || path.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let targets = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"].map(|target| ["--target", target]);
    let args = [&["specialize", "llama-3.1-8b", "--out", &text][..], targets.as_flattened()].concat();
    let mut child = command(&args).stderr(Stdio::piped()).spawn().unwrap();
    let start = std::time::Instant::now();
    while names().len() == 1 {
        assert!(start.elapsed().as_secs() < 30, "nothing was begun");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(), ["notes.txt"]);
    drop(folder);
}

#[test]
fn devices_end_with_the_emulator_and_say_what_is_built_in() {
    let text = output(&["devices"]);
    assert!(text.contains("emulator  bespoke PTX emulator"), "{text}");
    assert!(text.contains("\nbuilt in: sm_"), "{text}");
    let report = json(&["devices", "--format", "json"]);
    let last = report["devices"].as_array().and_then(|devices| devices.last()).unwrap();
    assert_eq!(
        (&last["kind"], &last["name"]),
        (&"emulator".into(), &"bespoke PTX emulator".into()),
        "{report}"
    );
    assert!(report["built_in"][0]["kernels"].as_u64() > Some(0), "{report}");
}

#[test]
fn the_log_is_filtered_by_the_environment() {
    let ran = command(&["devices"]).env("BESPOKE_LOG", "=nonsense=").output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(stderr.starts_with("error: BESPOKE_LOG: `=nonsense=` is not a valid filter"), "{stderr}");
}

#[test]
fn a_ptxas_that_is_not_there_is_named() {
    let ran = command(&["inspect", "llama-3.2-1b"]).env("BESPOKE_PTXAS", "/no/such/ptxas").output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("BESPOKE_PTXAS: there is no file /no/such/ptxas"));
}

#[test]
fn a_file_that_cannot_be_written_is_known_before_the_work_and_one_that_is_there_stays() {
    let model = fixture("llama-q8_0.gguf");
    let (_folder, path, there) = scratch("there");
    std::fs::write(&path, "something else").unwrap();
    let missing = "/no/such/folder/x";
    for command in [
        &["inspect", &model, "--html"][..],
        &["logits", &model, "--device", "emulator", "--tokens", "1", "--out"],
        &["bench", &model, "--device", "emulator", "--trace"],
        &["synth"],
    ] {
        let message = error(&[command, &[missing]].concat());
        let expected = format!("error: cannot write {missing}: the folder /no/such/folder does not exist\n");
        assert_eq!(message, expected);
        let message = error(&[command, &[&there[..]]].concat());
        assert!(message.starts_with(&format!("error: {there} already exists\n  help: --force")), "{message}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "something else");
    let message = error(&["specialize", &model, "--target", "sm_90", "--out", &there]);
    assert!(message.starts_with(&format!("error: cannot write {there}")), "{message}");
}

#[test]
fn logits_compare_with_what_they_wrote() {
    let (_folder, _, reference) = scratch("logits.safetensors");
    let model = fixture("llama-q4_0.gguf");
    let on = ["--device", "emulator"];
    output(&[&["logits", &model, "--tokens", "7,8,9,10", "--out", &reference], &on[..]].concat());
    let compare = ["logits", &model, "--reference", &reference, "--limit", "1e-9"];
    let text = output(&[&compare[..], &on[..]].concat());
    assert_eq!(text, "llama-q4_0 NMSE 0.000e0 over 4 positions\n");
    let same = ["--tokens", "[7, 8, 9, 10]"];
    assert_eq!(output(&[&compare[..], &same, &on[..]].concat()), text);
    // Another model of the same vocabulary has other logits.
    let other = fixture("llama-q8_0.gguf");
    let ran = bespoke(&[&["logits", &other, "--reference", &reference, "--limit", "1e-9"], &on[..]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stderr.contains("is above the limit of 1.000e-9"), "{}", ran.stderr);
    // What cannot be compared is refused before anything is loaded.
    let large = fixture("llama-q4_k_m.gguf");
    for (model, tokens, message) in [
        (&model, "7,8,9,11", "the reference has token 10 at position 3, the prompt has 11; without a prompt"),
        (&model, "7,8", "the reference has 4 tokens, the prompt has 2"),
        (&large, "7,8,9,10", "the reference has logits of 400 tokens, the model has a vocabulary of 512"),
    ] {
        let ran = bespoke(&["logits", model, "--reference", &reference, "--tokens", tokens]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(message) && !ran.stderr.contains("loaded in"), "{}", ran.stderr);
    }
    let missing = bespoke(&["logits", &model]).stderr;
    assert!(missing.contains("--reference <FILE>") && missing.contains("--prompt <PROMPT>"), "{missing}");
}

#[test]
fn selftest_passes_for_one_kind_of_kernel() {
    let none = error(&["selftest", "--device", "emulator", "--filter", "zzz"]);
    assert!(none.contains("no kernel has `zzz` in its name"), "{none}");
    let text = output(&["selftest", "--device", "emulator", "--filter", "swiglu"]);
    assert!(text.contains("| gemv_q80r40_q80r40") && !text.contains("attention"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.contains(" passed, 0 failed on ") && last.contains(" of them built in"), "{last}");
    let report = json(&["selftest", "--device", "emulator", "--filter", "swiglu", "--format", "json"]);
    assert!(report["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{report}");
    assert!(report["kernels"].as_u64() >= report["built_in"].as_u64(), "{report}");
}
