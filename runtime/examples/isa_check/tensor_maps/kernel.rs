//! Kernels that copy a box of a tensor: a CTA fills shared memory, one thread copies, and for a load the CTA writes
//! shared memory to global memory.

use super::{THREADS, TILE};

/// Number of polls after which a load is given up, so that a wrong number of bytes cannot hang the device.
const POLLS: u32 = 1 << 16;

/// PTX of a module with a kernel `copy_N` for each mnemonic.
pub fn module(mnemonics: &[String]) -> String {
    let kernels = mnemonics.iter().enumerate().map(|(at, mnemonic)| kernel(at, mnemonic));
    format!(".version 8.7\n.target sm_90\n.address_size 64\n{}", kernels.collect::<String>())
}

fn kernel(at: usize, mnemonic: &str) -> String {
    let rank = ["1d", "2d", "3d", "4d", "5d"].iter().position(|rank| mnemonic.contains(&format!(".{rank}.")));
    let coordinates: Vec<String> = (0..=rank.unwrap_or_default()).map(|at| format!("%c{at}")).collect();
    let map = format!("[%map, {{{}}}]", coordinates.join(", "));
    let body = if mnemonic.contains("mbarrier") { load(mnemonic, &map) } else { store(mnemonic, &map) };
    format!(
        ".visible .entry copy_{at}(.param .align 64 .b8 map[128], .param .u64 data, .param .u32 bytes, .param .u32 c0,
    .param .u32 c1, .param .u32 c2, .param .u32 c3, .param .u32 c4)
{{
    .shared .align 1024 .b8 tile[{TILE}];
    .shared .align 8 .b64 gate;
    .reg .pred %p, %first, %done;
    .reg .b32 %thread, %tile, %at, %n, %bytes, %polls, %c<5>, %v<4>;
    .reg .b64 %map, %data, %x;
    mov.b64 %map, map;
    cvta.param.u64 %map, %map;
    ld.param.u64 %data, [data];
    ld.param.u32 %bytes, [bytes];
    ld.param.u32 %c0, [c0];
    ld.param.u32 %c1, [c1];
    ld.param.u32 %c2, [c2];
    ld.param.u32 %c3, [c3];
    ld.param.u32 %c4, [c4];
    mov.u32 %thread, %tid.x;
    mov.u32 %tile, tile;
    setp.eq.u32 %first, %thread, 0;
{}    @%first mbarrier.init.shared.b64 [gate], 1;
    @%first fence.mbarrier_init.release.cluster;
    fence.proxy.async;
    bar.sync 0;
{body}    ret;
}}
",
        loop_over_tile(
            "FILL",
            "ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%x];\n    st.shared.v4.b32 [%n], {%v0, %v1, %v2, %v3};"
        )
    )
}

/// Loop in which each thread executes `body` for every 16 bytes of its part of the tile: `%n` is their address in shared
/// memory, `%x` in global memory.
fn loop_over_tile(label: &str, body: &str) -> String {
    format!(
        "    shl.b32 %at, %thread, 4;
{label}:
    cvt.u64.u32 %x, %at;
    add.u64 %x, %x, %data;
    add.u32 %n, %at, %tile;
    {body}
    add.u32 %at, %at, {};
    setp.lt.u32 %p, %at, {TILE};
    @%p bra {label};
",
        16 * THREADS
    )
}

fn load(mnemonic: &str, map: &str) -> String {
    format!(
        "    mov.u32 %polls, 0;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], %bytes;
    @%first {mnemonic} [tile], {map}, [gate];
WAIT:
    add.u32 %polls, %polls, 1;
    mbarrier.try_wait.parity.shared::cta.b64 %done, [gate], 0, 1000;
    setp.lt.u32 %p, %polls, {POLLS};
    @%done bra STORE;
    @%p bra WAIT;
STORE:
    bar.sync 0;
{}    selp.u32 %n, 1, 0, %done;
    @%first st.global.b32 [%data+{TILE}], %n;
",
        loop_over_tile(
            "NEXT",
            "ld.shared.v4.b32 {%v0, %v1, %v2, %v3}, [%n];\n    st.global.v4.b32 [%x], {%v0, %v1, %v2, %v3};"
        )
    )
}

fn store(mnemonic: &str, map: &str) -> String {
    format!(
        "    @%first {mnemonic} {map}, [tile];
    @%first cp.async.bulk.commit_group;
    @%first cp.async.bulk.wait_group 0;
"
    )
}
