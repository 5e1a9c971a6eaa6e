//! Upstreams that Lua may name by `kong.service.set_upstream`: whatever text of a configuration is the name of one.

use weir_plugin::Json;

/// The texts of a configuration.
pub(crate) fn of_config(config: &Json) -> Vec<&str> {
    let mut found = Vec::new();
    collect(config, &mut found);
    found
}

/// What stands between quotes in the code of a configuration.
pub(crate) fn of_code(config: &Json) -> Vec<&str> {
    of_config(config).into_iter().flat_map(|code| code.split(['"', '\''])).collect()
}

fn collect<'c>(value: &'c Json, found: &mut Vec<&'c str>) {
    match value {
        Json::String(text) => found.push(text),
        Json::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Json::Object(members) => members.values().for_each(|value| collect(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{of_code, of_config};
    use serde_json::json;

    #[test]
    fn texts_are_found_wherever_they_are() {
        let config = json!({ "to": "blue", "more": [{ "to": "green" }, 1] });
        let mut found = of_config(&config);
        found.sort_unstable();
        assert_eq!(found, ["blue", "green"]);
        let config = json!({ "access": ["kong.service.set_upstream('blue')\nf(\"green\")"] });
        let found = of_code(&config);
        assert!(found.contains(&"blue") && found.contains(&"green"), "{found:?}");
    }
}
