//! Chat templates in Hugging Face's form: messages in, text out.
//!
//! A chat model is trained on conversations written in one certain way. Its files carry a Jinja template that writes a
//! list of messages in that way; [`Template`] renders it as Python's `transformers` does, with the same variables,
//! functions and errors. [`families`] has templates of common families for files without one.
//!
//! ```
//! use bespoke_chat::{Inputs, Message, families};
//!
//! let template = families::named("chatml").unwrap().template();
//! let messages = vec![Message::new("user", "Hello")];
//! let text = template.render(&Inputs::new(messages)).unwrap();
//! assert_eq!(text, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
//! ```
//!
//! Templates come from files that strangers wrote, so rendering is bounded in time, memory and depth: see [`limits`].

mod bounds;
mod conversation;
mod error;
pub mod families;
mod iterators;
mod json;
pub mod limits;
mod message;
mod number;
mod python;
mod rewrite;
mod template;

pub use conversation::{MessageError, check_roles, checked_message, checked_messages};
pub use error::TemplateError;
pub use message::{Inputs, Message};
pub use minijinja::Value;
pub use template::Template;
