//! The rule by which a rate of answers is steady.

/// How many windows are looked at.
pub(super) const WINDOWS: usize = 10;
/// Fewer say nothing.
const MIN_WINDOWS: usize = 5;
/// The two-sided 95 % quantiles of Student's t for [`MIN_WINDOWS`] to [`WINDOWS`] windows, less two degrees of freedom each.
const STUDENT: [f64; WINDOWS - MIN_WINDOWS + 1] = [3.182, 2.776, 2.571, 2.447, 2.365, 2.306];
/// A trend over all windows counts only if it is larger than this share of the mean.
const NO_TREND: f64 = 0.05;
/// The coefficient of variation that is allowed beyond the scatter of counting.
const VARIATION: f64 = 0.15;

/// Whether answers counted in windows of the same length came at a steady rate. Both must hold:
/// - there is no trend: the slope of the line through the counts does not differ from 0 at the 95 % level, or makes
///   less than 5 % of the mean over all windows;
/// - their coefficient of variation is at most 15 %, after the variance that counting alone brings (Poisson's: the
///   mean) is taken off.
pub(super) fn is_steady(counts: &[u64]) -> bool {
    let windows = counts.len().min(WINDOWS);
    let counts = &counts[counts.len() - windows..];
    let Some(student) = windows.checked_sub(MIN_WINDOWS).and_then(|more| STUDENT.get(more)) else {
        return true;
    };
    let n = windows as f64;
    let mean = counts.iter().sum::<u64>() as f64 / n;
    if mean == 0.0 {
        return false;
    }
    let points = || counts.iter().enumerate().map(|(x, y)| (x as f64 - (n - 1.0) / 2.0, *y as f64 - mean));
    let spread: f64 = points().map(|(x, _)| x * x).sum();
    let slope = points().map(|(x, y)| x * y).sum::<f64>() / spread;
    let residual: f64 = points().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let error = (residual / (n - 2.0) / spread).sqrt();
    let trend = slope.abs() > student * error && slope.abs() * n > NO_TREND * mean;
    let variance = points().map(|(_, y)| y * y).sum::<f64>() / (n - 1.0);
    !trend && variance - mean <= (VARIATION * mean).powi(2)
}

/// Whether a window's series was steady: its whole tenths of a second are put together into ten windows, where there
/// are as many.
pub(super) fn is_steady_throughout(series: &[u64], whole: usize) -> bool {
    let series = &series[..whole.min(series.len())];
    let width = (series.len() / WINDOWS).max(1);
    let windows: Vec<u64> = series.chunks_exact(width).map(|part| part.iter().sum()).collect();
    is_steady(&windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn noisy(rng: &mut Rng, mean: f64, share: f64, trend: f64) -> Vec<u64> {
        let value = |x: u32| mean * (1.0 + trend * f64::from(x) / 10.0 + share * (rng.f64() * 2.0 - 1.0));
        (0..10).map(value).map(|value| value as u64).collect()
    }

    fn steady_of(count: usize, share: f64, trend: f64) -> usize {
        let mut rng = Rng::with_seed(9);
        (0..count).filter(|_| is_steady(&noisy(&mut rng, 5000.0, share, trend))).count()
    }

    #[test]
    fn noise_is_steady_and_a_ramp_is_not() {
        assert!(steady_of(1000, 0.02, 0.0) > 900);
        assert!(steady_of(1000, 0.10, 0.0) > 900);
        assert_eq!(steady_of(1000, 0.02, 0.4), 0);
        assert_eq!(steady_of(1000, 0.02, -0.4), 0);
    }

    #[test]
    fn a_small_drift_is_none() {
        assert!(is_steady(&(0..10).map(|x| 100_000 + 300 * x).collect::<Vec<u64>>()));
        assert!(!is_steady(&(0..10).map(|x| 100_000 + 900 * x).collect::<Vec<u64>>()));
    }

    #[test]
    fn wild_rates_and_silence_are_not_steady() {
        assert!(!is_steady(&[100, 9000, 100, 9000, 100, 9000, 100, 9000, 100, 9000]));
        assert!(!is_steady(&[0; 10]));
    }

    #[test]
    fn the_scatter_of_few_answers_is_that_of_counting() {
        assert!(is_steady(&[3, 1, 2, 4, 2, 1, 3, 2, 2, 3]));
        assert!(!is_steady(&[3000, 1000, 2000, 4000, 2000, 1000, 3000, 2000, 2000, 3000]));
    }

    #[test]
    fn only_the_last_windows_count() {
        assert!(is_steady(&[0, 0, 10, 2000, 2000, 2010, 1990, 2005, 1995, 2000, 2001, 1999, 2000]));
    }

    #[test]
    fn a_long_series_is_put_together() {
        let flat: Vec<u64> = (0..95).map(|x| if x % 2 == 0 { 0 } else { 2000 }).collect();
        assert!(is_steady_throughout(&flat, 95));
        let falling: Vec<u64> = (0..95).map(|x| 2000 - 10 * x).collect();
        assert!(!is_steady_throughout(&falling, 95));
    }
}
