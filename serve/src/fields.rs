//! Fields of a request's JSON object.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::ApiError;

/// Fields of other servers that an endpoint may not have, with what to do instead.
const OTHERS: [(&str, &str); 9] = [
    ("n_predict", "give `max_tokens`"),
    ("max_new_tokens", "give `max_tokens`"),
    ("stop_token_ids", "give the texts of the tokens in `stop`"),
    ("min_tokens", "leave it out, or give `ignore_eos` to continue after tokens that end a text"),
    ("best_of", "give `n`, and choose among the answers"),
    ("use_beam_search", "beam search is not supported; leave it out"),
    ("mirostat", "Mirostat is not supported; give `temperature`, `top_k`, `top_p` or `min_p`"),
    ("typical_p", "typical sampling is not supported; give `top_p` or `min_p`"),
    ("dry_multiplier", "DRY is not supported; give `repeat_penalty` or `frequency_penalty`"),
];

/// Fields that were not taken yet, by name. They are parsed one by one, so that an error names the field.
pub struct Fields<'a> {
    fields: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    /// Parses an object without looking into its fields.
    pub fn parse(body: &'a [u8]) -> Result<Fields<'a>, ApiError> {
        match serde_json::from_slice(body) {
            Ok(fields) => Ok(Fields { fields }),
            Err(error) => {
                let message = format!("the body is not a JSON object: {error}");
                Err(ApiError::request("invalid_json", message))
            }
        }
    }

    /// Takes a field; none if it is missing or null.
    pub fn take<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        match self.fields.remove(name).map(RawValue::get) {
            None | Some("null") => Ok(None),
            Some(text) => match serde_json::from_str(text) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(ApiError::field(name, format!("`{name}`: {}", without_place(&error)))),
            },
        }
    }

    /// Whether a field is there and not null.
    pub fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| value.get() != "null")
    }

    /// Takes a field that must be there.
    pub fn require<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, ApiError> {
        self.take(name)?.ok_or_else(|| ApiError::field(name, format!("`{name}` is missing")))
    }

    /// Takes a field whose value must be in a range.
    pub fn within<T>(&mut self, name: &str, least: T, most: T) -> Result<Option<T>, ApiError>
    where
        T: Deserialize<'a> + PartialOrd + Display + Copy,
    {
        match self.take(name)? {
            // NaN is in no range; JSON does not have it.
            Some(value) if !(least..=most).contains(&value) => {
                let message = format!("`{name}` is {value}; {least} to {most} is needed");
                Err(ApiError::field(name, message))
            }
            value => Ok(value),
        }
    }

    /// Takes fields that change nothing here, whatever they are.
    pub fn ignore(&mut self, names: &[&str]) {
        self.fields.retain(|name, _| !names.contains(&name.as_str()));
    }

    /// Takes fields that may only have values that ask for nothing.
    pub fn only(&mut self, name: &str, allowed: &[serde_json::Value]) -> Result<(), ApiError> {
        match self.take::<serde_json::Value>(name)? {
            Some(value) if !allowed.contains(&value) => {
                let only = allowed.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
                let message = match allowed {
                    [] => format!("`{name}` is not supported"),
                    _ => format!("this value of `{name}` is not supported; leave it out, or give {only}"),
                };
                Err(ApiError::unsupported(name, message))
            }
            _ => Ok(()),
        }
    }

    /// Ends taking fields.
    ///
    /// # Errors
    /// If one is left: no endpoint reads it.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.fields.into_keys().next() {
            None => Ok(()),
            Some(name) => {
                let hint = OTHERS.iter().find(|(other, _)| *other == name);
                let hint = hint.map_or(String::new(), |(_, hint)| format!(": {hint}"));
                Err(ApiError::field(&name, format!("unknown field `{name}`{hint}"))
                    .with_code("unknown_field"))
            }
        }
    }
}

/// Text of an error of serde_json without the line and the column, which are those within a field, and with the types of
/// JSON in place of Rust's.
fn without_place(error: &serde_json::Error) -> String {
    const TYPES: [(&str, &str); 6] = [
        ("expected u32", "expected a whole number from 0 to 4294967295"),
        ("expected i64", "expected a whole number"),
        ("expected u64", "expected a whole number from 0"),
        ("expected f32", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
    ];
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    let text = &text[..end];
    let found = TYPES.iter().find_map(|(of_rust, of_json)| Some((text.strip_suffix(of_rust)?, of_json)));
    found.map_or_else(|| text.to_owned(), |(start, of_json)| format!("{start}{of_json}"))
}

/// One text or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum Texts {
    /// One text.
    One(String),
    /// Several texts.
    Several(Vec<String>),
}

impl Texts {
    /// The texts.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            Texts::One(text) => vec![text],
            Texts::Several(texts) => texts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_field() {
        let body = br#"{"a": 5, "b": "x", "c": null, "d": [1, "y"], "e": 2.5, "f": {}}"#;
        let mut fields = Fields::parse(body).unwrap();
        assert_eq!(fields.take::<u32>("a").unwrap(), Some(5));
        assert_eq!(fields.take::<u32>("c").unwrap(), None);
        assert_eq!(fields.take::<u32>("z").unwrap(), None);
        let message = |error: ApiError| error.message().to_owned();
        for (error, expected) in [
            (
                fields.take::<u32>("b").map(drop),
                "`b`: invalid type: string \"x\", expected a whole number from 0 to 4294967295",
            ),
            (fields.take::<Texts>("d").map(drop), "`d`: expected a text or a list of texts"),
            (fields.require::<u32>("z").map(drop), "`z` is missing"),
            (fields.within("e", 0.0, 2.0).map(drop), "`e` is 2.5; 0 to 2 is needed"),
            (
                fields.only("f", &["text".into()]),
                "this value of `f` is not supported; leave it out, or give \"text\"",
            ),
            (
                Fields::parse(b"[1]").map(drop),
                "the body is not a JSON object: invalid type: sequence, expected a map at line 1 column 0",
            ),
            (Fields::parse(br#"{"a": 1, "zz": 2}"#).unwrap().finish(), "unknown field `a`"),
            (
                Fields::parse(br#"{"n_predict": 1}"#).unwrap().finish(),
                "unknown field `n_predict`: give `max_tokens`",
            ),
        ] {
            assert_eq!(message(error.unwrap_err()), expected);
        }
        fields.finish().unwrap();
    }
}
