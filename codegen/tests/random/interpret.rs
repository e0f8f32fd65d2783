//! Reference interpreter of the IR: each thread runs in turn up to the next convergent instruction.
//!
//! The interpreter shares no code with the PTX printer, so that a printer bug is not repeated here.

use std::collections::HashMap;

use bespoke_codegen::ir::{
    AsyncCopy, Atomic, Binary, Block, Effect, Function, Inst, InstData, Match, Op, Reduce, Shuffle, Special,
    Type, Value, Vote,
};

use crate::values::{compute, number};

/// Memory and parameters of a launch.
pub struct Inputs<'a> {
    pub ctas: u32,
    pub threads: u32,
    /// Contents of the buffers that the pointer parameters point to, in order.
    pub buffers: [Vec<u8>; 4],
    /// Raw bits of the other parameters.
    pub scalars: &'a [u64],
}

/// Limit on the instructions of a thread, which no generated kernel reaches.
const MAX_STEPS: usize = 100_000;
/// Buffers begin at multiples of this address; shared memory is below them.
const BUFFER: u64 = 1 << 40;

/// Memory after the launch; none if the result is undefined.
pub fn run(function: &Function, inputs: Inputs<'_>) -> Option<[Vec<u8>; 4]> {
    let (ctas, threads) = (inputs.ctas, inputs.threads);
    let mut bases = HashMap::new();
    let mut bytes = 0;
    for (variable, shared) in &function.shared {
        bases.insert(variable, bytes);
        bytes += u64::from(shared.count * shared.element.bytes()).next_multiple_of(16);
    }
    let mut machine = Machine { function, inputs, bases, shared: Vec::new() };
    for cta in 0..ctas {
        machine.shared = vec![0; bytes as usize];
        machine.cta(cta, threads)?;
    }
    Some(machine.inputs.buffers)
}

struct Machine<'a> {
    function: &'a Function,
    inputs: Inputs<'a>,
    /// Addresses of the static shared variables.
    bases: HashMap<bespoke_codegen::ir::SharedVar, u64>,
    shared: Vec<u8>,
}

struct Thread {
    values: Vec<u64>,
    block: Block,
    next: usize,
    index: u32,
    cta: u32,
    done: bool,
}

impl Machine<'_> {
    fn cta(&mut self, cta: u32, count: u32) -> Option<()> {
        let values = vec![0; self.function.value_count()];
        let block = self.function.layout[0];
        let thread = |index| Thread { values: values.clone(), block, next: 0, index, cta, done: false };
        let mut threads: Vec<Thread> = (0..count).map(thread).collect();
        loop {
            for thread in &mut threads {
                self.until_meeting(thread)?;
            }
            let mut waiting = true;
            for warp in threads.chunks_mut(32) {
                waiting &= !self.exchange(warp)?;
            }
            if threads.iter().all(|thread| thread.done) {
                return Some(());
            }
            // All threads of the CTA have reached its barrier.
            if waiting {
                threads.iter_mut().for_each(|thread| thread.next += 1);
            }
        }
    }

    fn inst(&self, thread: &Thread) -> Inst {
        self.function.block(thread.block).insts[thread.next]
    }

    /// Runs a thread up to the next convergent instruction, or to its end.
    fn until_meeting(&mut self, thread: &mut Thread) -> Option<()> {
        for _ in 0..MAX_STEPS {
            if thread.done {
                return Some(());
            }
            let function = self.function;
            let data = function.inst(self.inst(thread));
            let taken = match data.op {
                Op::Return => {
                    thread.done = true;
                    return Some(());
                }
                Op::Jump => 0,
                Op::Branch => usize::from(thread.values[index(data.args[0])] == 0),
                Op::Barrier { .. }
                | Op::Shuffle(_)
                | Op::Vote(_)
                | Op::Match(_)
                | Op::Reduce(_)
                | Op::Elect
                | Op::LoadMatrix { .. } => return Some(()),
                // Matrix operations are not interpreted: the rounding of products depends on the device.
                op if op.is_pure() && op.is_convergent() => return None,
                _ => {
                    self.step(thread, data)?;
                    thread.next += 1;
                    continue;
                }
            };
            let dest = &data.dests[taken];
            let args: Vec<u64> = dest.args.iter().map(|&arg| thread.values[index(arg)]).collect();
            for (&param, arg) in function.block(dest.block).params.iter().zip(args) {
                thread.values[index(param)] = arg;
            }
            (thread.block, thread.next) = (dest.block, 0);
        }
        panic!("the kernel does not end")
    }

    fn step(&mut self, thread: &mut Thread, data: &InstData) -> Option<()> {
        let args: Vec<(Type, u64)> =
            data.args.iter().map(|&arg| (self.function.value_type(arg), thread.values[index(arg)])).collect();
        let bytes = u64::from(data.ty.bytes());
        let results = match data.op {
            Op::Param(parameter) => vec![self.param(parameter as usize)],
            Op::Special(special) => vec![self.special(special, thread)?],
            Op::SharedAddress(variable) => vec![self.bases[&variable]],
            Op::PtrAdd => vec![args[0].1.wrapping_add(number(args[1].0, args[1].1) as u64)],
            Op::CachePolicy(_) => vec![0],
            Op::Load(access) => {
                let at = args[0].1.wrapping_add_signed(access.offset.into());
                (0..access.vector).map(|i| self.load(args[0].0, at + bytes * u64::from(i), bytes)).collect()
            }
            Op::Store(access) => {
                let at = args[0].1.wrapping_add_signed(access.offset.into());
                for i in 0..access.vector {
                    let value = args[1 + usize::from(i)].1;
                    self.store(args[0].0, at + bytes * u64::from(i), bytes, value);
                }
                Vec::new()
            }
            // Whether atomics flush subnormal numbers depends on the memory space.
            Op::Atomic { .. } if data.ty == Type::F32 => return None,
            Op::Atomic { op, offset, .. } => {
                let at = args[0].1.wrapping_add_signed(offset.into());
                let old = self.load(args[0].0, at, bytes);
                let values: Vec<u64> = args[1..].iter().map(|arg| arg.1).collect();
                self.store(args[0].0, at, bytes, atomic(op, data.ty, old, &values));
                vec![old]
            }
            Op::AsyncCopy(AsyncCopy::Async { bytes, .. }) => {
                for i in 0..u64::from(bytes) {
                    let byte = self.load(args[1].0, args[1].1 + i, 1);
                    self.store(args[0].0, args[0].1 + i, 1, byte);
                }
                Vec::new()
            }
            _ if data.op.has_effect() || data.op.effect() == Effect::Fact => Vec::new(),
            op => compute(op, data.ty, &args)?,
        };
        self.assign(thread, data, &results);
        Some(())
    }

    fn assign(&self, thread: &mut Thread, data: &InstData, results: &[u64]) {
        for (&result, bits) in data.results.iter().zip(results) {
            let ty = self.function.value_type(result);
            // Addresses in shared memory have 32 bits.
            thread.values[index(result)] = bits & ty.mask();
        }
    }

    fn param(&self, parameter: usize) -> u64 {
        let buffers = self.inputs.buffers.len();
        if parameter < buffers {
            BUFFER * (1 + parameter as u64)
        } else {
            self.inputs.scalars[parameter - buffers]
        }
    }

    fn special(&self, special: Special, thread: &Thread) -> Option<u64> {
        Some(u64::from(match special {
            Special::TidX => thread.index,
            Special::LaneId => thread.index % 32,
            Special::CtaidX => thread.cta,
            Special::NtidX => self.inputs.threads,
            Special::NctaidX => self.inputs.ctas,
            Special::TidY | Special::TidZ | Special::CtaidY | Special::CtaidZ => 0,
            Special::NtidY | Special::NtidZ | Special::NctaidY | Special::NctaidZ => 1,
            _ => return None,
        }))
    }

    fn memory(&mut self, space: Type, address: u64) -> (&mut Vec<u8>, usize) {
        if space == Type::Shared {
            return (&mut self.shared, address as u32 as usize);
        }
        let buffer = (address / BUFFER) as usize - 1;
        (&mut self.inputs.buffers[buffer], (address % BUFFER) as usize)
    }

    fn load(&mut self, space: Type, address: u64, bytes: u64) -> u64 {
        let (memory, at) = self.memory(space, address);
        memory[at..at + bytes as usize].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    fn store(&mut self, space: Type, address: u64, bytes: u64, value: u64) {
        let (memory, at) = self.memory(space, address);
        memory[at..at + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
    }

    /// Executes a convergent instruction for all lanes of a warp; returns whether it is not a barrier of the CTA.
    fn exchange(&mut self, warp: &mut [Thread]) -> Option<bool> {
        if warp.iter().any(|thread| thread.done) {
            assert!(warp.iter().all(|thread| thread.done), "some lanes wait for what others have left");
            return Some(true);
        }
        let inst = self.inst(&warp[0]);
        assert!(warp.iter().all(|thread| self.inst(thread) == inst), "the lanes do not meet");
        let data = self.function.inst(inst);
        let arg = |lane: usize, operand: usize| warp[lane].values[index(data.args[operand])];
        let results: Vec<Vec<u64>> = match data.op {
            Op::Barrier { .. } => return Some(false),
            Op::Vote(vote) => {
                let ballot = (0..32).fold(0, |ballot, lane| ballot | arg(lane, 0) << lane);
                let result = match vote {
                    Vote::All => u64::from(ballot == u64::from(u32::MAX)),
                    Vote::Any => u64::from(ballot != 0),
                    Vote::Ballot => ballot,
                };
                vec![vec![result]; 32]
            }
            Op::Elect => (0..32).map(|lane| vec![u64::from(lane == 0)]).collect(),
            Op::Match(lanes) => (0..32)
                .map(|lane| {
                    let same = |other: usize| u64::from(arg(other, 0) == arg(lane, 0));
                    let like = (0..32).fold(0, |like, other| like | same(other) << other);
                    let all = like == u64::from(u32::MAX);
                    match lanes {
                        Match::Any => vec![like],
                        Match::All => vec![if all { like } else { 0 }, all.into()],
                    }
                })
                .collect(),
            Op::Reduce(reduce) => {
                let binary = match reduce {
                    Reduce::Add => Binary::Add,
                    Reduce::Min => Binary::Min,
                    Reduce::Max => Binary::Max,
                    Reduce::And => Binary::And,
                    Reduce::Or => Binary::Or,
                    Reduce::Xor => Binary::Xor,
                };
                let join = |a, b| compute(Op::Binary(binary), data.ty, &[(data.ty, a), (data.ty, b)]);
                let all = (1..32).try_fold(arg(0, 0), |all, lane| Some(join(all, arg(lane, 0))?[0]));
                vec![vec![all?]; 32]
            }
            Op::Shuffle(mode) => (0..32)
                .map(|lane| {
                    let source = source(mode, lane as u32, arg(lane, 1) as u32 & 31, arg(lane, 2) as u32);
                    vec![arg(source as usize, 0)]
                })
                .collect(),
            Op::LoadMatrix { matrices, transposed } => {
                let rows: Vec<u64> = (0..32).map(|lane| arg(lane, 0)).collect();
                (0..32).map(|lane| self.matrices(&rows, lane, matrices.into(), transposed)).collect()
            }
            _ => unreachable!("threads go on until they meet"),
        };
        for (thread, results) in warp.iter_mut().zip(results) {
            self.assign(thread, data, &results);
            thread.next += 1;
        }
        Some(true)
    }

    /// A lane's fragment of each loaded matrix; `rows` are the addresses of the rows.
    fn matrices(&mut self, rows: &[u64], lane: usize, count: usize, transposed: bool) -> Vec<u64> {
        let element = |machine: &mut Self, matrix: usize, row: usize, column: usize| {
            machine.load(Type::Shared, rows[8 * matrix + row] + 2 * column as u64, 2)
        };
        let (line, pair) = (lane / 4, 2 * (lane % 4));
        let part = |matrix: usize| {
            let [low, high] = [pair, pair + 1].map(|at| {
                let (row, column) = if transposed { (at, line) } else { (line, at) };
                element(self, matrix, row, column)
            });
            high << 16 | low
        };
        (0..count).map(part).collect()
    }
}

fn index(value: Value) -> usize {
    value.as_u32() as usize
}

/// Source lane of a shuffle (PTX ISA, `shfl.sync`).
fn source(mode: Shuffle, lane: u32, by: u32, clamp: u32) -> u32 {
    let (segment, clamp) = (clamp >> 8 & 31, clamp & 31);
    let greatest = (lane & segment) | (clamp & !segment & 31);
    let least = lane & segment;
    let (source, inside) = match mode {
        Shuffle::Up => (lane.wrapping_sub(by), lane as i32 - by as i32 >= greatest as i32),
        Shuffle::Down => (lane + by, lane + by <= greatest),
        Shuffle::Bfly => (lane ^ by, (lane ^ by) <= greatest),
        Shuffle::Idx => (least | (by & !segment & 31), (least | (by & !segment & 31)) <= greatest),
    };
    if inside { source } else { lane }
}

fn atomic(op: Atomic, ty: Type, old: u64, values: &[u64]) -> u64 {
    let binary = match op {
        Atomic::Exch => return values[0],
        Atomic::Cas => return if old == values[0] { values[1] } else { old },
        Atomic::Inc => return if old >= values[0] { 0 } else { old + 1 },
        Atomic::Dec => return if old == 0 || old > values[0] { values[0] } else { old - 1 },
        Atomic::Add => Binary::Add,
        Atomic::Min => Binary::Min,
        Atomic::Max => Binary::Max,
        Atomic::And => Binary::And,
        Atomic::Or => Binary::Or,
        Atomic::Xor => Binary::Xor,
    };
    let result = compute(Op::Binary(binary), ty, &[(ty, old), (ty, values[0])]);
    result.map_or(old, |bits| bits[0])
}
