//! The hooks of a plugin from disk: each calls the handler's method of its phase.

use super::Code;
use super::conf::Conf;
use super::handler::{self, PHASES};
use crate::call::Guest;
use crate::files::Generation;
use crate::filter::LuaBodyFilter;
use crate::host::{BodyPart, Host};
use crate::pending::{PendingHeaders, Printed};
use crate::phase::Phase;
use crate::service_body::ServiceBody;
use crate::settings::LuaSettings;
use crate::vm::{Script, Vm};
use arc_swap::ArcSwapOption;
use mlua::{Function, Value};
use std::rc::Rc;
use std::sync::Arc;
use weir_plugin::{
    AccessEffect, BuildContext, ErrorTemplates, Exchange, Flow, Handshake, HandshakeFlow, Hooks, Json,
    LocalResponse, Phases, ResponseSource, ResumeBody, WantsBody,
};

/// Headers that say how a body is written.
const OF_BODIES: [&str; 3] = ["Content-Length", "Content-Encoding", "Transfer-Encoding"];

/// One plugin entity.
pub(super) struct DiskPlugin {
    guest: Arc<Guest>,
    name: Box<str>,
    settings: Arc<LuaSettings>,
    pub(super) conf: Arc<Conf>,
    /// What the files said when they were last asked for.
    known: ArcSwapOption<Known>,
}

/// What files said of a plugin.
struct Known {
    files: Arc<Generation>,
    code: Arc<Code>,
}

impl DiskPlugin {
    pub(super) fn new(config: &Json, build: &BuildContext<'_>) -> Self {
        let conf = Arc::new(Conf::new(config, build));
        let of_load = conf.clone();
        let guest = Guest::new(&build.entity.name, build, move |guest, vm| load(guest, vm, &of_load));
        let (name, settings) = (build.entity.name.as_str().into(), build.retained.get());
        Self { guest: Arc::new(guest), name, settings, conf, known: ArcSwapOption::empty() }
    }

    /// What the files say of the plugin since they were last read.
    pub(super) fn code(&self) -> Result<Arc<Code>, String> {
        super::code(&self.settings, &self.name)
    }

    /// Asks that of each request, without a lock and without a count that workers share. Files that cannot be read say no.
    fn says(&self, question: impl Fn(&Code) -> bool) -> bool {
        if let Some(known) = &*self.known.load()
            && self.settings.files.is_current(&known.files)
        {
            return question(&known.code);
        }
        let files = self.settings.files.current();
        let Ok(code) = super::code_in(&files, &self.settings, &self.name) else { return false };
        let says = question(&code);
        self.known.store(Some(Arc::new(Known { files, code })));
        says
    }
}

/// The methods of the handler, with the one table that all get as `conf`.
fn load(guest: &Guest, vm: &Vm, conf: &Conf) -> mlua::Result<Script> {
    let handler = handler::table(vm, guest.plugin()).map_err(mlua::Error::runtime)?;
    let conf = conf.table(&vm.lua)?;
    let has = |phase: &Phase| handler.get::<Value>(phase.name()).is_ok_and(|method| method.is_function());
    let method = |phase: Phase| -> mlua::Result<(Phase, Function)> {
        Ok((phase, vm.method.call((&handler, phase.name(), &conf))?))
    };
    Ok(guest.script_of(PHASES.into_iter().filter(has).map(method).collect::<mlua::Result<_>>()?))
}

/// The body after a function of the phase `response` has run; one that waits replaces it later. The VM has the body of
/// another exchange meanwhile.
fn body_after(flow: Flow, host: Rc<Host>, exchange: &mut Exchange) -> Vec<u8> {
    let part = host.body.take();
    match flow {
        Flow::Continue => match Printed::take(exchange) {
            None => part.data,
            Some(printed) => printed.before(part.data),
        },
        Flow::Respond(answer) => answer_in_place(answer, exchange),
        Flow::Wait(waiting) => {
            exchange.replace_response_body_later(move |_, _| {
                Box::pin(async move {
                    let resume = waiting.await;
                    Box::new(move |exchange: &mut Exchange| {
                        host.body.replace(part);
                        body_after(resume(exchange), host, exchange)
                    }) as ResumeBody
                })
            });
            Vec::new()
        }
    }
}

/// Writes an answer with the headers of the response that it takes the place of, as Kong does, but for those of its body.
fn answer_in_place(answer: LocalResponse, exchange: &mut Exchange) -> Vec<u8> {
    let mut headers = std::mem::take(&mut exchange.response.headers);
    let body = answer.write(exchange, &ErrorTemplates::default());
    let own = &mut exchange.response.headers;
    let names = own.iter().filter_map(|field| std::str::from_utf8(field.name).ok());
    names.chain(OF_BODIES).for_each(|name| {
        headers.remove(name);
    });
    own.iter().for_each(|field| headers.append(field.name, field.value));
    *own = headers;
    body.into()
}

impl Hooks for DiskPlugin {
    fn phases(&self) -> Phases {
        let Ok(code) = self.code() else { return Phases::NONE };
        let has = |phase| code.handler.has(phase);
        Phases::CERTIFICATE.only_if(has(Phase::Certificate))
            | Phases::REWRITE.only_if(has(Phase::Rewrite))
            | Phases::ACCESS.only_if(has(Phase::Access) || code.reads_service)
            // Headers that were set before there was a response are put onto it.
            | Phases::RESPONSE
            // Code may have asked for the service's body.
            | Phases::RESPONSE_BODY
            | Phases::LOG.only_if(has(Phase::Log))
    }

    fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        self.guest.run_waiting(exchange, Phase::Rewrite)
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::of_code(self.phases())
    }

    fn may_rewrite(&self, _: &Exchange) -> bool {
        true
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.says(|code| code.reads_service) {
            exchange.keep_service_headers();
        }
        self.guest.run_waiting(exchange, Phase::Access)
    }

    fn response(&self, exchange: &mut Exchange) {
        PendingHeaders::apply(exchange);
        ServiceBody::buffer(exchange);
        let Some(script) = self.guest.loaded() else { return };
        let has = |phase| script.function(phase).is_some();
        if has(Phase::Response) && exchange.response_source() == ResponseSource::Service {
            exchange.buffer_response();
        }
        if has(Phase::HeaderFilter) {
            self.guest.run(exchange, Phase::HeaderFilter);
        }
        if has(Phase::BodyFilter) {
            exchange.filter_response_body(LuaBodyFilter::new(self.guest.clone()));
        }
    }

    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        ServiceBody::keep(exchange, &body);
        let is_for = exchange.response_source() == ResponseSource::Service
            && self.says(|code| code.handler.has(Phase::Response));
        let Some(host) = self.guest.host().filter(|_| is_for) else { return body };
        host.body.replace(BodyPart { data: body, is_last: true, collected: Vec::new() });
        let flow = self.guest.run_waiting(exchange, Phase::Response);
        body_after(flow, host, exchange)
    }

    fn log(&self, exchange: &mut Exchange) {
        self.guest.run(exchange, Phase::Log);
    }

    fn certificate(&self, handshake: &mut Handshake) -> HandshakeFlow {
        self.guest.run_certificate(handshake)
    }

    fn wants_body(&self) -> WantsBody {
        if self.says(|code| code.reads_bodies) { WantsBody::Optional } else { WantsBody::No }
    }
}
