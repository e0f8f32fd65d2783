//! Header of a PTX text: `.version`, then `.target`.

use super::Parser;
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::Token;
use crate::load::requirement::{IsaVersion, NEWEST, TARGET_OPTIONS, Target, is_released};

impl Parser<'_> {
    /// Parses the header. A missing directive is reported; later instructions are then not checked against that
    /// directive.
    pub(super) fn header(&mut self) -> Result<(), ParseError> {
        let has_version = self.peek() == Token::Dot("version");
        if has_version {
            self.version()?;
        }
        let has_target = self.peek() == Token::Dot("target");
        let missing = match (has_version, has_target) {
            (true, true) => None,
            (true, false) => Some("`.target` is missing after `.version`"),
            (false, true) => Some("`.version` is missing: a PTX text starts with it"),
            (false, false) => Some("`.version` and `.target` are missing: a PTX text starts with them"),
        };
        if let Some(missing) = missing {
            let error = self.error(missing);
            self.report(error);
        }
        if has_target { self.target() } else { Ok(()) }
    }

    /// Parses a version such as `.version 8.0`.
    pub(super) fn version(&mut self) -> Result<(), ParseError> {
        self.at += 1;
        let Token::F64(bits) = self.peek() else { return self.expected("a version, such as `8.0`") };
        let version = parts(f64::from_bits(bits));
        if !is_released(version) {
            let newest = NEWEST.0;
            let error = self.error_of(
                ParseErrorKind::Target,
                format!("there is no PTX version {}; the newest are {newest}.x", f64::from_bits(bits)),
            );
            self.report(error);
        }
        self.platform.version = Some(version);
        self.at += 1;
        Ok(())
    }

    /// Parses targets such as `.target sm_90, debug`. A text may have several `.target` directives; each applies to the
    /// text after it.
    pub(super) fn target(&mut self) -> Result<(), ParseError> {
        self.at += 1;
        self.form_errors.clear();
        loop {
            let at = self.here();
            let name = self.ident("a target")?;
            if let Some(target) = Target::named(name) {
                self.platform.target = Some(target);
                self.ast.target.get_or_insert(target.number);
                self.refuse_older_version(target, at);
            } else if Target::is_newer_than_known(name) {
                let message = format!("the emulator does not know the target `{name}`");
                self.report(ParseError::new(ParseErrorKind::Unsupported, at, message));
            } else if !TARGET_OPTIONS.contains(&name) {
                self.report(ParseError::new(ParseErrorKind::Target, at, format!("unknown target `{name}`")));
            }
            if !self.take(',') {
                return Ok(());
            }
        }
    }

    fn refuse_older_version(&mut self, target: &Target, at: (u32, u32)) {
        if let Some((major, minor)) = self.platform.version
            && (major, minor) < target.since
        {
            let (name, (needs, least)) = (target.name, target.since);
            let message = format!(
                "`{name}` needs `.version` {needs}.{least} or later, but the text names {major}.{minor}"
            );
            self.report(ParseError::new(ParseErrorKind::Target, at, message));
        }
    }
}

/// Splits the version 8.1 into 8 and 1; minor versions have one digit.
fn parts(version: f64) -> IsaVersion {
    let major = version.trunc();
    (major as u32, ((version - major) * 10.0).round() as u32)
}
