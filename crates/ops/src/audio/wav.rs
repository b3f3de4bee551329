//! `DecodeWav`: the samples of a WAV file of 16 bits.
//!
//! Follows `wav_io.cc` and `decode_wav_op.cc` of TensorFlow.

use crate::prelude::*;

/// The most samples that a file may be padded to.
const N_SAMPLES_MAX: usize = 1 << 28;

pub(super) const DEF: OpDef = OpDef::pure("DecodeWav", RowRule::Mixed, |attrs| {
    let count = |name: &str| match attrs.int_or(name, -1)? {
        -1 => Ok(None),
        number @ 0.. => Ok(usize::try_from(number).ok()),
        number => invalid!("{name} must be non-negative, got {number}"),
    };
    let (channels, samples) = (count("desired_channels")?, count("desired_samples")?);
    Ok(Box::new(DecodeWav { channels, samples }))
});

struct DecodeWav {
    /// The number of channels to give, if not the file's.
    channels: Option<usize>,
    /// The number of samples to give, if not the file's.
    samples: Option<usize>,
}

impl Op for DecodeWav {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        let [contents] = arity(inputs)?;
        contents.require_rank(0)?;
        let dim = |n: Option<usize>| n.map_or(Dim::Unknown, Dim::of);
        Ok(vec![
            Spec::new(DType::F32, [dim(self.samples), dim(self.channels)]),
            Spec::scalar(DType::I32),
        ])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let contents = ctx.input(0);
        if contents.dtype() != DType::String || contents.n_elements() != 1 {
            return invalid!("contents must be scalar, got shape {}", contents.shape());
        }
        let wav = Wav::read(contents.strings().get(0))?;
        let n_own = wav.samples.len() / wav.n_channels / 2;
        let n_samples = self.samples.unwrap_or(n_own);
        let n_channels = self.channels.unwrap_or(wav.n_channels);
        if n_samples.saturating_mul(n_channels) > N_SAMPLES_MAX {
            let text = format!("{n_samples} samples of {n_channels} channels are too many");
            return Err(Error::ResourceExhausted(text));
        }
        let mut out = ctx.output(0, DType::F32, &Shape::of(&[n_samples, n_channels]))?;
        let rows = out.as_mut_slice::<f32>().chunks_exact_mut(n_channels.max(1));
        for (sample, row) in rows.enumerate() {
            pace(16)?;
            for (channel, out) in row.iter_mut().enumerate() {
                // A channel that the file lacks is its last; a sample that it lacks is silence.
                let at = 2 * (sample * wav.n_channels + channel.min(wav.n_channels - 1));
                *out = match wav.samples.get(at..at + 2) {
                    Some(&[low, high]) if sample < n_own => {
                        f32::from(i16::from_le_bytes([low, high])) / 32768.0
                    }
                    _ => 0.0,
                };
            }
        }
        let mut rate = ctx.output(1, DType::I32, &Shape::scalar())?;
        rate.as_mut_slice::<i32>()[0] = wav.rate;
        Ok(())
    }
}

struct Wav<'a> {
    n_channels: usize,
    rate: i32,
    /// Two bytes a sample.
    samples: &'a [u8],
}

impl<'a> Wav<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let mut rest = bytes;
        // The texts are TensorFlow's (`wav_io.cc`).
        expect(&mut rest, b"RIFF")?;
        number(&mut rest, 4)?;
        expect(&mut rest, b"WAVE")?;
        expect(&mut rest, b"fmt ")?;
        let size = number(&mut rest, 4)?;
        if !(16..=18).contains(&size) {
            return invalid!("Bad chunk size for WAV: Expected 16, 17, or 18, but got {size}");
        }
        let format = number(&mut rest, 2)?;
        if format != 1 {
            return invalid!("Bad audio format for WAV: Expected 1 (PCM), but got {format}");
        }
        let (n_channels, rate) = (number(&mut rest, 2)?, number(&mut rest, 4)?);
        let (per_second, per_sample) = (number(&mut rest, 4)?, number(&mut rest, 2)?);
        let bits = number(&mut rest, 2)?;
        if bits != 16 {
            return invalid!("Can only read 16-bit WAV files, but received {bits}");
        }
        let bytes_each = bits * n_channels / 8;
        if n_channels == 0 || per_sample != bytes_each || per_second != bytes_each * rate {
            return invalid!("Bad bytes per sample or per second in WAV header");
        }
        take(&mut rest, size as usize - 16)?;
        let samples = data(rest)?;
        let Ok(rate) = i32::try_from(rate) else { return invalid!("a rate of {rate}") };
        Ok(Self { n_channels: n_channels as usize, rate, samples })
    }
}

/// The contents of the last chunk called `data`.
fn data(mut rest: &[u8]) -> Result<&[u8]> {
    let mut found = None;
    while !rest.is_empty() {
        let is_data = take(&mut rest, 4)? == b"data";
        let size = number(&mut rest, 4)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // What is passed over may be missing.
        match is_data {
            true => found = Some(take(&mut rest, size)?),
            false => rest = rest.get(size..).unwrap_or_default(),
        }
    }
    found.map_or_else(|| invalid!("No data chunk found in WAV"), Ok)
}

fn expect(rest: &mut &[u8], text: &[u8]) -> Result<()> {
    let got = take(rest, text.len())?;
    if got != text {
        let (text, got) = (String::from_utf8_lossy(text), String::from_utf8_lossy(got));
        return invalid!("Header mismatch: Expected {text} but found {got}");
    }
    Ok(())
}

fn number(rest: &mut &[u8], n: usize) -> Result<u64> {
    let bytes = take(rest, n)?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Result<&'a [u8]> {
    let Some((taken, after)) = rest.split_at_checked(n) else {
        return invalid!("Data too short when trying to read {n} bytes of a WAV file");
    };
    *rest = after;
    Ok(taken)
}
