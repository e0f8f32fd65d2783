//! Loads, stores and atomics as PTX.

use super::operand::{arithmetic, bits, memory};
use super::printer::Printer;
use crate::ir::{Access, Atomic, Cache, InstData, Order, Ordering, Type, Value};

impl Printer<'_> {
    fn address(&mut self, pointer: Value, offset: i32) -> String {
        let pointer = self.register(pointer);
        match offset {
            0 => format!("[{pointer}]"),
            _ => format!("[{pointer}+{offset}]"),
        }
    }

    fn space(&self, pointer: Value) -> &'static str {
        match self.function.value_type(pointer) {
            Type::Global => "global",
            Type::Cluster => "shared::cluster",
            Type::Local => "local",
            Type::Constant => "const",
            _ => "shared",
        }
    }

    pub(super) fn load(&mut self, access: Access, data: &InstData) {
        let cache = match access.cache {
            Cache::Default | Cache::Volatile => "",
            Cache::L2 => ".cg",
            Cache::Streaming => ".cs",
            Cache::ReadOnly => ".nc",
            Cache::ReadOnlyStreaming => ".nc.L1::no_allocate",
        };
        let name = self.access("ld", cache, access, data);
        let address = self.address(data.args[0], access.offset);
        let to = match data.results[..] {
            [one] => self.register(one).to_string(),
            _ => self.tuple(&data.results),
        };
        let policy = self.policy(access.hinted, data);
        self.line(format_args!("{name} {to}, {address}{policy};"));
    }

    pub(super) fn store(&mut self, access: Access, data: &InstData) {
        let cache = match access.cache {
            Cache::L2 => ".cg",
            Cache::Streaming => ".cs",
            _ => "",
        };
        let name = self.access("st", cache, access, data);
        let address = self.address(data.args[0], access.offset);
        let values = match data.args[1..=usize::from(access.vector)] {
            [one] => self.operand(one),
            ref several => self.tuple(several),
        };
        let policy = self.policy(access.hinted, data);
        self.line(format_args!("{name} {address}, {values}{policy};"));
    }

    /// The instruction with cache operator, vector length and type, up to its operands.
    fn access(&self, name: &str, cache: &str, access: Access, data: &InstData) -> String {
        let order = match access.ordering {
            Some(Ordering { order, scope }) => format!(".{order}.{scope}"),
            None if access.cache == Cache::Volatile => ".volatile".into(),
            None => String::new(),
        };
        let hint = if access.hinted { ".L2::cache_hint" } else { "" };
        let vector = if access.vector == 1 { String::new() } else { format!(".v{}", access.vector) };
        format!("{name}{order}.{}{cache}{hint}{vector}.{}", self.space(data.args[0]), memory(data.ty))
    }

    /// The cache policy operand with a comma before it, if `hinted`; otherwise empty.
    pub(super) fn policy(&mut self, hinted: bool, data: &InstData) -> String {
        match data.args.last() {
            Some(&policy) if hinted => format!(", {}", self.register(policy)),
            _ => String::new(),
        }
    }

    /// Registers of a vector operand in braces: `{%r1, %r2, …}`.
    pub(super) fn tuple(&mut self, values: &[Value]) -> String {
        format!("{{{}}}", self.registers(values, ", "))
    }

    /// Registers of several values, separated by `separator`.
    pub(super) fn registers(&mut self, values: &[Value], separator: &str) -> String {
        let registers: Vec<String> = values.iter().map(|&value| self.register(value).to_string()).collect();
        registers.join(separator)
    }

    pub(super) fn atomic(&mut self, op: Atomic, ordering: Ordering, offset: i32, data: &InstData) {
        let space = self.space(data.args[0]);
        let kind = match op {
            Atomic::And | Atomic::Or | Atomic::Xor | Atomic::Exch | Atomic::Cas => bits(data.ty),
            // Addition wraps and has no s64 form; u64 gives the same bits.
            Atomic::Add if data.ty == Type::I64 => "u64",
            _ => arithmetic(data.ty),
        };
        let address = self.address(data.args[0], offset);
        let values: Vec<String> = data.args[1..].iter().map(|&value| self.operand(value)).collect();
        let values = values.join(", ");
        let Ordering { order, scope } = ordering;
        let is_half = matches!(data.ty, Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2);
        let kind = if is_half { format!("noftz.{kind}") } else { kind.to_owned() };
        // A `red` has no acquire semantics.
        let reducible = !matches!(op, Atomic::Exch | Atomic::Cas)
            && matches!(order, Order::Relaxed | Order::Release)
            && !self.used.contains(&data.results[0]);
        if reducible {
            self.line(format_args!("red.{order}.{scope}.{space}.{op}.{kind} {address}, {values};"));
        } else {
            let to = self.register(data.results[0]);
            self.line(format_args!("atom.{order}.{scope}.{space}.{op}.{kind} {to}, {address}, {values};"));
        }
    }
}
