//! Prints one IR instruction as PTX.

use super::operand::{Class, Register, arithmetic, bits, memory};
use super::printer::Printer;
use super::signature::param_name;
use crate::ir::{
    Binary, ClusterBarrier, Compare, Inline, InstData, Op, Piece, Reduce, Rounding, Special, TableVar, Type,
    Unary, Vote, pieces,
};

impl Printer<'_> {
    pub(super) fn instruction(&mut self, data: &InstData) {
        match data.op {
            Op::Param(index) if self.function.results.is_some() => self.function_param(index as usize, data),
            Op::Param(index) => self.param(index as usize, data),
            Op::Call(callee) => self.call(callee, data),
            Op::Result(index) => self.set_result(index as usize, data),
            Op::Special(Special::ActiveMask) => self.simple(data, "activemask.b32 {}"),
            Op::Special(special) => {
                self.simple(data, &format!("mov.{} {{}}, %{special}", arithmetic(special.ty())));
            }
            Op::SharedAddress(variable) => self.simple(data, &format!("mov.u32 {{}}, {variable}")),
            Op::LocalAddress(variable) => self.simple(data, &format!("mov.u32 {{}}, {variable}")),
            Op::TableAddress(table) => {
                let name = self.symbols.table(&self.function.tables[table]);
                self.simple(data, &format!("mov.u64 {{}}, {name}"));
            }
            Op::DynamicShared => self.simple(data, "mov.u32 {}, dynamic_shared"),
            Op::Unary(unary) => self.unary(unary, data),
            Op::Binary(binary) => self.binary(binary, data),
            Op::MulWide => self.operation(data, &format!("mul.wide.{}", arithmetic(data.ty))),
            Op::MulAdd if data.ty.is_float() => {
                self.operation(data, &format!("fma.rn.{}", arithmetic(data.ty)))
            }
            Op::MulAdd => self.operation(data, &format!("mad.lo.{}", arithmetic(data.ty))),
            Op::Compare(compare) => self.compare(compare, data),
            Op::Select => self.select(data),
            Op::Convert { rounding, saturate } => self.convert(rounding, saturate, data),
            Op::Bitcast => {
                let (to, from) = (self.register(data.results[0]), self.register(data.args[0]));
                // Addresses in memory and in integers are generic.
                let instruction = match (self.function.value_type(data.args[0]), data.ty) {
                    (Type::Global, Type::Global) => "mov.b64",
                    (_, Type::Global) => "cvta.to.global.u64",
                    (Type::Global, Type::U64 | Type::I64) => "cvta.global.u64",
                    (_, ty) => &format!("mov.{}", bits(ty)),
                };
                self.line(format_args!("{instruction} {to}, {from};"));
                self.wrap(to, data.ty);
            }
            Op::Lop3(table) => {
                let [a, b, c] = self.operands(data);
                let to = self.register(data.results[0]);
                self.line(format_args!("lop3.b32 {to}, {a}, {b}, {c}, {table};"));
            }
            Op::Prmt => self.operation(data, "prmt.b32"),
            Op::BitInsert => self.bit_field(data, &format!("bfi.{}", bits(data.ty))),
            Op::NthSetBit => self.operation(data, "fns.b32"),
            Op::BitField => self.bit_field(data, &format!("bfe.{}", arithmetic(data.ty))),
            Op::Funnel { left } => {
                self.operation(data, if left { "shf.l.wrap.b32" } else { "shf.r.wrap.b32" })
            }
            Op::Dp4a { a_signed, b_signed } => {
                self.operation(data, &format!("dp4a.{}.{}", word(a_signed), word(b_signed)));
            }
            Op::Dp2a { a_signed, b_signed, high } => {
                let half = if high { "hi" } else { "lo" };
                self.operation(data, &format!("dp2a.{half}.{}.{}", word(a_signed), word(b_signed)));
            }
            Op::Pack => {
                let (low, high) = (self.register(data.args[0]), self.register(data.args[1]));
                let to = self.register(data.results[0]);
                self.line(format_args!("mov.{} {to}, {{{low}, {high}}};", bits(data.ty)));
            }
            Op::ConvertPack => {
                let (low, high) = (self.register(data.args[0]), self.register(data.args[1]));
                let to = self.register(data.results[0]);
                self.line(format_args!("cvt.rn.{}.f32 {to}, {high}, {low};", arithmetic(data.ty)));
            }
            Op::ConvertToFloat8(format) => {
                // The first operand of PTX becomes the upper byte.
                let (from, to) = (arithmetic(data.ty), self.register(data.results[0]));
                let args: Vec<_> =
                    data.args.iter().rev().map(|&arg| self.register(arg).to_string()).collect();
                self.line(format_args!("cvt.rn.satfinite.{format}x2.{from} {to}, {};", args.join(", ")));
            }
            Op::ConvertFromFloat8(format) => self.operation(data, &format!("cvt.rn.f16x2.{format}x2")),
            Op::Unpack => {
                let from = self.register(data.args[0]);
                let (low, high) = (self.register(data.results[0]), self.register(data.results[1]));
                let whole = if data.ty == Type::U32 { "b64" } else { "b32" };
                self.line(format_args!("mov.{whole} {{{low}, {high}}}, {from};"));
            }
            Op::PtrAdd => self.pointer_add(data),
            Op::Load(access) => self.load(access, data),
            Op::Store(access) => self.store(access, data),
            Op::Atomic { op, ordering, offset } => self.atomic(op, ordering, offset, data),
            Op::Barrier { id, threads: 0 } => self.line(format_args!("bar.sync {id};")),
            Op::Barrier { id, threads } => self.line(format_args!("bar.sync {id}, {threads};")),
            Op::BarrierArrive { id, threads } => self.line(format_args!("bar.arrive {id}, {threads};")),
            Op::SequentialFence(scope) => self.line(format_args!("fence.sc.{scope};")),
            Op::MapShared => self.operation(data, "mapa.shared::cluster.u32"),
            Op::ClusterBarrier(ClusterBarrier::Arrive) => {
                self.line(format_args!("barrier.cluster.arrive.release;"));
            }
            Op::ClusterBarrier(ClusterBarrier::Wait) => {
                self.line(format_args!("barrier.cluster.wait.acquire;"));
            }
            Op::FenceFor(purpose) => self.fence_for(purpose),
            Op::Mbarrier(operation) => self.mbarrier(operation, data),
            Op::AsyncCopy(copy) => self.async_copy(copy, data),
            Op::CachePolicy(eviction) => {
                self.simple(data, &format!("createpolicy.fractional.L2::{eviction}.b64 {{}}, 1.0"));
            }
            Op::Mma(mma) => self.mma(mma, data),
            Op::SetRegisters { increase, count } => {
                let direction = if increase { "inc" } else { "dec" };
                self.line(format_args!("setmaxnreg.{direction}.sync.aligned.u32 {count};"));
            }
            Op::WgmmaFence { .. } => {
                self.update_in_place(data);
                self.line(format_args!("wgmma.fence.sync.aligned;"));
            }
            Op::Wgmma { a, b, columns, operands, .. } => self.wgmma([a, b], columns, operands, data),
            Op::WgmmaCommit => self.line(format_args!("wgmma.commit_group.sync.aligned;")),
            Op::WgmmaWait { pending, .. } => {
                self.update_in_place(data);
                self.line(format_args!("wgmma.wait_group.sync.aligned {pending};"));
            }
            Op::LoadMatrix { matrices, transposed } => self.load_matrix(matrices, transposed, data),
            Op::TransposeMatrix => {
                let (from, to) = (self.register(data.args[0]), self.register(data.results[0]));
                self.line(format_args!("movmatrix.sync.aligned.m8n8.trans.b16 {to}, {from};"));
            }
            Op::WarpBarrier => {
                let mask = self.operand(data.args[0]);
                self.line(format_args!("bar.warp.sync {mask};"));
            }
            Op::Fence(scope) => self.line(format_args!("fence.acq_rel.{scope};")),
            Op::Shuffle(mode) => {
                let from = self.register(data.args[0]);
                let rest: Vec<String> = data.args[1..].iter().map(|&arg| self.operand(arg)).collect();
                let to = self.register(data.results[0]);
                self.line(format_args!("shfl.sync.{mode}.b32 {to}, {from}, {};", rest.join(", ")));
            }
            Op::Vote(vote) => {
                let kind = if vote == Vote::Ballot { "b32" } else { "pred" };
                let (condition, mask) = (self.register(data.args[0]), self.operand(data.args[1]));
                let to = self.register(data.results[0]);
                self.line(format_args!("vote.sync.{vote}.{kind} {to}, {condition}, {mask};"));
            }
            Op::Match(lanes) => {
                let (value, mask) = (self.register(data.args[0]), self.operand(data.args[1]));
                let to = self.registers(&data.results, "|");
                self.line(format_args!("match.{lanes}.sync.{} {to}, {value}, {mask};", bits(data.ty)));
            }
            Op::Reduce(reduce) => {
                let kind = match reduce {
                    Reduce::And | Reduce::Or | Reduce::Xor => bits(data.ty),
                    Reduce::Add | Reduce::Min | Reduce::Max => arithmetic(data.ty),
                };
                let (value, mask) = (self.register(data.args[0]), self.operand(data.args[1]));
                let to = self.register(data.results[0]);
                self.line(format_args!("redux.sync.{reduce}.{kind} {to}, {value}, {mask};"));
            }
            Op::Elect => {
                let (to, mask) = (self.register(data.results[0]), self.operand(data.args[0]));
                let leader = self.fresh(Class::Word);
                self.line(format_args!("elect.sync {leader}|{to}, {mask};"));
            }
            Op::Inline(inline) => self.inline(inline, data),
            Op::Sleep => {
                let nanoseconds = self.operand(data.args[0]);
                self.line(format_args!("nanosleep.u32 {nanoseconds};"));
            }
            Op::Trap => self.line(format_args!("trap;")),
            Op::Assume(fact) => {
                // A comment, which the emulator checks.
                let (a, b) = (self.operand(data.args[0]), self.operand(data.args[1]));
                self.line(format_args!("//@ assume.{fact}.{} {a}, {b};", arithmetic(data.ty)));
            }
            Op::Print(format) => self.print(format, data),
            Op::WaitForDependencies => self.line(format_args!("griddepcontrol.wait;")),
            Op::LaunchDependents => self.line(format_args!("griddepcontrol.launch_dependents;")),
            Op::Const(_) | Op::Jump | Op::Branch | Op::Return => {
                unreachable!("constants are operands and the printer writes terminators")
            }
        }
    }

    fn simple(&mut self, data: &InstData, pattern: &str) {
        let to = self.register(data.results[0]).to_string();
        self.line(format_args!("{};", pattern.replace("{}", &to)));
    }

    fn operands<const N: usize>(&mut self, data: &InstData) -> [String; N] {
        std::array::from_fn(|i| self.operand(data.args[i]))
    }

    /// Prints `name result, operands…`.
    fn operation(&mut self, data: &InstData, name: &str) {
        let operands: Vec<String> = data.args.iter().map(|&arg| self.operand(arg)).collect();
        let to = self.register(data.results[0]);
        self.line(format_args!("{name} {to}, {};", operands.join(", ")));
    }

    /// Prints `name result, operands…` where the last operands are a position and a length: ptxas rejects immediates
    /// above 255 there.
    fn bit_field(&mut self, data: &InstData, name: &str) {
        let first = data.args.len() - 2;
        let operands: Vec<String> = (data.args.iter().enumerate())
            .map(|(index, &arg)| {
                let large = self.function.constant(arg).is_some_and(|bits| bits > 255);
                if index >= first && large { self.register(arg).to_string() } else { self.operand(arg) }
            })
            .collect();
        let to = self.register(data.results[0]);
        self.line(format_args!("{name} {to}, {};", operands.join(", ")));
    }

    /// Wraps an 8-bit result, which is in a 32-bit register, to its type.
    fn wrap(&mut self, register: Register, ty: Type) {
        match ty {
            Type::U8 => self.line(format_args!("and.b32 {register}, {register}, 255;")),
            Type::I8 => self.line(format_args!("cvt.s32.s8 {register}, {register};")),
            _ => {}
        }
    }

    fn param(&mut self, index: usize, data: &InstData) {
        let name = param_name(self.function, index);
        let to = self.register(data.results[0]);
        if data.ty == Type::TensorMap {
            self.line(format_args!("mov.b64 {to}, {name};"));
            self.line(format_args!("cvta.param.u64 {to}, {to};"));
            return;
        }
        if data.ty == Type::Pred {
            let byte = self.fresh(Class::Half);
            self.line(format_args!("ld.param.u8 {byte}, [{name}];"));
            self.line(format_args!("setp.ne.u16 {to}, {byte}, 0;"));
            return;
        }
        self.line(format_args!("ld.param.{} {to}, [{name}];", memory(data.ty)));
        if data.ty == Type::Global {
            self.line(format_args!("cvta.to.global.u64 {to}, {to};"));
        }
    }

    fn unary(&mut self, unary: Unary, data: &InstData) {
        let ty = data.ty;
        let signed = if ty.is_int() {
            format!("s{}", ty.bits().max(if ty.bits() == 8 { 32 } else { 16 }))
        } else {
            arithmetic(ty).into()
        };
        let name = match unary {
            Unary::Neg => format!("neg.{signed}"),
            Unary::Abs => format!("abs.{signed}"),
            Unary::Not => format!("not.{}", bits(ty)),
            Unary::Popc => format!("popc.{}", bits(ty)),
            Unary::Clz => format!("clz.{}", bits(ty)),
            Unary::Brev => format!("brev.{}", bits(ty)),
            Unary::Rcp => format!("rcp.rn.{}", arithmetic(ty)),
            Unary::RcpApprox => "rcp.approx.f32".into(),
            Unary::Sqrt => format!("sqrt.rn.{}", arithmetic(ty)),
            Unary::SqrtApprox => "sqrt.approx.f32".into(),
            Unary::RoundEven => integral("rni", ty),
            Unary::Trunc => integral("rzi", ty),
            Unary::Floor => integral("rmi", ty),
            Unary::Ceil => integral("rpi", ty),
            Unary::Rsqrt => "rsqrt.approx.f32".into(),
            Unary::Exp2 => format!("ex2.approx.{}", arithmetic(ty)),
            Unary::Log2 => "lg2.approx.f32".into(),
            Unary::Sin => "sin.approx.f32".into(),
            Unary::Cos => "cos.approx.f32".into(),
            Unary::Tanh => format!("tanh.approx.{}", arithmetic(ty)),
        };
        let (from, to) = (self.register(data.args[0]), self.register(data.results[0]));
        self.line(format_args!("{name} {to}, {from};"));
        if matches!(unary, Unary::Neg | Unary::Not | Unary::Abs) {
            self.wrap(to, ty);
        }
    }

    fn binary(&mut self, binary: Binary, data: &InstData) {
        let ty = data.ty;
        let (float, kind) = (ty.is_float(), arithmetic(ty));
        let rounded = if float { ".rn" } else { "" };
        let name = match binary {
            Binary::Add => format!("add{rounded}.{kind}"),
            Binary::Sub => format!("sub{rounded}.{kind}"),
            Binary::Mul if float => format!("mul.rn.{kind}"),
            Binary::Mul => format!("mul.lo.{kind}"),
            Binary::MulHi => format!("mul.hi.{kind}"),
            Binary::Div if float => format!("div.rn.{kind}"),
            Binary::Div => format!("div.{kind}"),
            Binary::DivApprox => "div.approx.f32".into(),
            Binary::Rem => format!("rem.{kind}"),
            Binary::Min => format!("min.{kind}"),
            Binary::Max => format!("max.{kind}"),
            // PTX has the operand with the sign first.
            Binary::CopySign => {
                let [magnitude, sign] = self.operands(data);
                let to = self.register(data.results[0]);
                self.line(format_args!("copysign.{kind} {to}, {sign}, {magnitude};"));
                return;
            }
            Binary::And => format!("and.{}", bits(ty)),
            Binary::Or => format!("or.{}", bits(ty)),
            Binary::Xor => format!("xor.{}", bits(ty)),
            Binary::Shl => format!("shl.{}", bits(ty)),
            Binary::Shr => format!("shr.{kind}"),
        };
        self.operation(data, &name);
        // The result of a division by zero is unspecified, but must be a value of the type.
        let by_zero = || self.function.constant(data.args[1]).is_none_or(|divisor| divisor == 0);
        let leaves_range = match binary {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div | Binary::Shl => true,
            Binary::Rem => by_zero(),
            _ => false,
        };
        if leaves_range {
            let to = self.register(data.results[0]);
            self.wrap(to, ty);
        }
    }

    /// Prints inline PTX with the registers of its results and operands.
    fn inline(&mut self, inline: Inline, data: &InstData) {
        let values: Vec<_> = data.results.iter().chain(&data.args).copied().collect();
        let registers: Vec<Register> = values.into_iter().map(|value| self.register(value)).collect();
        let mut text = String::new();
        for piece in pieces(&inline.text().ptx) {
            match piece {
                Piece::Ptx(ptx) => text.push_str(ptx),
                Piece::Name(number) => {
                    // The verifier has checked the numbers.
                    let register = number.parse().ok().and_then(|index: usize| registers.get(index));
                    text.extend(register.map(Register::to_string));
                }
            }
        }
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .for_each(|line| self.line(format_args!("{line}")));
        for (&result, &register) in data.results.iter().zip(&registers) {
            self.wrap(register, self.function.value_type(result));
        }
    }

    fn compare(&mut self, compare: Compare, data: &InstData) {
        // PTX's unordered comparison `neu` is true for NaN, as the IR's `ne` is.
        let relation = if compare == Compare::Ne && data.ty.is_float() { "neu" } else { compare.name() };
        self.operation(data, &format!("setp.{relation}.{}", arithmetic(data.ty)));
    }

    fn select(&mut self, data: &InstData) {
        let [condition, a, b] = [data.args[0], data.args[1], data.args[2]];
        let condition = self.register(condition);
        let to = self.register(data.results[0]);
        if data.ty == Type::Pred {
            let (a, b) = (self.register(a), self.register(b));
            let (yes, no) = (self.fresh(Class::Pred), self.fresh(Class::Pred));
            self.line(format_args!("and.pred {yes}, {condition}, {a};"));
            self.line(format_args!("not.pred {no}, {condition};"));
            self.line(format_args!("and.pred {no}, {no}, {b};"));
            self.line(format_args!("or.pred {to}, {yes}, {no};"));
        } else {
            let kind =
                if matches!(data.ty, Type::F32 | Type::F64) { arithmetic(data.ty) } else { bits(data.ty) };
            let (a, b) = (self.operand(a), self.operand(b));
            self.line(format_args!("selp.{kind} {to}, {a}, {b}, {condition};"));
        }
    }

    fn convert(&mut self, rounding: Rounding, saturate: bool, data: &InstData) {
        let (mut from_type, to_type) = (self.function.value_type(data.args[0]), data.ty);
        let mut from = self.register(data.args[0]);
        let to = self.register(data.results[0]);
        if from_type == to_type && !(saturate && to_type.is_float()) {
            self.line(format_args!("mov.{} {to}, {from};", Class::of(to_type).declared()));
            return;
        }
        if from_type == Type::Bf16 {
            // A bfloat16 is the upper half of the binary32 of the same value.
            let (wide, value) = (self.fresh(Class::Word), self.fresh(Class::Float));
            self.line(format_args!("cvt.u32.u16 {wide}, {from};"));
            self.line(format_args!("shl.b32 {wide}, {wide}, 16;"));
            let same = to_type == Type::F32 && !saturate;
            self.line(format_args!("mov.b32 {}, {wide};", if same { to } else { value }));
            if same {
                return;
            }
            (from, from_type) = (value, Type::F32);
        }
        if (from_type, to_type) == (Type::F16, Type::Bf16) {
            // Not every target converts between f16 and bf16 directly; f32 represents both exactly.
            let value = self.fresh(Class::Float);
            self.line(format_args!("cvt.f32.f16 {value}, {from};"));
            (from, from_type) = (value, Type::F32);
        }
        // `cvt` to bfloat16 has no 8-bit sources; 8-bit values are in registers extended to 32 bits, so the 32-bit type
        // is used.
        let name = |ty: Type| match ty {
            Type::U8 | Type::I8 if to_type == Type::Bf16 => arithmetic(ty),
            _ if ty.is_float() => arithmetic(ty),
            _ => memory(ty),
        };
        let round = match (from_type.is_float(), to_type.is_float()) {
            (false, false) => String::new(),
            (true, false) => format!(".{rounding}i"),
            // A wider float holds every value of a narrower one.
            (true, true) if to_type.bits() > from_type.bits() || from_type == to_type => String::new(),
            _ => format!(".{rounding}"),
        };
        // `.sat` is allowed only if a value may be out of range.
        let saturate = if saturate && !always_fits(from_type, to_type) { ".sat" } else { "" };
        self.line(format_args!("cvt{round}{saturate}.{}.{} {to}, {from};", name(to_type), name(from_type)));
    }

    fn pointer_add(&mut self, data: &InstData) {
        let offset = data.args[1];
        let wide = self.function.value_type(offset).bits() == 64;
        let base = self.operand(data.args[0]);
        let to = self.register(data.results[0]);
        if data.ty.bits() == 64 {
            let offset = match (wide, self.function.constant(offset)) {
                (true, _) | (_, Some(_)) => self.operand(offset),
                (false, None) => {
                    let extended = self.fresh(Class::Long);
                    let sign = if self.function.value_type(offset).is_signed() { "s" } else { "u" };
                    let narrow = self.register(offset);
                    self.line(format_args!("cvt.{sign}64.{sign}32 {extended}, {narrow};"));
                    extended.to_string()
                }
            };
            self.line(format_args!("add.s64 {to}, {base}, {offset};"));
        } else {
            let offset = match (wide, self.function.constant(offset)) {
                (true, Some(bits)) => (bits as i32).to_string(),
                (true, None) => {
                    let narrowed = self.fresh(Class::Word);
                    let long = self.register(offset);
                    self.line(format_args!("cvt.u32.u64 {narrowed}, {long};"));
                    narrowed.to_string()
                }
                (false, _) => self.operand(offset),
            };
            self.line(format_args!("add.s32 {to}, {base}, {offset};"));
        }
    }
}

/// The conversion of a float to an integral value of the same type.
fn integral(rounding: &str, ty: Type) -> String {
    format!("cvt.{rounding}.{0}.{0}", arithmetic(ty))
}

/// Whether type `to` holds every integer of type `from`.
fn always_fits(from: Type, to: Type) -> bool {
    let same_sign = from.is_signed() == to.is_signed();
    from.is_int() && to.is_int() && to.bits() > from.bits() && (same_sign || to.is_signed())
}

impl Printer<'_> {
    /// Prints a call of the driver's `vprintf`: it takes generic addresses of the format and of the arguments.
    fn print(&mut self, format: TableVar, data: &InstData) {
        let (text, list) = (self.fresh(Class::Long), self.fresh(Class::Long));
        let name = self.symbols.format(&self.function.tables[format]);
        self.line(format_args!("mov.u64 {text}, {name};"));
        self.line(format_args!("cvta.global.u64 {text}, {text};"));
        let arguments = self.register(data.args[0]);
        self.line(format_args!("cvt.u64.u32 {list}, {arguments};"));
        self.line(format_args!("cvta.local.u64 {list}, {list};"));
        self.line(format_args!("{{"));
        for (number, address) in [text, list].into_iter().enumerate() {
            self.line(format_args!(".param .b64 param{number};"));
            self.line(format_args!("st.param.b64 [param{number}], {address};"));
        }
        self.line(format_args!(".param .b32 printed;"));
        self.line(format_args!("call.uni (printed), vprintf, (param0, param1);"));
        self.line(format_args!("}}"));
    }
}

/// PTX type of a packed 32-bit operand: `s32` or `u32`.
fn word(signed: bool) -> &'static str {
    if signed { "s32" } else { "u32" }
}

#[cfg(test)]
mod tests {
    use crate::ir::parse::parse;
    use crate::ptx::{Target, print};

    /// 8-bit integers are kept extended in 32-bit registers, so results out of range must be wrapped before their next
    /// use.
    #[test]
    fn results_of_bytes_are_brought_back_into_range() {
        for (ty, wrap) in [("u8", "and.b32 "), ("i8", "cvt.s32.s8 ")] {
            for (operation, opcode) in [("add", "add."), ("sub", "sub."), ("mul", "mul.lo.")] {
                let kernel = format!(
                    "kernel @k(p: global {ty}) {{\nblock0:\n  v0 = param.global 0\n  v1 = load.{ty} v0\n  \
                     v2 = load.{ty} v0 + 1\n  v3 = {operation}.{ty} v1, v2\n  store.{ty} v0, v3\n  return\n}}\n"
                );
                let text = print(&parse(&kernel).unwrap(), Target::Sm80).unwrap();
                let lines: Vec<&str> = text.lines().map(str::trim).collect();
                let at = lines.iter().position(|line| line.starts_with(opcode)).unwrap();
                assert!(lines[at + 1].starts_with(wrap), "{text}");
            }
        }
    }

    /// A NaN is not equal to anything: of floats, `ne` is the unordered comparison.
    #[test]
    fn floats_that_are_nan_differ() {
        for (ty, relation) in [("f32", "setp.neu.f32"), ("f64", "setp.neu.f64"), ("u32", "setp.ne.u32")] {
            let kernel = format!(
                "kernel @k(p: global {ty}) {{\nblock0:\n  v0 = param.global 0\n  v1 = load.{ty} v0\n  \
                 v2 = ne.{ty} v1, v1\n  branch v2, block1, block2\nblock1:\n  store.{ty} v0, v1\n  jump block2\n\
                 block2:\n  return\n}}\n"
            );
            let text = print(&parse(&kernel).unwrap(), Target::Sm80).unwrap();
            assert!(text.contains(relation), "{text}");
        }
    }
}
