//! Operations with their modifiers: the inverse of [`crate::ir::print::mnemonic`] and of what follows it.

use half::{bf16, f16};

use super::{ParseError, Parser};
use crate::ir::{
    Access, Atomic, Binary, Cache, ClusterBarrier, Compare, Eviction, FenceFor, Match, Mbarrier, Mma,
    MmaElement, MmaShape, Op, Order, Reduce, Rounding, Scope, SharedVar, Shuffle, Special, Transfer, Type,
    Unary, Vote,
};

const SIGNS_8: &[(&str, bool)] = &[("u8", false), ("i8", true)];
const SIGNS_16: &[(&str, bool)] = &[("u16", false), ("i16", true)];

impl Parser {
    /// The operation and its type, up to the first operand.
    pub(super) fn op(&mut self) -> Result<(Op, Type), ParseError> {
        let word = self.word("an operation")?;
        let (name, ty) = match word.split_once('.') {
            Some((name, text)) => {
                let ty = text.parse().map_err(|()| self.error_before(format!("`{text}` is not a type")))?;
                (name, Some(ty))
            }
            None => (word.as_str(), None),
        };
        let begin = self.at;
        let op = self.modifiers(name, ty.unwrap_or(Type::U32))?;
        if op.is_typed() != ty.is_some() {
            self.at = begin;
            let what = if op.is_typed() { "needs a type" } else { "has no type" };
            return Err(self.error_before(format!("`{name}` {what}")));
        }
        Ok((op, ty.unwrap_or(Type::U32)))
    }

    fn modifiers(&mut self, name: &str, ty: Type) -> Result<Op, ParseError> {
        if let Ok(unary) = name.parse::<Unary>() {
            return Ok(Op::Unary(unary));
        }
        if let Ok(binary) = name.parse::<Binary>() {
            return Ok(Op::Binary(binary));
        }
        if let Ok(compare) = name.parse::<Compare>() {
            return Ok(Op::Compare(compare));
        }
        Ok(match name {
            "const" => Op::Const(self.literal(ty)?),
            "param" => Op::Param(self.parsed("a parameter's index")?),
            "special" => Op::Special(self.named(Special::ALL)?),
            "shared_address" => Op::SharedAddress(SharedVar::from_u32(self.name("shared")?.number)),
            "dynamic_shared" => Op::DynamicShared,
            "mul_wide" => Op::MulWide,
            "mul_add" => Op::MulAdd,
            "select" => Op::Select,
            "convert" => Op::Convert { rounding: self.named(Rounding::ALL)?, saturate: self.eat_word("sat") },
            "bitcast" => Op::Bitcast,
            "lop3" => Op::Lop3(self.hex_byte()?),
            "prmt" => Op::Prmt,
            "bit_field" => Op::BitField,
            "funnel" => Op::Funnel { left: self.choice(&[("right", false), ("left", true)])? },
            "dp4a" => Op::Dp4a { a_signed: self.choice(SIGNS_8)?, b_signed: self.choice(SIGNS_8)? },
            "dp2a" => Op::Dp2a {
                a_signed: self.choice(SIGNS_16)?,
                b_signed: self.choice(SIGNS_8)?,
                high: self.choice(&[("low", false), ("high", true)])?,
            },
            "bit_insert" => Op::BitInsert,
            "nth_set_bit" => Op::NthSetBit,
            "pack" => Op::Pack,
            "convert_pack" => Op::ConvertPack,
            "unpack" => Op::Unpack,
            "ptr_add" => Op::PtrAdd,
            "load" => Op::Load(self.access()?),
            "store" => Op::Store(self.access()?),
            "atomic" => {
                let op = self.named(Atomic::ALL)?;
                let order = self.order().unwrap_or(Order::Relaxed);
                Op::Atomic { op, ordering: order.among(self.named(Scope::ALL)?), offset: 0 }
            }
            "barrier" => {
                let id = self.parsed("a barrier's number")?;
                let threads = if self.eat_word("threads") { self.parsed("a number of threads")? } else { 0 };
                Op::Barrier { id, threads }
            }
            "barrier_arrive" => {
                let id = self.parsed("a barrier's number")?;
                self.keyword("threads")?;
                Op::BarrierArrive { id, threads: self.parsed("a number of threads")? }
            }
            "fence_for" => Op::FenceFor(self.named(FenceFor::ALL)?),
            "map_shared" => Op::MapShared,
            "cluster_barrier" => Op::ClusterBarrier(self.named(ClusterBarrier::ALL)?),
            "mbarrier" => Op::Mbarrier(self.named(Mbarrier::ALL)?),
            "transfer" => Op::Transfer(self.transfer()?),
            "cache_policy" => Op::CachePolicy(self.named(Eviction::ALL)?),
            "load_matrix" => {
                let matrices = self.choice(&[("x1", 1), ("x2", 2), ("x4", 4)])?;
                Op::LoadMatrix { matrices, transposed: self.eat_word("transposed") }
            }
            "mma" => Op::Mma(Mma {
                shape: self.named(MmaShape::ALL)?,
                a: self.named(MmaElement::ALL)?,
                b: self.named(MmaElement::ALL)?,
            }),
            "warp_barrier" => Op::WarpBarrier,
            "sequential_fence" => Op::SequentialFence(self.named(Scope::ALL)?),
            "fence" => Op::Fence(self.named(Scope::ALL)?),
            "shuffle" => Op::Shuffle(self.named(Shuffle::ALL)?),
            "vote" => Op::Vote(self.named(Vote::ALL)?),
            "match" => Op::Match(self.named(Match::ALL)?),
            "reduce" => Op::Reduce(self.named(Reduce::ALL)?),
            "elect" => Op::Elect,
            "sleep" => Op::Sleep,
            "wait_for_dependencies" => Op::WaitForDependencies,
            "launch_dependents" => Op::LaunchDependents,
            "jump" => Op::Jump,
            "branch" => Op::Branch,
            "return" => Op::Return,
            _ => return Err(self.error_before(format!("`{name}` is not an operation"))),
        })
    }

    fn transfer(&mut self) -> Result<Transfer, ParseError> {
        let kind = self.word("a transfer")?;
        Ok(match kind.as_str() {
            "async" => {
                let bytes = self.parsed("a number of bytes")?;
                Transfer::Async { bytes, hinted: self.eat_word("hinted") }
            }
            "commit" => Transfer::Commit,
            "wait" => Transfer::Wait { pending: self.parsed("a number of groups")? },
            "bulk" => Transfer::Bulk { hinted: self.eat_word("hinted") },
            "bulk_multicast" => Transfer::BulkMulticast { hinted: self.eat_word("hinted") },
            "bulk_store" => Transfer::BulkStore { hinted: self.eat_word("hinted") },
            "bulk_to_cluster" => Transfer::BulkToCluster,
            "bulk_commit" => Transfer::BulkCommit,
            "bulk_wait" => Transfer::BulkWait {
                pending: self.parsed("a number of groups")?,
                read: self.eat_word("read"),
            },
            "prefetch" => Transfer::Prefetch,
            "prefetch_bulk" => Transfer::PrefetchBulk,
            _ => return Err(self.error_before(format!("`{kind}` is not a transfer"))),
        })
    }

    fn access(&mut self) -> Result<Access, ParseError> {
        let mut access = Access::SCALAR;
        if let Some(digits) = self.peek_word().and_then(|word| word.strip_prefix('x')) {
            access.vector =
                digits.parse().map_err(|_| self.error("expected a number of elements like x4"))?;
            self.at += 1;
        }
        if let Some(cache) = self.peek_word().and_then(|word| word.parse::<Cache>().ok()) {
            access.cache = cache;
            self.at += 1;
        }
        access.hinted = self.eat_word("hinted");
        if let Some(order) = self.order() {
            access.ordering = Some(order.among(self.named(Scope::ALL)?));
        }
        Ok(access)
    }

    fn order(&mut self) -> Option<Order> {
        let order = self.peek_word()?.parse().ok()?;
        self.at += 1;
        Some(order)
    }

    fn hex_byte(&mut self) -> Result<u8, ParseError> {
        let word = self.word("a truth table like 0x96")?;
        let bits = word.strip_prefix("0x").and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bits.ok_or_else(|| self.error_before("expected a truth table like 0x96"))
    }

    /// A constant's raw bits: `true`, a decimal number of the type, or the bits in hexadecimal.
    fn literal(&mut self, ty: Type) -> Result<u64, ParseError> {
        let negative = self.eat('-');
        let word = self.word("a constant")?;
        let bits = if let Some(digits) = word.strip_prefix("0x") {
            if negative { None } else { u64::from_str_radix(digits, 16).ok() }
        } else if ty == Type::Pred {
            ["false", "true"].iter().position(|text| !negative && *text == word).map(|bits| bits as u64)
        } else if ty.is_float() {
            decimal_float(ty, &word, negative)
        } else {
            decimal_int(ty, &word, negative)
        };
        bits.ok_or_else(|| self.error_before(format!("`{word}` is not a constant of type {ty}")))
    }
}

fn decimal_float(ty: Type, word: &str, negative: bool) -> Option<u64> {
    // Only digits: the standard library also reads `inf` and `nan`, which are written as bits here.
    let value: f32 =
        if word.starts_with(|c: char| c.is_ascii_digit()) { word.parse().ok()? } else { return None };
    let value = if negative { -value } else { value };
    let (bits, exact) = match ty {
        Type::F32 => (u64::from(value.to_bits()), value),
        Type::F16 => (u64::from(f16::from_f32(value).to_bits()), f16::from_f32(value).to_f32()),
        Type::Bf16 => (u64::from(bf16::from_f32(value).to_bits()), bf16::from_f32(value).to_f32()),
        _ => return None,
    };
    // A 16-bit constant is written exactly, never as a number that merely rounds to it.
    (exact == value && value.is_finite()).then_some(bits)
}

fn decimal_int(ty: Type, word: &str, negative: bool) -> Option<u64> {
    let size: i128 = word.parse::<u64>().ok()?.into();
    let value = if negative { -size } else { size };
    let bits = value as u64 & ty.mask();
    let back = if ty.is_signed() { ty.sign_extend(bits).into() } else { i128::from(bits) };
    (back == value).then_some(bits)
}
