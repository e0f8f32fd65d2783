//! The questions that the demo model answers, as `demo/data.py` makes them.

use std::fmt;
use std::str::FromStr;

use bespoke_random::rng::{self, SplitMix64};

/// Operation of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Addition, `+`.
    Plus,
    /// Subtraction, `-`.
    Minus,
    /// Multiplication, `*`.
    Times,
}

impl Sign {
    const ALL: [Sign; 3] = [Sign::Plus, Sign::Minus, Sign::Times];

    fn symbol(self) -> char {
        match self {
            Sign::Plus => '+',
            Sign::Minus => '-',
            Sign::Times => '*',
        }
    }
}

/// A question: an operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Operation on the two numbers.
    pub sign: Sign,
    /// First operand.
    pub a: u32,
    /// Second operand.
    pub b: u32,
}

/// Error for a text that is not a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a question such as `17 + 25 =`")]
pub struct NotAQuestion(String);

/// One question in this many is held out of training.
const HELD_OUT: u32 = 16;

impl Question {
    /// Computes the correct answer.
    pub fn answer(&self) -> i64 {
        let (a, b) = (i64::from(self.a), i64::from(self.b));
        match self.sign {
            Sign::Plus => a + b,
            Sign::Minus => a - b,
            Sign::Times => a * b,
        }
    }

    /// Whether questions of this kind were in the training data: numbers of up to three digits, and in a product one
    /// factor of a single digit.
    pub fn is_taught(&self) -> bool {
        let (low, high) = (self.a.min(self.b), self.a.max(self.b));
        high < 1000 && (self.sign != Sign::Times || low < 10)
    }

    /// Whether the question was held out of training, in both orders of its numbers for commutative operations. All
    /// questions of one-digit numbers were taught: they are too few to infer one from the others.
    pub fn is_held_out(&self) -> bool {
        let (low, high) = (self.a.min(self.b), self.a.max(self.b));
        let (first, second) = if self.sign == Sign::Minus { (self.a, self.b) } else { (low, high) };
        high >= 10 && mix(self.sign as u32 * 1_000_000 + first * 1000 + second).is_multiple_of(HELD_OUT)
    }

    /// `count` held-out questions, distributed like those of training.
    pub fn held_out(seed: u64, count: usize) -> Vec<Question> {
        let mut rng = rng::stream(seed, 0, 0);
        std::iter::repeat_with(|| Question::draw(&mut rng))
            .filter(Question::is_held_out)
            .take(count)
            .collect()
    }

    /// A random question, distributed as in training: of five questions two are sums, two differences and one a
    /// product; numbers have one, two and three digits in the ratio 1 : 2 : 3; one factor of a product has one digit.
    fn draw(rng: &mut SplitMix64) -> Question {
        let mut below = |n: u32| (rng.unit() * n as f32) as u32;
        let sign = Sign::ALL[[0, 0, 1, 1, 2][below(5) as usize]];
        let short = below(2);
        let [a, b] = [0, 1].map(|place| match [1, 2, 2, 3, 3, 3][below(6) as usize] {
            digits if digits == 1 || sign == Sign::Times && place == short => below(10),
            2 => 10 + below(90),
            _ => 100 + below(900),
        });
        Question { sign, a, b }
    }
}

/// MurmurHash3's 32-bit finalizer, whose result decides whether a question is held out.
fn mix(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

impl fmt::Display for Question {
    /// Formats the question as in training: `17 + 25 =`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} =", self.a, self.sign.symbol(), self.b)
    }
}

impl FromStr for Question {
    type Err = NotAQuestion;

    /// Reads `17 + 25 =`, with or without blanks and the equals sign; `x` and `×` are `*`.
    fn from_str(text: &str) -> Result<Question, NotAQuestion> {
        let read = || {
            let sides = text.trim();
            let sides = sides.strip_suffix('=').unwrap_or(sides);
            let at = sides.find(|c: char| !c.is_ascii_digit() && !c.is_whitespace())?;
            let (a, rest) = sides.split_at(at);
            let mut rest = rest.chars();
            let sign = match rest.next()? {
                'x' | '×' => Sign::Times,
                symbol => Sign::ALL.into_iter().find(|sign| sign.symbol() == symbol)?,
            };
            let number = |text: &str| {
                let text = text.trim();
                text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
            };
            Some(Question { sign, a: number(a)?, b: number(rest.as_str())? })
        };
        read().ok_or_else(|| NotAQuestion(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(text: &str) -> Question {
        text.parse().unwrap()
    }

    #[test]
    fn questions_read_back() {
        for (text, printed, answer) in [
            ("17 + 25 =", "17 + 25 =", 42),
            ("17+25", "17 + 25 =", 42),
            (" 12 - 34= ", "12 - 34 =", -22),
            ("123 x 8", "123 * 8 =", 984),
            ("0 × 999 =", "0 * 999 =", 0),
        ] {
            assert_eq!(question(text).to_string(), printed);
            assert_eq!(question(text).answer(), answer);
        }
        for text in [
            "",
            "=",
            "17",
            "17 +",
            "+ 17",
            "17 + +25",
            "1 7 + 25",
            "17 / 25",
            "17 + 25 = 42",
            "4294967296 + 1",
        ] {
            assert!(text.parse::<Question>().is_err(), "{text}");
        }
    }

    /// Results of `is_held_out` in `demo/data.py` for the same questions.
    #[test]
    fn the_split_equals_that_of_training() {
        for (text, held_out) in [
            ("99 + 156", true),
            ("85 * 6", true),
            ("61 + 190", true),
            ("363 + 232", true),
            ("58 - 777", true),
            ("422 + 8", true),
            ("156 + 99", true),
            ("777 - 58", false),
            ("0 * 19", false),
            ("42 - 237", false),
            ("497 - 3", false),
            ("833 - 46", false),
            ("17 + 25", false),
            ("408 - 579", false),
            ("86 * 7", false),
            ("7 * 8", false),
            ("9 * 9", false),
            ("999 + 1", false),
        ] {
            assert_eq!(question(text).is_held_out(), held_out, "{text}");
        }
    }

    #[test]
    fn questions_are_distributed_as_in_training() {
        let questions = Question::held_out(1, 20_000);
        assert!(questions.iter().all(|question| question.is_held_out() && question.is_taught()));
        let share =
            |of: &dyn Fn(&Question) -> bool| questions.iter().filter(|q| of(q)).count() as f64 / 20_000.0;
        // Questions of two one-digit numbers are never held out: 1 in 36 of the sums and differences, 1 in 6 of the
        // products.
        let kept = 0.8 * 35.0 / 36.0 + 0.2 * 5.0 / 6.0;
        for (of, expected) in [
            (&(|q: &Question| q.sign == Sign::Plus) as &dyn Fn(&Question) -> bool, 0.4 * 35.0 / 36.0 / kept),
            (&|q| q.sign == Sign::Minus, 0.4 * 35.0 / 36.0 / kept),
            (&|q| q.sign != Sign::Times && q.a.max(q.b) >= 100, 0.8 * 27.0 / 36.0 / kept),
            (&|q| q.sign == Sign::Times && q.a < 10, 0.2 * 5.0 / 12.0 / kept),
        ] {
            assert!((share(of) - expected).abs() < 0.02, "{} {expected}", share(of));
        }
        assert_eq!(Question::held_out(1, 50), questions[..50]);
        assert_ne!(Question::held_out(2, 50), questions[..50]);
    }
}
