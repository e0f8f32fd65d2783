//! Search for calls in a text that arrives in parts.

use std::sync::Arc;

use super::object::{Element, ObjectScanner, element, head};
use super::parameters::{Next, ParameterReader, function_head};
use super::piece::Piece;
use super::written;
use super::{CallForm, FUNCTION, LIST, PYTHON, TAGS, Types};

/// Search for calls in a text that arrives in parts. Text that may be a call is held back until it is decided; arguments are
/// returned as they arrive, unless only the whole call tells them.
pub struct CallParser {
    form: CallForm,
    types: Arc<Types>,
    held: String,
    state: ParserState,
    /// Whether the last call is part of a list.
    in_list: bool,
    /// Whether other text than white space has been returned.
    begun: bool,
    /// Whether a call has been returned.
    called: bool,
}

/// Where in the text [`CallParser::held`] begins.
enum ParserState {
    /// In text, or before a call whose arguments are not known to begin.
    Outside,
    /// In the arguments of a call.
    Arguments(ObjectScanner),
    /// In the parameters of a call of [`CallForm::Functions`].
    Parameters(ParameterReader),
    /// After the arguments of a call.
    Closing,
    /// In a list, after a call.
    AfterElement,
}

impl CallParser {
    /// A parser at the beginning of an answer.
    pub fn new(form: CallForm, types: Arc<Types>) -> CallParser {
        let (held, state) = (String::new(), ParserState::Outside);
        CallParser { form, types, held, state, in_list: false, begun: false, called: false }
    }

    /// Adds a part of the text, and returns what is decided.
    pub fn push(&mut self, part: &str) -> Vec<Piece> {
        self.held += part;
        let mut pieces = Vec::new();
        while match (&self.state, self.form) {
            (ParserState::Arguments(_), _) => self.arguments(&mut pieces),
            (ParserState::Parameters(_), _) => self.parameters(&mut pieces),
            (ParserState::Closing, _) => self.closing(),
            (ParserState::AfterElement, _) => self.after_element(&mut pieces),
            (ParserState::Outside, CallForm::Tagged | CallForm::Functions) => self.tagged(&mut pieces),
            // Models of either form may write the other one.
            (ParserState::Outside, CallForm::Listed | CallForm::Named) => self.marked(&mut pieces),
            (ParserState::Outside, CallForm::Bare) => self.bare(&mut pieces),
        } {}
        pieces
    }

    /// Ends the text, and returns the rest.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let held = std::mem::take(&mut self.held);
        if !matches!(self.state, ParserState::Outside | ParserState::AfterElement) {
            // The answer ended within a call whose beginning has been returned.
            return pieces;
        }
        let calls = match self.form {
            // A call at the end may lack its closing tag: it may be a control token that ended the answer.
            CallForm::Tagged => {
                held.trim_start().strip_prefix(TAGS.0).and_then(written::one).map(|call| vec![call])
            }
            CallForm::Bare if !self.begun => written::separated(self.first_call(&held)),
            // Whole calls of the other forms have been returned.
            _ => None,
        };
        match calls {
            Some(calls) => pieces.extend(calls),
            // White space after calls is no text.
            None if self.called && held.trim().is_empty() => {}
            None => self.text(held, &mut pieces),
        }
        pieces
    }

    /// Returns the beginning of a call whose arguments begin at a byte of the held text.
    fn begin(&mut self, name: String, at: usize, pieces: &mut Vec<Piece>) {
        self.held.drain(..at);
        self.state = ParserState::Arguments(ObjectScanner::default());
        self.called = true;
        pieces.push(Piece::Call { name, arguments: String::new() });
    }

    /// Returns a part of the arguments; returns whether they have ended.
    fn arguments(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let ParserState::Arguments(scanner) = &mut self.state else { return false };
        let end = scanner.scan(&self.held);
        let rest = self.held.split_off(end.unwrap_or(self.held.len()));
        let part = std::mem::replace(&mut self.held, rest);
        if !part.is_empty() {
            pieces.push(Piece::Arguments(part));
        }
        if end.is_some() {
            self.state = ParserState::Closing;
        }
        end.is_some()
    }

    /// Returns a part of the arguments that the parameters are; returns whether they have ended.
    fn parameters(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let ParserState::Parameters(reader) = &mut self.state else { return false };
        let mut part = String::new();
        let next = reader.read(&mut self.held, &self.types, &mut part);
        if !part.is_empty() {
            pieces.push(Piece::Arguments(part));
        }
        if next != Next::Parameters {
            self.state = ParserState::Closing;
        }
        next != Next::Parameters
    }

    /// Drops the end of a call; returns whether it was there.
    fn closing(&mut self) -> bool {
        let end = match self.form {
            CallForm::Functions if self.held.trim_start().starts_with(FUNCTION) => {
                // Another call between the same tags.
                self.held.insert_str(0, TAGS.0);
                Some(0)
            }
            CallForm::Tagged | CallForm::Functions => self.held.find(TAGS.1).map(|at| at + TAGS.1.len()),
            CallForm::Listed | CallForm::Named if self.in_list => ObjectScanner::inside().scan(&self.held),
            CallForm::Listed | CallForm::Named => Some(0),
            CallForm::Bare => {
                let start = self.held.trim_start();
                let brace = usize::from(start.starts_with('}'));
                (!start.is_empty()).then_some(self.held.len() - start.len() + brace)
            }
        };
        let Some(end) = end else { return false };
        self.held.drain(..end);
        self.state = if self.in_list { ParserState::AfterElement } else { ParserState::Outside };
        true
    }

    /// Returns the next call of a list, or drops the end of the list; returns whether there may be more.
    fn after_element(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let start = self.held.trim_start();
        let at = self.held.len() - start.len();
        if start.is_empty() {
            return false;
        }
        if start.starts_with(']') {
            self.held.drain(..=at);
        } else if let Some(rest) = start.strip_prefix(',') {
            let next = element(rest);
            if next == Element::Incomplete {
                return false;
            }
            if self.listed(next, at + 1, pieces) {
                return true;
            }
        }
        // The rest is text.
        self.in_list = false;
        self.state = ParserState::Outside;
        true
    }

    /// Returns the call of a list that begins at a byte of the held text; returns whether it is one.
    fn listed(&mut self, element: Element, at: usize, pieces: &mut Vec<Piece>) -> bool {
        match element {
            Element::Head(name, length) => self.begin(name, at + length, pieces),
            Element::Whole(length) => {
                let Some(call) = written::one(&self.held[at..at + length]) else { return false };
                self.held.drain(..at + length);
                self.state = ParserState::AfterElement;
                self.called = true;
                pieces.push(call);
            }
            Element::Incomplete | Element::Other => return false,
        }
        self.in_list = true;
        true
    }

    /// The text of [`CallForm::Bare`] from the next call on, without what stands before it.
    fn first_call<'a>(&self, text: &'a str) -> &'a str {
        let text = text.trim();
        let text = if self.called { text.trim_start_matches(';').trim_start() } else { text };
        text.trim_start_matches(PYTHON).trim_start()
    }

    /// Returns text that is no call, or the beginning of a call; returns whether there may be more.
    fn bare(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let start = self.held.trim_start();
        let may_call = start.is_empty() || start.starts_with('{') || common_start(start, PYTHON);
        if self.begun || !(may_call || self.called && start.starts_with(';')) {
            let text = std::mem::take(&mut self.held);
            self.text(text, pieces);
            return false;
        }
        let call = self.first_call(&self.held);
        let Some((name, at)) = head(call) else { return false };
        let before = self.held.find(call).unwrap_or_default();
        self.begin(name, before + at, pieces);
        true
    }

    fn text(&mut self, text: String, pieces: &mut Vec<Piece>) {
        self.begun |= !text.trim().is_empty();
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
    }

    /// Returns the text before a mark, or before what may become one, and before white space ahead of it.
    fn before(&mut self, mark: &str, pieces: &mut Vec<Piece>) {
        let may_start = |at: &usize| mark.starts_with(&self.held[*at..]);
        let partial = || self.held.char_indices().map(|(at, _)| at).find(may_start);
        let at = self.held.find(mark).or_else(partial).unwrap_or(self.held.len());
        let rest = self.held.split_off(self.held[..at].trim_end().len());
        let text = std::mem::replace(&mut self.held, rest);
        self.text(text, pieces);
    }

    /// Returns text and a call with tags; returns whether there may be more.
    fn tagged(&mut self, pieces: &mut Vec<Piece>) -> bool {
        self.before(TAGS.0, pieces);
        let inside = self.held.trim_start().strip_prefix(TAGS.0).unwrap_or_default();
        let before = self.held.len() - inside.len();
        if self.form == CallForm::Functions {
            if self.function(before, pieces) {
                return true;
            }
        } else if let Some((name, at)) = head(inside) {
            self.begin(name, before + at, pieces);
            return true;
        }
        let Some(end) = self.held.find(TAGS.1) else { return false };
        let rest = self.held.split_off(end + TAGS.1.len());
        let whole = std::mem::replace(&mut self.held, rest);
        match whole.get(before..end).filter(|_| self.form == CallForm::Tagged).and_then(written::one) {
            Some(call) => {
                self.called = true;
                pieces.push(call);
            }
            None => self.text(whole, pieces),
        }
        true
    }

    /// Returns the beginning of a function at a byte of the held text, once something of its arguments is decided; returns whether
    /// it is.
    fn function(&mut self, at: usize, pieces: &mut Vec<Piece>) -> bool {
        let Some((name, length)) = function_head(&self.held[at..]) else { return false };
        let mut reader = ParameterReader::new(name);
        let mut rest = self.held[at + length..].to_owned();
        let mut arguments = String::new();
        let next = reader.read(&mut rest, &self.types, &mut arguments);
        if arguments.is_empty() {
            return false;
        }
        pieces.push(Piece::Call { name: name.to_owned(), arguments: String::new() });
        pieces.push(Piece::Arguments(arguments));
        self.held = rest;
        self.state =
            if next == Next::Parameters { ParserState::Parameters(reader) } else { ParserState::Closing };
        self.called = true;
        true
    }

    /// Returns text and a call behind the mark, with a name or in a list; returns whether there may be more.
    fn marked(&mut self, pieces: &mut Vec<Piece>) -> bool {
        self.before(LIST, pieces);
        let start = self.held.trim_start();
        let at = self.held.len() - start.len();
        if let Some(list) = start.strip_prefix(LIST).and_then(|list| list.trim_start().strip_prefix('[')) {
            let at = self.held.len() - list.len();
            return self.listed(element(list), at, pieces);
        }
        let Some((name, length)) = written::named_head(start) else { return false };
        self.begin(name, at + length, pieces);
        true
    }
}

/// Whether one text begins with the other.
fn common_start(a: &str, b: &str) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

#[cfg(test)]
mod tests;
