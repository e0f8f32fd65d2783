//! Text that threads print, and traps.

use std::panic::Location;

use half::{bf16, f16};

use super::arrays::local_array;
use super::math::select;
use super::pointer::{Global, Local, Ptr};
use super::recorder::{Site, emit, fail, with};
use super::scalar::Scalar;
use super::value::{Val, val};

use crate::ir::{self, Op, Type};

/// Maximum number of arguments of a [`printf`], as in CUDA.
const MAX_ARGUMENTS: usize = 32;

/// Kind of the argument that a conversion of a format takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Long,
    Double,
}

impl Kind {
    fn bytes(self) -> u32 {
        if self == Kind::Word { 4 } else { 8 }
    }

    /// Description of arguments of this kind, and of the conversions that take them, for messages.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Kind::Word => ("an integer of up to 32 bits or a `bool`", "`%d`, `%u`, `%x` or `%c`"),
            Kind::Long => ("a 64-bit integer or a pointer", "`%lld`, `%llu`, `%llx` or `%p`"),
            Kind::Double => ("a float", "`%f`, `%e` or `%g`"),
        }
    }
}

/// An argument of [`printf`], as the driver takes it.
#[derive(Clone, Copy)]
pub struct Printed(PrintedValue);

#[derive(Clone, Copy)]
enum PrintedValue {
    Word(Val<u32>),
    Long(Val<u64>),
    Double(Val<f64>),
}

impl Printed {
    fn kind(self) -> Kind {
        match self.0 {
            PrintedValue::Word(_) => Kind::Word,
            PrintedValue::Long(_) => Kind::Long,
            PrintedValue::Double(_) => Kind::Double,
        }
    }
}

/// A handle that [`printf`] prints.
#[diagnostic::on_unimplemented(
    message = "`printf` cannot print `{Self}`",
    label = "pass a `Val` of a scalar, or a pointer to global memory; make a handle of a compile-time value by `val(…)`"
)]
pub trait PrintArgument {
    /// The value, converted as C converts the arguments of `printf`.
    fn printed(self) -> Printed;
}

macro_rules! print_argument {
    ($($ty:ty, $kind:ident, $value:ident, $converted:expr;)*) => { $(
        impl PrintArgument for Val<$ty> {
            #[track_caller]
            fn printed(self) -> Printed {
                let $value = self;
                Printed(PrintedValue::$kind($converted))
            }
        }
    )* };
}
print_argument! {
    bool, Word, x, select(x, val(1u32), 0);
    u8, Word, x, x.cast();
    u16, Word, x, x.cast();
    u32, Word, x, x;
    i8, Word, x, x.cast::<i32>().bitcast();
    i16, Word, x, x.cast::<i32>().bitcast();
    i32, Word, x, x.bitcast();
    u64, Long, x, x;
    i64, Long, x, x.bitcast();
    f16, Double, x, x.cast::<f32>().cast();
    bf16, Double, x, x.cast::<f32>().cast();
    f32, Double, x, x.cast();
    f64, Double, x, x;
}

impl<T: Scalar> PrintArgument for Ptr<Global, T> {
    #[track_caller]
    fn printed(self) -> Printed {
        Printed(PrintedValue::Long(self.address()))
    }
}

/// The arguments of [`printf`]: a tuple of up to eight handles, or an array of handles.
#[diagnostic::on_unimplemented(
    message = "the arguments of `printf` are a tuple of handles, not `{Self}`",
    label = "write `(x,)`, `(x, y)`, `[x, y]`, or `()` without arguments"
)]
pub trait PrintArguments {
    /// The arguments in order.
    fn all(self) -> Vec<Printed>;
}

macro_rules! print_arguments {
    ($($($name:ident)*;)*) => { $(
        impl<$($name: PrintArgument),*> PrintArguments for ($($name,)*) {
            #[track_caller]
            #[allow(non_snake_case)]
            fn all(self) -> Vec<Printed> {
                let ($($name,)*) = self;
                vec![$($name.printed()),*]
            }
        }
    )* };
}
print_arguments! {
    ;
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

impl<T: PrintArgument, const N: usize> PrintArguments for [T; N] {
    #[track_caller]
    fn all(self) -> Vec<Printed> {
        // A closure has a line of its own, which is not the caller's.
        let mut all = Vec::with_capacity(N);
        for one in self {
            all.push(one.printed());
        }
        all
    }
}

/// Prints text from the kernel, for debugging: `printf` of C. The text of all threads comes after the launch, on the
/// emulator from `Done::printed` of bespoke-testing.
///
/// `%d`, `%u`, `%x`, `%o` and `%c` print integers of up to 32 bits and `bool`; with `l` or `ll` (`%lld`) 64-bit integers;
/// `%f`, `%e`, `%g` and `%a` floats of any type; `%p` pointers. Flags, width and precision are those of C. A conversion
/// that does not fit its argument is an error while recording.
///
/// - PTX: `call.uni (…), vprintf`, after stores of the arguments to local memory
/// - Target: sm_80
/// - Requires: at most 32 arguments
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
/// #[kernel(threads = 32)]
/// fn prints(x: Ptr<Global, f32>) {
///     let value = x.at(lane()).load();
///     if value > 2.0 {
///         printf("x[%u] = %.2f\n", (lane(), value));
///     }
/// }
/// let mut x = [1.0f32; 32];
/// (x[3], x[30]) = (2.5, 1e3);
/// let kernel = prints()?;
/// let done = Launch::of(&kernel).buffer(&x).run()?;
/// assert_eq!(done.printed(), "x[3] = 2.50\nx[30] = 1000.00\n");
/// assert!(done.has("call.uni (…), vprintf"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn printf(format: &str, arguments: impl PrintArguments) {
    let site = Location::caller();
    let arguments = arguments.all();
    if let Err(message) = check(format, &arguments) {
        fail(site, message);
    }
    let at = |end: u32, one: &Printed| end.next_multiple_of(one.kind().bytes());
    let bytes = arguments.iter().fold(0, |end, one| at(end, one) + one.kind().bytes());
    let list = local_array::<u64>(bytes.div_ceil(8).max(1));
    let mut end = 0;
    for one in &arguments {
        let place = list.byte_add(at(end, one));
        end = at(end, one) + one.kind().bytes();
        match one.0 {
            PrintedValue::Word(value) => place.cast::<u32>().store(value),
            PrintedValue::Long(value) => place.store(value),
            PrintedValue::Double(value) => place.cast::<f64>().store(value),
        }
    }
    print(format, list, site);
}

fn print(format: &str, list: Ptr<Local, u64>, site: Site) {
    let text = format.bytes().chain([0]).map(u64::from).collect();
    let format = with(|r| r.table(ir::Table { element: Type::U8, values: text }));
    emit(Op::Print(format), Type::U32, &[list.id()], site);
}

/// Checks that the conversions of a format fit the arguments.
fn check(format: &str, arguments: &[Printed]) -> Result<(), String> {
    if format.contains('\0') {
        return Err("the format of `printf` ends at a zero byte: remove it".to_owned());
    }
    let conversions = conversions(format)?;
    if conversions.len() != arguments.len() {
        let (wanted, given) = (conversions.len(), arguments.len());
        return Err(format!(
            "the format of `printf` has {wanted} conversions, but there are {given} arguments"
        ));
    }
    if arguments.len() > MAX_ARGUMENTS {
        return Err(format!("`printf` takes at most {MAX_ARGUMENTS} arguments: print in several calls"));
    }
    for (number, ((conversion, kind), argument)) in conversions.iter().zip(arguments).enumerate() {
        if *kind != argument.kind() {
            let ((wanted, _), (given, instead)) = (kind.name(), argument.kind().name());
            let number = number + 1;
            return Err(format!(
                "`{conversion}` prints {wanted}, but argument {number} of `printf` is {given}: write {instead}"
            ));
        }
    }
    Ok(())
}

/// The conversions of a format, with what they take.
fn conversions(format: &str) -> Result<Vec<(&str, Kind)>, String> {
    let mut found = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let start = &rest[at..];
        let options = start[1..].find(|c: char| !"-+ #0123456789.".contains(c)).unwrap_or(start.len() - 1);
        let after = &start[1 + options..];
        let long = after.len() - after.trim_start_matches('l').len();
        let letter = after[long..].chars().next();
        let length = 1 + options + long + letter.map_or(0, char::len_utf8);
        let conversion = &start[..length];
        let kind = match letter {
            Some('%') if length == 2 => None,
            Some('d' | 'i' | 'u' | 'x' | 'X' | 'o') if long > 0 => Some(Kind::Long),
            Some('d' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c') if long == 0 => Some(Kind::Word),
            Some('f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A') if long == 0 => Some(Kind::Double),
            Some('p') if long == 0 => Some(Kind::Long),
            _ => {
                return Err(format!(
                    "`printf` has no conversion `{conversion}`: write `%d`, `%u`, `%x`, `%c`, `%lld`, `%f`, `%e`, `%g`, \
                     `%p`, or `%%` for a percent sign"
                ));
            }
        };
        found.extend(kind.map(|kind| (conversion, kind)));
        rest = &start[length..];
    }
    Ok(found)
}

/// Stops all threads of the launch with an error. On a GPU, the context is lost as well.
///
/// - PTX: `trap`
/// - Target: sm_80
///
/// ```
/// # use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
/// #[kernel(threads = 32)]
/// fn checked(x: Ptr<Global, u32>) {
///     if x.at(lane()).load() > 9 {
///         trap();
///     }
/// }
/// let kernel = checked()?;
/// assert!(Launch::of(&kernel).buffer(&[9u32; 32]).run()?.has("trap;"));
/// let finding = Launch::of(&kernel).buffer(&[10u32; 32]).run().err().map(|failure| failure.to_string());
/// assert!(finding.is_some_and(|text| text.contains("trap")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn trap() {
    emit(Op::Trap, Type::U32, &[], Location::caller());
}
