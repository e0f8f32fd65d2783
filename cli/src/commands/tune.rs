//! `bespoke tune`: measures on this GPU how a model's work is best divided.

use std::fmt;
use std::path::PathBuf;

use bespoke::device::{self, Device, Kind, Selector};
use bespoke::engine::{self, Engine, EngineOptions, StepRows, Variants};
use bespoke_kernels::kernels::attention::KvType;
use bespoke_kernels::kernels::gemv::Arithmetic;
use bespoke_kernels::plan::{Plan, PlanParams, StepKind, Tuning};
use bespoke_logits::nmse;
use bespoke_tune::text::{candidates, changes, verdict};
use bespoke_tune::{Confirmation, DeviceMeter, Effort, Found, Search};
use miette::{IntoDiagnostic, miette};

use crate::advice::{device_error, engine_error};
use crate::console::{counted, note, outln};
use crate::model::{self, LoadArgs};
use crate::output::{self, Force, check_distinct};
use crate::progress::Progress;
use crate::rules::RulesArgs;
use crate::session::{self, ArithmeticArgs, DecodeArgs, DeviceArgs};

/// Measure how a model's work is best divided on this GPU, and write rules for --tune
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke tune model.gguf
  bespoke tune model.gguf -o rules.toml --quick
  bespoke tune model.gguf --rows 1,8,64
  bespoke run model.gguf --tune rules.toml --prompt Hello
  bespoke tune llama-3.1-8b --dry-run --device emulator

Starts from the cost model's choices and tries values of each parameter of each kind of launch in turn. It measures a \
whole step, a replay of the captured graph by the device's clock, alternating with the present choice; a value wins \
if it is faster, in the mean over the depths, by more than the noise. At the end it measures the result against the \
cost model once more and compares the logits. Takes minutes; nothing else should use the GPU meanwhile.")]
pub struct TuneArgs {
    /// The model: a GGUF file, a Hugging Face folder, or `demo`; with --dry-run also a built-in shape
    #[arg(value_name = "MODEL")]
    model: String,
    /// How the weights are loaded.
    #[command(flatten)]
    load: LoadArgs,
    /// The file to write [default: the model's name with .tune.toml, in the current folder]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where to measure: auto, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Selector,
    #[command(flatten)]
    force: Force,
    /// Positions in the cache, one or more numbers; larger numbers give attention more weight [default: 512,2048, or the model's
    /// context if it is shorter]
    #[arg(short, long, value_name = "N", value_delimiter = ',')]
    depth: Vec<u32>,
    /// Batch sizes to tune: numbers of sequences that a decode step has; each gets rules of its own
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = rows)]
    rows: Vec<u32>,
    /// Operands of matrix products.
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// Try fewer values, in one pass
    #[arg(long)]
    quick: bool,
    /// Only list the values that would be tried
    #[arg(long)]
    dry_run: bool,
}

/// Turns of the final comparison; each turn times both plans once.
const CONFIRMING_TURNS: u32 = 21;

/// Duration of a measurement in milliseconds, at all depths together: long compared with the clock's resolution and the start of
/// a graph.
const MEASUREMENT: f64 = 40.0;
/// Smallest and largest number of graph replays per measurement.
const REPLAYS: [u32; 2] = [8, 128];

/// Largest NMSE between the logits of the tuned plan and of the cost model's plan, which add in different orders.
const MAX_ERROR: f64 = 1e-4;

/// Depths at which steps are measured, unless the user asks for others.
const DEPTHS: [u32; 2] = [512, 2048];

/// Depths at which steps of a model with `context` positions are measured.
struct Depths(Vec<u32>);

impl Depths {
    fn new(args: &TuneArgs, context: u32) -> Depths {
        if !args.depth.is_empty() {
            return Depths(args.depth.clone());
        }
        let mut depths = DEPTHS.map(|depth| depth.min(context.saturating_sub(REPLAYS[1]))).to_vec();
        depths.dedup();
        Depths(depths)
    }

    fn deepest(&self) -> u32 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Positions that a sequence needs.
    fn context(&self) -> u32 {
        self.deepest().saturating_add(REPLAYS[1])
    }
}

impl fmt::Display for Depths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depths: Vec<String> = self.0.iter().map(u32::to_string).collect();
        match &depths[..] {
            [first @ .., last] if !first.is_empty() => {
                write!(f, "depths of {} and {last} positions", first.join(", "))
            }
            depths => write!(f, "a depth of {} positions", depths.concat()),
        }
    }
}

/// Searches for faster rules and writes them, or lists what would be tried.
pub fn execute(args: &TuneArgs) -> miette::Result<()> {
    if args.arithmetic.arithmetic == Arithmetic::F16 && args.rows.contains(&1) {
        return Err(miette!(
            help = "name numbers of rows, as in --rows 16,64",
            "--arithmetic f16 has no step of one row"
        ));
    }
    let opened = device::open(args.device).map_err(device_error)?;
    if args.dry_run {
        return dry_run(args, &*opened.device);
    }
    if opened.device.info().kind == Kind::Emulator {
        return Err(miette!(
            help = "use a machine with a GPU; --dry-run lists what would be measured",
            "nothing to measure on the emulator: its time says nothing about a GPU's"
        ));
    }
    drop(opened);
    tune(args)
}

/// Parses the number of rows of a decode step.
fn rows(text: &str) -> Result<u32, String> {
    let sizes = StepKind::Decode.sizes();
    let given = text.parse().ok().filter(|rows| sizes.contains(rows));
    given.ok_or_else(|| {
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        format!("decode steps have {} rows", sizes.join(", "))
    })
}

/// Searches for faster rules for each number of rows, compares the result with the cost model's plan, and writes the rules.
fn tune(args: &TuneArgs) -> miette::Result<()> {
    let model = model::open_model_with(args.model.as_ref(), args.load)?;
    let name = model::model_name(args.model.as_ref());
    let depths = Depths::new(args, model.shape.dimensions.context);
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.tune.toml")));
    check_distinct(&out, &model::files(args.model.as_ref(), &model.gguf))?;
    // Created first, so that an unwritable path fails before minutes of measuring.
    let file = output::create(&out, args.force)?;
    let decode = DecodeArgs {
        device: DeviceArgs::on(args.device),
        ctx: None,
        kv: KvType::F16,
        eager: false,
        no_jit: false,
        load: args.load,
        rules: RulesArgs::default(),
    };
    let parallel = args.rows.iter().copied().max().unwrap_or(1);
    let options = EngineOptions {
        parallel,
        prefill: false,
        arithmetic: args.arithmetic.arithmetic,
        ..decode.options(&model, depths.context())?
    };
    let mut engine = session::load_on(decode.device.open_when_needed(), &model, &decode, &options)?;
    let info = engine.device().info().clone();
    let mut tuning = Tuning::default();
    let mut verdicts = Vec::new();
    for &rows in &args.rows {
        if let Some(found) = tune_rows(args, &depths, &mut engine, rows, &tuning)? {
            tuning = found.tuning;
            verdicts.push(format!("{}: {}", counted(rows as usize, "row"), found.verdict));
        }
    }
    if verdicts.is_empty() {
        return Ok(());
    }
    let comment = format!(
        "Rules for {name}, for `--tune`; by bespoke {} tune.\nMeasured on {}{}, for {}, at {}{}:\n{}",
        env!("CARGO_PKG_VERSION"),
        info.name,
        info.driver.map_or(String::new(), |driver| format!(" ({driver})")),
        engine.plan().target(),
        depths,
        match args.arithmetic.arithmetic {
            Arithmetic::Integers => "",
            Arithmetic::F16 => ", with `--arithmetic f16`",
        },
        verdicts.join("\n")
    );
    output::write(file, tuning.to_toml(&comment).as_bytes())?;
    note!("{} in {}", counted(tuning.rules.len(), "rule"), out.display());
    Ok(())
}

/// Rules that were confirmed to be faster, and how much.
struct Confirmed {
    tuning: Tuning,
    verdict: String,
}

/// Searches for faster rules for steps of `rows` rows, beside the rules in `tuning`. None if no rule is faster.
fn tune_rows(
    args: &TuneArgs,
    depths: &Depths,
    engine: &mut Engine,
    rows: u32,
    tuning: &Tuning,
) -> miette::Result<Option<Confirmed>> {
    let step = StepRows::Decode { sequences: rows, depth: depths.deepest() };
    let milliseconds = engine
        .time_step(step, REPLAYS[0])
        .map_err(engine_error)?
        .ok_or_else(|| miette!("the step could not be captured as a graph: there is nothing to tune"))?;
    let duration = MEASUREMENT / depths.0.len() as f64;
    let replays = ((duration / milliseconds).ceil() as u32).clamp(REPLAYS[0], REPLAYS[1]);
    let effort = Effort { depths: depths.0.clone(), replays, turns: if args.quick { 5 } else { 9 } };
    let variants = Variants::new(engine, rows).map_err(engine_error)?;
    // Of rules for one row, triggers and those of attention apply to these steps, too.
    let start = variants.plan(tuning).map_err(engine_error)?;
    let search = Search { start: &start, tuning, quick: args.quick, passes: if args.quick { 1 } else { 2 } };

    let mut meter = DeviceMeter::new(variants, effort);
    let what = if rows == 1 { "tuning".to_owned() } else { format!("tuning {rows} rows") };
    let bar = Progress::count(&what, search.trials() as u64);
    let found = search.run(&mut meter, &|done| bar.set(done as u64)).map_err(engine_error)?;
    bar.finish();
    if args.rows.len() > 1 {
        outln!("{}:\n", counted(rows as usize, "row"))?;
    }
    if found.changes.is_empty() {
        outln!("none of {} other choices is faster than the cost model's", found.measured)?;
        return Ok(None);
    }
    outln!("{}\n", changes(&found))?;
    let confirmed = confirm(&mut meter, &start, &found)?;
    let verdict = verdict(&confirmed);
    outln!("{verdict}")?;
    if !confirmed.total.is_better() {
        outln!("no rules written: together they gain no more than the noise")?;
        return Ok(None);
    }
    note!("{} of {} measured choices are faster", found.changes.len(), found.measured);
    Ok(Some(Confirmed { tuning: found.tuning, verdict }))
}

/// Compares the tuned plan with the cost model's plan: times and logits.
fn confirm(meter: &mut DeviceMeter<'_>, start: &Plan, found: &Found) -> miette::Result<Confirmation> {
    let confirmed = meter.confirm(start, &found.plan, CONFIRMING_TURNS).map_err(engine_error)?;
    let prompt: Vec<u32> = (1..=8).map(|token| token % start.shape.dimensions.vocab).collect();
    let [before, after] = meter.logits(start, &found.plan, &prompt).map_err(engine_error)?;
    // Rules for several rows change no sum.
    if start.params.rows > 1 && before != after {
        return Err(miette!(
            "no rules written: with them the logits of {} rows differ from the cost model's, which is a bug",
            start.params.rows
        ));
    }
    match nmse(&after, &before) {
        Some(error) if error <= MAX_ERROR => Ok(confirmed),
        error => Err(miette!(
            "no rules written: with them the logits differ from the cost model's by an NMSE of {:.3e}, which is a bug",
            error.unwrap_or(f64::NAN)
        )),
    }
}

/// Lists the values that would be tried.
fn dry_run(args: &TuneArgs, device: &dyn Device) -> miette::Result<()> {
    let shape = model::resolve(&args.model, args.load)?;
    let gpu = engine::gpu_for(device).map_err(engine_error)?;
    let context = Depths::new(args, shape.dimensions.context).context();
    let (tuning, passes) = (Tuning::default(), if args.quick { 1 } else { 2 });
    let mut trials = 0;
    for &rows in &args.rows {
        let params = PlanParams::single(context).with_arithmetic(args.arithmetic.arithmetic);
        let pages = rows * params.slot_pages();
        let plan = Plan::new(&shape, gpu, params.with_slots(rows, pages).decode(rows)).into_diagnostic()?;
        if args.rows.len() > 1 {
            outln!("{}:\n", counted(rows as usize, "row"))?;
        }
        outln!("{}\n", candidates(&plan, args.quick))?;
        trials += Search { start: &plan, tuning: &tuning, quick: args.quick, passes }.trials();
    }
    outln!("at most {trials} comparisons")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: TuneArgs,
    }

    fn depths(args: &[&str], context: u32) -> String {
        let command = [&["tune", "model.gguf"], args].concat();
        Depths::new(&Command::try_parse_from(command).unwrap().args, context).to_string()
    }

    #[test]
    fn a_short_context_limits_the_depths() {
        assert_eq!(depths(&[], 4096), "depths of 512 and 2048 positions");
        assert_eq!(depths(&[], 2048), "depths of 512 and 1920 positions");
        assert_eq!(depths(&[], 256), "a depth of 128 positions");
        assert_eq!(depths(&["--depth", "0,7,9"], 256), "depths of 0, 7 and 9 positions");
    }
}
