//! The `bespoke` binary. `commands` has a file for each subcommand, with its arguments and its `execute`.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 1 after an error, with one message; 2
//! for a wrong command line; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP; 141 if the reader of standard output has
//! gone. `check` has its own exit codes.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod advice;
mod chat_template;
mod commands;
mod console;
mod decoder;
mod foreign_options;
mod input;
mod interrupt;
mod model;
mod output;
mod progress;
mod report;
mod rules;
mod sampling;
mod scored_text;
mod session;
mod threads;

use std::io::{IsTerminal, stderr, stdout};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use commands::{
    batch, bench, bench_server, chat, check, compare, devices, inspect, logits, opt, perplexity, quantize,
    reduce, run, selftest, serve, specialize, synth, tokenize, tune,
};
use console::{Unwritable, note, out};

/// Display order of the options that every command has: at the end of the help.
const LAST: usize = 1000;

/// Decodes GGUF language models with kernels compiled for one model's shape.
#[derive(Parser, Debug)]
#[command(
    name = "bespoke",
    version,
    arg_required_else_help = false,
    after_help = "Examples:
  bespoke run
  bespoke run model.gguf --prompt \"The quick brown fox\" -n 64
  bespoke inspect llama-3.1-8b
  bespoke synth tiny.gguf && bespoke run tiny.gguf --tokens 1,2,3 -n 8

`bespoke COMMAND --help` has examples of each command."
)]
struct Cli {
    /// More messages on standard error: -v for debugging, -vv for everything.
    ///
    /// BESPOKE_LOG takes precedence: a level, or directives such as `bespoke::engine=trace`.
    #[arg(short, long, global = true, action = clap::ArgAction::Count, display_order = LAST)]
    verbose: u8,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Output of `bespoke` without arguments.
const WELCOME: &str = "\
bespoke decodes GGUF language models with GPU kernels compiled for one model's shape. Without a GPU
it runs the same kernels on its PTX emulator and checks every memory access.

  bespoke run                           the demo model inside this binary: sums, and short stories
  bespoke run -p \"17 + 25 =\"            ask your own question
  bespoke run MODEL.gguf -p \"Hello\"     your own model
  bespoke chat MODEL.gguf               a conversation with a chat model
  bespoke serve MODEL.gguf              an OpenAI-compatible server
  bespoke devices                       the devices of this machine
  bespoke inspect llama-3.1-8b          the kernels of a model's shape

`bespoke --help` lists all commands, `bespoke COMMAND --help` has examples of each. With cargo,
`bespoke run` is `cargo run --release -- run`.
";

#[derive(Subcommand, Debug)]
enum Command {
    Run(run::RunArgs),
    Chat(chat::ChatArgs),
    Batch(batch::BatchArgs),
    Serve(serve::ServeArgs),
    Tokenize(tokenize::TokenizeArgs),
    Logits(logits::LogitsArgs),
    Perplexity(perplexity::PerplexityArgs),
    Compare(compare::CompareArgs),
    Inspect(inspect::InspectArgs),
    Specialize(specialize::SpecializeArgs),
    Synth(synth::SynthArgs),
    Quantize(quantize::QuantizeArgs),
    Selftest(selftest::SelftestArgs),
    Check(check::CheckArgs),
    Bench(bench::BenchArgs),
    BenchServer(bench_server::BenchServerArgs),
    Tune(tune::TuneArgs),
    Opt(opt::OptArgs),
    Reduce(reduce::ReduceArgs),
    Devices(devices::DevicesArgs),
}

/// Parses the command line and runs it.
fn main() -> ExitCode {
    interrupt::ignore_file_size_signal();
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let outcome = match parse(&arguments) {
        Ok(cli) => init_output(&cli).and_then(|()| execute(&cli)),
        Err(error) => print_usage(&foreign_options::explained(with_suggestion(error), &arguments)),
    };
    let code = outcome.unwrap_or_else(|report| exit_code_of(&report, ExitCode::FAILURE));
    if interrupt::requested() {
        ExitCode::from(interrupt::EXIT_CODE)
    } else if code == ExitCode::SUCCESS && console::notes_lost() {
        ExitCode::FAILURE
    } else {
        code
    }
}

/// Commands and options. Every option takes negative numbers as values, so that the option's own check refuses them and
/// says what it expects.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| {
        command.mut_args(|arg| {
            let has_value = arg.get_action().takes_values() && !arg.is_positional();
            if has_value { arg.allow_negative_numbers(true) } else { arg }
        })
    })
}

/// Parses the command line. Checks that read several options do not know the command that they belong to; their errors
/// get its usage here.
fn parse(arguments: &[String]) -> Result<Cli, clap::Error> {
    let mut all = command();
    all.build();
    if let Some(error) = foreign_options::missing_value(&all, arguments) {
        return Err(error);
    }
    let mut matches = command().try_get_matches()?;
    let name = matches.subcommand_name().map(str::to_owned);
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| {
        match name.and_then(|name| all.find_subcommand_mut(name)) {
            Some(command) => error.format(command),
            None => error,
        }
    })
}

/// Prints an error, unless the reader of standard output has gone; returns the exit code, which is `code` otherwise.
fn exit_code_of(report: &miette::Report, code: ExitCode) -> ExitCode {
    if let Some(Unwritable::Closed) = report.downcast_ref() {
        return ExitCode::from(console::CLOSED_PIPE);
    }
    note!("{report:?}");
    code
}

/// Prints the help, the version, or what is wrong with the command line.
fn print_usage(error: &clap::Error) -> miette::Result<ExitCode> {
    let text = error.render();
    let shown = |terminal: bool| if color(terminal) { text.ansi().to_string() } else { text.to_string() };
    if error.use_stderr() {
        note!("{}", shown(stderr().is_terminal()).trim_end());
    } else {
        out!("{}", shown(stdout().is_terminal()))?;
    }
    Ok(ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)))
}

/// Whether to colour text for a stream.
fn color(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Adds the most similar command to the error for an unknown command. Unlike clap's suggestion, recognises transposed
/// letters.
fn with_suggestion(mut error: clap::Error) -> clap::Error {
    let known = error.get(ContextKind::SuggestedSubcommand).is_some();
    if let (false, Some(ContextValue::String(name))) = (known, error.get(ContextKind::InvalidSubcommand)) {
        let command = Cli::command();
        let names = command.get_subcommands().map(|command| command.get_name());
        let nearest = names.map(|other| (model::edit_distance(name, other), other)).min();
        if let Some((_, other)) = nearest.filter(|(distance, _)| *distance <= 2) {
            let other = ContextValue::Strings(vec![other.to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, other);
        }
    }
    error
}

fn execute(cli: &Cli) -> miette::Result<ExitCode> {
    interrupt::install_handlers();
    threads::start();
    match &cli.command {
        Some(Command::Check(args)) => return check::execute(args),
        Some(Command::Run(args)) => run::execute(args),
        Some(Command::Chat(args)) => chat::execute(args),
        Some(Command::Batch(args)) => batch::execute(args),
        Some(Command::Serve(args)) => serve::execute(args),
        Some(Command::Tokenize(args)) => tokenize::execute(args),
        Some(Command::Logits(args)) => logits::execute(args),
        Some(Command::Perplexity(args)) => perplexity::execute(args),
        Some(Command::Compare(args)) => compare::execute(args),
        Some(Command::Inspect(args)) => inspect::execute(args),
        Some(Command::Specialize(args)) => specialize::execute(args),
        Some(Command::Synth(args)) => synth::execute(args),
        Some(Command::Quantize(args)) => quantize::execute(args),
        Some(Command::Selftest(args)) => selftest::execute(args),
        Some(Command::Bench(args)) => bench::execute(args),
        Some(Command::BenchServer(args)) => bench_server::execute(args),
        Some(Command::Tune(args)) => tune::execute(args),
        Some(Command::Opt(args)) => opt::execute(args),
        Some(Command::Reduce(args)) => reduce::execute(args),
        Some(Command::Devices(args)) => devices::execute(args),
        None => out!("{WELCOME}").map_err(Into::into),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Initialises error reports (miette) and the log, both on standard error.
fn init_output(cli: &Cli) -> miette::Result<()> {
    let color = color(stderr().is_terminal());
    miette::set_hook(Box::new(move |_| Box::new(report::Plain { color })))?;
    let filter = match std::env::var("BESPOKE_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .map_err(|error| miette::miette!("BESPOKE_LOG: `{text}` is not a valid filter: {error}"))?,
        _ => EnvFilter::new(match cli.verbose {
            0 => "warn,bespoke=info",
            1 => "info,bespoke=debug",
            _ => "trace",
        }),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| console::Stderr)
        .with_ansi(color)
        .with_target(cli.verbose > 0)
        .without_time()
        .init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_misspelt_command_suggests_the_nearest_one() {
        for (typed, meant) in [("rnu", Some("run")), ("inspct", Some("inspect")), ("xyzzy", None)] {
            let error = with_suggestion(Cli::try_parse_from(["bespoke", typed]).unwrap_err()).to_string();
            assert_eq!(error.contains("a similar subcommand exists"), meant.is_some(), "{error}");
            assert!(meant.is_none_or(|meant| error.contains(&format!("'{meant}'"))), "{error}");
        }
    }

    #[test]
    fn every_command_has_a_sentence_and_examples() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(
                examples.contains(&format!("bespoke {name} "))
                    || examples.contains(&format!("bespoke {name}\n")),
                "{name}: {examples}"
            );
        }
    }

    /// A short option should mean the same everywhere. `bench` has those of llama-bench: `-o` is a format, `-r` repetitions. `-r` of `tune`
    /// and `bench-server`, and `-c` of the latter, have other meanings, too.
    #[test]
    fn short_options_have_few_meanings() {
        let command = Cli::command();
        let mut meanings: BTreeMap<char, BTreeSet<String>> = BTreeMap::new();
        let of_commands = command.get_subcommands().flat_map(clap::Command::get_arguments);
        for option in of_commands.filter(|option| option.get_short().is_some()) {
            let long = option.get_long().unwrap_or("none").to_owned();
            meanings.entry(option.get_short().unwrap_or_default()).or_default().insert(long);
        }
        let several = meanings.into_iter().filter(|(_, longs)| longs.len() > 1);
        let list: String = several.map(|(short, longs)| format!("-{short}: {longs:?}\n")).collect();
        expect_test::expect![[r#"
            -c: {"clients", "ctx"}
            -n: {"n", "none"}
            -o: {"out", "output"}
            -r: {"repetitions", "requests", "rows"}
        "#]]
        .assert_eq(&list);
    }
}
