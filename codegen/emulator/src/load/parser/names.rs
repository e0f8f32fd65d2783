//! Names declared in one scope.

use std::collections::HashMap;

use crate::load::error::{ParseError, ParseErrorKind};

/// Declared names of a scope. Registers, parameters, variables and labels share one namespace.
#[derive(Default)]
pub(super) struct Names {
    /// Name to the line of its declaration.
    lines: HashMap<String, u32>,
    /// `%r<12>`: prefix to the number of registers and the line.
    ranges: HashMap<String, (u64, u32)>,
}

impl Names {
    /// Declares a name of the kind `what`.
    ///
    /// # Errors
    /// If the name is already declared. The error is at `at`.
    pub(super) fn declare(&mut self, what: &str, name: &str, at: (u32, u32)) -> Result<(), ParseError> {
        let first = self.lines.get(name).copied().or_else(|| self.range_of(name));
        if let Some(line) = first {
            return Err(redefined(what, name, at, line));
        }
        self.lines.insert(name.to_string(), at.0);
        Ok(())
    }

    /// Whether the name is declared.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.lines.contains_key(name) || self.range_of(name).is_some()
    }

    /// Declares `count` registers with this prefix.
    ///
    /// # Errors
    /// If one of the names is already declared. The error is at `at`.
    pub(super) fn declare_range(
        &mut self,
        prefix: &str,
        count: u64,
        at: (u32, u32),
    ) -> Result<(), ParseError> {
        if let Some(&(_, line)) = self.ranges.get(prefix) {
            return Err(redefined("register", &format!("{prefix}<…>"), at, line));
        }
        let in_range =
            |name: &&String| split_number(name).is_some_and(|(stem, index)| stem == prefix && index < count);
        if let Some(name) = self.lines.keys().filter(in_range).min() {
            return Err(redefined("register", name, at, self.lines[name]));
        }
        self.ranges.insert(prefix.to_string(), (count, at.0));
        Ok(())
    }

    /// The line of the range that declares this register.
    fn range_of(&self, name: &str) -> Option<u32> {
        let (prefix, index) = split_number(name)?;
        self.ranges.get(prefix).filter(|&&(count, _)| index < count).map(|&(_, line)| line)
    }
}

/// Splits `%r12` into `%r` and 12.
fn split_number(name: &str) -> Option<(&str, u64)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((prefix, name[prefix.len()..].parse().ok()?))
}

fn redefined(what: &str, name: &str, at: (u32, u32), first: u32) -> ParseError {
    let message = format!("{what} `{name}` is declared twice, first on line {first}");
    ParseError::new(ParseErrorKind::Redefined, at, message)
}
