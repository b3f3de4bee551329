use super::super::{Form, Matrix, all};
use super::*;

/// The memory of a packed matrix of `inner` rows.
fn packed(right: &[f32], (inner, columns): (usize, usize)) -> Vec<f32> {
    let mut memory = vec![f32::NAN; PanelsView::len(inner, columns)];
    PanelsView::pack(Matrix::new(right, (inner, columns), Form::Plain), &mut memory);
    memory
}

/// Numbers in [-1, 1) that a seed decides.
fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut x = seed;
    std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 40) as f32 / (1 << 23) as f32 - 1.
    })
    .take(n)
    .collect()
}

/// Rows of a matrix, gathered.
struct Copied<'a>(&'a [f32], usize);

impl Rows for Copied<'_> {
    fn gather(&self, rows: Range<usize>, piece: Range<usize>, to: &mut [f32]) {
        for (row, to) in rows.zip(to.chunks_exact_mut(piece.len())) {
            to.copy_from_slice(&self.0[row * self.1..][piece.clone()]);
        }
    }
}

fn product(
    kernels: &Kernels,
    pool: &Pool,
    left: (&[f32], usize),
    right: PanelsView<'_>,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    let (rows, columns) = (left.1, right.columns);
    let inner = right.rows;
    let mut out = vec![f32::NAN; rows * columns];
    let mut gathered = out.clone();
    let mut product =
        Product { rows, left: Left::Matrix(left.0, inner), right, epilogue, stride: columns };
    multiply_with(kernels, pool, &product, &mut out);
    let copied = Copied(left.0, inner);
    product.left = Left::Gathered(&copied);
    multiply_with(kernels, pool, &product, &mut gathered);
    assert!(out.iter().zip(&gathered).all(|(a, b)| a.to_bits() == b.to_bits()));
    out
}

#[test]
fn products_are_right_and_a_row_does_not_depend_on_its_company() {
    let pools = [Pool::new(1), Pool::new(3)];
    let sizes = [
        (1, 1, 1),
        (2, 16, 3),
        (3, 17, 255),
        (4, 33, 256),
        (7, 31, 257),
        (8, 64, 513),
        (13, 10, 40),
        (48, 80, 20),
        (49, 65, 300),
        (101, 40, 64),
        (5, 200, 33),
        (8, 130, 20),
        (20, 72, 48),
    ];
    for kernels in all() {
        for (rows, columns, inner) in sizes {
            let left = random(rows * inner, 1);
            let right = random(inner * columns, 2);
            let memory = packed(&right, (inner, columns));
            let panels = PanelsView::new(&memory, inner, columns);
            let whole = product(kernels, &pools[0], (&left, rows), panels, Epilogue::default());
            for (i, got) in whole.iter().enumerate() {
                let (row, column) = (i / columns, i % columns);
                let exact: f64 = (0..inner)
                    .map(|k| {
                        f64::from(left[row * inner + k]) * f64::from(right[k * columns + column])
                    })
                    .sum();
                let close = (f64::from(*got) - exact).abs() < 1e-5 * (inner as f64).sqrt();
                assert!(close, "{rows}x{columns}x{inner}: {got} is not {exact}");
            }
            // Any run of rows alone gives the same bits.
            for (pool, n) in pools.iter().flat_map(|p| (1..=rows.min(13)).map(move |n| (p, n))) {
                let first = (rows - n) / 2;
                let part = &left[first * inner..][..n * inner];
                let got = product(kernels, pool, (part, n), panels, Epilogue::default());
                let want = &whole[first * columns..][..n * columns];
                let same = got.iter().zip(want).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "{rows}x{columns}x{inner}: {n} rows alone differ");
            }
        }
    }
}

#[test]
fn bias_residual_and_activation_come_after_the_product() {
    let pool = Pool::new(2);
    let (rows, columns, inner) = (9, 21, 270);
    let (left, right) = (random(rows * inner, 1), random(inner * columns, 2));
    let (bias, residual) = (random(columns, 3), random(rows * columns, 4));
    let memory = packed(&right, (inner, columns));
    let panels = PanelsView::new(&memory, inner, columns);
    for kernels in all() {
        let bare = product(kernels, &pool, (&left, rows), panels, Epilogue::default());
        for activation in [Activation::None, Activation::Relu, Activation::Relu6, Activation::Tanh]
        {
            let epilogue = Epilogue { bias: Some(&bias), residual: Some(&residual), activation };
            let got = product(kernels, &pool, (&left, rows), panels, epilogue);
            let mut want: Vec<f32> =
                bare.iter().enumerate().map(|(i, x)| x + bias[i % columns] + residual[i]).collect();
            activation.apply(&mut want);
            // To the bit: a sum that started from the bias would have rounded otherwise.
            let least = if activation == Activation::Tanh { 1e-4 } else { 0. };
            let same = got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= least);
            assert!(same, "{} {activation:?}", kernels.name);
        }
    }
}

#[test]
fn an_empty_inner_dimension_leaves_the_bias() {
    let pool = Pool::new(1);
    let panels = PanelsView::new(&[], 0, 3);
    let epilogue = Epilogue { bias: Some(&[1., 2., 3.]), ..Epilogue::default() };
    let product =
        Product { rows: 2, left: Left::Matrix(&[], 0), right: panels, epilogue, stride: 3 };
    let mut out = [0.; 6];
    multiply(&pool, &product, &mut out);
    assert_eq!(out, [1., 2., 3., 1., 2., 3.]);
}
