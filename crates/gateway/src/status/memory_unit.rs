//! How `/status` shows memory: Kong's arguments `unit` and `scale`.
use serde_json::{Value, json};
use weir_model::schema::quoted;

/// The digits after the point if `scale` names none.
const DEFAULT_SCALE: f64 = 2.0;

/// The most digits that Kong can write.
const MAX_SCALE: f64 = 99.0;

/// The unit of a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MemoryUnit {
    Bytes,
    /// So many bytes each, with this name, and so many digits after the point.
    Multiple(u32, &'static str, usize),
}

impl MemoryUnit {
    /// The unit that a query asks for, mebibytes if it asks for none. A `scale` that is no number counts as absent, as in Kong.
    ///
    /// # Errors
    /// Kong's message, if there is no such unit or scale.
    pub(super) fn asked_for(query: &str) -> Result<Self, String> {
        let argument = |name: &str| {
            let mut pairs = form_urlencoded::parse(query.as_bytes());
            pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let unit = argument("unit").unwrap_or_else(|| "m".to_owned());
        let scale = argument("scale").and_then(|scale| scale.trim().parse().ok()).unwrap_or(DEFAULT_SCALE);
        let lower = unit.to_ascii_lowercase();
        if lower.is_empty() || lower == "b" {
            return Ok(Self::Bytes);
        }
        if scale.is_nan() || scale < 0.0 {
            return Err("scale must be equal or greater than 0".to_owned());
        }
        if scale > MAX_SCALE {
            return Err(format!("scale must be equal or less than {MAX_SCALE}"));
        }
        let digits = scale as usize;
        match lower.as_str() {
            "k" => Ok(Self::Multiple(1 << 10, "KiB", digits)),
            "m" => Ok(Self::Multiple(1 << 20, "MiB", digits)),
            "g" => Ok(Self::Multiple(1 << 30, "GiB", digits)),
            _ => Err(format!("invalid unit '{}' (expected 'k/K', 'm/M', or 'g/G')", quoted(&unit))),
        }
    }

    /// So many bytes: a number, or a text with another unit.
    pub(super) fn show(self, bytes: usize) -> Value {
        match self {
            Self::Bytes => json!(bytes),
            Self::Multiple(size, name, digits) => {
                json!(format!("{:.digits$} {name}", bytes as f64 / f64::from(size)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_as_kong_shows_it() {
        for (query, shown) in [
            ("", json!("5.24 MiB")),
            ("unit=b", json!(5_497_558)),
            ("unit=B&scale=-1", json!(5_497_558)),
            ("unit=k&scale=0", json!("5369 KiB")),
            ("unit=M&scale=x", json!("5.24 MiB")),
            ("scale=1.9&unit=m", json!("5.2 MiB")),
            ("unit=G&scale=3", json!("0.005 GiB")),
        ] {
            assert_eq!(MemoryUnit::asked_for(query).unwrap().show(5_497_558), shown, "{query}");
        }
        for (query, message) in [
            ("unit=t", "invalid unit 't' (expected 'k/K', 'm/M', or 'g/G')"),
            ("unit=k&scale=-1", "scale must be equal or greater than 0"),
            ("scale=nan", "scale must be equal or greater than 0"),
            ("scale=100", "scale must be equal or less than 99"),
        ] {
            assert_eq!(MemoryUnit::asked_for(query).unwrap_err(), message, "{query}");
        }
    }
}
