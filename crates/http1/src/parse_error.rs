//! Why a message cannot be parsed.

use std::fmt;

macro_rules! parse_errors {
    ($($variant:ident = $status:literal $message:literal,)*) => {
        /// Why a message cannot be parsed. `Display` says what is wrong and how to fix it, and never repeats a byte
        /// of the message, because messages hold secrets.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ParseError {
            $(#[doc = $message] $variant,)*
        }

        impl ParseError {
            /// The status of the response to such a request.
            pub fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            fn message(self) -> &'static str {
                match self { $(Self::$variant => $message,)* }
            }
        }
    };
}

parse_errors! {
    // Lines
    BareLf = 400 "a line ends in LF alone; end every line with CRLF",
    BareCr = 400 "a CR is not followed by LF; end every line with CRLF",
    EmptyLines = 400 "too many empty lines before the request line; send none",
    RequestLine = 400 "the request line is not `METHOD SP TARGET SP HTTP/1.1`",
    StatusLine = 400 "the status line is not `HTTP/1.1 SP CODE SP REASON`",
    VersionUnsupported = 505 "the protocol version is not HTTP/1.1 or HTTP/1.0",
    HeadTooLarge = 400 "the head exceeds the limit of bytes; send fewer or shorter fields",
    MethodTooLong = 501 "the method is longer than any that exists; send one of at most 64 bytes",
    TargetTooLong = 414 "the request target exceeds the limit of bytes; send a shorter one",

    // Fields
    TooManyFields = 431 "the head exceeds the limit of fields; send fewer",
    FieldTooLarge = 400 "a field exceeds the limit of bytes; send a shorter one",
    FieldName = 400 "a field name is empty, not a token, or followed by a space before its colon",
    FieldValue = 400 "a field value holds a control character; send visible characters, spaces and tabs only",
    ConnectionSpecificField = 400 "a field is of one connection over HTTP/1.1, such as Connection or Transfer-Encoding; leave it out",
    ObsFold = 400 "a field value continues on a second line; send each field on one line",

    // Where the request goes
    Target = 400 "the request target is not a path, an absolute http URL, `*` for OPTIONS or host:port for CONNECT",
    TargetFragment = 400 "the request target holds a `#`; fragments are not sent",
    Authority = 400 "the authority in the request target is not a valid `host` or `host:port`",
    HostMissing = 400 "an HTTP/1.1 request has no Host field; send exactly one",
    HostRepeated = 400 "a request has several Host fields; send exactly one",
    HostInvalid = 400 "the Host field is not a valid `host` or `host:port`",

    // Where the message ends
    ContentLength = 400 "Content-Length is not a plain decimal number below 2^63",
    ContentLengthRepeated = 400 "Content-Length is given more than once; send it once",
    LengthAndEncoding = 400 "both Content-Length and Transfer-Encoding are given; send one of them",
    TransferEncoding = 400 "Transfer-Encoding is not exactly `chunked`",
    TransferEncodingRepeated = 400 "Transfer-Encoding is given more than once; send it once",
    TransferEncodingVersion = 400 "Transfer-Encoding is given on HTTP/1.0, which has none",
    TransferEncodingUnknown = 501 "Transfer-Encoding names a coding other than `chunked`; only `chunked` is supported",

    // Credentials
    AuthorizationRepeated = 400 "Authorization is given more than once; send it once",

    // Expectations
    ExpectRepeated = 400 "Expect is given more than once; send it once",
    ExpectUnknown = 417 "Expect is not `100-continue`, the only expectation there is",

    // Bodies
    ChunkSize = 400 "a chunk size is not 1 to 16 hexadecimal digits below 2^63",
    ChunkExtension = 400 "a chunk extension is not of the form `;name` or `;name=value`",
    ChunkExtensionTooLong = 400 "a chunk's extensions exceed the limit of bytes; send none",
    ChunkEnd = 400 "a chunk's data is not followed by CRLF",
    ChunkOverhead = 413 "the chunk extensions of the body outweigh its data; send none",
    TrailersTooLarge = 431 "the trailers exceed the limit of bytes or fields",
    TrailerForbidden = 400 "a trailer names a field of framing or routing; send it among the headers",
    BodyLength = 400 "the body is shorter or longer than Content-Length says; send as much as it says",
    BodyTruncated = 400 "the connection ended before the body did",
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.message())
    }
}

impl std::error::Error for ParseError {}
