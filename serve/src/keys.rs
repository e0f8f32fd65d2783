//! API keys.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// API keys, of which only hashes are kept.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    hashes: Vec<[u8; 32]>,
}

impl Keys {
    /// Reads keys, one a line. Empty lines and lines that start with `#` are left out.
    pub fn parse(text: &str) -> Keys {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Keys { hashes: lines.map(hash).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether a key is one of these. The time does not depend on how much of a key is right: hashes are compared, all of
    /// them, in constant time.
    pub(crate) fn contain(&self, key: &str) -> bool {
        let key = hash(key);
        let found = self.hashes.iter().fold(Choice::from(0), |found, other| found | other.ct_eq(&key));
        found.into()
    }
}

fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key() {
        let keys = Keys::parse("# ours\nsk-one\n\n  sk-two  \n");
        for (key, known) in
            [("sk-one", true), ("sk-two", true), ("sk-on", false), ("", false), ("# ours", false)]
        {
            assert_eq!(keys.contain(key), known, "{key}");
        }
        assert!(!keys.is_empty() && Keys::parse("\n# none\n").is_empty());
    }
}
