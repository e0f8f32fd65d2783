//! `batch`: answers in the order of the prompts, bad lines, and an interrupted batch.

use std::fs;
use std::path::Path;

use super::*;

const PROMPTS: &str = r#"{"prompt": "17 + 25 =", "id": "sum"}
{"prompt": "The old fox", "n": 5, "ignore_eos": true}

{"tokens": [5, 6, 7], "n": 3, "id": {"number": 3}}
{"prompt": "The old fox", "stop": "tower", "temperature": 0.0}
"#;

/// A folder with the prompts; the path of the prompts and that of the output.
fn prompts(text: &str) -> (TempDir, String, String) {
    let (folder, path, input) = scratch("prompts.jsonl");
    fs::write(path, text).unwrap();
    let out = folder.path().join("out.jsonl").to_str().unwrap().to_owned();
    (folder, input, out)
}

fn batch<'a>(input: &'a str, out: &'a str) -> [&'a str; 7] {
    ["batch", "demo", input, "-o", out, "--device", "emulator"]
}

/// The output's lines without timings.
fn answers(out: &str) -> Vec<Value> {
    let answer = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let timings = value.as_object_mut().unwrap().remove("timings").unwrap();
        let seconds = |name: &str| timings[name].as_f64().unwrap();
        assert!(seconds("first_token_seconds") > 0.0, "{timings}");
        assert!(seconds("total_seconds") >= seconds("first_token_seconds"), "{timings}");
        value
    };
    fs::read_to_string(out).unwrap().lines().map(answer).collect()
}

#[test]
fn speculation_changes_no_answer() {
    let copying = r#"{"prompt": "The old fox lives in the tower. The old fox lives in the", "n": 12, "ignore_eos": true}
{"prompt": "The old fox lives in the tower. The old", "n": 12, "temperature": 0.7, "seed": 3}"#;
    let (_folder, input, out) = prompts(copying);
    assert_eq!(bespoke(&batch(&input, &out)).code, Some(0));
    let expected = answers(&out);
    let ran = bespoke(&[&batch(&input, &out)[..], &["--speculate=3", "--force"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains(" tokens drafted by look-up, "), "{}", ran.stderr);
    assert_eq!(answers(&out), expected);
    for more in [&["--draft", "demo"][..], &["--draft", "demo", "--speculate=2"]] {
        let ran = bespoke(&[&batch(&input, &out)[..], &["--force"], more].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains(" tokens drafted by the draft model, "), "{}", ran.stderr);
        assert_eq!(ran.stderr.contains(" tokens drafted by look-up, "), more.len() > 2, "{}", ran.stderr);
        assert_eq!(answers(&out), expected);
    }
}

#[test]
fn answers_by_f16_do_not_depend_on_the_other_prompts() {
    let (_folder, input, out) = prompts(PROMPTS);
    let by_f16 = [&batch(&input, &out)[..], &["--force", "--arithmetic", "f16"]].concat();
    let answers_with = |more: &[&str]| {
        let ran = bespoke(&[&by_f16, more].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        answers(&out)
    };
    let alone = answers_with(&["--parallel", "1"]);
    assert_eq!(alone.len(), 4);
    assert_eq!(answers_with(&["--parallel", "4"]), alone);
    assert_eq!(answers_with(&["--parallel", "2", "--speculate=3"]), alone);
    let ran = bespoke(&[&batch(&input, &out)[..], &["--arithmetic", "f8"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("unknown arithmetic `f8`; known are integers and f16"), "{}", ran.stderr);
}

#[test]
fn a_draft_model_of_another_vocabulary_is_refused() {
    let (_folder, input, out) = prompts(PROMPTS);
    let missing = out.replace("out.jsonl", "missing.gguf");
    for (draft, difference) in [
        (
            fixture("llama-q8_0.gguf").as_str(),
            " cannot draft for demo: the models have different vocabularies: ",
        ),
        (&missing, "missing.gguf"),
    ] {
        let ran = bespoke(&[&batch(&input, &out)[..], &["--draft", draft]].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(difference), "{}", ran.stderr);
    }
}

#[test]
fn answers_are_those_of_run_in_the_order_of_the_prompts() {
    let (folder, input, out) = prompts(PROMPTS);
    let ran = bespoke(&batch(&input, &out));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains(" tokens/s, on bespoke PTX emulator"), "{}", ran.stderr);
    let answers = answers(&out);
    let run =
        |args: &[&str]| json(&[&["run", "demo", "--device", "emulator", "--format", "json"], args].concat());
    let fox = ["--prompt", "The old fox"];
    for (index, (id, args, reason)) in [
        ("sum".into(), &["--prompt", "17 + 25 ="][..], "stop_token"),
        (Value::Null, &[&fox[..], &["-n", "5", "--ignore-eos"]].concat(), "max_tokens"),
        (serde_json::json!({"number": 3}), &["--tokens", "5,6,7", "-n", "3"], "max_tokens"),
        (Value::Null, &[&fox[..], &["--stop", "tower"]].concat(), "stop_string"),
    ]
    .into_iter()
    .enumerate()
    {
        let (answer, single) = (&answers[index], run(args));
        assert_eq!((&answer["index"], &answer["id"]), (&index.into(), &id));
        assert_eq!((&answer["tokens"], &answer["text"]), (&single["tokens"], &single["text"]), "{answer}");
        assert_eq!(answer["finish_reason"], reason);
        let prompt = single["prompt_tokens"].as_array().unwrap().len();
        assert_eq!(answer["prompt_tokens"], prompt);
    }
    assert_eq!(answers.len(), 4);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    assert!(error(&batch(&input, &out)).contains("out.jsonl already exists"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let (_folder, input, out) = prompts("\u{feff}{\"prompt\": \"a\", \"m\": 1}\n");
    let message = error(&batch(&input, &out));
    assert!(message.contains("line 1") && message.contains("column 19: unknown field `m`"), "{message}");
}

#[test]
fn a_bad_line_is_named_before_anything_runs() {
    for (line, message) in [
        (r#"{"prompt": "a", "m": 1}"#, "column 19: unknown field `m`"),
        (r#"{"custom_id": "1", "body": {}}"#, "without `model`, and `custom_id` as `id`"),
        (r#"{"id": 1}"#, "0 of `prompt`, `messages` and `tokens` are given; give one"),
        (r#"{"tokens": []}"#, "the prompt is empty: give at least one token"),
        (r#"{"tokens": [512]}"#, "token 512 is not in the vocabulary of 512 tokens"),
        (r#"{"tokens": [1], "top_p": 2}"#, "top-p is 2; 0 to 1 is needed"),
        (r#"{"messages": []}"#, "`messages` is empty: give at least one message"),
        (
            r#"{"messages": [{"role": "user"}]}"#,
            "`messages[0].content` is neither a text nor a list of parts with a `type`",
        ),
        (
            r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#,
            "`messages[0].content` has a part of type `image_url`; only `text` is supported",
        ),
        (
            r#"{"messages": [{"role": "bogus", "content": "a"}]}"#,
            "a message has the unknown role `bogus`; roles are system, developer, user, assistant and tool",
        ),
        (r#"{"tokens": [1], "n": 1, "max_tokens": 1}"#, "`n` and `max_tokens` are the same field; give one"),
        ("the fox", "column 2: this is not JSON: expected a value; a text needs quotes"),
        (r#"{"tokens": [1], "id": "sum"}"#, "the id \"sum\" is that of line 1"),
        (r#"{"tokens": [1], "id": {"number":3}}"#, "the id {\"number\":3} is that of line 4"),
    ] {
        let (folder, input, out) = prompts(&format!("{PROMPTS}{line}\n"));
        let message_of_all = error(&[&batch(&input, &out)[..], &["--chat-template", "chatml"]].concat());
        assert!(message_of_all.contains("prompts.jsonl, line 6"), "{message_of_all}");
        assert!(message_of_all.contains(message), "{message_of_all}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written");
    }
    let (_folder, input, out) = prompts("\n");
    assert!(error(&batch(&input, &out)).contains("prompts.jsonl has no prompts"));
}

#[test]
fn an_interrupted_batch_is_continued() {
    let (_folder, input, out) = prompts(PROMPTS);
    let partial = format!("{out}.partial");
    // The output cannot get its name: all answers are kept.
    let failed = command(&batch(&input, &out)).env("BESPOKE_FAULTS", "rename=1").output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let kept = fs::read_to_string(&partial).unwrap();
    assert!(kept.lines().count() == 4 && !Path::new(&out).exists());
    // Two answers, and a part of the third.
    let end = kept.match_indices('\n').nth(1).unwrap().0;
    fs::write(&partial, &kept[..end + 60]).unwrap();
    // A rule that changes the bits of attention.
    let rules = format!("{out}.toml");
    fs::write(&rules, "version = 1\n[[rule]]\nrole = \"attention\"\nmin_pages = 1\n").unwrap();
    for option in [["-n", "7"], ["--arithmetic", "f16"], ["--kv", "q8_0"], ["--tune", &rules]] {
        let other = error(&[&batch(&input, &out)[..], &option].concat());
        let message = "line 1 is a record of another input, model or options";
        assert!(other.contains(message), "{option:?}: {other}");
    }
    let ran = bespoke(&batch(&input, &out));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("2 of 4 prompts are done"), "{}", ran.stderr);
    assert!(!Path::new(&partial).exists());
    let whole = answers(&out);
    assert_eq!(
        whole.iter().map(|answer| answer["index"].as_u64().unwrap()).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    // Answers of the interrupted run keep their timings.
    assert!(
        fs::read_to_string(&out)
            .unwrap()
            .starts_with(&kept[kept.find('{').unwrap()..kept.find('\n').unwrap()])
    );
}

/// The texts of a message's parts are joined by newlines, as `serve` does it.
#[test]
fn parts_of_a_message_are_one_text() {
    let line = |content: &str| {
        format!("{{\"messages\": [{{\"role\": \"user\", \"content\": {content}}}], \"n\": 2}}\n")
    };
    let parts = line(r#"[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]"#);
    let (_folder, input, out) = prompts(&(line(r#""a\nb""#) + &parts));
    let ran = bespoke(&[&batch(&input, &out)[..], &["--chat-template", "chatml"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let answers = answers(&out);
    for field in ["prompt_tokens", "tokens"] {
        assert_eq!(answers[0][field], answers[1][field], "{field}");
    }
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let (folder, input, out) = prompts(PROMPTS);
    let message = error(&[&batch(&input, &out)[..], &["--kv-memory", "1"]].concat());
    assert!(message.contains("kv"), "{message}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written");
}

#[test]
fn more_sequences_than_a_step_has_rows_are_refused() {
    let (_folder, input, out) = prompts(PROMPTS);
    let ran = bespoke(&[&batch(&input, &out)[..], &["--parallel", "65"]].concat());
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("65 is not in 1..=64"), "{}", ran.stderr);
}

#[cfg(unix)]
#[test]
fn a_second_batch_with_the_same_output_is_refused() {
    let long = "{\"prompt\": \"The old fox\", \"n\": 200, \"ignore_eos\": true}\n";
    let (_folder, input, out) = prompts(&long.repeat(50));
    let partial = format!("{out}.partial");
    let args = [&batch(&input, &out)[..], &["--parallel", "1"]].concat();
    let mut first = command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // With an answer in it, so that it is locked.
    while fs::metadata(&partial).map_or(0, |data| data.len()) == 0 {
        assert_eq!(first.try_wait().unwrap(), None, "the first batch has ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for more in [&[][..], &["-n", "7"], &["--force"]] {
        let message = error(&[&args[..], more].concat());
        assert!(
            message.contains("another `bespoke batch` is writing ") && message.contains(&partial),
            "{message}"
        );
    }
    assert_eq!(first.try_wait().unwrap(), None, "the first batch has ended");
    first.kill().unwrap();
    first.wait().unwrap();
    // The lock ends with the process.
    let message = error(&[&args[..], &["-n", "7"]].concat());
    assert!(message.contains("line 1 is a record of another input, model or options"), "{message}");
}

/// Lines may have a temperature, so the options that only a draw reads do not need `--temp`.
#[test]
fn options_are_defaults_of_fields() {
    let line = |seed: u32| format!("{{\"tokens\": [5], \"n\": 8, \"temperature\": 2, \"seed\": {seed}}}\n");
    let answers_of = |lines: &str, options: &[&str]| {
        let (_folder, input, out) = prompts(lines);
        let ran = bespoke(&[&batch(&input, &out)[..], options].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        answers(&out).into_iter().map(|answer| answer["tokens"].clone()).collect::<Vec<_>>()
    };
    let without_seed = line(3).replace(", \"seed\": 3", "");
    assert_eq!(answers_of(&without_seed, &["--seed", "3"]), answers_of(&line(3), &[]));
    assert_ne!(answers_of(&line(3), &["--top-k", "1"]), answers_of(&line(3), &["--top-k", "0"]));
}

/// A prompt that is longer than the context is named before anything runs; more prompts than `--parallel` wait.
#[test]
fn long_prompts_are_refused_and_many_prompts_wait() {
    let tokens = |count: usize| (0..count).map(|i| (5 + i % 40).to_string()).collect::<Vec<_>>().join(",");
    let (folder, input, out) = prompts(&format!("{{\"tokens\": [{}]}}\n", tokens(33)));
    let small = error(&[&batch(&input, &out)[..], &["--ctx", "32"]].concat());
    let message = "the context is full: 33 positions are needed and the cache holds 32";
    assert!(small.contains("prompts.jsonl, line 1") && small.contains(message), "{small}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written");

    // Five prompts, two at once: the answers are those of one at once, in the order of the prompts.
    let line =
        |count: usize| format!("{{\"tokens\": [{}], \"n\": 3, \"ignore_eos\": true}}\n", tokens(count));
    let (_folder, input, out) = prompts(&[3, 20, 1, 9, 4].map(line).concat());
    let mut found = Vec::new();
    for parallel in ["1", "2"] {
        let ran = bespoke(&[&batch(&input, &out)[..], &["--parallel", parallel, "--force"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        found.push(answers(&out));
    }
    assert_eq!(found[0].len(), 5);
    assert_eq!(found[0], found[1]);
}
