//! The incomplete gamma and beta functions, the Hurwitz zeta function and the polygamma functions,
//! in `f64`.

use super::special::{digamma, lgamma};

/// Steps after which a series or fraction is as precise as it gets.
const N_STEPS_MAX: usize = 5000;

/// The distance below zero down to which the terms of a zeta function are added up.
const Q_LIMIT: f64 = 1e5;

/// The lower incomplete gamma function over the gamma function.
pub(super) fn igamma(a: f64, x: f64) -> f64 {
    match () {
        // Whatever `a` is, as in Eigen.
        () if x == 0.0 => 0.0,
        () if !is_in_domain(a, x) => f64::NAN,
        () if a.is_infinite() => 0.0,
        () if x.is_infinite() => 1.0,
        () if x > 1.0 && x > a => 1.0 - upper_fraction(a, x),
        () => lower_series(a, x),
    }
}

/// The upper incomplete gamma function over the gamma function.
pub(super) fn igammac(a: f64, x: f64) -> f64 {
    if !is_in_domain(a, x) {
        return f64::NAN;
    }
    match () {
        () if x == 0.0 => 1.0,
        () if x.is_infinite() => 0.0,
        () if a.is_infinite() => 1.0,
        () if x > 1.0 && x > a => upper_fraction(a, x),
        () => 1.0 - lower_series(a, x),
    }
}

fn is_in_domain(a: f64, x: f64) -> bool {
    a > 0.0 && x >= 0.0
}

/// `x^a exp(-x) / Γ(a)`.
fn factor(a: f64, x: f64) -> f64 {
    (a * x.ln() - x - lgamma(a)).exp()
}

fn lower_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (1.0, 1.0, a);
    for _ in 0..N_STEPS_MAX {
        n += 1.0;
        term *= x / n;
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum * factor(a, x) / a
}

/// A continued fraction, evaluated from the front (Lentz).
fn upper_fraction(a: f64, x: f64) -> f64 {
    let tiny = f64::MIN_POSITIVE;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / tiny;
    let mut d = 1.0 / nonzero(b);
    let mut fraction = d;
    for i in 1..N_STEPS_MAX {
        let n = i as f64;
        let step = -n * (n - a);
        b += 2.0;
        d = 1.0 / nonzero(step * d + b);
        c = nonzero(b + step / c);
        let delta = d * c;
        fraction *= delta;
        if (delta - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction * factor(a, x)
}

fn nonzero(x: f64) -> f64 {
    if x.abs() < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { x }
}

/// The regularised incomplete beta function.
pub(super) fn betainc(a: f64, b: f64, x: f64) -> f64 {
    if !(a > 0.0 && b > 0.0 && (0.0..=1.0).contains(&x)) {
        return f64::NAN;
    }
    if x == 0.0 || x == 1.0 {
        return x;
    }
    let front = (a * x.ln() + b * (-x).ln_1p() + lgamma(a + b) - lgamma(a) - lgamma(b)).exp();
    // The fraction converges fast on the left of the mean; the right is its mirror image.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let mut c = 1.0;
    let mut d = 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for i in 1..N_STEPS_MAX {
        let m = i as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / nonzero(1.0 + even * d);
        c = nonzero(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / nonzero(1.0 + odd * d);
        c = nonzero(1.0 + odd / c);
        let delta = d * c;
        fraction *= delta;
        if (delta - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

/// A number as `f32` has it.
pub(super) fn as_f32(x: f64) -> f64 {
    f64::from(x as f32)
}

/// The Hurwitz zeta function: the sum of `(n + q)^-x` over all `n` from 0. `round` gives numbers
/// the precision in which a term may vanish.
pub(super) fn zeta(x: f64, q: f64, round: fn(f64) -> f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x < 1.0 || x.is_nan() || q.is_nan() {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            // As Eigen: infinite where the terms of both signs are, else nowhere defined.
            let is_even = x.is_infinite() || x % 2.0 == 0.0;
            return if is_even { f64::INFINITY } else { f64::NAN };
        }
        if x != x.floor() || q < -Q_LIMIT {
            return f64::NAN;
        }
    }
    // Euler and Maclaurin: terms until they are smooth, then an integral and its corrections.
    let mut sum = 0.0;
    let mut at = q;
    // As in Eigen, the sum ends where terms are too small for it, also if the first is.
    if q > 0.0 && round(q.powf(-x)) == 0.0 {
        return 0.0;
    }
    while at < 12.0 {
        let term = at.powf(-x);
        sum += term;
        if term.abs() < f64::EPSILON * f64::abs(sum) {
            return sum;
        }
        at += 1.0;
    }
    sum += at.powf(1.0 - x) / (x - 1.0) + 0.5 * at.powf(-x);
    /// The Bernoulli numbers of even index over the factorials of that index.
    const CORRECTIONS: [f64; 9] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30_240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
        -3617.0 / 10_670_622_842_880_000.0,
        43_867.0 / 5_109_094_217_170_944_000.0,
    ];
    let mut rising = x * at.powf(-x - 1.0);
    for (i, correction) in CORRECTIONS.iter().enumerate() {
        sum += correction * rising;
        let k = x + 2.0 * i as f64;
        rising *= (k + 1.0) * (k + 2.0) / (at * at);
    }
    sum
}

/// The derivative number `n` of the digamma function.
pub(super) fn polygamma(n: f64, x: f64, round: fn(f64) -> f64) -> f64 {
    if n != n.floor() || n < 0.0 {
        return f64::NAN;
    }
    if n == 0.0 {
        return digamma(x);
    }
    // The factorial may be beyond all numbers while the sum is none.
    let next = round(n + 1.0);
    (-1f64).powf(next) * round(lgamma(next).exp()) * round(zeta(next, x, round))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-13 * expected.abs(), "{got} instead of {expected}");
    }

    #[test]
    fn values_are_those_of_tables() {
        check(igamma(2.5, 1.5), 0.300_014_164_121_372_4);
        check(igammac(0.5, 10.0), 7.744_216_431_044_088e-6);
        check(betainc(2.5, 0.7, 0.3), 0.029_814_024_845_250_465);
        check(zeta(2.5, 3.3, |x| x), 0.139_602_719_390_383_6);
        check(polygamma(1.0, 1.0, |x| x), std::f64::consts::PI.powi(2) / 6.0);
    }
}
