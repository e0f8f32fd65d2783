//! Emitted folders that were edited: every value of the manifest and of the plan is replaced by odd ones. Reading a folder
//! gives figures or an error, and never follows a path out of the folder.

use std::fs;
use std::path::Path;

use bespoke_codegen::ptx::Target;
use bespoke_inspect::diff::{Diff, Side};
use bespoke_inspect::folder::Folder;
use bespoke_inspect::{Tools, text};
use bespoke_kernels::emit::Emission;
use bespoke_kernels::shape::{Architecture, Blueprint, Dimensions, Mix};
use serde_json::{Value, json};
use tempfile::TempDir;

const MANIFEST: &str = "kernels.json";
const PLAN: &str = "plans/tiny.sm_90.json";

/// A folder with the kernels of a tiny model.
fn emitted() -> TempDir {
    let dimensions = Dimensions {
        hidden: 256,
        layers: 1,
        heads: 4,
        kv_heads: 2,
        head_dim: 64,
        rotated: 64,
        ffn: 512,
        vocab: 320,
        context: 256,
        eps: 1e-5,
    };
    let shape = Blueprint::new(Architecture::named("llama").unwrap(), dimensions).shape("tiny", Mix::Q4KM);
    let folder = tempfile::tempdir().unwrap();
    Emission::new().shape(shape.unwrap()).target(Target::Sm90).write(folder.path()).unwrap();
    folder
}

/// Reads the folder's kernels as `bespoke inspect FOLDER` does.
fn inspect(folder: &Path) -> Result<String, String> {
    let read = Folder::read(folder).map_err(|error| error.to_string())?;
    let target = read.target(None).map_err(|error| error.to_string())?;
    let kernels = read.kernels(target, None, &Tools::default()).map_err(|error| error.to_string())?;
    serde_json::to_string(&kernels).unwrap();
    Ok(text::folder(&kernels) + &kernels.iter().map(text::folder_kernel).collect::<String>())
}

/// Compares the folder's plan with itself, as `bespoke inspect --diff` does.
fn diff(folder: &Path) -> Result<String, String> {
    let side = Side::of_folder(folder, None, &Tools::default(), false).map_err(|error| error.to_string())?;
    Ok(text::diff(&Diff::of(&side, &side, None, None), false))
}

/// Pointers (RFC 6901) to all values, of lists only to those of the first two elements.
fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(key, value)| pointers(value, format!("{at}/{key}"), out))
        }
        Value::Array(list) => {
            list.iter()
                .take(2)
                .enumerate()
                .for_each(|(index, value)| pointers(value, format!("{at}/{index}"), out));
        }
        _ => {}
    }
    out.push(at);
}

#[test]
fn odd_values_are_errors_or_harmless() {
    let folder = emitted();
    let odd = [
        json!(0),
        json!(1),
        json!(1u64 << 24),
        json!(u32::MAX),
        json!(u64::MAX),
        json!(null),
        json!([]),
        json!("../../../etc/passwd"),
        json!("/etc/passwd"),
    ];
    for (file, read) in [(MANIFEST, inspect as fn(&Path) -> Result<String, String>), (PLAN, diff)] {
        let path = folder.path().join(file);
        let original = fs::read_to_string(&path).unwrap();
        let value: Value = serde_json::from_str(&original).unwrap();
        let mut all = Vec::new();
        pointers(&value, String::new(), &mut all);
        let (mut tried, mut refused) = (0, 0);
        for pointer in &all {
            for odd in &odd {
                let mut edited = value.clone();
                *edited.pointer_mut(pointer).unwrap() = odd.clone();
                fs::write(&path, edited.to_string()).unwrap();
                tried += 1;
                match read(folder.path()) {
                    Ok(text) => assert!(!text.contains("root:"), "{pointer} = {odd}"),
                    Err(message) => {
                        refused += 1;
                        assert!(
                            message.contains(folder.path().to_str().unwrap()),
                            "{pointer} = {odd}: {message}"
                        );
                    }
                }
            }
        }
        fs::write(&path, original).unwrap();
        assert!(read(folder.path()).is_ok() && refused * 4 > tried && all.len() > 50, "{refused} of {tried}");
    }
}

#[test]
fn errors_name_file_and_field() {
    let folder = emitted();
    for (file, pointer, value, expected) in [
        (MANIFEST, "/kernels/0/block", json!([0, 1, 1]), "`block`: a CTA of [0, 1, 1] has 0 threads"),
        (MANIFEST, "/kernels/0/cluster", json!(1000), "`cluster` is 1000, not 1 to 16"),
        (MANIFEST, "/kernels/0/grid", json!([1, 0, 1]), "`grid` is [1, 0, 1]"),
        (MANIFEST, "/kernels/0/name", json!("a b"), "`name` is not an identifier"),
        (
            MANIFEST,
            "/kernels/0/modules/0/ptx",
            json!("../x.ptx"),
            "the path ../x.ptx leads out of the folder",
        ),
        (MANIFEST, "/kernels/0/modules/0/static_shared", json!(u32::MAX), "bytes of shared memory"),
        (
            MANIFEST,
            "/kernels/0/modules/0/usage",
            json!({ "registers": 100_000, "spill_stores": 0, "spill_loads": 0, "static_shared": 0, "stack": 0 }),
            "`usage.registers` is 100000; at most 255",
        ),
        (PLAN, "/params/context", json!(0), "`params.context` is 0"),
        (PLAN, "/kernels/0/threads", json!(0), "`threads` is 0, not 1 to 1024"),
        (PLAN, "/kernels/0/name", json!("../../x"), "`name` is not an identifier"),
        (PLAN, "/launches/0/kernel", json!(99), "there is no kernel 99"),
    ] {
        let path = folder.path().join(file);
        let original = fs::read_to_string(&path).unwrap();
        let mut edited: Value = serde_json::from_str(&original).unwrap();
        match edited.pointer_mut(pointer) {
            Some(field) => *field = value,
            None => edited.pointer_mut(pointer.rsplit_once('/').unwrap().0).unwrap()["usage"] = value,
        }
        fs::write(&path, edited.to_string()).unwrap();
        let read = if file == PLAN { diff } else { inspect };
        let message = read(folder.path()).unwrap_err();
        assert!(message.contains(expected), "{pointer}: {message}");
        fs::write(&path, original).unwrap();
    }
}

#[test]
#[cfg(unix)]
fn links_out_of_the_folder_pipes_and_large_files_are_errors() {
    let folder = emitted();
    let ptx = fs::read_dir(folder.path().join("sm_90")).unwrap().next().unwrap().unwrap().path();
    for (link, expected) in [
        ("/etc/passwd", "a link leads out of the folder"),
        ("/dev/zero", "a link leads out"),
        ("no", "No such file"),
    ] {
        fs::remove_file(&ptx).unwrap();
        std::os::unix::fs::symlink(link, &ptx).unwrap();
        for read in [inspect, diff] {
            let message = read(folder.path()).unwrap_err();
            assert!(message.contains(expected), "{link}: {message}");
        }
    }
    fs::remove_file(&ptx).unwrap();
    fs::File::create(&ptx).unwrap().set_len(65 << 20).unwrap();
    assert!(inspect(folder.path()).unwrap_err().contains("it has more than 67108864 bytes"));
    fs::remove_file(&ptx).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&ptx).status().unwrap().success());
    assert!(inspect(folder.path()).unwrap_err().contains("it is not a regular file"));
}
