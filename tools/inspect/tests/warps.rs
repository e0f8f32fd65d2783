//! Roles of warps that follow from a kernel's IR.

use std::fmt::Write;

use bespoke_codegen::ir::Function;
use bespoke_codegen::prelude::*;
use bespoke_inspect::{Copies, Places, Products, Ring, Stores, Use, Warps};
use bespoke_kernels::emit;
use bespoke_kernels::plan::{Plan, PlanParams};
use bespoke_kernels::shape::builtin;
use expect_test::{Expect, expect};
use hopper_gemm::{Shape, specialised};

/// Rings and roles, a line each.
fn text(function: &Function) -> String {
    let mut places = Places::new();
    let Some(warps) = Warps::of(function, &mut places) else { return "no roles\n".to_owned() };
    let mut text = String::new();
    for (at, Ring { stages, arrivals, bytes }) in warps.rings.iter().enumerate() {
        let bytes = bytes.map_or(String::new(), |bytes| format!(", {bytes} bytes"));
        let _ = writeln!(text, "ring {at}: {stages} stages, {arrivals} arrivals{bytes}");
    }
    for role in &warps.roles {
        let registers = role.registers.map_or(String::new(), |count| format!(", {count} registers"));
        let _ = writeln!(text, "warps {:?}{registers}", role.warps);
        let mut line = |what: String, place: Option<u32>| {
            let (file, line) = places.line(place.expect("a Rust line"));
            let name = file.rsplit('/').next().unwrap_or(file);
            assert!(line > 0 && !file.contains("codegen/src/dsl/"), "{file}:{line}");
            let _ = writeln!(text, "  {what} ({name})");
        };
        for Copies { from, ring, tiles, count, lanes, place } in &role.copies {
            let (from, kind) =
                (from.as_deref().unwrap_or("?"), if *tiles { "loads of tiles" } else { "copies" });
            line(format!("{count} {kind} of {from} for ring {ring}, {lanes} lanes"), *place);
        }
        for Use { ring, lanes, place } in &role.waits {
            line(format!("waits for ring {ring}, {lanes} lanes"), *place);
        }
        for Use { ring, lanes, place } in &role.arrives {
            line(format!("arrives at ring {ring}, {lanes} lanes"), *place);
        }
        for Products { instruction, count, place } in &role.products {
            line(format!("{count} {instruction}"), *place);
        }
        for Stores { to, bulk, place } in &role.stores {
            line(format!("stores {to}{}", if *bulk { " by bulk copies" } else { "" }), *place);
        }
    }
    text
}

#[track_caller]
fn check(kernel: Recorded, expected: Expect) {
    let compiled = kernel.unwrap().compile(Target::Sm90).unwrap();
    expected.assert_eq(&text(&compiled.function));
}

#[test]
fn a_producer_and_consumers_by_tensor_maps() {
    let shape = Shape { columns: 128, stages: 4 };
    check(
        specialised::<Swizzle128>(shape),
        expect![[r#"
        ring 0: 4 stages, 1 arrivals, 32768 bytes
        ring 1: 4 stages, 8 arrivals
        warps [0], 40 registers
          1 loads of tiles of a for ring 0, 1 lanes (specialised.rs)
          1 loads of tiles of b for ring 0, 1 lanes (specialised.rs)
          waits for ring 1, 1 lanes (specialised.rs)
        warps [1, 2, 3], 40 registers
        warps [4, 5, 6, 7, 8, 9, 10, 11], 232 registers
          waits for ring 0, 32 lanes (specialised.rs)
          arrives at ring 1, 1 lanes (specialised.rs)
          4 wgmma (specialised.rs)
          stores c by bulk copies (lib.rs)
    "#]],
    );
}

#[test]
fn kernels_of_a_decode_and_a_prefill_step() {
    let shape = builtin().remove(0).with_mix("q4_k_m").unwrap();
    let mut table = String::new();
    for params in [PlanParams::single(256), PlanParams::single(256).prefill(64)] {
        let plan = Plan::new(&shape, Target::Sm90, params).unwrap();
        for start in ["gemv", "gemm", "attention"] {
            let kernel = plan.kernels.iter().find(|kernel| kernel.spec.name().starts_with(start));
            let Some(kernel) = kernel else { continue };
            let emitted = emit::compile(std::slice::from_ref(&kernel.spec), Target::Sm90).unwrap();
            let _ = write!(table, "{start}\n{}", text(&emitted[0].compiled.function));
        }
    }
    expect![[r#"
        gemv
        ring 0: 6 stages, 1 arrivals
        ring 1: 6 stages, 128 arrivals
        warps [0, 1, 2, 3, 4, 5, 6, 7]
          waits for ring 0, 32 lanes (mod.rs)
          arrives at ring 1, 32 lanes (mod.rs)
          32 mma (blocks.rs)
          stores y (epilogue.rs)
        warps [8]
          2 copies of w for ring 0, 1 lanes (ring.rs)
          waits for ring 0, 1 lanes (ring.rs)
          waits for ring 1, 1 lanes (ring.rs)
        attention
        ring 0: 5 stages, 1 arrivals
        ring 1: 5 stages, 128 arrivals
        warps [0, 1, 2, 3]
          waits for ring 0, 32 lanes (mod.rs)
          arrives at ring 1, 32 lanes (mod.rs)
          32 mma (tile.rs)
          stores keys (entry.rs)
          stores values (entry.rs)
          stores partial (combine.rs)
          stores counters (combine.rs)
          stores y (combine.rs)
        warps [4]
          1 copies of keys for ring 0, 1 lanes (mod.rs)
          1 copies of values for ring 0, 1 lanes (mod.rs)
          waits for ring 1, 1 lanes (mod.rs)
          stores y (combine.rs)
        gemm
        ring 0: 4 stages, 1 arrivals
        ring 1: 4 stages, 128 arrivals
        ring 2: 4 stages, 1 arrivals, 16384 bytes
        ring 3: 4 stages, 128 arrivals
        warps [0, 1, 2, 3]
          waits for ring 0, 32 lanes (warpgroup.rs)
          waits for ring 2, 32 lanes (warpgroup.rs)
          arrives at ring 1, 32 lanes (warpgroup.rs)
          arrives at ring 3, 32 lanes (warpgroup.rs)
          32 wgmma (warpgroup.rs)
          stores y (epilogue.rs)
        warps [4]
          40 copies of w for ring 0, 1 lanes (mod.rs)
          4 copies of x for ring 2, 1 lanes (mod.rs)
          waits for ring 1, 1 lanes (mod.rs)
          waits for ring 3, 1 lanes (mod.rs)
        attention
        ring 0: 4 stages, 1 arrivals, 32768 bytes
        ring 1: 4 stages, 256 arrivals
        warps [0]
          6 copies of keys for ring 0, 1 lanes (pass.rs)
          6 copies of values for ring 0, 1 lanes (pass.rs)
          waits for ring 0, 32 lanes (pages.rs)
          waits for ring 1, 1 lanes (pass.rs)
          arrives at ring 1, 32 lanes (pages.rs)
          24 wgmma (unit.rs)
          stores y (mod.rs)
        warps [1, 2, 3, 4, 5, 6, 7]
          waits for ring 0, 32 lanes (pages.rs)
          arrives at ring 1, 32 lanes (pages.rs)
          24 wgmma (unit.rs)
          stores y (mod.rs)
    "#]]
    .assert_eq(&table);
}

#[kernel(threads = 64)]
fn one_role(x: Ptr<Global, u32>) {
    let done = mbarrier_array(1).at(0);
    if thread_index() == 0 {
        done.init(64);
    }
    barrier();
    done.arrive();
    done.wait(0u32, Wait::Test);
    x.at(thread_index()).store(1u32);
}

#[test]
fn warps_that_all_do_the_same_have_no_roles() {
    check(
        one_role(),
        expect![[r#"
        no roles
    "#]],
    );
}
