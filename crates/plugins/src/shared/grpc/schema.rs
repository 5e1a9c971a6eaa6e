//! The services of a `.proto` file, and their messages as JSON.

use super::bounds::{BoundedJson, decode};
use super::proto::Annotations;
use prost_reflect::prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, ReflectMessage, SerializeOptions,
    Value,
};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// Where files that are imported are looked for, beside the folder of the file that imports them, as in Kong.
const INCLUDES: [&str; 4] =
    ["/usr/local/kong/include", "/usr/local/opt/protobuf/include", "/usr/include", "kong/include"];

/// A folder with files that are imported.
struct Include(IncludeFileResolver);

impl FileResolver for Include {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.0.resolve_path(path)
    }

    /// A folder that is a file has no files, as if it were missing: the binary `kong` may be in the working directory.
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let opened = self.0.open_file(name);
        opened.map_err(|error| if is_no_folder(&error) { protox::Error::file_not_found(name) } else { error })
    }
}

fn is_no_folder(error: &protox::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotADirectory)
}

/// Reads a file and what it imports. The error says what is wrong with them.
pub(crate) fn load(path: &str) -> Result<DescriptorPool, String> {
    load_with(path, &INCLUDES.map(PathBuf::from))
}

fn load_with(path: &str, includes: &[PathBuf]) -> Result<DescriptorPool, String> {
    let file = Path::new(path);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut resolver = ChainFileResolver::new();
    let folders = [folder.to_owned()].into_iter().chain(includes.iter().cloned());
    folders.for_each(|folder| resolver.add(Include(IncludeFileResolver::new(folder))));
    resolver.add(Annotations);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    let opened = compiler.open_file(file);
    opened.map_err(|error| format!("config.proto: {path} cannot be used: {error}"))?;
    Ok(compiler.descriptor_pool())
}

/// The bytes of a message that is written as JSON. Members that the message does not have are left out.
pub(crate) fn from_json(message: MessageDescriptor, json: &[u8]) -> Result<Vec<u8>, serde_json::Error> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let mut reader = serde_json::Deserializer::from_slice(json);
    let message = DynamicMessage::deserialize_with_options(message, &mut reader, &options)?;
    reader.end()?;
    Ok(message.encode_to_vec())
}

/// How messages are written as JSON: names as in the file, numbers as numbers, and fields that have their default.
pub(crate) const AS_JSON: SerializeOptions = SerializeOptions::new()
    .use_proto_field_name(true)
    .stringify_64_bit_integers(false)
    .skip_default_fields(false);

/// A message as JSON.
pub(crate) fn to_json(message: MessageDescriptor, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let message = decode(message, bytes)?;
    check_depth(&message, MAX_DEPTH)?;
    let mut json = BoundedJson::default();
    let mut writer = serde_json::Serializer::new(&mut json);
    message.serialize_with_options(&mut writer, &AS_JSON).map_err(|error| error.to_string())?;
    Ok(json.0)
}

/// How deep messages may be within each other.
const MAX_DEPTH: usize = 100;

/// Messages within `Any` count, too: they are decoded while they are written, by a call within a call.
fn check_depth(message: &DynamicMessage, left: usize) -> Result<(), String> {
    let left = left.checked_sub(1).ok_or("the message is too deep")?;
    if let Some(inner) = within_any(message)? {
        return check_depth(&inner, left);
    }
    message.fields().try_for_each(|(_, value)| check_value(value, left))
}

fn check_value(value: &Value, left: usize) -> Result<(), String> {
    match value {
        Value::Message(message) => check_depth(message, left),
        Value::List(items) => items.iter().try_for_each(|item| check_value(item, left)),
        Value::Map(items) => items.values().try_for_each(|item| check_value(item, left)),
        _ => Ok(()),
    }
}

/// The message that an `Any` holds, if it is one of the file's.
fn within_any(message: &DynamicMessage) -> Result<Option<DynamicMessage>, String> {
    let descriptor = message.descriptor();
    if descriptor.full_name() != "google.protobuf.Any" {
        return Ok(None);
    }
    let field = |name: &str| message.get_field_by_name(name);
    let (Some(url), Some(bytes)) = (field("type_url"), field("value")) else { return Ok(None) };
    let name = url.as_str().and_then(|url| url.rsplit('/').next()).unwrap_or_default();
    let Some(inner) = descriptor.parent_pool().get_message_by_name(name) else { return Ok(None) };
    let bytes = bytes.as_bytes().cloned().unwrap_or_default();
    decode(inner, bytes).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> DescriptorPool {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.proto");
        let text = "syntax = \"proto3\"; import \"google/protobuf/any.proto\";\n\
                    message A { google.protobuf.Any any = 1; string text = 2; }";
        std::fs::write(&file, text).unwrap();
        load(file.to_str().unwrap()).unwrap()
    }

    /// A field whose value is bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost_reflect::prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        [out, bytes.to_vec()].concat()
    }

    fn nested(depth: usize) -> Vec<u8> {
        (0..depth).fold(field(2, b"hi"), |inner, _| {
            field(1, &[field(1, b"type.googleapis.com/A"), field(2, &inner)].concat())
        })
    }

    #[test]
    fn a_short_message_that_is_long_as_json_is_refused() {
        let fields: String = (1..=20).map(|number| format!("string field_{number} = {number}; ")).collect();
        let proto = format!(
            "syntax = \"proto3\"; message Inner {{ {fields}}} message M {{ repeated Inner all = 1; }}"
        );
        let message = super::super::proto::compile(&proto).unwrap().get_message_by_name("M").unwrap();
        let with = |count: usize| to_json(message.clone(), &field(1, b"").repeat(count));
        assert!(with(10).unwrap().ends_with(b"}]}"));
        assert_eq!(with(500_000).unwrap_err(), "the message is longer than 67108864 bytes as JSON");
    }

    #[test]
    fn a_file_in_the_place_of_an_include_folder_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (proto, kong) = (folder.path().join("a.proto"), folder.path().join("kong"));
        std::fs::write(&kong, "").unwrap();
        let load = |import: &str| {
            std::fs::write(&proto, format!("syntax = \"proto3\"; import \"{import}\"; message A {{}}"))
                .unwrap();
            load_with(proto.to_str().unwrap(), &[kong.join("include")])
        };
        load("google/api/annotations.proto").unwrap();
        let error = load("missing.proto").unwrap_err();
        assert!(error.ends_with("import 'missing.proto' not found"), "{error}");
    }

    #[test]
    fn messages_within_any_are_counted() {
        let message = pool().get_message_by_name("A").unwrap();
        let json = to_json(message.clone(), &nested(3)).unwrap();
        assert!(String::from_utf8(json).unwrap().contains("hi"));
        for depth in [60, 2_000] {
            assert_eq!(to_json(message.clone(), &nested(depth)).unwrap_err(), "the message is too deep");
        }
    }
}
