//! Server-sent events from bytes.

use std::collections::VecDeque;

/// Splits a stream of bytes into the data of its events.
#[derive(Debug, Default)]
pub struct EventParser {
    /// Bytes of a line that is not complete.
    line: Vec<u8>,
    /// Data of an event that is not complete; none without a `data` line.
    data: Option<String>,
    ready: VecDeque<String>,
}

impl EventParser {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_line();
            } else {
                self.line.push(byte);
            }
        }
    }

    /// The data of the next complete event.
    pub fn next(&mut self) -> Option<String> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_suffix('\r').unwrap_or(&line);
        if line.is_empty() {
            self.ready.extend(self.data.take());
        } else if let Some(data) = line.strip_prefix("data:") {
            let data = data.strip_prefix(' ').unwrap_or(data);
            match &mut self.data {
                Some(text) => {
                    text.push('\n');
                    text.push_str(data);
                }
                none => *none = Some(data.to_owned()),
            }
        }
        // Comments, names and ids do not matter here.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_in_any_pieces() {
        let text = ": keep-alive\n\ndata: {\"a\": \"ä\"}\n\nevent: x\r\ndata: one\r\ndata:two\r\n\r\ndata: [DONE]\n\ndata: cut";
        for size in [1, 2, 3, 7, text.len()] {
            let mut parser = EventParser::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                parser.push(piece);
                found.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(found, ["{\"a\": \"ä\"}", "one\ntwo", "[DONE]"], "pieces of {size} bytes");
        }
    }
}
