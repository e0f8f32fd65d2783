//! `bespoke serve`: an OpenAI-compatible server.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bespoke::device::Bytes;
use bespoke::engine::{self, EngineOptions, SamplingParams, Slots};
use bespoke::scheduler::Steps;
use bespoke_chat::{Inputs, Template};
use bespoke_kernels::plan::PlanParams;
use bespoke_serve::{ChatTemplate, Keys, Listen, Options, RequestMemory, RunError, Server, StartError};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde_json::json;

use crate::advice::engine_error;
use crate::chat_template::{ChatFormat, TemplateArgs};
use crate::console::{note, outln};
use crate::input;
use crate::interrupt;
use crate::model::{self, Model};
use crate::sampling::SamplingArgs;
use crate::session::{self, DecodeArgs, Engines, SlotsArgs, SpeculationArgs};

/// Serve a model over HTTP, with OpenAI's API
#[derive(clap::Args, Debug)]
#[command(
    mut_arg("system", |it| it.hide(true)),
    mut_arg("tools", |it| it.hide(true)),
    after_help = "Paths: /v1/chat/completions, /v1/completions, /v1/responses, /v1/models, /tokenize, /detokenize, /health, /metrics, \
/props, and a page at /. What a request does not say, such as its temperature, is as the options say. The address is printed on standard \
output. SIGTERM finishes the requests that run; a second one ends at once.

Examples:
  bespoke serve
  bespoke serve model.gguf --parallel 32 --ctx 8192 --temp 0.7
  bespoke serve model.gguf --host 0.0.0.0 --api-key-file keys.txt
  bespoke serve model.gguf --unix /run/bespoke.sock"
)]
pub struct ServeArgs {
    /// The model: a GGUF file, a Hugging Face folder, or `demo` [default: demo, the demo model in this binary]
    model: Option<PathBuf>,
    /// Address to listen on; 0.0.0.0 for all of this machine, which other machines reach
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 for a free one
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Listen on a UNIX socket instead
    #[cfg(unix)]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    unix: Option<PathBuf>,
    /// File with API keys, one a line, of which a request must have one [default: requests need no key]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Origin whose web pages may use the server (CORS), such as https://chat.example, or * for all. May be repeated
    #[arg(long, value_name = "ORIGIN")]
    cors_origin: Vec<String>,
    /// Accept this name in the Host header. A server on a loopback address otherwise accepts only localhost and loopback
    /// addresses, against DNS rebinding. May be repeated [default with another --host: all names]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    allow_host: Vec<String>,
    /// Name of the model in the API. May be repeated [default: the file's name]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    alias: Vec<String>,
    /// Maximum number of sequences decoded at the same time, at most 64
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=i64::from(PlanParams::MAX_ROWS)))]
    parallel: u32,
    /// KV cache and arithmetic.
    #[command(flatten)]
    slots: SlotsArgs,
    /// Maximum number of queued sequences; further requests are refused (429)
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=65536))]
    queue: u32,
    /// Maximum number of tokens that a request may ask for, for each choice [default: what the context allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: Option<u32>,
    /// Maximum size of a request body, as a number of bytes or with K, M or G
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = body_size)]
    max_body: u64,
    /// Seconds in which the body of a request must arrive
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    body_timeout: u64,
    /// Seconds after which a request is ended, from the arrival of its body
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
    /// Seconds that requests have to end after the first SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    grace: u64,
    /// Write prompts and answers into the log
    #[arg(long)]
    log_text: bool,
    /// Speculation.
    #[command(flatten)]
    speculation: SpeculationArgs,
    /// Template and system prompt.
    #[command(flatten)]
    template: TemplateArgs,
    /// Sampling.
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Device, context and mode.
    #[command(flatten)]
    decode: DecodeArgs,
}

/// Parses the largest size of a body: a number of bytes above 0.
fn body_size(text: &str) -> Result<u64, String> {
    match session::bytes(text)? {
        0 => Err("a body has at least 1 byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Listens, loads the model, and answers requests until a signal.
pub fn execute(args: &ServeArgs) -> miette::Result<()> {
    for (option, given) in
        [("--system", args.template.system.is_some()), ("--tools", args.template.tools.is_some())]
    {
        if given {
            return Err(miette!("{option} has no effect on a server: requests have their own messages"));
        }
    }
    let model = match &args.model {
        Some(path) => model::open_model_with(path, args.decode.load)?,
        None => model::open_demo_with(args.decode.load)?,
    };
    let device = args.decode.device.start_opening();
    let served = facts(args, &model)?;
    // The socket comes first, so that a port in use is an error before the weights are loaded.
    let options = options(args)?;
    let needs_key = !options.keys.is_empty();
    let server = Server::start(options).map_err(|error| start_error(error, args))?;
    outln!("{}", server.address())?;
    if server.is_reachable() && !needs_key {
        tracing::warn!("other machines reach {} and need no key: --api-key-file FILE", server.address());
    }
    let context = model.shape.dimensions.context.min(engine::DEFAULT_CONTEXT);
    let context = args.decode.context(&model).unwrap_or(context);
    let RequestMemory { tokens, grammars } = server.request_memory(args.parallel, context);
    tracing::info!(
        "host memory for requests: at most {}, and about {} more if all use grammars; log-probabilities are not counted",
        Bytes(tokens),
        Bytes(grammars)
    );
    // A plan that can sample also decodes greedily.
    let sampling = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let options = args.slots.options(args.parallel, args.decode.options(&model, context)?);
    let options = EngineOptions { sampling, ..options };
    let Engines { mut engine, mut draft } = args.speculation.load(device, &model, &args.decode, options)?;
    let steps = Slots::loaded(&mut engine).map_err(engine_error)?;
    let draft = draft.as_mut().map(Slots::loaded).transpose().map_err(engine_error)?;
    let draft = draft.map(|steps| Box::new(steps) as Box<dyn Steps + '_>);
    let handle = server.handle();
    let lost = handle.clone();
    interrupt::on_first(move || handle.shut_down());
    interrupt::on_second(move || match lost.sequences() {
        0 => note!("ended by a second signal; no answer was under way"),
        count => note!("ended by a second signal; answers that are lost: {count}"),
    });
    tracing::info!("serving {} at {}", served.names.join(", "), server.address());
    server.run_with_draft_model(served, steps, draft).map_err(|error| match error {
        RunError::Engine(error) => engine_error(error),
        error => miette!("{error}"),
    })
}

/// Report of a server that cannot start, with what to do.
fn start_error(error: StartError, args: &ServeArgs) -> miette::Report {
    #[cfg(unix)]
    if let (Some(_), StartError::Listen { source, .. }) = (&args.unix, &error) {
        let help = match source.kind() {
            ErrorKind::PermissionDenied => "the folder of --unix PATH must be writable",
            ErrorKind::AddrInUse => {
                "another program listens there, or the path is a file that is no socket: --unix PATH takes another path"
            }
            ErrorKind::NotFound => "the folder of --unix PATH does not exist",
            _ => "--unix takes the path of a socket, of at most about 100 bytes",
        };
        return miette!(help = help, "{error}");
    }
    let host = args.host.as_str();
    // Without the brackets of an IPv6 address.
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    match &error {
        StartError::Listen { source, place }
            if source.kind() == ErrorKind::AddrNotAvailable
                || (place.starts_with(host)
                    && !is_address
                    && !matches!(source.kind(), ErrorKind::AddrInUse | ErrorKind::PermissionDenied)) =>
        {
            miette!(
                help = "--host takes an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them",
                "{error}"
            )
        }
        StartError::Listen { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            miette!(help = "ports below 1024 need privileges: --port N takes another port", "{error}")
        }
        StartError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            miette!(
                help = "another program listens there: --port N takes another port, 0 a free one",
                "{error}"
            )
        }
        _ => miette!("{error}"),
    }
}

fn options(args: &ServeArgs) -> miette::Result<Options> {
    let keys = match &args.api_key_file {
        None => Keys::default(),
        Some(path) => read_keys(path)?,
    };
    let tcp = Listen::Tcp { host: args.host.clone(), port: args.port };
    #[cfg(unix)]
    let listen = args.unix.clone().map_or(tcp, Listen::Unix);
    #[cfg(not(unix))]
    let listen = tcp;
    Ok(Options {
        listen,
        keys,
        origins: args.cors_origin.clone(),
        hosts: args.allow_host.clone(),
        queue: args.queue,
        speculation: args.speculation.speculation(),
        body_bytes: usize::try_from(args.max_body).unwrap_or(usize::MAX),
        body_timeout: Duration::from_secs(args.body_timeout),
        max_tokens: args.max_tokens,
        timeout: Duration::from_secs(args.timeout),
        grace: Duration::from_secs(args.grace),
        log_text: args.log_text,
        ..Options::default()
    })
}

fn read_keys(path: &Path) -> miette::Result<Keys> {
    let keys = Keys::parse(&input::read(path)?);
    if keys.is_empty() {
        return Err(miette!(help = "write one key a line", "{} has no API keys", path.display()));
    }
    Ok(keys)
}

/// What the server tells about the model, and needs of it.
fn facts(args: &ServeArgs, model: &Model) -> miette::Result<bespoke_serve::Model> {
    let tokenizer =
        model.tokenizer().into_diagnostic().wrap_err("a server needs a model with a vocabulary")?;
    let sampling = args.sampling.defaults(Some(&tokenizer))?;
    let dimensions = &model.shape.dimensions;
    Ok(bespoke_serve::Model {
        names: if args.alias.is_empty() { vec![model.shape.name.clone()] } else { args.alias.clone() },
        chat: chat_template(args, model, &tokenizer)?,
        tokenizer: Arc::new(tokenizer),
        normalise: if model.is_demo { bespoke_demo::normalised_prompt } else { str::to_owned },
        sampling,
        fixed_seed: args.sampling.seed.is_some(),
        facts: json!({
            "layers": model.shape.layers.len(),
            "trained_context": dimensions.context,
            "kv_type": args.decode.kv.to_string(),
        }),
    })
}

/// The model's chat template; none, with a warning, if it has none.
fn chat_template(
    args: &ServeArgs,
    model: &Model,
    tokenizer: &bespoke::tokenizer::Tokenizer,
) -> miette::Result<Option<ChatTemplate>> {
    let chosen = args.template.given().is_some();
    if model.is_demo && !chosen {
        let template = Template::parse(bespoke_demo::CHAT_TEMPLATE).into_diagnostic()?;
        return Ok(Some(ChatTemplate::new(template, Inputs::default(), "the demo model's chat template")));
    }
    match ChatFormat::new(&args.template, &model.gguf, tokenizer) {
        Ok(format) => {
            tracing::debug!("{}", format.origin());
            Ok(Some(format.for_server()))
        }
        Err(report) if chosen => Err(report),
        Err(report) => {
            tracing::warn!("chats are refused: {report}; --chat-template NAME chooses a template");
            Ok(None)
        }
    }
}
