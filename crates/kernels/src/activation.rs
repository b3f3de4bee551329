//! `Activation`: the function of each element at the end of a layer.

use super::{Madd, approx};

/// A function of each element.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Activation {
    /// The element itself.
    #[default]
    None,
    /// At least 0.
    Relu,
    /// From 0 to 6.
    Relu6,
    /// `e^x - 1` below 0.
    Elu,
    /// This times the element below 0.
    LeakyRelu(f32),
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `x` times its sigmoid.
    Swish,
    /// From 0 at -3 to 1 at 3 in a straight line.
    HardSigmoid,
    /// `x` times that.
    HardSwish,
    /// `x` times the share of a normal distribution below it.
    GeluExact,
    /// The same with a hyperbolic tangent.
    GeluApproximate,
}

impl Activation {
    /// The limits, if the activation does nothing but clamp.
    pub fn clamp(self) -> Option<(f32, f32)> {
        match self {
            Self::Relu => Some((0., f32::INFINITY)),
            Self::Relu6 => Some((0., 6.)),
            Self::None
            | Self::Elu
            | Self::LeakyRelu(_)
            | Self::Sigmoid
            | Self::Tanh
            | Self::Swish
            | Self::HardSigmoid
            | Self::HardSwish
            | Self::GeluExact
            | Self::GeluApproximate => None,
        }
    }

    /// Applies it to each element.
    pub fn apply(self, data: &mut [f32]) {
        // SAFETY: `kernels` gives a table that this machine can run.
        unsafe { (super::kernels().activate)(self, data) }
    }
}

/// Applies an activation to each element.
#[inline(always)]
pub(super) fn activate<M: Madd>(activation: Activation, data: &mut [f32]) {
    match activation {
        Activation::None => {}
        Activation::Relu => each(data, |x| if x < 0. { 0. } else { x }),
        Activation::Relu6 => each(data, |x| {
            let x = if x < 0. { 0. } else { x };
            if x > 6. { 6. } else { x }
        }),
        Activation::Elu => each(data, |x| if x < 0. { approx::expm1::<M>(x) } else { x }),
        Activation::LeakyRelu(alpha) => each(data, |x| if x < 0. { alpha * x } else { x }),
        Activation::Sigmoid => each(data, approx::sigmoid::<M>),
        Activation::Tanh => each(data, approx::tanh::<M>),
        Activation::Swish => each(data, |x| x * approx::sigmoid::<M>(x)),
        Activation::HardSigmoid => each(data, hard_sigmoid),
        Activation::HardSwish => each(data, |x| x * hard_sigmoid(x)),
        Activation::GeluExact => each(data, |x| {
            let half = 0.5 * x;
            M::madd(half, approx::erf::<M>(x * std::f32::consts::FRAC_1_SQRT_2), half)
        }),
        Activation::GeluApproximate => each(data, |x| {
            let half = 0.5 * x;
            // The square root of 2/π.
            let inner = M::madd(x * x * x, 0.044_715, x) * 0.797_884_6;
            M::madd(half, approx::tanh::<M>(inner), half)
        }),
    }
}

#[inline(always)]
fn hard_sigmoid(x: f32) -> f32 {
    let x = x + 3.;
    let x = if x < 0. { 0. } else { x };
    (if x > 6. { 6. } else { x }) * (1. / 6.)
}

/// Replaces each element; the compiler makes vectors of it, which compute each the same way.
#[inline(always)]
fn each(data: &mut [f32], f: impl Fn(f32) -> f32) {
    data.iter_mut().for_each(|x| *x = f(*x));
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;

    #[track_caller]
    fn check(activation: Activation, exact: fn(f64) -> f64) {
        let inputs: Vec<f32> = (-3000..3000).map(|i| i as f32 / 100.).collect();
        for kernels in all() {
            let mut got = inputs.clone();
            // SAFETY: `all` lists what this machine can run.
            unsafe { (kernels.activate)(activation, &mut got) };
            for (x, got) in inputs.iter().zip(got) {
                let want = exact(f64::from(*x));
                let close = (f64::from(got) - want).abs() <= 1e-6 * want.abs().max(1.);
                assert!(close, "{} {activation:?}({x}) = {got}, not {want}", kernels.name);
            }
        }
    }

    /// The error function from its series; far out, where that cancels, from its limit.
    fn erf(x: f64) -> f64 {
        if x.abs() > 3.5 {
            let tail = (-x * x).exp() / (x.abs() * std::f64::consts::PI.sqrt());
            return x.signum() * (1. - tail);
        }
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            let n = f64::from(n);
            term *= -x * x / n;
            sum += term / (2. * n + 1.);
        }
        sum * 2. / std::f64::consts::PI.sqrt()
    }

    #[test]
    fn activations_are_exact_to_a_few_units() {
        check(Activation::None, |x| x);
        check(Activation::Relu, |x| x.max(0.));
        check(Activation::Relu6, |x| x.clamp(0., 6.));
        check(Activation::Elu, |x| if x < 0. { x.exp_m1() } else { x });
        check(Activation::LeakyRelu(0.25), |x| if x < 0. { 0.25 * x } else { x });
        check(Activation::Sigmoid, |x| 1. / (1. + (-x).exp()));
        check(Activation::Tanh, f64::tanh);
        check(Activation::Swish, |x| x / (1. + (-x).exp()));
        check(Activation::HardSigmoid, |x| (x + 3.).clamp(0., 6.) / 6.);
        check(Activation::HardSwish, |x| x * (x + 3.).clamp(0., 6.) / 6.);
        check(Activation::GeluExact, |x| 0.5 * x * (1. + erf(x / 2f64.sqrt())));
        check(Activation::GeluApproximate, |x| {
            let inner = (2. / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1. + inner.tanh())
        });
    }

    #[test]
    fn extremes_are_kept() {
        for kernels in all() {
            let mut data = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -200., 200.];
            // SAFETY: `all` lists what this machine can run.
            unsafe { (kernels.activate)(Activation::Sigmoid, &mut data) };
            assert_eq!((data[0], data[1], data[3], data[4]), (0., 1., 0., 1.));
            assert!(data[2].is_nan());
        }
    }
}
