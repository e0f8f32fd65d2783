//! Code in README.md and docs/ is that of the file named above it, and docs/kernels.md shows what this program prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    [repository().join("README.md")].into_iter().chain(pages).collect()
}

/// Code blocks below a comment `<!-- FILE -->`, each with the file's name.
fn quotations(page: &str) -> Vec<(&str, &str)> {
    let quotation = |comment| {
        let (file, rest): (&str, &str) = str::split_once(comment, " -->\n```").expect("a code block follows");
        let (_, rest) = rest.split_once('\n').expect("the block has lines");
        (file, rest.split_once("```").expect("the block ends").0)
    };
    page.split("\n<!-- ").skip(1).map(quotation).collect()
}

#[test]
fn quoted_code_is_in_the_named_file() {
    let mut count = 0;
    for path in pages() {
        let page = read(&path);
        for (file, code) in quotations(&page) {
            // An excerpt that is cut off ends with this line.
            let code = code.strip_suffix("    // …\n").unwrap_or(code);
            assert!(read(file).contains(code), "{}: this is not in {file}:\n{code}", path.display());
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} quotations found");
}

#[test]
fn all_rust_in_the_page_on_kernels_is_quoted() {
    let page = read("docs/kernels.md");
    assert_eq!(page.matches("```rust\n").count(), page.matches(" -->\n```rust\n").count());
}

#[test]
fn the_program_prints_what_the_page_shows() {
    let page = read("docs/kernels.md");
    let (_, shown) =
        page.split_once("$ cargo run --release -p own-kernel\n").expect("the page has the command");
    let (shown, _) = shown.split_once("[..] ms a launch\n").expect("the output ends with the time");
    let ran = Command::new(env!("CARGO_BIN_EXE_own-kernel")).arg("emulator").output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{printed}{}", String::from_utf8_lossy(&ran.stderr));
    let (lines, time) = printed.split_at(shown.len().min(printed.len()));
    assert_eq!(lines, shown);
    assert!(time.ends_with(" ms a launch\n") && time.lines().count() == 1, "{time}");
}
