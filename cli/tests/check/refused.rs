//! Subjects that cannot be checked, and their errors.

use std::io::Write;
use std::process::{Command, Stdio};

use expect_test::expect;
use serde_json::Value;

use crate::{Scratch, check, fixture, folder, json, output};

#[test]
fn launches_that_make_no_sense_exit_with_2_and_say_where() {
    let launches = std::fs::read_to_string(fixture("scale.toml")).unwrap();
    for (from, to, part) in [
        ("version = 1", "version = 2", "version 2 of the format; this program reads version 1"),
        ("\"scale\"", "\"scale2\"", "launch 1 (`scale2`): scale.ptx has no such kernel; its kernels: scale"),
        ("\"x\", \"y\", 1000", "\"x\", \"y\"", "launch 1 (`scale`): 2 args for 3 parameters"),
        ("\"y\", 1000", "\"z\", 1000", "argument 2 (.u64 y): there is no buffer `z`; the buffers: x, y"),
        ("\"y\", 1000", "\"y\", 1.5", "argument 3 (.u32 n): 1.5 is not a value of this type"),
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

        error[target]: `cp.async.bulk.commit_group` needs `.target` sm_90 and `.version` 8.0 or later, but the text names sm_80 and 7.0
          --> strange.ptx:28:2
           |
        28 | 	cp.async.bulk.commit_group; ld.global.f32 %f9, [%rd4];
           | 	^^

        error[undefined]: in `ld.global.f32`: unknown register `%f9`
          --> strange.ptx:28:44
           |
        28 | 	cp.async.bulk.commit_group; ld.global.f32 %f9, [%rd4];
           | 	                                          ^^^

        error[unsupported]: the emulator does not support `tex.2d.v4.f32.s32`
          --> strange.ptx:30:2
           |
        30 | 	tex.2d.v4.f32.s32 {%f1, %f2, %f1, %f2}, [%rd1, {%r1, %r2}]; //  0f40400000;
           | 	^^^

        error[redefined]: label `$L__BB0_2` is declared twice, first on line 34
          --> strange.ptx:34:13
           |
        34 | 	$L__BB0_2: $L__BB0_2: ret;
           | 	           ^^^^^^^^^

        strange.ptx: 4 errors and 1 unsupported feature
    "#]].assert_eq(&ran.stdout.replace(strange.path(), "strange.ptx"));
    let listed = json(2, &[strange.path()]);
    let listed = format!("{listed:#}").replace(strange.path(), "strange.ptx");
    expect![[r#"
        {
          "version": 2,
          "subject": "strange.ptx",
          "error": {
            "message": "strange.ptx: 4 errors and 1 unsupported feature",
            "problems": [
              {
                "kind": "syntax",
                "line": 20,
                "column": 2,
                "message": "in `mov.u33`: no type `.u33`"
              },
              {
                "kind": "target",
                "line": 28,
                "column": 2,
                "message": "`cp.async.bulk.commit_group` needs `.target` sm_90 and `.version` 8.0 or later, but the text names sm_80 and 7.0"
              },
              {
                "kind": "undefined",
                "line": 28,
                "column": 44,
                "message": "in `ld.global.f32`: unknown register `%f9`"
              },
              {
                "kind": "unsupported",
                "line": 30,
                "column": 2,
                "message": "the emulator does not support `tex.2d.v4.f32.s32`"
              },
              {
                "kind": "redefined",
                "line": 34,
                "column": 13,
                "message": "label `$L__BB0_2` is declared twice, first on line 34"
              }
            ]
          }
        }"#]].assert_eq(&listed);
}

#[test]
fn the_last_line_counts_errors_and_unsupported_features() {
    let last = |changes: &[(&str, &str)]| {
        let text = output(2, &[scale_with(changes).path()]);
        let line = text.lines().last().unwrap();
        line.split_once("strange.ptx: ").unwrap().1.to_owned()
    };
    let (unsupported, mistake) = (("mul.rn.f32", "vadd.u32.u32.u32"), ("mov.u32 %r3,", "mov.u32 %r99,"));
    assert_eq!(last(&[mistake]), "1 error");
    assert_eq!(last(&[unsupported]), "1 unsupported feature");
    assert_eq!(last(&[unsupported, mistake]), "1 error and 1 unsupported feature");
    assert_eq!(last(&[mistake, (".version 7.0", "")]), "2 errors");
}

#[test]
fn failures_are_json_too() {
    let launches = std::fs::read_to_string(fixture("scale.toml")).unwrap();
    let failure = |from: &str, to: &str| {
        let scratch = Scratch::new("launches.toml", &launches.replacen(from, to, 1));
        let ran = check(&["scale.ptx", "--launches", scratch.path(), "--format", "json"]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        // The same error is on standard error, as text.
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
        let failure: Value = serde_json::from_str(&ran.stdout).unwrap();
        format!("{failure:#}").replace(scratch.path(), "launches.toml")
    };
    expect![[r#"
        {
          "version": 2,
          "subject": "scale.ptx",
          "error": {
            "message": "launch 1 (`scale2`): scale.ptx has no such kernel; its kernels: scale",
            "help": "`bespoke check FILE.ptx` without --launches prints a template",
            "place": {
              "file": "launches.toml",
              "part": "launch 1 (`scale2`)"
            }
          }
        }"#]]
    .assert_eq(&failure("\"scale\"", "\"scale2\""));
    expect![[r#"
        {
          "version": 2,
          "subject": "scale.ptx",
          "error": {
            "message": "launches.toml: TOML parse error at line 15, column 1\n   |\n15 | clusters = 2\n   | ^^^^^^^^\nunknown field `clusters`, expected one of `kernel`, `triton`, `grid`, `block`, `cluster`, `shared`, `cooperative`, `args`, `programmatic`\n",
            "place": {
              "file": "launches.toml",
              "line": 15,
              "column": 1
            }
          }
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
fn a_limit_of_no_instructions_is_refused() {
    let ran = check(&["scale.ptx", "--launches", "scale.toml", "--limit", "0"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("invalid value '0' for '--limit <N>'"), "{}", ran.stderr);
}

#[test]
fn notes_cannot_be_denied_and_left_out() {
    let ran = check(&["scale.ptx", "--launches", "scale.toml", "--deny", "lints", "--lints", "off"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--deny lints has no effect with --lints off"), "{}", ran.stderr);
}
