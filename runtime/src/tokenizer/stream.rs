//! Text from a running generation: characters as soon as they are complete, and never a part of one.

use super::Tokenizer;

/// Decodes tokens one by one; made by [`Tokenizer::decode_stream`].
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    /// The start of a character whose other bytes have not come yet: three bytes at most.
    pending: Vec<u8>,
    /// What the last token completed; kept for its memory.
    text: String,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new(), text: String::new() }
    }

    /// The text that this token completes; empty while a character is incomplete. Bytes that cannot become a
    /// character turn into U+FFFD.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        self.pending.extend_from_slice(self.tokenizer.piece(id));
        let mut kept = self.pending.len();
        let mut chunks = self.pending.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_incomplete(invalid) {
                kept -= invalid.len();
            } else if !invalid.is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.pending.drain(..kept);
        &self.text
    }

    /// What is left at the end: U+FFFD for a character that never became complete.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Whether bytes are the beginning of a character, as opposed to bytes that no character has.
fn is_incomplete(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
