//! Checks of a conversation before a template renders it.

use crate::Message;

/// A message that is not given to the template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MessageError {
    /// Name of the field that is wrong.
    pub field: String,
    /// What is wrong, with the field's name.
    pub message: String,
    /// Whether the field is valid in OpenAI's API, but not supported.
    pub is_unsupported: bool,
}

impl MessageError {
    fn new(field: &str, message: impl Into<String>) -> MessageError {
        MessageError { field: field.to_owned(), message: message.into(), is_unsupported: false }
    }
}

/// Checks the messages of a conversation, and returns them in the form that templates expect: see [`checked_message`].
///
/// # Errors
/// If there are no messages, or one has no text.
pub fn checked_messages(messages: Vec<Message>) -> Result<Vec<Message>, MessageError> {
    if messages.is_empty() {
        return Err(MessageError::new("messages", "`messages` is empty: give at least one message"));
    }
    messages.into_iter().enumerate().map(|(index, message)| checked_message(index, message)).collect()
}

/// Checks message number `index`, and returns it in the form that templates expect: the texts of its parts are joined by
/// newlines, arguments of calls are mappings, and the role `developer` is `system`.
///
/// # Errors
/// If the content is neither a text nor a list of texts.
pub fn checked_message(index: usize, message: Message) -> Result<Message, MessageError> {
    let name = format!("messages[{index}].content");
    if !message.has_text() {
        let message = format!("`{name}` is neither a text nor a list of parts with a `type`");
        return Err(MessageError::new(&name, message));
    }
    if let Some(kind) = message.part_types().into_iter().find(|kind| kind != "text") {
        let message = format!("`{name}` has a part of type `{kind}`; only `text` is supported");
        return Err(MessageError { is_unsupported: true, ..MessageError::new(&name, message) });
    }
    let message = message.with_joined_parts("\n").with_parsed_arguments();
    // OpenAI's newer name of the same role.
    Ok(if message.role() == "developer" { message.with_role("system") } else { message })
}

/// Roles of OpenAI's API, in the words that templates know: `developer` has become `system`.
const ROLES: [&str; 5] = ["system", "user", "assistant", "tool", "function"];

/// Refuses roles that are neither in OpenAI's API nor in the template's source: most templates write any role into the
/// prompt.
///
/// # Errors
/// If a message has such a role.
pub fn check_roles(template: &str, messages: &[Message]) -> Result<(), MessageError> {
    let in_template = |role: &str| {
        !role.is_empty()
            && ['"', '\''].iter().any(|quote| template.contains(&format!("{quote}{role}{quote}")))
    };
    let known = |role: &str| ROLES.contains(&role) || in_template(role);
    match messages.iter().map(Message::role).find(|role| !known(role)) {
        None => Ok(()),
        Some(role) => {
            let roles = "system, developer, user, assistant and tool";
            let message = format!("a message has the unknown role `{role}`; roles are {roles}");
            Err(MessageError::new("messages", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_those_of_the_api_and_of_the_template() {
        let template = "{% if message.role == 'observation' or message['role'] == \"context\" %}";
        let check = |role: &str| check_roles(template, &[Message::new("user", "x"), Message::new(role, "x")]);
        for role in ["system", "assistant", "tool", "function", "observation", "context"] {
            assert!(check(role).is_ok(), "{role}");
        }
        for role in ["", "robot", "User", "message.role"] {
            let message = check(role).unwrap_err().to_string();
            assert!(message.contains(&format!("unknown role `{role}`")), "{message}");
        }
    }

    #[test]
    fn a_conversation_needs_texts() {
        let check = |text: &str| {
            let messages: Vec<Message> = serde_json::from_str(text).unwrap();
            checked_messages(messages).map(|messages| messages[0].text())
        };
        let parts = r#"[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]"#;
        assert_eq!(check(parts).unwrap(), "a\nb");
        for (text, field, is_unsupported) in [
            ("[]", "messages", false),
            (r#"[{"role": "user"}]"#, "messages[0].content", false),
            (
                r#"[{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image_url"}]}]"#,
                "messages[1].content",
                true,
            ),
        ] {
            let error = check(text).unwrap_err();
            assert_eq!((error.field.as_str(), error.is_unsupported), (field, is_unsupported), "{error}");
        }
    }
}
