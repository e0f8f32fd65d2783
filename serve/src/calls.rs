//! Calls of tools in the text of an answer, in the forms that models were trained to write.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Form of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// Hermes, Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of them, between other text.
    Tagged,
    /// Llama 3: the whole answer is `{"name": …, "parameters": {…}}`, or several with `;` between them, after
    /// `<|python_tag|>` or not.
    Bare,
    /// Mistral: `[TOOL_CALLS]` and a list of `{"name": …, "arguments": {…}}`, at the end of the answer.
    Listed,
}

/// Opening and closing tag of [`CallForm::Tagged`].
const TAGS: (&str, &str) = ("<tool_call>", "</tool_call>");
/// Mark of [`CallForm::Bare`], which not all models write.
const PYTHON: &str = "<|python_tag|>";
/// Mark of [`CallForm::Listed`].
const LIST: &str = "[TOOL_CALLS]";

/// Tokens that mark calls. In some vocabularies they are control tokens, which have no text.
pub const MARKS: [&str; 4] = [TAGS.0, TAGS.1, PYTHON, LIST];

impl CallForm {
    /// The form that a chat template teaches; none if it teaches none of these.
    pub fn of(template: &str) -> Option<CallForm> {
        if template.contains(TAGS.0) {
            Some(CallForm::Tagged)
        } else if template.contains(LIST) {
            Some(CallForm::Listed)
        } else if template.contains("\"parameters\"") && template.contains("<|start_header_id|>") {
            Some(CallForm::Bare)
        } else {
            None
        }
    }

    /// A call's text before its arguments. After them comes a brace.
    pub fn head(self, name: &str) -> String {
        let arguments = if self == CallForm::Bare { "parameters" } else { "arguments" };
        format!("{{\"name\": {}, \"{arguments}\": ", Value::from(name))
    }

    /// The language of answers that are nothing but calls, one or at least one, in Lark without the rule `call`: an object.
    /// `mark` writes a mark.
    pub fn grammar(self, one: bool, mark: impl Fn(&str) -> String) -> String {
        let several = |between: &str| if one { String::new() } else { format!(" ({between} call)*") };
        match self {
            CallForm::Tagged => {
                let (open, close) = (mark(TAGS.0), mark(TAGS.1));
                let more = if one { "" } else { " (\"\\n\" tagged)*" };
                format!("start: tagged{more}\ntagged: {open} \"\\n\" call \"\\n\" {close}\n")
            }
            CallForm::Bare => format!("start: call{}\n", several("\"; \"")),
            CallForm::Listed => format!("start: {} \" [\" call{} \"]\"\n", mark(LIST), several("\", \"")),
        }
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A call with its arguments, an object in JSON.
    Call { name: String, arguments: String },
}

/// A call as models write it. Some write the arguments as a text with JSON.
#[derive(Deserialize)]
struct Written<'a> {
    name: String,
    #[serde(borrow, alias = "parameters")]
    arguments: Option<&'a RawValue>,
}

/// Finds calls in a text that arrives in parts. Text that may be a call is held back until it is decided.
pub struct CallParser {
    form: CallForm,
    held: String,
    /// Whether other text than white space has been returned.
    begun: bool,
    /// Whether a call has been returned.
    called: bool,
}

impl CallParser {
    /// A parser at the beginning of an answer.
    pub fn new(form: CallForm) -> CallParser {
        CallParser { form, held: String::new(), begun: false, called: false }
    }

    /// Adds a part of the text, and returns what is decided.
    pub fn push(&mut self, part: &str) -> Vec<Piece> {
        self.held += part;
        let mut pieces = Vec::new();
        match self.form {
            CallForm::Tagged => while self.tagged(&mut pieces) {},
            CallForm::Listed => self.before(LIST, &mut pieces),
            CallForm::Bare => {
                let start = self.held.trim_start();
                let may_call = start.is_empty() || start.starts_with('{') || common_start(start, PYTHON);
                if self.begun || !may_call {
                    let text = std::mem::take(&mut self.held);
                    self.text(text, &mut pieces);
                }
            }
        }
        pieces
    }

    /// Ends the text, and returns the rest.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let held = std::mem::take(&mut self.held);
        let calls = match self.form {
            // A call at the end may lack its closing tag: it may be a control token that ended the answer.
            CallForm::Tagged => held.trim_start().strip_prefix(TAGS.0).and_then(one),
            CallForm::Listed => held.trim_start().strip_prefix(LIST).and_then(list),
            CallForm::Bare if self.begun => None,
            CallForm::Bare => separated(held.trim().trim_start_matches(PYTHON)),
        };
        match calls {
            Some(calls) => pieces.extend(calls),
            // White space after calls is no text.
            None if self.called && held.trim().is_empty() => {}
            None => self.text(held, &mut pieces),
        }
        pieces
    }

    fn text(&mut self, text: String, pieces: &mut Vec<Piece>) {
        self.begun |= !text.trim().is_empty();
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
    }

    /// Returns the text before a mark, or before what may become one, and before white space ahead of it.
    fn before(&mut self, mark: &str, pieces: &mut Vec<Piece>) {
        let may_start = |at: &usize| mark.starts_with(&self.held[*at..]);
        let partial = || self.held.char_indices().map(|(at, _)| at).find(may_start);
        let at = self.held.find(mark).or_else(partial).unwrap_or(self.held.len());
        let rest = self.held.split_off(self.held[..at].trim_end().len());
        let text = std::mem::replace(&mut self.held, rest);
        self.text(text, pieces);
    }

    /// Returns text and a call with tags; returns whether there may be more.
    fn tagged(&mut self, pieces: &mut Vec<Piece>) -> bool {
        self.before(TAGS.0, pieces);
        let Some(end) = self.held.find(TAGS.1) else { return false };
        let rest = self.held.split_off(end + TAGS.1.len());
        let whole = std::mem::replace(&mut self.held, rest);
        let inside = whole[..end].trim_start().strip_prefix(TAGS.0);
        match inside.and_then(one) {
            Some(calls) => {
                self.called = true;
                pieces.extend(calls);
            }
            None => self.text(whole, pieces),
        }
        true
    }
}

/// Whether one text begins with the other.
fn common_start(a: &str, b: &str) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

fn one(text: &str) -> Option<Vec<Piece>> {
    Some(vec![call(serde_json::from_str(text).ok()?)?])
}

fn list(text: &str) -> Option<Vec<Piece>> {
    let calls: Vec<Written<'_>> = serde_json::from_str(text).ok()?;
    calls.into_iter().map(call).collect()
}

/// Calls with `;` between them.
fn separated(text: &str) -> Option<Vec<Piece>> {
    let mut calls = Vec::new();
    let mut rest = text;
    loop {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let value = values.next()?.ok()?;
        calls.push(call(serde_json::from_str(value.get()).ok()?)?);
        rest = rest[values.byte_offset()..].trim_start();
        match rest.strip_prefix(';') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Some(calls),
            None => return None,
        }
    }
}

fn call(written: Written<'_>) -> Option<Piece> {
    let Written { name, arguments } = written;
    let arguments = match arguments.map(RawValue::get) {
        None | Some("null") => "{}".to_owned(),
        Some(text) => match serde_json::from_str(text).ok()? {
            Value::String(text) => text,
            Value::Object(_) => text.to_owned(),
            _ => return None,
        },
    };
    Some(Piece::Call { name, arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of a text in parts of `size` characters, with neighbouring texts joined.
    fn parse(form: CallForm, text: &str, size: usize) -> Vec<Piece> {
        let mut parser = CallParser::new(form);
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
                (_, piece) => joined.push(piece),
            }
        }
        joined
    }

    #[test]
    fn calls_are_found_however_the_text_is_divided() {
        use CallForm::{Bare, Listed, Tagged};
        let text = |text: &str| Piece::Text(text.to_owned());
        let call = |name: &str, arguments: &str| Piece::Call {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
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
            (Tagged, "a < b <tool> c", vec![text("a < b <tool> c")]),
            (Tagged, "<tool_call>no JSON</tool_call>", vec![text("<tool_call>no JSON</tool_call>")]),
            (
                Tagged,
                "<tool_call>{\"name\": \"f\", \"argu",
                vec![text("<tool_call>{\"name\": \"f\", \"argu")],
            ),
            (Tagged, "<tool_call>{\"name\": \"f\"}", vec![call("f", "{}")]),
            (Bare, "{\"name\": \"f\", \"parameters\": {\"x\": 1}}", vec![call("f", "{\"x\": 1}")]),
            (Bare, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", vec![call("f", "{}")]),
            (Bare, "{\"name\": \"f\"}; {\"name\": \"g\"}", vec![call("f", "{}"), call("g", "{}")]),
            (Bare, "{\"x\": 1}", vec![text("{\"x\": 1}")]),
            (Bare, "A brace: {\"name\": \"f\"}", vec![text("A brace: {\"name\": \"f\"}")]),
            (
                Listed,
                "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": \"{}\"}, {\"name\": \"g\", \"arguments\": {\"b\": null}}]",
                vec![call("f", "{}"), call("g", "{\"b\": null}")],
            ),
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
        let mut parser = CallParser::new(CallForm::Tagged);
        assert_eq!(parser.push("It is <b"), [Piece::Text("It is <b".to_owned())]);
        assert_eq!(parser.push(" or <tool"), [Piece::Text(" or".to_owned())]);
        assert_eq!(parser.push("s>"), [Piece::Text(" <tools>".to_owned())]);
    }
}
