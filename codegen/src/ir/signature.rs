//! The rule that gives the operand and result types of an operation.

use super::kinds::*;
use super::op::Op;
use super::types::Type;

/// What an operand must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Exactly this type.
    Is(Type),
    /// Any pointer.
    Pointer,
    /// Any type that a register can hold except a predicate.
    Data,
    /// u32, i32, u64 or i64.
    Offset,
}

impl Op {
    /// The operands expected and the results given by this operation at type `ty`, or why there is no such
    /// instruction.
    pub fn signature(self, ty: Type) -> Result<(Vec<Expect>, Vec<Type>), String> {
        use Expect::{Data, Is, Offset, Pointer};
        let same = |n: usize| vec![Is(ty); n];
        let require = |ok: bool, what: &str| {
            if ok { Ok(()) } else { Err(format!("{self:?} needs {what}, not {ty}")) }
        };
        Ok(match self {
            Op::Const(bits) => {
                require(!ty.is_pointer(), "a scalar type")?;
                if ty.bits() < 64 && bits >> ty.bits() != 0 {
                    return Err(format!("constant {bits:#x} does not fit {ty}"));
                }
                (vec![], vec![ty])
            }
            Op::Param(_) => {
                require(!matches!(ty, Type::Shared | Type::Cluster), "a parameter type")?;
                (vec![], vec![ty])
            }
            Op::Special(special) => {
                require(ty == special.ty(), special.ty().name())?;
                (vec![], vec![ty])
            }
            Op::SharedAddress(_) | Op::DynamicShared => {
                require(ty == Type::Shared, "shared")?;
                (vec![], vec![ty])
            }
            Op::Unary(unary) => {
                let word = ty.is_int() && ty.bits() >= 32;
                match unary {
                    Unary::Neg => require(ty.is_int() || ty.is_float(), "a number")?,
                    Unary::Not => require(ty.is_int() || ty == Type::Pred, "an integer or predicate")?,
                    Unary::Abs => require(ty.is_signed() || ty.is_float(), "a signed number")?,
                    Unary::Popc | Unary::Clz => {
                        require(word, "a 32- or 64-bit integer")?;
                        return Ok((same(1), vec![Type::U32]));
                    }
                    Unary::Brev => require(word, "a 32- or 64-bit integer")?,
                    Unary::Tanh => {
                        require(matches!(ty, Type::F32 | Type::F16 | Type::F16x2), "f32, f16 or f16x2")?
                    }
                    Unary::Exp2 => {
                        require(matches!(ty, Type::F32 | Type::F16 | Type::F16x2), "f32, f16 or f16x2")?
                    }
                    _ => require(ty == Type::F32, "f32")?,
                }
                (same(1), vec![ty])
            }
            Op::Binary(binary) => {
                match binary {
                    Binary::Add | Binary::Sub | Binary::Mul | Binary::Min | Binary::Max => {
                        require(ty.is_int() || ty.is_float(), "a number")?;
                    }
                    Binary::Div => require(ty.is_int() || ty == Type::F32, "an integer or f32")?,
                    Binary::DivApprox => require(ty == Type::F32, "f32")?,
                    Binary::Rem => require(ty.is_int(), "an integer")?,
                    Binary::MulHi => {
                        require(ty.is_int() && ty.bits() >= 16, "an integer of 16 bits or more")?
                    }
                    Binary::And | Binary::Or | Binary::Xor => {
                        require(ty.is_int() || ty == Type::Pred, "an integer or predicate")?;
                    }
                    Binary::Shl | Binary::Shr => {
                        require(ty.is_int(), "an integer")?;
                        return Ok((vec![Is(ty), Is(Type::U32)], vec![ty]));
                    }
                }
                (same(2), vec![ty])
            }
            Op::MulWide => {
                let wide = match ty {
                    Type::U32 => Type::U64,
                    Type::I32 => Type::I64,
                    _ => return Err(format!("mul_wide needs u32 or i32, not {ty}")),
                };
                (same(2), vec![wide])
            }
            Op::MulAdd => {
                require(
                    ty.is_float() || (ty.is_int() && ty.bits() >= 32),
                    "a float or a 32- or 64-bit integer",
                )?;
                (same(3), vec![ty])
            }
            Op::Compare(_) => {
                require(ty.is_int() || matches!(ty, Type::F16 | Type::Bf16 | Type::F32), "a scalar number")?;
                (same(2), vec![Type::Pred])
            }
            Op::Select => (vec![Is(Type::Pred), Is(ty), Is(ty)], vec![ty]),
            Op::Convert { saturate, .. } => {
                require(ty.is_int() || (ty.is_float() && ty.half().is_none()), "a scalar number")?;
                require(!saturate || ty != Type::Bf16, "a number other than bf16 to saturate")?;
                (vec![Data], vec![ty])
            }
            Op::Bitcast => (vec![Data], vec![ty]),
            Op::Lop3(_) | Op::Prmt => {
                require(ty == Type::U32, "u32")?;
                (same(3), vec![ty])
            }
            Op::BitField => {
                require(ty.is_int() && ty.bits() >= 32, "a 32- or 64-bit integer")?;
                (vec![Is(ty), Is(Type::U32), Is(Type::U32)], vec![ty])
            }
            Op::BitInsert => {
                require(ty.is_int() && ty.bits() >= 32, "a 32- or 64-bit integer")?;
                (vec![Is(ty), Is(ty), Is(Type::U32), Is(Type::U32)], vec![ty])
            }
            Op::NthSetBit => {
                require(ty == Type::U32, "u32")?;
                (vec![Is(ty), Is(Type::U32), Is(Type::I32)], vec![ty])
            }
            Op::Funnel { .. } => {
                require(ty == Type::U32, "u32")?;
                (same(3), vec![ty])
            }
            Op::Dp4a { .. } | Op::Dp2a { .. } => {
                require(matches!(ty, Type::U32 | Type::I32), "u32 or i32")?;
                (vec![Is(Type::U32), Is(Type::U32), Is(ty)], vec![ty])
            }
            Op::Pack => {
                let half = match ty {
                    Type::F16x2 => Type::F16,
                    Type::Bf16x2 => Type::Bf16,
                    Type::U32 => Type::U16,
                    Type::U64 => Type::U32,
                    _ => return Err(format!("pack needs f16x2, bf16x2, u32 or u64, not {ty}")),
                };
                (vec![Is(half); 2], vec![ty])
            }
            Op::ConvertPack => {
                require(ty.half().is_some(), "f16x2 or bf16x2")?;
                (vec![Is(Type::F32); 2], vec![ty])
            }
            Op::Unpack => {
                let whole = match ty {
                    Type::F16 => Type::F16x2,
                    Type::Bf16 => Type::Bf16x2,
                    Type::U16 => Type::U32,
                    Type::U32 => Type::U64,
                    _ => return Err(format!("unpack needs f16, bf16, u16 or u32, not {ty}")),
                };
                (vec![Is(whole)], vec![ty; 2])
            }
            Op::PtrAdd => {
                require(ty.is_pointer(), "a pointer")?;
                (vec![Is(ty), Offset], vec![ty])
            }
            Op::Load(access) | Op::Store(access) => {
                require(!ty.is_pointer() && ty != Type::Pred, "a scalar element")?;
                let n = usize::from(access.vector);
                if !matches!(n, 1 | 2 | 4) || n as u32 * ty.bytes() > 16 {
                    return Err(format!("no access of {n} elements of {ty}"));
                }
                let load = matches!(self, Op::Load(_));
                if !load && matches!(access.cache, Cache::ReadOnly | Cache::ReadOnlyStreaming) {
                    return Err("a store cannot be read-only".into());
                }
                if access.cache == Cache::Volatile && access.hinted {
                    return Err("a volatile access has no cache policy".into());
                }
                if let Some(Ordering { order, .. }) = access.ordering {
                    let other = if load { Order::Acquire } else { Order::Release };
                    if order != Order::Relaxed && order != other {
                        return Err(format!("no {} is {order}", if load { "load" } else { "store" }));
                    }
                    if access.cache != Cache::Default || access.hinted {
                        return Err("an ordered access has no cache hint".into());
                    }
                }
                let (values, results) = if load { (vec![], vec![ty; n]) } else { (same(n), vec![]) };
                let policy = vec![Is(Type::U64); usize::from(access.hinted)];
                ([vec![Pointer], values, policy].concat(), results)
            }
            Op::Atomic { op, .. } => {
                let word = ty.is_int() && ty.bits() >= 32;
                match op {
                    Atomic::Add => require(word || ty == Type::F32, "a 32- or 64-bit number")?,
                    _ => require(word, "a 32- or 64-bit integer")?,
                }
                let n = if op == Atomic::Cas { 2 } else { 1 };
                ([vec![Pointer], same(n)].concat(), vec![ty])
            }
            Op::Barrier { id, threads } => {
                if id > 15 || threads % 32 != 0 {
                    return Err(format!("no barrier {id} of {threads} threads"));
                }
                (vec![], vec![])
            }
            Op::BarrierArrive { id, threads } => {
                if id > 15 || threads % 32 != 0 || threads == 0 {
                    return Err(format!("no barrier {id} of {threads} threads to arrive at"));
                }
                (vec![], vec![])
            }
            Op::Mbarrier(operation) => operation.signature(),
            Op::Transfer(transfer) => (transfer.signature()?, vec![]),
            Op::CachePolicy(_) => {
                require(ty == Type::U64, "u64")?;
                (vec![], vec![ty])
            }
            Op::MapShared => {
                require(ty == Type::Cluster, "cluster")?;
                (vec![Is(Type::Shared), Is(Type::U32)], vec![ty])
            }
            Op::ClusterBarrier(_) => (vec![], vec![]),
            Op::LoadMatrix { matrices, .. } => {
                if !matches!(matrices, 1 | 2 | 4) {
                    return Err(format!("no load of {matrices} matrices"));
                }
                (vec![Is(Type::Shared)], vec![Type::U32; matrices.into()])
            }
            Op::Mma(mma) => mma.signature(ty)?,
            Op::WarpBarrier => (vec![Is(Type::U32)], vec![]),
            Op::Shuffle(_) => {
                require(ty.bits() == 32 && !ty.is_pointer(), "a 32-bit type")?;
                (vec![Is(ty), Is(Type::U32), Is(Type::U32), Is(Type::U32)], vec![ty])
            }
            Op::Vote(vote) => {
                let result = if vote == Vote::Ballot { Type::U32 } else { Type::Pred };
                require(ty == result, result.name())?;
                (vec![Is(Type::Pred), Is(Type::U32)], vec![result])
            }
            Op::Match(lanes) => {
                require(matches!(ty.bits(), 32 | 64) && !ty.is_pointer(), "a 32- or 64-bit type")?;
                let results = if lanes == Match::All { vec![Type::U32, Type::Pred] } else { vec![Type::U32] };
                (vec![Is(ty), Is(Type::U32)], results)
            }
            Op::Reduce(reduce) => {
                let bitwise = matches!(reduce, Reduce::And | Reduce::Or | Reduce::Xor);
                let known = ty == Type::U32 || (ty == Type::I32 && !bitwise);
                require(known, if bitwise { "u32" } else { "u32 or i32" })?;
                (vec![Is(ty), Is(Type::U32)], vec![ty])
            }
            Op::Elect => (vec![Is(Type::U32)], vec![Type::Pred]),
            Op::Sleep => (vec![Is(Type::U32)], vec![]),
            Op::Branch => (vec![Is(Type::Pred)], vec![]),
            Op::Fence(_)
            | Op::SequentialFence(_)
            | Op::FenceFor(_)
            | Op::WaitForDependencies
            | Op::LaunchDependents
            | Op::Jump
            | Op::Return => (vec![], vec![]),
        })
    }
}
