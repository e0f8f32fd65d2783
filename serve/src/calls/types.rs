//! Types of the parameters of functions.

use std::collections::BTreeMap;

use serde_json::Value;

/// Types of the parameters of functions, by the names of both, as their schemas say.
#[derive(Debug, Default)]
pub struct Types(BTreeMap<(String, String), Vec<&'static str>>);

impl Types {
    /// The types of the parameters of tools.
    pub fn of(tools: &[Value]) -> Types {
        let mut types = BTreeMap::new();
        for function in tools.iter().map(|tool| &tool["function"]) {
            let name = function["name"].as_str().unwrap_or_default();
            for (key, schema) in function["parameters"]["properties"].as_object().into_iter().flatten() {
                let mut found = Vec::new();
                collect_types(schema, &mut found);
                types.insert((name.to_owned(), key.clone()), found);
            }
        }
        Types(types)
    }

    /// Whether every value of a parameter is a text.
    pub fn is_text(&self, function: &str, key: &str) -> bool {
        let allowed = self.0.get(&(function.to_owned(), key.to_owned()));
        allowed.is_none_or(|allowed| allowed.iter().all(|&name| name == "string"))
    }

    /// The value that a text is for a parameter: JSON if its schema allows JSON of that type, else the text.
    pub fn value(&self, function: &str, key: &str, text: &str) -> Value {
        let allowed = self.0.get(&(function.to_owned(), key.to_owned()));
        let value = match text.trim() {
            // Templates write the values of earlier calls as Python does.
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            "None" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_default(),
        };
        let is_null = matches!(text.trim(), "null" | "None");
        let is_json = !value.is_string() && (is_null || !value.is_null());
        if is_json && allowed.is_some_and(|allowed| allowed.contains(&type_of(&value))) {
            value
        } else {
            text.into()
        }
    }
}

/// The type of a value. Integers are numbers.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Collects the types that a schema allows; none if it does not say them.
fn collect_types(schema: &Value, types: &mut Vec<&'static str>) {
    const TYPES: [&str; 6] = ["null", "boolean", "number", "string", "array", "object"];
    let mut add = |name: &str| {
        let name = if name == "integer" { "number" } else { name };
        types.extend(TYPES.into_iter().find(|&it| it == name));
    };
    match &schema["type"] {
        Value::String(name) => add(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).for_each(add),
        _ if schema.get("$ref").is_some() => types.extend(TYPES),
        _ => schema["enum"].as_array().into_iter().flatten().for_each(|value| types.push(type_of(value))),
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        schema[key].as_array().into_iter().flatten().for_each(|schema| collect_types(schema, types));
    }
}
