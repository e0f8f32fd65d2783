//! Upload of weights from the file to the device.
//!
//! All threads read, check and repack a piece of a buffer, where the device copies it from, while the device copies the
//! piece before. The slower activity determines the time.

use std::ops::Range;
use std::time::{Duration, Instant};

use bespoke_gguf::{Gguf, TensorData, TensorInfo, check_finite};
use bespoke_kernels::plan::{BufferKind, Part, PartForm, Plan};
use bespoke_kernels::shape::rope_table;
use bespoke_kernels::weights::{FileRows, Layout, repack_tiles};
use rayon::ThreadPool;

use super::bind::PlanBuffers;
use super::{EngineError, Progress};
use crate::device::{self, Address, Device, MAX_STAGED_BYTES};

/// Time spent reading and repacking, and time spent waiting for copies to the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    pub repack: Duration,
    pub upload: Duration,
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
    // A pool of its own: a thread of the caller's pool could take another task that waits for this device.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).build()?;
    let mut weights = WeightUpload { gguf, device, pool, busy: Busy::default() };
    let start = Instant::now();
    let mut done = 0;
    for (buffer, &address) in plan.buffers.iter().zip(buffers.addresses()) {
        let bytes: Vec<u8> = match &buffer.kind {
            BufferKind::Weights { parts } => {
                // Bytes between parts are zeros.
                device.fill(address, buffer.bytes, 0)?;
                for part in parts {
                    weights.upload(&buffer.name, address, part, |bytes| {
                        done += bytes;
                        progress(done, total);
                    })?;
                }
                continue;
            }
            BufferKind::RopeTable { table } => {
                let table = rope_table(gguf, &plan.shape, *table, plan.params.context)?;
                table.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
            // Each page of the one sequence is the physical page of the same number.
            BufferKind::PageTable => (0..(buffer.bytes / 4) as u32).flat_map(u32::to_le_bytes).collect(),
            _ => continue,
        };
        upload_buffer(device, &buffer.name, address, &bytes)?;
    }
    buffers.clear_cache(plan, device)?;
    device.wait()?;
    let busy = weights.busy;
    Ok(Busy { upload: start.elapsed().saturating_sub(busy.repack), ..busy })
}

/// Upload of the parts of weight buffers.
struct WeightUpload<'a> {
    gguf: &'a Gguf,
    device: &'a dyn Device,
    /// Threads that repack.
    pool: ThreadPool,
    busy: Busy,
}

impl WeightUpload<'_> {
    /// Uploads a part of the weight buffer `buffer` at `address`; calls `uploaded` with the bytes of each piece.
    fn upload(
        &mut self,
        buffer: &str,
        address: Address,
        part: &Part,
        mut uploaded: impl FnMut(u64),
    ) -> Result<(), EngineError> {
        let info = self.gguf.require(&part.tensor)?;
        let rows =
            |start| Ok::<_, EngineError>(CheckedRows { info, data: self.gguf.tensor_data(info)?, start });
        match part.form {
            PartForm::Matrix { ty, rows: count, cols } => {
                let layout = Layout::new(ty, count, cols).expect("the shape was checked against the file");
                let rows = rows(u64::from(part.first_row) * layout.file_row_bytes() as u64)?;
                let tile_bytes = u64::from(layout.tile_bytes());
                let at_once = (MAX_STAGED_BYTES / tile_bytes.max(1)).max(1) as u32;
                for first in (0..layout.tiles).step_by(at_once as usize) {
                    let tiles = first..layout.tiles.min(first + at_once);
                    let (at, bytes) = (u64::from(first) * tile_bytes, tiles.len() as u64 * tile_bytes);
                    self.upload_piece(buffer, address.offset(part.offset + at), bytes, |out| {
                        repack_tiles(&layout, tiles.clone(), &rows, out)
                    })?;
                    uploaded(bytes);
                }
            }
            PartForm::Vector { elements } => {
                let (start, bytes) = (u64::from(part.first_row) * 4, u64::from(elements) * 4);
                let rows = rows(start)?;
                self.upload_piece(buffer, address.offset(part.offset), bytes, |out| {
                    out.copy_from_slice(rows.read(0..bytes, &mut Vec::new())?);
                    Ok(())
                })?;
                uploaded(bytes);
            }
        }
        Ok(())
    }

    /// Uploads bytes that `write` writes, on the threads of the pool.
    fn upload_piece(
        &mut self,
        buffer: &str,
        to: Address,
        bytes: u64,
        write: impl Fn(&mut [u8]) -> Result<(), bespoke_gguf::Error> + Sync,
    ) -> Result<(), EngineError> {
        let mut written = Ok(());
        let mut fill = |out: &mut [u8]| {
            let start = Instant::now();
            written = self.pool.install(|| write(out));
            self.busy.repack += start.elapsed();
        };
        let copied = self.device.upload_filled(to, bytes, &mut fill);
        written?;
        copied.map_err(|source| upload_error(buffer, bytes, source))
    }
}

fn upload_buffer(device: &dyn Device, name: &str, to: Address, bytes: &[u8]) -> Result<(), EngineError> {
    device.upload(to, bytes).map_err(|source| upload_error(name, bytes.len() as u64, source))
}

fn upload_error(buffer: &str, bytes: u64, source: device::Error) -> EngineError {
    EngineError::Upload { buffer: buffer.to_owned(), bytes, source: Box::new(source) }
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
