//! Lines of Rust that generated code comes from.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::SerializeSeq;

/// A place in [`Places`], by its index.
pub type PlaceId = u32;

/// A line of Rust, and the place that calls it where it is of an inlined function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index into [`Places::files`].
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
    /// The caller.
    pub inlined_at: Option<PlaceId>,
}

/// Every place that some code comes from, once. Stages of a kernel share it, so that equal places have equal numbers.
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
    /// No places.
    pub fn new() -> Places {
        Places::default()
    }

    /// The number of a line, and of the chain of calls that it was inlined through.
    pub fn intern(&mut self, file: &str, line: u32, inlined_at: Option<PlaceId>) -> PlaceId {
        let file = self.file(file);
        let place = Place { file, line, inlined_at };
        *self.numbers.entry(place).or_insert_with(|| {
            self.places.push(place);
            self.places.len() as PlaceId - 1
        })
    }

    /// A chain of calls, the innermost line first.
    pub fn chain<'a>(&mut self, chain: impl DoubleEndedIterator<Item = (&'a str, u32)>) -> Option<PlaceId> {
        chain.rev().fold(None, |caller, (file, line)| Some(self.intern(file, line, caller)))
    }

    /// The files, as the compiler named them, with `/` between folders.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// A place.
    pub fn get(&self, id: PlaceId) -> Place {
        self.places[id as usize]
    }

    /// File and line of a place.
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

/// `[file, line, caller]`, the caller −1 where there is none.
fn as_triples<S: serde::Serializer>(places: &[Place], serializer: S) -> Result<S::Ok, S::Error> {
    let mut list = serializer.serialize_seq(Some(places.len()))?;
    for place in places {
        let caller = place.inlined_at.map_or(-1, i64::from);
        list.serialize_element(&(place.file, place.line, caller))?;
    }
    list.end()
}
