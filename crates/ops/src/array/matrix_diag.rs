//! `MatrixDiag`, `MatrixDiagPart`, `MatrixSetDiag` in their three versions: diagonals of matrices.
//!
//! Diagonals are numbered from the main one, upwards positive. Several stand one below another, the
//! highest first, in rows as long as the longest; shorter ones are aligned left or right.

mod band;
mod shapes;

use band::{Align, Band};
use shapes::{DiagonalSize, band_of, diag_dims, made_dims, read_band};

use crate::prelude::*;

pub(super) use band::BAND_PART;

pub(super) const DIAG: OpDef =
    OpDef::pure("MatrixDiag", RowRule::Mixed, |a| Make::build(a, MatrixDiagVersion::One));
pub(super) const DIAG_V2: OpDef =
    OpDef::pure("MatrixDiagV2", RowRule::Mixed, |a| Make::build(a, MatrixDiagVersion::Two));
pub(super) const DIAG_V3: OpDef =
    OpDef::pure("MatrixDiagV3", RowRule::Mixed, |a| Make::build(a, MatrixDiagVersion::Three));
pub(super) const PART: OpDef = OpDef::pure("MatrixDiagPart", RowRule::Matrices, |a| {
    MatrixDiagPart::build(a, MatrixDiagVersion::One)
});
pub(super) const PART_V2: OpDef = OpDef::pure("MatrixDiagPartV2", RowRule::Matrices, |a| {
    MatrixDiagPart::build(a, MatrixDiagVersion::Two)
});
pub(super) const PART_V3: OpDef = OpDef::pure("MatrixDiagPartV3", RowRule::Matrices, |a| {
    MatrixDiagPart::build(a, MatrixDiagVersion::Three)
});
pub(super) const SET: OpDef =
    OpDef::pure("MatrixSetDiag", RowRule::Mixed, |a| Set::build(a, MatrixDiagVersion::One));
pub(super) const SET_V2: OpDef =
    OpDef::pure("MatrixSetDiagV2", RowRule::Mixed, |a| Set::build(a, MatrixDiagVersion::Two));
pub(super) const SET_V3: OpDef =
    OpDef::pure("MatrixSetDiagV3", RowRule::Mixed, |a| Set::build(a, MatrixDiagVersion::Three));

/// The first has only the main diagonal, the second aligns left, the third as it is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatrixDiagVersion {
    One,
    Two,
    Three,
}

impl MatrixDiagVersion {
    fn align(self, attrs: &Attrs<'_>) -> Result<Align> {
        match self {
            Self::One | Self::Two => Ok(Align::LEFT),
            Self::Three => Align::parse(attrs.str_or("align", "RIGHT_LEFT")?),
        }
    }
}

/// A matrix of its diagonals: `(diagonal, k, num_rows, num_cols, padding_value)`.
struct Make {
    version: MatrixDiagVersion,
    align: Align,
}

impl Make {
    fn build(attrs: &Attrs<'_>, version: MatrixDiagVersion) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self { version, align: version.align(attrs)? }))
    }
}

impl Op for Make {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, if self.version == MatrixDiagVersion::One { 1 } else { 5 })?;
        let diagonal = &inputs[0];
        diagonal.require_rank_at_least(1)?;
        let Some(dims) = diagonal.dims() else { return Ok(vec![Spec::unknown(diagonal.dtype)]) };
        if self.version == MatrixDiagVersion::One {
            let last = dims[dims.len() - 1].clone();
            let dims = dims.iter().cloned().chain([last]);
            return Ok(vec![Spec::new(diagonal.dtype, dims)]);
        }
        inputs[2].require_rank(0)?;
        inputs[3].require_rank(0)?;
        let sizes = (known_int(&inputs[2]), known_int(&inputs[3]));
        let (Some(band), (Some(rows), Some(columns))) = (band_of(&inputs[1])?, sizes) else {
            return Ok(vec![Spec::unknown(diagonal.dtype)]);
        };
        Ok(vec![Spec::new(diagonal.dtype, made_dims(dims, band, DiagonalSize { rows, columns })?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let diagonal = ctx.input(0);
        let (bounds, (rows, columns)) = match self.version {
            MatrixDiagVersion::One => ((0, 0), (-1, -1)),
            _ => (read_band(&ctx.input(1))?, (int(&ctx.input(2))?, int(&ctx.input(3))?)),
        };
        let dims: Dims = diagonal.shape().iter().map(|dim| Dim::of(*dim)).collect();
        let made =
            Spec::new(diagonal.dtype(), made_dims(&dims, bounds, DiagonalSize { rows, columns })?);
        let Some(shape) = made.shape() else { return invalid!("the matrix is too large") };
        let fill = band::Fill { band: Band::within(&shape, bounds, self.align)? };
        if self.version == MatrixDiagVersion::One {
            return rearrange(ctx, 0, &[diagonal], &shape, &fill);
        }
        let padding = ctx.input(4);
        if padding.shape().rank() != 0 {
            return invalid!("padding_value must be a scalar, got shape {}", padding.shape());
        }
        rearrange(ctx, 0, &[diagonal, padding], &shape, &fill)
    }
}

/// The diagonals of a matrix: `(input, k, padding_value)`.
struct MatrixDiagPart {
    version: MatrixDiagVersion,
    align: Align,
}

impl MatrixDiagPart {
    fn build(attrs: &Attrs<'_>, version: MatrixDiagVersion) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self { version, align: version.align(attrs)? }))
    }
}

impl Op for MatrixDiagPart {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, if self.version == MatrixDiagVersion::One { 1 } else { 3 })?;
        let input = &inputs[0];
        input.require_rank_at_least(2)?;
        let bounds = if self.version == MatrixDiagVersion::One {
            Some((0, 0))
        } else {
            band_of(&inputs[1])?
        };
        let (Some(dims), Some(bounds)) = (input.dims(), bounds) else {
            return Ok(vec![Spec::unknown(input.dtype)]);
        };
        Ok(vec![Spec::new(input.dtype, diag_dims(dims, bounds)?)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let input = ctx.input(0);
        let bounds =
            if self.version == MatrixDiagVersion::One { (0, 0) } else { read_band(&ctx.input(1))? };
        let band = Band::new(input.shape(), bounds, self.align)?;
        let dims: Dims = input.shape().iter().map(|dim| Dim::of(*dim)).collect();
        let part = Spec::new(input.dtype(), diag_dims(&dims, bounds)?);
        let Some(shape) = part.shape() else { return invalid!("the diagonals are too large") };
        let pick = band::Pick { band };
        if self.version == MatrixDiagVersion::One {
            return rearrange(ctx, 0, &[input], &shape, &pick);
        }
        let padding = ctx.input(2);
        if padding.n_elements() != 1 {
            return invalid!("padding_value must be a scalar, got shape {}", padding.shape());
        }
        rearrange(ctx, 0, &[input, padding], &shape, &pick)
    }
}

/// A matrix with other diagonals: `(input, diagonal, k)`.
struct Set {
    version: MatrixDiagVersion,
    align: Align,
}

impl Set {
    fn build(attrs: &Attrs<'_>, version: MatrixDiagVersion) -> Result<Box<dyn Op>> {
        Ok(Box::new(Self { version, align: version.align(attrs)? }))
    }
}

impl Op for Set {
    fn infer(&self, inputs: &[Spec]) -> Result<Vec<Spec>> {
        arity_at_least(inputs, if self.version == MatrixDiagVersion::One { 2 } else { 3 })?;
        inputs[0].require_rank_at_least(2)?;
        inputs[1].require_rank_at_least(1)?;
        Ok(vec![inputs[0].with_dtype(inputs[0].dtype)])
    }

    fn run(&self, ctx: &mut Ctx<'_>) -> Result<()> {
        let (input, diagonal) = (ctx.input(0), ctx.input(1));
        let bounds =
            if self.version == MatrixDiagVersion::One { (0, 0) } else { read_band(&ctx.input(2))? };
        let band = Band::new(input.shape(), bounds, self.align)?;
        let dims: Dims = input.shape().iter().map(|dim| Dim::of(*dim)).collect();
        let expected = Spec::new(diagonal.dtype(), diag_dims(&dims, bounds)?);
        if expected.shape().as_ref() != Some(diagonal.shape()) {
            // The text is TensorFlow's (`matrix_set_diag_op.cc`).
            return invalid!(
                "Either first dimensions of diagonal don't match input.shape[:-2], or \
                 diagonal.shape[:-1] is not equal to the longests diagonal in range: expected \
                 {expected}, got {}",
                diagonal.shape()
            );
        }
        rearrange(ctx, 0, &[input, diagonal], input.shape(), &band::Replace { band })
    }
}
