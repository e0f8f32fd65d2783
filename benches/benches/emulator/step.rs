//! A decode plan bound to the emulator without the runtime, so that its instructions can be counted.

use bespoke_codegen::ptx::Target;
use bespoke_emulator::{LaunchConfig, Memory, Module, Options, ProgrammaticOrder, Stats, run};
use bespoke_kernels::emit;
use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::plan::{BufferKind, Plan, PlanParams};
use bespoke_kernels::shape::builtin;
use bespoke_kernels::spec::KernelSpec;

/// One launch of the plan, with its parameters encoded.
pub struct Bound {
    /// Label of the launch in the plan.
    pub label: String,
    kernel: usize,
    config: LaunchConfig,
    params: Vec<u8>,
    programmatic: bool,
}

/// A model's decode step, bound to memory of the emulator.
pub struct Step {
    modules: Vec<(String, Module)>,
    memory: Memory,
    state: u64,
    /// Launches in the plan's order.
    pub launches: Vec<Bound>,
}

impl Step {
    /// Builds the decode step of a built-in shape in its first mix, with weights of magnitude one.
    pub fn new(shape: &str) -> Step {
        let file = builtin().into_iter().find(|file| file.name == shape).expect("a built-in shape");
        let shape = file.with_mix(&file.mixes[0]).expect("one of its mixes");
        let plan = Plan::new(&shape, Target::Sm90, PlanParams::single(1024)).expect("a plan");
        let specs: Vec<KernelSpec> = plan.kernels.iter().map(|kernel| kernel.spec.clone()).collect();
        let emitted = emit::compile(&specs, Target::Sm90).expect("kernels");
        let module = |ptx: &str| Module::parse(ptx).expect("PTX that the emulator reads");
        let modules = plan.kernels.iter().zip(&emitted);
        let modules = modules.map(|(kernel, emitted)| (kernel.name.clone(), module(&emitted.compiled.ptx)));
        let modules = modules.collect();
        let memory = Memory::new();
        let mut state = 0;
        let mut addresses = Vec::new();
        for buffer in &plan.buffers {
            let at = memory.alloc(&buffer.name, buffer.bytes);
            match buffer.kind {
                // Bytes 0x3C to 0x3F: as f16 the values are from 1.06 to 1.98, as f32 from 0.01 to 1.
                BufferKind::Weights { .. } | BufferKind::RopeTable { .. } => {
                    let bytes =
                        (0..buffer.bytes as u32).map(|i| 0x3C | (i.wrapping_mul(0x9E37_79B9) >> 30) as u8);
                    memory.write(at, &bytes.collect::<Vec<u8>>()).expect("inside");
                }
                BufferKind::Activation => {}
                _ => memory.fill(at, buffer.bytes, 0).expect("inside"),
            }
            if buffer.kind == BufferKind::PageTable {
                let pages = (0..(buffer.bytes / 4) as u32).flat_map(u32::to_le_bytes);
                memory.write(at, &pages.collect::<Vec<u8>>()).expect("inside");
            }
            if buffer.kind == BufferKind::State {
                state = at;
            }
            addresses.push(at);
        }
        let launches = plan.launches.iter().map(|launch| Bound {
            label: launch.label.to_string(),
            kernel: launch.kernel,
            config: LaunchConfig {
                grid: launch.grid,
                block: [launch.threads, 1, 1],
                dynamic_shared: launch.dynamic_shared,
                cluster: None,
                cooperative: false,
            },
            params: launch
                .args
                .iter()
                .flat_map(|arg| (addresses[arg.buffer] + arg.offset).to_le_bytes())
                .collect(),
            programmatic: launch.programmatic,
        });
        Step { modules, memory, state, launches: launches.collect() }
    }

    /// Sets the position that the next step processes.
    pub fn go_to(&self, position: u32) {
        let row = Row { position, prompt: 1, chooses: true, ..Row::default() };
        let bytes: Vec<u8> = row.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.write(self.state, &bytes).expect("inside");
    }

    /// Runs one launch alone, and returns its statistics.
    pub fn launch(&self, launch: &Bound, options: &Options) -> Stats {
        let (name, module) = &self.modules[launch.kernel];
        let kernel = module.kernel(name).expect("the module's kernel");
        match run(kernel, &self.memory, &launch.config, &launch.params, options) {
            Ok(stats) => stats,
            Err(finding) => panic!("{}: {finding}", launch.label),
        }
    }

    /// Runs the whole step, and checks the programmatic edges between launches if `order` is given.
    pub fn run(&self, options: &Options, mut order: Option<&mut ProgrammaticOrder>) -> Stats {
        let mut total = Stats::default();
        for launch in &self.launches {
            let (name, module) = &self.modules[launch.kernel];
            let kernel = module.kernel(name).expect("the module's kernel");
            let (memory, config, params) = (&self.memory, &launch.config, &launch.params);
            let stats = match &mut order {
                None => run(kernel, memory, config, params, options),
                Some(order) if launch.programmatic => {
                    order.run_programmatic(kernel, memory, config, params, options)
                }
                Some(order) => order.run(kernel, memory, config, params, options),
            };
            let stats = stats.unwrap_or_else(|finding| panic!("{}: {finding}", launch.label));
            total.lane_instructions += stats.lane_instructions;
            total.warp_instructions += stats.warp_instructions;
            total.global_bytes_loaded += stats.global_bytes_loaded;
            total.global_bytes_stored += stats.global_bytes_stored;
        }
        total
    }
}
