//! The command line, by running the binary.

#[cfg(unix)]
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

#[path = "cli/demo.rs"]
mod demo;

/// What a run of the binary gave.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
    command.args(args).env_remove("BESPOKE_LOG").env_remove("BESPOKE_PTXAS").stdin(Stdio::null());
    command
}

fn bespoke(args: &[&str]) -> Ran {
    let Output { status, stdout, stderr } = command(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs what must succeed, and gives its standard output.
fn output(args: &[&str]) -> String {
    let ran = bespoke(args);
    assert_eq!(ran.code, Some(0), "{args:?}\n{}", ran.stderr);
    ran.stdout
}

/// Runs what must fail with exit code 1 and nothing on standard output, and gives the message.
fn error(args: &[&str]) -> String {
    let ran = bespoke(args);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}\n{}", ran.stderr);
    assert!(!ran.stderr.contains('\x1b') && !ran.stderr.contains("panicked"), "{}", ran.stderr);
    // What was done before it went wrong is in the log.
    let log = |line: &&str| line.starts_with(" INFO ");
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

/// A folder that is removed, and a path in it.
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
        "logits",
        "inspect",
        "specialize",
        "synth",
        "quantize",
        "selftest",
        "bench",
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
fn an_unknown_shape_brings_suggestions() {
    let message = error(&["inspect", "lama-3.1-8b"]);
    assert!(message.contains("`lama-3.1-8b` is neither a file nor a built-in shape"), "{message}");
    assert!(message.contains("help: did you mean llama-3.1-8b"), "{message}");
}

#[test]
fn what_is_no_model_is_said_in_one_message() {
    let (_folder, path, text) = scratch("bad.gguf");
    let message = error(&["inspect", &text]);
    assert_eq!(message.matches("No such file").count(), 1, "{message}");
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
fn inspect_lists_the_kernels_of_a_model() {
    let text = output(&["inspect", &fixture("llama-q4_k_m.gguf")]);
    for part in ["embed_q4k_v512", "launches", "bytes/launch", "_argmax_g32", "llama-q4_k_m for sm_90: "] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let kernels = json(&["inspect", &fixture("llama-q4_k_m.gguf"), "--format", "json", "--target", "sm_80"]);
    for kernel in kernels.as_array().unwrap() {
        assert_eq!(kernel["target"], "sm_80");
        for count in ["launches", "threads", "bytes"] {
            assert!(kernel[count].as_u64().is_some_and(|count| count > 0), "{count}: {kernel}");
        }
        assert!(kernel["report"]["ptx_lines"].as_u64() > Some(10), "{kernel}");
    }
}

#[test]
fn inspect_shows_a_kernel_at_every_stage() {
    let model = fixture("llama-q8_0.gguf");
    let ptx = output(&["inspect", &model, "swiglu"]);
    assert!(
        ptx.contains(".visible .entry gemv_q80r352_q80r352_c128") && ptx.contains(".target sm_90"),
        "{ptx}"
    );
    let ptx = output(&["inspect", &model, "swiglu", "--stage", "ptx", "--target", "sm_80"]);
    assert!(ptx.contains(".target sm_80"), "{ptx}");

    let (recorded, optimised) = (
        output(&["inspect", &model, "swiglu", "--stage", "ir0"]),
        output(&["inspect", &model, "swiglu", "--stage", "ir"]),
    );
    for ir in [&recorded, &optimised] {
        assert!(ir.starts_with("kernel @gemv_q80r352_q80r352_c128"), "{ir}");
    }
    assert!(optimised.lines().count() < recorded.lines().count());

    let stats = output(&["inspect", &model, "swiglu", "--stage", "stats"]);
    assert!(stats.contains("launches       2 a token") && stats.contains("PTX lines"), "{stats}");

    let message = error(&["inspect", &model, "gemv"]);
    assert!(message.contains("`gemv` starts several") && message.contains("\n  gemv_q80"), "{message}");
}

#[test]
fn inspect_shows_the_plan() {
    let model = fixture("qwen2-q4_k_m.gguf");
    let text = output(&["inspect", &model, "--stage", "plan", "--context", "128"]);
    for part in [
        "blk.0.attn_qkv",
        "qkv=qkv",
        "rope_table=rope_table",
        "blk.0.keys",
        "device memory ",
        "KV cache for 128 positions ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let plan = json(&["inspect", &model, "--stage", "plan", "--context", "128", "--format", "json"]);
    assert_eq!(plan["params"]["context"], 128);
    assert_eq!(plan["target"], "sm_90");
    let launches = plan["launches"].as_array().unwrap().len();
    assert!(text.contains(&format!(": {launches} launches of ")), "{text}");
    // Only the launches of one kernel.
    let text = output(&["inspect", &model, "attention", "--stage", "plan"]);
    assert!(text.contains("blk.0.attention") && !text.contains("blk.0.attn_qkv "), "{text}");
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
        // Only where there is a ptxas.
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
        message.contains("kernels.json is there already") && message.contains("help: --force"),
        "{message}"
    );
    output(&[&strs(&again)[..], &["--force"]].concat());
    assert_eq!(plans(), ["other.json", "qwen2-q4_k_m.sm_90.json"]);
    let left: Vec<_> =
        path.join("sm_80").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other.ptx"]);
    assert!(path.join("notes.txt").is_file());

    // Two models in one folder, as a build script may write them: which is to be compared?
    let (first, second) = (path.join("plans/qwen2-q4_k_m.sm_90.json"), path.join("plans/other.json"));
    std::fs::copy(&first, path.join("plans/twin.sm_90.json")).unwrap();
    std::fs::remove_file(second).unwrap();
    let message = error(&["inspect", "--diff", &out, &out]);
    assert!(message.contains("plans of several models for sm_90"), "{message}");
    std::fs::rename(path.join("plans/twin.sm_90.json"), path.join("plans/twin.sm_80.json")).unwrap();
    let message = error(&["inspect", "--diff", &out, &out]);
    assert!(message.contains("name a target behind the folder, as DIR@sm_80"), "{message}");
}

#[test]
fn a_target_may_stand_behind_a_model() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["inspect", &model, "swiglu", "--stage", "ptx"];
    let behind = format!("{model}@sm_80");
    let by_option = output(&[&args[..], &["--target", "sm_80"]].concat());
    assert_eq!(output(&["inspect", &behind, "swiglu", "--stage", "ptx"]), by_option);
    let message = error(&["inspect", "qwen3-0.6b@sm_75"]);
    assert!(
        message.starts_with("error: qwen3-0.6b@sm_75: unknown target 'sm_75': one of sm_80, "),
        "{message}"
    );
}

#[test]
fn synth_writes_models_that_the_others_read() {
    let (folder, path, text) = scratch("tiny.gguf");
    let ran = bespoke(&["synth", &text, "--arch", "qwen2", "--layers", "3", "--mix", "q8_0", "--tied"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("tiny.gguf: ") && !ran.stderr.contains('\x1b'), "{}", ran.stderr);
    let plan = json(&["inspect", &text, "--stage", "plan", "--format", "json"]);
    assert_eq!(plan["shape"]["architecture"]["name"], "qwen2");
    assert_eq!(plan["shape"]["layers"].as_array().unwrap().len(), 3);
    assert_eq!(plan["shape"]["head"], Value::Null);

    // Not over a file that is there, unless told so; and the same arguments give the same file.
    let first = std::fs::read(&path).unwrap();
    let args = ["synth", &text, "--arch", "qwen2", "--layers", "3", "--mix", "q8_0", "--tied"];
    let message = error(&args);
    assert!(message.contains("tiny.gguf is there already") && message.contains("help: --force"), "{message}");
    output(&[&args[..], &["--force"]].concat());
    assert!(std::fs::read(&path).unwrap() == first);
    output(&[&args[..], &["--force", "--seed", "2"]].concat());
    assert!(std::fs::read(&path).unwrap() != first);

    // A model like it has its shape.
    let twin = folder.path().join("twin.gguf");
    let twin = twin.to_str().unwrap();
    output(&["synth", twin, "--like", &text]);
    let mut shapes = [&text[..], twin]
        .map(|model| json(&["inspect", model, "--stage", "plan", "--format", "json"])["shape"].clone());
    for shape in &mut shapes {
        shape["name"] = Value::Null;
    }
    assert_eq!(shapes[0], shapes[1]);
    // Nothing but the models is left.
    assert_eq!(folder.path().read_dir().unwrap().count(), 2);
}

#[test]
fn synth_refuses_what_is_no_model() {
    let (_folder, path, text) = scratch("none.gguf");
    assert!(error(&["synth", &text, "--heads", "3"]).contains("3 heads cannot share 2 KV heads evenly"));
    assert!(error(&["synth", &text, "--shape", "llama-9"]).contains("`llama-9` is neither"));
    assert!(!path.exists());
}

#[test]
#[cfg(unix)]
fn an_interrupted_synth_leaves_nothing() {
    let (folder, _, text) = scratch("large.gguf");
    let mut child = command(&["synth", &text, "--shape", "llama-3.1-8b", "--layers", "1", "--mix", "f32"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let files = || folder.path().read_dir().unwrap().count();
    let start = std::time::Instant::now();
    while files() == 0 {
        assert!(start.elapsed().as_secs() < 30, "no partial file appeared");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(files(), 0);
}

#[test]
#[cfg(unix)]
fn a_closed_pipe_is_no_panic() {
    let mut child = command(&["inspect", "llama-3.1-8b", "--stage", "plan"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let stderr = child.wait_with_output().unwrap().stderr;
    assert_eq!(String::from_utf8_lossy(&stderr), "");
}

#[test]
fn devices_end_with_the_emulator_and_say_what_is_built_in() {
    let text = output(&["devices"]);
    assert!(text.contains("emulator  bespoke PTX emulator"), "{text}");
    assert!(text.contains("\nbuilt in: sm_"), "{text}");
}

#[test]
fn the_log_is_filtered_by_the_environment() {
    let ran = command(&["devices"]).env("BESPOKE_LOG", "=nonsense=").output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(stderr.starts_with("error: BESPOKE_LOG: `=nonsense=` is no filter"), "{stderr}");
}

#[test]
fn a_ptxas_that_is_not_there_is_named() {
    let ran = command(&["inspect", "llama-3.2-1b"]).env("BESPOKE_PTXAS", "/no/such/ptxas").output().unwrap();
    assert_eq!(ran.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("BESPOKE_PTXAS: there is no file /no/such/ptxas"));
}

/// Token ids of a `run --format json`.
fn ids(output: &Value) -> Vec<u64> {
    output["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn run_gives_the_same_tokens_in_every_form_and_mode() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["run", &model, "--device", "emulator", "--tokens", "5,17,300", "-n", "6", "--ignore-eos"];
    let with = |more: &[&'static str]| -> Vec<&str> { args.iter().chain(more).copied().collect() };
    let object = json(&with(&["--format", "json"]));
    let tokens = ids(&object);
    assert_eq!(tokens.len(), 6);
    assert_eq!(object["prompt_tokens"], serde_json::json!([5, 17, 300]));
    assert!(object["device"].as_str().unwrap().contains("emulator"), "{object}");
    let text = tokens.iter().map(u64::to_string).collect::<Vec<_>>().join(",") + "\n";
    assert_eq!(output(&args), text);
    assert_eq!(output(&with(&["--eager"])), text);
    // The fixtures' kernels are built in.
    assert_eq!(output(&with(&["--no-jit"])), text);
}

/// A small model that no kernels were built in for.
fn odd_model() -> (TempDir, String) {
    let (folder, _, text) = scratch("odd.gguf");
    let dimensions = ["--layers", "1", "--ffn", "768", "--vocab", "521"];
    output(&[&["synth", &text, "--mix", "q8_0"], &dimensions[..]].concat());
    (folder, text)
}

#[test]
fn run_continues_a_text() {
    let (_folder, model) = odd_model();
    let args = ["run", &model, "--device", "emulator", "--prompt", "Hello", "-n", "4", "--ignore-eos"];
    let object = json(&[&args[..], &["--format", "json"]].concat());
    assert!(!object["prompt_tokens"].as_array().unwrap().is_empty(), "{object}");
    assert_eq!(ids(&object).len(), 4);
    assert_eq!(output(&args), format!("{}\n", object["text"].as_str().unwrap()));
}

#[test]
fn no_jit_says_how_to_build_the_kernels_in() {
    let (_folder, model) = odd_model();
    let message = error(&["run", &model, "--device", "emulator", "--tokens", "1", "-n", "1", "--no-jit"]);
    assert!(message.contains("kernels for sm_90 are not built into this binary"), "{message}");
    let command = format!("BESPOKE_MODEL={model} BESPOKE_TARGETS=sm_90 cargo build --release");
    assert!(message.contains(&command), "{message}");
}

#[test]
fn a_prompt_that_does_not_fit_is_an_error_before_anything_is_loaded() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["--device", "emulator", "--ctx", "4", "--tokens", "1,2,3,4,5"];
    for (command, more) in [("run", ["-n", "5"]), ("logits", ["--out", "never-written"])] {
        let ran = bespoke(&[&[command, &model], &args[..], &more].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let message = "error: the context is full: 5 positions are needed and the cache holds 4; use --ctx 5";
        assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
    }
}

#[test]
fn text_ends_where_the_context_does() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["run", &model, "--device", "emulator", "--tokens", "1,2,3", "-n", "50", "--ignore-eos", "-c"];
    // The last token needs no position.
    for (ctx, tokens) in [("6", "4 tokens at "), ("3", "1 token after a prompt of 3 at ")] {
        let ran = bespoke(&[&args[..], &[ctx]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("\n{tokens}")), "{}", ran.stderr);
        let full = format!("the context of {ctx} positions is full; --ctx N for more");
        assert!(ran.stderr.contains(&full) && !ran.stderr.contains(" 0.00 "), "{}", ran.stderr);
    }
    let object = json(&[&args[..], &["6", "--format", "json"]].concat());
    assert_eq!((ids(&object).len(), &object["stopped"]), (4, &"context".into()));
    let object = json(&[&args[..], &["52", "--format", "json"]].concat());
    assert_eq!((ids(&object).len(), &object["stopped"]), (50, &"count".into()));
    let none = bespoke(&["run", &model, "--device", "emulator", "--tokens", "1,2", "-n", "0"]).stderr;
    assert!(none.contains("\n0 tokens after a prompt of 2 on "), "{none}");
}

#[test]
fn a_prompt_comes_from_a_file_or_from_standard_input_too() {
    let (_folder, path, file) = scratch("prompt.txt");
    let args = ["run", "--device", "emulator", "--format", "json", "-n", "1"];
    let ids = |object: Value| object["prompt_tokens"].clone();
    let given = ids(json(&[&args[..], &["-p", "17 + 25 ="]].concat()));
    std::fs::write(&path, "17 + 25 =\n").unwrap();
    assert_eq!(ids(json(&[&args[..], &["-f", &file]].concat())), given);
    let input = std::fs::File::open(&path).unwrap();
    let piped = command(&[&args[..], &["-p", "-"]].concat()).stdin(input).output().unwrap();
    assert_eq!(ids(serde_json::from_slice(&piped.stdout).unwrap()), given);
    let message = error(&["run", "--device", "emulator", "-f", "/no/such/file"]);
    assert!(message.starts_with("error: cannot read the prompt from /no/such/file: "), "{message}");
}

#[test]
fn a_shape_has_no_weights_to_run() {
    for args in [&["run", "llama-3.1-8b", "-p", "hi"][..], &["bench", "llama-3.1-8b"]] {
        let message = error(args);
        assert!(
            message.starts_with("error: `llama-3.1-8b` is a built-in shape, which has no weights"),
            "{message}"
        );
        assert!(message.contains("`bespoke synth llama-3.1-8b.gguf --shape llama-3.1-8b`"), "{message}");
    }
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
        assert!(message.starts_with(&format!("error: cannot write {missing}: No such file")), "{message}");
        let message = error(&[command, &[&there[..]]].concat());
        assert!(
            message.starts_with(&format!("error: {there} is there already\n  help: --force")),
            "{message}"
        );
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "something else");
    let message = error(&["specialize", &model, "--target", "sm_90", "--out", &there]);
    assert!(message.starts_with(&format!("error: cannot write {there}")), "{message}");
}

#[test]
fn memory_and_load_times_are_said() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["run", &model, "--device", "emulator", "--tokens", "1", "-n", "1", "--ctx", "100"];
    let brief = bespoke(&args).stderr;
    assert!(brief.contains(" INFO memory: ") && brief.contains(", KV cache for 100 positions "), "{brief}");
    assert!(brief.contains(" INFO loaded in ") && !brief.contains("DEBUG"), "{brief}");
    let verbose = bespoke(&[&args[..], &["-v"]].concat()).stderr;
    for part in ["a position of the cache", "kernels found, 0 made", "weights: repacking ", "first token "] {
        assert!(verbose.contains(part), "{part}\n{verbose}");
    }
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_ends_its_line() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["run", &model, "--device", "emulator", "--tokens", "5,17", "-n", "2000", "--ignore-eos"];
    let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(130));
    let (rest, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(rest.ends_with('\n') && rest.trim_end().split(',').count() < 2000, "{rest}");
    assert!(stderr.contains(" after a prompt of 2 at "), "{stderr}");
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_with_advice() {
    if output(&["devices"]).contains("cuda:0") {
        println!("not tested: there is a GPU here");
        return;
    }
    let message =
        error(&["run", &fixture("llama-q8_0.gguf"), "--device", "cuda", "--tokens", "1", "-n", "1"]);
    assert!(message.contains("\n  help: ") || message.contains("\nhelp: "), "{message}");
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
    // Other tokens give other logits.
    let ran = bespoke(&[&compare[..], &["--tokens", "7,8,9,11"], &on[..]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stderr.contains("is above the limit of 1.000e-9"), "{}", ran.stderr);
    // Fewer tokens have none to compare with.
    let message = error(&[&compare[..], &["--tokens", "7,8"], &on[..]].concat());
    assert!(message.contains("the reference holds 1600 logits, the model gave 800"), "{message}");
}

#[test]
fn bench_measures_in_three_formats() {
    let model = fixture("llama-q8_0.gguf");
    let bench = |format| {
        output(&["bench", &model, "--device", "emulator", "-n", "4", "-r", "1", "-d", "0,8", "-o", format])
    };
    let results: Value = serde_json::from_str(&bench("json")).unwrap();
    let measurements = results["measurements"].as_array().unwrap();
    assert_eq!(measurements.len(), 2);
    for (measurement, depth) in measurements.iter().zip([0, 8]) {
        assert_eq!((&measurement["depth"], &measurement["tokens"]), (&depth.into(), &4.into()));
        assert_eq!(measurement["mode"], "graph");
        for number in ["tokens_per_second", "bytes_per_token", "bytes_per_second"] {
            assert!(measurement[number].as_f64().is_some_and(|number| number > 0.0), "{measurement}");
        }
        // The emulator's time is no share of what a memory delivers.
        for number in ["ceiling_bytes_per_second", "fraction_of_ceiling"] {
            assert_eq!(measurement[number], Value::Null, "{measurement}");
        }
    }
    let csv = bench("csv");
    let columns: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(columns.len(), 3, "{csv}");
    assert!(columns.iter().all(|line| line.len() == columns[0].len()), "{csv}");
    assert_eq!((columns[0][0], columns[1][0]), ("model", "llama-q8_0"));
    let table = bench("md");
    for part in
        ["| model ", "| llama-q8_0 ", "| tg4 ", "| tg4 @ d8 ", "whose time says nothing about a GPU's"]
    {
        assert!(table.contains(part), "{part}\n{table}");
    }
    assert!(!table.contains('%'), "{table}");
}

/// Numbers named `key` of every element.
fn numbers(list: &Value, key: &str) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|element| element[key].as_f64().unwrap()).collect()
}

#[test]
fn bench_profiles_a_token_and_writes_its_trace() {
    let (_folder, path, trace) = scratch("trace.json");
    let model = fixture("llama-q4_k_m.gguf");
    let bench =
        ["bench", &model, "--device", "emulator", "-n", "2", "-r", "2", "--profile", "--trace", &trace];
    let text = output(&bench);
    for part in
        ["| kernel ", "| ffn_down ", "Q4_K+Q6_K", "\nSum of the kernels ", " as a replay of the graph ("]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let events: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let slices = |tid: u64| events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == tid);
    let span = |e: &Value| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
    // Launches follow each other without a gap; each has what its row has.
    let mut at = 0.0;
    for launch in slices(2) {
        let (start, duration) = span(launch);
        assert!((start - at).abs() < 1e-6 && duration > 0.0, "{launch}");
        at = start + duration;
        let args = &launch["args"];
        assert!(args["kernel"].is_string() && args["bytes"].is_u64() && args["GB/s"].is_f64(), "{launch}");
    }
    // Every launch of a layer is inside that layer's slice.
    let layers: Vec<&Value> = slices(1).collect();
    assert_eq!(layers.len(), 4);
    for launch in slices(2) {
        let (label, (start, duration)) = (launch["name"].as_str().unwrap(), span(launch));
        if let Some(layer) =
            layers.iter().find(|e| label.starts_with(&format!("{}.", e["name"].as_str().unwrap())))
        {
            let (from, length) = span(layer);
            assert!(from <= start && start + duration <= from + length + 1e-6, "{launch} {layer}");
        }
    }
    assert_eq!(slices(3).count(), 1);

    let message = error(&["bench", &model, "--device", "emulator", "--trace", "/no/such/folder/trace.json"]);
    assert!(message.contains("cannot write /no/such/folder/trace.json"), "{message}");

    let results = json(&[&bench[..9], &["--eager", "-o", "json"]].concat());
    let profile = &results["profiles"][0];
    assert_eq!(profile["replay_microseconds"], Value::Null);
    let sum: f64 = numbers(&profile["kernels"], "microseconds").iter().sum();
    assert!((sum / profile["kernels_microseconds"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{profile}");
    assert_eq!(numbers(&profile["matrices"], "launches").iter().sum::<f64>(), 4.0 * 4.0 + 1.0);
}

#[test]
fn bench_gives_every_matrix_its_ceiling() {
    let model = fixture("qwen2-q4_k_m.gguf");
    let bench = ["bench", &model, "--device", "emulator", "-n", "2", "-r", "1", "--ceiling"];
    let text = output(&bench);
    for part in ["| attn_qkv ", "| output ", "\nAll matrices of a token: ", "build: bespoke "] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("A plain read: ") && !text.contains("at the ceiling"), "{text}");
    let results = json(&[&bench[..], &["-o", "json"]].concat());
    assert_eq!(results["build"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(results["device"]["kind"], "emulator");
    // Clocks are a GPU's.
    assert_eq!(results["measurements"][0].get("clocks_before"), None);
    for key in ["microseconds", "bytes", "bytes_per_second", "rotated_bytes", "rows", "cols"] {
        assert!(numbers(&results["matrices"], key).iter().all(|&number| number > 0.0), "{key}: {results}");
    }
}

#[test]
fn selftest_passes_for_one_kind_of_kernel() {
    let text = output(&["selftest", "--device", "emulator", "--filter", "swiglu"]);
    assert!(text.contains("| gemv_q80r40_q80r40") && !text.contains("attention"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.contains(" passed, 0 failed on ") && last.contains(" of them built in"), "{last}");
    let report = json(&["selftest", "--device", "emulator", "--filter", "swiglu", "--format", "json"]);
    assert!(report["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{report}");
    assert!(report["kernels"].as_u64() >= report["built_in"].as_u64(), "{report}");
}

#[test]
fn run_draws_tokens_by_seed() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["run", &model, "--device", "emulator", "--tokens", "5,17,300", "-n", "8", "--ignore-eos"];
    let with = |more: &[&'static str]| -> Vec<&str> { args.iter().chain(more).copied().collect() };
    let greedy = output(&args);
    let drawn = output(&with(&["--temp", "1.5", "--seed", "7"]));
    assert_ne!(drawn, greedy);
    assert_eq!(output(&with(&["--temp", "1.5", "--seed", "7", "--eager"])), drawn);
    assert_eq!(output(&with(&["--temp", "1.5", "--seed", "7", "--no-jit"])), drawn);
    assert_ne!(output(&with(&["--temp", "1.5", "--seed", "8"])), drawn);
    assert_eq!(output(&with(&["--temp", "1.5", "--seed", "7", "--top-k", "1"])), greedy);
    // Below 1 the penalty rewards what was there before.
    assert_ne!(output(&with(&["--repeat-penalty", "0.02", "--repeat-last-n", "-1"])), greedy);
    assert_eq!(output(&with(&["--repeat-penalty", "0.02", "--repeat-last-n", "0"])), greedy);
    // A seed that was not given is shown, and gives the same text again.
    let object = json(&with(&["--temp", "1.5", "--format", "json"]));
    let seed = object["seed"].as_u64().unwrap().to_string();
    let again = json(&[&args[..], &["--temp", "1.5", "--seed", &seed, "--format", "json"]].concat());
    assert_eq!(again["tokens"], object["tokens"]);
    assert_eq!(json(&with(&["--format", "json"]))["seed"], Value::Null);
    let ran = bespoke(&with(&["--temp", "1.5"]));
    assert!(ran.stderr.contains("gives this text again"), "{}", ran.stderr);
}

#[test]
fn sampling_options_out_of_range_are_errors_that_say_what_is_needed() {
    let model = fixture("llama-q8_0.gguf");
    for (options, message) in [
        (&["--temp", "-1"][..], "invalid value '-1' for '--temp <T>': a number from 0 is needed"),
        (&["--temp", "inf"], "a number from 0 is needed"),
        (&["--temp", "warm"], "invalid value 'warm' for '--temp <T>': a number from 0 is needed"),
        (&["--temp", "1", "--top-p", "1.5"], "'--top-p <P>': a number from 0 to 1 is needed"),
        (&["--temp", "1", "--min-p", "-0.1"], "'--min-p <P>': a number from 0 to 1 is needed"),
        (&["--repeat-penalty", "0"], "'--repeat-penalty <R>': a number above 0 is needed"),
        (&["--repeat-last-n", "-2"], "'--repeat-last-n <N>': -2 is not in -1..=4294967295"),
        (&["--temp", "1", "--top-k", "-1"], "unexpected argument '-1' found"),
        (&["--top-k", "40"], "--temp <T>"),
        (&["--seed", "1"], "--temp <T>"),
    ] {
        let ran = bespoke(&[&["run", &model, "--tokens", "1", "-n", "1"], options].concat());
        assert_eq!(ran.code, Some(2), "{options:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{options:?}: {}", ran.stderr);
    }
}

#[test]
fn bench_measures_sampling() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["bench", &model, "--device", "emulator", "-n", "2", "-r", "1", "-o", "md", "--profile"];
    assert!(!output(&args).contains("choose_sampled"));
    assert!(
        output(&[&args[..], &["--temp", "0.8", "--seed", "1"]].concat()).contains("| choose_sampled_v400")
    );
}
