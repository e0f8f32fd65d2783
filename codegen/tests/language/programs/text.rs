//! The programs, each with two run-time numbers as arguments and one as its result.

both! {
    fn branches(a: U, b: U) -> U {
        let mut x = a;
        let mut y = val(1);
        if a < b {
            x += b;
        } else {
            y = a * 3;
        }
        if x == 4 { x = y; }
        x * 100 + y
    }

    fn else_if_chain(a: U, b: U) -> U {
        let mut x = val(5);
        if a == 0 { x = b; } else if a == 1 { x += 1; } else if a < b { x = a + b; } else { x *= 2; }
        x
    }

    // Constants beside handles, in nested sides and where a type is declared.
    fn constant_sides(a: U, b: U) -> U {
        let low = if a > b { 5 } else { b };
        let high = if a < 2 { a } else if b < 4 { 1 } else { u32::MAX };
        let flag = if a == 3 { a < b } else { false };
        let both: U = if b > 6 { 3 } else { 4 };
        let inner = if a > 4 { if b > 4 { 10 } else { a } } else { 20 };
        if a == 8 {
            return if b == 1 { 77 } else { 78 };
        }
        if flag { low } else { high ^ both ^ inner }
    }

    // The values read the variables that they are added to.
    fn compound_values(a: U, b: U) -> U {
        let mut x = a;
        x += if x > b { x.max(3) } else { 1 };
        let mut pair = (a, b);
        pair.0 *= if b > 2 && pair.0.min(b) > 1 { pair.1.min(3) } else { 2 };
        x ^ pair.0
    }

    fn branch_values(a: U, b: U) -> U {
        let most = if a > b { a } else { b };
        let (p, q) = if a == 3 { (b, a) } else { (most, val(1)) };
        p * 10 + q + if b == 0 { val(7) } else if b == 1 { a } else { val(0) }
    }

    fn nested_branches(a: U, b: U) -> U {
        let mut x = val(0);
        let mut y = val(0);
        if a > 2 {
            x = val(1);
            if b > 2 { y = val(2); if a == b { x = val(3); } } else { y = x + 4; }
        } else if b > a {
            if b == 5 { x = val(6); }
            y = x + b;
        }
        x * 16 + y
    }

    fn swap_in_a_branch(a: U, b: U) -> U {
        let (mut x, mut y) = (a, b);
        if x < y { (x, y) = (y, x); }
        x * 1000 + y
    }

    fn diverging_branches(a: U, b: U) -> U {
        let mut x = a;
        while x < 20 {
            let step = if x == b { break; } else if x % 3 == 1 { x += 2; continue; } else { val(3) };
            x += step;
        }
        x
    }

    fn gcd(a: U, b: U) -> U {
        let (mut x, mut y) = (a, b);
        while y != 0 {
            let rest = x % y;
            x = y;
            y = rest;
        }
        x
    }

    fn collatz(a: U, b: U) -> U {
        let mut n = a * 4 + b + 1;
        let mut steps = val(0);
        while n != 1 {
            if n % 2 == 0 { n /= 2; } else { n = n * 3 + 1; }
            steps += 1;
        }
        steps
    }

    fn while_over_two_conditions(a: U, b: U) -> U {
        let mut i = val(0);
        let mut s = val(0);
        while i < a && s < b * 2 || i == 1 {
            s += i;
            i += 1;
        }
        s * 100 + i
    }

    fn loop_with_break_in_the_middle(a: U, b: U) -> U {
        let mut x = a;
        let mut n = val(0);
        loop {
            x += 3;
            if x > b { break; }
            n += x;
        }
        x * 1000 + n
    }

    fn loop_with_continue(a: U, b: U) -> U {
        let mut i = val(0);
        let mut s = val(0);
        loop {
            i += 1;
            if i % 2 == 0 { continue; }
            if i > a { break; }
            s += i * b;
        }
        s
    }

    fn nested_loops(a: U, b: U) -> U {
        let mut s = val(0);
        let mut i = val(0);
        while i < a % 10 {
            let mut j = i;
            while j < b % 10 {
                s += i * j + 1;
                j += 1;
            }
            i += 1;
        }
        s
    }

    fn labelled_jumps(a: U, b: U) -> U {
        let mut s = val(0);
        'rows: for i in 0..a % 10 {
            let mut j = val(0);
            while j < 5 {
                j += 1;
                if j == i { continue 'rows; }
                if s > 30 { break 'rows; }
                if j == b { break; }
                s += j;
            }
            s += 100;
        }
        s
    }

    fn range(a: U, b: U) -> U {
        let mut s = b;
        for i in 0..a { s += i * i; }
        s
    }

    fn range_from_variable(a: U, b: U) -> U {
        let mut s = val(1);
        for i in a..b { s = (s * 3 + i) % 1000; }
        for i in b..9 { s += i; }
        s
    }

    fn range_with_step(a: U, b: U) -> U {
        let mut s = val(0);
        for i in (1..a).step_by(3) { s += i; }
        for i in (b..a + 2).step_by(2) { s += i * 100; }
        s
    }

    fn range_downwards(a: U, b: U) -> U {
        let mut s = val(0);
        for i in (b..a).rev() { s = s * 7 + i; }
        for i in (1..a).rev().step_by(3) { s = s * 5 + i; if i == b { break; } }
        for i in (0..4u32).rev() { s = s * 3 + i; }
        s
    }

    fn range_with_jumps(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..a {
            if i == b { continue; }
            if s > 20 { break; }
            s += i;
        }
        s
    }

    fn range_index_after_break(a: U, b: U) -> U {
        let mut found = val(99);
        for i in 0..a {
            if i * i >= b { found = i; break; }
        }
        found
    }

    fn unrolled(a: U, b: U) -> U {
        let mut s = a;
        for i in 0..5u32 { s = s * i + b; }
        for i in [3, 1, 4] { s += a * i; }
        s
    }

    fn unrolled_break(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..6u32 {
            if a == i { break; }
            s += b + i;
            if i == 4 { break; }
        }
        s
    }

    fn unrolled_continue(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..6u32 {
            if i == 2 { continue; }
            s += 1;
            if a == i { continue; }
            s += b + i;
        }
        s
    }

    fn unrolled_mixed_jumps(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..8u32 {
            if a == i { continue; }
            if b == i { s += 50; break; }
            if i == 6 { break; }
            if i % 2 == 0 { if a > b { continue; } }
            s += i;
        }
        s
    }

    fn unrolled_static_break_after_run_time_continue(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..5u32 {
            if a > i { continue; }
            if i == 2 { s += 1000; break; }
            s += b + i;
        }
        s
    }

    fn unrolled_labelled_jump_past_run_time_break(a: U, b: U) -> U {
        let mut s = val(0);
        'rows: for i in 0..4u32 {
            for j in 0..4u32 {
                if a == j { break; }
                if j == 2 { continue 'rows; }
                s += b + i;
            }
            s += 1000;
        }
        s
    }

    fn static_while(a: U, b: U) -> U {
        let mut k = 1u32;
        let mut s = b;
        while k < 20 {
            s += a * k;
            k *= 3;
        }
        s + k
    }

    fn static_while_left_at_run_time(a: U, b: U) -> U {
        let mut s = val(0);
        while true {
            if a > 3 { break; }
            s += b;
            if a != 1 { return s + 70; }
            s += 1;
            break;
        }
        s
    }

    fn unrolled_in_loop(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..a % 10 {
            for j in 0..3u32 {
                if i == j { continue; }
                if s > 40 { break; }
                s += i + b * j;
            }
        }
        s
    }

    fn loop_in_unrolled(a: U, b: U) -> U {
        let mut s = val(0);
        for j in 1..4u32 {
            for i in 0..a % 10 {
                if i == b { break; }
                s += i * j;
            }
            if s > 10 { break; }
        }
        s
    }

    fn early_return(a: U, b: U) -> U {
        if a == b { return val(77); }
        let mut x = a;
        if a > b { if b == 0 { return x; } x -= b; }
        x * 2
    }

    fn early_return_in_loops(a: U, b: U) -> U {
        for i in 0..a % 10 {
            let mut j = val(0);
            while j < 4 {
                if i * j == b + 1 { return i * 10 + j; }
                j += 1;
            }
        }
        val(1)
    }

    fn return_from_unrolled_loop(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..4u32 {
            if a == i { break; }
            if b == i { return s + 500; }
            if i == 3 { return s; }
            s += a;
        }
        s + 9000
    }

    fn bump(x: &mut U, limit: U) -> U {
        if *x >= limit { return val(0); }
        *x += 1;
        if *x == 3 { *x = val(30); return val(1); }
        val(2)
    }

    fn return_writes_through(a: U, b: U) -> U {
        let mut x = a;
        let mut s = val(0);
        for _ in 0..3u32 { s = s * 4 + bump(&mut x, b); }
        s * 100 + x
    }

    fn fibonacci(n: U) -> U {
        let (mut x, mut y) = (val(0), val(1));
        for _ in 0..n { (x, y) = (y, x + y); }
        return x;
    }

    fn add_to(x: &mut U, amount: U) { *x += amount; }

    fn take_from(x: &mut U, amount: U) { *x -= amount; }

    fn calls(a: U, b: U) -> U {
        let mut x = fibonacci(a % 10);
        if b > 2 { add_to(&mut x, fibonacci(b % 8)); } else { let r = &mut x; add_to(r, a); }
        x
    }

    fn returns_in_every_arm(a: U, b: U) -> U {
        if a == b { return a; } else if a < b { let mut x = b; while x > 3 { x -= 2; } return x; } else { b + 40 }
    }

    fn comparisons(a: U, b: U) -> U {
        let mut s = val(0);
        if a == b { s += 1; }
        if a != b { s += 2; }
        if a < b { s += 4; }
        if a <= b { s += 8; }
        if 3 > a { s += 16; }
        if 3 >= b { s += 32; }
        if 2 < a { s += 64; }
        if !(a + 1 == b * 2) { s += 128; }
        s
    }

    fn short_circuit(a: U, b: U) -> U {
        let both = a > 2 && b > 2;
        let either = a == 5 || b == 5 && a != 1;
        let mut s = val(0);
        if both { s += 1; }
        if either || false { s += 2; }
        if true && !both { s += 4; }
        s
    }

    fn guarded_division(a: U, b: U) -> U {
        let mut s = val(0);
        if b != 0 && a / b > 1 { s = a / b; }
        s
    }

    fn right_sides_assign(a: U, b: U) -> U {
        let mut x = b;
        let mut y = val(0);
        // Arithmetic only, a branch, and a condition that is always true.
        let first = a > 2 && { x += 1; x > 4 };
        let second = b == 3 || { if x > a { y = x; x = val(0); } y > 2 };
        let third = a < 6 && { y += 10; true };
        let mut s = x * 1000 + y * 10;
        if first { s += 1; }
        if second && !third { s += 2; }
        s
    }

    fn take_one(x: &mut U) -> B {
        *x -= 1;
        *x > 3
    }

    fn right_sides_write_through(a: U, b: U) -> U {
        let mut x = a + 20;
        let mut y = b + 30;
        let r = &mut x;
        let mut s = val(0);
        if a > 4 && take_one(r) || b < 3 && take_one(&mut y) && take_one(r) { s += 1; }
        if true && take_one(r) || take_one(&mut y) { s += 2; }
        s + x * 10 + y * 1000
    }

    fn right_sides_in_loops(a: U, b: U) -> U {
        let mut left = a + 4;
        let mut n = val(0);
        while n < b && { left -= 1; left > 2 } { n += 1; }
        for k in 0..3u32 {
            if k != 1 && b > k && take_one(&mut left) { n += 100; }
        }
        n * 10 + left
    }

    fn right_sides_jump(a: U, b: U) -> U {
        let mut s = val(0);
        for i in 0..a {
            if i > 1 && { if i == b { break; } s += 1; i != 5 } { s += 10; }
            if i == 7 && { if b == 8 { return s; } true } { continue; }
            s += 100;
        }
        s
    }

    fn right_sides_call_methods(a: U, b: U) -> U {
        let mut p = Pair { low: a, high: val(0), weight: 3 };
        let mut s = val(0);
        if b > 2 && p.raise(b) { s += 1; }
        if a == b || p.raise(a) && p.raise(val(1)) { s += 2; }
        s + p.low * 10 + p.high * 1000
    }

    fn fields(a: U, b: U) -> U {
        let mut p = Pair { low: a, high: val(0), weight: 3 };
        let mut n = b;
        while n != 0 {
            p.low += n * p.weight;
            if p.low > 50 { p.low -= 50; p.high += 1; }
            n /= 2;
        }
        if p.high == 1 { p = Pair { low: b, ..p }; }
        p.high * 1000 + p.low
    }

    fn arrays(a: U, b: U) -> U {
        let mut sums = [val(0); 3];
        for i in 0..a % 10 {
            for (j, sum) in sums.iter_mut().enumerate() {
                if i != b { *sum += i * (j as u32 + 1); }
            }
            if i == 4 { sums[1] = b; }
        }
        sums[0] + sums[1] * 100 + sums[2] * 10000
    }

    fn tuples(a: U, b: U) -> U {
        let mut pair = (a, [b, val(1)]);
        if a > b { pair.0 += 1; pair.1[0] *= 2; } else { pair.1 = [a, b]; }
        pair.0 + pair.1[0] * 100 + pair.1[1] * 10000
    }

    fn references_to_locals(a: U, b: U) -> U {
        let mut x = a;
        let mut y = b;
        let r = &mut x;
        if b > 3 { *r += 1; add_to(r, b); } else { add_to(&mut *r, val(7)); }
        for i in 0..b % 10 { *r += i; }
        let mut q = &mut y;
        if a > 3 { *q += 5; }
        q = &mut x;
        *q += 1;
        x * 1000 + y
    }

    fn references_by_pattern(a: U, b: U) -> U {
        let mut p = Pair { low: a, high: b, weight: 1 };
        let Pair { low, high, .. } = &mut p;
        if a > b { *low += 10; } else { *high *= 3; }
        let mut some = Some(a);
        if let Some(x) = &mut some {
            if b == 2 { *x += 7; }
        }
        p.low + p.high * 100 + some.unwrap() * 10000
    }

    fn iterated_references(a: U, b: U) -> U {
        let mut xs = [a, b, val(4)];
        for x in &mut xs {
            if *x > 3 { *x -= 3; }
            while *x > 2 { take_from(x, val(1)); }
        }
        let mut total = val(0);
        for (i, x) in xs.iter().enumerate() { total = total * 10 + *x + (xs.len() - i) as u32; }
        total
    }

    fn chosen_at_compile_time(a: U, b: U) -> U {
        let mut s = val(0);
        for kind in [Some(2u32), None, Some(5)] {
            match kind {
                Some(n) if n > 3 => if a > b { s += n; },
                Some(n) => { for i in 0..n { if b == i { continue; } s += a; } }
                None => s += 1000,
            }
            if let Some(n) = kind { if n == 5 { s *= 2; } }
            let next = match kind { Some(n) => n, None => continue };
            s += next;
        }
        s
    }

    fn closures(a: U, b: U) -> U {
        let weight = |x: U, k: u32| if x > b { x * k } else { let mut y = x; y += 1; if y == a { y += 100; } y };
        let terms: [U; 3] = std::array::from_fn(|i| weight(a, i as u32) + i as u32);
        terms[0] + weight(terms[1], 3) + terms[2]
    }

    fn shadowing(a: U, b: U) -> U {
        let mut x = a;
        for i in 0..3u32 {
            let mut y = x;
            { let mut x = b; x += i; if x > 2 { x = val(0); } y += x; }
            if y > 6 { x += y; }
        }
        x
    }
}
