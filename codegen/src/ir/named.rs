//! Enumerations whose variants have a name in the text form.

/// An enumeration that [`named_enum!`] declared.
pub(super) trait Named: Copy + 'static {
    /// Every variant, in order.
    const ALL: &'static [Self];

    /// Name of the variant in the text form.
    fn name(self) -> &'static str;
}

/// Declares an enumeration whose variants have a name in the text form, with `ALL`, `name`, `Display` and `FromStr`.
macro_rules! named_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every variant, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name in the IR's text form.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl $crate::ir::named::Named for $name {
            const ALL: &'static [$name] = $name::ALL;

            fn name(self) -> &'static str {
                $name::name(self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.name()) }
        }

        impl std::str::FromStr for $name {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                Self::ALL.iter().copied().find(|v| v.name() == text).ok_or(())
            }
        }
    };
}

pub(crate) use named_enum;
