//! Constant expressions (PTX ISA, "Constant Expressions"): operators as in C on 64-bit integers and doubles.
//!
//! Where the ISA leaves a result open, it is that of the driver's assembler: shift amounts count modulo 64.

use super::Parser;
use crate::load::ast::Operand;
use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::lexer::Token;

/// Deepest nesting of parentheses, unary operators and conditions.
const MAX_DEPTH: usize = 64;
/// Value of the constant `WARP_SZ`.
const WARP_SIZE: u64 = 32;

/// Value of a constant expression.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// `.u64` if `unsigned`, else `.s64`.
    Integer {
        bits: u64,
        unsigned: bool,
    },
    Double(f64),
    /// A literal such as `0f3F800000`, which cannot be part of an expression.
    Single(u32),
}

/// Binary operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    Greater,
    LessEqual,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// The binary operators: text, operator, and precedence. Operators of two characters come first.
const OPERATORS: [(&str, Operator, u32); 18] = [
    ("||", Operator::Or, 0),
    ("&&", Operator::And, 1),
    ("==", Operator::Equal, 5),
    ("!=", Operator::NotEqual, 5),
    ("<=", Operator::LessEqual, 6),
    (">=", Operator::GreaterEqual, 6),
    ("<<", Operator::ShiftLeft, 7),
    (">>", Operator::ShiftRight, 7),
    ("|", Operator::BitOr, 2),
    ("^", Operator::BitXor, 3),
    ("&", Operator::BitAnd, 4),
    ("<", Operator::Less, 6),
    (">", Operator::Greater, 6),
    ("+", Operator::Add, 8),
    ("-", Operator::Subtract, 8),
    ("*", Operator::Multiply, 9),
    ("/", Operator::Divide, 9),
    ("%", Operator::Remainder, 9),
];

impl Parser<'_> {
    /// Whether the next token begins a constant expression.
    pub(super) fn starts_constant(&self) -> bool {
        match self.peek() {
            Token::Int(_) | Token::Unsigned(_) | Token::F32(_) | Token::F64(_) => true,
            Token::Punct(mark) => matches!(mark, '(' | '+' | '-' | '~' | '!'),
            token => token == Token::Ident("WARP_SZ"),
        }
    }

    /// Parses a constant expression to its value.
    pub(super) fn constant(&mut self) -> Result<Operand, ParseError> {
        Ok(match self.conditional(0)? {
            Value::Integer { bits, .. } => Operand::Int(bits),
            Value::Double(value) => Operand::F64(value.to_bits()),
            Value::Single(bits) => Operand::F32(bits),
        })
    }

    /// Parses a constant expression whose value is an integer.
    pub(super) fn integer_constant(&mut self, what: &str) -> Result<u64, ParseError> {
        let at = self.here();
        match self.starts_constant().then(|| self.constant()) {
            Some(Ok(Operand::Int(value))) => Ok(value),
            Some(Ok(_)) => {
                Err(ParseError::new(ParseErrorKind::Operand, at, format!("{what} must be an integer")))
            }
            Some(Err(error)) => Err(error),
            None => self.expected(what),
        }
    }

    /// Creates the error for operands that an operator at a position does not take.
    fn type_error(&self, at: (u32, u32), message: impl Into<String>) -> ParseError {
        ParseError::new(ParseErrorKind::Operand, at, message)
    }

    fn conditional(&mut self, depth: usize) -> Result<Value, ParseError> {
        let condition = self.binary(0, depth)?;
        let at = self.here();
        if !self.take('?') {
            return Ok(condition);
        }
        let Value::Integer { bits, .. } = condition else {
            return Err(self.type_error(at, "the condition of `?:` must be an integer"));
        };
        let first = self.conditional(depth + 1)?;
        self.expect(':')?;
        let second = self.conditional(depth + 1)?;
        let chosen = if bits != 0 { first } else { second };
        match (first, second, chosen) {
            (
                Value::Integer { unsigned: first, .. },
                Value::Integer { unsigned: second, .. },
                Value::Integer { bits, .. },
            ) => Ok(Value::Integer { bits, unsigned: first || second }),
            (Value::Double(_), Value::Double(_), chosen) => Ok(chosen),
            _ => Err(self.mixed(at, first, second)),
        }
    }

    /// The next token, or the next two, as a binary operator: operator, precedence and number of tokens.
    fn operator(&self) -> Option<(&'static str, Operator, u32, usize)> {
        let mark = |ahead: usize| match self.peek_ahead(ahead) {
            Token::Punct(mark) => Some(mark),
            Token::Ident("%") => Some('%'),
            _ => None,
        };
        let first = mark(0)?;
        let here = self.here();
        let next =
            self.tokens.get(self.at + 1).filter(|next| (next.line, next.column) == (here.0, here.1 + 1));
        let second = next.and_then(|_| mark(1));
        OPERATORS.iter().find_map(|&(text, operator, precedence)| {
            let mut marks = text.chars();
            let matches = marks.next() == Some(first)
                && match marks.next() {
                    None => true,
                    wanted => wanted == second,
                };
            matches.then_some((text, operator, precedence, text.len()))
        })
    }

    /// Parses binary operators of at least a precedence, and their operands.
    fn binary(&mut self, precedence: u32, depth: usize) -> Result<Value, ParseError> {
        let mut left = self.unary(depth)?;
        while let Some((text, operator, own, tokens)) = self.operator()
            && own >= precedence
        {
            let at = self.here();
            self.at += tokens;
            let right = self.binary(own + 1, depth)?;
            left = match (left, right) {
                (
                    Value::Integer { bits: a, unsigned: first },
                    Value::Integer { bits: b, unsigned: second },
                ) => integers(operator, (a, first), (b, second))
                    .ok_or_else(|| self.type_error(at, "division by zero in a constant expression"))?,
                (Value::Double(a), Value::Double(b)) => doubles(operator, a, b)
                    .ok_or_else(|| self.type_error(at, format!("`{text}` takes integers, not floats")))?,
                _ => return Err(self.mixed(at, left, right)),
            };
        }
        Ok(left)
    }

    /// Creates the error for an operator whose operands have different types.
    fn mixed(&self, at: (u32, u32), first: Value, second: Value) -> ParseError {
        let message = match (first, second) {
            (Value::Single(_), _) | (_, Value::Single(_)) => {
                "a single-precision literal cannot be part of a constant expression"
            }
            _ => "a constant expression cannot mix integers and floats",
        };
        self.type_error(at, message)
    }

    fn unary(&mut self, depth: usize) -> Result<Value, ParseError> {
        if depth > MAX_DEPTH {
            let message = format!("the emulator supports constant expressions of up to {MAX_DEPTH} levels");
            return Err(self.error_of(ParseErrorKind::Unsupported, message));
        }
        let at = self.here();
        let literal = |bits: u64, unsigned: bool| Value::Integer { bits, unsigned };
        let value = match self.peek() {
            Token::Int(bits) => literal(bits, bits > i64::MAX as u64),
            Token::Unsigned(bits) => literal(bits, true),
            Token::F64(bits) => Value::Double(f64::from_bits(bits)),
            Token::F32(bits) => Value::Single(bits),
            Token::Ident("WARP_SZ") => literal(WARP_SIZE, false),
            Token::Punct(mark @ ('+' | '-' | '~' | '!')) => {
                self.at += 1;
                let operand = self.unary(depth + 1)?;
                return unary(mark, operand)
                    .ok_or_else(|| self.type_error(at, format!("`{mark}` takes integers, not floats")));
            }
            Token::Punct('(') => {
                self.at += 1;
                if let Token::Dot(word @ ("s64" | "u64")) = self.peek() {
                    self.at += 1;
                    self.expect(')')?;
                    return match self.unary(depth + 1)? {
                        Value::Integer { bits, .. } => Ok(literal(bits, word == "u64")),
                        _ => Err(self.type_error(at, format!("the cast `(.{word})` takes an integer"))),
                    };
                }
                let value = self.conditional(depth + 1)?;
                self.expect(')')?;
                return match value {
                    Value::Single(_) => Err(self.mixed(at, value, value)),
                    value => Ok(value),
                };
            }
            _ => return self.expected("a constant"),
        };
        self.at += 1;
        Ok(value)
    }
}

/// Result of a unary operator; `None` if it does not take the operand's type.
fn unary(mark: char, operand: Value) -> Option<Value> {
    Some(match (mark, operand) {
        ('+', operand) => operand,
        ('-', Value::Integer { bits, unsigned }) => Value::Integer { bits: bits.wrapping_neg(), unsigned },
        ('-', Value::Double(value)) => Value::Double(-value),
        ('-', Value::Single(bits)) => Value::Single(bits ^ 1 << 31),
        ('~', Value::Integer { bits, .. }) => Value::Integer { bits: !bits, unsigned: true },
        ('!', Value::Integer { bits, .. }) => truth(bits == 0),
        _ => return None,
    })
}

/// The integer 0 or 1.
fn truth(holds: bool) -> Value {
    Value::Integer { bits: u64::from(holds), unsigned: false }
}

/// Result of an operator on integers, given as bits and whether they are unsigned; `None` for a division by zero.
fn integers(operator: Operator, (a, first): (u64, bool), (b, second): (u64, bool)) -> Option<Value> {
    let unsigned = first || second;
    let common = |bits: u64| Value::Integer { bits, unsigned };
    let order = if unsigned { a.cmp(&b) } else { (a as i64).cmp(&(b as i64)) };
    Some(match operator {
        Operator::Or => truth(a != 0 || b != 0),
        Operator::And => truth(a != 0 && b != 0),
        Operator::BitOr => common(a | b),
        Operator::BitXor => common(a ^ b),
        Operator::BitAnd => common(a & b),
        Operator::Equal => truth(a == b),
        Operator::NotEqual => truth(a != b),
        Operator::Less => truth(order.is_lt()),
        Operator::Greater => truth(order.is_gt()),
        Operator::LessEqual => truth(order.is_le()),
        Operator::GreaterEqual => truth(order.is_ge()),
        Operator::ShiftLeft => Value::Integer { bits: a.wrapping_shl(b as u32), unsigned: first },
        Operator::ShiftRight if first => Value::Integer { bits: a.wrapping_shr(b as u32), unsigned: first },
        Operator::ShiftRight => {
            Value::Integer { bits: (a as i64).wrapping_shr(b as u32) as u64, unsigned: first }
        }
        Operator::Add => common(a.wrapping_add(b)),
        Operator::Subtract => common(a.wrapping_sub(b)),
        Operator::Multiply => common(a.wrapping_mul(b)),
        Operator::Divide | Operator::Remainder if b == 0 => return None,
        Operator::Divide if unsigned => common(a / b),
        Operator::Divide => common((a as i64).wrapping_div(b as i64) as u64),
        Operator::Remainder => Value::Integer { bits: a % b, unsigned: false },
    })
}

/// Result of an operator on doubles; `None` if it takes integers only.
fn doubles(operator: Operator, a: f64, b: f64) -> Option<Value> {
    Some(match operator {
        Operator::Add => Value::Double(a + b),
        Operator::Subtract => Value::Double(a - b),
        Operator::Multiply => Value::Double(a * b),
        Operator::Divide => Value::Double(a / b),
        Operator::Less => truth(a < b),
        Operator::Greater => truth(a > b),
        Operator::LessEqual => truth(a <= b),
        Operator::GreaterEqual => truth(a >= b),
        Operator::Equal => truth(a == b),
        Operator::NotEqual => truth(a != b),
        _ => return None,
    })
}
