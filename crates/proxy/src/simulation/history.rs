//! What happened in a simulation, as the invariants look at it.

use super::invariants;
use super::plan::Plan;
use super::stream::Tap;
use std::cell::{Cell, RefCell};
use std::fmt::Arguments;
use std::rc::Rc;
use tokio::time::Instant;

/// All that happened. Times are milliseconds since the beginning.
pub(super) struct History {
    start: Instant,
    pub(super) plan: Plan,
    pub(super) events: RefCell<Vec<String>>,
    pub(super) broken: RefCell<Vec<String>>,
    pub(super) requests: RefCell<Vec<Request>>,
    pub(super) attempts: RefCell<Vec<Attempt>>,
    pub(super) links: RefCell<Vec<Rc<Link>>>,
    /// How many connections of HTTP/2 to targets that have carried a call are open.
    pub(super) http2_connections: Cell<usize>,
    /// The heads of final responses to requests, as they were read.
    pub(super) answers: RefCell<Vec<Answer>>,
    /// When each version of the configuration was published.
    pub(super) published: RefCell<Vec<u64>>,
}

/// A request of a client.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) is_idempotent: bool,
    pub(super) is_bodiless: bool,
    pub(super) sent: u64,
    pub(super) ended: Option<u64>,
    /// The client has left without waiting for the response.
    pub(super) has_left: bool,
    pub(super) status: Option<u16>,
    /// The response ended where its head had announced it.
    pub(super) is_whole: bool,
    /// The response is the gateway's own.
    pub(super) is_by_gateway: bool,
    /// The version of the configuration that the response names.
    pub(super) version: Option<usize>,
}

/// A request as it was sent on a connection to a target.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub(super) request: usize,
    pub(super) target: usize,
    pub(super) begun: u64,
    pub(super) ended: Option<u64>,
    /// The connection had served another.
    pub(super) is_reused: bool,
    /// Bytes of the response that were read; over HTTP/2, those of the request.
    pub(super) read: u64,
    /// The whole head of the final response was read.
    pub(super) has_head: bool,
    /// The server has said that it did not process it.
    pub(super) is_refused: bool,
    /// The version of the configuration that the request names.
    pub(super) version: usize,
}

/// The head of a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) target: usize,
    pub(super) status: u16,
    pub(super) read: u64,
}

/// A connection to a target, as the gateway uses it.
pub(super) struct Link {
    history: Rc<History>,
    pub(super) number: usize,
    pub(super) target: usize,
    current: Cell<Option<usize>>,
    served: Cell<usize>,
    /// How many bytes had been read when the current attempt began, and when its head and the whole response are there.
    base: Cell<u64>,
    head_at: Cell<Option<(u64, u16)>>,
    whole_at: Cell<Option<u64>>,
    pub(super) closed: Cell<Option<u64>>,
    total: Cell<u64>,
}

impl History {
    pub(super) fn new(plan: Plan) -> Rc<History> {
        Rc::new(History {
            start: Instant::now(),
            plan,
            events: RefCell::default(),
            broken: RefCell::default(),
            requests: RefCell::default(),
            attempts: RefCell::default(),
            links: RefCell::default(),
            http2_connections: Cell::default(),
            answers: RefCell::default(),
            published: RefCell::default(),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    pub(super) fn note(&self, what: Arguments<'_>) {
        let text = format!("{:>7} ms  {what}", self.now());
        self.events.borrow_mut().push(text);
    }

    /// An invariant does not hold.
    pub(super) fn breaks(&self, invariant: &str, how: Arguments<'_>) {
        let text = format!("{:>7} ms  {invariant}: {how}", self.now());
        self.events.borrow_mut().push(text.clone());
        self.broken.borrow_mut().push(text);
    }

    pub(super) fn request(&self, is_idempotent: bool, is_bodiless: bool) -> usize {
        let mut requests = self.requests.borrow_mut();
        requests.push(Request {
            is_idempotent,
            is_bodiless,
            sent: self.now(),
            ended: None,
            has_left: false,
            status: None,
            is_whole: false,
            is_by_gateway: false,
            version: None,
        });
        requests.len() - 1
    }

    /// A request is sent to a target.
    pub(super) fn attempt(&self, request: usize, target: usize, version: usize, is_reused: bool) -> usize {
        let attempt = Attempt {
            request,
            target,
            begun: self.now(),
            ended: None,
            is_reused,
            read: 0,
            has_head: false,
            is_refused: false,
            version,
        };
        invariants::before_attempt(self, &attempt);
        let mut attempts = self.attempts.borrow_mut();
        attempts.push(attempt);
        attempts.len() - 1
    }

    pub(super) fn link(self: &Rc<Self>, target: usize) -> Rc<Link> {
        let mut links = self.links.borrow_mut();
        let link = Rc::new(Link {
            history: self.clone(),
            number: links.len(),
            target,
            current: Cell::new(None),
            served: Cell::new(0),
            base: Cell::new(0),
            head_at: Cell::new(None),
            whole_at: Cell::new(None),
            closed: Cell::new(None),
            total: Cell::new(0),
        });
        links.push(link.clone());
        link
    }
}

impl Link {
    /// Whether a request was sent on it, rather than a probe.
    pub(super) fn is_used(&self) -> bool {
        self.served.get() > 0
    }

    /// Whether it was used and waits for another request.
    pub(super) fn is_idle(&self) -> bool {
        self.is_used() && self.current.get().is_none() && self.closed.get().is_none()
    }

    fn begin(&self, request: usize, version: usize) {
        let history = &self.history;
        history
            .note(format_args!("request {request} on connection {} to target {}", self.number, self.target));
        if let Some(current) = self.current.get() {
            let other = history.attempts.borrow()[current].request;
            history.breaks(
                "a connection carries one request at a time",
                format_args!("request {request} is sent behind {other} on connection {}", self.number),
            );
        }
        let is_reused = self.served.get() > 0;
        let most = history.plan.connection_requests as usize;
        if most != 0 && self.served.get() >= most {
            history.breaks(
                "a connection carries no more requests than it may",
                format_args!("request {request} behind {most} on connection {}", self.number),
            );
        }
        self.current.set(Some(history.attempt(request, self.target, version, is_reused)));
        self.served.set(self.served.get() + 1);
        self.base.set(self.total.get());
        self.head_at.set(None);
        self.whole_at.set(None);
    }

    /// The server has sent the whole final head of the response to the current request, with so many bytes on this connection.
    pub(super) fn has_head_at(&self, written: u64, status: u16) {
        self.head_at.set(Some((written, status)));
    }

    /// The same for the whole response.
    pub(super) fn is_whole_at(&self, written: u64) {
        self.whole_at.set(Some(written));
    }

    fn end(&self) {
        if let Some(current) = self.current.take() {
            let mut attempts = self.history.attempts.borrow_mut();
            attempts[current].ended = Some(self.history.now());
        }
    }
}

impl Tap for Link {
    fn wrote(&self, bytes: &[u8]) {
        let head = String::from_utf8_lossy(bytes);
        let number = |name: &str| {
            let (_, rest) = head.split_once(name)?;
            rest.split_once("\r\n")?.0.parse::<usize>().ok()
        };
        if let Some(request) = number("\r\nX-Id: ") {
            self.begin(request, number("\r\nX-Version: ").unwrap_or(usize::MAX));
        }
    }

    fn read(&self, total: u64) {
        self.total.set(total);
        if let Some(current) = self.current.get() {
            let mut attempts = self.history.attempts.borrow_mut();
            attempts[current].read = total - self.base.get();
            if let Some((_, status)) = self.head_at.get().filter(|(at, _)| total >= *at)
                && !std::mem::replace(&mut attempts[current].has_head, true)
            {
                let answer = Answer { target: self.target, status, read: self.history.now() };
                self.history.answers.borrow_mut().push(answer);
            }
        }
        if self.whole_at.get().is_some_and(|at| total >= at) {
            self.end();
        }
    }

    fn closed(&self) {
        self.closed.set(Some(self.history.now()));
        self.history.note(format_args!("connection {} to target {} is closed", self.number, self.target));
        self.end();
    }
}
