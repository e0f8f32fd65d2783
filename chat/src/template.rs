//! A parsed template.

use std::fmt;

use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::message::Inputs;
use crate::{TemplateError, limits};
use crate::{python, rewrite};

/// Name of the only template of an environment.
const NAME: &str = "chat";

/// A parsed chat template.
pub struct Template {
    environment: Environment<'static>,
    source: String,
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// If the source is not a template, or is too long.
    pub fn parse(source: &str) -> Result<Template, TemplateError> {
        if source.len() > limits::SOURCE {
            return Err(TemplateError::TooLarge { bytes: source.len() });
        }
        let environment = with_stack(|| Template::environment(source))?;
        Ok(Template { environment, source: source.to_owned() })
    }

    /// Environment with the template, and with Python's functions.
    fn environment(source: &str) -> Result<Environment<'static>, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_recursion_limit(limits::DEPTH);
        python::install(&mut environment);
        // As jinja2 reads sources.
        let lines = source.replace("\r\n", "\n").replace('\r', "\n");
        match environment.add_template_owned(NAME, rewrite::rewrite(&lines)?) {
            Ok(()) => Ok(environment),
            // The message is better without the filters of the rewritten source.
            Err(error) => {
                environment.add_template_owned(NAME, lines)?;
                Err(error.into())
            }
        }
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template reads a variable that is set from outside.
    pub fn reads(&self, name: &str) -> bool {
        let read = || Ok(self.environment.get_template(NAME)?.undeclared_variables(false).contains(name));
        // Without an answer, a variable counts as read.
        with_stack(read).unwrap_or(true)
    }

    /// Renders the template.
    ///
    /// # Errors
    /// If the template refuses the conversation (`raise_exception`), an operation fails, or rendering takes too long.
    pub fn render(&self, inputs: &Inputs) -> Result<String, TemplateError> {
        with_stack(|| self.render_here(inputs))
    }

    fn render_here(&self, inputs: &Inputs) -> Result<String, TemplateError> {
        let context = inputs.context();
        let mut environment = self.environment.clone();
        let bytes = (context.to_string().len() as u64).min(limits::CONVERSATION);
        environment.set_fuel(Some(limits::FUEL + bytes * limits::FUEL_PER_BYTE));
        let now = inputs.now;
        environment.add_function("strftime_now", move |format: &str| strftime(now, format));
        Ok(environment.get_template(NAME)?.render(context)?)
    }
}

/// Runs a function on a thread with [`limits::STACK`] bytes of stack, since a template may nest values and expressions.
fn with_stack<R: Send>(
    function: impl FnOnce() -> Result<R, TemplateError> + Send,
) -> Result<R, TemplateError> {
    let failed = |message: String| TemplateError::Failed { line: 0, message };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("chat template".to_owned())
            .stack_size(limits::STACK)
            .spawn_scoped(scope, function)
            .map_err(|error| failed(format!("cannot start a thread: {error}")))?;
        thread.join().unwrap_or_else(|_| Err(failed("the template engine panicked".to_owned())))
    })
}

/// `strftime_now(format)`: the local time in the layout of C's `strftime`.
fn strftime(now: Option<DateTime>, format: &str) -> Result<Value, Error> {
    let text = match now {
        Some(now) => strtime::format(format, now),
        None => strtime::format(format, &Zoned::now()),
    };
    text.map(Value::from)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}
