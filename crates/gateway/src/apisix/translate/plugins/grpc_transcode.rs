//! APISIX's grpc-transcode: it names a proto, whose content Weir's plugin has.
use super::adapted::Adapted;
use crate::apisix::object::{Invalid, PROTO_ID};
use crate::apisix::translate::schema::{Proto, read};
use crate::apisix::translate::{Entities, Kind, named};
use weir_model::schema::{Json, Record};
use weir_plugins::ResponseOptions;

/// Calls a method of gRPC.
#[derive(Clone, Record)]
pub(super) struct GrpcTranscode {
    proto_id: Json,
    service: String,
    method: String,
    #[field(default = 0, between = [0, 99999999])]
    deadline: f64,
    #[field(flatten)]
    responses: ResponseOptions,
}

impl Adapted for GrpcTranscode {
    /// Without the proto, which [`resolve`] adds.
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let mut ours = self.responses.to_value();
        ours["service"] = self.service.as_str().into();
        ours["method"] = self.method.as_str().into();
        ours["deadline"] = self.deadline.ceil().into();
        Ok(ours)
    }
}

/// Adds the content of the proto.
pub(super) fn resolve(into: &Entities<'_>, theirs: &Json, ours: &mut Json) -> Result<(), Invalid> {
    let (_, proto) = named(into.objects, Kind::Protos, &theirs[PROTO_ID])?;
    ours["proto"] = read::<Proto>(proto)?.content.into();
    Ok(())
}
