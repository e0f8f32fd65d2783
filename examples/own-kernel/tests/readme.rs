//! The README's section on kernels of one's own is this package: its code is that of the files that it names, and its
//! output what the program prints.

use std::fs;
use std::path::Path;
use std::process::Command;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn section() -> String {
    let text = fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, section) = text.split_once("\n## Write your own kernel\n").expect("the section is there");
    section.split("\n## ").next().unwrap().to_owned()
}

#[test]
fn the_code_is_that_of_the_files() {
    let section = section();
    let section = section.replace("```toml\n", "```rust\n");
    let blocks: Vec<_> = section.split("```rust\n").collect();
    for (before, block) in blocks.iter().zip(&blocks[1..]) {
        let (code, _) = block.split_once("```").expect("the block ends");
        let file = before
            .trim_end()
            .rsplit_once("<!-- ")
            .and_then(|(_, name)| name.strip_suffix(" -->"))
            .unwrap_or_else(|| panic!("no file is named just before\n{code}"));
        let text = fs::read_to_string(repository().join(file)).unwrap();
        // A listing may be cut off, and then says so.
        let code = code.strip_suffix("    // …\n").unwrap_or(code);
        assert!(text.contains(code), "this is not in {file}:\n{code}");
    }
    assert_eq!(blocks.len(), 8, "two of the guide; kernel, manifest, build script, library and launch");
}

#[test]
fn the_program_prints_what_the_section_shows() {
    let section = section();
    let mut lines = section.lines().skip_while(|line| *line != "    cargo run --release -p own-kernel");
    assert!(lines.next().is_some(), "the command is there");
    let lines = lines.skip_while(|line| !line.starts_with("    "));
    let shown: Vec<&str> = lines.map_while(|line| line.strip_prefix("    ")).collect();
    let ran = Command::new(env!("CARGO_BIN_EXE_own-kernel")).arg("emulator").output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{printed}{}", String::from_utf8_lossy(&ran.stderr));
    let untimed = |lines: Vec<&str>| {
        lines.into_iter().filter(|line| !line.ends_with("ms a launch")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(untimed(shown), untimed(printed.lines().collect()));
    assert!(printed.ends_with("ms a launch\n"), "{printed}");
}
