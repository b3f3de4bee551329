//! A matrix product with all sizes known: `f32` through packed panels, all else through `product`.

use kernels::{Epilogue, Form, Left, Matrix, PanelsView, Product};
use num_complex::Complex;
use pool::Pool;
use tensor::Handle;

use super::Scalar;
use super::batch::Stack;
use super::product::product;
use crate::error::unsupported;
use crate::linalg::Panels;
use crate::nn::{through_f32, wide_bytes};
use crate::op::Packed;
use crate::prelude::*;

/// A constant right side, packed matrix by matrix.
pub(super) struct PackedRight {
    pub(super) panels: Vec<Panels>,
}

impl PackedRight {
    /// Packs each matrix of `weight`, of the stored `size`.
    pub(super) fn pack(weight: &Tensor, size: (usize, usize), form: Form) -> Result<Packed> {
        let n = (size.0 * size.1).max(1);
        let matrices = weight.as_slice::<f32>().chunks_exact(n);
        let panels: Vec<Panels> =
            matrices.map(|m| Panels::new(Matrix::new(m, size, form))).collect::<Result<_>>()?;
        Ok(Self::of(panels))
    }

    /// Matrices that are packed.
    pub(super) fn of(panels: Vec<Panels>) -> Packed {
        let n_bytes = panels.iter().map(Panels::n_bytes).sum();
        Packed { object: Handle::new(Self { panels }), n_bytes }
    }

    /// The floats that one matrix takes when it is packed while running.
    pub(super) fn scratch_len(size: (usize, usize), form: Form) -> usize {
        let (rows, columns) = form.orient(size);
        PanelsView::len(rows, columns)
    }
}

/// Checked inputs of one call.
pub(super) struct Call<'a> {
    pub(super) a: View<'a>,
    /// The right side, unless it was packed.
    pub(super) b: View<'a>,
    /// The sizes of a matrix as it is stored.
    pub(super) a_size: (usize, usize),
    pub(super) b_size: (usize, usize),
    pub(super) forms: (Form, Form),
    pub(super) stack: Stack,
    pub(super) packed: Option<&'a PackedRight>,
    pub(super) pool: &'a Pool,
    /// The operations after the product; only for `f32` and one matrix.
    pub(super) epilogue: Epilogue<'a>,
}

/// The bytes of scratch memory that a product of these stacks of matrices takes.
pub(super) fn scratch_bytes(inputs: &[Spec], outputs: &[Spec], forms: (Form, Form)) -> usize {
    let ([a, b, ..], [out, ..]) = (inputs, outputs) else { return 0 };
    if a.dtype != out.dtype {
        return Scratch::bytes_for::<i32>(a) + Scratch::bytes_for::<i32>(b);
    }
    if a.dtype != DType::F32 {
        return wide_bytes(&inputs[..2], outputs);
    }
    let (Some(a), Some(b_shape)) = (a.shape(), b.shape()) else { return 0 };
    let left = if forms.0 == Form::Plain { 0 } else { a.n_elements() };
    let right = match (b.as_constant(), b_shape.dims()) {
        (None, [lead @ .., rows, columns]) => {
            PackedRight::scratch_len((*rows, *columns), forms.1) * lead.iter().product::<usize>()
        }
        _ => 0,
    };
    (left + right) * size_of::<f32>()
}

impl Call<'_> {
    /// Writes the product. `scratch` may be empty.
    pub(super) fn run(&self, scratch: Scratch<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        let (a, b) = (self.a, self.b);
        if out.shape().n_elements() == 0 {
            return Ok(());
        }
        if a.dtype() != out.dtype() || b.dtype() != out.dtype() {
            return self.widened(scratch, out);
        }
        match out.dtype() {
            DType::F32 => self.fast(a.as_slice(), scratch, out.as_mut_slice())?,
            DType::F64 => self.plain::<f64>(a.as_slice(), b.as_slice(), out.as_mut_slice()),
            DType::Complex64 => {
                self.plain::<Complex<f32>>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }
            DType::Complex128 => {
                self.plain::<Complex<f64>>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }
            DType::F16 | DType::BF16 => {
                return through_f32(scratch, &[a, b], out, |_, wide, out| {
                    self.plain(&wide[0], &wide[1], out);
                    Ok(())
                });
            }
            dtype => for_integer!(dtype, T => {
                self.plain::<T>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }),
        }
        Ok(())
    }

    /// Small integers whose product is `int32`.
    fn widened(&self, mut scratch: Scratch<'_>, out: &mut ViewMut<'_>) -> Result<()> {
        if out.dtype() != DType::I32 {
            let (a, b) = (self.a.dtype(), self.b.dtype());
            return unsupported!("no product of {a} and {b} as {}", out.dtype());
        }
        let (a, b) = (to_i32(self.a, &mut scratch)?, to_i32(self.b, &mut scratch)?);
        self.plain::<i32>(&a, &b, out.as_mut_slice());
        Ok(())
    }

    /// Any element, one matrix after the other.
    fn plain<T: Scalar>(&self, a: &[T], b: &[T], out: &mut [T]) {
        let (a_len, b_len) = self.lens();
        let len = out.len() / self.stack.len();
        for (i, out) in out.chunks_exact_mut(len).enumerate() {
            let (a_at, b_at) = self.stack.pair(i);
            let a = Matrix::new(&a[a_at * a_len..][..a_len], self.a_size, self.forms.0);
            let b = Matrix::new(&b[b_at * b_len..][..b_len], self.b_size, self.forms.1);
            product(a, b, out);
        }
    }

    /// `f32`: both sides brought into the order of the kernels first, if they are not in it.
    fn fast(&self, a: &[f32], mut scratch: Scratch<'_>, out: &mut [f32]) -> Result<()> {
        let (a_len, b_len) = self.lens();
        let turn = self.forms.0 != Form::Plain && self.a_size.0 != 1 && self.a_size.1 != 1;
        let right_len = PackedRight::scratch_len(self.b_size, self.forms.1);
        let b_count = self.b.n_elements().checked_div(b_len).unwrap_or(1);
        let n_right = if self.packed.is_some() { 0 } else { right_len * b_count };
        let n_left = if turn { a.len() } else { 0 };
        let mut memory = scratch.part(n_right + n_left)?;
        let (right, left) = memory.split_at_mut(n_right);
        if self.packed.is_none() && right_len > 0 {
            let b: &[f32] = self.b.as_slice();
            self.pool.run_chunks(right, right_len, &|i, memory| {
                let matrix = &b[i * b_len..][..b_len];
                PanelsView::pack(Matrix::new(matrix, self.b_size, self.forms.1), memory);
            });
        }
        if turn && a_len > 0 {
            self.pool.run_chunks(left, a_len, &|i, to| {
                let from = &a[i * a_len..][..a_len];
                crate::nn::swap_last(from, to, self.a_size.0, self.a_size.1);
            });
        }
        let a = if turn { &*left } else { a };
        self.products(a, right, out);
        Ok(())
    }

    /// The products of left sides as they are multiplied with packed right sides.
    fn products(&self, a: &[f32], right: &[f32], out: &mut [f32]) {
        let (rows, inner) = self.forms.0.orient(self.a_size);
        let (_, columns) = self.forms.1.orient(self.b_size);
        let right_len = PackedRight::scratch_len(self.b_size, self.forms.1);
        let panels = |index: usize| match self.packed {
            Some(packed) => packed.panels[index].view(),
            None => PanelsView::new(&right[index * right_len..][..right_len], inner, columns),
        };
        let one = |a, rows, index, out: &mut [f32]| {
            let product = Product {
                rows,
                left: Left::Matrix(a, inner),
                right: panels(index),
                epilogue: self.epilogue,
                stride: columns,
            };
            kernels::multiply(self.pool, &product, out);
        };
        let b_shared = self.stack.pair(self.stack.len() - 1).1 == 0;
        let a_in_order = a.len() == self.stack.len() * rows * inner;
        if b_shared && a_in_order {
            one(a, rows * self.stack.len(), 0, out);
        } else {
            self.pool.run_chunks(out, rows * columns, &|i, out| {
                let (a_at, b_at) = self.stack.pair(i);
                one(&a[a_at * rows * inner..][..rows * inner], rows, b_at, out);
            });
        }
    }

    /// The elements of one matrix of each side.
    fn lens(&self) -> (usize, usize) {
        (self.a_size.0 * self.a_size.1, self.b_size.0 * self.b_size.1)
    }
}

fn to_i32<'a>(view: View<'_>, scratch: &mut Scratch<'a>) -> Result<Part<'a, i32>> {
    fn widen<T: Element + Into<i32>>(from: View<'_>, to: &mut [i32]) {
        to.iter_mut().zip(from.as_slice::<T>()).for_each(|(to, x)| *to = (*x).into());
    }
    let mut wide = scratch.part(view.n_elements())?;
    match view.dtype() {
        DType::I8 => widen::<i8>(view, &mut wide),
        DType::U8 => widen::<u8>(view, &mut wide),
        dtype => return unsupported!("no product of {dtype} as int32"),
    }
    Ok(wide)
}
