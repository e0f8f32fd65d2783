//! Filters around the expressions of a tag.
//!
//! The positions are found without a grammar: brackets nest, and commas, comparisons and keywords separate sums.

use super::tokens::{Token, tokens};
use super::{CALL_PLUS, ITERABLE, SIZED, STORED};

/// A bracket, or the whole tag.
#[derive(Default)]
struct Frame {
    /// Position of the bracket.
    open: usize,
    /// Whether the bracket starts a list, a mapping, a tuple or a group, rather than arguments or an index.
    is_value: bool,
    is_group: bool,
    has_comma: bool,
    /// Whether there is a name inside, so that the value is not a constant.
    has_name: bool,
    /// Start of the current sum.
    sum: Option<usize>,
    /// Whether the current sum has an operator that makes a larger value.
    grows: bool,
    /// Positions of `+` in the current sum, and whether it has a `-`.
    pluses: Vec<usize>,
    has_minus: bool,
}

/// Insertions into a tag: a position, the number of bytes that are replaced, and two texts.
#[derive(Default)]
struct Insertions(Vec<(usize, usize, &'static str, &'static str)>);

impl Insertions {
    /// Puts a filter behind the expression from `start` to `end`.
    fn filter(&mut self, start: usize, end: usize, filter: &'static str) {
        self.0.push((start, 0, "(", ""));
        self.0.push((end, 0, ")|", filter));
    }

    /// As `filter`, as an operand.
    fn operand(&mut self, start: usize, end: usize, filter: &'static str) {
        self.filter(start, end, filter);
        self.0.push((start, 0, "(", ""));
        self.0.push((end, 0, ")", ""));
    }

    /// Replaces the `+` of a sum by the filter [`super::PLUS`].
    fn sum(&mut self, start: usize, end: usize, pluses: &[usize]) {
        self.0.push((start, 0, "(", ""));
        self.0.extend(pluses.iter().map(|&plus| (plus, 1, ")|", CALL_PLUS)));
        self.0.push((end, 0, ")", ""));
    }

    fn apply(mut self, tag: &str) -> String {
        // Stable: at one position, inner brackets close before outer ones.
        self.0.sort_by_key(|insertion| insertion.0);
        let mut out = String::with_capacity(tag.len() + 16 * self.0.len());
        let mut at = 0;
        for (position, replaced, bracket, filter) in self.0 {
            out.push_str(&tag[at..position]);
            out.push_str(bracket);
            out.push_str(filter);
            at = position + replaced;
        }
        out + &tag[at..]
    }
}

/// Adds filters to a tag with this name (empty for `{{`). `marks_text` tells that the template has text that is marked as
/// safe for HTML, so that `+` needs a filter.
pub fn with_filters(tag: &str, name: &str, marks_text: bool) -> String {
    let inner = tag.strip_suffix("%}").or(tag.strip_suffix("}}")).unwrap_or(tag);
    let inner = inner.strip_suffix(['-', '+']).unwrap_or(inner);
    let from = 2 + usize::from(inner[2..].starts_with(['-', '+']));
    let mut all = tokens(inner, from).peekable();
    // The tag's name is no operand.
    if !name.is_empty() {
        all.next();
    }
    let mut insertions = Insertions::default();
    let mut frames = vec![Frame::default()];
    // The whole expression of a `set` or `for` tag, with its filter.
    let mut whole: Option<(usize, &'static str)> = None;
    let mut target = Target::of(name);
    let mut previous: Option<Token<'_>> = None;
    while let Some(token) = all.next() {
        if target.is_open(&token) {
            if target.ends_with(&token) {
                let start = all.peek().map_or(inner.len(), |token| token.start);
                whole = Some((start, target.filter));
                target.separator = None;
            }
            continue;
        }
        let after_operand = previous.as_ref().is_some_and(Token::ends_operand);
        let after_is = previous.as_ref().is_some_and(|token| token.text == "is");
        let end = previous.as_ref().map_or(token.start, Token::end);
        let depth = frames.len();
        let Some(frame) = frames.last_mut() else { break };
        match token.text {
            "(" | "[" | "{" => {
                frame.sum.get_or_insert(token.start);
                let is_group = token.text == "(";
                frames.push(Frame {
                    open: token.start,
                    is_value: !after_operand,
                    is_group,
                    ..Frame::default()
                });
            }
            ")" | "]" | "}" if depth > 1 => {
                finish_sum(frame, end, &mut insertions);
                let closed = frames.pop().unwrap_or_default();
                if closed.is_value && closed.has_name && (!closed.is_group || closed.has_comma) {
                    insertions.operand(closed.open, token.end(), SIZED);
                }
                if let Some(frame) = frames.last_mut() {
                    frame.has_name |= closed.has_name;
                }
            }
            "if" | "recursive" if depth == 1 && name == "for" => {
                finish_sum(frame, end, &mut insertions);
                if let Some((start, filter)) = whole.take() {
                    insertions.filter(start, end, filter);
                }
            }
            "not" | "in" if after_is => {}
            "," | ":" | "=" | "<" | ">" | "!" | "and" | "or" | "not" | "in" | "if" | "else" => {
                frame.has_comma |= token.text == ",";
                finish_sum(frame, end, &mut insertions);
            }
            text => {
                frame.sum.get_or_insert(token.start);
                frame.grows |= after_operand && matches!(text, "+" | "*" | "%" | "~");
                if after_operand && text == "+" && marks_text {
                    frame.pluses.push(token.start);
                }
                frame.has_minus |= text == "-";
                frame.has_name |= text.starts_with(|c: char| c.is_alphabetic() || c == '_');
            }
        }
        previous = Some(token);
    }
    let end = previous.as_ref().map_or(inner.len(), Token::end);
    // An unclosed bracket is a syntax error, which minijinja reports.
    if let [frame] = frames.as_mut_slice() {
        finish_sum(frame, end, &mut insertions);
        if let Some((start, filter)) = whole.filter(|(start, _)| *start < end) {
            insertions.filter(start, end, filter);
        }
        return insertions.apply(tag);
    }
    tag.to_owned()
}

/// Ends the current sum of a bracket.
fn finish_sum(frame: &mut Frame, end: usize, insertions: &mut Insertions) {
    let (pluses, has_minus) = (std::mem::take(&mut frame.pluses), std::mem::take(&mut frame.has_minus));
    if let (Some(start), true) = (frame.sum.take(), std::mem::take(&mut frame.grows)) {
        // A difference is a number.
        if !has_minus && !pluses.is_empty() {
            insertions.sum(start, end, &pluses);
        }
        insertions.operand(start, end, SIZED);
    }
}

/// Left side of a `set` or `for` tag: names that values are assigned to.
struct Target {
    /// Token after the left side; none once it was found, and in other tags.
    separator: Option<&'static str>,
    /// Filter of the right side.
    filter: &'static str,
    depth: usize,
}

impl Target {
    fn of(name: &str) -> Target {
        let (separator, filter) = match name {
            "set" => (Some("="), SIZED),
            "for" => (Some("in"), ITERABLE),
            _ => (None, ""),
        };
        Target { separator, filter, depth: 0 }
    }

    /// Whether a token belongs to the left side, or separates it.
    fn is_open(&mut self, token: &Token<'_>) -> bool {
        match token.text {
            "(" => self.depth += 1,
            ")" => self.depth = self.depth.saturating_sub(1),
            // A namespace's attribute.
            "." if self.filter == SIZED && self.separator.is_some() => self.filter = STORED,
            _ => {}
        }
        self.separator.is_some()
    }

    fn ends_with(&self, token: &Token<'_>) -> bool {
        self.depth == 0 && self.separator == Some(token.text)
    }
}
