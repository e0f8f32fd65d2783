//! The macros that declare opcodes as rows of a table: name in the text form, members and properties.
//!
//! The members of an opcode are its data besides operands, such as the bits of a constant. [`opcode_family!`] declares an
//! enumeration as [`named_enum!`](super::named::named_enum) does, with the type rule and the lowest target of each variant. [`opcodes!`] declares an enumeration with members and every property that a pass, the parser or the
//! printer needs. Every row states every property: none has a default.

/// Declares an enumeration of opcodes without members. A row is `Variant = "name": rule; lowest target,`; both
/// expressions may use the instruction's type, named after `at`.
macro_rules! opcode_family {
    ($(#[$meta:meta])* pub enum $name:ident at $ty:ident {
        $($(#[$vmeta:meta])* $variant:ident = $text:literal: $rule:expr; $needs:expr,)*
    }) => {
        $crate::ir::named::named_enum! {
            $(#[$meta])*
            pub enum $name { $($(#[$vmeta])* $variant = $text,)* }
        }

        #[allow(unused_variables, reason = "most rows do not depend on the type")]
        impl $name {
            /// Operand and result types.
            pub(super) fn rule(self) -> $crate::ir::rule::Rule {
                match self { $($name::$variant => $rule,)* }
            }

            /// The lowest target of an instruction of this type, if it is above the baseline.
            pub(super) fn requirement(self, $ty: $crate::ir::Type) -> Option<$crate::ir::effect::Requirement> {
                match self { $($name::$variant => $needs,)* }
            }
        }
    };
}

/// Declares an enumeration of opcodes. A row is
///
/// ```text
/// Variant MEMBERS = NAME: rule; effect; convergence; lowest target,
/// ```
///
/// MEMBERS are nothing, `(member: Type as Format)`, `{ member: Type as Format, .. }`, or `[member: Family]` for a
/// family whose variants' names are the opcodes' names; NAME is then `each`, otherwise a string. The four properties
/// are expressions over the members, the instruction's type and the type of its first operand, which the head of the
/// table names.
macro_rules! opcodes {
    ($(#[$meta:meta])* pub enum $name:ident at $ty:ident from $source:ident {
        $(
            $(#[$vmeta:meta])*
            $variant:ident
            $([$each:ident: $family:ty])?
            $(($single:ident: $single_ty:ty as $single_format:expr))?
            $({ $($(#[$mmeta:meta])* $member:ident: $member_ty:ty as $format:expr),* $(,)? })?
            = $($text:literal)? $(each $name_of:ident)?
            : $rule:expr; $effect:expr; $convergence:expr; $needs:expr,
        )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $(
                $(#[$vmeta])*
                $variant $(($family))? $(($single_ty))? $({ $($(#[$mmeta])* $member: $member_ty,)* })?,
            )*
        }

        #[allow(unused_variables, reason = "a row uses the members and types that its property depends on")]
        impl $name {
            /// The name in the text form.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant $(($each))? $(($single))? $({ $($member),* })? => {
                        $($text)? $($name_of.name())?
                    })*
                }
            }

            /// The members as they are printed after the name and the type.
            pub(super) fn members(self, $ty: $crate::ir::Type) -> String {
                let words: Vec<String> = match self {
                    $($name::$variant $(($each))? $(($single))? $({ $($member),* })? => vec![
                        $($crate::ir::members::Format::print(&$single_format, $single, $ty),)?
                        $($($crate::ir::members::Format::print(&$format, $member, $ty),)*)?
                    ],)*
                };
                words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
            }

            /// Reads the members of the opcode called `name`; none if there is no such opcode.
            pub(super) fn read(
                name: &str,
                reader: &mut $crate::ir::reader::Reader,
                $ty: $crate::ir::Type,
            ) -> Result<Option<$name>, $crate::ir::lex::ParseError> {
                $('row: {
                    $(let Some(&$each) = <$family>::ALL.iter().find(|each| each.name() == name) else {
                        break 'row;
                    };)?
                    $(if name != $text {
                        break 'row;
                    })?
                    return Ok(Some($name::$variant
                        $(($each))?
                        $(({
                            let $single: $single_ty =
                                $crate::ir::members::Format::read(&$single_format, reader, $ty)?;
                            $single
                        }))?
                        $({
                            $($member: $crate::ir::members::Format::read(&$format, reader, $ty)?,)*
                        })?
                    ));
                })*
                Ok(None)
            }

            /// Every opcode with every choice among its members; members that are numbers have a few values each.
            /// Some have no instruction of any type.
            pub fn every() -> Vec<$name> {
                let mut all = Vec::new();
                $($crate::ir::table::for_each_combination!(
                    all.push($name::$variant $(($each))? $(($single))? $({ $($member),* })?);
                    $($each in <$family>::ALL.iter().copied();)?
                    $($single in $crate::ir::members::Format::<$single_ty>::examples(&$single_format);)?
                    $($($member in $crate::ir::members::Format::<$member_ty>::examples(&$format);)*)?
                );)*
                all
            }

            /// Operand and result types.
            pub(super) fn rule(self, $ty: $crate::ir::Type) -> $crate::ir::rule::Rule {
                match self {
                    $($name::$variant $(($each))? $(($single))? $({ $($member),* })? => $rule,)*
                }
            }

            /// Effect besides the results.
            pub fn effect(self) -> $crate::ir::effect::Effect {
                use $crate::ir::effect::Effect::*;
                match self {
                    $($name::$variant $(($each))? $(($single))? $({ $($member),* })? => $effect,)*
                }
            }

            /// Threads that must execute it together.
            pub fn convergence(self) -> $crate::ir::effect::Convergence {
                use $crate::ir::effect::Convergence::*;
                match self {
                    $($name::$variant $(($each))? $(($single))? $({ $($member),* })? => $convergence,)*
                }
            }

            /// The lowest target and PTX version of an instruction of this type whose first operand has the type
            /// given, if they are above the baseline. From "PTX ISA Notes" and "Target ISA Notes" of each instruction
            /// in the PTX ISA.
            pub fn requirement(
                self,
                $ty: $crate::ir::Type,
                $source: Option<$crate::ir::Type>,
            ) -> Option<$crate::ir::effect::Requirement> {
                match self {
                    $($name::$variant $(($each))? $(($single))? $({ $($member),* })? => $needs,)*
                }
            }
        }
    };
}

/// Runs a statement once for each combination of the values that the variables range over.
macro_rules! for_each_combination {
    ($statement:expr;) => { $statement };
    ($statement:expr; $variable:ident in $values:expr; $($rest:tt)*) => {
        for $variable in $values {
            $crate::ir::table::for_each_combination!($statement; $($rest)*);
        }
    };
}

pub(crate) use for_each_combination;
pub(crate) use opcode_family;
pub(crate) use opcodes;
