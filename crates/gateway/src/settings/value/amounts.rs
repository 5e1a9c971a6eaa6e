//! Times and sizes.

use super::Value;
use std::time::Duration;

/// Splits `15ms` into its number and its unit.
fn number_and_unit(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let rest = &text[digits..];
    let unit = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    Some((text[..digits].parse().ok()?, &rest[..unit], &rest[unit..]))
}

/// The longest time: ten years, because any clock can still add that to now.
const MAX_TIME: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// nginx's time: `60`, `60s`, `500ms`, `1h30m`, and fractions of a second as `0.5`.
impl Value for Duration {
    const KIND: &'static str = "time (`60`, `60s`, `500ms`, `1h30m`)";
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse().map_or_else(|_| sum_of_units(text), |s| Duration::try_from_secs_f64(s).ok()) {
            Some(time) if time <= MAX_TIME => Ok(time),
            Some(_) => Err(format!("`{text}` is too long: write at most `3650d`, which is ten years")),
            None => Err(format!(
                "`{text}` is not a time: write seconds, or a unit as in `500ms`, `60s`, `1h30m`, `1d`, up to `3650d`"
            )),
        }
    }
}

fn sum_of_units(text: &str) -> Option<Duration> {
    let (mut rest, mut total) = (text, Duration::ZERO);
    loop {
        let (number, unit, after) = number_and_unit(rest)?;
        let milliseconds = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        let part = number.checked_mul(milliseconds)?;
        total = total.checked_add(Duration::from_millis(part))?;
        rest = after.trim_start();
        if rest.is_empty() {
            return Some(total);
        }
    }
}

/// A time in milliseconds, as in kong.conf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Milliseconds(pub(crate) Duration);

impl Value for Milliseconds {
    const KIND: &'static str = "milliseconds";
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(count @ 1..=u32::MAX) => Ok(Milliseconds(Duration::from_millis(count.into()))),
            _ => Err(format!("`{text}` is not a number of milliseconds: write `5000` for five seconds")),
        }
    }
    fn shown(text: &str) -> serde_json::Value {
        super::shown_number(text)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) u64);

impl Value for Bytes {
    const KIND: &'static str = "size (`8k`, `10m`, `1g`)";
    fn parse(text: &str) -> Result<Self, String> {
        let error = || format!("`{text}` is not a size: write bytes, or a unit as in `8k`, `10m`, `1g`");
        let (number, unit, rest) = number_and_unit(text).ok_or_else(error)?;
        let shift = match unit {
            "" => 0,
            "k" | "K" => 10,
            "m" | "M" => 20,
            "g" | "G" => 30,
            _ => return Err(error()),
        };
        if !rest.is_empty() {
            return Err(error());
        }
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(error)
    }
}

/// The size of a cache that is allocated at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheSize(pub(crate) u64);

impl Value for CacheSize {
    const KIND: &'static str = "size (`8k`, `10m`), up to `1g`";
    fn parse(text: &str) -> Result<Self, String> {
        // As nginx's `ssl_session_cache` names it.
        let size = match text {
            "off" | "none" => "0",
            _ => text.strip_prefix("shared:").and_then(|zone| zone.split(':').nth(1)).unwrap_or(text),
        };
        match Bytes::parse(size)? {
            Bytes(size @ 0..=0x4000_0000) => Ok(CacheSize(size)),
            Bytes(_) => Err(format!("`{text}` is too much: write at most `1g`")),
        }
    }
}

/// nginx's `large_client_header_buffers`: how many buffers, each of which holds one line, and how large each is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderBuffers {
    pub(crate) total: usize,
    pub(crate) size: usize,
}

impl Value for HeaderBuffers {
    const KIND: &'static str = "number and size (`4 8k`)";
    fn parse(text: &str) -> Result<Self, String> {
        let error = || format!("`{text}` is not a number and a size: write `4 8k` for four buffers of 8 KiB");
        let (number, size) = text.split_once(' ').ok_or_else(error)?;
        let number: u64 = number.parse().map_err(|_| error())?;
        let Bytes(size) = Bytes::parse(size.trim_start()).map_err(|_| error())?;
        match number.checked_mul(size) {
            _ if number == 0 || size < 1024 => Err(format!("`{text}` is too little: write at least `1 1k`")),
            Some(total @ ..=0x100_0000) => Ok(HeaderBuffers { total: total as usize, size: size as usize }),
            _ => Err(format!("`{text}` is too much: write at most `16m` in all, as `16 1m`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{reads, refuses};
    use super::*;

    #[test]
    fn header_buffers() {
        reads("4 8k", HeaderBuffers { total: 32 << 10, size: 8 << 10 });
        reads("16  1m", HeaderBuffers { total: 16 << 20, size: 1 << 20 });
        for text in ["4", "8k", "4 8k 1", "0 8k", "4 0", "4 512", "17 1m", "-1 8k", "4,8k"] {
            refuses::<HeaderBuffers>(text);
        }
    }

    #[test]
    fn times() {
        for (text, milliseconds) in [
            ("60", 60_000),
            ("0.5", 500),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("1m 30s", 90_000),
            ("1d", 86_400_000),
            ("0", 0),
            ("3650d", 315_360_000_000),
            ("315360000", 315_360_000_000),
        ] {
            reads(text, Duration::from_millis(milliseconds));
        }
        for text in
            ["", "-1", "s", "1x", "1 h x", "99999999999999999999", "18446744073709551615d", "NaN", "inf"]
        {
            refuses::<Duration>(text);
        }
    }

    #[test]
    fn times_that_no_clock_can_be_ahead_by() {
        for text in ["18000000000000000000", "315360001", "3650d 1ms", "1e15", "213503982334d"] {
            let error = Duration::parse(text).unwrap_err();
            assert!(error.contains("at most `3650d`"), "{error}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("8k", 8192), ("10M", 10 << 20), ("1g", 1 << 30)] {
            reads(text, Bytes(bytes));
        }
        for text in ["", "k", "8kb", "8 k", "-1", "99999999999999999g"] {
            refuses::<Bytes>(text);
        }
        reads("1g", CacheSize(1 << 30));
        reads("shared:SSL:20m", CacheSize(20 << 20));
        reads("off", CacheSize(0));
        refuses::<CacheSize>("shared:SSL");
        assert!(CacheSize::parse("100g").unwrap_err().contains("at most `1g`"));
        refuses::<CacheSize>("x");
    }
}
