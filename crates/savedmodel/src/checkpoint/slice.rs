//! Parts of tensors.

use std::fmt;

use proto::tensorflow::TensorSliceProto;
use proto::tensorflow::tensor_slice_proto::extent::HasLengthHack;
use tensor::Shape;

use super::ordered::{write_number, write_signed, write_string};

/// A part of a tensor: for each dimension where it starts and how long it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slice(Vec<Extent>);

/// A part of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Extent {
    start: i64,
    /// `None` for all of the dimension.
    len: Option<i64>,
}

impl Slice {
    /// Reads a line of `RestoreV2`'s `shape_and_slices`, such as `7 4 0,3:-`: the shape of the
    /// whole and the part of it. `None` if it is malformed.
    pub(crate) fn parse_with_shape(text: &str) -> Option<(Vec<i64>, Self)> {
        let mut words: Vec<&str> = text.split(' ').collect();
        let slice = Self::parse(words.pop()?)?;
        let shape: Option<Vec<i64>> = words.iter().map(|word| word.parse().ok()).collect();
        let shape = shape?;
        (shape.len() == slice.0.len()).then_some((shape, slice))
    }

    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        let extent = |part: &str| {
            if part == "-" {
                return Some(Extent { start: 0, len: None });
            }
            let (start, len) = part.split_once(',')?;
            Some(Extent { start: start.parse().ok()?, len: Some(len.parse().ok()?) })
        };
        text.split(':').map(extent).collect::<Option<_>>().map(Self)
    }

    /// Reads the slice that an entry lists.
    pub(crate) fn from_proto(slice: &TensorSliceProto) -> Self {
        let extents = slice.extent.iter().map(|extent| Extent {
            start: extent.start,
            len: extent.has_length_hack.map(|HasLengthHack::Length(len)| len),
        });
        Self(extents.collect())
    }

    /// The key under which the slice of the tensor `name` is stored
    /// (`tensorflow/core/util/saved_tensor_slice_util.cc`).
    pub(crate) fn key(&self, name: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        write_number(&mut key, 0);
        write_string(&mut key, name);
        write_number(&mut key, self.0.len() as u64);
        for extent in &self.0 {
            write_signed(&mut key, extent.start);
            write_signed(&mut key, extent.len.unwrap_or(-1));
        }
        key
    }

    /// The region of a tensor of that shape; `None` if it does not lie within.
    pub(crate) fn region(&self, shape: &Shape) -> Option<Region> {
        if self.0.len() != shape.rank() {
            return None;
        }
        let sides = self.0.iter().zip(shape.dims()).map(|(extent, dim)| {
            let start = usize::try_from(extent.start).ok()?;
            let len = match extent.len {
                Some(len) => usize::try_from(len).ok()?,
                None => *dim,
            };
            (start.checked_add(len)? <= *dim).then_some(Side { start, len })
        });
        sides.collect::<Option<_>>().map(Region)
    }
}

/// As in `shape_and_slices`: `0,3:-`.
impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, extent) in self.0.iter().enumerate() {
            f.write_str(if i > 0 { ":" } else { "" })?;
            match extent.len {
                Some(len) => write!(f, "{},{len}", extent.start)?,
                None => f.write_str("-")?,
            }
        }
        Ok(())
    }
}

/// A part of a tensor that is known to lie within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region(Vec<Side>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Side {
    start: usize,
    len: usize,
}

impl Region {
    /// The whole of a tensor.
    pub(crate) fn whole(shape: &Shape) -> Self {
        Self(shape.dims().iter().map(|dim| Side { start: 0, len: *dim }).collect())
    }

    /// Its shape.
    pub(crate) fn shape(&self) -> Shape {
        self.0.iter().map(|side| side.len).collect()
    }

    /// The number of its elements.
    pub(crate) fn n_elements(&self) -> usize {
        self.0.iter().map(|side| side.len).product()
    }

    /// Returns the intersection of two regions of one tensor, if there is one.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let sides = self.0.iter().zip(&other.0).map(|(a, b)| {
            let start = a.start.max(b.start);
            let end = (a.start + a.len).min(b.start + b.len);
            (start < end).then(|| Side { start, len: end - start })
        });
        sides.collect::<Option<_>>().map(Self)
    }

    /// Returns the offset in this region, laid out row by row, of another that lies within.
    pub(crate) fn offset_of(&self, inner: &Self) -> usize {
        let mut offset = 0;
        for (outer, inner) in self.0.iter().zip(&inner.0) {
            offset = offset * outer.len + (inner.start - outer.start);
        }
        offset
    }

    /// Returns whether a region that lies within is one run of elements of this one.
    pub(crate) fn is_run(&self, inner: &Self) -> bool {
        let sides = self.0.iter().zip(&inner.0);
        let mut sides = sides.skip_while(|(_, inner)| inner.len == 1);
        sides.next();
        sides.all(|(outer, inner)| outer.len == inner.len)
    }
}

/// The runs of elements by which a part is copied from one region to another, in the order of the
/// source.
pub(crate) struct Runs<'a> {
    from: &'a Region,
    into: &'a Region,
    /// The dimensions that are counted up; those behind are equal in all and make one run.
    part: Region,
    at: Vec<usize>,
    len: usize,
    done: bool,
}

/// A run of elements: where it is in the source, where it goes, how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) from: usize,
    pub(crate) into: usize,
    pub(crate) len: usize,
}

impl<'a> Runs<'a> {
    /// The runs of `part`, which lies within both.
    pub(crate) fn new(from: &'a Region, into: &'a Region, part: Region) -> Self {
        let rank = part.0.len();
        let equal =
            |i: &usize| part.0[*i].len == from.0[*i].len && part.0[*i].len == into.0[*i].len;
        let n_equal = (0..rank).rev().take_while(equal).count();
        // The innermost dimension that differs is part of the run too.
        let n_counted = (rank - n_equal).saturating_sub(1);
        let len = part.0[n_counted..].iter().map(|side| side.len).product();
        let done = part.n_elements() == 0;
        Self { from, into, at: vec![0; n_counted], part, len, done }
    }

    /// Returns the offset of the current run in a region.
    fn offset_in(&self, region: &Region) -> usize {
        let counted = self.at.iter().copied().chain(std::iter::repeat(0));
        let sides = region.0.iter().zip(&self.part.0).zip(counted);
        sides.fold(0, |offset, ((outer, part), at)| {
            offset * outer.len + (part.start + at - outer.start)
        })
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.done {
            return None;
        }
        let run =
            Run { from: self.offset_in(self.from), into: self.offset_in(self.into), len: self.len };
        self.done = true;
        for (at, side) in self.at.iter_mut().zip(&self.part.0).rev() {
            *at += 1;
            if *at < side.len {
                self.done = false;
                break;
            }
            *at = 0;
        }
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(text: &str, shape: &[usize]) -> Region {
        Slice::parse(text).unwrap().region(&Shape::of(shape)).unwrap()
    }

    #[test]
    fn slices_are_read_as_tensorflow_writes_them() {
        let (shape, slice) = Slice::parse_with_shape("7 4 3,2:-").unwrap();
        assert_eq!((shape, slice.to_string()), (vec![7, 4], "3,2:-".to_owned()));
        assert_eq!(Slice::parse_with_shape(""), Some((vec![], Slice(vec![]))));
        for bad in ["7 4", "7 4 3,2", "7 x 3,2:-", "7 4 3;2:-", "7 4 3,2:", "7  -:-"] {
            assert_eq!(Slice::parse_with_shape(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_slice_must_lie_within() {
        for bad in ["0,8:-", "7,1:-", "-1,1:-", "0,-1:-", "-", &format!("{0},{0}:-", i64::MAX)] {
            assert_eq!(Slice::parse(bad).unwrap().region(&Shape::of(&[7, 4])), None, "{bad}");
        }
    }

    #[test]
    fn a_part_is_a_run_if_all_behind_its_first_side_is_whole() {
        let whole = region("-:-:-", &[3, 4, 5]);
        assert!(whole.is_run(&region("1,2:-:-", &[3, 4, 5])));
        assert!(whole.is_run(&region("1,1:1,2:-", &[3, 4, 5])));
        assert!(!whole.is_run(&region("1,2:1,2:-", &[3, 4, 5])));
        assert!(!whole.is_run(&region("-:-:0,4", &[3, 4, 5])));
    }

    #[test]
    fn runs_reach_every_element_of_the_part_once() {
        let shape = [4, 3, 2];
        for (from, into) in [
            ("-:-:-", "1,2:-:0,1"),
            ("0,3:1,2:-", "1,3:-:-"),
            ("1,2:-:-", "-:-:-"),
            ("-:0,1:-", "-:-:-"),
            ("-:-:-", "-:-:-"),
        ] {
            let (from, into) = (region(from, &shape), region(into, &shape));
            let part = from.intersection(&into).unwrap();
            // Numbers each element of the whole, so that a run that strays shows.
            let whole = Region::whole(&Shape::of(&shape));
            let numbers = |region: &Region| {
                let elements = (0..region.n_elements()).map(|i| {
                    let (mut rest, mut corner) = (i, region.clone());
                    for side in corner.0.iter_mut().rev() {
                        side.start += rest % side.len;
                        rest /= side.len;
                    }
                    whole.offset_of(&corner)
                });
                elements.collect::<Vec<_>>()
            };
            let (source, target) = (numbers(&from), numbers(&into));
            let mut n = 0;
            let mut last = 0;
            for run in Runs::new(&from, &into, part.clone()) {
                assert_eq!(source[run.from..][..run.len], target[run.into..][..run.len]);
                assert!(run.from >= last);
                last = run.from + run.len;
                n += run.len;
            }
            assert_eq!(n, part.n_elements());
        }
    }
}
