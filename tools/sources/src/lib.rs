//! Rust sources of the kernels, as they were when this binary was built.

include!(concat!(env!("OUT_DIR"), "/sources.rs"));

/// Text of the file that the compiler calls `file`, if embedded. The compiler's name is relative to the workspace's
/// root, or absolute if the packages are dependencies of another workspace.
pub fn find(file: &str) -> Option<&'static str> {
    let ends_so =
        |name: &str| file.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    SOURCES.iter().find(|(name, _)| ends_so(name)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_the_compiler_s_name() {
        for file in ["kernels-gen/src/kernels/argmax.rs", "/elsewhere/kernels-gen/src/kernels/argmax.rs"] {
            assert!(find(file).is_some_and(|text| text.contains("pub fn choose_greedy")), "{file}");
        }
        assert!(find("codegen/src/dsl/pipeline/mod.rs").is_some());
        for file in ["argmax.rs", "other-kernels-gen/src/kernels/argmax.rs", "/rustc/library/core/src/lib.rs"]
        {
            assert!(find(file).is_none(), "{file}");
        }
    }
}
