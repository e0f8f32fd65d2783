//! Formats an assembler's log as a message with the PTX lines that it refers to.

/// Lines of PTX shown before and after the line of an error.
const CONTEXT: usize = 2;
/// Largest number of errors shown. The first is usually the cause of the others.
const MAX_SHOWN: usize = 6;

/// The errors of a log, each with the PTX lines around it.
///
/// The driver's assembler writes `ptxas application ptx input, line 7; error   : Unknown symbol 'x'` and, without a
/// line, `ptxas fatal   : Ptx assembly aborted due to errors`.
pub(super) fn message(log: &str, ptx: &str) -> String {
    let errors: Vec<&str> =
        log.trim_matches('\0').lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if errors.is_empty() {
        return "the assembler rejected the PTX without a message".to_owned();
    }
    let mut out = String::from("the assembler rejected the PTX");
    let mut shown = errors.iter().take(MAX_SHOWN).map(|error| split_line(error)).peekable();
    while let Some((line, words)) = shown.next() {
        out.push_str("\n  ");
        out.push_str(&tidy(words));
        // Errors on the same line share one excerpt.
        let shared = shown.peek().is_some_and(|(next, _)| *next == line);
        if let Some(line) = line.filter(|_| !shared) {
            out.push_str(&excerpt(ptx, line));
        }
    }
    if errors.len() > MAX_SHOWN {
        out.push_str(&format!("\n  … and {} more", errors.len() - MAX_SHOWN));
    }
    out
}

/// The lines around line `line` (1-based), with `line` marked by `>`. Empty if the text has no such line.
pub(super) fn excerpt(ptx: &str, line: usize) -> String {
    if line == 0 || line > ptx.lines().count() {
        return String::new();
    }
    let first = line.saturating_sub(CONTEXT).max(1);
    let mut out = String::new();
    for (number, text) in ptx.lines().enumerate().map(|(i, text)| (i + 1, text)).skip(first - 1) {
        if number > line + CONTEXT {
            break;
        }
        let mark = if number == line { '>' } else { ' ' };
        out.push_str(&format!("\n  {mark} {number:>5} | {}", text.trim_end()));
    }
    out
}

/// Splits `…, line 7; message` into line number and message.
fn split_line(error: &str) -> (Option<usize>, &str) {
    let found = error.split_once("line ").and_then(|(_, rest)| {
        let (number, words) = rest.split_once(';')?;
        Some((number.trim().parse().ok()?, words.trim()))
    });
    match found {
        Some((line, words)) => (Some(line), words),
        None => (None, error.strip_prefix("ptxas").unwrap_or(error).trim()),
    }
}

/// Turns `error   : message` into `error: message`.
fn tidy(words: &str) -> String {
    match words.split_once(':') {
        Some((kind, rest)) if kind.trim().chars().all(char::is_alphabetic) => {
            format!("{}: {}", kind.trim().to_lowercase(), rest.trim())
        }
        _ => words.to_owned(),
    }
}

/// The text's `.version`, as written.
pub(super) fn version(ptx: &str) -> Option<&str> {
    ptx.lines().find_map(|line| line.trim().strip_prefix(".version")).map(str::trim)
}

/// The text's `.target`, as written.
pub(super) fn target(ptx: &str) -> Option<&str> {
    ptx.lines().find_map(|line| line.trim().strip_prefix(".target")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k()\n{\n    mov.u32 %r1, nothing;\n    ret;\n}";

    #[test]
    fn an_error_shows_the_lines_around_it() {
        let log = "ptxas application ptx input, line 6; error   : Unknown symbol 'nothing'\n\
                   ptxas fatal   : Ptx assembly aborted due to errors\n\0\0";
        expect_test::expect![[r#"
            the assembler rejected the PTX
              error: Unknown symbol 'nothing'
                    4 | .entry k()
                    5 | {
              >     6 |     mov.u32 %r1, nothing;
                    7 |     ret;
                    8 | }
              fatal: Ptx assembly aborted due to errors"#]]
        .assert_eq(&message(log, PTX));
    }

    #[test]
    fn excerpts_end_at_the_edges_of_the_text() {
        assert_eq!(excerpt(PTX, 1).lines().count(), 1 + 3);
        assert_eq!(excerpt(PTX, 8).lines().count(), 1 + 3);
        assert_eq!(excerpt(PTX, 9), "");
        assert_eq!(excerpt(PTX, 0), "");
        assert_eq!(excerpt("", 1), "");
    }

    #[test]
    fn a_long_log_is_cut() {
        let log = "ptxas application ptx input, line 7; error : again\n".repeat(9);
        let message = message(&log, PTX);
        assert_eq!(message.matches("error: again").count(), MAX_SHOWN);
        assert_eq!(message.matches("  >").count(), 1, "one excerpt for each line: {message}");
        assert!(message.ends_with("… and 3 more"), "{message}");
    }

    #[test]
    fn an_empty_log_has_a_message() {
        assert_eq!(message("\0\0", PTX), "the assembler rejected the PTX without a message");
    }

    #[test]
    fn directives_are_read_as_written() {
        assert_eq!((version(PTX), target(PTX)), (Some("8.0"), Some("sm_90")));
    }
}
