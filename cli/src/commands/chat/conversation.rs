//! A conversation, and the engine that answers.

use std::path::Path;

use bespoke::engine::SamplingParams;
use bespoke::generation::{FinishReason, Request, Summary};
use bespoke::tokenizer::Tokenizer;
use bespoke_chat::Message;
use bespoke_files::{FileError, OutputFile, Replace};
use miette::{IntoDiagnostic, WrapErr, miette};

use super::ChatArgs;
use super::command::{Command, help};
use crate::chat_template::ChatFormat;
use crate::commands::run::rate;
use crate::console::{TextStream, counted, exact, note, out};
use crate::decoder::Decoder;
use crate::input;
use crate::interrupt;
use crate::output::file_error;
use crate::progress::DelayedBar;

/// The messages so far, and everything to answer them.
pub struct Conversation<'a> {
    decoder: Decoder<'a>,
    tokenizer: &'a Tokenizer,
    format: &'a ChatFormat,
    sampling: SamplingParams,
    max_tokens: u32,
    keep: Option<u32>,
    stop: &'a [String],
    system: Option<String>,
    /// Messages without the system prompt.
    messages: Vec<Message>,
    stats: Stats,
}

/// Numbers of the session.
#[derive(Default)]
struct Stats {
    answers: usize,
    /// Generated tokens, and the seconds that they took.
    generated: (usize, f64),
    last: Option<Last>,
}

/// Numbers of the last answer.
struct Last {
    prompt: usize,
    reused: u32,
    generated: usize,
    prompt_seconds: f64,
    decode_seconds: f64,
}

impl<'a> Conversation<'a> {
    /// Starts a conversation, or continues one with `messages`.
    pub fn new(
        decoder: Decoder<'a>,
        tokenizer: &'a Tokenizer,
        format: &'a ChatFormat,
        sampling: SamplingParams,
        args: &'a ChatArgs,
        messages: Vec<Message>,
    ) -> Conversation<'a> {
        let mut conversation = Conversation {
            decoder,
            tokenizer,
            format,
            sampling,
            max_tokens: args.n.unwrap_or(u32::MAX),
            keep: args.keep,
            stop: &args.stop,
            system: None,
            messages: Vec::new(),
            stats: Stats::default(),
        };
        conversation.replace(messages);
        if let Some(system) = &args.template.system {
            conversation.system = Some(system.clone());
        }
        conversation
    }

    /// Executes a command.
    pub fn execute(&mut self, command: Command) -> miette::Result<()> {
        match command {
            Command::Ask(text) => {
                self.messages.push(Message::new("user", &text));
                self.answer()?;
            }
            Command::Regenerate => {
                let questions = self.messages.iter().rposition(|message| message.role() == "user");
                let Some(last) = questions else {
                    return Err(miette!("there is no question to answer again"));
                };
                let answers = self.messages.split_off(last + 1);
                // Another seed, since the same one gives the same answer.
                self.sampling.seed = self.sampling.seed.wrapping_add(1);
                let outcome = self.answer();
                if !matches!(outcome, Ok(true)) {
                    self.messages.extend(answers);
                } else if self.messages[last + 1..] == answers && self.sampling.temperature == 0.0 {
                    note!(
                        "the same answer, since decoding is greedy; start with --temp 0.8 for other answers"
                    );
                }
                outcome?;
            }
            Command::Reset => {
                self.messages.clear();
                note!("a new conversation");
            }
            Command::System(None) => exact(self.system.as_deref().unwrap_or("(no system prompt)"))?,
            Command::System(Some(text)) => self.system = Some(text).filter(|text| !text.is_empty()),
            Command::Stats => out!("{}", self.stats())?,
            Command::Save { path, force } => {
                self.save(&path, force)?;
                note!("{} in {}", counted(self.all_messages().len(), "message"), path.display());
            }
            Command::Load(path) => {
                self.replace(read(&path)?);
                note!("{} from {}", counted(self.all_messages().len(), "message"), path.display());
            }
            Command::Help => out!("{}", help())?,
            Command::Nothing | Command::Exit => {}
        }
        Ok(())
    }

    /// Replaces the messages. A system message at their start becomes the system prompt.
    fn replace(&mut self, mut messages: Vec<Message>) {
        self.system = None;
        if messages.first().is_some_and(|message| message.role() == "system") {
            self.system = Some(messages.remove(0).text());
        }
        self.messages = messages;
    }

    /// The messages with the system prompt.
    fn all_messages(&self) -> Vec<Message> {
        let system = self.system.iter().map(|text| Message::new("system", text));
        system.chain(self.messages.iter().cloned()).collect()
    }

    /// Answers the last message, which is removed if there is no answer. Returns whether there is one.
    fn answer(&mut self) -> miette::Result<bool> {
        let outcome = self.generate();
        match &outcome {
            Ok(summary) if !summary.tokens.is_empty() => {
                self.messages.push(Message::new("assistant", &summary.text));
            }
            _ => {
                self.messages.pop();
            }
        }
        let summary = outcome?;
        let context = self.decoder.context();
        match summary.reason {
            FinishReason::Cancelled if summary.tokens.is_empty() => {
                note!("stopped; the question is forgotten")
            }
            FinishReason::Cancelled => note!("stopped"),
            FinishReason::MaxTokens => note!("stopped at -n {}", self.max_tokens),
            FinishReason::ContextFull => {
                note!(
                    "the context of {context} positions is full; /reset starts again, --ctx N gives more, --keep N continues without the oldest tokens"
                )
            }
            FinishReason::OutOfPages => note!("stopped because the KV cache has no free page"),
            FinishReason::StopToken | FinishReason::StopString | FinishReason::Complete => {}
        }
        Ok(!summary.tokens.is_empty())
    }

    /// Generates and prints an answer to the messages.
    fn generate(&mut self) -> miette::Result<Summary> {
        let prompt = self.fitting_prompt()?;
        let bar = DelayedBar::new("prompt", prompt.len() as u64);
        interrupt::defer_first();
        let request = Request {
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            keep: self.keep,
            stop_tokens: self.tokenizer.end_tokens(),
            stop_strings: self.stop,
            ..Request::new(&prompt)
        };
        let mut out = TextStream::new();
        let summary = self.decoder.generate(&request, Some(&bar), |token| out.write(&token.text))?;
        if !summary.tokens.is_empty() {
            out.write(&format!("{}\n", summary.rest))?;
        }
        self.stats.record(&summary, prompt.len());
        Ok(summary)
    }

    /// Tokens of the conversation. With `--keep`, a conversation that is too long loses its oldest messages: those before
    /// a question, so that an answer precedes none.
    ///
    /// # Errors
    /// If the conversation does not fit in the context.
    fn fitting_prompt(&mut self) -> miette::Result<Vec<u32>> {
        let context = self.decoder.context();
        loop {
            let text = self.format.prompt(&self.all_messages())?;
            let prompt = self.tokenizer.encode(&text).into_diagnostic()?;
            if prompt.len() as u64 <= u64::from(context) {
                return Ok(prompt);
            }
            let later = self.messages.iter().skip(1).position(|message| message.role() == "user");
            match later.filter(|_| self.keep.is_some()) {
                Some(question) => {
                    self.messages.drain(..=question);
                    note!("the context is full: the {} oldest messages are forgotten", question + 1);
                }
                None => {
                    return Err(miette!(
                        help = "/reset starts a new conversation; --ctx N gives a longer context, --keep N forgets old messages",
                        "the conversation has {}, the context only {context} positions",
                        counted(prompt.len(), "token")
                    ));
                }
            }
        }
    }

    /// Text of `/stats`.
    fn stats(&self) -> String {
        let context = self.decoder.context();
        // The cache may still have the tokens of a conversation that was dropped.
        let used = if self.messages.is_empty() { 0 } else { self.decoder.context_used() };
        let mut lines = vec![
            format!("messages   {}", self.all_messages().len()),
            format!(
                "context    {used} of {context} positions used ({:.1}%)",
                100.0 * f64::from(used) / f64::from(context)
            ),
        ];
        if let Some(last) = &self.stats.last {
            let speed = |tokens: usize, seconds: f64| match rate(tokens, seconds) {
                0.0 => String::new(),
                rate => format!("; {rate:.2} tokens/s"),
            };
            lines.push(format!(
                "prompt     {}, {} of them from the cache{}",
                counted(last.prompt, "token"),
                last.reused,
                speed(last.prompt - last.reused as usize, last.prompt_seconds)
            ));
            lines.push(format!(
                "answer     {}{}",
                counted(last.generated, "token"),
                speed(last.generated.saturating_sub(1), last.decode_seconds)
            ));
            let (tokens, seconds) = self.stats.generated;
            lines.push(format!(
                "session    {}, {} in {seconds:.1} s",
                counted(self.stats.answers, "answer"),
                counted(tokens, "token")
            ));
        }
        lines.push(format!("device     {}", self.decoder.device()));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Writes the messages as JSON.
    fn save(&self, path: &Path, force: bool) -> miette::Result<()> {
        let text = serde_json::to_string_pretty(&self.all_messages()).into_diagnostic()?;
        let replace = if force { Replace::Allowed } else { Replace::Never };
        let file = OutputFile::create(path, replace);
        file.and_then(|file| file.write_whole(format!("{text}\n").as_bytes())).map_err(|error| match error {
            FileError::Exists(_) => miette!(help = "/save -f FILE replaces it", "{error}"),
            error => file_error(error),
        })
    }
}

impl Stats {
    fn record(&mut self, summary: &Summary, prompt: usize) {
        let (prompt_seconds, decode_seconds) =
            (summary.prompt_time.as_secs_f64(), summary.decode_time.as_secs_f64());
        self.answers += usize::from(!summary.tokens.is_empty());
        self.generated.0 += summary.tokens.len();
        self.generated.1 += prompt_seconds + decode_seconds;
        self.last = Some(Last {
            prompt,
            reused: summary.reused,
            generated: summary.tokens.len(),
            prompt_seconds,
            decode_seconds,
        });
    }
}

/// Largest file of a conversation, in bytes.
const LARGEST: u64 = 64 << 20;

/// Roles of a conversation.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Reads the messages of a file.
///
/// # Errors
/// If the file is not a JSON array of messages; the message has the line. If a message has an unknown role, or a content
/// that is no text.
pub fn read(path: &Path) -> miette::Result<Vec<Message>> {
    let read = || -> miette::Result<Vec<Message>> {
        let bytes = std::fs::metadata(path).into_diagnostic()?.len();
        if bytes > LARGEST {
            return Err(miette!("it has {bytes} bytes; at most {LARGEST} are read"));
        }
        let messages: Vec<Message> = serde_json::from_str(&input::read(path)?)
            .map_err(|error| miette!("it is not a JSON array of messages: {error}"))?;
        for (number, message) in (1..).zip(&messages) {
            let role = message.role();
            if !ROLES.contains(&role.as_str()) {
                let roles = ROLES.join(", ");
                return Err(miette!(
                    help = format!("roles are {roles}"),
                    "message {number} has the role `{role}`"
                ));
            }
            if !message.has_text() {
                return Err(miette!("message {number}: `content` is neither a text nor a list of texts"));
            }
        }
        Ok(messages)
    };
    read().wrap_err_with(|| format!("cannot read a conversation from {}", path.display()))
}
