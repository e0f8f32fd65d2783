//! Memory accesses: cache operators, memory order, atomic operations.

use super::effect::Effect;
use super::lex::ParseError;
use super::members::{AtPointer, Format, Variant};
use super::named::named_enum;
use super::reader::Reader;
use super::rule::{ELEMENT, POINTER, Rule, T, typed};
use super::types::Type;

named_enum! {
    /// Cache operator of a load or store.
    pub enum Cache {
        /// The default: all levels.
        Default = "default",
        /// L2 only (`.cg`): bypasses L1, so that writes of other multiprocessors are visible.
        L2 = "cg",
        /// Streaming (`.cs`): read once, evicted first.
        Streaming = "cs",
        /// Through the read-only path (`.nc`); the memory must not change while the kernel runs.
        ReadOnly = "nc",
        /// Read-only, without allocating a line in L1 (`.nc` with `.L1::no_allocate`).
        ReadOnlyStreaming = "nc_stream",
        /// `.volatile`: neither reordered nor removed, visible to the whole system.
        Volatile = "volatile",
    }
}

named_enum! {
    /// Atomic read-modify-write operations; the result is the value before the operation.
    pub enum Atomic {
        /// Sum.
        Add = "add",
        /// Minimum.
        Min = "min",
        /// Maximum.
        Max = "max",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Increment that wraps: 0 if the old value is at least the operand, else the old value plus 1.
        Inc = "inc",
        /// Decrement that wraps: the operand if the old value is 0 or above the operand, else the old value minus 1.
        Dec = "dec",
        /// Exchange.
        Exch = "exch",
        /// Compare and swap: operands compare, then new.
        Cas = "cas",
    }
}

named_enum! {
    /// Memory scope: the threads that an atomic or a fence is ordered for.
    pub enum Scope {
        /// All threads of the CTA.
        Cta = "cta",
        /// All threads of the device.
        Gpu = "gpu",
        /// The whole system, host included.
        Sys = "sys",
    }
}

named_enum! {
    /// Memory order of an atomic or an access.
    pub enum Order {
        /// No ordering with other accesses.
        Relaxed = "relaxed",
        /// Acquire: if the access reads a value that a release wrote, writes before the release are visible afterwards.
        Acquire = "acquire",
        /// Release: earlier accesses of the thread are visible to an acquire that reads the value.
        Release = "release",
        /// Acquire and release.
        AcqRel = "acq_rel",
    }
}

/// A memory order and the scope in which it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ordering {
    /// The order.
    pub order: Order,
    /// The scope.
    pub scope: Scope,
}

impl Order {
    /// This memory order in the given scope.
    pub const fn among(self, scope: Scope) -> Ordering {
        Ordering { order: self, scope }
    }
}

/// Relaxed order in the given scope.
impl From<Scope> for Ordering {
    fn from(scope: Scope) -> Ordering {
        Order::Relaxed.among(scope)
    }
}

impl std::fmt::Display for Ordering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.order, self.scope)
    }
}

/// A memory access: `vector` consecutive elements at the pointer operand plus `offset` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Elements accessed: 1, 2 or 4.
    pub vector: u8,
    /// Constant byte offset from the pointer operand.
    pub offset: i32,
    /// Cache operator.
    pub cache: Cache,
    /// Whether the last operand is an L2 cache policy (u64).
    pub hinted: bool,
    /// Memory order, for an element that other threads may access at the same time.
    pub ordering: Option<Ordering>,
}

impl Access {
    /// One element at the pointer, default caching.
    pub const SCALAR: Access =
        Access { vector: 1, offset: 0, cache: Cache::Default, hinted: false, ordering: None };

    /// Whether the access goes through the read-only cache path.
    pub fn is_read_only(self) -> bool {
        matches!(self.cache, Cache::ReadOnly | Cache::ReadOnlyStreaming)
    }

    /// Type rule of a load.
    pub(super) fn load(self, ty: Type) -> Rule {
        let results = vec![T; self.vector.into()];
        typed(ELEMENT, &[POINTER], &results).policy(self.hinted).check(self.check(ty, Order::Acquire))
    }

    /// Type rule of a store.
    pub(super) fn store(self, ty: Type) -> Rule {
        let operands = [vec![POINTER], vec![T; self.vector.into()]].concat();
        let members = match self.is_read_only() {
            true => Err("a store cannot be read-only".into()),
            false => self.check(ty, Order::Release),
        };
        typed(ELEMENT, &operands, &[]).policy(self.hinted).check(members)
    }

    /// Effect of a load: a load that must observe writes of other threads may not be moved.
    pub(super) fn load_effect(self) -> Effect {
        let synchronises = self.cache == Cache::Volatile || self.ordering.is_some();
        if synchronises { Effect::Sync } else { Effect::Read }
    }

    /// Checks the members of an access; `strongest` is the strongest order allowed: acquire for a load, release for a
    /// store.
    fn check(self, ty: Type, strongest: Order) -> Result<(), String> {
        let n = u32::from(self.vector);
        if !matches!(n, 1 | 2 | 4) || n * ty.bytes() > 16 {
            return Err(format!(
                "no access of {n} elements of {ty}: write 2 or 4 elements, of at most 16 bytes together (8 elements of \
                 16 bits, 8 or 16 of 8 bits)"
            ));
        }
        if self.cache == Cache::Volatile && self.hinted {
            return Err("a volatile access has no cache policy".into());
        }
        let Some(Ordering { order, .. }) = self.ordering else { return Ok(()) };
        if order != Order::Relaxed && order != strongest {
            let kind = if strongest == Order::Acquire { "load" } else { "store" };
            return Err(format!("no {kind} is {order}"));
        }
        if self.cache != Cache::Default || self.hinted {
            return Err("an ordered access has no cache hint".into());
        }
        Ok(())
    }
}

/// Format of a memory order and its scope; `relaxed` is omitted.
pub(super) struct AtomicOrdering;

impl Format<Ordering> for AtomicOrdering {
    fn print(&self, member: Ordering, _: Type) -> String {
        if member.order == Order::Relaxed { member.scope.to_string() } else { member.to_string() }
    }

    fn read(&self, reader: &mut Reader, ty: Type) -> Result<Ordering, ParseError> {
        let order = reader.optional().unwrap_or(Order::Relaxed);
        Ok(order.among(Variant.read(reader, ty)?))
    }

    fn examples(&self) -> Vec<Ordering> {
        let scopes = |&order: &Order| Scope::ALL.iter().map(move |&scope| order.among(scope));
        Order::ALL.iter().flat_map(scopes).collect()
    }
}

/// Format of a load or store: vector length, cache operator, policy flag and ordering; defaults are omitted.
pub(super) struct AccessFormat;

impl Format<Access> for AccessFormat {
    fn print(&self, member: Access, _: Type) -> String {
        let vector = (member.vector != 1).then(|| format!("x{}", member.vector));
        let cache = (member.cache != Cache::Default).then(|| member.cache.to_string());
        let hinted = member.hinted.then(|| "hinted".to_owned());
        let ordering = member.ordering.map(|ordering| ordering.to_string());
        [vector, cache, hinted, ordering].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn read(&self, reader: &mut Reader, ty: Type) -> Result<Access, ParseError> {
        let mut access = Access::SCALAR;
        if let Some(digits) = reader.peek_word().and_then(|word| word.strip_prefix('x')) {
            access.vector =
                digits.parse().map_err(|_| reader.error("expected a number of elements like x4"))?;
            reader.at += 1;
        }
        access.cache = reader.optional().unwrap_or(Cache::Default);
        access.hinted = reader.eat_word("hinted");
        if let Some(order) = reader.optional::<Order>() {
            access.ordering = Some(order.among(Variant.read(reader, ty)?));
        }
        Ok(access)
    }

    fn examples(&self) -> Vec<Access> {
        let mut all = Vec::new();
        for (vector, offset) in [1, 2, 4].into_iter().zip(AtPointer.examples()) {
            let plain = Access { vector, offset, ..Access::SCALAR };
            for &cache in Cache::ALL {
                all.extend([false, true].map(|hinted| Access { cache, hinted, ..plain }));
            }
            let ordered = |ordering| Access { ordering: Some(ordering), ..plain };
            all.extend(AtomicOrdering.examples().into_iter().map(ordered));
        }
        all.extend([i32::MIN, i32::MAX].map(|offset| Access { offset, ..Access::SCALAR }));
        all
    }
}
