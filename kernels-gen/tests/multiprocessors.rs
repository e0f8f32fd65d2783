//! Plans for GPUs with different numbers of multiprocessors: decode steps of one row run in one wave with even shares, and
//! have the same bits.

use std::fmt::Write;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::attention::AttentionShape;
use bespoke_kernels::kernels::gemv::{Arithmetic, GemvShape};
use bespoke_kernels::plan::{Gpu, Launch, LaunchRole, Plan, PlanError, PlanParams, Sampling};
use bespoke_kernels::shape::{ModelShape, builtin};
use bespoke_kernels::spec::KernelSpec;
use expect_test::expect_file;

/// From a laptop to the largest GPUs; among them L4 (58), A40 (84), RTX 4090 (128), H100 PCIe (114) and SXM (132).
const COUNTS: [u32; 9] = [20, 46, 58, 82, 84, 114, 128, 132, 188];

fn shapes() -> Vec<ModelShape> {
    builtin().iter().flat_map(|file| file.shapes().expect("valid")).collect()
}

/// The plan of a sampled decode step of one row, and a launch for each of its kernels.
fn plan(shape: &ModelShape, gpu: Gpu) -> (Plan, Vec<Launch>) {
    let params = PlanParams::single(512).with_sampling(Sampling::Sampled);
    let plan = Plan::new(shape, gpu, params).expect("a plan");
    let first =
        |kernel| plan.launches.iter().find(|launch| launch.kernel == kernel).expect("is launched").clone();
    let launches = (0..plan.kernels.len()).map(first).collect();
    (plan, launches)
}

/// Bytes of weights of each CTA of a product.
fn bytes_of_ctas(s: &GemvShape) -> Vec<u64> {
    let row_bytes: Vec<(u32, u64)> = s
        .segments
        .iter()
        .zip(s.layouts())
        .map(|(segment, layout)| (segment.rows, u64::from(layout.tile_bytes()) / 16))
        .collect();
    let bytes_of = |row: u32| {
        let mut first = 0;
        let segment = row_bytes.iter().find(|(rows, _)| {
            first += rows;
            row < first
        });
        segment.expect("the row is in a segment").1
    };
    (0..s.schedule.grid).map(|cta| s.rows_of(cta).map(bytes_of).sum()).collect()
}

/// The largest share of a CTA over the mean share of a multiprocessor, in percent.
fn slowest(s: &GemvShape, gpu: &Gpu) -> u64 {
    let shares = bytes_of_ctas(s);
    let most = shares.iter().max().expect("at least one CTA");
    100 * most * u64::from(gpu.multiprocessors) / shares.iter().sum::<u64>()
}

#[test]
fn every_launch_is_one_wave() {
    for shape in shapes() {
        for target in [Target::Sm80, Target::Sm89, Target::Sm90] {
            for count in COUNTS {
                let gpu = Gpu::typical(target).with_multiprocessors(count);
                let (plan, launches) = plan(&shape, gpu);
                plan.check().unwrap_or_else(|error| panic!("{}: {error}", shape.name));
                for launch in launches {
                    let shared = launch.dynamic_shared + plan.kernels[launch.kernel].spec.static_shared();
                    let at_once = count * gpu.resident(launch.threads, shared);
                    let ctas: u32 = launch.grid.iter().product();
                    let label = &launch.label;
                    assert!(
                        ctas <= at_once,
                        "{} for {count} multiprocessors of {target}: {label} has {ctas} CTAs, of which {at_once} run at once",
                        shape.name
                    );
                }
            }
        }
    }
}

/// With so few multiprocessors, the CTAs of attention that run at once are fewer than a row has.
#[test]
fn steps_of_several_rows_have_plans_for_one_multiprocessor() {
    for shape in shapes() {
        for arithmetic in Arithmetic::ALL {
            let params = PlanParams::single(512).with_arithmetic(arithmetic).with_slots(8, 64).decode(8);
            let plan = Plan::new(&shape, Gpu::typical(Target::Sm90).with_multiprocessors(1), params)
                .expect("a plan");
            plan.check().unwrap_or_else(|error| panic!("{}: {error}", shape.name));
        }
    }
}

/// A CTA of a product has at most a tile of 16 rows more than its share of the weights; gate and up are cut together.
#[test]
fn shares_of_products_differ_by_a_tile() {
    for shape in shapes() {
        for count in COUNTS {
            let (plan, _) = plan(&shape, Gpu::typical(Target::Sm90).with_multiprocessors(count));
            for kernel in &plan.kernels {
                let KernelSpec::Gemv(s) = &kernel.spec else { continue };
                let shares = bytes_of_ctas(s);
                let layouts = s.layouts();
                let tile = layouts.iter().map(|layout| u64::from(layout.tile_bytes()));
                let tile: u64 = if s.is_gated() { tile.sum() } else { tile.max().expect("a segment") };
                let mean = shares.iter().sum::<u64>() / shares.len() as u64;
                let most = *shares.iter().max().expect("a CTA");
                assert!(most <= mean + tile, "{} with {count}: {most} bytes, {mean} on average", kernel.name);
            }
        }
    }
}

/// Splits of attention decide the bits of its result; the CTAs among which they are divided do not.
#[test]
fn attention_has_the_same_splits_on_every_gpu() {
    let splits = |s: &AttentionShape| (s.splits, s.min_pages);
    for shape in shapes() {
        let of = |gpu: Gpu| -> Vec<(u32, u32)> {
            let (plan, _) = plan(&shape, gpu);
            let attention = plan.kernels.iter().filter_map(|kernel| match &kernel.spec {
                KernelSpec::Attention(s) => Some(splits(s)),
                _ => None,
            });
            attention.collect()
        };
        let first = of(Gpu::typical(Target::Sm90));
        for target in Target::ALL {
            for count in COUNTS {
                assert_eq!(
                    of(Gpu::typical(target).with_multiprocessors(count)),
                    first,
                    "{} {count}",
                    shape.name
                );
            }
        }
    }
}

/// The slowest CTA of each product of one row, in percent of the mean share of a multiprocessor.
#[test]
fn table_of_the_slowest_ctas() {
    let mut text = String::from("role         ");
    COUNTS.iter().for_each(|count| write!(text, "{count:>6}").unwrap());
    let names = ["llama-3.1-8b", "qwen2.5-7b", "qwen2.5-1.5b", "llama-3.2-1b", "qwen2.5-0.5b"];
    for shape in shapes().iter().filter(|shape| names.contains(&shape.name.as_str())) {
        write!(text, "\n\n{}\n", shape.name).unwrap();
        for role in [
            LaunchRole::AttnQkv,
            LaunchRole::AttnOutput,
            LaunchRole::FfnGateUp,
            LaunchRole::FfnDown,
            LaunchRole::Output,
        ] {
            write!(text, "{:<13}", role.to_string()).unwrap();
            for count in COUNTS {
                let gpu = Gpu::typical(Target::Sm90).with_multiprocessors(count);
                let (plan, launches) = plan(shape, gpu);
                let worst = launches.iter().filter(|launch| launch.label.role == role).map(|launch| {
                    match &plan.kernels[launch.kernel].spec {
                        KernelSpec::Gemv(s) => slowest(s, &gpu),
                        other => panic!("{role} is {other:?}"),
                    }
                });
                write!(text, "{:>6}", worst.max().expect("the role is launched")).unwrap();
            }
            text.push('\n');
        }
    }
    expect_file!["multiprocessors.txt"].assert_eq(&text);
}

#[test]
fn no_multiprocessors_and_too_many_are_errors() {
    let shape = &shapes()[0];
    for count in [0, Gpu::MAX_MULTIPROCESSORS + 1] {
        let gpu = Gpu::typical(Target::Sm90).with_multiprocessors(count);
        match Plan::new(shape, gpu, PlanParams::single(64)) {
            Err(PlanError::Unsupported(message)) => {
                assert_eq!(message, format!("{count} multiprocessors are not supported; 1 to 1024 are"));
            }
            other => panic!("{count}: {other:?}"),
        }
    }
}
