//! Metadata values of GGUF's 13 kinds, borrowed from the file's bytes.

use crate::Error;
use crate::cursor::Cursor;
use std::fmt;

/// Kind of a metadata value, with its number in a file (`enum gguf_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names of the Rust types
pub enum Kind {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The kind with this number in a file.
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Name in messages, such as `u32` or `string`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }

    /// Size in bytes of a value of this kind; `None` for strings and arrays.
    const fn size(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Error> {
        let at = cursor.offset();
        let number = cursor.u32("a value's kind")?;
        Self::from_u32(number).ok_or(Error::Kind { at, number })
    }
}

/// Metadata value, borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the Rust types
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(&'a str),
    Array(Array<'a>),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Metadata array: values of one kind. Holds the file's bytes and decodes them during iteration, so a large vocabulary
/// is cheap to copy.
#[derive(Clone, Copy, PartialEq)]
pub struct Array<'a> {
    kind: Kind,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// Reads and checks a value that starts with its kind.
    pub(crate) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Error> {
        match Kind::read(cursor)? {
            Kind::Array => Array::read(cursor).map(Value::Array),
            kind => Self::read_scalar(cursor, kind),
        }
    }

    /// Reads and checks an element or a value of a known kind. An array is an error, because it would be nested.
    fn read_scalar(cursor: &mut Cursor<'a>, kind: Kind) -> Result<Self, Error> {
        let at = cursor.offset();
        let what = "a value";
        Ok(match kind {
            Kind::U8 => Value::U8(u8::from_le_bytes(cursor.fixed(what)?)),
            Kind::I8 => Value::I8(i8::from_le_bytes(cursor.fixed(what)?)),
            Kind::U16 => Value::U16(u16::from_le_bytes(cursor.fixed(what)?)),
            Kind::I16 => Value::I16(i16::from_le_bytes(cursor.fixed(what)?)),
            Kind::U32 => Value::U32(u32::from_le_bytes(cursor.fixed(what)?)),
            Kind::I32 => Value::I32(i32::from_le_bytes(cursor.fixed(what)?)),
            Kind::F32 => Value::F32(f32::from_le_bytes(cursor.fixed(what)?)),
            Kind::U64 => Value::U64(u64::from_le_bytes(cursor.fixed(what)?)),
            Kind::I64 => Value::I64(i64::from_le_bytes(cursor.fixed(what)?)),
            Kind::F64 => Value::F64(f64::from_le_bytes(cursor.fixed(what)?)),
            Kind::Bool => match cursor.fixed(what)? {
                [byte @ 0..=1] => Value::Bool(byte == 1),
                [byte] => return Err(Error::Bool { at, byte }),
            },
            Kind::String => Value::String(cursor.string("a string")?),
            Kind::Array => return Err(Error::NestedArray { at }),
        })
    }

    /// Kind of the value.
    pub fn kind(&self) -> Kind {
        match self {
            Value::U8(_) => Kind::U8,
            Value::I8(_) => Kind::I8,
            Value::U16(_) => Kind::U16,
            Value::I16(_) => Kind::I16,
            Value::U32(_) => Kind::U32,
            Value::I32(_) => Kind::I32,
            Value::F32(_) => Kind::F32,
            Value::Bool(_) => Kind::Bool,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::U64(_) => Kind::U64,
            Value::I64(_) => Kind::I64,
            Value::F64(_) => Kind::F64,
        }
    }

    /// The value as an integer, for integers of any width; `None` for other kinds.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }
}

impl<'a> Array<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Error> {
        let at = cursor.offset();
        let kind = Kind::read(cursor)?;
        let len = cursor.u64("an array's length")?;
        let mut start = *cursor;
        match kind.size() {
            Some(size) if kind != Kind::Bool => {
                cursor.take(len.saturating_mul(size), "an array")?;
            }
            _ if kind == Kind::Array => return Err(Error::NestedArray { at }),
            // Every element has at least one byte, so a hostile length fails at the end of the file.
            _ => {
                for _ in 0..len {
                    Value::read_scalar(cursor, kind)?;
                }
            }
        }
        let bytes = start.take(cursor.offset() - start.offset(), "an array")?;
        Ok(Self { kind, len: len as usize, bytes })
    }

    /// Kind of the elements; never [`Kind::Array`].
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let kind = self.kind;
        let mut cursor = Cursor::new(self.bytes);
        // The elements were checked when the header was read, so none fails here.
        (0..self.len).map_while(move |_| Value::read_scalar(&mut cursor, kind).ok())
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.kind.name(), self.len)
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::F32(v) => fmt::Debug::fmt(v, f),
            Value::F64(v) => fmt::Debug::fmt(v, f),
            Value::Bool(v) => v.fmt(f),
            Value::String(v) => fmt::Debug::fmt(v, f),
            Value::Array(v) => v.fmt(f),
            integer => integer.as_integer().unwrap_or_default().fmt(f),
        }
    }
}
