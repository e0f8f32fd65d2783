//! Turns an assembler's log into a message that shows the PTX it complains about.

/// Lines of PTX shown on either side of the one that an assembler names.
const CONTEXT: usize = 2;
/// Complaints shown; the first is nearly always the cause of the rest.
const SHOWN: usize = 6;

/// The log's complaints, each under its words with the PTX lines around it.
///
/// The driver's assembler writes `ptxas application ptx input, line 7; error   : Unknown symbol 'x'` and, without a
/// line, `ptxas fatal   : Ptx assembly aborted due to errors`.
pub(super) fn refusal(log: &str, ptx: &str) -> String {
    let complaints: Vec<&str> =
        log.trim_matches('\0').lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if complaints.is_empty() {
        return "the assembler refused the PTX and did not say why".to_owned();
    }
    let mut out = String::from("the assembler refused the PTX");
    let mut shown = complaints.iter().take(SHOWN).map(|complaint| split_line(complaint)).peekable();
    while let Some((line, words)) = shown.next() {
        out.push_str("\n  ");
        out.push_str(&tidy(words));
        // Several complaints about one line share one excerpt.
        let said_next = shown.peek().is_some_and(|(next, _)| *next == line);
        if let Some(line) = line.filter(|_| !said_next) {
            out.push_str(&excerpt(ptx, line));
        }
    }
    if complaints.len() > SHOWN {
        out.push_str(&format!("\n  … and {} more", complaints.len() - SHOWN));
    }
    out
}

/// The lines around line `line` (counted from 1), each on a new line, the one meant marked with `>`; empty where the
/// text has no such line.
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

/// Splits `…, line 7; words` into the line's number and the words.
fn split_line(complaint: &str) -> (Option<usize>, &str) {
    let found = complaint.split_once("line ").and_then(|(_, rest)| {
        let (number, words) = rest.split_once(';')?;
        Some((number.trim().parse().ok()?, words.trim()))
    });
    match found {
        Some((line, words)) => (Some(line), words),
        None => (None, complaint.strip_prefix("ptxas").unwrap_or(complaint).trim()),
    }
}

/// `error   : words` as `error: words`.
fn tidy(words: &str) -> String {
    match words.split_once(':') {
        Some((kind, rest)) if kind.trim().chars().all(char::is_alphabetic) => {
            format!("{}: {}", kind.trim().to_lowercase(), rest.trim())
        }
        _ => words.to_owned(),
    }
}

/// The `.version` that a PTX text asks for, as written.
pub(super) fn version(ptx: &str) -> Option<&str> {
    ptx.lines().find_map(|line| line.trim().strip_prefix(".version")).map(str::trim)
}

/// The `.target` that a PTX text asks for, as written.
pub(super) fn target(ptx: &str) -> Option<&str> {
    ptx.lines().find_map(|line| line.trim().strip_prefix(".target")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k()\n{\n    mov.u32 %r1, nothing;\n    ret;\n}";

    #[test]
    fn a_complaint_shows_the_lines_around_it() {
        let log = "ptxas application ptx input, line 6; error   : Unknown symbol 'nothing'\n\
                   ptxas fatal   : Ptx assembly aborted due to errors\n\0\0";
        expect_test::expect![[r#"
            the assembler refused the PTX
              error: Unknown symbol 'nothing'
                    4 | .entry k()
                    5 | {
              >     6 |     mov.u32 %r1, nothing;
                    7 |     ret;
                    8 | }
              fatal: Ptx assembly aborted due to errors"#]]
        .assert_eq(&refusal(log, PTX));
    }

    #[test]
    fn the_edges_of_the_text_are_kept() {
        assert_eq!(excerpt(PTX, 1).lines().count(), 1 + 3);
        assert_eq!(excerpt(PTX, 8).lines().count(), 1 + 3);
        assert_eq!(excerpt(PTX, 9), "");
        assert_eq!(excerpt(PTX, 0), "");
        assert_eq!(excerpt("", 1), "");
    }

    #[test]
    fn a_long_log_is_cut() {
        let log = "ptxas application ptx input, line 7; error : again\n".repeat(9);
        let message = refusal(&log, PTX);
        assert_eq!(message.matches("error: again").count(), SHOWN);
        assert_eq!(message.matches("  >").count(), 1, "one line, one excerpt: {message}");
        assert!(message.ends_with("… and 3 more"), "{message}");
    }

    #[test]
    fn an_empty_log_says_so() {
        assert_eq!(refusal("\0\0", PTX), "the assembler refused the PTX and did not say why");
    }

    #[test]
    fn directives_are_read_as_written() {
        assert_eq!((version(PTX), target(PTX)), (Some("8.0"), Some("sm_90")));
    }
}
