//! The few values of distributions that intervals need.

/// t at 0.975: an interval of 95 %.
pub(super) fn student_two_sided(freedom: usize) -> f64 {
    const TABLE: [f64; 11] =
        [12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010];
    student(&TABLE, 1.959_964, freedom)
}

/// t at 0.8: a power of 80 %.
pub(super) fn student_power(freedom: usize) -> f64 {
    const TABLE: [f64; 11] =
        [1.3764, 1.0607, 0.9785, 0.9410, 0.9195, 0.9057, 0.8960, 0.8889, 0.8834, 0.8791, 0.8755];
    student(&TABLE, 0.841_621, freedom)
}

/// A quantile of Student's t: from the table, beyond it by Fisher's expansion around the normal quantile.
fn student(table: &[f64; 11], normal: f64, freedom: usize) -> f64 {
    if let Some(exact) = freedom.checked_sub(1).and_then(|index| table.get(index)) {
        return *exact;
    }
    let (z, v) = (normal, freedom as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / v + second / (v * v)
}

/// The standard normal distribution below z (Abramowitz and Stegun, 26.2.17: off by at most 7.5e-8).
pub(super) fn normal_below(z: f64) -> f64 {
    const FACTORS: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let sum = FACTORS.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let beyond = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if z < 0.0 { beyond } else { 1.0 - beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_continues_its_table() {
        assert!((student_two_sided(12) - 2.1788).abs() < 2e-3);
        assert!((student_two_sided(30) - 2.0423).abs() < 5e-4);
        assert!((student_power(12) - 0.8726).abs() < 1e-3);
        assert!((student_two_sided(10_000) - 1.960).abs() < 1e-3);
    }

    #[test]
    fn the_normal_distribution() {
        assert!((normal_below(0.0) - 0.5).abs() < 1e-7);
        assert!((normal_below(-1.959_964) - 0.025).abs() < 1e-6);
        assert!((normal_below(1.0) - 0.841_344_7).abs() < 1e-6);
    }
}
