//! Sampling on the emulator: whole models, and the distribution of the draws. `kernels.rs` tests the kernels for all
//! parameters.

use std::path::PathBuf;

use bespoke::device::{Address, Allocation, Device, Launch, Selector, open};
use bespoke::engine::{Engine, EngineOptions, SamplingParams};
use bespoke_codegen::prelude::*;
use bespoke_gguf::Gguf;
use bespoke_kernels::kernels::sample::{SampleShape, key, philox};
use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::shape::ModelShape;
use bespoke_kernels::spec::KernelSpec;

const PROMPT: [u32; 3] = [5, 17, 300];
const TOKENS: u32 = 12;

fn engine(sampling: SamplingParams, eager: bool) -> Engine {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/llama-q8_0.gguf");
    let gguf = Gguf::open(path).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "llama-q8_0").unwrap();
    let device = open(Selector::Emulator).unwrap().device;
    let options = EngineOptions { context: Some(64), eager, sampling, ..EngineOptions::default() };
    Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap()
}

fn warm(temperature: f32, seed: u64) -> SamplingParams {
    SamplingParams { temperature, seed, ..SamplingParams::default() }
}

/// Decodes, and returns the tokens after the prompt and the logits from which each was chosen.
fn decode(engine: &mut Engine) -> (Vec<u32>, Vec<Vec<f32>>) {
    engine.start(&PROMPT).unwrap();
    for _ in 1..PROMPT.len() {
        engine.step().unwrap();
    }
    let step = |_| {
        engine.step().unwrap();
        engine.wait().unwrap();
        (engine.token(engine.position()).unwrap(), engine.logits().unwrap())
    };
    (0..TOKENS).map(step).unzip()
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let mut graph = engine(warm(1.0, 1), false);
    let first = decode(&mut graph).0;
    assert_eq!(decode(&mut graph).0, first);
    assert_eq!(decode(&mut engine(warm(1.0, 1), true)).0, first, "eagerly");
    graph.set_sampling(&warm(1.0, 2)).unwrap();
    assert_ne!(decode(&mut graph).0, first);
    graph.set_sampling(&warm(1.0, 1 << 32 | 1)).unwrap();
    assert_ne!(decode(&mut graph).0, first, "the seed's upper half is ignored");
    graph.set_sampling(&warm(1.0, 1)).unwrap();
    assert_eq!(decode(&mut graph).0, first);
}

#[test]
fn sampling_without_temperature_or_with_one_candidate_is_greedy() {
    let greedy = decode(&mut engine(SamplingParams::default(), false)).0;
    let mut drawing = engine(warm(2.0, 3), false);
    assert_ne!(decode(&mut drawing).0, greedy);
    for params in [
        warm(0.0, 3),
        SamplingParams { top_k: 40, top_p: 0.5, ..warm(0.0, 3) },
        SamplingParams { top_k: 1, ..warm(2.0, 3) },
        SamplingParams { top_p: 0.0, ..warm(2.0, 3) },
        SamplingParams { min_p: 1.0, ..warm(2.0, 3) },
        warm(1e-20, 3),
    ] {
        drawing.set_sampling(&params).unwrap();
        assert_eq!(decode(&mut drawing).0, greedy, "{params:?}");
    }
}

/// With only penalties and a bias, the largest changed logit is chosen; the window includes the prompt. The penalties
/// reward recent tokens, since this model does not repeat itself otherwise.
#[test]
fn penalties_and_bias_change_the_greedy_choice() {
    let default = SamplingParams::default;
    let window = |repeat_last_n| SamplingParams { repeat_last_n, ..default() };
    let mut engine = engine(SamplingParams { repeat_penalty: 0.05, ..default() }, false);
    let plain = decode_with(&mut engine, &default()).0;
    for params in [
        SamplingParams { repeat_penalty: 0.05, ..window(1) },
        SamplingParams { repeat_penalty: 0.05, ..window(4) },
        SamplingParams { repeat_penalty: 0.05, ..window(64) },
        SamplingParams { presence_penalty: -8.0, ..window(4) },
        SamplingParams { frequency_penalty: -2.5, ..window(u32::MAX) },
        SamplingParams { logit_bias: vec![(plain[0], f32::NEG_INFINITY), (plain[3], -20.0)], ..default() },
        SamplingParams { logit_bias: vec![(11, 9.0)], frequency_penalty: 6.0, ..window(8) },
    ] {
        let (tokens, logits) = decode_with(&mut engine, &params);
        let mut history = PROMPT.to_vec();
        let mut changed = 0;
        for (token, logits) in tokens.into_iter().zip(logits) {
            let best = |logits: &[f32]| {
                (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
            };
            assert_eq!(token, best(&penalised(&logits, &history, &params)), "{params:?} after {history:?}");
            changed += u32::from(token != best(&logits));
            history.push(token);
        }
        assert!(changed > 0, "{params:?} changed nothing");
    }
    assert_eq!(decode_with(&mut engine, &default()).0, plain);
}

fn decode_with(engine: &mut Engine, params: &SamplingParams) -> (Vec<u32>, Vec<Vec<f32>>) {
    engine.set_sampling(params).unwrap();
    decode(engine)
}

/// Logits after bias and penalties, by the definitions.
fn penalised(logits: &[f32], history: &[u32], params: &SamplingParams) -> Vec<f32> {
    let recent = &history[history.len().saturating_sub(params.repeat_last_n as usize)..];
    let penalised = |token: u32, logit: f32| {
        let bias: f32 = params.logit_bias.iter().filter(|bias| bias.0 == token).map(|bias| bias.1).sum();
        let (logit, count) = (logit + bias, recent.iter().filter(|&&recent| recent == token).count());
        if count == 0 {
            return logit;
        }
        let repeated =
            if logit > 0.0 { logit / params.repeat_penalty } else { logit * params.repeat_penalty };
        repeated - (count as f32 * params.frequency_penalty + params.presence_penalty)
    };
    (0..).zip(logits).map(|(token, &logit)| penalised(token, logit)).collect()
}

#[test]
fn unsupported_sampling_is_refused() {
    let mut greedy = engine(SamplingParams::default(), false);
    assert_eq!(
        greedy.set_sampling(&warm(1.0, 0)).unwrap_err().to_string(),
        "the model was loaded for greedy decoding; load it with a temperature above 0, a penalty or a logit bias to \
         sample"
    );
    assert_eq!(
        greedy.set_sampling(&warm(-1.0, 0)).unwrap_err().to_string(),
        "the temperature is -1; 0 or more is needed"
    );
    let bias = SamplingParams { logit_bias: vec![(5000, 1.0)], ..SamplingParams::default() };
    assert!(
        greedy
            .set_sampling(&bias)
            .unwrap_err()
            .to_string()
            .starts_with("there is no token 5000 for the logit bias")
    );
}

/// Allocates device memory with these words.
fn words(device: &dyn Device, name: &str, words: &[u32]) -> Allocation {
    let memory = device.alloc(name, words.len() as u64 * 4).unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    device.upload(memory.address(), &bytes).unwrap();
    memory
}

fn read(device: &dyn Device, address: Address, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    device.download(address, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

/// A launch of a kernel with one CTA.
fn launch_of(device: &dyn Device, kernel: &Kernel, params: &[Address]) -> Launch {
    let ptx = kernel.compile(Target::Sm90).unwrap().ptx;
    Launch {
        kernel: device.load(kernel.name(), &ptx).unwrap().kernel(kernel.name()).unwrap(),
        grid: [1; 3],
        block: [kernel.threads().unwrap(), 1, 1],
        dynamic_shared: 0,
        params: params.iter().flat_map(|address| address.0.to_le_bytes()).collect(),
        programmatic: false,
    }
}

/// Launches a kernel with one CTA `times` times.
fn launch(device: &dyn Device, kernel: &Kernel, params: &[Address], times: u32) {
    let mut sequence = device.sequence(vec![launch_of(device, kernel, params)]).unwrap();
    for _ in 0..times {
        sequence.run_eager().unwrap();
    }
    sequence.wait().unwrap();
}

/// Writes the random words of the counter and the key at `counter` to `out`.
#[kernel(threads = 32)]
fn random_words(counter: Ptr<Global, u32>, out: Ptr<Global, u32>) {
    if thread_index() == 0 {
        let word = |i: u32| counter.at(i).load();
        let words = philox::philox([word(0), word(1), word(2), word(3)], [word(4), word(5)]);
        for (i, word) in words.into_iter().enumerate() {
            out.at(i).store(word);
        }
    }
}

/// Known answers of Random123 1.14, `kat_vectors`.
#[test]
fn philox_gives_the_known_answers() {
    let device = open(Selector::Emulator).unwrap().device;
    let kernel = random_words().unwrap();
    for (counter, expected) in [
        ([0; 6], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([!0; 6], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344, 0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ] {
        let (counter, out) = (words(&*device, "counter", &counter), words(&*device, "out", &[0; 4]));
        launch(&*device, &kernel, &[counter.address(), out.address()], 1);
        assert_eq!(read(&*device, out.address(), 4), expected);
    }
}

/// Compares draws at many positions with probabilities in double precision.
#[test]
fn draws_follow_the_probabilities() {
    const DRAWS: u32 = 3000;
    let shape = SampleShape { tokens: 1, vocab: 64, blocks: 1, threads: 64, choose_threads: 64 };
    let kernel = KernelSpec::ChooseSampled(shape.clone()).record().unwrap();
    // Likelihoods 1, 1/2, 1/3, … (Zipf's law) in a permuted order.
    let likelihood = |token: usize| 1.0 / (1.0 + (token * 37 % 64) as f64);
    let keys: Vec<u32> = (0..64).map(|token| likelihood(token).ln() as f32).map(key_of).collect();
    let tops: Vec<u32> = keys.chunks(32).map(|group| *group.iter().max().unwrap()).collect();
    for (params, power, kept) in [
        (warm(1.0, 1), 1.0, 64),
        (warm(2.0, 2), 0.5, 64),
        (SamplingParams { top_k: 10, ..warm(0.5, 3) }, 2.0, 10),
        // Σ 1/i is 4.744 up to 64 and 3.318 up to 15, a share of 0.7.
        (SamplingParams { top_p: 0.69, ..warm(1.0, 4) }, 1.0, 15),
        (SamplingParams { min_p: 0.099, ..warm(1.0, 5) }, 1.0, 10),
        (SamplingParams { top_k: 20, top_p: 0.8, min_p: 0.15, ..warm(1.0, 6) }, 1.0, 6),
    ] {
        let device = open(Selector::Emulator).unwrap().device;
        let words = |name: &str, content: &[u32]| words(&*device, name, content);
        let buffers = [
            words("keys", &keys),
            words("tops", &tops),
            words("sampling", &params.words()),
            words("sequence", &vec![0; DRAWS as usize + 1]),
            words("finished", &vec![0; DRAWS as usize + 1]),
            words("state", &Row { prompt: 1, chooses: true, ..Row::default() }.words()),
        ];
        let addresses: Vec<Address> = buffers.iter().map(Allocation::address).collect();
        launch(&*device, &kernel, &addresses, DRAWS);
        assert_eq!(read(&*device, addresses[5], 1), [DRAWS]);
        let mut counts = [0u32; 64];
        for token in &read(&*device, addresses[4], DRAWS as usize + 1)[1..] {
            counts[*token as usize] += 1;
        }
        // Expected weights: the filters keep the `kept` most likely tokens.
        let weight = |token: usize| {
            let likelihood = likelihood(token);
            if likelihood * f64::from(kept) > 0.999 { likelihood.powf(power) } else { 0.0 }
        };
        let weights: Vec<f64> = (0..64).map(weight).collect();
        check_distribution(&counts, &weights, &format!("{params:?}"));
    }
}

/// Checks that draws are distributed as `weights`, by Pearson's statistic: within four standard deviations of its mean.
/// A token without weight must not be drawn.
fn check_distribution(counts: &[u32], weights: &[f64], what: &str) {
    let (draws, total) = (counts.iter().sum::<u32>(), weights.iter().sum::<f64>());
    let (mut statistic, mut cells) = (0.0, 0);
    for (token, (&count, &weight)) in counts.iter().zip(weights).enumerate() {
        let expected = weight / total * f64::from(draws);
        assert!(weight > 0.0 || count == 0, "{what}: token {token} was filtered out");
        if weight > 0.0 {
            statistic += (f64::from(count) - expected).powi(2) / expected;
            cells += 1;
        }
    }
    let freedom = f64::from(cells - 1);
    let deviations = (statistic - freedom) / (2.0 * freedom).sqrt();
    assert!(deviations < 4.0, "{what}: {statistic} over {freedom} degrees of freedom");
    assert!(deviations > -4.0, "too uniform: {what}: {statistic} over {freedom} degrees of freedom");
}

/// Compares draws of both launches, under penalties, a bias and filters, with probabilities in double precision by the
/// definitions. The sequence is the same for every draw; the seed differs.
#[test]
fn draws_follow_the_penalised_probabilities() {
    const DRAWS: u32 = 3000;
    const VOCAB: u32 = 64;
    // Read if the parameters say so.
    const MASK: [u32; 2] = [0xF0F0_1234, 0x0BAD_CAFE];
    let shape = SampleShape { tokens: 1, vocab: VOCAB, blocks: 1, threads: 64, choose_threads: 64 };
    let kernels = [KernelSpec::SampleKeys(shape.clone()), KernelSpec::ChooseSampled(shape.clone())]
        .map(|spec| spec.record().unwrap());
    // Logits from -1.6 to 1.55, and a history in which some tokens are repeated; two are outside of the window.
    let logits: Vec<f32> = (0..VOCAB).map(|token| (token * 37 % 64) as f32 * 0.05 - 1.6).collect();
    let history = [9, 9, 3, 60, 3, 17, 3, 60, 22, 41];
    let window = |temperature| SamplingParams { repeat_last_n: 8, ..warm(temperature, 0) };
    let logit_bias = vec![(5, 2.0), (60, -1.5), (3, 1.0), (8, f32::NEG_INFINITY), (31, -0.75)];
    for params in [
        SamplingParams { presence_penalty: 1.5, ..window(1.0) },
        SamplingParams { frequency_penalty: -0.4, ..window(1.0) },
        SamplingParams { logit_bias: logit_bias.clone(), ..window(1.3) },
        SamplingParams { logit_bias: logit_bias.clone(), masked: true, ..window(1.1) },
        SamplingParams {
            repeat_penalty: 1.3,
            presence_penalty: -0.5,
            frequency_penalty: 0.25,
            logit_bias: logit_bias.clone(),
            top_k: 30,
            top_p: 0.9,
            min_p: 0.1,
            ..window(0.8)
        },
    ] {
        let device = open(Selector::Emulator).unwrap().device;
        let words = |name: &str, content: &[u32]| words(&*device, name, content);
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        let position = history.len() as u32 - 1;
        let state = Row { position, prompt: 1, chooses: true, ..Row::default() }.words();
        let [logits_at, bias, mask, sequence, sampling, state_at, keys, tops, finished] = [
            words("logits", &bits(&logits)),
            words("bias", &bits(&params.bias_row(VOCAB))),
            words("mask", &MASK),
            words("sequence", &[&history[..], &[0]].concat()),
            words("sampling", &params.words()),
            words("state", &state),
            words("keys", &[0; VOCAB as usize]),
            words("tops", &[0; VOCAB as usize / 32]),
            words("finished", &vec![0; history.len() + 1]),
        ];
        let at = Allocation::address;
        let launches = [
            vec![
                at(&logits_at),
                at(&bias),
                at(&mask),
                at(&sequence),
                at(&sampling),
                at(&state_at),
                at(&keys),
                at(&tops),
            ],
            vec![at(&keys), at(&tops), at(&sampling), at(&sequence), at(&finished), at(&state_at)],
        ];
        let launches =
            kernels.iter().zip(&launches).map(|(kernel, params)| launch_of(&*device, kernel, params));
        let mut step = device.sequence(launches.collect()).unwrap();
        let upload = |memory: &Allocation, words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            device.upload(memory.address(), &bytes).unwrap();
        };
        let mut counts = [0u32; VOCAB as usize];
        for draw in 0..DRAWS {
            upload(&sampling, &SamplingParams { seed: draw.into(), ..params.clone() }.words());
            upload(&state_at, &state);
            step.run_eager().unwrap();
            let token = read(&*device, at(&finished), history.len() + 1)[history.len()];
            counts[token as usize] += 1;
        }
        let mut changed = penalised(&logits, &history, &params);
        for (token, logit) in changed.iter_mut().enumerate() {
            if params.masked && MASK[token / 32] >> (token % 32) & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
        check_distribution(&counts, &exact_weights(&changed, &params), &format!("{params:?}"));
    }
}

/// Weights of tokens after the filters, in double precision by the definitions; 0 for removed tokens.
fn exact_weights(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    let likelihood = |token: usize| f64::from(logits[token]).exp();
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    ranked.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if params.top_k > 0 {
        ranked.truncate(params.top_k as usize);
    }
    let total: f64 = ranked.iter().map(|&token| likelihood(token)).sum();
    let best = likelihood(ranked[0]);
    let mut before = 0.0;
    let mut weights = vec![0.0; logits.len()];
    for token in ranked {
        let within = params.top_p >= 1.0 || before < f64::from(params.top_p) * total;
        before += likelihood(token);
        if within && likelihood(token) >= f64::from(params.min_p) * best {
            weights[token] = likelihood(token).powf(1.0 / f64::from(params.temperature));
        }
    }
    weights
}

/// Sort key of a finite logit, as the sampling kernels compute it.
fn key_of(logit: f32) -> u32 {
    let bits = (logit + 0.0).to_bits();
    let key = if logit < 0.0 { !bits } else { bits | 0x8000_0000 };
    assert!(key > key::LOWEST);
    key
}
