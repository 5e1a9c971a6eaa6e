//! No annotation and no path make the templates of grpc-gateway panic, and a path that matches names every field.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The module stands alone, so that nothing else is built.
#[allow(dead_code)]
#[path = "../../src/grpc_gateway/template.rs"]
mod template;

fuzz_target!(|input: (&str, &str)| {
    let (text, path) = input;
    if let Ok(template) = template::Template::parse(text)
        && let Some(fields) = template.matches(path)
    {
        assert!(fields.iter().map(|(field, _)| *field).eq(template.fields()));
    }
});
