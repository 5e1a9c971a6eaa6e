//! No text makes the compiler of expressions panic, and what it accepts can be evaluated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_router::Patterns;
use weir_router::expressions::{Connection, Expression, Layer};

fuzz_target!(|text: &str| {
    let connection = Connection {
        protocol: "tls",
        sni: Some("a.test"),
        source: ([192, 0, 2, 1], 40_000).into(),
        destination: ([192, 0, 2, 2], 9000).into(),
    };
    let stream = Expression::compile(text, Layer::Stream, &mut Patterns::default());
    if let Ok(expression) = &stream {
        expression.matches(&connection);
    }
    match Expression::compile(text, Layer::Http, &mut Patterns::default()) {
        Ok(_) => {}
        Err(error) => {
            assert!(stream.is_err(), "requests have every field of connections");
            assert!(error.line >= 1 && error.column >= 1);
        }
    }
});
