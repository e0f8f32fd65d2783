//! Kernels that write timestamps: when each CTA starts, continues after its wait for earlier launches, and ends.
//!
//! Launches of a graph overlap, so the time of one of them cannot be measured from outside. A [timed kernel](Kernel::timed)
//! writes timestamps to an additional buffer; its results are those of the original kernel.

use crate::ir::{
    Atomic, Binary, Block, BlockCall, Compare, Function, Inst, InstData, Loc, Op, Param, Scope, Special,
    Type, Value,
};
use crate::kernel::Kernel;

/// Words of a CTA in the buffer of times.
const WORDS: usize = 3;

/// Times of a CTA in nanoseconds of the device's clock, which all its multiprocessors share (`%globaltimer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtaTimes {
    /// The first instruction of its first warp.
    pub start: u64,
    /// The first return of a wait for earlier launches (`griddepcontrol.wait`); none if the kernel does not wait.
    pub resumed: Option<u64>,
    /// The last instruction of its last warp.
    pub end: u64,
}

impl CtaTimes {
    /// Bytes of a CTA in the buffer of times.
    pub const BYTES: u64 = 8 * WORDS as u64;

    /// Reads the times of all CTAs that wrote some from the bytes of a buffer, in the order of the CTAs: x first, z last.
    ///
    /// ```
    /// use bespoke_codegen::CtaTimes;
    ///
    /// let words = [!100u64, 0, 250, 0, 0, 0];
    /// let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    /// let times = CtaTimes { start: 100, resumed: None, end: 250 };
    /// assert_eq!(CtaTimes::read(&bytes).collect::<Vec<_>>(), [times]);
    /// ```
    pub fn read(bytes: &[u8]) -> impl Iterator<Item = CtaTimes> {
        bytes.chunks_exact(CtaTimes::BYTES as usize).filter_map(|cta| {
            let word = |index: usize| {
                let bytes = cta[8 * index..8 * index + 8].try_into();
                u64::from_le_bytes(bytes.expect("eight bytes"))
            };
            let [start, resumed, end] = [0, 1, 2].map(word);
            let resumed = (resumed != 0).then_some(!resumed);
            (start != 0).then_some(CtaTimes { start: !start, resumed, end })
        })
    }
}

/// An event of a CTA that has a timestamp, in a word of the buffer. The word is the maximum of the warps' times, or for the first
/// warp the maximum of their bitwise complements. Both maxima start at zero.
#[derive(Clone, Copy)]
enum Event {
    Start,
    Resumed,
    End,
}

impl Event {
    /// Whether the earliest time of a CTA's warps counts, not the latest.
    fn is_earliest(self) -> bool {
        !matches!(self, Event::End)
    }
}

impl Kernel {
    /// Adds a last parameter `times`, a pointer to u64 `[CTAs][3]` that must be zero before the launch, and code that writes each
    /// CTA's timestamps there, which [`CtaTimes::read`] reads. Lane 0 of each warp writes them, by an atomic maximum. The kernel must
    /// have no parameter called `times`.
    ///
    /// ```
    /// use bespoke_codegen::prelude::*;
    ///
    /// #[kernel(threads = 128)]
    /// fn double(x: Ptr<Global, f32>) {
    ///     let x = x.at(block_index() * 128 + thread_index());
    ///     x.store(x.load() * 2.0);
    /// }
    /// let timed = double()?.timed();
    /// assert_eq!(timed.params()[1].name, "times");
    /// assert_eq!(timed.compile(Target::Sm90)?.ptx.matches("%globaltimer").count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn timed(self) -> Kernel {
        let mut function = self.into_function();
        let index = function.params.len() as u32;
        function.params.push(Param {
            name: "times".to_owned(),
            ty: Type::Global,
            element: Some(Type::U64),
            align: None,
            tensor: None,
        });
        let entry = function.layout[0];
        for block in function.layout.clone() {
            let insts = function.block(block).insts.iter().enumerate();
            let events = insts.filter_map(|(at, &inst)| match function.inst(inst).op {
                Op::WaitForDependencies => Some((at + 1, Event::Resumed)),
                Op::Return => Some((at, Event::End)),
                _ => None,
            });
            let events: Vec<_> = events.collect();
            // From the end, so that earlier positions stay valid.
            for (at, event) in events.into_iter().rev() {
                note(&mut function, block, at, event, index);
            }
            if block == entry {
                note(&mut function, block, 0, Event::Start, index);
            }
        }
        Kernel::new(function)
    }
}

/// Splits `block` before its instruction `at`, and inserts code that writes the timestamp of `event` there.
fn note(function: &mut Function, block: Block, at: usize, event: Event, times: u32) {
    let rest = function.block_mut(block).insts.split_off(at);
    let [noting, after] = [function.create_block(), function.create_block()];
    function.block_mut(after).insts = rest;
    let place = function.layout.iter().position(|&other| other == block).expect("a block of the layout");
    function.layout.splice(place + 1..place + 1, [noting, after]);

    let loc = function.block(after).insts.first().and_then(|&inst| function.inst(inst).loc);
    let mut code = Code { function, block, loc };
    let time = code.special(Special::GlobalTimer);
    let lane = code.special(Special::LaneId);
    let zero = code.value(Op::Const(0), Type::U32, &[]);
    let is_first_lane = code.value(Op::Compare(Compare::Eq), Type::U32, &[lane, zero]);
    code.end(Op::Branch, &[is_first_lane], &[noting, after]);

    code.block = noting;
    let cta = code.cta_index();
    let word = code.value(Op::Const(CtaTimes::BYTES), Type::U32, &[]);
    let offset = code.value(Op::MulWide, Type::U32, &[cta, word]);
    let of_event = code.value(Op::Const(8 * event as u64), Type::U64, &[]);
    let offset = code.binary(Binary::Add, Type::U64, offset, of_event);
    let buffer = code.value(Op::Param(times), Type::Global, &[]);
    let to = code.value(Op::PtrAdd, Type::Global, &[buffer, offset]);
    let noted = if event.is_earliest() {
        let ones = code.value(Op::Const(u64::MAX), Type::U64, &[]);
        code.binary(Binary::Xor, Type::U64, time, ones)
    } else {
        time
    };
    let maximum = Op::Atomic { op: Atomic::Max, ordering: Scope::Gpu.into(), offset: 0 };
    code.value(maximum, Type::U64, &[to, noted]);
    code.end(Op::Jump, &[], &[after]);
}

/// Appends instructions to a block.
struct Code<'a> {
    function: &'a mut Function,
    block: Block,
    loc: Option<Loc>,
}

impl Code<'_> {
    fn inst(&mut self, op: Op, ty: Type, args: &[Value], dests: &[Block]) -> Inst {
        let dests = dests.iter().map(|&block| BlockCall { block, args: Vec::new() }).collect();
        let signature = op.signature(ty).unwrap_or_else(|error| unreachable!("{error}"));
        let results = Default::default();
        let data = InstData { op, ty, args: args.iter().copied().collect(), dests, results, loc: self.loc };
        let inst = self.function.create_inst(data, &signature.results);
        self.function.block_mut(self.block).insts.push(inst);
        inst
    }

    fn value(&mut self, op: Op, ty: Type, args: &[Value]) -> Value {
        let inst = self.inst(op, ty, args, &[]);
        self.function.inst(inst).results[0]
    }

    fn special(&mut self, special: Special) -> Value {
        self.value(Op::Special(special), special.ty(), &[])
    }

    fn binary(&mut self, op: Binary, ty: Type, a: Value, b: Value) -> Value {
        self.value(Op::Binary(op), ty, &[a, b])
    }

    fn end(&mut self, op: Op, args: &[Value], dests: &[Block]) {
        self.inst(op, Type::U32, args, dests);
    }

    /// The index of the CTA in its grid: x + nx · (y + ny · z).
    fn cta_index(&mut self) -> Value {
        let [x, y, z] = [Special::CtaidX, Special::CtaidY, Special::CtaidZ].map(|index| self.special(index));
        let [nx, ny] = [Special::NctaidX, Special::NctaidY].map(|count| self.special(count));
        let mut index = z;
        for (count, place) in [(ny, y), (nx, x)] {
            let before = self.binary(Binary::Mul, Type::U32, index, count);
            index = self.binary(Binary::Add, Type::U32, before, place);
        }
        index
    }
}
