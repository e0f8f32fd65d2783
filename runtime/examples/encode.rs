//! Encodes strings for a comparison with other tokenizers: `encode FILE.gguf [--no-parse-special]` reads a JSON string
//! from each line of standard input, and writes the token ids as a JSON list. `tests/references/tokenizer_ids.py` runs it.

use std::error::Error;
use std::io::{BufRead, BufWriter, Write, stdin, stdout};

use bespoke::tokenizer::{EncodeOptions, Tokenizer};
use bespoke_gguf::Gguf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: encode FILE.gguf [--no-parse-special]")?;
    let special = !args.any(|arg| arg == "--no-parse-special");
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(path)?)?;
    let options = EncodeOptions { bos: false, eos: false, special };
    let mut out = BufWriter::new(stdout().lock());
    for line in stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        writeln!(out, "{}", serde_json::to_string(&tokenizer.encode_with(&text, options)?)?)?;
    }
    Ok(out.flush()?)
}
