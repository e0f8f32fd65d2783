//! The data of the page for the kernels of a folder.

use std::collections::BTreeMap;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::plan::StepKind;

use super::{Folder, FolderError, FolderIr, FolderKernel};
use crate::roofline::{Gpu, Unit};
use crate::stats::{changes, named_types};
use crate::{Graph, Inspection, KernelView, Listing, OnTarget, Places, Stats, Tools, Warps, sources};

impl Inspection {
    /// Data of the page for the kernels of a folder, called `title`, for a target. Every kernel must have its IR.
    pub fn of_folder(
        folder: &Folder,
        title: &str,
        target: Target,
        tools: &Tools,
    ) -> Result<Inspection, FolderError> {
        let (kernels, irs) = (folder.kernels(target, None, tools)?, folder.ir(target, None)?);
        let mut places = Places::new();
        let mut views = Vec::new();
        for (kernel, ir) in kernels.into_iter().zip(irs) {
            let mut targets = Vec::new();
            for other in folder.targets() {
                targets.extend(folder.kernels(other, Some(&kernel.name), tools)?.iter().map(on_target));
            }
            views.push(KernelView {
                warps: Warps::of(&ir.compiled.function, &mut places),
                ir: Listing::of_ir(&ir.compiled.function, &mut places),
                ptx: Listing::of_ptx(&kernel.ptx, &mut places),
                sass: kernel.sass.as_ref().map(|text| Listing::of_sass(text, &mut places)),
                stats: stats(kernel, &ir),
                targets,
            });
        }
        let sources = places.files().iter().map(|file| sources::find(file)).collect();
        Ok(Inspection {
            version: env!("CARGO_PKG_VERSION"),
            model: title.to_owned(),
            target,
            step: StepKind::Decode,
            rows: 1,
            context: 0,
            launches: 0,
            bytes_per_token: 0,
            has_ptxas: tools.ptxas.is_some(),
            kernels: views,
            graph: Graph::default(),
            gpus: Gpu::ALL,
            places,
            sources,
        })
    }
}

fn on_target(kernel: &FolderKernel) -> OnTarget {
    OnTarget {
        grid: kernel.grid.unwrap_or_default(),
        threads: kernel.block.iter().product(),
        shared: kernel.static_shared + kernel.dynamic_shared,
        usage: kernel.ptxas,
        occupancy: kernel.occupancy,
    }
}

fn stats(kernel: FolderKernel, ir: &FolderIr) -> Stats {
    Stats {
        roles: vec![kernel.name.clone()],
        name: kernel.name,
        summary: kernel.summary,
        target: kernel.target,
        step: StepKind::Decode,
        rows: 1,
        launches: 0,
        grid: kernel.grid.unwrap_or_default(),
        threads: kernel.block.iter().product(),
        dynamic_shared: kernel.dynamic_shared,
        bytes: 0,
        operations: 0,
        unit: Unit::F32,
        intensity: 0.0,
        roofline: BTreeMap::new(),
        params: named_types(ir.recorded.params()),
        constants: kernel.constants,
        report: ir.compiled.report.clone(),
        passes: changes(&ir.compiled.passes),
        ptxas: kernel.ptxas,
        occupancy: kernel.occupancy,
    }
}
