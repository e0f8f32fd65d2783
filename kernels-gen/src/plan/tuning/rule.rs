//! A tuning rule: selectors that say where it applies, and knobs.

use std::fmt;
use std::ops::RangeInclusive;

use bespoke_codegen::ptx::Target;
use serde::{Deserialize, Serialize};

use crate::kernels::gemv::tokens::MAX_WARPGROUPS;
use crate::kernels::gemv::{Arithmetic, GemvShape};
use crate::kernels::launching::Trigger;
use crate::plan::{Gpu, LaunchRole};
use crate::spec::KernelSpec;

/// Limits of stages, CTAs, pages and columns: far above useful values, and far below overflow.
const MAX_STAGES: u32 = 64;
const MAX_CTAS: u32 = 1 << 16;
const MAX_PAGES: u32 = 1 << 18;
const MAX_COLUMNS: u32 = 1 << 18;
/// Limit of splits of attention.
const MAX_SPLITS: u32 = 64;
/// Maximum threads of a CTA, on every target.
pub(super) const MAX_THREADS: u32 = 1024;
/// Maximum consumer warps of a CTA, which has one or more warps besides ([`GemvShape::producers`]).
const MAX_WARPS: u32 = MAX_THREADS / 32 - 1;
/// Maximum number of blocks into which warpgroups divide the tokens.
const MAX_BLOCKS: u32 = 2;

/// Defines [`Rule`] and [`Knob`] from one list of the knobs whose values are numbers.
macro_rules! rule {
    ($($(#[doc = $doc:literal])+ $knob:ident $field:ident $range:expr,)+) => {
        /// Knobs for the launches of a role. Absent knobs are left to earlier rules, and then to the cost model.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Rule {
            /// The only target that the rule applies to.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub target: Option<Target>,
            /// The only number of multiprocessors that the rule applies to.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub multiprocessors: Option<u32>,
            /// The only number of rows that the rule applies to, of all steps but prefill steps. If absent, the rule's
            /// trigger and knobs of attention apply to steps with any number of rows, its other knobs to steps of one row.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub rows: Option<u32>,
            /// The only arithmetic that the rule applies to: that of products in steps of several rows. Products of one row
            /// multiply integers.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub arithmetic: Option<Arithmetic>,
            /// The role that the rule applies to.
            pub role: LaunchRole,
            /// The only matrix shape that the rule applies to: a [`matrix_name`](crate::spec::matrix_name).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub shape: Option<String>,
            $($(#[doc = $doc])+
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $field: Option<u32>,)+
            /// When the next launch may start.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub trigger: Option<Trigger>,
        }

        /// A knob whose values are numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Knob {
            $($(#[doc = $doc])+ $knob,)+
        }

        impl Rule {
            /// A rule without knobs.
            pub fn empty(role: LaunchRole) -> Rule {
                let (target, multiprocessors, rows, arithmetic, shape) = (None, None, None, None, None);
                Rule { target, multiprocessors, rows, arithmetic, role, shape, $($field: None,)+ trigger: None }
            }

            /// Value of a knob, if the rule sets it.
            pub fn get(&self, knob: Knob) -> Option<u32> {
                match knob { $(Knob::$knob => self.$field,)+ }
            }

            /// Sets a knob, or leaves it to other rules.
            pub fn set(&mut self, knob: Knob, value: Option<u32>) {
                match knob { $(Knob::$knob => self.$field = value,)+ }
            }
        }

        impl Knob {
            /// All knobs, in the order of their fields.
            pub const ALL: &[Knob] = &[$(Knob::$knob),+];

            /// Name of the knob in files of tuning rules.
            pub fn name(self) -> &'static str {
                match self { $(Knob::$knob => stringify!($field),)+ }
            }

            /// Values that some model and target may allow.
            pub(super) fn range(self) -> RangeInclusive<u32> {
                match self { $(Knob::$knob => $range,)+ }
            }
        }
    };
}

rule! {
    /// Number of CTAs of a matrix product.
    Grid grid 1..=MAX_CTAS,
    /// Consumer warps per CTA, besides the producer warps.
    Warps warps 1..=MAX_WARPS,
    /// Number of groups of consumer warps, which take the ring's stages in turn.
    Groups groups 1..=MAX_WARPS,
    /// Number of stages of the ring in shared memory.
    Stages stages 1..=MAX_STAGES,
    /// Maximum number of stages whose copies are in flight.
    InFlight in_flight 1..=MAX_STAGES,
    /// Number of CTAs per multiprocessor for which registers and shared memory must suffice.
    Resident resident 1..=32,
    /// Columns of a slice of the inputs, in a product of several rows.
    Slice slice 1..=MAX_COLUMNS,
    /// Slices of the inputs that shared memory has room for, in a product of several rows.
    Buffers buffers 1..=MAX_STAGES,
    /// Warps that share a unit of the weights, each with a part of the rows, in a product of several rows.
    Parts parts 1..=MAX_WARPS,
    /// Tiles whose sums shared memory has room for, in a product of several rows.
    Tiles tiles 1..=MAX_CTAS,
    /// 1 if shared memory has the sums of all steps of these tiles, 0 if those of a slice, in a product of several rows.
    Holds holds 0..=1,
    /// Consumer warpgroups of a product of several rows, or 0 if warps multiply.
    Warpgroups warpgroups 0..=MAX_WARPGROUPS,
    /// Blocks into which the rows of a product are divided among CTAs, with warpgroups.
    Blocks blocks 1..=MAX_BLOCKS,
    /// Maximum number of splits of the context in attention.
    Splits splits 1..=MAX_SPLITS,
    /// Minimum number of pages per split in attention.
    MinPages min_pages 1..=MAX_PAGES,
}

impl Knob {
    /// Knobs of a product of one row.
    pub const OF_ONE_ROW: &[Knob] =
        &[Knob::Grid, Knob::Warps, Knob::Groups, Knob::Stages, Knob::InFlight, Knob::Resident];

    /// Knobs of a product of several rows, in rules that name the number of rows.
    pub const OF_ROWS: &[Knob] = &[
        Knob::Grid,
        Knob::Warps,
        Knob::Groups,
        Knob::Stages,
        Knob::InFlight,
        Knob::Slice,
        Knob::Buffers,
        Knob::Parts,
        Knob::Tiles,
        Knob::Holds,
        Knob::Warpgroups,
        Knob::Blocks,
    ];

    /// Knobs that only a product in slices has.
    const OF_SLICES: &[Knob] = &[Knob::Slice, Knob::Buffers, Knob::Parts, Knob::Tiles];

    /// Knobs of attention.
    pub const OF_ATTENTION: &[Knob] = &[Knob::Splits, Knob::MinPages, Knob::Stages];

    /// Knobs of attention in rules that name a number of rows. The splits of a row decide its bits, so they are the same for
    /// every number of rows.
    pub const OF_ATTENTION_OF_ROWS: &[Knob] = &[Knob::Stages];

    /// Value of the knob in a kernel; none if the kernel does not have the knob.
    pub fn of(self, spec: &KernelSpec) -> Option<u32> {
        match spec {
            KernelSpec::Gemv(shape) => self.of_product(shape),
            KernelSpec::Attention(shape) => match self {
                Knob::Splits => Some(shape.splits),
                Knob::MinPages => Some(shape.min_pages),
                Knob::Stages => Some(shape.stages),
                _ => None,
            },
            _ => None,
        }
    }

    /// Value of the knob in a product.
    pub(super) fn of_product(self, shape: &GemvShape) -> Option<u32> {
        let (schedule, several) = (&shape.schedule, &shape.schedule.several);
        match self {
            Knob::Grid => Some(schedule.grid),
            Knob::Warps => Some(schedule.warps),
            Knob::Groups => Some(schedule.groups),
            Knob::Stages => Some(schedule.stages),
            Knob::InFlight => Some(schedule.in_flight),
            Knob::Resident => Some(schedule.resident),
            Knob::Slice if shape.is_prepared() => Some(several.slice),
            Knob::Buffers if shape.is_prepared() => Some(several.buffers),
            Knob::Parts if shape.is_sliced() => Some(several.parts),
            Knob::Tiles if shape.is_sliced() => Some(several.tiles),
            Knob::Holds if shape.tokens > 1 => Some(u32::from(several.holds)),
            Knob::Warpgroups if shape.tokens > 1 => Some(several.warpgroups),
            Knob::Blocks if shape.tokens > 1 => Some(several.blocks),
            _ => None,
        }
    }
}

/// Kind of launch in a step, which the selectors of rules are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// The launch's role.
    pub role: LaunchRole,
    /// The [`matrix_name`](crate::spec::matrix_name) of a matrix product; `None` for attention.
    pub shape: Option<&'a str>,
    /// Number of rows of the step.
    pub rows: u32,
    /// Arithmetic of the step's products.
    pub arithmetic: Arithmetic,
}

impl Rule {
    /// The knobs that the rule sets, with their values as in a file.
    pub fn knobs(&self) -> Vec<(&'static str, String)> {
        let numbers = Knob::ALL.iter().filter_map(|&knob| Some((knob.name(), self.get(knob)?.to_string())));
        numbers.chain(self.trigger.map(|trigger| ("trigger", trigger_name(trigger).to_owned()))).collect()
    }

    /// The numeric knobs that the rule sets.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (Knob, u32)> {
        Knob::ALL.iter().filter_map(|&knob| Some((knob, self.get(knob)?)))
    }

    /// Names of the knobs that the rule may set, and the kind of kernel that has them.
    pub(super) fn own_knobs(&self) -> (&'static [Knob], &'static str) {
        match (self.role, self.rows) {
            (LaunchRole::Attention, None) => (Knob::OF_ATTENTION, "attention"),
            (LaunchRole::Attention, Some(_)) => {
                (Knob::OF_ATTENTION_OF_ROWS, "attention of one number of rows")
            }
            (_, None | Some(1)) => (Knob::OF_ONE_ROW, "a matrix product"),
            _ => (Knob::OF_ROWS, "a matrix product of several rows"),
        }
    }

    /// Whether the rule asks for a product in slices of the columns.
    pub(crate) fn asks_for_slices(&self) -> bool {
        Knob::OF_SLICES.iter().any(|&knob| self.get(knob).is_some())
            || self.warpgroups.is_some_and(|it| it > 0)
            || self.holds == Some(1)
    }

    /// The first knob of the rule whose value a product does not have, with the rule's value.
    pub(super) fn violated(&self, shape: &GemvShape) -> Option<(Knob, u32)> {
        self.numbers().find(|&(knob, value)| knob.of_product(shape) != Some(value))
    }

    /// Whether a product has all values that the rule sets.
    pub(crate) fn allows(&self, shape: &GemvShape) -> bool {
        self.violated(shape).is_none()
    }

    pub(super) fn applies(&self, site: &Site<'_>) -> bool {
        self.role == site.role
            && self.is_for(site.gpu)
            && self.rows.is_none_or(|only| only == site.rows)
            && self.arithmetic.is_none_or(|only| only == site.arithmetic)
            && self.shape.as_deref().is_none_or(|only| Some(only) == site.shape)
    }

    pub(super) fn is_for(&self, gpu: &Gpu) -> bool {
        self.target.is_none_or(|only| only == gpu.target)
            && self.multiprocessors.is_none_or(|only| only == gpu.multiprocessors)
    }

    /// Overrides knobs with those that `later` sets for steps of `rows` rows.
    pub(super) fn override_with(&mut self, later: &Rule, rows: u32) {
        if later.rows.is_some() || rows == 1 || later.role == LaunchRole::Attention {
            later.numbers().for_each(|(knob, value)| self.set(knob, Some(value)));
        }
        self.trigger = later.trigger.or(self.trigger);
    }
}

/// Where the rule applies, as in errors.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.role.fmt(f)?;
        if let Some(shape) = &self.shape {
            write!(f, " ({shape})")?;
        }
        if let Some(rows) = self.rows {
            write!(f, " with {rows} row{}", if rows == 1 { "" } else { "s" })?;
        }
        if let Some(arithmetic) = self.arithmetic {
            write!(f, " ({arithmetic})")?;
        }
        if let Some(target) = self.target {
            write!(f, " on {target}")?;
        }
        match self.multiprocessors {
            Some(multiprocessors) => write!(f, " with {multiprocessors} multiprocessors"),
            None => Ok(()),
        }
    }
}

/// Name of a trigger in tuning files.
pub fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Never => "never",
        Trigger::AtStart => "at_start",
        Trigger::AfterWait => "after_wait",
        Trigger::AfterLoads => "after_loads",
    }
}
