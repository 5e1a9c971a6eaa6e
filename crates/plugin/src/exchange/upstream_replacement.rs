//! Responses that a plugin sends in the place of the upstream's, and requests that the upstream gets although the client
//! has its response already: what a cache needs to validate what it has stored.

use super::state::NormalPath;
use super::{Exchange, LocalResponse};

/// What became of a request at the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamOutcome {
    /// The head of its response is in the exchange.
    Answered,
    /// There is no response: no target was reached, or none answered in time.
    Failed,
}

/// Decides whether another response is sent in the place of the upstream's.
pub(crate) type Replace = Box<dyn FnOnce(&mut Exchange, UpstreamOutcome) -> Option<LocalResponse>>;

/// Changes a request that is sent in the background.
pub(crate) type Prepare = Box<dyn FnOnce(&mut Exchange)>;

impl Exchange {
    /// Has the function decide whether the client gets another response than the upstream's. It runs once, before
    /// observers and response hooks see the upstream's response, and also if there is none because the upstream failed.
    /// A response that was replaced is seen by no observer. For access hooks; the last plugin that asks for it decides.
    pub fn replace_upstream_response(
        &mut self,
        decide: impl FnOnce(&mut Exchange, UpstreamOutcome) -> Option<LocalResponse> + 'static,
    ) {
        self.engine.extras().replace = Some(Box::new(decide));
    }

    /// Has the request sent to the upstream once the client has got the response of a plugin. The function gets a copy of
    /// the exchange, without what plugins had left in it, and asks for what is to see the response:
    /// [`Exchange::observe_upstream`], [`Exchange::replace_upstream_response`]. No hook runs for the copy, and nothing of
    /// it is logged but failures. For access hooks that respond, to a request without a body.
    pub fn ask_upstream_in_background(&mut self, prepare: impl FnOnce(&mut Exchange) + 'static) {
        self.engine.extras().in_background = Some(Box::new(prepare));
    }
}

/// What is sent in the place of the upstream's response, if a plugin has decided so.
#[inline]
pub fn replacement(exchange: &mut Exchange, outcome: UpstreamOutcome) -> Option<LocalResponse> {
    let decide = exchange.engine.extras.as_mut()?.replace.take()?;
    let instead = decide(exchange, outcome)?;
    exchange.engine.upstream_is_cut();
    Some(instead)
}

/// What prepares the request that is sent in the background, if a plugin has asked for one.
#[inline]
pub fn take_background(exchange: &mut Exchange) -> Option<impl FnOnce(&mut Exchange) + use<>> {
    exchange.engine.extras.as_mut()?.in_background.take()
}

/// Has a new exchange ask the upstream for what another one has: its route, path and query, where plugins have sent it, and
/// who calls, by which a target may be chosen.
pub fn ask_the_same(of: &mut Exchange, copy: &mut Exchange) {
    let (of, copy) = (&mut of.engine, &mut copy.engine);
    copy.path = std::mem::replace(&mut of.path, NormalPath::AsSent);
    copy.matched_path = of.matched_path;
    copy.path_handling = of.path_handling;
    copy.captures = of.captures.take();
    copy.query = of.query.take();
    copy.route = of.route;
    (copy.consumer, copy.credential) = (of.consumer, of.credential);
    if let Some(extras) = &mut of.extras {
        let new = copy.extras();
        (new.path, new.host, new.service) = (extras.path.take(), extras.host.take(), extras.service.take());
        new.secrets = std::mem::take(&mut extras.secrets);
    }
}

#[cfg(test)]
mod tests {
    use super::{UpstreamOutcome, ask_the_same, replacement, take_background};
    use crate::testing::{Gateway, id};
    use crate::{ConsumerIndex, Credential, Exchange, LocalResponse, Observer};

    struct Unreachable;

    impl Observer for Unreachable {
        fn data(&mut self, _: &[u8]) {
            unreachable!("the response was replaced");
        }
        fn end(self: Box<Self>) {
            unreachable!("the response was replaced");
        }
    }

    fn exchange() -> Exchange {
        Gateway::new(&[]).exchange("GET /")
    }

    #[test]
    fn a_response_that_was_replaced_is_not_observed() {
        let mut exchange = exchange();
        exchange.observe_upstream(Unreachable);
        exchange.replace_upstream_response(|_, outcome| {
            (outcome == UpstreamOutcome::Answered).then(|| LocalResponse::message(200, "stored"))
        });
        assert_eq!(replacement(&mut exchange, UpstreamOutcome::Answered).unwrap().status, 200);
        exchange.engine.upstream_passes(b"x");
        exchange.engine.response_passed(true);
        assert!(replacement(&mut exchange, UpstreamOutcome::Answered).is_none(), "it decides once");
    }

    #[test]
    fn a_copy_is_asked_for_the_same_caller() {
        let (mut of, mut copy) = (exchange(), exchange());
        of.authenticate(ConsumerIndex(0), Credential { id: id(9), identifier: None });
        ask_the_same(&mut of, &mut copy);
        assert_eq!(copy.consumer().map(|consumer| consumer.entity.id), Some(id(1)));
        assert_eq!(copy.credential(), Some(id(9)));
    }

    #[test]
    fn what_is_asked_in_the_background_is_asked_once() {
        let mut exchange = exchange();
        assert!(take_background(&mut exchange).is_none());
        exchange.ask_upstream_in_background(|copy| copy.request.headers.set("If-None-Match", b"1"));
        take_background(&mut exchange).unwrap()(&mut exchange);
        assert_eq!(exchange.request.headers.get("If-None-Match"), Some(&b"1"[..]));
        assert!(take_background(&mut exchange).is_none());
    }
}
