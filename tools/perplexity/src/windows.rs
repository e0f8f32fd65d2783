//! Division of a text into windows.

use serde::Serialize;

/// Part of a text that a model processes from an empty cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Index of the first token.
    pub start: usize,
    /// Index after the last token.
    pub end: usize,
    /// Index of the first token whose prediction is scored: above `start`, since nothing predicts the first token.
    pub scored: usize,
}

/// Method of dividing a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Tokens of a window.
    pub context: u32,
    /// Tokens between the starts of windows. `None`: windows do not overlap, and the second half of each is scored, so
    /// that every scored token has at least half a window of context; the same tokens as llama.cpp's `llama-perplexity`
    /// scores. `Some(n)`: windows overlap, and of each only the last `n` tokens are scored, so that every token of the
    /// text but the first is scored once (the last ones only if they fill a window).
    pub stride: Option<u32>,
}

/// Error of dividing a text.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// The text does not fill a window.
    #[error("the text has {tokens} tokens, which do not fill a window of {context}")]
    TooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens of a window.
        context: u32,
    },
    /// The window has no token to score.
    #[error("a window of {0} tokens is too short: it needs at least 4")]
    TinyWindow(u32),
    /// The stride does not fit the window.
    #[error("a stride of {stride} does not fit windows of {context} tokens: use 1 to {}", context - 1)]
    Stride {
        /// Tokens between the starts of windows.
        stride: u32,
        /// Tokens of a window.
        context: u32,
    },
}

/// Divides a text of `tokens` tokens into at most `most` windows. Tokens behind the last full window are left out.
///
/// # Errors
/// If the text does not fill a window, or `cut` is invalid.
pub fn windows(tokens: usize, cut: Cut, most: Option<u32>) -> Result<Vec<Window>, WindowError> {
    let Cut { context, stride } = cut;
    if context < 4 {
        return Err(WindowError::TinyWindow(context));
    }
    if let Some(stride) = stride.filter(|&stride| stride == 0 || stride >= context) {
        return Err(WindowError::Stride { stride, context });
    }
    let length = context as usize;
    if tokens < length {
        return Err(WindowError::TooShort { tokens, context });
    }
    let step = stride.unwrap_or(context) as usize;
    let starts = (0..=tokens - length).step_by(step).take(most.unwrap_or(u32::MAX) as usize);
    let window = |start: usize| {
        let end = start + length;
        let scored = match stride {
            None => start + length / 2 + 1,
            Some(_) if start == 0 => 1,
            Some(stride) => end - stride as usize,
        };
        Window { start, end, scored }
    };
    Ok(starts.map(window).collect())
}

/// Number of positions that a model processes in all windows. The last token of a window is predicted but not processed.
pub fn positions(windows: &[Window]) -> u64 {
    windows.iter().map(|window| (window.end - 1 - window.start) as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(tokens: usize, context: u32, stride: Option<u32>) -> Vec<[usize; 3]> {
        let windows = windows(tokens, Cut { context, stride }, None).unwrap();
        windows.into_iter().map(|window| [window.start, window.end, window.scored]).collect()
    }

    #[test]
    fn second_halves_or_strides_are_scored() {
        assert_eq!(cut(8, 8, None), [[0, 8, 5]]);
        assert_eq!(cut(25, 8, None), [[0, 8, 5], [8, 16, 13], [16, 24, 21]]);
        assert_eq!(cut(9, 5, None), [[0, 5, 3]]);
        assert_eq!(cut(16, 8, Some(4)), [[0, 8, 1], [4, 12, 8], [8, 16, 12]]);
        assert_eq!(cut(10, 8, Some(1)), [[0, 8, 1], [1, 9, 8], [2, 10, 9]]);
        assert_eq!(windows(25, Cut { context: 8, stride: None }, Some(2)).unwrap().len(), 2);
    }

    /// `llama-perplexity` scores 255 tokens of each chunk of 512.
    #[test]
    fn a_window_of_512_has_255_scored_tokens() {
        let windows = windows(1024, Cut { context: 512, stride: None }, None).unwrap();
        assert!(windows.iter().all(|window| window.end - window.scored == 255));
        assert_eq!(positions(&windows), 2 * 511);
    }

    #[test]
    fn strides_score_every_token_once() {
        let windows = windows(100, Cut { context: 12, stride: Some(8) }, None).unwrap();
        let scored: Vec<usize> = windows.iter().flat_map(|window| window.scored..window.end).collect();
        assert_eq!(scored, (1..100).collect::<Vec<_>>());
    }

    #[test]
    fn invalid_divisions_are_refused() {
        for (tokens, context, stride, message) in [
            (7, 8, None, "the text has 7 tokens, which do not fill a window of 8"),
            (7, 3, None, "a window of 3 tokens is too short: it needs at least 4"),
            (9, 8, Some(0), "a stride of 0 does not fit windows of 8 tokens: use 1 to 7"),
            (9, 8, Some(8), "a stride of 8 does not fit windows of 8 tokens: use 1 to 7"),
        ] {
            let error = windows(tokens, Cut { context, stride }, None).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
