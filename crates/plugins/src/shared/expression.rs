//! Conditions on variables, as APISIX's `vars` and `_meta.filter` are written: `[["arg_user", "==", "jack"]]`.

use super::variables::Variable;
use weir_plugin::{Condition, Exchange, Json, Variables};

/// A condition on a request and its response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expression(Condition<Variable>);

impl Expression {
    /// Parses a list of conditions, which may begin with `AND`, `OR`, `!AND` or `!OR`.
    pub(crate) fn parse(written: &Json) -> Result<Self, String> {
        Condition::parse(written, Variable::named).map(Self)
    }

    /// Whether the request meets the condition.
    pub(crate) fn is_met(&self, exchange: &Exchange) -> bool {
        self.0.is_met(&OfExchange(exchange))
    }
}

/// The variables of a request and its response.
struct OfExchange<'e>(&'e Exchange);

impl Variables<Variable> for OfExchange<'_> {
    fn test(&self, variable: &Variable, predicate: &dyn Fn(Option<&[u8]>) -> bool) -> bool {
        predicate(variable.value(self.0).as_deref())
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
            (json!([["arg_name", "has", "json"]]), false),
            (json!([["arg_name", "!", "has", "json"]]), true),
            (json!(["or", ["arg_name", "IN", ["x"]], ["arg_n", "==", 10]]), true),
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
