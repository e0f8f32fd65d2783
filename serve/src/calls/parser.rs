//! Search for calls in a text that arrives in parts.

use std::sync::Arc;

use super::object::{ObjectScanner, head};
use super::written;
use super::{CallForm, LIST, PYTHON, TAGS, Types};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A call. Its arguments are an object in JSON; if they are empty, [`Piece::Arguments`] follow.
    Call { name: String, arguments: String },
    /// A part of the arguments of the last call.
    Arguments(String),
}

/// Finds calls in a text that arrives in parts. Text that may be a call is held back until it is decided; arguments are returned
/// as they arrive, unless only the whole call tells them.
pub struct CallParser {
    form: CallForm,
    types: Arc<Types>,
    held: String,
    place: Place,
    /// Whether other text than white space has been returned.
    begun: bool,
    /// Whether a call has been returned.
    called: bool,
}

/// Where in the text `CallParser::held` begins.
enum Place {
    /// In text, or before a call whose arguments are not known to begin.
    Outside,
    /// In the arguments of a call.
    Arguments(ObjectScanner),
    /// After the arguments of a call.
    Closing,
}

impl CallParser {
    /// A parser at the beginning of an answer.
    pub fn new(form: CallForm, types: Arc<Types>) -> CallParser {
        CallParser { form, types, held: String::new(), place: Place::Outside, begun: false, called: false }
    }

    /// Adds a part of the text, and returns what is decided.
    pub fn push(&mut self, part: &str) -> Vec<Piece> {
        self.held += part;
        let mut pieces = Vec::new();
        while match (&self.place, self.form) {
            (Place::Arguments(_), _) => self.arguments(&mut pieces),
            (Place::Closing, _) => self.closing(),
            (Place::Outside, CallForm::Tagged | CallForm::Functions) => self.tagged(&mut pieces),
            // Models of either form may write the other one.
            (Place::Outside, CallForm::Listed | CallForm::Named) => self.named(&mut pieces),
            (Place::Outside, CallForm::Bare) => self.bare(&mut pieces),
        } {}
        pieces
    }

    /// Ends the text, and returns the rest.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let held = std::mem::take(&mut self.held);
        if !matches!(self.place, Place::Outside) {
            // The answer ended within a call whose beginning has been returned.
            return pieces;
        }
        let calls = match self.form {
            // A call at the end may lack its closing tag: it may be a control token that ended the answer.
            CallForm::Tagged | CallForm::Functions => {
                held.trim_start().strip_prefix(TAGS.0).and_then(|inside| self.inside(inside))
            }
            CallForm::Listed | CallForm::Named => {
                held.trim_start().strip_prefix(LIST).and_then(written::list)
            }
            CallForm::Bare if self.begun => None,
            CallForm::Bare => written::separated(self.first_call(&held)),
        };
        match calls {
            Some(calls) => pieces.extend(calls),
            // White space after calls is no text.
            None if self.called && held.trim().is_empty() => {}
            None => self.text(held, &mut pieces),
        }
        pieces
    }

    /// Returns the beginning of a call whose arguments begin at a byte of the held text.
    fn begin(&mut self, name: String, at: usize, pieces: &mut Vec<Piece>) {
        self.held.drain(..at);
        self.place = Place::Arguments(ObjectScanner::default());
        self.called = true;
        pieces.push(Piece::Call { name, arguments: String::new() });
    }

    /// Returns a part of the arguments; returns whether they have ended.
    fn arguments(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Place::Arguments(scanner) = &mut self.place else { return false };
        let end = scanner.scan(&self.held);
        let rest = self.held.split_off(end.unwrap_or(self.held.len()));
        let part = std::mem::replace(&mut self.held, rest);
        if !part.is_empty() {
            pieces.push(Piece::Arguments(part));
        }
        if end.is_some() {
            self.place = Place::Closing;
        }
        end.is_some()
    }

    /// Drops the end of a call; returns whether it was there.
    fn closing(&mut self) -> bool {
        let end = match self.form {
            CallForm::Tagged | CallForm::Functions => self.held.find(TAGS.1).map(|at| at + TAGS.1.len()),
            CallForm::Listed | CallForm::Named => Some(0),
            CallForm::Bare => {
                let start = self.held.trim_start();
                let brace = usize::from(start.starts_with('}'));
                (!start.is_empty()).then_some(self.held.len() - start.len() + brace)
            }
        };
        let Some(end) = end else { return false };
        self.held.drain(..end);
        self.place = Place::Outside;
        true
    }

    /// The text of [`CallForm::Bare`] from the next call on, without what stands before it.
    fn first_call<'a>(&self, text: &'a str) -> &'a str {
        let text = text.trim();
        let text = if self.called { text.trim_start_matches(';').trim_start() } else { text };
        text.trim_start_matches(PYTHON).trim_start()
    }

    /// Returns text that is no call, or the beginning of a call; returns whether there may be more.
    fn bare(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let start = self.held.trim_start();
        let may_call = start.is_empty() || start.starts_with('{') || common_start(start, PYTHON);
        if self.begun || !(may_call || self.called && start.starts_with(';')) {
            let text = std::mem::take(&mut self.held);
            self.text(text, pieces);
            return false;
        }
        let call = self.first_call(&self.held);
        let Some((name, at)) = head(call) else { return false };
        let before = self.held.find(call).unwrap_or_default();
        self.begin(name, before + at, pieces);
        true
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
        let inside = self.held.trim_start().strip_prefix(TAGS.0);
        if let Some((name, at)) = inside.and_then(head) {
            let length = inside.map_or(0, str::len);
            self.begin(name, self.held.len() - length + at, pieces);
            return true;
        }
        let Some(end) = self.held.find(TAGS.1) else { return false };
        let rest = self.held.split_off(end + TAGS.1.len());
        let whole = std::mem::replace(&mut self.held, rest);
        let inside = whole[..end].trim_start().strip_prefix(TAGS.0);
        match inside.and_then(|inside| self.inside(inside)) {
            Some(calls) => {
                self.called = true;
                pieces.extend(calls);
            }
            None => self.text(whole, pieces),
        }
        true
    }

    /// The call between tags.
    fn inside(&self, text: &str) -> Option<Vec<Piece>> {
        if self.form == CallForm::Functions {
            written::function(text, &self.types)
        } else {
            written::one(text)
        }
    }

    /// Returns text and a call with a name behind the mark; returns whether there may be more.
    fn named(&mut self, pieces: &mut Vec<Piece>) -> bool {
        self.before(LIST, pieces);
        let start = self.held.len() - self.held.trim_start().len();
        let Some((name, at)) = written::named_head(&self.held[start..]) else { return false };
        self.begin(name, start + at, pieces);
        true
    }
}

/// Whether one text begins with the other.
fn common_start(a: &str, b: &str) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

#[cfg(test)]
mod tests {
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
            (
                Tagged,
                "<tool_call>{\"name\": \"f\", \"argu",
                vec![text("<tool_call>{\"name\": \"f\", \"argu")],
            ),
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
        ] {
            let mut parser = CallParser::new(form, Arc::default());
            assert_eq!(parser.push(head), [call.clone(), arguments("{")], "{form:?}");
            assert_eq!(parser.push("\"a\": \"long"), [arguments("\"a\": \"long")], "{form:?}");
            assert_eq!(parser.push(" text\""), [arguments(" text\"")], "{form:?}");
            assert_eq!(parser.push(end), [arguments("}")], "{form:?}");
            assert_eq!(parser.finish(), [], "{form:?}");
        }
    }
}
