//! Conditions on variables, as APISIX's `vars` and `_meta.filter` are written: `[["arg_user", "==", "jack"]]`.

use super::variables::Variable;
use regex::bytes::{Regex, RegexBuilder};
use std::net::IpAddr;
use weir_plugin::{Exchange, Json};

/// A condition on a request.
#[derive(Debug, Clone)]
pub(crate) enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    /// A variable without a value counts as null.
    Compare(Variable, Comparison),
}

/// What a value is compared with.
#[derive(Debug, Clone)]
pub(crate) enum Comparison {
    Equal(Json),
    /// Numbers alone can be compared so.
    Order(fn(&f64, &f64) -> bool, f64),
    Matches(Regex),
    In(Vec<Json>),
    Within(Vec<Network>),
}

impl Expression {
    /// Parses a list of conditions, which may begin with `AND`, `OR`, `!AND` or `!OR`.
    pub(crate) fn parse(written: &Json) -> Result<Self, String> {
        let Json::Array(elements) = written else {
            return Err(format!("expected a list such as [\"arg_user\", \"==\", \"jack\"], got {written}"));
        };
        let joined = |rest: &[Json]| rest.iter().map(Self::parse).collect::<Result<Vec<_>, _>>();
        match elements.as_slice() {
            [] => Ok(Self::All(Vec::new())),
            [Json::String(word), rest @ ..] => match word.as_str() {
                "AND" => joined(rest).map(Self::All),
                "OR" => joined(rest).map(Self::Any),
                "!AND" => Ok(Self::Not(Box::new(Self::All(joined(rest)?)))),
                "!OR" => Ok(Self::Not(Box::new(Self::Any(joined(rest)?)))),
                variable => condition(variable, rest),
            },
            all => joined(all).map(Self::All),
        }
    }

    /// Whether the request meets the condition.
    pub(crate) fn is_met(&self, exchange: &Exchange) -> bool {
        match self {
            Self::All(all) => all.iter().all(|one| one.is_met(exchange)),
            Self::Any(any) => any.iter().any(|one| one.is_met(exchange)),
            Self::Not(one) => !one.is_met(exchange),
            Self::Compare(variable, comparison) => comparison.holds(variable.value(exchange).as_deref()),
        }
    }
}

/// `variable operator value`, or `variable ! operator value`.
fn condition(variable: &str, rest: &[Json]) -> Result<Expression, String> {
    let (is_negated, operator, value) = match rest {
        [Json::String(not), Json::String(operator), value] if not == "!" => (true, operator, value),
        [Json::String(operator), value] => (false, operator, value),
        [Json::String(operator)] => (false, operator, &Json::Null),
        _ => {
            return Err(format!(
                "the condition on `{variable}` has no operator; write [\"{variable}\", \"==\", …]"
            ));
        }
    };
    let (is_opposite, comparison) = Comparison::parse(operator, value)?;
    // With a null in its place, a mistyped name could switch off a plugin that authenticates.
    let compare = Expression::Compare(Variable::named(variable)?, comparison);
    Ok(if is_negated != is_opposite { Expression::Not(Box::new(compare)) } else { compare })
}

impl Comparison {
    /// The comparison that an operator stands for, and whether it is the opposite that must hold.
    fn parse(operator: &str, value: &Json) -> Result<(bool, Self), String> {
        let regex = |ignores_case| {
            let text = value.as_str().ok_or_else(|| format!("`{operator}` needs a regex, got {value}"))?;
            let regex = RegexBuilder::new(text).case_insensitive(ignores_case).build();
            regex.map(Self::Matches).map_err(|error| format!("invalid regex: {error}"))
        };
        let list = || value.as_array().ok_or_else(|| format!("`{operator}` needs a list, got {value}"));
        Ok(match operator {
            "==" => (false, Self::Equal(value.clone())),
            "~=" => (true, Self::Equal(value.clone())),
            ">" => (false, Self::Order(f64::gt, number(value)?)),
            ">=" => (false, Self::Order(f64::ge, number(value)?)),
            "<" => (false, Self::Order(f64::lt, number(value)?)),
            "<=" => (false, Self::Order(f64::le, number(value)?)),
            "~~" => (false, regex(false)?),
            "~*" => (false, regex(true)?),
            "in" | "IN" => (false, Self::In(list()?.clone())),
            "ipmatch" | "IPMATCH" => {
                let networks = list()?.iter().map(|network| network.as_str().and_then(Network::parse));
                let networks = networks.collect::<Option<Vec<_>>>();
                (false, Self::Within(networks.ok_or("`ipmatch` needs addresses or ranges")?))
            }
            _ => {
                return Err(format!(
                    "invalid operator '{operator}'; expected one of ==, ~=, >, >=, <, <=, ~~, ~*, in and ipmatch"
                ));
            }
        })
    }

    fn holds(&self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Equal(to) => is_equal(value, to),
            Self::Order(holds, number) => parsed(value).is_some_and(|value| holds(&value, number)),
            Self::Matches(regex) => value.is_some_and(|value| regex.is_match(value)),
            Self::In(list) => list.iter().any(|one| is_equal(value, one)),
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

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    /// Parses `10.0.0.0/8` or one address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
        (prefix <= bits).then_some(Self { address, prefix })
    }

    fn holds(&self, address: IpAddr) -> bool {
        let (own, other, bits) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => (u32::from(own).into(), u32::from(other).into(), 32),
            (IpAddr::V6(own), IpAddr::V6(other)) => (u128::from(own), u128::from(other), 128),
            _ => return false,
        };
        (own ^ other).checked_shr(bits - self.prefix).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::testing::Gateway;

    #[test]
    fn conditions_hold_as_lua_resty_expr_says() {
        let exchange = Gateway::new(&[]).exchange("GET /a?name=json&n=10\nX-Role: admin");
        for (written, expected) in [
            (json!([]), true),
            (json!([["arg_name", "==", "json"]]), true),
            (json!(["arg_name", "==", "json"]), true),
            (json!([["arg_name", "~=", "json"]]), false),
            (json!([["arg_name", "==", "json"], ["arg_n", ">", 10]]), false),
            (json!([["arg_n", ">=", 10], ["arg_n", "<=", "10"], ["arg_n", "<", 10.5]]), true),
            (json!([["arg_n", "==", 10]]), true),
            (json!(["OR", ["arg_name", "==", "x"], ["http_x_role", "==", "admin"]]), true),
            (json!(["!OR", ["arg_name", "==", "x"], ["http_x_role", "==", "admin"]]), false),
            (json!(["AND", ["uri", "==", "/a"], ["OR", ["arg_n", ">", 99], ["arg_n", "<", 99]]]), true),
            (json!(["!AND", ["uri", "==", "/a"]]), false),
            (json!([["http_x_role", "~~", "^adm"]]), true),
            (json!([["http_x_role", "~~", "^ADM"]]), false),
            (json!([["http_x_role", "~*", "^ADM"]]), true),
            (json!([["http_x_role", "!", "~*", "^ADM"]]), false),
            (json!([["request_method", "in", ["GET", "POST"]]]), true),
            (json!([["request_method", "!", "in", ["GET", "POST"]]]), false),
            (json!([["remote_addr", "ipmatch", ["10.0.0.0/8", "192.0.2.0/24"]]]), true),
            (json!([["remote_addr", "ipmatch", ["2001:db8::/32", "192.0.2.9"]]]), false),
            (json!([["arg_nothing", "==", null]]), true),
            (json!([["arg_nothing", "~=", "x"]]), true),
            (json!([["arg_nothing", ">", 0]]), false),
            (json!([["arg_nothing", "<=", 0]]), false),
        ] {
            assert_eq!(Expression::parse(&written).unwrap().is_met(&exchange), expected, "{written}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for (written, expected) in [
            (json!("arg_a"), "expected a list"),
            (json!([["arg_a", "=", "b"]]), "invalid operator '='"),
            (json!([["arg_a"]]), "has no operator"),
            (json!([["arg_a", "~~", "("]]), "invalid regex"),
            (json!([["arg_a", "in", "b"]]), "needs a list"),
            (json!([["arg_a", ">", "b"]]), "expected a number"),
            (json!([["request_metod", "==", "GET"]]), "unknown variable `request_metod`; expected one of "),
            (json!(["OR", ["arg_a", "==", "b"], ["arg_", "~=", "x"]]), "unknown variable `arg_`"),
            (json!([["arg_a", "ipmatch", ["b"]]]), "needs addresses"),
        ] {
            let error = Expression::parse(&written).unwrap_err();
            assert!(error.contains(expected), "{written}: {error}");
        }
    }
}
