//! Times reading a file of 10,000 routes: `cargo bench -p weir-model`.
#![allow(clippy::print_stdout, missing_docs)]
use std::fmt::Write;
use std::time::Instant;
use weir_model::{Document, Format};

fn main() {
    let mut text = String::from("_format_version: \"3.0\"\nservices:\n");
    for service in 0..1000 {
        let _ = write!(
            text,
            "- name: service-{service}\n  host: host-{service}.example.com\n  port: 8080\n  routes:\n"
        );
        for route in 0..10 {
            let _ = write!(
                text,
                "  - name: route-{service}-{route}\n    methods: [GET, POST]\n    hosts:\n    - api-{service}.example.com\n    paths:\n    - /service/{service}/route/{route}\n    strip_path: false\n"
            );
        }
    }
    println!("{} bytes", text.len());
    for _ in 0..10 {
        let start = Instant::now();
        let read = Document::read(&text, Format::Yaml, &[], &|_| None);
        let routes = read.map_or(0, |read| read.document.routes.len());
        println!("{routes} routes in {:?}", start.elapsed());
    }
}
