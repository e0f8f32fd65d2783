//! `bespoke check`, by running the binary over the PTX files in `tests/check`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use expect_test::{Expect, expect};
use serde_json::Value;

/// What a run of the binary gave.
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

/// Runs a check whose exit code is known, and gives its standard output.
fn output(code: i32, args: &[&str]) -> String {
    let ran = check(args);
    assert_eq!(ran.code, Some(code), "{args:?}\n{}{}", ran.stdout, ran.stderr);
    ran.stdout
}

fn json(code: i32, args: &[&str]) -> Value {
    serde_json::from_str(&output(code, &[args, &["--format", "json"]].concat())).unwrap()
}

/// A launch file of a test, in a folder that is removed.
struct Scratch {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Scratch {
    fn new(name: &str, text: &str) -> Scratch {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Scratch { _folder: folder, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// Compares after addresses, which may differ from run to run, were made equal.
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
            error[race]: 4-byte store to shared memory around 0x…: nothing orders the two; the access is inside `tile` (0x…, 256 bytes)
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
        error[race]: 4-byte store to shared memory around 0x…: nothing orders the two; the access is inside `tile` (0x…, 256 bytes)
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

/// `docs/terminal.py` draws the picture; here is only seen that it still shows what is printed.
#[test]
fn the_finding_in_the_readme_is_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let readme = read("README.md");
    let (_, arguments) = readme.split_once("    bespoke check runtime/").unwrap();
    let (arguments, below) = arguments.split_once('\n').unwrap();
    assert!(below.trim_start().starts_with("![") && below.contains("(docs/finding.svg)"), "{below}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
    let arguments = format!("check runtime/{arguments}");
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
fn what_is_slow_is_a_note_unless_it_is_denied() {
    let args = ["transpose.ptx", "--launches", "transpose.toml"];
    same(
        &output(0, &args),
        &expect![[r#"
        note[uncoalesced]: 32.0 sectors a request where 4.0 would do (8.0 times as many), in 128 requests; 89 % of the kernel's sectors
          --> transpose.ptx:29
           |
        29 | 	st.global.f32 [%rd6], %f1;
           | 	^^^^^^^^^^^^^^^^^^^^^^^^^^
           = kernel transpose_direct

        note[bank-conflict]: 32.0 ways on average and 32 at worst, 32.0 wavefronts a request, in 128 requests; 97 % of the kernel's wavefronts
          --> transpose.ptx:60
           |
        60 | 	ld.shared.f32 %f2, [%r10];
           | 	^^^^^^^^^^^^^^^^^^^^^^^^^^
           = kernel transpose_tiled

        transpose.ptx: no findings and 2 notes in 3 launches
    "#]],
    );
    let denied = output(1, &[&args[..], &["--deny", "lints"]].concat());
    assert!(denied.starts_with("error[uncoalesced]: "), "{denied}");
    let off = output(0, &[&args[..], &["--lints", "off"]].concat());
    assert_eq!(off, "transpose.ptx: no findings in 3 launches\n");
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
          "findings": [
            {
              "address": null,
              "kernel": "scale",
              "kind": "out-of-bounds",
              "message": null,
              "sites": [
                {
                  "cta": [
                    7,
                    0,
                    0
                  ],
                  "ptx": {
                    "line": 32,
                    "text": "st.global.f32 [%rd5], %f2;"
                  },
                  "source": {
                    "column": 17,
                    "file": "scale.rs",
                    "line": 8
                  },
                  "thread": [
                    104,
                    0,
                    0
                  ]
                }
              ],
              "space": "global",
              "times": 1
            }
          ],
          "launches": 1,
          "lints": [],
          "lints_left_out": 0,
          "subject": "scale.ptx",
          "version": 2
        }"#]]
    .assert_eq(&format!("{report:#}"));
}

#[test]
fn a_profile_has_exact_numbers() {
    let report = json(0, &["transpose.ptx", "--launches", "transpose.toml", "--profile"]);
    let profile = |kernel: &str| {
        let profiles = report["profiles"].as_array().unwrap();
        profiles.iter().find(|profile| profile["kernel"] == kernel).unwrap().clone()
    };
    // 4096 words in, 4096 out: 128 requests of a warp each way, of 4 sectors, or of 32 where a warp writes a column.
    for (kernel, sectors, wavefronts, ways) in [
        ("transpose_direct", 128 * 36, 0, 0),
        ("transpose_tiled", 1024, 128 * 33, 32),
        ("transpose_padded", 1024, 256, 1),
    ] {
        let total = &profile(kernel)["total"];
        assert_eq!(total["global_requests"], 256, "{kernel}");
        assert_eq!(total["sectors"], sectors, "{kernel}");
        assert_eq!(total["ideal_sectors"], 1024, "{kernel}");
        assert_eq!(total["wavefronts"], wavefronts, "{kernel}");
        assert_eq!(total["worst_ways"], ways, "{kernel}");
        assert_eq!(
            (&total["bytes_loaded"], &total["bytes_stored"]),
            (&16384.into(), &16384.into()),
            "{kernel}"
        );
    }
    let kinds = report["lints"].as_array().unwrap().iter().map(|lint| (&lint["kernel"], &lint["kind"]));
    let kinds: Vec<String> = kinds.map(|(kernel, kind)| format!("{kernel} {kind}")).collect();
    assert_eq!(kinds, [r#""transpose_direct" "uncoalesced""#, r#""transpose_tiled" "bank-conflict""#]);
}

#[test]
fn the_profile_is_a_table_of_source_lines() {
    same(
        &output(0, &["scale.ptx", "--launches", "scale-clean.toml", "--profile"]),
        &expect![[r#"
            scale: 1 launch of 1024 threads in all, 13.9 lane instructions a thread, 1.78 a byte moved
            7 % control, 7 % float, 36 % integer, 36 % memory, 14 % move

            | source line      | lane instr. |   share | per thread | per byte | lanes | parted | global bytes | sectors/request | ideal | bank ways |
            |------------------|-------------|---------|------------|----------|-------|--------|--------------|-----------------|-------|-----------|
            | scale.rs:8       |        4024 |  28.3 % |       3.93 |     0.50 |  31.4 |        |         4000 |            3.91 |  3.91 |           |
            | (no source line) |        3072 |  21.6 % |       3.00 |     0.38 |  32.0 |        |              |                 |       |           |
            | scale.rs:5       |        3072 |  21.6 % |       3.00 |     0.38 |  32.0 |        |              |                 |       |           |
            | scale.rs:7       |        3000 |  21.1 % |       2.93 |     0.38 |  31.2 |        |         4000 |            3.91 |  3.91 |           |
            | scale.rs:6       |        1048 |   7.4 % |       1.02 |     0.13 |  32.0 |   1/32 |              |                 |       |           |
            | all              |       14216 | 100.0 % |       13.9 |     1.78 |  31.7 |   1/32 |         8000 |            3.91 |  3.91 |           |

            scale.ptx: no findings in 1 launch
        "#]],
    );
}

#[test]
fn what_a_byte_costs_is_shared_out_among_the_lines() {
    let report = json(0, &["scale.ptx", "--launches", "scale-clean.toml", "--profile"]);
    let profile = &report["profiles"][0];
    // 1000 elements of 4 bytes in, and as many out.
    let lines: Vec<(u64, f64)> = profile["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            (line["lane_instructions"].as_u64().unwrap(), line["instructions_per_byte"].as_f64().unwrap())
        })
        .collect();
    assert_eq!(lines, [4024, 3072, 3072, 3000, 1048].map(|lanes| (lanes, lanes as f64 / 8000.0)));
    let sum: f64 = lines.iter().map(|(_, per_byte)| per_byte).sum();
    assert_eq!((sum, &profile["instructions_per_byte"]), (1.777, &1.777.into()));
}

#[test]
fn the_profile_of_a_stopped_launch_is_partial() {
    let launches = std::fs::read_to_string(fixture("scale.toml")).unwrap();
    let launch = &launches[launches.find("[[launch]]").unwrap()..];
    let scratch =
        Scratch::new("launches.toml", &format!("{launches}\n{}", launch.replace("grid = 8", "grid = 1")));
    let text = output(1, &["scale.ptx", "--launches", scratch.path(), "--profile"]);
    let (_, profiles) = text.split_once("= kernel scale\n\n").unwrap();
    expect![[r#"
        scale: 1 launch of 128 threads in all, 14.0 lane instructions a thread, 1.75 a byte moved
        7 % control, 7 % float, 36 % integer, 36 % memory, 14 % move

        | source line      | lane instr. |   share | per thread | per byte | lanes | parted | global bytes | sectors/request | ideal | bank ways |
        |------------------|-------------|---------|------------|----------|-------|--------|--------------|-----------------|-------|-----------|
        | scale.rs:8       |         512 |  28.6 % |       4.00 |     0.50 |  32.0 |        |          512 |            4.00 |  4.00 |           |
        | (no source line) |         384 |  21.4 % |       3.00 |     0.38 |  32.0 |        |              |                 |       |           |
        | scale.rs:5       |         384 |  21.4 % |       3.00 |     0.38 |  32.0 |        |              |                 |       |           |
        | scale.rs:7       |         384 |  21.4 % |       3.00 |     0.38 |  32.0 |        |          512 |            4.00 |  4.00 |           |
        | scale.rs:6       |         128 |   7.1 % |       1.00 |     0.12 |  32.0 |    0/4 |              |                 |       |           |
        | all              |        1792 | 100.0 % |       14.0 |     1.75 |  32.0 |    0/4 |         1024 |            4.00 |  4.00 |           |

        scale: partial, until a finding stopped 1 launch of 1024 threads in all, 13.9 lane instructions a thread, 1.77 a byte moved
        7 % control, 7 % float, 36 % integer, 36 % memory, 14 % move

        | source line      | lane instr. |   share | per thread | per byte | lanes | parted | global bytes | sectors/request | ideal | bank ways |
        |------------------|-------------|---------|------------|----------|-------|--------|--------------|-----------------|-------|-----------|
        | scale.rs:8       |        3995 |  28.2 % |       3.90 |     0.50 |  31.5 |        |         4004 |            3.94 |  3.94 |           |
        | (no source line) |        3072 |  21.7 % |       3.00 |     0.38 |  32.0 |        |              |                 |       |           |
        | scale.rs:5       |        3072 |  21.7 % |       3.00 |     0.38 |  32.0 |        |              |                 |       |           |
        | scale.rs:7       |        3003 |  21.2 % |       2.93 |     0.38 |  31.3 |        |         4004 |            3.94 |  3.94 |           |
        | scale.rs:6       |        1047 |   7.4 % |       1.02 |     0.13 |  32.0 |   1/32 |              |                 |       |           |
        | all              |       14189 | 100.0 % |       13.9 |     1.77 |  31.7 |   1/32 |         8008 |            3.94 |  3.94 |           |

        scale.ptx: 1 finding in 2 launches
    "#]].assert_eq(profiles);
    let report = json(1, &["scale.ptx", "--launches", scratch.path(), "--profile"]);
    let profiles = report["profiles"].as_array().unwrap().iter();
    let partial: Vec<_> = profiles.map(|profile| (&profile["partial"], &profile["launches"])).collect();
    assert_eq!(partial, [(&false.into(), &1.into()), (&true.into(), &1.into())]);
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
        error[wrong-result]: buffer `y`: element 1 is 3 and must be 2; 2 of 4 elements are wrong, by up to 5.000e-1 of their value

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
        ("", "the kernel demands clusters, and the launch has none"),
        ("cluster = 3", "grid [4, 1, 1] is not a multiple of clusters of [3, 1, 1] CTAs"),
        ("cluster = [1, 1]", "rank 1 in a cluster of 1 CTAs"),
    ] {
        let scratch = Scratch::new("launches.toml", &launches.replacen("cluster = 2", to, 1));
        let text = output(1, &["exchange.ptx", "--launches", scratch.path()]);
        assert!(text.contains(part), "{to}: {text}");
    }
}

#[test]
fn launches_that_make_no_sense_exit_with_2_and_say_where() {
    let launches = std::fs::read_to_string(fixture("scale.toml")).unwrap();
    for (from, to, part) in [
        ("version = 1", "version = 2", "version 2 of the format; this program knows version 1"),
        ("\"scale\"", "\"scale2\"", "launch 1 (`scale2`): scale.ptx has no such kernel; it has scale"),
        ("\"x\", \"y\", 1000", "\"x\", \"y\"", "launch 1 (`scale`): 2 args for 3 parameters"),
        ("\"y\", 1000", "\"z\", 1000", "argument 2 (.u64 y): there is no buffer `z`; there are: x, y"),
        ("\"y\", 1000", "\"y\", 1.5", "argument 3 (.u32 n): 1.5 is no value of this type"),
        ("init = \"iota\"", "init = \"iota\"\nfill = 1", "buffer `x`: only one of"),
        ("grid = 8", "grid = 8\nclusters = 2", "unknown field `clusters`"),
        ("grid = 8", "grid = 8\ncluster = [1, 1, 1, 1]", "cluster has more than three axes"),
        ("[[launch]]", "[other]", "unknown field `other`"),
    ] {
        let scratch = Scratch::new("launches.toml", &launches.replacen(from, to, 1));
        let ran = check(&["scale.ptx", "--launches", scratch.path()]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{to}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(part), "{to}: {}", ran.stderr);
    }
    for missing in [
        &["no-such.ptx"][..],
        &["scale.ptx", "--launches", "no-such.toml"],
        &["no-such.gguf"],
        &["no-such-shape"],
    ] {
        let ran = check(missing);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{missing:?}");
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
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
    // Every kernel gets two buffers of 1024 elements, fewer than it wants: a finding, but nothing to mend in the file.
    let scratch = Scratch::new("launches.toml", &template);
    let report = json(1, &["transpose.ptx", "--launches", scratch.path()]);
    assert_eq!(report["launches"], 3);
    let listing = json(0, &["transpose.ptx"]);
    assert_eq!(listing["kernels"][1]["name"], "transpose_tiled");
    assert_eq!(listing["kernels"][1]["parameters"][1]["offset"], 8);
    assert_eq!(listing["template"], template);
}

#[test]
fn a_file_without_kernels_is_not_checked() {
    let text = std::fs::read_to_string(fixture("scale.ptx")).unwrap();
    let header: String =
        text.lines().take_while(|line| !line.contains(".entry")).map(|line| format!("{line}\n")).collect();
    let scratch = Scratch::new("empty.ptx", &header);
    for args in [&[scratch.path()][..], &[scratch.path(), "--launches", "scale.toml"]] {
        let ran = check(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("empty.ptx has no kernel"), "{}", ran.stderr);
    }
}

#[test]
fn an_option_without_an_effect_is_an_error() {
    for (args, message) in [
        (
            &["model.gguf", "--launches", "scale.toml"][..],
            "--launches has no effect here: model.gguf is a model",
        ),
        (
            &["qwen2.5-0.5b", "--launches", "scale.toml"],
            "--launches has no effect here: qwen2.5-0.5b is a built-in shape",
        ),
        (&["scale.ptx", "--filter", "scale"], "--filter has no effect here: scale.ptx is a PTX file"),
        (&["scale.ptx", "--steps", "2"], "--steps has no effect here"),
    ] {
        let ran = check(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}

#[test]
fn notes_on_a_model_show_its_kernels_source_wherever_they_are_read() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/llama-q4_0.gguf");
    let model = model.canonicalize().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
    command.arg("check").arg(&model).args(["--steps", "1"]).current_dir(folder.path()).stdin(Stdio::null());
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let places: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once("--> ")?.1)).collect();
    assert!(!places.is_empty(), "{text}");
    for place in places {
        assert!(
            place.starts_with("kernels-gen/src/kernels/") || place.starts_with("codegen/src/dsl/"),
            "{text}"
        );
    }
}

/// The fixture `scale.ptx` with other lines.
fn scale_with(changes: &[(&str, &str)]) -> Scratch {
    let text = std::fs::read_to_string(fixture("scale.ptx")).unwrap();
    let text = changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    Scratch::new("strange.ptx", &text)
}

#[test]
#[cfg(unix)]
fn a_text_that_can_be_read_only_once() {
    let text = std::fs::read(fixture("scale.ptx")).unwrap();
    let piped = |text: Vec<u8>, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bespoke"));
        command.args(["check", "/dev/stdin"]).args(args).current_dir(folder()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(&text));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, template) = piped(text.clone(), &[]);
    assert_eq!((code, template), (Some(0), output(0, &["scale.ptx"])));
    let (code, report) = piped(text, &["--launches", "scale.toml"]);
    assert!(code == Some(1) && report.contains("error[out-of-bounds]"), "{code:?}\n{report}");
    let wrong = b".version 7.0\n.target sm_80\n.entry k() {\n.reg .b32 %r;\nadd.u32 %r, %r;\n}\n".to_vec();
    let (code, report) = piped(wrong, &[]);
    assert_eq!(code, Some(2));
    expect![[r#"
        error[operand]: `add.u32` needs more than 2 operands
         --> /dev/stdin:5:1
          |
        5 | add.u32 %r, %r;
          | ^^^

        /dev/stdin: 1 error
    "#]]
    .assert_eq(&report);
}

#[test]
fn what_is_wrong_with_a_text_is_named_for_what_it_is() {
    let strange = scale_with(&[
        ("mul.rn.f32 %f2, %f1,", "tex.2d.v4.f32.s32 {%f1, %f2, %f1, %f2}, [%rd1, {%r1, %r2}]; // "),
        ("mov.u32 %r3,", "mov.u33 %r3,"),
        ("ld.global.f32 %f1,", "cp.async.bulk.commit_group; ld.global.f32 %f9,"),
        ("ret;", "$L__BB0_2: $L__BB0_2: ret;"),
    ]);
    let ran = check(&[strange.path()]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), ""));
    expect![[r#"
        error[syntax]: in `mov.u33`: no type `.u33`
          --> strange.ptx:20:2
           |
        20 | 	mov.u33 %r3, %tid.x;
           | 	^^^

        error[target]: `cp.async.bulk.commit_group` needs `.target` sm_90 and `.version` 8.0 or later, and the text names sm_80 and 7.0
          --> strange.ptx:28:2
           |
        28 | 	cp.async.bulk.commit_group; ld.global.f32 %f9, [%rd4];
           | 	^^

        error[undefined]: in `ld.global.f32`: unknown register `%f9`
          --> strange.ptx:28:44
           |
        28 | 	cp.async.bulk.commit_group; ld.global.f32 %f9, [%rd4];
           | 	                                          ^^^

        error[unsupported]: the emulator lacks `tex.2d.v4.f32.s32`
          --> strange.ptx:30:2
           |
        30 | 	tex.2d.v4.f32.s32 {%f1, %f2, %f1, %f2}, [%rd1, {%r1, %r2}]; //  0f40400000;
           | 	^^^

        error[redefined]: label `$L__BB0_2` is declared twice, first on line 34
          --> strange.ptx:34:13
           |
        34 | 	$L__BB0_2: $L__BB0_2: ret;
           | 	           ^^^^^^^^^

        strange.ptx: 4 errors and 1 thing that the emulator lacks
    "#]].assert_eq(&ran.stdout.replace(strange.path(), "strange.ptx"));
    let listed = json(2, &[strange.path()]);
    let listed = format!("{listed:#}").replace(strange.path(), "strange.ptx");
    expect![[r#"
        {
          "error": {
            "message": "strange.ptx: 4 errors and 1 thing that the emulator lacks",
            "problems": [
              {
                "column": 2,
                "kind": "syntax",
                "line": 20,
                "message": "in `mov.u33`: no type `.u33`"
              },
              {
                "column": 2,
                "kind": "target",
                "line": 28,
                "message": "`cp.async.bulk.commit_group` needs `.target` sm_90 and `.version` 8.0 or later, and the text names sm_80 and 7.0"
              },
              {
                "column": 44,
                "kind": "undefined",
                "line": 28,
                "message": "in `ld.global.f32`: unknown register `%f9`"
              },
              {
                "column": 2,
                "kind": "unsupported",
                "line": 30,
                "message": "the emulator lacks `tex.2d.v4.f32.s32`"
              },
              {
                "column": 13,
                "kind": "redefined",
                "line": 34,
                "message": "label `$L__BB0_2` is declared twice, first on line 34"
              }
            ]
          },
          "subject": "strange.ptx",
          "version": 2
        }"#]].assert_eq(&listed);
}

#[test]
fn the_last_line_tells_mistakes_from_what_the_emulator_lacks() {
    let last = |changes: &[(&str, &str)]| {
        let text = output(2, &[scale_with(changes).path()]);
        let line = text.lines().last().unwrap();
        line.split_once("strange.ptx: ").unwrap().1.to_owned()
    };
    let (lacks, mistake) = (("mul.rn.f32", "vadd.u32.u32.u32"), ("mov.u32 %r3,", "mov.u32 %r99,"));
    assert_eq!(last(&[mistake]), "1 error");
    assert_eq!(last(&[lacks]), "1 thing that the emulator lacks");
    assert_eq!(last(&[lacks, mistake]), "1 error and 1 thing that the emulator lacks");
    assert_eq!(last(&[mistake, (".version 7.0", "")]), "2 errors");
}

#[test]
fn why_nothing_was_checked_is_json_as_well() {
    let launches = std::fs::read_to_string(fixture("scale.toml")).unwrap();
    let failure = |from: &str, to: &str| {
        let scratch = Scratch::new("launches.toml", &launches.replacen(from, to, 1));
        let ran = check(&["scale.ptx", "--launches", scratch.path(), "--format", "json"]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        // For people, the same is on standard error.
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
        let failure: Value = serde_json::from_str(&ran.stdout).unwrap();
        format!("{failure:#}").replace(scratch.path(), "launches.toml")
    };
    expect![[r#"
        {
          "error": {
            "help": "`bespoke check FILE.ptx` without --launches prints a file to fill in",
            "message": "launch 1 (`scale2`): scale.ptx has no such kernel; it has scale",
            "place": {
              "file": "launches.toml",
              "part": "launch 1 (`scale2`)"
            }
          },
          "subject": "scale.ptx",
          "version": 2
        }"#]]
    .assert_eq(&failure("\"scale\"", "\"scale2\""));
    expect![[r#"
        {
          "error": {
            "message": "launches.toml: TOML parse error at line 15, column 1\n   |\n15 | clusters = 2\n   | ^^^^^^^^\nunknown field `clusters`, expected one of `kernel`, `grid`, `block`, `cluster`, `shared`, `args`, `programmatic`\n",
            "place": {
              "column": 1,
              "file": "launches.toml",
              "line": 15
            }
          },
          "subject": "scale.ptx",
          "version": 2
        }"#]].assert_eq(&failure("grid = 8", "grid = 8\nclusters = 2"));
    for (args, part) in [
        (&["no-such.ptx"][..], "cannot read no-such.ptx: No such file"),
        (&["scale.ptx", "--launches", "no-such.toml"], "cannot read no-such.toml: No such file"),
        (&["no-such.gguf"], "no-such.gguf"),
        (&["no-such-shape"], "`no-such-shape` is neither a file nor a built-in shape"),
        (&["scale.ptx", "--steps", "2"], "--steps has no effect here"),
        (&["scale.ptx", "--deny", "lints", "--lints", "off"], "--deny lints has no effect"),
    ] {
        let failure = json(2, args);
        assert_eq!(failure["subject"], args[0]);
        let message = failure["error"]["message"].as_str().unwrap();
        assert!(message.contains(part), "{args:?}: {message}");
    }
    assert_eq!(json(2, &["no-such.ptx"])["error"]["place"]["file"], "no-such.ptx");
    let help = json(2, &["no-such-shape"])["error"]["help"].as_str().unwrap().to_owned();
    assert!(help.starts_with("built-in shapes: ") && help.ends_with(", demo"), "{help}");
}

#[test]
fn a_launch_that_no_device_takes_says_its_limit() {
    let launches = std::fs::read_to_string(fixture("scale.toml")).unwrap();
    for (to, message) in [
        ("block = 2048", "block [2048, 1, 1] is larger than 1024 threads, or than 64 along z"),
        ("block = [1, 1, 65]", "block [1, 1, 65] is larger than 1024 threads, or than 64 along z"),
        ("block = 128\nshared = 300000", "300000 bytes of shared memory are more than 232448"),
        ("block = 0", "grid [8, 1, 1] of blocks [0, 1, 1] has no threads"),
    ] {
        let scratch = Scratch::new("launches.toml", &launches.replacen("block = 128", to, 1));
        let text = output(1, &["scale.ptx", "--launches", scratch.path()]);
        assert!(text.starts_with(&format!("error[invalid-launch]: {message}\n")), "{text}");
    }
}

#[test]
fn what_is_slow_in_a_small_launch_is_left_out() {
    // A quarter of the transposition: one block.
    let launches = std::fs::read_to_string(fixture("transpose.toml")).unwrap();
    let launches = launches.replace("grid = [2, 2]", "grid = 1").replace("expect =", "# ");
    let scratch = Scratch::new("launches.toml", &launches);
    let args = ["transpose.ptx", "--launches", scratch.path()];
    expect![[r#"
        transpose.ptx: no findings in 3 launches (2 notes left out, in launches too small for them to matter)
    "#]]
    .assert_eq(&output(0, &args));
    assert_eq!(json(0, &args)["lints_left_out"], 2);
    let off = output(0, &[&args[..], &["--lints", "off"]].concat());
    assert_eq!(off, "transpose.ptx: no findings in 3 launches\n");
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
fn a_launch_that_does_not_end_is_found_by_the_limit() {
    let text = "version = 1\nbuffers.x = { type = \"u32\", count = 1, init = \"zeros\" }\n\
                [[launch]]\nkernel = \"waits\"\ngrid = 1\nblock = 32\nargs = [\"x\"]\n";
    let launches = Scratch::new("launches.toml", text);
    let text = output(1, &["odd.ptx", "--launches", launches.path(), "--limit", "10000"]);
    assert!(text.contains("still running after 10000 instructions a warp"), "{text}");
    let ran = check(&["qwen3-0.6b", "--limit", "10000"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--limit has no effect here"), "{}", ran.stderr);
}

#[test]
fn notes_cannot_be_denied_and_left_out() {
    let ran = check(&["scale.ptx", "--launches", "scale.toml", "--deny", "lints", "--lints", "off"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--deny lints has no effect with --lints off"), "{}", ran.stderr);
}
