//! Bounds on what a template may cost.

/// Largest source of a template, in bytes. Published templates have up to 60 kB.
pub const SOURCE: usize = 1 << 20;

/// Tokens of one tag. minijinja's parser and compiler recurse for some of them. Published templates have up to 150.
pub const TOKENS: usize = 4_000;

/// `elif` tags of a template, for which minijinja's parser recurses. Published templates have up to 20.
pub const ELIFS: usize = 1_000;

/// Stack of the thread that parses and renders. It is only reserved: memory is used as far as recursion needs it.
pub const STACK: usize = 64 << 20;

/// Fuel for rendering, before the fuel for the conversation. An instruction of minijinja costs one unit, and so do 64
/// bytes of data, so this is about a million instructions, or 64 MB.
pub const FUEL: u64 = 1_000_000;

/// Additional fuel for each byte of the conversation, at most for [`CONVERSATION`] bytes.
pub const FUEL_PER_BYTE: u64 = 4;

/// Bytes of a conversation that add fuel.
pub const CONVERSATION: u64 = 4 << 20;

/// Depth of nested macro calls, loops and blocks while rendering, in minijinja's units: a macro call is worth about
/// ten.
pub const DEPTH: usize = 500;

/// Depth of nested lists and mappings that a template may make.
pub const NESTING: usize = 64;

/// Depth of nested lists and mappings that `tojson` accepts: messages and tools may be deeper than what templates make.
pub const JSON_DEPTH: usize = 128;
