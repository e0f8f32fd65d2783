//! Buffers in the device's memory, and the bytes of launch arguments.

use std::collections::BTreeMap;

use bespoke_emulator::{Kernel, Memory, TENSOR_MAP_BYTES};

use super::CheckError;
use super::expected::Prepared;
use super::launches::{Argument, Launches, POINTER, Pointer, Pointers, Within};
use super::tensor_map::TensorArgument;
use super::values::{Element, Number, hex};

/// A buffer in the device's memory.
pub(super) struct Placed {
    pub address: u64,
    pub bytes: u64,
}

/// The buffers by name.
pub(super) type Buffers<'a> = BTreeMap<&'a str, Placed>;

/// Allocates the buffers, and writes their initial contents with the pointers in them.
pub(super) fn allocate<'a>(
    memory: &Memory,
    launches: &Launches,
    first: &BTreeMap<&'a str, Prepared>,
) -> Result<Buffers<'a>, CheckError> {
    let place = |(&name, prepared): (&&'a str, &Prepared)| {
        (name, Placed { address: memory.alloc(name, prepared.bytes), bytes: prepared.bytes })
    };
    let buffers: Buffers<'a> = first.iter().map(place).collect();
    let write = |address: u64, bytes: &[u8]| {
        memory.write(address, bytes).map_err(|error| CheckError::Nothing(error.to_string()))
    };
    for (&name, Prepared { content, .. }) in first {
        let Placed { address, bytes } = buffers[name];
        if let Some(content) = content {
            write(address, content)?;
        }
        let Some(pointers) = launches.buffers.get(name).and_then(|buffer| buffer.pointers.as_ref()) else {
            continue;
        };
        let located = locate(pointers, bytes, &buffers);
        let located = located.map_err(|what| CheckError::launches(format!("buffer `{name}`"), what))?;
        for (offset, pointer) in located {
            write(address + offset, &pointer.to_le_bytes())?;
        }
    }
    Ok(buffers)
}

/// Offset and value of each pointer in a structure of `size` bytes.
fn locate(pointers: &Pointers, size: u64, buffers: &Buffers<'_>) -> Result<Vec<(u64, u64)>, String> {
    let mut located: Vec<(u64, u64)> = Vec::new();
    for (offset, pointer) in pointers.at()? {
        if offset.checked_add(POINTER as u64).is_none_or(|end| end > size) {
            return Err(format!("`pointers` has a pointer at byte {offset} of {size} bytes"));
        }
        match located.last() {
            Some(&(before, _)) if before + POINTER as u64 > offset => {
                return Err(format!("`pointers` has pointers at bytes {before} and {offset}, which overlap"));
            }
            _ => located.push((offset, address(pointer, buffers)?)),
        }
    }
    Ok(located)
}

/// The address that a pointer of the launch file stands for.
fn address(pointer: &Pointer, buffers: &Buffers<'_>) -> Result<u64, String> {
    let (name, offset) = match pointer {
        Pointer::Buffer(name) => (name, 0),
        Pointer::Within(within) => (&within.buffer, within.offset),
        Pointer::Address(address) => return Ok(*address),
    };
    let Some(Placed { address, bytes }) = buffers.get(name.as_str()) else {
        let known = buffers.keys().copied().collect::<Vec<_>>().join(", ");
        return Err(format!("there is no buffer `{name}`; the buffers: {known}"));
    };
    match offset <= *bytes {
        true => Ok(address + offset),
        false => Err(format!("`offset` is {offset}, but buffer `{name}` has {bytes} bytes")),
    }
}

/// The parameter block with the arguments of the first `count` parameters; the rest is zero.
pub(super) fn encode_all(
    kernel: &Kernel,
    count: usize,
    args: &[Argument],
    buffers: &Buffers<'_>,
) -> Result<Vec<u8>, String> {
    if count != args.len() {
        return Err(format!("{} args for {count} parameters", args.len()));
    }
    let mut params = vec![0; kernel.param_bytes() as usize];
    for (index, (param, argument)) in kernel.params().iter().zip(args).enumerate() {
        let bytes = encode(argument, param.ty, buffers)
            .map_err(|what| format!("argument {} (.{} {}): {what}", index + 1, param.ty, param.name))?;
        if bytes.len() != param.size as usize {
            let (given, wanted) = (bytes.len(), param.size);
            return Err(format!("argument {} ({}): {given} bytes for {wanted}", index + 1, param.name));
        }
        params[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    Ok(params)
}

/// The bytes of an argument for a parameter of PTX type `ty`.
fn encode(argument: &Argument, ty: &str, buffers: &Buffers<'_>) -> Result<Vec<u8>, String> {
    match argument {
        Argument::Pointer(pointer) => Ok(address(pointer, buffers)?.to_le_bytes().to_vec()),
        Argument::Bytes(given) => {
            let mut bytes = hex(&given.hex).ok_or("`hex` must be pairs of digits")?;
            let located = match &given.pointers {
                Some(pointers) => locate(pointers, bytes.len() as u64, buffers)?,
                None => Vec::new(),
            };
            for (offset, pointer) in located {
                bytes[offset as usize..][..POINTER].copy_from_slice(&pointer.to_le_bytes());
            }
            for (offset, map) in &given.maps {
                let place = offset
                    .parse()
                    .ok()
                    .and_then(|at: usize| bytes.get_mut(at..)?.get_mut(..TENSOR_MAP_BYTES));
                let place = place.ok_or_else(|| {
                    format!("a tensor map at `{offset}` is not inside the bytes: write the offset of {TENSOR_MAP_BYTES} of them")
                })?;
                place.copy_from_slice(&tensor_map(map, buffers)?);
            }
            Ok(bytes)
        }
        Argument::Tensor(map) => tensor_map(map, buffers),
        Argument::Number(number) => {
            let element =
                element(ty, *number).ok_or_else(|| "give its bytes as { hex = \"…\" }".to_owned())?;
            let what = number.value();
            element.encode(*number).ok_or_else(|| format!("{what} is not a value of this type"))
        }
    }
}

/// The bytes of a tensor map.
fn tensor_map(map: &TensorArgument, buffers: &Buffers<'_>) -> Result<Vec<u8>, String> {
    map.encode(address(&Pointer::Within(Within::of(map)), buffers)?)
}

/// Element type of a parameter, for a number; untyped `.b32` and `.b64` take the number's own type.
fn element(ty: &str, number: Number) -> Option<Element> {
    let float = matches!(number, Number::Float(_));
    Some(match ty {
        "u8" | "b8" => Element::U8,
        "s8" => Element::I8,
        "u16" | "b16" => Element::U16,
        "s16" => Element::I16,
        "b32" if float => Element::F32,
        "u32" | "b32" => Element::U32,
        "s32" => Element::I32,
        "b64" if float => Element::F64,
        "u64" | "b64" => Element::U64,
        "s64" => Element::I64,
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "f32" => Element::F32,
        "f64" => Element::F64,
        _ => return None,
    })
}
