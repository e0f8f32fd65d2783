//! Text that arrives unchanged in a pipe or a file.

use std::io::{IsTerminal, stdout};

use super::escape::{Colors, escaped};
use super::{Unwritable, write_all};

/// Text for standard output that comes in pieces. A terminal gets escapes in place of control characters; a carriage
/// return before a newline is left out there.
pub struct TextStream {
    terminal: bool,
    /// Whether the last piece ended with a carriage return, which is not written yet.
    returned: bool,
}

/// Prints text to standard output that must arrive unchanged in a pipe or a file, and a newline.
pub fn exact(text: &str) -> Result<(), Unwritable> {
    let mut stream = TextStream::new();
    stream.write(text)?;
    stream.write("\n")
}

impl TextStream {
    /// A stream of text.
    pub fn new() -> TextStream {
        TextStream { terminal: stdout().is_terminal(), returned: false }
    }

    /// Writes a piece of text.
    pub fn write(&mut self, piece: &str) -> Result<(), Unwritable> {
        if !self.terminal {
            return write_all(piece);
        }
        write_all(&self.shown(piece))
    }

    /// What a terminal gets.
    fn shown(&mut self, piece: &str) -> String {
        let start = if std::mem::take(&mut self.returned) { "\r" } else { "" };
        let mut text = format!("{start}{piece}").replace("\r\n", "\n");
        if text.ends_with('\r') {
            text.pop();
            self.returned = true;
        }
        escaped(&text, Colors::No).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_on_a_terminal() {
        let mut stream = TextStream { terminal: true, returned: false };
        for (piece, shown) in
            [("a\r", "a"), ("\nb", "\nb"), ("c\r\nd\r", "c\nd"), ("e", r"\re"), ("\x1b[2J\t", "\\u{1b}[2J\t")]
        {
            assert_eq!(stream.shown(piece), shown);
        }
    }
}
