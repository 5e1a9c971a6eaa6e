//! Reading a declarative configuration never panics, and every problem says where it is.
#![no_main]
use libfuzzer_sys::fuzz_target;
use weir_model::{Document, Format};

fuzz_target!(|text: &str| {
    for format in [Format::Yaml, Format::Json] {
        if let Err(problems) = Document::read(text, format, &[], &|_| None) {
            assert!(!problems.is_empty() && problems.iter().all(|problem| problem.at.line > 0));
        }
    }
});
