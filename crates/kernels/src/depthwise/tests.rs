use super::super::all;
use super::*;

/// Returns a row of the output, computed tap by tap in double precision.
fn exact(along: Along, lines: Lines<'_>, filter: &[f32], channels: usize, x: usize) -> Vec<f64> {
    let mut sums = vec![0f64; channels];
    for (y, tap) in (0..lines.count).flat_map(|y| (0..along.taps).map(move |tap| (y, tap))) {
        let at = (x * along.stride + tap * along.dilation).checked_sub(along.before);
        let Some(at) = at.filter(|at| *at < along.width) else { continue };
        for (c, sum) in sums.iter_mut().enumerate() {
            let pixel = lines.image[y * lines.step + at * channels + c];
            *sum += f64::from(pixel) * f64::from(filter[(y * along.taps + tap) * channels + c]);
        }
    }
    sums
}

#[track_caller]
fn check(kernels: &Kernels, along: Along, channels: usize, rows: usize, out_width: usize) {
    let step = along.width * channels;
    let image: Vec<f32> = (0..rows * step).map(|i| (i * 37 % 101) as f32 / 50. - 1.).collect();
    let filter: Vec<f32> =
        (0..rows * along.taps * channels).map(|i| (i * 29 % 67) as f32 / 33. - 1.).collect();
    let bias: Vec<f32> = (0..channels).map(|i| i as f32 / 10.).collect();
    let lines = Lines { image: &image, step, count: rows };
    let mut out = vec![f32::NAN; out_width * channels];
    let (after, activation) = (Some(&bias[..]), Activation::Relu6);
    let weights = DepthwiseWeights { channels, filter: &filter, bias: after, activation };
    row_with(kernels, along, lines, weights, &mut out);
    let mut bare = vec![f32::NAN; out_width * channels];
    let weights = DepthwiseWeights { bias: None, activation: Activation::None, ..weights };
    row_with(kernels, along, lines, weights, &mut bare);
    for (i, (got, bare)) in out.iter().zip(&bare).enumerate() {
        // To the bit: a sum that started from the bias would have rounded otherwise.
        let want = (bare + bias[i % channels]).clamp(0., 6.);
        assert_eq!(*got, want, "{} {along:?} of {channels}", kernels.name);
    }
    for x in 0..out_width {
        let want = exact(along, lines, &filter, channels, x);
        for c in 0..channels {
            let (got, want) = (out[x * channels + c], want[c] + f64::from(bias[c]));
            let close = (f64::from(got) - want.clamp(0., 6.)).abs() < 1e-4;
            assert!(close, "{} {along:?} of {channels}: {got} at {x}, not {want}", kernels.name);
        }
    }
}

#[test]
fn every_window_at_every_edge_is_right() {
    let widths = [1, 2, 3, 5, 7, 8, 14, 15, 29];
    for kernels in all() {
        for (taps, stride, dilation) in
            [(3, 1, 1), (3, 2, 1), (5, 1, 1), (5, 2, 1), (3, 1, 2), (4, 1, 1), (7, 3, 1)]
        {
            for (width, channels) in widths.iter().flat_map(|w| [8, 16, 19, 40].map(|c| (*w, c))) {
                let reach = (taps - 1) * dilation;
                // As "SAME" and "VALID" pad, and more than the window needs.
                for before in [0, reach / 2, reach] {
                    let along = Along { width, taps, stride, dilation, before };
                    let out_width = (width + 2 * before).saturating_sub(reach).div_ceil(stride);
                    check(kernels, along, channels, 2, out_width);
                }
            }
        }
    }
}
