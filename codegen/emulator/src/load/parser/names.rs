//! Who has taken which name in one scope.

use std::collections::HashMap;

use crate::load::error::{ParseError, ParseErrorKind};

/// What a scope declares: registers, parameters, variables and labels share their names.
#[derive(Default)]
pub(super) struct Names {
    /// The line of the declaration.
    lines: HashMap<String, u32>,
    /// `%r<12>`: prefix to number and line.
    ranges: HashMap<String, (u64, u32)>,
}

impl Names {
    /// Takes a name.
    ///
    /// # Errors
    /// If it is taken, at the second declaration.
    pub(super) fn declare(&mut self, what: &str, name: &str, at: (u32, u32)) -> Result<(), ParseError> {
        let first = self.lines.get(name).copied().or_else(|| self.range_of(name));
        if let Some(line) = first {
            return Err(taken(what, name, at, line));
        }
        self.lines.insert(name.to_string(), at.0);
        Ok(())
    }

    /// Whether the name is taken.
    pub(super) fn has(&self, name: &str) -> bool {
        self.lines.contains_key(name) || self.range_of(name).is_some()
    }

    /// Takes the names of `count` registers.
    ///
    /// # Errors
    /// If one of them is taken, at the second declaration.
    pub(super) fn declare_range(
        &mut self,
        prefix: &str,
        count: u64,
        at: (u32, u32),
    ) -> Result<(), ParseError> {
        if let Some(&(_, line)) = self.ranges.get(prefix) {
            return Err(taken("register", &format!("{prefix}<…>"), at, line));
        }
        let within =
            |name: &&String| numbered(name).is_some_and(|(its, index)| its == prefix && index < count);
        if let Some(name) = self.lines.keys().filter(within).min() {
            return Err(taken("register", name, at, self.lines[name]));
        }
        self.ranges.insert(prefix.to_string(), (count, at.0));
        Ok(())
    }

    /// The line of the range that has this register.
    fn range_of(&self, name: &str) -> Option<u32> {
        let (prefix, index) = numbered(name)?;
        self.ranges.get(prefix).filter(|&&(count, _)| index < count).map(|&(_, line)| line)
    }
}

/// `%r12` as `%r` and 12.
fn numbered(name: &str) -> Option<(&str, u64)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((prefix, name[prefix.len()..].parse().ok()?))
}

fn taken(what: &str, name: &str, at: (u32, u32), first: u32) -> ParseError {
    let message = format!("{what} `{name}` is declared twice, first on line {first}");
    ParseError::new(ParseErrorKind::Redefined, at, message)
}
