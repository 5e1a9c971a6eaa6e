//! Numbers as C's `%.14g` writes them and `strtod` reads them.

/// Appends a finite number with this many significant digits.
pub(crate) fn format(out: &mut Vec<u8>, value: f64, precision: usize) {
    if value.fract() == 0.0 && value.abs() < 1e14 && value.abs() < 10_f64.powi(precision as i32) {
        let text = if value == 0.0 && value.is_sign_negative() {
            "-0".to_owned()
        } else {
            (value as i64).to_string()
        };
        return out.extend_from_slice(text.as_bytes());
    }
    let scientific = format!("{value:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let text = if (-4..precision as i32).contains(&exponent) {
        let decimals = usize::try_from(precision as i32 - 1 - exponent).unwrap_or(0);
        trimmed(&format!("{value:.decimals$}")).to_owned()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    };
    out.extend_from_slice(text.as_bytes());
}

/// A number as `tostring` writes it.
pub(crate) fn text(value: f64) -> String {
    if !value.is_finite() {
        // As C writes them, but that `nan` has no sign.
        return if value.is_nan() { "nan".to_owned() } else { value.to_string() };
    }
    let mut text = Vec::new();
    format(&mut text, value, 14);
    String::from_utf8_lossy(&text).into_owned()
}

/// A decimal without the zeros at its end.
fn trimmed(decimal: &str) -> &str {
    if decimal.contains('.') { decimal.trim_end_matches('0').trim_end_matches('.') } else { decimal }
}

/// The number at the beginning of a text, and its length: decimal, hexadecimal, infinity or NaN, as `strtod` reads it.
pub(crate) fn parse(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let negative = text.first() == Some(&b'-');
    let body = &text[sign..];
    let (value, len) = special(body).or_else(|| hexadecimal(body)).or_else(|| decimal(body))?;
    Some((if negative { -value } else { value }, sign + len))
}

fn special(text: &[u8]) -> Option<(f64, usize)> {
    let begins =
        |word: &str| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes());
    [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)]
        .into_iter()
        .find(|(word, _)| begins(word))
        .map(|(word, value)| (value, word.len()))
}

fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let body = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    let digits = |from: usize| body[from..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let whole = digits(0);
    let fraction = if body.get(whole) == Some(&b'.') { digits(whole + 1) } else { 0 };
    let mut end = if fraction > 0 { whole + 1 + fraction } else { whole };
    if whole + fraction == 0 {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(f64::from);
    let value = body[..end].iter().filter_map(digit).fold(0.0, |value, digit| value * 16.0 + digit);
    let mut power = -4 * i32::try_from(fraction).ok()?;
    if let Some((exponent, len)) = binary_exponent(&body[end..]) {
        power = power.saturating_add(exponent);
        end += len;
    }
    // Beyond that it is zero or infinity, whatever the digits are. Each half of the power is finite.
    let power = power.clamp(-2000, 2000);
    Some((value * 2_f64.powi(power / 2) * 2_f64.powi(power - power / 2), end + 2))
}

/// What follows a `p`, and the length of both.
fn binary_exponent(text: &[u8]) -> Option<(i32, usize)> {
    let rest = text.strip_prefix(b"p").or_else(|| text.strip_prefix(b"P"))?;
    let sign = usize::from(matches!(rest.first(), Some(b'+' | b'-')));
    let len = sign + rest[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let exponent: i64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((exponent.clamp(-100_000, 100_000) as i32, len + 1))
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    let mut any = whole > 0;
    if text.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        any |= fraction > 0;
        end += 1 + fraction;
    }
    if !any {
        return None;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let exponent = if end + 1 + sign <= text.len() { digits(end + 1 + sign) } else { 0 };
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let value = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((value, end))
}
