//! Parser of kernel signatures in PTX text: names, and offsets of parameters.
//!
//! Layout (PTX ISA, "Kernel Function Parameters"): parameters are laid out in declaration order, each at the next
//! multiple of its alignment, which is `.align` for arrays and the size of the type for scalars.

/// Parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Offset in bytes from the start of the parameters.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
}

/// Signature of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSignature {
    /// Name of the kernel.
    pub name: String,
    /// Parameters in order.
    pub parameters: Vec<Parameter>,
}

impl KernelSignature {
    /// Size of all parameters in bytes, padding between them included.
    pub fn parameter_bytes(&self) -> usize {
        self.parameters.last().map_or(0, |last| last.offset + last.bytes)
    }
}

/// Signatures of the kernels in a PTX text, in order. An error quotes the declaration that cannot be parsed.
pub(super) fn signatures(ptx: &str) -> Result<Vec<KernelSignature>, String> {
    let text = blank_comments_and_strings(ptx);
    text.split(".entry").skip(1).map(entry).collect()
}

/// Parses the text after `.entry`.
fn entry(text: &str) -> Result<KernelSignature, String> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let unclear = |what: &str| format!("cannot parse the declaration of kernel `{name}`: {what}");
    let mut parameters = Vec::new();
    if let Some(list) = rest.trim_start().strip_prefix('(') {
        let (list, _) = list.split_once(')').ok_or_else(|| unclear("no `)`"))?;
        let mut end: usize = 0;
        for declaration in list.split(',').map(str::trim).filter(|declaration| !declaration.is_empty()) {
            let (bytes, align) = size_and_align(declaration).ok_or_else(|| unclear(declaration))?;
            let place = end.checked_next_multiple_of(align).and_then(|at| Some((at, at.checked_add(bytes)?)));
            let (offset, after) = place.ok_or_else(|| unclear(declaration))?;
            parameters.push(Parameter { offset, bytes });
            end = after;
        }
    }
    Ok(KernelSignature { name: name.to_owned(), parameters })
}

/// Size and alignment of `.param .u64 name`, `.param .u64 .ptr .global .align 16 name` or
/// `.param .align 16 .b8 name[32]`.
fn size_and_align(declaration: &str) -> Option<(usize, usize)> {
    let spaced = declaration.replace('[', " [ ").replace(']', " ] ");
    let mut words = spaced.split_whitespace();
    let mut align = 1;
    let element = loop {
        match words.next()? {
            ".param" => {}
            ".align" => align = words.next()?.parse().ok()?,
            word => break type_bytes(word)?,
        }
    };
    let count = match words.skip_while(|&word| word != "[").nth(1) {
        Some(count) => count.parse().ok()?,
        None => 1,
    };
    Some((element.checked_mul(count)?, element.max(align)))
}

fn type_bytes(word: &str) -> Option<usize> {
    Some(match word {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        ".b128" => 16,
        _ => return None,
    })
}

/// The text without comments and strings. A `//` inside a string, such as a `.file` path, is not a comment.
fn blank_comments_and_strings(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len());
    let mut rest = ptx;
    while let Some(start) = rest.find(['"', '/']) {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let skipped = if let Some(string) = from.strip_prefix('"') {
            1 + string.find('"').map_or(string.len(), |end| end + 1)
        } else if from.starts_with("//") {
            from.find('\n').unwrap_or(from.len())
        } else if from.starts_with("/*") {
            from.find("*/").map_or(from.len(), |end| end + 2)
        } else {
            1
        };
        out.push(' ');
        rest = &from[skipped..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(parameters: &str) -> Vec<(usize, usize)> {
        let ptx = format!(".visible .entry k({parameters})\n.maxntid 128\n{{ ret; }}");
        let signatures = signatures(&ptx).expect("a valid declaration");
        signatures[0].parameters.iter().map(|parameter| (parameter.offset, parameter.bytes)).collect()
    }

    #[test]
    fn parameters_are_aligned() {
        assert!(layout("").is_empty());
        assert_eq!(layout(".param .u64 a, .param .u32 b, .param .f32 c"), [(0, 8), (8, 4), (12, 4)]);
        assert_eq!(layout(".param .u32 a, .param .u64 b"), [(0, 4), (8, 8)]);
        assert_eq!(
            layout(".param .u32 a, .param .align 16 .b8 b[24], .param .u8 c"),
            [(0, 4), (16, 24), (40, 1)]
        );
        assert_eq!(layout(".param .u64 .ptr .global .align 16 a,\n\t.param .f16 b"), [(0, 8), (8, 2)]);
    }

    #[test]
    fn comments_and_strings_are_skipped() {
        let ptx = "// .entry no\n.file 1 \"a//b.rs\" /* .entry\n no */ .entry yes\n{ ret; }\n.entry also() { ret; }";
        let names: Vec<_> =
            signatures(ptx).expect("valid declarations").into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["yes", "also"]);
    }

    #[test]
    fn an_unknown_type_is_quoted() {
        let error = signatures(".entry k(.param .texref t) { ret; }").expect_err("no such size");
        assert_eq!(error, "cannot parse the declaration of kernel `k`: .param .texref t");
    }

    #[test]
    fn a_layout_beyond_all_addresses_is_an_error() {
        let error = signatures(".entry k(.param .b8 a[18446744073709551615], .param .u64 b) { ret; }")
            .expect_err("no such layout");
        assert_eq!(error, "cannot parse the declaration of kernel `k`: .param .u64 b");
    }
}
