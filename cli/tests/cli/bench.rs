//! `bench`, on the emulator.

use bespoke_kernels::plan::StepKind;
use serde_json::Value;

use super::{error, fixture, json, output, scratch};

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
        // The emulator's time says nothing about memory bandwidth, so there is no ceiling.
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

/// The number at `key` of every element of `list`.
fn numbers(list: &Value, key: &str) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|element| element[key].as_f64().unwrap()).collect()
}

#[test]
fn bench_refuses_an_arithmetic_that_no_step_has() {
    let message = error(&["bench", "demo", "--device", "emulator", "-n", "1", "--arithmetic", "f16"]);
    assert!(message.contains("--arithmetic f16 has no effect without --batch"), "{message}");
}

#[test]
fn bench_speculates_with_synthetic_drafts() {
    let model = fixture("llama-q8_0.gguf");
    let bench = ["bench", &model, "--device", "emulator", "-n", "10", "-r", "1", "--draft-lengths", "1,2"];
    for draft in [&[][..], &["--draft", &model]] {
        let results = json(&[&bench[..], &["--speculate=0,1", "-o", "json"], draft].concat());
        let measured = results["speculation"].as_array().unwrap();
        let name = if draft.is_empty() { Value::Null } else { "llama-q8_0".into() };
        assert!(measured.iter().all(|of_one| of_one["draft"] == name && of_one["tokens"] == 10), "{results}");
        let accepted = |rate: f64, length: Value| {
            let is_it = |of_one: &&Value| of_one["rate"] == rate && of_one["length"] == length;
            measured.iter().find(is_it).unwrap()["accepted_per_step"].as_f64().unwrap()
        };
        // After the first of ten tokens, steps of 2, 2, 2, 2 and 1, or of 3, 3 and 3.
        assert_eq!([accepted(1.0, 1.into()), accepted(1.0, 2.into())], [4.0 / 5.0, 6.0 / 3.0]);
        assert_eq!([accepted(0.0, 1.into()), accepted(0.0, 2.into())], [0.0; 2]);
        accepted(1.0, Value::Null);
    }
    let table = output(&[&bench[..], &["--speculate=0.5"]].concat());
    assert!(table.contains("| llama-q8_0 | -     | 0.5        | chosen "), "{table}");
}

#[test]
fn bench_shows_how_launches_follow_each_other() {
    let (_folder, path, trace) = scratch("line.json");
    let model = fixture("llama-q4_k_m.gguf");
    let bench = ["bench", &model, "--device", "emulator", "-n", "2", "-r", "1", "-b", "2", "-p", "64"];
    let text = output(&[&bench[..], &["--timeline", "--trace", &trace]].concat());
    for part in [
        "| launch ",
        "| µs gap ",
        "| ffn_down ",
        " µs of work, ",
        "a decode step of 2 rows: the launches of 1 ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("Sum of the kernels"), "{text}");
    let events: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    // One process for each step: two decode steps, a prefill and a first-token step.
    let processes = events.iter().filter(|event| event["name"] == "process_name").count();
    assert_eq!(processes, 4);
    assert!(events.iter().any(|event| event["name"] == "after the wait"), "{events:?}");

    let results = json(&[&bench[..], &["--timeline", "-o", "json"]].concat());
    assert_eq!(results["profiles"], Value::Null);
    let line = &results["timelines"][0];
    let launches = line["launches"].as_array().unwrap();
    let time = |launch: &Value, name: &str| launch[name].as_f64().unwrap();
    for pair in launches.windows(2) {
        // The emulator's launches do not overlap.
        assert!(time(&pair[0], "end") <= time(&pair[1], "start"), "{pair:?}");
    }
    for launch in launches {
        assert!(time(launch, "start") <= time(launch, "resumed"), "{launch}");
        assert!(time(launch, "resumed") <= time(launch, "first_end"), "{launch}");
        assert!(time(launch, "first_end") <= time(launch, "end"), "{launch}");
    }
    let sum: f64 = ["gap", "work"]
        .iter()
        .map(|name| {
            let roles = line["roles"].as_array().unwrap();
            roles.iter().map(|role| time(role, name) * time(role, "launches")).sum::<f64>()
        })
        .sum();
    assert!((sum / time(line, "microseconds") - 1.0).abs() < 1e-6, "{sum} {line}");
}

#[test]
fn bench_profiles_a_token_and_writes_its_trace() {
    let (_folder, path, trace) = scratch("trace.json");
    let model = fixture("llama-q4_k_m.gguf");
    let bench =
        ["bench", &model, "--device", "emulator", "-n", "2", "-r", "2", "--profile", "--trace", &trace];
    let text = output(&bench);
    for part in
        ["| launch ", "| ffn_down ", "Q4_K+Q6_K", "\nSum of the kernels ", " as a replay of the graph ("]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let events: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let slices = |tid: u64| events.iter().filter(move |e| e["ph"] == "X" && e["tid"] == tid);
    let span = |e: &Value| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap());
    // Launches follow each other without a gap; each has a kernel, bytes and a rate.
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

/// `--profile` profiles each step that is measured: batches, and the steps of prompts.
#[test]
fn bench_profiles_steps_of_several_rows() {
    let (_folder, path, trace) = scratch("trace.json");
    let model = fixture("llama-q4_k_m.gguf");
    let bench = ["bench", &model, "--device", "emulator", "-n", "2", "-r", "1", "-d", "3", "--profile"];
    let rows = ["-b", "1,3", "-p", "20", "--trace", &trace, "-o", "json"];
    let results = json(&[&bench[..], &rows].concat());
    let profiles = results["profiles"].as_array().unwrap();
    let step = |profile: &Value| {
        let number = |key: &str| profile[key].as_u64().unwrap_or(0);
        let kind = profile["step"].as_str().unwrap().to_owned();
        (kind, ["rows", "sequences", "tokens", "depth", "prompt", "steps"].map(number))
    };
    let decode = |rows, sequences| ("decode".to_owned(), [rows, sequences, 0, 3, 0, 0]);
    let mut expected = vec![decode(1, 1), decode(4, 3)];
    let (sizes, mut depth) = (StepKind::Prefill.sizes(), 0);
    while depth < 20 {
        let tokens = sizes[sizes.len() - 1].min(20 - depth);
        let rows = *sizes.iter().find(|&&rows| rows >= tokens).unwrap();
        let [of_step, used, at] = [rows, tokens, depth].map(u64::from);
        expected.push(("prefill".to_owned(), [of_step, 0, used, at, 20, 1]));
        depth += tokens;
    }
    expected.push(("first_token".to_owned(), [0, 0, 0, 19, 20, 0]));
    assert_eq!(profiles.iter().map(step).collect::<Vec<_>>(), expected);
    for row in results["rows"].as_array().unwrap() {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("bytes_per_second") > 0.0, "{row}");
        // Two operations for each weight and token. Of a prompt, only the last token is multiplied by the output matrix.
        let (layers, head) = (4.0 * 256.0 * (2.0 * 512.0 + 2.0 * 128.0 + 3.0 * 512.0), 512.0 * 256.0);
        let heads = if row["test"] == "prompt" { 1.0 / 20.0 } else { 1.0 };
        let operations = 2.0 * (layers + heads * head) * number("tokens_per_second");
        assert!((number("operations_per_second") / operations - 1.0).abs() < 1e-9, "{row} {operations}");
        for ceiling in
            ["fraction_of_ceiling", "tensor_ceiling_operations_per_second", "fraction_of_tensor_ceiling"]
        {
            assert_eq!(row[ceiling], Value::Null, "{row}");
        }
    }
    for profile in profiles {
        let sum = profile["kernels_microseconds"].as_f64().unwrap();
        for part in ["kernels", "roles", "launches"] {
            let parts: f64 = numbers(&profile[part], "microseconds").iter().sum();
            assert!((parts / sum - 1.0).abs() < 1e-6, "{part}: {profile}");
        }
        assert!((numbers(&profile["roles"], "share").iter().sum::<f64>() - 1.0).abs() < 1e-6, "{profile}");
        assert!(profile["replay_microseconds"].as_f64().is_some_and(|time| time > 0.0), "{profile}");
        // The embedding is no matrix of a product, however many of its rows a step reads.
        let matrices = numbers(&profile["matrices"], "launches").iter().sum::<f64>();
        let is_prefill = profile["step"] == "prefill";
        let layers = if profile["step"] == "first_token" { 1.0 } else { 4.0 };
        assert!(if is_prefill { matrices > 3.0 * 4.0 } else { matrices == layers * 4.0 + 1.0 }, "{profile}");
        let names = profile["matrices"].as_array().unwrap();
        assert!(names.iter().all(|matrix| matrix["matrix"] != "embed"), "{profile}");
        let roles = profile["roles"].as_array().unwrap();
        let appends: f64 = roles.iter().filter(|role| role["role"] == "append").map(|_| 1.0).sum();
        assert_eq!(appends, if is_prefill { 1.0 } else { 0.0 }, "{profile}");
    }
    let events: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let processes = events.iter().filter(|event| event["name"] == "process_name");
    let names: Vec<&str> = processes.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), expected.len());
    let [.., prefill, first_token] = &names[..] else { panic!("{names:?}") };
    for part in [", a prefill step of ", " rows, ", " of them used (1 such step in pp20) on "] {
        assert!(prefill.contains(part), "{names:?}");
    }
    assert!(first_token.contains(" at depth 19, the first-token step of pp20 on "), "{names:?}");

    let text = output(&[&bench[..], &["-b", "2", "-p", "20"]].concat());
    assert!(!text.contains("Ceilings"), "{text}");
    for part in [
        "| 2 sequences @ d3 ",
        "llama-q4_k_m at depth 3, a decode step of 2 rows: ",
        "| pp20 ",
        "| TFLOPS | of tensor ceiling |",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
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
    // Only a GPU reports clocks.
    assert_eq!(results["measurements"][0].get("clocks_before"), None);
    for key in ["microseconds", "bytes", "bytes_per_second", "rotated_bytes", "rows", "cols"] {
        assert!(numbers(&results["matrices"], key).iter().all(|&number| number > 0.0), "{key}: {results}");
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
