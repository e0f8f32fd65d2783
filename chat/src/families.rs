//! Built-in templates of model families, under llama.cpp's names, for files without a template.
//!
//! They write plain conversations of system, user and assistant, without tools. The beginning-of-sequence token is left
//! to the tokenizer, which knows whether the model wants it.

use crate::Template;

/// A family of models that write conversations in the same way.
#[derive(Debug)]
pub struct Family {
    /// Name, as in llama.cpp.
    pub name: &'static str,
    /// Models of the family.
    pub models: &'static str,
    /// Special tokens of which all occur in the family's vocabularies only; empty if there are none.
    pub markers: &'static [&'static str],
    source: &'static str,
}

/// Every family, by name.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "chatml",
        models: "Qwen, SmolLM2, Yi, many fine-tuned models",
        markers: &["<|im_start|>", "<|im_end|>"],
        source: "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                 {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    },
    Family {
        name: "command-r",
        models: "Command R, Aya",
        markers: &["<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"],
        source: "{% set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}\
                 {% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ names[m.role] }}_TOKEN|>{{ m.content | trim }}\
                 <|END_OF_TURN_TOKEN|>{% endfor %}\
                 {% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
    },
    Family {
        name: "deepseek",
        models: "DeepSeek Coder",
        markers: &[],
        source: "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\
                 {% elif m.role == 'user' %}{{ '### Instruction:\n' ~ m.content ~ '\n' }}\
                 {% else %}{{ '### Response:\n' ~ m.content ~ '\n<|EOT|>\n' }}{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}",
    },
    Family {
        name: "deepseek2",
        models: "DeepSeek V2",
        markers: &[],
        source: "{% for m in messages %}{% if m.role == 'system' %}{{ m.content ~ '\n\n' }}\
                 {% elif m.role == 'user' %}{{ 'User: ' ~ m.content ~ '\n\n' }}\
                 {% else %}{{ 'Assistant: ' ~ m.content ~ '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}Assistant:{% endif %}",
    },
    Family {
        name: "deepseek3",
        models: "DeepSeek V3 and R1, and distilled models",
        markers: &["<｜User｜>", "<｜Assistant｜>"],
        source: "{% for m in messages %}{% if m.role == 'system' %}{{ m.content ~ '\n\n' }}\
                 {% elif m.role == 'user' %}<｜User｜>{{ m.content }}\
                 {% else %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
    },
    Family {
        name: "exaone3",
        models: "EXAONE 3",
        markers: &["[|system|]", "[|endofturn|]"],
        source: "{% for m in messages %}[|{{ m.role }}|]{{ m.content | trim }}\
                 {{ '' if m.role == 'user' else '[|endofturn|]' }}{{ '\n' }}{% endfor %}\
                 {% if add_generation_prompt %}[|assistant|]{% endif %}",
    },
    Family {
        name: "falcon3",
        models: "Falcon 3",
        markers: &[],
        source: "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}\
                 {% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    },
    Family {
        name: "gemma",
        models: "Gemma 1, 2 and 3",
        markers: &["<start_of_turn>", "<end_of_turn>"],
        // There is no system role: its text precedes the next question.
        source: "{% set ns = namespace(system='') %}{% for m in messages %}\
                 {% if m.role == 'system' %}{% set ns.system = ns.system ~ (m.content | trim) %}\
                 {% else %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}{{ '\n' }}\
                 {% if ns.system and m.role != 'assistant' %}{{ ns.system ~ '\n\n' }}{% set ns.system = '' %}{% endif %}\
                 {{ m.content | trim }}<end_of_turn>{{ '\n' }}{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
    },
    Family {
        name: "granite",
        models: "Granite 3",
        markers: &["<|start_of_role|>", "<|end_of_role|>"],
        source: "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n\
                 {% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}",
    },
    Family {
        name: "llama2",
        models: "Llama 2, without system prompts",
        markers: &[],
        source: "{% set ns = namespace(open=false) %}{% for m in messages %}\
                 {% if not ns.open %}{{ '[INST] ' }}{% set ns.open = true %}{% endif %}\
                 {% if m.role == 'system' %}{{ m.content ~ '\n' }}\
                 {% elif m.role == 'user' %}{{ m.content }} [/INST]\
                 {% else %}{{ m.content }}</s>{% set ns.open = false %}{% endif %}{% endfor %}",
    },
    Family {
        name: "llama2-sys",
        models: "Llama 2",
        markers: &[],
        source: "{% set ns = namespace(open=false) %}{% for m in messages %}\
                 {% if not ns.open %}{{ '[INST] ' }}{% set ns.open = true %}{% endif %}\
                 {% if m.role == 'system' %}{{ '<<SYS>>\n' ~ m.content ~ '\n<</SYS>>\n\n' }}\
                 {% elif m.role == 'user' %}{{ m.content }} [/INST]\
                 {% else %}{{ m.content }}</s>{% set ns.open = false %}{% endif %}{% endfor %}",
    },
    Family {
        name: "llama3",
        models: "Llama 3, 3.1, 3.2 and 3.3",
        markers: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        source: "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}\
                 <|eot_id|>{% endfor %}\
                 {% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    },
    Family {
        name: "llama4",
        models: "Llama 4",
        markers: &["<|header_start|>", "<|header_end|>", "<|eot|>"],
        source: "{% for m in messages %}<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content | trim }}\
                 <|eot|>{% endfor %}\
                 {% if add_generation_prompt %}<|header_start|>assistant<|header_end|>\n\n{% endif %}",
    },
    Family {
        name: "mistral-v1",
        models: "Mistral 7B 0.1 and 0.2, Mixtral 8x7B",
        markers: &[],
        source: "{% set ns = namespace(open=false) %}{% for m in messages %}\
                 {% if not ns.open %}{{ ' [INST] ' }}{% set ns.open = true %}{% endif %}\
                 {% if m.role == 'system' %}{{ m.content ~ '\n\n' }}\
                 {% elif m.role == 'user' %}{{ m.content }} [/INST]\
                 {% else %}{{ ' ' ~ m.content }}</s>{% set ns.open = false %}{% endif %}{% endfor %}",
    },
    Family {
        name: "mistral-v3",
        models: "Mistral 7B 0.3, Mixtral 8x22B",
        markers: &[],
        source: "{% set ns = namespace(open=false) %}{% for m in messages %}\
                 {% if not ns.open %}{{ '[INST] ' }}{% set ns.open = true %}{% endif %}\
                 {% if m.role == 'system' %}{{ m.content ~ '\n\n' }}\
                 {% elif m.role == 'user' %}{{ m.content }}[/INST]\
                 {% else %}{{ ' ' ~ (m.content | trim) }}</s>{% set ns.open = false %}{% endif %}{% endfor %}",
    },
    Family {
        name: "mistral-v3-tekken",
        models: "Mistral Nemo, Ministral 8B",
        markers: &[],
        source: "{% set ns = namespace(open=false) %}{% for m in messages %}\
                 {% if not ns.open %}[INST]{% set ns.open = true %}{% endif %}\
                 {% if m.role == 'system' %}{{ m.content ~ '\n\n' }}\
                 {% elif m.role == 'user' %}{{ m.content }}[/INST]\
                 {% else %}{{ m.content }}</s>{% set ns.open = false %}{% endif %}{% endfor %}",
    },
    Family {
        name: "mistral-v7",
        models: "Mistral Large 2411",
        markers: &[],
        source: "{% for m in messages %}\
                 {% if m.role == 'system' %}[SYSTEM_PROMPT] {{ m.content }}[/SYSTEM_PROMPT]\
                 {% elif m.role == 'user' %}[INST] {{ m.content }}[/INST]\
                 {% else %}{{ ' ' ~ m.content }}</s>{% endif %}{% endfor %}",
    },
    Family {
        name: "mistral-v7-tekken",
        models: "Mistral Small 3",
        markers: &[],
        source: "{% for m in messages %}\
                 {% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]\
                 {% elif m.role == 'user' %}[INST]{{ m.content }}[/INST]\
                 {% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
    },
    Family {
        name: "openchat",
        models: "OpenChat 3.5",
        markers: &[],
        source: "{% for m in messages %}\
                 {{ '' if m.role == 'system' else 'GPT4 Correct ' ~ (m.role | capitalize) ~ ': ' }}{{ m.content }}\
                 <|end_of_turn|>{% endfor %}{% if add_generation_prompt %}GPT4 Correct Assistant:{% endif %}",
    },
    Family {
        name: "phi3",
        models: "Phi 3 and 3.5",
        markers: &["<|user|>", "<|assistant|>", "<|end|>"],
        source: "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}\
                 {% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    },
    Family {
        name: "phi4",
        models: "Phi 4",
        markers: &["<|im_start|>", "<|im_sep|>", "<|im_end|>"],
        source: "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}\
                 {% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}",
    },
    Family {
        name: "vicuna",
        models: "Vicuna 1.1 and later",
        markers: &[],
        source: "{% for m in messages %}{% if m.role == 'system' %}{{ m.content ~ '\n\n' }}\
                 {% elif m.role == 'user' %}{{ 'USER: ' ~ m.content ~ '\n' }}\
                 {% else %}{{ 'ASSISTANT: ' ~ m.content ~ '</s>\n' }}{% endif %}{% endfor %}\
                 {% if add_generation_prompt %}ASSISTANT:{% endif %}",
    },
    Family {
        name: "zephyr",
        models: "Zephyr, StableLM 2, TinyLlama chat",
        markers: &[],
        source: "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}\
                 {% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    },
];

impl Family {
    /// Source of the family's template.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// The family's template.
    pub fn template(&self) -> Template {
        Template::parse(self.source).expect("a test parses every built-in template")
    }
}

/// The family of this name.
pub fn named(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}

/// The family whose special tokens are all in a vocabulary. If they are those of several families, the family with the
/// most tokens; none if that is ambiguous.
pub fn by_special_tokens(is_special: impl Fn(&str) -> bool) -> Option<&'static Family> {
    let matching = || {
        FAMILIES.iter().filter(|family| {
            !family.markers.is_empty() && family.markers.iter().all(|token| is_special(token))
        })
    };
    let most = matching().map(|family| family.markers.len()).max()?;
    let mut best = matching().filter(|family| family.markers.len() == most);
    let family = best.next()?;
    let contains = |other: &Family| other.markers.iter().all(|token| family.markers.contains(token));
    // Another family's tokens that are not among this one's make the choice unclear.
    matching().all(contains).then_some(family)
}
