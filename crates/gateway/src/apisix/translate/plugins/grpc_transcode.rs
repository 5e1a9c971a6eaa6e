//! APISIX's grpc-transcode: it names a proto, whose content Weir's plugin has.
use super::adapted::Adapted;
use crate::apisix::object::{Invalid, PROTO_ID};
use crate::apisix::translate::schema::{Proto, read};
use crate::apisix::translate::{Entities, Kind, named};
use serde_json::json;
use weir_model::schema::{Json, Record};

/// Calls a method of gRPC.
#[derive(Clone, Record)]
pub(super) struct GrpcTranscode {
    proto_id: Json,
    service: String,
    method: String,
    #[field(default = 0, between = [0, 99999999])]
    deadline: f64,
    #[field(
        default = ["enum_as_name", "int64_as_number", "auto_default_values", "disable_hooks"],
        len_min = 1,
        one_of = [
            "int64_as_number", "int64_as_string", "int64_as_hexstring", "enum_as_name", "enum_as_value",
            "auto_default_values", "no_default_values", "use_default_values", "use_default_metatable",
            "enable_hooks", "disable_hooks",
        ]
    )]
    pb_option: Vec<String>,
    #[field(default = false)]
    show_status_in_body: bool,
    status_detail_type: Option<String>,
}

impl Adapted for GrpcTranscode {
    /// Without the proto, which [`resolve`] adds.
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        Ok(json!({
            "service": self.service,
            "method": self.method,
            "deadline": self.deadline.ceil(),
            "pb_option": self.pb_option,
            "show_status_in_body": self.show_status_in_body,
            "status_detail_type": self.status_detail_type,
        }))
    }
}

/// Adds the content of the proto.
pub(super) fn resolve(into: &Entities<'_>, theirs: &Json, ours: &mut Json) -> Result<(), Invalid> {
    let (_, proto) = named(into.objects, Kind::Protos, &theirs[PROTO_ID])?;
    ours["proto"] = read::<Proto>(proto)?.content.into();
    Ok(())
}
