//! Copies the beginnings of bodies as they pass, for records.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use weir_plugin::{BufferedBody, Exchange, Observer};

/// The beginning of a body, which is copied while the exchange goes on.
#[derive(Clone)]
struct Copied(Rc<RefCell<Beginning>>);

struct Beginning {
    body: BufferedBody,
    /// How many bytes are copied.
    max: usize,
}

impl Copied {
    fn new(exchange: &Exchange, max: u32) -> Self {
        Self(Rc::new(RefCell::new(Beginning { body: exchange.body_buffer(), max: max as usize })))
    }

    /// Copies some of the body. If the node has no memory for more, the copy ends there.
    fn push(&self, data: &[u8]) {
        let Beginning { body, max } = &mut *self.0.borrow_mut();
        let room = max.saturating_sub(body.len()).min(data.len());
        if body.push(&data[..room], *max).is_err() {
            *max = body.len();
        }
    }

    fn is_full(&self) -> bool {
        let beginning = self.0.borrow();
        beginning.body.len() >= beginning.max
    }

    /// What was copied, if there was a body.
    fn bytes(&self) -> Option<Ref<'_, [u8]>> {
        let beginning = self.0.borrow();
        (!beginning.body.is_empty()).then(|| Ref::map(beginning, |beginning| &*beginning.body))
    }
}

impl Observer for Copied {
    fn data(&mut self, data: &[u8]) {
        self.push(data);
    }

    fn is_done(&self) -> bool {
        self.is_full()
    }

    fn end(self: Box<Self>) {}
}

struct RequestBody(Copied);

struct ResponseBody(Copied);

/// Copies so much of the request's body.
pub(super) fn observe_request(exchange: &mut Exchange, max: u32) {
    let copied = Copied::new(exchange, max);
    exchange.extensions.insert(RequestBody(copied.clone()));
    exchange.observe_request(move |data| {
        copied.push(data);
        Ok(())
    });
}

/// Copies so much of the response's body.
pub(super) fn observe_response(exchange: &mut Exchange, max: u32) {
    let copied = Copied::new(exchange, max);
    exchange.extensions.insert(ResponseBody(copied.clone()));
    exchange.observe_response(copied);
}

/// What was copied of the request's body.
pub(super) fn of_request(exchange: &Exchange) -> Option<Ref<'_, [u8]>> {
    exchange.extensions.get::<RequestBody>().and_then(|body| body.0.bytes())
}

/// What was copied of the response's body.
pub(super) fn of_response(exchange: &Exchange) -> Option<Ref<'_, [u8]>> {
    exchange.extensions.get::<ResponseBody>().and_then(|body| body.0.bytes())
}
