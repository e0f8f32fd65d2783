//! Random programs as Rust source text that is valid both as host code and in the kernel language.
//!
//! The text uses the types `U`, `I`, `F` and `B` for numbers and conditions, and functions such as `val` and `to_f`, which
//! both worlds define (`template.rs`). Some of its functions are marked `#[call]`: on the GPU they are called, not inlined. Operations have the same results in both: integers wrap, shifts and divisors are
//! masked, loops have small bounds.

use std::fmt::Write;

/// Source of random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ty {
    U,
    I,
    F,
    B,
}

const NUMBERS: [Ty; 3] = [Ty::U, Ty::I, Ty::F];

/// A place that can be read, and if it is mutable, assigned.
#[derive(Clone)]
struct Place {
    text: String,
    ty: Ty,
    mutable: bool,
}

/// What a `return` in the current function needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Returns {
    Value,
    Nothing,
}

struct Generator {
    random: Random,
    places: Vec<Place>,
    /// Closures of one `U` with a `U` as result.
    closures: Vec<String>,
    /// Functions `f(U, I) -> U`, and functions `f(&mut U, I)`.
    functions: Vec<String>,
    writers: Vec<String>,
    /// Labels of the loops around the current statement.
    loops: Vec<String>,
    names: usize,
    /// Statements that may still be written.
    budget: usize,
    returns: Returns,
    text: String,
}

/// Functions of the program with this number: the last is `p<number>(a: U, b: U, c: I, d: F) -> U`.
pub fn program(seed: u64, number: usize) -> String {
    let mut generator = Generator {
        random: Random(seed ^ (number as u64) << 32),
        places: Vec::new(),
        closures: Vec::new(),
        functions: Vec::new(),
        writers: Vec::new(),
        loops: Vec::new(),
        names: 0,
        budget: 0,
        returns: Returns::Value,
        text: String::new(),
    };
    for helper in 0..generator.random.below(3) {
        let name = format!("p{number}_h{helper}");
        if generator.random.chance(2) {
            generator.line(0, "#[call]".into());
        }
        generator.function(&name, "x: U, y: I", &[("x", Ty::U), ("y", Ty::I)], 6, Returns::Value);
        generator.functions.push(name);
    }
    if generator.random.chance(2) {
        let name = format!("p{number}_m");
        let parameters = [("(*x)", Ty::U), ("y", Ty::I)];
        generator.function(&name, "x: &mut U, y: I", &parameters, 6, Returns::Nothing);
        generator.writers.push(name);
    }
    let parameters = [("a", Ty::U), ("b", Ty::U), ("c", Ty::I), ("d", Ty::F)];
    generator.function(&format!("p{number}"), "a: U, b: U, c: I, d: F", &parameters, 14, Returns::Value);
    generator.text
}

impl Generator {
    fn function(
        &mut self,
        name: &str,
        signature: &str,
        parameters: &[(&str, Ty)],
        budget: usize,
        returns: Returns,
    ) {
        self.places = parameters
            .iter()
            .map(|&(text, ty)| Place { text: text.into(), ty, mutable: text.starts_with("(*") })
            .collect();
        self.closures.clear();
        (self.budget, self.returns) = (budget, returns);
        let result = if returns == Returns::Value { " -> U" } else { "" };
        self.line(0, format!("fn {name}({signature}){result} {{"));
        self.variables();
        self.block(1, 3);
        if returns == Returns::Value {
            let hash = self.hash();
            self.line(1, hash);
        }
        self.line(0, "}".into());
    }

    fn line(&mut self, depth: usize, text: String) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{}{text}", "    ".repeat(depth));
    }

    fn fresh(&mut self, stem: &str) -> String {
        self.names += 1;
        format!("{stem}{}", self.names)
    }

    /// Variables of every kind, at the start of a function.
    fn variables(&mut self) {
        for ty in [Ty::U, Ty::I, Ty::F] {
            let (name, value) = (self.fresh("v"), self.expression(ty, 1));
            self.line(1, format!("let mut {name} = {value};"));
            self.places.push(Place { text: name, ty, mutable: true });
        }
        let (name, condition) = (self.fresh("v"), self.condition(1));
        self.line(1, format!("let mut {name} = {condition};"));
        self.places.push(Place { text: name, ty: Ty::B, mutable: true });
        match self.random.below(3) {
            0 => {
                let (name, first) = (self.fresh("t"), self.expression(Ty::U, 1));
                let second = self.expression(Ty::F, 1);
                self.line(1, format!("let mut {name} = ({first}, {second});"));
                self.member(&name, "0", Ty::U);
                self.member(&name, "1", Ty::F);
            }
            1 => {
                let name = self.fresh("n");
                let values: Vec<String> = (0..3).map(|_| self.expression(Ty::I, 1)).collect();
                self.line(1, format!("let mut {name} = [{}];", values.join(", ")));
                for index in 0..3 {
                    self.places.push(Place { text: format!("{name}[{index}]"), ty: Ty::I, mutable: true });
                }
            }
            _ => {
                let (name, low) = (self.fresh("s"), self.expression(Ty::U, 1));
                let high = self.expression(Ty::I, 1);
                self.line(1, format!("let mut {name} = Pair {{ low: {low}, high: {high} }};"));
                self.member(&name, "low", Ty::U);
                self.member(&name, "high", Ty::I);
            }
        }
    }

    fn member(&mut self, base: &str, member: &str, ty: Ty) {
        self.places.push(Place { text: format!("{base}.{member}"), ty, mutable: true });
    }

    /// A number that depends on everything in scope.
    fn hash(&mut self) -> String {
        let places = self.places.clone();
        places.iter().fold("val(7u32)".to_owned(), |hash, place| match place.ty {
            Ty::U => format!("mix({hash}, {})", place.text),
            Ty::I => format!("mix({hash}, i_to_u({}))", place.text),
            Ty::F => format!("mix({hash}, bits({}))", place.text),
            Ty::B => format!("mix({hash}, flag({}))", place.text),
        })
    }

    /// Statements of a block; names that it declares are forgotten after it.
    fn block(&mut self, depth: usize, nesting: usize) {
        let (places, closures) = (self.places.len(), self.closures.len());
        let count = 1 + self.random.below(4);
        for _ in 0..count {
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            self.statement(depth, nesting);
        }
        self.places.truncate(places);
        self.closures.truncate(closures);
    }

    fn statement(&mut self, depth: usize, nesting: usize) {
        match self.random.below(if nesting == 0 { 8 } else { 21 }) {
            0..=3 => self.assignment(depth),
            4 => {
                let ty = NUMBERS[self.random.below(3)];
                let (name, value) = (self.fresh("v"), self.expression(ty, 3));
                let mutable = self.random.chance(2);
                self.line(depth, format!("let {}{name} = {value};", if mutable { "mut " } else { "" }));
                self.places.push(Place { text: name, ty, mutable });
            }
            5 => {
                let (name, value) = (self.fresh("f"), self.expression(Ty::U, 2));
                // A method call in a closure counts as an assignment of a captured variable.
                let captured = self.fresh("v");
                self.line(depth, format!("let {captured} = {value};"));
                self.line(depth, format!("let {name} = move |z: U| (z ^ {captured}) + 3;"));
                self.closures.push(name);
            }
            6 => self.jump(depth),
            7 => self.call(depth),
            8..=10 => self.branch(depth, nesting),
            11 | 12 => {
                let ty = NUMBERS[self.random.below(3)];
                let name = self.fresh("v");
                let condition = self.condition(2);
                self.line(depth, format!("let {name} = if {condition} {{"));
                self.block(depth + 1, nesting - 1);
                let value = self.expression(ty, 2);
                self.line(depth + 1, value);
                self.line(depth, "} else {".into());
                if self.random.chance(2) {
                    self.block(depth + 1, nesting - 1);
                }
                let value = if self.random.chance(3) { self.constant(ty) } else { self.expression(ty, 2) };
                self.line(depth + 1, value);
                self.line(depth, "};".into());
                self.places.push(Place { text: name, ty, mutable: false });
            }
            13 => self.tuple_of_a_branch(depth),
            14 => self.elements(depth, nesting),
            15 => self.whole(depth),
            _ => self.repeat(depth, nesting),
        }
    }

    /// A tuple as the value of an `if`.
    fn tuple_of_a_branch(&mut self, depth: usize) {
        let condition = self.condition(2);
        let mut pair = || (self.expression(Ty::U, 2), self.expression(Ty::F, 2));
        let ((a, b), (c, d)) = (pair(), pair());
        let (first, second) = (self.fresh("v"), self.fresh("v"));
        self.line(
            depth,
            format!("let ({first}, mut {second}) = if {condition} {{ ({a}, {b}) }} else {{ ({c}, {d}) }};"),
        );
        self.places.push(Place { text: first, ty: Ty::U, mutable: false });
        self.places.push(Place { text: second, ty: Ty::F, mutable: true });
    }

    /// The name of the variable of a kind, if the function has one: its stem is in `stems`.
    fn compound(&self, stem: char) -> Option<String> {
        let is_kind = |place: &&Place| place.text.starts_with(stem) && place.text.contains(['.', '[']);
        self.places.iter().find(is_kind).map(|place| base(&place.text).to_owned())
    }

    /// A loop over the elements of an array.
    fn elements(&mut self, depth: usize, nesting: usize) {
        let Some(array) = self.compound('n') else { return self.assignment(depth) };
        let all = self.places.clone();
        // The loop borrows the array, so nothing carries it out of a run-time jump: that is an error.
        self.places.retain(|place| base(&place.text) != array);
        let loops = std::mem::take(&mut self.loops);
        let element = self.fresh("e");
        self.line(depth, format!("for {element} in {array}.iter_mut() {{"));
        self.places.push(Place { text: format!("(*{element})"), ty: Ty::I, mutable: true });
        self.block(depth + 1, nesting - 1);
        self.assignment(depth + 1);
        self.line(depth, "}".into());
        (self.places, self.loops) = (all, loops);
    }

    /// An assignment of a whole tuple, array or struct.
    fn whole(&mut self, depth: usize) {
        if let Some(name) = self.compound('t') {
            let (first, second) = (self.expression(Ty::U, 2), self.expression(Ty::F, 2));
            self.line(depth, format!("{name} = ({first}, {second});"));
        } else if let Some(name) = self.compound('n') {
            let values: Vec<String> = (0..3).map(|_| self.expression(Ty::I, 2)).collect();
            self.line(depth, format!("{name} = [{}];", values.join(", ")));
        } else if let Some(name) = self.compound('s') {
            let low = self.expression(Ty::U, 2);
            self.line(depth, format!("{name} = Pair {{ low: {low}, ..{name} }};"));
        }
    }

    fn assignment(&mut self, depth: usize) {
        let mutable: Vec<Place> = self.places.iter().filter(|place| place.mutable).cloned().collect();
        let Some(place) = mutable.get(self.random.below(mutable.len().max(1))) else { return };
        let others: Vec<&Place> = mutable
            .iter()
            .filter(|other| other.ty == place.ty && base(&other.text) != base(&place.text))
            .collect();
        if let Some(other) = others.first()
            && self.random.chance(8)
        {
            self.line(depth, format!("std::mem::swap(&mut {}, &mut {});", place.text, other.text));
            return;
        }
        let operator = match place.ty {
            Ty::U => self.random.pick(&["=", "=", "+=", "-=", "*=", "^=", "|=", "&="]),
            Ty::I | Ty::F => self.random.pick(&["=", "=", "+=", "-=", "*="]),
            Ty::B => "=",
        };
        let value = self.expression(place.ty, 3);
        self.line(depth, format!("{} {operator} {value};", place.text));
    }

    fn call(&mut self, depth: usize) {
        let places: Vec<Place> =
            self.places.iter().filter(|place| place.mutable && place.ty == Ty::U).cloned().collect();
        let Some(place) = places.get(self.random.below(places.len().max(1))) else { return };
        if let Some(writer) = self.writers.first().cloned()
            && self.random.chance(2)
        {
            let value = self.expression(Ty::I, 2);
            // The value may read the place that is borrowed.
            let name = self.fresh("v");
            self.line(depth, format!("let {name} = {value};"));
            self.line(depth, format!("{writer}(&mut {}, {name});", place.text));
            return;
        }
        let pair = self.places.iter().find_map(|place| place.text.strip_suffix(".low").map(str::to_owned));
        match pair {
            Some(pair) => {
                let (name, value) = (self.fresh("v"), self.expression(Ty::U, 2));
                self.line(depth, format!("let {name} = {value};"));
                let flag = self.fresh("v");
                self.line(depth, format!("let {flag} = {pair}.raise({name});"));
                self.places.push(Place { text: flag, ty: Ty::B, mutable: false });
            }
            None => self.assignment(depth),
        }
    }

    fn jump(&mut self, depth: usize) {
        let condition = self.condition(2);
        let jump = match self.random.below(if self.loops.is_empty() { 1 } else { 4 }) {
            0 if self.returns == Returns::Value => format!("return {};", self.expression(Ty::U, 2)),
            0 => "return;".into(),
            1 => {
                let label = self.loops[self.random.below(self.loops.len())].clone();
                format!("{} {label};", self.random.pick(&["break", "continue"]))
            }
            _ => self.random.pick(&["break;", "continue;"]).to_owned(),
        };
        self.line(depth, format!("if {condition} {{"));
        if self.random.chance(3) {
            self.assignment(depth + 1);
        }
        self.line(depth + 1, jump);
        self.line(depth, "}".into());
    }

    fn branch(&mut self, depth: usize, nesting: usize) {
        let condition = self.condition(3);
        self.line(depth, format!("if {condition} {{"));
        self.block(depth + 1, nesting - 1);
        if self.random.chance(3) {
            let condition = self.condition(2);
            self.line(depth, format!("}} else if {condition} {{"));
            self.block(depth + 1, nesting - 1);
        }
        if self.random.chance(2) {
            self.line(depth, "} else {".into());
            self.block(depth + 1, nesting - 1);
        }
        self.line(depth, "}".into());
    }

    fn repeat(&mut self, depth: usize, nesting: usize) {
        let label = self.fresh("'l");
        let (name, bound) = (self.fresh("i"), self.expression(Ty::U, 2));
        // The counter of a `while` or `loop` must change before any `continue`.
        let counter = self.fresh("k");
        let (places, first, counted) = (self.places.len(), self.text.len(), self.random.below(6));
        match counted {
            0 => self.line(depth, format!("{label}: for {name} in 0..({bound} & 7) {{")),
            1 => {
                let from = self.expression(Ty::U, 2);
                let step = self.random.pick(&["", ".step_by(2)", ".unroll(2)", ".unroll(3)"]);
                self.line(depth, format!("{label}: for {name} in (({from} & 3)..({bound} & 7)){step} {{"));
            }
            2 => {
                self.line(depth, format!("{label}: for {name} in 0..3u32 {{"));
                self.line(depth + 1, format!("let {name} = val({name});"));
            }
            3 => {
                self.line(depth, format!("let mut {counter} = {bound} & 7;"));
                self.line(depth, format!("{label}: while {counter} != 0 {{"));
                self.line(depth + 1, format!("{counter} -= 1;"));
                self.line(depth + 1, format!("let {name} = {counter};"));
            }
            4 => {
                let condition = self.condition(2);
                self.line(depth, format!("let mut {counter} = val(0u32);"));
                self.line(depth, format!("{label}: while {counter} < 6 && {condition} {{"));
                self.line(depth + 1, format!("{counter} += 1;"));
                self.line(depth + 1, format!("let {name} = {counter} * 5;"));
            }
            _ => {
                self.line(depth, format!("let mut {counter} = {bound} & 7;"));
                self.line(depth, format!("{label}: loop {{"));
                self.line(depth + 1, format!("if {counter} == 0 {{"));
                self.line(depth + 2, "break;".into());
                self.line(depth + 1, "}".into());
                self.line(depth + 1, format!("{counter} -= 1;"));
                self.line(depth + 1, format!("let {name} = {counter} ^ 1;"));
            }
        }
        debug_assert!(self.text.len() > first);
        self.places.push(Place { text: name, ty: Ty::U, mutable: false });
        self.loops.push(label);
        self.block(depth + 1, nesting - 1);
        self.loops.pop();
        self.places.truncate(places);
        self.line(depth, "}".into());
    }

    /// A place of this type, or a constant if there is none.
    fn place(&mut self, ty: Ty) -> String {
        let places: Vec<&Place> = self.places.iter().filter(|place| place.ty == ty).collect();
        match places.is_empty() {
            true => format!("val({})", self.constant(ty)),
            false => places[self.random.below(places.len())].text.clone(),
        }
    }

    fn constant(&mut self, ty: Ty) -> String {
        match ty {
            Ty::U => {
                format!("{}u32", self.random.pick(&["0", "1", "2", "7", "31", "255", "65536", "4294967295"]))
            }
            Ty::I => self
                .random
                .pick(&["0i32", "1i32", "-1i32", "5i32", "-77i32", "i32::MAX", "i32::MIN"])
                .to_owned(),
            Ty::F => self
                .random
                .pick(&["0.0f32", "1.0f32", "-1.5f32", "0.1f32", "3.0e5f32", "f32::INFINITY"])
                .to_owned(),
            Ty::B => self.random.pick(&["true", "false"]).to_owned(),
        }
    }

    /// The right operand of an operator: a constant, or an expression.
    fn right(&mut self, ty: Ty, depth: usize) -> String {
        if self.random.chance(3) { self.constant(ty) } else { self.expression(ty, depth) }
    }

    fn expression(&mut self, ty: Ty, depth: usize) -> String {
        if depth == 0 || self.random.chance(4) {
            return self.place(ty);
        }
        let depth = depth - 1;
        match ty {
            Ty::U => self.unsigned(depth),
            Ty::I => self.signed(depth),
            Ty::F => self.float(depth),
            Ty::B => self.condition(depth + 1),
        }
    }

    fn unsigned(&mut self, depth: usize) -> String {
        let x = self.expression(Ty::U, depth);
        match self.random.below(14) {
            0..=4 => {
                let operator = self.random.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("({x} {operator} {})", self.right(Ty::U, depth))
            }
            5 => {
                let operator = self.random.pick(&["<<", ">>"]);
                format!("({x} {operator} ({} & 31))", self.expression(Ty::U, depth))
            }
            6 => {
                let operator = self.random.pick(&["/", "%"]);
                format!("({x} {operator} ({} | 1))", self.expression(Ty::U, depth))
            }
            7 => {
                let operator = self.random.pick(&["/", "%"]);
                format!("({x} {operator} {})", self.random.pick(&["2", "3", "7", "16", "1000"]))
            }
            8 => format!("{x}.{}({})", self.random.pick(&["min", "max"]), self.expression(Ty::U, depth)),
            9 => format!("{x}.count_ones()"),
            10 => format!("i_to_u({})", self.expression(Ty::I, depth)),
            11 => format!("f_to_u({})", self.expression(Ty::F, depth)),
            12 => {
                let (condition, other) = (self.condition(depth), self.right(Ty::U, depth));
                format!("(if {condition} {{ {x} }} else {{ {other} }})")
            }
            _ => self.called(x, depth),
        }
    }

    fn called(&mut self, x: String, depth: usize) -> String {
        if let Some(closure) = self.closures.last().cloned()
            && self.random.chance(2)
        {
            return format!("{closure}({x})");
        }
        match self.functions.len() {
            0 => format!("(!{x})"),
            count => {
                let function = self.functions[self.random.below(count)].clone();
                format!("{function}({x}, {})", self.expression(Ty::I, depth))
            }
        }
    }

    fn signed(&mut self, depth: usize) -> String {
        let x = self.expression(Ty::I, depth);
        match self.random.below(9) {
            0..=3 => {
                let operator = self.random.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("({x} {operator} {})", self.right(Ty::I, depth))
            }
            4 => format!(
                "({x} {} {})",
                self.random.pick(&["/", "%"]),
                self.random.pick(&["2", "3", "10", "64"])
            ),
            5 => format!("({x} >> ({} & 31))", self.expression(Ty::U, depth)),
            6 => format!("(-{x})"),
            7 => format!("u_to_i({})", self.expression(Ty::U, depth)),
            _ => {
                let (condition, other) = (self.condition(depth), self.right(Ty::I, depth));
                format!("(if {condition} {{ {other} }} else {{ {x} }})")
            }
        }
    }

    fn float(&mut self, depth: usize) -> String {
        let x = self.expression(Ty::F, depth);
        match self.random.below(8) {
            0..=3 => {
                let operator = self.random.pick(&["+", "-", "*", "/"]);
                format!("({x} {operator} {})", self.right(Ty::F, depth))
            }
            4 => format!("(-{x})"),
            5 => format!("{x}.abs()"),
            6 => format!("u_to_f({} & 1023)", self.expression(Ty::U, depth)),
            _ => {
                let (condition, other) = (self.condition(depth), self.right(Ty::F, depth));
                format!("(if {condition} {{ {x} }} else {{ {other} }})")
            }
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.comparison(0);
        }
        let depth = depth - 1;
        match self.random.below(8) {
            0..=3 => self.comparison(depth),
            4 => format!("({} && {})", self.condition(depth), self.condition(depth)),
            5 => format!("({} || {})", self.condition(depth), self.condition(depth)),
            6 => format!("(!{})", self.condition(depth)),
            _ => self.place(Ty::B),
        }
    }

    fn comparison(&mut self, depth: usize) -> String {
        let ty = NUMBERS[self.random.below(3)];
        let operator = self.random.pick(&["<", "<=", ">", ">=", "==", "!="]);
        format!("({} {operator} {})", self.expression(ty, depth), self.right(ty, depth))
    }
}

/// The variable that a place is a part of.
fn base(place: &str) -> &str {
    place.split(['.', '[']).next().unwrap_or_default()
}
