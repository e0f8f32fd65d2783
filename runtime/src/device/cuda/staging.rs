//! Copies between ordinary host memory and the GPU, through two page-locked buffers in turn.
//!
//! The copy engine reaches the link's speed only from page-locked memory. While it moves one buffer, the host's
//! threads fill or empty the other; one thread alone would be slower than the link.

use std::sync::Arc;

use rayon::prelude::*;

use super::super::{Address, Result};
use super::context::{Context, Event, PinnedMemory, Stream};
use super::driver::call;

/// Bytes of each buffer: a millisecond or less of the link, so starting and ending cost little.
const CHUNK: usize = 32 << 20;
/// Bytes a host thread copies at a time.
const PIECE: usize = 1 << 20;

/// The two buffers.
pub(super) struct Staging {
    context: Arc<Context>,
    slots: [Slot; 2],
}

struct Slot {
    memory: PinnedMemory,
    /// Recorded after the last copy from or to `memory`.
    done: Event,
}

impl Staging {
    pub fn new(context: &Arc<Context>) -> Result<Staging> {
        let slot = || {
            let memory = PinnedMemory::new(context, "staging", CHUNK as u64, false)?;
            Ok::<_, super::super::Error>(Slot { memory, done: Event::new(context, false)? })
        };
        Ok(Staging { context: context.clone(), slots: [slot()?, slot()?] })
    }

    /// Copies `bytes` to the GPU and waits for it.
    pub fn upload(&mut self, stream: &Stream, to: Address, bytes: &[u8]) -> Result<()> {
        for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
            let slot = &mut self.slots[index % 2];
            slot.done.wait()?;
            copy(chunk, &mut slot.memory.bytes_mut()[..chunk.len()]);
            let target = to.offset((index * CHUNK) as u64).0;
            let source = slot.memory.as_ptr().cast();
            call!(
                self.context.driver,
                cuMemcpyHtoDAsync_v2(target, source, chunk.len(), stream.raw()),
                "copying {} bytes to {to} on the GPU",
                bytes.len()
            )?;
            slot.done.record(stream)?;
        }
        stream.wait()
    }

    /// Copies from the GPU into `out`.
    pub fn download(&mut self, stream: &Stream, from: Address, out: &mut [u8]) -> Result<()> {
        let total = out.len();
        let mut ahead: Option<(usize, &mut [u8])> = None;
        for (index, chunk) in out.chunks_mut(CHUNK).enumerate() {
            let slot = &mut self.slots[index % 2];
            // An upload that failed half-way may have left its copy in flight.
            slot.done.wait()?;
            let source = from.offset((index * CHUNK) as u64).0;
            let target = slot.memory.as_mut_ptr().cast();
            call!(
                self.context.driver,
                cuMemcpyDtoHAsync_v2(target, source, chunk.len(), stream.raw()),
                "copying {total} bytes from {from} on the GPU"
            )?;
            slot.done.record(stream)?;
            if let Some(former) = ahead.replace((index, chunk)) {
                self.empty(former)?;
            }
        }
        match ahead {
            Some(last) => self.empty(last),
            None => stream.wait(),
        }
    }

    /// Waits for the copy into the slot of chunk `index` and takes it out.
    fn empty(&self, (index, chunk): (usize, &mut [u8])) -> Result<()> {
        let slot = &self.slots[index % 2];
        slot.done.wait()?;
        copy(&slot.memory.bytes()[..chunk.len()], chunk);
        Ok(())
    }
}

/// Copies with as many threads as there are pieces; `from` may be a mapped file that faults in as it is read.
fn copy(from: &[u8], to: &mut [u8]) {
    if from.len() <= PIECE {
        to.copy_from_slice(from);
    } else {
        to.par_chunks_mut(PIECE).zip(from.par_chunks(PIECE)).for_each(|(to, from)| to.copy_from_slice(from));
    }
}
