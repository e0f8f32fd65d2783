//! Checks that every intrinsic documents its PTX and its targets and has an example that runs, and generates the table
//! of intrinsics (`src/dsl/INTRINSICS.md`). `UPDATE_EXPECT=1` rewrites the table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use expect_test::expect_file;
use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Expr, GenericArgument, GenericParam, ImplItem, Item, ItemImpl, Lit, Meta, PathArguments, Type,
    Visibility,
};

/// Source files of the prelude, each with a description of its contents.
const FILES: [(&str, &str); 45] = [
    ("threads", "Threads and clocks"),
    ("pointer", "Pointers and shared memory"),
    ("assume", "Assumptions"),
    ("arrays", "Local arrays and tables of constants"),
    ("access", "Loads and stores"),
    ("cache_policy", "L2 cache policies"),
    ("atomics", "Atomics"),
    ("ordered", "Ordered accesses"),
    ("sync", "Barriers, fences and launches"),
    ("warp", "Data exchange in a warp"),
    ("lanes", "Data exchange among some lanes"),
    ("reduce", "Reductions"),
    ("scan", "Prefix sums"),
    ("math", "Arithmetic"),
    ("functions", "Elementary functions of f32"),
    ("functions_f64", "Elementary functions of f64"),
    ("convert", "Conversions"),
    ("packed", "Packed halves"),
    ("float8", "8-bit floats"),
    ("bits", "Bits and bytes"),
    ("mma/fragment", "Fragments of matrices"),
    ("mma/sums", "Fragments of sums"),
    ("mma/product", "Matrix products"),
    ("mma/double", "Matrix products of f64"),
    ("mma/load", "Matrices in shared memory"),
    ("wgmma/operand", "Operands of warpgroups' products"),
    ("wgmma/mod", "Matrix products of warpgroups"),
    ("registers", "Registers of warpgroups"),
    ("async_copy", "Asynchronous copies"),
    ("tensor", "Tensor maps"),
    ("shared_tile/mod", "Tiles in shared memory"),
    ("shared_tile/shape", "Shapes of tiles"),
    ("shared_tile/copy", "Copies to tiles"),
    ("mma/tile", "Fragments in tiles"),
    ("mbarrier", "Mbarriers"),
    ("pipeline/mod", "Pipelines"),
    ("pipeline/producer", "Producers of pipelines"),
    ("pipeline/consumer", "Consumers of pipelines"),
    ("pipeline/tiles", "Pipelines of tiles"),
    ("pipeline/roles", "Roles of warpgroups"),
    ("cluster", "Clusters"),
    ("inline/mod", "Inline PTX"),
    ("print", "Printing and traps"),
    ("value", "Values"),
    ("mod", ""),
];

/// Source files of syntax without a call: operators, literals, variables.
const WRITTEN: [&str; 6] = ["ops", "hooks/compare", "hooks/logic", "value", "carry", "parameters"];

/// A documented function, method or piece of syntax of the language.
struct Intrinsic {
    file: &'static str,
    /// Name, such as `barrier` or `Mbarrier::init`.
    name: String,
    /// The name with its type, if there is one: `Val<f32>::exp2`.
    shown: String,
    /// Doc comment, with line breaks.
    doc: String,
}

impl Intrinsic {
    /// Text of the list item in the documentation that begins with `start`.
    fn item(&self, start: &str) -> Option<String> {
        let mut lines = self.doc.lines().skip_while(|line| !line.starts_with(&format!("- {start}: ")));
        let first = lines.next()?.split_once(": ").map(|(_, text)| text.to_owned())?;
        let rest = lines.take_while(|line| line.starts_with("  "));
        Some(rest.fold(first, |text, line| text + " " + line.trim()))
    }

    fn example(&self) -> Option<&str> {
        self.doc.split("```").nth(1)
    }

    /// Whether the example uses the function or syntax.
    fn is_used(&self, example: &str) -> bool {
        match self.item("Written") {
            // Syntax is found by its text: the operator of `a + b`, or all of `let mut`.
            Some(written) => {
                let span = written.split('`').nth(1).unwrap_or_default();
                let operator = span.trim_matches(|c: char| c.is_alphanumeric() || c == ' ');
                example.contains(if operator.is_empty() { span } else { operator })
            }
            None => ["(", "::<"].iter().any(|behind| example.contains(&format!("{}{behind}", self.call()))),
        }
    }

    /// The function's name as written in a call.
    fn call(&self) -> &str {
        self.name.rsplit("::").next().unwrap_or(&self.name)
    }
}

#[test]
fn every_intrinsic_is_documented() {
    let intrinsics = intrinsics();
    let written = written();
    let mut wrong = Vec::new();
    for intrinsic in intrinsics.iter().chain(&written) {
        for fault in faults(intrinsic, &intrinsics) {
            wrong.push(format!("{}.rs: `{}` {fault}", intrinsic.file, intrinsic.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(intrinsics.len() > 150, "{} found", intrinsics.len());
    assert!(written.len() > 15, "{} found", written.len());
}

fn faults(intrinsic: &Intrinsic, all: &[Intrinsic]) -> Vec<&'static str> {
    let Some(ptx) = intrinsic.item("PTX") else { return vec!["does not say what PTX it becomes"] };
    if ptx.starts_with("none") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    if !intrinsic.item("Target").is_some_and(|target| target.starts_with("sm_")) {
        faults.push("does not say the target that has it");
    }
    match (intrinsic.example(), intrinsic.item("Example")) {
        (Some(example), _) => {
            if !intrinsic.is_used(example) && !example.contains(&format!("({},", intrinsic.call())) {
                faults.push("has an example that does not use it");
            }
            // The example must compare its PTX with the documented text.
            let spans: Vec<&str> = ptx.split('`').skip(1).step_by(2).collect();
            let checked = |span: &str| {
                let text = span.split_once("…").map_or(span, |(_, rest)| rest);
                example.contains(&format!("\"{span}")) || example.contains(&format!("{text}\""))
            };
            if !spans.into_iter().any(checked) {
                faults.push("has an example that does not check the PTX");
            }
        }
        (None, Some(other)) => {
            let name = other.trim_start_matches("[`").split('`').next().unwrap_or_default();
            let shown = all.iter().any(|i| {
                i.name == name && i.example().is_some() && i.doc.contains(&format!("{}(", intrinsic.call()))
            });
            if !shown && !type_docs(name).contains(&format!("{}(", intrinsic.call())) {
                faults.push("names an example that does not use it");
            }
        }
        (None, None) => faults.push("has no example"),
    }
    faults
}

#[test]
fn the_table_says_what_the_documentation_says() {
    let intrinsics = intrinsics();
    let mut table = String::from(
        "<!-- Written by `codegen/tests/documentation.rs`: `UPDATE_EXPECT=1 cargo test -p bespoke-codegen --test documentation`. -->\n",
    );
    let mut section = |title: &str, first: &str, rows: Vec<(String, &Intrinsic)>| {
        if rows.is_empty() {
            return;
        }
        write!(table, "\n## {title}\n\n| {first} | PTX | target |\n| --- | --- | --- |\n").expect("a string");
        for (name, intrinsic) in rows {
            let [ptx, target] = ["PTX", "Target"].map(|item| intrinsic.item(item).unwrap_or_default());
            let row = [name, ptx, target].map(|cell| cell.replace('|', "\\|")).join(" | ");
            writeln!(table, "| {row} |").expect("a string");
        }
    };
    let written = written();
    let rows = written.iter().map(|written| (written.name.clone(), written)).collect();
    section("Operators, literals and variables", "written", rows);
    for (file, title) in FILES {
        let of_file = intrinsics.iter().filter(|intrinsic| {
            intrinsic.file == file && intrinsic.item("PTX").is_some_and(|ptx| !ptx.starts_with("none"))
        });
        let rows = of_file.map(|intrinsic| {
            let Intrinsic { name, shown, .. } = intrinsic;
            // The rustdoc link must state that `mma` is a function, since there is a module `mma` too.
            let kind = if name.contains("::") { "" } else { "fn@" };
            (format!("[`{shown}`]({kind}crate::dsl::{name})"), intrinsic)
        });
        section(title, "intrinsic", rows.collect());
    }
    expect_file!["../src/dsl/INTRINSICS.md"].assert_eq(&table);
}

fn source(file: &str) -> syn::File {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dsl").join(file).with_extension("rs");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Doc comment of the type called `name`.
fn type_docs(name: &str) -> String {
    let items = FILES.iter().flat_map(|(file, _)| source(file).items);
    let found = items.into_iter().find_map(|item| match item {
        Item::Struct(item) if item.ident == name => Some(doc(&item.attrs)),
        _ => None,
    });
    found.unwrap_or_default()
}

/// All public functions and methods of the language, in source order.
fn intrinsics() -> Vec<Intrinsic> {
    let mut found = Vec::new();
    for (file, _) in FILES {
        for item in source(file).items {
            let mut add = |name: String, shown: String, doc: String| {
                found.push(Intrinsic { file, name, shown, doc });
            };
            match item {
                Item::Fn(function) if public(&function.vis) => {
                    let name = function.sig.ident.to_string();
                    add(name.clone(), name, doc(&function.attrs));
                }
                Item::Impl(block) if block.trait_.is_none() => {
                    let of = type_name(&block.self_ty);
                    let shown = shown_type(&block);
                    for item in block.items {
                        if let ImplItem::Fn(method) = item
                            && public(&method.vis)
                        {
                            let name = &method.sig.ident;
                            add(format!("{of}::{name}"), format!("{shown}::{name}"), doc(&method.attrs));
                        }
                    }
                }
                Item::Macro(call) => {
                    let tokens = call.mac.tokens;
                    if call.ident.is_some() {
                        // In a macro definition, the methods whose names are fixed.
                        methods(tokens, &mut |name, doc| {
                            let name = format!("Ptr::{name}");
                            add(name.clone(), name, doc);
                        });
                    } else {
                        let of =
                            call.mac.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
                        let (prefix, shown) = match &*of {
                            "atomics" => ("Ptr::", "Ptr::".to_owned()),
                            // The first row of a `unary` call is the type.
                            "unary" => (
                                "Val::",
                                format!("Val<{}>::", tokens.clone().into_iter().next().expect("a type")),
                            ),
                            _ => ("", String::new()),
                        };
                        rows(tokens, &mut |name, doc| {
                            add(format!("{prefix}{name}"), format!("{shown}{name}"), doc);
                        });
                    }
                }
                _ => {}
            }
        }
    }
    // Several types may have a method of the same name (`exp2`), with the same documentation for each.
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    found.retain(|intrinsic| {
        let count = seen.entry((intrinsic.name.clone(), intrinsic.doc.clone())).or_default();
        *count += 1;
        *count == 1
    });
    found
}

/// Syntax without a call, listed by its form.
fn written() -> Vec<Intrinsic> {
    let mut docs = Vec::new();
    for file in WRITTEN {
        for item in source(file).items {
            let mut add = |doc: String| docs.push((file, doc));
            match item {
                Item::Trait(item) => add(doc(&item.attrs)),
                Item::Struct(item) => add(doc(&item.attrs)),
                Item::Impl(block) => {
                    for item in block.items {
                        if let ImplItem::Fn(method) = item {
                            add(doc(&method.attrs));
                        }
                    }
                }
                Item::Macro(call) if call.ident.is_none() => row_docs(call.mac.tokens, &mut add),
                _ => {}
            }
        }
    }
    let written = docs.into_iter().filter_map(|(file, doc)| {
        let intrinsic = Intrinsic { file, name: String::new(), shown: String::new(), doc };
        let name = intrinsic.item("Written")?;
        Some(Intrinsic { name, ..intrinsic })
    });
    written.collect()
}

fn public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

/// The type of an `impl` block, with its generic arguments if they are concrete, as in `Val<f32>`.
fn shown_type(block: &ItemImpl) -> String {
    let name = type_name(&block.self_ty);
    let is_open = |ty: &Type| {
        block.generics.params.iter().any(|open| match open {
            GenericParam::Type(open) => open.ident == type_name(ty),
            GenericParam::Const(open) => open.ident == type_name(ty),
            GenericParam::Lifetime(_) => false,
        })
    };
    let Type::Path(path) = &*block.self_ty else { return name };
    let types: Vec<&Type> = match path.path.segments.last().map(|segment| &segment.arguments) {
        Some(PathArguments::AngleBracketed(arguments)) => {
            let types = arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            });
            types.collect()
        }
        _ => Vec::new(),
    };
    if types.iter().all(|ty| is_open(ty)) {
        return name;
    }
    format!("{name}<{}>", types.into_iter().map(type_name).collect::<Vec<_>>().join(", "))
}

fn doc(attrs: &[Attribute]) -> String {
    let lines = attrs.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned() + "\n").collect()
}

/// Calls `add` with name and documentation for each row `/// … name => …;` of a macro call that generates functions.
fn rows(tokens: TokenStream, add: &mut dyn FnMut(String, String)) {
    let mut doc = String::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => doc += &doc_line(tokens.next()),
            TokenTree::Ident(name) => {
                if matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == '=') {
                    add(name.to_string(), std::mem::take(&mut doc));
                }
            }
            _ => {}
        }
    }
}

/// Calls `add` with the documentation of each row of a macro call.
fn row_docs(tokens: TokenStream, add: &mut dyn FnMut(String)) {
    let mut doc = String::new();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => doc += &doc_line(tokens.next()),
            _ if doc.is_empty() => {}
            _ => add(std::mem::take(&mut doc)),
        }
    }
}

/// Calls `add` for each `/// … pub fn name` of a macro definition, except methods whose name is a macro parameter.
fn methods(tokens: TokenStream, add: &mut dyn FnMut(String, String)) {
    let mut doc = String::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => methods(group.stream(), add),
            TokenTree::Punct(punct) if punct.as_char() == '#' => doc += &doc_line(tokens.next()),
            TokenTree::Ident(word) if word == "pub" => {
                if let (Some(TokenTree::Ident(_)), Some(TokenTree::Ident(name))) =
                    (tokens.next(), tokens.next())
                {
                    add(name.to_string(), std::mem::take(&mut doc));
                }
            }
            _ => {}
        }
    }
}

/// The text in a doc attribute's tokens `[doc = "…"]`.
fn doc_line(attribute: Option<TokenTree>) -> String {
    let Some(TokenTree::Group(group)) = attribute else { return String::new() };
    let mut tokens = group.stream().into_iter();
    match (tokens.next(), tokens.nth(1)) {
        (Some(TokenTree::Ident(word)), Some(TokenTree::Literal(text))) if word == "doc" => {
            let text: syn::LitStr =
                syn::parse2(TokenTree::Literal(text).into()).expect("a documentation's text");
            let text = text.value();
            text.strip_prefix(' ').unwrap_or(&text).to_owned() + "\n"
        }
        _ => String::new(),
    }
}
