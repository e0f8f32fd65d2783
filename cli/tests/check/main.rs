//! `bespoke check`: runs the binary on the PTX files in this folder.

mod costs;
mod limits;
mod refused;
mod structures;
mod tensor_maps;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use bespoke::scheduler::ROW_GROUP;
use bespoke_kernels::plan::StepKind;
use expect_test::{Expect, expect};
use serde_json::Value;

/// Result of running the binary.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check")
}

fn fixture(name: &str) -> PathBuf {
    folder().join(name)
}

/// Runs `bespoke check` in the fixtures' folder.
fn check(args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
    command.arg("check").args(args).current_dir(folder()).env_remove("BESPOKE_LOG").stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) };
    assert!(!ran.stderr.contains("panicked") && !ran.stdout.contains('\x1b'), "{args:?}\n{}", ran.stderr);
    ran
}

/// Runs a check that must have this exit code; returns its standard output.
fn output(code: i32, args: &[&str]) -> String {
    let ran = check(args);
    assert_eq!(ran.code, Some(code), "{args:?}\n{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

fn json(code: i32, args: &[&str]) -> Value {
    serde_json::from_str(&output(code, &[args, &["--format", "json"]].concat())).unwrap()
}

/// A launch file in a temporary folder.
struct Scratch {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Scratch {
    fn new(name: &str, text: &str) -> Scratch {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Scratch { folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Compares texts without their addresses, which differ from run to run.
fn same(text: &str, expected: &Expect) {
    let mut parts = text.split("0x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += "0x…";
        plain += part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
    }
    expected.assert_eq(&plain);
}

#[test]
fn a_clean_file_exits_with_0() {
    let text = output(0, &["scale.ptx", "--launches", "scale-clean.toml"]);
    assert_eq!(text, "scale.ptx: no findings in 1 launch\n");
}

#[test]
fn a_finding_shows_its_source_line_and_exits_with_1() {
    same(
        &output(1, &["scale.ptx", "--launches", "scale.toml"]),
        &expect![[r#"
        error[out-of-bounds]: 4-byte store to global memory at 0x…; the access is just past the end of `y` (0x…, 4000 bytes)
         --> scale.rs:8:17
          |
        8 |         y.at(i).store(value * 3.0);
          |                 ^^^^^ thread (104, 0, 0) of CTA (7, 0, 0)
          = PTX line 32: st.global.f32 [%rd5], %f2;
          = kernel scale

        scale.ptx: 1 finding in 1 launch
    "#]],
    );
}

#[test]
fn a_race_shows_both_accesses() {
    same(
        &output(1, &["reverse.ptx", "--launches", "reverse.toml", "--lints", "off"]),
        &expect![[r#"
            error[race]: 4-byte store to shared memory around 0x…: no happens-before relation to the earlier access; the access is inside `tile` (0x…, 256 bytes)
             --> reverse.rs:5:5
              |
            5 |     tile[thread] = x[thread];
              |     ^^^^ thread (32, 0, 0) of CTA (0, 0, 0)
              = PTX line 25: st.shared.f32 [%r3], %f0;
             ::: reverse.rs:6:17
              |
            6 |     y[thread] = tile[63 - thread];
              |                 ^^^^ the other access: thread (31, 0, 0) of CTA (0, 0, 0)
              = PTX line 29: ld.shared.f32 %f1, [%r5];
              = kernel reverse

            reverse.ptx: 1 finding in 1 launch
        "#]],
    );
    let report = json(1, &["reverse.ptx", "--launches", "reverse.toml"]);
    let lines: Vec<_> = report["findings"][0]["sites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|site| &site["source"]["line"])
        .collect();
    assert_eq!(lines, [5, 6]);
}

#[test]
fn both_accesses_show_the_calls_that_they_were_inlined_through() {
    same(
        &output(1, &["calls.ptx", "--launches", "calls.toml", "--lints", "off"]),
        &expect![[r#"
        error[race]: 4-byte store to shared memory around 0x…: no happens-before relation to the earlier access; the access is inside `tile` (0x…, 256 bytes)
         --> calls.rs:5:5
          |
        5 |     *word = value;
          |     ^ thread (32, 0, 0) of CTA (0, 0, 0)
          = PTX line 23: st.shared.f32 [%r3], %f0;
          = inlined at calls.rs:9:5: put(&mut tile[at], value);
          = inlined at calls.rs:13:5: share(tile, thread, x[thread]);
         ::: calls.rs:5:5
          |
        5 |     *word = value;
          |     ^ the other access: thread (31, 0, 0) of CTA (0, 0, 0)
          = PTX line 29: st.shared.f32 [%r5], 0f3F800000;
          = inlined at calls.rs:9:5: put(&mut tile[at], value);
          = inlined at calls.rs:14:5: share(tile, 63 - thread, 1.0);
          = kernel exchange

        calls.ptx: 1 finding in 1 launch
    "#]],
    );
    let report = json(1, &["calls.ptx", "--launches", "calls.toml"]);
    let array = |value: &Value| value.as_array().unwrap().clone();
    let callers =
        |site: &Value| array(&site["inlined_at"]).iter().map(|at| at["line"].clone()).collect::<Vec<_>>();
    let sites = array(&report["findings"][0]["sites"]);
    assert_eq!(sites.iter().map(callers).collect::<Vec<_>>(), [[9, 13], [9, 14]]);
}

/// `docs/terminal.py` draws the picture of docs/check.md; this test compares the picture's text with the output.
#[test]
fn the_picture_shows_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let page = read("docs/check.md");
    let (before, _) = page.split_once("(finding.svg)").unwrap();
    let (_, arguments) = before.rsplit_once("$ bespoke ").unwrap();
    let (arguments, _) = arguments.split_once('\n').unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
    let printed = command.args(arguments.split(' ')).current_dir(root).output().unwrap();
    assert_eq!(printed.status.code(), Some(1), "{printed:?}");

    let picture = read("docs/finding.svg");
    let text: String = picture.split('<').filter_map(|tag| Some(tag.split_once('>')?.1)).collect();
    let text = text.replace("&gt;", ">").replace("&lt;", "<").replace("&quot;", "\"").replace("&amp;", "&");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = words(&text);
    for line in String::from_utf8(printed.stdout).unwrap().lines() {
        assert!(shown.contains(&words(line)), "{line}\nis not in\n{shown}");
    }
}

#[test]
fn without_the_source_the_ptx_line_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let ptx = folder.path().join("scale.ptx");
    let text = std::fs::read_to_string(fixture("scale.ptx")).unwrap();
    std::fs::write(&ptx, text.replace("scale.rs", "elsewhere/scale.rs")).unwrap();
    let text = output(1, &[ptx.to_str().unwrap(), "--launches", "scale.toml"]);
    let text = text.replace(folder.path().to_str().unwrap(), "FOLDER");
    same(
        &text,
        &expect![[r#"
        error[out-of-bounds]: 4-byte store to global memory at 0x…; the access is just past the end of `y` (0x…, 4000 bytes)
          --> FOLDER/scale.ptx:32
           |
        32 | 	st.global.f32 [%rd5], %f2;
           | 	^^^^^^^^^^^^^^^^^^^^^^^^^^ thread (104, 0, 0) of CTA (7, 0, 0)
           = from elsewhere/scale.rs:8
           = kernel scale

        FOLDER/scale.ptx: 1 finding in 1 launch
    "#]],
    );
}

#[test]
fn a_report_is_json() {
    let mut report = json(1, &["scale.ptx", "--launches", "scale.toml"]);
    let finding = &mut report["findings"][0];
    assert!(finding["address"].take().as_u64().is_some());
    let message = finding["message"].take();
    assert!(
        message.as_str().is_some_and(|message| message.contains("just past the end of `y`")),
        "{message}"
    );
    expect![[r#"
        {
          "version": 2,
          "subject": "scale.ptx",
          "launches": 1,
          "findings": [
            {
              "kind": "out-of-bounds",
              "kernel": "scale",
              "message": null,
              "times": 1,
              "sites": [
                {
                  "source": {
                    "file": "scale.rs",
                    "line": 8,
                    "column": 17
                  },
                  "ptx": {
                    "line": 32,
                    "text": "st.global.f32 [%rd5], %f2;"
                  },
                  "cta": [
                    7,
                    0,
                    0
                  ],
                  "thread": [
                    104,
                    0,
                    0
                  ]
                }
              ],
              "address": null,
              "space": "global"
            }
          ],
          "lints": [],
          "lints_left_out": 0
        }"#]]
    .assert_eq(&format!("{report:#}"));
}

#[test]
fn what_follows_a_finding_runs_and_the_finding_counts_once() {
    let launches = std::fs::read_to_string(fixture("scale.toml")).unwrap();
    let launch = &launches[launches.find("[[launch]]").unwrap()..];
    let scratch =
        Scratch::new("launches.toml", &format!("{launches}\n{launch}\n{}", launch.replace("1000", "999")));
    let report = json(1, &["scale.ptx", "--launches", scratch.path()]);
    assert_eq!((&report["launches"], &report["findings"][0]["times"]), (&3.into(), &2.into()));
    assert_eq!(report["findings"].as_array().unwrap().len(), 1);
}

#[test]
fn results_are_compared() {
    let launches = std::fs::read_to_string(fixture("scale-clean.toml")).unwrap();
    let with = |expect: &str| {
        let text = launches.replace("count = 1000", &format!("count = 1000\nexpect = {expect}"));
        let scratch = Scratch::new("launches.toml", &text);
        check(&["scale.ptx", "--launches", scratch.path()])
    };
    assert_eq!(with("{ values = [0, 3, 6] }").code, Some(0));
    assert_eq!(with("{ values = [0, 3.1, 6], tolerance = 0.05 }").code, Some(0));
    let wrong = with("{ values = [0, 2, 6, 8] }");
    assert_eq!(wrong.code, Some(1));
    expect![[r#"
        error[wrong-result]: buffer `y`: element 1 is 3, expected 2; 2 of 4 elements are wrong, by up to 5.000e-1 of their value

        scale.ptx: 1 finding in 1 launch
    "#]].assert_eq(&wrong.stdout);
    let unknown = with("{ fn = 'sum', of = ['z'] }");
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("there is no buffer `z`"), "{}", unknown.stderr);
}

#[test]
fn launches_say_what_clusters_there_are() {
    assert_eq!(
        output(0, &["exchange.ptx", "--launches", "exchange.toml"]),
        "exchange.ptx: no findings in 1 launch\n"
    );
    let launches = std::fs::read_to_string(fixture("exchange.toml")).unwrap();
    for (to, part) in [
        ("", "the kernel requires clusters, and the launch has none"),
        ("cluster = 3", "grid [4, 1, 1] is not a multiple of clusters of [3, 1, 1] CTAs"),
        ("cluster = [1, 1]", "rank 1 is outside a cluster of 1 CTAs"),
    ] {
        let scratch = Scratch::new("launches.toml", &launches.replacen("cluster = 2", to, 1));
        let text = output(1, &["exchange.ptx", "--launches", scratch.path()]);
        assert!(text.contains(part), "{to}: {text}");
    }
}

#[test]
fn a_file_without_launches_gives_a_template_that_works() {
    let template = output(0, &["transpose.ptx"]);
    assert!(
        template.contains("# transpose_tiled(.u64 in, .u64 out), 4096 bytes of static shared memory"),
        "{template}"
    );
    assert!(template.contains("block = [32, 32, 1]"), "{template}");
    // Every kernel gets two buffers of 1024 elements, fewer than the kernel needs: a finding, but the file is valid.
    let scratch = Scratch::new("launches.toml", &template);
    let report = json(1, &["transpose.ptx", "--launches", scratch.path()]);
    assert_eq!(report["launches"], 3);
    let listing = json(0, &["transpose.ptx"]);
    assert_eq!(listing["kernels"][1]["name"], "transpose_tiled");
    assert_eq!(listing["kernels"][1]["parameters"][1]["offset"], 8);
    assert_eq!(listing["template"], template);
}

#[test]
fn a_model_s_plan_and_a_shape_s_kernels_are_clean() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/llama-q4_k_m.gguf");
    let report = json(0, &[model.to_str().unwrap(), "--steps", "2", "--profile"]);
    assert_eq!(report["findings"], Value::Array(Vec::new()));
    let (launches, profiles) = (report["launches"].as_u64().unwrap(), report["profiles"].as_array().unwrap());
    let profiled: u64 = profiles.iter().map(|profile| profile["launches"].as_u64().unwrap()).sum();
    assert!(launches > 10 && launches % 2 == 0 && profiled == launches, "{launches} {profiled}");
    // Kernels of the repository carry their source lines, columns included.
    let place = &profiles[0]["lines"][0]["source"];
    assert!(place["file"].as_str().is_some_and(|file| file.ends_with(".rs")), "{place}");
    assert!(place["column"].as_u64() > Some(0), "{place}");

    let report = json(0, &["qwen2.5-0.5b", "--filter", "choose_greedy"]);
    assert_eq!(report["findings"], Value::Array(Vec::new()));
    let ran = check(&["qwen2.5-0.5b", "--filter", "no such kernel"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("has no kernel with `no such kernel` in its name"), "{}", ran.stderr);
}

/// `--rows` runs a prefill step and decode steps of as many sequences.
#[test]
fn steps_of_several_rows_of_a_model_are_clean() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/llama-q4_k_m.gguf");
    for (rows, decode) in [("1", ""), ("3", "_n4"), ("20", "_n32")] {
        let number: u32 = rows.parse().unwrap();
        let needed = number * ROW_GROUP;
        let prefill = StepKind::Prefill.sizes().iter().find(|&&size| size >= needed).unwrap();
        let report = json(0, &[model.to_str().unwrap(), "--rows", rows, "--steps", "2", "--profile"]);
        assert_eq!(report["findings"], Value::Array(Vec::new()), "{rows}");
        let launches = |part: &str| -> u64 {
            let profiles = report["profiles"].as_array().unwrap().iter();
            let matching = profiles.filter(|profile| profile["kernel"].as_str().unwrap().contains(part));
            matching.map(|profile| profile["launches"].as_u64().unwrap()).sum()
        };
        // Four layers: one prefill step, and two decode steps whose attention appends.
        assert_eq!(launches("append_h8"), 4, "{rows}");
        assert_eq!(launches(&format!("embed_q4k_v512_c256_n{prefill}_t")), 1, "{rows}");
        assert_eq!(launches(&format!("embed_q4k_v512_c256{decode}_t")), 2, "{rows}");
    }
    let ran = check(&["qwen2.5-0.5b", "--rows", "2"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("--rows has no effect here: qwen2.5-0.5b is a built-in shape")
            && ran.stderr.contains("help: give the file of a model"),
        "{}",
        ran.stderr
    );
    // The demo model has weights, too.
    assert!(output(0, &["demo", "--steps", "1", "--lints", "off"]).contains("demo: no findings in "));
    let ran = check(&[model.to_str().unwrap(), "--rows", "65"]);
    assert!(ran.stderr.contains("65 is not in 1..=64"), "{}", ran.stderr);
}

#[test]
fn what_a_kernel_may_mean_is_found_where_it_is_asked_for() {
    let launch = |kernel: &str, args: &str| {
        let text = format!(
            "version = 1\nbuffers.x = {{ type = \"u32\", count = 8, init = \"zeros\" }}\n\
             [[launch]]\nkernel = \"{kernel}\"\ngrid = 1\nblock = 1\nargs = [{args}]\n"
        );
        Scratch::new("launches.toml", &text)
    };
    let (quotient, wrapped) = (launch("quotient", "\"x\""), launch("wrapped", "\"x\", 4"));
    let kinds = |launches: &Scratch, also: &[&str]| {
        let code = i32::from(!also.is_empty());
        let report = json(code, &[&["odd.ptx", "--launches", launches.path()], also].concat());
        let findings = report["findings"].as_array().unwrap();
        findings.iter().map(|finding| finding["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(kinds(&quotient, &[]).is_empty());
    assert_eq!(kinds(&quotient, &["--also", "values"]), ["not-finite"]);
    assert!(kinds(&wrapped, &[]).is_empty());
    assert_eq!(kinds(&wrapped, &["--also", "values", "--also", "overflow"]), ["wrapped-address"]);
}

#[test]
fn skipped_findings_are_not_reported() {
    let text = "version = 1\nbuffers.x = { type = \"u32\", count = 4, init = \"zeros\" }\n\
                [[launch]]\nkernel = \"k\"\ngrid = 1\nblock = 64\nargs = [\"x\"]\n";
    let ptx = |store: &str| {
        let text = format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 x) {{\n.reg .b64 %d; .reg .b32 %r<3>;\n\
             ld.param.u64 %d, [x]; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5;\n{store}\nret;\n}}\n"
        );
        Scratch::new("k.ptx", &text)
    };
    let launches = Scratch::new("launches.toml", text);
    let findings = |store: &str, code: i32, skipped: &[&str]| {
        let ptx = ptx(store);
        let skipped: Vec<&str> = skipped.iter().flat_map(|what| ["--skip", what]).collect();
        let report = json(code, &[&[ptx.path(), "--launches", launches.path()], &skipped[..]].concat());
        report["findings"].as_array().unwrap().len()
    };
    let by_lanes = "st.global.u32 [%d], %r1;";
    assert_eq!(findings(by_lanes, 1, &[]), 1);
    // The warps' values differ, too.
    assert_eq!(findings(by_lanes, 1, &["different-values"]), 1);
    assert_eq!(findings(by_lanes, 0, &["races"]), 0);
    let by_warps = "st.global.u32 [%d], %r2;";
    assert_eq!(findings(by_warps, 1, &["different-values", "proxy-fences", "registers", "memory"]), 1);
    assert_eq!(findings(by_warps, 0, &["races"]), 0);
    let by_copy = ".shared .align 16 .b32 tile[4]; .reg .pred %p; setp.ne.u32 %p, %r1, 0; @%p exit;\n\
        st.shared.v4.b32 [tile], {%r1, %r1, %r1, %r1}; fence.proxy.async.shared::cta;\n\
        cp.async.bulk.global.shared::cta.bulk_group [%d], [tile], 16; cp.async.bulk.commit_group;";
    assert_eq!(findings(by_copy, 1, &["races", "memory"]), 1);
    assert_eq!(findings(by_copy, 0, &["unawaited-stores"]), 0);
}

#[test]
fn a_launch_that_does_not_end_is_found_by_the_limit() {
    let text = "version = 1\nbuffers.x = { type = \"u32\", count = 1, init = \"zeros\" }\n\
                [[launch]]\nkernel = \"waits\"\ngrid = 1\nblock = 32\nargs = [\"x\"]\n";
    let launches = Scratch::new("launches.toml", text);
    let text = output(1, &["odd.ptx", "--launches", launches.path(), "--limit", "10000"]);
    assert!(text.contains("nothing has ended the wait within 10000 warp instructions"), "{text}");
    let ran = check(&["qwen3-0.6b", "--limit", "10000"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--limit has no effect here"), "{}", ran.stderr);
}
