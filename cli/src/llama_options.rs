//! Options of llama.cpp's programs that have another name here or none, and the hint that each brings.

use bespoke_kernels::shape::Mix;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options with the same meaning, and what to write instead.
const OPTIONS: [(&[&str], &str); 32] = [
    (&["-m", "--model"], "the model is an argument without an option: `bespoke run MODEL.gguf -p TEXT`"),
    (
        &["-ngl", "--gpu-layers", "--n-gpu-layers"],
        "leave it out: all layers run on the GPU if there is one; --device emulator or --device cuda:N chooses",
    ),
    (
        &["-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"],
        "`bespoke chat MODEL` holds a conversation, `bespoke run MODEL --chat -p TEXT` answers one question",
    ),
    (
        &["-no-cnv", "--no-conversation", "-st", "--single-turn"],
        "leave it out: `bespoke run` continues the prompt as it is, and with --chat answers one question",
    ),
    (&["-sys", "-sysf", "--system-prompt-file"], "--system TEXT sets the system prompt of a chat"),
    (&["-r", "--reverse-prompt"], "--stop TEXT ends the text before TEXT"),
    (
        &["--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"],
        "grammars and JSON schemas are not supported; --logit-bias forbids single tokens",
    ),
    (
        &["-ctk", "--cache-type-k", "-ctv", "--cache-type-v"],
        "--kv f16 or --kv q8_0 sets the type of keys and values together",
    ),
    (&["-s"], "--seed SEED sets the seed"),
    (&["-t", "--threads", "-tb", "--threads-batch"], "leave it out: RAYON_NUM_THREADS=N limits the threads"),
    (&["-fa", "--flash-attn"], "leave it out: attention never stores its scores"),
    (
        &["-b", "--batch-size", "-ub", "--ubatch-size", "-np", "--parallel", "-cb", "--cont-batching"],
        "leave it out: one sequence is decoded at a time",
    ),
    (
        &["--mlock", "--no-mmap", "-lv", "--log-verbosity", "--no-warmup"],
        "leave it out: there is no such choice",
    ),
    (&["--jinja", "--no-jinja"], "leave it out: chat templates are always rendered as Jinja"),
    (
        &["-e", "--escape", "--no-escape"],
        "leave it out: write line breaks with your shell, as in -p $'a\\nb'",
    ),
    (
        &["-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url", "-dr"],
        "nothing is downloaded; give the path of a GGUF file or of a Hugging Face folder",
    ),
    (&["--override-kv"], "metadata cannot be overridden; convert the model again"),
    (
        &["--lora", "--lora-scaled", "--control-vector"],
        "adapters are not supported; merge them into the model",
    ),
    (&["-mm", "--mmproj", "--image", "--audio"], "only text is supported"),
    (&["-md", "--model-draft", "--draft-max", "--draft"], "speculative decoding is not supported"),
    (
        &["--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx"],
        "RoPE and its scaling are those of the model's metadata",
    ),
    (
        &["-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu"],
        "a model runs on one GPU; --device cuda:N chooses it",
    ),
    (&["-dev"], "--device cuda:N or --device emulator chooses the device"),
    (&["--no-display-prompt", "--simple-io", "--color", "-co"], "leave it out: only the new text is printed"),
    (&["-l"], "--logit-bias ID+VALUE changes a token's logit"),
    (
        &[
            "--dry-multiplier",
            "--dry-base",
            "--dry-allowed-length",
            "--dry-penalty-last-n",
            "--dry-sequence-breaker",
        ],
        "DRY is not supported; --repeat-penalty, --presence-penalty and --frequency-penalty make repetition less likely",
    ),
    (
        &["--xtc-probability", "--xtc-threshold"],
        "XTC is not supported; a higher --temp with --min-p makes less likely tokens more frequent",
    ),
    (&["--typical", "--typical-p"], "typical-p is not supported; --top-p and --min-p remove unlikely tokens"),
    (
        &["--mirostat", "--mirostat-lr", "--mirostat-ent"],
        "Mirostat is not supported; --temp with --top-p or --min-p controls how surprising the text is",
    ),
    (
        &["--dynatemp-range", "--dynatemp-exp"],
        "a dynamic temperature is not supported; --temp sets a fixed one",
    ),
    (
        &["--top-nsigma", "--top-n-sigma", "--adaptive-target", "--adaptive-decay"],
        "this sampler is not supported; --top-k, --top-p and --min-p remove unlikely tokens",
    ),
    (
        &["--samplers", "--sampler-seq", "--sampling-seq"],
        "the order is fixed: logit bias, penalties, top-k, top-p, min-p, temperature",
    ),
];

/// Replaces the error of a command line by the hint for the option of llama.cpp that caused it, if one did.
pub fn explained(error: clap::Error, arguments: &[String]) -> clap::Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
            Some(option.as_str())
        }
        _ => None,
    };
    // clap reads `-ngl` as `-n gl`, so that its error names another option.
    let several_letters = |option: &&str| option.len() > 2 && !option.starts_with("--");
    let given = arguments.iter().map(String::as_str).take_while(|argument| *argument != "--");
    let found = given.filter(several_letters).find_map(|option| Some((option, hint(option)?)));
    if let Some(mix) = unknown.filter(|unknown| unknown.parse::<Mix>().is_ok()) {
        return clap::Error::raw(
            ErrorKind::UnknownArgument,
            format!("{mix}: the type is an option: --type {mix}\n"),
        );
    }
    match found.or_else(|| unknown.and_then(|option| Some((option, hint(option)?)))) {
        Some((option, hint)) => clap::Error::raw(ErrorKind::UnknownArgument, format!("{option}: {hint}\n")),
        None => error,
    }
}

fn hint(option: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(names, _)| names.contains(&option)).map(|(_, hint)| *hint)
}
