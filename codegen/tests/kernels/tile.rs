//! Tiles with narrow rows, loaded through a pipeline.
//!
//! PTX and SASS instructions (sm_90, without NOP) of a warp that loads 16 tiles of 128 rows of 32 bytes:
//!
//! | copies | PTX | SASS |
//! | --- | ---: | ---: |
//! | `copy` for each row, 2 of 32 lanes | 989 | 730 |
//! | `copy_rows`, all lanes | 155 | 148 |

use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

use super::numbers;

const ROWS: u32 = 128;
const COLUMNS: u32 = 8;

/// Sums of the rows of a matrix of 128 rows and `k` columns: warp 0 loads tiles of 8 columns, four warps add them up.
#[kernel(threads = 160)]
fn row_sums(
    from: Ptr<Global, u32>,
    to: Ptr<Global, u32>,
    k: Val<u32>,
    rows: Val<u32>,
    each_row: bool,
    filled: bool,
) {
    let copy = PipelineCopy::Async { threads: 32 };
    let shape =
        PipelineShape { stages: 2, stage_bytes: ROWS * COLUMNS * 4, consumers: Consumers::Warps(4), copy };
    let ring = Pipeline::new(shape, shared_array(shape.bytes()), mbarrier_array(shape.barriers()));
    if thread_index() == 0 {
        ring.init();
    }
    barrier();
    let tile = RowsShape { rows: ROWS, row_bytes: COLUMNS * 4, stage_stride: COLUMNS * 4 };
    if warp_index() == 0 {
        let mut producer = ring.producer(lane());
        for first in (0..k).step_by(COLUMNS) {
            let source = from.at(first).cast::<u8>();
            producer.acquire(shape.stage_bytes);
            if each_row {
                for row in 0..ROWS {
                    producer.copy(row * COLUMNS * 4, source.byte_add(k * 4 * row), COLUMNS * 4, None);
                }
            } else if filled {
                producer.copy_rows_filled(0, source, k * 4, tile, (rows, (k - first) * 4));
            } else {
                producer.copy_rows(0, source, k * 4, tile);
            }
            producer.commit();
            producer.advance();
        }
    } else {
        let row = thread_index() - 32;
        let mut consumer = ring.consumer();
        let mut sum = val(0u32);
        for _ in (0..k).step_by(COLUMNS) {
            consumer.wait();
            let words = consumer.data().cast::<u32>().at(row * COLUMNS);
            for column in 0..COLUMNS {
                sum += words.at(column).load();
            }
            consumer.release();
            consumer.advance();
        }
        to.at(row).store(sum);
    }
}

/// Compares the kernel's sums with the host's.
fn check(kernel: &Kernel, (rows, k): (u32, u32)) {
    let from: Vec<u32> = numbers((rows * k) as usize).collect();
    let launch = Launch::of(kernel).buffer(&from).uninitialised::<u32>(ROWS as usize).value(k).value(rows);
    let sums = launch.run().expect("no findings").buffer::<u32>(1);
    let row = |row: u32| from.iter().skip((row * k) as usize).take(k as usize).sum::<u32>();
    assert_eq!(
        sums,
        (0..ROWS).map(|i| if i < rows { row(i) } else { 0 }).collect::<Vec<_>>(),
        "{rows} × {k}"
    );
}

#[test]
fn all_ways_to_copy_a_tile_are_right() {
    for (each_row, filled) in [(true, false), (false, false), (false, true)] {
        check(&row_sums(each_row, filled).expect("the kernel records"), (ROWS, 48));
    }
}

#[test]
fn edges_are_zero() {
    let kernel = row_sums(false, true).expect("the kernel records");
    for size in [(ROWS, 44), (77, 20), (1, 4)] {
        check(&kernel, size);
    }
}

#[test]
fn all_lanes_copy() {
    let copies = |each_row| {
        let kernel = row_sums(each_row, false).expect("the kernel records");
        let ptx = kernel.compile(Target::Sm90).expect("the kernel compiles").ptx;
        ptx.matches("cp.async.cg").count()
    };
    assert_eq!((copies(true), copies(false)), (128, 8));
}

/// A producer of bulk copies, misused.
#[kernel(threads = 32)]
fn of_bulk_copies(x: Ptr<Global, u8>, rows: bool) {
    let shape = PipelineShape {
        stages: 1,
        stage_bytes: 256,
        consumers: Consumers::Warps(1),
        copy: PipelineCopy::Bulk,
    };
    let producer = Pipeline::new(shape, shared_array(256), mbarrier_array(2)).producer(0);
    if rows {
        producer.copy_rows(0, x, 64, RowsShape { rows: 8, row_bytes: 32, stage_stride: 32 });
    } else {
        producer.data().store(1);
    }
}

#[test]
fn mistakes_say_what_to_write() {
    let message = |rows| of_bulk_copies(rows).expect_err("an error").message;
    assert_eq!(message(true), "bulk copies have no rows: use `PipelineCopy::Async`, or `copy` for each row");
    assert_eq!(message(false), "threads cannot write into a stage of bulk copies: use `PipelineCopy::Async`");
}
