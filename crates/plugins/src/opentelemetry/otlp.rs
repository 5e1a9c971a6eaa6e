//! The messages of OTLP for spans and logs.

pub(super) use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
pub(super) use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
pub(super) use opentelemetry_proto::tonic::common::v1::any_value::Value;
pub(super) use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
pub(super) use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
pub(super) use opentelemetry_proto::tonic::resource::v1::Resource;
pub(super) use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
pub(super) use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
pub(super) use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

/// The message for a collector of spans.
pub(super) fn export_spans(resource: Resource, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans, ..ScopeSpans::default() }];
    let of_node = ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![of_node] }
}

/// The message for a collector of logs.
pub(super) fn export_logs(resource: Resource, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
    let scope_logs = vec![ScopeLogs { scope: Some(scope()), log_records, ..ScopeLogs::default() }];
    let of_node = ResourceLogs { resource: Some(resource), scope_logs, ..ResourceLogs::default() };
    ExportLogsServiceRequest { resource_logs: vec![of_node] }
}

/// Kong's scope.
fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "kong-internal".to_owned(),
        version: "0.1.0".to_owned(),
        ..InstrumentationScope::default()
    }
}

/// An attribute with a text value.
pub(super) fn attribute(key: &str, text: impl Into<String>) -> KeyValue {
    valued(key, Value::StringValue(text.into()))
}

/// An attribute.
pub(super) fn valued(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
