//! Chat templates: a hostile template over a conversation.
//!
//! Parts of the input: `template`, and `inputs` as JSON. Property: rendering twice gives the same text.

use bespoke_chat::{Inputs, Message, Template};

use crate::sections::{sections, text};

pub fn run(data: &[u8]) {
    let parts = sections(data);
    let Some(source) = text(&parts, "template") else { return };
    let inputs = text(&parts, "inputs").and_then(|json| serde_json::from_str::<Inputs>(json).ok());
    let mut inputs = inputs.unwrap_or_else(|| {
        Inputs::new(vec![Message::new("system", "Be brief."), Message::new("user", "Hi \u{1f600}\n")])
    });
    // `strftime_now` depends on the time otherwise.
    inputs.now = Some("2024-02-29T12:00:00".parse().expect("a time"));
    let template = match Template::parse(source) {
        Ok(template) => template,
        Err(error) => return drop(error.to_string()),
    };
    assert_eq!(template.source(), source);
    let first = template.render(&inputs).map_err(|error| error.to_string());
    let second = template.render(&inputs).map_err(|error| error.to_string());
    assert_eq!(first, second);
}
