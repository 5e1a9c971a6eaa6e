//! A gRPC service by tonic, whose messages are bytes as they are, and its client.
use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::{Service, service_fn};

/// Messages as they are.
#[derive(Default, Clone, Copy)]
pub(crate) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, room: &mut EncodeBuf<'_>) -> Result<(), Status> {
        room.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;
type Answered = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

/// The service `weir.Echo`.
#[derive(Clone)]
pub(crate) struct Echo;

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "weir.Echo";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answered;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answered {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Raw).max_decoding_message_size(usize::MAX);
            Ok(match request.uri().path() {
                "/weir.Echo/Unary" => grpc.unary(service_fn(unary), request).await,
                "/weir.Echo/Server" => grpc.server_streaming(service_fn(server), request).await,
                "/weir.Echo/Client" => grpc.client_streaming(service_fn(client), request).await,
                "/weir.Echo/Both" => grpc.streaming(service_fn(both), request).await,
                "/weir.Echo/Hang" => grpc.unary(service_fn(hang), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// The same message; its metadata too. One that asks for it fails.
fn unary(request: Request<Bytes>) -> Ready<Result<Response<Bytes>, Status>> {
    if request.get_ref().starts_with(b"fail") {
        let mut status =
            Status::with_details(Code::FailedPrecondition, "as “asked”", Bytes::from_static(b"why"));
        status.metadata_mut().insert("x-more", "1".parse().unwrap());
        return ready(Err(status));
    }
    let (metadata, _, message) = request.into_parts();
    let mut response = Response::new(message);
    for name in ["x-sent", "x-consumer-username", "grpc-timeout"] {
        if let Some(value) = metadata.get(name) {
            response.metadata_mut().insert(name, value.clone());
        }
    }
    ready(Ok(response))
}

/// As many messages as the first says, each of the second number's size; or, with 0, no end of them.
fn server(request: Request<Bytes>) -> Ready<Result<Response<Messages>, Status>> {
    let text = String::from_utf8(request.into_inner().to_vec()).unwrap();
    let (count, size) = text.split_once(' ').unwrap();
    let (count, size): (usize, usize) = (count.parse().unwrap(), size.parse().unwrap());
    let message = Bytes::from(vec![b'x'; size]);
    let messages = tokio_stream::iter((0..count).map(move |_| Ok(message.clone())));
    ready(Ok(Response::new(Box::pin(messages))))
}

/// How many bytes came.
async fn client(request: Request<Streaming<Bytes>>) -> Result<Response<Bytes>, Status> {
    let mut messages = request.into_inner();
    let mut sum = 0;
    while let Some(message) = messages.next().await {
        sum += message?.len();
    }
    Ok(Response::new(sum.to_string().into()))
}

/// Each message as it comes.
fn both(request: Request<Streaming<Bytes>>) -> Ready<Result<Response<Messages>, Status>> {
    ready(Ok(Response::new(Box::pin(request.into_inner()))))
}

fn hang(_: Request<Bytes>) -> std::future::Pending<Result<Response<Bytes>, Status>> {
    std::future::pending()
}

/// Serves on a free port, on this runtime; over TLS with an identity.
pub(crate) async fn serve(identity: Option<Identity>) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = Server::builder();
    if let Some(identity) = identity {
        server = server.tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
    }
    tokio::spawn(
        server.add_service(Echo).serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))),
    );
    address
}

/// A client of the service.
pub(crate) struct Caller(tonic::client::Grpc<Channel>);

impl Caller {
    pub(crate) async fn connect(uri: String) -> Caller {
        Caller::over(Channel::from_shared(uri).unwrap().connect().await.unwrap())
    }

    pub(crate) fn over(channel: Channel) -> Caller {
        Caller(tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX))
    }

    async fn path(&mut self, method: &str) -> PathAndQuery {
        self.0.ready().await.unwrap();
        format!("/weir.Echo/{method}").parse().unwrap()
    }

    pub(crate) async fn unary(
        &mut self,
        method: &str,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, Status> {
        let path = self.path(method).await;
        self.0.unary(request, path, Raw).await
    }

    pub(crate) async fn server(&mut self, request: &str) -> Result<Response<Streaming<Bytes>>, Status> {
        let path = self.path("Server").await;
        self.0.server_streaming(Request::new(Bytes::from(request.to_owned())), path, Raw).await
    }

    pub(crate) async fn client(
        &mut self,
        messages: impl Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Response<Bytes>, Status> {
        let path = self.path("Client").await;
        self.0.client_streaming(Request::new(messages), path, Raw).await
    }

    pub(crate) async fn both(
        &mut self,
    ) -> (tokio::sync::mpsc::Sender<Bytes>, Result<Response<Streaming<Bytes>>, Status>) {
        let (sender, messages) = tokio::sync::mpsc::channel(1);
        let path = self.path("Both").await;
        let request = Request::new(ReceiverStream::new(messages));
        (sender, self.0.streaming(request, path, Raw).await)
    }
}
