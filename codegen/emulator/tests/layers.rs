//! Layers of the emulator's modules: a module imports only from its own layer and lower layers, and modules do not
//! import each other in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Layers from the lowest to the highest, each a list of files and folders of `src`.
const LAYERS: [&[&str]; 12] = [
    &["finding", "lanes", "options", "tensor_map"],
    &["geometry", "memory"],
    &["load"],
    &["asynchronous", "code"],
    &["profile", "checks"],
    &["context", "outcome"],
    &["exec"],
    &["decode", "schedule"],
    &["module"],
    &["launch"],
    &["programmatic"],
    &["lib"],
];

/// Modules that each module imports. A module is named by its path, such as `exec::races`.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_layer_imports_from_a_higher_one() {
    let layer = |module: &str| {
        let first = module.split("::").next().unwrap_or_default();
        let found = LAYERS.iter().position(|modules| modules.contains(&first));
        found.unwrap_or_else(|| panic!("`{first}` is in no layer: add it to LAYERS"))
    };
    let imports = imports();
    assert!(imports.len() > 60, "only {} modules found", imports.len());
    let mut upward = Vec::new();
    for (module, imported) in &imports {
        upward.extend(
            imported
                .iter()
                .filter(|other| layer(module) < layer(other))
                .map(|other| format!("{module} -> {other}")),
        );
    }
    assert!(upward.is_empty(), "imports from a higher layer:\n{}", upward.join("\n"));
}

#[test]
fn imports_have_no_circles() {
    let imports = imports();
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable_from(&imports, module))).collect();
    let mut circles: BTreeSet<Vec<&str>> = BTreeSet::new();
    for (&module, reached) in &reachable {
        let circle: Vec<&str> =
            reached.iter().copied().filter(|other| reachable[other].contains(module)).collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    assert!(circles.is_empty(), "modules that import each other in a circle: {circles:#?}");
}

fn reachable_from<'i>(imports: &'i Imports, start: &str) -> BTreeSet<&'i str> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    let mut next: Vec<&str> = imports[start].iter().map(String::as_str).collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(imports[module].iter().map(String::as_str));
        }
    }
    found
}

fn imports() -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    find_files(&root, &mut files);
    let name = |file: &PathBuf| {
        let inside = file.strip_prefix(&root).expect("a file below src").with_extension("");
        let name = inside.to_string_lossy().replace(['/', '\\'], "::");
        name.trim_end_matches("::mod").to_string()
    };
    let modules: BTreeSet<String> = files.iter().map(name).collect();
    let imports = files.iter().map(|file| {
        let text = fs::read_to_string(file).expect("a source file");
        let module = name(file);
        let mut imported = BTreeSet::new();
        for path in paths(&text, &module) {
            // A path names the module that is its longest prefix; a path to a macro of the crate has no such prefix.
            let parts: Vec<&str> = path.split("::").collect();
            let prefixes = (1..=parts.len()).rev().map(|count| parts[..count].join("::"));
            imported.extend(prefixes.into_iter().find(|prefix| modules.contains(prefix)));
        }
        imported.remove(&module);
        (module, imported)
    });
    imports.collect()
}

fn find_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of the folder").path();
        if path.is_dir() {
            find_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Paths from the crate's root that a source text names, in `use` declarations and elsewhere.
fn paths(text: &str, module: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let mut found = Vec::new();
    for (root, prefix) in [("crate::", String::new()), ("super::", parent(module))] {
        for (at, _) in code.match_indices(root) {
            let before = &code[..at];
            let inside_path = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            // `pub(in crate::…)` limits an item's visibility to a module and imports nothing.
            if !inside_path && !before.ends_with("(in ") {
                expand(&code[at + root.len()..], &prefix, &mut found);
            }
        }
    }
    // `use` of a module inside this module.
    let own = if module == "lib" { "" } else { module };
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rsplit('\n').next().unwrap_or_default().trim_start();
        if line.is_empty() || line.starts_with("pub") {
            expand(&code[at + "use ".len()..], own, &mut found);
        }
    }
    found
}

fn parent(module: &str) -> String {
    module.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_string())
}

/// Adds the paths of a use tree, such as `a::{b, c::d}`, at the start of `text` to `found`; returns the text after the
/// tree.
fn expand<'t>(text: &'t str, prefix: &str, found: &mut Vec<String>) -> &'t str {
    let join = |name: &str| if prefix.is_empty() { name.to_string() } else { format!("{prefix}::{name}") };
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(rest.trim_start(), prefix, found).trim_start();
            match rest.strip_prefix(',') {
                Some(more) if !more.trim_start().starts_with('}') => rest = more,
                Some(more) => rest = more.trim_start(),
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match rest.strip_prefix("::") {
        Some(rest) => expand(rest, &join(name), found),
        None => {
            found.push(if name == "self" { prefix.to_string() } else { join(name) });
            rest
        }
    }
}
