//! `bespoke batch`: many prompts at once.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bespoke::engine::{self, EngineOptions, Slots};
use bespoke::scheduler::Scheduler;
use bespoke::tokenizer::Tokenizer;
use bespoke_batch::{Defaults, Failure, Job, Kept, Prompt, parse, run};
use bespoke_chat::Message;
use bespoke_files::{FileError, LineFile, Replace};
use bespoke_kernels::plan::{PlanParams, Sampling};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::run::token_limit;
use crate::advice::engine_error;
use crate::chat_template::{ChatFormat, TemplateArgs};
use crate::console::{counted, note};
use crate::input;
use crate::interrupt;
use crate::model::{self, Model};
use crate::output::{self, Force, check_distinct, file_error};
use crate::progress::Progress;
use crate::sampling::SamplingArgs;
use crate::session::{DecodeArgs, Engines, SlotsArgs, SpeculationArgs};

/// Decode many prompts, from lines of JSON to lines of JSON
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A line of the input has a `prompt` (text), `messages` (a conversation) or `tokens` (ids), and may \
have `id` (repeated in the output), `n`, `ignore_eos`, `stop` (a text or a list) and sampling parameters: temperature, \
top_k, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty, repeat_last_n, seed. What a line does not have \
is as the options say.

A line of the output has `index`, `id`, `tokens`, `text`, `finish_reason` (stop_token, stop_string, max_tokens, \
context_full, out_of_pages, or error with `error`), `prompt_tokens`, and `timings` in seconds. Lines are in the order of \
the input. Until all are there, they are in OUT.partial; the same command continues an interrupted one.

Examples:
  bespoke batch model.gguf prompts.jsonl -o answers.jsonl
  bespoke batch model.gguf chats.jsonl -o answers.jsonl --parallel 32 -n 256 --temp 0.8 --seed 1
  bespoke batch demo sums.jsonl -o answers.jsonl --device emulator"
)]
pub struct BatchArgs {
    #[arg(help = model::MODEL)]
    model: PathBuf,
    /// The prompts: a file with a JSON object in each line, or - for standard input
    input: PathBuf,
    /// The file to write
    #[arg(long, short, value_name = "OUT")]
    out: PathBuf,
    #[command(flatten)]
    force: Force,
    /// Maximum number of prompts decoded at the same time, at most 64
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=i64::from(PlanParams::MAX_ROWS)))]
    parallel: u32,
    /// KV cache and arithmetic.
    #[command(flatten)]
    slots: SlotsArgs,
    /// Tokens to generate for each prompt, or -1 for all until the text ends or the context is full [default: 128; for
    /// messages, -1]
    #[arg(short, long, aliases = ["predict", "n-predict"], value_name = "N", value_parser = token_limit)]
    n: Option<u32>,
    /// Continue after an end-of-text token
    #[arg(long)]
    ignore_eos: bool,
    /// End before this text, also if it spans several tokens; it is not part of the answer. May be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = input::stop_text)]
    stop: Vec<String>,
    /// Speculation.
    #[command(flatten)]
    speculation: SpeculationArgs,
    /// Template and system prompt, for messages.
    #[command(flatten)]
    template: TemplateArgs,
    /// Sampling.
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Device, context and mode.
    #[command(flatten)]
    decode: DecodeArgs,
}

/// Decodes the prompts and writes the answers.
pub fn execute(args: &BatchArgs) -> miette::Result<()> {
    // Created first, so that an unwritable path fails before the model is read.
    let file = output::create(&args.out, args.force)?;
    let model = model::open_model_with(&args.model, args.decode.load)?;
    let mut inputs = model::files(&args.model, &model.gguf);
    inputs.push(args.input.clone());
    check_distinct(&args.out, &inputs)?;
    let input = input::read(&args.input)?;
    let (tokenizer, ends) = model.tokenizer_for_ids();
    let jobs = Input { args, model: &model, tokenizer: tokenizer.as_ref(), ends: &ends }.jobs(&input)?;

    let partial = partial_path(&args.out);
    let (lines_file, lines) = LineFile::open(&partial).map_err(|error| match error {
        FileError::Locked(path) => miette!(
            help = "wait until it has ended, or give another file with -o OUT",
            "another `bespoke batch` is writing {}",
            path.display()
        ),
        error => file_error(error),
    })?;
    // Another process may have finished the same batch before this one got the lock.
    if args.force.replace() == Replace::Never && args.out.symlink_metadata().is_ok() {
        return Err(file_error(FileError::Exists(args.out.clone())));
    }
    let kept = Kept::read(&lines, &jobs).map_err(|error| {
        let help = "delete it, or use the same input, model and options as before";
        miette!(help = help, "cannot continue {}: {error}", partial.display())
    })?;
    if !kept.is_empty() {
        tracing::info!("{} of {} are done: {}", kept.len(), counted(jobs.len(), "prompt"), partial.display());
    }
    let mut answers = Answers { jobs: &jobs, kept, file: lines_file };
    if !answers.kept.missing().is_empty() {
        answers.generate(args, &model, tokenizer.as_ref())?;
    }
    if answers.kept.missing().is_empty() {
        output::write(file, answers.kept.lines().as_bytes())?;
        return answers.file.remove().map_err(file_error);
    }
    note!(
        "interrupted: {} of {} are done and in {}; the same command continues",
        answers.kept.len(),
        counted(jobs.len(), "prompt"),
        partial.display()
    );
    Ok(())
}

/// Path of the file that keeps answers until all are there.
fn partial_path(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// What turns lines into jobs.
struct Input<'a> {
    args: &'a BatchArgs,
    model: &'a Model,
    tokenizer: Option<&'a Tokenizer>,
    ends: &'a [u32],
}

impl Input<'_> {
    /// Parses and checks all lines. Empty lines are left out.
    fn jobs(&self, text: &str) -> miette::Result<Vec<Job>> {
        let args = self.args;
        let sampling = args.sampling.params(self.tokenizer)?;
        let defaults =
            Defaults { max_tokens: args.n, ignore_eos: args.ignore_eos, stop: args.stop.clone(), sampling };
        // A seed that was not given differs from run to run.
        let mut fixed = defaults.clone();
        fixed.sampling.seed = args.sampling.seed.unwrap_or(0);
        let (kv, ctx, arithmetic) =
            (args.decode.kv, args.decode.ctx.unwrap_or(0), args.slots.arithmetic.arithmetic);
        let mut setting = format!("{:?} {kv} {ctx} {arithmetic} {fixed:?}", self.model.shape);
        for rule in args.decode.rules.read()?.rules_of_bits() {
            setting += &format!(" {rule:?}");
        }
        let mut format = None;
        let mut jobs: Vec<Job> = Vec::new();
        // Numbers of lines by the JSON text of their ids.
        let mut ids: HashMap<String, usize> = HashMap::new();
        // Editors of some systems begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        for (number, line) in lines {
            let job = self.job(line, &defaults, &setting, &mut format).and_then(|job| {
                let id = job.id.as_ref().map(ToString::to_string);
                let first = id.as_ref().and_then(|id| ids.insert(id.clone(), number));
                match (id, first) {
                    (Some(id), Some(first)) => Err(miette!(
                        help = "give each line an id of its own, or none: answers also have an index",
                        "the id {id} is that of line {first}"
                    )),
                    _ => Ok(job),
                }
            });
            jobs.push(job.wrap_err_with(|| format!("{}, line {number}", args.input.display()))?);
        }
        if jobs.is_empty() {
            return Err(miette!("{} has no prompts", args.input.display()));
        }
        Ok(jobs)
    }

    fn job(
        &self,
        line: &str,
        defaults: &Defaults,
        setting: &str,
        format: &mut Option<ChatFormat>,
    ) -> miette::Result<Job> {
        let parsed = parse(line).into_diagnostic()?;
        let tokenizer =
            || self.tokenizer.ok_or_else(|| miette!("a text needs a model with a vocabulary; give `tokens`"));
        let prompt = match parsed.prompt() {
            Prompt::Tokens(tokens) => tokens.to_vec(),
            Prompt::Text(text) if self.model.is_demo => {
                tokenizer()?.encode(&bespoke_demo::normalised_prompt(text)).into_diagnostic()?
            }
            Prompt::Text(text) => tokenizer()?.encode(text).into_diagnostic()?,
            Prompt::Messages(messages) => {
                let tokenizer = tokenizer()?;
                let format = match format {
                    Some(format) => format,
                    None => format.insert(ChatFormat::new(&self.args.template, &self.model.gguf, tokenizer)?),
                };
                let messages = format.checked(messages.to_vec())?;
                let system = self.args.template.system.iter().map(|text| Message::new("system", text));
                let text = format.prompt(&system.chain(messages).collect::<Vec<_>>())?;
                tokenizer.encode(&text).into_diagnostic()?
            }
        };
        let job = parsed.job(prompt, self.ends, defaults).into_diagnostic()?;
        let context = self.args.decode.context(self.model).unwrap_or(self.model.shape.dimensions.context);
        let vocab = self.model.shape.dimensions.vocab;
        job.check(vocab, context, self.tokenizer.is_some()).into_diagnostic()?;
        Ok(job.with_fingerprint(setting, line))
    }
}

/// Answers so far.
struct Answers<'a> {
    jobs: &'a [Job],
    kept: Kept,
    file: LineFile,
}

impl Answers<'_> {
    /// Generates the missing answers, until all are there or Ctrl-C requests a stop.
    fn generate(
        &mut self,
        args: &BatchArgs,
        model: &Model,
        tokenizer: Option<&Tokenizer>,
    ) -> miette::Result<()> {
        let missing = self.kept.missing();
        // Of all jobs, so that a continued batch has the same context: LongRoPE's divisors depend on it.
        let positions = self.jobs.iter().map(Job::positions).max().unwrap_or(0);
        let most = u64::from(model.shape.dimensions.context);
        let default = most.min(positions.max(engine::DEFAULT_CONTEXT.into())) as u32;
        let context = args.decode.context(model).unwrap_or(default);
        let parallel = args.parallel.min(missing.len() as u32);
        // A plan that can sample also decodes greedily.
        let sampling = missing.iter().map(|&index| &self.jobs[index].sampling);
        let sampling = sampling.max_by_key(|sampling| sampling.launches() == Sampling::Sampled);
        let sampling = sampling.cloned().unwrap_or_default();
        let options = args.slots.options(parallel, args.decode.options(model, context)?);
        let options = EngineOptions { sampling, ..options };
        let device = args.decode.device.open_when_needed();
        let Engines { mut engine, mut draft } =
            args.speculation.load(device, model, &args.decode, options)?;
        let device = engine.device().info().name.clone();
        let steps = Slots::loaded(&mut engine).map_err(engine_error)?;
        let mut scheduler = Scheduler::new(steps, tokenizer).with_speculation(args.speculation.speculation());
        if let Some(draft) = &mut draft {
            let steps = Slots::loaded(draft).map_err(engine_error)?;
            scheduler = scheduler.with_draft_model(Box::new(steps));
        }

        let (jobs, all) = (self.jobs, self.jobs.len() as u64);
        let bar = Progress::count("prompts", all);
        bar.set(self.kept.len() as u64);
        interrupt::defer_first();
        let start = Instant::now();
        let tokens = Cell::new(0);
        let mut progress = |count| {
            tokens.set(count);
            if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let (kept, file) = (&mut self.kept, &mut self.file);
        let mut done = |record: bespoke_batch::Record| {
            let line = kept.add(&record, &jobs[record.index]).into_diagnostic()?;
            file.append(&line).map_err(file_error)?;
            bar.set(kept.len() as u64);
            Ok::<_, miette::Report>(())
        };
        let has_text = tokenizer.is_some();
        let parallel = args.parallel as usize;
        let outcome = run(&mut scheduler, jobs, &missing, parallel, has_text, &mut progress, &mut done);
        bar.finish();
        let counts = scheduler.step_counts();
        outcome.map_err(|failure| match failure {
            Failure::Record(report) => report,
            Failure::Engine(error) => engine_error(error),
            Failure::Refused { index, error } => {
                engine_error(error).wrap_err(format!("prompt {index} of {}", args.input.display()))
            }
        })?;
        let seconds = start.elapsed().as_secs_f64();
        note!(
            "{} in {seconds:.2} s, {:.2} tokens/s, on {device}{}",
            counted(tokens.get() as usize, "token"),
            tokens.get() as f64 / seconds.max(1e-9),
            args.speculation.summary(&counts.drafts)
        );
        Ok(())
    }
}
