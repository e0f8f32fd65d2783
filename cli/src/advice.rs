//! Errors of the engine and of devices as reports, with help that names the options of the command line.

use bespoke::device;
use bespoke::engine::{DoesNotFit, EngineError};
use bespoke_kernels::kernels::attention::KvType;
use miette::{Report, miette};

/// Report of an engine error.
pub fn engine_error(error: EngineError) -> Report {
    report(&error, options(&error).or_else(|| error.advice().map(str::to_owned)))
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
            model.display(),
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
    let smaller = match (error.fits, error.needs.kv) {
        (None, _) => return "choose a smaller quantisation or model, or free the device's memory".to_owned(),
        (Some(context), KvType::F16) => format!("use --ctx {context} or --kv q8_0"),
        (Some(context), KvType::Q8_0) => format!("use --ctx {context}"),
    };
    format!("{smaller}, choose a smaller quantisation, or free the device's memory")
}

#[cfg(test)]
mod tests {
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
}
