//! Words for numbers.

/// A number and what it counts: `1 token`, `2 tokens`.
pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_no_plural() {
        let texts = [0, 1, 2].map(|count| counted(count, "token"));
        assert_eq!(texts, ["0 tokens", "1 token", "2 tokens"]);
    }
}
