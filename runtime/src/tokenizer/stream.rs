//! Incremental decoding: emits characters as soon as all their bytes are decoded.

use super::Tokenizer;

/// Incremental decoder, created by [`Tokenizer::decode_stream`].
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    /// First bytes of an incomplete character, at most three.
    pending: Vec<u8>,
    /// Text that the last token completed; reused to avoid allocations.
    text: String,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new(), text: String::new() }
    }

    /// Decodes a token and returns the text that it completes; empty while a character is incomplete. Invalid UTF-8
    /// becomes U+FFFD, and an id outside the vocabulary `[token 32001]`.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        self.tokenizer.append_text(id, &mut self.pending);
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

    /// Ends the stream: returns U+FFFD if a character is incomplete, else an empty text.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Whether bytes are a prefix of a valid character.
fn is_incomplete(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
