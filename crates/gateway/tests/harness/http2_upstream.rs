//! An upstream that speaks HTTP/2, by the `h2` crate's server.
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{Request, Response};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A request, and the way to answer it.
pub type Asked = (Request<RecvStream>, SendResponse<Bytes>);

/// Runs a closure for each request, and its future beside those of others, for as long as the process lives.
pub struct Http2Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Http2Upstream {
    /// Starts; the closure is given each request, and its number counted from 0. A connection takes no more than so many
    /// requests, and then says GOAWAY.
    pub fn start<F: Future<Output = ()> + 'static>(
        builder: Builder,
        most: usize,
        serve: impl Fn(Asked, usize) -> F + Send + 'static,
    ) -> Http2Upstream {
        Http2Upstream::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), builder, most, serve)
    }

    /// The same at an address, whose port is free.
    pub fn start_at<F: Future<Output = ()> + 'static>(
        address: SocketAddr,
        builder: Builder,
        most: usize,
        serve: impl Fn(Asked, usize) -> F + Send + 'static,
    ) -> Http2Upstream {
        let listener = std::net::TcpListener::bind(address).expect("a free port");
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::LocalRuntime::new().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let (serve, number) = (Arc::new(serve), Arc::new(AtomicUsize::new(0)));
                loop {
                    let (tcp, _) = listener.accept().await.unwrap();
                    tcp.set_nodelay(true).unwrap();
                    counted.fetch_add(1, Ordering::SeqCst);
                    let (builder, serve, number) = (builder.clone(), serve.clone(), number.clone());
                    tokio::task::spawn_local(async move {
                        let Ok(mut connection) = builder.handshake(tcp).await else { return };
                        let mut taken = 0;
                        while let Some(Ok(asked)) = connection.accept().await {
                            tokio::task::spawn_local(serve(asked, number.fetch_add(1, Ordering::SeqCst)));
                            taken += 1;
                            if taken == most {
                                connection.graceful_shutdown();
                            }
                        }
                    });
                }
            });
        });
        Http2Upstream { address, connections }
    }

    /// Answers every request with its own head, as text.
    pub fn echoing() -> Http2Upstream {
        Http2Upstream::start(Builder::new(), usize::MAX, async |(request, mut respond), _| {
            let fields: Vec<String> = request
                .headers()
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let body = all(request.into_body()).await;
            let said = format!("{method} {uri}\n{}\n{body} bytes", fields.join("\n"));
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.send_data(said.into(), true).unwrap();
        })
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// How many bytes a body has, up to its end or to where it breaks off.
pub async fn all(mut body: RecvStream) -> usize {
    let mut sum = 0;
    while let Some(Ok(data)) = body.data().await {
        sum += data.len();
        let _ = body.flow_control().release_capacity(data.len());
    }
    sum
}
