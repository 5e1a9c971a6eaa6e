//! Asks an OCSP responder over HTTP.

use super::ocsp::Question;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_http1::{BodyDecoder, Limits, Method, ResponseHead};

/// The maximum length of an OCSP response.
const MAX_RESPONSE_LEN: usize = 64 * 1024;

/// The authority and the path of the responder's URL.
pub(super) fn place(question: &Question) -> io::Result<(&str, &str)> {
    let unusable = || io::Error::other("only http:// can be asked");
    let place = question.responder.strip_prefix("http://").ok_or_else(unusable)?;
    Ok(place.split_at(place.find('/').unwrap_or(place.len())))
}

/// The host and the port of an authority.
pub(super) fn host_and_port(authority: &str) -> io::Result<(&str, u16)> {
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    Ok((host, port.parse().map_err(io::Error::other)?))
}

/// Sends the question over a connection to its responder, and returns the response's body.
pub(super) async fn ask(mut tcp: TcpStream, question: &Question) -> io::Result<Vec<u8>> {
    let (authority, path) = place(question)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/ocsp-request\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        if path.is_empty() { "/" } else { path },
        question.request.len()
    );
    tcp.write_all(&[head.as_bytes(), &question.request].concat()).await?;
    let mut received = Vec::new();
    loop {
        let ended = received.len() > MAX_RESPONSE_LEN || tcp.read_buf(&mut received).await? == 0;
        match body(&received, ended) {
            Some(body) => return Ok(body),
            None if ended => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no whole response of status 200"));
            }
            None => {}
        }
    }
}

/// The body of a response of status 200, once it is whole.
fn body(received: &[u8], ended: bool) -> Option<Vec<u8>> {
    let mut head = ResponseHead::default();
    let length = head.parse(received, &Limits::default(), Method::Post).ok()??;
    let mut decoder = BodyDecoder::of_response(head.framing);
    let (mut rest, mut body) = (&received[length..], Vec::new());
    while !decoder.is_done() && !rest.is_empty() {
        let decoded = decoder.decode(rest).ok()?;
        if decoded.consumed == 0 {
            break;
        }
        body.extend_from_slice(&rest[decoded.data]);
        rest = &rest[decoded.consumed..];
    }
    let whole = decoder.is_done() || ended && decoder.finish().is_ok();
    (head.status == 200 && whole).then_some(body)
}
