//! Reads Hugging Face model folders as GGUF models.
//!
//! A folder has `config.json`, weights in `model.safetensors` (or shards that `model.safetensors.index.json` lists) and
//! `tokenizer.json`; `tokenizer_config.json`, `generation_config.json` and `chat_template.jinja` are optional. [`open`]
//! returns the model that llama.cpp's conversion of the folder would give: the same metadata keys, the same names and
//! layouts of tensors. The weights stay in their files: a tensor is converted when its data is asked for.
//!
//! ```text
//! config.json ── config.rs ──► {arch}.* keys           (architecture.rs: the table of architectures)
//! tokenizer.json ── tokenizer/ ──► tokenizer.* keys
//! *.safetensors ── shards.rs ──► tensors ── source.rs ──► GGUF data
//! ```
//!
//! ```no_run
//! use std::path::Path;
//!
//! let model = bespoke_hf::open(Path::new("SmolLM2-135M-Instruct"))?;
//! assert_eq!(model.architecture()?, "llama");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod architecture;
mod config;
mod error;
mod json;
mod rope;
mod shards;
mod source;
mod tokenizer;

use std::path::Path;

use bespoke_gguf::{Gguf, Writer};

pub use error::HfError;

use architecture::Architecture;
use config::Config;
use shards::Shards;
use source::Tensors;

/// The file that makes a folder a model.
const CONFIG: &str = "config.json";

/// Whether `path` is a folder with a `config.json`.
pub fn is_model(path: &Path) -> bool {
    path.join(CONFIG).is_file()
}

/// Opens a folder as a model. Weights are read and converted on access.
///
/// If a file is truncated while it is open, reading its data fails.
pub fn open(folder: &Path) -> Result<Gguf, HfError> {
    let file = json::read(&folder.join(CONFIG))?;
    let architecture = Architecture::of(&file.root())?;
    let config = Config::read(file, architecture)?;
    let rope = rope::Rope::read(&config)?;
    let mut tensors = Tensors::new(Shards::open(folder)?);
    tensors.collect(&config, &rope)?;

    let mut header = Writer::new();
    header.set("general.architecture", architecture.name)?;
    header.set("general.type", "model")?;
    let name =
        folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    header.set("general.name", name.as_deref().unwrap_or(architecture.name))?;
    config.write(&mut header)?;
    rope.write(&config, &mut header)?;
    header.set("general.file_type", tensors.file_type())?;
    tokenizer::write(folder, &config, tensors.vocabulary(), &mut header)?;
    tensors.declare(&mut header)?;
    Ok(Gguf::with_source(&header, tensors)?)
}
