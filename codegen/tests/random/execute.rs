//! Runs kernels on the emulator, with all of its checks.

use bespoke_codegen::ir::Function;
use bespoke_codegen::ir::verify::verify;
use bespoke_codegen::ptx::{self, Target};
use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run};

use crate::interpret::{self, Inputs};
use crate::lower::{POINTERS, SCALARS, SLOT};
use crate::numbers::{self, Random};
use crate::program::{Program, Region};

/// The target of every kernel: the first target that supports all instructions.
const TARGET: Target = Target::Sm90;
/// Limit on the instructions of a launch, which no generated kernel reaches.
const LIMIT: u64 = 1 << 22;

/// Parameters and initial memory of a launch.
pub struct Launch {
    config: LaunchConfig,
    buffers: [Vec<u8>; 4],
    scalars: Vec<u64>,
}

impl Launch {
    pub fn of(program: &Program) -> Launch {
        let mut random = Random(!program.seed);
        let all = (program.ctas * program.threads) as usize;
        let sizes = [
            Region::Input.bytes() as usize,
            all * Region::Scratch.bytes() as usize,
            Region::Table.bytes() as usize,
            all * (SLOT as usize * program.stored.len()).max(1),
        ];
        let buffers = sizes.map(|size| numbers::bytes(&mut random, size));
        let mut scalars = Vec::new();
        for (name, ty) in SCALARS {
            let bits = if name == "minus_16" { -16i32 as u64 } else { numbers::bits(&mut random, ty) };
            scalars.push(bits & ty.mask());
        }
        Launch { config: LaunchConfig::linear(program.ctas, program.threads), buffers, scalars }
    }

    /// Memory after the launch of a kernel on the emulator, or why the kernel does not run.
    pub fn run(&self, function: &Function) -> Result<[Vec<u8>; 4], String> {
        if let Err(errors) = verify(function) {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(format!("the verifier rejects it: {}", errors.join("; ")));
        }
        let text = ptx::print(function, TARGET).map_err(|error| error.to_string())?;
        let module = Module::parse(&text).map_err(|error| {
            let line = text.lines().nth((error.line as usize).saturating_sub(1)).unwrap_or_default();
            format!("the emulator does not load it: {error}: {}", line.trim())
        })?;
        let kernel = module.kernel(&function.name).ok_or("the PTX has no such kernel")?;
        let memory = Memory::new();
        let mut params = Vec::new();
        let mut addresses = Vec::new();
        for (name, bytes) in POINTERS.iter().zip(&self.buffers) {
            let address = memory.alloc(name, bytes.len() as u64);
            memory.write(address, bytes).map_err(|error| error.to_string())?;
            params.extend(address.to_le_bytes());
            addresses.push(address);
        }
        for ((_, ty), bits) in SCALARS.iter().zip(&self.scalars) {
            let bytes = ty.bytes() as usize;
            params.resize(params.len().next_multiple_of(bytes), 0);
            params.extend(&bits.to_le_bytes()[..bytes]);
        }
        let options = Options { threads: 1, instruction_limit: LIMIT, ..Options::default() };
        run(kernel, &memory, &self.config, &params, &options)
            .map_err(|finding| format!("the emulator finds: {finding}"))?;
        let mut left = self.buffers.clone();
        for (bytes, address) in left.iter_mut().zip(addresses) {
            memory.read(address, bytes).map_err(|error| error.to_string())?;
        }
        Ok(left)
    }

    /// Memory after the launch according to the IR interpreter; none if the IR leaves it undefined.
    pub fn interpret(&self, function: &Function) -> Option<[Vec<u8>; 4]> {
        let (ctas, threads) = (self.config.grid[0], self.config.block[0]);
        let buffers = self.buffers.clone();
        interpret::run(function, Inputs { ctas, threads, buffers, scalars: &self.scalars })
    }
}
