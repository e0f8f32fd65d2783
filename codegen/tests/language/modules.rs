//! Several kernels in one module.

use bespoke_codegen::prelude::*;
use bespoke_codegen::ptx;
use bespoke_codegen::ptxas::Ptxas;
use bespoke_testing::Launch;
use expect_test::{Expect, expect};

/// Powers of ten, a table that two kernels share.
#[device]
fn power_of_ten(n: Val<u32>) -> Val<f32> {
    constant_table(&[1.0f32, 10.0, 100.0]).at(n).load()
}

#[kernel(threads = 1)]
fn scale(x: Ptr<Global, f32>, n: Val<u32>) {
    x.store(x.load() * power_of_ten(n));
}

#[kernel(threads = 32)]
fn sum(x: Ptr<Global, f32>, n: Val<u32>) {
    let parts = dynamic_shared::<f32>();
    parts.at(lane()).store(x.at(lane()).load() * power_of_ten(n));
    barrier();
    if lane() == 0 {
        let mut sum = val(0.0f32);
        for i in 0..32 {
            sum += parts.at(i).load();
        }
        x.store(sum);
    }
}

#[kernel(threads = 1, allow_spills = 8)]
fn primes(x: Ptr<Global, u32>, n: Val<u32>) {
    x.store(constant_table(&[2u32, 3, 5, 7]).at(n).load());
    printf("prime %u\n", (n,));
}

/// `count` bytes of constant memory.
#[kernel(threads = 1)]
fn tabled(x: Ptr<Global, u8>, n: Val<u32>, byte: u8, count: usize) {
    x.store(constant_table(&vec![byte; count]).at(n).load());
}

fn module() -> Module {
    Module::new().kernel(scale().unwrap()).kernel(sum().unwrap()).kernel(primes().unwrap())
}

/// Everything outside of the bodies, and the lines that name a variable of the module.
fn declarations(ptx: &str) -> String {
    let named = |line: &&str| {
        !line.starts_with(['\t', '$'])
            || line.contains("_table")
            || line.contains("_format")
            || line.contains("dynamic")
    };
    let lines = ptx.lines().filter(named).take_while(|line| !line.starts_with(".file"));
    lines.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn kernels_share_declarations() {
    expect![[r#"
        .version 7.2
        .target sm_80
        .address_size 64

        .extern .shared .align 128 .b8 dynamic_shared[];

        .extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0, .param .b64 vprintf_param_1);
        .const .align 16 .b8 scale_table0[12] = {0, 0, 128, 63, 0, 0, 32, 65, 0, 0, 200, 66};
        .const .align 16 .b8 primes_table0[16] = {2, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0};
        .global .align 1 .b8 primes_format1[10] = {112, 114, 105, 109, 101, 32, 37, 117, 10, 0};
        .visible .entry scale(
        )
        .reqntid 1, 1, 1
        {
        	mov.u64 %rd2, scale_table0;
        }

        .visible .entry sum(
        )
        .reqntid 32, 1, 1
        {
        	mov.u32 %r2, dynamic_shared;
        	mov.u64 %rd4, scale_table0;
        }

        // allow_spills: 24 bytes of stack
        .visible .entry primes(
        )
        .reqntid 1, 1, 1
        {
        	mov.u64 %rd2, primes_table0;
        	mov.u64 %rd5, primes_format1;
        }

    "#]].assert_eq(&declarations(&module().compile(Target::Sm80).unwrap().ptx));
}

#[test]
fn each_entry_point_computes_what_its_kernel_does() {
    let module = module();
    let scaled = Launch::entry(&module, "scale").buffer(&[1.5f32]).value(2u32).run().unwrap();
    assert_eq!(scaled.buffer::<f32>(0), [150.0]);
    let launch = Launch::entry(&module, "sum").buffer(&[0.5f32; 32]).value(1u32);
    assert_eq!(launch.dynamic_shared(128).run().unwrap().buffer::<f32>(0)[0], 160.0);
    let done = Launch::entry(&module, "primes").buffer(&[0u32]).value(3u32).run().unwrap();
    assert_eq!((done.buffer::<u32>(0), done.printed()), (vec![7], "prime 3\n"));
}

/// A finding in a kernel of a module names its Rust line: files are numbered once.
#[test]
fn a_finding_names_the_line() {
    let failure = Launch::entry(&module(), "sum").buffer(&[0.5f32; 31]).value(1u32).dynamic_shared(128).run();
    let message = failure.err().unwrap().to_string();
    assert!(message.contains("tests/language/modules.rs:23 "), "{message}");
}

#[test]
fn a_compiled_kernel_of_a_module_has_its_own_statistics() {
    let compiled = module().compile(Target::Sm80).unwrap();
    let [first, second, third] = &compiled.kernels[..] else { panic!("three kernels") };
    assert!(first.ptx == compiled.ptx && third.ptx == compiled.ptx);
    let alone = scale().unwrap().compile(Target::Sm80).unwrap().report;
    assert_eq!(first.report.mix, alone.mix);
    assert!(first.report.ptx_lines < alone.ptx_lines, "without the lines of the module");
    assert!(first.report.ptx_lines < second.report.ptx_lines);
    assert_eq!(compiled.kernel("primes").unwrap().name, third.name);
    assert!(compiled.kernel("prime").is_none());
    assert!(ptx::entry_text(&compiled.ptx, "sum").unwrap().ends_with("\tret;\n}"));
    let stacks =
        ["scale", "primes"].map(|kernel| bespoke_codegen::ptxas::allowed_stack(&compiled.ptx, kernel));
    assert_eq!(stacks, [0, 24], "8 bytes of spills, 16 of arguments");
}

/// The module has the highest version and the most special target that a kernel needs.
#[test]
fn the_target_is_that_of_all_kernels() {
    #[kernel(threads = 32)]
    fn early(x: Ptr<Global, u32>) {
        if elect() {
            x.store(1);
        }
    }
    #[kernel(threads = 128, min_blocks = 1)]
    fn special() {
        decrease_registers(24);
    }
    let header = |module: Module| {
        let text = module.compile(Target::Sm90).unwrap().ptx;
        text.lines().take(2).collect::<Vec<_>>().join(" ")
    };
    let plain = || Module::new().kernel(copied_to_global().unwrap());
    assert_eq!(header(plain()), ".version 7.8 .target sm_90");
    assert_eq!(header(plain().kernel(early().unwrap())), ".version 8.0 .target sm_90");
    assert_eq!(header(plain().kernel(special().unwrap())), ".version 8.0 .target sm_90a");
    let error = plain().kernel(early().unwrap()).compile(Target::Sm80).unwrap_err().to_string();
    assert!(error.starts_with("early: elect.sync needs sm_90 or later"), "{error}");
}

#[kernel(threads = 1)]
fn copied_to_global(x: Ptr<Global, u32>) {
    x.store(x.at(1).load());
}

fn refused(module: Module, expected: Expect) {
    expected.assert_eq(&module.compile(Target::Sm80).unwrap_err().to_string());
}

#[test]
fn a_module_that_cannot_be_says_what_to_do() {
    refused(
        module().kernel(scale().unwrap()),
        expect![[
            r#"two kernels of a module are called `scale`: give one of them another name with `Kernel::named`, for example `scale(&shape)?.named("scale_4096")`"#
        ]],
    );
    refused(
        module().kernel(copied_to_global().unwrap().named("scale_table0")),
        expect![
            "kernel `scale_table0`: its module declares a variable or function of this name: rename the kernel with `Kernel::named`"
        ],
    );
    refused(
        module().kernel(copied_to_global().unwrap().named("dynamic_shared")),
        expect![
            "kernel `dynamic_shared`: its module declares a variable or function of this name: rename the kernel with `Kernel::named`"
        ],
    );
    refused(
        module().kernel(copied_to_global().unwrap().named("vprintf")),
        expect![
            "kernel `vprintf`: its module declares a variable or function of this name: rename the kernel with `Kernel::named`"
        ],
    );
    refused(
        module().kernel(copied_to_global().unwrap().named("a b")),
        expect!["kernel `a b`: not a valid name in PTX: use ASCII letters, digits and `_`, a letter first"],
    );
    let large = |byte, name: &str| tabled(byte, 40_000).unwrap().named(name);
    Module::new().kernel(large(1, "a")).kernel(large(1, "b")).compile(Target::Sm80).unwrap();
    refused(
        Module::new().kernel(large(1, "a")).kernel(large(2, "b")),
        expect![
            "80000 bytes of tables exceed the limit of 65536 bytes of constant memory per module: put the kernels into several modules, or pass a table as a buffer"
        ],
    );
}

/// The driver's assembler takes the module, where there is one.
#[test]
fn modules_are_assembled() {
    let Some(ptxas) = Ptxas::find().unwrap_or_else(|error| panic!("{error}")) else {
        return eprintln!("skipped: no ptxas in BESPOKE_PTXAS or on PATH");
    };
    let compiled = module().compile(Target::Sm80).unwrap();
    let assembled = ptxas.cubins(&["scale", "sum", "primes"], &compiled.ptx, Target::Sm80).unwrap();
    assert!(assembled.iter().all(|kernel| kernel.usage.registers > 0));
    assert_eq!(assembled[0].cubin, assembled[2].cubin);
    let empty = Module::new().compile(Target::Sm80).unwrap();
    assert_eq!(ptxas.cubins(&[], &empty.ptx, Target::Sm80).unwrap(), []);
}
