//! Text form of the IR, through every pass to PTX.
//!
//! Properties: what was parsed prints as text that parses to the same; the passes accept what the verifier accepts and
//! return what it accepts; the emulator loads the PTX.

use bespoke_codegen::ir::parse::parse;
use bespoke_codegen::ir::verify::verify;
use bespoke_codegen::passes::{OptLevel, Pipeline, convergence};
use bespoke_codegen::ptx::{self, Target};
use bespoke_emulator::Module;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let function = match parse(text) {
        Ok(function) => function,
        Err(error) => return drop(error.to_string()),
    };
    let printed = function.to_string();
    let again = parse(&printed).unwrap_or_else(|error| panic!("{error} in\n{printed}"));
    assert_eq!(again.to_string(), printed);
    if let Err(errors) = verify(&function) {
        return errors.iter().for_each(|error| drop(error.to_string()));
    }
    if let Err(error) = convergence::check(&function) {
        return drop(error.to_string());
    }
    for level in [OptLevel::None, OptLevel::Default] {
        let mut function = function.clone();
        Pipeline::of(level).run(&mut function);
        verify(&function).unwrap_or_else(|errors| panic!("{errors:?}\n{function}"));
        for target in [Target::Sm80, Target::Sm90] {
            match ptx::print(&function, target) {
                Ok(text) => {
                    Module::load(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
                }
                Err(error) => drop(error.to_string()),
            }
        }
    }
}
