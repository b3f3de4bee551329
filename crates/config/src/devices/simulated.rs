//! GPUs that the host plays: `4GiB@2TFLOPS@12GB/s@10us@fails=7@context=300MiB@refuses=8MiB`.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use device::parse_bytes;
use native::Rates;
use proto::serving::Simulation as SimulationProto;

/// The most memory that a simulated GPU may have: what the address space of the host has room for.
const BYTES_MAX: u64 = 64 << 40;

/// A GPU that the host plays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedGpu {
    /// The GPU's memory.
    pub bytes: u64,
    /// The other properties of the GPU.
    pub simulation: Simulation,
}

/// The properties of a simulated GPU besides its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Simulation {
    /// The rates of the GPU.
    pub rates: Rates,
    /// The number of the allocation from now on that fails, the next one being 1; none if 0.
    pub fail_allocation: u64,
    /// The bytes that the driver takes for itself, if that is given.
    pub context_bytes: Option<u64>,
    /// Up to how many bytes its driver refuses pieces of memory; none if 0.
    pub refused_bytes: u64,
}

impl SimulatedGpu {
    /// Reads what `--simulated_gpus` says: a size, and what follows it after an `@` each.
    pub fn parse(text: &str) -> Result<Self> {
        let mut parts = text.split('@').map(str::trim);
        let size = parts.next().unwrap_or_default();
        let bytes = parse_bytes(size).with_context(|| format!("{size} is no size"))?;
        let is_possible = (1..=BYTES_MAX).contains(&bytes);
        ensure!(is_possible, "{size} is no size of a GPU: expected 1 byte to 64 TiB");
        let mut simulation = Simulation::default();
        for part in parts {
            let rates = &mut simulation.rates;
            if let Some(n) = part.strip_prefix("fails=") {
                simulation.fail_allocation =
                    n.parse().with_context(|| format!("{part}: a number is wanted"))?;
            } else if let Some(bytes) = part.strip_prefix("context=") {
                simulation.context_bytes = Some(context(bytes)?);
            } else if let Some(bytes) = part.strip_prefix("refuses=") {
                simulation.refused_bytes = refused(bytes)?;
            } else if part.ends_with("/s") {
                rates.copy_bytes_per_second = Some(copy_rate(part)?);
            } else if part.to_ascii_uppercase().ends_with("FLOPS") {
                rates.flops_per_second = Some(compute_rate(part)?);
            } else {
                rates.launch = time(part)?;
            }
        }
        Ok(Self { bytes, simulation })
    }
}

impl Simulation {
    /// Reads the properties from a device config.
    pub fn of(proto: &SimulationProto) -> Result<Self> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let compute = given(&proto.compute_rate).map(|text| compute_rate(&text)).transpose()?;
        let copy = given(&proto.copy_rate).map(|text| copy_rate(&text)).transpose()?;
        let launch = given(&proto.launch_time).map(|text| time(&text)).transpose()?;
        let rates = Rates {
            flops_per_second: compute,
            copy_bytes_per_second: copy,
            launch: launch.unwrap_or_default(),
        };
        let context_bytes = given(&proto.context).map(|text| context(&text)).transpose()?;
        let refused = given(&proto.refuse_up_to).map(|text| refused(&text)).transpose()?;
        Ok(Self {
            rates,
            fail_allocation: proto.fail_allocation,
            context_bytes,
            refused_bytes: refused.unwrap_or(0),
        })
    }
}

fn compute_rate(text: &str) -> Result<u64> {
    let number = text.trim().to_ascii_uppercase();
    let scaled = number.strip_suffix("FLOPS").and_then(|number| scaled(number.trim()));
    scaled.with_context(|| format!("{text} is no compute rate, such as 2TFLOPS"))
}

fn copy_rate(text: &str) -> Result<u64> {
    let bytes = text.trim().strip_suffix("/s").and_then(parse_bytes).filter(|bytes| *bytes > 0);
    bytes.with_context(|| format!("{text} is no copy rate, such as 12GB/s"))
}

fn context(text: &str) -> Result<u64> {
    parse_bytes(text).with_context(|| format!("{text} is no size of a context, such as 300MiB"))
}

fn refused(text: &str) -> Result<u64> {
    parse_bytes(text).with_context(|| format!("{text} is no size of what is refused, such as 8MiB"))
}

/// `2T`, `500G`, `1.5M`.
fn scaled(text: &str) -> Option<u64> {
    // Thousands, as of bytes.
    parse_bytes(&format!("{text}{}", if text.ends_with(char::is_alphabetic) { "B" } else { "" }))
        .filter(|rate| *rate > 0)
}

fn time(text: &str) -> Result<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => bail!(
            "{text} is no time, such as 10us, no rate, no fails=N, no context=SIZE and no \
             refuses=SIZE"
        ),
    };
    let number: f64 = number.parse().with_context(|| format!("{text} is no time"))?;
    Duration::try_from_secs_f64(number * seconds).with_context(|| format!("{text} is no time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_played_gpu_has_a_size_and_maybe_rates_and_failures() {
        let gpu = SimulatedGpu::parse("4GiB@2TFLOPS@12GB/s@10us@fails=7").unwrap();
        assert_eq!(gpu.bytes, 4 << 30);
        let rates = Rates {
            flops_per_second: Some(2_000_000_000_000),
            copy_bytes_per_second: Some(12_000_000_000),
            launch: Duration::from_micros(10),
        };
        let expected = Simulation { rates, fail_allocation: 7, ..Simulation::default() };
        assert_eq!(gpu.simulation, expected);
        let gpu = SimulatedGpu::parse("4GiB@context=300MiB@10us@refuses=8MiB").unwrap();
        assert_eq!(gpu.simulation.context_bytes, Some(300 << 20));
        assert_eq!(gpu.simulation.refused_bytes, 8 << 20);
        let plain = SimulatedGpu::parse("300MiB").unwrap();
        assert_eq!(plain, SimulatedGpu { bytes: 300 << 20, simulation: Simulation::default() });
        let some = SimulatedGpu::parse("1GB@1.5gflops").unwrap();
        assert_eq!(some.simulation.rates.flops_per_second, Some(1_500_000_000));
    }

    #[test]
    fn a_config_file_says_the_same() {
        let text = r#"compute_rate: "2TFLOPS" copy_rate: "12GB/s" launch_time: "10us"
            fail_allocation: 7 context: "300MiB" refuse_up_to: "8MiB""#;
        let simulation = Simulation::of(&proto::text::parse(text).unwrap()).unwrap();
        let gpu = SimulatedGpu::parse("1@2TFLOPS@12GB/s@10us@fails=7@context=300MiB@refuses=8MiB");
        let gpu = gpu.unwrap();
        assert_eq!(simulation, gpu.simulation);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "much",
            "1GiB@fast",
            "1GiB@0FLOPS",
            "1GiB@12GB/h",
            "1GiB@fails=x",
            "1@context=big",
            "1@refuses=some",
        ] {
            assert!(SimulatedGpu::parse(text).is_err(), "{text}");
        }
    }
}
