//! `bespoke chat` and `run --chat`, with the demo model: a template that writes only the last message makes it answer sums.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Ran, command, default_interrupt, error, output, scratch};

/// A template of the demo model: the system prompt and the last message.
const LAST: &str =
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{{ messages[-1].content }}";

/// Runs `chat` with the demo model, a template and input lines.
fn chat(template: &str, more: &[&str], input: &str) -> Ran {
    let (_folder, path, file) = scratch("template.jinja");
    std::fs::write(path, template).unwrap();
    let args = ["chat", "demo", "--device", "emulator", "--chat-template-file", &file];
    let mut child = command(&[&args[..], more].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code(), stdout: text(ran.stdout), stderr: text(ran.stderr) }
}

/// Runs `chat` as [`chat`] does; it must succeed. Returns standard output.
fn answers(template: &str, more: &[&str], input: &str) -> String {
    let ran = chat(template, more, input);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
    ran.stdout
}

#[test]
fn lines_are_answered_one_by_one() {
    assert_eq!(answers(LAST, &[], "17 + 25 =\n408 - 579 =\n"), " 42\n -171\n");
    // The last line may lack its end; empty lines are nothing; a backslash continues a line.
    assert_eq!(answers(LAST, &[], "\n \n17 + 25 ="), " 42\n");
    assert_eq!(answers("{{ messages[-1].content | replace('\n', ' ') }}", &[], "17 +\\\n25 =\n"), " 42\n");
    assert_eq!(answers(LAST, &["--system", "17 + "], "25 =\n"), " 42\n");
    assert_eq!(answers("{{ sum }}", &["--template-var", "sum=17 + 25 ="], "?\n"), " 42\n");
    assert_eq!(answers(LAST, &["-n", "1"], "17 + 25 =\n"), " 4\n");
    assert_eq!(answers(LAST, &["--stop", "2"], "17 + 25 =\n"), " 4\n");
    assert_eq!(answers(LAST, &[], ""), "");
}

#[test]
fn speculation_changes_no_answer() {
    let input = "The old fox lives in the tower. It\n17 + 25 =\n/stats\n";
    let before_stats = |text: String| text.split("messages ").next().unwrap().to_owned();
    let expected = before_stats(answers(LAST, &["-n", "20"], input));
    for more in [&["--speculate"][..], &["--speculate", "--draft", "demo"]] {
        let text = answers(LAST, &[&["-n", "20"], more].concat(), input);
        assert!(text.contains(" positions used ("), "{text}");
        assert_eq!(before_stats(text), expected);
    }
}

#[test]
fn the_conversation_is_given_to_the_template() {
    // Each answer is the number of messages.
    let count = "{{ messages | length }} + 0 =";
    assert_eq!(answers(count, &[], "a\nb\n/reset\nc\n/exit\nd\n"), " 1\n 3\n 1\n");
    assert_eq!(answers(count, &["--system", "s"], "a\nb\n"), " 2\n 4\n");
    assert_eq!(answers(count, &[], "a\n/system Be brief.\nb\n/system\n"), " 1\n 4\nBe brief.\n");
    assert_eq!(answers(count, &[], "a\n/regenerate\nb\n"), " 1\n 1\n 3\n");
    let ran = chat(count, &[], "a\n/regenerate\n");
    assert!(
        ran.stderr.contains("the same answer, since decoding is greedy; start with --temp"),
        "{}",
        ran.stderr
    );
    // An empty system prompt is none.
    assert_eq!(answers(count, &["--system", "s"], "/system \"\"\na\n/system\n"), " 1\n(no system prompt)\n");
}

#[test]
fn conversations_are_saved_and_loaded() {
    let (folder, path, file) = scratch("saved.json");
    let text = answers(LAST, &["--system", "1"], &format!("7 + 25 =\n/save {file}\n"));
    assert_eq!(text, " 42\n");
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    assert_eq!(
        saved,
        json!([message("system", "1"), message("user", "7 + 25 ="), message("assistant", " 42")])
    );

    let loaded = "{{ messages[0].content }}0{{ messages[1].content }}";
    assert_eq!(answers(loaded, &["--load", &file], "?\n"), " 132\n", "107 + 25 =");
    assert_eq!(answers(loaded, &[], &format!("/load {file}\n?\n/system\n")), " 132\n1\n");
    // A file is replaced only with -f, and is not left unfinished.
    let ran = chat(LAST, &[], &format!("/save {file}\n"));
    assert!(ran.code == Some(1) && ran.stderr.contains("saved.json already exists"), "{}", ran.stderr);
    assert!(ran.stderr.contains("help: /save -f FILE replaces it"), "{}", ran.stderr);
    answers(LAST, &[], &format!("/save -f {file}\n"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "[]\n");
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);

    for (text, part) in [
        ("{}", "it is not a JSON array of messages: "),
        ("Hello", "it is not a JSON array of messages: "),
        ("[{\"role\": 1}]", "a message is an object with a text `role`"),
        ("[{\"role\": \"bogus\", \"content\": \"x\"}]", "message 1 has the role `bogus`"),
        (
            "[{\"role\": \"user\", \"content\": 3}]",
            "message 1: `content` is neither a text nor a list of texts",
        ),
        ("[", "EOF"),
    ] {
        std::fs::write(&path, text).unwrap();
        let message = error(&["chat", "demo", "--chat-template", "chatml", "--load", &file]);
        assert!(message.contains("cannot read a conversation from ") && message.contains(part), "{message}");
    }
}

#[test]
fn stats_show_what_the_cache_saved() {
    let text = answers(LAST, &["--ctx", "64"], "17 + 25 =\n17 + 25 =\n/stats\n");
    assert!(text.starts_with(" 42\n 42\nmessages   4\ncontext    "), "{text}");
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("context").contains(" of 64 positions used ("), "{text}");
    let prompt = line("prompt");
    let numbers: Vec<usize> =
        prompt.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    // All but the last token of the same prompt is in the cache.
    assert!(numbers[1] == numbers[0] - 1, "{prompt}");
    assert!(line("session").starts_with("session    2 answers, "), "{text}");
}

#[test]
fn a_full_context_ends_the_answer_or_forgets_the_oldest_messages() {
    let all = "{{ messages | map(attribute='content') | join(' ') }}";
    // The second conversation does not fit.
    let ran = chat(all, &["--ctx", "16"], "17 + 25 =\n408 - 579 =\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), " 42\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains(" tokens, the context only 16 positions"), "{}", ran.stderr);
    let ran = chat(all, &["--ctx", "16", "--keep", "1"], "17 + 25 =\n408 - 579 =\n/stats\n");
    assert!(ran.stdout.starts_with(" 42\n -171\nmessages   2\n"), "{}\n{}", ran.stdout, ran.stderr);
    assert!(
        ran.stderr.contains("the context is full: the 2 oldest messages are forgotten"),
        "{}",
        ran.stderr
    );
    let message = error(&["chat", "demo", "--chat-template", "chatml", "--ctx", "16", "--keep", "16"]);
    assert!(message.contains("16"), "{message}");
}

#[test]
fn options_that_a_template_ignores_are_named() {
    let (_folder, path, tools) = scratch("tools.json");
    std::fs::write(&path, "[]").unwrap();
    let ran = chat(LAST, &["--tools", &tools], "?\n");
    assert!(ran.code == Some(1) && ran.stderr.contains("--tools has no effect: "), "{}", ran.stderr);
    std::fs::write(&path, "no tools").unwrap();
    let message = error(&["chat", "demo", "--chat-template", "chatml", "--tools", &tools]);
    assert!(message.contains("tools.json is not a JSON array of tools: "), "{message}");

    let ran = chat(LAST, &["--template-var", "sum=1"], "17 + 25 =\n");
    assert!(
        ran.stderr.contains("WARN --template-var sum has no effect: the chat template "),
        "{}",
        ran.stderr
    );
    let ran = chat("{% if sum is defined %}{% endif %}17 + 25 =", &["--template-var", "sum=1"], "?\n");
    assert!(ran.stdout == " 42\n" && !ran.stderr.contains("no effect"), "{}", ran.stderr);
    let ran = chat(LAST, &["--template-var", "messages=1"], "");
    assert!(ran.code == Some(2) && ran.stderr.contains("`messages` is the conversation"), "{}", ran.stderr);

    let ran =
        command(&["chat", "demo", "--device", "emulator", "--chat-template", "llama3"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("the vocabulary lacks <|start_header_id|>"), "{stderr}");
}

#[test]
fn an_error_of_a_template_shows_its_line() {
    let ran = chat("{# first #}\n{{ messages[0].nothing.more }}", &[], "?\n");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("chat template, line 2: undefined value"), "{}", ran.stderr);
    assert!(ran.stderr.contains("template.jinja: {{ messages[0].nothing.more }}"), "{}", ran.stderr);
}

#[test]
fn unusable_templates_and_models_without_one_are_errors() {
    let message = error(&["chat", "demo"]);
    assert!(message.contains("the model has no chat template, so it may not be a chat model"), "{message}");
    assert!(message.contains("help: --chat-template NAME: chatml, "), "{message}");
    let message = error(&["chat", "demo", "--chat-template", "lama3"]);
    assert!(
        message.contains("there is no chat template `lama3`") && message.contains(" llama3, "),
        "{message}"
    );

    let failing = |template: &str, part: &str| {
        let ran = chat(template, &[], "Hello\n");
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains(part), "{part}\n{}", ran.stderr);
    };
    failing("a\n{% if %}", "chat template, line 2: syntax error");
    failing("{{ raise_exception('No!') }}", "the chat template refuses the conversation: No! (line 1)");
    failing("\n{{ messages.no.such }}", "chat template, line 2: undefined value");
    failing(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "stopped at the limit of steps",
    );
    failing("{{ messages[0].content * 1000 }}", "the context only ");

    let ran = chat(LAST, &[], "/nonsense\n17 + 25 =\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("there is no command /nonsense"), "{}", ran.stderr);
}

#[test]
fn run_answers_one_question() {
    let (_folder, path, file) = scratch("template.jinja");
    std::fs::write(path, LAST).unwrap();
    let args =
        ["run", "demo", "--device", "emulator", "--chat", "--chat-template-file", &file, "--system", "17 + "];
    let with = |more: &[&str]| output(&[&args[..], more].concat());
    assert_eq!(with(&["--prompt", "25 ="]), " 42\n");
    let answer: Value = serde_json::from_str(&with(&["--prompt", "25 =", "--format", "json"])).unwrap();
    assert_eq!((&answer["text"], &answer["finish_reason"]), (&json!(" 42"), &json!("stop_token")));

    let ran = super::bespoke(&["run", "demo", "--prompt", "Hello", "--system", "Be brief."]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: --system needs --chat\n"), "{}", ran.stderr);
    let message = error(&["run", "demo", "--prompt", "Hello", "--chat"]);
    assert!(message.contains("the model has no chat template"), "{message}");
    assert!(error(&["run", "--chat"]).contains("--chat needs --prompt or --file"));
}

/// Arguments with which an answer does not end: its end tokens are forbidden.
#[cfg(unix)]
fn endless(file: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(&output(&[
        "run",
        "--device",
        "emulator",
        "-p",
        "17 + 25 =",
        "--format",
        "json",
    ]))
    .unwrap();
    let end = answer["tokens"].as_array().unwrap().last().unwrap().as_u64().unwrap();
    ["chat", "demo", "--device", "emulator", "--ctx", "20000", "--chat-template-file", file]
        .into_iter()
        .map(str::to_owned)
        .chain(["--logit-bias".to_owned(), format!("{end}-inf")])
        .collect()
}

#[test]
#[cfg(unix)]
fn an_interrupt_stops_the_answer_and_not_the_program() {
    let (_folder, path, file) = scratch("template.jinja");
    std::fs::write(path, LAST).unwrap();
    let args = endless(&file);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut child =
        command(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let mut input = child.stdin.take().unwrap();
    let (stdout, stderr) =
        (Output::of(child.stdout.take().unwrap()), Output::of(child.stderr.take().unwrap()));
    for answers in 1..=2 {
        let before = stdout.text().len();
        input.write_all(b"The old fox\n").unwrap();
        stdout.wait(|text| text.len() > before);
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        stderr.wait(|text| text.matches("stopped\n").count() == answers);
    }
    input.write_all(b"/stats\n").unwrap();
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", stderr.text());
    stdout.wait(|text| text.contains("messages   4\n"));
}

/// Output of a child process, read by a thread.
#[cfg(unix)]
struct Output(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

#[cfg(unix)]
impl Output {
    fn of(mut from: impl Read + Send + 'static) -> Output {
        let bytes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let shared = bytes.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of a terminal is an error.
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                shared.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Output(bytes)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    /// Waits until the output has what is asked for.
    fn wait(&self, ready: impl Fn(&str) -> bool) {
        let start = std::time::Instant::now();
        while !ready(&self.text()) {
            assert!(start.elapsed().as_secs() < 120, "the output is: {}", self.text());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// Starts `chat` on a terminal; returns its process id and both directions of the terminal.
#[cfg(unix)]
fn on_terminal(args: &[&str], data: &std::path::Path) -> (nix::unistd::Pid, std::fs::File, Output) {
    use std::ffi::CString;
    let text = |text: &str| CString::new(text).unwrap();
    default_interrupt();
    let program = text(env!("CARGO_BIN_EXE_bespoke"));
    let args: Vec<CString> = [&["bespoke"], args].concat().into_iter().map(text).collect();
    let environment = [text(&format!("XDG_DATA_HOME={}", data.display())), text("TERM=xterm")];
    let size = nix::pty::Winsize { ws_row: 40, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: The child only replaces itself by another program, and allocates nothing before.
    match unsafe { nix::pty::forkpty(&size, None) }.unwrap() {
        nix::pty::ForkptyResult::Child => {
            let _ = nix::unistd::execve(&program, &args, &environment);
            std::process::abort();
        }
        nix::pty::ForkptyResult::Parent { child, master } => {
            let master = std::fs::File::from(master);
            let output = Output::of(master.try_clone().unwrap());
            (child, master, output)
        }
    }
}

#[test]
#[cfg(unix)]
fn a_terminal_edits_lines_keeps_a_history_and_interrupts_answers() {
    let (folder, path, file) = scratch("template.jinja");
    std::fs::write(path, LAST).unwrap();
    let args = endless(&file);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (child, mut keys, screen) = on_terminal(&args, folder.path());
    let prompts = |screen: &str| screen.matches("> ").count();
    screen.wait(|text| text.contains("/help lists the commands") && prompts(text) > 0);
    // Tab completes the name of a command.
    keys.write_all(b"/sta\t\r").unwrap();
    screen.wait(|text| text.contains("messages   0"));
    std::thread::sleep(std::time::Duration::from_millis(200));
    // Typed with a mistake that backspace corrects, then Ctrl-C while the answer runs.
    keys.write_all(b"The old dox\x7f\x7f\x7ffox\r").unwrap();
    screen.wait(|text| text.contains("lives"));
    keys.write_all(b"\x03").unwrap();
    screen.wait(|text| text.contains("stopped"));
    // The last line of the history is asked again.
    let before = screen.text().matches("lives").count();
    std::thread::sleep(std::time::Duration::from_millis(200));
    keys.write_all(b"\x1b[A\r").unwrap();
    screen.wait(|text| text.matches("lives").count() > before);
    keys.write_all(b"\x03").unwrap();
    screen.wait(|text| text.matches("stopped").count() == 2);
    // At the empty prompt: a hint, then the end.
    std::thread::sleep(std::time::Duration::from_millis(200));
    keys.write_all(b"\x03").unwrap();
    screen.wait(|text| text.contains("Ctrl-C again, Ctrl-D or /exit ends the program"));
    keys.write_all(b"\x03").unwrap();
    let status = nix::sys::wait::waitpid(child, None).unwrap();
    assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0), "{}", screen.text());
    let history = std::fs::read_to_string(folder.path().join("bespoke/chat-history")).unwrap();
    assert!(history.lines().any(|line| line == "The old fox"), "{history}");
}
