//! The chat template of a model: from its file, from a file of its own, or built in.

use std::path::{Path, PathBuf};

use bespoke::tokenizer::Tokenizer;
use bespoke_chat::{Inputs, Message, Template, Value, check_roles, checked_messages, families};
use bespoke_gguf::Gguf;
use bespoke_serve::ChatTemplate;
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::input;

/// Key of a file's template; named templates have `.NAME` behind it.
const KEY: &str = "tokenizer.chat_template";

/// Arguments of commands that write conversations by a chat template.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Chat")]
pub struct TemplateArgs {
    /// System prompt: what the model is told before the conversation
    #[arg(long, alias = "system-prompt", value_name = "TEXT", allow_hyphen_values = true)]
    pub system: Option<String>,
    /// Chat template: a named one of the model's file, or a built-in one such as chatml, llama3, gemma or mistral-v3
    /// [default: the file's]
    #[arg(long, value_name = "NAME")]
    pub chat_template: Option<String>,
    /// Chat template from a file, in Jinja
    #[arg(long, value_name = "FILE", conflicts_with = "chat_template")]
    pub chat_template_file: Option<PathBuf>,
    /// Variable of the template, with a value in JSON or as text: enable_thinking=false. May be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub template_var: Vec<(String, Value)>,
    /// Tools that the model may call: a file with a JSON array of their descriptions. Calls are printed, not executed
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
}

impl TemplateArgs {
    /// Name of an option that was given, if one was.
    pub fn given(&self) -> Option<&'static str> {
        [
            ("--system", self.system.is_some()),
            ("--chat-template", self.chat_template.is_some()),
            ("--chat-template-file", self.chat_template_file.is_some()),
            ("--template-var", !self.template_var.is_empty()),
            ("--tools", self.tools.is_some()),
        ]
        .into_iter()
        .find_map(|(option, given)| given.then_some(option))
    }
}

/// Variables that the program gives to a template, with the reason why no option replaces them.
const GIVEN: [(&str, &str); 3] = [
    ("messages", "is the conversation; --load in `chat` reads one from a file"),
    ("tools", "is set by --tools FILE"),
    ("add_generation_prompt", "is always true: the text ends where the answer begins"),
];

/// Parses `NAME=VALUE`.
fn variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if let Some((_, instead)) = GIVEN.iter().find(|(given, _)| *given == name) {
        return Err(format!("`{name}` {instead}"));
    }
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.is_empty();
    if !is_name {
        return Err(format!("`{name}` is not the name of a variable"));
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((name.to_owned(), value))
}

/// A model's way to write a conversation.
pub struct ChatFormat {
    template: Template,
    /// Where the template comes from, for messages.
    origin: String,
    /// Variables besides the conversation.
    inputs: Inputs,
}

impl ChatFormat {
    /// Chooses and parses the template.
    ///
    /// # Errors
    /// If the model has no template and none was chosen, or the template is not valid.
    pub fn new(args: &TemplateArgs, gguf: &Gguf, tokenizer: &Tokenizer) -> miette::Result<ChatFormat> {
        let tools = args.tools.as_deref().map(read_tools).transpose()?;
        let (source, origin) = source(args, gguf, tokenizer, tools.is_some())?;
        let template =
            Template::parse(&source).into_diagnostic().wrap_err_with(|| format!("cannot use {origin}"))?;
        if tools.is_some() && !template.reads("tools") {
            let help = "choose another template with --chat-template, or describe the tools in --system";
            return Err(miette!(help = help, "--tools has no effect: {origin} does not read `tools`"));
        }
        for (name, _) in args.template_var.iter().filter(|(name, _)| !template.reads(name)) {
            tracing::warn!("--template-var {name} has no effect: {origin} does not read `{name}`");
        }
        let token = |id: Option<u32>| tokenizer.token(id?).map(str::to_owned);
        let inputs = Inputs {
            tools,
            bos_token: token(tokenizer.bos()),
            eos_token: token(gguf.opt_u32("tokenizer.ggml.eos_token_id").into_diagnostic()?),
            variables: args.template_var.iter().cloned().collect(),
            ..Inputs::new(Vec::new())
        };
        Ok(ChatFormat { template, origin, inputs })
    }

    /// The template for a server.
    pub fn for_server(self) -> ChatTemplate {
        ChatTemplate::new(self.template, self.inputs, &self.origin)
    }

    /// Where the template comes from.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Checks a conversation from a file, and returns it in the form that templates expect.
    ///
    /// # Errors
    /// If a message has no text, or a role that neither OpenAI's API nor the template has.
    pub fn checked(&self, messages: Vec<Message>) -> miette::Result<Vec<Message>> {
        let messages = checked_messages(messages).into_diagnostic()?;
        check_roles(self.template.source(), &messages).into_diagnostic()?;
        Ok(messages)
    }

    /// The text that the model gets for an answer to a conversation.
    pub fn prompt(&self, messages: &[Message]) -> miette::Result<String> {
        let inputs = Inputs { messages: messages.to_vec(), ..self.inputs.clone() };
        self.template.render(&inputs).map_err(|error| {
            let line = error.line().and_then(|line| self.template.source().lines().nth(line.checked_sub(1)?));
            let help = line
                .map_or(self.origin.clone(), |line| format!("{}: {}", self.origin, shortened(line.trim())));
            miette!(help = help, "{error}")
        })
    }
}

/// A line of a template, cut to a length that fits a message.
fn shortened(line: &str) -> String {
    const LONGEST: usize = 160;
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line.to_owned(),
    }
}

fn read_tools(path: &Path) -> miette::Result<Vec<Value>> {
    serde_json::from_str(&input::read(path)?)
        .map_err(|error| miette!("{} is not a JSON array of tools: {error}", path.display()))
}

/// Source of the template, and its origin.
fn source(
    args: &TemplateArgs,
    gguf: &Gguf,
    tokenizer: &Tokenizer,
    with_tools: bool,
) -> miette::Result<(String, String)> {
    if let Some(path) = &args.chat_template_file {
        return Ok((input::read(path)?, format!("the chat template {}", path.display())));
    }
    let of_file = |name: Option<&str>| -> miette::Result<Option<(String, String)>> {
        let key = name.map_or(KEY.to_owned(), |name| format!("{KEY}.{name}"));
        let text = gguf.opt_str(&key).into_diagnostic()?.filter(|text| !text.is_empty());
        Ok(text.map(|text| (text.to_owned(), format!("the model's chat template ({key})"))))
    };
    let built_in = |family: &families::Family| {
        (family.source().to_owned(), format!("the built-in chat template {}", family.name))
    };
    if let Some(name) = &args.chat_template {
        let named = if name == "default" { of_file(None)? } else { of_file(Some(name))? };
        return match (named, families::named(name)) {
            (Some(found), _) => Ok(found),
            (None, Some(family)) => {
                let lacks = |token: &&&str| tokenizer.id(token).is_none();
                let missing: Vec<&str> = family.markers.iter().filter(lacks).copied().collect();
                if !missing.is_empty() {
                    tracing::warn!(
                        "the vocabulary lacks {} of the chat template {name}: the model was probably not trained with it",
                        missing.join(", ")
                    );
                }
                Ok(built_in(family))
            }
            (None, None) => Err(miette!(help = choices(gguf), "there is no chat template `{name}`")),
        };
    }
    // As in transformers: a template for tools, if there are tools.
    let for_tools = if with_tools { of_file(Some("tool_use"))? } else { None };
    if let Some(found) = for_tools.map_or_else(|| of_file(None), |found| Ok(Some(found)))? {
        return Ok(found);
    }
    match families::by_special_tokens(|token| tokenizer.id(token).is_some()) {
        Some(family) => {
            tracing::info!(
                "the model has no chat template; its special tokens are those of {} ({})",
                family.name,
                family.models
            );
            Ok(built_in(family))
        }
        None => Err(miette!(
            help = choices(gguf),
            "the model has no chat template, so it may not be a chat model; its special tokens do not tell a family"
        )),
    }
}

/// Help text with the templates that can be chosen.
fn choices(gguf: &Gguf) -> String {
    let prefix = format!("{KEY}.");
    let named: Vec<&str> = gguf.metadata().filter_map(|(key, _)| key.strip_prefix(&prefix)).collect();
    let built_in: Vec<&str> = families::FAMILIES.iter().map(|family| family.name).collect();
    let of_file =
        if named.is_empty() { String::new() } else { format!("{} (in the file); ", named.join(", ")) };
    format!("--chat-template NAME: {of_file}{}; or --chat-template-file FILE", built_in.join(", "))
}
