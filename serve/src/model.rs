//! A loaded model, as far as the server needs to know it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bespoke::engine::SamplingParams;
use bespoke::tokenizer::Tokenizer;
use bespoke_chat::{Inputs, Message, Template, TemplateError, Value};

/// A model that a server answers for.
pub struct Model {
    /// Names by which requests may ask for the model; the first one is shown. At least one.
    pub names: Vec<String>,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// How a conversation is written; none for a model without a chat template.
    pub chat: Option<ChatTemplate>,
    /// Change of each text before it is encoded: to the form of the training data, in the demo model.
    pub normalise: fn(&str) -> String,
    /// Sampling parameters for what a request does not say.
    pub sampling: SamplingParams,
    /// Whether requests without a seed get that of `sampling`; else each gets a random one.
    pub fixed_seed: bool,
    /// Facts for `/props`, such as the number of layers.
    pub facts: serde_json::Value,
}

/// Chat template with the variables that do not depend on the conversation.
pub struct ChatTemplate {
    template: Template,
    inputs: Inputs,
    origin: String,
}

impl ChatTemplate {
    /// A template, the variables that it gets besides the messages, and where it comes from.
    pub fn new(template: Template, inputs: Inputs, origin: &str) -> ChatTemplate {
        ChatTemplate { template, inputs, origin: origin.to_owned() }
    }

    /// Where the template comes from, for messages.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The template.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// The text that the model gets for an answer to a conversation, with descriptions of the tools that it may call.
    /// `variables` come on top of those of the template.
    ///
    /// # Errors
    /// If the template refuses the conversation, or fails.
    pub fn prompt(
        &self,
        messages: Vec<Message>,
        tools: Option<Vec<Value>>,
        variables: BTreeMap<String, Value>,
    ) -> Result<String, TemplateError> {
        let mut inputs = Inputs { messages, tools, add_generation_prompt: true, ..self.inputs.clone() };
        inputs.variables.extend(variables);
        self.template.render(&inputs)
    }
}

impl Model {
    /// The name that answers show.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("names", &self.names).finish_non_exhaustive()
    }
}
