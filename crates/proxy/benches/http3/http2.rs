//! The client of HTTP/2, by `h2`.
use crate::gateway::Gateway;
use crate::{Case, Connection, tls};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio_rustls::TlsConnector;

const WINDOW: u32 = 1 << 20;

pub(crate) struct Http2(SendRequest<Bytes>);

/// Opens the connections of a case.
pub(crate) async fn connect(gateway: &Gateway, case: &Case) -> Vec<Rc<Http2>> {
    let connector = TlsConnector::from(Arc::new(tls::config(b"h2")));
    let mut connections = Vec::new();
    for _ in 0..case.connections {
        let socket = TcpStream::connect(gateway.address).await.expect("a connection");
        socket.set_nodelay(true).expect("an option of TCP");
        let name = "localhost".try_into().expect("a name");
        let stream = connector.connect(name, socket).await.expect("TLS");
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(4 * WINDOW);
        let (sender, connection) = builder.handshake(stream).await.expect("HTTP/2");
        // Ends with the gateway.
        spawn_local(async move { drop(connection.await) });
        connections.push(Rc::new(Http2(sender)));
    }
    connections
}

impl Connection for Http2 {
    async fn exchange(&self, sent: usize, bytes: usize) {
        let mut sender = self.0.clone().ready().await.expect("a stream");
        let mut request = Request::builder().uri(format!("https://localhost/{bytes}"));
        if sent > 0 {
            request = request.method(Method::POST).header("content-length", sent);
        }
        let (response, body) =
            sender.send_request(request.body(()).expect("a request"), sent == 0).expect("a request");
        if sent > 0 {
            upload(body, sent).await;
        }
        let response = response.await.expect("a response");
        assert_eq!(response.status(), 200);
        let (mut body, mut received) = (response.into_body(), 0);
        while let Some(data) = body.data().await {
            let data = data.expect("data");
            received += data.len();
            body.flow_control().release_capacity(data.len()).expect("capacity");
        }
        assert_eq!(received, bytes);
    }
}

async fn upload(mut body: h2::SendStream<Bytes>, sent: usize) {
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let mut left = sent;
    while left > 0 {
        body.reserve_capacity(left.min(piece.len()));
        let room = poll_fn(|cx| body.poll_capacity(cx)).await.expect("a stream").expect("capacity");
        let n = room.min(left).min(piece.len());
        left -= n;
        body.send_data(piece.slice(..n), left == 0).expect("a stream");
    }
}
