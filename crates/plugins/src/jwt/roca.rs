//! RSA keys of a generator whose primes are all of one form, so that they can be factored (ROCA, CVE-2017-15361).

/// Modulo each of these, the generator's numbers are powers of 65537.
const PRIMES: [u32; 17] = [11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157];
const BASE: u32 = 65537;

/// Whether a big-endian modulus is of that form; other moduli are, by chance, once in 238 million.
pub(super) fn is_weak(modulus: &[u8]) -> bool {
    PRIMES.iter().all(|prime| is_power(remainder(modulus, *prime), *prime))
}

fn remainder(number: &[u8], prime: u32) -> u32 {
    number.iter().fold(0, |remainder, byte| (remainder * 256 + u32::from(*byte)) % prime)
}

fn is_power(remainder: u32, prime: u32) -> bool {
    let mut power = 1;
    (1..prime).any(|_| {
        power = power * BASE % prime;
        power == remainder
    })
}
