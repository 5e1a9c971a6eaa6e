//! Noise as machines make it: what intervals and gates are tested under.
use super::normal;
use fastrand::Rng;

/// How the costs of both sides scatter; the true ratio is 1 under each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// Normal.
    Normal,
    /// Normal, but one block in ten with five times the spread.
    Contaminated,
    /// Normal, but one block in ten costs half as much again.
    Spikes,
    /// A common level that climbs by 30 % and wanders, and a change within each round, whose order is random.
    Drift,
    /// A long tail upwards.
    Skewed,
}

/// All of them.
pub const NOISES: [Noise; 5] =
    [Noise::Normal, Noise::Contaminated, Noise::Spikes, Noise::Drift, Noise::Skewed];

/// Costs of the two sides in `n` rounds, with this spread of each block.
pub fn pairs(noise: Noise, spread: f64, n: usize, random: &mut Rng) -> Vec<(f64, f64)> {
    let mut level = 0.0;
    let mut pair = || {
        let mut within = 0.0;
        if noise == Noise::Drift {
            level += spread * normal(random) + 0.3 / n as f64;
            within = spread * 2.0 / 3.0 * normal(random) + 0.15 / n as f64;
            within *= if random.bool() { 1.0 } else { -1.0 };
        }
        let mut cost = |shift: f64| f64::exp(level + shift + scatter(noise, spread, random));
        (cost(0.0), cost(within))
    };
    (0..n).map(|_| pair()).collect()
}

fn scatter(noise: Noise, spread: f64, random: &mut Rng) -> f64 {
    match noise {
        Noise::Normal | Noise::Drift => spread * normal(random),
        Noise::Contaminated => spread * normal(random) * if random.f64() < 0.1 { 5.0 } else { 1.0 },
        Noise::Spikes => spread * normal(random) + if random.f64() < 0.1 { 1.5_f64.ln() } else { 0.0 },
        Noise::Skewed => spread * -(1.0 - random.f64()).ln(),
    }
}
