//! State that Rust keeps outside of the variables of recorded code: recording a program fails with an error that names the lines
//! (`refused`), or the program gives right results (`accepted`). `codegen/STATE.md` lists them.

mod accepted;
mod refused;

use std::collections::BTreeSet;

use bespoke_codegen::prelude::*;

#[derive(Clone, Copy, Carry)]
struct Tile {
    sum: Val<u32>,
    #[carry(skip)]
    rows: u32,
}

impl Tile {
    fn set_rows(&mut self, rows: u32) {
        self.rows = rows;
    }
    fn clear(&mut self, value: Val<u32>) {
        self.sum = value;
    }
}

#[test]
fn the_table_of_ways_has_every_test() {
    let (_, table) = include_str!("../../../STATE.md").split_once("## Ways to escape").expect("the table");
    let table = table.split("\n# ").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.split(" | ").nth(2));
    let names = |cell: &'static str| cell.split('`').skip(1).step_by(2);
    let own = rows.clone().filter_map(|cell| cell.split("ui ").next()).flat_map(names);
    let ui = rows.filter_map(|cell| cell.split_once("ui ")).flat_map(|(_, cell)| names(cell));

    let source = concat!(include_str!("refused.rs"), include_str!("accepted.rs"));
    let name = |line: &'static str| {
        let test = line.strip_suffix("(x, a, b) {").or(line.strip_suffix("(x, n) {"));
        test.or(line.strip_prefix("fn compile_time").map(|_| &line[3..line.len() - 4])).map(str::trim)
    };
    let tests: BTreeSet<&str> = source.lines().filter_map(name).collect();
    assert_eq!(own.collect::<BTreeSet<&str>>(), tests);
    let cases = [include_str!("../../ui/unsupported.rs"), include_str!("../../ui/variables.rs")].concat();
    for case in ui {
        assert!(cases.contains(&format!("mod {case} {{")), "no case {case} in tests/ui");
    }
}
