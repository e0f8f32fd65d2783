//! The demo model inside the binary: 2.5 million weights that do arithmetic and tell short stories.
//!
//! It was trained by `demo/train.py` and quantised by `bespoke quantize`; `demo/README.md` has the details and its
//! accuracy.

mod question;

pub use question::{Question, Sign};

use std::ops::ControlFlow;

use bespoke::engine::{Engine, EngineError, Slots};
use bespoke::generation::Request;
use bespoke::scheduler::Scheduler;
use bespoke::tokenizer::{Tokenizer, TokenizerError};
use bespoke_gguf::Gguf;

/// Name of the model on the command line, in place of a file.
pub const NAME: &str = "demo";

/// Default prompts.
pub const PROMPTS: [&str; 4] = ["17 + 25 =", "408 - 579 =", "86 * 7 =", "The old fox"];

/// Chat template: the model has learned no conversations, and continues the last message.
pub const CHAT_TEMPLATE: &str = "{{ messages[-1].content }}";

static MODEL: &[u8] = include_bytes!("../demo.gguf");

/// The model as a GGUF file.
pub fn model() -> Result<Gguf, bespoke_gguf::Error> {
    Gguf::from_bytes(MODEL.to_vec())
}

/// Normalises a prompt to the form of the training data: a question ends with the equals sign; other texts have no
/// trailing spaces, unless they are nothing else.
pub fn normalised_prompt(text: &str) -> String {
    match text.parse::<Question>() {
        Ok(question) => question.to_string(),
        Err(_) if text.trim_end().is_empty() => text.to_owned(),
        Err(_) => text.trim_end().to_owned(),
    }
}

/// Tokens of the longest answer: a sign, four digits and the end-of-text token.
const ANSWER_TOKENS: u32 = 6;

/// Error of asking a question.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The question has no tokens.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The model's answer to `question`, without surrounding spaces.
pub fn ask(engine: &mut Engine, tokenizer: &Tokenizer, question: &Question) -> Result<String, AskError> {
    let prompt = tokenizer.encode(&question.to_string())?;
    let request =
        Request { max_tokens: ANSWER_TOKENS, stop_tokens: tokenizer.end_tokens(), ..Request::new(&prompt) };
    let mut scheduler = Scheduler::new(Slots::new(engine)?, Some(tokenizer));
    let summary = scheduler.generate(&request, |_| ControlFlow::Continue(()))?;
    Ok(summary.text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_small_and_complete() {
        assert!(MODEL.len() <= 3 << 20, "{} bytes", MODEL.len());
        let gguf = model().unwrap();
        assert_eq!(gguf.u32("general.file_type").unwrap(), bespoke_kernels::shape::Mix::Q4KM.file_type());
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        for text in PROMPTS {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
        }
    }

    #[test]
    fn digits_are_single_tokens_as_in_training() {
        let tokenizer = Tokenizer::from_gguf(&model().unwrap()).unwrap();
        let pieces = |text: &str| -> Vec<String> {
            let ids = tokenizer.encode(text).unwrap();
            ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.piece(id)).into_owned()).collect()
        };
        assert_eq!(pieces("17 + 250 ="), ["1", "7", " +", " 2", "5", "0", " ="]);
        assert_eq!(pieces("17-250=-233"), ["1", "7", "-", "2", "5", "0", "=", "-", "2", "3", "3"]);
    }

    #[test]
    fn prompts_are_normalised() {
        for (text, taught) in [
            ("17 + 25 =", "17 + 25 ="),
            (" 17+25", "17 + 25 ="),
            ("6 x 7 = ", "6 * 7 ="),
            ("The old fox ", "The old fox"),
            (" ", " "),
            ("17 + 25 = 42", "17 + 25 = 42"),
        ] {
            assert_eq!(normalised_prompt(text), taught);
        }
    }
}
