//! Fields that say to which language an answer belongs: `response_format`, `structured_outputs`, `text.format`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::Ready;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::grammar::{Compiled, Language};

/// Largest number of texts of a choice.
const CHOICES: usize = 1 << 10;

/// Fields of other servers, and what to write in their place.
const OTHERS: [(&str, &str); 7] = [
    (
        "grammar",
        "a grammar in the form GBNF is not supported: give `structured_outputs.grammar` in the form Lark",
    ),
    ("json_schema", "give the schema in `response_format` or in `structured_outputs.json`"),
    ("guided_json", "give `structured_outputs.json`"),
    ("guided_regex", "give `structured_outputs.regex`"),
    ("guided_choice", "give `structured_outputs.choice`"),
    ("guided_grammar", "give `structured_outputs.grammar`"),
    ("guided_decoding_backend", "leave it out: there is one backend"),
];

/// Fields of vLLM's extension.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StructuredOutputs {
    regex: Option<String>,
    json: Option<Value>,
    json_object: Option<bool>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
    whitespace_pattern: Option<String>,
}

/// Takes the language of an answer and the name of the field that has it; none for any text.
pub fn take(
    ready: &Ready,
    fields: &mut Fields<'_>,
) -> Result<Option<(&'static str, Arc<Compiled>)>, ApiError> {
    for (name, instead) in OTHERS {
        if fields.take::<Value>(name)?.is_some() {
            return Err(ApiError::unsupported(name, format!("`{name}` is not supported: {instead}")));
        }
    }
    let format: Option<Value> = fields.take("response_format")?;
    let schema_of = |format: &Value| format["json_schema"].get("schema").cloned();
    let language = format.map_or(Ok(None), |format| language("response_format", &format, schema_of))?;
    let structured: Option<StructuredOutputs> = fields.take("structured_outputs")?;
    let (name, language) = match (language, structured) {
        (None, None) => return Ok(None),
        (Some(language), None) => ("response_format", language),
        (None, Some(structured)) => ("structured_outputs", structured.language()?),
        (Some(_), Some(_)) => {
            let message = "`structured_outputs` and `response_format` both say what an answer is; give one";
            return Err(ApiError::field("structured_outputs", message));
        }
    };
    Ok(Some((name, ready.compile(name, &language)?)))
}

/// Takes the format of a response, in `text`. Returns it with the language of the answer.
pub fn take_text(ready: &Ready, fields: &mut Fields<'_>) -> Result<(Value, Option<Arc<Compiled>>), ApiError> {
    const NAME: &str = "text.format";
    let text: Value = fields.take("text")?.unwrap_or_else(|| json!({}));
    let others =
        text.as_object().map(|text| text.iter().filter(|(key, value)| *key != "format" && !value.is_null()));
    match others.map(|mut others| others.next()) {
        Some(None) => {}
        Some(Some((other, _))) => {
            let message = format!("`text.{other}` is not supported");
            return Err(ApiError::unsupported(&format!("text.{other}"), message));
        }
        None => return Err(ApiError::field("text", "`text` is not an object with `format`")),
    }
    let format = text.get("format").filter(|format| !format.is_null());
    let format = format.cloned().unwrap_or_else(|| json!({"type": "text"}));
    let language = language(NAME, &format, |format| format.get("schema").cloned())?;
    let compiled = language.map(|language| ready.compile(NAME, &language)).transpose()?;
    Ok((format, compiled))
}

/// The language of a format; none for any text.
fn language(
    name: &str,
    format: &Value,
    schema_of: impl Fn(&Value) -> Option<Value>,
) -> Result<Option<Language>, ApiError> {
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(match format.get("schema") {
            None | Some(Value::Null) => Language::any_object(),
            Some(schema) => Language::Json(schema.clone()),
        })),
        Some("json_schema") => match schema_of(format) {
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => Ok(Some(Language::Json(schema))),
            _ => Err(ApiError::field(name, format!("`{name}` of type `json_schema` has no schema"))),
        },
        _ => {
            let kind = &format["type"];
            let message =
                format!("`{name}.type` is {kind}; `text`, `json_object` or `json_schema` is needed");
            Err(ApiError::field(name, message))
        }
    }
}

impl StructuredOutputs {
    fn language(self) -> Result<Language, ApiError> {
        const NAME: &str = "structured_outputs";
        let wrong = |message: &str| ApiError::field(NAME, format!("`{NAME}`{message}"));
        let StructuredOutputs { regex, json, json_object, choice, grammar, whitespace_pattern } = self;
        let schema = match json {
            // Some clients send a schema as a text.
            Some(Value::String(text)) => {
                Some(serde_json::from_str(&text).map_err(|error| wrong(&format!(".json: {error}")))?)
            }
            json => json,
        };
        let schema = schema.map(|schema| match (schema, whitespace_pattern) {
            (Value::Object(mut fields), Some(pattern)) => {
                fields.insert("x-guidance".to_owned(), json!({"whitespace_pattern": pattern}));
                Value::Object(fields)
            }
            (schema, _) => schema,
        });
        let choice = match choice {
            Some(texts)
                if texts.is_empty() || texts.len() > CHOICES || texts.iter().any(String::is_empty) =>
            {
                return Err(wrong(&format!(".choice: 1 to {CHOICES} texts are needed, none of them empty")));
            }
            choice => choice.map(|texts| Language::choice(&texts)),
        };
        let gbnf = |text: &String| text.contains("::=");
        if grammar.as_ref().is_some_and(gbnf) {
            return Err(wrong(".grammar: the form GBNF (`::=`) is not supported; write Lark: `start: …`"));
        }
        let given = [
            regex.map(Language::Regex),
            schema.map(Language::Json),
            json_object.filter(|&wanted| wanted).map(|_| Language::any_object()),
            choice,
            grammar.map(Language::Lark),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(language), None) => Ok(language),
            _ => Err(wrong(": give one of `regex`, `json`, `json_object`, `choice` and `grammar`")),
        }
    }
}
