//! An upstream that echoes requests, for the demo and for experiments.
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::thread;

/// Serves on every address until the process ends.
pub(crate) fn serve(addresses: &[SocketAddr]) -> io::Result<ExitCode> {
    let listeners = addresses.iter().map(TcpListener::bind).collect::<io::Result<Vec<_>>>()?;
    run(listeners)?;
    Ok(ExitCode::SUCCESS)
}

/// Serves on a free port, on a thread of its own.
pub(crate) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::Builder::new().name("echo".to_owned()).spawn(move || run(vec![listener]))?;
    Ok(address)
}

fn run(listeners: Vec<TcpListener>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut servers = Vec::new();
        for listener in listeners {
            let address = listener.local_addr()?;
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            servers.push(tokio::spawn(async move { axum::serve(listener, router(address)).await }));
        }
        for server in servers {
            server.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

fn router(upstream: SocketAddr) -> Router {
    Router::new().fallback(move |method, uri, headers, body| async move {
        echo(upstream, &method, &uri, &headers, &body)
    })
}

fn echo(upstream: SocketAddr, method: &Method, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Response {
    let headers: Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
        .collect();
    let answer = json!({
        "upstream": upstream,
        "method": method.as_str(),
        "path": uri.to_string(),
        "headers": headers,
        "body": String::from_utf8_lossy(body),
    });
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], format!("{answer:#}\n")).into_response()
}
