//! `kong.client.tls`: the client's certificate, and what a handshake asks for.

use crate::host::{HandshakeWishes, Host};
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mlua::{Lua, MultiValue, Table, Value};
use weir_plugin::{ClientCertificate, Exchange, Json, LogFieldMode};

/// How many letters a line of PEM has.
const LINE: usize = 64;

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    let request = |_: &Lua, host: &Host, _: MultiValue| {
        let wishes = host.handshake.get();
        host.handshake.set(HandshakeWishes { requests_certificate: true, ..wishes });
        Ok(true)
    };
    table.set("request_client_certificate", make.host(Phases::CERTIFICATE, request)?)?;
    let disable = |_: &Lua, host: &Host, _: MultiValue| {
        let wishes = host.handshake.get();
        host.handshake.set(HandshakeWishes { disables_session_reuse: true, ..wishes });
        Ok(true)
    };
    table.set("disable_session_reuse", make.host(Phases::CERTIFICATE, disable)?)?;
    table.set("disable_http2_alpn", make.host(Phases::CLIENT_HELLO, |_, _: &Host, ()| Ok(true))?)?;
    let chain = |_: &Lua, exchange: &mut Exchange, _: MultiValue| {
        Ok(exchange.client_certificate().map(|certificate| pem(&certificate)))
    };
    table.set("get_full_client_certificate_chain", make.exchange(Phases::TLS_CHAIN, chain)?)?;
    table.set("set_client_verify", make.exchange(Phases::TLS_VERIFY, set_client_verify)?)?;
    Ok(table)
}

/// The chain as PEM, the client's own certificate first.
fn pem(certificate: &ClientCertificate) -> String {
    let mut text = String::new();
    for der in certificate.chain() {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for (at, letter) in STANDARD.encode(der).chars().enumerate() {
            if at > 0 && at % LINE == 0 {
                text.push('\n');
            }
            text.push(letter);
        }
        text.push_str("\n-----END CERTIFICATE-----\n");
    }
    text
}

/// Replaces what the record says of the verification.
fn set_client_verify(_: &Lua, exchange: &mut Exchange, value: Value) -> mlua::Result<()> {
    let Value::String(text) = value else { return refused("assertion failed!") };
    let text = text.to_string_lossy();
    if text != "SUCCESS" && text != "NONE" && !text.starts_with("FAILED:") {
        return refused(format!(
            "unknown client verify value: {text} accepted values are: \"SUCCESS\", \"NONE\" or \"FAILED:<reason>\""
        ));
    }
    let mode = LogFieldMode::Replace;
    exchange.set_log_field("request.tls.client_verify", Some(Json::String(text)), mode);
    Ok(())
}
