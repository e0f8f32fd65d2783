//! Tests of the parser, with the text in parts of several lengths.

use super::*;

/// Pieces of a text in parts of `size` characters, with neighbouring texts joined, and calls with their arguments.
fn parse(form: CallForm, text: &str, size: usize) -> Vec<Piece> {
    let tools = serde_json::json!([{"function": {"name": "f", "parameters": {"properties": {
        "n": {"type": "integer"},
        "flag": {"type": "boolean"},
        "list": {"type": "array"},
        "text": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }}}}]);
    let mut parser = CallParser::new(form, Arc::new(Types::of(tools.as_array().unwrap())));
    let chars: Vec<char> = text.chars().collect();
    let mut pieces: Vec<Piece> = Vec::new();
    for part in chars.chunks(size) {
        pieces.extend(parser.push(&part.iter().collect::<String>()));
    }
    pieces.extend(parser.finish());
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => *before += &text,
            (Some(Piece::Call { arguments, .. }), Piece::Arguments(part)) => *arguments += &part,
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

#[test]
fn calls_are_found_however_the_text_is_divided() {
    use CallForm::{Bare, Functions, Listed, Named, Tagged};
    let text = |text: &str| Piece::Text(text.to_owned());
    let call =
        |name: &str, arguments: &str| Piece::Call { name: name.to_owned(), arguments: arguments.to_owned() };
    for (form, answer, pieces) in [
        (Tagged, "It is warm.", vec![text("It is warm.")]),
        (
            Tagged,
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"</x>\"]}}\n</tool_call>",
            vec![call("f", "{\"a\": [1, \"</x>\"]}")],
        ),
        (
            Tagged,
            "I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
            vec![text("I look."), call("f", "{}"), call("g", "{}")],
        ),
        (
            Tagged,
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>}\"}}</tool_call> Done.",
            vec![call("f", "{\"a\": \"</tool_call>}\"}"), text(" Done.")],
        ),
        (
            Tagged,
            "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
            vec![call("f", "{\"a\": 1}")],
        ),
        (
            Tagged,
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": {}</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>",
            vec![call("f", "{\"a\": {}"), call("g", "{}")],
        ),
        (Tagged, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"", vec![call("f", "{\"a\"")]),
        (Tagged, "a < b <tool> c", vec![text("a < b <tool> c")]),
        (Tagged, "<tool_call>no JSON</tool_call>", vec![text("<tool_call>no JSON</tool_call>")]),
        (Tagged, "<tool_call>{\"name\": \"f\", \"argu", vec![text("<tool_call>{\"name\": \"f\", \"argu")]),
        (Tagged, "<tool_call>{\"name\": \"f\"}", vec![call("f", "{}")]),
        (Bare, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", vec![call("f", "{\"x\": 1}")]),
        (Bare, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", vec![call("f", "{}")]),
        (Bare, "{\"name\": \"f\"}; {\"name\": \"g\"}", vec![call("f", "{}"), call("g", "{}")]),
        (
            Bare,
            "{\"name\": \"f\", \"parameters\": {\"x\": {}}}; {\"name\": \"g\", \"parameters\": {}} ;{\"name\": \"h\"}",
            vec![call("f", "{\"x\": {}}"), call("g", "{}"), call("h", "{}")],
        ),
        (Bare, "{\"name\": \"f\", \"parameters\": {}} So.", vec![call("f", "{}"), text(" So.")]),
        (Bare, "{\"x\": 1}", vec![text("{\"x\": 1}")]),
        (Bare, "A brace: {\"name\": \"f\"}", vec![text("A brace: {\"name\": \"f\"}")]),
        (
            Listed,
            "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": \"{}\"}, {\"name\": \"g\", \"arguments\": {\"b\": null}}]",
            vec![call("f", "{}"), call("g", "{\"b\": null}")],
        ),
        (
            Listed,
            "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"}]\"}, \"id\": \"}1\"} , {\"arguments\": {}, \"name\": \"g\"}\n] So.",
            vec![call("f", "{\"a\": \"}]\"}"), call("g", "{}"), text(" So.")],
        ),
        (Listed, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1", vec![call("f", "{\"a\": [1")]),
        (
            Listed,
            "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"nam",
            vec![call("f", "{}"), text(", {\"nam")],
        ),
        (
            Listed,
            "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, 5]",
            vec![call("f", "{}"), text(", 5]")],
        ),
        (Listed, "[TOOL_CALLS] [{\"x\": 1}]", vec![text("[TOOL_CALLS] [{\"x\": 1}]")]),
        (
            Functions,
            "I look.\n<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n<parameter=text>\na\n7\n</parameter>\n</function>\n</tool_call>",
            vec![text("I look."), call("f", "{\"n\":5,\"text\":\"a\\n7\"}")],
        ),
        (
            Functions,
            "<tool_call><function=f><parameter=flag>True</parameter><parameter=list>[1, \"x\"]</parameter></function></tool_call><tool_call><function=g></function>",
            vec![call("f", "{\"flag\":true,\"list\":[1,\"x\"]}"), call("g", "{}")],
        ),
        (
            Functions,
            "<tool_call><function=f><parameter=text>5</parameter><parameter=maybe>5</parameter><parameter=n>many</parameter></function></tool_call>",
            vec![call("f", "{\"text\":\"5\",\"maybe\":\"5\",\"n\":\"many\"}")],
        ),
        (
            Functions,
            "<tool_call><function=f><parameter=maybe>null</parameter><parameter=other>[1]</parameter></function></tool_call>",
            vec![call("f", "{\"maybe\":null,\"other\":\"[1]\"}")],
        ),
        (
            Functions,
            "<tool_call><function=f><parameter=n>5</function></tool_call>",
            vec![text("<tool_call><function=f><parameter=n>5</function></tool_call>")],
        ),
        (
            Functions,
            "<tool_call>\n<function=f>\n<parameter=text>\nif a </b> </tool_call>\n\n</parameter>\n</function>\n</tool_call> Done.",
            vec![call("f", "{\"text\":\"if a </b> </tool_call>\\n\"}"), text(" Done.")],
        ),
        (
            Functions,
            "<tool_call><function=f><parameter=n>5</parameter></function>\n<function=g>\n</function></tool_call>",
            vec![call("f", "{\"n\":5}"), call("g", "{}")],
        ),
        (
            Functions,
            "<tool_call><function=f><parameter=text>cut off </par",
            vec![call("f", "{\"text\":\"cut off ")],
        ),
        (
            Functions,
            "<tool_call><function=f>no parameter</function></tool_call>",
            vec![text("<tool_call><function=f>no parameter</function></tool_call>")],
        ),
        (
            Functions,
            "<tool_call><function=f><parameter=n>5",
            vec![text("<tool_call><function=f><parameter=n>5")],
        ),
        (
            Named,
            "I look. [TOOL_CALLS]f[ARGS]{\"a\": \"[ARGS]}\"}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
            vec![text("I look."), call("f", "{\"a\": \"[ARGS]}\"}"), call("g", "{}")],
        ),
        (Named, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[AR", vec![call("f", "{}"), text("[TOOL_CALLS]g[AR")]),
        (Named, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", vec![call("f", "{}")]),
        (Listed, "[TOOL_CALLS]f[ARGS]{}", vec![call("f", "{}")]),
        (Listed, "A list: [1, 2]", vec![text("A list: [1, 2]")]),
        (Listed, "[TOOL_CALLS] none", vec![text("[TOOL_CALLS] none")]),
    ] {
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(parse(form, answer, size), pieces, "{answer} in parts of {size}");
        }
    }
}

#[test]
fn text_is_not_held_back_without_need() {
    let mut parser = CallParser::new(CallForm::Tagged, Arc::default());
    assert_eq!(parser.push("It is <b"), [Piece::Text("It is <b".to_owned())]);
    assert_eq!(parser.push(" or <tool"), [Piece::Text(" or".to_owned())]);
    assert_eq!(parser.push("s>"), [Piece::Text(" <tools>".to_owned())]);
}

#[test]
fn arguments_are_returned_as_they_arrive() {
    let call = Piece::Call { name: "f".to_owned(), arguments: String::new() };
    let arguments = |text: &str| Piece::Arguments(text.to_owned());
    for (form, head, end) in [
        (CallForm::Tagged, "<tool_call>\n{\"name\": \"f\", \"arguments\": {", "}}\n</tool_call>"),
        (CallForm::Bare, "{\"name\": \"f\", \"parameters\": {", "}}"),
        (CallForm::Named, "[TOOL_CALLS]f[ARGS]{", "}"),
        (CallForm::Listed, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {", "}}]"),
    ] {
        let mut parser = CallParser::new(form, Arc::default());
        assert_eq!(parser.push(head), [call.clone(), arguments("{")], "{form:?}");
        assert_eq!(parser.push("\"a\": \"long"), [arguments("\"a\": \"long")], "{form:?}");
        assert_eq!(parser.push(" text\""), [arguments(" text\"")], "{form:?}");
        assert_eq!(parser.push(end), [arguments("}")], "{form:?}");
        assert_eq!(parser.finish(), [], "{form:?}");
    }
    // A text with tags is translated.
    let mut parser = CallParser::new(CallForm::Functions, Arc::default());
    assert_eq!(parser.push("<tool_call>\n<function=f>\n<parameter=a"), []);
    assert_eq!(parser.push(">\nlong"), [call, arguments("{\"a\":\"long")]);
    assert_eq!(parser.push(" \"text\""), [arguments(" \\\"text\\\"")]);
    assert_eq!(parser.push("\n</parameter>\n</function>"), [arguments("\"}")]);
    assert_eq!(parser.push("\n</tool_call>"), []);
    assert_eq!(parser.finish(), []);
}
