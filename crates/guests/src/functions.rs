//! What the plugins `pre-function` and `post-function` share: Lua code of a configuration, and when it runs.

use crate::call::Guest;
use crate::filter::LuaBodyFilter;
use crate::pending::PendingHeaders;
use crate::phase::Phase;
use crate::sandbox::{SWITCHED_OFF, syntax_error};
use crate::service_body::ServiceBody;
use crate::settings::{LuaSettings, UntrustedLua};
use crate::vm::{Script, Vm};
use std::sync::Arc;
use weir_plugin::{BuildContext, Exchange, Flow, Handshake, Phases, WantsBody};

/// The configuration of such a plugin, and its hooks.
macro_rules! plugin {
    ($plugin:ident, $name:literal, $priority:literal) => {
        /// The code of each phase. Its functions run in their order.
        #[derive(Debug, Clone, weir_plugin::Record)]
        #[record(check = violations)]
        pub(crate) struct Config {
            /// Code that runs as a client's TLS handshake begins.
            #[field(default = [], check = parses)]
            pub certificate: Vec<String>,
            /// Code that runs before the route is found; of global plugins alone.
            #[field(default = [], check = parses)]
            pub rewrite: Vec<String>,
            /// Code that runs before the upstream is asked.
            #[field(default = [], check = parses)]
            pub access: Vec<String>,
            /// Code that runs before the response's head goes to the client.
            #[field(default = [], check = parses)]
            pub header_filter: Vec<String>,
            /// Code that runs for each part of the response's body.
            #[field(default = [], check = parses)]
            pub body_filter: Vec<String>,
            /// Code that runs after the last byte.
            #[field(default = [], check = parses)]
            pub log: Vec<String>,
        }

        fn parses(code: &str) -> Result<(), String> {
            $crate::functions::parses($name, code)
        }

        fn violations(config: &Config) -> Vec<weir_plugin::FieldError> {
            let phases = [
                &config.certificate,
                &config.rewrite,
                &config.access,
                &config.header_filter,
                &config.body_filter,
                &config.log,
            ];
            if phases.iter().any(|code| !code.is_empty()) {
                return Vec::new();
            }
            let message = "set at least one of `certificate`, `rewrite`, `access`, `header_filter`, `body_filter`, `log`";
            vec![weir_plugin::FieldError::new("", message)]
        }

        /// One configured instance.
        pub(crate) struct $plugin($crate::functions::Functions);

        impl weir_plugin::Plugin for $plugin {
            const NAME: &'static str = $name;
            const PRIORITY: i32 = $priority;
            const FOR_CONSUMERS: bool = false;
            const INIT: Option<weir_plugin::Init> = Some($crate::worker::Worker::begin);
            type Config = Config;

            fn upstreams(config: &weir_plugin::Json) -> Vec<&str> {
                $crate::upstreams::of_code(config)
            }

            fn new(config: Config, build: &weir_plugin::BuildContext<'_>) -> Result<Self, String> {
                use $crate::phase::Phase;
                let code = vec![
                    (Phase::Certificate, config.certificate),
                    (Phase::Rewrite, config.rewrite),
                    (Phase::Access, config.access),
                    (Phase::HeaderFilter, config.header_filter),
                    (Phase::BodyFilter, config.body_filter),
                    (Phase::Log, config.log),
                ];
                Ok(Self($crate::functions::Functions::new($name, code, build)?))
            }
        }

        impl weir_plugin::Hooks for $plugin {
            fn phases(&self) -> weir_plugin::Phases {
                self.0.phases
            }

            fn rewrite(&self, exchange: &mut weir_plugin::Exchange) -> weir_plugin::Flow {
                self.0.rewrite(exchange)
            }

            fn access_effect(&self, _: &weir_plugin::Exchange) -> weir_plugin::AccessEffect {
                weir_plugin::AccessEffect::of_code(self.0.phases)
            }

            fn may_rewrite(&self, _: &weir_plugin::Exchange) -> bool {
                true
            }

            fn access(&self, exchange: &mut weir_plugin::Exchange) -> weir_plugin::Flow {
                self.0.access(exchange)
            }

            fn response(&self, exchange: &mut weir_plugin::Exchange) {
                self.0.response(exchange);
            }

            fn log(&self, exchange: &mut weir_plugin::Exchange) {
                self.0.log(exchange);
            }

            fn certificate(
                &self,
                handshake: &mut weir_plugin::Handshake,
            ) -> weir_plugin::HandshakeFlow {
                self.0.certificate(handshake)
            }

            fn response_body(&self, exchange: &mut weir_plugin::Exchange, body: Vec<u8>) -> Vec<u8> {
                $crate::service_body::ServiceBody::keep(exchange, &body);
                body
            }

            fn wants_body(&self) -> weir_plugin::WantsBody {
                self.0.wants_body
            }
        }
    };
}
pub(crate) use plugin;

/// Names in code that reads the body of requests, or discards it.
pub(crate) const BODY_READERS: [&str; 6] =
    ["get_raw_body", "get_body", "read_body", "discard_body", "get_post_args", "get_body_data"];

/// What code that reads the service's response has in its text.
pub(crate) const SERVICE_READERS: [&str; 2] = ["service.response", "upstream_http_"];

/// The code of one configuration.
type Code = Vec<(Phase, Vec<String>)>;

/// One configured instance of such a plugin.
pub(crate) struct Functions {
    guest: Arc<Guest>,
    pub(crate) phases: Phases,
    pub(crate) wants_body: WantsBody,
    has_header_filter: bool,
    has_body_filter: bool,
    reads_service: bool,
}

impl Functions {
    pub(crate) fn new(plugin: &'static str, code: Code, build: &BuildContext<'_>) -> Result<Self, String> {
        if build.retained.get::<LuaSettings>().untrusted == UntrustedLua::Off {
            return Err(SWITCHED_OFF.to_owned());
        }
        let has = |phase| code.iter().any(|(of, functions)| *of == phase && !functions.is_empty());
        let (has_header_filter, has_body_filter) = (has(Phase::HeaderFilter), has(Phase::BodyFilter));
        let reads_service = SERVICE_READERS.iter().any(|name| names(&code, name));
        let phases = Phases::CERTIFICATE.only_if(has(Phase::Certificate))
            | Phases::REWRITE.only_if(has(Phase::Rewrite))
            | Phases::ACCESS.only_if(has(Phase::Access) || reads_service)
            // Headers that were set before there was a response are put onto it.
            | Phases::RESPONSE
            | Phases::RESPONSE_BODY.only_if(names(&code, "enable_buffering"))
            | Phases::LOG.only_if(has(Phase::Log));
        let wants_body = if reads_bodies(&code) { WantsBody::Optional } else { WantsBody::No };
        let guest = Guest::new(plugin, build, move |guest, vm| load(guest, vm, &code));
        let guest = Arc::new(guest);
        Ok(Self { guest, phases, wants_body, has_header_filter, has_body_filter, reads_service })
    }

    pub(crate) fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        self.guest.run_waiting(exchange, Phase::Rewrite)
    }

    pub(crate) fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.reads_service {
            exchange.keep_service_headers();
        }
        self.guest.run_waiting(exchange, Phase::Access)
    }

    pub(crate) fn response(&self, exchange: &mut Exchange) {
        PendingHeaders::apply(exchange);
        ServiceBody::buffer(exchange);
        if self.has_header_filter {
            self.guest.run(exchange, Phase::HeaderFilter);
        }
        if self.has_body_filter {
            exchange.filter_response_body(LuaBodyFilter::new(self.guest.clone()));
        }
    }

    pub(crate) fn log(&self, exchange: &mut Exchange) {
        self.guest.run(exchange, Phase::Log);
    }

    pub(crate) fn certificate(&self, handshake: &mut Handshake) -> weir_plugin::HandshakeFlow {
        self.guest.run_certificate(handshake)
    }
}

/// Whether the code of a phase names a function.
fn names(code: &Code, function: &str) -> bool {
    code.iter().any(|(_, functions)| functions.iter().any(|code| code.contains(function)))
}

/// Whether the code names a function that reads the body of requests, which is then collected before it runs.
fn reads_bodies(code: &Code) -> bool {
    let early = code.iter().filter(|(phase, _)| matches!(phase, Phase::Rewrite | Phase::Access));
    let mut functions = early.flat_map(|(_, functions)| functions);
    functions.any(|code| BODY_READERS.iter().any(|name| code.contains(name)))
}

fn load(guest: &Guest, vm: &Vm, code: &Code) -> mlua::Result<Script> {
    let mut functions = Vec::new();
    for (phase, chunks) in code.iter().filter(|(_, chunks)| !chunks.is_empty()) {
        let chunks = chunks.iter().zip(1..).map(|(chunk, number)| {
            let name = format!("={}.{}[{number}]", guest.plugin(), phase.name());
            vm.sandbox.compile(&vm.lua, chunk, &name)
        });
        let chunks = vm.lua.create_sequence_from(chunks.collect::<mlua::Result<Vec<_>>>()?)?;
        functions.push((*phase, vm.sequence.call(chunks)?));
    }
    Ok(guest.script_of(functions))
}

/// Whether code can be compiled. The error is Kong's text.
pub(crate) fn parses(plugin: &str, code: &str) -> Result<(), String> {
    match syntax_error(code) {
        Some(error) => Err(format!("error parsing {plugin}: {error}")),
        None => Ok(()),
    }
}
