//! Functions that are called, not inlined: `#[device(call)]`.

use std::cell::Cell;

use bespoke_codegen::passes::OptLevel;
use bespoke_codegen::prelude::*;
use bespoke_codegen::ptxas::Ptxas;
use bespoke_testing::Launch;
use expect_test::{Expect, expect};

/// x², with a loop: Σ (2i + 1) for i < x.
#[device(call)]
fn square(x: Val<u32>) -> Val<u32> {
    let mut sum = val(0u32);
    for i in 0..x {
        sum += 2 * i + 1;
    }
    sum
}

#[kernel(threads = 32)]
fn squares(x: Ptr<Global, u32>) {
    let x = x.at(lane());
    if lane() % 2 == 0 {
        x.store(square(x.load()) + square(lane()));
    }
}

#[derive(Clone, Copy, Carry)]
struct Ends {
    least: Val<i32>,
    most: Val<i32>,
    counts: [Val<u16>; 2],
    found: Val<bool>,
}

/// Both ends of `data`, how many elements are below and above `limit`, and whether one is equal.
#[device(call)]
fn ends(data: Ptr<Global, i32>, length: Val<u32>, limit: (Val<i32>, Val<bool>)) -> Ends {
    let zero = val(0u16);
    let mut ends = Ends { least: data.load(), most: data.load(), counts: [zero, zero], found: val(false) };
    for i in 0..length {
        let x = data.at(i).load();
        ends.least = ends.least.min(x);
        ends.most = ends.most.max(x);
        if x < limit.0 {
            ends.counts[0] += 1u16;
        } else if x > limit.0 {
            ends.counts[1] += 1u16;
        } else if limit.1 {
            ends.found = val(true);
        }
    }
    ends
}

#[kernel(threads = 1)]
fn described(data: Ptr<Global, i32>, out: Ptr<Global, i32>) {
    let Ends { least, most, counts: [below, above], found } = ends(data, val(6), (val(3), val(true)));
    out.at(0).store(least);
    out.at(1).store(most);
    out.at(2).store(below.cast());
    out.at(3).store(above.cast());
    out.at(4).store(select(found, val(1), val(0)));
}

/// Equal calls, and a branch on the result of a call around a barrier.
#[kernel(threads = 64)]
fn summed(x: Ptr<Global, u32>, n: Val<u32>) {
    let sums = shared_array::<u32>(64);
    let i = thread_index();
    sums.at(i).store(x.at(i).load() + square(n) + square(n));
    if square(n) > 3 {
        barrier();
        x.at(i).store(sums.at(63 - i).load());
    }
}

/// Calls in a function that is called, with a compile-time number and a type.
#[device(call)]
fn scaled<T: Scalar + Number>(x: Val<T>, times: u32) -> Val<T> {
    let mut x = x;
    for _ in 0..times {
        x = twice(x);
    }
    x
}

#[device(call)]
fn twice<T: Scalar + Number>(x: Val<T>) -> Val<T> {
    x + x
}

/// Stores through a pointer to shared memory, returns early, and has no result.
#[device(call)]
fn mark(flags: Ptr<Shared, u32>, i: Val<u32>) {
    if i >= 4 {
        return;
    }
    flags.at(i).store(i + 10);
}

#[kernel(threads = 8)]
fn nested(x: Ptr<Global, f32>, y: Ptr<Global, u32>) {
    let (i, flags) = (thread_index(), shared_array::<u32>(8));
    flags.at(i).store(0);
    mark(flags, i);
    x.at(i).store(scaled(x.at(i).load(), 3) + scaled(x.at(i).load(), 1));
    y.at(i).store(scaled(i, 2) + flags.at(i).load());
}

/// The functions of a kernel, and the names that its calls have.
fn functions(kernel: &Kernel) -> String {
    let names: Vec<&str> = kernel.function().functions.iter().map(|function| &function.name[..]).collect();
    names.join(" ")
}

#[test]
fn equal_functions_are_one() {
    let kernel = squares().unwrap();
    assert_eq!(functions(&kernel), "square");
    let ptx = kernel.compile(Target::Sm80).unwrap().ptx;
    let lines =
        ptx.lines().filter(|line| ["param", "call", "ret;", ".func"].iter().any(|word| line.contains(word)));
    let text: String =
        lines.filter(|line| !line.contains(".loc")).map(|line| line.to_owned() + "\n").collect();
    expect![[r#"
        .func (.param .align 8 .b8 results[4]) square(.param .b32 square_param_p0)
        	ld.param.b32 %r1, [square_param_p0];
        	st.param.b32 [results+0], %r2;
        	ret;
        	.param .u64 squares_param_x
        	ld.param.u64 %rd1, [squares_param_x];
        	.param .b32 param0;
        	st.param.b32 [param0], %r3;
        	.param .align 8 .b8 returned[4];
        	call (returned), square, (param0);
        	ld.param.b32 %r4, [returned+0];
        	.param .b32 param0;
        	st.param.b32 [param0], %r1;
        	.param .align 8 .b8 returned[4];
        	call (returned), square, (param0);
        	ld.param.b32 %r5, [returned+0];
        	ret;
        .file 1 "codegen/tests/language/calls.rs"
    "#]]
    .assert_eq(&text);
    let x: [u32; 32] = std::array::from_fn(|i| i as u32 % 5);
    let done = Launch::of(&kernel).buffer(&x).run().unwrap();
    let expected: Vec<u32> =
        (0..32).map(|i| if i % 2 == 0 { (i % 5) * (i % 5) + i * i } else { i % 5 }).collect();
    assert_eq!(done.buffer::<u32>(0), expected);
}

/// A function without effect: two equal calls are one, and all threads get the same result.
#[test]
fn calls_of_a_pure_function_are_merged_and_uniform() {
    let kernel = summed().expect("the kernel is recorded");
    let compiled = kernel.compile(Target::Sm80).expect("all threads reach the barrier");
    assert_eq!(compiled.ptx.matches("call (returned), square").count(), 1);
    let x: Vec<u32> = (0..64).collect();
    let done = Launch::of(&kernel).buffer(&x).value(2u32).run().expect("the kernel is right");
    assert_eq!(done.buffer::<u32>(0), (0..64).map(|i| 63 - i + 8).collect::<Vec<u32>>());
}

#[test]
fn structs_arrays_and_tuples_are_passed() {
    let done =
        Launch::of(&described().unwrap()).buffer(&[4, -7, 3, 9, 0, 8]).uninitialised::<i32>(5).run().unwrap();
    assert_eq!(done.buffer::<i32>(1), [-7, 9, 2, 3, 1]);
}

#[test]
fn functions_differ_by_compile_time_arguments() {
    let kernel = nested().unwrap();
    assert_eq!(functions(&kernel), "mark twice scaled scaled_2 twice_2 scaled_3");
    let x: [f32; 8] = std::array::from_fn(|i| i as f32);
    let done = Launch::of(&kernel).buffer(&x).uninitialised::<u32>(8).run().unwrap();
    assert_eq!(done.buffer::<f32>(0), x.map(|x| 10.0 * x));
    assert_eq!(done.buffer::<u32>(1), [10, 15, 20, 25, 16, 20, 24, 28]);
}

/// The text form has the functions, and gives the same PTX.
#[test]
fn the_text_form_has_the_functions() {
    for kernel in [squares().unwrap(), described().unwrap(), nested().unwrap(), named().unwrap()] {
        let read = Kernel::parse(&kernel.function().to_string()).unwrap();
        assert_eq!(functions(&read), functions(&kernel));
        let text = read.function().to_string();
        assert_eq!(Kernel::parse(&text).unwrap().function().to_string(), text);
        for level in [OptLevel::None, OptLevel::Default] {
            let ptx = |kernel: &Kernel| kernel.compile_at(Target::Sm80, level).unwrap().ptx;
            assert_eq!(ptx(&kernel), ptx(&read));
        }
    }
}

/// Kernels of a module share functions; different functions of one name get numbers.
#[test]
fn kernels_of_a_module_share_functions() {
    let module = Module::new()
        .kernel(squares().unwrap().named("first"))
        .kernel(squares().unwrap().named("second"))
        .kernel(other::squares().unwrap().named("third"))
        .kernel(other::squares().unwrap().named("square_3"));
    let ptx = module.compile(Target::Sm80).unwrap().ptx;
    let called = |line: &str| {
        line.trim_start().starts_with("call ") || line.starts_with(".func") || line.contains(".entry")
    };
    let words = |line: &str| {
        line.trim()
            .split_once("(.param .b32 square")
            .map_or(line.trim().to_owned(), |(before, _)| before.to_owned())
    };
    let text: String = ptx.lines().filter(|line| called(line)).map(|line| words(line) + "\n").collect();
    expect![[r#"
        .func (.param .align 8 .b8 results[4]) square
        .func (.param .align 8 .b8 results[4]) square_2
        .visible .entry first(
        call (returned), square, (param0);
        call (returned), square, (param0);
        .visible .entry second(
        call (returned), square, (param0);
        call (returned), square, (param0);
        .visible .entry third(
        call (returned), square_2, (param0);
        .visible .entry square_3(
        call (returned), square_2, (param0);
    "#]]
    .assert_eq(&text);
    let launch = Launch::entry(&module, "square_3").buffer(&[5u32; 32]).run().unwrap();
    assert_eq!(launch.buffer::<u32>(0)[..4], [6, 5, 8, 5]);
}

mod other {
    use super::*;

    #[device(call)]
    fn square(x: Val<u32>) -> Val<u32> {
        x + 1u32
    }

    #[kernel(threads = 32)]
    pub fn squares(x: Ptr<Global, u32>) {
        if lane() % 2 == 0 {
            x.at(lane()).store(square(x.at(lane()).load()) + lane());
        }
    }
}

macro_rules! plus_one {
    ($($name:ident)*) => { $(
        #[device(call)]
        #[allow(non_snake_case)]
        fn $name(x: Val<u32>) -> Val<u32> {
            x + 1
        }
    )* };
}
plus_one!(shared0 local0 dynamic_shared named_param_x returned results param0 vprintf WARP_SZ größe r#fn);

/// Functions whose names the printer writes itself, or PTX does not have.
#[kernel(threads = 32)]
fn named(x: Ptr<Global, u32>) {
    let (shared, local) = (shared_array::<u32>(32), local_array::<u32>(1));
    let x = x.at(lane());
    shared.at(lane()).store(shared0(local0(x.load())));
    local.store(dynamic_shared(named_param_x(shared.at(lane()).load())));
    local.store(returned(results(param0(vprintf(local.load())))));
    // Never true: it is there for the declaration of `vprintf`.
    if lane() == 40 {
        printf("%u", (lane(),));
    }
    x.store(größe(WARP_SZ(r#fn(local.load()))));
}

#[test]
fn a_function_can_have_any_name() {
    let done =
        Launch::of(&named().expect("recorded")).buffer(&[1u32; 32]).run().expect("the kernel is right");
    assert_eq!(done.buffer::<u32>(0), [12; 32]);
    let named = named().expect("recorded").named("WARP_SZ").compile(Target::Sm80);
    assert!(named.expect_err("an error").to_string().contains("rename the kernel"));
}

/// The driver's assembler takes the calls, where there is one.
#[test]
fn calls_are_assembled() {
    let Some(ptxas) = Ptxas::find().unwrap_or_else(|error| panic!("{error}")) else {
        return eprintln!("skipped: no ptxas in BESPOKE_PTXAS or on PATH");
    };
    for kernel in [squares().unwrap(), described().unwrap(), nested().unwrap()] {
        for level in [OptLevel::None, OptLevel::Default] {
            let compiled = kernel.compile_at(Target::Sm80, level).unwrap();
            ptxas
                .cubin(kernel.name(), &compiled.ptx, Target::Sm80)
                .unwrap_or_else(|error| panic!("{error}\n{}", compiled.ptx));
        }
    }
}

/// A finding in a called function names its line, and the access through a parameter is checked.
#[test]
fn a_finding_in_a_function_names_its_line() {
    let failure = Launch::of(&described().unwrap()).buffer(&[4, -7, 3]).uninitialised::<i32>(5).run();
    let message = failure.err().unwrap().to_string();
    let line = |text: &str| {
        let found = include_str!("calls.rs").lines().position(|line| line.contains(text));
        format!("codegen/tests/language/calls.rs:{}", found.unwrap() + 1)
    };
    let (load, call) = (line("let x = data.at(i).load();"), line("= ends(data, val(6)"));
    assert!(
        message.starts_with(&format!("out of bounds in kernel `described` at {load}, inlined at {call}:")),
        "{message}"
    );
}

fn refused(recorded: Recorded, expected: Expect) {
    let error = recorded.expect_err("recording must fail");
    let lines: Vec<&str> = include_str!("calls.rs").lines().collect();
    let line = lines[error.line as usize - 1];
    assert!(line.contains("// here"), "{error}: {line}");
    let message: Vec<&str> = error.message.split(". Recording runs").collect();
    // Without the numbers of lines.
    let mut parts = message[0].split("codegen/tests/language/calls.rs:");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| {
        text + "calls.rs" + part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':')
    });
    expected.assert_eq(&format!("{}: {text}", error.kernel));
}

/// An error in a function of the library names the calls that lead to it.
#[test]
fn an_error_names_the_calls() {
    #[device(call)]
    fn total(x: Val<u32>) -> Val<u32> {
        warp_sum(x)
    }
    #[kernel(threads = 32)]
    fn k(x: Ptr<Global, u32>) {
        x.store(total(x.load()));
    }
    let error = k().expect_err("a called function has no shuffles");
    let last: Vec<&String> = error.callers.iter().filter(|caller| caller.contains("calls.rs")).collect();
    let line =
        |text: &str| include_str!("calls.rs").lines().position(|line| line.contains(text)).unwrap() + 1;
    let expected = [line("        warp_sum(x)"), line("x.store(total(x.load()))")];
    assert_eq!(
        last.iter().map(|caller| caller.split(':').nth(1).unwrap().parse().unwrap()).collect::<Vec<usize>>(),
        expected,
        "{error}"
    );
}

macro_rules! kernel_of {
    ($($name:ident = $body:expr;)*) => { $(
        #[kernel(threads = 32)]
        fn $name(x: Ptr<Global, u32>) {
            let body = $body;
            body(x);
        }
    )* };
}

#[device(call)]
fn endless(x: Val<u32>) -> Val<u32> {
    endless(x) + 1u32 // here
}

#[device(call)]
fn waits() {
    barrier(); // here
}

#[device(call)]
fn shares(x: Val<u32>) {
    shared_array::<u32>(32).at(lane()).store(x); // here
}

#[device(call)]
fn votes(x: Val<u32>) -> Val<u32> {
    select(elect(), x, 0) // here
}

thread_local! {
    static KEPT: Cell<Option<Val<u32>>> = const { Cell::new(None) };
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

#[device(call)]
fn keeps(x: Val<u32>) -> Val<u32> {
    KEPT.set(Some(x));
    x
}

#[device(call)]
fn uses_kept(x: Val<u32>) -> Val<u32> {
    x + KEPT.get().unwrap() // here
}

/// Sums with state in a `Cell`, which no variable of the loop carries.
#[device(call)]
fn cell_sum(x: Val<u32>) -> Val<u32> {
    let sum = Cell::new(val(0u32));
    for i in 0..x {
        sum.set(sum.get() + i);
    }
    sum.get() + 1u32 // here
}

/// Adds how often it was recorded.
#[device(call)]
fn counted(x: Val<u32>) -> Val<u32> {
    COUNT.set(COUNT.get() + 1);
    x + COUNT.get()
}

kernel_of! {
    recursive = |x: Ptr<Global, u32>| x.store(endless(x.load()));
    waiting = |_: Ptr<Global, u32>| waits();
    sharing = |x: Ptr<Global, u32>| shares(x.load());
    voting = |x: Ptr<Global, u32>| x.store(votes(x.load()));
    smuggling = |x: Ptr<Global, u32>| {
        keeps(x.load());
        x.store(KEPT.get().unwrap()); // here
    };
    capturing = |x: Ptr<Global, u32>| {
        KEPT.set(Some(x.load()));
        x.store(uses_kept(x.load()));
    };
    in_a_cell = |x: Ptr<Global, u32>| x.store(cell_sum(x.load()));
}

#[kernel(threads = 32)]
fn counting(x: Ptr<Global, u32>) {
    for i in 0..x.load() {
        x.at(i).store(counted(i)); // here
    }
}

#[test]
fn a_function_that_cannot_be_called_says_what_to_do() {
    refused(
        recursive(),
        expect![
            "recursive: `endless` calls itself: a function with `#[device(call)]` cannot be recursive; write a loop, or `#[device]` if a compile-time condition ends the recursion"
        ],
    );
    refused(
        waiting(),
        expect![
            "waiting: a function with `#[device(call)]` cannot have barriers, instructions of a whole warp or shared variables, since some threads may call it while others do not: write `#[device]`, which is inlined, or pass a pointer to shared memory"
        ],
    );
    refused(
        sharing(),
        expect![
            "sharing: a function with `#[device(call)]` cannot have barriers, instructions of a whole warp or shared variables, since some threads may call it while others do not: write `#[device]`, which is inlined, or pass a pointer to shared memory"
        ],
    );
    refused(
        voting(),
        expect![
            "voting: a function with `#[device(call)]` cannot have barriers, instructions of a whole warp or shared variables, since some threads may call it while others do not: write `#[device]`, which is inlined, or pass a pointer to shared memory"
        ],
    );
}

#[test]
fn state_does_not_escape_through_calls() {
    refused(
        smuggling(),
        expect![
            "smuggling: this handle belongs to another kernel, or to an earlier recording of this one, which kept it in a `static` or another place outside of the function: pass the value as a parameter, or compute it in this kernel"
        ],
    );
    refused(
        capturing(),
        expect![
            "capturing: this handle belongs to another kernel, or to an earlier recording of this one, which kept it in a `static` or another place outside of the function: pass the value as a parameter, or compute it in this kernel"
        ],
    );
    refused(
        in_a_cell(),
        expect![
            "in_a_cell: this uses the value of calls.rs, in a run-time branch or loop that may not have run: declare `let mut x = val(…)` before that branch or loop and assign `x` in it, or store the value in a `shared_array`"
        ],
    );
    refused(
        counting(),
        expect![
            "counting: this line records other instructions than on other paths after the run-time condition at calls.rs was true"
        ],
    );
}
