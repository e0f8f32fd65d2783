//! `cp.reduce.async.bulk`: reductions of shared memory into global memory.

use bespoke_emulator::{Finding, FindingKind, LaunchConfig};

use crate::harness::{kernel, launch};

/// Body of CTAs of 4 threads: 16 bytes at `%data` + 16 get to shared memory and from there, by `copy`, to `%data`. `%p` holds
/// in the first thread.
fn body(copy: &str) -> String {
    format!(
        ".shared .align 16 .b32 tile[4];
        mov.u32 %r0, %tid.x; mov.u32 %r3, tile; mad.lo.u32 %r1, %r0, 4, %r3; mad.wide.u32 %x0, %r0, 4, %data;
        ld.global.b32 %r2, [%x0+16]; st.shared.b32 [%r1], %r2; fence.proxy.async.shared::cta; bar.sync 0;
        setp.eq.u32 %p, %r0, 0; mov.u32 %r4, 16; mov.u32 %r5, %ctaid.x;
        {copy}"
    )
}

const WAIT: &str = "@%p cp.async.bulk.commit_group; @%p cp.async.bulk.wait_group 0;";

fn reduce(operation: &str) -> String {
    format!("@%p cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%data], [%r3], %r4;")
}

/// Runs `copy` on 16 bytes of elements `old` and 16 bytes of elements `operand`; returns the first 16 bytes.
fn outcome(copy: &str, ctas: u32, bytes: usize, [old, operand]: [u64; 2]) -> Result<Vec<u8>, Box<Finding>> {
    let elements = [old, operand].map(|value| value.to_le_bytes()[..bytes].repeat(16 / bytes));
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut data: Vec<u32> = elements.concat().chunks(4).map(word).collect();
    launch(&kernel("", &body(copy)), LaunchConfig::linear(ctas, 4), &mut data)?;
    Ok(data[..4].iter().flat_map(|word| word.to_le_bytes()).collect())
}

#[test]
fn operations_combine_elements() {
    let single = |x: f32| x.to_bits() as u64;
    let rows: &[(&str, usize, u64, u64, u64)] = &[
        ("add.u32", 4, 0xffff_fffe, 3, 1),
        ("add.s32", 4, 0xffff_fffe, 1, 0xffff_ffff),
        ("add.u64", 8, u64::MAX, 2, 1),
        ("add.f32", 4, single(1.5), single(2.25), single(3.75)),
        // Subnormal numbers are flushed in f32, and preserved in other types.
        ("add.f32", 4, 1, 1, 0),
        ("add.f64", 8, 1, 1, 2),
        ("add.f64", 8, 1.5f64.to_bits(), 2.25f64.to_bits(), 3.75f64.to_bits()),
        ("add.noftz.f16", 2, 0x3c00, 0x3c00, 0x4000),
        ("add.noftz.f16", 2, 1, 1, 2),
        ("add.noftz.bf16", 2, 0x3f80, 0x3f80, 0x4000),
        ("add.noftz.bf16", 2, 1, 1, 2),
        ("min.u32", 4, 1, 0xffff_ffff, 1),
        ("min.s32", 4, 1, 0xffff_ffff, 0xffff_ffff),
        ("max.u32", 4, 1, 0xffff_ffff, 0xffff_ffff),
        ("max.s32", 4, 1, 0xffff_ffff, 1),
        ("min.u64", 8, 1, u64::MAX, 1),
        ("min.s64", 8, 1, u64::MAX, u64::MAX),
        ("max.u64", 8, 1, u64::MAX, u64::MAX),
        ("max.s64", 8, 1, u64::MAX, 1),
        ("inc.u32", 4, 4, 4, 0),
        ("inc.u32", 4, 3, 4, 4),
        ("dec.u32", 4, 0, 7, 7),
        ("dec.u32", 4, 3, 7, 2),
        ("and.b32", 4, 0b1100, 0b1010, 0b1000),
        ("or.b32", 4, 0b1100, 0b1010, 0b1110),
        ("xor.b64", 8, 0b1100, 0b1010, 0b0110),
    ];
    for &(operation, bytes, old, operand, expected) in rows {
        let got = outcome(&format!("{}{WAIT}", reduce(operation)), 1, bytes, [old, operand]);
        let got = got.unwrap_or_else(|finding| panic!("{operation}: {finding}"));
        assert_eq!(
            got,
            expected.to_le_bytes()[..bytes].repeat(16 / bytes),
            "{operation} of {old:#x}, {operand:#x}"
        );
    }
}

#[test]
fn reductions_race_only_with_what_is_not_atomic() {
    let add = reduce("add.u32");
    let first = "setp.eq.and.u32 %p, %r5, 0, %p;";
    let other = "setp.eq.u32 %q, %r5, 1;";
    let (race, copy) = (Some(FindingKind::Race), Some(FindingKind::AsyncCopy));
    // Body, CTAs, kind of the finding, and sum if there is none; elements are 5 and 3 at first.
    for (body, ctas, kind, sum) in [
        (format!("{add}{WAIT}"), 8, None, 29),
        // Four lanes each.
        (format!("setp.lt.u32 %p, %r0, 4; {add}{WAIT}"), 2, None, 29),
        (format!("{add}{WAIT}{add}{WAIT}"), 1, None, 11),
        (format!("{add}{WAIT} bar.sync 0; red.global.add.u32 [%x0], 1;"), 2, None, 13),
        (format!("{add} red.global.add.u32 [%x0], 1; {WAIT}"), 1, None, 9),
        (format!("{first}{add}{WAIT}{other} @%q st.global.b32 [%x0], 1;"), 2, race, 0),
        (format!("{first}{add}{WAIT}{other} @%q ld.global.b32 %r6, [%x0];"), 2, race, 0),
        // Copies in place of the reductions: they need no proxy fence between them.
        (format!("{add}{WAIT}{add}{WAIT}").replace("cp.reduce", "cp").replace(".add.u32", ""), 1, None, 3),
        // A copy in place of the reduction.
        (format!("{add}{WAIT}").replace("cp.reduce", "cp").replace(".add.u32", ""), 2, race, 0),
        (format!("{add} @%p st.global.b32 [%data], 1; {WAIT}"), 1, race, 0),
        (format!("{add} @%p ld.global.b32 %r6, [%data]; {WAIT}"), 1, race, 0),
        (format!("{add} @%p st.shared.b32 [tile], 1; {WAIT}"), 1, copy, 0),
        (add.clone(), 1, copy, 0),
    ] {
        match (outcome(&body, ctas, 4, [5, 3]), kind) {
            (Ok(got), None) => assert_eq!(got, u32::to_le_bytes(sum).repeat(4), "{body}"),
            (Err(found), Some(kind)) => assert_eq!(found.kind, kind, "{body}: {found}"),
            (got, kind) => panic!("{body}: {got:?}, not {kind:?}"),
        }
    }
}
