//! `bespoke tokenize`.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{bespoke, command, error, json as run_json, output, scratch};

#[test]
fn text_becomes_ids_and_pieces() {
    let found = run_json(&["tokenize", "demo", "-p", "17 + 25 =", "--format", "json"]);
    let tokens: Vec<u64> =
        found["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let pieces: Vec<&str> =
        found["pieces"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(tokens.len(), pieces.len());
    assert!(pieces.concat().ends_with("17 + 25 ="), "{pieces:?}");
    let lines = output(&["tokenize", "demo", "-p", "17 + 25 ="]);
    for (line, (id, piece)) in lines.lines().zip(tokens.iter().zip(&pieces)) {
        assert_eq!(line, format!("{id:>7}  {piece:?}"));
    }
    assert_eq!(lines.lines().count(), tokens.len());
}

#[test]
fn a_text_may_begin_with_a_hyphen() {
    assert_eq!(
        output(&["tokenize", "demo", "-p", "- apples"]),
        output(&["tokenize", "demo", "--prompt=- apples"])
    );
    let ran = bespoke(&["tokenize", "demo", "-p", "--no-bos"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("a value is required for '--prompt <PROMPT>'"), "{}", ran.stderr);
}

#[test]
fn ids_become_text_again() {
    let text = "Once upon a time, 17 + 25 = 42.\n";
    let found = run_json(&["tokenize", "demo", "-p", text, "--no-bos", "--format", "json"]);
    let ids: Vec<String> = found["tokens"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(output(&["tokenize", "demo", "--decode", &ids.join(",")]), format!("{text}\n"));
    assert_eq!(
        output(&["tokenize", "demo", "--decode", &format!("[{}]", ids.join(", "))]),
        format!("{text}\n")
    );
    for (args, input, expected) in [
        (["--decode", "-"], ids.join(" "), format!("{text}\n")),
        (["--prompt", "-"], "17".to_owned(), output(&["tokenize", "demo", "-p", "17"])),
    ] {
        let mut child = command(&[&["tokenize", "demo"], &args[..]].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap(), expected);
    }
    let back = run_json(&["tokenize", "demo", "--decode", &ids.join(","), "--format", "json"]);
    assert_eq!(back["text"], json!(text));
    assert_eq!(back["pieces"], found["pieces"]);
    let message = error(&["tokenize", "demo", "--decode", "99999999"]);
    assert!(message.starts_with("error: token 99999999 does not exist: the vocabulary has "), "{message}");
}

#[test]
fn a_file_is_encoded_with_all_its_bytes() {
    let (_folder, path, name) = scratch("text.txt");
    std::fs::write(&path, "a b\n\n").unwrap();
    let args = ["tokenize", "demo", "-f", &name, "--no-bos", "--format", "json"];
    let ids: Vec<String> =
        run_json(&args)["tokens"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(output(&["tokenize", "demo", "--decode", &ids.join(",")]), "a b\n\n\n");

    let mut child = command(&["tokenize", "demo", "-f", "-", "--no-bos", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"a b\n\n").unwrap();
    let piped: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(piped, run_json(&args));
}

#[test]
fn text_that_is_not_utf8_is_refused_with_the_offset() {
    let (_folder, path, name) = scratch("latin1.txt");
    std::fs::write(&path, b"caf\xe9!").unwrap();
    let message = error(&["tokenize", "demo", "-f", &name]);
    assert!(message.contains("latin1.txt: byte 3 (0xe9) is not UTF-8"), "{message}");
}

#[test]
fn an_input_is_required() {
    assert_eq!(bespoke(&["tokenize", "demo"]).code, Some(2));
    assert_eq!(bespoke(&["tokenize", "demo", "-p", "a", "--decode", "1"]).code, Some(2));
}
