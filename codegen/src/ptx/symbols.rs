//! Names of a module's variables.

use std::collections::HashMap;

use crate::ir::{Function, Table};

/// Names of the tables and formats of a module's kernels. Equal tables of several kernels have one name, that of the
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
        let mut names = HashMap::new();
        for kernel in kernels {
            for (var, table) in &kernel.tables {
                let of_kernel = || Names {
                    table: format!("{}_{var}", kernel.name),
                    format: format!("{}_format{}", kernel.name, var.as_u32()),
                };
                names.entry(table).or_insert_with(of_kernel);
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
