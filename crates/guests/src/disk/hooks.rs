//! The hooks of a plugin from disk: each calls the handler's method of its phase.

use super::Code;
use super::conf::Conf;
use super::handler::{self, PHASES};
use crate::call::Guest;
use crate::filter::LuaBodyFilter;
use crate::host::BodyPart;
use crate::pending::PendingHeaders;
use crate::phase::Phase;
use crate::service_body::ServiceBody;
use crate::settings::LuaSettings;
use crate::vm::{Script, Vm};
use mlua::{Function, Value};
use std::sync::Arc;
use weir_plugin::{
    BuildContext, ErrorTemplates, Exchange, Flow, Handshake, HandshakeFlow, Hooks, Json, Phases, WantsBody,
};

/// One plugin entity.
pub(super) struct DiskPlugin {
    guest: Arc<Guest>,
    name: Box<str>,
    settings: Arc<LuaSettings>,
    pub(super) conf: Arc<Conf>,
}

impl DiskPlugin {
    pub(super) fn new(config: &Json, build: &BuildContext<'_>) -> Self {
        let conf = Arc::new(Conf::new(config, build));
        let of_load = conf.clone();
        let guest = Guest::new(&build.entity.name, build, move |guest, vm| load(guest, vm, &of_load));
        let (name, settings) = (build.entity.name.as_str().into(), build.retained.get());
        Self { guest: Arc::new(guest), name, settings, conf }
    }

    /// What the files say of the plugin since they were last read.
    pub(super) fn code(&self) -> Result<Arc<Code>, String> {
        super::code(&self.settings, &self.name)
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
    Ok(Script::new(guest, PHASES.into_iter().filter(has).map(method).collect::<mlua::Result<_>>()?))
}

impl Hooks for DiskPlugin {
    fn phases(&self) -> Phases {
        let Ok(code) = self.code() else { return Phases::NONE };
        let has = |phase| code.handler.has(phase);
        Phases::CERTIFICATE.only_if(has(Phase::Certificate))
            | Phases::REWRITE.only_if(has(Phase::Rewrite))
            | Phases::ACCESS.only_if(has(Phase::Access))
            // Headers that were set before there was a response are put onto it.
            | Phases::RESPONSE
            // Code may have asked for the service's body.
            | Phases::RESPONSE_BODY
            | Phases::LOG.only_if(has(Phase::Log))
    }

    fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        self.guest.run_waiting(exchange, Phase::Rewrite)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        self.guest.run_waiting(exchange, Phase::Access)
    }

    fn response(&self, exchange: &mut Exchange) {
        PendingHeaders::apply(exchange);
        ServiceBody::buffer(exchange);
        let Some(script) = self.guest.loaded() else { return };
        let has = |phase| script.function(phase).is_some();
        if has(Phase::Response) {
            exchange.buffer_response_body();
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
        let host =
            self.guest.host().filter(|_| self.code().is_ok_and(|code| code.handler.has(Phase::Response)));
        let Some(host) = host else { return body };
        host.body.replace(BodyPart { data: body, is_last: true, collected: Vec::new() });
        match self.guest.run_answering(exchange, Phase::Response) {
            Some(answer) => answer.write(exchange, &ErrorTemplates::default()).into(),
            None => host.body.take().data,
        }
    }

    fn log(&self, exchange: &mut Exchange) {
        self.guest.run(exchange, Phase::Log);
    }

    fn certificate(&self, handshake: &mut Handshake) -> HandshakeFlow {
        self.guest.run_certificate(handshake);
        HandshakeFlow::Continue
    }

    fn wants_body(&self) -> WantsBody {
        match self.code() {
            Ok(code) if code.reads_bodies => WantsBody::Optional,
            _ => WantsBody::No,
        }
    }
}
