//! The built-in templates of families.

use bespoke_chat::families::{self, FAMILIES};
use bespoke_chat::{Inputs, Message};

/// A conversation with a question at the end.
fn conversation() -> Vec<Message> {
    [("system", "S"), ("user", "U"), ("assistant", "A"), ("user", "V")]
        .map(|(role, text)| Message::new(role, text))
        .to_vec()
}

#[test]
fn every_family_writes_a_conversation_as_its_models_expect() {
    let expected = [
        (
            "chatml",
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "command-r",
            "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>V<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        ),
        ("deepseek", "S### Instruction:\nU\n### Response:\nA\n<|EOT|>\n### Instruction:\nV\n### Response:\n"),
        ("deepseek2", "S\n\nUser: U\n\nAssistant: A<｜end▁of▁sentence｜>User: V\n\nAssistant:"),
        ("deepseek3", "S\n\n<｜User｜>U<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>V<｜Assistant｜>"),
        (
            "exaone3",
            "[|system|]S[|endofturn|]\n[|user|]U\n[|assistant|]A[|endofturn|]\n[|user|]V\n[|assistant|]",
        ),
        ("falcon3", "<|system|>\nS\n<|user|>\nU\n<|assistant|>\nA\n<|user|>\nV\n<|assistant|>\n"),
        (
            "gemma",
            "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            "granite",
            "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
        ),
        ("llama2", "[INST] S\nU [/INST]A</s>[INST] V [/INST]"),
        ("llama2-sys", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST]A</s>[INST] V [/INST]"),
        (
            "llama3",
            "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        (
            "llama4",
            "<|header_start|>system<|header_end|>\n\nS<|eot|><|header_start|>user<|header_end|>\n\nU<|eot|><|header_start|>assistant<|header_end|>\n\nA<|eot|><|header_start|>user<|header_end|>\n\nV<|eot|><|header_start|>assistant<|header_end|>\n\n",
        ),
        ("mistral-v1", " [INST] S\n\nU [/INST] A</s> [INST] V [/INST]"),
        ("mistral-v3", "[INST] S\n\nU[/INST] A</s>[INST] V[/INST]"),
        ("mistral-v3-tekken", "[INST]S\n\nU[/INST]A</s>[INST]V[/INST]"),
        ("mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST] A</s>[INST] V[/INST]"),
        ("mistral-v7-tekken", "[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U[/INST]A</s>[INST]V[/INST]"),
        (
            "openchat",
            "S<|end_of_turn|>GPT4 Correct User: U<|end_of_turn|>GPT4 Correct Assistant: A<|end_of_turn|>GPT4 Correct User: V<|end_of_turn|>GPT4 Correct Assistant:",
        ),
        (
            "phi3",
            "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n",
        ),
        (
            "phi4",
            "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant<|im_sep|>A<|im_end|><|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>",
        ),
        ("vicuna", "S\n\nUSER: U\nASSISTANT: A</s>\nUSER: V\nASSISTANT:"),
        (
            "zephyr",
            "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n<|user|>\nV</s>\n<|assistant|>\n",
        ),
    ];
    assert_eq!(FAMILIES.iter().map(|family| family.name).collect::<Vec<_>>(), expected.map(|(name, _)| name));
    let inputs = Inputs { eos_token: Some("</s>".into()), ..Inputs::new(conversation()) };
    for (name, text) in expected {
        assert_eq!(families::named(name).unwrap().template().render(&inputs).unwrap(), text, "{name}");
    }
}

#[test]
fn special_tokens_select_a_family_only_if_they_are_clear() {
    for (tokens, family) in [
        (&["<|im_start|>", "<|im_end|>", "<|endoftext|>"][..], Some("chatml")),
        (&["<|im_start|>", "<|im_sep|>", "<|im_end|>"], Some("phi4")),
        (&["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>"], Some("llama3")),
        (&["<start_of_turn>", "<end_of_turn>"], Some("gemma")),
        (&["<|user|>", "<|assistant|>", "<|end|>", "<|system|>"], Some("phi3")),
        (&["<s>", "</s>"], None),
        (&["[INST]", "[/INST]"], None),
        (&["<|im_start|>"], None),
        (&["<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>"], None),
        (&["<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|end|>"], None),
    ] {
        let found = families::by_special_tokens(|token| tokens.contains(&token));
        assert_eq!(found.map(|family| family.name), family, "{tokens:?}");
    }
}
