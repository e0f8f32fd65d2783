//! Tests of the build-time API: its output and its errors. Calls of stubs with wrong arguments are in `ui/stubs.rs`.
//!
//! `stubs/emitted` is the output of an `Emission`. `UPDATE_EXPECT=1 cargo test -p bespoke-codegen --test stubs`
//! rewrites it. Other tests compare the PTX.

use std::fs;
use std::path::{Path, PathBuf};

use bespoke_codegen::emit::{Emission, EmitError, Entry, Geometry, Manifest};
use bespoke_codegen::launch::{self, DevicePointer, KernelSource, LaunchConfig, Launcher};
use bespoke_codegen::prelude::*;
use bespoke_emulator as emulator;
use expect_test::{Expect, expect};
use kernels::{added, blend, doubled, early, names, nothing, picked, scaled};

#[path = "stubs/kernels.rs"]
mod kernels;

fn emission() -> Emission {
    #[derive(serde::Serialize)]
    struct Constants {
        threads: u32,
    }
    Emission::new()
        .target(Target::Sm90)
        .target(Target::Sm80)
        .entry(
            Entry::new(blend(), Geometry::fixed([4, 1, 1]))
                .summary("blends, and rounds to bytes")
                .constants(Constants { threads: 64 }),
        )
        .kernel(names(), Geometry::per_launch().block([1, 1, 1]))
        .entry_for(Target::Sm90, Entry::new(nothing(), Geometry::per_launch().dynamic_shared(128)))
        .entry_for(Target::Sm90, Entry::new(doubled(), Geometry::fixed([1, 1, 1])))
        .kernel(picked(), Geometry::fixed([1, 1, 1]))
        .module("pair", [alone(scaled(), 2), alone(added(), 4)])
}

/// An entry for a launch of a grid of fixed size.
fn alone(kernel: Recorded, ctas: u32) -> Entry {
    Entry::new(kernel, Geometry::fixed([ctas, 1, 1]))
}

/// Path relative to `folder`, and contents, of every file below `folder`, in order.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((
                    path.strip_prefix(folder).unwrap().to_owned(),
                    fs::read_to_string(&path).unwrap(),
                )),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_folder_is_as_it_was() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stubs/emitted");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let _ = fs::remove_dir_all(&kept);
        emission().write(&kept).unwrap();
    }
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emitted");
    let _ = fs::remove_dir_all(&fresh);
    emission().write(&fresh).unwrap();
    let (kept, fresh) = (files(&kept), files(&fresh));
    let names = |files: &[(PathBuf, String)]| files.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&kept), names(&fresh));
    for ((path, kept), (_, fresh)) in kept.iter().zip(&fresh) {
        // Their locations change with the lines of this file.
        if path.extension().is_some_and(|extension| extension == "ptx" || extension == "ir") {
            continue;
        }
        assert_eq!(kept, fresh, "{} is not what is written now (UPDATE_EXPECT=1 accepts it)", path.display());
    }
}

#[test]
fn modules_of_removed_kernels_are_removed() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("removed");
    let _ = fs::remove_dir_all(&folder);
    let emission = || Emission::new().target(Target::Sm80).target(Target::Sm90);
    let kept = || emission().kernel(names(), Geometry::per_launch().block([1, 1, 1]));
    kept().kernel(nothing(), Geometry::per_launch()).write(&folder).unwrap();
    let ptx = |target: &str| folder.join(target).join("nothing.ptx");
    assert!(ptx("sm_80").exists() && ptx("sm_90").exists());
    let own = folder.join("sm_80/own.ptx");
    fs::write(&own, "a file that no manifest names").unwrap();
    kept().entry_for(Target::Sm90, Entry::new(nothing(), Geometry::per_launch())).write(&folder).unwrap();
    assert!(!ptx("sm_80").exists() && ptx("sm_90").exists());
    kept().write(&folder).unwrap();
    assert!(!ptx("sm_90").exists() && own.exists());
    assert!(folder.join("sm_80/names.ptx").exists());
}

mod emitted {
    include!("stubs/emitted/kernels.rs");
}

/// A launcher that records its launches: source, configuration and `.param` space.
#[derive(Default)]
struct Notes(Vec<(&'static KernelSource, LaunchConfig, Vec<u8>)>);

impl Launcher for Notes {
    type Error = String;

    fn launch(
        &mut self,
        sources: &[&'static KernelSource],
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<(), String> {
        let source = launch::newest(sources, (9, 0)).ok_or("no source")?;
        self.0.push((source, config, params.to_vec()));
        Ok(())
    }
}

/// The stubs lay out arguments at the offsets that the manifest states.
#[test]
fn stubs_lay_out_what_the_manifest_describes() {
    use launch::{F16x2, f16};
    let mut notes = Notes::default();
    let (x, y) = (DevicePointer::new(0x1000), DevicePointer::new(0x2000));
    emitted::added::launch(&mut notes, x, x).unwrap();
    let pair = F16x2(f16::ONE, f16::NEG_ONE);
    emitted::blend::launch(&mut notes, x, y, true, f16::ONE, pair, 250).unwrap();
    emitted::doubled::launch(&mut notes, 2.0, &tensor_map([8, 8])).unwrap();
    let (eight, sixteen) = (DevicePointer::new(8), DevicePointer::new(16));
    emitted::names::launch(&mut notes, [7, 1, 1], eight, sixteen, 3, 4, 5).unwrap();
    emitted::nothing::launch(&mut notes, [1, 1, 1]).unwrap();
    emitted::picked::launch(&mut notes, DevicePointer::new(16), 2, 3, true, 1, 2, DevicePointer::new(8))
        .unwrap();
    emitted::scaled::launch(&mut notes, x, 2.0).unwrap();

    let manifest: Manifest = serde_json::from_str(include_str!("stubs/emitted/kernels.json")).unwrap();
    assert_eq!(manifest.kernels.len(), notes.0.len());
    for (kernel, (source, config, params)) in manifest.kernels.iter().zip(&notes.0) {
        assert_eq!(kernel.name, source.name);
        assert_eq!(source.target, Target::Sm90);
        assert!(source.ptx.contains(&format!(".entry {}(", kernel.name)));
        assert_eq!(kernel.grid.unwrap_or(config.grid), config.grid);
        assert_eq!((kernel.block, kernel.dynamic_shared), (config.block, config.dynamic_shared));
        assert_eq!(kernel.parameter_bytes as usize, params.len());
    }
    let (_, config, params) = &notes.0[1];
    assert_eq!(config.grid, [4, 1, 1]);
    let bytes = |name: &str| {
        let at = manifest.kernels[1].parameters.iter().find(|param| param.name == name).unwrap();
        &params[at.offset as usize..(at.offset + at.bytes) as usize]
    };
    assert_eq!(bytes("y"), 0x2000u64.to_le_bytes());
    assert_eq!(bytes("flip"), [1]);
    assert_eq!(bytes("scale"), 0x3c00u16.to_le_bytes());
    assert_eq!(bytes("pair"), 0xbc00_3c00u32.to_le_bytes());
    assert_eq!(bytes("n"), 250u32.to_le_bytes());
    // The map follows the factor, at its alignment.
    assert_eq!(notes.0[2].2[..4], 2f32.to_le_bytes());
    assert_eq!(notes.0[2].2[64..], [7; 128]);
    assert_eq!(notes.0[3].1.grid, [7, 1, 1]);
}

/// A tensor map with tiles of these sizes, whose bytes no device has encoded.
fn tensor_map(tile: [u32; 2]) -> launch::TensorMap<f32, 2> {
    let tensor = launch::TensorDescription::dense(DevicePointer::new(0x1000), [8, 8], tile);
    launch::TensorMap::encoded(&tensor.swizzle(launch::Swizzle::Bytes32), [7; 128])
}

#[test]
#[should_panic(expected = "`x` must have tiles of 8 × 8 elements and a swizzle of 32 bytes")]
fn stubs_hold_tensor_maps_to_their_layout() {
    let _ = emitted::doubled::launch(&mut Notes::default(), 2.0, &tensor_map([8, 4]));
}

#[test]
#[should_panic(expected = "`params` must be a multiple of 16 bytes")]
fn stubs_hold_the_launch_to_what_it_promises() {
    let (launcher, params) = (DevicePointer::new(8), DevicePointer::new(24));
    let _ = emitted::names::launch(&mut Notes::default(), [1, 1, 1], launcher, params, 3, 4, 5);
}

/// A launcher that runs launches on the emulator, with this memory.
struct Emulated(emulator::Memory);

impl Launcher for Emulated {
    type Error = String;

    fn launch(
        &mut self,
        sources: &[&'static KernelSource],
        config: LaunchConfig,
        params: &[u8],
    ) -> Result<(), String> {
        let source = launch::newest(sources, (8, 0)).ok_or("no source")?;
        let module = emulator::Module::parse(source.ptx).map_err(|error| error.to_string())?;
        let kernel = module.kernels().find(|kernel| kernel.name() == source.name).ok_or("no kernel")?;
        let LaunchConfig { grid, block, dynamic_shared } = config;
        let config =
            emulator::LaunchConfig { grid, block, dynamic_shared, cluster: None, cooperative: false };
        emulator::run(kernel, &self.0, &config, params, &emulator::Options::default())
            .map(|_| ())
            .map_err(|finding| finding.to_string())
    }
}

/// y = x · (flip ? low : high) + scale, with arguments of one, two, four and eight bytes.
#[test]
fn arguments_arrive_in_the_kernel() {
    use launch::{F16x2, f16};
    let mut device = Emulated(emulator::Memory::new());
    let (x, y) = (device.0.alloc("x", 4 * 250), device.0.alloc("y", 250));
    let values: Vec<u8> = (0..250).flat_map(|i| (i as f32).to_le_bytes()).collect();
    device.0.write(x, &values).unwrap();
    let (x, y) = (DevicePointer::new(x), DevicePointer::new(y));
    let half = f16::from_f32;
    let pair = F16x2(half(0.5), half(-0.25));
    for (flip, factor) in [(true, 0.5), (false, -0.25)] {
        emitted::blend::launch(&mut device, x, y, flip, half(-3.0), pair, 250).unwrap();
        let mut bytes = [0; 250];
        device.0.read(y.address(), &mut bytes).unwrap();
        let expected: Vec<i8> = (0..250).map(|i| (i as f32 * factor - 3.0).round_ties_even() as i8).collect();
        assert_eq!(bytes.map(|byte| byte as i8)[..], expected);
    }
}

/// The kernels of a module have one PTX file, and stubs of their own.
#[test]
fn kernels_of_a_module_are_launched_by_name() {
    let mut device = Emulated(emulator::Memory::new());
    let (x, y) = (device.0.alloc("x", 8), device.0.alloc("y", 16));
    device.0.write(x, &[1.0f32, 2.0].map(f32::to_le_bytes).concat()).unwrap();
    device.0.write(y, &[1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()).unwrap();
    let (x, y) = (DevicePointer::new(x), DevicePointer::new(y));
    emitted::scaled::launch(&mut device, x, 3.0).unwrap();
    emitted::added::launch(&mut device, x, y).unwrap();
    let mut bytes = [0; 16];
    device.0.read(y.address(), &mut bytes).unwrap();
    let values = bytes.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert_eq!(values.collect::<Vec<_>>(), [4.0, 8.0, 6.0, 10.0]);

    let [added, scaled] = [emitted::added::SOURCES[0], emitted::scaled::SOURCES[0]];
    assert_eq!(added.ptx, scaled.ptx);
    let manifest: Manifest = serde_json::from_str(include_str!("stubs/emitted/kernels.json")).unwrap();
    let files = |name: &str| {
        let kernel = manifest.kernels.iter().find(|kernel| kernel.name == name).unwrap();
        (kernel.modules[0].ptx.clone(), kernel.modules[0].ir.clone().unwrap())
    };
    assert_eq!(files("added"), ("sm_80/pair.ptx".to_owned(), "sm_80/added.ir".to_owned()));
    assert_eq!(files("scaled"), ("sm_80/pair.ptx".to_owned(), "sm_80/scaled.ir".to_owned()));
}

#[test]
fn a_module_that_cannot_be_emitted_says_what_to_do() {
    let pair = || [alone(scaled(), 2), alone(added(), 4)];
    let module = |name: &str| Emission::new().target(Target::Sm80).module(name, pair());
    refused(
        module("a/b"),
        expect![
            "module `a/b`: the name cannot be a file's: write ASCII letters, digits and `_`, a letter first"
        ],
    );
    refused(
        module("pair").module("pair", [alone(picked(), 1)]),
        expect!["module `pair`: there are two modules of this name: give one of them another name"],
    );
    refused(module("pair").module("none", []), expect!["module `none`: it has no kernels"]);
    refused(
        module("picked").kernel(picked(), Geometry::fixed([1, 1, 1])),
        expect![
            "module `picked`: a kernel outside of it has the same name, and so the same file: rename the module"
        ],
    );
    refused(
        module("pair").kernel(added(), Geometry::fixed([1, 1, 1])),
        expect![[
            r#"two kernels have the name `added`: give each specialisation its own name, for example `added(&shape).map(|kernel| kernel.named("added_4096"))`"#
        ]],
    );
    let twice = [alone(added(), 2), alone(added(), 4)];
    refused(
        Emission::new().target(Target::Sm80).module("pair", twice),
        expect![[
            r#"two kernels of a module are called `added`: give one of them another name with `Kernel::named`, for example `added(&shape)?.named("added_4096")`"#
        ]],
    );
    // One of the module's kernels may have its name.
    module("added").compile().unwrap();
}

/// The fields of a struct are arguments of the stub.
#[test]
fn fields_arrive_in_the_kernel() {
    let mut device = Emulated(emulator::Memory::new());
    let (x, y) = (device.0.alloc("x", 24), device.0.alloc("y", 4));
    let values: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    device.0.write(x, &values).unwrap();
    for (transposed, expected) in [(false, 1.0f32), (true, 2.0)] {
        let (x, out) = (DevicePointer::new(x), DevicePointer::new(y));
        emitted::picked::launch(&mut device, x, 2, 3, transposed, 0, 1, out).unwrap();
        let mut bytes = [0; 4];
        device.0.read(y, &mut bytes).unwrap();
        assert_eq!(f32::from_le_bytes(bytes), expected);
    }
    let manifest: Manifest = serde_json::from_str(include_str!("stubs/emitted/kernels.json")).unwrap();
    let picked = manifest.kernels.iter().find(|kernel| kernel.name == "picked").unwrap();
    let names: Vec<&str> = picked.parameters.iter().map(|parameter| &parameter.name[..]).collect();
    assert_eq!(names, ["x_data", "x_size_0", "x_size_1", "x_transposed", "row", "column", "y"]);
    assert_eq!(picked.parameters[0].align, Some(16));
}

#[test]
fn kernels_are_listed_by_target() {
    assert_eq!(emitted::TARGETS, [Target::Sm80, Target::Sm90]);
    let names = |target| emitted::kernels(target).iter().map(|source| source.name).collect::<Vec<_>>();
    assert_eq!(names(Target::Sm80), ["added", "blend", "names", "picked", "scaled"]);
    assert_eq!(names(Target::Sm90), ["added", "blend", "doubled", "names", "nothing", "picked", "scaled"]);
    assert!(names(Target::Sm120).is_empty());
}

#[test]
fn without_kernels_there_is_a_module_all_the_same() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-kernels");
    assert!(Emission::new().target(Target::Sm80).write(&folder).unwrap()[&Target::Sm80].is_empty());
    let text = fs::read_to_string(folder.join("kernels.rs")).unwrap();
    syn::parse_file(&text).unwrap();
    assert!(
        text.contains("pub static KERNELS: &[&::bespoke_codegen::launch::KernelSource] = &[];"),
        "{text}"
    );
}

fn refused(emission: Emission, expected: Expect) {
    let error: EmitError = emission.compile().unwrap_err();
    expected.assert_eq(&error.to_string());
}

#[test]
fn what_cannot_be_emitted_says_what_to_do() {
    let sm80 = || Emission::new().target(Target::Sm80);
    refused(
        Emission::new().kernel(blend(), Geometry::per_launch()),
        expect![
            "no target to emit kernels for: add one, for example `.target(Target::Sm80)`, whose PTX runs on every supported GPU"
        ],
    );
    refused(
        sm80().kernel(names(), Geometry::per_launch()),
        expect![
            "kernel `names` for sm_80: nothing says how many threads a CTA has: write `#[kernel(threads = …)]`, or `Geometry::block([…, 1, 1])`"
        ],
    );
    refused(
        sm80().kernel(blend(), Geometry::per_launch().block([32, 2, 1])),
        expect![
            "kernel `blend` for sm_80: its CTAs have 64 threads (`#[kernel(threads = …)]`), not [32, 2, 1]: leave `Geometry::block` out"
        ],
    );
    refused(
        sm80().kernel(names(), Geometry::per_launch().block([64, 32, 1])),
        expect!["kernel `names` for sm_80: a CTA of [64, 32, 1] has 2048 threads, not 1 to 1024"],
    );
    refused(
        sm80().kernel(blend(), Geometry::fixed([4, 0, 1])),
        expect!["kernel `blend` for sm_80: a grid of [4, 0, 1] has no CTAs"],
    );
    refused(
        sm80().kernel(nothing(), Geometry::per_launch().dynamic_shared(200_000)),
        expect![
            "kernel `nothing` for sm_80: it needs 0 bytes of static and 200000 of dynamic shared memory; a CTA has 166912"
        ],
    );
    refused(
        sm80().kernel(blend(), Geometry::per_launch()).kernel(blend(), Geometry::fixed([1, 1, 1])),
        expect![
            r#"two kernels have the name `blend`: give each specialisation its own name, for example `blend(&shape).map(|kernel| kernel.named("blend_4096"))`"#
        ],
    );
    for name in ["match", "sm_90", "a-b"] {
        let named = blend().map(|kernel| kernel.named(name));
        let error = sm80().kernel(named, Geometry::per_launch()).compile().unwrap_err().to_string();
        assert!(error.starts_with(&format!("kernel `{name}`: the name is ")), "{error}");
        assert!(error.ends_with("; give it another name with `Kernel::named`"), "{error}");
    }
}

#[test]
fn what_differs_between_targets_needs_two_names() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("differs");
    let other = nothing().map(|kernel| kernel.named("blend"));
    let error = Emission::new()
        .entry_for(Target::Sm80, Entry::new(blend(), Geometry::per_launch()))
        .entry_for(Target::Sm90, Entry::new(other, Geometry::per_launch()))
        .write(&folder)
        .unwrap_err();
    expect![
        "kernel `blend` has different parameters or launch geometry for sm_80 and sm_90: one stub launches both, so give them different names with `Kernel::named`"
    ]
    .assert_eq(&error.to_string());
}

/// The error names the line in the kernel's source, also at emission.
#[test]
fn an_instruction_that_a_target_lacks_is_named_with_its_line() {
    let error = Emission::new().target(Target::Sm80).kernel(early(), Geometry::per_launch()).compile();
    let error = error.unwrap_err().to_string();
    assert!(error.contains("sm_80") && error.contains("stubs/kernels.rs:"), "{error}");
}
