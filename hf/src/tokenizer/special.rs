//! Special tokens, whether they are added, and chat templates.

use std::collections::HashSet;
use std::path::Path;

use bespoke::tokenizer::END_LIST_KEY;
use bespoke_gguf::Writer;
use serde_json::Value;

use super::Vocabulary;
use crate::config::Config;
use crate::json::Document;
use crate::{HfError, json};

/// Names of special tokens in `tokenizer_config.json` (with `_token`) and in GGUF (with `_token_id`).
const NAMES: [(&str, &str); 6] = [
    ("bos", "bos"),
    ("eos", "eos"),
    ("unk", "unknown"),
    ("sep", "seperator"),
    ("pad", "padding"),
    ("mask", "mask"),
];

/// What precedes and follows a text, from the post-processor of `tokenizer.json`.
#[derive(Default)]
struct Frame {
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    first: Option<String>,
    last: Option<String>,
}

/// Writes ids of special tokens, whether they are added, and the chat templates.
pub fn write(
    folder: &Path,
    config: &Config,
    vocabulary: &Vocabulary<'_>,
    header: &mut Writer,
) -> Result<(), HfError> {
    let settings = json::read_optional(&folder.join("tokenizer_config.json"))?;
    let settings = settings.as_ref().map(json::File::root);
    let frame = Frame::read(&vocabulary.document)?;
    let content = |name: &str| match &settings {
        Some(settings) => declared(settings, name),
        None => Ok(None),
    };
    let mut names = Vec::new();
    for (name, key) in NAMES {
        names.push((name, key, content(name)?));
    }
    let (mut bos, mut eos) = (names[0].2.clone(), names[1].2.clone());
    // The post-processor decides, as in llama.cpp's conversion.
    let mut turn_end = None;
    let (mut add_bos, mut add_eos) = (frame.add_bos, frame.add_eos);
    if let Some(first) = frame.first {
        let bos = bos.get_or_insert_with(|| first.clone());
        add_bos = Some(*bos == first);
    }
    if let Some(last) = frame.last {
        if eos.as_ref().is_some_and(|eos| *eos != last) {
            turn_end = eos.take();
        }
        eos = Some(last);
        add_eos = Some(true);
    }
    (names[0].2, names[1].2) = (bos, eos);

    let mut ids = Vec::new();
    for (name, key, content) in &names {
        let by_content = content.as_ref().and_then(|content| vocabulary.id(content));
        let id = match by_content {
            Some(id) => Some(id),
            None => configured(config, &format!("{name}_token_id"), vocabulary)?,
        };
        if let Some(id) = id {
            header.set(&format!("tokenizer.ggml.{key}_token_id"), id)?;
            ids.push((*name, id));
        }
    }
    let eos = ids.iter().find(|(name, _)| *name == "eos").map(|(_, id)| *id);
    let mut ends: Vec<u32> = turn_end.and_then(|content| vocabulary.id(&content)).into_iter().collect();
    ends.extend(generation_ends(folder, vocabulary)?);
    let configured = number_or_list(config.document().get("eos_token_id"));
    ends.extend(configured.into_iter().filter(|&id| id < vocabulary.tokens.len() as u64).map(|id| id as u32));
    let mut seen: HashSet<u32> = eos.into_iter().collect();
    ends.retain(|&id| seen.insert(id));
    for (key, id) in ["eot", "eom"].into_iter().zip(&ends) {
        header.set(&format!("tokenizer.ggml.{key}_token_id"), *id)?;
    }
    if let Some(others) = ends.get(2..).filter(|others| !others.is_empty()) {
        let others: Vec<i32> = others.iter().map(|&id| id as i32).collect();
        header.set_array(END_LIST_KEY, &others)?;
    }
    for (name, from_frame) in [("bos", add_bos), ("eos", add_eos)] {
        let setting = match &settings {
            Some(settings) => settings.bool(&format!("add_{name}_token"))?,
            None => None,
        };
        if let Some(add) = from_frame.or(setting) {
            header.set(&format!("tokenizer.ggml.add_{name}_token"), add)?;
        }
    }
    write_templates(folder, settings.as_ref(), header)
}

impl Vocabulary<'_> {
    /// Id of the token with this content.
    fn id(&self, content: &str) -> Option<u32> {
        self.added.get(content).or_else(|| self.ids.get(content)).copied()
    }
}

/// Content of a special token: a string, or an object with `content`.
fn declared(settings: &Document<'_>, name: &str) -> Result<Option<String>, HfError> {
    let key = format!("{name}_token");
    match settings.get(&key) {
        Some(Value::String(content)) => Ok(Some(content.clone())),
        Some(Value::Object(_)) => match settings.object(&key)? {
            Some(token) => Ok(token.str("content")?.map(str::to_owned)),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Id of a special token in `config.json`; of a list, the first.
fn configured(config: &Config, key: &str, vocabulary: &Vocabulary<'_>) -> Result<Option<u32>, HfError> {
    let id = match config.document().get(key) {
        Some(Value::Array(ids)) => ids.first().and_then(Value::as_u64).and_then(|id| id.try_into().ok()),
        Some(Value::Number(id)) => id.as_u64().and_then(|id| id.try_into().ok()),
        _ => None,
    };
    Ok(id.filter(|&id: &u32| (id as usize) < vocabulary.tokens.len()))
}

/// Tokens that end a generation (`eos_token_id` of `generation_config.json`).
fn generation_ends(folder: &Path, vocabulary: &Vocabulary<'_>) -> Result<Vec<u32>, HfError> {
    let Some(file) = json::read_optional(&folder.join("generation_config.json"))? else {
        return Ok(Vec::new());
    };
    let settings = file.root();
    let key = "eos_token_id";
    let ids = number_or_list(settings.get(key));
    match ids.iter().find(|&&id| id as usize >= vocabulary.tokens.len()) {
        Some(id) => {
            Err(settings.fault(key, format!("{id} is no token: there are {}", vocabulary.tokens.len())))
        }
        None => Ok(ids.into_iter().map(|id| id as u32).collect()),
    }
}

/// The ids in a value that is one id or a list of them; none of other values.
fn number_or_list(value: Option<&Value>) -> Vec<u64> {
    match value {
        Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_u64).collect(),
        Some(Value::Number(id)) => id.as_u64().into_iter().collect(),
        _ => Vec::new(),
    }
}

impl Frame {
    /// Reads the post-processor.
    fn read(tokenizer: &Document<'_>) -> Result<Self, HfError> {
        let mut frame = Self::default();
        for step in super::byte_level::parts(tokenizer, "post_processor", "processors")? {
            match step.str("type")? {
                Some("ByteLevel") => {
                    frame.add_bos.get_or_insert(false);
                    frame.add_eos.get_or_insert(false);
                }
                Some("TemplateProcessing") => {
                    let single = step.objects("single")?;
                    let special = |part: Option<&Document<'_>>| match part {
                        Some(part) => match part.object("SpecialToken")? {
                            Some(token) => Ok(token.str("id")?.map(str::to_owned)),
                            None => Ok(None),
                        },
                        None => Ok::<_, HfError>(None),
                    };
                    if single.len() > 1 {
                        frame.first = special(single.first())?;
                        frame.last = special(single.last())?;
                    }
                }
                _ => {}
            }
        }
        Ok(frame)
    }
}

/// Writes the chat template, or several: of `tokenizer_config.json`, else of `chat_template.jinja` or
/// `chat_template.json`.
fn write_templates(
    folder: &Path,
    settings: Option<&Document<'_>>,
    header: &mut Writer,
) -> Result<(), HfError> {
    let key = "chat_template";
    match settings.and_then(|settings| Some((settings, settings.get(key)?))) {
        Some((_, Value::String(template))) => header.set("tokenizer.chat_template", template)?,
        Some((settings, Value::Array(_))) => {
            let mut others = Vec::new();
            for entry in settings.objects(key)? {
                let (name, template) = (entry.str("name")?, entry.str("template")?);
                let (name, template) = (entry.required("name", name)?, entry.required("template", template)?);
                let name: String =
                    name.chars().map(|at| if at.is_ascii_alphanumeric() { at } else { '_' }).collect();
                if name == "default" {
                    header.set("tokenizer.chat_template", template)?;
                } else {
                    header.set(&format!("tokenizer.chat_template.{name}"), template)?;
                    others.push(name);
                }
            }
            if !others.is_empty() {
                header.set_array("tokenizer.chat_templates", &others)?;
            }
        }
        Some((settings, _)) => return Err(settings.fault(key, "expected a string or an array")),
        None => {
            let jinja = folder.join("chat_template.jinja");
            let template = if jinja.exists() {
                Some(json::text(&jinja)?)
            } else {
                match json::read_optional(&folder.join("chat_template.json"))? {
                    Some(file) => file.root().str(key)?.map(str::to_owned),
                    None => None,
                }
            };
            if let Some(template) = template {
                header.set("tokenizer.chat_template", template)?;
            }
        }
    }
    Ok(())
}
