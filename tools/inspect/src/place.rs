//! Rust lines from which generated code comes.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::SerializeSeq;

/// Index of a place in [`Places`].
pub type PlaceId = u32;

/// A Rust line, with its call site if it is in an inlined function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index into [`Places::files`].
    pub file: u32,
    /// Line in the file, 1-based.
    pub line: u32,
    /// Index of the call site's place, if the line is in an inlined function.
    pub inlined_at: Option<PlaceId>,
}

/// Table of places without duplicates. The stages of a kernel share the table, so that equal places have equal indices.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Places {
    files: Vec<String>,
    #[serde(serialize_with = "as_triples")]
    places: Vec<Place>,
    #[serde(skip)]
    numbers: HashMap<Place, PlaceId>,
    #[serde(skip)]
    file_numbers: HashMap<String, u32>,
}

impl Places {
    /// Creates an empty table.
    pub fn new() -> Places {
        Places::default()
    }

    /// Index of the place of a line with its chain of call sites; adds a new place to the table.
    pub fn intern(&mut self, file: &str, line: u32, inlined_at: Option<PlaceId>) -> PlaceId {
        let file = self.file(file);
        let place = Place { file, line, inlined_at };
        *self.numbers.entry(place).or_insert_with(|| {
            self.places.push(place);
            self.places.len() as PlaceId - 1
        })
    }

    /// Index of the place of a chain of call sites, innermost line first; adds new places to the table.
    pub fn chain<'a>(&mut self, chain: impl DoubleEndedIterator<Item = (&'a str, u32)>) -> Option<PlaceId> {
        chain.rev().fold(None, |caller, (file, line)| Some(self.intern(file, line, caller)))
    }

    /// The files, as the compiler named them, with `/` between folders.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The place with index `id`.
    pub fn get(&self, id: PlaceId) -> Place {
        self.places[id as usize]
    }

    /// File and line of the place with index `id`.
    pub fn line(&self, id: PlaceId) -> (&str, u32) {
        let place = self.get(id);
        (&self.files[place.file as usize], place.line)
    }

    fn file(&mut self, name: &str) -> u32 {
        let name = name.replace('\\', "/");
        if let Some(&number) = self.file_numbers.get(&name) {
            return number;
        }
        let number = self.files.len() as u32;
        self.files.push(name.clone());
        self.file_numbers.insert(name, number);
        number
    }
}

/// Serialises as `[file, line, caller]`, with −1 for no caller.
fn as_triples<S: serde::Serializer>(places: &[Place], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(places.len()))?;
    for place in places {
        let caller = place.inlined_at.map_or(-1, i64::from);
        list.serialize_element(&(place.file, place.line, caller))?;
    }
    list.end()
}
