//! Templates of this repository, with the texts of Python's jinja2.

mod compare;

use std::path::Path;

#[test]
fn texts_and_errors_equal_those_of_jinja2() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let counts = compare::compare(&folder, &folder.join("expected.json"));
    assert!(counts.differences.is_empty(), "{}\n{counts}", counts.differences.join("\n"));
    let expected = "5 templates: 103 texts equal, 8 refusals with the same message, 34 other errors in both; 0 differences";
    assert_eq!(counts.to_string(), expected);
}
