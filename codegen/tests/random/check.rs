//! Compares the behaviour of a kernel before and after passes.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use bespoke_codegen::ir::Function;
use bespoke_codegen::ir::parse::parse;
use bespoke_codegen::passes::{self, OptLevel, Pass, Unreachable};

use crate::execute::Launch;
use crate::lower::lower;
use crate::program::Program;

/// Passes to run on a kernel.
pub enum Pipeline {
    /// The default pipeline, as run by [`passes::optimize`].
    Default,
    /// These passes, in this order.
    Passes(Vec<&'static dyn Pass>),
}

/// Kind of failure of a kernel, with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The unoptimised kernel does not run: a bug in the generator, the printer or the emulator.
    Unoptimised(String),
    /// The unoptimised kernel runs, but leaves other memory than the interpreter: a bug in the printer, the emulator or
    /// the interpreter.
    Misprinted(String),
    /// The unoptimised kernel runs; the optimised kernel does not.
    Broken(String),
    /// The optimised kernel runs, but leaves other memory than the unoptimised kernel.
    Differs(String),
}

impl Failure {
    /// Whether both failures are of the same kind.
    pub fn is_like(&self, other: &Failure) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Unoptimised(message) => write!(f, "unoptimised, {message}"),
            Failure::Misprinted(message) => write!(f, "unoptimised, not as the IR is defined: {message}"),
            Failure::Broken(message) => write!(f, "optimised, {message}"),
            Failure::Differs(message) => f.write_str(message),
        }
    }
}

/// The unoptimised IR of a program, without unreachable blocks.
pub fn unoptimised(program: &Program) -> Function {
    let mut function = lower(program);
    passes::optimize(&mut function, OptLevel::None);
    function
}

/// The failure of a kernel under the given passes; none if it passes.
pub fn check(program: &Program, pipeline: &Pipeline) -> Option<Failure> {
    let launch = Launch::of(program);
    let unoptimised = guarded(|| {
        let original = unoptimised(program);
        Ok((launch.run(&original)?, original))
    });
    let (expected, original) = match unoptimised {
        Ok(ran) => ran,
        Err(message) => return Some(Failure::Unoptimised(message)),
    };
    let by_definition = guarded(|| Ok(launch.interpret(&original)));
    match by_definition.map(|memory| memory.and_then(|memory| difference(&memory, &expected))) {
        Ok(None) => {}
        Ok(Some(message)) | Err(message) => return Some(Failure::Misprinted(message)),
    }
    let optimised = guarded(|| {
        let mut function = lower(program);
        match pipeline {
            Pipeline::Default => drop(passes::optimize(&mut function, OptLevel::Default)),
            Pipeline::Passes(passes) => {
                Unreachable.run(&mut function);
                for pass in passes {
                    pass.run(&mut function);
                }
            }
        }
        let text = function.to_string();
        match parse(&text) {
            Ok(again) if again.to_string() == text => Ok(function),
            Ok(_) => Err("its text reads back as something else".into()),
            Err(error) => Err(format!("its text does not parse: {error}")),
        }
    });
    let found = optimised.and_then(|function| guarded(|| launch.run(&function)));
    match found {
        Ok(memory) => difference(&expected, &memory).map(Failure::Differs),
        Err(message) => Some(Failure::Broken(message)),
    }
}

/// The first pass after which the kernel fails, with the kernel before and after it.
pub fn culprit(program: &Program, pipeline: &Pipeline) -> Option<(&'static str, Function, Function)> {
    let launch = Launch::of(program);
    let mut function = unoptimised(program);
    let expected = guarded(|| launch.run(&function)).ok()?;
    let steps: Vec<&dyn Pass> = match pipeline {
        Pipeline::Passes(passes) => passes.clone(),
        // A pipeline that panics returns no report, so the passes run in as many rounds as it has at most.
        Pipeline::Default => {
            let rounds = || (0..8).flat_map(|_| passes::ROUND);
            rounds().chain(passes::LAST).chain(rounds()).copied().collect()
        }
    };
    for pass in steps {
        let before = function.clone();
        let ran = guarded(|| {
            pass.run(&mut function);
            launch.run(&function)
        });
        if ran.as_ref().map(|memory| difference(&expected, memory)) != Ok(None) {
            return Some((pass.name(), before, function));
        }
    }
    None
}

fn difference(expected: &[Vec<u8>; 4], found: &[Vec<u8>; 4]) -> Option<String> {
    let mut names = crate::lower::POINTERS.iter().zip(expected).zip(found);
    let ((name, expected), found) = names.find(|((_, expected), found)| expected != found)?;
    let byte = expected.iter().zip(found).position(|(a, b)| a != b)?;
    let at = byte / 8 * 8;
    let word = |bytes: &[u8]| {
        bytes[at..bytes.len().min(at + 8)].iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    Some(format!("byte {byte} of `{name}` differs: {} became {} from byte {at}", word(expected), word(found)))
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a closure and turns a panic into an error, without printing the panic's message.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                default(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(false);
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("a panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")))
    })
}
