//! What a file of cases may say.
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Entities beside those of the cases, as a declarative file has them.
    #[serde(default)]
    pub(crate) entities: Map<String, Value>,
    /// Settings of the node.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) case: Vec<Case>,
    #[serde(default)]
    pub(crate) refused: Vec<Refused>,
    /// Configurations that are good, and warned of.
    #[serde(default)]
    pub(crate) warned: Vec<Refused>,
}

/// A route with the plugin on it, and what happens there.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The plugin's configuration.
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
    /// More fields of the plugin's entity.
    #[serde(default)]
    pub(crate) plugin: Map<String, Value>,
    /// Other plugins on the route.
    #[serde(default)]
    pub(crate) plugins: Vec<Value>,
    /// More fields of the route and of its service; no service where that is `false`.
    #[serde(default)]
    pub(crate) route: Map<String, Value>,
    pub(crate) service: Option<Value>,
    /// The versions of HTTP that the case is run over, each on a route of its own.
    #[serde(default = "both")]
    pub(crate) http: Vec<u8>,
    /// What happens, if it is more than one thing.
    #[serde(default)]
    pub(crate) step: Vec<Step>,
    #[serde(flatten)]
    pub(crate) only: Step,
}

fn both() -> Vec<u8> {
    vec![1, 2]
}

/// One request and all that comes of it.
#[derive(Deserialize, Default, Clone)]
pub(crate) struct Step {
    /// The request: its method and target, lines of its head, and behind an empty line its body.
    pub(crate) request: Option<String>,
    /// What the upstream answers, and what the collector does: the status, lines of the head, the body.
    pub(crate) answer: Option<String>,
    pub(crate) collector: Option<String>,
    /// What the client gets.
    pub(crate) response: Option<Response>,
    /// What the upstream gets; `false` where it is not asked.
    pub(crate) upstream: Option<Asked>,
    /// What the collector gets in the end.
    pub(crate) collected: Option<Request>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// What is written and means nothing.
type Unknown = BTreeMap<String, toml::Value>;

impl Step {
    /// Panics on what is written and means nothing.
    pub(crate) fn check(&self, case: &str) {
        let asked = self.upstream.iter().filter_map(|asked| match asked {
            Asked::With(request) => Some(&request.message),
            Asked::No(_) => None,
        });
        let others = self.response.iter().map(|response| &response.message);
        let messages = asked.chain(others).chain(self.collected.iter().map(|request| &request.message));
        for unknown in messages.map(|message| &message.unknown).chain([&self.unknown]) {
            assert!(unknown.is_empty(), "{case}: nothing is called {:?}", unknown.keys());
        }
    }
}

#[derive(Deserialize, Clone)]
pub(crate) struct Response {
    pub(crate) status: Option<u16>,
    #[serde(flatten)]
    pub(crate) message: Message,
}

#[derive(Deserialize, Clone)]
#[serde(untagged)]
pub(crate) enum Asked {
    No(bool),
    With(Request),
}

#[derive(Deserialize, Clone)]
pub(crate) struct Request {
    pub(crate) method: Option<String>,
    /// Path and query: a text, or `~` and a regex.
    pub(crate) target: Option<String>,
    #[serde(flatten)]
    pub(crate) message: Message,
}

#[derive(Deserialize, Default, Clone)]
pub(crate) struct Message {
    /// By name: a text, `~` and a regex, a list of the values of all fields of that name, or whether there is one.
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, Value>,
    /// A text, or `~` and a regex.
    pub(crate) body: Option<String>,
    /// What the body has at least, as JSON.
    pub(crate) json: Option<Value>,
    #[serde(flatten)]
    unknown: Unknown,
}

/// A configuration that cannot be, or is warned of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Refused {
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
    #[serde(default)]
    pub(crate) plugin: Map<String, Value>,
    /// A part of what `weir check` says.
    pub(crate) says: String,
}
