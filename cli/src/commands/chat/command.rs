//! Lines of the user: questions, and commands that begin with `/`.

use std::path::PathBuf;

use miette::miette;

/// A line of input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Something to answer.
    Ask(String),
    /// Starts a new conversation.
    Reset,
    /// Shows the system prompt, or sets it; an empty one is none.
    System(Option<String>),
    /// Answers the last question again.
    Regenerate,
    /// Shows numbers of tokens and speeds.
    Stats,
    /// Writes the conversation to a file.
    Save { path: PathBuf, force: bool },
    /// Reads a conversation from a file.
    Load(PathBuf),
    /// Lists the commands.
    Help,
    /// Ends the program.
    Exit,
    /// An empty line.
    Nothing,
}

/// Names, arguments and descriptions of the commands.
const COMMANDS: [(&str, &str, &str); 8] = [
    ("/reset", "", "start a new conversation; the system prompt stays (also /clear)"),
    ("/system", "[TEXT]", "show or set the system prompt; /system \"\" removes it"),
    ("/regenerate", "", "answer the last question again"),
    ("/stats", "", "tokens, speed, and how much of the context is used"),
    ("/save", "[-f] FILE", "write the conversation to a file, as JSON; -f replaces the file"),
    ("/load", "FILE", "continue the conversation of a file"),
    ("/help", "", "this list"),
    ("/exit", "", "end the program, as Ctrl-D does (also /quit, /bye)"),
];

/// Names of commands that begin with `start`, for completion with Tab.
pub fn completions(start: &str) -> Vec<String> {
    let names = COMMANDS.iter().map(|(name, ..)| *name).filter(|name| name.starts_with(start));
    if start.starts_with('/') { names.map(str::to_owned).collect() } else { Vec::new() }
}

/// Text of `/help`.
pub fn help() -> String {
    let lines = COMMANDS
        .iter()
        .map(|(name, arguments, what)| format!("{:<20} {what}\n", format!("{name} {arguments}")));
    lines
        .chain([
            "A line that ends with \\ continues on the next one; pasted lines are one message.\n".to_owned(),
            "A message that begins with / is written with //.\n".to_owned(),
        ])
        .collect()
}

/// An argument without the quotes around it, if it has some and none within.
fn unquoted(argument: &str) -> &str {
    let within =
        |quote: char| argument.strip_prefix(quote)?.strip_suffix(quote).filter(|text| !text.contains(quote));
    within('"').or_else(|| within('\'')).unwrap_or(argument)
}

impl Command {
    /// Parses a line.
    ///
    /// # Errors
    /// If a command is unknown, or its arguments are wrong.
    pub fn parse(line: &str) -> miette::Result<Command> {
        let trimmed = line.trim();
        if trimmed.is_empty() {
            return Ok(Command::Nothing);
        }
        let Some(command) = trimmed.strip_prefix('/') else { return Ok(Command::Ask(line.to_owned())) };
        if command.starts_with('/') {
            return Ok(Command::Ask(command.to_owned()));
        }
        let (name, argument) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let has_argument = !argument.trim().is_empty();
        let argument = unquoted(argument.trim());
        let file = || {
            if argument.is_empty() {
                Err(miette!("/{name} needs a file"))
            } else {
                Ok(PathBuf::from(argument))
            }
        };
        let parsed = match name {
            // Only `/system` alone shows the prompt: `/system ""` sets an empty one.
            "system" => return Ok(Command::System(has_argument.then(|| argument.to_owned()))),
            "load" => return Ok(Command::Load(file()?)),
            "save" => {
                let path = file()?;
                return Ok(match argument.strip_prefix("-f ") {
                    Some(path) => Command::Save { path: unquoted(path.trim()).into(), force: true },
                    None => Command::Save { path, force: false },
                });
            }
            "reset" | "clear" => Command::Reset,
            "regenerate" => Command::Regenerate,
            "stats" => Command::Stats,
            "help" => Command::Help,
            "exit" | "quit" | "bye" => Command::Exit,
            _ => {
                return Err(miette!(
                    help = "/help lists the commands; a message that begins with / is written with //",
                    "there is no command /{name}"
                ));
            }
        };
        if argument.is_empty() { Ok(parsed) } else { Err(miette!("/{name} has no arguments")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_questions_or_commands() {
        let ask = |text: &str| Command::Ask(text.to_owned());
        for (line, command) in [
            ("Hello", ask("Hello")),
            ("  two\nlines ", ask("  two\nlines ")),
            ("//reset", ask("/reset")),
            ("", Command::Nothing),
            (" \t", Command::Nothing),
            ("/reset", Command::Reset),
            (" /stats ", Command::Stats),
            ("/system", Command::System(None)),
            ("/system  Be brief. ", Command::System(Some("Be brief.".into()))),
            ("/system \"Be brief.\"", Command::System(Some("Be brief.".into()))),
            ("/system \"\"", Command::System(Some(String::new()))),
            ("/system ''", Command::System(Some(String::new()))),
            ("/system Say \"no\"", Command::System(Some("Say \"no\"".into()))),
            ("/system \"Yes\" or \"no\"", Command::System(Some("\"Yes\" or \"no\"".into()))),
            ("/save \"a b.json\"", Command::Save { path: "a b.json".into(), force: false }),
            ("/save -f 'x.json'", Command::Save { path: "x.json".into(), force: true }),
            ("/load \"x.json\"", Command::Load("x.json".into())),
            ("/clear", Command::Reset),
            ("/bye", Command::Exit),
            ("/save a b.json", Command::Save { path: "a b.json".into(), force: false }),
            ("/save -f x.json", Command::Save { path: "x.json".into(), force: true }),
            ("/load x.json", Command::Load("x.json".into())),
            ("/quit", Command::Exit),
        ] {
            assert_eq!(Command::parse(line).unwrap(), command, "{line}");
        }
        for (line, message) in [
            ("/rest", "there is no command /rest"),
            ("/", "there is no command /"),
            ("/save", "/save needs a file"),
            ("/load ", "/load needs a file"),
            ("/reset now", "/reset has no arguments"),
        ] {
            assert_eq!(Command::parse(line).unwrap_err().to_string(), message, "{line}");
        }
    }

    #[test]
    fn names_of_commands_are_completed() {
        assert_eq!(completions("/re"), ["/reset", "/regenerate"]);
        assert_eq!(completions("/").len(), COMMANDS.len());
        for start in ["", "re", "/save x", "//"] {
            assert_eq!(completions(start), [""; 0], "{start}");
        }
    }

    #[test]
    fn help_names_every_command() {
        let help = help();
        for (name, ..) in COMMANDS {
            assert!(help.contains(&format!("{name} ")), "{help}");
            assert!(
                !matches!(Command::parse(&format!("{name} x")), Err(error) if error.to_string().contains("no command"))
            );
        }
    }
}
