//! Calls of tools in the text of an answer, in the forms that models were trained to write.

mod object;
mod parameters;
mod parser;
mod piece;
mod types;
mod written;

use serde_json::Value;

pub use self::parser::CallParser;
pub use self::piece::Piece;
pub use self::types::Types;

use crate::grammar::quoted;

/// Form of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// Hermes, Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of them, between other text.
    Tagged,
    /// Qwen3-Coder: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>`, any number of them,
    /// between other text. The values are texts; only the schema says whether they are JSON.
    Functions,
    /// Llama 3: the whole answer is `{"name": …, "parameters": {…}}`, or several with `;` between them, after
    /// `<|python_tag|>` or not.
    Bare,
    /// Mistral: `[TOOL_CALLS]` and a list of `{"name": …, "arguments": {…}}`, at the end of the answer.
    Listed,
    /// Mistral since version 11 of its tokenizer: `[TOOL_CALLS]NAME[ARGS]{…}`, any number of them, at the end of the answer.
    Named,
}

/// Opening and closing tag of [`CallForm::Tagged`] and [`CallForm::Functions`].
const TAGS: (&str, &str) = ("<tool_call>", "</tool_call>");
/// Mark of [`CallForm::Bare`], which not all models write.
const PYTHON: &str = "<|python_tag|>";
/// Beginning of a function of [`CallForm::Functions`].
const FUNCTION: &str = "<function=";
/// Mark of [`CallForm::Listed`], and of each call of [`CallForm::Named`].
const LIST: &str = "[TOOL_CALLS]";
/// Mark between the name and the arguments in [`CallForm::Named`].
const ARGS: &str = "[ARGS]";
/// Mark of an id, which some models write behind the name in [`CallForm::Named`].
const CALL_ID: &str = "[CALL_ID]";

/// Tokens that mark calls. In some vocabularies they are control tokens, which have no text.
pub const MARKS: [&str; 6] = [TAGS.0, TAGS.1, PYTHON, LIST, ARGS, CALL_ID];

impl CallForm {
    /// The form that a chat template teaches; none if it teaches none of these.
    pub fn of(template: &str) -> Option<CallForm> {
        if template.contains(TAGS.0) && template.contains(FUNCTION) {
            Some(CallForm::Functions)
        } else if template.contains(TAGS.0) {
            Some(CallForm::Tagged)
        } else if template.contains(LIST) && template.contains(ARGS) {
            Some(CallForm::Named)
        } else if template.contains(LIST) {
            Some(CallForm::Listed)
        } else if template.contains("\"parameters\"") && template.contains("<|start_header_id|>") {
            Some(CallForm::Bare)
        } else {
            None
        }
    }

    /// Whether there is a grammar of calls, so that an answer can be made to be one.
    pub fn has_grammar(self) -> bool {
        self != CallForm::Functions
    }

    /// The language of a call of a function in Lark. `arguments` is the rule of its arguments; `mark` writes a mark.
    pub fn call(self, name: &str, arguments: &str, mark: impl Fn(&str) -> String) -> String {
        if self == CallForm::Named {
            return format!("{} {} {} {arguments}", mark(LIST), quoted(name), mark(ARGS));
        }
        let key = if self == CallForm::Bare { "parameters" } else { "arguments" };
        let head = format!("{{\"name\": {}, \"{key}\": ", Value::from(name));
        format!("{} {arguments} \"}}\"", quoted(&head))
    }

    /// The language of answers that are nothing but calls, one or at least one, in Lark without the rule `call`.
    /// `mark` writes a mark.
    pub fn grammar(self, one: bool, mark: impl Fn(&str) -> String) -> String {
        let several = |between: &str| if one { String::new() } else { format!(" ({between} call)*") };
        match self {
            CallForm::Named => format!("start: call{}\n", if one { "" } else { " call*" }),
            CallForm::Tagged | CallForm::Functions => {
                let (open, close) = (mark(TAGS.0), mark(TAGS.1));
                let more = if one { "" } else { " (\"\\n\" tagged)*" };
                format!("start: tagged{more}\ntagged: {open} \"\\n\" call \"\\n\" {close}\n")
            }
            CallForm::Bare => format!("start: call{}\n", several("\"; \"")),
            CallForm::Listed => format!("start: {} \" [\" call{} \"]\"\n", mark(LIST), several("\", \"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_tells_the_form() {
        for (template, form) in [
            ("<tool_call>{{ call | tojson }}</tool_call>", Some(CallForm::Tagged)),
            ("<tool_call><function={{ call.name }}>", Some(CallForm::Functions)),
            ("[TOOL_CALLS] [{{ calls }}]", Some(CallForm::Listed)),
            ("[TOOL_CALLS]{{ call.name }}[ARGS]{{ call.arguments }}", Some(CallForm::Named)),
            ("<|start_header_id|> \"parameters\"", Some(CallForm::Bare)),
            ("{{ tools }}", None),
        ] {
            assert_eq!(CallForm::of(template), form, "{template}");
        }
    }
}
