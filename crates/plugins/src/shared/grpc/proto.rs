//! What a `.proto` file defines, from its text, or from the `FileDescriptorSet` that a compiler made of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::DescriptorPool;
use prost_reflect::prost::Message;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

/// How errors call the text.
const NAME: &str = "content";

/// How deep brackets may be within each other: what is within them is read by a call within a call.
const MAX_DEPTH: usize = 100;

/// The annotations for HTTP, as far as they are read, for nodes that do not have Google's file.
const ANNOTATIONS: &str = r#"
syntax = "proto3";
package google.api;
import "google/protobuf/descriptor.proto";
import "google/api/http.proto";
extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
"#;

/// The rules that these annotations have.
const HTTP: &str = r#"
syntax = "proto3";
package google.api;
message HttpRule {
  string selector = 1;
  oneof pattern {
    string get = 2;
    string put = 3;
    string post = 4;
    string delete = 5;
    string patch = 6;
    CustomHttpPattern custom = 8;
  }
  string body = 7;
  string response_body = 12;
  repeated HttpRule additional_bindings = 11;
}
message CustomHttpPattern { string kind = 1; string path = 2; }
"#;

/// Knows the annotations for HTTP.
pub(crate) struct Annotations;

impl FileResolver for Annotations {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "google/api/annotations.proto" => File::from_source(name, ANNOTATIONS),
            "google/api/http.proto" => File::from_source(name, HTTP),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// Knows the text alone: a file of the node is never read for it.
struct Text(String);

impl FileResolver for Text {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name == NAME { File::from_source(name, &self.0) } else { Err(protox::Error::file_not_found(name)) }
    }
}

/// What a text defines: that of a `.proto` file, or a `FileDescriptorSet` in base64. The error says what is wrong, and in which line.
pub(crate) fn compile(content: &str) -> Result<DescriptorPool, String> {
    compile_text(content).or_else(|error| match STANDARD.decode(content.trim()) {
        Ok(set) if !set.is_empty() => decode(&set).map_err(|error| {
            format!("it is base64, but of no FileDescriptorSet with all that it imports: {error}")
        }),
        _ => Err(error),
    })
}

/// Reads a `FileDescriptorSet`. `prost-reflect` panics where a file has another syntax than it knows.
fn decode(set: &[u8]) -> Result<DescriptorPool, String> {
    let files = FileDescriptorSet::decode(set).map_err(|error| error.to_string())?.file;
    let is_known =
        |file: &FileDescriptorProto| matches!(file.syntax.as_deref(), None | Some("proto2" | "proto3"));
    if let Some(file) = files.iter().find(|file| !is_known(file)) {
        let (name, syntax) = (file.name(), file.syntax());
        return Err(format!("{name} has the syntax {syntax:?}: write it in proto2 or proto3"));
    }
    DescriptorPool::decode(set).map_err(|error| error.to_string())
}

fn compile_text(text: &str) -> Result<DescriptorPool, String> {
    if is_too_deep(text) {
        return Err(format!("more than {MAX_DEPTH} brackets are within each other"));
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(Text(text.to_owned()));
    resolver.add(Annotations);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true);
    compiler.open_file(NAME).map_err(|error| explained(&error))?;
    Ok(compiler.descriptor_pool())
}

/// An error with its line and column, where it has any.
fn explained(error: &protox::Error) -> String {
    // Only `Debug` has them: `content:3:5: expected …`.
    let text = format!("{error:?}");
    let placed = text.strip_prefix(NAME).and_then(|rest| rest.strip_prefix(':')?.split_once(": "));
    let placed = placed.and_then(|(at, what)| Some((at.split_once(':')?, what)));
    let text = match placed {
        Some(((line, column), what)) => format!("line {line}, column {column}: {what}"),
        None => error.to_string(),
    };
    if !error.is_file_not_found() {
        return text;
    }
    format!(
        "{text}; other files can be in a FileDescriptorSet alone: run protoc --include_imports --descriptor_set_out=FILE, \
         and write the file in base64"
    )
}

/// Whether brackets outside of strings and comments are deeper within each other than may be.
fn is_too_deep(text: &str) -> bool {
    let (mut depth, mut rest) = (0_usize, text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = match (first, behind) {
            (b'"' | b'\'', _) => behind_string(*first, behind),
            // `#` begins a comment in the values of options, and is an error elsewhere.
            (b'#', _) | (b'/', [b'/', ..]) => behind_any_of(behind, b"\n"),
            (b'/', [b'*', comment @ ..]) => behind_any_of(comment, b"*/"),
            _ => behind,
        };
        match first {
            b'{' | b'<' | b'[' => depth += 1,
            b'}' | b'>' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

fn behind_string(quote: u8, text: &[u8]) -> &[u8] {
    let mut is_escaped = false;
    let end = text.iter().position(|byte| {
        let ends = !is_escaped && (*byte == quote || *byte == b'\n');
        is_escaped = !is_escaped && *byte == b'\\';
        ends
    });
    end.map_or(&[], |end| &text[end + 1..])
}

fn behind_any_of<'t>(text: &'t [u8], end: &[u8]) -> &'t [u8] {
    let at = text.windows(end.len()).position(|window| window == end);
    at.map_or(&[], |at| &text[at + end.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETER: &str = "syntax = \"proto3\";\npackage hello;\nimport \"google/api/annotations.proto\";\n\
        import \"google/protobuf/timestamp.proto\";\nmessage Note { google.protobuf.Timestamp at = 1; }\n\
        service Greeter { rpc Greet(Note) returns (Note); }\n";

    #[test]
    fn texts_and_sets_define_the_same() {
        let of_text = compile(GREETER).unwrap();
        let set = STANDARD.encode(of_text.encode_to_vec());
        for pool in [of_text, compile(&set).unwrap(), compile(&format!("\n{set}\n")).unwrap()] {
            let method = pool.get_service_by_name("hello.Greeter").unwrap().methods().next().unwrap();
            assert_eq!((method.name(), method.input().full_name()), ("Greet", "hello.Note"));
        }
    }

    #[test]
    fn sets_of_another_syntax_are_refused() {
        for syntax in ["editions", "", "proto4"] {
            let file = FileDescriptorProto {
                name: Some("a.proto".to_owned()),
                syntax: Some(syntax.to_owned()),
                ..FileDescriptorProto::default()
            };
            let set = STANDARD.encode(FileDescriptorSet { file: vec![file] }.encode_to_vec());
            let why = compile(&set).unwrap_err();
            assert!(why.contains(&format!("a.proto has the syntax {syntax:?}: write it in")), "{why}");
        }
    }

    #[test]
    fn errors_say_the_line() {
        let alone = compile(GREETER).unwrap().get_file_by_name(NAME).unwrap();
        let mut set = vec![10];
        let file = alone.file_descriptor_proto().encode_to_vec();
        prost_reflect::prost::encoding::encode_varint(file.len() as u64, &mut set);
        let alone = STANDARD.encode([set, file].concat());
        for (content, why) in [
            ("syntax", "expected '=', but reached end of file"),
            (
                "syntax = \"proto3\";\n\nmessage A {\n  strin name;\n}",
                "line 4, column 13: expected '=', but found ';'",
            ),
            ("syntax = \"proto3\";\nmessage A { B b = 1; }", "line 2, column 13: name 'B' is not defined"),
            (
                "syntax = \"proto3\";\nimport \"other.proto\";",
                "line 2, column 1: import 'other.proto' not found; other",
            ),
            ("import \"etc/passwd\";", "line 1, column 1: import 'etc/passwd' not found"),
            ("AAAA", "it is base64, but of no FileDescriptorSet"),
            (&alone, "it is base64, but of no FileDescriptorSet with all that it imports: "),
        ] {
            let error = compile(content).unwrap_err();
            assert!(error.contains(why), "{content}: {error}");
        }
    }

    #[test]
    fn depth_is_bounded_outside_of_strings_and_comments() {
        let option = |depth: usize| {
            let (open, close) = ("additional_bindings { ".repeat(depth), "}".repeat(depth));
            format!(
                "{}\nservice S {{ rpc M(Note) returns (Note) {{ option (google.api.http) = {{ {open}{close} }}; }} }}",
                GREETER
            )
        };
        assert!(compile(&option(80)).is_ok());
        for depth in [100, 1_000, 50_000] {
            assert_eq!(compile(&option(depth)).unwrap_err(), "more than 100 brackets are within each other");
        }
        let brackets = "<{[".repeat(100);
        let quiet = format!(
            "// {brackets}\n/* {brackets} */\n{GREETER}message B {{ reserved \"a\\\"{brackets}\"; }}"
        );
        assert!(!is_too_deep(&quiet));
        // Values of options may have comments of another kind, behind which nothing hides.
        let hidden = "{".repeat(200);
        for start in ["# /*", "# \"\\", "# '"] {
            assert!(is_too_deep(&format!("option (a) = {{ {start}\n{hidden}")), "{start}");
        }
    }
}
