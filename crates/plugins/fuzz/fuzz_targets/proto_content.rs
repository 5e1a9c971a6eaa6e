//! The content of a proto, then NUL and the bytes of a message. What compiles can write any message that decodes as JSON, and read it again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;

// The modules stand alone, so that nothing else is built.
#[allow(dead_code)]
#[path = "../../src/shared/grpc/bounds.rs"]
mod bounds;
#[allow(dead_code)]
#[path = "../../src/grpc_transcode/decode.rs"]
mod decode;
#[allow(dead_code)]
#[path = "../../src/grpc_transcode/encode.rs"]
mod encode;
#[allow(dead_code)]
#[path = "../../src/shared/grpc/proto.rs"]
mod proto;

/// The names by which the modules know each other.
mod shared {
    pub(crate) mod grpc {
        pub(crate) use crate::bounds;
    }
}

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let Ok(content) = std::str::from_utf8(&input[..end]) else { return };
    let bytes = input.get(end + 1..).unwrap_or_default();
    let Ok(pool) = proto::compile(content) else { return };
    for descriptor in pool.all_messages() {
        let Ok(message) = bounds::decode(descriptor.clone(), bytes) else { continue };
        for words in [&[][..], &["enum_as_value".to_owned(), "int64_as_hexstring".to_owned()]] {
            let json = decode::object(&message, decode::JsonOptions::of(words));
            if let Ok(Json::Object(members)) = &json {
                let _ = encode::message(&descriptor, members);
            }
        }
    }
});
