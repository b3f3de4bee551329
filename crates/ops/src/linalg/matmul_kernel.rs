//! A matrix product with all sizes known: `f32` through packed panels, all else through `product`.

use half::{bf16, f16};
use num_complex::Complex;
use pool::Pool;
use tensor::Handle;

use super::Scalar;
use super::batch::Stack;
use super::product::{Form, Matrix, product};
use crate::error::unimplemented;
use crate::op::Packed;
use crate::prelude::*;
use crate::simd::{self, Epilogue, Left, Panels, PanelsView, Product};

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
    /// What comes after the product; only for `f32` and one matrix.
    pub(super) epilogue: Epilogue<'a>,
}

impl Call<'_> {
    /// Writes the product. `scratch` may be empty.
    pub(super) fn run(&self, scratch: &mut [u8], out: &mut ViewMut<'_>) -> Result<()> {
        let (a, b) = (self.a, self.b);
        if out.shape().n_elements() == 0 {
            return Ok(());
        }
        if a.dtype() != out.dtype() || b.dtype() != out.dtype() {
            return self.widened(out);
        }
        match out.dtype() {
            DType::F32 => self.fast(a.as_slice(), scratch, out.as_mut_slice()),
            DType::F64 => self.plain::<f64>(a.as_slice(), b.as_slice(), out.as_mut_slice()),
            DType::Complex64 => {
                self.plain::<Complex<f32>>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }
            DType::Complex128 => {
                self.plain::<Complex<f64>>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }
            DType::F16 => {
                let mut wide = vec![0.; out.shape().n_elements()];
                self.plain(&widen::<f16>(a), &widen::<f16>(b), &mut wide);
                let narrow = out.as_mut_slice::<f16>().iter_mut();
                narrow.zip(wide).for_each(|(out, x)| *out = f16::from_f32(x));
            }
            DType::BF16 => {
                let mut wide = vec![0.; out.shape().n_elements()];
                self.plain(&widen::<bf16>(a), &widen::<bf16>(b), &mut wide);
                let narrow = out.as_mut_slice::<bf16>().iter_mut();
                narrow.zip(wide).for_each(|(out, x)| *out = bf16::from_f32(x));
            }
            dtype => for_integer!(dtype, T => {
                self.plain::<T>(a.as_slice(), b.as_slice(), out.as_mut_slice());
            }),
        }
        Ok(())
    }

    /// Small integers whose product is `int32`.
    fn widened(&self, out: &mut ViewMut<'_>) -> Result<()> {
        if out.dtype() != DType::I32 {
            let (a, b) = (self.a.dtype(), self.b.dtype());
            return unimplemented!("no product of {a} and {b} as {}", out.dtype());
        }
        self.plain::<i32>(&to_i32(self.a)?, &to_i32(self.b)?, out.as_mut_slice());
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
    fn fast(&self, a: &[f32], scratch: &mut [u8], out: &mut [f32]) {
        let (a_len, b_len) = self.lens();
        let turn = self.forms.0 != Form::Plain && self.a_size.0 != 1 && self.a_size.1 != 1;
        let right_len = PackedRight::scratch_len(self.b_size, self.forms.1);
        let b_count = self.b.n_elements().checked_div(b_len).unwrap_or(1);
        let n_right = if self.packed.is_some() { 0 } else { right_len * b_count };
        let n_left = if turn { a.len() } else { 0 };
        let mut own = Vec::new();
        let memory = crate::simd::floats(scratch, n_right + n_left, &mut own);
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
            simd::multiply(self.pool, &product, out);
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

/// The elements as `f32`.
fn widen<T: Element + Into<f32>>(view: View<'_>) -> Vec<f32> {
    view.as_slice::<T>().iter().map(|x| (*x).into()).collect()
}

fn to_i32(view: View<'_>) -> Result<Vec<i32>> {
    match view.dtype() {
        DType::I8 => Ok(view.as_slice::<i8>().iter().map(|x| i32::from(*x)).collect()),
        DType::U8 => Ok(view.as_slice::<u8>().iter().map(|x| i32::from(*x)).collect()),
        dtype => unimplemented!("no product of {dtype} as int32"),
    }
}
