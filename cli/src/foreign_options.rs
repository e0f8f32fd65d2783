//! Options of llama.cpp's programs and of vLLM that have another name here or none, arguments in the wrong place, and the
//! hint that each brings.

use std::path::Path;

use bespoke_kernels::shape::Mix;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::model::is_hf_folder;

/// Options with the same meaning, and what to write instead.
const OPTIONS: [(&[&str], &str); 46] = [
    (
        &["-m", "--model"],
        "the model is an argument without an option: `bespoke run MODEL.gguf -p TEXT`, `bespoke serve MODEL.gguf`",
    ),
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
        "`bespoke serve` takes JSON schemas and grammars, in each request; here --logit-bias forbids single tokens",
    ),
    (
        &["-ctk", "--cache-type-k", "-ctv", "--cache-type-v"],
        "--kv f16 or --kv q8_0 sets the type of keys and values together",
    ),
    (&["-s"], "--seed SEED sets the seed"),
    (&["-t", "--threads", "-tb", "--threads-batch"], "leave it out: RAYON_NUM_THREADS=N limits the threads"),
    (&["-fa", "--flash-attn"], "leave it out: attention is always computed as FlashAttention does"),
    (
        &["-b", "--batch-size", "-ub", "--ubatch-size", "--max-num-batched-tokens"],
        "leave it out: prompts are always processed in steps of 64 to 2,048 tokens",
    ),
    (
        &["-np", "--parallel", "--max-num-seqs"],
        "`bespoke serve` and `bespoke batch` decode several sequences at once: --parallel N",
    ),
    (
        &["-cb", "--cont-batching", "--enable-prefix-caching", "--cache-prompt"],
        "leave it out: `bespoke serve` always batches requests as they come, and shares what prompts have in common",
    ),
    (&["--mlock", "--mmap", "--no-mmap"], "leave it out: weights are copied to the device, never mapped"),
    (&["-lv", "--log-verbosity", "--log-verbose"], "-v and -vv print more messages"),
    (&["--no-warmup", "--warmup", "--trust-remote-code", "--swap-space"], "leave it out"),
    (&["--max-tokens", "--max-new-tokens"], "-n N generates at most N tokens"),
    (&["--max-model-len", "--max-seq-len"], "-c N, --ctx N sets the length of the context"),
    (&["--gpu-memory-utilization"], "--kv-memory 20G sets the memory for the KV cache"),
    (&["--kv-cache-dtype"], "--kv f16 or --kv q8_0 sets the type of keys and values"),
    (&["--quantization", "--load-format", "--dtype"], "leave it out: the model's files say it"),
    (&["-a", "--served-model-name"], "--alias NAME names the model in the API"),
    (&["--api-key"], "--api-key-file FILE names a file with a key in each line"),
    (
        &["--enable-auto-tool-choice", "--tool-call-parser"],
        "leave it out: the chat template tells the form of calls",
    ),
    (&["--enforce-eager"], "--eager launches kernels one by one"),
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
    (&["-md", "--model-draft"], "--draft FILE is the option for a draft model"),
    (
        &["--draft-max", "--draft-n"],
        "--speculate=N sets the largest number of drafted tokens; fewer are drafted where that is faster",
    ),
    (
        &["--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale", "--yarn-orig-ctx"],
        "RoPE and its scaling are those of the model's metadata",
    ),
    (
        &[
            "-sm",
            "--split-mode",
            "-ts",
            "--tensor-split",
            "-mg",
            "--main-gpu",
            "-tp",
            "--tensor-parallel-size",
            "-pp",
            "--pipeline-parallel-size",
        ],
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

/// Replaces the error of a command line by the hint for the option or argument that caused it, if there is one.
pub fn explained(error: clap::Error, arguments: &[String]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if let Some(name) = text(ContextKind::InvalidSubcommand).filter(|name| is_model(name)) {
        let hint = format!("{name}: a model comes after a command: `bespoke run {name} -p TEXT`\n");
        return clap::Error::raw(ErrorKind::InvalidSubcommand, hint);
    }
    let unknown = text(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument);
    // clap reads `-ngl` as `-n gl`, so that its error names another option.
    let several_letters = |option: &&str| option.len() > 2 && !option.starts_with("--");
    let given = || arguments.iter().map(String::as_str).take_while(|argument| *argument != "--");
    let found = given().filter(several_letters).find_map(|option| Some((option, hint(option)?.to_owned())));
    let command = given().find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let of_command = || unknown.and_then(|argument| Some((argument, hint_in(command, argument)?)));
    let of_option = || unknown.and_then(|option| Some((option, hint(option)?.to_owned())));
    match found.or_else(of_command).or_else(of_option) {
        Some((argument, hint)) => {
            clap::Error::raw(ErrorKind::UnknownArgument, format!("{argument}: {hint}\n"))
        }
        None => error,
    }
}

/// The error for an option that is followed by something else than its value: a text option by another option, or an
/// option whose value needs an equals sign by a number. clap would take the first as the text, the second as another
/// argument.
pub fn missing_value(all: &clap::Command, arguments: &[String]) -> Option<clap::Error> {
    let given = || arguments.iter().map(String::as_str).take_while(|argument| *argument != "--");
    let command = all.find_subcommand(given().find(|argument| !argument.starts_with('-'))?)?;
    let nexts = arguments.iter().skip(1).map(String::as_str);
    given().zip(nexts).find_map(|(first, next)| {
        let option = option_of(command, first)?;
        if option.is_require_equals_set() && is_number(next) && !Path::new(next).exists() {
            let hint = format!("{first} {next}: write {first}={next}, with an equals sign\n");
            return Some(clap::Error::raw(ErrorKind::UnknownArgument, hint));
        }
        let is_text = option.is_allow_hyphen_values_set();
        let name = next.split_once('=').map_or(next, |(name, _)| name);
        (is_text && is_option(command, name)).then(|| without_value(command, option, next))
    })
}

/// Whether an argument is an option: of the command, of another program, or the end of the options.
fn is_option(command: &clap::Command, argument: &str) -> bool {
    argument == "--" || option_of(command, argument).is_some() || hint(argument).is_some()
}

/// The option of a command that an argument names.
fn option_of<'a>(command: &'a clap::Command, argument: &str) -> Option<&'a clap::Arg> {
    let name = argument.strip_prefix('-')?;
    command.get_arguments().find(|arg| match name.strip_prefix('-') {
        Some(long) => {
            arg.get_long() == Some(long) || arg.get_all_aliases().unwrap_or_default().contains(&long)
        }
        None => arg.get_short().is_some_and(|short| name.strip_prefix(short) == Some("")),
    })
}

fn is_number(text: &str) -> bool {
    text.split(',').all(|number| number.parse::<f64>().is_ok())
}

/// The error for a text option that is followed by the option `next`.
fn without_value(command: &clap::Command, option: &clap::Arg, next: &str) -> clap::Error {
    let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
    error.insert(ContextKind::InvalidArg, ContextValue::String(option.to_string()));
    error.insert(ContextKind::InvalidValue, ContextValue::String(String::new()));
    if let Some(long) = option.get_long() {
        let tip = StyledStr::from(format!("for the text '{next}', write '--{long}={next}'"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// Whether a name in a command's place is that of a model.
fn is_model(name: &str) -> bool {
    name == bespoke_demo::NAME || name.ends_with(".gguf") || is_hf_folder(Path::new(name))
}

fn hint(option: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(names, _)| names.contains(&option)).map(|(_, hint)| *hint)
}

/// The hint for an argument that `command` does not take.
fn hint_in(command: &str, argument: &str) -> Option<String> {
    let hint = match (command, argument) {
        ("bench" | "bench-server", "--json") => "-o json prints JSON",
        (
            "run" | "tokenize" | "perplexity" | "compare" | "inspect" | "selftest" | "check" | "devices",
            "--json",
        ) => "--format json prints JSON",
        (
            "run" | "tokenize" | "perplexity" | "compare" | "inspect" | "selftest" | "check",
            "-o" | "--output",
        ) => "results go to standard output: write `> FILE`; --format json prints JSON",
        ("quantize" | "synth", "-o" | "--out" | "--output") => "the output is an argument without an option",
        ("chat", "-p" | "--prompt" | "-f" | "--file") => {
            "`bespoke run MODEL --chat -p TEXT` answers one question; `chat` reads questions from standard input"
        }
        ("perplexity" | "compare", "-p" | "--prompt") => {
            "the text is a file: --file FILE, or - for standard input"
        }
        ("quantize", mix) if mix.parse::<Mix>().is_ok() => {
            return Some(format!("the type is an option: --type {mix}"));
        }
        ("run" | "tokenize" | "logits", text) if !text.starts_with('-') && !is_model(text) => {
            "the prompt is an option: -p TEXT, or -f FILE"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}
