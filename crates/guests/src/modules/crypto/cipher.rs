//! AES by the names of OpenSSL: `aes-256-cbc`, `aes-128-ctr`, `aes-256-gcm`.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    PaddedBlockDecryptingKey, PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::iv::FixedLength;
use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use crate::raise::{self, Checked};

/// How a cipher chains its blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Cbc,
    Ecb,
    Ctr,
    Cfb,
    Gcm,
}

/// A cipher with its key.
struct Cipher<'a> {
    key: &'a [u8],
    iv: &'a [u8],
    mode: Mode,
    padding: bool,
}

/// The length of the tag of GCM.
const TAG_LEN: usize = 16;

pub(super) fn add(lua: &Lua, table: &Table) -> mlua::Result<()> {
    type Encrypt = (String, LuaString, LuaString, LuaString, bool, LuaString);
    let encrypt = raise::metered(lua, |lua, (name, key, iv, data, padding, aad): Encrypt| {
        let (key, iv) = (key.as_bytes(), iv.as_bytes());
        let outcome = cipher(&name, &key, &iv, padding).and_then(|cipher| {
            cipher
                .encrypt(data.as_bytes().to_vec(), &aad.as_bytes())
                .map_err(|_| "encryption failed".to_owned())
        });
        reply(lua, outcome)
    })?;
    table.raw_set("encrypt", encrypt)?;
    type Decrypt = (String, LuaString, LuaString, LuaString, bool, LuaString);
    let decrypt = raise::metered(lua, |lua, (name, key, iv, data, padding, aad): Decrypt| {
        let (key, iv) = (key.as_bytes(), iv.as_bytes());
        let outcome = cipher(&name, &key, &iv, padding).and_then(|cipher| {
            cipher
                .decrypt(data.as_bytes().to_vec(), &aad.as_bytes())
                .map_err(|_| "decryption failed".to_owned())
        });
        reply(lua, outcome)
    })?;
    table.raw_set("decrypt", decrypt)
}

fn reply(lua: &Lua, outcome: Result<Vec<u8>, String>) -> Checked<MultiValue> {
    Ok(match outcome {
        Ok(bytes) => lua.create_string(bytes)?.into_lua_multi(lua)?,
        Err(message) => (Value::Nil, message).into_lua_multi(lua)?,
    })
}

/// The cipher of a name. The lengths of key and initialization vector must be its own.
fn cipher<'a>(name: &str, key: &'a [u8], iv: &'a [u8], padding: bool) -> Result<Cipher<'a>, String> {
    let lower = name.to_ascii_lowercase();
    let mut parts = lower.split('-');
    let (Some("aes"), Some(bits), Some(mode), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("invalid cipher type \"{name}\""));
    };
    let (mode, iv_len) = match mode {
        "cbc" => (Mode::Cbc, 16),
        "ecb" => (Mode::Ecb, iv.len()),
        "ctr" => (Mode::Ctr, 16),
        "cfb" | "cfb128" => (Mode::Cfb, 16),
        "gcm" => (Mode::Gcm, 12),
        _ => return Err(format!("invalid cipher type \"{name}\"")),
    };
    if bits.parse() != Ok(key.len() * 8) || algorithm(key).is_none() {
        return Err(format!("the key of {name} has {} bytes", key.len()));
    }
    if iv.len() != iv_len {
        return Err(format!(
            "the initialization vector of {name} must have {iv_len} bytes, not {}",
            iv.len()
        ));
    }
    Ok(Cipher { key, iv, mode, padding })
}

fn algorithm(key: &[u8]) -> Option<&'static Algorithm> {
    match key.len() {
        16 => Some(&AES_128),
        24 => Some(&AES_192),
        32 => Some(&AES_256),
        _ => None,
    }
}

impl Cipher<'_> {
    fn unbound(&self) -> Result<UnboundCipherKey, Unspecified> {
        UnboundCipherKey::new(algorithm(self.key).ok_or(Unspecified)?, self.key)
    }

    fn aead(&self) -> Result<(LessSafeKey, Nonce), Unspecified> {
        let algorithm = match self.key.len() {
            16 => &aead::AES_128_GCM,
            24 => &aead::AES_192_GCM,
            _ => &aead::AES_256_GCM,
        };
        let key = LessSafeKey::new(aead::UnboundKey::new(algorithm, self.key)?);
        Ok((key, Nonce::try_assume_unique_for_key(self.iv)?))
    }

    /// Encrypts. The tag of GCM stands at the end.
    fn encrypt(&self, mut data: Vec<u8>, aad: &[u8]) -> Result<Vec<u8>, Unspecified> {
        if self.mode == Mode::Gcm {
            let (key, nonce) = self.aead()?;
            key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut data)?;
            return Ok(data);
        }
        let context = match self.mode {
            Mode::Ecb => EncryptionContext::None,
            _ => EncryptionContext::Iv128(FixedLength::try_from(self.iv)?),
        };
        if self.padding && matches!(self.mode, Mode::Cbc | Mode::Ecb) {
            let key = match self.mode {
                Mode::Ecb => PaddedBlockEncryptingKey::ecb_pkcs7(self.unbound()?)?,
                _ => PaddedBlockEncryptingKey::cbc_pkcs7(self.unbound()?)?,
            };
            key.less_safe_encrypt(&mut data, context)?;
            return Ok(data);
        }
        let key = match self.mode {
            Mode::Ecb => EncryptingKey::ecb(self.unbound()?)?,
            Mode::Ctr => EncryptingKey::ctr(self.unbound()?)?,
            Mode::Cfb => EncryptingKey::cfb128(self.unbound()?)?,
            _ => EncryptingKey::cbc(self.unbound()?)?,
        };
        key.less_safe_encrypt(&mut data, context)?;
        Ok(data)
    }

    /// Decrypts. The tag of GCM is expected at the end.
    fn decrypt(&self, mut data: Vec<u8>, aad: &[u8]) -> Result<Vec<u8>, Unspecified> {
        if self.mode == Mode::Gcm {
            let (key, nonce) = self.aead()?;
            let len = data.len().checked_sub(TAG_LEN).ok_or(Unspecified)?;
            key.open_in_place(nonce, Aad::from(aad), &mut data)?;
            data.truncate(len);
            return Ok(data);
        }
        let context = match self.mode {
            Mode::Ecb => DecryptionContext::None,
            _ => DecryptionContext::Iv128(FixedLength::try_from(self.iv)?),
        };
        if self.padding && matches!(self.mode, Mode::Cbc | Mode::Ecb) {
            let key = match self.mode {
                Mode::Ecb => PaddedBlockDecryptingKey::ecb_pkcs7(self.unbound()?)?,
                _ => PaddedBlockDecryptingKey::cbc_pkcs7(self.unbound()?)?,
            };
            return Ok(key.decrypt(&mut data, context)?.to_vec());
        }
        let key = match self.mode {
            Mode::Ecb => DecryptingKey::ecb(self.unbound()?)?,
            Mode::Ctr => DecryptingKey::ctr(self.unbound()?)?,
            Mode::Cfb => DecryptingKey::cfb128(self.unbound()?)?,
            _ => DecryptingKey::cbc(self.unbound()?)?,
        };
        Ok(key.decrypt(&mut data, context)?.to_vec())
    }
}
