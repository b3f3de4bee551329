//! Windows that slide over an image: which axes they slide along, how far, and what pads them.
//!
//! Shared by convolution and pooling, in two and three dimensions. Two dimensions are three of
//! which the first has size 1. Follows `common_shape_fns.cc` and `tensor_format.h`.

use crate::prelude::*;
use smallvec::SmallVec;

/// The order of batch, channels and the axes of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The axes that a window slides along: 2 or 3.
    pub(crate) n_axes: usize,
    /// `true` if channels come before the axes of the image.
    pub(crate) channels_first: bool,
}

/// The movement of a window along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slide {
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pub(crate) padding: Padding,
}

/// The padding of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Padding {
    /// As much as makes the output as large as the input, divided by the stride.
    Same,
    /// Nothing.
    Valid,
    /// This much before and after.
    Explicit(usize, usize),
}

/// A window over an image of three axes with all sizes known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) input: [usize; 3],
    pub(crate) size: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) dilation: [usize; 3],
    /// The padding of each axis in front.
    pub(crate) before: [usize; 3],
}

impl Layout {
    /// The layout that attribute `data_format` names.
    pub(crate) fn read(attrs: &Attrs<'_>, n_axes: usize) -> Result<Self> {
        let last = if n_axes == 2 { "NHWC" } else { "NDHWC" };
        let channels_first = match attrs.str_or("data_format", last)? {
            name if name == last => false,
            "NCHW" if n_axes == 2 => true,
            "NCDHW" if n_axes == 3 => true,
            name => return invalid!("data format {name} is not known here"),
        };
        Ok(Self { n_axes, channels_first })
    }

    /// Returns the place of the channels.
    pub(crate) fn channel(self) -> usize {
        if self.channels_first { 1 } else { self.n_axes + 1 }
    }

    /// Returns the place of axis number `i` of the image.
    pub(crate) fn axis(self, i: usize) -> usize {
        if self.channels_first { i + 2 } else { i + 1 }
    }

    /// The number of dimensions.
    pub(crate) fn rank(self) -> usize {
        self.n_axes + 2
    }

    /// Sizes of the image's axes, filled up in front with `fill` to three.
    pub(crate) fn three<T: Copy>(self, fill: T, of: impl Fn(usize) -> T) -> [T; 3] {
        let missing = 3 - self.n_axes;
        std::array::from_fn(|i| i.checked_sub(missing).map_or(fill, &of))
    }

    /// Dimensions in the order of this layout.
    pub(crate) fn arrange<T: Clone>(self, batch: T, axes: &[T], channels: T) -> SmallVec<[T; 5]> {
        let mut dims: SmallVec<[T; 5]> =
            std::iter::once(batch).chain(axes.iter().cloned()).collect();
        dims.insert(self.channel(), channels);
        dims
    }
}

/// A value for each axis.
pub(crate) type PerAxis<T> = SmallVec<[T; 3]>;

/// Reads how a window slides from `strides`, `dilations`, `padding` and `explicit_paddings`.
pub(crate) fn slides(attrs: &Attrs<'_>, layout: Layout) -> Result<Vec<Slide>> {
    let ones = &[1; 5][..layout.rank()];
    // TensorFlow's code where batch or channels are to be skipped depends on the op.
    let read = |values: &[i64], name: &str| match per_axis(values, layout, name) {
        Err(Error::Unimplemented(text)) if layout.n_axes == 3 => Err(Error::InvalidArgument(text)),
        read => read,
    };
    let strides = read(attrs.ints("strides")?, "strides")?;
    let dilations = read(attrs.ints_or("dilations", ones)?, "dilations")?;
    let paddings = paddings(attrs, layout)?;
    let axes = strides.iter().zip(dilations).zip(paddings);
    Ok(axes
        .map(|((stride, dilation), padding)| Slide { stride: *stride, dilation, padding })
        .collect())
}

/// The padding of each axis.
pub(crate) fn paddings(attrs: &Attrs<'_>, layout: Layout) -> Result<PerAxis<Padding>> {
    let padding = attrs.str("padding")?;
    if padding != "EXPLICIT" && !attrs.ints_or("explicit_paddings", &[])?.is_empty() {
        // The text is TensorFlow's (`common_shape_fns.cc`).
        return invalid!(
            "explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT"
        );
    }
    match padding {
        "SAME" => Ok(SmallVec::from_elem(Padding::Same, layout.n_axes)),
        "VALID" => Ok(SmallVec::from_elem(Padding::Valid, layout.n_axes)),
        "EXPLICIT" => explicit(attrs.ints("explicit_paddings")?, layout),
        name => invalid!("padding {name} is not known here"),
    }
}

fn explicit(values: &[i64], layout: Layout) -> Result<PerAxis<Padding>> {
    if values.len() != 2 * layout.rank() {
        let n = 2 * layout.rank();
        return invalid!("explicit_paddings must contain {n} values, but got: {}", values.len());
    }
    let Some(sizes): Option<Vec<usize>> = values.iter().map(|v| small(*v)).collect() else {
        return invalid!("All elements of explicit_paddings must be nonnegative");
    };
    let pair = |at: usize| (sizes[2 * at], sizes[2 * at + 1]);
    if pair(0) != (0, 0) || pair(layout.channel()) != (0, 0) {
        return invalid!("explicit_paddings of the batch or depth dimensions must be 0");
    }
    let padding = |i| {
        let (before, after) = pair(layout.axis(i));
        Padding::Explicit(before, after)
    };
    Ok((0..layout.n_axes).map(padding).collect())
}

/// The values of an attribute that stand for the image's axes; those of batch and channels must be
/// 1.
pub(crate) fn per_axis(values: &[i64], layout: Layout, name: &str) -> Result<PerAxis<usize>> {
    if values.len() != layout.rank() {
        return invalid!("{name} must have {} values, but got {}", layout.rank(), values.len());
    }
    if values[0] != 1 || values[layout.channel()] != 1 {
        return Err(Error::Unimplemented(only_axes(name)));
    }
    let sizes: Option<PerAxis<usize>> =
        (0..layout.n_axes).map(|i| small(values[layout.axis(i)]).filter(|v| *v > 0)).collect();
    sizes.map_or_else(|| invalid!("{name} must be above 0"), Ok)
}

/// Returns the message about an attribute that is not 1 for batch and channels.
fn only_axes(name: &str) -> String {
    format!("{name} of the batch or depth dimensions must be 1")
}

/// A value that fits any sum or product we make of it.
fn small(value: i64) -> Option<usize> {
    usize::try_from(value).ok().filter(|value| *value <= i32::MAX as usize)
}

impl Padding {
    /// The larger of the paddings that are named.
    pub(crate) fn largest(self) -> usize {
        match self {
            Self::Explicit(before, after) => before.max(after),
            Self::Same | Self::Valid => 0,
        }
    }
}

impl Slide {
    /// The size of the output along an axis, as far as it is known.
    pub(crate) fn infer(self, input: &Dim, size: &Dim) -> Result<Dim> {
        if let (Some(input), Some(size)) = (input.size(), size.size()) {
            return Ok(Dim::of(self.place(input, size)?.0));
        }
        let (one, stride) = (Dim::Known(1), Dim::of(self.stride));
        let up = match self.padding {
            Padding::Same => input.plus(&stride).minus(&one),
            Padding::Valid | Padding::Explicit(..) => {
                let (before, after) = self.explicit();
                let reach = size.minus(&one).times(&Dim::of(self.dilation)).plus(&one);
                input.plus(&Dim::of(before + after)).minus(&reach).plus(&stride)
            }
        };
        Ok(up.divided_by(&stride))
    }

    /// The size of the output along an axis, and the padding in front.
    pub(crate) fn place(self, input: usize, size: usize) -> Result<(usize, usize)> {
        let too_large = || Error::InvalidArgument("the window is too large".to_owned());
        let signed = |size: usize| i64::try_from(size).map_err(|_| too_large());
        let (stride, dilation) = (signed(self.stride)?, signed(self.dilation)?);
        // A window without any place reaches less than none.
        let reach =
            (signed(size)? - 1).checked_mul(dilation).and_then(|reach| reach.checked_add(1));
        let reach = reach.ok_or_else(too_large)?;
        if self.padding == Padding::Same {
            let output = input.div_ceil(self.stride);
            let needed = signed(output.saturating_sub(1) * self.stride)?.saturating_add(reach);
            let lacking = needed.saturating_sub(signed(input)?).max(0) / 2;
            return Ok((output, usize::try_from(lacking).map_err(|_| too_large())?));
        }
        let (before, after) = self.explicit();
        let padded = signed(input.checked_add(before + after).ok_or_else(too_large)?)?;
        // Rounded towards zero: less than a stride too little room is none, not a fault.
        match usize::try_from((padded + stride - reach) / stride) {
            Ok(output) => Ok((output, before)),
            Err(_) => invalid!("Computed output size would be negative: {padded} - {reach}"),
        }
    }

    fn explicit(self) -> (usize, usize) {
        match self.padding {
            Padding::Explicit(before, after) => (before, after),
            Padding::Same | Padding::Valid => (0, 0),
        }
    }
}

impl Window {
    /// The window of `size` over an image, both in the axes of `layout`.
    pub(crate) fn new(
        layout: Layout,
        slides: &[Slide],
        image: impl Fn(usize) -> usize,
        size: impl Fn(usize) -> usize,
    ) -> Result<Self> {
        let mut placed = [(0, 0); 3];
        for (i, slide) in slides.iter().enumerate() {
            placed[i] = slide.place(image(i), size(i))?;
        }
        Ok(Self {
            input: layout.three(1, &image),
            size: layout.three(1, &size),
            output: layout.three(1, |i| placed[i].0),
            stride: layout.three(1, |i| slides[i].stride),
            dilation: layout.three(1, |i| slides[i].dilation),
            before: layout.three(0, |i| placed[i].1),
        })
    }

    /// The places of the output, all axes together.
    pub(crate) fn n_outputs(&self) -> usize {
        self.output.iter().product()
    }

    /// The places of the input, all axes together.
    pub(crate) fn n_inputs(&self) -> usize {
        self.input.iter().product()
    }

    /// The taps of the window, all axes together.
    pub(crate) fn n_taps(&self) -> usize {
        self.size.iter().product()
    }

    /// Returns the place along `axis` of tap `tap` of the window of output `out`; `None` in the
    /// padding.
    pub(crate) fn at(&self, axis: usize, out: usize, tap: usize) -> Option<usize> {
        let padded = out * self.stride[axis] + tap * self.dilation[axis];
        padded.checked_sub(self.before[axis]).filter(|at| *at < self.input[axis])
    }

    /// The outputs whose windows have place `at` of the input under them along `axis`, in order,
    /// with the tap that lies on it.
    pub(crate) fn reaching(&self, axis: usize, at: usize) -> impl Iterator<Item = (usize, usize)> {
        let (stride, dilation, size) = (self.stride[axis], self.dilation[axis], self.size[axis]);
        let padded = at + self.before[axis];
        let first = padded.saturating_sub(size.saturating_sub(1) * dilation).div_ceil(stride);
        let end = (padded / stride + 1).min(self.output[axis]);
        (first..end).filter_map(move |out| {
            let reach = padded - out * stride;
            let tap = reach / dilation;
            (reach.is_multiple_of(dilation) && tap < size).then_some((out, tap))
        })
    }

    /// The taps of output `out` along `axis` that lie in the image, for windows without dilation.
    pub(crate) fn inside(&self, axis: usize, out: usize) -> std::ops::Range<usize> {
        let start = out * self.stride[axis];
        let first = self.before[axis].saturating_sub(start);
        let end = (self.input[axis] + self.before[axis]).saturating_sub(start);
        first.min(self.size[axis])..end.min(self.size[axis]).max(first.min(self.size[axis]))
    }
}

#[cfg(test)]
mod tests {
    use tensor::Dim;

    use super::*;

    #[track_caller]
    fn check(padding: Padding, input: usize, size: usize, (output, before): (usize, usize)) {
        let slide = Slide { stride: 2, dilation: 1, padding };
        assert_eq!(slide.place(input, size).unwrap(), (output, before));
        assert_eq!(slide.infer(&Dim::of(input), &Dim::of(size)).unwrap(), Dim::of(output));
    }

    #[test]
    fn windows_are_placed_as_tensorflow_places_them() {
        check(Padding::Same, 5, 3, (3, 1));
        check(Padding::Same, 6, 3, (3, 0));
        check(Padding::Valid, 5, 3, (2, 0));
        check(Padding::Valid, 2, 3, (0, 0));
        check(Padding::Explicit(2, 1), 5, 3, (3, 2));
        let slide = Slide { stride: 1, dilation: 1, padding: Padding::Valid };
        assert!(slide.place(1, 3).is_err());
    }

    #[test]
    fn a_place_is_reached_by_the_windows_that_lie_on_it() {
        let layout = Layout { n_axes: 2, channels_first: false };
        for (stride, dilation, padding) in
            [(1, 1, Padding::Same), (2, 1, Padding::Valid), (2, 3, Padding::Explicit(2, 1))]
        {
            let slide = Slide { stride, dilation, padding };
            let window = Window::new(layout, &[slide; 2], |_| 9, |_| 3).unwrap();
            for at in 0..9 {
                let outs = 0..window.output[2];
                let pairs = outs.flat_map(|out| (0..3).map(move |tap| (out, tap)));
                let on = pairs.filter(|(out, tap)| window.at(2, *out, *tap) == Some(at));
                assert!(window.reaching(2, at).eq(on), "{slide:?} {at}");
            }
        }
    }

    #[test]
    fn unknown_sizes_stay_symbols() {
        let n = Dim::symbol(tensor::Symbol(0));
        let slide = Slide { stride: 1, dilation: 2, padding: Padding::Valid };
        assert_eq!(slide.infer(&n, &Dim::of(3)).unwrap(), n.minus(&Dim::of(4)));
        let slide = Slide { stride: 2, dilation: 1, padding: Padding::Same };
        assert_eq!(slide.infer(&n, &Dim::of(3)).unwrap(), Dim::Unknown);
    }
}
