//! Numbers as `%.14g` of C writes them, except that ties are rounded away from zero.
use std::io::Write;

/// How many digits are written.
const DIGITS: i32 = 14;
/// More digits than the decimal form of any number has.
const EXACT: usize = 800;

/// Writes a number.
pub(super) fn write(number: f64, out: &mut Vec<u8>) {
    if number.fract() == 0.0 && number.abs() < 1e14 && (number != 0.0 || number.is_sign_positive()) {
        // Writing to memory does not fail.
        let _ = write!(out, "{number}");
        return;
    }
    let text = rounded(number);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |mantissa| ("-", mantissa));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    out.extend_from_slice(sign.as_bytes());
    out.extend_from_slice(layout(digits, exponent).as_bytes());
}

/// The number in the form `d.ddde-7`, with all its digits after rounding.
fn rounded(number: f64) -> String {
    let one_more = format!("{number:.*e}", DIGITS as usize);
    let is_close = one_more.split('e').next().is_some_and(|mantissa| mantissa.ends_with('5'));
    let exact = is_close.then(|| format!("{number:.EXACT$e}"));
    let tie = exact.and_then(|exact| {
        let (mantissa, exponent) = exact.split_once('e')?;
        let sign_and_point = 1 + usize::from(number.is_sign_negative());
        let (kept, rest) = mantissa.split_at(sign_and_point + DIGITS as usize);
        let is_tie = rest.starts_with('5') && rest[1..].bytes().all(|digit| digit == b'0');
        is_tie.then(|| away_from_zero(kept, exponent))
    });
    tie.unwrap_or_else(|| format!("{number:.*e}", DIGITS as usize - 1))
}

/// Adds one to the last of these digits.
fn away_from_zero(kept: &str, exponent: &str) -> String {
    let mut digits: Vec<u8> = kept.bytes().collect();
    for digit in digits.iter_mut().rev().filter(|digit| digit.is_ascii_digit()) {
        if *digit != b'9' {
            *digit += 1;
            return format!("{}e{exponent}", String::from_utf8_lossy(&digits));
        }
        *digit = b'0';
    }
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if kept.starts_with('-') { "-" } else { "" };
    format!("{sign}1e{}", exponent + 1)
}

/// Significant digits, the first of which stands for this power of ten.
fn layout(digits: &str, exponent: i32) -> String {
    if digits.is_empty() {
        return "0".to_owned();
    }
    if !(-4..DIGITS).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{first}{point}{rest}e{sign}{:02}", exponent.abs());
    }
    let Ok(before_point) = usize::try_from(exponent + 1) else {
        return format!("0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1));
    };
    match digits.split_at_checked(before_point) {
        Some((whole, "")) => whole.to_owned(),
        Some(("", part)) => format!("0.{part}"),
        Some((whole, part)) => format!("{whole}.{part}"),
        None => format!("{digits}{}", "0".repeat(before_point - digits.len())),
    }
}
