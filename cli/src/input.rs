//! Texts and token ids from arguments, files and standard input.

use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use miette::miette;

/// Name of standard input as an argument.
const STDIN: &str = "-";

/// Reads a whole file, or standard input for `-`. Text that is not UTF-8 is an error with the offset of its first
/// invalid byte.
pub fn read(path: &Path) -> miette::Result<String> {
    let (name, bytes) = if path.as_os_str() == STDIN {
        let mut bytes = Vec::new();
        ("standard input".to_owned(), std::io::stdin().read_to_end(&mut bytes).map(|_| bytes))
    } else {
        (path.display().to_string(), std::fs::read(path))
    };
    let bytes = bytes.map_err(|error| miette!("cannot read {name}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        miette!(
            help = "convert the text to UTF-8, for example with `iconv -f LATIN1 -t UTF-8`",
            "{name}: byte {at} ({byte:#04x}) is not UTF-8"
        )
    })
}

/// What happens to the newline at the end of a file or of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalNewline {
    /// It is part of the text.
    Kept,
    /// It only ends the text.
    Dropped,
}

/// Text of a prompt: the argument itself, standard input if it is `-`, or the content of a file; `None` if neither was
/// given.
pub fn prompt(
    argument: Option<&str>,
    file: Option<&Path>,
    newline: FinalNewline,
) -> miette::Result<Option<String>> {
    let path = match (argument, file) {
        (Some(STDIN), _) => Path::new(STDIN),
        (Some(text), _) => return Ok(Some(text.to_owned())),
        (None, Some(path)) => path,
        (None, None) => return Ok(None),
    };
    let text = read(path)?;
    let content = text.strip_suffix('\n').filter(|_| newline == FinalNewline::Dropped);
    Ok(Some(content.map(str::to_owned).unwrap_or(text)))
}

/// Parses a text that ends an answer.
pub fn stop_text(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("the text is empty; leave the option out to end at no text".to_owned());
    }
    Ok(text.to_owned())
}

/// Token ids as an argument: numbers between commas, spaces or brackets, or `-` for standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenIds {
    /// The ids.
    Given(Vec<u32>),
    /// Standard input has the ids.
    StandardInput,
}

impl FromStr for TokenIds {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenIds, String> {
        if text == STDIN { Ok(TokenIds::StandardInput) } else { ids(text).map(TokenIds::Given) }
    }
}

impl TokenIds {
    /// The ids, from standard input if it has them.
    pub fn read(&self) -> miette::Result<Vec<u32>> {
        match self {
            TokenIds::Given(ids) => Ok(ids.clone()),
            TokenIds::StandardInput => {
                ids(&read(Path::new(STDIN))?).map_err(|error| miette!("standard input: {error}"))
            }
        }
    }
}

/// Parses ids such as `1,2,3`, `1 2 3` or `[1, 2, 3]`.
fn ids(text: &str) -> Result<Vec<u32>, String> {
    let text = text.trim();
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let id = |word: &str| {
        word.parse().map_err(|_| format!("`{word}` is not a token id: expected ids such as 1,2,3"))
    };
    // Spaces may separate ids without a comma.
    let between_commas = text.split(',').map(|part| {
        let mut words = part.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err("an id is missing before or after a comma: expected ids such as 1,2,3".to_owned());
        }
        words.map(id).collect::<Result<Vec<u32>, _>>()
    });
    Ok(between_commas.collect::<Result<Vec<_>, _>>()?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_people_write_them() {
        for text in ["1,2,3", "1, 2, 3", "[1, 2, 3]", " 1 2\n3\n", "[1,2,3]\n"] {
            assert_eq!(text.parse(), Ok(TokenIds::Given(vec![1, 2, 3])), "{text:?}");
        }
        assert_eq!("[ ]".parse(), Ok(TokenIds::Given(Vec::new())));
        assert_eq!("-".parse(), Ok(TokenIds::StandardInput));
        for (text, word) in [("1,x", "x"), ("[1", "[1"), ("-1", "-1"), ("4294967296", "4294967296")] {
            let error = format!("`{word}` is not a token id: expected ids such as 1,2,3");
            assert_eq!(text.parse::<TokenIds>(), Err(error), "{text}");
        }
        for text in ["1,,2", ",1", "1,", "[1, ]"] {
            let error = "an id is missing before or after a comma: expected ids such as 1,2,3";
            assert_eq!(text.parse::<TokenIds>(), Err(error.to_owned()), "{text}");
        }
    }
}
