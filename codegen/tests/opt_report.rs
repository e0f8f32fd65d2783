//! Reports of the optimiser for small kernels.

use bespoke_codegen::prelude::*;
use expect_test::{Expect, expect};

fn check(kernel: Recorded, expected: Expect) {
    let compiled =
        kernel.expect("the kernel is recorded").compile(Target::Sm90).expect("the kernel compiles");
    let report = compiled.opt_report();
    // Lines are counted from the kernel, so that a change above it changes nothing.
    let first = report.entries.iter().filter_map(|entry| entry.places.first()).map(|place| place.line).min();
    let file = format!("{}:", file!());
    let mut text = String::new();
    for line in report.to_string().lines() {
        let mut parts = line.split(&file);
        text.push_str(parts.next().unwrap_or_default());
        for part in parts {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let number: u32 = part[..digits].parse().expect("a line");
            text.push_str(&format!("+{}{}", number - first.unwrap_or(0), &part[digits..]));
        }
        text.push('\n');
    }
    expected.assert_eq(&text);
}

#[test]
fn loops() {
    #[kernel(threads = 128)]
    fn k(x: Ptr<Global, f32>, y: Ptr<Global, f32>, n: Val<u32>) {
        let i = thread_index();
        let mut sum = val(0.0f32);
        let mut at = val(0u32);
        while at < 8 {
            sum += x.at(at * 32 + i).load();
            at += 1;
        }
        for j in 0..n {
            sum += x.at(j * 128 + i).load();
        }
        for j in 0..n {
            y.at(j * 128 + i).store(sum);
        }
        for j in (0..n).unroll(2) {
            y.at(j * 128 + i).store(sum);
        }
        for j in (0..n).unroll(1) {
            sum += x.at(j).load();
        }
        for j in 0..n {
            let value = x.at(j * 128 + i).load();
            if value < 0.0 {
                break;
            }
            sum += value;
        }
        for j in 0..n {
            if j & 3 < 2 {
                sum += x.at(j * 128 + i).load();
            }
        }
        y.at(i).store(sum);
    }
    check(
        k(),
        expect![[r#"
            the kernel
              done   registers        10 variables of loops and branches share 3 registers, without moves
            +0:9
              done   unroll           unrolled fully: 8 iterations
            +4:9
              done   unroll_partially unrolled 4 times (its loads can be in flight together); a second loop runs the remaining iterations
            +7:9
              missed unroll           loop not unrolled: the number of iterations is unknown: start, limit or step is not a constant
              missed unroll_partially loop not unrolled: it writes memory or waits (+8); `.unroll(N)` on the range of a `for` unrolls it nevertheless
            +10:9
              done   unroll_partially unrolled 2 times (as requested); a second loop runs the remaining iterations
            +13:9
              missed unroll           loop not unrolled: `.unroll(1)` keeps it
            +16:9
              missed unroll           loop not unrolled: it can also end at a `break` or `return` (+18)
            +23:9
              missed unroll           loop not unrolled: the number of iterations is unknown: start, limit or step is not a constant
              missed unroll_partially loop not unrolled: it contains a branch or a loop (+24); `.unroll(N)` on the range of a `for` unrolls it nevertheless
            +24:13
              missed ifconvert        branch not replaced by selections: a side has a load, a store or another effect (+25)
        "#]],
    );
}

#[test]
fn vectors() {
    #[kernel(threads = 128)]
    fn k(#[aligned(16)] x: Ptr<Global, f32>, y: Ptr<Global, f32>, #[aligned(8)] z: Ptr<Global, f32>) {
        let x = x.at(thread_index() * 4);
        let y = y.at(thread_index() * 4);
        let z = z.at(thread_index() * 2);
        let mut sum = val(0.0f32);
        for j in 0..4 {
            sum += x.at(j).load();
        }
        for j in 0..4 {
            y.at(j).store(sum);
        }
        let first = z.load();
        y.store(first);
        y.store(first + z.at(1).load());
    }
    check(
        k(),
        expect![[r#"
        +0:28
          done   widen            joined 4 loads of f32 into a vector of 16 bytes
        +3:21
          missed widen            4 adjacent stores of f32 not joined: the address is known to be a multiple of 4 bytes, and a vector needs 8; promise more with `#[aligned(16)]` on the pointer
        +5:23
          missed widen            2 adjacent loads of f32 not joined: an instruction between them (+6) may access the same memory, or orders them
    "#]],
    );
}

#[test]
fn the_rest() {
    #[kernel(threads = 128)]
    fn k(x: Ptr<Global, u32>, y: Ptr<Global, u32>, n: Val<u32>, wide: Val<u64>) {
        let i = thread_index();
        let (row, column) = (i / 36, i % 36);
        let mut sum = row * n + column / n;
        if i < 128 {
            sum += (wide & 0xffff).cast::<u32>() % 7;
        }
        for j in 0..n {
            sum += x.at(i * n * 4).load() * (n * 3 + i);
            if sum > j {
                sum -= j;
            }
        }
        if sum > 7 {
            sum = y.at(i).load();
        }
        let narrow = (wide & 0xffff) / (val(9u64) + i.cast::<u64>());
        y.at(i).store(sum + narrow.cast::<u32>());
    }
    check(
        k(),
        expect![[r#"
        the kernel
          done   registers        5 variables of loops and branches share 2 registers, without moves
        +0:30
          done   divide           computed the quotient by 36 by a product
        +0:38
          done   divide           computed the remainder by 36 by a product
        +1:33
          missed divide           division not replaced: the divisor is not a compile-time constant
        +2:14
          done   bounds           the condition is always true
        +3:20
          done   divide           computed the remainder by 7 by a product
        +5:9
          done   unroll_partially unrolled 4 times (its loads can be in flight together); a second loop runs the remaining iterations
        +6:22
          done   licm             moved 2 instructions out of the loop (+5)
        +6:25
          done   licm             moved 2 instructions out of the loop (+5)
        +6:36
          missed licm             load not moved out of the loop (+5), although each iteration reads the same address: memory may change; load before the loop if it does not (5 times)
        +6:45
          done   licm             moved 1 instruction out of the loop (+5)
        +6:46
          done   licm             moved 1 instruction out of the loop (+5)
        +7:13
          done   ifconvert        replaced a branch by 1 selection
        +11:9
          missed ifconvert        branch not replaced by selections: a side has a load, a store or another effect (+12)
        +14:22
          done   narrow           computed a 64-bit division in 32 bits
          missed divide           division not replaced: the divisor is not a compile-time constant
    "#]],
    );
}

/// What the passes did in a called function follows, at the function's lines.
#[test]
fn called_functions() {
    #[device(call)]
    fn power(x: Val<f32>, n: Val<u32>) -> Val<f32> {
        let mut y = val(1.0f32);
        for _ in (0..n).unroll(1) {
            y *= x;
        }
        for _ in (0..n).unroll(1) {
            y *= x;
        }
        y
    }
    #[kernel(threads = 128)]
    fn k(x: Ptr<Global, f32>, n: Val<u32>) {
        let x = x.at(thread_index());
        let mut sum = power(x.load(), n);
        for j in 0..n {
            sum += power(x.load(), j);
        }
        x.store(sum);
    }
    check(
        k(),
        expect![[r#"
            the kernel
              done   registers        4 variables of loops and branches share 2 registers, without moves
            +12:9
              done   unroll_partially unrolled 4 times (its loads can be in flight together); a second loop runs the remaining iterations
            +13:28
              missed licm             load not moved out of the loop (+12), although each iteration reads the same address: memory may change; load before the loop if it does not (5 times)
            the function power
              done   registers        2 variables of loops and branches share 1 register, without moves
            +0:9
              missed unroll           loop not unrolled: `.unroll(1)` keeps it
            +3:9
              missed unroll           loop not unrolled: `.unroll(1)` keeps it
        "#]],
    );
}
