use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use bespoke_kernels::plan::PlanParams;
use bespoke_kernels::shape::builtin;

use super::*;

/// Lines of a listing with their places, innermost first.
fn located(listing: &Listing, places: &Places) -> Vec<(String, Vec<(String, u32)>)> {
    let chain = |place: Option<PlaceId>| {
        let mut chain = Vec::new();
        let mut next = place;
        while let Some(id) = next {
            let (file, line) = places.line(id);
            chain.push((file.to_owned(), line));
            next = places.get(id).inlined_at;
        }
        chain
    };
    listing.lines().map(|(line, place)| (line.trim().to_owned(), chain(place))).collect()
}

fn at(chain: &[(&str, u32)]) -> Vec<(String, u32)> {
    chain.iter().map(|(file, line)| ((*file).to_owned(), *line)).collect()
}

#[test]
fn the_last_loc_determines_the_place() {
    let ptx = "\
.version 7.8
.entry k()
{
	.reg .b32 %r<3>;
	.loc 1 10 5
	mov.u32 %r1, %tid.x;
$L_block1:
	add.u32 %r1, %r1, 1;
	.loc 2 7 9, function_name $info, inlined_at 1 10 5
	.loc 2 3 1, function_name $info, inlined_at 2 7 9
	@%p1 bra $L_block1;
	ret;
}
.file 1 \"kernels/a.rs\"
.file 2 \"dsl\\b.rs\"
";
    let mut places = Places::new();
    let lines = located(&Listing::of_ptx(ptx, &mut places), &places);
    assert_eq!(lines.len(), ptx.lines().count(), "every line is there");
    let placed: Vec<_> = lines.iter().filter(|(_, chain)| !chain.is_empty()).cloned().collect();
    let outer = at(&[("kernels/a.rs", 10)]);
    let inner = at(&[("dsl/b.rs", 3), ("dsl/b.rs", 7), ("kernels/a.rs", 10)]);
    let expected = [
        ("mov.u32 %r1, %tid.x;", &outer),
        ("add.u32 %r1, %r1, 1;", &outer),
        ("@%p1 bra $L_block1;", &inner),
        ("ret;", &inner),
    ];
    assert_eq!(placed, expected.map(|(line, chain)| (line.to_owned(), chain.clone())));
}

#[test]
fn comments_determine_the_place_of_sass() {
    let text = "
	.section	.text.k,\"ax\",@progbits
k:
.text.k:
	//## File \"kernels/a.rs\", line 74
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File \"dsl/b.rs\", line 3 inlined at \"dsl/b.rs\", line 7
	//## File \"dsl/b.rs\", line 7 inlined at \"kernels/a.rs\", line 10
	//## File \"kernels/a.rs\", line 10
        /*0010*/              @!P0 BRA `(.L_x_2) ;
.L_x_2:
        /*0020*/                   EXIT ;
        /*0030*/                   NOP;
        /*0040*/                   NOP;
.L_x_3:
";
    let mut places = Places::new();
    let lines = located(&Listing::of_sass(text, &mut places), &places);
    let inner = at(&[("dsl/b.rs", 3), ("dsl/b.rs", 7), ("kernels/a.rs", 10)]);
    let expected = [
        ("0000  LDC R1, c[0x0][0x28] ;", at(&[("kernels/a.rs", 74)])),
        ("0010  @!P0 BRA `(.L_x_2) ;", inner.clone()),
        (".L_x_2:", Vec::new()),
        ("0020  EXIT ;", inner),
    ];
    assert_eq!(lines, expected.map(|(line, chain)| (line.to_owned(), chain)));
}

/// Instructions of a listing by Rust line.
fn by_line(listing: &Listing, places: &Places) -> BTreeMap<(String, u32), BTreeSet<String>> {
    let mut lines: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (text, place) in listing.lines() {
        let Some(place) = place else { continue };
        let (file, line) = places.line(place);
        lines.entry((file.to_owned(), line)).or_default().insert(text.trim().to_owned());
    }
    lines
}

#[test]
fn a_line_of_rust_is_found_at_every_stage() {
    let file = builtin().into_iter().find(|file| file.name == "llama-3.2-1b").unwrap();
    let plan = Plan::new(&file.shapes().unwrap()[0], Target::Sm90, PlanParams::single(256)).unwrap();
    let told = Mutex::new(Vec::new());
    let tell = |done: usize, total: usize| told.lock().unwrap().push((done, total));
    let inspection = Inspection::of(&plan, &Tuning::default(), &Tools::default(), &tell).unwrap();
    let mut told = told.into_inner().unwrap();
    told.sort_unstable();
    let total = told.len();
    assert!(total > plan.kernels.len() * Target::ALL.len(), "{total}");
    assert_eq!(told, (1..=total).map(|done| (done, total)).collect::<Vec<_>>());
    assert_eq!(inspection.kernels.len(), plan.kernels.len());
    for view in &inspection.kernels {
        let name = &view.stats.name;
        assert_eq!(view.targets.len(), Target::ALL.len(), "{name}");
        let (ir, ptx) = (by_line(&view.ir, &inspection.places), by_line(&view.ptx, &inspection.places));
        // Not all IR lines have PTX: constants become operands of other instructions, and some instructions have no
        // PTX.
        let both = ptx.keys().filter(|line| ir.contains_key(*line)).count();
        assert!(both * 10 >= ptx.len() * 9, "{name}: {both} of {} lines with PTX have IR", ptx.len());
        let is_code = |line: &str| line.starts_with('\t') && line.ends_with(';') && !line.starts_with("\t.");
        let code: Vec<_> = view.ptx.lines().filter(|(line, _)| is_code(line)).collect();
        assert!(code.len() > 50, "{name}");
        let lost: Vec<_> = code.iter().filter(|(_, place)| place.is_none()).collect();
        assert!(lost.is_empty(), "{name}: instructions without a place: {lost:?}");
    }
    // The line that reads the candidates, at both stages.
    let choose = inspection.kernels.iter().find(|view| view.stats.name.starts_with("choose_greedy")).unwrap();
    let argmax = "kernels-gen/src/kernels/argmax.rs";
    let number = inspection.places.files().iter().position(|file| file == argmax).unwrap();
    let source = inspection.sources[number].as_deref().expect("the binary holds the kernels' sources");
    let line =
        source.lines().position(|line| line.contains("block_best(Candidate {")).expect("the line that loads");
    let key = (argmax.to_owned(), line as u32 + 1);
    let of = |listing: &Listing| by_line(listing, &inspection.places).remove(&key).unwrap_or_default();
    assert!(of(&choose.ir).iter().any(|line| line.contains("load.f32")), "{:?}", of(&choose.ir));
    assert!(of(&choose.ptx).iter().any(|line| line.starts_with("ld.global.f32")), "{:?}", of(&choose.ptx));
}

#[test]
fn sass_needs_both_tools() {
    let error = Tools::default().require_sass().unwrap_err().to_string();
    for part in ["ptxas", "BESPOKE_PTXAS", "pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm"] {
        assert!(error.contains(part), "{error}");
    }
}

/// A folder with kernels that are not a decoder's.
mod own {
    use bespoke_codegen::emit::{Emission, Entry, Geometry};
    use bespoke_codegen::prelude::*;
    use expect_test::expect;

    use crate::folder::Folder;
    use crate::{Inspection, Tools, text};

    #[kernel(threads = 32)]
    fn double(x: Ptr<Global, u32>) {
        let x = x.at(thread_index());
        x.store(x.load() * 2);
    }

    fn emission() -> Emission {
        let entry = Entry::new(double(), Geometry::per_launch());
        Emission::new().target(Target::Sm80).target(Target::Sm90).entry(entry)
    }

    #[test]
    fn kernels_are_shown_at_every_stage() {
        let out = tempfile::tempdir().unwrap();
        emission().write(out.path()).unwrap();
        let folder = Folder::read(out.path()).unwrap();
        let kernels = folder.ir(Target::Sm90, Some("double")).unwrap();
        assert_eq!(kernels.len(), 1);
        assert!(kernels[0].is_same, "the folder's PTX is that of this version");
        let recorded = kernels[0].recorded.function().to_string();
        assert!(
            recorded.starts_with("bespoke-ir 1\nkernel @double(x: global u32) threads 32 {"),
            "{recorded}"
        );

        let inspection = Inspection::of_folder(&folder, "own", Target::Sm90, &Tools::default()).unwrap();
        let [kernel] = &inspection.kernels[..] else { panic!("one kernel") };
        assert_eq!((kernel.targets.len(), inspection.graph.nodes.len()), (2, 0));
        assert!(kernel.ir.text.contains("load.u32"), "{}", kernel.ir.text);
        assert!(kernel.ir.places.iter().any(Option::is_some), "IR has Rust lines");
        assert!(inspection.sources.iter().any(Option::is_some), "this file is found");
        assert!(text::page(&inspection).unwrap().contains("\"name\":\"double\""));
    }

    #[test]
    fn a_folder_without_ir_says_what_to_do() {
        let out = tempfile::tempdir().unwrap();
        emission().write(out.path()).unwrap();
        emission().without_ir().write(out.path()).unwrap();
        assert!(!out.path().join("sm_90/double.ir").exists(), "of the earlier emission");
        let error = Folder::read(out.path()).unwrap().ir(Target::Sm90, None).unwrap_err().to_string();
        expect![[r#"FOLDER: there is no IR of `double`: emit the kernels again with `bespoke_codegen::emit::Emission` of this version, not `without_ir`; for a folder of `bespoke specialize`, name the model instead of the folder"#]]
            .assert_eq(&error.replace(&out.path().display().to_string(), "FOLDER"));
    }

    #[test]
    fn invalid_ir_is_an_error_with_its_line() {
        let out = tempfile::tempdir().unwrap();
        emission().write(out.path()).unwrap();
        std::fs::write(out.path().join("sm_90/double.ir"), "bespoke-ir 1\nkernel double").unwrap();
        let error = Folder::read(out.path()).unwrap().ir(Target::Sm90, None).unwrap_err().to_string();
        assert!(error.ends_with("double.ir: 2:8: expected `@`"), "{error}");
    }
}
