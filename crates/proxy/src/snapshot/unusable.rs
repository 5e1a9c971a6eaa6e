//! What runs in the place of a plugin that cannot be built with the secrets of its references.

use weir_plugin::{AccessEffect, Admission, Exchange, Flow, Hooks, LocalResponse, Phases, Session};

/// Answers requests with status 500, and refuses sessions of streams, because the plugin may be what protects them.
pub(super) struct Unusable;

impl Hooks for Unusable {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::PREREAD
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, _exchange: &mut Exchange) -> Flow {
        Flow::Respond(LocalResponse::error(500, "An unexpected error occurred"))
    }

    fn preread(&self, _session: &Session) -> Admission {
        Admission::Refuse
    }
}
