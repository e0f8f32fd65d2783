//! The text form of the IR: what was printed reads back as the same text, and the example of the documentation is valid.

use std::fs;
use std::path::Path;

use bespoke_codegen::Kernel;
use bespoke_codegen::ir::parse::parse;

#[test]
fn fixtures_read_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests");
    let mut kernels = 0;
    for entry in fs::read_dir(folder).expect("the folder of file tests") {
        let path = entry.expect("a file").path();
        let text = fs::read_to_string(&path).expect("a text");
        // The parts of a file, without the line of the command.
        for part in text.split_inclusive('\n').skip(1).collect::<String>().split("----\n") {
            let Ok(function) = parse(part) else { continue };
            let printed = function.to_string();
            let again =
                parse(&printed).unwrap_or_else(|error| panic!("{}: {error}\n{printed}", path.display()));
            assert_eq!(again.to_string(), printed, "{}", path.display());
            kernels += 1;
        }
    }
    assert!(kernels > 200, "only {kernels} kernels");
}

#[test]
fn the_example_of_the_documentation_is_printed_as_it_is_written() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ir.md")).expect("the page");
    let example = page.split("```\n").nth(1).expect("an example");
    let kernel = Kernel::parse(example).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kernel.function().to_string(), example);
}
