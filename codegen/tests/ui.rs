//! What the macros refuse, and how they say it: every file of `ui/` must fail to compile with exactly the errors in
//! its `.stderr`. `TRYBUILD=overwrite cargo test -p bespoke-codegen --test ui` writes those anew.

#[test]
fn ui() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}
