//! `run`: texts and tokens, prompts, the context, sampling.

#[cfg(unix)]
use std::io::Read;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{bespoke, command, error, fixture, json, output, scratch};

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
}

#[test]
fn run_gives_the_same_text_with_speculation() {
    let args = ["run", "demo", "--device", "emulator", "-n", "12", "-p", "The old fox. The old fox. The"];
    for sampling in [&[][..], &["--temp", "0.8", "--seed", "4", "--logprobs", "1"]] {
        let args = [&args[..], sampling].concat();
        let expected = output(&args);
        for speculation in [&["--speculate"][..], &["--draft", "demo"], &["--draft", "demo", "--speculate=3"]]
        {
            let ran = bespoke(&[&args[..], speculation].concat());
            assert_eq!((ran.code, ran.stdout), (Some(0), expected.clone()), "{}", ran.stderr);
            let by_model = ran.stderr.contains(" tokens drafted by the draft model, ");
            assert_eq!(by_model, speculation[0] == "--draft", "{}", ran.stderr);
        }
    }
}

/// A small model without built-in kernels.
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
    let args = ["--device", "emulator", "--tokens", "1", "-n", "1", "--no-jit", "--kv", "q8_0"];
    let message = error(&[&["run", &model], &args[..]].concat());
    assert!(
        message.contains("no build has those for a KV cache of q8_0\n  help: leave out --no-jit"),
        "{message}"
    );
}

/// Of the fixtures, the kernels of decode steps of one row are built in, and not those of prefill steps.
#[test]
fn no_jit_needs_the_kernels_of_every_step_that_the_command_uses() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["--device", "emulator", "--tokens", "5,17,300", "--no-jit"];
    let message = error(&[&["run", &model, "-n", "1"], &args[..]].concat());
    assert!(message.contains("BESPOKE_MODEL="), "{message}");
    let (_folder, _, logits) = scratch("logits.safetensors");
    output(&[&["logits", &model, "--out", &logits], &args[..]].concat());
}

#[test]
fn a_prompt_that_does_not_fit_is_an_error_before_anything_is_loaded() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["--device", "emulator", "--ctx", "4", "--tokens", "1,2,3,4,5"];
    // The last token needs no position in the cache.
    for (command, more, help) in [
        ("run", ["-n", "5"], "use --ctx 9, which holds the prompt and its answer, or shorten the prompt"),
        ("logits", ["--out", "never-written"], "use --ctx 5, which holds the prompt, or shorten the prompt"),
    ] {
        let ran = bespoke(&[&[command, &model], &args[..], &more].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let message = format!(
            "error: the prompt does not fit the context: it has 5 tokens, and the context 4 positions\n  help: {help}\n"
        );
        assert_eq!(ran.stderr, message);
    }
    // Without -n there is room for an answer of the default length.
    let message = error(&["run", &model, "--device", "emulator", "-c", "4", "--tokens", "1,2,3,4,5"]);
    assert!(message.contains("help: use --ctx 132, which holds the prompt and its answer"), "{message}");
    for (prompt, message) in [
        ([&model, "--tokens", "1,400"], "error: token 400 is not in the vocabulary of 400 tokens"),
        (["demo", "--prompt", ""], "error: the prompt is empty"),
    ] {
        let ran = bespoke(&[&["run", "--device", "emulator"], &prompt[..]].concat());
        assert!(ran.code == Some(1) && ran.stderr.starts_with(message), "{}", ran.stderr);
    }
}

#[test]
fn damaged_weights_name_the_file() {
    let mut bytes = std::fs::read(fixture("llama-f32.gguf")).unwrap();
    let gguf = bespoke_gguf::Gguf::from_bytes(bytes.clone()).unwrap();
    let at = gguf.require("output_norm.weight").unwrap().offset as usize + 8;
    bytes[at..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let (_folder, path, model) = scratch("damaged.gguf");
    std::fs::write(&path, bytes).unwrap();
    let expected = format!("error: cannot load {model}\n  because tensor output_norm.weight: element 2 ");
    let message = error(&["run", &model, "--device", "emulator", "--tokens", "1", "-n", "1"]);
    assert!(message.starts_with(&expected), "{message}");
    let ran = bespoke(&["check", &model, "--steps", "1"]);
    assert!(ran.code == Some(2) && ran.stderr.contains(&expected), "{}", ran.stderr);
}

#[test]
fn text_ends_where_the_context_does() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["run", &model, "--device", "emulator", "--tokens", "1,2,3", "-n", "50", "--ignore-eos", "-c"];
    // The last token needs no position in the cache.
    for (ctx, tokens) in [("6", "4 tokens at "), ("3", "1 token after a prompt of 3 at ")] {
        let ran = bespoke(&[&args[..], &[ctx]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("\n{tokens}")), "{}", ran.stderr);
        let full = format!("stopped because the context of {ctx} positions is full: --ctx N makes it larger");
        assert!(ran.stderr.contains(&full) && !ran.stderr.contains(" 0.00 "), "{}", ran.stderr);
    }
    let object = json(&[&args[..], &["6", "--format", "json"]].concat());
    assert_eq!((ids(&object).len(), &object["finish_reason"]), (4, &"context_full".into()));
    let object = json(&[&args[..], &["52", "--format", "json"]].concat());
    assert_eq!((ids(&object).len(), &object["finish_reason"]), (50, &"max_tokens".into()));
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
    let input = std::fs::File::open(&path).unwrap();
    let piped = command(&[&args[..], &["-f", "-"]].concat()).stdin(input).output().unwrap();
    assert_eq!(ids(serde_json::from_slice(&piped.stdout).unwrap()), given);
    let message = error(&["run", "--device", "emulator", "-f", "/no/such/file"]);
    assert!(message.starts_with("error: cannot read /no/such/file: "), "{message}");
    std::fs::write(&path, b"caf\xe9").unwrap();
    let message = error(&["run", "--device", "emulator", "-f", &file]);
    assert!(message.contains("prompt.txt: byte 3 (0xe9) is not UTF-8\n  help: convert"), "{message}");
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
fn memory_and_load_times_are_said() {
    let model = fixture("llama-q8_0.gguf");
    let args = ["run", &model, "--device", "emulator", "--tokens", "1", "-n", "1", "--ctx", "100"];
    let brief = bespoke(&args).stderr;
    assert!(brief.contains(" INFO memory: ") && brief.contains(", KV cache for 100 positions "), "{brief}");
    assert!(brief.contains(" INFO loaded in ") && !brief.contains("DEBUG"), "{brief}");
    let verbose = bespoke(&[&args[..], &["-v"]].concat()).stderr;
    for part in [
        "for each position of the cache",
        "kernels built in, 0 generated",
        "weights: repacking ",
        "first token ",
    ] {
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
fn a_missing_gpu_is_an_error_with_advice() {
    if output(&["devices"]).contains("cuda:0") {
        println!("skipped: this machine has a GPU");
        return;
    }
    let message =
        error(&["run", &fixture("llama-q8_0.gguf"), "--device", "cuda", "--tokens", "1", "-n", "1"]);
    assert!(message.contains("\n  help: ") || message.contains("\nhelp: "), "{message}");
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
    // The demo model's kernels are built in.
    let demo = ["run", "demo", "--device", "emulator", "--tokens", "5,17", "--temp", "1.5", "-n", "4"];
    let seeded = [&demo[..], &["--seed", "7", "--ignore-eos"]].concat();
    assert_eq!(output(&[&seeded[..], &["--no-jit"]].concat()), output(&seeded));
    assert_ne!(output(&with(&["--temp", "1.5", "--seed", "8"])), drawn);
    assert_eq!(output(&with(&["--temp", "1.5", "--seed", "7", "--top-k", "1"])), greedy);
    // A penalty below 1 favours repetition.
    assert_ne!(output(&with(&["--repeat-penalty", "0.02", "--repeat-last-n", "-1"])), greedy);
    assert_eq!(output(&with(&["--repeat-penalty", "0.02", "--repeat-last-n", "0"])), greedy);
    // A random seed is printed, and reproduces the text.
    let object = json(&with(&["--temp", "1.5", "--format", "json"]));
    let seed = object["seed"].as_u64().unwrap().to_string();
    let again = json(&[&args[..], &["--temp", "1.5", "--seed", &seed, "--format", "json"]].concat());
    assert_eq!(again["tokens"], object["tokens"]);
    assert_eq!(json(&with(&["--format", "json"]))["seed"], Value::Null);
    let ran = bespoke(&with(&["--temp", "1.5"]));
    assert!(ran.stderr.contains("sampling with a random seed; --seed "), "{}", ran.stderr);
}

#[test]
fn sampling_options_out_of_range_are_errors_that_say_what_is_needed() {
    let model = fixture("llama-q8_0.gguf");
    for (options, message) in [
        (&["--temp", "-1"][..], "invalid value '-1' for '--temp <T>': expected a number from 0"),
        (&["--temp", "inf"], "expected a number from 0"),
        (&["--temp", "warm"], "invalid value 'warm' for '--temp <T>': expected a number from 0"),
        (&["--temp", "1", "--top-p", "1.5"], "'--top-p <P>': expected a number from 0 to 1"),
        (&["--temp", "1", "--min-p", "-0.1"], "'--min-p <P>': expected a number from 0 to 1"),
        (&["--repeat-penalty", "0"], "'--repeat-penalty <R>': expected a number above 0"),
        (
            &["--presence-penalty", "inf"],
            "'--presence-penalty <P>': expected a finite number, usually from -2 to 2",
        ),
        (&["--frequency-penalty", "much"], "'--frequency-penalty <F>': expected a finite number"),
        (&["--logit-bias", "5"], "'--logit-bias <BIAS>': expected ID+VALUE, ID-VALUE or TEXT=VALUE"),
        (&["--logit-bias", "5+inf"], "'--logit-bias <BIAS>': expected a finite number or -inf as the value"),
        (&["--logprobs", "-1"], "'--logprobs <N>': -1 is not in 0..=4294967295"),
        (&["--stop", ""], "invalid value '' for '--stop <TEXT>': the text is empty"),
        (&["-c", "-1"], "invalid value '-1' for '--ctx <N>': -1 is not in 0..=4294967295"),
        (&["--keep", "-1"], "invalid value '-1' for '--keep <N>': -1 is not in 0..=4294967295"),
        (&["--dry-multiplier", "0.8"], "error: --dry-multiplier: DRY is not supported; --repeat-penalty"),
        (&["--xtc-probability", "0.5"], "XTC is not supported; a higher --temp"),
        (&["--typical", "0.9"], "typical-p is not supported; --top-p and --min-p"),
        (&["--mirostat", "2"], "--mirostat: Mirostat is not supported; --temp"),
        (&["--dynatemp-range", "0.5"], "a dynamic temperature is not supported; --temp sets a fixed one"),
        (&["--repeat-last-n", "-2"], "'--repeat-last-n <N>': -2 is not in -1..=4294967295"),
        (&["--temp", "1", "--top-k", "-1"], "'--top-k <K>': -1 is not in 0..=4294967295"),
        (
            &["--temp", "1", "--seed", "-1"],
            "'--seed <SEED>': expected a whole number from 0 to 2^64 - 1; leave it out",
        ),
        (&["--top-k", "40"], "--top-k has no effect without --temp, for example --temp 0.8"),
        (&["--seed", "1"], "--seed has no effect without --temp, for example --temp 0.8"),
    ] {
        let ran = bespoke(&[&["run", &model, "--tokens", "1", "-n", "1"], options].concat());
        assert_eq!(ran.code, Some(2), "{options:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{options:?}: {}", ran.stderr);
    }
}

#[test]
fn a_text_may_begin_with_a_hyphen() {
    let args = ["run", "demo", "--device", "emulator", "-n", "1", "--format", "json"];
    let list = json(&[&args[..], &["-p", "- apples"]].concat());
    assert_eq!(list["prompt_tokens"], json(&[&args[..], &["--prompt=- apples"]].concat())["prompt_tokens"]);
    output(&[&args[..], &["-p", "-5 + 17 =", "--stop", "- b", "--logit-bias", "-=1"]].concat());
    // An option right after `-p` is not taken as its text.
    for (options, option, next) in [
        (&["-p", "-n", "3"][..], "--prompt <PROMPT>", "-n"),
        (&["--prompt", "--temp=0.8"], "--prompt <PROMPT>", "--temp=0.8"),
        (&["-p", "--max-tokens", "3"], "--prompt <PROMPT>", "--max-tokens"),
        (&["-p", "Hi", "--stop", "-p"], "--stop <TEXT>", "-p"),
        (&["-p", "Hi", "--system", "--chat"], "--system <TEXT>", "--chat"),
        (&["-p", "--"], "--prompt <PROMPT>", "--"),
    ] {
        let ran = bespoke(&[&["run", "demo"], options].concat());
        let start = format!("error: a value is required for '{option}' but none was supplied");
        assert_eq!(ran.code, Some(2), "{options:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(&start), "{options:?}: {}", ran.stderr);
        let tip = format!("tip: for the text '{next}', write '");
        assert!(ran.stderr.contains(&tip), "{options:?}: {}", ran.stderr);
    }
    let named = json(&[&args[..], &["--prompt=-n"]].concat());
    assert!(!named["prompt_tokens"].as_array().unwrap().is_empty(), "{named}");
}

#[test]
fn a_number_of_drafts_without_an_equals_sign_is_named() {
    for (args, hint) in [
        (&["run", "demo", "-p", "Hi", "--speculate", "3"][..], "--speculate 3: write --speculate=3"),
        (&["run", "--speculate", "3", "-p", "Hi"], "--speculate 3: write --speculate=3"),
        (&["bench", "demo", "--speculate", "0.5,0.7"], "--speculate 0.5,0.7: write --speculate=0.5,0.7"),
    ] {
        let ran = bespoke(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr, format!("error: {hint}, with an equals sign\n"));
    }
}

#[test]
fn options_of_llama_cpp_bring_what_to_write_instead() {
    for (options, message) in [
        (&["-ngl", "99"][..], "error: -ngl: leave it out: all layers run on the GPU"),
        (&["--n-gpu-layers", "99"], "error: --n-gpu-layers: leave it out"),
        (&["-cnv"], "error: -cnv: `bespoke chat MODEL` holds a conversation"),
        (&["-m", "x.gguf"], "error: -m: the model is an argument without an option"),
        (&["--model=x.gguf"], "error: --model: the model is an argument"),
        (&["--reverse-prompt", "User:"], "error: --reverse-prompt: --stop TEXT ends the text"),
        (&["--grammar", "root"], "error: --grammar: `bespoke serve` takes JSON schemas and grammars"),
        (&["--cache-type-k", "q8_0"], "error: --cache-type-k: --kv f16 or --kv q8_0"),
        (&["-t", "8"], "error: -t: leave it out: RAYON_NUM_THREADS=N limits the threads"),
        (&["-n", "-2"], "'--n <N>': expected a number of tokens, or -1 for no limit"),
        (&["-np", "4"], "error: -np: `bespoke serve` and `bespoke batch` decode several sequences"),
        (&["--max-tokens", "4"], "error: --max-tokens: -n N generates at most N tokens"),
        (&["--max-model-len", "4"], "error: --max-model-len: -c N, --ctx N sets the length"),
        (&["--json"], "error: --json: --format json prints JSON"),
        (&["-o", "json"], "error: -o: results go to standard output"),
        (&["2 + 2 ="], "error: 2 + 2 =: the prompt is an option: -p TEXT"),
    ] {
        let ran = bespoke(&[&["run", "demo", "-p", "1"], options].concat());
        assert_eq!(ran.code, Some(2), "{options:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{options:?}: {}", ran.stderr);
    }
    let ran = bespoke(&["quantize", "in.gguf", "out.gguf", "q4_k_m"]);
    assert!(
        ran.code == Some(2) && ran.stderr == "error: q4_k_m: the type is an option: --type q4_k_m\n",
        "{}",
        ran.stderr
    );
    for (args, message) in [
        (&["demo"][..], "error: demo: a model comes after a command: `bespoke run demo -p TEXT`"),
        (
            &["x.gguf", "-p", "1"],
            "error: x.gguf: a model comes after a command: `bespoke run x.gguf -p TEXT`",
        ),
        (&["chat", "demo", "-p", "1"], "error: -p: `bespoke run MODEL --chat -p TEXT` answers one question"),
        (&["logits", "demo", "1"], "error: 1: the prompt is an option: -p TEXT, or -f FILE"),
        (&["perplexity", "demo", "-p", "1"], "error: -p: the text is a file"),
        (&["bench", "demo", "--json"], "error: --json: -o json prints JSON"),
        (&["synth", "-o", "x.gguf"], "error: -o: the output is an argument without an option"),
        (
            &["run", "1 + 1 ="],
            "error: there is no model 1 + 1 =; a prompt is an option: `bespoke run -p TEXT`",
        ),
        // Errors of checks that read several options show the usage of the command.
        (&["run", "-p", "1", "--seed", "1"], "Usage: bespoke run [OPTIONS] [MODEL]"),
    ] {
        let ran = bespoke(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
    // Names with the same meaning are accepted.
    let args = ["run", "--device", "emulator", "-p", "17 + 25 =", "--ctx-size", "0"];
    for limit in [["-n", "-1"], ["--n-predict", "5"]] {
        assert_eq!(output(&[&args[..], &limit].concat()), " 42\n");
    }
}

/// A model whose vocabulary is not supported, so that it runs on token ids only.
fn with_unsupported_vocabulary() -> (TempDir, String) {
    let (folder, path, model) = scratch("bert.gguf");
    let mut bytes = std::fs::read(fixture("llama-q8_0.gguf")).unwrap();
    let at = bytes.windows(4).position(|it| it == b"gpt2").unwrap();
    bytes[at..at + 4].copy_from_slice(b"bert");
    std::fs::write(path, bytes).unwrap();
    (folder, model)
}

#[test]
fn a_bias_forces_and_forbids_tokens() {
    let args = ["run", "--device", "emulator", "-p", "17 + 25 =", "-n", "3"];
    let with = |more: &[&'static str]| -> Vec<&str> { args.iter().chain(more).copied().collect() };
    assert_eq!(output(&args), " 42\n");
    assert_eq!(output(&with(&["--logit-bias", " 4=-inf", "--logit-bias", " 7=40", "--stop", "7 7"])), " \n");
    let object = json(&with(&["--format", "json"]));
    let biased = format!("{}-inf", ids(&object)[0]);
    let args: Vec<&str> = with(&["--logit-bias"]).into_iter().chain([biased.as_str()]).collect();
    let other = output(&args);
    assert!(!other.starts_with(" 4"), "{other}");

    let (_folder, without) = with_unsupported_vocabulary();
    for (more, message) in [
        (&[][..], "error: --logit-bias: no single token has the text \"foxes and hens\" (its tokens are "),
        (&[&without, "--tokens", "1"][..], "error: --logit-bias `foxes and hens`: there is no vocabulary"),
    ] {
        let prompt: &[&str] = if more.is_empty() { &["-p", "1"] } else { &[] };
        let message_of = error(&[&["run"], more, prompt, &["--logit-bias", "foxes and hens=1"]].concat());
        assert!(message_of.starts_with(message), "{message_of}");
    }
    let model = fixture("llama-q8_0.gguf");
    let message = error(&["run", &model, "--tokens", "1", "--logit-bias", "99999+1"]);
    assert!(
        message.starts_with("error: there is no token 99999 for the logit bias: the vocabulary has "),
        "{message}"
    );
}

#[test]
fn text_ends_before_a_stop_string() {
    let args = ["run", "--device", "emulator", "-p", "The old fox", "--stop"];
    let with = |more: &[&'static str]| -> Vec<&str> { args.iter().chain(more).copied().collect() };
    assert_eq!(output(&with(&["wer. It"])), " lives in the to\n");
    let object = json(&with(&["no such text", "--stop", "tower", "--format", "json"]));
    assert_eq!(
        (&object["text"], &object["finish_reason"]),
        (&" lives in the ".into(), &"stop_string".into())
    );
    // Neither ids nor log-probabilities show the tokens that are cut off.
    let all = ["run", "--device", "emulator", "-p", "17 + 25 =", "--logprobs", "0"];
    let lines =
        |more: &[&str]| output(&[&all[..], more].concat()).lines().map(str::to_owned).collect::<Vec<_>>();
    let (whole, cut, kept) = (lines(&[]), lines(&["--stop", "2"]), lines(&["--stop", "x"]));
    assert!(whole.len() > 2 && whole[1].contains("\"2\""), "{whole:?}");
    assert_eq!((&cut[..], &kept), (&whole[..1], &whole));
    let prompt = json(&[&all[..], &["--format", "json"]].concat());
    let prompt: Vec<String> =
        prompt["prompt_tokens"].as_array().unwrap().iter().map(Value::to_string).collect();
    let args = ["run", "--device", "emulator", "--tokens", &prompt.join(","), "--stop", "2"];
    assert_eq!(output(&args).trim(), whole[0].split_whitespace().next().unwrap());
    let (_folder, model) = with_unsupported_vocabulary();
    let message = error(&["run", &model, "--tokens", "1", "--stop", "x"]);
    assert!(message.starts_with("error: --stop needs a model with a vocabulary"), "{message}");
}

#[test]
fn logprobs_are_printed_for_each_token() {
    let args = ["run", "--device", "emulator", "-p", "17 + 25 =", "--logprobs", "2"];
    let object = json(&[&args[..], &["--format", "json"]].concat());
    let entries = object["logprobs"].as_array().unwrap();
    let tokens = ids(&object);
    assert_eq!(entries.len(), tokens.len());
    for (entry, id) in entries.iter().zip(tokens) {
        let top = entry["top"].as_array().unwrap();
        assert_eq!((entry["token"].as_u64(), top.len()), (Some(id), 2));
        assert_eq!((&top[0]["token"], &top[0]["logprob"]), (&entry["token"], &entry["logprob"]));
        assert!(top[1]["logprob"].as_f64() <= top[0]["logprob"].as_f64(), "{entry}");
    }
    assert_eq!(entries[0]["text"], " 4");
    let lines = output(&args);
    let first = lines.lines().next().unwrap();
    assert!(lines.lines().count() == entries.len() && first.contains("\" 4\" -0."), "{lines}");
    assert_eq!(
        json(&["run", "--device", "emulator", "-p", "1 + 1 =", "--format", "json"])["logprobs"],
        Value::Null
    );
}

#[test]
fn token_ids_without_a_readable_tokenizer_end_at_the_declared_tokens() {
    let (_folder, model) = with_unsupported_vocabulary();
    let ran = bespoke(&["run", &model, "--device", "emulator", "--tokens", "1", "-n", "2"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let warning = "WARN the tokenizer cannot be read, so that tokens have no text (tokenizer.ggml.";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("); generation ends only at the tokens that the metadata declares: "),
        "{}",
        ran.stderr
    );
}
