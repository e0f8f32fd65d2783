//! Generated code with the Rust lines from which it comes.
//!
//! IR instructions have locations; PTX has `.file` and `.loc` directives; nvdisasm writes comments. All three become
//! [`Places`], so that a Rust line of one stage is found in the other stages.

use std::collections::HashMap;

use bespoke_codegen::ir::Function;
use bespoke_codegen::ir::print::without_locs;
use serde::{Serialize, Serializer};

use super::place::{PlaceId, Places};

/// A file and a line.
type Line<'a> = (&'a str, u32);

/// Code at one stage, with the Rust place of each line.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Listing {
    /// Lines of code.
    pub text: String,
    /// Rust place of each line of code; −1 in JSON for a line without a place.
    #[serde(serialize_with = "as_numbers")]
    pub places: Vec<Option<PlaceId>>,
}

impl Listing {
    fn push(&mut self, line: &str, place: Option<PlaceId>) {
        if !self.places.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.places.push(place);
    }

    /// Lines of code with their places.
    pub fn lines(&self) -> impl Iterator<Item = (&str, Option<PlaceId>)> {
        self.text.split('\n').zip(self.places.iter().copied())
    }

    /// Listing of a function's text form, without its locations.
    pub fn of_ir(function: &Function, places: &mut Places) -> Listing {
        let mut listing = Listing::default();
        let instructions = function.layout.iter().flat_map(|&block| &function.block(block).insts);
        let mut instructions = instructions.map(|&inst| function.inst(inst).loc);
        let mut in_block = false;
        for line in without_locs(function).to_string().lines() {
            in_block |= line.starts_with("block");
            let loc = if in_block && line.starts_with("  ") { instructions.next().flatten() } else { None };
            let mut chain = Vec::new();
            let mut next = loc;
            while let Some(loc) = next {
                let at = &function.locs[loc];
                chain.push((at.file.as_str(), at.line));
                next = at.inlined_at;
            }
            listing.push(line, places.chain(chain.into_iter()));
        }
        listing
    }

    /// Listing of a PTX module. The last `.loc` directive determines the place of an instruction.
    pub fn of_ptx(ptx: &str, places: &mut Places) -> Listing {
        let files: HashMap<u32, &str> = ptx.lines().filter_map(ptx_file).collect();
        let mut listing = Listing::default();
        let mut seen: HashMap<[u32; 3], PlaceId> = HashMap::new();
        let mut place = None;
        for line in ptx.lines() {
            let statement = line.trim();
            if let Some((position, caller)) = ptx_loc(statement) {
                let mut intern = |[file, line, _]: [u32; 3], caller| {
                    files.get(&file).map(|file| places.intern(file, line, caller))
                };
                // The caller may already have a place, with its own caller.
                let caller = caller.and_then(|at| seen.get(&at).copied().or_else(|| intern(at, None)));
                place = intern(position, caller);
                seen.extend(place.map(|place| (position, place)));
            }
            let is_code = statement.ends_with(';') && !statement.starts_with('.');
            listing.push(line, place.filter(|_| is_code));
        }
        listing
    }

    /// Listing of the output of `nvdisasm -c -gi` for a cubin with one kernel: instructions with addresses, and labels.
    pub fn of_sass(text: &str, places: &mut Places) -> Listing {
        let mut listing = Listing::default();
        let mut place = None;
        let mut chain: Vec<Line<'_>> = Vec::new();
        let mut padding = 0;
        for line in text.lines() {
            let line = line.trim();
            if let Some(comment) = line.strip_prefix("//## ") {
                let Some((at, caller)) = sass_place(comment) else { continue };
                // Further comments describe the callers that the first one names.
                if chain.is_empty() {
                    chain.push(at);
                }
                chain.extend(caller);
                continue;
            }
            if !chain.is_empty() {
                place = places.chain(chain.drain(..));
            }
            if let Some((address, instruction)) = sass_instruction(line) {
                padding = if instruction.starts_with("NOP") { padding + 1 } else { 0 };
                listing.push(&format!("{address}  {instruction}"), place);
            } else if line.starts_with(".L_") && line.ends_with(':') && padding == 0 {
                listing.push(line, None);
            }
        }
        listing.drop_last(padding)
    }

    /// Drops the last lines, which pad the last cache line of a kernel.
    fn drop_last(mut self, count: usize) -> Listing {
        self.places.truncate(self.places.len() - count);
        let lines: Vec<&str> = self.text.split('\n').take(self.places.len()).collect();
        self.text = lines.join("\n");
        self
    }
}

/// Parses number and name of `.file 3 "kernels/gemv.rs"`.
fn ptx_file(line: &str) -> Option<(u32, &str)> {
    let (number, rest) = line.trim().strip_prefix(".file")?.trim_start().split_once(' ')?;
    let name = rest.trim_start().strip_prefix('"')?;
    Some((number.parse().ok()?, &name[..name.find('"')?]))
}

/// Parses file, line and column of a `.loc` directive, and of its `inlined_at` if present.
fn ptx_loc(statement: &str) -> Option<([u32; 3], Option<[u32; 3]>)> {
    let position = |text: &str| {
        let mut numbers = text.split_whitespace().map(|number| number.parse().ok());
        Some([numbers.next()??, numbers.next()??, numbers.next()??])
    };
    let rest = statement.strip_prefix(".loc ")?;
    let at = position(rest.split(',').next()?)?;
    let caller = rest.split(',').find_map(|part| position(part.trim().strip_prefix("inlined_at ")?));
    Some((at, caller))
}

/// Parses the places of `File "a.rs", line 3 inlined at "b.rs", line 9`.
fn sass_place(comment: &str) -> Option<(Line<'_>, Option<Line<'_>>)> {
    let mut parts = comment.strip_prefix("File ")?.splitn(2, " inlined at ").map(quoted_line);
    Some((parts.next()??, parts.next().flatten()))
}

/// Parses `"a.rs", line 3`.
fn quoted_line(text: &str) -> Option<Line<'_>> {
    let (file, rest) = text.strip_prefix('"')?.split_once("\", line ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((file, digits.parse().ok()?))
}

/// Splits `/*0010*/   ULDC.64 UR4, c[0x0][0x208] ;` into address and instruction.
fn sass_instruction(line: &str) -> Option<(&str, &str)> {
    let (address, instruction) = line.strip_prefix("/*")?.split_once("*/")?;
    address.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| (address, instruction.trim()))
}

fn as_numbers<S: Serializer>(places: &[Option<PlaceId>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(places.iter().map(|place| place.map_or(-1, i64::from)))
}
