//! Division of the rows of a step among the CTAs of attention: which row a CTA has, and which of the row's runs of pages.
//!
//! If the CTAs of a step all fit the GPU at once, each row has `run_blocks` of them. CTAs without pages wait and end.
//!
//! Otherwise a launch of [`attention_shares()`] divides the CTAs of a block of query heads once for all layers, by the rows'
//! numbers of runs. The CTAs of a row follow each other, and those without a row are the last of the grid. A CTA without work
//! occupies a multiprocessor until the launch before has ended, so in another order CTAs with work would start only then.
//!
//! - With a CTA for each possible run (`run_blocks` equals `splits`), a row has as many CTAs as runs, if those of all rows run
//!   at once. If not, each row has `run_blocks`.
//! - With fewer CTAs than possible runs, each row has at least one CTA, and at most one for each run; the other CTAs go to the
//!   rows in proportion to their numbers of runs. So a long sequence among short ones has more CTAs than they have. If there
//!   are more runs in all than resident CTAs (`at_once`; 1.25 times as many, if `at_once` is at least twice the number of rows), a
//!   row whose runs have no more than `min_pages` pages has at most ⌈runs / 2⌉ CTAs.
//!
//! The table of shares is u32 `[CTA][WORDS]`:
//!
//! | word | contents |
//! | --- | --- |
//! | 0 | index of the row; the number of rows if the CTA has no work. The other words are zero then |
//! | 1 | index of the first of the CTA's runs |
//! | 2 | number n of CTAs of the row. This CTA attends to the runs first, first + n, first + 2n, … |
//! | 3 | the row's position |
//! | 4 | 1 if the row exists, else 0. A row that does not exist has one CTA, which clears its output |
//! | 5 | index in the page table of the sequence's first page, as in the row's record |
//! | 6 | physical page of the first page of the first run; zero if the run does not exist |
//! | 7 | zero |

use bespoke_codegen::prelude::*;
use serde::{Deserialize, Serialize};

use super::shape::{AttentionShape, PAGE};
use crate::kernels::sample::warp_scan_words;
use crate::kernels::state;

/// Number of words of a share.
const WORDS: u32 = 8;

/// Warps per CTA of [`attention_shares()`]; each computes one share.
const WARPS: u32 = 4;

/// Compile-time parameters of [`attention_shares()`], with the meaning of those of [`AttentionShape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharesShape {
    /// Number of rows of the step.
    pub tokens: u32,
    /// Sliding window, in positions.
    pub window: Option<u32>,
    /// Maximum number of splits of the context.
    pub splits: u32,
    /// CTAs for each row and block of query heads, on average.
    pub run_blocks: u32,
    /// CTAs for each block of query heads that the GPU runs at once.
    pub at_once: u32,
    /// Minimum number of pages per split.
    pub min_pages: u32,
}

impl SharesShape {
    /// The division of the rows of `attention`, if its CTAs are divided by the lengths of the rows' contexts.
    pub fn of(attention: &AttentionShape) -> Option<SharesShape> {
        let &AttentionShape { tokens, window, splits, run_blocks, min_pages, .. } = attention;
        attention.at_once.map(|at_once| SharesShape {
            tokens,
            window,
            splits,
            run_blocks,
            at_once,
            min_pages,
        })
    }

    /// Number of CTAs of attention for each block of query heads.
    pub fn ctas(&self) -> u32 {
        self.tokens * self.run_blocks
    }

    /// Size of the table of shares, in words of 32 bits.
    pub fn words(&self) -> u32 {
        self.ctas() * WORDS
    }

    /// Number of CTAs of [`attention_shares()`].
    pub fn grid(&self) -> u32 {
        self.ctas().div_ceil(WARPS)
    }

    /// Threads per CTA of [`attention_shares()`].
    pub fn threads(&self) -> u32 {
        WARPS * WARP
    }
}

/// The runs of pages into which the context of a row is divided.
#[derive(Clone, Copy)]
pub(super) struct Runs {
    /// Number of runs; 0 if the row does not exist.
    pub count: Val<u32>,
    /// The first position of the window; none without a window.
    pub window_start: Option<Val<u32>>,
    /// Number of pages to which the token attends.
    pub pages: Val<u32>,
    /// Pages per run; the last run may have fewer.
    pub run_pages: Val<u32>,
}

impl Runs {
    /// The runs of a token at `position`; none unless its row `exists`. They divide the pages of the `window`: at most `splits`
    /// runs of at least `min_pages` pages.
    pub fn of(
        position: Val<u32>,
        exists: Val<bool>,
        window: Option<u32>,
        [splits, min_pages]: [u32; 2],
    ) -> Runs {
        let all_pages = position / PAGE + 1;
        let window_start = window.map(|window| position - position.min(window - 1));
        let pages = window_start.map_or(all_pages, |start| all_pages - start / PAGE);
        let pages = select(exists, pages, 0u32);
        let run_pages = ((pages + (splits - 1)) / splits).max(min_pages);
        Runs { count: (pages + run_pages - 1) / run_pages, window_start, pages, run_pages }
    }

    /// Index in the sequence of the first page of run `run`.
    pub fn first_page(&self, run: Val<u32>) -> Val<u32> {
        let within = run * self.run_pages;
        self.window_start.map_or(within, |start| within + start / PAGE)
    }
}

/// A CTA's row, and its share of the row's runs.
///
/// A CTA reads the row's record, or the table of shares, before earlier launches are known to have completed. So the QKV launch
/// must have waited before it lets its successor start (`Trigger::AfterWait` or `Trigger::AfterLoads`).
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Index of the row; the number of rows if the CTA has no work.
    pub row: Val<u32>,
    /// The first of the CTA's runs. Without a table of shares, it may not exist.
    pub first: Val<u32>,
    /// Number n of CTAs of the row: the CTA has the runs first, first + n, …
    pub ctas: Val<u32>,
    /// The row's position.
    pub position: Val<u32>,
    /// Whether the row exists.
    pub exists: Val<bool>,
    /// Index in the page table of the sequence's first page.
    pub pages: Val<u32>,
    /// Physical page of the first page of the first run, if it is known.
    pub page: Option<Val<u32>>,
}

impl Share {
    /// The share of this CTA of the row along z, which has `run_blocks` CTAs. `state`: the rows' records.
    pub fn of_record(state: Ptr<Global, u32>, s: &AttentionShape) -> Share {
        let row = if s.tokens == 1 { val(0u32) } else { block_index_z() };
        let record = state::record(state, row, s.tokens);
        Share {
            row,
            first: block_index_y(),
            ctas: val(s.run_blocks),
            position: state::position(record),
            exists: state::exists(record, val(0u32)),
            pages: record.at(state::PAGES).load(),
            page: None,
        }
    }

    /// The share of this CTA in the table `shares`.
    #[device]
    pub fn load(shares: Ptr<Global, u32>) -> Share {
        let share = shares.at(block_index_y() * WORDS);
        let [row, first, ctas, position] = share.load_vector();
        let [exists, pages, page, _] = share.at(4).load_vector();
        Share { row, first, ctas, position, exists: exists != 0, pages, page: Some(page) }
    }
}

/// Divides the rows of a step among the CTAs of attention, for each block of query heads alike.
///
/// `page_table` as in [`super::attention()`]; `state`, the rows' records: see [`super::super::state`]; `shares`, the table of
/// shares, has [`SharesShape::words`] words, aligned to 16 bytes.
#[kernel(threads = s.threads())]
pub fn attention_shares(
    page_table: Ptr<Global, u32>,
    state: Ptr<Global, u32>,
    shares: Ptr<Global, u32>,
    s: &SharesShape,
) {
    let cta = block_index() * WARPS + warp_index();
    let [row, first, ctas] = row_of(cta, state, s);
    if (cta < s.ctas()) & (lane() == 0) {
        let (mut place, mut context) = ([val(s.tokens), val(0u32), val(0u32), val(0u32)], [val(0u32); 4]);
        if row < s.tokens {
            let record = state.at(row * state::WORDS);
            let (position, pages) = (state::position(record), record.at(state::PAGES).load());
            let exists = state::exists(state, row);
            place = [row, first, ctas, position];
            let runs = Runs::of(position, exists, s.window, [s.splits, s.min_pages]);
            let mut page = val(0u32);
            if first < runs.count {
                page = page_table.at(pages + runs.first_page(first)).load();
            }
            context = [select(exists, 1u32, 0u32), pages, page, val(0u32)];
        }
        let share = shares.at(cta * WORDS);
        share.store_vector(place);
        share.at(4).store_vector(context);
    }
}

/// The row of CTA `cta`, the CTA's index among those of the row, and their number. Each lane has consecutive rows.
#[device]
fn row_of(cta: Val<u32>, state: Ptr<Global, u32>, s: &SharesShape) -> [Val<u32>; 3] {
    let rows_per_lane = s.tokens.div_ceil(WARP);
    let rows: Vec<_> =
        (0..rows_per_lane).map(|i| RowRuns::of_row(state, lane() * rows_per_lane + i, s)).collect();
    let ctas = ctas_of_rows(&rows, s);
    let of_lane = sum_of(&ctas);
    let mut end = warp_scan_words(of_lane) - of_lane;
    let (mut row, mut ends) = (val(0u32), vec![]);
    for &ctas in &ctas {
        end += ctas;
        ends.push(end);
        row += ballot(end <= cta).count_ones();
    }
    let ctas = of_row(&ctas, row);
    [row, cta + ctas - of_row(&ends, row), ctas]
}

/// The runs of a row.
#[derive(Clone, Copy)]
struct RowRuns {
    /// Number of runs, or 1 if the row does not exist, for the CTA that clears its output; 0 beyond the last row.
    count: Val<u32>,
    /// Minimum number of runs of a CTA if the GPU does not run all CTAs at once: 2 if the runs have no more than `min_pages`
    /// pages, else 1.
    min_runs: Val<u32>,
}

impl RowRuns {
    /// The runs of row `row`.
    #[device]
    fn of_row(state: Ptr<Global, u32>, row: Val<u32>, s: &SharesShape) -> RowRuns {
        let (mut count, mut min_runs) = (val(0u32), val(1u32));
        if row < s.tokens {
            let position = state::position(state.at(row * state::WORDS));
            let runs = Runs::of(position, state::exists(state, row), s.window, [s.splits, s.min_pages]);
            count = runs.count.max(1);
            min_runs = select(runs.run_pages == s.min_pages, 2u32, 1u32);
        }
        RowRuns { count, min_runs }
    }
}

/// Numbers of CTAs of this lane's rows, which have the runs `rows`. The sum over all lanes is at most [`SharesShape::ctas`].
#[device]
fn ctas_of_rows(rows: &[RowRuns], s: &SharesShape) -> Vec<Val<u32>> {
    let runs: Vec<_> = rows.iter().map(|row| row.count).collect();
    let all = redux_add(sum_of(&runs));
    if s.run_blocks == s.splits {
        // If not all CTAs with work run at once, each row gets `splits` CTAs. The ones without work then delay some CTAs
        // with work, so that these do not load pages while QKV loads weights.
        return runs.iter().map(|&runs| select(all > s.at_once, s.splits, runs)).collect();
    }
    // CTAs beside the first one of each row, and whether a row has at least `min_runs` for each CTA.
    let (mut others, mut has_least) = (val(s.ctas() - s.tokens), all > s.at_once);
    if s.at_once >= 2 * s.tokens {
        // A few more runs than resident CTAs would be a nearly empty last wave, so some CTAs get several runs
        // instead.
        let few_more = (all > s.at_once) & (all <= s.at_once + s.at_once / 4);
        others = select(few_more, s.at_once - s.tokens, others);
        has_least &= !few_more;
    }
    let ctas = |row: &RowRuns| {
        // A CTA with two short runs prepares the query once, and loads pages of the second while it attends to the first.
        let least = select(has_least, row.min_runs, 1u32);
        ((row.count + (least - 1)) / least).min(row.count * others / all + 1)
    };
    rows.iter().map(ctas).collect()
}

/// Value of row `row`, broadcast from the lane that holds it. Each lane holds the `values` of consecutive rows.
#[device]
fn of_row(values: &[Val<u32>], row: Val<u32>) -> Val<u32> {
    let rows_per_lane = values.len() as u32;
    let mut of_row = shuffle_lane(values[0], row / rows_per_lane);
    for i in 1..rows_per_lane {
        let other = shuffle_lane(values[i as usize], row / rows_per_lane);
        of_row = select(row % rows_per_lane == i, other, of_row);
    }
    of_row
}

fn sum_of(values: &[Val<u32>]) -> Val<u32> {
    values[1..].iter().fold(values[0], |sum, &value| sum + value)
}
