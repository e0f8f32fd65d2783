//! Names declared in one scope.

use std::collections::HashMap;

use crate::load::error::{ParseError, ParseErrorKind};

/// Names declared in a scope. Registers, parameters, variables and labels share one namespace.
#[derive(Default)]
pub(super) struct Names {
    /// Line of each name's declaration.
    lines: HashMap<String, u32>,
    /// Lowest number, and the name, of the declared names that are a prefix and a number.
    numbered: HashMap<String, (u64, String)>,
    /// Register ranges such as `%r<12>`: prefix to the number of registers and the line of the declaration.
    ranges: HashMap<String, (u64, u32)>,
}

impl Names {
    /// Declares a name; `what` describes its kind in an error message.
    ///
    /// # Errors
    /// If the name is already declared. The error has the position `at`.
    pub(super) fn declare(&mut self, what: &str, name: &str, at: (u32, u32)) -> Result<(), ParseError> {
        let first = self.lines.get(name).copied().or_else(|| self.range_of(name));
        if let Some(line) = first {
            return Err(redefined(what, name, at, line));
        }
        self.lines.insert(name.to_string(), at.0);
        if let Some((prefix, number)) = split_number(name)
            && self.numbered.get(prefix).is_none_or(|&(lowest, _)| number < lowest)
        {
            self.numbered.insert(prefix.to_string(), (number, name.to_string()));
        }
        Ok(())
    }

    /// Whether the name is declared in the scope.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.lines.contains_key(name) || self.range_of(name).is_some()
    }

    /// Declares `count` registers whose names are `prefix` and a number.
    ///
    /// # Errors
    /// If one of the names is already declared. The error has the position `at`.
    pub(super) fn declare_range(
        &mut self,
        prefix: &str,
        count: u64,
        at: (u32, u32),
    ) -> Result<(), ParseError> {
        if let Some(&(_, line)) = self.ranges.get(prefix) {
            return Err(redefined("register", &format!("{prefix}<…>"), at, line));
        }
        if let Some((_, name)) = self.numbered.get(prefix).filter(|&&(lowest, _)| lowest < count) {
            return Err(redefined("register", name, at, self.lines[name]));
        }
        self.ranges.insert(prefix.to_string(), (count, at.0));
        Ok(())
    }

    /// Line of the register range that declares the register `name`.
    fn range_of(&self, name: &str) -> Option<u32> {
        let (prefix, index) = split_number(name)?;
        self.ranges.get(prefix).filter(|&&(count, _)| index < count).map(|&(_, line)| line)
    }
}

/// Splits a register name such as `%r12` into `%r` and 12.
fn split_number(name: &str) -> Option<(&str, u64)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    Some((prefix, name[prefix.len()..].parse().ok()?))
}

fn redefined(what: &str, name: &str, at: (u32, u32), first: u32) -> ParseError {
    let message = format!("{what} `{name}` is declared twice, first on line {first}");
    ParseError::new(ParseErrorKind::Redefined, at, message)
}
