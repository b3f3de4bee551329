//! Special functions in `f64` that the standard library lacks.

use std::f64::consts::PI;

/// The logarithm of the absolute value of the gamma function.
pub(super) fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The derivative of `lgamma`; NaN at its poles, as in Eigen.
pub(super) fn digamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    if x <= 0.0 {
        if x == x.floor() {
            return f64::NAN;
        }
        // The reflection formula, with the period taken off before the tangent.
        let fraction = x - x.floor();
        return digamma(1.0 - x) - PI / (PI * fraction).tan();
    }
    let mut x = x;
    let mut sum = 0.0;
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    // The Bernoulli numbers over twice their index.
    let series = z
        * (1.0 / 12.0
            - z * (1.0 / 120.0
                - z * (1.0 / 252.0
                    - z * (1.0 / 240.0
                        - z * (1.0 / 132.0 - z * (691.0 / 32760.0 - z * (1.0 / 12.0)))))));
    sum + x.ln() - 0.5 / x - series
}

/// The inverse of the error function: infinite at ±1, NaN outside.
pub(super) fn erfinv(y: f64) -> f64 {
    if y.abs() >= 1.0 || y.is_nan() {
        return if y.abs() == 1.0 { f64::INFINITY.copysign(y) } else { f64::NAN };
    }
    if y == 0.0 {
        return y;
    }
    inverse_tail(1.0 - y.abs(), y.abs()).copysign(y)
}

/// The inverse of the standard normal distribution function.
pub(super) fn ndtri(p: f64) -> f64 {
    if p <= 0.0 || p >= 1.0 || p.is_nan() {
        return match p {
            0.0 => f64::NEG_INFINITY,
            1.0 => f64::INFINITY,
            _ => f64::NAN,
        };
    }
    let tail = 2.0 * p.min(1.0 - p);
    if tail == 1.0 {
        return 0.0;
    }
    let x = std::f64::consts::SQRT_2 * inverse_tail(tail, 1.0 - tail);
    if p < 0.5 { -x } else { x }
}

/// The positive `x` with `erfc(x) = tail` and `erf(x) = body`, of which one is precise.
fn inverse_tail(tail: f64, body: f64) -> f64 {
    // Winitzki's closed form is right to two digits; each step of Halley triples them.
    let a = 0.147;
    let log = tail.ln() + (1.0 + body).ln();
    let middle = 2.0 / (PI * a) + log / 2.0;
    let mut x = ((middle * middle - log / a).sqrt() - middle).max(0.0).sqrt();
    for _ in 0..4 {
        let slope = 2.0 / PI.sqrt() * (-x * x).exp();
        if slope == 0.0 {
            break;
        }
        let error = if body < 0.5 { libm::erf(x) - body } else { tail - libm::erfc(x) };
        let step = error / slope;
        x -= step / (1.0 + x * step);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-11 * expected.abs().max(1.0), "{got} not {expected}");
    }

    #[test]
    fn digamma_is_right_on_both_sides() {
        check(digamma(1.0), -0.577_215_664_901_532_9);
        check(digamma(0.5), -1.963_510_026_021_423_5);
        check(digamma(10.25), 2.277_704_790_686_112_7);
        check(digamma(-0.5), 0.036_489_973_978_576_52);
        assert!(digamma(0.0).is_nan() && digamma(-3.0).is_nan());
    }

    #[test]
    fn inverses_lead_back() {
        for x in [-2.0, -1.5, -0.3, -1e-9, 0.2, 0.9, 2.5] {
            check(erfinv(libm::erf(x)) / x, 1.0);
        }
        for p in [1e-300, 1e-12, 0.01, 0.3, 0.7, 0.999] {
            let x = ndtri(p) / std::f64::consts::SQRT_2;
            check(0.5 * libm::erfc(-x) / p, 1.0);
        }
        assert_eq!(erfinv(1.0), f64::INFINITY);
        assert!(erfinv(1.5).is_nan() && ndtri(-0.1).is_nan());
        check(ndtri(0.5), 0.0);
    }
}
