//! The Admin API and the metrics on APISIX's proxy port, for clients on this machine.
use super::api::{ADMIN, Api, METRICS, audit};
use super::configs::{DIGEST, LAST_MODIFIED};
use super::response::{API_VERSION, REVISION};
use crate::admin::auth::is_local;
use crate::admin::warning::WARNING;
use axum::body::Bytes;
use axum::http::{Request, Response, StatusCode, header};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use tokio::runtime::Handle;
use weir_proxy::{InternalHandler, InternalRequest, LocalResponse, RequestOrigin};

/// Serves on the proxy's listeners, once it is connected to the API.
pub(crate) struct OnProxy {
    /// Whether the Admin API is served too.
    admin: bool,
    connected: OnceLock<Connected>,
}

struct Connected {
    api: Arc<Api>,
    /// The ports of APISIX's listeners.
    ports: Vec<u16>,
    /// The runtime of the node's own APIs.
    runtime: Handle,
}

impl OnProxy {
    /// Serves nothing yet.
    pub(crate) fn new(admin: bool) -> Arc<OnProxy> {
        Arc::new(OnProxy { admin, connected: OnceLock::new() })
    }

    /// Serves on these ports from now on.
    pub(crate) fn connect(&self, api: Arc<Api>, ports: Vec<u16>, runtime: Handle) {
        // It is called once.
        let _ = self.connected.set(Connected { api, ports, runtime });
    }

    fn is_own(&self, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with('/');
        path == METRICS || self.admin && path.strip_prefix(ADMIN).is_some_and(below)
    }
}

impl InternalHandler for OnProxy {
    fn has(&self, local: SocketAddr, path: &str) -> bool {
        self.is_own(path)
            && self.connected.get().is_some_and(|connected| connected.ports.contains(&local.port()))
    }

    /// A proxy on this machine connects from it for anybody, and so does a browser for a page whose name was made to mean
    /// this machine.
    fn admits(&self, from: &RequestOrigin<'_>) -> bool {
        from.peer.ip().to_canonical().is_loopback() && !from.is_forwarded && is_local(from.host)
    }

    fn answer(&self, request: InternalRequest) -> Pin<Box<dyn Future<Output = LocalResponse> + Send>> {
        let failed = || LocalResponse::error(500, "An unexpected error occurred");
        let Some(Connected { api, runtime, .. }) = self.connected.get() else {
            return Box::pin(async move { failed() });
        };
        let (api, runtime) = (api.clone(), runtime.clone());
        Box::pin(async move {
            let peer = request.peer.ip();
            let Some(request) = read(request) else { return LocalResponse::error(400, "Bad request") };
            // Not on this worker, because it serves traffic.
            let answered = runtime.spawn(async move { api.answer(peer, request).await });
            answered.await.map_or_else(|_| failed(), written)
        })
    }

    fn too_long(&self, peer: SocketAddr, method: &str, path: &str) {
        if let Ok(method) = method.parse() {
            audit(peer.ip(), &method, path, StatusCode::PAYLOAD_TOO_LARGE, None);
        }
    }
}

fn read(request: InternalRequest) -> Option<Request<Bytes>> {
    let InternalRequest { method, target, headers, body, .. } = request;
    let builder = Request::builder().method(method.as_str()).uri(target);
    let builder =
        headers.iter().fold(builder, |builder, (name, value)| builder.header(name, value.as_slice()));
    builder.body(body.into()).ok()
}

fn written(response: Response<String>) -> LocalResponse {
    let (parts, body) = response.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let answer = LocalResponse::raw(parts.status.as_u16(), content_type, body);
    let passed_on = [
        ("X-Weir-Revision", REVISION),
        ("X-Weir-Warning", WARNING),
        ("X-API-VERSION", API_VERSION),
        ("X-Digest", DIGEST),
        ("X-Last-Modified", LAST_MODIFIED),
    ];
    passed_on.into_iter().fold(answer, |answer, (written, name)| match parts.headers.get(name) {
        Some(value) => answer.header(written, value),
        None => answer,
    })
}
