//! Expansions as text. `UPDATE_EXPECT=1 cargo test -p bespoke-macros` updates the expected text.

use expect_test::{Expect, expect};
use proc_macro2::TokenStream;
use quote::quote;

/// The expansion as formatted text, without paths, imports and lints. A slot is printed as its borrow.
fn printed(tokens: TokenStream) -> String {
    let text = tokens
        .to_string()
        .replace(":: bespoke_codegen :: ", "")
        .replace(":: core :: option :: Option :: ", "")
        .replace(":: core :: marker :: ", "")
        .replace(":: core :: panic :: ", "");
    let text = without(&text, "# [allow (unreachable_code", "]");
    let text = without(&text, "# [allow (unused_imports)]", ";");
    let mut parts = text.split("(& hooks :: SlotOf :: new (");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, borrow_and_rest) = part.split_once(',').expect("a name, then the borrow");
        text += &borrow_and_rest.replacen(")) . slot ()", "", 1);
    }
    let file = syn::parse_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    prettyplease::unparse(&file)
}

/// Removes from `text` the first part from `start` to `end`.
fn without(text: &str, start: &str, end: &str) -> String {
    match text.split_once(start) {
        Some((before, after)) => before.to_owned() + after.split_once(end).expect("the part ends").1,
        None => text.to_owned(),
    }
}

fn device(source: &str) -> TokenStream {
    crate::device::expand(TokenStream::new(), source.parse().expect("tokens"))
}

/// The rewritten statements of a device function's body, as text.
fn body(source: &str) -> String {
    let mut function: syn::ItemFn = syn::parse2(device(source)).expect("a function");
    let Some(syn::Stmt::Expr(syn::Expr::Call(record), _)) = function.block.stmts.pop() else {
        panic!("a device function ends in a call of `__record`")
    };
    let Some(syn::Expr::Closure(recorded)) = record.args.into_iter().next() else { panic!("a closure") };
    let mut body = *recorded.body;
    while let syn::Expr::Block(outer) = &mut body
        && let [syn::Stmt::Expr(inner @ syn::Expr::Block(_), None)] = &mut outer.block.stmts[..]
    {
        body = inner.clone();
    }
    let text = printed(quote!(fn f() #body));
    let lines = text.lines().filter(|line| line.starts_with("    "));
    lines.map(|line| format!("{}\n", &line[4..])).collect()
}

fn check_body(source: &str, expected: Expect) {
    expected.assert_eq(&body(source));
}

fn kernel(arguments: &str, source: &str) -> TokenStream {
    crate::kernel::expand(arguments.parse().expect("tokens"), source.parse().expect("tokens"))
}

fn carry(source: &str) -> TokenStream {
    crate::carry::expand(source.parse().expect("tokens"))
}

/// The slots of the first construct in `source` that has slots, as text.
fn slots(source: &str) -> String {
    let text = printed(device(source));
    let (_, list) = text.split_once("&mut [").expect("a construct");
    let (list, _) = list.split_once(']').expect("a closed list");
    list.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace("&mut ", "")
        .trim_end_matches(',')
        .to_owned()
}

/// The error messages in `tokens`, one per line.
fn errors(tokens: TokenStream) -> String {
    let text = tokens.to_string();
    text.split("compile_error ! {")
        .skip(1)
        .map(|part| part.split_once('}').expect("a closed call").0.trim().trim_matches('"').to_owned() + "\n")
        .collect()
}

#[test]
fn a_kernel_keeps_its_compile_time_parameters() {
    let expansion = kernel(
        "threads = 32 * s.warps",
        "/// Scales.\n pub fn scale<G: Kind>(x: Ptr<Global, f32>, s: Shape, mut n: dsl::Val<u32>) { x.store(n) }",
    );
    expect![[r#"
        /// Scales.
        ///
        /// Run-time parameters: `x: Ptr<Global, f32>`, `n: dsl::Val<u32>`.
        pub fn scale<G: Kind>(s: Shape) -> Recorded {
            hooks::compile_time::<Shape>();
            hooks::record_kernel(
                "scale",
                hooks::KernelOptions {
                    threads: Some(hooks::CtaSize::axes(32 * s.warps)),
                    min_blocks: None,
                    max_registers: None,
                    cluster: None,
                    allow_spills: None,
                },
                || {
                    #[allow(unused_variables)]
                    let s = (&hooks::Repeated::new(&s)).value();
                    let x: Ptr<Global, f32> = hooks::parameter("x");
                    let mut n: dsl::Val<u32> = hooks::parameter("n");
                    { x.store(n) }
                },
            )
        }
    "#]]
    .assert_eq(&printed(expansion));
}

#[test]
fn an_optional_pointer_is_declared_under_its_condition() {
    let expansion = printed(kernel(
        "",
        "fn add(#[present(s.bias != 0)] #[aligned(16)] b: Option<Ptr<Global, f32>>, s: &Shape) { g(&b) }",
    ));
    assert!(
        expansion
            .contains("/// Run-time parameters: `b: Option<Ptr<Global, f32>>` (present if `s.bias != 0`).")
    );
    assert!(expansion.contains("fn add(s: &Shape) -> Recorded"));
    let expansion = expansion.split_whitespace().collect::<Vec<_>>().join(" ");
    let declared = "let b: Option<Ptr<Global, f32>> = if s.bias != 0 { Some(hooks::aligned_parameter(\"b\", 16)) } \
                    else { None };";
    assert!(expansion.contains(declared), "{expansion}");
}

#[test]
fn a_device_function_records_in_a_closure() {
    let expansion = device("pub fn f(&self, n: u32) -> Val<u32> { g() }");
    expect![[r##"
        #[track_caller]
        pub fn f(&self, n: u32) -> Val<u32> {
            let __scope = hooks::enter_device("f", Location::caller());
            fn __record<R>(body: impl ::core::ops::FnOnce() -> R) -> R {
                body()
            }
            __record(move || -> Val<u32> { g() })
        }
    "##]]
    .assert_eq(&printed(expansion));
}

#[test]
fn an_if_records_both_branches() {
    check_body(
        "fn f(mut x: Val<u32>, y: u32) -> Val<u32> { if y < 3 { x += 1; } else { x = g(x) } x }",
        expect![[r#"
            {
                let mut __if1 = (&hooks::condition((&hooks::Pair::new(&y, &3)).lt()))
                    .begin_if(&mut [&mut x]);
                let [mut __then1, mut __else1] = [None, None];
                if __if1.enter_then() {
                    __then1 = Some({
                        x += 1;
                    });
                }
                if __if1.enter_else(&mut [&mut x]) {
                    __else1 = Some({
                        x = ({
                            let __expected2 = (&hooks::TypedPlace::new(&x)).expectation();
                            let __call3 = g(__expected2.pass(x));
                            __expected2.check_type();
                            __call3
                        })
                    });
                }
                __if1.finish(&mut [&mut x], __then1, __else1)
            }
            ({
                let __expected4 = (&hooks::TypedPlace::new(&x)).expectation();
                let __expected4_value = hooks::of_type(
                    PhantomData::<Val<u32>>,
                    __expected4.pass(x),
                );
                __expected4.check_type();
                __expected4_value
            })
        "#]],
    );
}

#[test]
fn constants_beside_handles_pass_through_a_hook() {
    check_body(
        "fn f(c: Val<bool>) { let y = if c { g() } else { -0.5 }; let z = if c { 1 } else { 2 }; y += if c { y } else { h() }; }",
        expect![[r#"
            let y = {
                let mut __if1 = (&hooks::condition(c)).begin_if(&mut []);
                let [mut __then1, mut __else1] = [None, None];
                if __if1.enter_then() {
                    __then1 = Some({ g() });
                }
                if __if1.enter_else(&mut []) {
                    __else1 = Some({ hooks::side(-0.5) });
                }
                __if1.finish(&mut [], __then1, __else1)
            };
            let z = {
                let mut __if2 = (&hooks::condition(c)).begin_if(&mut []);
                let [mut __then2, mut __else2] = [None, None];
                if __if2.enter_then() {
                    __then2 = Some({ 1 });
                }
                if __if2.enter_else(&mut []) {
                    __else2 = Some({ 2 });
                }
                __if2.finish(&mut [], __then2, __else2)
            };
            {
                let __value4 = {
                    let mut __if3 = (&hooks::condition(c)).begin_if(&mut []);
                    let [mut __then3, mut __else3] = [None, None];
                    if __if3.enter_then() {
                        __then3 = Some({ y });
                    }
                    if __if3.enter_else(&mut []) {
                        __else3 = Some({ h() });
                    }
                    __if3.finish(&mut [], __then3, __else3)
                };
                y += __value4;
            };
        "#]],
    );
}

#[test]
fn a_place_of_declared_type_passes_through_a_hook() {
    check_body(
        "fn f(s: &S, n: u32) { let t: T = s.t; let i = a(); y = t; g(n, i); }",
        expect![[r#"
        let t: T = ({
            let __expected1 = (&hooks::TypedPlace::new(&s.t)).expectation();
            let __expected1_value = hooks::of_type(PhantomData::<T>, __expected1.pass(s.t));
            __expected1.check_type();
            __expected1_value
        });
        let i = a();
        ({
            let __expected2 = (&hooks::TypedPlace::new(&t)).expectation();
            y = __expected2.pass(t);
            __expected2.check_type();
        });
        g(n, i);
    "#]],
    );
}

#[test]
fn loops() {
    check_body(
        "fn f(n: Val<u32>) { let mut i = val(0); while i != n { i += 1; } loop { i += 2; break; } }",
        expect![[r#"
            let mut i = val(0);
            {
                let mut __loop1 = (&hooks::condition_type(|| (&hooks::Pair::new(&i, &n)).ne()))
                    .begin_while(&mut [&mut i]);
                loop {
                    if !__loop1.test((&hooks::Pair::new(&i, &n)).ne(), &mut [&mut i]) {
                        break;
                    }
                    {
                        i += 1;
                    }
                    if __loop1.next(&mut [&mut i]) {
                        break;
                    }
                }
                __loop1.finish(&mut [&mut i]);
            }
            {
                let mut __loop2 = hooks::begin_loop(&mut [&mut i]);
                '__loop2: loop {
                    {
                        i += 2;
                        {
                            if __loop2.break_(&mut [&mut i]) {
                                break '__loop2;
                            }
                        }
                    }
                    if __loop2.next(&mut [&mut i]) {
                        break;
                    }
                }
                __loop2.finish(&mut [&mut i]);
            }
        "#]],
    );
    check_body(
        "fn f(n: Val<u32>) { let mut s = val(0); 'a: for i in 0..n { for j in (i..n).step_by(2) { s += j; continue 'a; } } }",
        expect![[r#"
            let mut s = val(0);
            {
                let mut __loop1 = (&hooks::ForOf::new(hooks::range_from_literal(0, n)))
                    .for_loop();
                '__loop1: loop {
                    let Some(__loop1_item) = __loop1.next_item(&mut [&mut s]) else { break };
                    {
                        let i = __loop1_item;
                        {
                            {
                                let mut __loop2 = (&hooks::ForOf::new(
                                    hooks::range(i, n).step_by(2),
                                ))
                                    .for_loop();
                                loop {
                                    let Some(__loop2_item) = __loop2.next_item(&mut [&mut s])
                                    else { break };
                                    {
                                        let j = __loop2_item;
                                        {
                                            s += j;
                                            {
                                                if __loop1.continue_(&mut [&mut s]) {
                                                    __loop1.end_item(&mut [&mut s]);
                                                    continue '__loop1;
                                                }
                                            }
                                        }
                                    }
                                    __loop2.end_item(&mut [&mut s]);
                                }
                                __loop2.finish(&mut [&mut s]);
                            }
                        }
                    }
                    __loop1.end_item(&mut [&mut s]);
                }
                __loop1.finish(&mut [&mut s]);
            }
        "#]],
    );
}

#[test]
fn an_early_return_goes_through_the_frame() {
    check_body(
        "fn f(c: Val<bool>, t: &mut Tile) -> Val<u32> { if c { return a(); } t.sum += 1; b() }",
        expect![[r#"
            let mut __frame = hooks::Frame::enter();
            let mut __result: Val<u32> = {
                {
                    let mut __if1 = (&hooks::condition(c)).begin_if(&mut []);
                    let [mut __then1, mut __else1] = [None, None];
                    if __if1.enter_then() {
                        __then1 = {
                            {
                                {
                                    let mut __value: Val<u32> = a();
                                    if __frame.return_(&mut [&mut __value, &mut *t]) {
                                        return __value;
                                    }
                                }
                            }
                            Some(())
                        };
                    }
                    if __if1.enter_else(&mut []) {
                        __else1 = Some(());
                    }
                    __if1.finish(&mut [], __then1, __else1)
                }
                t.sum += 1;
                b()
            };
            __frame.finish(&mut [&mut __result, &mut *t]);
            __result
        "#]],
    );
}

#[test]
fn operators() {
    check_body(
        "fn f() -> bool { let a = 0 < n && -1 != m[i] || x + 1 >= y; let b = 1 < 2; let c = [1; N < 3]; a }",
        expect![[r#"
            let a = {
                let __or2 = hooks::begin_or(
                    {
                        let __and1 = hooks::begin_and((&hooks::Pair::new(&n, &0)).gt(), &mut []);
                        let __right1 = if __and1.enter() {
                            __and1
                                .right(
                                    (&hooks::Pair::new(
                                        &m[(&hooks::IndexOperand::new(i)).static_value()],
                                        &-1,
                                    ))
                                        .ne(),
                                )
                        } else {
                            None
                        };
                        __and1.finish(&mut [], __right1)
                    },
                    &mut [],
                );
                let __right2 = if __or2.enter() {
                    __or2.right((&hooks::Pair::new(&(x + 1), &y)).ge())
                } else {
                    None
                };
                __or2.finish(&mut [], __right2)
            };
            let b = (&hooks::Pair::new(&1, &2)).lt();
            let c = [1; N < 3];
            a
        "#]],
    );
}

#[test]
fn compile_time_operands_pass_through_hooks() {
    check_body(
        "fn f() {
            let a = n as f32 + *g(m)[i + 1][2] + *b;
            assert!(a < 3,);
            std::debug_assert_eq!(a, t.x + 1, \"{a} {}\", m[i]);
        }",
        expect![[r#"
            let a = ({
                let __cast1 = hooks::CastOperand::new(n);
                (&__cast1).result((&__cast1).static_value() as f32)
            }) + *g(m)[(&hooks::IndexOperand::new(i + 1)).static_value()][2] + *b;
            assert!(
                * (& hooks::AssertionOperand::new(& ((& hooks::Pair::new(& a, & 3)).lt())))
                .static_value(), "assertion failed: {}", ::core::stringify!(a < 3)
            );
            std::debug_assert_eq!(
                * (& hooks::AssertionOperand::new(& a)).static_value(), * (&
                hooks::AssertionOperand::new(& (t.x + 1))).static_value(), "{a} {}", m[i]
            );
        "#]],
    );
}

#[test]
fn a_return_in_tail_position_needs_no_frame() {
    let body = body("fn f(c: bool) -> Val<u32> { if c { return a(); } else { return b(); } }");
    assert!(body.contains("Some({ a() })") && !body.contains("__frame"), "{body}");
}

#[test]
fn a_declared_pointer_cannot_be_dereferenced() {
    let source = "fn f(x: Ptr<Global, u32>, y: &mut u32, p: &Ptr<Shared, u32>) {
        *y = *x;
        let q: Ptr<Global, u32> = x.at(i);
        *q = **p;
        { let q = &z; *q; }
        let x = x.load();
        *x;
    }";
    expect![[r#"
        `*` does not access GPU memory: write `x.load()` for the value, `x.store(value)` to assign it
        `*` does not access GPU memory: write `q.load()` for the value, `q.store(value)` to assign it
    "#]]
    .assert_eq(&errors(device(source)));
}

#[test]
fn a_closure_cannot_assign_captured_variables() {
    let check = |closure: &str, names: &[&str]| {
        let source =
            format!("fn f(t: &mut Tile, p: Plain) {{ let mut x = a; let y = b; let g = {closure}; }}");
        let found = errors(device(&source));
        let refused: Vec<&str> = found.lines().filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(refused, names, "{closure}: {found}");
    };
    check("|z| x += z", &["x"]);
    check("|| x.bump()", &["x"]);
    check("|| t.bump() + t.bump()", &["t"]);
    check("|| h(t)", &["t"]);
    check("|| h(&mut x)", &["x"]);
    check("|| vec![x; 3]", &["x"]);
    check("|z| move || h(x.f(z), t.f())", &["x", "t"]);
    check("|z| { let mut w = z; let v = || w.bump(); v() }", &["w"]);
    // No variable outside of the closure changes.
    check("|z| x + h(x, &x) + x.clone() + x[z.f()] + x.rows", &[]);
    check("|z| y.f() + h(y) + p.f() + t.rows[z] + *t", &[]);
    check("|x| { x.bump(); let mut t = y; t.bump(); t = x; }", &[]);
    check("|z| if z { let x = &x; x.f() } else { z }", &[]);
}

#[test]
fn a_region_carries_what_it_may_assign() {
    let check = |body: &str, expected: &str| {
        let source =
            format!("fn f(&mut self, t: &mut Tile, p: Plain) {{ let mut x = a; let mut y = b; {body} }}");
        assert_eq!(slots(&source), expected, "{body}");
    };
    check("if c { x = 1; }", "x");
    check("if c { (x, y) = (y, x); }", "x, y");
    check("if c { y += x; }", "y");
    check("if c { x[3].y = 1; }", "x");
    check("if c { x.a.b = 1; x.a.c += 1; }", "x.a.b, x.a.c");
    check("if c { x.a.b = 1; x.a = d; }", "x.a");
    check("if c { x.push(1); }", "x");
    check("if c { x.f().g(); }", "x");
    check("if c { x.len(); g(x); h(&x) }", "");
    check("if c { g(&mut x); }", "x");
    check("if c { assert!(x.ok()); }", "x");
    check("if c { assert!(a.x().y == (0..x).len()); }", "x");
    check("if c { } else if d { x = 1; }", "x");
    check("if c { let mut x = 1; x = 2; }", "");
    check("if c { match d { Some(x) => x.set(), None => y = 1 } }", "y");
    // Assignments through references.
    check("if c { g(t); }", "*t");
    check("if c { g(t.rows); }", "");
    check("if c { *t = d; }", "*t");
    check("if c { t.rows[0] += 1; self.n = 1; }", "t.rows, self.n");
    check("if c { self.add(); }", "*self");
    check("let r = &mut x; if c { r.add(); }", "*r");
    check("let (q, r) = pair(); if c { *q = 1; r[0] = 2; q.add(); }", "*q, *r");
    check("if c { p.at(0).store(1); }", "");
    // A place that the iterator borrows cannot change, and cannot be borrowed again.
    check("for z in x.iter() { y += x.get(z); }", "y");
    check("while x.next() { y = 1; }", "x, y");
    check("c && { x = 1; y > x };", "x");
    check("c || x.f(y);", "x");
    check("c && g(t);", "*t");
    check("c && t.full();", "*t");
    check("c && g(x) && y.len() > t.rows;", "");
    check("for x in d { x.f(); }", "");
}

#[test]
fn everything_unsupported_is_reported_at_once() {
    let source = "async fn f(x: &mut T) -> Val<u32> {
        let y;
        let Some(z) = w else { return val(0) };
        let mut a = 0;
        while let Some(b) = c.next() { unsafe { d() }; e?; }
        'block: { println!(\"{}\", a); }
        let g = |h| { a = h; return 1; };
        static S: u32 = 0;
        const { 1 };
        let k = loop { break 3; };
        m(return val(1));
        if c { let x = 1; return n; }
        break;
        let o = |p: u32| a.at(p).load() + m(x) + q.len();
    }";
    expect![[r#"
        `#[device]` takes `call` or nothing: `#[device(call)]` is called, not inlined
        a recorded function cannot be `async`: a kernel runs to its end
        `let` without a value cannot be recorded: write `let mut x = val(0)`, and assign to it
        `let … else` cannot be recorded: use `match`, or `if let` around the rest
        `while let` cannot be recorded: use `for` over a Rust iterator, or `while` with a condition
        `unsafe` cannot be recorded: access GPU memory through `Ptr`, and compute compile-time values outside of the kernel
        `?` cannot be recorded: a kernel returns no error; check compile-time values with `expect` or `match`
        labelled blocks cannot be recorded: use `if` and `else`, or a `#[device]` function with `return`
        `println!` would print while recording, not on the GPU: write `printf(…)` for run-time values; print compile-time values outside of the kernel
        `return` in a closure cannot be recorded: end the closure with its value, or write a `#[device]` function
        a `static` is host memory, which the GPU cannot access: use `const` or `shared_array`
        inline `const` cannot be recorded: declare a `const` item, or a `let` of the compile-time value
        a recorded loop has no value: assign to a `let mut` variable, then `break`
        a closure cannot assign `a` of the function around it: return the new value, or write a `#[device]` function that takes `&mut a`
        a recorded `loop` has no value: `break` out of it, and write the value after it
        `return` must be a statement of its own
        `x` shadows a variable that a loop or `return` around it carries: rename one of them
        `break` outside of a loop
        this may assign `a` of the function around the closure: write a `#[device]` function that takes `&mut a`; if the closure only reads it, write `let a = &a;` before
        this may assign `x` of the function around the closure: write a `#[device]` function that takes `&mut x`; if the closure only reads it, write `let x = &x;` before
    "#]].assert_eq(&errors(crate::device::expand("inline".parse().unwrap(), source.parse().unwrap())));
    let source = "impl fn f() {}";
    expect![[r#"
        expected `fn`
        `#[device]` goes on a function with a body
    "#]]
    .assert_eq(&errors(device(source)));
}

#[test]
fn kernel_signatures() {
    let source =
        "pub const unsafe extern \"C\" fn f(&self, (a, b): Val<u32>, w: Ptr<impl Space, u8>) -> u32 {}";
    expect![[r#"
        `#[kernel]` takes `threads = …`, `min_blocks = …`, `max_registers = …`, `cluster = …` and `allow_spills = …`, not `warps`
        a recorded function cannot be `const`: recording has side effects
        a recorded function has no ABI: remove `extern`
        a recorded function cannot be `unsafe`: recording accesses no memory
        a kernel returns nothing: store results through a pointer
        a run-time parameter must be a plain name, which the launch uses
        a run-time parameter cannot be `impl Trait`: name a type, or make the kernel generic over it
    "#]]
    .assert_eq(&errors(kernel("warps = 3", source)));
}

#[test]
fn carry_goes_field_by_field() {
    let expansion = carry(
        "struct Tile<T: Scalar, const N: usize> { sums: [Val<T>; N], #[carry(skip)] stride: u32, row: Row<T> }",
    );
    expect![[r#"
        #[automatically_derived]
        impl<T: Scalar, const N: usize> Carry for Tile<T, N>
        where
            [Val<T>; N]: Carry,
            Row<T>: Carry,
        {
            #[allow(unused_variables)]
            fn leaves(&self, out: &mut ::std::vec::Vec<ir::Value>) {
                Carry::leaves(&self.sums, out);
                Carry::leaves(&self.row, out);
            }
            #[allow(unused_variables)]
            fn restore(&mut self, values: &mut dyn ::core::iter::Iterator<Item = ir::Value>) {
                Carry::restore(&mut self.sums, values);
                Carry::restore(&mut self.row, values);
            }
        }
    "#]]
    .assert_eq(&printed(expansion));
    let expansion = printed(carry("struct Pair(Val<u32>, #[carry(skip)] u32, Val<f32>);"));
    let skips = |index| !expansion.contains(&format!("self.{index}"));
    assert!(!skips(0) && skips(1) && !skips(2), "{expansion}");
}

#[test]
fn carry_errors() {
    expect![[r#"
        `Carry` is for structs: a run-time branch cannot choose between variants; use a struct with a `Val` as discriminant
    "#]].assert_eq(&errors(carry("enum E { A }")));
    expect![[r#"
        `#[carry]` takes `skip` only
    "#]]
    .assert_eq(&errors(carry("struct S { #[carry(deep)] a: A }")));
}
