//! JSON objects whose text arrives in parts.

/// Search for the end of a JSON object. It counts braces outside of strings, and does not check the rest of the syntax. An object
/// that lacks a brace ends before a tag: JSON has `<` in strings only.
#[derive(Debug, Default)]
pub struct ObjectScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl ObjectScanner {
    /// A search that begins within the object.
    pub fn inside() -> ObjectScanner {
        ObjectScanner { depth: 1, ..ObjectScanner::default() }
    }

    /// Scans the next part. Returns the length of the text up to the end of the object, if this part has it.
    pub fn scan(&mut self, part: &str) -> Option<usize> {
        for (at, byte) in part.bytes().enumerate() {
            if self.in_string {
                self.in_string = self.escaped || byte != b'"';
                self.escaped = !self.escaped && byte == b'\\';
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' => self.depth += 1,
                b'}' if self.depth <= 1 => return Some(at + 1),
                b'}' => self.depth -= 1,
                b'<' => return Some(at),
                _ => {}
            }
        }
        None
    }
}

/// The name of a call and the length of the text before its arguments, once the text has both and the arguments begin as an
/// object: `{"name": "f", "arguments": {`. None for calls of another form or order, which are parsed when they are whole.
pub fn head(text: &str) -> Option<(String, usize)> {
    let rest = after(after(after(text, "{")?, "\"name\"")?, ":")?;
    let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let name = names.next()?.ok()?;
    let rest = after(&rest[names.byte_offset()..], ",")?;
    let rest = after(rest, "\"arguments\"").or_else(|| after(rest, "\"parameters\""))?;
    let arguments = after(rest, ":")?.trim_start();
    arguments.starts_with('{').then(|| (name, text.len() - arguments.len()))
}

/// A call in a list, as far as it has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Element {
    /// Its name and the length of the text before its arguments, as [`head`] finds them.
    Head(String, usize),
    /// An object of another form or order, and the length of the text up to its end.
    Whole(usize),
    /// The beginning of an object, or nothing.
    Incomplete,
    /// Something else.
    Other,
}

/// The call at the beginning of a text.
pub fn element(text: &str) -> Element {
    let object = text.trim_start();
    if let Some((name, at)) = head(text) {
        return Element::Head(name, at);
    }
    if !object.is_empty() && !object.starts_with('{') {
        return Element::Other;
    }
    match ObjectScanner::default().scan(object) {
        Some(end) => Element::Whole(text.len() - object.len() + end),
        None => Element::Incomplete,
    }
}

/// The text after white space and a token.
fn after<'a>(text: &'a str, token: &str) -> Option<&'a str> {
    text.trim_start().strip_prefix(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_ends_outside_of_strings() {
        for (object, rest) in [
            ("{}", ""),
            ("{\"a\": {\"b\": 1}}", "}"),
            ("{\"}\": \"\\\"}\"}", " }"),
            ("{\"a\": \"\\\\\"}", "x"),
            ("{\"a\": {\"<\": 1}\n", "</tool_call>"),
        ] {
            let text = format!("{object}{rest}");
            assert_eq!(ObjectScanner::default().scan(&text), Some(object.len()), "{text}");
            let mut parts = ObjectScanner::default();
            let found = (0..text.len()).find_map(|at| Some(at + parts.scan(&text[at..at + 1])?));
            assert_eq!(found, Some(object.len()), "{text} in parts");
        }
        assert_eq!(ObjectScanner::default().scan("{\"a\": [1, 2]"), None);
    }

    #[test]
    fn a_head_is_known_when_the_arguments_begin() {
        for (text, found) in [
            ("\n{\"name\": \"f\", \"arguments\": {\"a\"", Some(("f", "{\"a\""))),
            ("{\"name\":\"a\\\"b\",\"arguments\":{", Some(("a\"b", "{"))),
            ("{\"name\": \"f\", \"parameters\": {}}", Some(("f", "{}}"))),
            ("{\"name\": \"f\", \"arguments\": ", None),
            ("{\"name\": \"f\", \"arguments\": \"{", None),
            ("{\"name\": \"f", None),
            ("{\"name\": 1, \"arguments\": {", None),
            ("{\"arguments\": {\"a\": 1}, \"name\"", None),
        ] {
            let head = head(text);
            let head = head.as_ref().map(|(name, at)| (name.as_str(), &text[*at..]));
            assert_eq!(head, found, "{text}");
        }
    }
}
