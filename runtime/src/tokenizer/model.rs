//! Construction of a `tokenizers` pipeline from a vocabulary.

use tokenizers::models::bpe::{BPE, BpeBuilder};
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

use super::TokenizerError;
use super::bytes::{byte_to_char, occurs_in_utf8};
use super::pre::PreTokenizer;
use super::scores;
use super::vocab::{Method, Vocab};

/// Builds the encoder. Decoding does not use the encoder: see [`Vocab::append_piece`].
pub fn build(vocab: &Vocab<'_>) -> Result<Tokenizer, TokenizerError> {
    let mut tokenizer = match &vocab.method {
        Method::ByteLevel { pre, merges } => byte_level(vocab, pre, merges),
        Method::Scores(scores) => sentence_piece(vocab, scores),
    }?;
    let whole = vocab
        .tokens
        .iter()
        .zip(&vocab.types)
        .filter(|(token, ty)| ty.is_matched_whole() && !token.is_empty());
    tokenizer.add_special_tokens(whole.map(|(&token, _)| AddedToken::from(token, true))).map_err(failed)?;
    Ok(tokenizer)
}

fn failed(error: tokenizers::Error) -> TokenizerError {
    TokenizerError::Model(error.to_string())
}

/// Builds a BPE model from the vocabulary and ranked merges.
fn bpe(vocab: &Vocab<'_>, merges: &[(&str, &str)]) -> BpeBuilder {
    let ids = vocab.ids.iter().map(|(token, id)| (token.to_string(), *id));
    let merges = merges.iter().map(|(left, right)| (left.to_string(), right.to_string()));
    BPE::builder().vocab_and_merges(ids.collect::<tokenizers::models::bpe::Vocab>(), merges.collect())
}

/// Byte-level BPE: split by patterns, map bytes to characters, merge.
fn byte_level(
    vocab: &Vocab<'_>,
    pre: &PreTokenizer,
    merges: &[(&str, &str)],
) -> Result<Tokenizer, TokenizerError> {
    let has = |byte: u8| vocab.ids.contains_key(byte_to_char(byte).encode_utf8(&mut [0; 4]) as &str);
    if let Some(byte) = (0..=255).find(|&byte| occurs_in_utf8(byte) && !has(byte)) {
        return Err(TokenizerError::NoByte { byte });
    }
    let model = bpe(vocab, merges).ignore_merges(pre.ignore_merges).build().map_err(failed)?;
    let mut steps = Vec::new();
    for pattern in pre.patterns {
        let pattern = SplitPattern::Regex(pattern.to_string());
        steps.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(failed)?.into());
    }
    steps.push(ByteLevel::new(false, false, false).into());
    let mut tokenizer = Tokenizer::new(model);
    tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(steps)));
    Ok(tokenizer)
}

/// SentencePiece's BPE: replace spaces by `▁`, merge, fall back to byte tokens.
fn sentence_piece(vocab: &Vocab<'_>, scores: &[f32]) -> Result<Tokenizer, TokenizerError> {
    let missing = (0..=255u8)
        .find(|&byte| occurs_in_utf8(byte) && !vocab.ids.contains_key(format!("<{byte:#04X}>").as_str()));
    let mut model =
        bpe(vocab, &scores::merges(vocab, scores)).fuse_unk(true).byte_fallback(missing.is_none());
    match (missing, vocab.unknown) {
        (Some(byte), None) => return Err(TokenizerError::NoByte { byte }),
        (_, Some(unknown)) => model = model.unk_token(vocab.tokens[unknown as usize].into()),
        (None, None) => {}
    }
    let mut steps = Vec::new();
    if vocab.space_prefix {
        steps.push(Prepend::new("▁".into()).into());
    }
    steps.push(Replace::new(" ", "▁").map_err(failed)?.into());
    let mut tokenizer = Tokenizer::new(model.build().map_err(failed)?);
    tokenizer.with_normalizer(Some(Normalizers::new(steps))).map_err(failed)?;
    Ok(tokenizer)
}
