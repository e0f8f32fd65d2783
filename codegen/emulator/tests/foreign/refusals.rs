//! Errors for unsupported PTX, and PTX constructs that other compilers produce but nvcc does not for the sources in
//! this folder.

use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run};
use expect_test::expect;

const HEADER: &str = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// All error messages of a PTX text.
fn errors(text: &str) -> String {
    let errors = Module::load(&format!("{HEADER}{text}")).err().unwrap_or_default();
    errors.iter().map(|error| format!("{}: {error}\n", error.kind)).collect()
}

#[test]
fn every_unsupported_instruction_is_named() {
    let text = ".extern .func (.param .b32 r) elsewhere(.param .b64 f, .param .b64 a);\n\
                .visible .entry k()\n{\n.reg .b32 %r<4>;\n.reg .b64 %x<2>;\n\
                mov.u32 %r0, %tid.x;\nmov.u32 %r3, %pm3;\ntex.2d.v4.s32.s32 {%r0, %r1, %r2, %r3}, [t, {%r1, %r2}];\n\
                add.s32 %r1, %r0, 1;\nvadd.s32.s32.s32 %r1, %r0, %r0;\nadd.frob.s32 %r1, %r0, 1;\n{\n\
                .param .b32 q;\n.param .b64 f, a;\ncall (q), elsewhere, (f, a);\n}\nret;\n}\n";
    let text = text.replace(".param .b64 f, a;", ".param .b64 f;\n.param .b64 a;");
    expect![[r#"
        unsupported: PTX line 10, column 14: in `mov.u32`: the emulator does not support `%pm3`
        unsupported: PTX line 11, column 1: the emulator does not support `tex.2d.v4.s32.s32`
        unsupported: PTX line 13, column 1: the emulator does not support `vadd.s32.s32.s32`
        syntax: PTX line 14, column 1: unknown or misplaced modifier `.frob` of `add.frob.s32`
        unsupported: PTX line 19, column 1: the function `elsewhere` has no body in this module
    "#]]
    .assert_eq(&errors(&text));
}

#[test]
fn recursion_is_refused() {
    let text = ".func f()\n{\ncall f;\nret;\n}\n.visible .entry k()\n{\ncall f;\nret;\n}\n";
    expect![[r#"
        unsupported: PTX line 6, column 1: `f` calls itself (f → f); the emulator does not support recursion
    "#]]
    .assert_eq(&errors(text));
}

/// Runs the kernel `k` of a PTX text with one warp on 32 words.
fn run_words(text: &str, words: &[u32; 32]) -> Result<Vec<u32>, String> {
    let module = Module::load(&format!("{HEADER}{text}")).map_err(|errors| errors[0].to_string())?;
    let kernel = module.kernel("k").ok_or("no kernel")?;
    let memory = Memory::new();
    let data = memory.alloc("data", 128);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write(data, &bytes).map_err(|error| error.to_string())?;
    let config = LaunchConfig::linear(1, 32);
    run(kernel, &memory, &config, &data.to_le_bytes(), &Options::default())
        .map_err(|finding| finding.to_string())?;
    let mut bytes = [0; 128];
    memory.read(data, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes.chunks(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

const LOAD: &str = ".reg .b32 %r<8>;\n.reg .b64 %x<4>;\n.reg .pred %p<2>;\nld.param.u64 %x0, [data];\n\
                    mov.u32 %r0, %tid.x;\nmul.wide.u32 %x1, %r0, 4;\nadd.s64 %x0, %x0, %x1;\n\
                    ld.global.u32 %r1, [%x0];\n";

#[test]
fn branches_through_a_list() {
    let text = format!(
        ".visible .entry k(.param .u64 data)\n{{\n{LOAD}list: .branchtargets A, B, A, C;\n\
         brx.idx %r1, list;\nA:\nmov.u32 %r2, 10;\nbra E;\nB:\nmov.u32 %r2, 20;\nbra.uni E;\nC:\n\
         mov.u32 %r2, 30;\nE:\nvote.sync.ballot.b32 %r3, %p0, 0xffffffff;\nadd.u32 %r2, %r2, %r0;\n\
         st.global.u32 [%x0], %r2;\nret;\n}}\n"
    )
    .replace("vote.sync", "setp.ge.u32 %p0, %r2, 20;\nvote.sync");
    let cases: [u32; 32] = std::array::from_fn(|lane| lane as u32 * 7 % 4);
    let expected: Vec<u32> =
        (0..32).map(|lane| [10, 20, 10, 30][cases[lane] as usize] + lane as u32).collect();
    assert_eq!(run_words(&text, &cases), Ok(expected));
    let mut outside = cases;
    outside[5] = 4;
    let finding = run_words(&text, &outside).err().unwrap_or_default();
    assert!(finding.contains("outside the list") && finding.contains("thread (5, 0, 0)"), "{finding}");
}

#[test]
fn functions_take_and_return_registers() {
    let text = format!(
        ".func (.reg .b32 r) f(.reg .b32 a, .param .b32 b)\n{{\n.reg .b32 t;\n.reg .pred p;\n\
         setp.gt.u32 p, a, 8;\n@p bra BIG;\nmov.u32 r, 1;\nret;\nBIG:\nld.param.u32 t, [b];\n\
         add.u32 r, a, t;\nret;\n}}\n.visible .entry k(.param .u64 data)\n{{\n{LOAD}\
         mov.u32 %r2, 77;\nsetp.ne.u32 %p0, %r1, 3;\n@%p0 call (%r2), f, (%r1, 100);\n\
         st.global.u32 [%x0], %r2;\nret;\n}}\n"
    );
    let x: [u32; 32] = std::array::from_fn(|lane| lane as u32);
    let expected = x.iter().map(|&x| match x {
        3 => 77,
        9.. => x + 100,
        _ => 1,
    });
    assert_eq!(run_words(&text, &x), Ok(expected.collect()));
}

#[test]
fn local_memory_has_bounds_and_must_be_written_first() {
    let kernel = |body: &str| {
        format!(
            ".visible .entry k(.param .u64 data)\n{{\n.local .align 4 .b8 stack[16];\n{LOAD}{body}ret;\n}}\n"
        )
    };
    let finding = |body: &str| run_words(&kernel(body), &[0; 32]).err().unwrap_or_default();
    let unwritten =
        finding("st.local.u32 [stack+4], %r0;\nld.local.u32 %r2, [stack+8];\nst.global.u32 [%x0], %r2;\n");
    assert!(unwritten.contains("uninitialised") && unwritten.contains("local memory"), "{unwritten}");
    let outside = finding("mov.u32 %r2, stack;\nmad.lo.u32 %r2, %r0, 4, %r2;\nst.local.u32 [%r2], %r0;\n");
    assert!(outside.contains("out of bounds") && outside.contains("thread (4, 0, 0)"), "{outside}");
    let own = kernel(
        "st.local.u32 [stack], %r0;\nmov.u64 %x2, stack;\ncvta.local.u64 %x2, %x2;\nld.u32 %r3, [%x2];\n\
         st.global.u32 [%x0], %r3;\n",
    );
    assert_eq!(run_words(&own, &[0; 32]), Ok((0..32).collect()));
}
