//! Findings in the style of compiler errors: the source line with a caret below it.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bespoke_emulator::{ParseError, SourceLine};
use bespoke_sources as source;

use crate::{Finding, Lint, PtxLine, Report};

/// Kernels listed in addition to the first one with the same finding.
const NAMED_KERNELS: usize = 3;

/// Callers shown of a long inlining chain: number of innermost and of outermost callers.
const INNERMOST: usize = 3;
const OUTERMOST: usize = 2;

/// Formats findings with their source lines.
pub struct Renderer<'a> {
    color: bool,
    /// The checked PTX file; `None` for the project's own kernels.
    ptx: Option<&'a Path>,
    sources: HashMap<String, Option<String>>,
    text: String,
}

/// Severity of a message.
#[derive(Clone, Copy)]
enum Severity {
    Error,
    Note,
}

/// A line with the text to underline.
struct Snippet<'a> {
    /// The file, and the column if known.
    file: String,
    line: u32,
    column: u32,
    text: &'a str,
    label: String,
}

impl<'a> Renderer<'a> {
    /// Creates a renderer. Source files of a PTX file are searched in the current folder, in its parents, and in the
    /// PTX file's folder; source files of the project's kernels are in the binary.
    pub fn new(color: bool, ptx: Option<&'a Path>) -> Renderer<'a> {
        Renderer { color, ptx, sources: HashMap::new(), text: String::new() }
    }

    /// Formats what the kernels printed, and the findings and notes of a report; a finding at the same line of several
    /// kernels is shown once. With `denied`, notes count as errors.
    pub fn report(mut self, report: &Report, denied: bool) -> String {
        if !report.printed.is_empty() {
            self.text.push_str("printed by the kernels:\n");
            report.printed.lines().for_each(|line| self.text += &format!("  {line}\n"));
            self.text.push('\n');
        }
        for (finding, others) in grouped(&report.findings, |finding| {
            let site = finding.sites.first();
            (
                finding.kind.clone(),
                key(site.and_then(|site| site.source.as_ref()), site.map(|site| &site.ptx), &finding.kernel),
                site.map(|site| site.inlined_at.clone()),
            )
        }) {
            let others = others.iter().map(|other| other.kernel.as_str()).collect();
            self.finding(finding, report, others);
        }
        let severity = if denied { Severity::Error } else { Severity::Note };
        for (lint, others) in grouped(&report.lints, |lint| {
            (lint.kind.clone(), key(lint.source.as_ref(), Some(&lint.ptx), &lint.kernel))
        }) {
            let others = others.iter().map(|other| other.kernel.as_str()).collect();
            self.lint(lint, report, severity, others);
        }
        self.text
    }

    /// Formats the errors and unsupported features of a PTX text.
    pub fn problems(mut self, name: &str, text: &str, problems: &[ParseError]) -> String {
        let lines: Vec<&str> = text.lines().collect();
        for problem in problems {
            self.heading(Severity::Error, problem.kind.name(), &problem.message);
            let line = lines.get((problem.line as usize).saturating_sub(1)).copied().unwrap_or_default();
            self.snippet(
                "-->",
                &Snippet {
                    file: name.to_owned(),
                    line: problem.line,
                    column: problem.column,
                    text: line,
                    label: String::new(),
                },
            );
            self.text.push('\n');
        }
        self.text
    }

    fn finding(&mut self, finding: &Finding, report: &Report, others: Vec<&str>) {
        self.heading(Severity::Error, &finding.kind, &finding.message);
        let mut width = 1;
        for (index, site) in finding.sites.iter().enumerate() {
            let (arrow, which) = if index == 0 { ("-->", "") } else { (":::", "the other access: ") };
            let [i, j, k] = site.cta;
            let who = match site.thread {
                Some([x, y, z]) => format!("thread ({x}, {y}, {z})"),
                None => "an asynchronous copy".to_owned(),
            };
            let label = format!("{which}{who} of CTA ({i}, {j}, {k})");
            width = self.site(arrow, site.source.as_ref(), &site.ptx, (&finding.kernel, report), label);
            self.callers(width, &site.inlined_at);
        }
        if finding.times > 1 {
            self.remark(width, &format!("found {} times", finding.times));
        }
        self.kernels(width, &finding.kernel, &others);
        self.text.push('\n');
    }

    fn lint(&mut self, lint: &Lint, report: &Report, severity: Severity, others: Vec<&str>) {
        let message = lint.message.split_once(": ").map_or(lint.message.as_str(), |(_, rest)| rest);
        self.heading(severity, &lint.kind, message);
        let width = self.site("-->", lint.source.as_ref(), &lint.ptx, (&lint.kernel, report), String::new());
        self.kernels(width, &lint.kernel, &others);
        self.text.push('\n');
    }

    /// Writes the source line and the PTX line, or the PTX line alone; returns the width of the line number.
    fn site(
        &mut self,
        arrow: &str,
        source: Option<&SourceLine>,
        ptx: &PtxLine,
        (kernel, report): (&str, &Report),
        label: String,
    ) -> usize {
        if let Some(place) = source
            && let Some(text) = self.source_line(place)
        {
            let SourceLine { file, line, column } = place;
            let file = file.clone();
            self.snippet(arrow, &Snippet { file, line: *line, column: *column, text: &text, label });
            self.remark(digits(*line), &format!("PTX line {}: {}", ptx.line, ptx.text));
            return digits(*line);
        }
        let whole = report.texts.get(kernel).map(Arc::clone);
        let text = whole.as_deref().and_then(|text| text.lines().nth((ptx.line as usize).saturating_sub(1)));
        let file = match self.ptx {
            Some(path) => path.display().to_string(),
            None => format!("PTX of {kernel}"),
        };
        let text = text.unwrap_or(&ptx.text);
        self.snippet(arrow, &Snippet { file, line: ptx.line, column: 0, text, label });
        if let Some(SourceLine { file, line, .. }) = source {
            self.remark(digits(ptx.line), &format!("from {file}:{line}"));
        }
        digits(ptx.line)
    }

    /// Writes a remark for each caller, with its source line if found; the middle of a long chain is only counted.
    fn callers(&mut self, width: usize, callers: &[SourceLine]) {
        let hidden = INNERMOST..callers.len().saturating_sub(OUTERMOST);
        // Replacing a single caller by a count would save nothing.
        let hidden = if hidden.len() > 1 { hidden } else { 0..0 };
        for (index, place) in callers.iter().enumerate() {
            if index == hidden.start && !hidden.is_empty() {
                self.remark(width, &format!("… {} more callers …", hidden.len()));
            }
            if hidden.contains(&index) {
                continue;
            }
            let text = self.source_line(place).map_or(String::new(), |text| format!(": {}", text.trim()));
            self.remark(width, &format!("inlined at {place}{text}"));
        }
    }

    /// Writes the names of the kernels with the same finding: the first, and some of `others`.
    fn kernels(&mut self, width: usize, first: &str, others: &[&str]) {
        if !first.is_empty() {
            self.remark(width, &format!("kernel {first}"));
        }
        let mut others: Vec<&str> = others.iter().copied().filter(|other| *other != first).collect();
        others.sort_unstable();
        others.dedup();
        if !others.is_empty() {
            let named = others.iter().take(NAMED_KERNELS).copied().collect::<Vec<_>>().join(", ");
            let more = if others.len() > NAMED_KERNELS { ", …" } else { "" };
            self.remark(width, &format!("also in {} more: {named}{more}", others.len()));
        }
    }

    fn heading(&mut self, severity: Severity, kind: &str, message: &str) {
        let (word, color) = match severity {
            Severity::Error => ("error", "\x1b[1;31m"),
            Severity::Note => ("note", "\x1b[1;33m"),
        };
        let (start, end) = self.paint(color);
        let _ = writeln!(self.text, "{start}{word}[{kind}]{end}: {message}");
    }

    fn snippet(&mut self, arrow: &str, snippet: &Snippet<'_>) {
        let Snippet { file, line, column, text, label } = snippet;
        let width = digits(*line);
        let place = if *column > 0 { format!("{file}:{line}:{column}") } else { format!("{file}:{line}") };
        let (blue, end) = self.paint("\x1b[1;34m");
        let (red, _) = self.paint("\x1b[1;31m");
        // Tabs of the line are repeated, so that the caret is aligned.
        let (start, length) = span(text, *column as usize);
        let indent: String =
            text.chars().take(start).map(|letter| if letter == '\t' { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(length);
        let label = if label.is_empty() { String::new() } else { format!(" {label}") };
        let _ = write!(
            self.text,
            "{blue}{:width$}{arrow}{end} {place}\n{blue}{:width$} |{end}\n{blue}{line} |{end} {}\n\
             {blue}{:width$} |{end} {indent}{red}{carets}{label}{end}\n",
            "",
            "",
            text.trim_end(),
            ""
        );
    }

    fn remark(&mut self, width: usize, text: &str) {
        let (blue, end) = self.paint("\x1b[1;34m");
        let _ = writeln!(self.text, "{blue}{:width$} ={end} {text}", "");
    }

    fn paint(&self, code: &'static str) -> (&'static str, &'static str) {
        if self.color { (code, "\x1b[0m") } else { ("", "") }
    }

    /// A line of a source file, if the file is found.
    fn source_line(&mut self, place: &SourceLine) -> Option<String> {
        let ptx = self.ptx;
        let text = self.sources.entry(place.file.clone()).or_insert_with(|| find(&place.file, ptx));
        text.as_ref()?.lines().nth((place.line as usize).checked_sub(1)?).map(str::to_owned)
    }
}

/// Groups items by key, in order: the first item of each group, and the other items of the group.
fn grouped<T, K: PartialEq>(items: &[T], key: impl Fn(&T) -> K) -> Vec<(&T, Vec<&T>)> {
    let mut groups: Vec<(K, &T, Vec<&T>)> = Vec::new();
    for item in items {
        let its = key(item);
        match groups.iter_mut().find(|(known, ..)| *known == its) {
            Some((.., others)) => others.push(item),
            None => groups.push((its, item, Vec::new())),
        }
    }
    groups.into_iter().map(|(_, first, others)| (first, others)).collect()
}

/// Key by which findings are grouped: the source line, or without one the kernel and the PTX line.
fn key(source: Option<&SourceLine>, ptx: Option<&PtxLine>, kernel: &str) -> (String, u32, u32) {
    match (source, ptx) {
        (Some(place), _) => (place.file.clone(), place.line, place.column),
        (None, Some(ptx)) => (kernel.to_owned(), ptx.line, 0),
        (None, None) => (kernel.to_owned(), 0, 0),
    }
}

/// Text of a source file: embedded in the binary for the project's own kernels; else read by its path, from a parent of
/// the current folder, or from the PTX file's folder.
fn find(name: &str, ptx: Option<&Path>) -> Option<String> {
    if let (None, Some(text)) = (ptx, source::find(name)) {
        return Some(text.to_owned());
    }
    let here = std::env::current_dir().unwrap_or_default();
    let above = here.ancestors().map(PathBuf::from);
    let beside = ptx.and_then(Path::parent).map(PathBuf::from);
    above.chain(beside).find_map(|folder| std::fs::read_to_string(folder.join(name)).ok())
}

/// Range to underline: the word at a 1-based column, or the whole line for column 0.
fn span(text: &str, column: usize) -> (usize, usize) {
    let letters: Vec<char> = text.trim_end().chars().collect();
    let first = letters.iter().position(|letter| !letter.is_whitespace()).unwrap_or(0);
    if column == 0 || column > letters.len() {
        return (first, (letters.len() - first).max(1));
    }
    let start = column - 1;
    let word = |letter: &&char| letter.is_alphanumeric() || matches!(letter, '_' | '%' | '$');
    (start, letters[start..].iter().take_while(word).count().max(1))
}

fn digits(line: u32) -> usize {
    line.to_string().len()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use expect_test::expect;

    use super::*;
    use crate::Site;

    #[test]
    fn spans() {
        for (text, column, expected) in [
            ("    y.at(i).store(v);", 13, (12, 5)),
            ("    gate / sum", 5, (4, 4)),
            ("    st.global.f32 [%rd4], %f1;  ", 0, (4, 26)),
            ("a + b", 3, (2, 1)),
            ("short", 99, (0, 5)),
            ("", 0, (0, 1)),
        ] {
            assert_eq!(span(text, column), expected, "{text} {column}");
        }
    }

    #[test]
    fn a_finding_of_two_accesses_labels_both() {
        let site = |line: u32, thread| Site {
            source: Some(SourceLine { file: "no such file.rs".into(), line: 7, column: 3 }),
            inlined_at: Vec::new(),
            ptx: PtxLine { line, text: format!("line {line};") },
            cta: [0; 3],
            thread: Some(thread),
        };
        let finding = Finding {
            kind: "race".into(),
            kernel: "k".into(),
            message: "two threads write one word".into(),
            times: 2,
            sites: vec![site(2, [1, 0, 0]), site(3, [33, 0, 0])],
            address: None,
            space: None,
        };
        let report = Report {
            version: 1,
            subject: "k.ptx".into(),
            launches: 1,
            printed: "x = 1\n".into(),
            findings: vec![finding.clone(), Finding { kernel: "l".into(), ..finding }],
            lints: Vec::new(),
            lints_left_out: 0,
            profiles: Vec::new(),
            texts: HashMap::from([("k".into(), "line 1;\n\tline 2;\n\tline 3;\n".into())]),
        };
        expect![[r#"
            printed by the kernels:
              x = 1

            error[race]: two threads write one word
             --> PTX of k:2
              |
            2 | 	line 2;
              | 	^^^^^^^ thread (1, 0, 0) of CTA (0, 0, 0)
              = from no such file.rs:7
             ::: PTX of k:3
              |
            3 | 	line 3;
              | 	^^^^^^^ the other access: thread (33, 0, 0) of CTA (0, 0, 0)
              = from no such file.rs:7
              = found 2 times
              = kernel k
              = also in 1 more: l

        "#]]
        .assert_eq(&Renderer::new(false, None).report(&report, false));
    }

    #[test]
    fn the_middle_of_a_long_chain_of_callers_is_counted() {
        let place = |line: u32| SourceLine { file: "k.rs".into(), line, column: 5 };
        let few = expect![[r#"
              = inlined at k.rs:1:5
              = inlined at k.rs:2:5
        "#]];
        // Six callers are shown in full: a count of hidden callers would take as many lines.
        let six = expect![[r#"
              = inlined at k.rs:1:5
              = inlined at k.rs:2:5
              = inlined at k.rs:3:5
              = inlined at k.rs:4:5
              = inlined at k.rs:5:5
              = inlined at k.rs:6:5
        "#]];
        let many = expect![[r#"
              = inlined at k.rs:1:5
              = inlined at k.rs:2:5
              = inlined at k.rs:3:5
              = … 35 more callers …
              = inlined at k.rs:39:5
              = inlined at k.rs:40:5
        "#]];
        for (callers, expected) in [(0, expect![""]), (2, few), (6, six), (40, many)] {
            let mut renderer = Renderer::new(false, None);
            renderer.callers(1, &(1..=callers).map(place).collect::<Vec<_>>());
            // Expectations have no common indentation.
            expected.assert_eq(&renderer.text.replace("  = ", "= "));
        }
    }

    #[test]
    fn the_project_s_sources_are_in_the_binary() {
        let file = "/elsewhere/kernels-gen/src/kernels/argmax.rs";
        let text = source::find(file).unwrap();
        let index = text.lines().position(|line| line.contains("pub fn choose_greedy")).unwrap();
        let place = |file: &str| SourceLine { file: file.into(), line: index as u32 + 1, column: 1 };
        let mut own = Renderer::new(false, None);
        assert_eq!(own.source_line(&place(file)).as_deref(), text.lines().nth(index));
        assert_eq!(own.source_line(&place("/elsewhere/argmax.rs")), None);
        // A PTX file may have a different source file of the same name.
        assert_eq!(Renderer::new(false, Some("k.ptx".as_ref())).source_line(&place(file)), None);
    }
}
