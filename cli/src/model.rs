//! Models: GGUF files, Hugging Face folders and the demo model, and arguments that name a model or a built-in shape.

use std::path::{Path, PathBuf};

use bespoke::engine::EngineError;
use bespoke::tokenizer::{Tokenizer, TokenizerError, declared_end_tokens};
use bespoke_demo as demo;
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::{Mix, ModelShape, ShapeFile, builtin};
use bespoke_quantize::QuantizeError;
use miette::{IntoDiagnostic, WrapErr, miette};

/// Help text of a `MODEL` argument.
pub const MODEL: &str =
    "The model: a GGUF file, a Hugging Face folder, or `demo`, the demo model in this binary";

/// Help text of a `MODEL|SHAPE` argument.
pub const HELP: &str = "A GGUF file, a Hugging Face folder, or `demo`; or a built-in shape: its name, or name and mix as in llama-3.1-8b-q8_0";

/// Largest edit distance of a suggested name.
const MAX_EDITS: usize = 3;

/// How the weights of a model are loaded.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct LoadArgs {
    /// Quantise float weights while they are loaded: a mix (q4_k_m) or one type for all matrices (q8_0)
    #[arg(long, value_name = "TYPE")]
    pub quantize: Option<Mix>,
}

/// Path of a model that a `MODEL|SHAPE` argument names; `None` for a built-in shape.
pub fn path_of(text: &str) -> Option<&Path> {
    let path = Path::new(text);
    let is_file = path.components().count() > 1
        || path.extension().is_some_and(|it| it == "gguf")
        || path.exists() && !path.is_dir();
    let is_folder = path.is_dir() && builtin_named(text).is_err();
    (is_file || is_folder || is_demo(path) || is_hf_folder(path)).then_some(path)
}

/// Shape of a GGUF file or a folder, of a built-in name, or of the demo model.
pub fn resolve(text: &str, load: LoadArgs) -> miette::Result<ModelShape> {
    if let Some(path) = path_of(text) {
        return open_model_with(path, load).map(|model| model.shape);
    }
    let (file, mix) = named(text, &[demo::NAME])?;
    file.with_mix(&mix.to_string()).into_diagnostic()
}

/// Whether `name` names the demo model or a built-in shape, even if a file has the same name.
pub fn is_builtin(name: &str) -> bool {
    is_demo(Path::new(name)) || builtin_named(name).is_ok()
}

/// The shape file and the mix that a built-in name selects: `llama-3.1-8b` selects the first mix of the shape file,
/// `llama-3.1-8b-q8_0` the mix q8_0.
pub fn builtin_named(name: &str) -> miette::Result<(ShapeFile, Mix)> {
    named(name, &[])
}

/// Does what [`builtin_named`] does, but the error also suggests the names in `others`.
fn named(name: &str, others: &[&str]) -> miette::Result<(ShapeFile, Mix)> {
    let mut names: Vec<String> = Vec::new();
    for file in builtin() {
        if name == file.name
            && let Some(mix) = file.mixes.first()
        {
            let mix = mix.parse().into_diagnostic()?;
            return Ok((file, mix));
        }
        let suffix = name.strip_prefix(&file.name).and_then(|rest| rest.strip_prefix('-'));
        if let Some(mix) = suffix {
            let mix = mix.parse().map_err(|error| miette!("shape `{name}`: {error}"))?;
            return Ok((file, mix));
        }
        names.push(file.name);
    }
    names.extend(others.iter().map(|&other| other.to_owned()));
    Err(unknown(name, &names))
}

fn unknown(name: &str, names: &[String]) -> miette::Report {
    if let Some((shape, target)) = name.rsplit_once('@')
        && builtin_named(shape).is_ok()
    {
        let help = format!(
            "`{shape}` is a built-in shape; use `--target {target}` with a command that takes a target"
        );
        return miette!(help = help, "`{name}` is neither a file nor a built-in shape");
    }
    let help = match near(name, names).as_slice() {
        [] => format!("built-in shapes: {}", names.join(", ")),
        [one] => format!("did you mean {one}?"),
        [most @ .., last] => format!("did you mean {} or {last}?", most.join(", ")),
    };
    miette!(help = help, "`{name}` is neither a file nor a built-in shape")
}

/// Names that contain `name`; if there are none, names within [`MAX_EDITS`], the nearest first.
fn near<'a>(name: &str, names: &'a [String]) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let names = || names.iter().map(String::as_str);
    let containing: Vec<&str> = names().filter(|other| other.contains(&name)).collect();
    if !containing.is_empty() {
        return containing;
    }
    let mut near: Vec<(usize, &str)> = names()
        .map(|other| (edit_distance(&name, other), other))
        .filter(|(distance, _)| *distance <= MAX_EDITS)
        .collect();
    near.sort_unstable();
    near.into_iter().map(|(_, other)| other).collect()
}

/// Levenshtein distance: the fewest insertions, deletions and substitutions of a character.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// An open model.
pub struct Model {
    /// The opened GGUF file, or the folder as one.
    pub gguf: Gguf,
    /// Shape of the model.
    pub shape: ModelShape,
    /// Whether this is the demo model.
    pub is_demo: bool,
    /// Path of the file or folder.
    pub path: PathBuf,
}

impl Model {
    /// Reads the tokenizer. A warning says so if it has fewer tokens than the model.
    pub fn tokenizer(&self) -> Result<Tokenizer, TokenizerError> {
        let tokenizer = Tokenizer::from_gguf(&self.gguf)?;
        let (tokens, vocab) = (tokenizer.len(), self.shape.dimensions.vocab);
        if tokens < vocab as usize {
            tracing::warn!(
                "the tokenizer has {tokens} tokens and the model {vocab}: tokens from {tokens} on have no text and are \
                 shown as [token {tokens}]"
            );
        }
        Ok(tokenizer)
    }

    /// Reads the tokenizer for a prompt of token ids, which do not need it. If it cannot be read, a warning says so, and
    /// the tokens that end a generation are those that the metadata declares.
    pub fn tokenizer_for_ids(&self) -> (Option<Tokenizer>, Vec<u32>) {
        let error = match self.tokenizer() {
            Ok(tokenizer) => {
                let ends = tokenizer.end_tokens().to_vec();
                return (Some(tokenizer), ends);
            }
            Err(error) => error,
        };
        let ends = declared_end_tokens(&self.gguf, self.shape.dimensions.vocab);
        let ending = match ends.as_slice() {
            [] => "the file declares no end token either, so only -n and the context end the generation"
                .to_owned(),
            ends => {
                let ends = ends.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                format!("generation ends only at the tokens that the metadata declares: {ends}")
            }
        };
        tracing::warn!("the tokenizer cannot be read, so that tokens have no text ({error}); {ending}");
        (None, ends)
    }
}

/// Opens a model as [`open_model_with`] does, with the weights as they are.
pub fn open_model(path: &Path) -> miette::Result<Model> {
    open_model_with(path, LoadArgs::default())
}

/// Opens a model file or folder, or the demo model by its name, and reads the shape of the model.
pub fn open_model_with(path: &Path, load: LoadArgs) -> miette::Result<Model> {
    if is_demo(path) {
        return open_demo_with(load);
    }
    if !path.exists()
        && let Some(name) = path.to_str()
        && builtin_named(name).is_ok()
    {
        let help = format!("`bespoke synth {name}.gguf --shape {name}` writes one with random weights");
        return Err(miette!(
            help = help,
            "`{name}` is a built-in shape, which has no weights; give a GGUF file"
        ));
    }
    exists(path)?;
    let open = || -> miette::Result<Model> {
        let mut gguf = open_weights(path)?;
        if let Some(mix) = load.quantize {
            gguf = bespoke_quantize::on_load(gguf, mix).map_err(quantize_error)?;
        }
        let shape =
            ModelShape::from_gguf(&gguf, &model_name(path)).map_err(EngineError::from).into_diagnostic()?;
        Ok(Model { gguf, shape, is_demo: false, path: path.to_owned() })
    };
    open().wrap_err_with(|| format!("cannot load {}", path.display()))
}

/// Fails if there is nothing at `path`.
fn exists(path: &Path) -> miette::Result<()> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(miette!(
            help = "a model is the path of a GGUF file or of a Hugging Face folder, or `demo`; nothing is downloaded",
            "cannot read {}: {error}",
            path.display()
        )),
        Err(error) => Err(miette!("cannot read {}: {error}", path.display())),
    }
}

/// Files of a Hugging Face folder that are often given in place of the folder.
fn is_in_hf_folder(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|it| it == "safetensors" || it == "json")
}

/// Opens a GGUF file, or a Hugging Face folder as one.
fn open_weights(path: &Path) -> miette::Result<Gguf> {
    if is_hf_folder(path) {
        return bespoke_hf::open(path).into_diagnostic();
    }
    if path.is_dir() {
        let help = "a folder must have config.json, tokenizer.json and safetensors files";
        return Err(miette!(help = help, "a folder without config.json is no model"));
    }
    if is_in_hf_folder(path) {
        let help = "give the folder that has config.json, tokenizer.json and the safetensors files";
        return Err(miette!(help = help, "it is no GGUF file but a file of a Hugging Face folder"));
    }
    Gguf::open(path).map_err(EngineError::from).into_diagnostic()
}

/// Files that a model is read from: all parts of a split file, and all files of a folder.
pub fn files(path: &Path, gguf: &Gguf) -> Vec<PathBuf> {
    let entries = path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    [path.to_owned()].into_iter().chain(gguf.paths().map(Path::to_owned)).chain(entries).collect()
}

/// Report of an error of quantisation, with what to do.
pub fn quantize_error(error: QuantizeError) -> miette::Report {
    match error {
        QuantizeError::Quantized { .. } => {
            let help = "start from the float file, or use `bespoke quantize --allow-requantize`";
            miette!(help = help, "{error}")
        }
        error => miette!("{error}"),
    }
}

/// Whether a path is a Hugging Face folder.
pub fn is_hf_folder(path: &Path) -> bool {
    bespoke_hf::is_model(path)
}

/// Opens a model file or folder, or the demo model by its name, for its metadata: the model itself may be unsupported,
/// or missing.
pub fn open_gguf(path: &Path) -> miette::Result<Gguf> {
    if is_demo(path) {
        return demo::model().into_diagnostic();
    }
    exists(path)?;
    open_weights(path).wrap_err_with(|| format!("cannot load {}", path.display()))
}

/// Opens the demo model inside the binary.
pub fn open_demo_with(load: LoadArgs) -> miette::Result<Model> {
    let mut gguf = demo::model().into_diagnostic()?;
    if let Some(mix) = load.quantize {
        gguf = bespoke_quantize::on_load(gguf, mix)
            .map_err(quantize_error)
            .wrap_err("cannot quantise the demo model")?;
    }
    let shape = ModelShape::from_gguf(&gguf, demo::NAME).into_diagnostic()?;
    Ok(Model { gguf, shape, is_demo: true, path: demo::NAME.into() })
}

/// Whether a path is the demo model's name and not a file.
pub fn is_demo(path: &Path) -> bool {
    path.as_os_str() == demo::NAME && !path.is_file() && !is_hf_folder(path)
}

/// Name of a model file without its extension, or of a folder.
pub fn model_name(path: &Path) -> String {
    if path.is_dir() {
        // `.` and `..` have no name of their own.
        let named =
            path.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        return named.unwrap_or_else(|| path.display().to_string());
    }
    path.file_stem()
        .map_or_else(|| PathBuf::from(path).display().to_string(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, distance) in
            [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("x", "x", 0)]
        {
            assert_eq!(edit_distance(a, b), distance, "{a} {b}");
            assert_eq!(edit_distance(b, a), distance, "{b} {a}");
        }
    }

    #[test]
    fn names_of_shapes() {
        for (name, shape) in [
            ("llama-3.1-8b", "llama-3.1-8b"),
            ("llama-3.1-8b-q4_k_m", "llama-3.1-8b"),
            ("llama-3.1-8b-q8_0", "llama-3.1-8b-q8_0"),
            ("qwen2.5-0.5b-f16", "qwen2.5-0.5b-f16"),
            ("demo", "demo"),
        ] {
            assert_eq!(resolve(name, LoadArgs::default()).unwrap().name, shape);
        }
    }

    #[test]
    fn the_demo_model_is_suggested_only_where_it_is_accepted() {
        for (name, ends) in [("gpt", ", demo"), ("deno", "did you mean demo?")] {
            let help = resolve(name, LoadArgs::default())
                .unwrap_err()
                .help()
                .map(|help| help.to_string())
                .unwrap_or_default();
            assert!(help.ends_with(ends), "{name}: {help}");
            let shapes =
                builtin_named(name).unwrap_err().help().map(|help| help.to_string()).unwrap_or_default();
            assert!(!shapes.contains("demo"), "{name}: {shapes}");
        }
    }

    #[test]
    fn an_unknown_name_suggests_similar_ones() {
        for (name, expected) in [
            ("lama-3.1-8b", "did you mean llama-3.1-8b?"),
            ("qwen3-06b", "did you mean qwen3-0.6b"),
            ("Llama-3.2", "did you mean llama-3.2-1b or llama-3.2-3b?"),
            ("gpt", "built-in shapes: llama-3.1-8b, "),
        ] {
            let help = builtin_named(name).unwrap_err().help().map(|help| help.to_string());
            assert!(help.as_ref().is_some_and(|help| help.starts_with(expected)), "{name}: {help:?}");
        }
        let help = builtin_named("qwen3-0.6b@sm_80").unwrap_err().help().map(|help| help.to_string());
        assert!(help.as_ref().is_some_and(|help| help.contains("`--target sm_80`")), "{help:?}");
        let error = builtin_named("llama-3.1-8b-q9").unwrap_err().to_string();
        assert!(error.contains("mix `q9` is not supported"), "{error}");
    }
}
