//! Escapes for control characters, so that text of a model or a folder cannot drive a terminal: move the cursor, set the
//! title, write to the clipboard, hide or reorder text.
//!
//! Control characters are those of Unicode (C0 except newline and tab, DEL, C1) and the characters that reorder text for
//! right-to-left scripts. They are shown as Rust writes them: `\u{1b}`, `\r`.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether escape sequences for colours pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colors {
    /// All escape sequences are escaped.
    No,
    /// Sequences that set text to bold, dim, italic, underlined or a foreground colour, and that end this.
    Yes,
}

impl Colors {
    /// Colours on a terminal.
    pub fn on(terminal: bool) -> Colors {
        if terminal { Colors::Yes } else { Colors::No }
    }
}

/// Text with escapes.
pub fn escaped(text: &str, colors: Colors) -> Cow<'_, str> {
    if !text.contains(drives_terminal) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(drives_terminal) {
        let (before, control) = rest.split_at(at);
        out.push_str(before);
        let color = if colors == Colors::Yes { color_bytes(control) } else { 0 };
        if color > 0 {
            out.push_str(&control[..color]);
            rest = &control[color..];
        } else {
            let mut letters = control.chars();
            out.extend(letters.next().into_iter().flat_map(char::escape_default));
            rest = letters.as_str();
        }
    }
    out.push_str(rest);
    out.into()
}

/// JSON text with escapes of JSON: the same values without control characters.
pub fn escaped_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if drives_terminal(letter) {
            // All these characters have 16 bits; formatting into a string cannot fail.
            let _ = write!(out, "\\u{:04x}", letter as u32);
        } else {
            out.push(letter);
        }
    }
    out
}

/// Whether a terminal does something else with a character than showing it.
pub fn drives_terminal(letter: char) -> bool {
    let reorders =
        matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (letter.is_control() && letter != '\n' && letter != '\t') || reorders
}

/// Bytes of the sequence for colours at the start of `text`; 0 if there is none.
fn color_bytes(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else { return 0 };
    let Some(end) = rest.find(|letter: char| !letter.is_ascii_digit() && letter != ';') else { return 0 };
    let allowed = |code: &str| {
        matches!(code.parse::<u8>(), Ok(0..=4 | 22..=24 | 30..=37 | 39 | 90..=97)) || code.is_empty()
    };
    if rest[end..].starts_with('m') && rest[..end].split(';').all(allowed) {
        "\x1b[".len() + end + 1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        for (text, plain, colored) in [
            ("a\tb\nç 漢 \u{1f600}", "a\tb\nç 漢 \u{1f600}", "a\tb\nç 漢 \u{1f600}"),
            ("\x1b]0;title\x07", r"\u{1b}]0;title\u{7}", r"\u{1b}]0;title\u{7}"),
            ("\x1b[2J\r\x08\x7f", r"\u{1b}[2J\r\u{8}\u{7f}", r"\u{1b}[2J\r\u{8}\u{7f}"),
            ("\u{9b}31m\u{202e}", r"\u{9b}31m\u{202e}", r"\u{9b}31m\u{202e}"),
            ("\x1b[1;31mred\x1b[0m", r"\u{1b}[1;31mred\u{1b}[0m", "\x1b[1;31mred\x1b[0m"),
            // Concealed text and a background colour could hide something.
            ("\x1b[8m\x1b[41m\x1b[31", r"\u{1b}[8m\u{1b}[41m\u{1b}[31", r"\u{1b}[8m\u{1b}[41m\u{1b}[31"),
        ] {
            assert_eq!(escaped(text, Colors::No), plain);
            assert_eq!(escaped(text, Colors::Yes), colored);
        }
    }

    #[test]
    fn escaped_json_has_the_same_values() {
        let value = serde_json::json!({ "name": "\x1b[2J\u{9b}\u{7f}\u{202e}é\n" });
        let text = escaped_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(drives_terminal), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
