//! Summary of a model's file as text.

use bespoke::device::Bytes;

use crate::model::{ModelSummary, NamedToken};

/// Lines of a label and a value.
pub fn model(summary: &ModelSummary) -> String {
    let number = |value: Option<u32>| value.map_or("unknown".to_owned(), |value| value.to_string());
    let named = |token: &NamedToken| format!("{} {}", token.id, token.name);
    let list = |items: Vec<String>| if items.is_empty() { "none".to_owned() } else { items.join(", ") };
    let types = summary.types.iter().map(|ty| format!("{} {} ({})", ty.tensors, ty.name, Bytes(ty.bytes)));
    let mut lines = vec![
        ("name", summary.name.clone().unwrap_or("none".to_owned())),
        ("architecture", summary.architecture.clone().unwrap_or("unknown".to_owned())),
        ("size", format!("{}, {} parameters", Bytes(summary.bytes), rounded(summary.parameters))),
        ("context", format!("{} positions", number(summary.context))),
        (
            "layers",
            format!(
                "{}, width {}, feed-forward {}",
                number(summary.layers),
                number(summary.hidden),
                number(summary.ffn)
            ),
        ),
        ("heads", format!("{}, of keys and values {}", number(summary.heads), number(summary.kv_heads))),
        ("tensors", list(types.collect())),
    ];
    match &summary.tokenizer {
        None => lines.push(("tokenizer", "none".to_owned())),
        Some(tokenizer) => {
            let pre = tokenizer.pre.as_ref().map(|pre| format!(" with {pre}")).unwrap_or_default();
            lines.push(("tokenizer", format!("{}{pre}, {} tokens", tokenizer.model, tokenizer.tokens)));
            match &tokenizer.unsupported {
                Some(reason) => lines.push(("", format!("not supported: {reason}"))),
                None => {
                    let added = if tokenizer.adds_bos { "" } else { " (not added to texts)" };
                    let bos = tokenizer.bos.iter().map(|token| named(token) + added);
                    lines.push(("begin token", list(bos.collect())));
                    lines.push(("end tokens", list(tokenizer.ends.iter().map(named).collect())));
                }
            }
        }
    }
    let templates = match summary.templates.as_slice() {
        [] => "no".to_owned(),
        [one] if one == "default" => "yes".to_owned(),
        names => format!("yes: {}", names.join(", ")),
    };
    lines.push(("chat template", templates));
    lines.iter().map(|(label, value)| format!("{label:<14}{value}\n")).collect()
}

/// A number with three digits and a unit: `135 M`.
fn rounded(number: u64) -> String {
    let value = number as f64;
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1} k", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} M", value / 1e6),
        _ => format!("{:.2} G", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{TokenizerSummary, TypeSummary};

    use super::*;

    #[test]
    fn a_summary_has_a_line_for_each_fact() {
        let summary = ModelSummary {
            name: Some("Small 1".into()),
            architecture: Some("llama".into()),
            bytes: 3 << 20,
            parameters: 134_515_008,
            context: Some(8192),
            layers: Some(30),
            hidden: Some(576),
            ffn: None,
            heads: Some(9),
            kv_heads: Some(3),
            types: vec![TypeSummary { name: "Q4_1".into(), tensors: 210, bytes: 2 << 20 }],
            tokenizer: Some(TokenizerSummary {
                model: "gpt2".into(),
                pre: Some("smollm".into()),
                tokens: 49152,
                bos: Some(NamedToken { id: 1, name: "<|im_start|>".into() }),
                adds_bos: false,
                ends: vec![
                    NamedToken { id: 2, name: "<|im_end|>".into() },
                    NamedToken { id: 0, name: "<|endoftext|>".into() },
                ],
                unsupported: None,
            }),
            templates: vec!["default".into()],
        };
        let expected = expect_test::expect![[r#"
            name          Small 1
            architecture  llama
            size          3.00 MiB, 134.5 M parameters
            context       8192 positions
            layers        30, width 576, feed-forward unknown
            heads         9, of keys and values 3
            tensors       210 Q4_1 (2.00 MiB)
            tokenizer     gpt2 with smollm, 49152 tokens
            begin token   1 <|im_start|> (not added to texts)
            end tokens    2 <|im_end|>, 0 <|endoftext|>
            chat template yes
        "#]];
        expected.assert_eq(&model(&summary));
        let bare = ModelSummary { tokenizer: None, templates: Vec::new(), ..summary };
        assert!(model(&bare).ends_with("tokenizer     none\nchat template no\n"));
    }
}
