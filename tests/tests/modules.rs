//! Modules of a package depend on each other in one direction: a test that finds circles among the files under `src`.
//!
//! A file depends on another if it names an item of the other's module. Parent and child modules may depend on each
//! other. Names inside of macros are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// Path of a module in its package; empty for `lib.rs` and `main.rs`.
type Module = Vec<String>;

/// Collects the modules that a file depends on.
struct Dependencies<'a> {
    modules: &'a BTreeSet<Module>,
    module: &'a Module,
    found: BTreeSet<Module>,
}

impl Dependencies<'_> {
    /// Adds the innermost module on a path.
    fn add(&mut self, path: &[String]) {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let (start, rest) = match path.first().map(String::as_str) {
            Some("crate") => (&[][..], &path[1..]),
            Some("super") => (&self.module[..self.module.len().saturating_sub(supers)], &path[supers..]),
            Some("self") => (&self.module[..], &path[1..]),
            _ => (&self.module[..], path),
        };
        let mut innermost = start.to_vec();
        for name in rest {
            innermost.push(name.clone());
            if !self.modules.contains(&innermost) {
                innermost.pop();
                break;
            }
        }
        if !innermost.starts_with(self.module) && !self.module.starts_with(&innermost) {
            self.found.insert(innermost);
        }
    }

    fn add_tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_tree(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&with(&name.ident)),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(before, tree)),
            _ => self.add(before),
        }
    }
}

impl<'a> Visit<'a> for Dependencies<'_> {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.add_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Files with Rust code under a folder, without tests.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_stem().unwrap().to_str().unwrap();
        match entry.is_dir() {
            true if name != "tests" => files(&entry, found),
            false if name != "tests" && entry.extension().is_some_and(|extension| extension == "rs") => {
                found.push(entry);
            }
            _ => {}
        }
    }
}

/// The module of a file.
fn module_of(file: &Path, source: &Path) -> Module {
    let path = file.strip_prefix(source).unwrap().with_extension("");
    let mut module: Module = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        module.pop();
    }
    module
}

/// Modules on a path of dependencies from `module` back to itself, if there is one.
fn circle(module: &Module, dependencies: &BTreeMap<Module, BTreeSet<Module>>) -> Option<Vec<Module>> {
    let mut seen = BTreeSet::new();
    let mut paths = vec![vec![module.clone()]];
    while let Some(path) = paths.pop() {
        for next in dependencies.get(path.last()?).into_iter().flatten() {
            if next == module {
                return Some(path);
            }
            if seen.insert(next.clone()) {
                paths.push([&path[..], std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

/// Circles of the package with its sources in `source`.
fn circles(source: &Path) -> Vec<Vec<Module>> {
    let mut sources = Vec::new();
    files(source, &mut sources);
    let modules: BTreeSet<Module> = sources.iter().map(|file| module_of(file, source)).collect();
    let mut dependencies: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for file in &sources {
        let module = module_of(file, source);
        let text = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
        let mut found = Dependencies { modules: &modules, module: &module, found: BTreeSet::new() };
        found.visit_file(&text);
        let found = found.found;
        dependencies.entry(module).or_default().extend(found);
    }
    dependencies.keys().filter_map(|module| circle(module, &dependencies)).collect()
}

#[test]
fn modules_have_no_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|entry| entry.is_dir() && !entry.ends_with("target")).collect()
    };
    let outer = folders(root);
    let all = outer.iter().flat_map(|folder| folders(folder)).chain(outer.clone());
    let packages: Vec<PathBuf> =
        all.map(|folder| folder.join("src")).filter(|source| source.is_dir()).collect();
    assert!(packages.len() > 20, "found {} packages", packages.len());
    let found: Vec<String> = packages
        .iter()
        .flat_map(|source| circles(source).into_iter().map(move |circle| (source, circle)))
        .map(|(source, circle)| {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            format!("{}: {}", source.display(), names.join(" -> "))
        })
        .collect();
    assert!(found.is_empty(), "modules in circles; move what both need to a third:\n{}", found.join("\n"));
}
