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
    rounds(noise, spread, n, random).into_iter().map(|[one, other]| (one, other)).collect()
}

/// Costs of several sides in `n` rounds, with this spread of each block.
pub fn rounds<const SIDES: usize>(
    noise: Noise,
    spread: f64,
    n: usize,
    random: &mut Rng,
) -> Vec<[f64; SIDES]> {
    let mut level = 0.0;
    let mut round = || {
        if noise == Noise::Drift {
            level += spread * normal(random) + 0.3 / n as f64;
        }
        std::array::from_fn(|side| {
            let mut within = 0.0;
            if noise == Noise::Drift && side > 0 {
                within = spread * 2.0 / 3.0 * normal(random) + 0.15 / n as f64;
                within *= if random.bool() { 1.0 } else { -1.0 };
            }
            f64::exp(level + within + scatter(noise, spread, random))
        })
    };
    (0..n).map(|_| round()).collect()
}

fn scatter(noise: Noise, spread: f64, random: &mut Rng) -> f64 {
    match noise {
        Noise::Normal | Noise::Drift => spread * normal(random),
        Noise::Contaminated => spread * normal(random) * if random.f64() < 0.1 { 5.0 } else { 1.0 },
        Noise::Spikes => spread * normal(random) + if random.f64() < 0.1 { 1.5_f64.ln() } else { 0.0 },
        Noise::Skewed => spread * -(1.0 - random.f64()).ln(),
    }
}
