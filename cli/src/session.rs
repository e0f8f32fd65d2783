//! Opening a device and loading a model, for the commands that decode.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bespoke::device::{self, Checks, Kind, Opened, Selector};
use bespoke::engine::{Engine, EngineError, EngineOptions};
use bespoke::speculation::{DraftCounts, Source, SourceCounts, Speculation};
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_perplexity::{VocabularyError, check_vocabularies};
use clap::ArgGroup;
use miette::{WrapErr, miette};

use crate::advice::{device_error, engine_error};
use crate::console::counted;
use crate::model::{self, LoadArgs, Model};
use crate::progress::Progress;
use crate::rules::RulesArgs;

/// Device and emulator checks.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct DeviceArgs {
    /// Where to run: auto, cuda, cuda:N or emulator
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Selector,
    /// Additional checks of the emulator, besides out-of-bounds accesses; fewer checks are faster [default: memory, for
    /// selftest: all]
    #[arg(long, value_name = "CHECKS", value_enum)]
    checks: Option<CheckLevel>,
}

/// Additional checks of the emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CheckLevel {
    /// No additional checks.
    None,
    /// Uninitialised reads and asynchronous copies that were not waited for, but no races.
    Memory,
    /// All checks, including races.
    All,
}

/// Default checks while decoding: no race detection, which takes half of the time; `check` and `selftest` detect races.
const DECODING: Checks = Checks { races: false, ..Checks::ALL };

impl DeviceArgs {
    /// Creates the arguments for `device`, with the default checks.
    pub fn on(device: Selector) -> DeviceArgs {
        DeviceArgs { device, checks: None }
    }

    /// Opens the device, with the checks `default` unless `--checks` was given.
    pub fn open(self, default: Checks) -> device::Result<Opened> {
        let checks = match self.checks {
            None => default,
            Some(CheckLevel::None) => Checks::NONE,
            Some(CheckLevel::Memory) => DECODING,
            Some(CheckLevel::All) => Checks::ALL,
        };
        device::open_with(self.device, checks)
    }

    /// Starts to open the device for decoding, beside what the caller does until it needs the device. Without a thread for
    /// that, the device is opened when it is needed.
    pub fn start_opening(self) -> OpeningDevice {
        let thread = thread::Builder::new().name("device".to_owned()).spawn(move || self.open_timed()).ok();
        OpeningDevice { args: self, thread }
    }

    /// Defers opening the device for decoding until the caller needs it.
    pub fn open_when_needed(self) -> OpeningDevice {
        OpeningDevice { args: self, thread: None }
    }

    /// Opens the device for decoding, and measures how long it takes.
    fn open_timed(self) -> (device::Result<Opened>, Duration) {
        let start = Instant::now();
        (self.open(DECODING), start.elapsed())
    }
}

/// A device that a thread is opening, or that is opened when it is needed. Dropping it waits for the thread, since a process
/// should not end while the driver starts.
pub struct OpeningDevice {
    args: DeviceArgs,
    thread: Option<JoinHandle<(device::Result<Opened>, Duration)>>,
}

impl OpeningDevice {
    /// The device, and how long it took to open it.
    fn finish(mut self) -> miette::Result<(Opened, Duration)> {
        let (opened, time) = match self.thread.take() {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => self.args.open_timed(),
        };
        Ok((opened.map_err(device_error)?, time))
    }
}

impl Drop for OpeningDevice {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The caller has another error to report, or panics.
            drop(thread.join());
        }
    }
}

/// Arguments of every command that decodes.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Device and loading")]
pub struct DecodeArgs {
    /// Where to run.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Positions in the KV cache, or 0 for the model's context [default: 4096 or what the command needs, at most the
    /// model's context; for perplexity and compare 512]
    #[arg(long, short, alias = "ctx-size", value_name = "N")]
    pub ctx: Option<u32>,
    /// Type of the KV cache: f16, or q8_0 for about half the memory [default: f16]
    #[arg(long, value_name = "TYPE", default_value_t, hide_default_value = true)]
    pub kv: KvType,
    /// Launch kernels one by one instead of replaying a captured graph
    #[arg(long)]
    pub eager: bool,
    /// Fail if a kernel's PTX is not built into this binary, instead of generating it. The driver may still compile built-in PTX to
    /// machine code
    #[arg(long)]
    pub no_jit: bool,
    /// How the weights are loaded.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Rules for dividing the work.
    #[command(flatten)]
    pub rules: RulesArgs,
}

/// Parses a number of bytes, with an optional K, M or G (powers of 1024).
pub fn bytes(text: &str) -> Result<u64, String> {
    let upper = text.to_uppercase();
    let shift = match upper.chars().last() {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        _ => 0,
    };
    let digits = if shift == 0 { &upper[..] } else { &upper[..upper.len() - 1] };
    let number: u64 = digits.parse().map_err(|_| "a number of bytes is needed, as in 20G".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too many bytes".to_owned())
}

impl DecodeArgs {
    /// Positions that `--ctx` asks for, if it was given.
    pub fn context(&self, model: &Model) -> Option<u32> {
        match self.ctx {
            Some(0) => Some(model.shape.dimensions.context),
            given => given,
        }
    }

    /// Options of an engine that decodes one sequence of `model` greedily, with `context` positions in the KV cache.
    pub fn options(&self, model: &Model, context: u32) -> miette::Result<EngineOptions> {
        Ok(EngineOptions {
            context: Some(context),
            kv: self.kv,
            eager: self.eager,
            no_jit: self.no_jit,
            multiprocessors: self.rules.multiprocessors,
            tuning: self.rules.read()?,
            path: model.path.clone(),
            ..EngineOptions::default()
        })
    }
}

/// Opens the device and loads the model for greedy decoding of one sequence, token by token.
pub fn load(model: &Model, args: &DecodeArgs, context: u32) -> miette::Result<Engine> {
    let options = EngineOptions { prefill: false, ..args.options(model, context)? };
    load_on(args.device.open_when_needed(), model, args, &options)
}

/// Arguments of the commands that decode several sequences at the same time.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct SlotsArgs {
    /// Memory for the KV cache, as a number of bytes or with K, M or G: 20G [default: the context of every sequence that runs
    /// at the same time, or as much as is free]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    kv_memory: Option<u64>,
    /// Operands of matrix products.
    #[command(flatten)]
    pub arithmetic: ArithmeticArgs,
}

impl SlotsArgs {
    /// The options of an engine for `parallel` sequences.
    pub fn options(self, parallel: u32, options: EngineOptions) -> EngineOptions {
        let SlotsArgs { kv_memory, arithmetic: ArithmeticArgs { arithmetic } } = self;
        EngineOptions { parallel, kv_memory, arithmetic, ..options }
    }
}

/// Operands of matrix products.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct ArithmeticArgs {
    /// Arithmetic of matrix multiplications in decode steps of several sequences: integers (activations are quantised to 14 or 16
    /// bits, sums are exact); or f16, faster from 8 sequences on [default: integers]
    #[arg(long, value_name = "TYPE", default_value_t, hide_default_value = true)]
    pub arithmetic: Arithmetic,
}

/// Speculation.
#[derive(clap::Args, Clone, Debug)]
#[command(group(ArgGroup::new("drafts").args(["speculate", "draft"]).multiple(true)))]
pub struct SpeculationArgs {
    /// Draft up to N tokens from repeated text, and check them in one step, where that is faster; answers do not change
    /// [default: off; without N: 7]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "7", require_equals = true, value_parser = clap::value_parser!(u32).range(1..=63))]
    speculate: Option<u32>,
    /// A small model with the same vocabulary that drafts tokens: up to 7, or the N of --speculate, where that is faster; answers
    /// do not change
    #[arg(long, value_name = "FILE")]
    draft: Option<PathBuf>,
    /// Draft as many tokens as allowed, also where that is slower: to measure how many are accepted
    #[arg(long, requires = "drafts")]
    draft_always: bool,
}

/// Default number of drafted tokens: with the last token, the rows of a step of eight.
const DRAFTS: u32 = 7;

/// The draft model's KV cache takes at most the free memory divided by this.
const DRAFT_SHARE: u32 = 8;

impl SpeculationArgs {
    /// Whether and how tokens are drafted.
    pub fn speculation(&self) -> Speculation {
        let most = self.speculate.unwrap_or(if self.draft.is_some() { DRAFTS } else { 0 });
        Speculation { most, always: self.draft_always, lookup: self.speculate.is_some() }
    }

    /// Loads the model onto a device, and before it the draft model, if there is one.
    pub fn load(
        &self,
        device: OpeningDevice,
        model: &Model,
        args: &DecodeArgs,
        options: EngineOptions,
    ) -> miette::Result<Engines> {
        let draft = self.draft.as_ref().map(|path| load_draft(path, model, args, &options)).transpose()?;
        let options = EngineOptions { drafts: self.speculation().most, ..options };
        Ok(Engines { engine: load_on(device, model, args, &options)?, draft })
    }

    /// What the summary of a command says; nothing without speculation.
    pub fn summary(&self, counts: &SourceCounts) -> String {
        let asked = [(Source::Lookup, self.speculate.is_some()), (Source::Model, self.draft.is_some())];
        let of = asked.into_iter().filter(|(_, asked)| *asked).map(|(source, _)| {
            let DraftCounts { drafted, accepted } = counts[source];
            let by = match source {
                Source::Lookup => "by look-up",
                Source::Model => "by the draft model",
            };
            format!("; {} drafted {by}, {accepted} accepted", counted(drafted as usize, "token"))
        });
        of.collect()
    }
}

/// A model's engine, and that of its draft model.
pub struct Engines {
    /// The model.
    pub engine: Engine,
    /// The draft model, if there is one.
    pub draft: Option<Engine>,
}

/// Opens and loads a draft model for `model`, which is loaded with `options` afterwards.
pub fn load_draft(
    path: &Path,
    model: &Model,
    args: &DecodeArgs,
    options: &EngineOptions,
) -> miette::Result<Engine> {
    let draft = model::open_model_with(path, args.load)?;
    let sizes = (draft.shape.dimensions.vocab, model.shape.dimensions.vocab);
    let checked = match sizes.0 == sizes.1 {
        true => check_vocabularies(&draft.gguf, &model.gguf),
        false => Err(VocabularyError::Size(sizes.0 as usize, sizes.1 as usize)),
    };
    checked.map_err(|error| {
        let help = "a draft model has the same tokens under the same ids, as models of one family do";
        miette!(help = help, "{} cannot draft for {}: {error}", path.display(), model.path.display())
    })?;
    tracing::info!("draft model: {}", path.display());
    let most = draft.shape.dimensions.context;
    let context = options.context.map_or(most, |context| context.min(most));
    let options = EngineOptions {
        parallel: options.parallel,
        // Verify steps of two rows, for a sequence whose draft model is one token behind.
        drafts: 1,
        // The context's pages leave room for those of the model.
        kv_share: DRAFT_SHARE,
        ..args.options(&draft, context)?
    };
    load_on(args.device.open_when_needed(), &draft, args, &options)
        .wrap_err_with(|| format!("the draft model {}", path.display()))
}

/// Loads the model onto a device, with a progress bar; logs the device.
pub fn load_on(
    device: OpeningDevice,
    model: &Model,
    args: &DecodeArgs,
    options: &EngineOptions,
) -> miette::Result<Engine> {
    let start = Instant::now();
    let (opened, opening) = device.finish()?;
    tracing::info!("device: {}: {}", opened.device.info().name, opened.reason);
    // Kernels may have to be generated and assembled before the weights are loaded.
    let (kernels, bar) = (Progress::spinner("kernels"), Progress::bytes("loading", 0));
    let engine = Engine::load(opened.device, &model.gguf, &model.shape, options, &|done, total| {
        kernels.finish();
        bar.update(done, total)
    });
    kernels.finish();
    bar.finish();
    let engine = engine.map_err(|error| load_error(error, model))?;
    let context = engine.plan().params.context;
    if context > model.shape.dimensions.context {
        tracing::warn!(
            "the context has {context} positions; the model was trained for {}, and its output degrades beyond that",
            model.shape.dimensions.context
        );
    }
    args.rules.warn_if_unused(&options.tuning, &engine.plan().gpu);
    tracing::info!(
        "loaded in {:.2} s, as a graph of {} nodes",
        start.elapsed().as_secs_f64(),
        engine.graph().map_or(0, |graph| graph.nodes)
    );
    report_times(&engine, opening);
    Ok(engine)
}

/// Report of an error while a model is loaded. An error of the model's file names the file, which its message does not.
pub fn load_error(error: EngineError, model: &Model) -> miette::Report {
    match error {
        EngineError::Gguf(_) => engine_error(error).wrap_err(format!("cannot load {}", model.path.display())),
        _ => engine_error(error),
    }
}

/// Logs how long each part of loading took, at debug level.
fn report_times(engine: &Engine, opening: Duration) {
    let times = engine.load_times();
    let kernels = engine.kernels();
    let made = format!("planning, {} kernels built in, {} generated", kernels.built_in, kernels.specialised);
    let loaded = match engine.device().info().kind {
        Kind::Emulator => "parsing them".to_owned(),
        Kind::Cuda { .. } => format!("loading their machine code: {}", engine.origins()),
    };
    let weights = format!(
        "weights: repacking {:.3} s, waiting for copies {:.3} s",
        times.repack.as_secs_f64(),
        times.upload.as_secs_f64()
    );
    for (what, time) in [
        ("opening the device", opening),
        (made.as_str(), times.specialise),
        (loaded.as_str(), times.assemble),
        ("allocating", times.allocate),
        (weights.as_str(), times.weights),
        ("binding launches and capturing the graph", times.capture),
    ] {
        tracing::debug!("{:8.3} s  {what}", time.as_secs_f64());
    }
}
