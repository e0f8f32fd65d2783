//! Errors of the engine and of devices as reports, with help that names the options of the command line.

use std::path::Path;

use bespoke::device;
use bespoke::engine::{DoesNotFit, EngineError};
use bespoke_kernels::kernels::attention::KvType;
use miette::{Report, miette};

use crate::console::counted;

/// Report of an engine error.
pub fn engine_error(error: EngineError) -> Report {
    report(&error, options(&error).or_else(|| error.advice().map(str::to_owned)))
}

/// Report of a prompt that does not fit the context. `needed` is the number of positions that the prompt and the answer
/// need.
pub fn context_full(prompt: usize, context: u32, needed: u64) -> Report {
    let answer = if needed > prompt as u64 { "the prompt and its answer" } else { "the prompt" };
    miette!(
        help = format!("use --ctx {needed}, which holds {answer}, or shorten the prompt"),
        "the prompt does not fit the context: it has {}, and the context {}",
        counted(prompt, "token"),
        counted(context as usize, "position")
    )
}

/// Report of a device error.
pub fn device_error(error: device::Error) -> Report {
    report(&error, device_options(&error).or_else(|| error.advice().map(str::to_owned)))
}

fn report(error: &dyn std::error::Error, help: Option<String>) -> Report {
    match help {
        Some(help) => miette!(help = help, "{error}"),
        None => miette!("{error}"),
    }
}

/// The options that help with a device error, if there are any.
fn device_options(error: &device::Error) -> Option<String> {
    match error {
        device::Error::Hung { .. } | device::Error::Abandoned => Some(
            "end this process to free the device; `--device emulator` names the kernel and the line"
                .to_owned(),
        ),
        device::Error::Capture(cause) => device_options(cause),
        _ => None,
    }
}

/// The options that avoid an error, if there are any.
fn options(error: &EngineError) -> Option<String> {
    Some(match error {
        EngineError::Device(error) => return device_options(error),
        EngineError::Upload { source, .. } => return device_options(source),
        EngineError::TooOld { .. } => "use --device emulator".to_owned(),
        EngineError::SharedMemory { .. } => {
            "use --device emulator, or a device with more shared memory for each CTA".to_owned()
        }
        EngineError::NotBuiltIn { never_built_in: Some(_), .. } => "leave out --no-jit".to_owned(),
        EngineError::NotBuiltIn { target, model, tuned, .. } => format!(
            "leave out --no-jit, or build for this model with:\n  BESPOKE_MODEL={} BESPOKE_TARGETS={target}{} cargo build --release",
            shell_quoted(model),
            if *tuned { " BESPOKE_TUNE=FILE" } else { "" }
        ),
        EngineError::ContextFull { needed, .. } => format!("use --ctx {needed}"),
        EngineError::KeepTooLarge { .. } => "--keep must be below --ctx".to_owned(),
        EngineError::DoesNotFit(error) => does_not_fit(error),
        EngineError::KvMemory { .. } => "give more --kv-memory, or a smaller --ctx".to_owned(),
        EngineError::GraphMismatch(_) => "--eager runs without a graph".to_owned(),
        _ => return None,
    })
}

fn does_not_fit(error: &DoesNotFit) -> String {
    let Some(context) = error.fits else {
        return "choose a smaller quantisation or model, or free the device's memory".to_owned();
    };
    let kv = if fits_as_q8_0(error) { " or --kv q8_0" } else { "" };
    format!("use --ctx {context}{kv}, choose a smaller quantisation, or free the device's memory")
}

/// Whether the model would fit the device with the same context and a KV cache of type q8_0. A block of 32 elements has 34
/// bytes then, instead of 64.
fn fits_as_q8_0(error: &DoesNotFit) -> bool {
    let needs = error.needs;
    needs.kv == KvType::F16 && needs.total() - needs.cache + needs.cache.div_ceil(64) * 34 <= error.free
}

/// A path as a word of a shell's command.
fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use bespoke::engine::MemoryNeeds;

    use super::*;

    #[test]
    fn errors_bring_the_options_that_avoid_them() {
        let hung = || device::Error::Abandoned;
        for (error, help) in [
            (EngineError::ContextFull { needed: 33, context: 32 }, Some("use --ctx 33")),
            (EngineError::KeepTooLarge { keep: 4, context: 4 }, Some("--keep must be below --ctx")),
            (EngineError::GraphMismatch(String::new()), Some("--eager runs without a graph")),
            (
                EngineError::Device(device::Error::Capture(Box::new(hung()))),
                Some(
                    "end this process to free the device; `--device emulator` names the kernel and the line",
                ),
            ),
            (EngineError::EmptyPrompt, None),
        ] {
            assert_eq!(engine_error(error).help().map(|help| help.to_string()).as_deref(), help);
        }
    }

    #[test]
    fn q8_0_is_suggested_where_the_model_would_fit_with_it() {
        let advice = |free, kv, fits| {
            let needs = MemoryNeeds { weights: 1000, cache: 6400, positions: 64, kv, activations: 100 };
            does_not_fit(&DoesNotFit { device: String::new(), needs, free, fits })
        };
        let other = ", choose a smaller quantisation, or free the device's memory";
        assert_eq!(advice(4500, KvType::F16, Some(32)), format!("use --ctx 32 or --kv q8_0{other}"));
        assert_eq!(advice(4499, KvType::F16, Some(32)), format!("use --ctx 32{other}"));
        assert_eq!(advice(4500, KvType::Q8_0, Some(32)), format!("use --ctx 32{other}"));
        assert!(advice(1000, KvType::F16, None).starts_with("choose a smaller quantisation or model"));
    }

    #[test]
    fn paths_are_words_of_a_shell() {
        for (path, word) in [
            ("models/a-1.gguf", "models/a-1.gguf"),
            ("my models/a.gguf", "'my models/a.gguf'"),
            ("it's", r"'it'\''s'"),
            ("$HOME/a", "'$HOME/a'"),
            ("", "''"),
        ] {
            assert_eq!(shell_quoted(Path::new(path)), word);
        }
    }

    #[test]
    fn a_prompt_that_does_not_fit_is_said_in_tokens_and_positions() {
        let report = context_full(4, 3, 23);
        assert_eq!(
            report.to_string(),
            "the prompt does not fit the context: it has 4 tokens, and the context 3 positions"
        );
        let help =
            |needed| context_full(4, 3, needed).help().map(|help| help.to_string()).unwrap_or_default();
        assert_eq!(help(23), "use --ctx 23, which holds the prompt and its answer, or shorten the prompt");
        assert_eq!(help(4), "use --ctx 4, which holds the prompt, or shorten the prompt");
    }
}
