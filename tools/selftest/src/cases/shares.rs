//! Cases of the division of a step's rows among the CTAs of attention.

use bespoke_kernels::kernels::attention::{PAGE, SharesShape};
use bespoke_kernels::kernels::state::{Row, WORDS};
use bespoke_kernels::spec::KernelSpec;

use crate::case::{Case, Coordinates, Element, Want};
use crate::inputs::u32s;

/// Entries of the page table for each sequence.
const ENTRIES: u32 = 256;

/// A case for each kind of context: short ones of one length, a long one among short ones, all lengths and missing rows, no
/// rows at all.
pub(crate) fn attention_shares(s: &SharesShape) -> Vec<Case> {
    let rows = |position: fn(u32) -> Option<u32>| (0..s.tokens).map(position).collect::<Vec<_>>();
    vec![
        case(s, "rows of one length", &rows(|_| Some(130))),
        case(s, "a long row", &rows(|row| Some(if row == 1 { ENTRIES * PAGE - 1 } else { 7 * row }))),
        case(
            s,
            "rows of many lengths, some missing",
            &rows(|row| (row % 5 != 3).then_some(row * row * 3 + 61)),
        ),
        case(s, "no row", &rows(|_| None)),
    ]
}

/// A case of rows at `positions`; none for a row that does not exist.
fn case(s: &SharesShape, what: &str, positions: &[Option<u32>]) -> Case {
    let first_entry = |row: u32| (s.tokens - 1 - row) * ENTRIES;
    let physical_page = |entry: u32| entry * 7 + 3;
    let record = |(row, position): (u32, &Option<u32>)| {
        let position = *position;
        position.map_or([0; WORDS as usize], |position| {
            Row { position, pages: first_entry(row), chooses: true, ..Row::default() }.words()
        })
    };
    let records: Vec<u32> = (0..).zip(positions).flat_map(record).collect();
    let page_table: Vec<u32> = (0..s.tokens * ENTRIES).map(physical_page).collect();

    // Of each row the first page, pages in all, and pages a run.
    let runs: Vec<[u32; 3]> = positions
        .iter()
        .map(|position| {
            position.map_or([0, 0, 1], |position| {
                let first = s.window.map_or(0, |window| (position + 1).saturating_sub(window) / PAGE);
                let pages = position / PAGE + 1 - first;
                [first, pages, pages.div_ceil(s.splits).max(s.min_pages)]
            })
        })
        .collect();
    let counts: Vec<u32> = runs.iter().map(|[_, pages, of_run]| pages.div_ceil(*of_run).max(1)).collect();
    let all: u32 = counts.iter().sum();
    let few_more = s.at_once >= 2 * s.tokens && (s.at_once + 1..=s.at_once * 5 / 4).contains(&all);
    let most = if few_more { s.at_once } else { s.ctas() };
    let mut want = Vec::new();
    for (row, position) in positions.iter().enumerate() {
        let count = counts[row];
        let runs_of_cta = if all > s.at_once && !few_more && runs[row][2] == s.min_pages { 2 } else { 1 };
        let ctas = match s.run_blocks == s.splits {
            true if all > s.at_once => s.splits,
            true => count,
            false => count.div_ceil(runs_of_cta).min(1 + count * (most - s.tokens) / all),
        };
        for first in 0..ctas {
            let of_row = [row as u32, first, ctas];
            want.extend(of_row);
            want.extend(position.map_or([0; 5], |position| {
                let (entry, [first_page, _, run_pages]) = (first_entry(row as u32), runs[row]);
                let page = physical_page(entry + first_page + first * run_pages);
                [position, 1, entry, if first < counts[row] { page } else { 0 }, 0]
            }));
        }
    }
    let words = s.words() as usize;
    assert!(want.len() <= words, "{what} needs more CTAs than there are");

    let mut case = Case::new(what);
    let page_table = case.input("page_table", u32s(&page_table));
    let state = case.input("state", u32s(&records));
    let shares = case.output("shares", Element::U32, words);
    case.launch(KernelSpec::AttentionShares(*s), &[page_table, state, shares]);
    while want.len() < words {
        want.extend([s.tokens, 0, 0, 0, 0, 0, 0, 0]);
    }
    let place = Coordinates::Axes(vec![("CTA", words / 8), ("word", 8)]);
    case.expect(shares, place, Want::Exactly(Element::U32, u32s(&want)));
    case
}
