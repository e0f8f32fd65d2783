//! `docs/emitted.md` lists exactly the fields of the emitted files, with their types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bespoke_codegen::ptx::Target;
use bespoke_codegen::ptxas::Usage;
use bespoke_gguf::Gguf;
use bespoke_kernels::emit::{Emission, KernelReport, PlanReport};
use bespoke_kernels::plan::{Plan, PlanParams, Sampling};
use bespoke_kernels::shape::ModelShape;
use serde_json::Value;

/// JSON types of fields by path: `launches[].args[].param` has type `string`.
type Fields = BTreeMap<String, BTreeSet<String>>;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// First two cells of the rows of the tables below a heading.
fn rows(heading: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(repository("docs/emitted.md")).unwrap();
    let (_, section) = text.split_once(&format!("{heading}\n")).expect("the heading is there");
    let section = section.split("\n#").next().unwrap();
    let cells = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.strip_suffix('`')?.to_owned(), cells.next()?.to_owned()))
    };
    section.lines().filter_map(cells).collect()
}

fn documented(heading: &str) -> Fields {
    let rows = rows(heading);
    let count = rows.len();
    let types =
        |cell: &str| cell.replace("optional ", "optional or ").split(" or ").map(str::to_owned).collect();
    let fields: Fields = rows.into_iter().map(|(path, cell)| (path, types(&cell))).collect();
    assert_eq!(fields.len(), count, "a field is listed twice");
    fields
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Adds the types of all fields in `value` to `fields`, except those inside fields that satisfy `opaque`.
fn collect(value: &Value, path: &str, opaque: &dyn Fn(&str) -> bool, fields: &mut Fields) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                fields.entry(path.clone()).or_default().insert(type_of(value).to_owned());
                if !opaque(&path) {
                    collect(value, &path, opaque, fields);
                }
            }
        }
        Value::Array(array) => {
            array.iter().for_each(|value| collect(value, &format!("{path}[]"), opaque, fields));
        }
        _ => {}
    }
}

/// Asserts that `documented` and `found` have the same paths, except optional ones, and that every found type is
/// documented.
fn assert_documented(documented: &Fields, found: &Fields) {
    for (path, types) in documented {
        assert!(
            found.contains_key(path) || types.contains("optional"),
            "{path} is documented but not emitted"
        );
    }
    for (path, types) in found {
        let allowed = documented.get(path).unwrap_or_else(|| panic!("{path} is not in docs/emitted.md"));
        assert!(allowed.contains("any") || types.is_subset(allowed), "{path} is {types:?}, not {allowed:?}");
    }
}

/// Shapes with biases, with norms of heads, and with neither; untied and tied.
fn shapes() -> Vec<ModelShape> {
    ["llama-q4_k_m", "qwen2-q4_k_m", "qwen3-q4_k_m"]
        .map(|name| {
            let gguf = Gguf::open(repository(&format!("tests/fixtures/{name}.gguf"))).unwrap();
            ModelShape::from_gguf(&gguf, name).unwrap()
        })
        .to_vec()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Fields with the fields of another one, which the document lists.
const AS_ANOTHER: [&str; 7] = [
    "shape.layers[].attention.k",
    "shape.layers[].attention.v",
    "shape.layers[].attention.output",
    "shape.layers[].feed_forward.dense.norms",
    "shape.layers[].feed_forward.dense.gate",
    "shape.layers[].feed_forward.dense.up",
    "shape.layers[].feed_forward.dense.down",
];

#[test]
fn every_field_is_in_the_document() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emitted");
    let emission = shapes().into_iter().fold(Emission::new(), Emission::shape);
    emission.target(Target::Sm80).target(Target::Sm90).write(&out).unwrap();

    let mut found = Fields::new();
    let opaque = |path: &str| path == "kernels[].constants";
    // The second folder has kernels with grids that the host chooses; no decoder kernel has one.
    for path in [out.join("kernels.json"), repository("codegen/tests/stubs/emitted/kernels.json")] {
        collect(&read(&path), "", &opaque, &mut found);
    }
    assert_documented(&documented("## `kernels.json`"), &found);

    let mut found = Fields::new();
    for shape in shapes() {
        for target in ["sm_80", "sm_90"] {
            let plan = read(&out.join(format!("plans/{}.{target}.json", shape.name)));
            collect(&plan, "", &|path| AS_ANOTHER.contains(&path), &mut found);
        }
    }
    // The compile-time parameters of kernels are not documented.
    let own = |path: &str| path.starts_with("kernels[].") && !matches!(&path[10..], "name" | "kernel");
    found.retain(|path, _| !own(path));
    assert_documented(&documented("## `plans/SHAPE.TARGET.json`"), &found);
}

#[test]
fn every_field_of_a_report_is_in_the_document() {
    let kernel = KernelReport {
        name: "embed".into(),
        launches: 1,
        threads: 128,
        dynamic_shared: 0,
        usage: Usage::default(),
    };
    let report = PlanReport { shape: "tiny".into(), target: Target::Sm90, kernels: vec![kernel] };
    let mut found = Fields::new();
    collect(&serde_json::to_value(report).unwrap(), "", &|_| false, &mut found);
    assert_documented(&documented("## `plans/SHAPE.TARGET.report.json`"), &found);
}

#[test]
fn every_kind_of_buffer_is_in_the_document() {
    let mut kinds = BTreeSet::new();
    for sampling in [Sampling::Greedy, Sampling::Sampled] {
        let params = PlanParams::single(64).with_sampling(sampling);
        let plan = serde_json::to_value(Plan::new(&shapes()[0], Target::Sm90, params).unwrap()).unwrap();
        for buffer in plan["buffers"].as_array().unwrap() {
            kinds.insert(buffer["kind"].as_str().unwrap().to_owned());
        }
    }
    let documented: BTreeSet<String> = rows("### Buffers").into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(documented, kinds);
}

/// Every kernel of the manifest has a module with its entry point and parameters, and plans refer to these kernels.
#[test]
fn the_manifest_agrees_with_plans_and_modules() {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("agreement");
    Emission::new().shape(shapes().remove(0)).target(Target::Sm90).write(&out).unwrap();
    let manifest = read(&out.join("kernels.json"));
    let kernels = manifest["kernels"].as_array().unwrap();
    for kernel in kernels {
        let ptx = fs::read_to_string(out.join(kernel["modules"][0]["ptx"].as_str().unwrap())).unwrap();
        let (_, header) = ptx.split_once(&format!(".entry {}(", kernel["name"].as_str().unwrap())).unwrap();
        let (parameters, rest) = header.split_once(')').unwrap();
        assert_eq!(parameters.matches(".param").count(), kernel["parameters"].as_array().unwrap().len());
        let block: Vec<String> = kernel["block"].as_array().unwrap().iter().map(Value::to_string).collect();
        assert!(rest.trim_start().starts_with(&format!(".reqntid {}", block.join(", "))), "{rest}");
    }
    let plan = read(&out.join("plans/llama-q4_k_m.sm_90.json"));
    for launch in plan["launches"].as_array().unwrap() {
        let name = &plan["kernels"][launch["kernel"].as_u64().unwrap() as usize]["name"];
        let kernel = kernels.iter().find(|kernel| &kernel["name"] == name).expect("a kernel of the folder");
        for field in ["grid", "dynamic_shared"] {
            assert_eq!(launch[field], kernel[field], "{name}");
        }
        assert_eq!(launch["threads"], kernel["block"][0], "{name}");
        let parameters = kernel["parameters"].as_array().unwrap().iter().map(|parameter| &parameter["name"]);
        let arguments = launch["args"].as_array().unwrap().iter().map(|argument| &argument["param"]);
        assert!(arguments.eq(parameters), "{name}");
    }
}
