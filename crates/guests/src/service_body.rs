//! The body of the service's response, for code that has asked for it to be buffered.

use crate::kept;
use mlua::Error;
use std::rc::Rc;
use weir_plugin::Exchange;

/// The body, once it is whole.
#[derive(Default)]
pub(crate) struct ServiceBody(Option<Rc<[u8]>>);

impl ServiceBody {
    /// Asks for it.
    pub(crate) fn want(exchange: &mut Exchange) {
        exchange.keep_service_headers();
        if exchange.extensions.get::<Self>().is_none() {
            exchange.extensions.insert(Self::default());
        }
    }

    /// Has it buffered where it was asked for, and the service has answered.
    pub(crate) fn buffer(exchange: &mut Exchange) {
        if exchange.extensions.get::<Self>().is_some() && exchange.service_status().is_some() {
            exchange.buffer_response_body();
        }
    }

    /// Keeps it where it was asked for, before other plugins replace it.
    pub(crate) fn keep(exchange: &mut Exchange, body: &[u8]) {
        let wanted = exchange.extensions.get::<Self>().is_some_and(|kept| kept.0.is_none());
        if wanted && kept::keep(exchange, body.len()).is_ok() {
            exchange.extensions.insert(Self(Some(body.into())));
        }
    }

    /// The body, if it was asked for.
    pub(crate) fn of(exchange: &Exchange) -> Result<Option<Rc<[u8]>>, Error> {
        match exchange.extensions.get::<Self>() {
            Some(Self(body)) => Ok(body.clone()),
            None => Err(Error::runtime(NOT_BUFFERED)),
        }
    }
}

/// Kong's message about a body that was not buffered.
const NOT_BUFFERED: &str = "service body is only available with buffered proxying (see: \
                            kong.service.request.enable_buffering function)";
