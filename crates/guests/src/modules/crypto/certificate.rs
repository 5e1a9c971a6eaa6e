//! Certificates as tables.

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use super::pem;
use crate::raise;

pub(super) fn add(lua: &Lua, table: &Table) -> mlua::Result<()> {
    let load = raise::metered(lua, |lua, text: LuaString| {
        if text.as_bytes().len() > pem::MAX_LENGTH {
            return Ok(failed(lua, "the certificate is too long")?);
        }
        let der = pem::read(&text.as_bytes()).map_or_else(|| text.as_bytes().to_vec(), |(_, der)| der);
        Ok(match X509Certificate::from_der(&der) {
            Ok((_, certificate)) => describe(lua, &certificate, &der)?.into_lua_multi(lua)?,
            Err(error) => failed(lua, &format!("the certificate is not PEM or DER of X.509: {error}"))?,
        })
    })?;
    table.raw_set("certificate", load)?;
    let to_pem = raise::metered(lua, |_, der: LuaString| Ok(pem::write("CERTIFICATE", &der.as_bytes())))?;
    table.raw_set("certificate_pem", to_pem)
}

fn failed(lua: &Lua, message: &str) -> mlua::Result<MultiValue> {
    (Value::Nil, message).into_lua_multi(lua)
}

fn describe(lua: &Lua, certificate: &X509Certificate<'_>, der: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("der", lua.create_string(der)?)?;
    table.raw_set("version", certificate.version().0 + 1)?;
    table.raw_set("serial", lua.create_string(certificate.raw_serial())?)?;
    table.raw_set("subject", name(lua, certificate.subject())?)?;
    table.raw_set("issuer", name(lua, certificate.issuer())?)?;
    table.raw_set("not_before", certificate.validity().not_before.timestamp())?;
    table.raw_set("not_after", certificate.validity().not_after.timestamp())?;
    table.raw_set("public_key", lua.create_string(certificate.public_key().raw)?)?;
    table.raw_set("ca", certificate.is_ca())?;
    Ok(table)
}

/// A name as a list of pairs: short name or object identifier, and value.
fn name(lua: &Lua, name: &X509Name<'_>) -> mlua::Result<Table> {
    let list = lua.create_table()?;
    for attribute in name.iter_attributes() {
        let kind =
            x509_parser::objects::oid2abbrev(attribute.attr_type(), x509_parser::objects::oid_registry());
        let kind = kind.map_or_else(|_| attribute.attr_type().to_id_string(), str::to_owned);
        let value = attribute.as_str().unwrap_or_default();
        list.raw_push(lua.create_sequence_from([kind, value.to_owned()])?)?;
    }
    Ok(list)
}
