//! Operation counts of steps: for devices that are played at a given rate, and for people.

use ops::Cost;
use tensor::Spec;

/// The floating-point operations of one call, as far as shapes tell: twice the products of matrix
/// products and convolutions, one for each element that any other op makes. Loops count as what
/// they give, since how often they turn is not known.
pub(super) fn flops(cost: Cost, inputs: &[Spec], outputs: &[Spec]) -> u64 {
    let n_made: u64 = outputs.iter().filter_map(n_elements).sum();
    let by_filter = || {
        let dims = inputs.get(1)?.shape()?;
        let per_output = match (cost, dims.dims()) {
            (Cost::DepthwiseFilter, [height, width, ..]) => height * width,
            (_, dims) => dims.iter().product::<usize>() / dims.last()?.max(&1),
        };
        Some(2 * n_made * per_output as u64)
    };
    let by_depth = || {
        // Of m×k by k×n into m×n: k is what the right has for each column of the result.
        let (right, made) = (inputs.get(1)?.shape()?, outputs.first()?.shape()?);
        let n_columns = made.last_dim().max(1);
        let n_batches: usize = right.dims().iter().rev().skip(2).product::<usize>().max(1);
        Some(2 * n_made * (right.n_elements() / n_columns / n_batches) as u64)
    };
    let of_product = match cost {
        Cost::Product => by_depth(),
        Cost::Filter | Cost::DepthwiseFilter => by_filter(),
        Cost::Contraction => by_contraction(inputs, n_made),
        Cost::Elements => None,
    };
    of_product.unwrap_or(n_made)
}

/// Of a contraction of two tensors: what is summed over stands in both, and not in the result.
fn by_contraction(inputs: &[Spec], n_made: u64) -> Option<u64> {
    let [left, right] = inputs else { return None };
    let operands = n_elements(left)? as f64 * n_elements(right)? as f64;
    let depth = (operands / (n_made as f64).max(1.0)).sqrt().max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from a float saturates, which is what is wanted"
    )]
    Some((2.0 * n_made as f64 * depth) as u64)
}

fn n_elements(spec: &Spec) -> Option<u64> {
    Some(spec.shape()?.n_elements() as u64)
}

#[cfg(test)]
mod tests {
    use tensor::{DType, Shape};

    use super::*;

    #[track_caller]
    fn check(op_name: &str, inputs: [&[usize]; 2], output: &[usize], expected: u64) {
        let spec = |dims: &[usize]| Spec::concrete(DType::F32, &Shape::of(dims));
        let cost = ops::find(op_name).expect("it is built in").facts.cost;
        let got = flops(cost, &inputs.map(spec), &[spec(output)]);
        assert_eq!(got, expected, "{op_name}");
    }

    #[test]
    fn products_count_each_multiplication_and_sum() {
        check("MatMul", [&[3, 4], &[4, 5]], &[3, 5], 2 * 3 * 4 * 5);
        check("_FusedMatMul", [&[3, 4], &[4, 5]], &[3, 5], 2 * 3 * 4 * 5);
        check("_Linear", [&[2, 3, 4], &[4, 5]], &[2, 3, 5], 2 * 6 * 4 * 5);
        check("BatchMatMulV2", [&[7, 3, 4], &[7, 4, 5]], &[7, 3, 5], 2 * 7 * 3 * 4 * 5);
        check("Conv2D", [&[1, 8, 8, 3], &[3, 3, 3, 16]], &[1, 8, 8, 16], 2 * 64 * 16 * 27);
        let depthwise = "_FusedDepthwiseConv2dNative";
        check(depthwise, [&[1, 8, 8, 6], &[3, 3, 6, 1]], &[1, 8, 8, 6], 2 * 64 * 6 * 9);
        check("Einsum", [&[3, 4], &[4, 5]], &[3, 5], 2 * 3 * 4 * 5);
        check("AddV2", [&[3, 4], &[3, 4]], &[3, 4], 12);
    }
}
