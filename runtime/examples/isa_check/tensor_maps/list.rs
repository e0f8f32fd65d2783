//! Parser of `tensor_maps.txt`, the list of copies of boxes of tensors.

use bespoke_codegen::launch::DriverArguments;

use super::super::forms::{expand, lines};

/// Text of the list.
const FORMS: &str = include_str!("../tensor_maps.txt");

/// Element types in the order of `CUtensorMapDataType`, with their sizes in bytes.
const TYPES: [(&str, u64); 10] = [
    ("u8", 1),
    ("u16", 2),
    ("u32", 4),
    ("s32", 4),
    ("u64", 8),
    ("s64", 8),
    ("f16", 2),
    ("f32", 4),
    ("f64", 8),
    ("bf16", 2),
];

/// Options of a form, and of its tensor and box.
const OPTIONS: [&str; 9] =
    ["type=", "interleave=", "swizzle=", "fill=", "l2=", "step=", "size=", "gap=", "box="];

/// A copy of the list, with all of its coordinates.
pub struct Form {
    /// Line of the list without alternatives.
    pub name: String,
    pub mnemonic: String,
    /// Type of the elements.
    pub element: String,
    /// Bytes of a slice, if the tensor is interleaved.
    slice: Option<u64>,
    /// Numbers of `cuda.h`.
    swizzle: u32,
    fill: u32,
    l2_promotion: u32,
    /// Sizes of the tensor and the box; along dimension 0 in bytes.
    size: Vec<u64>,
    tile: Vec<u32>,
    steps: Vec<u32>,
    strides: Vec<u64>,
    /// Coordinates of the boxes, in elements.
    pub coordinates: Vec<Vec<i32>>,
}

/// Number of a type in `cuda.h`, and its size in bytes.
fn element_type(name: &str) -> (u32, u64) {
    let at = TYPES.iter().position(|&(known, _)| known == name);
    let at = at.unwrap_or_else(|| panic!("`{name}` is no type of elements of `tensor_maps.txt`"));
    (at as u32, TYPES[at].1)
}

/// Value of an option among words `name=value`.
fn option<'l>(words: &'l str, name: &str) -> Option<&'l str> {
    words
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .find(|&(key, _)| key == name)
        .map(|(_, value)| value)
}

/// Numbers between commas.
fn numbers<N: std::str::FromStr>(text: &str) -> Vec<N> {
    text.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

impl Form {
    fn new(name: &str, shape: &str, coordinates: &str) -> Form {
        let mut keys = name.split_whitespace().chain(shape.split_whitespace()).skip(1);
        let unknown = keys.find(|word| !OPTIONS.iter().any(|option| word.starts_with(option)));
        assert!(unknown.is_none(), "`{name}` has an unknown option: {unknown:?}");
        let list = |option_name: &str| {
            let found = option(shape, option_name).or_else(|| option(name, option_name));
            numbers::<u64>(found.unwrap_or_default())
        };
        let number = |option_name: &str| option(name, option_name).and_then(|number| number.parse().ok());
        let (size, gaps) = (list("size"), list("gap"));
        let mut stride = 1;
        let strides = size.iter().enumerate().map(|(dimension, size)| {
            stride *= size + gaps.get(dimension).unwrap_or(&0);
            stride
        });
        let element = option(name, "type").unwrap_or_default();
        let slice = number("interleave").map(u64::from);
        let coordinates = coordinates.split('|').map(|place| {
            let mut place: Vec<i32> = numbers(place);
            if let Some(first) = place.first_mut() {
                *first /= slice.unwrap_or(element_type(element).1) as i32;
            }
            place
        });
        let mut steps: Vec<u32> = numbers(option(name, "step").unwrap_or_default());
        steps.resize(size.len(), 1);
        Form {
            name: name.to_string(),
            mnemonic: name.split(' ').next().unwrap_or_default().to_string(),
            element: element.to_string(),
            slice,
            swizzle: number("swizzle").and_then(u32::checked_ilog2).map_or(0, |power| power - 4),
            fill: u32::from(option(name, "fill") == Some("nan")),
            l2_promotion: number("l2").and_then(u32::checked_ilog2).map_or(0, |power| power - 5),
            strides: strides.collect(),
            tile: list("box").iter().map(|&elements| elements as u32).collect(),
            steps,
            coordinates: coordinates.collect(),
            size,
        }
    }

    /// Number of the type in `cuda.h`, and its size in bytes.
    fn element(&self) -> (u32, u64) {
        element_type(&self.element)
    }

    /// Arguments of the tensor map of a tensor at an address.
    pub fn map(&self, address: u64) -> DriverArguments {
        let (data_type, bytes) = self.element();
        let unit = self.slice.unwrap_or(bytes);
        let mut sizes = self.size.clone();
        sizes[0] /= unit;
        let mut tile = self.tile.clone();
        tile[0] /= unit as u32;
        DriverArguments {
            data_type,
            address,
            sizes,
            strides: self.strides[..self.size.len() - 1].to_vec(),
            tile,
            steps: self.steps.clone(),
            interleave: self.slice.map_or(0, |bytes| (bytes / 16) as u32),
            swizzle: self.swizzle,
            l2_promotion: self.l2_promotion,
            fill: self.fill,
        }
    }

    /// Size of the tensor's memory, with gaps.
    pub fn tensor_bytes(&self) -> usize {
        self.strides.last().map_or(0, |&bytes| bytes as usize)
    }

    /// Bytes of the box, and of the shared memory that it covers: rows shorter than the swizzle begin at multiples of it.
    fn extent(&self) -> [usize; 2] {
        // Steps along dimension 0 are ignored, unless the tensor is interleaved; then a box has one slice along the last dimension but
        // one.
        let count = |(size, &step): (u32, &u32)| size.div_ceil(step);
        let rank = self.size.len();
        let one = self.slice.map(|_| rank - 2);
        let rows = self.tile.iter().copied().zip(&self.steps).enumerate().skip(1);
        let rows = rows.filter(|(dimension, _)| Some(*dimension) != one).map(|(_, both)| count(both));
        let first = match self.slice {
            Some(bytes) => count((self.tile[0] / bytes as u32, &self.steps[0])) * bytes as u32,
            None => self.tile[0],
        };
        let (row, rows) = (first as usize, rows.product::<u32>() as usize);
        let span = if self.slice.is_none() && self.swizzle > 0 { 16 << self.swizzle } else { row };
        [rows * row, rows * span]
    }

    /// Bytes of the box, which its mbarrier counts.
    pub fn box_bytes(&self) -> usize {
        self.extent()[0]
    }

    /// Bytes of shared memory that the box covers, with gaps between rows shorter than the swizzle.
    pub fn shared_bytes(&self) -> usize {
        self.extent()[1]
    }

    pub fn loads(&self) -> bool {
        self.mnemonic.contains("mbarrier::complete_tx")
    }

    pub fn reduces(&self) -> bool {
        self.mnemonic.starts_with("cp.reduce")
    }

    /// Type of the words that are compared, and its size in bytes: the type of the elements for reductions, else bits.
    pub fn result(&self) -> (&str, usize) {
        match self.element.as_str() {
            _ if !self.reduces() => ("b32", 4),
            "f16" => ("f16x2", 4),
            "bf16" => ("bf16x2", 4),
            other => (other, self.element().1.max(4) as usize),
        }
    }
}

/// Name and forms of each family, with the heading of its section.
pub fn families() -> impl Iterator<Item = (&'static str, &'static str, Vec<Form>)> {
    lines(FORMS).map(|(group, line)| {
        let mut parts = line.split(';').map(str::trim);
        let [name, shape, coordinates] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let forms = expand(name).iter().map(|name| Form::new(name, shape, coordinates)).collect();
        (group, name, forms)
    })
}
