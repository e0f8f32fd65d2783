//! Upload of weights from the file to the device.
//!
//! A pool of threads reads, checks and repacks buffers, while the caller's thread uploads buffers that are already
//! repacked. The slower activity determines the time.

use std::ops::Range;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bespoke_gguf::{Gguf, TensorData, TensorInfo, check_finite};
use bespoke_kernels::plan::{BufferKind, Part, PartForm, Plan};
use bespoke_kernels::shape::rope_table;
use bespoke_kernels::weights::{FileRows, Layout, repack_from};

use super::bind::PlanBuffers;
use super::{EngineError, Progress};
use crate::device::{Address, Device};

/// Number of buffers repacked ahead of the upload.
const REPACKED_AHEAD: usize = 2;

/// Time spent repacking, and time spent uploading; the two overlap.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    pub repack: Duration,
    pub upload: Duration,
}

/// A repacked weight buffer.
struct Packed<'a> {
    name: &'a str,
    address: Address,
    bytes: Vec<u8>,
    time: Duration,
}

/// Uploads the plan's weight buffers, the RoPE tables and the page table, and clears the KV cache.
pub(super) fn upload(
    plan: &Plan,
    buffers: &PlanBuffers,
    gguf: &Gguf,
    device: &dyn Device,
    progress: Progress<'_>,
) -> Result<Busy, EngineError> {
    let total = plan.bytes_where(|kind| matches!(kind, BufferKind::Weights { .. }));
    let weights =
        plan.buffers.iter().zip(buffers.addresses()).filter_map(|(buffer, &address)| match &buffer.kind {
            BufferKind::Weights { parts } => Some((buffer, address, parts.as_slice())),
            _ => None,
        });
    let mut busy = Busy::default();
    // A pool of its own: the threads of the caller's pool may all be here and wait for repacked buffers.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).build()?;
    pool.in_place_scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel::<Result<Packed<'_>, EngineError>>(REPACKED_AHEAD);
        scope.spawn(move |_| {
            for (buffer, address, parts) in weights {
                let start = Instant::now();
                let packed = pack(gguf, buffer.bytes, parts);
                let name = buffer.name.as_str();
                let packed = packed.map(|bytes| Packed { name, address, bytes, time: start.elapsed() });
                let failed = packed.is_err();
                // The receiver is dropped if an upload failed; the upload's error is returned.
                if sender.send(packed).is_err() || failed {
                    break;
                }
            }
        });
        let mut done = 0;
        for packed in receiver {
            let Packed { name, address, bytes, time } = packed?;
            let start = Instant::now();
            upload_buffer(device, name, address, &bytes)?;
            busy.repack += time;
            busy.upload += start.elapsed();
            done += bytes.len() as u64;
            progress(done, total);
        }
        Ok::<_, EngineError>(())
    })?;
    for (buffer, &address) in plan.buffers.iter().zip(buffers.addresses()) {
        let bytes: Vec<u8> = match buffer.kind {
            BufferKind::RopeTable { table } => {
                let table = rope_table(gguf, &plan.shape, table, plan.params.context)?;
                table.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
            // Each page of the one sequence is the physical page of the same number.
            BufferKind::PageTable => (0..(buffer.bytes / 4) as u32).flat_map(u32::to_le_bytes).collect(),
            _ => continue,
        };
        upload_buffer(device, &buffer.name, address, &bytes)?;
    }
    buffers.clear_cache(plan, device)?;
    Ok(busy)
}

fn upload_buffer(device: &dyn Device, name: &str, to: Address, bytes: &[u8]) -> Result<(), EngineError> {
    device.upload(to, bytes).map_err(|source| EngineError::Upload {
        buffer: name.to_owned(),
        bytes: bytes.len() as u64,
        source: Box::new(source),
    })
}

/// Reads, checks and repacks the tensors of a weight buffer.
fn pack(gguf: &Gguf, bytes: u64, parts: &[Part]) -> Result<Vec<u8>, EngineError> {
    let mut out = vec![0; bytes as usize];
    for part in parts {
        let info = gguf.require(&part.tensor)?;
        let to = &mut out[part.offset as usize..];
        match part.form {
            PartForm::Matrix { ty, rows, cols } => {
                let layout = Layout::new(ty, rows, cols).expect("the shape was checked against the file");
                let start = u64::from(part.first_row) * layout.file_row_bytes() as u64;
                let rows = CheckedRows { info, data: gguf.tensor_data(info)?, start };
                repack_from(&layout, &rows, &mut to[..layout.bytes as usize])?;
            }
            PartForm::Vector { elements } => {
                let (start, bytes) = (u64::from(part.first_row) * 4, u64::from(elements) * 4);
                let rows = CheckedRows { info, data: gguf.tensor_data(info)?, start };
                to[..bytes as usize].copy_from_slice(rows.read(0..bytes, &mut Vec::new())?);
            }
        }
    }
    Ok(out)
}

/// A tensor's data from byte `start` on; numbers that are not finite are errors.
struct CheckedRows<'a> {
    info: &'a TensorInfo,
    data: TensorData<'a>,
    start: u64,
}

impl FileRows for CheckedRows<'_> {
    type Error = bespoke_gguf::Error;

    fn read<'a>(&'a self, range: Range<u64>, buffer: &'a mut Vec<u8>) -> Result<&'a [u8], Self::Error> {
        let start = self.start + range.start;
        let bytes = self.data.read(start..self.start + range.end, buffer)?;
        check_finite(self.info, start, bytes)?;
        Ok(bytes)
    }
}
