//! Parameters with tags, in a text that arrives in parts: `<parameter=KEY>VALUE</parameter>…</function>`.

use serde_json::Value;

use super::{FUNCTION, Types};

const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
const FUNCTION_END: &str = "</function>";

/// Translation of a function's parameters to a JSON object. Texts are translated as they arrive; other values are known only
/// at their end, and whether a value is a text only the schema says.
#[derive(Debug, Default)]
pub struct ParameterReader {
    function: String,
    /// Parameters so far. A repeated one is left out.
    keys: Vec<String>,
    /// The text whose end has not arrived.
    open: Option<OpenText>,
}

#[derive(Debug)]
struct OpenText {
    /// Whether nothing of it has arrived yet.
    at_start: bool,
    /// Whether it is left out.
    is_repeated: bool,
}

/// What follows the text that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More of the parameters.
    Parameters,
    /// What comes after the function.
    AfterFunction,
    /// Something that is no parameter.
    Other,
}

/// The name of a function and the length of the text before its parameters.
pub fn function_head(text: &str) -> Option<(&str, usize)> {
    let (name, parameters) = text.trim_start().strip_prefix(FUNCTION)?.split_once('>')?;
    Some((name, text.len() - parameters.len()))
}

impl ParameterReader {
    /// A reader behind the head of a function.
    pub fn new(function: &str) -> ParameterReader {
        ParameterReader { function: function.to_owned(), ..ParameterReader::default() }
    }

    /// Removes what is decided from the beginning of a text, and appends it to the object.
    pub fn read(&mut self, text: &mut String, types: &Types, object: &mut String) -> Next {
        loop {
            let read = match &mut self.open {
                Some(open) => {
                    let ended = open.read(text, object);
                    if ended {
                        self.open = None;
                    }
                    ended
                }
                None => match self.read_tag(text, types, object) {
                    Ok(read) => read,
                    Err(next) => return next,
                },
            };
            if !read {
                return Next::Parameters;
            }
        }
    }

    /// Reads a parameter up to its value if that is a text, else with its value. Returns whether it was there.
    fn read_tag(&mut self, text: &mut String, types: &Types, object: &mut String) -> Result<bool, Next> {
        let start = text.trim_start();
        if let Some(rest) = start.strip_prefix(FUNCTION_END) {
            *object += if self.keys.is_empty() { "{}" } else { "}" };
            *text = rest.to_owned();
            return Err(Next::AfterFunction);
        }
        let Some(tag) = start.strip_prefix(PARAMETER) else {
            let may_follow = PARAMETER.starts_with(start) || FUNCTION_END.starts_with(start);
            return if may_follow { Ok(false) } else { Err(Next::Other) };
        };
        let Some((key, value)) = tag.split_once('>') else { return Ok(false) };
        let is_text = types.is_text(&self.function, key);
        let whole = if is_text { None } else { value.split_once(PARAMETER_END) };
        if !is_text && whole.is_none() {
            return Ok(false);
        }
        let is_repeated = self.keys.iter().any(|it| it == key);
        if !is_repeated {
            let separator = if self.keys.is_empty() { '{' } else { ',' };
            self.keys.push(key.to_owned());
            *object += &format!("{separator}{}:", Value::from(key));
        }
        let rest = match whole {
            Some((value, rest)) => {
                if !is_repeated {
                    let value = value.strip_prefix('\n').unwrap_or(value);
                    let value = value.strip_suffix('\n').unwrap_or(value);
                    *object += &types.value(&self.function, key, value).to_string();
                }
                rest
            }
            None => {
                if !is_repeated {
                    object.push('"');
                }
                self.open = Some(OpenText { at_start: true, is_repeated });
                value
            }
        };
        *text = rest.to_owned();
        Ok(true)
    }
}

impl OpenText {
    /// Reads a part of the value; returns whether it has ended. The value is on lines of its own, so that the line ends next to
    /// the tags are not part of it.
    fn read(&mut self, text: &mut String, object: &mut String) -> bool {
        if self.at_start && !text.is_empty() {
            self.at_start = false;
            if text.starts_with('\n') {
                text.remove(0);
            }
        }
        let end = text.find(PARAMETER_END);
        let may_end = |at: &usize| {
            let rest = &text[*at..];
            PARAMETER_END.starts_with(rest.strip_prefix('\n').unwrap_or(rest))
        };
        let partial = || text.char_indices().map(|(at, _)| at).find(may_end);
        let at = end.or_else(partial).unwrap_or(text.len());
        let rest = text.split_off(end.map_or(at, |end| end + PARAMETER_END.len()));
        let mut value = std::mem::replace(text, rest);
        value.truncate(at);
        if end.is_some() && value.ends_with('\n') {
            value.pop();
        }
        if !self.is_repeated {
            let quoted = Value::from(value).to_string();
            *object += &quoted[1..quoted.len() - 1];
            if end.is_some() {
                object.push('"');
            }
        }
        end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types of a function `f` with a number `n`, and texts.
    fn types() -> Types {
        let parameters =
            serde_json::json!({"properties": {"n": {"type": "integer"}, "text": {"type": "string"}}});
        Types::of(&[serde_json::json!({"function": {"name": "f", "parameters": parameters}})])
    }

    #[test]
    fn texts_are_translated_as_they_arrive_and_other_values_at_their_end() {
        let mut reader = ParameterReader::new("f");
        let mut held = String::new();
        for (part, object, next) in [
            ("\n<param", "", Next::Parameters),
            ("eter=text>", "{\"text\":\"", Next::Parameters),
            ("\n", "", Next::Parameters),
            ("one \"two\"\n", "one \\\"two\\\"", Next::Parameters),
            ("three </par", "\\nthree ", Next::Parameters),
            ("ameters>\n</parameter", "</parameters>", Next::Parameters),
            (">\n<parameter=n>\n1", "\"", Next::Parameters),
            ("7\n</parameter>", ",\"n\":17", Next::Parameters),
            ("\n<parameter=text>again</parameter>\n", "", Next::Parameters),
            ("<parameter=n>5</parameter>", "", Next::Parameters),
            ("</function>\n</tool", "}", Next::AfterFunction),
        ] {
            held += part;
            let mut added = String::new();
            assert_eq!(reader.read(&mut held, &types(), &mut added), next, "{part}");
            assert_eq!(added, object, "{part}");
        }
        assert_eq!(held, "\n</tool");
    }

    #[test]
    fn what_is_no_parameter_is_left_in_the_text() {
        let (mut held, mut object) = ("<parameter=n>5</parameter> and".to_owned(), String::new());
        let next = ParameterReader::new("f").read(&mut held, &types(), &mut object);
        assert_eq!((next, held.as_str(), object.as_str()), (Next::Other, " and", "{\"n\":5"));
    }
}
