//! A case's request over HTTP/2.
use crate::harness::http2::{block_on, connect, start};
use crate::harness::{Head, Message};
use bytes::Bytes;
use http::Request;
use std::net::SocketAddr;

/// Fields that a connection over HTTP/1.1 has for itself.
const OF_CONNECTIONS: [&str; 5] = ["host", "connection", "transfer-encoding", "content-length", "trailer"];

/// Sends a request, with a host and the lines of its head, and reads the response.
pub(crate) fn exchange(
    proxy: SocketAddr,
    (method, target, host): (&str, &str, &str),
    fields: &[(String, String)],
    body: &str,
) -> Message {
    let mut request = Request::builder().method(method).uri(format!("http://{host}{target}"));
    for (name, value) in fields {
        if !OF_CONNECTIONS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            request = request.header(name.to_ascii_lowercase(), value);
        }
    }
    let request = request.body(()).unwrap();
    block_on(async {
        let (requests, _connection) = connect(proxy).await;
        let (response, mut upload) = start(&requests, request, body.is_empty()).await.unwrap();
        if !body.is_empty() {
            let trailer = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("trailer"));
            // A request that is answered early is not taken to its end.
            let _ = upload.send_data(Bytes::copy_from_slice(body.as_bytes()), trailer.is_none());
            if let Some((_, name)) = trailer {
                let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
                let _ =
                    upload.send_trailers([(name, http::HeaderValue::from_static("1"))].into_iter().collect());
            }
        }
        let (parts, mut body) = response.await.unwrap().into_parts();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            bytes.extend_from_slice(&data);
        }
        let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let head = Head { start: String::new(), fields: parts.headers.iter().map(field).collect() };
        Message { status: parts.status.as_u16(), head, body: bytes, trailers: Vec::new() }
    })
}
