//! `headers` of APISIX's plugins: `{"add": …, "set": …, "remove": […]}`, or headers to set. Values may contain variables.

use super::transformer::is_settable;
use super::variables::Template;
use weir_plugin::rule;
use weir_plugin::{Exchange, HeadersOf, Json};

/// Headers that are added, set and removed, in this order.
#[derive(Debug, Default)]
pub(crate) struct HeaderOperations {
    add: Vec<(String, Template)>,
    set: Vec<(String, Template)>,
    remove: Vec<String>,
}

impl HeaderOperations {
    /// Reads the field `headers`.
    pub(crate) fn read(written: Option<&Json>) -> Result<Self, String> {
        let Some(written) = written else { return Ok(Self::default()) };
        let members = written.as_object().ok_or_else(|| format!("expected an object, got {written}"))?;
        let is_list_of_operations = members.iter().any(|(name, value)| match name.as_str() {
            "add" | "remove" | "set" => value.is_object() || value.is_array(),
            _ => false,
        });
        if !is_list_of_operations {
            return Ok(Self { set: named(written)?, ..Self::default() });
        }
        if let Some(name) = members.keys().find(|name| !matches!(name.as_str(), "add" | "set" | "remove")) {
            return Err(format!("`{name}` is none of add, set and remove"));
        }
        let of = |name: &str| members.get(name).unwrap_or(&Json::Null);
        Ok(Self {
            add: if of("add").is_array() { lines(of("add"))? } else { named(of("add"))? },
            set: named(of("set"))?,
            remove: names(of("remove"))?,
        })
    }

    /// The headers that it changes.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let set = self.add.iter().chain(&self.set).map(|(name, _)| &**name);
        set.chain(self.remove.iter().map(|name| &**name))
    }

    /// Changes the headers; `groups` is what a regex has matched.
    pub(crate) fn apply(&self, exchange: &mut Exchange, of: HeadersOf, groups: &[String]) {
        // A value that a header cannot have is left out: it comes from the request. So is a header that frames the message
        // or concerns the connection. What was to be set is removed then: else the client's own header would pass for it.
        for (name, value) in self.add.iter().filter(|(name, _)| is_settable(name)) {
            let value = value.render_with(exchange, groups);
            let _ = exchange.add_header(of, name, &value);
        }
        for (name, value) in self.set.iter().filter(|(name, _)| is_settable(name)) {
            let value = value.render_with(exchange, groups);
            if exchange.set_header(of, name, &value).is_err() && !name.eq_ignore_ascii_case("host") {
                let _ = exchange.clear_header(of, name);
            }
        }
        for name in self.remove.iter().filter(|name| is_settable(name)) {
            let _ = exchange.clear_header(of, name);
        }
    }
}

/// `{"name": "value"}`, where a value may be a number.
fn named(written: &Json) -> Result<Vec<(String, Template)>, String> {
    let Json::Object(members) = written else {
        return if written.is_null() {
            Ok(Vec::new())
        } else {
            Err(format!("expected an object, got {written}"))
        };
    };
    let header = |(name, value): (&String, &Json)| {
        rule::header_name(name)?;
        match value {
            Json::String(text) => Ok((name.clone(), Template::parse(text))),
            Json::Number(number) => Ok((name.clone(), Template::parse(&number.to_string()))),
            other => Err(format!("`{name}`: expected a string or a number, got {other}")),
        }
    };
    members.iter().map(header).collect()
}

/// `["name: value"]`
fn lines(written: &Json) -> Result<Vec<(String, Template)>, String> {
    let line = |written: &Json| {
        let text = written.as_str().ok_or_else(|| format!("expected `name: value`, got {written}"))?;
        let (name, value) =
            text.split_once(':').ok_or_else(|| format!("expected `name: value`, got `{text}`"))?;
        rule::header_name(name.trim())?;
        Ok((name.trim().to_owned(), Template::parse(value.trim())))
    };
    written.as_array().into_iter().flatten().map(line).collect()
}

fn names(written: &Json) -> Result<Vec<String>, String> {
    let name = |written: &Json| {
        let name = written.as_str().ok_or_else(|| format!("expected the name of a header, got {written}"))?;
        rule::header_name(name).map(|()| name.to_owned())
    };
    written.as_array().into_iter().flatten().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::testing::Gateway;

    #[test]
    fn headers_are_added_then_set_then_removed() {
        let mut exchange = Gateway::new(&[]).exchange("GET /a\nX-A: 1\nX-B: 1\nX-C: 1");
        let written =
            json!({ "add": { "X-A": "$uri" }, "set": { "X-B": 2, "X-D": "$1" }, "remove": ["x-c"] });
        let operations = HeaderOperations::read(Some(&written)).unwrap();
        operations.apply(&mut exchange, HeadersOf::Request, &["all".to_owned(), "one".to_owned()]);
        let all =
            |name| exchange.request.headers.get_all(name).map(String::from_utf8_lossy).collect::<Vec<_>>();
        assert_eq!((all("X-A"), all("X-B")), (vec!["1".into(), "/a".into()], vec!["2".into()]));
        assert_eq!((all("X-C").len(), all("X-D")), (0, vec!["one".into()]));
    }

    #[test]
    fn a_header_that_cannot_be_set_is_not_the_clients() {
        let mut exchange = Gateway::new(&[]).exchange("GET /a?b=%0A\nX-A: forged");
        let operations = HeaderOperations::read(Some(&json!({ "X-A": "$remote_addr$arg_b" }))).unwrap();
        operations.apply(&mut exchange, HeadersOf::Request, &[]);
        assert!(exchange.request.headers.get("X-A").is_none());
    }

    #[test]
    fn both_forms_are_read_and_others_refused() {
        for written in [json!({ "X-A": "1" }), json!({ "add": ["X-A: 1"] }), json!({ "set": { "X-A": 1 } })] {
            let operations = HeaderOperations::read(Some(&written)).unwrap();
            assert_eq!(operations.add.len() + operations.set.len(), 1, "{written}");
        }
        for written in [
            json!("X-A: 1"),
            json!({ "X-A": [] }),
            json!({ "X A": "1" }),
            json!({ "add": ["X-A"] }),
            json!({ "set": {}, "ad": {} }),
            json!({ "remove": [1] }),
        ] {
            assert!(HeaderOperations::read(Some(&written)).is_err(), "{written}");
        }
    }
}
