//! Bytes that `ld.global.nc` reads and that the same launch writes.

use bespoke_emulator::{Checks, FindingKind, LaunchConfig, Memory, Module, Options, run};

use crate::harness::{kernel, launch, launch_with, words};

/// The detail of the race that a kernel with this body has, or its first 16 words.
fn outcome(body: &str, config: LaunchConfig) -> Result<Vec<u32>, String> {
    let mut data = words(64, 5);
    match launch(&kernel("", body), config, &mut data) {
        Ok(_) => Ok(data[..16].to_vec()),
        Err(finding) => {
            assert_eq!(finding.kind, FindingKind::Race, "{finding}");
            Err(finding.detail.clone())
        }
    }
}

#[track_caller]
fn clean(body: &str, config: LaunchConfig) {
    outcome(body, config).unwrap_or_else(|detail| panic!("`{body}`: {detail}"));
}

#[track_caller]
fn finds(body: &str, config: LaunchConfig, text: &str) {
    let detail = outcome(body, config).expect_err(body);
    assert!(detail.contains(text), "`{body}`: {detail}");
}

const THREAD: LaunchConfig =
    LaunchConfig { grid: [1; 3], block: [1; 3], dynamic_shared: 0, cluster: None, cooperative: false };
const WRITTEN: &str = "`ld.global.nc` of global memory";
const READ: &str = "which this launch has read with `ld.global.nc`";

#[test]
fn accesses_of_one_thread() {
    finds("st.global.u32 [%data+8], 1; ld.global.nc.u32 %r1, [%data+8];", THREAD, WRITTEN);
    finds("ld.global.nc.u32 %r1, [%data+8]; st.global.u32 [%data+8], 1;", THREAD, READ);
    finds(
        "ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%data]; mov.u16 %h1, 1; st.global.u8 [%data+15], %h1;",
        THREAD,
        READ,
    );
    finds("ld.global.nc.u32 %r1, [%data]; red.global.add.u32 [%data], 1;", THREAD, READ);
    // Other bytes, and loads without `.nc`.
    clean(
        "mov.u16 %h1, 1; ld.global.nc.u8 %h2, [%data+6]; st.global.u8 [%data+5], %h1; st.global.u8 [%data+7], %h1;",
        THREAD,
    );
    clean("st.global.u32 [%data+8], 1; ld.global.u32 %r1, [%data+8];", THREAD);
    clean("st.global.u32 [%data+8], 1; ld.global.nc.u32 %r1, [%data+12];", THREAD);
    // Blocks of 128 bytes have records of their own.
    finds(
        "ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%data+112]; st.global.u64 [%data+120], %x1;"
            .replace("ld", "mov.u64 %x1, 0; ld")
            .as_str(),
        THREAD,
        READ,
    );
    clean("ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%data+112]; st.global.u32 [%data+128], 1;", THREAD);
}

#[test]
fn accesses_of_several_threads() {
    let warps = LaunchConfig::linear(1, 64);
    let exchange = |load: &str| {
        format!(
            "mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; xor.b32 %r1, %r0, 32; mad.wide.u32 %x1, %r1, 4, %data;
            st.global.u32 [%x0], %r0; bar.sync 0; {load} %r2, [%x1]; ret;"
        )
    };
    clean(&exchange("ld.global.u32"), warps);
    finds(&exchange("ld.global.nc.u32"), warps, WRITTEN);
    // Each thread reads its own element before it writes it.
    let in_place = "mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; ld.global.nc.u32 %r1, [%x0]; st.global.u32 [%x0], %r1;";
    finds(in_place, warps, READ);
    clean(&in_place.replace(".nc", ""), warps);
    let options = Options { checks: Checks { races: false, ..Checks::default() }, ..Options::default() };
    assert!(launch_with(&kernel("", in_place), warps, &mut words(64, 0), &options).is_ok());
    // The halves of the data are inputs and outputs.
    let halves = "mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %data; ld.global.nc.u32 %r1, [%x0]; st.global.u32 [%x0+128], %r1;";
    clean(halves, LaunchConfig::linear(1, 32));
    finds(halves, warps, "global memory");
}

#[test]
fn accesses_of_several_ctas() {
    let flag = |load: &str| {
        format!(
            "mov.u32 %r0, %ctaid.x; mov.u32 %r1, 1; setp.eq.u32 %p, %r0, 1; @%p bra READER;
            st.global.u32 [%data], 7; st.release.gpu.global.u32 [%data+64], %r1; ret;
            READER: ld.acquire.gpu.global.u32 %r2, [%data+64]; setp.ne.u32 %q, %r2, 1; @%q bra READER;
            {load} %r3, [%data]; st.global.u32 [%data+4], %r3; ret;"
        )
    };
    let two = LaunchConfig::linear(2, 1);
    assert_eq!(outcome(&flag("ld.global.u32"), two).map(|data| data[1]), Ok(7));
    finds(&flag("ld.global.nc.u32"), two, "global memory");
}

#[test]
fn bulk_copies_write_too() {
    let body = |load: &str| {
        format!(
            ".shared .align 16 .b32 tile[4]; mov.u32 %r0, 1; st.shared.v4.u32 [tile], {{%r0, %r0, %r0, %r0}};
            fence.proxy.async.shared::cta; {load} %r1, [%data+4];
            cp.async.bulk.global.shared::cta.bulk_group [%data], [tile], 16; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
        )
    };
    clean(&body("ld.global.u32"), THREAD);
    finds(&body("ld.global.nc.u32"), THREAD, READ);
}

#[test]
fn another_launch_may_read_what_a_launch_has_written() {
    let text =
        kernel("", "ld.global.nc.u32 %r1, [%data]; add.u32 %r1, %r1, 1; st.global.u32 [%data+4], %r1;");
    let module = Module::parse(&text).expect("loads");
    let memory = Memory::new();
    let data = memory.alloc("data", 12);
    memory.write(data, &[0; 12]).expect("inside");
    for first in [data, data + 4] {
        let kernel = module.kernel("kernel").expect("declared");
        run(kernel, &memory, &THREAD, &first.to_le_bytes(), &Options::default()).expect("runs");
    }
    let mut last = [0; 4];
    memory.read(data + 8, &mut last).expect("inside");
    assert_eq!(last, [2, 0, 0, 0]);
}
