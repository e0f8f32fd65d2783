//! Copies between pageable host memory and the GPU, double-buffered through page-locked memory.
//!
//! The copy engine reaches the bandwidth of the link only with page-locked memory. While it copies one buffer, host
//! threads fill or drain the other; a single thread would be slower than the link.

use std::sync::Arc;

use rayon::prelude::*;

use super::super::{Address, MAX_STAGED_BYTES, Result};
use super::context::{Context, Event, PinnedMemory, Stream};
use super::driver::call;

/// Size of each buffer. Copying it takes a millisecond or less, so that filling the first and draining the last cost
/// little.
const CHUNK: usize = MAX_STAGED_BYTES as usize;
/// Bytes that a host thread copies at a time.
const PIECE: usize = 1 << 20;

/// The two page-locked buffers.
pub(super) struct Staging {
    context: Arc<Context>,
    buffers: [StagingBuffer; 2],
    /// Index of the buffer that was filled longer ago.
    older: usize,
}

/// A page-locked buffer of [`CHUNK`] bytes, with the event of its last copy.
struct StagingBuffer {
    memory: PinnedMemory,
    /// Event recorded after the last copy from or to the buffer.
    done: Event,
}

impl Staging {
    /// Allocates both page-locked buffers.
    pub fn new(context: &Arc<Context>) -> Result<Staging> {
        let buffer = || {
            let memory = PinnedMemory::new(context, "staging", CHUNK as u64, false)?;
            Ok::<_, super::super::Error>(StagingBuffer { memory, done: Event::new(context, false)? })
        };
        Ok(Staging { context: context.clone(), buffers: [buffer()?, buffer()?], older: 0 })
    }

    /// Copies `bytes` to the device address `to`, and waits for the copy.
    pub fn upload(&mut self, stream: &Stream, to: Address, bytes: &[u8]) -> Result<()> {
        for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
            let to = to.offset((index * CHUNK) as u64);
            self.upload_filled(stream, to, chunk.len(), &mut |buffer| copy(chunk, buffer))?;
        }
        stream.wait()
    }

    /// Starts copying `bytes` bytes, at most [`MAX_STAGED_BYTES`], to the device address `to` after `fill` has written them.
    pub fn upload_filled(
        &mut self,
        stream: &Stream,
        to: Address,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        let buffer = &mut self.buffers[self.older];
        self.older = 1 - self.older;
        buffer.done.wait()?;
        fill(&mut buffer.memory.bytes_mut()[..bytes]);
        let source = buffer.memory.as_ptr().cast();
        call!(
            self.context.driver,
            cuMemcpyHtoDAsync_v2(to.0, source, bytes, stream.raw()),
            "copying {bytes} bytes to {to} on the GPU"
        )?;
        buffer.done.record(stream)
    }

    /// Copies `out.len()` bytes from the device address `from` into `out`.
    pub fn download(&mut self, stream: &Stream, from: Address, out: &mut [u8]) -> Result<()> {
        let total = out.len();
        let mut pending: Option<(usize, &mut [u8])> = None;
        for (index, chunk) in out.chunks_mut(CHUNK).enumerate() {
            let buffer = &mut self.buffers[index % 2];
            // A failed upload may have left its copy in flight.
            buffer.done.wait()?;
            let source = from.offset((index * CHUNK) as u64).0;
            let target = buffer.memory.as_mut_ptr().cast();
            call!(
                self.context.driver,
                cuMemcpyDtoHAsync_v2(target, source, chunk.len(), stream.raw()),
                "copying {total} bytes from {from} on the GPU"
            )?;
            buffer.done.record(stream)?;
            if let Some(previous) = pending.replace((index, chunk)) {
                self.drain(previous)?;
            }
        }
        match pending {
            Some(last) => self.drain(last),
            None => stream.wait(),
        }
    }

    /// Waits until chunk `index` is in a staging buffer, and copies the buffer to `chunk`.
    fn drain(&self, (index, chunk): (usize, &mut [u8])) -> Result<()> {
        let buffer = &self.buffers[index % 2];
        buffer.done.wait()?;
        copy(&buffer.memory.bytes()[..chunk.len()], chunk);
        Ok(())
    }
}

/// Copies `from` to `to` on several threads.
fn copy(from: &[u8], to: &mut [u8]) {
    if from.len() <= PIECE {
        to.copy_from_slice(from);
    } else {
        to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE)).for_each(|(to, from)| to.copy_from_slice(from));
    }
}
