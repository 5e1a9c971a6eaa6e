//! Reading a declarative configuration with every plugin's schema never panics, and every problem says where it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use weir_model::{Document, Format, PluginSchema};

static SCHEMAS: LazyLock<Vec<PluginSchema>> = LazyLock::new(|| {
    weir_plugins::PLUGINS.iter().chain(weir_guests::PLUGINS).map(|plugin| plugin.schema).collect()
});

fuzz_target!(|text: &str| {
    let environment = |name: &str| (name == "NAME").then(|| "value".to_owned());
    for format in [Format::Yaml, Format::Json] {
        if let Err(problems) = Document::read(text, format, &SCHEMAS, &environment) {
            assert!(!problems.is_empty() && problems.iter().all(|problem| problem.at.line > 0));
        }
    }
});
