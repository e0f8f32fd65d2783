//! Inputs of several parts as one text: a line `--- NAME` begins each part.

/// The parts with their names, in order; without text before the first line `--- NAME`.
pub fn sections(data: &[u8]) -> Vec<(&str, &[u8])> {
    let mut sections: Vec<(&str, &[u8])> = Vec::new();
    // Offset of the first byte of the part that was begun last.
    let mut begun: Option<(&str, usize)> = None;
    let mut at = 0;
    for line in data.split_inclusive(|&byte| byte == b'\n') {
        if let Some(name) = line.strip_prefix(b"--- ").and_then(|name| std::str::from_utf8(name).ok()) {
            sections.extend(begun.map(|(name, from)| (name, &data[from..at])));
            begun = Some((name.trim_end(), at + line.len()));
        }
        at += line.len();
    }
    sections.extend(begun.map(|(name, from)| (name, &data[from..])));
    sections
}

/// A part as text; `None` if it is missing or not UTF-8.
pub fn text<'a>(sections: &[(&str, &'a [u8])], name: &str) -> Option<&'a str> {
    let (_, bytes) = sections.iter().find(|(found, _)| *found == name)?;
    std::str::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_at_their_lines() {
        let found = sections(b"nothing\n--- a\n1\n2\n--- b.json\n--- c\n\xff");
        assert_eq!(found, [("a", &b"1\n2\n"[..]), ("b.json", b""), ("c", b"\xff")]);
        assert_eq!(text(&found, "a"), Some("1\n2\n"));
        assert_eq!((text(&found, "c"), text(&found, "d")), (None, None));
    }
}
