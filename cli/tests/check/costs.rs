//! Notes and profiles of `bespoke check`.

use std::path::Path;
use std::process::{Command, Stdio};

use expect_test::expect;

use crate::{Scratch, fixture, json, output, same};

#[test]
fn what_is_slow_is_a_note_unless_it_is_denied() {
    let args = ["transpose.ptx", "--launches", "transpose.toml"];
    same(
        &output(0, &args),
        &expect![[r#"
        note[uncoalesced]: 32.0 sectors per request where 4.0 would do (8.0 times as many), in 128 requests; 89 % of the kernel's sectors
          --> transpose.ptx:29
           |
        29 | 	st.global.f32 [%rd6], %f1;
           | 	^^^^^^^^^^^^^^^^^^^^^^^^^^
           = kernel transpose_direct

        note[bank-conflict]: 32.0-way on average, 32-way at worst, 32.0 wavefronts per request, in 128 requests; 97 % of the kernel's wavefronts
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
    let summary =
        "transpose.ptx: no findings and 2 notes in 3 launches; --deny lints counts notes as findings\n";
    assert!(denied.ends_with(summary), "{denied}");
    let off = output(0, &[&args[..], &["--lints", "off"]].concat());
    assert_eq!(off, "transpose.ptx: no findings in 3 launches\n");
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
            scale: 1 launch, 1024 threads, 13.9 lane instructions a thread, 1.78 a byte moved
            7 % control, 7 % float, 36 % integer, 36 % memory, 14 % move

            | source line      | lane instr. |   share | per thread | per byte | lanes | divergent | global bytes | sectors/request | ideal | bank ways |
            |------------------|-------------|---------|------------|----------|-------|-----------|--------------|-----------------|-------|-----------|
            | scale.rs:8       |        4024 |  28.3 % |       3.93 |     0.50 |  31.4 |           |         4000 |            3.91 |  3.91 |           |
            | (no source line) |        3072 |  21.6 % |       3.00 |     0.38 |  32.0 |           |              |                 |       |           |
            | scale.rs:5       |        3072 |  21.6 % |       3.00 |     0.38 |  32.0 |           |              |                 |       |           |
            | scale.rs:7       |        3000 |  21.1 % |       2.93 |     0.38 |  31.2 |           |         4000 |            3.91 |  3.91 |           |
            | scale.rs:6       |        1048 |   7.4 % |       1.02 |     0.13 |  32.0 |      1/32 |              |                 |       |           |
            | all              |       14216 | 100.0 % |       13.9 |     1.78 |  31.7 |      1/32 |         8000 |            3.91 |  3.91 |           |

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
        scale: 1 launch, 128 threads, 14.0 lane instructions a thread, 1.75 a byte moved
        7 % control, 7 % float, 36 % integer, 36 % memory, 14 % move

        | source line      | lane instr. |   share | per thread | per byte | lanes | divergent | global bytes | sectors/request | ideal | bank ways |
        |------------------|-------------|---------|------------|----------|-------|-----------|--------------|-----------------|-------|-----------|
        | scale.rs:8       |         512 |  28.6 % |       4.00 |     0.50 |  32.0 |           |          512 |            4.00 |  4.00 |           |
        | (no source line) |         384 |  21.4 % |       3.00 |     0.38 |  32.0 |           |              |                 |       |           |
        | scale.rs:5       |         384 |  21.4 % |       3.00 |     0.38 |  32.0 |           |              |                 |       |           |
        | scale.rs:7       |         384 |  21.4 % |       3.00 |     0.38 |  32.0 |           |          512 |            4.00 |  4.00 |           |
        | scale.rs:6       |         128 |   7.1 % |       1.00 |     0.12 |  32.0 |       0/4 |              |                 |       |           |
        | all              |        1792 | 100.0 % |       14.0 |     1.75 |  32.0 |       0/4 |         1024 |            4.00 |  4.00 |           |

        scale: partial, 1 launch stopped by a finding, 1024 threads, 13.9 lane instructions a thread, 1.77 a byte moved
        7 % control, 7 % float, 36 % integer, 36 % memory, 14 % move

        | source line      | lane instr. |   share | per thread | per byte | lanes | divergent | global bytes | sectors/request | ideal | bank ways |
        |------------------|-------------|---------|------------|----------|-------|-----------|--------------|-----------------|-------|-----------|
        | scale.rs:8       |        3995 |  28.2 % |       3.90 |     0.50 |  31.5 |           |         4004 |            3.94 |  3.94 |           |
        | (no source line) |        3072 |  21.7 % |       3.00 |     0.38 |  32.0 |           |              |                 |       |           |
        | scale.rs:5       |        3072 |  21.7 % |       3.00 |     0.38 |  32.0 |           |              |                 |       |           |
        | scale.rs:7       |        3003 |  21.2 % |       2.93 |     0.38 |  31.3 |           |         4004 |            3.94 |  3.94 |           |
        | scale.rs:6       |        1047 |   7.4 % |       1.02 |     0.13 |  32.0 |      1/32 |              |                 |       |           |
        | all              |       14189 | 100.0 % |       13.9 |     1.77 |  31.7 |      1/32 |         8008 |            3.94 |  3.94 |           |

        scale.ptx: 1 finding in 2 launches
    "#]].assert_eq(profiles);
    let report = json(1, &["scale.ptx", "--launches", scratch.path(), "--profile"]);
    let profiles = report["profiles"].as_array().unwrap().iter();
    let partial: Vec<_> = profiles.map(|profile| (&profile["partial"], &profile["launches"])).collect();
    assert_eq!(partial, [(&false.into(), &1.into()), (&true.into(), &1.into())]);
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

#[test]
fn what_is_slow_in_a_small_launch_is_left_out() {
    // A quarter of the transposition: one block.
    let launches = std::fs::read_to_string(fixture("transpose.toml")).unwrap();
    let launches = launches.replace("grid = [2, 2]", "grid = 1").replace("expect =", "# ");
    let scratch = Scratch::new("launches.toml", &launches);
    let args = ["transpose.ptx", "--launches", scratch.path()];
    expect![[r#"
        transpose.ptx: no findings in 3 launches (2 notes omitted for launches too small for them to matter)
    "#]]
    .assert_eq(&output(0, &args));
    assert_eq!(json(0, &args)["lints_left_out"], 2);
    let off = output(0, &[&args[..], &["--lints", "off"]].concat());
    assert_eq!(off, "transpose.ptx: no findings in 3 launches\n");
}
