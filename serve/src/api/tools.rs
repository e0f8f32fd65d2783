//! Tools that a chat may call.

use std::sync::Arc;

use bespoke::tokenizer::Tokenizer;
use bespoke_chat::Value as TemplateValue;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::Ready;
use crate::calls::{CallForm, MARKS, Types};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::grammar::{Compiled, Language, on_one_line, quoted};

/// Largest number of tools, as in OpenAI's API. For each a grammar may be compiled.
const TOOLS: usize = 128;

/// Tools that a chat may call.
pub struct Tools {
    /// The tools, for the template.
    pub list: Vec<TemplateValue>,
    /// The form in which the model writes calls.
    pub form: CallForm,
    /// The types of their parameters.
    pub types: Arc<Types>,
    /// Whether an answer has at most one call.
    pub one: bool,
    /// The language of an answer that must be a call.
    pub grammar: Option<Arc<Compiled>>,
}

/// Which tools an answer calls.
enum Choice {
    /// None.
    None,
    /// The model decides.
    Auto,
    /// At least one.
    Required,
    /// The one with this name.
    Named(String),
}

/// Takes the tools of a chat; none if it may call none.
pub fn take(ready: &Ready, fields: &mut Fields<'_>) -> Result<Option<Tools>, ApiError> {
    let raw: Vec<Value> = fields.take("tools")?.unwrap_or_default();
    let choice = choice(fields.take("tool_choice")?)?;
    let parallel: bool = fields.take("parallel_tool_calls")?.unwrap_or(true);
    if raw.len() > TOOLS {
        let message = format!("`tools` has {} tools; at most {TOOLS} are accepted", raw.len());
        return Err(ApiError::field("tools", message));
    }
    for (index, tool) in raw.iter().enumerate() {
        check(index, tool)?;
    }
    let list: Result<Vec<TemplateValue>, _> = raw.iter().map(TemplateValue::deserialize).collect();
    let list = list.map_err(|error| ApiError::field("tools", format!("`tools`: {error}")))?;
    if matches!(choice, Choice::None) {
        return Ok(None);
    }
    if list.is_empty() {
        return match choice {
            Choice::None | Choice::Auto => Ok(None),
            Choice::Required | Choice::Named(_) => {
                Err(ApiError::field("tool_choice", "`tool_choice` asks for a call, and there are no `tools`"))
            }
        };
    }
    let unsupported = |message: &str| Err(ApiError::unsupported("tools", message));
    let Some(chat) = &ready.model.chat else { return Ok(None) };
    if !chat.template().reads("tools") {
        return unsupported("the model's chat template has no tools");
    }
    let Some(form) = CallForm::of(chat.template().source()) else {
        return unsupported("the form in which this model writes calls is not known");
    };
    let (wanted, one) = match &choice {
        Choice::None | Choice::Auto => (Vec::new(), !parallel),
        Choice::Required => ((0..raw.len()).collect(), !parallel),
        Choice::Named(name) => match raw.iter().position(|tool| tool["function"]["name"] == name.as_str()) {
            Some(index) => (vec![index], true),
            None => {
                let message =
                    format!("`tool_choice` asks for the function `{name}`, which is not among `tools`");
                return Err(ApiError::field("tool_choice", message));
            }
        },
    };
    let grammar = match &wanted[..] {
        [] => None,
        _ if !form.has_grammar() => {
            let message = "this model writes calls as `<function=NAME>` with tags, for which the server has no grammar: \
                           set `tool_choice` to \"auto\" or \"none\"";
            return Err(ApiError::unsupported("tool_choice", message));
        }
        wanted => Some(grammar(ready, form, wanted, &raw, one)?),
    };
    Ok(Some(Tools { list, form, types: Arc::new(Types::of(&raw)), one, grammar }))
}

fn choice(given: Option<Value>) -> Result<Choice, ApiError> {
    let Some(given) = given else { return Ok(Choice::Auto) };
    match (given.as_str(), given["type"].as_str(), given["function"]["name"].as_str()) {
        (Some("none"), ..) => Ok(Choice::None),
        (Some("auto"), ..) => Ok(Choice::Auto),
        (Some("required"), ..) => Ok(Choice::Required),
        (None, Some("function"), Some(name)) => Ok(Choice::Named(name.to_owned())),
        _ => {
            let form = json!({"type": "function", "function": {"name": "…"}});
            let message =
                format!("`tool_choice` is {given}; \"none\", \"auto\", \"required\" or {form} is needed");
            Err(ApiError::field("tool_choice", message))
        }
    }
}

/// The language of calls of some tools.
fn grammar(
    ready: &Ready,
    form: CallForm,
    wanted: &[usize],
    tools: &[Value],
    one: bool,
) -> Result<Arc<Compiled>, ApiError> {
    let mark = |mark: &str| match ready.model.tokenizer.id(mark) {
        // A control token has no text.
        Some(id) if ready.model.tokenizer.piece(id).is_empty() => format!("<[{id}]>"),
        _ => quoted(mark),
    };
    let mut rules = String::new();
    let mut names = Vec::new();
    for &index in wanted {
        let function = &tools[index]["function"];
        let schema = match &function["parameters"] {
            Value::Null => json!({"type": "object", "properties": {}, "additionalProperties": false}),
            schema => schema.clone(),
        };
        let schema = on_one_line(schema);
        let field = format!("tools[{index}].function.parameters");
        // By itself, so that an error names the tool.
        ready.compile(&field, &Language::Json(schema.clone()))?;
        let name = function["name"].as_str().unwrap_or_default();
        rules += &format!("call_{index}: {}\n", form.call(name, &format!("arguments_{index}"), mark));
        rules += &format!("arguments_{index}: %json {schema}\n");
        names.push(format!("call_{index}"));
    }
    let text = form.grammar(one, mark) + &format!("call: {}\n", names.join(" | ")) + &rules;
    ready.compile("tools", &Language::Lark(text))
}

/// Checks that a tool is a function with a name.
fn check(index: usize, tool: &Value) -> Result<(), ApiError> {
    if tool["type"] == "function" && tool["function"]["name"].is_string() {
        return Ok(());
    }
    let form = json!({"type": "function", "function": {"name": "…"}});
    Err(ApiError::field(&format!("tools[{index}]"), format!("`tools[{index}]` is not of the form {form}")))
}

/// Tokens that mark calls and have no text, with their names.
pub fn marks(tokenizer: &Tokenizer) -> Vec<(u32, &'static str)> {
    let ids = MARKS.iter().filter_map(|&mark| Some((tokenizer.id(mark)?, mark)));
    ids.filter(|&(id, _)| tokenizer.piece(id).is_empty()).collect()
}
