//! What the value of a variable is compared with, as lua-resty-expr does.
use super::network::Network;
use regex::bytes::{Regex, RegexBuilder};
use weir_model::schema::Json;

/// What a value is compared with.
#[derive(Debug, Clone)]
pub enum Comparison {
    /// It equals this.
    Equal(Json),
    /// Numbers alone can be compared so.
    Order(fn(&f64, &f64) -> bool, f64),
    /// A regex matches it.
    Matches(Regex),
    /// It is one of these.
    In(Vec<Json>),
    /// It is a list that has an element. No variable here is a list.
    Has,
    /// It is an address in one of these ranges.
    Within(Vec<Network>),
}

impl Comparison {
    /// The comparison that an operator stands for, and whether it is the opposite that must hold.
    pub(super) fn parse(operator: &str, value: &Json) -> Result<(bool, Self), String> {
        let regex = |ignores_case| {
            let text = value.as_str().ok_or_else(|| format!("`{operator}` needs a regex, got {value}"))?;
            let regex = RegexBuilder::new(text).case_insensitive(ignores_case).build();
            regex.map(Self::Matches).map_err(|error| format!("invalid regex: {error}"))
        };
        let list = || value.as_array().ok_or_else(|| format!("`{operator}` needs a list, got {value}"));
        let comparison = match operator.to_ascii_lowercase().as_str() {
            "==" | "~=" => Self::Equal(value.clone()),
            ">" => Self::Order(f64::gt, number(value)?),
            ">=" => Self::Order(f64::ge, number(value)?),
            "<" => Self::Order(f64::lt, number(value)?),
            "<=" => Self::Order(f64::le, number(value)?),
            "~~" => regex(false)?,
            "~*" => regex(true)?,
            "in" => Self::In(list()?.clone()),
            "has" => Self::Has,
            "ipmatch" => {
                let networks = list()?.iter().map(|network| network.as_str().and_then(Network::parse));
                let networks = networks.collect::<Option<Vec<_>>>();
                Self::Within(networks.ok_or("`ipmatch` needs addresses or ranges")?)
            }
            _ => {
                return Err(format!(
                    "invalid operator '{operator}'; expected one of ==, ~=, >, >=, <, <=, ~~, ~*, in, has and ipmatch"
                ));
            }
        };
        Ok((operator == "~=", comparison))
    }

    pub(super) fn holds(&self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Equal(to) => is_equal(value, to),
            Self::Order(holds, number) => parsed(value).is_some_and(|value| holds(&value, number)),
            Self::Matches(regex) => value.is_some_and(|value| regex.is_match(value)),
            Self::In(list) => list.iter().any(|one| is_equal(value, one)),
            Self::Has => false,
            Self::Within(networks) => {
                let address = value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
                address.is_some_and(|address| networks.iter().any(|network| network.holds(address)))
            }
        }
    }
}

fn number(value: &Json) -> Result<f64, String> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    value.as_f64().or(text).ok_or_else(|| format!("expected a number, got {value}"))
}

fn parsed(value: Option<&[u8]>) -> Option<f64> {
    std::str::from_utf8(value?).ok()?.trim().parse().ok()
}

/// Compares with a number by value, and with everything else as text.
fn is_equal(value: Option<&[u8]>, to: &Json) -> bool {
    match to {
        Json::Null => value.is_none(),
        Json::String(text) => value == Some(text.as_bytes()),
        Json::Number(number) => parsed(value) == number.as_f64(),
        other => value == Some(other.to_string().as_bytes()),
    }
}
