//! Names of a module's variables.

use std::collections::{HashMap, HashSet};

use crate::ir::{Function, Table};

/// Names of the tables and formats of a module's kernels and functions. Equal tables of several kernels have one name, that of the
/// first kernel's table.
pub(super) struct Symbols<'a> {
    names: HashMap<&'a Table, Names>,
}

/// Names of a table in constant memory, and as the format of a `printf` in global memory.
struct Names {
    table: String,
    format: String,
}

impl<'a> Symbols<'a> {
    /// Names for the tables of these kernels.
    pub fn of(kernels: &[&'a Function]) -> Symbols<'a> {
        let (mut names, mut taken) = (HashMap::new(), HashSet::new());
        for kernel in kernels {
            for (var, table) in &kernel.tables {
                if names.contains_key(table) {
                    continue;
                }
                // Functions of several kernels may have one name and different tables.
                let mut owner = kernel.name.clone();
                while !taken.insert(format!("{owner}_{var}")) {
                    owner.push('_');
                }
                let format = format!("{owner}_format{}", var.as_u32());
                names.insert(table, Names { table: format!("{owner}_{var}"), format });
            }
        }
        Symbols { names }
    }

    /// Name of the table in constant memory.
    pub fn table(&self, table: &Table) -> &str {
        &self.names[table].table
    }

    /// Name of the format of a `printf`.
    pub fn format(&self, table: &Table) -> &str {
        &self.names[table].format
    }
}
