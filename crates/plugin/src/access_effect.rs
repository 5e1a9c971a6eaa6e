//! What an access hook does to a request, as its plugin declares it.

use crate::Phases;

/// What an access hook does to the way of a request, for those who explain a request without sending it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessEffect {
    /// The request goes where it would go without the hook, unless this refuses it by what is known only then, such as a
    /// counter, a body or the answer of another server.
    #[default]
    Passes,
    /// The hook decides by the request and the configuration alone, and changes nothing but the exchange: no counter, no
    /// cache. So it can be called to find out.
    Predictable,
    /// The hook answers the request, with what is known only then, such as the response of a function.
    Answers,
    /// The hook chooses the upstream in the place of the service's.
    ChoosesUpstream,
    /// The hook may answer or choose another upstream, by chance or because it runs code.
    Unknown,
}

impl AccessEffect {
    /// The effect of the access hook of code that runs in these phases.
    pub fn of_code(phases: Phases) -> Self {
        match phases.intersects(Phases::ACCESS) {
            true => Self::Unknown,
            false => Self::Passes,
        }
    }
}
