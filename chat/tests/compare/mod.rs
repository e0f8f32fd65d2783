//! Comparison of rendered templates with expected texts and errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use bespoke_chat::{Inputs, Template, TemplateError};
use serde::Deserialize;

/// What `tests/references/templates.py` writes.
#[derive(Deserialize)]
struct Expected {
    now: String,
    cases: BTreeMap<String, Inputs>,
    results: Vec<Outcome>,
}

/// A template's text or error for a conversation.
#[derive(Deserialize)]
struct Outcome {
    template: String,
    /// Missing if the template has a syntax error.
    case: Option<String>,
    text: Option<String>,
    raised: Option<String>,
    /// Another error of Python.
    error: Option<String>,
}

/// Result of a comparison.
#[derive(Default)]
pub struct Counts {
    templates: BTreeSet<String>,
    texts: usize,
    raised: usize,
    errors: usize,
    /// A description of each difference.
    pub differences: Vec<String>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} templates: {} texts equal, {} refusals with the same message, {} other errors in both; {} differences",
            self.templates.len(),
            self.texts,
            self.raised,
            self.errors,
            self.differences.len()
        )
    }
}

/// Renders every template of `folder` for every conversation of the file `expected`.
pub fn compare(folder: &Path, expected: &Path) -> Counts {
    let text = std::fs::read_to_string(expected).unwrap();
    let expected: Expected = serde_json::from_str(&text).unwrap();
    let mut counts = Counts::default();
    let mut parsed: Option<(String, Result<Template, TemplateError>)> = None;
    for outcome in &expected.results {
        if parsed.as_ref().is_none_or(|(name, _)| *name != outcome.template) {
            let source = std::fs::read_to_string(folder.join(&outcome.template)).unwrap();
            parsed = Some((outcome.template.clone(), Template::parse(&source)));
            counts.templates.insert(outcome.template.clone());
        }
        let Some((_, template)) = &parsed else { continue };
        let result = match (template, &outcome.case) {
            (Ok(template), Some(case)) => {
                let now = Some(expected.now.parse().unwrap());
                template.render(&Inputs { now, ..expected.cases[case].clone() })
            }
            (Ok(_), None) => Ok("the template is parsed".to_owned()),
            (Err(error), _) => Err(error.clone()),
        };
        let case = outcome.case.as_deref().unwrap_or("syntax");
        match outcome.difference(&result) {
            Some(difference) => {
                counts.differences.push(format!("{}, {case}: {difference}", outcome.template))
            }
            None if result.is_ok() => counts.texts += 1,
            None if outcome.raised.is_some() => counts.raised += 1,
            None => counts.errors += 1,
        }
    }
    counts
}

impl Outcome {
    /// What differs from the expected outcome.
    fn difference(&self, result: &Result<String, TemplateError>) -> Option<String> {
        match (self, result) {
            (Outcome { text: Some(expected), .. }, Ok(text)) if text == expected => None,
            (Outcome { text: Some(expected), .. }, Ok(text)) => {
                let equal = expected.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
                let part = |text: &str| {
                    let bytes = &text.as_bytes()[equal.saturating_sub(40).min(text.len())..];
                    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()
                };
                Some(format!("byte {equal} differs: expected {:?}, found {:?}", part(expected), part(text)))
            }
            (Outcome { raised: Some(expected), .. }, Err(TemplateError::Raised { message, .. }))
                if message == expected =>
            {
                None
            }
            (Outcome { error: Some(_), .. }, Err(_)) => None,
            (Outcome { error: Some(error), .. }, Ok(text)) => {
                let head: String = text.chars().take(60).collect();
                Some(format!("expected an error ({error}), found {head:?}"))
            }
            (Outcome { raised: Some(message), .. }, found) => {
                Some(format!("expected the refusal {message:?}, found {found:?}"))
            }
            (_, found) => Some(format!("found {found:?}")),
        }
    }
}
