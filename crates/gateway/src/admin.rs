//! The Admin API.
mod explain;

use crate::control::Control;
use crate::{logger, status};
use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

type AccessLog = Arc<Mutex<Box<dyn Write + Send>>>;

/// Everything the Admin API serves.
pub(crate) fn router(control: Arc<Control>) -> Router {
    status::shared().merge(explain::router()).with_state(control)
}

/// Writes a line to a file for each request.
pub(crate) fn logged(router: Router, path: &Path) -> io::Result<Router> {
    let access_log: AccessLog = Arc::new(Mutex::new(logger::open(path)?));
    Ok(router.layer(middleware::from_fn_with_state(access_log, log_access)))
}

async fn log_access(
    State(access_log): State<AccessLog>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let asked = format!("{} {} {:?}", request.method(), request.uri(), request.version());
    let response = next.run(request).await;
    let line = format!(
        "{} {} \"{asked}\" {}\n",
        client.ip(),
        logger::timestamp(SystemTime::now()),
        response.status().as_u16()
    );
    if let Ok(mut sink) = access_log.lock() {
        // A full disk must not keep the Admin API from answering.
        let _ = sink.write_all(line.as_bytes());
    }
    response
}
