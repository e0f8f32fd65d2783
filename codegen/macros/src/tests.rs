//! Expansions as text. `UPDATE_EXPECT=1 cargo test -p bespoke-macros` writes the expected ones anew.

use expect_test::{Expect, expect};
use proc_macro2::TokenStream;

/// The printed expansion, without paths and what is the same in all of them; a slot is its borrow.
fn printed(tokens: TokenStream) -> String {
    let text = tokens
        .to_string()
        .replace(":: bespoke_codegen :: ", "")
        .replace(":: core :: option :: Option :: ", "")
        .replace(":: core :: panic :: ", "")
        .replace("fn __record < R > (body : impl :: core :: ops :: FnOnce () -> R) -> R { body () }", "");
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

/// `text` without its first part from `start` to `end`.
fn without(text: &str, start: &str, end: &str) -> String {
    match text.split_once(start) {
        Some((before, after)) => before.to_owned() + after.split_once(end).expect("a closed part").1,
        None => text.to_owned(),
    }
}

fn device(source: &str) -> String {
    printed(crate::device::expand(TokenStream::new(), source.parse().expect("tokens")))
}

fn check_device(source: &str, expected: Expect) {
    expected.assert_eq(&device(source));
}

fn check_kernel(arguments: &str, source: &str, expected: Expect) {
    let (arguments, source) = (arguments.parse().expect("tokens"), source.parse().expect("tokens"));
    expected.assert_eq(&printed(crate::kernel::expand(arguments, source)));
}

fn check_carry(source: &str, expected: Expect) {
    expected.assert_eq(&printed(crate::carry::expand(source.parse().expect("tokens"))));
}

/// The slots of the first construct that takes any.
fn slots(source: &str) -> String {
    let text = device(source);
    let (_, list) = text.split_once("&mut [").expect("a construct");
    let (list, _) = list.split_once(']').expect("a closed list");
    list.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace("&mut ", "")
        .trim_end_matches(',')
        .to_owned()
}

/// The messages of the errors, one a line.
fn errors(tokens: TokenStream) -> String {
    let text = tokens.to_string();
    text.split("compile_error ! {")
        .skip(1)
        .map(|part| part.split_once('}').expect("a closed call").0.trim().trim_matches('"').to_owned() + "\n")
        .collect()
}

#[test]
fn a_kernel_keeps_its_compile_time_parameters() {
    check_kernel(
        "threads = 32 * s.warps",
        "/// Scales.\n pub fn scale<G: Kind>(x: Ptr<Global, f32>, s: Shape, mut n: dsl::Val<u32>) { x.store(n) }",
        expect![[r#"
            /// Scales.
            ///
            /// Run-time parameters: `x: Ptr<Global, f32>`, `n: dsl::Val<u32>`.
            pub fn scale<G: Kind>(s: Shape) -> Recorded {
                hooks::record_kernel(
                    "scale",
                    hooks::KernelOptions {
                        threads: Some(32 * s.warps),
                        min_blocks: None,
                        cluster: None,
                        allow_spills: None,
                    },
                    || {
                        let x: Ptr<Global, f32> = hooks::parameter("x");
                        let mut n: dsl::Val<u32> = hooks::parameter("n");
                        { x.store(n) }
                    },
                )
            }
        "#]],
    );
}

#[test]
fn an_optional_pointer_is_declared_where_its_condition_holds() {
    check_kernel(
        "",
        "fn add(#[present(s.bias != 0)] #[aligned(16)] b: Option<Ptr<Global, f32>>, s: &Shape) { g(b) }",
        expect![[r#"
            ///
            /// Run-time parameters: `b: Option<Ptr<Global, f32>>` (present if `s.bias != 0`).
            fn add(s: &Shape) -> Recorded {
                hooks::record_kernel(
                    "add",
                    hooks::KernelOptions {
                        threads: None,
                        min_blocks: None,
                        cluster: None,
                        allow_spills: None,
                    },
                    || {
                        let b: Option<Ptr<Global, f32>> = if s.bias != 0 {
                            Some(hooks::aligned_parameter("b", 16))
                        } else {
                            None
                        };
                        {
                            ({
                                let __given1 = (&hooks::GivenPlace::new(&b)).given();
                                let __taken2 = g(__given1.give(b));
                                __given1.settle();
                                __taken2
                            })
                        }
                    },
                )
            }
        "#]],
    );
}

#[test]
fn an_if_records_both_branches() {
    check_device(
        "fn f(mut x: Val<u32>, y: u32) -> Val<u32> { if y < 3 { x += 1; } else { x = g(x) } x }",
        expect![[r##"
            #[track_caller]
            fn f(mut x: Val<u32>, y: u32) -> Val<u32> {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || -> Val<u32> {
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
                                    let __given2 = (&hooks::GivenPlace::new(&x)).given();
                                    let __taken3 = g(__given2.give(x));
                                    __given2.settle();
                                    __taken3
                                })
                            });
                        }
                        __if1.finish(&mut [&mut x], __then1, __else1)
                    }
                    ({
                        let __given4 = (&hooks::GivenPlace::new(&x)).given();
                        let __given4_value = hooks::as_wanted(
                            ::core::marker::PhantomData::<Val<u32>>,
                            __given4.give(x),
                        );
                        __given4.settle();
                        __given4_value
                    })
                })
            }
        "##]],
    );
}

#[test]
fn loops() {
    check_device(
        "fn f(n: Val<u32>) { let mut i = val(0); while i != n { i += 1; } loop { i += 2; break; } }",
        expect![[r##"
            #[track_caller]
            fn f(n: Val<u32>) {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || {
                    {
                        let mut i = val(0);
                        {
                            let mut __loop1 = (&hooks::condition_type(|| {
                                (&hooks::Pair::new(&i, &n)).ne()
                            }))
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
                    }
                })
            }
        "##]],
    );
    check_device(
        "fn f(n: Val<u32>) { let mut s = val(0); 'a: for i in 0..n { for j in (i..n).step_by(2) { s += j; continue 'a; } } }",
        expect![[r##"
            #[track_caller]
            fn f(n: Val<u32>) {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || {
                    {
                        let mut s = val(0);
                        {
                            let mut __loop1 = (&hooks::ForOf::new(hooks::range_from_literal(0, n)))
                                .for_loop();
                            '__loop1: loop {
                                let Some(__loop1_item) = __loop1.next_item(&mut [&mut s]) else {
                                    break
                                };
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
                    }
                })
            }
        "##]],
    );
}

#[test]
fn a_return_in_tail_position_needs_no_frame() {
    check_device(
        "fn f(c: bool) -> Val<u32> { if c { return a(); } else { return b(); } }",
        expect![[r##"
            #[track_caller]
            fn f(c: bool) -> Val<u32> {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || -> Val<u32> {
                    {
                        let mut __if1 = (&hooks::condition(c)).begin_if(&mut []);
                        let [mut __then1, mut __else1] = hooks::no_values(
                            ::core::marker::PhantomData::<Val<u32>>,
                        );
                        if __if1.enter_then() {
                            __then1 = Some({ a() });
                        }
                        if __if1.enter_else(&mut []) {
                            __else1 = Some({ b() });
                        }
                        __if1.finish(&mut [], __then1, __else1)
                    }
                })
            }
        "##]],
    );
}

#[test]
fn an_early_return_goes_through_the_frame() {
    check_device(
        "fn f(c: Val<bool>, t: &mut Tile) -> Val<u32> { if c { return a(); } t.sum += 1; b() }",
        expect![[r##"
            #[track_caller]
            fn f(c: Val<bool>, t: &mut Tile) -> Val<u32> {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || -> Val<u32> {
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
                })
            }
        "##]],
    );
}

#[test]
fn operators() {
    check_device(
        "fn f() -> bool { let a = 0 < n && -1 != m[i] || x + 1 >= y; let b = 1 < 2; let c = [1; N < 3]; a }",
        expect![[r##"
            #[track_caller]
            fn f() -> bool {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || -> bool {
                    let a = {
                        let __or2 = hooks::begin_or(
                            {
                                let __and1 = hooks::begin_and(
                                    (&hooks::Pair::new(&n, &0)).gt(),
                                    &mut [],
                                );
                                let __right1 = if __and1.enter() {
                                    __and1
                                        .right(
                                            (&hooks::Pair::new(
                                                &m[(&hooks::IndexOf::new(i)).known_now()],
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
                })
            }
        "##]],
    );
}

#[test]
fn what_takes_no_handles_asks() {
    check_device(
        "fn f() {
            let a = n as f32 + *g(m)[i + 1][2] + *b;
            assert!(a < 3,);
            std::debug_assert_eq!(a, t.x + 1, \"{a} {}\", m[i]);
        }",
        expect![[r##"
            #[track_caller]
            fn f() {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || {
                    {
                        let a = ({
                            let __cast1 = hooks::CastOf::new(n);
                            (&__cast1).result((&__cast1).known_now() as f32)
                        }) + *g(m)[(&hooks::IndexOf::new(i + 1)).known_now()][2] + *b;
                        assert!(
                            * (& hooks::AssertOf::new(& ((& hooks::Pair::new(& a, & 3)).lt())))
                            .known_now(), "assertion failed: {}", ::core::stringify!(a < 3)
                        );
                        std::debug_assert_eq!(
                            * (& hooks::AssertOf::new(& a)).known_now(), * (& hooks::AssertOf::new(&
                            (t.x + 1))).known_now(), "{a} {}", m[i]
                        );
                    }
                })
            }
        "##]],
    );
}

#[test]
fn pointers_are_no_places() {
    let source = "fn f(x: Ptr<Global, u32>, y: &mut u32, p: &Ptr<Shared, u32>) {
        let own = x.at(i);
        *own = *x + *y;
        *x.at(3) += x[i + 1];
        own[i] = own.cast()[3];
        { let own = &z; *own; }
        let x = x.load();
        **p; *x;
    }";
    expect![[r#"
        `*` does not reach memory of the GPU: write `own.load()` for the value, `own.store(value)` to assign it
        `*` does not reach memory of the GPU: write `x.load()` for the value, `x.store(value)` to assign it
        `*` does not reach memory of the GPU: write `x.at(…).load()` for the value, `x.at(…).store(value)` to assign it
        brackets do not reach memory of the GPU: write `x.at(…).load()` for the value, `x.at(…).store(value)` to assign it
        brackets do not reach memory of the GPU: write `own.at(i).load()` for the value, `own.at(i).store(value)` to assign it
    "#]].assert_eq(&errors(crate::device::expand(TokenStream::new(), source.parse().unwrap())));
}

#[test]
fn a_right_side_carries_what_it_may_assign() {
    check_device(
        "fn f(c: Val<bool>, t: &mut Tile) -> Val<bool> { c && t.full() }",
        expect![[r##"
            #[track_caller]
            fn f(c: Val<bool>, t: &mut Tile) -> Val<bool> {
                let __scope = hooks::enter_device("f", Location::caller());
                __record(move || -> Val<bool> {
                    {
                        let __and1 = hooks::begin_and(c, &mut [&mut *t]);
                        let __right1 = if __and1.enter() { __and1.right(t.full()) } else { None };
                        __and1.finish(&mut [&mut *t], __right1)
                    }
                })
            }
        "##]],
    );
}

#[test]
fn what_a_closure_may_not_do() {
    let check = |closure: &str, names: &[&str]| {
        let source =
            format!("fn f(t: &mut Tile, p: Plain) {{ let mut x = a; let y = b; let g = {closure}; }}");
        let found = errors(crate::device::expand(TokenStream::new(), source.parse().expect("tokens")));
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
    // Nothing outside of it changes.
    check("|z| x + h(x, &x) + x.clone() + x[z.f()] + x.rows", &[]);
    check("|z| y.f() + h(y) + p.f() + t.rows[z] + *t", &[]);
    check("|x| { x.bump(); let mut t = y; t.bump(); t = x; }", &[]);
    check("|z| if z { let x = &x; x.f() } else { z }", &[]);
}

#[test]
fn what_a_region_carries() {
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
    // Through references.
    check("if c { g(t); }", "*t");
    check("if c { g(t.rows); }", "");
    check("if c { *t = d; }", "*t");
    check("if c { t.rows[0] += 1; self.n = 1; }", "t.rows, self.n");
    check("if c { self.add(); }", "*self");
    check("let r = &mut x; if c { r.add(); }", "*r");
    check("let (q, r) = pair(); if c { *q = 1; r[0] = 2; q.add(); }", "*q, *r");
    check("if c { p.at(0).store(1); }", "");
    // What an iterator keeps borrowed cannot change, and cannot be borrowed again.
    check("for z in x.iter() { y += x.get(z); }", "y");
    check("while x.next() { y = 1; }", "x, y");
    check("c && { x = 1; y > x };", "x");
    check("c || x.f(y);", "x");
    check("c && g(t);", "*t");
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
        `#[device]` takes no arguments
        a recorded function cannot be `async`: the GPU runs it to its end
        `let` without a value cannot be recorded: write `let mut x = val(0)`, and assign to it
        `let … else` cannot be recorded: use `match`, or `if let` around what follows
        `while let` cannot be recorded: use `for` over a Rust iterator, or `while` with a condition
        `unsafe` has no use in recorded code: read and write GPU memory through `Ptr`, and compute compile-time values outside of the kernel
        `?` cannot be recorded, a kernel has no error to return: check compile-time values with `expect` or `match`
        labelled blocks cannot be recorded: use `if` and `else`, or a `#[device]` function with `return`
        `println!` would print while the kernel is recorded, and the GPU prints nothing: store what you want to see through a pointer, and print it on the host; print compile-time values before the kernel is recorded
        `return` in a closure cannot be recorded: end the closure with its value, or write a `#[device]` function
        a `static` is memory of the host, which the GPU does not see: use `const`, or `shared_array`
        inline `const` cannot stand in recorded code: declare a `const` item, or a `let` of the compile-time value
        a recorded loop has no value: assign to a `let mut` variable, then `break`
        a closure cannot assign `a` of the function around it: return the new value, or write a `#[device]` function that takes `&mut a`
        a recorded `loop` has no value: `break` out of it, and write the value after it
        `return` must be a statement of its own
        this `x` hides the one that a jump out of here carries: rename one of them
        `break` outside of a loop
        this may change `a` of the function around the closure: write a `#[device]` function that takes `&mut a`, or, if the closure only reads it, `let a = &a;` before
        this may change `x` of the function around the closure: write a `#[device]` function that takes `&mut x`, or, if the closure only reads it, `let x = &x;` before
    "#]].assert_eq(&errors(crate::device::expand("inline".parse().unwrap(), source.parse().unwrap())));
    let source = "impl fn f() {}";
    expect![[r#"
        expected `fn`
        `#[device]` goes on a function with a body
    "#]]
    .assert_eq(&errors(crate::device::expand(TokenStream::new(), source.parse().unwrap())));
}

#[test]
fn kernel_signatures() {
    let source =
        "pub const unsafe extern \"C\" fn f(&self, (a, b): Val<u32>, w: Ptr<impl Space, u8>) -> u32 {}";
    expect![[r#"
        `#[kernel]` takes `threads = …`, `min_blocks = …`, `cluster = …` and `allow_spills = …`, not `warps`
        a recorded function cannot be `const`: recording it has an effect
        a recorded function has no ABI: remove `extern`
        a recorded function cannot be `unsafe`: recording it touches no memory
        a kernel returns nothing: write results through a pointer
        a run-time parameter is a plain name: the launch passes it by this name
        a run-time parameter cannot be `impl Trait`: name a type, or make the kernel generic over it
    "#]]
    .assert_eq(&errors(crate::kernel::expand("warps = 3".parse().unwrap(), source.parse().unwrap())));
}

#[test]
fn carry() {
    check_carry(
        "struct Tile<T: Scalar, const N: usize> { sums: [Val<T>; N], #[carry(skip)] stride: u32, row: Row<T> }",
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
        "#]],
    );
    check_carry(
        "struct Pair(Val<u32>, #[carry(skip)] u32, Val<f32>);",
        expect![[r#"
        #[automatically_derived]
        impl Carry for Pair
        where
            Val<u32>: Carry,
            Val<f32>: Carry,
        {
            #[allow(unused_variables)]
            fn leaves(&self, out: &mut ::std::vec::Vec<ir::Value>) {
                Carry::leaves(&self.0, out);
                Carry::leaves(&self.2, out);
            }
            #[allow(unused_variables)]
            fn restore(&mut self, values: &mut dyn ::core::iter::Iterator<Item = ir::Value>) {
                Carry::restore(&mut self.0, values);
                Carry::restore(&mut self.2, values);
            }
        }
    "#]],
    );
    expect![[r#"
        `Carry` is for structs: a run-time branch cannot choose between variants; use a struct with a `Val` that says which
    "#]].assert_eq(&errors(crate::carry::expand("enum E { A }".parse().unwrap())));
    expect![[r#"
        `#[carry]` takes `skip` only
    "#]]
    .assert_eq(&errors(crate::carry::expand("struct S { #[carry(deep)] a: A }".parse().unwrap())));
}
