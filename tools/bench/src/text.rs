//! Results as Markdown and as comma-separated values.

use std::fmt::Write;

use bespoke::device::{Bytes, Clocks, Kind};
use bespoke_kernels::kernels::attention::KvType;
use comfy_table::{Table, presets};

use crate::measure::Measurement;
use crate::profile::{MatrixCeiling, MatrixTime, Profile, Traffic};
use crate::{Build, Results, RoleSpan, RowsMeasurement, RowsTest, SpeculationMeasurement, Timeline};

/// All measurements; the tables of the profile only if `profile` is set.
pub fn markdown(results: &Results, profile: bool) -> String {
    let mut text = format!("{}\n\n{}\n", measurements(&results.measurements), footer(results));
    if !results.rows.is_empty() {
        write!(text, "\n{}\n", rows(&results.rows)).expect("writing to a string succeeds");
        if let Some(ceilings) = rows_ceilings(results) {
            write!(text, "\n{ceilings}\n").expect("writing to a string succeeds");
        }
    }
    if !results.speculation.is_empty() {
        write!(text, "\n{}\n", speculation(&results.speculation)).expect("writing to a string succeeds");
    }
    for profile in results.profiles.iter().filter(|_| profile) {
        write!(text, "\n{}", profile_text(profile)).expect("writing to a string succeeds");
    }
    for line in &results.timelines {
        write!(text, "\n{}", timeline_text(line)).expect("writing to a string succeeds");
    }
    for of_one in results.matrices.chunk_by(|a, b| a.model == b.model) {
        write!(text, "\n{}", ceilings_text(of_one)).expect("writing to a string succeeds");
    }
    text
}

/// Table of steps of several rows: sequences decoded side by side, and prompts.
fn rows(rows: &[RowsMeasurement]) -> Table {
    let mut table = table(&[
        "model",
        "test",
        "ms",
        "t/s",
        "t/s each",
        "GB/s",
        "of read ceiling",
        "TFLOPS",
        "of tensor ceiling",
    ]);
    for row in rows {
        let (test, each) = match row.test {
            RowsTest::Batch { sequences, depth } => {
                let each = row.tokens_per_second / f64::from(sequences);
                let plural = if sequences == 1 { "" } else { "s" };
                (format!("{sequences} sequence{plural} @ d{depth}"), format!("{each:.1}"))
            }
            RowsTest::Prompt { length } => (format!("pp{length}"), UNKNOWN.to_owned()),
        };
        table.add_row(vec![
            row.model.clone(),
            test,
            format!("{:.3}", row.milliseconds),
            format!("{:.0}", row.tokens_per_second),
            each,
            gigabytes(row.bytes_per_second),
            share(row.fraction_of_ceiling, 1),
            teraflops(row.operations_per_second),
            share(row.fraction_of_tensor_ceiling, 1),
        ]);
    }
    table
}

/// Table of speculation with synthetic drafts.
fn speculation(measurements: &[SpeculationMeasurement]) -> Table {
    let mut table = table(&[
        "model",
        "draft",
        "acceptance",
        "length",
        "drafted/step",
        "accepted/step",
        "t/s",
        "t/s without",
        "gain",
    ]);
    for m in measurements {
        table.add_row(vec![
            m.model.clone(),
            m.draft.clone().unwrap_or(UNKNOWN.to_owned()),
            format!("{}", m.rate),
            m.length.map_or("chosen".to_owned(), |length| length.to_string()),
            format!("{:.2}", m.drafted_per_step),
            format!("{:.2}", m.accepted_per_step),
            format!("{:.1}", m.tokens_per_second),
            format!("{:.1}", m.plain_tokens_per_second),
            format!("{:.2}", m.gain()),
        ]);
    }
    table
}

/// Sentence about the ceilings of steps of several rows; none on the emulator.
fn rows_ceilings(results: &Results) -> Option<String> {
    let tensor = results.rows.iter().find_map(|row| row.tensor_ceiling_operations_per_second)?;
    let read = results.measurements.iter().find_map(|m| m.ceiling_bytes_per_second)?;
    Some(format!(
        "Ceilings, measured in this run: a plain read of device memory, {} GB/s; dense products of f16 with f32 sums \
         (mma.m16n8k16), {} TFLOPS.",
        gigabytes(read),
        teraflops(tensor)
    ))
}

/// Cell of an unknown value.
const UNKNOWN: &str = "-";

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.to_vec());
    table
}

/// Type of the KV cache, if it is not the usual one.
fn cache(m: &Measurement) -> String {
    if m.memory.kv == KvType::F16 { String::new() } else { format!(", KV {}", m.memory.kv) }
}

fn measurements(measurements: &[Measurement]) -> Table {
    let mut table = table(&[
        "model",
        "size",
        "params",
        "device",
        "test",
        "t/s",
        "MB/token",
        "GB/s",
        "ceiling GB/s",
        "of ceiling",
    ]);
    for m in measurements {
        let depth = if m.depth > 0 { format!(" @ d{}", m.depth) } else { String::new() };
        table.add_row([
            m.model.clone(),
            Bytes(m.model_bytes).to_string(),
            parameters(m.parameters),
            format!("{} ({}, {})", m.device, m.target, m.mode),
            format!("tg{}{depth}{}", m.tokens, cache(m)),
            match m.repetitions.len() {
                1 => format!("{:.2}", m.tokens_per_second),
                _ => format!("{:.2} ± {:.2}", m.tokens_per_second, m.standard_deviation),
            },
            format!("{:.1}", m.bytes_per_token as f64 / 1e6),
            gigabytes(m.bytes_per_second),
            m.ceiling_bytes_per_second.map_or(UNKNOWN.to_owned(), gigabytes),
            share(m.fraction_of_ceiling, 1),
        ]);
    }
    table
}

/// Formats a number of weights as `8.03 B` or `494.03 M`.
fn parameters(count: u64) -> String {
    match count {
        0..1_000_000_000 => format!("{:.2} M", count as f64 / 1e6),
        _ => format!("{:.2} B", count as f64 / 1e9),
    }
}

/// Formats build, driver and clocks as `build: bespoke 0.1.0; CUDA 13.0, driver 580.159; clocks: SM 1980 to 1965 MHz,
/// memory 3201 MHz`.
fn footer(results: &Results) -> String {
    let Build { version, optimised, .. } = results.build;
    let mut text = format!("build: bespoke {version}");
    if !optimised {
        text += " (not optimised)";
    }
    if let Some(driver) = results.device.as_ref().and_then(|device| device.driver.as_ref()) {
        text += &format!("; {driver}");
    }
    if results.device.as_ref().is_some_and(|device| device.kind == Kind::Emulator) {
        text += "; on the emulator, whose time says nothing about a GPU's";
    }
    let clocks = |m: &Measurement| [m.clocks_before, m.clocks_after];
    let seen: Vec<Clocks> = results.measurements.iter().flat_map(clocks).flatten().collect();
    let range = |of: fn(&Clocks) -> u32| {
        let (low, high) = (seen.iter().map(of).min()?, seen.iter().map(of).max()?);
        Some(if low == high { format!("{low} MHz") } else { format!("{low} to {high} MHz") })
    };
    if let (Some(sm), Some(memory)) = (range(|clocks| clocks.sm_mhz), range(|clocks| clocks.memory_mhz)) {
        text += &format!("; clocks: SM {sm}, memory {memory}");
    }
    text
}

fn profile_text(profile: &Profile) -> String {
    let mut launches = table(&["launch", "kernel", "launches", "µs", "share", "MB", "GB/s", "of ceiling"]);
    let sum = profile.kernels_microseconds;
    for role in &profile.roles {
        let [time, megabytes, rate, fraction] = cells(&role.traffic);
        launches.add_row([
            role.role.to_string(),
            role.kernel.clone(),
            role.launches.to_string(),
            time,
            share(Some(role.share), 1),
            megabytes,
            rate,
            fraction,
        ]);
    }
    let mut matrices = table(&["matrix", "types", "shape", "launches", "µs", "MB", "GB/s", "of ceiling"]);
    for matrix in &profile.matrices {
        matrices.add_row(matrix_cells(matrix));
    }
    let replay = match profile.replay_microseconds {
        Some(replay) => format!(
            "{replay:.1} µs as a replay of the graph ({:.1} tokens/s): a gap of {:.1} µs",
            f64::from(profile.info.step.tokens()) * 1e6 / replay,
            sum - replay
        ),
        None => "no graph to compare with".to_owned(),
    };
    format!(
        "{}: every kernel by itself, launched eagerly with an event around each, no overlap.\n\n\
         {launches}\n\nSum of the kernels {sum:.1} µs; {replay}.\n\nThe matrices among them:\n\n{matrices}\n",
        profile.info.title()
    )
}

fn timeline_text(line: &Timeline) -> String {
    let mut roles =
        table(&["launch", "kernel", "launches", "µs early", "µs gap", "µs work", "µs uneven", "share"]);
    for role in &line.roles {
        let [early, gap, work, uneven] =
            [role.early, role.gap, role.work, role.uneven].map(|time| format!("{time:.2}"));
        roles.add_row([
            role.role.to_string(),
            role.kernel.clone(),
            role.launches.to_string(),
            early,
            gap,
            work,
            uneven,
            share(Some(role.share), 1),
        ]);
    }
    let sums = |of: fn(&RoleSpan) -> f64| -> f64 {
        line.roles.iter().map(|role| of(role) * role.launches as f64).sum()
    };
    format!(
        "{}: the launches of {} replay{}, by kernels that write timestamps.\n\n{roles}\n\n\
         {:.1} µs: {:.1} µs of work, {:.1} µs of gaps. Early: the first CTA starts so long before the end of the launch \
         before. Gap: from that end until the first CTA continues after its wait. Work: from then to the last CTA's end. \
         Uneven: from the first CTA's end to the last one's.\n",
        line.info.title(),
        line.replays,
        if line.replays == 1 { "" } else { "s" },
        line.microseconds,
        sums(|role| role.work),
        sums(|role| role.gap),
    )
}

fn ceilings_text(ceilings: &[MatrixCeiling]) -> String {
    let mut rows = table(&[
        "matrix",
        "types",
        "shape",
        "launches",
        "µs",
        "MB",
        "GB/s",
        "of ceiling",
        "rotating over",
        "kernel",
    ]);
    for ceiling in ceilings {
        let mut cells = matrix_cells(&ceiling.time).to_vec();
        cells.extend([Bytes(ceiling.rotated_bytes).to_string(), ceiling.kernel.clone()]);
        rows.add_row(cells);
    }
    let sum: f64 = ceilings.iter().map(|ceiling| ceiling.time.traffic.microseconds).sum();
    let bytes: u64 = ceilings.iter().map(|ceiling| ceiling.time.traffic.bytes).sum();
    let model = ceilings.first().map_or("", |ceiling| ceiling.model.as_str());
    let (read, at_ceiling) = match ceilings.first().and_then(|ceiling| ceiling.ceiling_bytes_per_second) {
        Some(read) => {
            let time = bytes as f64 / read * 1e6;
            (
                format!(" A plain read: {} GB/s.", gigabytes(read)),
                format!(", {time:.1} µs ({:.1} tokens/s) at the ceiling", 1e6 / time),
            )
        }
        None => (String::new(), String::new()),
    };
    format!(
        "{model}: every matrix kernel alone, its launches of a token back to back, with cold caches.{read}\n\n{rows}\n\n\
         All matrices of a token: {sum:.1} µs ({:.1} tokens/s) at these rates{at_ceiling}.\n",
        1e6 / sum
    )
}

fn matrix_cells(matrix: &MatrixTime) -> [String; 8] {
    let [time, megabytes, rate, fraction] = cells(&matrix.traffic);
    [
        matrix.matrix.clone(),
        matrix.types.clone(),
        format!("{}x{}", matrix.rows, matrix.cols),
        matrix.launches.to_string(),
        time,
        megabytes,
        rate,
        fraction,
    ]
}

/// Cells of a table: microseconds, megabytes, gigabytes per second, and percent of the ceiling.
fn cells(traffic: &Traffic) -> [String; 4] {
    [
        format!("{:.1}", traffic.microseconds),
        format!("{:.2}", traffic.bytes as f64 / 1e6),
        gigabytes(traffic.bytes_per_second),
        share(traffic.fraction_of_ceiling, 0),
    ]
}

/// Formats a fraction of the ceiling in percent.
fn share(fraction: Option<f64>, decimals: usize) -> String {
    fraction.map_or(UNKNOWN.to_owned(), |fraction| format!("{:.decimals$}%", fraction * 100.0))
}

/// Formats a rate in GB/s: without decimals if the rate is large, else with two.
fn gigabytes(rate: f64) -> String {
    let decimals = if rate >= 100e9 { 0 } else { 2 };
    format!("{:.decimals$}", rate / 1e9)
}

/// Formats operations per second in TFLOPS: with one decimal if there are at least ten, else with three.
fn teraflops(rate: f64) -> String {
    let decimals = if rate >= 10e12 { 1 } else { 3 };
    format!("{:.decimals$}", rate / 1e12)
}

/// Comma-separated values: a row per measurement, with empty cells for unknown ceilings.
pub fn csv(measurements: &[Measurement]) -> String {
    let mut text =
        "model,device,target,mode,tokens,depth,tokens_per_second,standard_deviation,bytes_per_token,\
                    bytes_per_second,ceiling_bytes_per_second,fraction_of_ceiling\n"
            .to_owned();
    for m in measurements {
        text += &format!(
            "{},{},{},{},{},{},{:.3},{:.3},{},{:.0},{},{}\n",
            m.model,
            m.device,
            m.target,
            m.mode,
            m.tokens,
            m.depth,
            m.tokens_per_second,
            m.standard_deviation,
            m.bytes_per_token,
            m.bytes_per_second,
            m.ceiling_bytes_per_second.map_or(String::new(), |rate| format!("{rate:.0}")),
            m.fraction_of_ceiling.map_or(String::new(), |fraction| format!("{fraction:.4}"))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shares_of_a_known_ceiling() {
        let with = |ceiling| cells(&Traffic::new(2.0, 3_000_000, ceiling));
        assert_eq!(with(Some(2e12)), ["2.0", "3.00", "1500", "75%"]);
        assert_eq!(with(None), ["2.0", "3.00", "1500", "-"]);
    }

    #[test]
    fn ceilings_of_steps_of_several_rows_are_named() {
        let row = |tensor: Option<f64>| RowsMeasurement {
            model: "m".to_owned(),
            test: RowsTest::Batch { sequences: 8, depth: 0 },
            milliseconds: 2.0,
            tokens_per_second: 4000.0,
            bytes_per_second: 2e12,
            fraction_of_ceiling: tensor.map(|_| 0.5),
            operations_per_second: 60e12,
            tensor_ceiling_operations_per_second: tensor,
            fraction_of_tensor_ceiling: tensor.map(|ceiling| 60e12 / ceiling),
        };
        let cells = |tensor| {
            let text = rows(&[row(tensor)]).to_string();
            let last = text.lines().last().expect("a row");
            last.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()[5..10].to_vec()
        };
        assert_eq!(cells(Some(600e12)), ["500.0", "2000", "50.0%", "60.0", "10.0%"]);
        assert_eq!(cells(None), ["500.0", "2000", "-", "60.0", "-"]);
        assert_eq!(teraflops(1.5e9), "0.002");
    }
}
