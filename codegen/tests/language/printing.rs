//! Kernels that print or stop.

use bespoke_codegen::prelude::*;

#[kernel(threads = 32)]
fn prints(x: Ptr<Global, f32>, n: Val<u32>, wrong: u32) {
    if lane() == 3 {
        match wrong {
            0 => printf("100%%\n", ()),
            1 => printf("%d\n", (x.load(),)),
            2 => printf("%f %f\n", (x.load(),)),
            3 => printf("%s\n", (lane(),)),
            4 => printf("%u\n", (n.cast::<u64>(),)),
            5 => printf("%f\n", (n,)),
            6 => printf("%", ()),
            7 => printf("%lf\n", (x.load(),)),
            8 => printf("%u", [n; 33]),
            _ => {}
        }
    }
    for i in 0..n {
        let half = x.load().cast::<f16>();
        if lane() == i {
            printf("%u: %5.1f %d %c ", (i, half, n > 1, val(b'a') + i.cast::<u8>()));
            printf("%lld|%-4d|%x\n", (val(-1i64) << 40, val(-7i8), val(0xabcu16)));
        }
    }
}

#[test]
fn kernels_print() {
    let kernel = prints(0).unwrap_or_else(|error| panic!("{error}"));
    let launch = || bespoke_testing::Launch::of(&kernel).buffer(&[2.5f32]).value(2u32);
    let lines = |i: u32| {
        let letter = char::from(b'a' + i as u8);
        format!("{i}:   2.5 1 {letter} -1099511627776|-7  |abc\n")
    };
    assert_eq!(launch().run().unwrap().printed(), format!("100%\n{}{}", lines(0), lines(1)));
    let without = prints(9).unwrap();
    let done = bespoke_testing::Launch::of(&without).buffer(&[2.5f32]).value(0u32).run().unwrap();
    assert_eq!(done.printed(), "");
}

#[test]
fn a_format_that_does_not_fit_its_arguments_is_an_error() {
    let messages = [
        (
            1,
            "`%d` prints an integer of up to 32 bits or a `bool`, but argument 1 of `printf` is a float: write `%f`",
        ),
        (2, "has 2 conversions, but there are 1 arguments"),
        (3, "no conversion `%s`"),
        (4, "but argument 1 of `printf` is a 64-bit integer or a pointer: write `%lld`"),
        (5, "`%f` prints a float"),
        (6, "no conversion `%`"),
        (7, "no conversion `%lf`"),
        (8, "has 1 conversions, but there are 33 arguments"),
    ];
    for (wrong, message) in messages {
        let error = prints(wrong).expect_err("an error");
        assert!(error.message.contains(message) && error.file.ends_with("printing.rs"), "{wrong}: {error}");
    }
}

#[test]
fn a_printed_table_may_be_read_too() {
    #[kernel(threads = 1)]
    fn both(x: Ptr<Global, u8>) {
        printf("ab", ());
        x.store(constant_table(b"ab\0").at(1).load());
    }
    let kernel = both().unwrap();
    let done = bespoke_testing::Launch::of(&kernel).uninitialised::<u8>(1).run().unwrap();
    assert_eq!((done.printed(), done.buffer::<u8>(0)), ("ab", vec![b'b']));
    assert!(done.ptx().contains(".global .align 1 .b8 both_format0[3]"), "{}", done.ptx());
}

#[test]
fn a_trap_is_a_finding_at_its_line() {
    const HERE: u32 = line!();
    #[kernel(threads = 32)]
    fn stops(x: Ptr<Global, u32>) {
        if x.at(lane()).load() == 7 {
            printf("before\n", ());
            trap();
        }
        x.at(lane()).store(1);
    }
    let kernel = stops().unwrap();
    let run = |value: u32| bespoke_testing::Launch::of(&kernel).buffer(&[value; 32]).run();
    assert_eq!(run(6).unwrap().buffer::<u32>(0), [1; 32]);
    match run(7) {
        Err(bespoke_testing::Failure::Finding(finding)) => {
            assert_eq!(finding.kind, bespoke_emulator::FindingKind::Trap);
            assert_eq!(finding.source.as_ref().map(|source| source.line), Some(HERE + 5));
            assert_eq!(finding.printed, "before\n".repeat(32));
        }
        other => panic!("a trap, not {}", other.map(|_| "a result").unwrap_or("another error")),
    }
}
