//! Serves an API over HTTP/2.
use super::connection_limit::ConnectionPermit;
use super::request_body::TimedBody;
use super::send_timeout::SendTimeout;
use super::{Client, ClientTimeouts, MAX_HEAD_LEN};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How many requests of a connection are served at a time.
const MAX_STREAMS: u32 = 32;

/// Serves until either side closes. A connection without a request for too long, or whose client takes nothing of a
/// response for too long, is closed.
pub(super) async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: Client,
    router: Router,
    (timeouts, permit): (ClientTimeouts, Arc<ConnectionPermit>),
) {
    let activity = Activity::new(permit, timeouts);
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        let mut in_flight = InFlight::new(&activity);
        let (head, body) = request.into_parts();
        let (body, _) = TimedBody::new(body, timeouts.body);
        let mut request = Request::from_parts(head, Body::new(body));
        request.extensions_mut().insert(ConnectInfo(client.clone()));
        let responding = router.call(request);
        async move {
            let response = responding.await?;
            in_flight.respond(response.body().size_hint().exact().is_none());
            Ok::<_, Infallible>(response.map(|body| ResponseBody { body, in_flight }))
        }
    });
    let stream = TokioIo::new(SendTimeout::new(stream, timeouts.send));
    let mut server = http2::Builder::new(TokioExecutor::new());
    server.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS);
    server.max_header_list_size(MAX_HEAD_LEN as u32);
    let mut connection = pin!(server.serve_connection(stream, service));
    tokio::select! {
        _ = &mut connection => return,
        () = activity.late() => {}
    }
    // The client learns that no request is served any more; there is none to wait for.
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(timeouts.send, connection).await;
}

/// What happens on a connection.
struct Activity {
    permit: Arc<ConnectionPermit>,
    timeouts: ClientTimeouts,
    counts: Mutex<Counts>,
    changed: Notify,
}

/// The requests of a connection.
struct Counts {
    /// All that were not answered to the end.
    in_flight: usize,
    /// Of these, the ones whose response is being sent.
    responding: usize,
    /// Of these, the ones whose response has no end of its own.
    endless: usize,
    /// Whether there was any.
    served: bool,
    /// When something happened last.
    since: Instant,
}

impl Activity {
    fn new(permit: Arc<ConnectionPermit>, timeouts: ClientTimeouts) -> Arc<Activity> {
        let counts = Mutex::new(Counts {
            in_flight: 0,
            responding: 0,
            endless: 0,
            served: false,
            since: Instant::now(),
        });
        Arc::new(Activity { permit, timeouts, counts, changed: Notify::new() })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts();
        change(&mut counts);
        counts.since = Instant::now();
        drop(counts);
        self.changed.notify_one();
    }

    /// Says what the connection has: requests with an end, others alone, or none.
    fn mark(&self) {
        let (in_flight, endless) = {
            let counts = self.counts();
            (counts.in_flight, counts.endless)
        };
        match in_flight {
            0 => self.permit.mark_idle(),
            _ if in_flight == endless => self.permit.uncount(),
            _ => self.permit.mark_busy(),
        }
    }

    /// Returns when the connection has been idle, or a response has not moved, for too long.
    async fn late(&self) {
        loop {
            let (changed, deadline) = (self.changed.notified(), self.deadline());
            let late = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = late => return,
                () = changed => {}
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let counts = self.counts();
        let limit = match (counts.in_flight, counts.responding) {
            (0, _) if counts.served => self.timeouts.idle,
            (0, _) => self.timeouts.head,
            (in_flight, responding) if in_flight == responding => self.timeouts.send,
            // A handler is at work.
            _ => return None,
        };
        counts.since.checked_add(limit)
    }
}

/// A request, until its response was sent or given up.
struct InFlight {
    activity: Arc<Activity>,
    is_endless: bool,
}

impl InFlight {
    fn new(activity: &Arc<Activity>) -> InFlight {
        activity.change(|counts| (counts.in_flight, counts.served) = (counts.in_flight + 1, true));
        activity.permit.mark_busy();
        InFlight { activity: activity.clone(), is_endless: false }
    }

    /// Its response begins.
    fn respond(&mut self, is_endless: bool) {
        self.is_endless = is_endless;
        self.activity.change(|counts| {
            counts.responding += 1;
            counts.endless += usize::from(is_endless);
        });
        self.activity.mark();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.change(|counts| {
            counts.in_flight -= 1;
            counts.endless -= usize::from(self.is_endless);
        });
        self.activity.mark();
    }
}

/// The body of a response; it is dropped when it was sent, or when the client has reset the stream.
struct ResponseBody {
    body: Body,
    in_flight: InFlight,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.in_flight.activity.change(|_| {});
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.in_flight.activity.change(|counts| counts.responding -= 1);
    }
}
