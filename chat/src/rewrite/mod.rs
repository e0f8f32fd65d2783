//! Rewrites of a template's tags from jinja2's language to minijinja's. Lines stay where they are.
//!
//! - `{% generation %}` marks the text of the model for `transformers`. minijinja does not know the tag. The block is a
//!   scope without an effect on the text, so `with` replaces it.
//! - `{% for x in y %}` fails in Python if `y` is `none`; minijinja does nothing. The filter [`ITERABLE`] on `y` fails.
//! - Lists and mappings share their items, so a few steps make a list whose text would fill any memory. The filters
//!   [`SIZED`] and [`STORED`] bound the size of every list, mapping, sum, product and assigned value.
//! - In Python `+` escapes a text for HTML if the other one was marked as safe; in minijinja it does not. In templates
//!   that mark texts, the filter [`PLUS`] replaces `+`.

mod expressions;
mod tokens;

use crate::{TemplateError, limits};
use tokens::{Token, tokens};

/// Filter on the iterable of a `for` tag.
pub const ITERABLE: &str = "_iterable";
/// Filter on values that may be large.
pub const SIZED: &str = "_sized";
/// Filter on values that are assigned to an attribute of a namespace.
pub const STORED: &str = "_stored";
/// Filter in the place of `+`.
pub const PLUS: &str = "_plus";
/// Call of [`PLUS`].
const CALL_PLUS: &str = "_plus(";

/// Whether a template has filters that mark texts as safe for HTML.
fn marks_text(source: &str) -> bool {
    let filters = source.split('|').skip(1).map(str::trim_start);
    filters
        .map(|filter| filter.split(|c: char| !c.is_alphanumeric() && c != '_').next())
        .any(|name| matches!(name, Some("safe" | "e" | "escape" | "forceescape")))
}

/// Rewrites the tags of a source.
///
/// # Errors
/// If a tag has more tokens than [`limits::TOKENS`], or the template more `elif` tags than [`limits::ELIFS`].
pub fn rewrite(source: &str) -> Result<String, TemplateError> {
    let mut elifs = 0;
    let marks_text = marks_text(source);
    let mut out = String::with_capacity(source.len() + source.len() / 4);
    let mut rest = source;
    let mut raw = false;
    while let Some(start) = next_tag(rest) {
        let (text, tag) = rest.split_at(start);
        out.push_str(text);
        let name = tag_name(tag);
        let is_comment = tag.starts_with("{#");
        let end = if raw && name != "endraw" {
            // Not a tag.
            2
        } else if is_comment {
            tag.find("#}").map_or(tag.len(), |end| end + 2)
        } else {
            end_of_tag(tag)
        };
        let (tag, after) = tag.split_at(end);
        let fault = |message: String| {
            let line = 1 + source[..source.len() - tag.len() - after.len()].matches('\n').count();
            TemplateError::Syntax { line, message }
        };
        elifs += usize::from(name == "elif");
        if elifs > limits::ELIFS {
            return Err(fault(format!("more than {} `elif` tags", limits::ELIFS)));
        }
        if !is_comment && tokens(tag, 2).nth(limits::TOKENS).is_some() {
            return Err(fault(format!("more than {} names, numbers and signs in a tag", limits::TOKENS)));
        }
        match name {
            "endraw" => raw = false,
            _ if raw => {}
            "raw" => raw = true,
            _ => {}
        }
        match name {
            _ if raw || is_comment => out.push_str(tag),
            "generation" => out.push_str(&tag.replacen("generation", "with", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            "call" => out.push_str(tag),
            _ => out.push_str(&expressions::with_filters(tag, name, marks_text)),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Position of the next `{%`, `{{` or `{#`.
fn next_tag(source: &str) -> Option<usize> {
    source.as_bytes().windows(2).position(|pair| pair[0] == b'{' && matches!(pair[1], b'%' | b'{' | b'#'))
}

/// Name of a block tag; empty for other tags.
fn tag_name(tag: &str) -> &str {
    let Some(inner) = tag.strip_prefix("{%") else { return "" };
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    &inner[..end]
}

/// Length of a tag; its text literals may contain the closing delimiter.
fn end_of_tag(tag: &str) -> usize {
    let close = if tag.starts_with("{%") { "%}" } else { "}}" };
    let mut depth = 0_usize;
    for Token { start, text } in tokens(tag, 2) {
        match text {
            // In `{{ {'a': {}}}}` the first brackets close mappings.
            "{" => depth += 1,
            "}" if depth > 0 => depth -= 1,
            "}" | "%" if tag[start..].starts_with(close) => return start + 2,
            _ => {}
        }
    }
    tag.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cases: &[(&str, &str)]) {
        for (source, expected) in cases {
            assert_eq!(rewrite(source).unwrap(), *expected);
        }
    }

    #[test]
    fn generation_blocks_become_scopes() {
        check(&[
            ("{% generation %}a{% endgeneration %}", "{% with %}a{% endwith %}"),
            ("x{%- generation -%}\ny{%- endgeneration -%}", "x{%- with -%}\ny{%- endwith -%}"),
            ("{# {% generation %} #}", "{# {% generation %} #}"),
            ("{{ '{% generation %}' }}", "{{ '{% generation %}' }}"),
            ("{{ '}} \\' {% generation %}' }}{% generation %}", "{{ '}} \\' {% generation %}' }}{% with %}"),
            ("{{ {'a': {}}}}{% generation %}", "{{ {'a': {}}}}{% with %}"),
            (
                "{% raw %}{% generation %}{{{% endraw %}{% generation %}",
                "{% raw %}{% generation %}{{{% endraw %}{% with %}",
            ),
            ("{% generation", "{% with"),
            ("{{ generation", "{{ generation"),
        ]);
    }

    #[test]
    fn iterables_of_loops_are_checked() {
        check(&[
            ("{% for x in y %}", "{% for x in (y)|_iterable %}"),
            ("{%- for (a, b) in m.items() -%}", "{%- for (a, b) in (m.items())|_iterable -%}"),
            ("{% for x in y if x in z %}", "{% for x in (y)|_iterable if x in z %}"),
            ("{% for x in y recursive %}", "{% for x in (y)|_iterable recursive %}"),
            ("{% for x in ' if ' %}", "{% for x in (' if ')|_iterable %}"),
            ("{% for x in\n y\n%}", "{% for x in\n (y)|_iterable\n%}"),
            ("{% for x in y + z %}", "{% for x in (((y + z)|_sized))|_iterable %}"),
            ("{% for x %}", "{% for x %}"),
            ("{% for x in", "{% for x in"),
            ("{% for x in %}", "{% for x in %}"),
        ]);
    }

    #[test]
    fn values_that_may_grow_are_checked() {
        check(&[
            ("{{ a }}", "{{ a }}"),
            ("{{- 'a' + b -}}", "{{- (('a' + b)|_sized) -}}"),
            ("{{ a ~ b if c == d + e else -1 }}", "{{ ((a ~ b)|_sized) if c == ((d + e)|_sized) else -1 }}"),
            ("{{ [1, 'a'] }}", "{{ [1, 'a'] }}"),
            ("{{ [a, b][0] }}", "{{ (([a, b])|_sized)[0] }}"),
            ("{{ {'a': b}.a }}", "{{ (({'a': b})|_sized).a }}"),
            ("{{ f(a, (b, c), (d)) }}", "{{ f(a, (((b, c))|_sized), (d)) }}"),
            ("{{ x[a:b] }}", "{{ x[a:b] }}"),
            ("{{ (a + b) * 2 }}", "{{ (((((a + b)|_sized)) * 2)|_sized) }}"),
            ("{{ a + b is not string }}", "{{ ((a + b is not string)|_sized) }}"),
            ("{{ f(*a, **b) }}", "{{ f(*a, **b) }}"),
            ("{% if not a + b %}", "{% if not ((a + b)|_sized) %}"),
            ("{% set x = 1, y %}", "{% set x = (1, y)|_sized %}"),
            ("{% set x, y = z %}", "{% set x, y = (z)|_sized %}"),
            ("{% set n.x = n.y %}", "{% set n.x = (n.y)|_stored %}"),
            ("{% set x %}", "{% set x %}"),
            ("{% set x = %}", "{% set x = %}"),
            ("{% macro f(a, b=[]) %}", "{% macro f(a, b=[]) %}"),
            ("{{ (a + b }}", "{{ (a + b }}"),
        ]);
    }

    #[test]
    fn sums_are_calls_if_texts_are_marked() {
        check(&[
            (
                "{{ 'a' | safe + b + [c] }}",
                "{{ ((('a' | safe )|_plus( b )|_plus( (([c])|_sized)))|_sized) }}",
            ),
            ("{{ a|e }}{{ 1 - 2 + b }}", "{{ a|e }}{{ ((1 - 2 + b)|_sized) }}"),
            ("{{ a|even }}{{ a + b }}", "{{ a|even }}{{ ((a + b)|_sized) }}"),
        ]);
    }
}
