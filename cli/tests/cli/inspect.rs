//! `inspect`: of models, and of emitted folders.

use std::path::Path;

use bespoke_kernels::plan::StepKind;
use serde_json::{Value, json};

use super::{command, error, fixture, json, output, scratch};

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
        assert!(ir.starts_with("bespoke-ir 1\nkernel @gemv_q80r352_q80r352_c128"), "{ir}");
    }
    assert!(optimised.lines().count() < recorded.lines().count());

    let stats = output(&["inspect", &model, "swiglu", "--stage", "stats"]);
    assert!(stats.contains("launches       2 a token") && stats.contains("PTX lines"), "{stats}");

    let message = error(&["inspect", &model, "gemv"]);
    assert!(message.contains("`gemv` starts several") && message.contains("\n  gemv_q80"), "{message}");
}

/// `--rows` and `--prefill` show the steps that an engine has; several numbers are compared.
#[test]
fn inspect_shows_steps_of_several_rows() {
    let model = fixture("llama-q4_k_m.gguf");
    let stats = |options: &[&str]| json(&[&["inspect", &model, "--format", "json"], options].concat());
    let names = |stats: &Value, role: &str| -> Vec<String> {
        let kernels = stats.as_array().unwrap().iter();
        let of_role = kernels.filter(|kernel| kernel["roles"][0] == role);
        of_role.map(|kernel| kernel["name"].as_str().unwrap().to_owned()).collect()
    };
    let sum = |stats: &Value, what: &str, role: &str| -> u64 {
        let kernels = stats.as_array().unwrap().iter();
        kernels.filter(|kernel| kernel["roles"][0] == role).map(|kernel| kernel[what].as_u64().unwrap()).sum()
    };
    let one = stats(&[]);
    // The smallest step for five sequences has eight rows.
    let eight = stats(&["--rows", "5"]);
    let prefill = stats(&["--prefill"]);
    let sizes = StepKind::Prefill.sizes();
    let (smallest, most) = (sizes[0], sizes[sizes.len() - 1]);
    let steps = [(&one, "decode", 1), (&eight, "decode", 8), (&prefill, "prefill", u64::from(most))];
    for (stats, step, rows) in steps {
        for kernel in stats.as_array().unwrap() {
            assert_eq!((&kernel["step"], &kernel["rows"]), (&step.into(), &rows.into()), "{kernel}");
        }
        // A product has as many operations a row whatever the number of rows.
        let operations = sum(stats, "operations", "ffn_gate_up");
        assert_eq!(operations, rows * 2 * 1024 * 256, "{stats}");
        assert_eq!(names(stats, "append").len(), usize::from(step == "prefill"));
        assert_eq!(names(stats, "prepare").is_empty(), rows == 1);
    }
    assert_eq!(stats(&["--prefill", "--rows", &most.to_string()]), prefill);
    let both = stats(&["--rows", "1,8"]);
    let expected: Vec<Value> =
        [&one, &eight].into_iter().flat_map(|stats| stats.as_array().unwrap().clone()).collect();
    assert_eq!(both, Value::Array(expected));

    let rows = format!("1,7,{smallest},{most}");
    let text = output(&["inspect", &model, "--prefill", "--rows", &rows]);
    let line = |rows| format!("\nprefill step of {rows} rows: ");
    for part in ["roofline µs", &line(smallest), &line(most)] {
        assert_eq!(text.matches(part).count(), 1, "{part}\n{text}");
    }
    // The last layer and the head.
    let first_token = stats(&["--first-token", "--rows", "3"]);
    let launches = |stats: &Value| sum(stats, "launches", "ffn_gate_up");
    assert_eq!((launches(&first_token), launches(&one)), (1, 4));
    assert_eq!((&first_token[0]["step"], &first_token[0]["rows"]), (&"first_token".into(), &4.into()));
    let text = output(&["inspect", &model, "--first-token", "--stage", "plan"]);
    assert!(text.contains("select_rows") && !text.contains("embed_"), "{text}");
    let text = output(&["inspect", &model, "--rows", "8"]);
    assert!(text.contains("llama-q4_k_m for sm_90, a decode step of 8 rows: "), "{text}");
    assert!(text.contains(" launches a step; "), "{text}");
    let text = output(&["inspect", &model, "--rows", "9", "--prefill", "--stage", "plan"]);
    assert!(text.contains(&format!(" for sm_90, a prefill step of {smallest} rows: ")), "{text}");
    let text = output(&["inspect", &model, "choose", "--rows", "8", "--stage", "stats"]);
    assert!(text.contains("launches       1 a step"), "{text}");

    for (options, expected) in [
        (&["--rows", "65"][..], "--rows 65: decode steps have at most 64 rows"),
        (&["--rows", "1,8", "--stage", "ptx"], "can be compared only at --stage stats"),
        (&["choose", "--rows", "1,8"], "can be compared only at --stage stats"),
    ] {
        let message = error(&[&["inspect", &model], options].concat());
        assert!(message.contains(expected), "{options:?}: {message}");
    }
    let message = error(&["inspect", "--diff", &model, &model, "--rows", "1,8"]);
    assert!(message.contains("--diff compares steps of one number of rows"), "{message}");
}

#[test]
fn inspect_shows_the_plan() {
    let model = fixture("qwen2-q4_k_m.gguf");
    let text = output(&["inspect", &model, "--stage", "plan", "--ctx", "128"]);
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
    let plan = json(&["inspect", &model, "--stage", "plan", "--ctx", "128", "--format", "json"]);
    assert_eq!(plan["params"]["context"], 128);
    assert_eq!(plan["gpu"]["target"], "sm_90");
    let launches = plan["launches"].as_array().unwrap().len();
    assert!(text.contains(&format!(": {launches} launches of ")), "{text}");
    // Only the launches of one kernel.
    let text = output(&["inspect", &model, "attention", "--stage", "plan"]);
    assert!(text.contains("blk.0.attention") && !text.contains("blk.0.attn_qkv "), "{text}");
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
        message.starts_with("error: qwen3-0.6b@sm_75: unknown target `sm_75`; expected one of sm_80, "),
        "{message}"
    );
}

#[test]
fn a_missing_ptxas_is_said_once() {
    let args = ["inspect", &fixture("llama-q8_0.gguf"), "--rows", "1,2,4"];
    let ran = command(&args).env("BESPOKE_PTXAS", "none").output().unwrap();
    let log = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(log.matches("no ptxas on PATH or in BESPOKE_PTXAS").count(), 1, "{log}");
}

#[cfg(unix)]
#[test]
fn a_ptxas_without_output_is_named() {
    let args = ["inspect", &fixture("llama-q8_0.gguf"), "choose", "--stage", "stats"];
    let ran = command(&args).env("BESPOKE_PTXAS", "/bin/true").output().unwrap();
    let log = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.success() && log.contains(": ptxas (/bin/true) made no machine code: "), "{log}");
}

/// What a build script wrote: kernels for sm_80 and sm_90, two of them in one module, and one for sm_90 alone.
fn emitted() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../codegen/tests/stubs/emitted");
    path.to_str().unwrap().to_owned()
}

#[test]
fn inspect_shows_what_a_build_script_emitted() {
    let folder = emitted();
    let without_ptxas = |args: &[&str]| {
        let ran = command(args).env("BESPOKE_PTXAS", "none").output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    let listed = without_ptxas(&["inspect", &folder]);
    let names: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let kernels = ["kernel", "added", "blend", "doubled", "names", "nothing", "picked", "scaled"];
    assert_eq!(names[..8], kernels, "{listed}");
    assert!(listed.ends_with("emitted for sm_90: 7 kernels\n"), "{listed}");

    let described = without_ptxas(&["inspect", &folder, "blend", "--stage", "stats", "--target", "sm_80"]);
    let lines = [
        "what           blends, and rounds to bytes",
        "target         sm_80",
        "grid           4 CTAs of 64 threads",
        "parameters     x: *f32, y: *i8, flip: bool, scale: f16, pair: f16x2, n: u32",
        "registers      unknown without ptxas",
    ];
    for line in lines {
        assert!(described.lines().any(|it| it == line), "{line} in\n{described}");
    }
    let stats = json(&["inspect", &folder, "blend", "--stage", "stats", "--format", "json"]);
    assert_eq!((&stats[0]["name"], &stats[0]["block"][0]), (&"blend".into(), &64.into()));

    let ptx = std::fs::read_to_string(Path::new(&folder).join("sm_80/blend.ptx")).unwrap();
    assert_eq!(output(&["inspect", &format!("{folder}@sm_80"), "blend"]), ptx);
    // Two kernels share a module, whose text is printed once.
    let all = output(&["inspect", &format!("{folder}@sm_80"), "--stage", "ptx"]);
    assert_eq!(all.matches(".entry added(").count(), 1, "{all}");
}

#[test]
fn inspect_says_what_a_folder_does_not_hold() {
    let folder = emitted();
    let behind = format!("{folder}@sm_120");
    for (args, says) in [
        (
            &["inspect", &folder, "--stage", "plan"][..],
            "--stage plan needs a plan; a folder has only kernels",
        ),
        (&["inspect", &folder, "--ctx", "100"], "--ctx needs a plan"),
        (&["inspect", &behind], "no kernel is for sm_120; there are kernels for sm_80, sm_90"),
        (&["inspect", &folder, "nothing", "--target", "sm_80"], "`nothing` is not a kernel of"),
        (&["inspect", env!("CARGO_MANIFEST_DIR")], "there is no kernels.json"),
    ] {
        let message = error(args);
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_manifest_that_no_gpu_could_launch_is_an_error() {
    let text = std::fs::read_to_string(Path::new(&emitted()).join("kernels.json")).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    let (_folder, path, folder) = scratch("kernels");
    std::fs::create_dir(&path).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut manifest = manifest.clone();
        change(&mut manifest["kernels"][0]);
        std::fs::write(path.join("kernels.json"), manifest.to_string()).unwrap();
        error(&["inspect", &folder])
    };
    for block in [json!([0, 1, 1]), json!([65536, 65536, 1])] {
        let message = with(&|kernel| kernel["block"] = block.clone());
        assert!(message.contains("`added`: `block`: a CTA of"), "{message}");
    }
    let message = with(&|kernel| kernel["dynamic_shared"] = json!(u32::MAX));
    assert!(message.contains("bytes of shared memory"), "{message}");
}

#[test]
fn a_folder_is_compared_with_a_shape_for_as_many_positions() {
    let (_folder, _, out) = scratch("kernels");
    let ran = |args: &[&str]| {
        let ran = command(args).env("BESPOKE_PTXAS", "none").output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    ran(&["specialize", "qwen3-0.6b", "--target", "sm_90", "--out", &out]);
    for sides in [[&out, "qwen3-0.6b"], ["qwen3-0.6b", &out]] {
        let text = ran(&["inspect", "--diff", sides[0], sides[1], "--stage", "ptx"]);
        let roles =
            text.lines().last().unwrap().strip_prefix("equal: ").map(|roles| roles.split(", ").count());
        assert!(roles > Some(5) && !text.contains("->"), "{text}");
    }
}

#[test]
fn a_model_s_file_is_summarised_first() {
    let summary = output(&["inspect", "demo", "--stage", "model"]);
    for line in [
        "architecture  llama\n",
        "context       64 positions\n",
        "layers        4, width 256, feed-forward 512\n",
        "tensors       24 Q4_K (1.09 MiB), 5 Q6_K (",
        "tokenizer     gpt2 with gpt-2, 512 tokens\n",
        "end tokens    511 <|end|>\n",
        "chat template no\n",
    ] {
        assert!(summary.contains(line), "{line}\n{summary}");
    }
    assert!(output(&["inspect", "demo"]).starts_with(&format!("{summary}\n")));
    let object = json(&["inspect", "demo", "--stage", "model", "--format", "json"]);
    assert_eq!((&object["context"], &object["templates"]), (&64.into(), &serde_json::json!([])));
    assert_eq!(object["types"][0]["name"], "Q4_K");
    // A built-in shape has no file.
    assert!(!output(&["inspect", "llama-3.2-1b"]).contains("architecture"));
    let message = error(&["inspect", "llama-3.2-1b", "--stage", "model"]);
    assert!(message.contains("`llama-3.2-1b` is a built-in shape"), "{message}");
}
