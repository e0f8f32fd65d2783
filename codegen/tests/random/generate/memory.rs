//! Statements that access memory, in bounds.

use bespoke_codegen::ir::{Access, Atomic, Cache, Order, Ordering, Scope, Type};

use super::{Generator, Known, TYPES};
use crate::program::*;

impl Generator {
    /// An index of at most `most`: a u32 operand, a mask to apply to the operand if needed, and the maximum.
    pub(super) fn index(&mut self, most: u32) -> Option<(Operand, Option<u32>, u32)> {
        let small: Vec<Known> =
            self.scope.iter().filter(|known| known.bound.is_some_and(|b| b <= most + 1)).copied().collect();
        if !small.is_empty() && self.chance(2) {
            let known = self.random.pick(&small);
            return Some((Operand::value(Type::U32, known.id), None, known.bound.unwrap_or(1) - 1));
        }
        let bits = (most + 1).ilog2();
        if bits == 0 {
            return None;
        }
        let mask = (1 << (1 + self.random.below(bits))) - 1;
        Some((self.operand(Type::U32), Some(mask), mask))
    }

    /// An address in the region at which `bytes` bytes may be accessed, aligned to `bytes`.
    pub(super) fn place(&mut self, region: Region, bytes: u32) -> Place {
        let room = region.bytes() - bytes;
        let mut index = None;
        let (mut least, mut used) = (0, 0);
        if self.chance(if region == Region::Input { 8 } else { 2 }) {
        } else if let Some((value, mask, greatest)) = self.index(room / bytes) {
            let most = (room / bytes).checked_div(greatest).unwrap_or(4).min(5);
            let scale = bytes * (1 + self.random.below(most));
            let form = self.random.pick(&[
                Form::Wide,
                Form::WideSigned,
                Form::Converted,
                Form::Shifted,
                Form::Narrow,
                Form::NarrowSigned,
            ]);
            let signed = matches!(form, Form::WideSigned | Form::NarrowSigned);
            let add = match self.random.below(3) {
                0 => 0,
                1 if signed => -(self.random.below(9) as i32),
                _ => self.random.below(9) as i32,
            };
            index = Some(Index { value, mask, wraps: self.chance(3), add, scale, form });
            (least, used) = (add * scale as i32, greatest * scale);
        }
        // Some accesses end at the region's last byte or begin at its first.
        let slack = (room - used) / bytes;
        let begin = bytes * self.random.below(slack + 1);
        let begin = self.random.pick(&[0, begin, begin, slack * bytes]) as i32;
        let rest = begin - least;
        let (near, far) = (self.random.below(17) as i32 * 4 - 32, self.random.below(5) as i32 * 4000 - 8000);
        let step = self.random.pick(&[0, 0, rest, near, far]);
        Place { region, index, step, offset: rest - step }
    }

    pub(super) fn element(&mut self) -> Type {
        self.random.pick(&TYPES[1..])
    }

    pub(super) fn access(&mut self, ty: Type, region: Region, load: bool) -> Access {
        let vector = self.random.pick(&[1, 1, 1, 2, 4]);
        let vector = if u32::from(vector) * ty.bytes() > 16 { 1 } else { vector };
        let mut access = Access { vector, ..Access::SCALAR };
        let caches: &[Cache] = match (region, load) {
            (Region::Shared, _) => &[Cache::Default, Cache::Volatile],
            (Region::Input, true) => Cache::ALL,
            _ => &[Cache::Default, Cache::L2, Cache::Streaming, Cache::Volatile],
        };
        access.cache = if self.chance(2) { self.random.pick(caches) } else { Cache::Default };
        if access.cache == Cache::Default && vector == 1 && self.chance(6) {
            let other = if load { Order::Acquire } else { Order::Release };
            let order = self.random.pick(&[Order::Relaxed, other]);
            access.ordering = Some(order.among(self.random.pick(Scope::ALL)));
        } else if access.cache != Cache::Volatile && region != Region::Shared {
            access.hinted = self.chance(8);
        }
        access
    }

    pub(super) fn load(&mut self) -> Stmt {
        let region = self.random.pick(&[Region::Input, Region::Input, Region::Scratch, Region::Shared]);
        let ty = self.element();
        let access = self.access(ty, region, true);
        let place = self.place(region, ty.bytes() * u32::from(access.vector));
        let results = (0..access.vector).map(|_| self.fresh(ty, false, None)).collect();
        Stmt::Load { ty, access, place, results }
    }

    pub(super) fn store(&mut self) -> Stmt {
        let region = self.random.pick(&[Region::Scratch, Region::Scratch, Region::Shared]);
        let ty = self.element();
        let access = self.access(ty, region, false);
        let place = self.place(region, ty.bytes() * u32::from(access.vector));
        let values = self.operands(&vec![ty; access.vector.into()]);
        Stmt::Store { ty, access, place, values }
    }

    /// Two accesses to adjacent memory, often aligned for a vector access, and sometimes another access in between.
    pub(super) fn neighbours(&mut self, list: &mut Vec<Stmt>) {
        let region = self.random.pick(&[Region::Shared, Region::Shared, Region::Scratch]);
        let ty = self.element();
        let vector = if ty.bytes() <= 4 { self.random.pick(&[1, 1, 2]) } else { 1 };
        let bytes = ty.bytes() * u32::from(vector);
        let place = self.place(region, bytes * 2);
        let beside = Place { offset: place.offset + bytes as i32, ..place };
        let mut places = [place, beside];
        if self.chance(2) {
            places.reverse();
        }
        let access = Access { vector, ..Access::SCALAR };
        let loads = self.chance(2);
        for (index, place) in places.into_iter().enumerate() {
            if index > 0 && self.chance(2) {
                let between = if self.chance(2) { self.load() } else { self.store() };
                list.push(between);
            }
            list.push(if loads {
                let results = (0..vector).map(|_| self.fresh(ty, false, None)).collect();
                Stmt::Load { ty, access, place, results }
            } else {
                let values = self.operands(&vec![ty; vector.into()]);
                Stmt::Store { ty, access, place, values }
            });
        }
    }

    pub(super) fn atomic(&mut self) -> Stmt {
        let ordering = Ordering {
            order: self.random.pick(Order::ALL),
            scope: self.random.pick(&[Scope::Gpu, Scope::Sys]),
        };
        let types = [Type::U32, Type::I32, Type::U64, Type::I64];
        if self.chance(2) {
            // All threads change the table; the order does not matter if only one operation is applied to each word.
            let commutative = [Atomic::Add, Atomic::Min, Atomic::Max, Atomic::And, Atomic::Or, Atomic::Xor];
            let (row, column) = (self.random.below(4), self.random.below(6));
            let ty = types[row as usize];
            let offset = ((row * 6 + column) * 8) as i32;
            let place = Place { region: Region::Table, index: None, step: 0, offset };
            let values = self.operands(&[ty]);
            return Stmt::Atomic {
                op: commutative[column as usize],
                ty,
                ordering,
                place,
                values,
                result: None,
            };
        }
        let op = self.random.pick(Atomic::ALL);
        let ty = match op {
            Atomic::Inc | Atomic::Dec => Type::U32,
            Atomic::Add if self.chance(3) => Type::F32,
            _ => self.random.pick(&types),
        };
        let region = self.random.pick(&[Region::Scratch, Region::Shared]);
        let place = self.place(region, ty.bytes());
        let values = self.operands(&vec![ty; 1 + usize::from(op == Atomic::Cas)]);
        let result = Some(self.fresh(ty, false, None)).filter(|_| !self.random.once_in(3));
        Stmt::Atomic { op, ty, ordering, place, values, result }
    }

    pub(super) fn guarded(&mut self) -> Stmt {
        let (index, ty) = (self.operand(Type::U32), self.element());
        let bound = self.random.pick(&[1, 5, 16, 32, 60]);
        let otherwise = self.operand(ty);
        let result = self.fresh(ty, false, None);
        Stmt::Guarded { index, bound, ty, otherwise, result }
    }

    pub(super) fn copy(&mut self) -> Stmt {
        let bytes = self.random.pick(&[4, 8, 16]);
        let place = self.place(Region::Input, bytes.into());
        Stmt::CopyAsync { bytes, place, result: self.fresh(Type::U32, false, None) }
    }
}
