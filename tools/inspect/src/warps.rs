//! Division of a kernel's work among its warps: which warps copy, which multiply, and the mbarriers by which they wait
//! for each other.
//!
//! The roles follow from the IR. It is evaluated for every thread of a CTA ([`values`]): the mbarrier operations, copies
//! and products that a thread may reach are its part of the work. Warps with the same parts have one role.

mod values;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bespoke_codegen::ir::{AsyncCopy, Function, Inst, Mbarrier, Op, Type, Value};
use serde::Serialize;

use super::place::{PlaceId, Places};
use values::{Base, Known, Thread};

/// Bytes of an mbarrier.
const MBARRIER_BYTES: i64 = 8;
/// Threads of a warp.
const LANES: u32 = 32;

/// Roles of the warps of a CTA, and the rings of mbarriers between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Warps {
    /// Roles, in the order of their first warps.
    pub roles: Vec<Role>,
    /// Rings of mbarriers.
    pub rings: Vec<Ring>,
}

/// Mbarriers that are initialised alike and follow each other in memory: one for each stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ring {
    /// Number of mbarriers.
    pub stages: u32,
    /// Arrivals that complete a phase.
    pub arrivals: u64,
    /// Bytes of copies that a phase waits for; `None` if there are none or their number is no constant.
    pub bytes: Option<u64>,
}

/// Warps that do the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Role {
    /// Numbers of the warps in the CTA.
    pub warps: Vec<u32>,
    /// Registers per thread that the warps request; `None` if they keep the kernel's.
    pub registers: Option<u32>,
    /// Copies to shared memory.
    pub copies: Vec<Copies>,
    /// Rings for whose phases the warps wait.
    pub waits: Vec<Use>,
    /// Rings at whose mbarriers the warps arrive, other than for the bytes of their copies.
    pub arrives: Vec<Use>,
    /// Matrix products.
    pub products: Vec<Products>,
    /// Parameters through which the warps write global memory.
    pub stores: Vec<Stores>,
}

/// Use of a ring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Use {
    /// Index of the ring.
    pub ring: usize,
    /// Threads of each warp that do it.
    pub lanes: u32,
    /// Rust line.
    pub place: Option<PlaceId>,
}

/// Copies of the data of one parameter that signal the mbarriers of one ring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copies {
    /// Name of the parameter; `None` if the source is not the same for all threads or not global memory.
    pub from: Option<String>,
    /// Index of the ring.
    pub ring: usize,
    /// Whether the source is a tensor map.
    pub tiles: bool,
    /// Number of copy instructions.
    pub count: usize,
    /// Threads of each warp that copy.
    pub lanes: u32,
    /// Rust line of the first instruction.
    pub place: Option<PlaceId>,
}

/// Matrix products of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Products {
    /// The instruction: `mma` or `wgmma`.
    pub instruction: &'static str,
    /// Number of instructions.
    pub count: usize,
    /// Rust line of the first instruction.
    pub place: Option<PlaceId>,
}

/// Writes of the data of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stores {
    /// Name of the parameter.
    pub to: String,
    /// Whether bulk copies write it.
    pub bulk: bool,
    /// Rust line of the first instruction.
    pub place: Option<PlaceId>,
}

/// Part of the work of a thread. `R` is an mbarrier's place or its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part<R> {
    Waits(R),
    Arrives(R),
    Copies { ring: R, from: Option<u32>, tiles: bool },
    Multiplies(&'static str),
    Stores { to: u32, bulk: bool },
    Registers(u32),
}

impl Part<At> {
    /// The part with the ring of its mbarrier; `None` if the mbarrier is in no ring.
    fn in_ring(self, rings: &BTreeMap<At, usize>) -> Option<Part<usize>> {
        let ring = |at| rings.get(&at).copied();
        Some(match self {
            Part::Waits(at) => Part::Waits(ring(at)?),
            Part::Arrives(at) => Part::Arrives(ring(at)?),
            Part::Copies { ring: at, from, tiles } => Part::Copies { ring: ring(at)?, from, tiles },
            Part::Multiplies(instruction) => Part::Multiplies(instruction),
            Part::Stores { to, bulk } => Part::Stores { to, bulk },
            Part::Registers(count) => Part::Registers(count),
        })
    }
}

/// Instructions of a warp that do a part, and the lanes that reach one of them.
#[derive(Clone, Debug, Default)]
struct Instructions {
    all: BTreeSet<u32>,
    lanes: u32,
}

type WarpParts<R = usize> = BTreeMap<Part<R>, Instructions>;

/// Where an mbarrier is: its base, and its offset from it.
type At = (Base, i64);

/// Initialised mbarriers, and what else is known of their rings.
#[derive(Default)]
struct Mbarriers {
    arrivals: BTreeMap<At, u64>,
    /// Offsets of mbarriers that are used through an index: a ring begins there.
    first: BTreeSet<At>,
    bytes: BTreeMap<At, Option<u64>>,
}

impl Mbarriers {
    /// Collects the initialisations and uses of a thread.
    fn collect(&mut self, function: &Function, thread: &Thread<'_>) {
        for inst in thread.instructions() {
            let data = function.inst(inst);
            let Op::Mbarrier(operation) = data.op else { continue };
            let Known::Address { base, offset, varies } = thread.value(data.args[0]) else { continue };
            let at = (base, offset);
            match operation {
                Mbarrier::Init if !varies => {
                    if let Some(arrivals) = thread.constant(data.args[1]) {
                        self.arrivals.insert(at, arrivals);
                    }
                }
                Mbarrier::ArriveExpect | Mbarrier::ArriveExpectCluster | Mbarrier::Expect => {
                    let bytes = thread.constant(data.args[1]);
                    let known = self.bytes.entry(at).or_insert(bytes);
                    *known = known.filter(|known| Some(*known) == bytes);
                }
                _ => {}
            }
            if varies {
                self.first.insert(at);
            }
        }
    }

    /// Rings, and the ring of each mbarrier.
    fn rings(&self) -> (Vec<Ring>, BTreeMap<At, usize>) {
        let (mut rings, mut of): (Vec<Ring>, BTreeMap<At, usize>) = (Vec::new(), BTreeMap::new());
        let mut last: Option<(At, u64)> = None;
        for (&at, &arrivals) in &self.arrivals {
            let follows =
                last == Some(((at.0, at.1 - MBARRIER_BYTES), arrivals)) && !self.first.contains(&at);
            if !follows {
                rings.push(Ring { stages: 0, arrivals, bytes: None });
            }
            let number = rings.len() - 1;
            let ring = &mut rings[number];
            ring.stages += 1;
            ring.bytes = ring.bytes.or(self.bytes.get(&at).copied().flatten());
            of.insert(at, number);
            last = Some((at, arrivals));
        }
        (rings, of)
    }
}

impl Warps {
    /// Roles of a kernel's warps; `None` if no warp waits for another one by an mbarrier, or if the number of threads is
    /// not known. Adds the Rust lines to `places`.
    pub fn of(function: &Function, places: &mut Places) -> Option<Warps> {
        let uses_mbarriers = |&inst: &Inst| matches!(function.inst(inst).op, Op::Mbarrier(Mbarrier::Init));
        let mut instructions = function.layout.iter().flat_map(|&block| &function.block(block).insts);
        if !instructions.any(uses_mbarriers) {
            return None;
        }
        let [x, y, _] = function.threads_by_axis()?;
        let (mut mbarriers, mut warps) = (Mbarriers::default(), Vec::new());
        for number in 0..function.threads? {
            let index = [number % x, number / x % y, number / x / y];
            let thread = Thread::evaluate(function, index, number % LANES);
            mbarriers.collect(function, &thread);
            if number % LANES == 0 {
                warps.push(WarpParts::new());
            }
            let warp: &mut WarpParts<At> = warps.last_mut()?;
            for (part, all) in parts_of(function, &thread) {
                let known = warp.entry(part).or_default();
                known.all.extend(all);
                known.lanes += 1;
            }
        }
        let (rings, of) = mbarriers.rings();
        let mut roles: Vec<(Vec<u32>, WarpParts)> = Vec::new();
        for (warp, found) in (0..).zip(warps) {
            let mut parts = WarpParts::new();
            for (part, Instructions { all, lanes }) in found {
                let Some(part) = part.in_ring(&of) else { continue };
                let known: &mut Instructions = parts.entry(part).or_default();
                known.all.extend(all);
                known.lanes = known.lanes.max(lanes);
            }
            // Writes are no part of a role: one warp of several may write the results of all.
            let is_same = |(_, other): &&mut (Vec<u32>, WarpParts)| role(other).eq(role(&parts));
            match roles.iter_mut().find(is_same) {
                Some((warps, others)) => {
                    warps.push(warp);
                    for (part, Instructions { all, lanes }) in parts {
                        let known = others.entry(part).or_default();
                        known.all.extend(all);
                        known.lanes = known.lanes.max(lanes);
                    }
                }
                None => roles.push((vec![warp], parts)),
            }
        }
        let roles =
            roles.into_iter().map(|(warps, parts)| describe(function, warps, parts, places)).collect();
        let warps = Warps { roles, rings };
        warps.meet().then_some(warps)
    }

    /// Whether a role waits for phases that another role completes.
    fn meet(&self) -> bool {
        let completes = |role: &Role, ring: usize| {
            role.copies.iter().any(|copies| copies.ring == ring)
                || role.arrives.iter().any(|it| it.ring == ring)
        };
        self.roles.iter().enumerate().any(|(at, role)| {
            let others = || self.roles.iter().enumerate().filter(|(other, _)| *other != at);
            role.waits.iter().any(|wait| others().any(|(_, other)| completes(other, wait.ring)))
        })
    }
}

/// The parts that define a role.
fn role(parts: &WarpParts) -> impl Iterator<Item = &Part<usize>> {
    parts.keys().filter(|part| !matches!(part, Part::Stores { .. }))
}

/// The parts of one thread with their instructions.
fn parts_of(function: &Function, thread: &Thread<'_>) -> HashMap<Part<At>, BTreeSet<u32>> {
    let ring = |value: Value| match thread.value(value) {
        Known::Address { base, offset, .. } => Some((base, offset)),
        _ => None,
    };
    let parameter = |value: Value| match thread.value(value) {
        Known::Address { base: Base::Param(index), .. } => Some(index),
        _ => None,
    };
    let mut parts: HashMap<Part<At>, BTreeSet<u32>> = HashMap::new();
    for inst in thread.instructions() {
        let data = function.inst(inst);
        let args = &data.args;
        let stores = |to: Value, bulk| parameter(to).map(|to| Part::Stores { to, bulk });
        let part = match data.op {
            Op::Mbarrier(Mbarrier::TestWait | Mbarrier::TryWait | Mbarrier::TryWaitCluster) => {
                ring(args[0]).map(Part::Waits)
            }
            Op::Mbarrier(Mbarrier::Arrive | Mbarrier::ArriveCluster | Mbarrier::ArriveAfterCopies) => {
                ring(args[0]).map(Part::Arrives)
            }
            Op::AsyncCopy(AsyncCopy::Bulk { .. } | AsyncCopy::BulkMulticast { .. }) => {
                ring(args[3]).map(|ring| Part::Copies { ring, from: parameter(args[1]), tiles: false })
            }
            Op::AsyncCopy(AsyncCopy::BulkToCluster) => {
                ring(args[3]).map(|ring| Part::Copies { ring, from: None, tiles: false })
            }
            Op::AsyncCopy(AsyncCopy::TensorLoad { rank, .. }) => ring(args[2 + rank as usize])
                .map(|ring| Part::Copies { ring, from: parameter(args[1]), tiles: true }),
            Op::AsyncCopy(
                AsyncCopy::BulkStore { .. } | AsyncCopy::TensorStore { .. } | AsyncCopy::TensorReduce { .. },
            ) => stores(args[0], true),
            Op::Store(_) | Op::Atomic { .. } if function.value_type(args[0]) == Type::Global => {
                stores(args[0], false)
            }
            Op::Mma(_) => Some(Part::Multiplies("mma")),
            Op::Wgmma { .. } => Some(Part::Multiplies("wgmma")),
            Op::SetRegisters { count, .. } => Some(Part::Registers(count)),
            _ => None,
        };
        if let Some(part) = part {
            parts.entry(part).or_default().insert(inst.as_u32());
        }
    }
    parts
}

fn describe(function: &Function, warps: Vec<u32>, parts: WarpParts, places: &mut Places) -> Role {
    let mut role = Role { warps, ..Role::default() };
    let name = |index: u32| function.params[index as usize].name.clone();
    for (part, Instructions { all, lanes }) in parts {
        let count = all.len();
        let first = all.first().copied().map(Inst::from_u32);
        let place = first.and_then(|inst| place(function, inst, places));
        match part {
            Part::Waits(ring) => role.waits.push(Use { ring, lanes, place }),
            Part::Arrives(ring) => role.arrives.push(Use { ring, lanes, place }),
            Part::Copies { ring, from, tiles } => {
                role.copies.push(Copies { from: from.map(name), ring, tiles, count, lanes, place });
            }
            Part::Multiplies(instruction) => role.products.push(Products { instruction, count, place }),
            Part::Stores { to, bulk } => role.stores.push(Stores { to: name(to), bulk, place }),
            Part::Registers(registers) => role.registers = Some(registers),
        }
    }
    role
}

/// Rust line of an instruction: the innermost one that is not in a kernel language's own file.
fn place(function: &Function, inst: Inst, places: &mut Places) -> Option<PlaceId> {
    let mut chain = Vec::new();
    let mut next = function.inst(inst).loc;
    while let Some(loc) = next {
        let at = &function.locs[loc];
        chain.push((at.file.as_str(), at.line));
        next = at.inlined_at;
    }
    let own = chain.iter().position(|(file, _)| !file.replace('\\', "/").contains("codegen/src/dsl/"));
    places.chain(chain.split_off(own.unwrap_or(0)).into_iter())
}
