//! Plans are consistent for every shape and target, and equal after a round trip through JSON.

use std::collections::HashSet;

use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::attention::{AttentionShape, KvType};
use bespoke_kernels::kernels::gemv::tokens::InputLayout;
use bespoke_kernels::kernels::gemv::{Arithmetic, GemvShape};
use bespoke_kernels::kernels::launching::Trigger;
use bespoke_kernels::plan::{
    ArgumentAccess, BufferKind, BufferName, Launch, LaunchRole, Plan, PlanParams, Sampling,
};
use bespoke_kernels::shape::{FeedForward, ModelShape, builtin};
use bespoke_kernels::spec::KernelSpec;
use bespoke_kernels::weights::WeightType;

fn shapes() -> impl Iterator<Item = ModelShape> {
    builtin().into_iter().flat_map(|file| file.shapes().unwrap())
}

fn shape(name: &str) -> ModelShape {
    shapes().find(|shape| shape.name == name).unwrap()
}

fn plan(name: &str) -> Plan {
    Plan::new(&shape(name), Target::Sm90, PlanParams::single(4096)).unwrap()
}

/// The product of a launch; `None` if it is another kernel.
fn product<'a>(plan: &'a Plan, launch: &Launch) -> Option<&'a GemvShape> {
    match &plan.kernels[launch.kernel].spec {
        KernelSpec::Gemv(shape) => Some(shape),
        _ => None,
    }
}

fn sampled(context: u32) -> PlanParams {
    PlanParams::single(context).with_sampling(Sampling::Sampled)
}

#[test]
fn every_shape_has_a_consistent_plan_for_every_target() {
    for shape in shapes() {
        for target in Target::ALL {
            let one = PlanParams::single(2048);
            for params in [one.clone(), one.clone().first_token(1), one.with_slots(64, 64).first_token(64)]
                .into_iter()
                .flat_map(|params| {
                    [Sampling::Greedy, Sampling::Sampled].map(|it| params.clone().with_sampling(it))
                })
            {
                let plan = Plan::new(&shape, target, params).unwrap();
                plan.check().unwrap_or_else(|error| panic!("{} on {target}: {error}", shape.name));
                let names: HashSet<_> = plan.kernels.iter().map(|kernel| &kernel.name).collect();
                assert_eq!(names.len(), plan.kernels.len());
                let buffers: HashSet<_> = plan.buffers.iter().map(|buffer| &buffer.name).collect();
                assert_eq!(buffers.len(), plan.buffers.len());
            }
        }
    }
}

/// Arguments match the kernel's parameters by name and order.
#[test]
fn arguments_are_the_kernels_parameters() {
    let sampled = Plan::new(&shape("llama-3.2-1b"), Target::Sm90, sampled(4096)).unwrap();
    for plan in [plan("llama-3.1-8b"), plan("qwen2.5-1.5b"), plan("qwen3-0.6b"), sampled] {
        for launch in &plan.launches {
            let kernel = plan.kernels[launch.kernel].spec.record().unwrap();
            let params: Vec<&str> = kernel.params().iter().map(|param| param.name.as_str()).collect();
            let args: Vec<&str> = launch.args.iter().map(|arg| arg.param.as_str()).collect();
            assert_eq!(params, args, "{}", launch.label);
            assert_eq!(kernel.threads(), Some(launch.threads), "{}", launch.label);
        }
    }
}

#[test]
fn a_missing_edge_is_found() {
    let mut plan = plan("llama-3.2-1b");
    let attention =
        plan.launches.iter().position(|launch| launch.label.to_string() == "blk.1.attention").unwrap();
    plan.launches[attention].after.clear();
    let error = plan.check().unwrap_err();
    assert!(error.contains("blk.1.attention") && error.contains("no edge orders them"), "{error}");
}

#[test]
fn a_view_past_its_buffer_is_found() {
    let mut plan = plan("llama-3.2-1b");
    plan.launches[3].args[0].bytes += 1 << 40;
    assert!(plan.check().unwrap_err().contains("ends past the end"));
}

/// A launch that writes the next product's inputs must not write where it reads its own.
#[test]
fn overlapping_arguments_of_a_launch_are_found() {
    let params = PlanParams::single(256).with_arithmetic(Arithmetic::F16).with_slots(8, 32).decode(8);
    let mut plan = Plan::new(&shape("llama-3.2-1b"), Target::Sm90, params).unwrap();
    plan.check().unwrap();
    let launch =
        plan.launches.iter_mut().find(|it| it.args.iter().any(|arg| arg.param == "next_inputs")).unwrap();
    let x = launch.args.iter().find(|arg| arg.param == "x").unwrap().buffer;
    launch.args.iter_mut().find(|arg| arg.param == "next_inputs").unwrap().buffer = x;
    let error = plan.check().unwrap_err();
    assert!(error.contains("next_inputs overlaps x in prepared"), "{error}");
}

#[test]
fn json_round_trips() {
    let plan = plan("qwen2.5-7b");
    let json = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
}

/// The bytes per token on which the project's measurements are based.
#[test]
fn bytes_per_token_are_those_of_the_weights() {
    for (name, gigabytes) in
        [("llama-3.1-8b", 4.62), ("llama-3.1-8b-q8_0", 7.98), ("qwen2.5-7b", 4.37), ("llama-3.2-1b", 0.79)]
    {
        let bytes = plan(name).bytes_per_token(0) as f64 / 1e9;
        assert!((bytes - gigabytes).abs() < 0.01, "{name}: {bytes}");
    }
}

#[test]
fn the_cache_has_the_size_of_the_context() {
    let plan = plan("llama-3.1-8b");
    let cache = plan.bytes_where(|kind| *kind == BufferKind::KvCache);
    assert_eq!(cache, plan.kv_bytes() * 4096);
    assert_eq!(plan.kv_bytes(), 32 * 2 * 8 * 128 * 2);
    let verify = Plan::new(&plan.shape, Target::Sm90, PlanParams::single(4096).verify(4)).unwrap();
    assert_eq!(verify.kv_bytes(), plan.kv_bytes());
    let bytes = Plan::new(&plan.shape, Target::Sm90, PlanParams::single(4096).with_kv(KvType::Q8_0)).unwrap();
    assert_eq!(bytes.kv_bytes(), 32 * 2 * 8 * (128 + 128 / 32 * 2));
    assert_eq!(bytes.bytes_where(|kind| *kind == BufferKind::KvCache), bytes.kv_bytes() * 4096);
    assert_eq!(
        plan.bytes_per_token(1000) - bytes.bytes_per_token(1000),
        1000 * (plan.kv_bytes() - bytes.kv_bytes())
    );
}

#[test]
fn gate_and_up_of_different_widths_have_no_prefill_steps() {
    let mut shape = shape("llama-3.2-1b");
    let plan = |shape: &ModelShape| Plan::new(shape, Target::Sm90, PlanParams::single(128).prefill(64));
    plan(&shape).unwrap().check().unwrap();
    let FeedForward::Dense { up, .. } = &mut shape.layers[3].feed_forward;
    up.ty = WeightType::Q6_K;
    plan(&shape).unwrap().check().unwrap();
    let FeedForward::Dense { up, .. } = &mut shape.layers[3].feed_forward;
    up.ty = WeightType::Q8_0;
    assert_eq!(
        plan(&shape).unwrap_err().to_string(),
        "blk.3.ffn_gate_up has matrices of types Q4_K and Q8_0, whose blocks have different widths, which prefill \
         steps do not support"
    );
}

#[test]
fn unsupported_shapes_and_parameters_are_errors() {
    let refused = |change: fn(&mut ModelShape), params: PlanParams| {
        let mut shape = shape("llama-3.2-1b");
        change(&mut shape);
        Plan::new(&shape, Target::Sm90, params).unwrap_err().to_string()
    };
    let single = || PlanParams::single(128);
    for (error, expected) in [
        (refused(|_| (), single().decode(65)), "rows is 65; 1 to 64 are supported"),
        (refused(|_| (), single().prefill(2049)), "rows is 2049; 1 to 2048 are supported"),
        (
            refused(|_| (), PlanParams::single(0)),
            "a context of 0 positions is not supported; 1 to 16777216 are",
        ),
        (
            refused(|s| s.dimensions.kv_heads = 5, single()),
            "32 query heads are not a multiple of 5 key heads",
        ),
        (
            refused(|s| s.dimensions.head_dim = 100, single()),
            "head dimension 100: multiples of 16 up to 256 are supported",
        ),
        (
            refused(|s| s.dimensions.ffn = 1 << 20, single()),
            "blk.0.ffn_down needs 2405664 bytes of shared memory; a CTA of sm_90 has 232448",
        ),
        (
            refused(|s| s.dimensions.vocab = (1 << 19) + 1, sampled(128)),
            "sampling from 524289 tokens is not supported; at most 524288 are",
        ),
        (refused(|s| s.dimensions.layers = 0, single()), "block_count is 0; 1 to 65536 are supported"),
        (refused(|s| s.layers.truncate(3), single()), "3 layers are described, 16 expected"),
        (
            refused(|s| s.layers[1].attention.rope = Some(1), single()),
            "layer 1 has table 1 of RoPE's frequencies, counted from 0, but the model has 1",
        ),
    ] {
        assert_eq!(error, expected);
    }
}

/// If edges are programmatic, every kernel waits before it writes and, unless it manages the wait itself, before it
/// reads; otherwise no kernel waits. The emulator checks early reads and writes whenever it runs a plan.
#[test]
fn kernels_wait_where_edges_are_programmatic() {
    for target in Target::ALL {
        let plan = Plan::new(&shape("llama-3.2-1b"), target, PlanParams::single(4096)).unwrap();
        let sampled = Plan::new(&shape("llama-3.2-1b"), target, sampled(4096)).unwrap();
        let early = target >= Target::Sm90;
        let edges: Vec<bool> = plan.launches.iter().map(|launch| launch.programmatic).collect();
        assert!(!edges[0] && edges[1..].iter().all(|&programmatic| programmatic == early), "{target}");
        for kernel in plan.kernels.iter().chain(&sampled.kernels[sampled.kernels.len() - 2..]) {
            let ptx = kernel.spec.kernel(target).unwrap().compile(target).unwrap().ptx;
            let first = |text: &str| ptx.find(text).unwrap_or(usize::MAX);
            let wait = first("griddepcontrol.wait;");
            assert_eq!(wait < usize::MAX, early, "{} for {target}", kernel.name);
            let reads = if kernel.spec.waits() { usize::MAX } else { first("ld.global") };
            assert!(!early || wait < reads.min(first("st.global")), "{} for {target}", kernel.name);
        }
    }
}

/// Only the last launch writes the state and the tokens, so that all others see the same position.
#[test]
fn only_the_last_launch_advances_the_state() {
    let sampled = Plan::new(&shape("llama-3.1-8b"), Target::Sm90, sampled(4096)).unwrap();
    for (plan, is_sampled) in [(plan("llama-3.1-8b"), false), (sampled, true)] {
        let (state, tokens) =
            (plan.buffer(BufferName::State).unwrap(), plan.buffer(BufferName::Tokens).unwrap());
        let writers: Vec<usize> = (0..plan.launches.len())
            .filter(|&index| {
                let writes = |arg: &bespoke_kernels::plan::Argument| {
                    arg.access != ArgumentAccess::Read && (arg.buffer == state || arg.buffer == tokens)
                };
                plan.launches[index].args.iter().any(writes)
            })
            .collect();
        assert_eq!(writers, [plan.launches.len() - 1]);
        let last = &plan.kernels[plan.launches[writers[0]].kernel].spec;
        assert_eq!(matches!(last, KernelSpec::ChooseSampled(_)), is_sampled, "{last:?}");
        assert!(is_sampled || matches!(last, KernelSpec::ChooseGreedy(_)), "{last:?}");
    }
}

/// Greedy plans have no launches and buffers of sampling; plans that sample differ only after the logits.
#[test]
fn greedy_decoding_does_not_pay_for_sampling() {
    let greedy = plan("llama-3.2-1b");
    let sampled = Plan::new(&shape("llama-3.2-1b"), Target::Sm90, sampled(4096)).unwrap();
    assert_eq!(greedy.buffer(BufferName::Sampling), None);
    let labels =
        |plan: &Plan| plan.launches.iter().map(|launch| launch.label.to_string()).collect::<Vec<_>>();
    let (greedy, sampled) = (labels(&greedy), labels(&sampled));
    let end = greedy.len() - 1;
    assert_eq!(greedy[..end], sampled[..end]);
    assert_eq!(
        (&greedy[end..], &sampled[end..]),
        (&["choose"].map(String::from)[..], &["sample_keys", "choose"].map(String::from)[..])
    );
}

/// Warps, groups of warps, and CTAs that a multiprocessor has room for, of the products of layer 0 on an H200.
#[test]
fn products_of_small_models_have_large_stages_and_make_room() {
    let schedules = |name: &str| -> Vec<(String, [u32; 3])> {
        let plan = plan(name);
        let of_layer = plan.launches.iter().filter(|launch| launch.label.layer == Some(0));
        let schedule = |launch: &Launch| match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(shape) => {
                let schedule = shape.schedule;
                Some((launch.label.role.to_string(), [schedule.warps, schedule.groups, schedule.resident]))
            }
            _ => None,
        };
        of_layer.filter_map(schedule).collect()
    };
    let expected = |sizes: [[u32; 3]; 4]| -> Vec<(String, [u32; 3])> {
        let roles = ["attn_qkv", "attn_output", "ffn_gate_up", "ffn_down"].map(str::to_owned);
        roles.into_iter().zip(sizes).collect()
    };
    // Stages of 18 KiB. The output projection's weights fit beside a CTA of gate and up.
    assert_eq!(schedules("llama-3.1-8b"), expected([[8, 2, 1], [8, 2, 2], [8, 2, 1], [8, 2, 1]]));
    // A stage of QKV is half a tile, one of gate and up two. Attention's output projection and down have 128 tiles.
    assert_eq!(schedules("llama-3.2-1b"), expected([[4, 2, 1], [8, 1, 2], [16, 2, 1], [16, 4, 1]]));
    // Stages of 5 to 13 KiB with the defaults; 56 tiles.
    assert_eq!(schedules("qwen2.5-0.5b"), expected([[8, 1, 1], [8, 1, 1], [16, 1, 1], [16, 2, 1]]));
}

/// Stages of the output projection of layer 0, stages in flight, CTAs that a multiprocessor has room for, and when the next
/// launch starts.
#[test]
fn the_output_projection_leaves_room_for_the_next_launch_where_its_weights_fit() {
    let projection = |name: &str, mix: &str| {
        let file = builtin().into_iter().find(|file| file.name == name).unwrap();
        let plan = Plan::new(&file.with_mix(mix).unwrap(), Target::Sm90, PlanParams::single(128)).unwrap();
        let mut launches = plan.launches.iter();
        let launch = launches.find(|launch| launch.label.role == LaunchRole::AttnOutput).unwrap();
        let KernelSpec::Gemv(shape) = &plan.kernels[launch.kernel].spec else { panic!("{name}") };
        let schedule = shape.schedule;
        (schedule.stages, schedule.in_flight, schedule.resident, schedule.trigger)
    };
    for (name, mix, expected) in [
        // 256, 224, 192 and 160 tiles, for 132 multiprocessors.
        ("llama-3.1-8b", "q4_k_m", (4, 1, 2, Trigger::AfterWait)),
        ("qwen2.5-7b", "q4_k_m", (4, 1, 2, Trigger::AfterWait)),
        ("llama-3.2-3b", "q4_k_m", (4, 2, 2, Trigger::AtStart)),
        ("qwen3-4b", "q4_k_m", (4, 2, 2, Trigger::AtStart)),
        // 128 tiles.
        ("llama-3.2-1b", "q4_k_m", (2, 2, 2, Trigger::AtStart)),
        // Two tiles do not fit beside the next launch's ring.
        ("llama-3.1-8b", "q8_0", (6, 2, 1, Trigger::AtStart)),
        ("llama-3.1-8b", "q6_k", (6, 2, 1, Trigger::AtStart)),
    ] {
        assert_eq!(projection(name, mix), expected, "{name} {mix}");
    }
}

/// An output projection with several tiles per CTA and without a reserve fits on a multiprocessor twice, and once beside a
/// CTA of gate and up with eight warps in two groups. A CTA needs 1 KiB more for the system, and up to 1 KiB for barriers.
#[test]
fn a_launch_that_leaves_room_fits_beside_another() {
    let [mut twice, mut beside_next] = [0; 2];
    for shape in shapes() {
        for target in [Target::Sm90, Target::Sm100, Target::Sm120] {
            let plan = Plan::new(&shape, target, PlanParams::single(128)).unwrap();
            for pair in plan.launches.windows(2) {
                let [first, next] = [&pair[0], &pair[1]];
                let [Some(of_first), Some(of_next)] = [first, next].map(|launch| product(&plan, launch))
                else {
                    continue;
                };
                let tiles: u32 = of_first.segments.iter().map(|segment| segment.rows.div_ceil(16)).sum();
                if of_first.schedule.resident == 1 || tiles <= plan.gpu.multiprocessors {
                    continue;
                }
                twice += 1;
                let mut pairs = vec![[first, first]];
                if [of_next.schedule.warps, of_next.schedule.groups] == [8, 2] {
                    beside_next += 1;
                    pairs.push([first, next]);
                }
                for pair in pairs {
                    let bytes: u32 = pair.map(|launch| launch.dynamic_shared + 2048).iter().sum();
                    let all = plan.gpu.shared_per_multiprocessor;
                    let [first, next] = pair.map(|launch| launch.label);
                    assert!(
                        bytes <= all,
                        "{} on {target}: {first} and {next} need {bytes} of {all}",
                        shape.name
                    );
                }
            }
        }
    }
    assert!(
        twice > 100 && beside_next > 50,
        "{twice} launches, {beside_next} with a next one of two groups of four warps"
    );
}

#[test]
fn kernels_of_one_row_have_the_divisions_that_were_measured() {
    // Warps and groups of the products of the first layer, in its order, and stages of attention.
    let divisions = |name: &str| {
        let plan = plan(name);
        let launch = |role| plan.launches.iter().find(|launch| launch.label.role == role).unwrap();
        let roles = [LaunchRole::AttnQkv, LaunchRole::AttnOutput, LaunchRole::FfnGateUp, LaunchRole::FfnDown];
        let products = roles.map(|role| {
            let schedule = product(&plan, launch(role)).unwrap().schedule;
            (schedule.warps, schedule.groups)
        });
        let spec = &plan.kernels[launch(LaunchRole::Attention).kernel].spec;
        let KernelSpec::Attention(attention) = spec else { panic!("{name}") };
        (products, attention.stages)
    };
    for (name, expected) in [
        // 8, 7, 6, 5 and 4 units a tile of gate and up.
        ("llama-3.1-8b", ([(8, 2), (8, 2), (8, 2), (8, 2)], 5)),
        ("qwen2.5-7b", ([(8, 2), (8, 2), (7, 1), (8, 2)], 5)),
        ("llama-3.2-3b", ([(8, 2), (8, 2), (12, 2), (8, 2)], 5)),
        ("qwen3-4b", ([(8, 2), (8, 2), (8, 1), (8, 2)], 5)),
        // One tile a CTA of down; 1.5 and 1.2 tiles of QKV for each multiprocessor.
        ("llama-3.2-1b", ([(4, 2), (8, 1), (16, 2), (16, 4)], 5)),
        ("tinyllama-1.1b", ([(4, 1), (8, 1), (16, 2), (16, 4)], 5)),
        // The output projection and down have one tile per CTA, and CTAs for less than 0.7 of the multiprocessors.
        ("qwen3-0.6b", ([(4, 2), (4, 1), (8, 2), (8, 1)], 2)),
    ] {
        assert_eq!(divisions(name), expected, "{name}");
    }
}

#[test]
fn splits_of_all_kv_heads_fill_a_gpu_but_a_head_has_at_most_32() {
    // 8, 4, 3 and 2 KV heads.
    for (name, splits) in
        [("llama-3.2-1b", 16), ("qwen2.5-7b", 32), ("smollm2-135m", 32), ("qwen2.5-1.5b", 32)]
    {
        let plan = plan(name);
        let found = plan.kernels.iter().find_map(|kernel| match &kernel.spec {
            KernelSpec::Attention(shape) => Some(shape.splits),
            _ => None,
        });
        assert_eq!(found, Some(splits), "{name}");
    }
}

#[test]
fn inputs_of_two_and_four_rows_are_prepared_where_that_was_faster() {
    // Of QKV, attention's output, gate and up, and down of the first layer: whether an earlier launch prepares the inputs.
    let prepared = |name: &str, arithmetic: Arithmetic, rows: u32| {
        let params = PlanParams::single(128).decode(rows).with_arithmetic(arithmetic);
        let plan = Plan::new(&shape(name), Target::Sm90, params).unwrap();
        let products = plan.launches.iter().filter(|launch| launch.label.layer == Some(0));
        let products: Vec<_> = products.filter_map(|launch| product(&plan, launch)).collect();
        products.iter().map(|product| product.is_prepared()).collect::<Vec<_>>()
    };
    let (integers, f16) = (Arithmetic::Integers, Arithmetic::F16);
    for (name, arithmetic, rows, expected) in [
        ("llama-3.1-8b", integers, 2, [false; 4]),
        ("llama-3.1-8b", f16, 2, [true; 4]),
        ("qwen2.5-7b", f16, 2, [true; 4]),
        // Columns: 2,560, 4,096, 2,560 and 9,728. Those of gate and up come from attention's output projection.
        ("qwen3-4b", f16, 2, [false, true, true, true]),
        ("llama-3.1-8b", integers, 4, [true; 4]),
        ("qwen3-0.6b", integers, 4, [true; 4]),
        ("qwen3-0.6b", f16, 4, [true; 4]),
        // Columns: 576, 576, 576 and 1,536.
        ("smollm2-135m", integers, 4, [false, false, false, true]),
        ("smollm2-135m", f16, 4, [false, false, true, true]),
    ] {
        assert_eq!(prepared(name, arithmetic, rows), expected, "{name}, {arithmetic:?}, {rows} rows");
    }
}

#[test]
fn products_of_f16_write_the_inputs_of_the_next_one() {
    use LaunchRole::{AttnOutput, AttnQkv, FfnDown, FfnGateUp, Prepare};
    // The roles of a layer's launches but attention, and whether each product is received.
    let layer = |name: &str, rows: u32, index: u32| {
        let params = PlanParams::single(128).decode(rows).with_arithmetic(Arithmetic::F16);
        let plan = Plan::new(&shape(name), Target::Sm90, params).unwrap();
        plan.check().unwrap();
        let launches = plan.launches.iter().filter(|launch| launch.label.layer == Some(index));
        let launches = launches.filter(|launch| launch.label.role != LaunchRole::Attention);
        let of = |launch: &Launch| (launch.label.role, product(&plan, launch).is_some_and(|it| it.received));
        launches.map(of).collect::<Vec<_>>()
    };
    let all = [(AttnQkv, true), (AttnOutput, false), (FfnGateUp, true), (FfnDown, true)];
    for rows in [2, 8, 40, 64] {
        assert_eq!(layer("llama-3.1-8b", rows, 1), all, "{rows} rows");
        assert_eq!(
            layer("llama-3.1-8b", rows, 0)[1],
            (AttnQkv, false),
            "{rows} rows: the first layer's are prepared"
        );
    }
    // Attention does not prepare its output: a CTA has three heads of 64.
    let [qkv, output, gate_up, down] = all;
    assert_eq!(layer("smollm2-135m", 64, 1), [qkv, (Prepare, false), output, gate_up, down]);
}

#[test]
fn warpgroups_multiply_where_they_have_enough_tiles() {
    // Warpgroups and blocks of tokens of the products of the first layer, whose V and down projection are of Q6_K.
    let divisions = |name: &str, arithmetic: Arithmetic, rows: u32| -> Vec<[u32; 2]> {
        let params = PlanParams::single(128).decode(rows).with_arithmetic(arithmetic);
        let plan = Plan::new(&shape(name), Target::Sm90, params).unwrap();
        let of_layer = plan.launches.iter().filter(|launch| launch.label.layer == Some(0));
        let division = |launch: &Launch| match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemv(shape) => {
                Some([shape.schedule.several.warpgroups, shape.schedule.several.blocks])
            }
            _ => None,
        };
        of_layer.filter_map(division).collect()
    };
    let integers = [
        ("llama-3.1-8b", 64, [[3, 1], [3, 2], [3, 1], [3, 2]]),
        // A CTA of QKV has tiles of Q4_K and of Q6_K, a quad of each, so the tokens are divided into two blocks.
        ("llama-3.2-3b", 64, [[3, 2], [3, 2], [3, 1], [3, 2]]),
        // Two tiles of the down projection.
        ("llama-3.2-1b", 64, [[3, 2], [0, 1], [3, 1], [0, 1]]),
        // QKV has 2.9 tiles for each multiprocessor, that of the 3B 2.4.
        ("llama-3.1-8b", 32, [[3, 1], [0, 1], [3, 1], [0, 1]]),
        ("llama-3.2-3b", 32, [[0, 1], [0, 1], [3, 1], [0, 1]]),
        ("llama-3.1-8b", 16, [[0, 1]; 4]),
    ];
    let halves = [
        ("llama-3.1-8b", 32, [[3, 1]; 4]),
        // By warps, Qwen2.5-7B would have three batches in gate and up and two in down, Qwen3-8B a longer time in gate and up. The 8B holds
        // the sums of half of its tiles in gate and up, and of all in down.
        ("qwen2.5-7b", 16, [[0, 1], [0, 1], [3, 1], [3, 1]]),
        ("qwen3-8b", 16, [[0, 1], [0, 1], [3, 1], [0, 1]]),
        ("llama-3.1-8b", 16, [[0, 1]; 4]),
        ("llama-3.2-1b", 16, [[0, 1]; 4]),
        ("llama-3.1-8b", 8, [[0, 1]; 4]),
    ];
    for (arithmetic, cases) in [(Arithmetic::Integers, &integers[..]), (Arithmetic::F16, &halves)] {
        for &(name, rows, expected) in cases {
            let found = divisions(name, arithmetic, rows);
            assert_eq!(found, expected, "{name} with {rows} rows, {arithmetic:?}");
        }
    }
}

/// With f16 and more than 32 rows, gate and up, and down, let the next launch start after their loads.
#[test]
fn the_feed_forward_network_triggers_late_with_many_rows_of_f16() {
    for (rows, arithmetic, expected) in [
        (32, Arithmetic::F16, Trigger::AtStart),
        (64, Arithmetic::F16, Trigger::AfterLoads),
        (64, Arithmetic::Integers, Trigger::AtStart),
    ] {
        let params = PlanParams::single(128).decode(rows).with_arithmetic(arithmetic);
        let plan = Plan::new(&shape("llama-3.1-8b"), Target::Sm90, params).unwrap();
        for launch in &plan.launches {
            let KernelSpec::Gemv(product) = &plan.kernels[launch.kernel].spec else { continue };
            if [LaunchRole::FfnGateUp, LaunchRole::FfnDown].contains(&launch.label.role) {
                assert_eq!(product.schedule.trigger, expected, "{rows} rows, {arithmetic}");
            }
        }
    }
}

/// Tiles of gate that shared memory holds, and whether quads have tiles of gate and of up: where that makes fewer quads.
#[test]
fn quads_have_tiles_of_gate_and_up_where_that_makes_fewer() {
    for (name, tiles, mixed) in [
        ("llama-3.1-8b", 7, false),
        ("qwen2.5-7b", 9, true),
        ("qwen3-4b", 5, true),
        ("llama-3.2-1b", 4, false),
    ] {
        let params = PlanParams::single(128).decode(32).with_arithmetic(Arithmetic::F16);
        let plan = Plan::new(&shape(name), Target::Sm90, params).unwrap();
        let gated = plan.kernels.iter().find_map(|kernel| match &kernel.spec {
            KernelSpec::Gemv(shape) if shape.is_gated() => Some(shape),
            _ => None,
        });
        let gated = gated.expect("gate and up");
        assert_eq!((gated.schedule.several.tiles, gated.mixes_segments()), (tiles, mixed), "{name}");
    }
}

/// Tile of a CTA, rows × tokens, and number of halved blocks of rows, of each product of layer 0 in a prefill step. The GPU
/// has 132 multiprocessors.
#[test]
fn products_of_prompts_have_large_tiles_where_they_fill_the_multiprocessors() {
    let tiles = |name: &str, rows: u32| -> Vec<[u32; 3]> {
        let plan = Plan::new(&shape(name), Target::Sm90, PlanParams::single(4096).prefill(rows)).unwrap();
        let of_layer = plan.launches.iter().filter(|launch| launch.label.layer == Some(0));
        let tile = |launch: &Launch| match &plan.kernels[launch.kernel].spec {
            KernelSpec::Gemm(shape) => {
                let tiling = &shape.tiling;
                let tokens = tiling.warps[1] * tiling.warp_tokens;
                Some([tiling.warps[0] * tiling.warp_tiles * 16, tokens, tiling.halved])
            }
            _ => None,
        };
        of_layer.filter_map(tile).collect()
    };
    for (name, rows, expected) in [
        ("llama-3.1-8b", 2048, [[128, 256, 0]; 4]),
        // Attention's output and the down projection have 4,096 rows: 64 tiles of 128 × 256 for 132 multiprocessors. QKV has 96
        // such tiles, and 128 of 192 × 128. Gate and up have 448; those that do not fill a wave of CTAs are halved.
        ("llama-3.1-8b", 512, [[192, 128, 0], [128, 128, 0], [128, 256, 26], [128, 128, 0]]),
        ("llama-3.1-8b", 256, [[128, 128, 0], [64, 128, 0], [128, 256, 0], [64, 128, 0]]),
        ("llama-3.1-8b", 128, [[64, 128, 0], [64, 64, 0], [128, 128, 0], [64, 64, 0]]),
        ("llama-3.1-8b", 64, [[64, 64, 0], [64, 32, 0], [128, 64, 0], [64, 32, 0]]),
    ] {
        assert_eq!(tiles(name, rows), expected, "{name} with {rows} rows");
    }
}

/// By rows of a decode step of Llama-3.1-8B: the CTAs of attention for each block of query heads, and how many of them run at
/// once if they are divided by the lengths of the contexts. 132 multiprocessors run 264 CTAs, for eight blocks.
#[test]
fn attention_is_divided_by_lengths_where_not_all_ctas_run_at_once() {
    for (rows, ctas, at_once) in
        [(1, 16, None), (2, 32, None), (4, 64, Some(33)), (16, 128, Some(33)), (64, 128, Some(33))]
    {
        let params = PlanParams { slots: rows, ..PlanParams::single(4096) }.decode(rows);
        let plan = Plan::new(&shape("llama-3.1-8b"), Target::Sm90, params).unwrap();
        let attention = plan.kernels.iter().find_map(|kernel| match &kernel.spec {
            KernelSpec::Attention(s) => Some((s.run_blocks * s.tokens, s.at_once)),
            _ => None,
        });
        assert_eq!(attention, Some((ctas, at_once)), "{rows} rows");
        let divides = plan.launches[0].label.role == LaunchRole::AttentionShares;
        assert_eq!(divides, at_once.is_some(), "{rows} rows");
    }
}

/// Attention quantises the inputs of the output projection where that reads prepared inputs and 256 consecutive inputs are of one
/// CTA: not with so few rows that the projection's CTAs quantise, nor with seven query heads of 128 elements in a CTA.
#[test]
fn attention_quantises_its_output_where_a_cta_has_whole_groups() {
    for (name, rows, quantises) in [
        ("llama-3.1-8b", 2, false),
        ("llama-3.1-8b", 8, true),
        ("llama-3.1-8b", 64, true),
        ("llama-3.2-1b", 16, true),
        ("qwen2.5-7b", 8, false),
    ] {
        for params in [PlanParams::single(4096).decode(rows), PlanParams::single(4096).verify(rows)] {
            let plan = Plan::new(&shape(name), Target::Sm90, PlanParams { slots: rows, ..params }).unwrap();
            plan.check().unwrap();
            let of_layer = plan.launches.iter().filter(|launch| launch.label.layer == Some(1));
            let roles: Vec<LaunchRole> = of_layer.map(|launch| launch.label.role).collect();
            let attention = roles.iter().position(|&role| role == LaunchRole::Attention).unwrap();
            let follows = roles[attention + 1] == LaunchRole::AttnOutput;
            assert_eq!(follows, quantises || rows == 2, "{name}, {rows} rows: {roles:?}");
            let found = plan
                .kernels
                .iter()
                .any(|kernel| matches!(&kernel.spec, KernelSpec::Attention(s) if s.output_layout.is_some()));
            assert_eq!(found, quantises, "{name}, {rows} rows");
        }
    }
}

/// Layouts from a file that attention cannot write are errors, also those whose sizes would overflow.
#[test]
fn a_layout_that_attention_cannot_write_is_an_error() {
    let params = PlanParams { slots: 8, ..PlanParams::single(4096) }.decode(8);
    let plan = Plan::new(&shape("llama-3.1-8b"), Target::Sm90, params).unwrap();
    let found = plan.kernels.iter().find_map(|kernel| match &kernel.spec {
        KernelSpec::Attention(shape) => Some((shape.clone(), shape.output_layout?)),
        _ => None,
    });
    let (attention, layout) = found.expect("attention with a quantised output");
    let error = |layout: InputLayout, heads_per_block| {
        let output_layout = Some(layout);
        let shape = AttentionShape { output_layout, heads_per_block, ..attention.clone() };
        KernelSpec::Attention(shape).check().unwrap_err()
    };
    let does_not_fit = "`output_layout` does not fit the rows, or the heads of a CTA";
    assert_eq!(error(InputLayout { tokens: 7, ..layout }, 4), does_not_fit);
    assert_eq!(error(InputLayout { granules: 31, ..layout }, 4), does_not_fit);
    assert_eq!(error(layout, 1), does_not_fit);
    let tokens = error(InputLayout { tokens: u32::MAX, ..layout }, 4);
    assert!(tokens.starts_with("`layout.tokens` is 4294967295, not 1 to "), "{tokens}");
    let granules = error(InputLayout { granules: u32::MAX, ..layout }, 4);
    assert!(granules.starts_with("`layout.granules` is 4294967295, not 1 to "), "{granules}");
}

/// Query heads of a CTA of attention in prefill steps, groups of 16 rows, and whether warpgroups multiply: by the model's query
/// heads for a key head, on Hopper and before. Two heads would leave half of a warpgroup's warps without one.
#[test]
fn attention_of_prompts_fills_its_warps() {
    let divided = |name: &str, target: Target| {
        let plan = Plan::new(&shape(name), target, PlanParams::single(4096).prefill(512)).unwrap();
        let chunks: Vec<_> = plan
            .kernels
            .iter()
            .filter_map(|kernel| match &kernel.spec {
                KernelSpec::AttentionChunk(s) => {
                    Some((s.attention.heads_per_block, s.row_groups, s.warpgroups))
                }
                _ => None,
            })
            .collect();
        assert_eq!(chunks.len(), 1, "{name}");
        chunks[0]
    };
    for (name, hopper, before) in [
        ("llama-3.1-8b", (4, 2, true), (4, 2, false)),
        ("qwen2.5-7b", (7, 1, true), (1, 8, false)),
        ("qwen2.5-1.5b", (6, 1, true), (2, 4, false)),
        ("llama-3.2-3b", (3, 2, true), (1, 8, false)),
        ("qwen3-0.6b", (2, 4, false), (2, 4, false)),
    ] {
        assert_eq!(divided(name, Target::Sm90), hopper, "{name}");
        assert_eq!(divided(name, Target::Sm80), before, "{name}");
    }
}

/// A product that does not expect what the product before wrote for it, or not in that layout, is found.
#[test]
fn inputs_in_another_form_than_the_product_reads_are_found() {
    let params = PlanParams { arithmetic: Arithmetic::F16, ..PlanParams::single(128).decode(8) };
    let plan = Plan::new(&shape("llama-3.2-1b"), Target::Sm90, params).unwrap();
    assert_eq!(plan.check(), Ok(()));
    let changed = |change: fn(&mut GemvShape)| {
        let mut plan = plan.clone();
        let products = plan.kernels.iter_mut().filter_map(|kernel| match &mut kernel.spec {
            KernelSpec::Gemv(product) => Some(product),
            _ => None,
        });
        products.for_each(change);
        plan.check().unwrap_err()
    };
    let expected = "x is not in the form that the product reads";
    let unexpected = changed(|product| product.received = false);
    assert!(unexpected.ends_with(expected), "{unexpected}");
    let other_layout = changed(|product| {
        if let Some(next) = &mut product.next {
            next.layout.forms.mins ^= true;
        }
    });
    assert!(other_layout.ends_with(expected), "{other_layout}");
}
