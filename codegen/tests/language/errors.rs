//! Errors of recording, at their lines.

use bespoke_codegen::prelude::*;

#[kernel(threads = threads, cluster = cluster)]
fn sized(out: Ptr<Global, u32>, threads: u32, cluster: u32) {
    out.store(0u32);
}

#[test]
fn sizes_out_of_range_are_errors() {
    let error = |threads, cluster| sized(threads, cluster).err().map(|error| error.message);
    assert_eq!(error(1024, 8), None);
    assert_eq!(error(0, 1).unwrap(), "`threads = 0` is out of range: write 1 to 1024");
    assert_eq!(error(2048, 1).unwrap(), "`threads = 2048` is out of range: write 1 to 1024");
    assert_eq!(error(32, 9).unwrap(), "`cluster = 9` is out of range: write 1 to 8");
}

#[kernel(threads = 32, max_registers = registers)]
fn limited(out: Ptr<Global, u32>, registers: u32) {
    out.store(0u32);
}

#[test]
fn most_registers_of_a_thread_are_a_directive() {
    let ptx = |registers| limited(registers).unwrap().compile(Target::Sm90).unwrap().ptx;
    assert!(ptx(104).contains("\n.reqntid 32, 1, 1\n.maxnreg 104\n"), "{}", ptx(104));
    assert!(!ptx(255).contains("maxnreg"), "{}", ptx(255));
    let message = limited(256).err().map(|error| error.message);
    assert_eq!(message.unwrap(), "`max_registers = 256` is out of range: write 1 to 255");
}

#[kernel(min_blocks = 2)]
fn crowded(out: Ptr<Global, u32>) {
    out.store(0u32);
}

#[kernel(threads = 32)]
fn größe(out: Ptr<Global, u32>) {
    out.store(0u32);
}

#[kernel(threads = 32)]
fn of_type(r#type: Ptr<Global, u32>) {
    r#type.store(0u32);
}

#[test]
fn signatures_without_ptx_are_errors() {
    let message = crowded().err().map(|error| error.message);
    assert_eq!(
        message.unwrap(),
        "`min_blocks` limits registers only together with `threads = …`: write both"
    );
    let message = of_type().err().map(|error| error.message);
    assert_eq!(
        message.unwrap(),
        "PTX has no name for the parameter `r#type`: write ASCII letters, digits and `_`"
    );
    let kernel = größe().unwrap_or_else(|error| panic!("{error}"));
    let error = kernel.compile(Target::Sm90).err().map(|error| error.to_string());
    assert_eq!(
        error.unwrap(),
        "kernel `größe`: not a valid name in PTX: use ASCII letters, digits and `_`, a letter first"
    );
}

/// Checks that recording fails at the line of `// here`, with a message that contains `message`.
macro_rules! refuses {
    ($($name:ident($($parameters:tt)*) $body:block says $message:literal)*) => { $(
        #[test]
        fn $name() {
            #[kernel]
            fn refused($($parameters)*) $body
            let error = refused().expect_err("recording must fail");
            assert!(error.message.contains($message), "{error}");
            assert!(error.file.ends_with("language/errors.rs"), "{error}");
        }
    )* };
}

refuses! {
    a_compile_time_variable_in_a_run_time_branch(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        if n == 3 { count += 1; }
        out.store(count);
    } says "`count` is a compile-time variable, and this run-time branch changes it"

    a_compile_time_variable_right_of_a_run_time_operand(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        if n == 3 || { count += 1; n == 4 } { out.store(count); }
    } says "`count` is a compile-time variable, and this run-time `||` changes it"

    a_compile_time_variable_in_a_run_time_loop(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        for i in 0..n { out.at(i).store(count); count += 1; }
    } says "`count` is a compile-time variable, and this run-time loop changes it"

    a_compile_time_variable_after_a_run_time_continue(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        for i in 0..4u32 {
            if n == i { continue; }
            count += 1;
        }
        out.store(count);
    } says "`count` is a compile-time variable, and it differs between run-time paths that join here"

    a_compile_time_variable_after_a_run_time_break(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut count = 0u32;
        while count < 4 {
            if n == count { break; }
            count += 1;
        }
        out.store(count);
    } says "`count` is a compile-time variable, and it differs between run-time paths that join here"

    a_list_that_grows_in_a_run_time_branch(out: Ptr<Global, u32>, n: Val<u32>) {
        let mut list = vec![n];
        if n > 2 { list.push(n + 1); }
        out.store(list[0]);
    } says "the number of handles in `list` is a compile-time value, and this run-time branch changes it"

    a_run_time_jump_in_place_of_a_value(out: Ptr<Global, u32>, n: Val<u32>) {
        for kind in [None, Some(2u32)] {
            if n > 3 { let k = match kind { Some(k) => k, None => continue }; out.store(k); }
        }
    } says "a run-time `continue` cannot take the place of a value"

    a_recursion_without_end(out: Ptr<Global, u32>, n: Val<u32>) {
        #[device]
        fn endless(n: Val<u32>) -> Val<u32> {
            let next = endless(n + 1);
            next + 1
        }
        out.store(endless(n));
    } says "`endless` is called at a depth of more than 128 calls"

    more_static_shared_memory_than_there_is(out: Ptr<Global, u32>, n: Val<u32>) {
        let first = shared_array::<u32>(12 * 1024);
        first.store(n);
        let second = shared_array::<u8>(1);
        out.store(first.load() + second.load().cast::<u32>());
    } says "49153 bytes of static shared memory exceed the limit of 49152 bytes per CTA"

    a_shared_array_of_no_elements(out: Ptr<Global, u32>, n: Val<u32>) {
        out.store(shared_array::<u32>(0).load() + n);
    } says "a shared array cannot be of no elements: write at least 1"

    a_shared_array_of_conditions(out: Ptr<Global, u32>, n: Val<u32>) {
        let conditions = shared_array::<bool>(4).cast::<u8>();
        conditions.store(n.cast::<u8>());
        out.store(n);
    } says "a shared array cannot be of `bool`: store `u8` instead"

    a_panic(out: Ptr<Global, u32>, n: Val<u32>) {
        out.store(n);
        assert!(size_of::<u32>() == 5, "five bytes");
    } says "five bytes"

    an_assertion_without_a_message(out: Ptr<Global, u32>, n: Val<u32>) {
        let rows = 3u32;
        debug_assert_ne!(rows, 4);
        assert!(rows < 9 && rows % 4 == 0);
        out.store(n);
    } says "assertion failed: rows < 9 && rows % 4 == 0"

    an_assertion_of_equality(out: Ptr<Global, u32>, n: Val<u32>) {
        let rows = [3u32];
        assert_eq!(rows[0] + 1, 5);
        out.store(n);
    } says "assertion `left == right` failed"
}

/// Checks that recording fails with a message that contains `part`, `lines` lines after `from`.
fn fails_at(recorded: Recorded, part: &str, (from, lines): (u32, u32)) {
    let error = recorded.expect_err("recording must fail");
    assert!(error.message.contains(part), "{error}");
    assert!(error.file.ends_with("language/errors.rs"), "{error}");
    assert_eq!(error.line, from + lines, "{error}");
}

#[test]
fn a_panic_is_an_error_at_its_line() {
    const HERE: u32 = line!();
    #[allow(clippy::diverging_sub_expression)]
    #[kernel(threads = 32)]
    fn panics(x: Ptr<Global, u32>, widths: &[u32]) {
        if lane() < 16 {
            let width = *widths.first().expect("at least one width");
            assert!(width < 8, "the width {width} is too large");
            if width == 5 {
                panic!("no width is {width}");
            }
            x.at(widths[1]).store(width);
        }
    }
    fails_at(panics(&[]), "at least one width", (HERE, 5));
    fails_at(panics(&[9]), "the width 9 is too large", (HERE, 6));
    fails_at(panics(&[5]), "no width is 5", (HERE, 8));
    fails_at(panics(&[1]), "index out of bounds", (HERE, 10));
    assert!(panics(&[1, 2]).is_ok());
}

#[test]
fn the_step_of_a_range_is_positive() {
    const HERE: u32 = line!();
    #[kernel(threads = 1)]
    fn steps(x: Ptr<Global, i32>, n: Val<i32>, step: i32) {
        for i in (0..n).step_by(step) {
            x.at(i).store(i);
        }
    }
    #[kernel(threads = 1)]
    fn reverses_steps(x: Ptr<Global, u8>, n: Val<u8>) {
        for i in (0..n).step_by(255).rev() {
            x.store(i);
        }
    }
    fails_at(steps(0), "the step of a range must be positive", (HERE, 3));
    fails_at(steps(-1), "write `(a..b).rev()`", (HERE, 3));
    fails_at(reverses_steps(), "write `.rev().step_by(n)`", (HERE, 9));
    assert!(steps(1).is_ok());
}

#[test]
fn a_loop_is_unrolled_at_least_once_and_not_too_often() {
    const HERE: u32 = line!();
    #[kernel(threads = 1)]
    fn unrolls(x: Ptr<Global, u32>, n: Val<u32>, factor: u32) {
        for i in (0..n).unroll(factor) {
            x.at(i).store(i);
        }
    }
    #[kernel(threads = 1)]
    fn unrolls_twice(x: Ptr<Global, u32>, n: Val<u32>, factor: u32) {
        for i in (0..n).unroll(factor) {
            for j in (0..n).unroll(factor) {
                x.at(i + j).store(i);
            }
        }
    }
    fails_at(unrolls(0), "cannot be unrolled 0 times", (HERE, 3));
    fails_at(unrolls(u32::MAX), "more than 65536", (HERE, 3));
    fails_at(unrolls(20_000), "more than 65536", (HERE, 3));
    fails_at(unrolls_twice(200), "more than 65536", (HERE, 9));
    assert!(unrolls(8).is_ok() && unrolls_twice(8).is_ok());
}

#[test]
fn a_loop_over_numbers_does_not_make_a_kernel_of_any_size() {
    const HERE: u32 = line!();
    #[kernel(threads = 1)]
    fn clears(x: Ptr<Global, u32>, n: u32) {
        for i in 0..n {
            x.at(i).store(0);
        }
    }
    fails_at(clears(u32::MAX), "more than 131072 instructions", (HERE, 4));
    assert!(clears(100).is_ok());
}

#[test]
fn a_barrier_that_some_rows_skip_is_an_error() {
    #[kernel(threads = (16, 4))]
    fn skips(x: Ptr<Global, u32>) {
        if thread_index_y() < 3 {
            barrier();
        }
        x.store(1);
    }
    let error = skips().unwrap().compile(Target::Sm80).unwrap_err().to_string();
    assert!(error.contains("takes thread 32 to it and thread 48 past it"), "{error}");
}
