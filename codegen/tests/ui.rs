//! Compile errors of the kernel language and of generated stubs. Every file of `ui/` is compiled, and each error is
//! expected below its line:
//!
//! ```text
//!     let y = x as f32;
//!     //        ^^ `as` does not convert handles: write `.cast::<…>()`
//! ```
//!
//! The expected text is the message and label from the macros. Of an error with rustc's own wording, only the code is
//! expected. `UPDATE_EXPECT=1 cargo test -p bespoke-codegen --test ui` rewrites the expectations. Files in `ui/pass`
//! have no errors.

mod rustc;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use serde::Deserialize;

/// A line of `rustc --error-format=json`.
#[derive(Deserialize)]
struct Message {
    message: String,
    code: Option<Code>,
    level: String,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: usize,
    line_end: usize,
    column_start: usize,
    column_end: usize,
    is_primary: bool,
    label: Option<String>,
    expansion: Option<Box<Expansion>>,
}

#[derive(Deserialize)]
struct Expansion {
    span: Span,
}

/// An error: the columns it underlines in its line, from 0, and its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Error {
    line: usize,
    start: usize,
    end: Option<usize>,
    text: String,
}

impl Message {
    fn error(&self) -> Option<Error> {
        let mut span = self.spans.iter().find(|span| span.is_primary)?;
        // An error inside of a macro of the standard library is at the macro's call.
        while let Some(expansion) = span.expansion.as_ref().filter(|_| !span.file_name.contains("tests/ui")) {
            span = &expansion.span;
        }
        let ours = |label: &&String| !label.starts_with("the trait") && !label.starts_with("unsatisfied");
        let text = match (&self.code, span.label.as_ref().filter(ours)) {
            (Some(code), _) if code.code != "E0277" => code.code.clone(),
            (_, Some(label)) => format!("{}: {label}", self.message),
            (_, None) => self.message.clone(),
        };
        let text = ["bespoke_codegen::dsl::", "bespoke_codegen::launch::"]
            .iter()
            .fold(text, |text, path| text.replace(path, ""));
        Some(Error {
            line: span.line_start,
            start: span.column_start - 1,
            end: (span.line_start == span.line_end).then_some(span.column_end - 1),
            text,
        })
    }
}

/// `source` with its expectations replaced by `errors`. Line numbers in `errors` are those of `source`, expectations
/// included.
fn annotated(source: &str, errors: &[Error]) -> String {
    let mut out = String::new();
    let mut in_expectation = false;
    for (number, line) in (1..).zip(source.lines()) {
        let comment = line.trim_start().strip_prefix("//");
        let is_expectation = comment.is_some_and(|text| text.trim_start().starts_with('^'));
        in_expectation = is_expectation || (in_expectation && comment.is_some());
        if in_expectation {
            continue;
        }
        writeln!(out, "{line}").expect("strings grow");
        for error in errors.iter().filter(|error| error.line == number) {
            let indent =
                " ".repeat((line.len() - line.trim_start().len()).min(error.start.saturating_sub(3)));
            let start = error.start.max(3);
            let end = error.end.unwrap_or(line.chars().count()).max(start + 1);
            let carets = format!("{}{}", " ".repeat(start - indent.len() - 2), "^".repeat(end - start));
            let mut last = format!("{indent}//{carets}");
            for word in error.text.split_whitespace() {
                if last.chars().count() + 1 + word.chars().count() > 116 {
                    writeln!(out, "{last}").expect("strings grow");
                    last = format!("{indent}//");
                }
                write!(last, " {word}").expect("strings grow");
            }
            writeln!(out, "{last}").expect("strings grow");
        }
    }
    out
}

/// Paths of the test cases, by name.
fn cases(root: &Path) -> BTreeMap<String, PathBuf> {
    let files = |folder: &str| {
        let folder = root.join("tests/ui").join(folder);
        fs::read_dir(folder).expect("a folder of cases").map(|entry| entry.expect("an entry").path())
    };
    let rust = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let named = |path: PathBuf| (path.file_stem().expect("a name").to_string_lossy().into_owned(), path);
    files("").chain(files("pass")).filter(rust).map(named).collect()
}

/// Errors of each test case.
fn errors(cases: &BTreeMap<String, PathBuf>) -> BTreeMap<String, Vec<Error>> {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
    fs::create_dir_all(&scratch).expect("a folder under target");
    let libraries = rustc::Libraries::find(
        ["bespoke_codegen"],
        "use bespoke_codegen::prelude::*; fn main() { let _ = Target::Sm90; }",
        &scratch,
    );
    let all: Vec<(&String, &PathBuf)> = cases.iter().collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(&(name, path)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let arguments = ["--crate-name", name, "--emit", "metadata", "--error-format", "json"];
            let mut command = libraries.rustc(path, &arguments);
            let output = command.arg("--out-dir").arg(&scratch).output().expect("rustc starts");
            found.lock().expect("no panic").insert(name.clone(), errors_of(&output.stderr));
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    found.into_inner().expect("no panic")
}

/// The errors among messages of rustc, by place.
fn errors_of(messages: &[u8]) -> Vec<Error> {
    let mut errors = Vec::new();
    for line in String::from_utf8_lossy(messages).lines() {
        let message: Message = serde_json::from_str(line).unwrap_or_else(|_| panic!("rustc: {line}"));
        errors.extend(message.error().filter(|_| message.level == "error"));
    }
    errors.sort();
    errors.dedup();
    errors
}

#[test]
fn ui() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cases = cases(root);
    let errors = errors(&cases);
    assert!(errors.values().any(|errors| !errors.is_empty()), "rustc found no errors");
    let mut wrong = Vec::new();
    for (name, path) in &cases {
        let source = fs::read_to_string(path).expect("a case");
        let actual = annotated(&source, &errors[name]);
        if actual == source {
            continue;
        }
        if env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(path, actual).expect("a case");
        } else {
            wrong.push(format!("{}, as it should be if these errors are right:\n{actual}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
