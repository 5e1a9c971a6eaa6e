//! How grpc-transcode writes responses: what APISIX's plugin and Weir's have in common.

use weir_plugin::Record;

/// How messages and failures become responses.
#[derive(Debug, Clone, Record)]
pub struct ResponseOptions {
    /// How messages are written as JSON.
    #[field(
        default = ["enum_as_name", "int64_as_number", "auto_default_values", "disable_hooks"],
        len_min = 1,
        one_of = [
            "int64_as_number", "int64_as_string", "int64_as_hexstring", "enum_as_name", "enum_as_value",
            "auto_default_values", "no_default_values", "use_default_values", "use_default_metatable",
            "enable_hooks", "disable_hooks",
        ]
    )]
    pub pb_option: Vec<String>,
    /// Whether the body of a failed call's response is what `grpc-status-details-bin` says.
    #[field(default = false)]
    pub show_status_in_body: bool,
    /// The message that each of the `details` of `grpc-status-details-bin` holds.
    pub status_detail_type: Option<String>,
}
