//! Random kernels in the text form: structured control flow over arithmetic, loads and stores.

use std::fmt::Write;

/// Types that values are made of.
const TYPES: [&str; 10] = ["u8", "u16", "u32", "i8", "i32", "u64", "i64", "f16", "f32", "pred"];

/// A kernel with parameters `p: global u8` and `n: u32`.
pub fn kernel(seed: u64) -> String {
    let mut generator =
        Generator { state: seed, text: String::new(), values: 0, blocks: 1, scope: Vec::new() };
    generator.text.push_str("kernel @k(p: global u8, n: u32) threads 256 {\nblock0:\n");
    generator.define("global", "param.global 0");
    generator.define("u32", "param.u32 1");
    generator.define("u32", "special.u32 tid.x");
    generator.statements(3);
    for (value, ty) in generator.scope.clone() {
        generator.store(value, ty);
    }
    generator.line("return");
    if generator.chance(3) {
        let block = generator.block();
        let _ = write!(generator.text, "block{block}:\n  return\n");
    }
    generator.text.push_str("}\n");
    generator.text
}

struct Generator {
    state: u64,
    text: String,
    values: u32,
    blocks: u32,
    /// Values that may be used, with their types.
    scope: Vec<(u32, &'static str)>,
}

impl Generator {
    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in n times.
    fn chance(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.text, "  {text}");
    }

    fn define(&mut self, ty: &'static str, text: &str) -> u32 {
        let value = self.fresh(ty);
        let _ = writeln!(self.text, "  v{value} = {text}");
        value
    }

    fn fresh(&mut self, ty: &'static str) -> u32 {
        self.values += 1;
        self.scope.push((self.values - 1, ty));
        self.values - 1
    }

    fn block(&mut self) -> u32 {
        self.blocks += 1;
        self.blocks - 1
    }

    /// A value of the type: one in scope or a constant.
    fn value(&mut self, ty: &'static str) -> u32 {
        let known: Vec<u32> = self.scope.iter().filter(|(_, t)| *t == ty).map(|(value, _)| *value).collect();
        if known.is_empty() || self.chance(3) {
            return self.constant(ty);
        }
        self.pick(&known)
    }

    fn constant(&mut self, ty: &'static str) -> u32 {
        let literal = match ty {
            "pred" => self.pick(&["true", "false"]).into(),
            "f32" => {
                self.pick(&["0.0", "-0.0", "1.0", "-2.5", "0.125", "0x7f800000", "3e38", "1e-40"]).into()
            }
            "f16" => self.pick(&["0.0", "-0.0", "1.0", "1.5", "0x7c00", "0x0001"]).into(),
            _ => {
                let bits: u32 = ty[1..].parse().unwrap();
                let mask = u64::MAX >> (64 - bits);
                let any = self.next();
                let power = 1 << self.below(8);
                format!(
                    "{:#x}",
                    self.pick(&[0, 1, 2, 3, 7, 16, 33, power, mask, mask >> 1, mask - 3, any]) & mask
                )
            }
        };
        self.define(ty, &format!("const.{ty} {literal}"))
    }

    fn statements(&mut self, depth: u32) {
        for _ in 0..3 + self.below(8) {
            match self.below(if depth > 0 { 12 } else { 9 }) {
                0..=5 => self.arithmetic(),
                6 | 7 => self.load(),
                8 => {
                    let (value, ty) = self.any();
                    self.store(value, ty);
                }
                9 | 10 => self.conditional(depth - 1),
                _ => self.repetition(depth - 1),
            }
        }
    }

    fn any(&mut self) -> (u32, &'static str) {
        let ty = self.pick(&TYPES);
        (self.value(ty), ty)
    }

    fn arithmetic(&mut self) {
        let ty = self.pick(&["u32", "u32", "i32", "u64", "i64", "u8", "u16", "i8", "f32", "f16", "pred"]);
        let float = ty.starts_with('f');
        let wide = matches!(ty, "u32" | "i32" | "u64" | "i64");
        let names: &[&str] = match ty {
            "pred" => &["and", "or", "xor"],
            "f32" => &["add", "sub", "mul", "div", "min", "max"],
            "f16" => &["add", "sub", "mul", "min", "max"],
            _ => &["add", "add", "add", "sub", "mul", "mul", "div", "rem", "min", "max", "and", "or", "xor"],
        };
        let (a, b) = (self.value(ty), self.value(ty));
        match self.below(11) {
            0..=3 => {
                let name = self.pick(names);
                self.define(ty, &format!("{name}.{ty} v{a}, v{b}"));
            }
            4 if ty != "pred" => {
                let name = self.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
                self.define("pred", &format!("{name}.{ty} v{a}, v{b}"));
            }
            5 => {
                let p = self.value("pred");
                self.define(ty, &format!("select.{ty} v{p}, v{a}, v{b}"));
            }
            6 if !float && ty != "pred" => {
                let (name, amount) = (self.pick(&["shl", "shr"]), self.value("u32"));
                self.define(ty, &format!("{name}.{ty} v{a}, v{amount}"));
            }
            7 if wide || ty == "f32" => {
                let c = self.value(ty);
                self.define(ty, &format!("mul_add.{ty} v{a}, v{b}, v{c}"));
            }
            8 => {
                let name = if ty == "pred" { "not" } else { "neg" };
                self.define(ty, &format!("{name}.{ty} v{a}"));
            }
            9 => self.bits(),
            _ => self.convert(),
        }
    }

    fn bits(&mut self) {
        let [a, b, c] = [(); 3].map(|()| self.value("u32"));
        match self.below(7) {
            0 => self.define("u32", &format!("lop3.u32 0x6a v{a}, v{b}, v{c}")),
            1 => self.define("u32", &format!("prmt.u32 v{a}, v{b}, v{c}")),
            2 => self.define("u32", &format!("funnel.u32 left v{a}, v{b}, v{c}")),
            3 => {
                let sum = self.value("i32");
                self.define("i32", &format!("dp4a.i32 i8 u8 v{a}, v{b}, v{sum}"))
            }
            4 => self.define("u64", &format!("mul_wide.u32 v{a}, v{b}")),
            5 => {
                let value = self.value("i32");
                self.define("i32", &format!("bit_field.i32 v{value}, v{b}, v{c}"))
            }
            _ => {
                let name = self.pick(&["popc", "clz", "brev"]);
                self.define("u32", &format!("{name}.u32 v{a}"))
            }
        };
    }

    fn convert(&mut self) {
        let (from, to) = (self.pick(&TYPES[..9]), self.pick(&TYPES[..9]));
        // From floats only to floats: the rest is not defined for all numbers.
        if from.starts_with('f') && !to.starts_with('f') {
            return;
        }
        let saturate = if !to.starts_with('f') && self.chance(3) { "sat " } else { "" };
        let value = self.value(from);
        self.define(to, &format!("convert.{to} rn {saturate}v{value}"));
    }

    /// A load from an address computed in one of the ways that kernels do, which may wrap.
    fn load(&mut self) {
        let mut index = self.value("u32");
        if self.chance(2) {
            let mask = self.define("u32", "const.u32 1023");
            index = self.define("u32", &format!("and.u32 v{index}, v{mask}"));
        }
        if self.chance(2) {
            let summand = self.constant("u32");
            index = self.define("u32", &format!("add.u32 v{index}, v{summand}"));
        }
        let scale = self.pick(&[1, 2, 4, 34]);
        let offset = match self.below(4) {
            0 => self.define("u64", &format!("convert.u64 rz v{index}")),
            1 => {
                let scale = self.define("u32", &format!("const.u32 {scale}"));
                self.define("u64", &format!("mul_wide.u32 v{index}, v{scale}"))
            }
            2 => {
                let wide = self.define("u64", &format!("convert.u64 rz v{index}"));
                let scale = self.define("u64", &format!("const.u64 {scale}"));
                self.define("u64", &format!("mul.u64 v{wide}, v{scale}"))
            }
            _ => index,
        };
        let mut pointer = self.define("pointer", &format!("ptr_add.global v0, v{offset}"));
        if self.chance(3) {
            let step = self.value("i32");
            pointer = self.define("pointer", &format!("ptr_add.global v{pointer}, v{step}"));
        }
        let ty = self.pick(&["u8", "u16", "u32", "i8", "i32", "u64", "f16", "f32"]);
        let (cache, extra) = (self.pick(&["", "nc ", "cs "]), self.pick(&["", " + 4", " - 16"]));
        self.define(ty, &format!("load.{ty} {cache}v{pointer}{extra}"));
    }

    fn store(&mut self, value: u32, ty: &str) {
        match ty {
            "pred" => {
                let zero = self.define("u32", "const.u32 0");
                let one = self.define("u32", "const.u32 1");
                let bit = self.define("u32", &format!("select.u32 v{value}, v{one}, v{zero}"));
                self.line(&format!("store.u32 v0 + 8, v{bit}"));
            }
            "global" | "pointer" => {}
            _ => self.line(&format!("store.{ty} v0 + 16, v{value}")),
        }
    }

    /// Types and block parameters that a join or loop carries.
    fn carried(&mut self) -> Vec<&'static str> {
        (0..self.below(4)).map(|_| self.pick(&TYPES)).collect()
    }

    fn arguments(&mut self, types: &[&'static str]) -> String {
        let values: Vec<String> = types.iter().map(|ty| format!("v{}", self.value(ty))).collect();
        if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) }
    }

    fn begin(&mut self, block: u32, params: &[&'static str]) -> Vec<u32> {
        let values: Vec<u32> = params.iter().map(|ty| self.fresh(ty)).collect();
        let text: Vec<String> = values.iter().zip(params).map(|(v, ty)| format!("v{v}: {ty}")).collect();
        let text = if text.is_empty() { String::new() } else { format!("({})", text.join(", ")) };
        let _ = writeln!(self.text, "block{block}{text}:");
        values
    }

    fn conditional(&mut self, depth: u32) {
        let condition = self.value("pred");
        let (yes, no, join) = (self.block(), self.block(), self.block());
        let types = self.carried();
        let triangle = self.chance(2);
        let skipped = self.arguments(&types);
        let other = if triangle { format!("block{join}{skipped}") } else { format!("block{no}") };
        self.line(&format!("branch v{condition}, block{yes}, {other}"));
        // One way at least leads to the join.
        let mut may_return = true;
        for arm in if triangle { vec![yes] } else { vec![yes, no] } {
            let before = self.scope.len();
            self.begin(arm, &[]);
            // Arms without anything in them, and small ones, are what branches turn into selections for.
            match self.below(3) {
                0 => {}
                1 => self.arithmetic(),
                _ => self.statements(depth),
            }
            if may_return && self.chance(10) {
                may_return = false;
                self.line("return");
            } else {
                let args = self.arguments(&types);
                self.line(&format!("jump block{join}{args}"));
            }
            self.scope.truncate(before);
        }
        self.begin(join, &types);
    }

    fn repetition(&mut self, depth: u32) {
        let (header, body, exit) = (self.block(), self.block(), self.block());
        let mut types = vec!["u32"];
        types.extend(self.carried());
        let zero = self.define("u32", "const.u32 0");
        let step = self.define("u32", "const.u32 1");
        let limit = self.below(4);
        let limit = self.define("u32", &format!("const.u32 {limit}"));
        let first = self.arguments(&types[1..]).replace('(', ", ").replace(')', "");
        self.line(&format!("jump block{header}(v{zero}{first})"));
        let counter = self.begin(header, &types)[0];
        let more = self.define("pred", &format!("lt.u32 v{counter}, v{limit}"));
        self.line(&format!("branch v{more}, block{body}, block{exit}"));
        let before = self.scope.len();
        self.begin(body, &[]);
        self.statements(depth);
        let next = self.define("u32", &format!("add.u32 v{counter}, v{step}"));
        let rest = self.arguments(&types[1..]).replace('(', ", ").replace(')', "");
        self.line(&format!("jump block{header}(v{next}{rest})"));
        self.scope.truncate(before);
        self.begin(exit, &[]);
    }
}
