//! Parts of an answer: text and calls.

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A call. Its arguments are an object in JSON; if they are empty, [`Piece::Arguments`] follow.
    Call { name: String, arguments: String },
    /// A part of the arguments of the last call.
    Arguments(String),
}
