//! Lines of input: with an editor on a terminal, else from standard input as it is.

use std::io::{BufRead, IsTerminal, stdin, stdout};
use std::path::PathBuf;

use bespoke_files::{OutputFile, Replace};
use miette::{IntoDiagnostic, miette};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::command::completions;

use crate::console::note;

/// Source of lines.
pub enum Input {
    /// A terminal.
    Terminal { editor: Box<Editor<Commands, FileHistory>>, history: Option<PathBuf> },
    /// A pipe or a file.
    Lines,
}

/// Helper of the editor: Tab completes the name of a command.
pub struct Commands;

impl Helper for Commands {}
impl Highlighter for Commands {}
impl Validator for Commands {}

impl Hinter for Commands {
    type Hint = String;
}

impl Completer for Commands {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, completions(&line[..position])))
    }
}

/// What was read.
pub enum Line {
    /// A message or command, perhaps of several lines.
    Text(String),
    /// The end of the input.
    End,
}

/// Lines that the history keeps.
const HISTORY: usize = 1000;

/// Longest message, in bytes.
const LONGEST: usize = 16 << 20;

impl Input {
    /// Opens the terminal, with the history of earlier sessions if `keep_history`; or standard input, if that is not a
    /// terminal.
    pub fn new(keep_history: bool) -> miette::Result<Input> {
        if !(stdin().is_terminal() && stdout().is_terminal()) {
            return Ok(Input::Lines);
        }
        let config =
            Config::builder().max_history_size(HISTORY).into_diagnostic()?.auto_add_history(false).build();
        let mut editor = Editor::with_config(config).into_diagnostic()?;
        editor.set_helper(Some(Commands));
        let history = if keep_history { history_path() } else { None };
        if let Some(path) = &history
            && path.is_file()
            && let Err(error) = editor.load_history(path)
        {
            tracing::warn!("cannot read the history {}: {error}", path.display());
        }
        Ok(Input::Terminal { editor: Box::new(editor), history })
    }

    /// Whether a person types the lines.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Input::Terminal { .. })
    }

    /// Reads the next message. A line that ends with a backslash is continued.
    pub fn next(&mut self) -> miette::Result<Line> {
        let mut text = String::new();
        let mut hinted = false;
        loop {
            let line = match self {
                Input::Lines => read_line()?,
                Input::Terminal { editor, .. } => {
                    match editor.readline(if text.is_empty() { "> " } else { ". " }) {
                        Ok(line) => Some(line),
                        Err(ReadlineError::Eof) => None,
                        Err(ReadlineError::Interrupted) if hinted => None,
                        Err(ReadlineError::Interrupted) => {
                            // The text so far is discarded, as in shells.
                            hinted = text.is_empty();
                            text.clear();
                            note!("Ctrl-C again, Ctrl-D or /exit ends the program");
                            continue;
                        }
                        Err(error) => return Err(miette!("cannot read from the terminal: {error}")),
                    }
                }
            };
            let Some(line) = line else {
                return Ok(if text.is_empty() { Line::End } else { Line::Text(text) });
            };
            hinted = false;
            text.push_str(&line);
            if text.len() > LONGEST {
                return Err(miette!("the message is longer than {LONGEST} bytes"));
            }
            match text.strip_suffix('\\') {
                Some(start) => text = format!("{start}\n"),
                None => break,
            }
        }
        self.remember(&text);
        Ok(Line::Text(text))
    }

    /// Adds a message to the history, and to its file.
    fn remember(&mut self, text: &str) {
        let Input::Terminal { editor, history } = self else { return };
        let added = editor.add_history_entry(text);
        let Some(path) = history.as_ref().filter(|_| matches!(added, Ok(true))) else { return };
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let save = || -> miette::Result<()> {
            folder.into_diagnostic()?;
            let file = OutputFile::create(path, Replace::Allowed).into_diagnostic()?;
            editor.save_history(file.temporary_path()).into_diagnostic()?;
            file.finish().into_diagnostic()
        };
        if let Err(error) = save() {
            tracing::warn!("cannot save the history {}: {error}", path.display());
            *history = None;
        }
    }
}

/// A line of standard input, without its end; none at the end.
fn read_line() -> miette::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut input = std::io::Read::take(stdin().lock(), LONGEST as u64 + 1);
    input.read_until(b'\n', &mut bytes).map_err(|error| miette!("cannot read standard input: {error}"))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let line = String::from_utf8(bytes).map_err(|error| {
        miette!("a line of standard input is not UTF-8, at byte {}", error.utf8_error().valid_up_to())
    })?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(Some(line.strip_suffix('\r').unwrap_or(line).to_owned()))
}

/// File with the input of earlier sessions, in the user's data folder; none if there is no such folder.
fn history_path() -> Option<PathBuf> {
    let folder = |variable| std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
    let data = if cfg!(windows) {
        folder("APPDATA")?
    } else if cfg!(target_os = "macos") {
        folder("HOME")?.join("Library/Application Support")
    } else {
        match folder("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
            Some(path) => path,
            None => folder("HOME")?.join(".local/share"),
        }
    };
    Some(data.join("bespoke").join("chat-history"))
}
